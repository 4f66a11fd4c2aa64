"""The loop against a slow twin of itself; what it keeps, what it refuses, and what it says."""

import json
import os
import shutil
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from shape_world import make_shapes
from trainings import facts, rows, saved_steps

from viewslots.commands.training import train
from viewslots.data.generate import DatasetRecipe, make_dataset
from viewslots.errors import UserError
from viewslots.experiments import EXPERIMENTS, experiment
from viewslots.methods.fast.half import with_half_weights
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.objective import weighted_loss
from viewslots.methods.per_view.model import PerView
from viewslots.methods.schedules import Optimisation
from viewslots.methods.umbra.model import Umbra
from viewslots.runs import load_run
from viewslots.training.checkpoint import load_step
from viewslots.training.distributed import Ranks
from viewslots.training.feed import NoiseSource, StoredFeed
from viewslots.training.loop import Outcome, Training
from viewslots.training.parts import Parts, assemble
from viewslots.training.plan import Asked, plan_run
from viewslots.training.run import RunFolder
from viewslots.training.settings import RunSettings
from viewslots.training.source import fingerprint
from viewslots.training.state import restore_state
from viewslots.training.step import EagerStep
from viewslots.training.validation import Validation
from viewslots.training.weights import require_fit, train_parts

CPU = torch.device("cpu")


