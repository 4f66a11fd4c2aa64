"""Models in folders: what is saved comes back, and whatever is wrong gets one clear error."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from viewslots.errors import UserError
from viewslots.experiments import EXPERIMENTS
from viewslots.methods.contract import Search, TrainableMethod
from viewslots.methods.names import METHODS
from viewslots.methods.ocloc.config import DecoderConfig, OclocConfig
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.presets import TINY
from viewslots.methods.per_view.model import PerView
from viewslots.methods.registry import load_model, trainable_class
from viewslots.types import SceneBatch


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = Ocloc(TINY, generator(1))
    model.nvil.mean.fill_(-5.0)
    model.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


TINY_ONES = {made.method: made.model for name, made in EXPERIMENTS.items() if "-tiny/" in name}
EVERY = pytest.mark.parametrize("method", [*TINY_ONES, "per-view"])


def tiny(method: str) -> TrainableMethod[Any]:
    return trainable_class(method)(TINY_ONES.get(method, TINY), generator(1)).eval()


def pictures(size: int) -> SceneBatch:
    image = torch.rand(1, 2, 3, size, size, generator=generator())
    camera = torch.rand(1, 2, 5, generator=generator(2))
    return SceneBatch(image, torch.ones(1, 2, dtype=torch.bool), camera)


def test_every_method_that_learns_is_here() -> None:
    assert {*TINY_ONES, "per-view"} == {name for name, entry in METHODS.items() if entry.learns}


@EVERY
def test_round_trip(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = tiny(method)
    model.save_pretrained(tmp_path / "model")
    assert not list(tmp_path.rglob("*.bin"))
    assert json.loads((tmp_path / "model" / "config.json").read_text())["method"] == method
    loaded = type(model).from_pretrained(tmp_path / "model", expect=model.config)
    assert loaded.config == model.config
    assert not loaded.training
    batch = pictures(model.image_size[0])
    left, right = (item.infer(batch, generator(3)).decomposition() for item in (model, loaded))
    assert torch.equal(left.layer_masks, right.layer_masks)
    assert torch.equal(left.reconstruction, right.reconstruction)
    assert type(load_model(tmp_path / "model")) is type(model)


@EVERY
def test_what_no_method_takes(method: str) -> None:
    model = tiny(method)
    size = model.image_size[0]
    if not model.searches:
        with pytest.raises(UserError, match=f"{method} answers in one pass"):
            model.infer(pictures(size), generator(), search=Search())
    with pytest.raises(UserError, match="at least 1, not 0"):
        model.infer(pictures(size), generator(), slots=0)
    with pytest.raises(UserError, match=f"{size}x{size} pictures, not {2 * size}x{2 * size}"):
        model.infer(pictures(2 * size), generator())


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_configs_survive_json(name: str) -> None:
    config = EXPERIMENTS[name].model
    assert type(config).from_json(json.loads(json.dumps(config.to_json()))) == config


def test_half_precision_weights_are_read(folder: Path) -> None:
    state = {name: value.bfloat16() for name, value in load_file(folder / "model.safetensors").items()}
    save_file(state, folder / "model.safetensors")
    model = Ocloc.from_pretrained(folder)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_newer_format_is_refused(folder: Path) -> None:
    edit_config(folder, format_version=2)
    with pytest.raises(UserError, match="format version 2, newer than 1: please update"):
        Ocloc.from_pretrained(folder)


@pytest.mark.parametrize("version", [0, -1, True, 1.0, "1", None])
def test_impossible_formats_are_refused(folder: Path, version: object) -> None:
    edit_config(folder, format_version=version)
    with pytest.raises(UserError, match="not the configuration of a viewslots model"):
        Ocloc.from_pretrained(folder)


def test_another_method_is_refused(folder: Path) -> None:
    with pytest.raises(UserError, match="method 'ocloc', not 'per-view'"):
        PerView.from_pretrained(folder)
    edit_config(folder, method="magic")
    with pytest.raises(UserError, match="magic"):
        load_model(folder)


def test_another_preset_is_refused(folder: Path) -> None:
    with pytest.raises(UserError, match="another configuration: slots is 2, expected 5"):
        Ocloc.from_pretrained(folder, expect=replace(TINY, slots=5))


def test_weights_of_another_shape_are_refused(folder: Path) -> None:
    Ocloc(replace(TINY, hidden=48)).save_pretrained(folder.parent / "other")
    (folder / "model.safetensors").write_bytes((folder.parent / "other" / "model.safetensors").read_bytes())
    with pytest.raises(UserError, match=r"does not fit its configuration: .* has shape"):
        Ocloc.from_pretrained(folder)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "not finite; the model is damaged"),
        (float("inf"), "not finite; the model is damaged"),
        (torch.int64, "inference.mu_hat is torch.int64, expected torch.float32"),
        (torch.complex64, "inference.mu_hat is torch.complex64, expected torch.float32"),
    ],
)
def test_weights_that_are_no_weights_are_refused(folder: Path, value: float | torch.dtype, words: str) -> None:
    state = load_file(folder / "model.safetensors")
    old = state["inference.mu_hat"]
    state["inference.mu_hat"] = old.to(value) if isinstance(value, torch.dtype) else torch.full_like(old, value)
    save_file(state, folder / "model.safetensors")
    with pytest.raises(UserError, match=words):
        Ocloc.from_pretrained(folder)


def test_networks_are_not_built_before_their_weights_are_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small folder cannot ask for gigabytes."""
    config = json.loads(json.dumps(TINY.to_json() | {"hidden": 65_536, "update_hidden": 65_536}))
    edit_config(folder, config=config)
    devices: list[str] = []
    build = Ocloc.__init__

    def noted(self: Ocloc, *given: object) -> None:
        devices.append(str(torch.get_default_device()))
        build(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(Ocloc, "__init__", noted)
    with pytest.raises(UserError, match="does not fit its configuration"):
        Ocloc.from_pretrained(folder)
    assert devices == ["meta"]


def test_missing_tensors_are_refused(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    state.pop("inference.mu_hat")
    save_file(state, folder / "model.safetensors")
    with pytest.raises(UserError, match=r"inference\.mu_hat"):
        Ocloc.from_pretrained(folder)


@pytest.mark.parametrize("content", [b"", b"junk", b"\x80\x04pickle" * 100])
def test_damaged_weights_are_refused(folder: Path, content: bytes) -> None:
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(UserError, match="damaged or not a safetensors file"):
        Ocloc.from_pretrained(folder)


def test_truncated_weights_are_refused(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:-100])
    with pytest.raises(UserError, match="damaged or not a safetensors file"):
        Ocloc.from_pretrained(folder)


def test_pickles_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"has no model\.safetensors"):
        Ocloc.from_pretrained(folder)
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"pytorch_model.bin is a pickle, which can run code and is not read"):
        Ocloc.from_pretrained(folder)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format_version": 1, "method": "ocloc", "config": 3}'])
