"""Experiments by name, and every hyperparameter of appendix 'Choices of Hyperparameters'; of the published runs where
the paper is silent."""

import json
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch

from viewslots.bench.train import one_of_each_method
from viewslots.cli import main
from viewslots.data.presets import DATA_PRESETS
from viewslots.errors import UserError
from viewslots.experiments import (
    EXPERIMENTS,
    SHORT_NAMES,
    describe,
    experiment,
    first_stage,
    full_name,
    known_experiment,
    pinned_steps,
    stages,
)
from viewslots.methods.names import METHODS
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.registry import trainable_class
from viewslots.methods.schedules import Optimisation
from viewslots.types import SceneBatch

DENSE_OBJECTS = {
    "kind": "dense",
    "hidden": (4096, 4096),
    "grid": 8,
    "grid_channels": 128,
    "stages": ((2, 5, 128), (1, 5, 64), (2, 5, 64), (1, 5, 32), (2, 5, 32)),
}
DENSE_BACKGROUND = {
    "kind": "dense",
    "hidden": (512, 512),
    "grid": 4,
    "grid_channels": 16,
    "stages": ((4, 5, 16), (1, 5, 16), (4, 5, 16)),
}
FLAT_OBJECTS = {"kind": "broadcast", "grid": 64, "stages": ((1, 5, 32), (1, 5, 32), (1, 5, 32))}
FLAT_BACKGROUND = {"kind": "broadcast", "grid": 64, "stages": ((1, 5, 8), (1, 5, 8))}
CLEVR_OBJECTS = {
    "kind": "broadcast",
    "grid": 8,
    "stages": ((2, 5, 64), (2, 5, 64), (2, 5, 64), (2, 5, 64), (1, 5, 64)),
}
CLEVR_BACKGROUND = {"kind": "broadcast", "grid": 32, "stages": ((2, 5, 16), (2, 5, 16), (1, 5, 16))}