class Listener:
    """A narrator that remembers."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.steps: list[int] = []

    def step(self, done: int) -> None:
        self.steps.append(done)

    def figures(self, step: int, terms: Mapping[str, float]) -> None:
        pass

    def scores(self, step: int, scores: Mapping[str, float | None]) -> None:
        pass

    def say(self, line: str) -> None:
        self.lines.append(line)


def settings(shapes: Path, **changes: Any) -> RunSettings:
    given = {"steps": 12, "batch": 2, "seed": 3, "validate_every": 4, "checkpoint_every": 3} | changes
    return plan_run(
        Asked(preset="tiny", data=str(shapes), stored_views=3, data_sha256=fingerprint(str(shapes)), **given)
    )


def make(wish: RunSettings, folder: Path, parts: Parts | None = None) -> Training:
    parts = parts or assemble(wish, CPU, Ranks())
    return Training(wish, parts, RunFolder.create(folder, wish.to_json()), Ranks(), Listener())


def run(wish: RunSettings, folder: Path) -> Training:
    training = make(wish, folder)
    with training.folder:
        training.run()
    return training


def slow_twin(wish: RunSettings, split: Any, steps: int) -> tuple[Ocloc, list[float]]:
    """The same steps written out, with the plain model and the plain Adam."""
    model = Ocloc(wish.model, torch.Generator().manual_seed(wish.seed))
    optimiser = torch.optim.Adam(model.parameters())
    feed = StoredFeed(split, seed=wish.seed, batch=wish.batch, size=(32, 32), camera=False, device=CPU, ranks=Ranks())
    noise = NoiseSource(model, seed=wish.seed, batch=wish.batch, ranks=Ranks())
    losses = []
    for step in range(steps):
        views = 1 if step < wish.optimisation.single_view_steps else 2
        annealing = wish.schedule.at(step)
        terms = model.elbo(feed(step, views), annealing, noise(step, views))
        optimiser.param_groups[0]["lr"] = wish.optimisation.learning_rate_at(step + 1)
        optimiser.zero_grad()
        weighted_loss(terms, annealing).mean().backward()
        optimiser.step()
        losses.append(terms.loss.mean().item())
    return model, losses


@pytest.mark.parametrize("fast", [False, True])
def test_a_part_is_trained_alone(shapes: Path, tmp_path: Path, fast: bool) -> None:
    """Everything else keeps its bits; a run that goes on after half of the steps ends as one in one go."""
    changes = {"model.glimpses": 1, "optimisation.parts": ("glimpses",), "optimisation.learning_rate": 1e-3}
    before = Umbra(experiment("umbra-tiny/clevr-m1").model, torch.Generator().manual_seed(5))
    sha256 = fingerprint(str(shapes))
    given = {"steps": 4, "batch": 2, "checkpoint_every": 2, "init": "before", "start": before, "fast": fast}
    wish = plan_run(
        Asked(
            preset="umbra-tiny/clevr-m1", data=str(shapes), stored_views=3, data_sha256=sha256, changes=changes, **given
        )
    )
    training = make(wish, tmp_path / "run", assemble(wish, CPU, Ranks(), before))
    with training.folder:
        training.run()
    assert rows(tmp_path / "run")[0]["step"] == 0  # the start may be the best
    found, known = training.parts.model.state_dict(), before.state_dict()
    steady = [name for name in known if not name.startswith("nvil.") or "network" in name]
    assert all(torch.equal(found[name], known[name]) for name in steady)
    start = Umbra(wish.model, torch.Generator().manual_seed(wish.seed)).state_dict()
    moved = [name for name in found if name.startswith("glimpses.") and not torch.equal(found[name], start[name])]
    assert {name.split(".")[1] for name in moved} == {name.split(".")[1] for name in found if "glimpses." in name}
    halfway = make(wish, tmp_path / "again", assemble(wish, CPU, Ranks(), before))
    restore_state(load_step(tmp_path / "run" / "checkpoints", 2), halfway.parts.model, halfway.parts.optimisers)
    halfway.folder.close()
    for step in (2, 3):
        halfway.parts.step(
            halfway.parts.feed(step, 2),
            halfway.parts.noise(step, 2),
            wish.schedule.at(step),
            wish.optimisation.learning_rates_at(step + 1),
        )
    assert all(torch.equal(value, found[name]) for name, value in halfway.parts.model.state_dict().items())


@pytest.mark.parametrize("part", ["glimpses", "", "generation.f_bck.position.grid"])
def test_a_part_that_is_not_there_is_refused(shapes: Path, part: str) -> None:
    """When the run is planned, before its first stage has taken any time."""
    with pytest.raises(UserError, match=r"ocloc has no part .*; it has inference, generation, nvil"):
        settings(shapes, changes={"optimisation.parts": (part,)})


def test_a_part_learns_from_a_model_of_its_own_method(shapes: Path) -> None:
    """An OCLOC as the rest of an umbra would never learn what shadows are."""
    changes = {"model.glimpses": 1, "optimisation.parts": ("glimpses",)}
    wish = plan_run(
        Asked(
            preset="umbra-tiny/clevr-m1",
            data=str(shapes),
            stored_views=3,
            data_sha256=None,
            changes=changes,
            init="first",
        )
    )
    require_fit(wish, Umbra(replace(wish.model, glimpses=0)))
    with pytest.raises(UserError, match="only glimpses is to learn, so give a trained umbra"):
        require_fit(wish, Ocloc(experiment("tiny").model))


def test_half_precision_twins_of_what_stays_have_no_gradients() -> None:
    model = Umbra(replace(experiment("umbra-tiny/clevr-m1").model, glimpses=1))
    train_parts(model, ("glimpses.to_object",))
    view, half = with_half_weights(model, ())
    values = torch.rand(2, model.config.hidden, dtype=torch.bfloat16, requires_grad=True)
    assert view.glimpses is not None
    code = torch.rand(2, model.config.slot_attr_dim, dtype=torch.bfloat16, requires_grad=True)
    (view.glimpses.to_object(values).sum() + view.inference.g_obj(code).sum()).backward()
    half.collect()
    assert all((value.grad is None) != ("glimpses.to_object" in name) for name, value in model.named_parameters())


@pytest.mark.parametrize("fast", [False, True])
def test_steps_are_those_of_the_slow_twin(shapes: Path, tmp_path: Path, fast: bool) -> None:
    from viewslots.data.store import Store

    wish = replace(settings(shapes, fast=fast), log_every=4)
    training = run(wish, tmp_path / "run")
    model, losses = slow_twin(wish, Store.open(shapes).split("train"), 12)
    # As a whole: some weights have no gradient but rounding errors, which Adam makes as large as any.
    start = Ocloc(wish.model, torch.Generator().manual_seed(wish.seed))
    begun, found, expected = (
        torch.cat([value.flatten() for value in item.generation.parameters()])
        for item in (start, training.parts.model, model)
    )
    assert (found - expected).norm() < 0.02 * (expected - begun).norm()
    logged = [row["loss"] for row in rows(tmp_path / "run") if row["kind"] == "train"]
    means = [sum(losses[first : first + 4]) / 4 for first in (0, 4, 8)]
    assert logged == pytest.approx(means, rel=1e-4)
    assert training.narrator.steps == list(range(1, 13))


def test_the_single_view_phase_has_no_best(shapes: Path, tmp_path: Path) -> None:
    """Five of twelve steps see one view: the validation at step 4 does not count, those at 8 and 12 do."""
    wish = settings(shapes)
    assert wish.optimisation.single_view_steps == 5
    folder, saves = tmp_path / "run", [step for step in range(1, 13) if step % wish.checkpoint_every == 0]
    training = make(wish, folder)
    kept: list[tuple[str, int]] = []
    for name in ("keep_best", "keep_last"):
        original = getattr(training.folder, name)
        setattr(
            training.folder,
            name,
            lambda model, step, *rest, name=name, original=original: (
                kept.append((name, step)),
                original(model, step, *rest),
            ),
        )
    with training.folder:
        outcome = training.run()
    valid = {row["step"]: row["loss"] for row in rows(folder) if row["kind"] == "valid"}
    assert set(valid) == {4, 8, 12}
    assert [step for name, step in kept if name == "keep_last"] == saves
    best = 8 if valid[8] <= valid[12] else 12
    assert ("keep_best", 8) in kept
    assert ("keep_best", 4) not in kept
    assert outcome.best["step"] == best
    assert outcome.best["loss"] == valid[best]
    assert outcome.last["step"] == 12
    assert sorted(path.name for path in (folder / "pictures").iterdir()) == [f"step-{n:08d}.png" for n in (4, 8, 12)]
    again = Validation(training.parts.validation.data.split, views=2, size=(32, 32), device=CPU)(load_run(folder))
    assert again.loss == pytest.approx(valid[best])


def test_a_run_goes_on_amid_an_interval_of_figures(shapes: Path, tmp_path: Path) -> None:
    wish = replace(settings(shapes), log_every=4)
    run(wish, tmp_path / "straight")
    training = make(wish, tmp_path / "stopped")
    with training.folder:
        for step in range(6):
            training.take_step(step)
            training.look_after(0, save=step == 5)
        training.saver.finish()
    assert saved_steps(tmp_path / "stopped")[-1] == 6
    assert facts(tmp_path / "stopped", 6)["count"] == 2
    resumed(wish, tmp_path / "stopped")
    assert rows(tmp_path / "stopped") == rows(tmp_path / "straight")


def poison(training: Training, name: str) -> None:
    if name == "weights":
        next(training.parts.model.parameters()).data.view(-1)[0] = float("nan")
    elif name == "running statistics":
        training.parts.model.nvil.mean.fill_(float("inf"))
    elif name == "moments of the optimisers":
        next(iter(training.parts.optimisers[0].state.values()))["exp_avg"].view(-1)[0] = float("inf")
    else:
        training.sums = training.sums + float("nan")


@pytest.mark.parametrize("name", ["weights", "running statistics", "moments of the optimisers", "nll"])
def test_a_bad_state_is_never_saved(shapes: Path, tmp_path: Path, name: str) -> None:
    training = make(settings(shapes), tmp_path / "run")
    with training.folder:
        for step in range(3):
            training.take_step(step)
        training.look_after(0, save=False)
        training.take_step(3)
        poison(training, name)
        with pytest.raises(UserError, match=name) as error:
            training.save()
    assert "by step 4" in str(error.value)
    assert "the checkpoint of step 3 is good" in str(error.value)
    for advice in ("--learning-rate", "--precision fp32", "--seed"):
        assert advice in str(error.value)
    assert saved_steps(tmp_path / "run") == [3]


def test_a_loss_that_explodes_stops_the_run(shapes: Path, tmp_path: Path) -> None:
    wish = settings(shapes, learning_rate=1e9)
    training = make(wish, tmp_path / "run")
    with training.folder, pytest.raises(UserError, match="no longer finite"):
        training.run()
    assert all(row["kind"] != "valid" for row in rows(tmp_path / "run"))
    for step in saved_steps(tmp_path / "run"):
        assert step < training.done


def test_a_data_set_that_is_cut_off_while_training(shapes: Path, tmp_path: Path) -> None:
    """Words and the state of the last step, in place of a bus error; with the data back it goes on bit for bit."""
    data = Path(shutil.copytree(shapes, tmp_path / "data"))
    wish, pictures = settings(data), data / "train" / "image.npy"
    whole = pictures.read_bytes()
    straight = run(wish, tmp_path / "straight")
    training = make(wish, tmp_path / "run")
    training.narrator.step = lambda done: os.truncate(pictures, 1000) if done == 6 else None
    with training.folder, pytest.raises(UserError, match=r"image\.npy: cut off while it is read.*step 6 is saved"):
        training.run()
    assert saved_steps(tmp_path / "run")[-1] == 6
    pictures.write_bytes(whole)
    again, _ = resumed(wish, tmp_path / "run")
    assert_same_weights(straight, again)


def resumed(wish: RunSettings, run: Path) -> tuple[Training, Outcome]:
    with RunFolder.resume(run) as folder:
        training = Training(wish, assemble(wish, CPU, Ranks()), folder, Ranks(), Listener())
        training.resume()
        return training, training.run()


def assert_same_weights(one: Training, other: Training) -> None:
    for name, value in one.parts.model.state_dict().items():
        assert torch.equal(value, other.parts.model.state_dict()[name]), name


@pytest.mark.parametrize("cut", [4, 12])
def test_a_valid_split_that_is_cut_off_while_training(shapes: Path, tmp_path: Path, cut: int) -> None:
    """The step that could not be validated is saved, and validated when the run goes on: nothing differs from a run
    without a stop. The last step too, after which there is none."""
    data = Path(shutil.copytree(shapes, tmp_path / "data"))
    wish, pictures = settings(data, checkpoint_every=100), data / "valid" / "image.npy"
    whole = pictures.read_bytes()
    straight = run(wish, tmp_path / "straight")
    training = make(wish, tmp_path / "run")
    training.narrator.step = lambda done: os.truncate(pictures, 1000) if done == cut - 1 else None
    with training.folder, pytest.raises(UserError, match=rf"valid/image\.npy: cut off.*step {cut} is saved"):
        training.run()
    assert saved_steps(tmp_path / "run") == [cut]
    pictures.write_bytes(whole)
    again, outcome = resumed(wish, tmp_path / "run")
    assert rows(tmp_path / "run") == rows(tmp_path / "straight")
    assert (outcome.best, outcome.last) == (straight.facts["best"], straight.facts["last"])
    assert facts(tmp_path / "run", 12) == facts(tmp_path / "straight", 12)
    assert_same_weights(straight, again)


def test_a_data_set_that_is_cut_off_before_the_first_step(shapes: Path, tmp_path: Path) -> None:
    """There is nothing to save, and the run can begin anew."""
    data = Path(shutil.copytree(shapes, tmp_path / "data"))
    training = make(settings(data), tmp_path / "run")
    os.truncate(data / "valid" / "image.npy", 1000)
    with training.folder, pytest.raises(UserError, match=r"bring the data set back as it was$"):
        training.validate()
    assert saved_steps(tmp_path / "run") == []
    assert not training.folder.was_saved


@pytest.mark.parametrize("name", ["weights", "the loss of the validation"])
def test_what_is_not_finite_is_not_scored(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A validation may be due before figures and checkpoints are: it says what they would."""
    training = make(settings(shapes), tmp_path / "run")
    training.take_step(0)
    if name == "weights":
        poison(training, name)
    else:
        monkeypatch.setattr(training.parts.validation, "terms", lambda model: {"loss": float("nan")})
    with training.folder, pytest.raises(UserError, match=f"no longer finite numbers: {name}; nothing was saved yet"):
        training.validate()
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_warning_is_said_once_while_it_lasts(shapes: Path, tmp_path: Path) -> None:
    training = make(settings(shapes), tmp_path / "run")
    with training.folder:
        for found in ({"shared": "one"}, {"shared": "two"}, {}, {"shared": "three"}):
            training.warn(found)
    assert training.narrator.lines == ["warning: one", "warning: three"]
    assert [row["warning"] for row in rows(tmp_path / "run")] == ["one", "three"]


