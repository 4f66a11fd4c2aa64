"""Stages in one run, and fine-tuning: the same as by hand, whenever it is broken off."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shape_world import ShapeWorld, make_shapes
from test_distributed import torchrun
from trainings import SMALL, assert_same_run, resume, rows, saved_steps, train

from viewslots.commands.evaluation import evaluate
from viewslots.commands.figures import figures
from viewslots.data.generate import DatasetRecipe, make_dataset
from viewslots.errors import UserError
from viewslots.experiments import EXPERIMENTS, all_steps, describe, experiment, first_stage, overview, stages
from viewslots.methods.experiment import Experiment
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.presets import COMPACT
from viewslots.methods.umbra.model import Umbra
from viewslots.methods.umbra.presets import with_glimpses
from viewslots.run_format import CONFIG
from viewslots.run_record import training_facts, training_seconds
from viewslots.runs import load_run, run_preset
from viewslots.training.distributed import Ranks
from viewslots.training.feed import LiveFeed
from viewslots.training.loop import Training
from viewslots.training.parts import open_data
from viewslots.training.plan import Asked, plan_run
from viewslots.training.run import LOCK, RunFolder
from viewslots.training.settings import RunSettings, parse_changes
from viewslots.training.step import EagerStep
from viewslots.training.validation import Validation

NAME = "umbra-tiny/clevr-m1"
SHORT: dict[str, Any] = SMALL | {"steps": 10, "checkpoint_every": 3, "validate_every": 2}
"""Eight steps and two."""
FIRST, SECOND = 8, 2


@pytest.fixture(scope="module")
def chain(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both stages without a break."""
    run = tmp_path_factory.mktemp("chain") / "run"
    _, said = train(NAME, data=shapes, run=run, **SHORT)
    assert f"2 stages: 8 steps of ocloc-tiny/clevr-m1, then 2 of {NAME}\n" in said
    assert "stage 1/2  step 8/8  " in said
    assert "stage 2/2  step 2/2  " in said
    return run


def third_stage(steps: int) -> Experiment:
    made = with_glimpses(experiment(NAME), details=0).squeezed(steps)
    return replace(made, optimisation=replace(made.optimisation, pretrained_preset=NAME))


@contextmanager
def broken_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Whatever is written behind the loop's back is on disk by then."""
    step, calls = EagerStep.run, iter(range(1000))
    with monkeypatch.context() as patch:
        patch.setattr(EagerStep, "run", lambda *given: step(*given) if next(calls) < steps else 1 / 0)
        yield pytest.raises(ZeroDivisionError)


def assert_same_chain(one: Path, other: Path) -> None:
    assert_same_run(one / "first", other / "first", FIRST)
    assert_same_run(one, other, SECOND)


def test_it_is_what_two_commands_give(chain: Path, shapes: Path, tmp_path: Path) -> None:
    """The way by hand is the oracle: first stage, then its best model to start from."""
    one, two = tmp_path / "one", tmp_path / "two"
    train("tiny", data=shapes, run=one, **SHORT | {"steps": FIRST})
    assert_same_run(chain / "first", one, FIRST)
    _, said = train(NAME, data=shapes, run=two, init=str(one), **SHORT | {"steps": SECOND})
    assert f"starting from the best model of {one}" in said
    assert " stages: " not in said
    assert_same_run(chain, two, SECOND)
    assert type(load_run(chain)) is Umbra
    assert type(load_run(chain / "first")) is Ocloc


