"""Every hyperparameter of appendix 'Choices of Hyperparameters'; of the published runs where the paper is silent."""

from typing import Any

import pytest

from viewslots.experiments import EXPERIMENTS, pinned_steps

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
            found: Any = EXPERIMENTS[name]
            for part in field.split("."):
                found = getattr(found, part)
            if isinstance(expected, dict):
                found = {key: getattr(found, key) for key in expected}
            assert found == expected, name


def test_second_stage_starts_from_the_first() -> None:
    starts = {name: preset.optimisation.pretrained_preset for name, preset in EXPERIMENTS.items()}
    second = {"clevr-m3": "clevr-m1", "clevr-m4": "clevr-m2", "umbra": "compact"}
    assert {name: start for name, start in starts.items() if start} == second
    assert pinned_steps("clevr-m1") == (100_000,)
    assert pinned_steps("compact") == ()  # umbra takes the best model, which every run keeps


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_training_ends_where_testing_begins(name: str) -> None:
    """The test-time temperature and lambda of a model are those its schedule ends with."""
    model, schedule = EXPERIMENTS[name].model, EXPERIMENTS[name].schedule
    last = schedule.at(schedule.steps)
    assert last.temperature_prs == pytest.approx(model.temperature)
    assert last.softness == pytest.approx(model.softness)