def test_pinned_steps_are_kept(shapes: Path, tmp_path: Path) -> None:
    wish = replace(settings(shapes, checkpoint_every=1), pinned=(5,))
    run(wish, tmp_path / "run")
    assert saved_steps(tmp_path / "run") == [5, 10, 11, 12]


def test_slow_machines_save_by_the_clock(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("viewslots.training.loop.AUTOSAVE_SECONDS", -1)
    run(settings(shapes, checkpoint_every=1000), tmp_path / "run")
    assert saved_steps(tmp_path / "run") == [10, 11, 12]


def test_the_clock_of_rank_0_alone_counts(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others never save: theirs would ask for a save after every step."""
    training = make(settings(shapes), tmp_path / "run")
    training.folder.close()
    assert not training.save_is_due()
    monkeypatch.setattr("viewslots.training.loop.AUTOSAVE_SECONDS", -1)
    assert training.save_is_due()
    training.ranks = Ranks(1, 2)
    assert not training.save_is_due()


def test_a_disk_that_fills_up_stops_the_run(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write goes on behind the loop; its error comes out of the loop all the same, and older checkpoints stay."""
    save = RunFolder.save

    def until_full(self: RunFolder, state: Any, pinned: Any = ()) -> Path:
        if state.step > 6:
            raise UserError("disk full while writing")
        return save(self, state, pinned=pinned)

    monkeypatch.setattr(RunFolder, "save", until_full)
    training = make(settings(shapes), tmp_path / "run")
    with training.folder, pytest.raises(UserError, match="disk full"):
        training.run()
    assert saved_steps(tmp_path / "run") == [3, 6]
    assert training.saver.last == 6
    assert last_step(tmp_path / "run") == 6, "a model of a state that no checkpoint has"


def last_step(run: Path) -> int:
    return int(json.loads((run / "last.json").read_text())["step"])


def test_no_step_waits_for_the_last_model(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk writes it only after two more steps, and has the weights of its own step."""
    keep, taken = RunFolder.keep_last, threading.Event()

    def slowly(self: RunFolder, model: Any, step: int) -> None:
        assert taken.wait(60), "the loop waits for the disk"
        keep(self, model, step)

    monkeypatch.setattr(RunFolder, "keep_last", slowly)
    training = make(settings(shapes), tmp_path / "run")
    with training.folder:
        for step in range(3):
            training.take_step(step)
        training.save()
        for step in range(3, 5):
            training.take_step(step)
        taken.set()
        training.saver.finish()
    saved = load_file(tmp_path / "run" / "checkpoints" / "step-00000003.safetensors")
    for name, value in load_run(tmp_path / "run", which="last").state_dict().items():
        assert torch.equal(value, saved[f"model.{name}"]), name


def test_a_run_that_was_killed_before_its_last_model_was_written(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Resuming makes up for it, also when no step is left."""
    wish, keep = settings(shapes), RunFolder.keep_last

    def killed(self: RunFolder, model: Any, step: int) -> None:
        if step == 12:
            raise KeyboardInterrupt
        keep(self, model, step)

    monkeypatch.setattr(RunFolder, "keep_last", killed)
    training = make(wish, tmp_path / "run")
    with training.folder, pytest.raises(KeyboardInterrupt):
        training.run()
    monkeypatch.undo()
    assert saved_steps(tmp_path / "run")[-1] == 12
    assert last_step(tmp_path / "run") == 9
    resumed(wish, tmp_path / "run")
    assert last_step(tmp_path / "run") == 12
    for name, value in load_run(tmp_path / "run", which="last").state_dict().items():
        assert torch.equal(value, training.parts.model.state_dict()[name]), name


# The command, in this process.

SHORT = {"steps": 4, "batch": 2, "device": "cpu"}


def test_the_command_from_beginning_to_end(shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    train("tiny", run=folder, data=str(shapes), method="per-view", **SHORT)
    captured = capsys.readouterr()
    answer = json.loads(captured.out)
    assert answer["run"] == str(folder)
    assert answer["step"] == 4
    assert set(answer["best"]["scores"]) >= {"ARI-O", "IoU"}
    *_, step, scores, picture = captured.err.splitlines()
    assert step.startswith("step 4/4")
    assert "steps/s" in step
    assert scores.startswith("at 4, the last step: ARI-A")
    told = [line for line in captured.err.splitlines() if "at 3: " in line]
    assert len(told) == 1  # scores are told once
    assert str(folder / "pictures" / "step-00000004.png") in picture
    assert isinstance(load_run(folder), PerView)


def test_live_training(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from shape_world import ShapeWorld

    from viewslots.data.presets import DATA_PRESETS

    monkeypatch.setitem(DATA_PRESETS, "clevr-m1", replace(DATA_PRESETS["clevr-m1"], world=lambda art: ShapeWorld()))
    monkeypatch.setattr("viewslots.training.validation.LIVE_SCENES", 3)
    train("tiny", run=tmp_path / "run", data="live", **SHORT)
    first = capsys.readouterr().out
    assert json.loads(first)["best"]["loss"] < 0
    monkeypatch.setattr("viewslots.training.stages.assemble", None)  # no scene is drawn for what is finished
    train(run=tmp_path / "run", resume=True, device="cpu")
    again = capsys.readouterr()
    assert again.out == first
    assert "was finished already, at step 4" in again.err
    shutil.rmtree(tmp_path / "run" / "last-00000004")
    with pytest.raises(TypeError):  # it is assembled again, to write the model
        train(run=tmp_path / "run", resume=True, device="cpu")


def second_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A preset that starts from the middle of `tiny`."""
    tiny = experiment("tiny")
    optimisation = Optimisation(
        batch_size=2, single_view_steps=0, warmup_steps=0, pretrained_preset="ocloc-tiny/clevr-m1", pretrained_step=1200
    )
    monkeypatch.setitem(EXPERIMENTS, "second", replace(tiny, optimisation=optimisation))


def test_a_second_stage_starts_from_the_pinned_step(
    shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    second_stage(monkeypatch)
    first, second = tmp_path / "first", tmp_path / "second"
    train("tiny", run=first, data=str(shapes), **{**SHORT, "steps": 10})
    assert saved_steps(first) == [5, 8, 9, 10]
    weights = {}
    original = Training.run

    def watched(self: Training) -> Any:
        weights.update({name: value.clone() for name, value in self.parts.model.state_dict().items()})
        return original(self)

    monkeypatch.setattr(Training, "run", watched)
    train("second", run=second, data=str(shapes), init=str(first), **SHORT)
    assert f"starting from step 5 of {first}" in capsys.readouterr().err
    from trainings import tensors

    kept = tensors(first, 5)
    for name, value in weights.items():
        expected = torch.zeros(()) if name in ("nvil.mean", "nvil.variance", "nvil.weight") else kept[f"model.{name}"]
        assert torch.equal(value, expected), name
    shutil.rmtree(first / "checkpoints")
    train("second", run=tmp_path / "third", data=str(shapes), init=str(first), **SHORT)
    assert f"starting from the best model of {first}" in capsys.readouterr().err
    best = load_run(first).state_dict()
    assert torch.equal(weights["inference.mu_hat"], best["inference.mu_hat"])


def refuse(match: str, *preset: Any, **options: Any) -> None:
    with pytest.raises(UserError, match=match):
        train(*preset, **options)


def test_what_a_new_run_needs(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    refuse("needs an experiment", run=run, data=str(shapes))
    refuse("needs --data", "tiny", run=run)
    refuse("no such folder", "tiny", run=run, data=str(tmp_path / "nowhere"))
    refuse("viewslots train ocloc/clevr-m1 --data DIR --run FIRST", "clevr-m3", run=run, data=str(shapes))
    refuse("nowhere: no such folder", "tiny", run=run, data=str(shapes), batch=2, init=str(tmp_path / "nowhere"))
    refuse("do not fill one batch of 13", "tiny", run=run, data=str(shapes), batch=13, device="cpu")
    refuse("--steps: must be at least 1, not 0", "tiny", run=run, data=str(shapes), steps=0)
    refuse("--batch: must be at least 1, not 0", "tiny", run=run, data=str(shapes), batch=0)
    refuse("learning_rate cannot be nan", "tiny", run=run, data=str(shapes), batch=2, learning_rate=float("nan"))
    refuse("at most 63 bits", "tiny", run=run, data=str(shapes), batch=2, seed=2**63)
    refuse("--init compact: holds a model of another", "tiny", run=run, data=str(shapes), batch=2, init="compact")
    refuse("--seed and --seeds", "tiny", run=run, data=str(shapes), seed=1, seeds="1,2")
    refuse("holds no run", run=run, resume=True)
    assert not run.exists()


def test_a_data_set_without_validation(tmp_path: Path) -> None:
    from shape_world import ShapeWorld

    folder = make_dataset(DatasetRecipe(ShapeWorld(), {"train": 4}, preset="shapes", seed=0), tmp_path / "half")
    refuse("no split 'valid'", "tiny", run=tmp_path / "run", data=str(folder))
    assert not (tmp_path / "run").exists()


def test_scenes_with_fewer_views_than_the_preset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = make_shapes(tmp_path / "single", train=4, valid=1, views=1)
    train("tiny", run=tmp_path / "run", data=str(data), **SHORT)
    assert "scenes of this data set have 1 view: training with 1 instead of 2" in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["views"] == 1


def test_views_asked_for(shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train("tiny", run=tmp_path / "one", data=str(shapes), views=1, **SHORT)
    train("tiny", run=tmp_path / "one", data=str(shapes), views=1, resume=True, **SHORT)
    assert json.loads((tmp_path / "one" / "config.json").read_text())["config"]["views"] == 1
    assert "instead" not in capsys.readouterr().err
    refuse("--views 7: scenes of this data set have 3", "tiny", run=tmp_path / "many", data=str(shapes), views=7)
    assert not (tmp_path / "many").exists()
    refuse("begun with --views 1, not 2", run=tmp_path / "one", resume=True, views=2)
    refuse("--views: must be at least 1, not 0", "tiny", run=tmp_path / "none", data=str(shapes), views=0)


def test_views_in_turn(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One to three, after the phase with one; a run that goes on ends as one in one go, and the last is the best."""
    wish = settings(shapes, views=3, changes={"optimisation.fewest_views": 1, "optimisation.single_view_steps": 2})
    shown, step = [], EagerStep.__call__
    monkeypatch.setattr(
        EagerStep, "__call__", lambda self, *given: shown.append(given[0].image.shape[1]) or step(self, *given)
    )
    training = run(wish, tmp_path / "run")
    assert shown == [1, 1, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3]
    halfway = make(wish, tmp_path / "again")
    restore_state(load_step(tmp_path / "run" / "checkpoints", 6), halfway.parts.model, halfway.parts.optimisers)
    halfway.folder.close()
    for number in range(6, 12):
        views = wish.views_at(number)
        halfway.parts.step(
            halfway.parts.feed(number, views),
            halfway.parts.noise(number, views),
            wish.schedule.at(number),
            wish.optimisation.learning_rates_at(number + 1),
        )
    found = training.parts.model.state_dict()
    assert all(torch.equal(value, found[name]) for name, value in halfway.parts.model.state_dict().items())
    assert [wish.single_view(number) for number in (1, 2, 3)] == [True, False, False]  # a step of one view counts


SMALL_UMBRA = ("model.image_size=32", "model.object_decoder.final_scale=1", "model.background_decoder.final_scale=1")


def test_a_run_of_umbra(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a run of compact, whose networks it has; broken off, gone on bit for bit, loaded as what it is."""
    first = tmp_path / "first"
    train("compact", run=first, data=str(shapes), set_=SMALL_UMBRA, **SHORT)
    given: dict[str, Any] = {
        **SHORT,
        "data": str(shapes),
        "set_": SMALL_UMBRA,
        "checkpoint_every": 2,
        "validate_every": 4,
    }
    given["init"] = str(first)
    train("umbra", run=tmp_path / "straight", **given)
    with monkeypatch.context() as patch:
        step, calls = EagerStep.run, iter(range(100))
        patch.setattr(EagerStep, "run", lambda *given: step(*given) if next(calls) < 3 else 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train("umbra", run=tmp_path / "cut", **given)
    train(run=tmp_path / "cut", resume=True, device="cpu")
    straight, cut = (load_run(tmp_path / name, which="last") for name in ("straight", "cut"))
    assert type(straight) is Umbra
    assert straight.config.object_decoder.final_scale == 1
    theirs = cut.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in straight.state_dict().items())
    assert [row["costs"] > 0 for row in rows(tmp_path / "straight") if row["kind"] == "valid"] == [True]
    cheaper = {**given, "init": str(tmp_path / "cut"), "set_": (*SMALL_UMBRA, "model.pixel_cost=0.1")}
    train("umbra", run=tmp_path / "cheaper", **cheaper)
    train(run=tmp_path / "cut", resume=True, set_=("model.darkest=0.8",), device="cpu")
    refuse(
        "begun with --set model.darkest 0.8, not 0.5", run=tmp_path / "cut", resume=True, set_=("model.darkest=0.5",)
    )


def test_what_is_given_again_must_agree(shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    train("tiny", run=run, data=str(shapes), **SHORT)
    refuse("begun with --steps 4, not 5", run=run, resume=True, steps=5)
    refuse("begun with --seed 0, not 5", run=run, resume=True, seed=5)
    refuse("begun with the experiment ocloc-tiny/clevr-m1, not ocloc-compact/clevr-m1", "compact", run=run, resume=True)
    refuse("begun without --init, not compact", run=run, resume=True, init="compact")
    other = make_shapes(tmp_path / "other", train=5)
    refuse("not the data set", run=run, resume=True, data=str(other))
    refuse("was begun with", run=run, resume=True, data="live")
    moved = shutil.copytree(shapes, tmp_path / "moved")
    capsys.readouterr()
    before = rows(run)
    train("tiny", run=run, resume=True, data=str(moved), steps=4, batch=2, device="cpu", validate_every=3)
    printed = capsys.readouterr()
    assert json.loads(printed.out)["step"] == 4
    assert f"{run} was finished already, at step 4: nothing is left to train. For more steps" in printed.err
    otherwise = {"data": str(moved), "validate_every": 3}
    assert rows(run) == [*before, {"step": 4, "kind": "event", "resumed_with": otherwise}]
    train("tiny", run=tmp_path / "more", data=str(shapes), init=str(run), **SHORT)  # as it says
    assert "finished already" not in capsys.readouterr().err


def test_a_run_whose_data_set_was_changed(shapes: Path, tmp_path: Path) -> None:
    data = Path(shutil.copytree(shapes, tmp_path / "data"))
    train("tiny", run=tmp_path / "run", data=str(data), **SHORT)
    shutil.rmtree(data)
    make_shapes(data, train=7)
    refuse("not the data set this run was started with", run=tmp_path / "run", resume=True, device="cpu")
