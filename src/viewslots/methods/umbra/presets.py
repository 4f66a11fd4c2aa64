"""Umbra as a second stage after a short OCLOC on the same data, its glimpses, and how a trained one is fine-tuned."""

from dataclasses import replace
from typing import Any

from viewslots.methods.experiment import Experiment, Recipe
from viewslots.methods.ocloc.presets import (
    FIRST,
    FIRST_SINGLE,
    FULL_CIRCLE,
    HALF_CIRCLE,
    TEST_SLOTS,
    TINY,
    TINY_OPTIMISATION,
)
from viewslots.methods.schedules import Optimisation
from viewslots.methods.umbra.config import UmbraConfig, UmbraSchedule

UMBRA = UmbraConfig(**vars(FIRST) | {"sigma_x": 0.1, "weighed_views": 4})
"""The networks of its first stage. Shadow and ground differ little in colour: a small sigma_x tells them apart."""

UMBRA_SCHEDULE = UmbraSchedule(
    steps=16_000, temperature_start=0.5, softness_start=0.5, kl_ramp_steps=0, compactness_start=0.05
)
"""As cold as the first stage ends."""
UMBRA_OPTIMISATION = Optimisation(decay_steps=5_334, warmup_steps=400, single_view_steps=0)
MULTI_STEPS, SINGLE_STEPS, WIDE_STEPS = 14_000, 10_000, 40_000
"""Of the second stage, after 12,000 and 30,000 steps of the first (docs/research-log.md, entries 44, 21 and 29), and on
the full circle of viewpoints after the half circle (entries 19 and 30)."""

GOING_ON = replace(UMBRA_SCHEDULE, mixture_until=0.0, costs_until=0.0)
"""Mixture and prices are there from the first step, as the weights know them."""
TUNING = Recipe(replace(GOING_ON, steps=2_000), replace(UMBRA_OPTIMISATION, decay_steps=667, warmup_steps=100))
"""The rate falls to an eighth: few scenes are seen hundreds of times."""

GLIMPSE_STEPS = 5_000
"""Of the third stage, with details or without (entries 26, 27 and 44)."""
LOOKING = {"rounds": 4, "glimpses": 3}
"""One round of Algorithm 1 more than in the stages before, and three glimpses."""

DETAILS = 16
"""Numbers of a code."""
DETAILED = ("dsprites",)
"""Sets whose objects differ in little but their outlines: `umbra-glimpses` has details too (entry 36)."""
DETAIL_KL = 0.3
"""What KL weights grow to while details are taught: at 1 corners become round again."""

MIXED = {"clevr-mixed": "clevr-m1"}
SEVERAL_VIEWS = (*HALF_CIRCLE, *FULL_CIRCLE, *MIXED)

FLAT = {"darkest": 0.0}
"""Where nothing casts shadows."""


def two_stages(
    data: str, model: UmbraConfig, first: str, steps: int, batch_size: int, learning_rate: float = 2e-4, **sizes: int
) -> Experiment:
    """The second stage; `train` runs the first one before it."""
    own: dict[str, Any] = {"batch_size": batch_size, "learning_rate": learning_rate}
    optimisation = replace(UMBRA_OPTIMISATION, pretrained_preset=f"{first}/{data}", **own)
    tuning = replace(TUNING, optimisation=replace(TUNING.optimisation, **own))
    return Experiment("umbra", data, model, UMBRA_SCHEDULE, optimisation, tuning=tuning, **sizes).squeezed(steps)


def full_circle(data: str, before: str) -> Experiment:
    """From umbra of the half circle: from scratch, objects change their slots when the camera goes around."""
    optimisation = replace(UMBRA_OPTIMISATION, learning_rate=4e-4, pretrained_preset=f"umbra/{before}")
    return Experiment("umbra", data, UMBRA, UMBRA_SCHEDULE, optimisation).squeezed(WIDE_STEPS)


def single_view(data: str) -> Experiment:
    model = UmbraConfig(**vars(FIRST_SINGLE[data]) | {"sigma_x": 0.1} | ({} if data == "clevr" else FLAT))
    return two_stages(data, model, "ocloc-first", SINGLE_STEPS, 64, views=1, test_slots=TEST_SLOTS[data])


def with_glimpses(trained: Experiment, details: int, by_view: bool = False) -> Experiment:
    """Glimpses, and details if there are any, for an umbra that stays as it is: taught together with the rest, objects
    lose their slots."""
    recipe: dict[str, Any] = {
        "learning_rate": 1e-3,
        "decay_factor": 0.1,
        "decay_steps": GLIMPSE_STEPS,
        "warmup_steps": 100,
        "parts": ("glimpses", "generation.f_det") if details else ("glimpses",),
    }
    ramp = round(GLIMPSE_STEPS / DETAIL_KL) if details else 0
    return replace(
        trained,
        model=replace(trained.model, details=details, details_by_view=by_view, **LOOKING),
        schedule=replace(GOING_ON, steps=GLIMPSE_STEPS, kl_ramp_steps=ramp),
        optimisation=replace(trained.optimisation, pretrained_preset=f"umbra/{trained.data}", **recipe),
        tuning=None,
    )


TRAINED = {
    **{f"umbra/{data}": two_stages(data, UMBRA, "ocloc-first", MULTI_STEPS, 32) for data in HALF_CIRCLE},
    **{f"umbra/{data}": full_circle(data, before) for data, before in (FULL_CIRCLE | MIXED).items()},
    **{f"umbra/{data}": single_view(data) for data in FIRST_SINGLE},
}

EXPERIMENTS = {
    **TRAINED,
    **{
        f"umbra-glimpses/{made.data}": with_glimpses(made, DETAILS if made.data in DETAILED else 0)
        for made in TRAINED.values()
    },
    **{
        f"umbra-details/{data}": with_glimpses(TRAINED[f"umbra/{data}"], DETAILS, by_view=True)
        for data in SEVERAL_VIEWS
    },
    "umbra-tiny/clevr-m1": two_stages(
        *("clevr-m1", UmbraConfig(**vars(TINY)), "ocloc-tiny", 600, TINY_OPTIMISATION.batch_size, 1e-3),
        views=2,
        test_slots=3,
    ),
}