@pytest.mark.parametrize("steps", [2, 7, 8, 9], ids=["before a save", "first stage", "hand-over", "second stage"])
def test_it_goes_on_bit_for_bit(
    chain: Path, shapes: Path, tmp_path: Path, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with broken_after(steps, monkeypatch) as breaks, breaks:
        train(NAME, data=shapes, run=run, **SHORT)
    assert (saved_steps(run / "first") == []) == (steps == 2)
    assert saved_steps(run) == []
    _, said = resume(run)
    assert ("stage 1 is done" in said) == (steps >= FIRST)
    assert "finished already" not in said
    assert ("going on from step 6 of 8 of stage 1" in said) == (steps == 7)
    assert_same_chain(chain, run)


def test_a_kill_before_the_first_stage_has_a_folder(chain: Path, shapes: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    RunFolder.create(run, json.loads((chain / "config.json").read_text())["config"]).close()
    resume(run)
    assert_same_chain(chain, run)


def test_a_signal_at_the_last_step_of_the_first_stage_stops(
    chain: Path, shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    take_step = Training.take_step

    def signalled(self: Training, step: int) -> None:
        take_step(self, step)
        if self.done == FIRST:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "take_step", signalled)
        with pytest.raises(SystemExit) as left:
            train(NAME, data=shapes, run=run, **SHORT)
    assert left.value.code == 128 + signal.SIGTERM
    for which in ("best", "last"):
        with pytest.raises(UserError, match=f"no {which} model yet .it is, or was stopped, in stage 1 of 2"):
            load_run(run, which=which)
    assert type(load_run(run / "first", which="last")) is Ocloc
    resume(run)
    assert_same_chain(chain, run)


@pytest.mark.parametrize("during", ["validate", "save"])
def test_a_signal_after_the_last_step_of_the_first_stage_stops_too(
    chain: Path, shapes: Path, tmp_path: Path, during: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, act = tmp_path / "run", getattr(Training, during)

    def signalled(self: Training) -> None:
        if self.done == FIRST:
            os.kill(os.getpid(), signal.SIGTERM)
        act(self)

    with monkeypatch.context() as patch:
        patch.setattr(Training, during, signalled)
        with pytest.raises(SystemExit) as left:
            train(NAME, data=shapes, run=run, **SHORT)
    assert left.value.code == 128 + signal.SIGTERM
    assert saved_steps(run) == []
    resume(run)
    assert_same_chain(chain, run)


def test_a_first_stage_that_owes_its_last_validation_is_not_done(
    chain: Path, shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its best model may be the one that is still to be validated."""
    run, calls, validate = tmp_path / "run", iter(range(1000)), Validation.__call__

    def broken(self: Validation, model: Any) -> Any:
        if next(calls) == FIRST // SHORT["validate_every"] - 1:
            raise UserError("cannot read the data")
        return validate(self, model)

    with monkeypatch.context() as patch:
        patch.setattr(Validation, "__call__", broken)
        with pytest.raises(UserError, match=f"cannot read the data; step {FIRST} is saved, then go on with --resume"):
            train(NAME, data=shapes, run=run, **SHORT)
    assert FIRST in saved_steps(run / "first")
    _, said = resume(run)
    assert "stage 1 is done" not in said
    assert "finished already" not in said
    assert_same_chain(chain, run)


LOOKS = "umbra-looks-tiny/clevr-m1"
THREE = SHORT | {"steps": 12, "checkpoint_every": 1}
"""Eight steps, two, and two of glimpses."""
DEPTHS = {"first/first": 8, "first": 2, "": 2}


@pytest.fixture(scope="module")
def three(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Three stages without a break, the last of which starts from a model of its own kind."""
    run = tmp_path_factory.mktemp("three") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(EXPERIMENTS, LOOKS, third_stage(600))
        _, said = train(LOOKS, data=shapes, run=run, **THREE)
        assert f"3 stages: 8 steps of ocloc-tiny/clevr-m1, then 2 of {NAME}, then 2 of {LOOKS}\n" in said
        assert "fine-tuning" not in said
        for number, steps in enumerate(DEPTHS.values(), 1):
            assert f"stage {number}/3  step {steps}/{steps}  " in said
        yield run


def assert_same_stages(one: Path, other: Path) -> None:
    for stage, steps in DEPTHS.items():
        assert_same_run(one / stage, other / stage, steps)


def test_three_stages_are_what_three_commands_give(three: Path, shapes: Path, tmp_path: Path) -> None:
    init: dict[str, str] = {}
    for (stage, steps), name in zip(DEPTHS.items(), stages(LOOKS), strict=True):
        run = tmp_path / str(len(stage))
        train(name, data=shapes, run=run, **THREE | {"steps": steps} | init)
        assert_same_run(three / stage, run, steps)
        init = {"init": str(run)}
    assert 0 in losses(three), "where a part is taught, the start is validated"
    assert load_run(three).config.glimpses == 3
    with pytest.raises(UserError, match=r"--set first\.first\.model\.sigma_x: .* has no such stage"):
        train(run=run, resume=True, device="cpu", set_=("first.first.model.sigma_x=0.3",))


@pytest.mark.parametrize(("steps", "said_of"), [(8, "stage 1 is done"), (9, None), (10, "stage 2 is done"), (11, None)])
def test_three_stages_go_on_bit_for_bit(
    three: Path, shapes: Path, tmp_path: Path, steps: int, said_of: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken off at each hand-over, and in the stages after it."""
    run = tmp_path / "run"
    with broken_after(steps, monkeypatch) as breaks, breaks:
        train(LOOKS, data=shapes, run=run, **THREE)
    assert not any((run / stage / LOCK).exists() for stage in DEPTHS)
    _, said = resume(run)
    assert said.count(" is done") == (said_of is not None)
    assert said_of is None or said_of in said
    assert_same_stages(three, run)


@pytest.mark.usefixtures("three")  # the experiment is known as long as that is there
def test_intervals_may_change_in_any_stage(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    with broken_after(4, monkeypatch) as breaks, breaks:
        train(LOOKS, data=shapes, run=run, **THREE)
    train(run=run, resume=True, device="cpu", validate_every=4)
    told = [row["resumed_with"] for row in rows(run / "first" / "first") if "resumed_with" in row]
    assert [found["validate_every"] for found in told] == [4]


def test_a_kill_before_the_first_of_three_has_a_folder(three: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for stage in ("", "first"):
        RunFolder.create(run / stage, run_preset(three / stage)).close()
    with pytest.raises(UserError, match=r"in stage 1 of 3\); .* in .*run/first/first$"):
        load_run(run)
    resume(run)
    assert_same_stages(three, run)


def test_a_signal_at_the_second_of_two_hand_overs(
    three: Path, shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All folders are locked until then, so that nobody else goes on with a stage."""
    run, take_step, said = tmp_path / "run", Training.take_step, list[str]()

    def signalled(self: Training, step: int) -> None:
        take_step(self, step)
        assert all((run / stage / LOCK).exists() for stage in DEPTHS)
        if (self.settings.preset, self.done) == (NAME, 2):
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "take_step", signalled)
        patch.setattr("viewslots.commands.training.say", said.append)
        with pytest.raises(SystemExit) as left:
            train(LOOKS, data=shapes, run=run, **THREE)
    assert left.value.code == 128 + signal.SIGTERM
    assert said[-1].startswith("viewslots: stopped by SIGTERM at step 2 of stage 2, all saved; ")
    with pytest.raises(UserError, match=r"no best model yet .*, in stage 2 of 3\); .* in .*run/first$"):
        load_run(run)
    assert type(load_run(run / "first", which="last")) is Umbra
    resume(run)
    assert_same_stages(three, run)


def test_what_is_told_of_three_stages(three: Path, tmp_path: Path) -> None:
    """Steps and time of all that came before, up to the models that were handed over; the same by hand. Whoever trains
    from scratch, or teaches a part, has fine-tuned nothing."""
    kept = {stage: json.loads((three / stage / "best.json").read_text())["step"] for stage in ("first/first", "first")}
    seconds = [training_seconds(three / stage / "metrics.jsonl", step) for stage, step in kept.items()]
    config = run_preset(three)
    by_hand = {**config, "first": None, "init": str(three / "first"), "init_step": kept["first"]}
    alone = shutil.copytree(three / "first", tmp_path / "alone")  # the second stage, begun by hand from the first
    written = json.loads((alone / CONFIG).read_text())
    second = {**config["first"], "first": None, "init": str(three / "first/first"), "init_step": kept["first/first"]}
    (alone / CONFIG).write_text(json.dumps(written | {"config": second}))
    chained = {**by_hand, "init": str(alone)}
    for settings, name in ((config, NAME), (by_hand, "first"), (chained, "alone")):
        found = training_facts(settings, 2, three)
        assert found is not None
        assert (found["steps"], found["init"], found["tuned"]) == (2, name, False)
        assert found["init_steps"] == sum(kept.values())
        assert found["init_seconds"] == pytest.approx(sum(filter(None, seconds)))
    whole = {**config, "optimisation": {**config["optimisation"], "parts": ()}}
    assert training_facts(whole, 2, three)["tuned"] is True  # type: ignore[index]
    elsewhere = training_facts(config, 2, tmp_path)  # of which nothing is left
    assert elsewhere is not None
    assert (elsewhere["init_steps"], elsewhere["init_seconds"]) == (10, None)
    train(LOOKS, run=three, resume=True, device="cpu", set_=("first.first.schedule.temperature_start=1",), steps=12)
    with pytest.raises(UserError, match=r"begun with --set first\.first\.model\.sigma_x 0\.14, not 0\.3"):
        train(run=three, resume=True, device="cpu", set_=("first.first.model.sigma_x=0.3",))


def test_two_processes_hand_over_as_one(shapes: Path, tmp_path: Path) -> None:
    alone, together = tmp_path / "alone", tmp_path / "together"
    options = {"steps": 10, "batch": 4, "checkpoint_every": 5, "validate_every": 5}
    train(NAME, data=shapes, run=alone, device="cpu", **options)
    process = torchrun(experiment=NAME, data=shapes, run=together, **options)
    output, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert json.loads(output)["step"] == SECOND
    for stage in ("first", ""):
        ours, theirs = (
            [row["loss"] for row in rows(run / stage) if row["kind"] == "train"] for run in (together, alone)
        )
        assert ours == pytest.approx(theirs, rel=1e-4)
        assert len(ours) == (FIRST if stage else SECOND)


def test_what_is_given_again_must_agree(chain: Path, shapes: Path) -> None:
    before = rows(chain)
    again = {"run": chain, "resume": True, "device": "cpu"}
    _, said = train(NAME, steps=10, seed=0, set_=("first.schedule.temperature_start=1",), **again)
    assert rows(chain) == before
    assert f"{chain} was finished already, at step {SECOND} of stage 2: nothing is left to train" in said
    for problem, options in {
        "begun with --steps 10, not 8": {"steps": 8},
        "begun without --init, not umbra": {"init": "umbra"},
        "begun with --set first.model.sigma_x 0.14, not 0.3": {"set_": ("first.model.sigma_x=0.3",)},
    }.items():
        with pytest.raises(UserError, match=problem):
            train(run=chain, resume=True, device="cpu", **options)


def test_it_is_scored_reported_and_shown(chain: Path, shapes: Path, tmp_path: Path) -> None:
    evaluate(str(chain), data=shapes, split="valid", views=2, out=tmp_path / "result.json", device="cpu")
    training = json.loads((tmp_path / "result.json").read_text())["training"]
    assert (training["steps"], training["init"], training["init_steps"]) == (2, "ocloc-tiny/clevr-m1", 8)
    assert training["init_seconds"] > 0
    figures(str(chain), data=shapes, out=tmp_path / "figures", split="valid", scenes=1, frames=2, device="cpu")
    assert (tmp_path / "figures" / "decomposition-perceived.svg").exists()


def plan(preset: str, *words: str, **options: Any) -> RunSettings:
    changes = parse_changes(words, *map(experiment, reversed(stages(preset))))
    return plan_run(Asked(preset=preset, data="live", stored_views=10, data_sha256=None, changes=changes, **options))


def test_the_recipe_is_that_of_the_research_log() -> None:
    """Entries 29 and 44: a `compact` that draws in boxes squeezed to 12,000 steps, then `umbra` to 14,000; by hand."""
    for data in ("clevr-m1", "clevr-m2"):
        made = plan(f"umbra/{data}")
        first = made.first
        assert first is not None
        assert (first.preset, first.method, first.steps) == (f"ocloc-first/{data}", "ocloc", 12_000)
        assert (first.model.sigma_x, first.model.feature_kernel, first.model.start.log_sigma) == (0.1, 5, -3.0)
        assert (first.schedule.kl_ramp_steps, first.schedule.temperature_start) == (8_000, 10.0)
        rates = first.optimisation
        assert (rates.learning_rate, rates.decay_steps, rates.warmup_steps, rates.single_view_steps) == (
            *(4e-4, 4_000, 800),
            800,
        )
        assert (made.method, made.steps, made.all_steps) == ("umbra", 14_000, 26_000)
        assert (made.model.sigma_x, made.model.feature_kernel, made.schedule.kl_ramp_steps) == (0.1, 5, 0)
        rates = made.optimisation
        assert (rates.learning_rate, rates.decay_steps, rates.warmup_steps) == (2e-4, 4_667, 350)
    model = plan("umbra").first.model
    new = {"sigma_x": 0.1, "feature_kernel": 5, "box_fit": 100.0, "object_decoder": asdict(model.object_decoder)}
    new["start"] = asdict(COMPACT)["start"] | {"log_sigma": -3.0}
    assert asdict(model) == asdict(COMPACT) | new
    assert model.object_decoder.size == (32, 32)
    assert [plan(f"umbra/{data}").first.steps for data in ("dsprites", "abstract", "clevr")] == [30_000] * 3


def test_the_full_circle_goes_on_from_the_half_circle() -> None:
    """Entries 19 and 30: 40,000 steps at 4e-4 from a trained umbra, nothing of the recipe of fine-tuning."""
    with pytest.raises(UserError, match="starts from a trained umbra/clevr-m1: first run"):
        plan("umbra/clevr-m3")
    for data in ("clevr-m3", "clevr-m4", "clevr-mixed"):
        made = experiment(f"umbra/{data}")
        assert (made.schedule.steps, made.optimisation.learning_rate, made.tuning) == (40_000, 4e-4, None)


def test_a_squeezed_chain_keeps_its_shares() -> None:
    made = plan("umbra", steps=2_600)
    assert (made.first.steps, made.steps) == (1_200, 1_400)
    assert (made.first.schedule.kl_ramp_steps, made.optimisation.warmup_steps) == (800, 35)
    assert [(plan("umbra", steps=n).first.steps, plan("umbra", steps=n).steps) for n in (2, 3)] == [(1, 1), (1, 2)]
    with pytest.raises(UserError, match="--steps 1: umbra has 2 stages, so give at least 2"):
        plan("umbra", steps=1)


def test_every_stage_has_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    def shares(steps: int | None, name: str = "umbra-details/clevr-m1") -> list[int]:
        return [stage.steps for stage in plan(name, steps=steps).stages]

    assert shares(None) == [12_000, 14_000, 5_000]
    assert shares(310) == [120, 140, 50]
    assert shares(3) == [1, 1, 1]
    monkeypatch.setitem(EXPERIMENTS, LOOKS, third_stage(100_000))
    assert [shares(steps, LOOKS) for steps in (3, 9)] == [[1, 1, 1], [1, 1, 7]]
    with pytest.raises(UserError, match="--steps 2: umbra-details/clevr-m1 has 3 stages, so give at least 3"):
        shares(2)


@pytest.mark.parametrize(
    ("words", "field", "expected"),
    [
        ("model.attr_dim=8", "model.attr_dim", [8, 8, 8]),
        ("model.start.log_sigma=-2", "model.start.log_sigma", [-2, -2, -2]),
        ("model.darkest=0.5", "model.darkest", [None, 0.5, 0.5]),
        # In these the experiments differ: OCLOC, umbra, glimpses with details.
        ("model.glimpses=2", "model.glimpses", [None, 0, 2]),
        ("model.rounds=6", "model.rounds", [3, 3, 6]),
        ("model.details=8", "model.details", [None, 0, 8]),
        ("first.model.rounds=6", "model.rounds", [6, 6, 4]),
        ("first.first.model.rounds=6", "model.rounds", [6, 3, 4]),
        ("model.sigma_x=0.3 first.first.model.sigma_x=0.4", "model.sigma_x", [0.4, 0.3, 0.3]),
        ("optimisation.warmup_steps=9", "optimisation.warmup_steps", [800, 350, 9]),
        ("first.optimisation.warmup_steps=9", "optimisation.warmup_steps", [800, 9, 100]),
        ("first.first.optimisation.warmup_steps=9", "optimisation.warmup_steps", [9, 350, 100]),
    ],
)
def test_whose_constant_is_changed(words: str, field: str, expected: list[Any]) -> None:
    made = plan("umbra-details/clevr-m1", *words.split())
    section, *inner = field.split(".")
    assert [read(getattr(stage, section), inner) for stage in made.stages] == expected
    assert RunSettings.from_json(json.loads(json.dumps(made.to_json()))) == made


def read(config: Any, names: list[str]) -> Any:
    """None where this kind of model has no such field."""
    return read(getattr(config, names[0], None), names[1:]) if names else config


def test_two_stages_that_differ_in_a_constant() -> None:
    """Pictures of 128x128: the first stage compares them less sharply, whatever the second does."""
    assert [stage.model.sigma_x for stage in plan("umbra/clevr", "model.sigma_x=0.3").stages] == [0.2, 0.3]
    assert [stage.model.sigma_x for stage in plan("umbra/clevr", "first.model.sigma_x=0.3").stages] == [0.3, 0.1]
    assert [stage.model.sigma_x for stage in plan("umbra", "model.sigma_x=0.3").stages] == [0.3, 0.3]


def test_options_count_for_all_stages_or_for_the_last() -> None:
    made = plan("umbra-details/clevr-m1", batch=7, views=3, slots=5, seed=4, learning_rate=3e-4)
    for stage in made.stages:
        assert (stage.batch, stage.views, stage.model.slots, stage.seed) == (7, 3, 5, 4)
    assert [stage.optimisation.learning_rate for stage in made.stages] == [4e-4, 2e-4, 3e-4]
    assert plan("umbra-details/clevr-m1", init="some").stages[:-1] == ()
    for words, problem in {
        "first.first.schedule.steps=9": "--set first.first.schedule.steps: an earlier stage has its share",
        "first.first.first.model.slots=3": "each `first.` goes back one stage, but the experiment has 2 before its",
        "first.first.model.glimpses=3": "--set first.first.model.glimpses: no such field",
        "first=2": "--set first=2: give first.section.field=value for an earlier stage, such as first.optimisation",
        "first.first.=2": "--set first.first.=2: give first.first.section.field=value for an earlier stage",
    }.items():
        with pytest.raises(UserError, match=problem):
            plan("umbra-details/clevr-m1", words)


@pytest.mark.parametrize(
    "change",
    [
        *("first.model.attr_dim=8", "first.model.object_decoder.grid_channels=16", "first.first.model.hidden=32"),
        "first.first.model.object_decoder.stages=[[1,3,64],[2,3,64],[1,3,16]]",  # to which no shadow can be put
    ],
)
def test_stages_that_do_not_fit_are_refused_before_anything_runs(change: str, shapes: Path, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"cannot start from .* with these sizes of networks; change both stages: --set"
    ):
        train("umbra-details/clevr-m1", data=shapes, run=tmp_path / "run", set_=(change,), steps=3, batch=2)
    assert not (tmp_path / "run").exists()


def test_what_counts_for_which_stage() -> None:
    words = ("model.attr_dim=8", "model.darkest=0.5", "schedule.temperature_start=2", "first.model.sigma_x=0.3")
    made = plan("umbra", *words, batch=7, views=3, slots=5, learning_rate=1e-3, seed=4)
    first = made.first
    for stage in (made, first):
        assert (stage.batch, stage.views, stage.model.slots, stage.seed, stage.model.attr_dim) == (7, 3, 5, 4, 8)
    assert (made.optimisation.learning_rate, first.optimisation.learning_rate) == (1e-3, 4e-4)
    assert (made.schedule.temperature_start, first.schedule.temperature_start) == (2.0, 10.0)
    assert (made.model.sigma_x, first.model.sigma_x, made.model.darkest) == (0.1, 0.3, 0.5)
    assert RunSettings.from_json(json.loads(json.dumps(made.to_json()))) == made
    with pytest.raises(UserError, match=r"--set first\.model\.slots: this run has no first stage because of --init"):
        plan("umbra", "first.model.slots=3", init="some")
    with pytest.raises(UserError, match=r"model\.darkest: no such field"):
        plan("umbra", "first.model.darkest=1")
    with pytest.raises(UserError, match=r"first\.schedule\.steps: an earlier stage has its share of --steps"):
        plan("umbra", "first.schedule.steps=100")
    with pytest.raises(UserError, match="but the experiment has none before its last"):
        plan("compact", "first.model.slots=3")


def test_stages_on_other_data_are_trained_by_hand() -> None:
    assert first_stage("ocloc/clevr-m3") is None
    assert all_steps("ocloc/clevr-m3") == 100_000
    with pytest.raises(UserError, match="starts from a trained ocloc/clevr-m1: first run"):
        plan("clevr-m3")


def test_info_says_how_it_is_trained() -> None:
    said = describe("umbra")["training"]
    assert "12,000 steps of ocloc-first/clevr-m1, then 14,000 of umbra/clevr-m1, each from" in said["from scratch"]
    assert "--init MODEL, a trained umbra: 2,000 steps" in said["fine-tuning"]
    assert describe("umbra")["fine_tuning"]["schedule"]["steps"] == 2_000
    assert "--init FIRST, a run of ocloc/clevr-m1" in describe("clevr-m3")["training"]["from a run"]
    assert "--init FIRST, a run of umbra/clevr-m1" in describe("umbra-glimpses/clevr-m1")["training"]["from a run"]
    assert list(describe("umbra-glimpses/clevr-mixed")["training"]) == ["from a run"]
    listed = overview()["experiments"]
    assert listed["umbra/clevr-m1"] == "12,000 + 14,000 steps of 32 scenes"
    assert listed["umbra-details/clevr-m1"] == "12,000 + 14,000 + 5,000 steps of 32 scenes"
    assert listed["umbra-details/clevr-m3"] == "5,000 steps of 32 scenes, from a trained umbra/clevr-m3"


def test_live_scenes_of_the_second_stage_are_fresh() -> None:
    made = plan(NAME, steps=10, batch=2, views=2)
    model = Umbra(made.model)
    third = plan("umbra-details/clevr-m1", "first.first.optimisation.batch_size=3", steps=3, batch=2)
    for settings, seen in ((made.first, 0), (made, 16), (third, 3 + 2)):
        feed, _ = open_data(settings, model, torch.device("cpu"), Ranks(1, 2), lambda done, total: None)
        assert isinstance(feed, LiveFeed)
        assert feed.seen == seen
    chosen: dict[str, Any] = {"seed": 0, "batch": 2, "size": (32, 32), "camera": False, "ranks": Ranks()}
    chosen |= {"device": torch.device("cpu")}
    world: Any = ShapeWorld()
    later, fresh = LiveFeed(world, **chosen), LiveFeed(world, seen=6, **chosen)
    assert torch.equal(later(4, 2).image, fresh(1, 2).image)


class OtherShapes(ShapeWorld):
    """Brighter pictures, whose camera moves upwards instead of sideways."""

    def render(self, *given: Any, **options: Any) -> Any:
        pictures = super().render(*given, **options)
        turned = {
            name: np.ascontiguousarray(value.swapaxes(*((2, 3) if name == "image" else (-2, -1))))
            for name, value in vars(pictures).items()
            if value is not None and value.ndim > 3
        }
        return replace(pictures, **turned | {"image": turned["image"] // 10 * 9 + 25})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny umbra that knows grey ground."""
    root = tmp_path_factory.mktemp("trained")
    data = make_shapes(root / "data", train=24)
    train(NAME, data=data, run=root / "run", device="cpu", steps=160, batch=8, validate_every=40, checkpoint_every=1000)
    return root / "run"


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    counts = {"train": 6, "valid": 3}
    return make_dataset(
        DatasetRecipe(OtherShapes(), counts, preset="others", seed=0), tmp_path_factory.mktemp("others") / "data"
    )


TUNE: dict[str, Any] = {"device": "cpu", "steps": 30, "validate_every": 5, "checkpoint_every": 4}


@pytest.fixture(scope="module")
def tuned(trained: Path, others: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("tuned") / "run"
    _, said = train(NAME, data=others, run=run, init=str(trained), **TUNE)
    assert "fine-tuning: 30 steps; the step with the lowest validation loss counts, the start too\n" in said
    assert "this data set has 6 scenes to train on: batches of 6 instead of 24\n" in said
    assert " stages: " not in said
    return run


def losses(run: Path) -> dict[int, float]:
    return {row["step"]: row["loss"] for row in rows(run) if row["kind"] == "valid"}


def test_fine_tuning_beats_its_start_and_the_same_steps_from_scratch(tuned: Path, others: Path, tmp_path: Path) -> None:
    found = losses(tuned)
    assert list(found) == [0, 5, 10, 15, 20, 25, 30]
    best = json.loads((tuned / "best.json").read_text())
    assert best["loss"] == min(found.values()) == found[best["step"]]
    assert best["loss"] < found[0] - 100
    train(NAME, data=others, run=tmp_path / "scratch", **TUNE | {"steps": 10})
    assert found[10] < min(losses(tmp_path / "scratch").values()) - 100
    config = json.loads((tuned / "config.json").read_text())["config"]
    assert config["tunes"] is True
    assert config["schedule"]["mixture_until"] == config["schedule"]["costs_until"] == 0


def test_the_start_counts(trained: Path, others: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that wipes out all weights: then the best model is the one it started from."""

    def wipe_out(optimiser: torch.optim.Adam) -> None:
        for group in optimiser.param_groups:
            torch._foreach_zero_([parameter.data for parameter in group["params"]])

    with monkeypatch.context() as ruin:
        ruin.setattr(torch.optim.Adam, "step", wipe_out)
        train(NAME, data=others, run=tmp_path / "run", init=str(trained), **TUNE | {"steps": 1})
    found = losses(tmp_path / "run")
    assert found[1] > found[0] + 100
    assert json.loads((tmp_path / "run" / "best.json").read_text())["step"] == 0
    kept, start = load_run(tmp_path / "run").state_dict(), load_run(trained).state_dict()
    assert all(torch.equal(kept[name], value) for name, value in start.items() if not name.startswith("nvil."))
    train(NAME, data=others, run=tmp_path / "next", init=str(tmp_path / "run"), **TUNE | {"steps": 1})
    assert json.loads((tmp_path / "next" / "config.json").read_text())["config"]["init_step"] == 0


@pytest.mark.parametrize("steps", [0, 2, 18])
def test_fine_tuning_goes_on_bit_for_bit(
    tuned: Path, trained: Path, others: Path, tmp_path: Path, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with broken_after(steps, monkeypatch) as breaks, breaks:
        train(NAME, data=others, run=run, init=str(trained), **TUNE)
    assert (saved_steps(run) == []) == (steps < 4)
    resume(run)
    assert_same_run(tuned, run, 30)


def test_networks_are_those_of_the_start(others: Path, tmp_path: Path) -> None:
    """The shipped umbra has another kernel than the recipe of today; of another size, NVIL's baseline begins anew."""
    short = {"steps": 1, "device": "cpu", "data": others}
    _, said = train("umbra", run=tmp_path / "shipped", init="umbra", slots=3, **short)
    start = "starting from the best model of umbra, step 16000, which had image_size 64 (now 32), "
    assert start + "slots 7 (now 3), another object_decoder" in said
    assert "; all its weights but nvil.network, which begins anew\n" in said
    assert "fine-tuning: 1 steps" in said
    made = load_run(tmp_path / "shipped", which="last")
    assert (made.config.feature_kernel, made.image_size, made.slots) == (3, (32, 32), 3)
    Ocloc(COMPACT.sized(32, 32)).save_pretrained(tmp_path / "compact")
    _, said = train("umbra", run=tmp_path / "second", init=str(tmp_path / "compact"), **short)
    assert "fine-tuning" not in said
    assert "anew" not in said
    second = load_run(tmp_path / "second")
    assert (second.config.feature_kernel, second.config.sigma_x) == (3, 0.1)


def test_a_size_that_cannot_be_carried(tmp_path: Path) -> None:
    """With four times the pixels features stand further apart, and a kernel of 3 would leave some out."""
    data = make_dataset(
        DatasetRecipe(ShapeWorld(128), {"train": 2, "valid": 1}, preset="large", seed=0), tmp_path / "data"
    )
    with pytest.raises(UserError) as refused:
        train("umbra", run=tmp_path / "run", init="umbra", data=data, steps=1, device="cpu")
    said = str(refused.value)
    assert said.startswith("--init umbra: holds a model for pictures of 64x64, and one for 128x128 has another infer")
    assert said.endswith("or add --set model.image_size=64, to which pictures are then resized")
    assert not (tmp_path / "run").exists()
    train("umbra", run=tmp_path / "run", init="umbra", data=data, steps=1, device="cpu", set_=("model.image_size=64",))
    assert load_run(tmp_path / "run").image_size == (64, 64)