# One row a subject: the field, then its value in clevr-m1 = m2, clevr-m3 = m4, dsprites, abstract, clevr.
COLUMNS = (("clevr-m1", "clevr-m2"), ("clevr-m3", "clevr-m4"), ("dsprites",), ("abstract",), ("clevr",))
TABLE: dict[str, tuple[Any, ...]] = {
    # Generative model.
    "model.image_size": (64, 64, 64, 64, 128),
    "model.sigma_x": (0.2, 0.2, 0.2, 0.2, 0.2),
    "model.slots": (7, 7, 6, 5, 7),
    "test_slots": (11, 11, 9, 7, 11),
    "views": (4, 4, 1, 1, 1),
    "model.view_dim": (4, 4, 1, 1, 1),
    "model.background_dim": (8, 8, 4, 4, 8),
    "model.attr_dim": (64, 64, 32, 32, 64),
    "model.alpha": (4.5, 4.5, 3.5, 3.0, 4.5),
    "model.softness": (0.5, 0.5, 0.5, 0.5, 0.5),
    # Inference.
    "model.slot_view_dim": (8, 8, 1, 1, 1),
    "model.slot_attr_dim": (128, 128, 64, 64, 64),
    "model.key_dim": (64, 64, 64, 64, 64),
    "model.value_dim": (136, 136, 65, 65, 65),
    "model.rounds": (3, 3, 3, 3, 3),
    # Networks.
    "model.feature_channels": (64, 64, 32, 32, 64),
    "model.feature_layers": (4, 4, 4, 4, 4),
    "model.feature_kernel": (5, 5, 5, 5, 5),
    "model.feature_stride": (1, 1, 1, 1, 1),
    "model.update_hidden": (128, 128, 128, 128, 128),
    "model.hidden": (512, 512, 512, 512, 512),
    "model.nvil.channels": ((16, 32, 64),) * 5,
    "model.nvil.hidden": (256, 256, 256, 256, 256),
    "model.object_decoder": (DENSE_OBJECTS, DENSE_OBJECTS, FLAT_OBJECTS, FLAT_OBJECTS, CLEVR_OBJECTS),
    "model.background_decoder": (
        DENSE_BACKGROUND,
        DENSE_BACKGROUND,
        FLAT_BACKGROUND,
        FLAT_BACKGROUND,
        CLEVR_BACKGROUND,
    ),
    # Learning.
    "optimisation.batch_size": (32, 32, 64, 64, 64),
    "optimisation.learning_rate": (4e-4, 1e-4, 4e-4, 4e-4, 4e-4),
    "optimisation.decay_factor": (0.5, 0.5, 0.5, 0.5, 0.5),
    "optimisation.decay_steps": (50_000, 50_000, 100_000, 100_000, 100_000),
    "optimisation.warmup_steps": (10_000, 0, 10_000, 10_000, 10_000),
    "optimisation.single_view_steps": (10_000, 0, 0, 0, 0),
    "optimisation.pretrained_step": (0, 100_000, 0, 0, 0),
    "schedule.steps": (150_000, 100_000, 500_000, 500_000, 500_000),
    # Published runs.
    "schedule.temperature_start": (10.0, 10.0, 10.0, 10.0, 10.0),
    "schedule.temperature_end": (0.5, 0.5, 0.5, 0.5, 0.5),
    "schedule.softness_start": (10.0, 10.0, 10.0, 10.0, 10.0),
    "schedule.softness_end": (0.5, 0.5, 0.5, 0.5, 0.5),
    "schedule.kl_ramp_steps": (100_000, 50_000, 400_000, 400_000, 100_000),
    "schedule.background_kl_factor": (10.0, 10.0, 1.0, 1.0, 1.0),
    "schedule.compactness_start": (0.01, 0.01, 0.0, 0.0, 0.0),
    "schedule.compactness_end": (0.05, 0.05, 0.05, 0.05, 0.05),
    "schedule.compactness_scale": (1.0, 1.0, 1.0, 1.0, 1.0),
    "model.nvil.momentum": (0.8, 0.8, 0.8, 0.8, 0.8),
    "model.nvil.normalise": (True, True, True, True, True),
    "model.start.shape_logit": (0.0, 0.0, 0.0, 0.0, 0.0),
    "model.start.presence_logit": (0.0, 0.0, 0.0, 0.0, 0.0),
    "model.start.log_sigma": (0.0, 0.0, 0.0, 0.0, 0.0),
    "model.start.selection_gain": (1.0, 1.0, 1.0, 1.0, 1.0),
    "model.start.query_gain": (1.0, 1.0, 1.0, 1.0, 1.0),
}


@pytest.mark.parametrize("field", TABLE)
def test_hyperparameters_of_the_paper(field: str) -> None:
    for names, expected in zip(COLUMNS, TABLE[field], strict=True):
        for name in names:
            found: Any = experiment(name)
            for part in field.split("."):
                found = getattr(found, part)
            if isinstance(expected, dict):
                found = {key: getattr(found, key) for key in expected}
            assert found == expected, name


def test_second_stages_start_from_the_first() -> None:
    """The full circle of viewpoints from the half circle, with the same networks; umbra otherwise from a short OCLOC on
    its own data, which `train` runs by itself; glimpses, with details or without, from an umbra."""
    starts = {name: made.optimisation.pretrained_preset for name, made in EXPERIMENTS.items()}
    wide = {"clevr-m3": "clevr-m1", "clevr-m4": "clevr-m2"}
    kinds = ("ocloc", "ocloc-compact", "per-view", "per-view-compact", "umbra")
    second = {f"{kind}/{data}": f"{kind}/{before}" for kind in kinds for data, before in wide.items()}
    second["umbra/clevr-mixed"] = "umbra/clevr-m1"
    sets = ("clevr-m1", "clevr-m2", "dsprites", "abstract", "clevr")
    own = {f"umbra/{data}": f"ocloc-first/{data}" for data in sets}
    own["umbra-tiny/clevr-m1"] = "ocloc-tiny/clevr-m1"
    looks = {f"umbra-glimpses/{data}": f"umbra/{data}" for data in sets}
    details = {f"umbra-details/{data}": f"umbra/{data}" for data in ("clevr-m1", "clevr-m2")}
    assert {name: first for name in EXPERIMENTS if (first := first_stage(name))} == own | looks | details
    assert stages("umbra-details/clevr-m2") == ("ocloc-first/clevr-m2", "umbra/clevr-m2", "umbra-details/clevr-m2")
    assert stages("umbra") == ("ocloc-first/clevr-m1", "umbra/clevr-m1")
    assert stages("umbra-details/clevr-mixed") == ("umbra-details/clevr-mixed",)
    second |= own | {f"umbra-glimpses/{data}": f"umbra/{data}" for data in (*sets, *wide, "clevr-mixed")}
    several = ("clevr-m1", "clevr-m2", *wide, "clevr-mixed")
    second |= {f"umbra-details/{data}": f"umbra/{data}" for data in several}
    assert {name: start for name, start in starts.items() if start} == second
    assert pinned_steps("clevr-m1") == pinned_steps("ocloc/clevr-m1") == pinned_steps("compact") == (100_000,)
    assert pinned_steps("umbra") == ()  # from which nothing starts
    assert {experiment(f"umbra/{data}").optimisation.pretrained_step for data in sets} == {0}  # the best model


