"""Runs that were begun by an older version, when experiments had short names and nothing bounded gradients."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shape_world import make_shapes
from trainings import assert_same_run, facts, saved_steps, tensors, train

from viewslots.errors import UserError
from viewslots.experiments import EXPERIMENTS, full_name, known_experiment
from viewslots.methods.schedules import Optimisation
from viewslots.training.checkpoint import load_step, save_checkpoint
from viewslots.training.plan import Asked, plan_run
from viewslots.training.run import read_run_config
from viewslots.training.settings import RunSettings
from viewslots.training.start import pinned_model
from viewslots.training.state import TrainState

RECORDED = [
    path
    for path in sorted((Path(__file__).parents[2] / "docs" / "results").rglob("config.json"))
    if json.loads(path.read_text()).get("kind") == "viewslots run"
]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.parent.name)
def test_recorded_runs_open(path: Path) -> None:
    """What was published with the results: nothing is lost, and what is new has the value that it had unsaid."""
    config = read_run_config(path.parent)
    settings = RunSettings.from_json(config)
    again = json.loads(json.dumps(settings.to_json()))
    unsaid = {"clip_norm": 0.0, "fewest_views": 0, "neighbours": 1.0, "neighbour_steps": 0, "parts": []}
    assert {name: again["optimisation"].pop(name) for name in unsaid} == unsaid
    assert (again.pop("tunes"), again.pop("first"), again.pop("init_step")) == (False, None, None)
    kinds = ("glimpse", "box", "details", "weighed")
    later = {name for name in again["model"] if name.startswith(kinds)} - config["model"].keys()
    assert not any(again["model"][name] for name in later & {"glimpses", "box_fit", "details"})
    assert again["model"].get("weighed_views", 1) == 1
    again["model"] = {name: value for name, value in again["model"].items() if name not in later}
    assert again == {name: config[name] for name in again}
    experiment = known_experiment(settings.preset)
    assert experiment is not None
    assert settings.method in (experiment.method, "per-view")
    assert type(settings.schedule) is type(experiment.schedule)


def test_there_are_recorded_runs() -> None:
    presets = {read_run_config(path.parent)["preset"] for path in RECORDED}
    assert {"compact", "umbra"} <= presets


def make_old(run: Path, preset: str, step: int | None = None) -> None:
    """As the first version wrote it: a short name, no bound on gradients, checkpoints that name no settings."""
    path = run / "config.json"
    values = json.loads(path.read_text())
    values["config"]["preset"] = preset
    del values["config"]["optimisation"]["clip_norm"]
    path.write_text(json.dumps(values))
    if step is not None:
        state = load_step(run / "checkpoints", step)
        minimised, _, *terms = state.facts["sums"]
        old = {name: value for name, value in state.facts.items() if name != "settings"} | {"sums": [*terms, minimised]}
        save_checkpoint(run / "checkpoints", TrainState(step, state.tensors, old))


SMALL = ("model.image_size=32", "model.object_decoder.final_scale=1", "model.background_decoder.final_scale=1")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shapes(tmp_path_factory.mktemp("data") / "shapes", train=4, valid=1)


def options(data: Path) -> dict[str, Any]:
    return {"data": data, "steps": 4, "batch": 2, "checkpoint_every": 1, "device": "cpu", "set_": SMALL}


@pytest.mark.parametrize("named", [(), ("compact",), ("ocloc-compact/clevr-m1",)])
def test_an_old_run_goes_on(data: Path, tmp_path: Path, named: tuple[str, ...]) -> None:
    """From its second checkpoint, whatever name it is given: bit for bit as if it had never stopped."""
    straight, old = tmp_path / "straight", tmp_path / "old"
    for run in (straight, old):
        train("compact", run=run, **options(data))
    for step in (3, 4):
        for path in (old / "checkpoints").glob(f"step-{step:08d}.*"):
            path.unlink()
    make_old(old, "compact", 2)
    assert len(facts(old, 2)["sums"]) == len(facts(straight, 2)["sums"]) - 1
    train(*named, run=old, resume=True, device="cpu")
    assert saved_steps(old)[-1] == 4
    assert_same_run(straight, old, 4)
    with pytest.raises(
        UserError, match="begun with the experiment ocloc-compact/clevr-m1, not ocloc/clevr-m1; leave it out"
    ):
        train("clevr-m1", run=old, resume=True, device="cpu")


def test_second_stages_know_old_runs_by_their_full_name(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways: an old first stage for a new second one, and an old second one that names its first in short."""
    first, name = tmp_path / "first", "ocloc-tiny/clevr-m1"
    stage = Optimisation(
        batch_size=2, single_view_steps=0, warmup_steps=0, pretrained_preset=name, pretrained_step=1200
    )
    tiny = EXPERIMENTS[name]
    monkeypatch.setitem(EXPERIMENTS, "second", type(tiny)(**vars(tiny) | {"optimisation": stage}))
    train("tiny", run=first, data=shapes, steps=10, batch=2, checkpoint_every=1, device="cpu")
    make_old(first, "tiny")
    assert full_name("tiny") == name
    wish = plan_run(Asked(preset="second", data="live", stored_views=3, data_sha256=None, steps=4, init=str(first)))
    for wanted in (name, "tiny"):
        found = pinned_model(first, replace(wish.optimisation, pretrained_preset=wanted))
        assert found is not None
        model, step = found
        assert step == 5
        kept = tensors(first, 5)
        assert all(value.equal(kept[f"model.{key}"]) for key, value in model.state_dict().items())
    for other in ({"pretrained_preset": "ocloc/clevr-m1"}, {"pretrained_step": 0}):  # the latter asks for the best
        assert pinned_model(first, replace(wish.optimisation, **other)) is None
    best = json.loads((first / "best.json").read_text())["step"]
    assert best != 5
    damaged = tmp_path / "damaged"
    shutil.copytree(first, damaged)
    weights = damaged / "checkpoints" / "step-00000005.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"step-00000005\.safetensors: damaged"):
        pinned_model(damaged, replace(wish.optimisation, pretrained_preset=name))
    for preset, step in {"second": 5, "tiny": best}.items():  # which its results will name
        train(preset, run=tmp_path / preset, data=shapes, steps=1, batch=2, device="cpu", init=str(first))
        assert read_run_config(tmp_path / preset)["init_step"] == step
    for path in (tmp_path / "tiny" / "saved.json", *(tmp_path / "tiny" / "checkpoints").iterdir()):
        path.unlink()  # as if it had been stopped before it saved anything
    (first / "best.json").write_text((first / "best.json").read_text().replace(f'"step": {best}', '"step": 3'))
    with pytest.raises(UserError, match=f"begun with step {best} of .*, which now has step 3 to start from"):
        train(run=tmp_path / "tiny", resume=True, device="cpu")
