"""Umbra as a second stage after the compact OCLOC."""

from dataclasses import replace

from viewslots.methods.experiment import Experiment
from viewslots.methods.ocloc.presets import COMPACT, COMPACT_SINGLE, MULTI_VIEW, TEST_SLOTS
from viewslots.methods.schedules import Optimisation
from viewslots.methods.umbra.config import UmbraConfig, UmbraSchedule

UMBRA = UmbraConfig(**vars(COMPACT) | {"sigma_x": 0.1})
"""The networks of `compact`. Shadow and ground differ little in colour: a smaller sigma_x tells them apart."""

UMBRA_SCHEDULE = UmbraSchedule(
    steps=16_000, temperature_start=0.5, softness_start=0.5, kl_ramp_steps=0, compactness_start=0.05
)
"""As cold as `compact` ends."""


def umbra_optimisation(pretrained: str) -> Optimisation:
    return Optimisation(
        learning_rate=2e-4, decay_steps=5_334, warmup_steps=400, single_view_steps=0, pretrained_preset=pretrained
    )


FLAT = {"darkest": 0.0}
"""Where nothing casts shadows."""


def single_view(data: str) -> Experiment:
    optimisation = replace(umbra_optimisation(f"ocloc-compact/{data}"), batch_size=64)
    model = UmbraConfig(**vars(COMPACT_SINGLE[data]) | {"sigma_x": 0.1} | ({} if data == "clevr" else FLAT))
    return Experiment("umbra", data, model, UMBRA_SCHEDULE, optimisation, views=1, test_slots=TEST_SLOTS[data])


EXPERIMENTS = {
    f"umbra/{data}": Experiment("umbra", data, UMBRA, UMBRA_SCHEDULE, umbra_optimisation(f"ocloc-compact/{data}"))
    for data in (*MULTI_VIEW, "clevr-mixed")
} | {f"umbra/{data}": single_view(data) for data in COMPACT_SINGLE}