def test_a_stage_that_asks_for_a_step_is_not_run_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    made = experiment("umbra")
    pinned = replace(made, optimisation=replace(made.optimisation, pretrained_step=100))
    monkeypatch.setitem(EXPERIMENTS, "umbra/clevr-m1", pinned)
    assert first_stage("umbra") is None
    assert stages("umbra-details/clevr-m1") == ("umbra-details/clevr-m1",)


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if first_stage(name)])
def test_stages_differ_in_what_fits_any_weights(name: str) -> None:
    """A change of a constant in which two stages differ is the later one's: sizes of networks are the same in both."""
    before, later = vars(experiment(str(first_stage(name))).model), vars(experiment(name).model)
    others = {field for field, value in before.items() if later[field] != value}
    assert others <= {"sigma_x", "rounds", "glimpses", "details", "details_by_view"}


TAUGHT = [
    *((f"umbra-glimpses/{data}", 0, False) for data in ("clevr-m1", "clevr-m4", "clevr-mixed", "clevr", "abstract")),
    ("umbra-glimpses/dsprites", 16, False),
    *((f"umbra-details/{data}", 16, True) for data in ("clevr-m1", "clevr-m4", "clevr-mixed")),
]


@pytest.mark.parametrize(("name", "details", "by_view"), TAUGHT)
def test_glimpses_and_details_are_taught_alone(name: str, details: int, by_view: bool) -> None:
    """To an umbra as it was trained, cold from the first step, at a rate that falls to a tenth."""
    made, trained = experiment(name), experiment(f"umbra/{experiment(name).data}")
    assert made.model == replace(trained.model, glimpses=3, rounds=4, details=details, details_by_view=by_view)
    assert (made.views, made.test_slots, made.tuning) == (trained.views, trained.test_slots, None)
    assert made.optimisation.parts == (("glimpses", "generation.f_det") if details else ("glimpses",))
    assert made.optimisation.pretrained_preset == f"umbra/{made.data}"
    assert made.optimisation.learning_rate_at(made.schedule.steps) == pytest.approx(1e-4)
    first, last = made.schedule.at(0), made.schedule.at(made.schedule.steps)
    assert (first.weight_attr, last.weight_attr) == (pytest.approx((0.0, 0.3), abs=1e-4) if details else (1.0, 1.0))
    kl = ("weight_view", "weight_attr", "weight_bck", "weight_rho", "weight_prs", "compactness_rate")
    assert replace(first, **{name: getattr(last, name) for name in kl}) == last


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_can_be_made(name: str) -> None:
    """Its model, without weights; its data; its schedule over another number of steps; where it starts from."""
    made = experiment(name)
    kind = trainable_class(made.method)
    with torch.device("meta"):
        model = kind(made.model)
    assert type(made.model) is kind.config_class
    assert type(made.schedule) is kind.schedule_class
    assert type(made.optimisation) is kind.optimisation_class
    assert model.parameter_counts()["total"] == sum(value.numel() for value in model.parameters())
    assert name.endswith(f"/{made.data}")
    assert made.data in DATA_PRESETS
    start = made.optimisation.pretrained_preset
    assert start is None or start in EXPERIMENTS
    if start is not None:
        first = experiment(start)
        with torch.device("meta"):
            assert model.weights_from(trainable_class(first.method)(first.model)) is not None
        assert made.optimisation.pretrained_step <= first.schedule.steps


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("factor", [0.01, 2])
def test_a_squeezed_experiment_is_the_same_at_every_share(name: str, factor: float) -> None:
    made = experiment(name)
    steps = max(200, round(factor * made.schedule.steps))  # in fewer, whole steps are too coarse to compare
    short = made.squeezed(steps)
    assert short.schedule.steps == steps
    for share in (0.0, 0.25, 0.5, 1.0):
        there, here = round(share * made.schedule.steps), round(share * steps)
        assert vars(short.schedule.at(here)) == pytest.approx(vars(made.schedule.at(there)), rel=0.02, abs=1e-9)
        assert short.optimisation.learning_rate_at(here) == pytest.approx(
            made.optimisation.learning_rate_at(there), rel=0.02
        )
    assert made.squeezed(made.schedule.steps) == made
    assert (short.method, short.data, short.model) == (made.method, made.data, made.model)


