"""Training knows the contract alone: a method unlike all others is trained, stopped, resumed, validated and loaded."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_method import EXPERIMENT, PLACE, Toy, ToyOptimisation, ToySchedule
from trainings import ENVIRONMENT, assert_same_run, facts, rows, saved_steps, tensors

import viewslots.training
from viewslots.commands.training import train
from viewslots.data.store import Store
from viewslots.errors import UserError
from viewslots.experiments import EXPERIMENTS
from viewslots.methods.contract import Losses
from viewslots.methods.names import METHODS, Entry
from viewslots.runs import load_run
from viewslots.training.checkpoint import load_step, save_checkpoint
from viewslots.training.distributed import Ranks
from viewslots.training.feed import NoiseSource, StoredFeed
from viewslots.training.plan import Asked, plan_run
from viewslots.training.settings import RunSettings, parse_changes, with_changes
from viewslots.training.state import TrainState
from viewslots.training.step import EagerStep

NAME, STEPS = "toy/shapes", 8
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METHODS, "toy", Entry(PLACE))
    monkeypatch.setitem(EXPERIMENTS, NAME, EXPERIMENT)


def options(shapes: Path, **more: Any) -> dict[str, Any]:
    common = {"steps": STEPS, "seed": 3, "checkpoint_every": 2, "validate_every": 4, "device": "cpu"}
    return {"data": str(shapes)} | common | more


def hand_written(shapes: Path, *, clip: float) -> tuple[Toy, list[float], list[float]]:
    """The same run in plain torch: what was minimised and the norm of the gradients, step by step."""
    model = Toy(EXPERIMENT.model, torch.Generator().manual_seed(3))
    layer, colour = model.belongs, model.colours
    first, second = torch.optim.RMSprop(layer.parameters()), torch.optim.Adam([colour])
    split = Store.open(shapes).split("train")
    feed = StoredFeed(split, seed=3, batch=2, size=(32, 32), camera=False, device=CPU, ranks=Ranks())
    noises = NoiseSource(model, seed=3, batch=2, ranks=Ranks())
    minimised, norms = [], []
    for step in range(STEPS):
        image, noise = feed(step, 2).image, noises(step, 2).pixels
        share = layer(image.movedim(2, -1)).softmax(-1)
        shown = torch.einsum("bmhwl,lc->bmchw", share, colour)
        error = (image + 0.01 * noise - shown).square().mean((1, 2, 3, 4))
        sharing = -(share * share.log()).sum(-1).mean((1, 2, 3))
        loss = (error + 0.5 * step / STEPS * sharing).mean()
        first.zero_grad()
        second.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(list(model.parameters()), clip or 1e9)))
        done, warmup, decay = step + 1, 4 * STEPS / 40, 10 * STEPS / 40
        first.param_groups[0]["lr"] = 0.01 * 0.5 ** (done / round(decay)) * min(done / max(1, round(warmup)), 1)
        second.param_groups[0]["lr"] = 0.1
        first.step()
        second.step()
        minimised.append(loss.item())
    return model, minimised, norms


def test_terms_are_logged_by_their_names(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever order a method answers them in."""
    train(NAME, run=tmp_path / "one", **options(shapes))
    forward = Toy.forward

    def reversed_terms(self: Toy, *given: Any) -> Losses:
        losses = forward(self, *given)
        return replace(losses, terms=dict(reversed(losses.terms.items())))

    monkeypatch.setattr(Toy, "forward", reversed_terms)
    train(NAME, run=tmp_path / "other", **options(shapes))
    assert rows(tmp_path / "one") == rows(tmp_path / "other")
    assert {"learning_rate", "learning_rate_2"} <= rows(tmp_path / "one")[0].keys()


class Normalised(Toy):
    """With statistics that every process gathers for itself."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.norm = torch.nn.BatchNorm2d(3)


def test_statistics_of_batches_are_not_shared_in_silence() -> None:
    model = Normalised(EXPERIMENT.model)
    with pytest.raises(UserError, match="running statistics are those of one process"):
        model.share_statistics(lambda values: values)
    Toy(EXPERIMENT.model).share_statistics(lambda values: values)
    model.norm(torch.randn(4, 3, 2, 2) + 5)
    assert model.norm.running_mean.abs().min() > 0.1
    model.restart_statistics()
    assert torch.equal(model.norm.running_mean, torch.zeros(3))


def test_noise_of_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors in nested values are divided; a number that all scenes share is not."""
    model = Toy(EXPERIMENT.model)
    whole = (torch.arange(4), (torch.arange(8), 3))
    monkeypatch.setattr(model, "draw_noise", lambda batch, generator: whole)
    first, (second, number) = NoiseSource(model, seed=0, batch=4, ranks=Ranks(1, 2))(0, 2)
    assert first.tolist() == [2, 3]
    assert second.tolist() == [4, 5, 6, 7]
    assert number == 3