def test_damaged_config_is_refused(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(
        UserError, match=r"not the configuration of a viewslots model|damaged JSON|an object is expected"
    ):
        Ocloc.from_pretrained(folder)


def test_unknown_config_field_is_refused(folder: Path) -> None:
    edit_config(folder, config=TINY.to_json() | {"wheels": 4})
    with pytest.raises(UserError, match="wheels"):
        Ocloc.from_pretrained(folder)


DAMAGES: list[tuple[str, object, str]] = [
    ("slots", "7", "model.slots cannot be '7'"),
    ("slots", 0, "model.slots cannot be 0"),
    ("slots", True, "model.slots cannot be True"),
    ("rounds", 2.5, "model.rounds cannot be 2.5"),
    ("sigma_x", 0.0, "model.sigma_x cannot be 0.0"),
    ("alpha", float("nan"), "NaN is not a JSON number"),
    ("hidden", 10**9, "model.hidden cannot be 1000000000: it must be at most 65536"),
    ("hidden", 60_000, "does not fit its configuration"),
    ("feature_layers", 10**6, "model.feature_layers cannot be 1000000: it must be at most 1000"),
    ("rounds", 10**6, "model.rounds cannot be 1000000: it must be at most 1000"),
    ("slots", 10**6, "model.slots cannot be 1000000: it must be at most 1000"),
    ("nvil.channels", [4] * 1001, "it must be shorter"),
    ("nvil.channels", [10**9], "it must be at most 65536"),
    ("feature_kernel", 4, "odd size, not 4"),
    ("nvil", 3, "NvilConfig must be a dictionary, not 3"),
    ("nvil.momentum", 1.0, "model.nvil.momentum cannot be 1.0: it must be 0 or above, and below 1"),
    ("nvil.channels", [4, -1], "model.nvil.channels cannot be"),
    ("nvil.channels", 4, "model.nvil.channels cannot be 4"),
    ("nvil.normalise", "yes", "model.nvil.normalise cannot be 'yes'"),
    ("nvil.wheels", 4, "NvilConfig: missing or unknown fields"),
    ("start.log_sigma", None, "model.start.log_sigma cannot be None"),
    ("object_decoder.stages", [[1, 3]], "model.*_decoder.stages cannot be"),
    ("object_decoder.stages", [[1, 2, 3]], "odd size, not 2"),
    ("object_decoder.grid", 0, "model.*_decoder.grid cannot be 0"),
    ("object_decoder.grid_channels", 0, "a compact decoder needs grid_channels"),
    ("object_decoder.kind", "magic", "unknown decoder 'magic'"),
    ("object_decoder.kind", ["dense"], "model.*_decoder.kind cannot be"),
]


@pytest.mark.parametrize(("where", "value", "message"), DAMAGES)
def test_damaged_fields_are_refused(folder: Path, where: str, value: object, message: str) -> None:
    """Types, sizes and unknown fields, also of the configs inside the config."""
    config = json.loads(json.dumps(TINY.to_json()))
    *path, name = where.split(".")
    inner = config[path[0]] if path else config
    inner[name] = value
    edit_config(folder, config=config)
    with pytest.raises(UserError, match=re.escape(message)):
        Ocloc.from_pretrained(folder)


@pytest.mark.parametrize("where", ["rounds", "nvil", "nvil.hidden", "start.log_sigma", "background_decoder.grid"])
def test_missing_fields_are_refused(folder: Path, where: str) -> None:
    config = json.loads(json.dumps(TINY.to_json()))
    *path, name = where.split(".")
    del (config[path[0]] if path else config)[name]
    edit_config(folder, config=config)
    with pytest.raises(UserError, match=f"missing or unknown fields .*{name}"):
        Ocloc.from_pretrained(folder)


def test_a_name_that_is_no_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="is no folder"):
        Ocloc.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(UserError, match="is no folder"):
        Ocloc.from_pretrained("nobody/nothing", cache_dir=tmp_path)


def test_impossible_configs_are_refused() -> None:
    with pytest.raises(UserError, match="pictures of 64x64, but image_size is 32x32"):
        replace(OclocConfig(), image_size=32)
    with pytest.raises(UserError, match="unknown decoder 'magic'"):
        replace(TINY, object_decoder=DecoderConfig(kind="magic", grid=32, stages=()))
    for kind in ("dense", "broadcast"):
        with pytest.raises(UserError, match=f"final_scale is for compact decoders, not for {kind}"):
            DecoderConfig(kind=kind, grid=16, grid_channels=4, stages=(), final_scale=2)