def test_short_names() -> None:
    """The paper's seven by their data, and five of ours."""
    seven = ("clevr-m1", "clevr-m2", "clevr-m3", "clevr-m4", "dsprites", "abstract", "clevr")
    ours = {"compact": "ocloc-compact/clevr-m1", "umbra": "umbra/clevr-m1", "tiny": "ocloc-tiny/clevr-m1"}
    ours["umbra-details"] = "umbra-details/clevr-m1"
    ours["tiny-clevr"] = "slot-attention-tiny/tiny-clevr"
    assert {name: f"ocloc/{name}" for name in seven} | ours == SHORT_NAMES
    for short, full in SHORT_NAMES.items():
        assert experiment(short) is experiment(full) is known_experiment(short)
        assert full_name(short) == full_name(full) == full
    assert not SHORT_NAMES.keys() & EXPERIMENTS.keys()


def test_near_names_are_suggested() -> None:
    for wrong, meant in {
        "tinny": "tiny",
        "umbra/clevr-m9": "umbra/clevr-m",
        "slot-atention/clevr": "slot-attention/clevr",
    }.items():
        with pytest.raises(UserError, match=f"did you mean .*{meant}"):
            experiment(wrong)
    with pytest.raises(UserError, match="kmeans learns nothing, so there is nothing to train or load"):
        experiment("kmeans/clevr")
    with pytest.raises(UserError, match="unknown experiment 'zzz'; viewslots info lists all"):
        experiment("zzz")


@pytest.mark.parametrize("name", ["nope", "", "ocloc", "clevr-m9", "umbra/clevr-m9", "ocloc/clevr-m1/"])
def test_unknown_names(name: str) -> None:
    with pytest.raises(UserError, match=f"unknown experiment {name!r}; .*viewslots info lists all"):
        experiment(name)
    with pytest.raises(UserError, match="unknown experiment"):
        describe(name)
    assert known_experiment(name) is None