@pytest.mark.parametrize("clip", [0.02, 0.0])
def test_steps_are_those_of_a_hand_written_loop(shapes: Path, tmp_path: Path, clip: float) -> None:
    train(NAME, run=tmp_path / "run", **options(shapes), set_=(f"optimisation.clip_norm={clip}",))
    model, minimised, norms = hand_written(shapes, clip=clip)
    assert all(norm > 0.02 for norm in norms)  # so that the bound is felt
    last = load_run(tmp_path / "run", which="last")
    assert isinstance(last, Toy)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(last.state_dict()[name], value, rtol=1e-5, atol=1e-6)
    logged = [row["weighted"] for row in rows(tmp_path / "run") if row["kind"] == "train"]
    assert logged == pytest.approx(minimised, rel=1e-5)


def test_the_bound_on_gradients_is_joint(shapes: Path, tmp_path: Path) -> None:
    """With and without it the runs differ, and so do both optimisers' weights."""
    for name, clip in (("free", 0.0), ("bound", 0.02)):
        train(NAME, run=tmp_path / name, **options(shapes), set_=(f"optimisation.clip_norm={clip}",))
    free, bound = (tensors(tmp_path / name, STEPS) for name in ("free", "bound"))
    for name in ("adam.exp_avg.colours", "rmsprop.square_avg.belongs.weight"):
        assert not torch.allclose(free[name], bound[name], rtol=0.01, atol=0)


