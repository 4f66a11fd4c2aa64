"""From what a user names to a model, and never to the network unasked."""

import json
import os
import shutil
import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch

from viewslots import runs
from viewslots.errors import UserError
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.presets import TINY
from viewslots.methods.per_view.model import PerView
from viewslots.runs import load_run, run_preset, shipped_models
from viewslots.training.run import RunFolder

SETTINGS = {"preset": "tiny", "seed": 7}


@cache
def tiny(seed: int, kind: type[Ocloc] = Ocloc) -> Ocloc:
    return kind(TINY, torch.Generator().manual_seed(seed))


def is_tiny(model: Ocloc, seed: int) -> bool:
    expected = tiny(seed, type(model)).state_dict()
    return all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())


@pytest.fixture(autouse=True)
def _no_network_and_no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("went to the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # a busy disk is slow at it


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunFolder]:
    with RunFolder.create(tmp_path / "run", SETTINGS) as folder:
        yield folder


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with two models, and a folder that is none."""
    package = tmp_path / "package"
    for name, seed in (("compact", 5), ("another", 6)):
        tiny(seed).save_pretrained(package / "shipped" / name)
    (package / "shipped" / "__pycache__").mkdir()
    monkeypatch.setattr(runs, "files", lambda name: {"viewslots": package}[name])
    return package / "shipped"


def test_a_run_folder(run: RunFolder) -> None:
    run.keep_best(tiny(1), 100, {"loss": 2.0})
    run.keep_last(tiny(2), 200)
    assert is_tiny(load_run(run.path), 1)
    model = load_run(str(run.path), which="last")
    assert is_tiny(model, 2)
    assert not model.training
    assert run_preset(run.path) == SETTINGS
    assert is_tiny(load_run(run.path / "best-00000100"), 1)
    assert run_preset(run.path / "best-00000100") == SETTINGS


def test_every_method(run: RunFolder) -> None:
    run.keep_best(tiny(1, PerView), 100, {})
    assert type(load_run(run.path)) is PerView


def test_a_saved_model(tmp_path: Path) -> None:
    tiny(3).save_pretrained(tmp_path / "model")
    assert is_tiny(load_run(tmp_path / "model"), 3)
    assert run_preset(tmp_path / "model") == {}


def test_a_run_without_models(run: RunFolder) -> None:
    with pytest.raises(UserError, match=r"run: no best model yet \(none counts before .*\); train on, with --resume"):
        load_run(run.path)
    with pytest.raises(UserError, match=r"run: no last model yet \(nothing was saved so far\)"):
        load_run(run.path, which="last")
    assert run_preset(run.path) == SETTINGS


@pytest.mark.parametrize("name", ["../elsewhere", "/", "..", ".", "", "best-gone", "best-1/../../elsewhere", None, 3])
def test_a_pointer_that_leads_nowhere(run: RunFolder, name: object) -> None:
    tiny(1).save_pretrained(run.path.parent / "elsewhere")
    (run.path / "best.json").write_text(json.dumps({"folder": name, "step": 1}))
    with pytest.raises(UserError, match=r"best\.json: names .*, which is no folder of this run"):
        load_run(run.path)


def test_a_damaged_best_model_is_one_error(run: RunFolder) -> None:
    run.keep_best(tiny(1), 100, {})
    (run.path / "best-00000100" / "model.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"best-00000100.model\.safetensors is damaged"):
        load_run(run.path)


def test_a_model_replaced_while_it_is_read(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluation may run beside training, which removes the older best model."""
    run.keep_best(tiny(1), 100, {})
    load, pending = runs.load_model, [2, 3]

    def overtaken(source: Path) -> Ocloc:
        if pending:
            seed = pending.pop(0)
            run.keep_best(tiny(seed), 100 * seed, {})
        return load(source)

    monkeypatch.setattr(runs, "load_model", overtaken)
    assert is_tiny(load_run(run.path), 3)


def test_shipped_models(shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shipped_models() == ["another", "compact"]
    assert is_tiny(load_run("compact"), 5)
    assert run_preset("compact") == {}
    shutil.copytree(shipped / "another", tmp_path / "here" / "compact")
    monkeypatch.chdir(tmp_path / "here")
    assert is_tiny(load_run("compact"), 6)  # a folder goes first
    with pytest.raises(UserError, match="big: no such folder, and no shipped model; shipped are another, compact"):
        load_run("big")
    with pytest.raises(UserError, match=r"no shipped model; did you mean compact\? shipped are"):
        load_run("compcat")


def test_a_package_without_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "files", lambda name: tmp_path)
    assert shipped_models() == []
    with pytest.raises(UserError, match="shipped are none; models of the Hub are hf:OWNER/NAME"):
        load_run("compact")


def test_names_of_this_package_can_be_loaded() -> None:
    """Whatever is shipped must load."""
    assert "compact" in shipped_models()
    for name in shipped_models():
        assert isinstance(load_run(name), Ocloc)


@pytest.mark.parametrize("name", ["compact-of-nobody", "owner/name", "./missing", "../x", "", "hf"])
def test_plain_names_never_reach_the_network(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for ask in (load_run, run_preset):
        with pytest.raises(UserError, match=r"no such folder|neither a run folder nor a saved model"):
            ask(name)


def test_a_folder_that_is_neither(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"neither a run folder nor a saved model \(it has no config\.json\)"):
        load_run(tmp_path)
    (tmp_path / "config.json").write_text('{"something": "else"}')
    with pytest.raises(UserError, match="not the configuration of a viewslots model"):
        load_run(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UserError, match=r"config\.json: damaged JSON"):
        load_run(tmp_path)


def test_hub_names_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runs, "load_model", lambda source: asked.append(source) or tiny(1))
    assert is_tiny(load_run("hf:owner/name"), 1)
    assert asked == ["owner/name"]
    assert run_preset("hf:owner/name") == {}
    (tmp_path / "owner" / "name").mkdir(parents=True)
    with pytest.raises(UserError, match=r"owner/name is a folder here as well; give \./owner/name"):
        load_run("hf:owner/name")