@pytest.mark.parametrize("name", ["compact", "umbra/clevr-m1", "per-view/clevr-m3", "tiny"])
def test_info_prints_what_an_experiment_is(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("sys.argv", ["viewslots", "info", name])
    main()
    printed, made = json.loads(capsys.readouterr().out), experiment(name)
    with torch.device("meta"):
        model = trainable_class(made.method)(made.model)
    assert printed["parameters"]["total"] == sum(value.numel() for value in model.parameters())
    assert printed["parameters"] == model.parameter_counts()
    assert (printed["experiment"], printed["method"], printed["data"]) == (full_name(name), made.method, made.data)
    assert printed["slots"] == {"train": made.model.slots, "test2": made.test_slots}
    for part in ("model", "schedule", "optimisation"):
        assert printed[part] == json.loads(json.dumps(asdict(getattr(made, part))))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_training_ends_where_testing_begins(name: str) -> None:
    """The scheduled values for use after training are those that the schedule ends with; weights may end elsewhere."""
    made = EXPERIMENTS[name]
    with torch.device("meta"):
        annealed = trainable_class(made.method)(made.model).annealed()
    last = vars(made.schedule.at(made.schedule.steps))
    for field, value in vars(annealed).items():
        if field.startswith(("temperature", "softness")):
            assert last[field] == pytest.approx(value)
    assert last.keys() == vars(annealed).keys()


@pytest.mark.parametrize(("name", "field"), [("space/dsprites", "temperature"), ("gmioo/dsprites", "temperature_prs")])
def test_temperature_after_training_is_the_models(name: str, field: str) -> None:
    made = EXPERIMENTS[name]
    with torch.device("meta"):
        model = trainable_class(made.method)(replace(made.model, temperature=0.3))
    assert getattr(model.annealed(), field) == 0.3


@pytest.mark.parametrize("name", ["clevr-m1", "dsprites", "abstract", "clevr", "compact"])
def test_experiments_train_two_steps(name: str) -> None:
    """Every decoder, with its own optimisation settings, on one scene."""
    chosen = experiment(name)
    model = Ocloc(chosen.model)
    optimiser = torch.optim.Adam(model.parameters(), lr=chosen.optimisation.learning_rate)
    size, rng = chosen.model.image_size, torch.Generator().manual_seed(0)
    batch = SceneBatch(torch.rand(1, 1, 3, size, size, generator=rng), torch.ones(1, 1, dtype=torch.bool))
    for step in range(2):
        annealing = chosen.schedule.at(step)
        loss = model(batch, annealing, model.draw_noise(batch, rng, 2)).minimised.mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        assert bool(loss.isfinite())
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_schedules_of_the_published_runs() -> None:
    multi, second, single = (experiment(name).schedule for name in ("clevr-m1", "clevr-m3", "dsprites"))
    assert multi.at(0).temperature_shp == 10
    assert multi.at(75_000).softness == pytest.approx((10 * 0.5) ** 0.5)
    assert multi.at(150_000).temperature_prs == pytest.approx(0.5)
    assert multi.at(50_000).weight_view == pytest.approx(0.5)
    assert multi.at(100_000).weight_bck == pytest.approx(10.0)
    assert multi.at(150_000).compactness_rate == pytest.approx(0.05)
    assert second.at(25_000).weight_rho == pytest.approx(0.5)
    assert single.at(400_000).weight_bck == pytest.approx(1.0)
    assert single.at(0).compactness_rate == 0
    values = multi.at(30_000)
    assert all(isinstance(value, torch.Tensor) for value in vars(values.tensors("cpu")).values())
    assert {name: float(value) for name, value in vars(values.tensors("cpu")).items()} == pytest.approx(vars(values))


def test_learning_rates_of_the_published_runs() -> None:
    first, second = Optimisation(), experiment("clevr-m4").optimisation
    assert first.learning_rate_at(5_000) == pytest.approx(4e-4 * 0.5**0.1 * 0.5)
    assert first.learning_rate_at(50_000) == pytest.approx(2e-4)
    assert (first.views_at(9_999, 4), first.views_at(10_000, 4)) == (1, 4)
    few = replace(first, single_view_steps=2, fewest_views=2)
    assert [few.views_at(step, 4) for step in range(9)] == [1, 1, 4, 2, 3, 4, 2, 3, 4]
    assert [few.views_at(step, 1) for step in range(2, 5)] == [1, 1, 1]  # no more than there are
    assert [first.within_at(step) for step in (0, 50_000)] == [1.0, 1.0]
    near = replace(first, neighbours=0.2, neighbour_steps=1_000)
    assert [near.within_at(step) for step in (0, 500, 1_000, 5_000)] == pytest.approx([0.2, 0.6, 1.0, 1.0])
    assert near.squeezed(0.1).neighbour_steps == 100
    with pytest.raises(UserError, match=r"neighbours=0\.2 lasts for 0 steps: set neighbour_steps too"):
        replace(first, neighbours=0.2)
    assert second.learning_rate_at(0) == pytest.approx(1e-4)
    assert second.pretrained_preset == "ocloc/clevr-m2"


def test_bench_train_measures_every_method() -> None:
    names = one_of_each_method()
    assert {EXPERIMENTS[name].method for name in names} == {name for name, entry in METHODS.items() if entry.learns}
    assert len(names) == len({EXPERIMENTS[name].method for name in names})