def test_a_run_that_was_broken_off_goes_on_bit_for_bit(
    shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight, cut = tmp_path / "straight", tmp_path / "cut"
    train(NAME, run=straight, **options(shapes))
    with monkeypatch.context() as patch:
        step, calls = EagerStep.run, iter(range(100))
        patch.setattr(EagerStep, "run", lambda *given: step(*given) if next(calls) < 5 else 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train(NAME, run=cut, **options(shapes))
    train(run=cut, resume=True, device="cpu")
    assert_same_run(straight, cut, STEPS)
    kept = tensors(straight, STEPS)
    weights = {"belongs.weight", "belongs.bias", "colours"}
    first = {f"rmsprop.{entry}.belongs.{name}" for entry in ("step", "square_avg") for name in ("weight", "bias")}
    second = {f"adam.{entry}.colours" for entry in ("step", "exp_avg", "exp_avg_sq")}
    assert set(kept) == {f"model.{name}" for name in weights} | first | second
    assert kept["rmsprop.step.belongs.bias"] == kept["adam.step.colours"] == STEPS
    assert all(kept[name].abs().max() > 0 for name in first | second)


def test_a_checkpoint_that_lacks_a_moment_is_refused(shapes: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(NAME, run=run, **options(shapes))
    state = load_step(run / "checkpoints", STEPS)
    for gone in ("rmsprop.square_avg.belongs.bias", "adam.exp_avg.colours"):
        kept = {name: value for name, value in state.tensors.items() if name != gone}
        save_checkpoint(run / "checkpoints", TrainState(STEPS, kept, state.facts))
        with pytest.raises(UserError, match=f"checkpoint of step {STEPS} does not fit this model: .*{gone}"):
            train(run=run, resume=True, device="cpu")


def test_what_it_does_not_answer_is_not_there(shapes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    train(NAME, run=run, **options(shapes))
    captured = capsys.readouterr()
    answer = json.loads(captured.out)
    scores = answer["best"]["scores"]
    assert [name for name, value in scores.items() if value is None] == ["IoU", "F1", "OOA"]
    assert -1 <= scores["ARI-A"] <= 1
    assert answer["best"]["step"] in (4, 8)
    [*_, valid] = [row for row in rows(run) if row["kind"] == "valid"]
    figures = {"slots_used", "mask_entropy", "object_entropy"}
    assert set(valid) == {"step", "kind", "loss", "error", "sharing"} | set(scores) | figures
    assert valid["loss"] == valid["error"]  # what compares is without the price
    [*_, row] = [row for row in rows(run) if row["kind"] == "train"]
    assert row["weighted"] > row["loss"] == row["error"]
    last = next(line for line in reversed(captured.err.splitlines()) if line.startswith("step "))
    assert "error " in last
    assert "sharing " in last  # it names no headline, so all of its terms are shown
    assert (run / "pictures" / "step-00000008.png").exists()


def test_a_loss_without_named_parts(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = Toy.forward
    monkeypatch.setattr(Toy, "terms", ())
    monkeypatch.setattr(Toy, "forward", lambda *given: replace(forward(*given), terms={}))
    train(NAME, run=tmp_path / "run", **options(shapes))
    [*_, row] = [row for row in rows(tmp_path / "run") if row["kind"] == "train"]
    assert set(row) == {"step", "kind", "weighted", "loss", "learning_rate", "learning_rate_2"}


def test_its_settings_have_its_own_kinds() -> None:
    words = ("optimisation.colour_rate=0.5", "schedule.price_end=2", "model.slots=5")
    given = with_changes({"steps": 20}, parse_changes(words, EXPERIMENT))
    wish = plan_run(Asked(preset=NAME, data="live", stored_views=3, data_sha256=None, **given))
    assert (type(wish.schedule), type(wish.optimisation)) == (ToySchedule, ToyOptimisation)
    assert wish.optimisation.learning_rates_at(20) == (0.01 * 0.5**4, 0.5)
    assert wish.schedule.at(10).price == 1.0
    assert RunSettings.from_json(json.loads(json.dumps(wish.to_json()))) == wish
    with pytest.raises(UserError, match="no such field"):
        parse_changes(("schedule.temperature_start=2",), EXPERIMENT)
    with pytest.raises(UserError, match="--method toy is not for the experiment ocloc-tiny/clevr-m1"):
        plan_run(Asked(preset="tiny", data="live", stored_views=3, data_sha256=None, method="toy"))


def test_rates_must_be_as_many_as_optimisers(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ToyOptimisation, "learning_rates_at", lambda self, step: (0.1,))
    with pytest.raises(ValueError, match="shorter"):
        train(NAME, run=tmp_path / "run", **options(shapes))


def test_sums_of_an_older_checkpoint(shapes: Path, tmp_path: Path) -> None:
    """They had no loss among them: the next row is the mean of the steps since, and of nothing else."""
    run, told = tmp_path / "run", tmp_path / "told"
    wish = options(shapes, checkpoint_every=1)
    for folder in (run, told):
        train(NAME, run=folder, **wish)
    state = load_step(run / "checkpoints", STEPS - 1)
    old = facts(run, STEPS - 1) | {"sums": [900.0, 900.0, 900.0], "count": 3}
    for path in (run / "checkpoints").glob(f"step-{STEPS:08d}.*"):
        path.unlink()
    save_checkpoint(run / "checkpoints", replace(state, facts=old))
    train(run=run, resume=True, device="cpu")
    assert rows(run) == rows(told)


# What stands in the source.

FOLDER = Path(viewslots.training.__file__).parent
CLASSES = {one.place.partition(":")[2] for one in METHODS.values()} | {
    "Ocloc",
    "Umbra",
    "PerView",
    "SlotAttention",
    "Nvil",
}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_no_line_of_training_names_a_method(path: Path) -> None:
    """Neither by its key, nor by its module or class, nor by the optimiser that one of them happens to use."""
    modules = {one.place.split(".")[2] for one in METHODS.values() if one.place.startswith("viewslots.methods.")}
    words = {word.lower() for word in {*METHODS, *modules, *CLASSES} - {"toy"}}
    text = path.read_text()
    found = [word for word in words if re.search(rf"(?<![a-z_]){re.escape(word)}(?![a-z_])", text.lower())]
    assert found == []
    assert re.findall(r"optim\.(?!Optimizer\b)\w+", text) == []
    imported = re.findall(r"^\s*(?:from|import) viewslots\.methods\.([\w.]+)", text, re.MULTILINE)
    assert set(imported) <= {"config", "contract", "experiment", "registry", "schedules", "names"}


def test_a_run_is_named_by_its_experiment(shapes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    train(NAME, **options(shapes, steps=2))
    assert saved_steps(tmp_path / "runs/toy-shapes") == [2]
    with pytest.raises(UserError, match=r"runs/toy-shapes: already holds a run; continue it with --resume"):
        train(NAME, **options(shapes, steps=2))
    train(NAME, resume=True, device="cpu")
    with pytest.raises(UserError, match="name an EXPERIMENT to train"):
        train(resume=True)


def test_the_help_lists_every_method_that_learns() -> None:
    command = [sys.executable, "-m", "viewslots", "train", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT | {"COLUMNS": "200"}, check=True)
    [choices] = re.findall(r"--method\s+\{([^}]*)\}", shown.stdout)
    assert choices.replace("\n", "").split(",") == [name for name in METHODS if name not in ("toy", "kmeans")]
