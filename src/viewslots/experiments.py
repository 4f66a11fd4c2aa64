"""Every model as a named value: the paper's seven, and `compact`, `umbra` and `tiny` of our own."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from viewslots.errors import UserError
from viewslots.methods.ocloc.config import DecoderConfig, NvilConfig, OclocConfig, StartConfig
from viewslots.methods.ocloc.model import Ocloc, parameter_counts
from viewslots.methods.ocloc.schedule import Optimisation, Schedule
from viewslots.methods.umbra.config import UmbraConfig, UmbraSchedule
from viewslots.methods.umbra.model import Umbra


@dataclass(frozen=True)
class ModelPreset:
    """A model, how its training is scheduled, and the sizes it is trained with."""

    model: OclocConfig
    schedule: Schedule
    optimisation: Optimisation
    views: int = 4
    """M while training, after the single-view phase."""
    test_slots: int = 11
    """K on the split with more objects."""
    world: str = "clevr-m1"
    """The data preset whose scenes it is trained on."""
    kind: type[Ocloc] = Ocloc
    """What `model` configures."""

    def squeezed(self, steps: int) -> "ModelPreset":
        """The same training in a run of `steps`: every constant that counts steps shrinks or grows with it."""
        factor = steps / self.schedule.steps
        return replace(self, schedule=self.schedule.squeezed(steps), optimisation=self.optimisation.squeezed(factor))


MULTI = ModelPreset(OclocConfig(), Schedule(), Optimisation())
"""Trained from scratch for 150k steps."""


def second_stage(world: str, pretrained: str) -> ModelPreset:
    """100k further steps on the full circle of viewpoints; temperatures start again, KL weights in half the time."""
    return replace(
        MULTI,
        world=world,
        schedule=Schedule(steps=100_000, kl_ramp_steps=50_000),
        optimisation=Optimisation(
            learning_rate=1e-4,
            warmup_steps=0,
            single_view_steps=0,
            pretrained_preset=pretrained,
            pretrained_step=100_000,
        ),
    )


SINGLE_SCHEDULE = Schedule(steps=500_000, kl_ramp_steps=400_000, background_kl_factor=1.0, compactness_start=0.0)
CLEVR_SCHEDULE = replace(SINGLE_SCHEDULE, kl_ramp_steps=100_000)
SINGLE_OPTIMISATION = Optimisation(batch_size=64, decay_steps=100_000, single_view_steps=0)

DSPRITES = OclocConfig(
    image_size=64,
    slots=6,
    view_dim=1,
    background_dim=4,
    attr_dim=32,
    alpha=3.5,
    slot_view_dim=1,
    slot_attr_dim=64,
    value_dim=65,
    feature_channels=32,
    object_decoder=DecoderConfig(kind="broadcast", grid=64, stages=((1, 5, 32), (1, 5, 32), (1, 5, 32))),
    background_decoder=DecoderConfig(kind="broadcast", grid=64, stages=((1, 5, 8), (1, 5, 8))),
)

ABSTRACT = replace(DSPRITES, slots=5, alpha=3.0)

CLEVR = replace(
    DSPRITES,
    image_size=128,
    slots=7,
    background_dim=8,
    attr_dim=64,
    alpha=4.5,
    feature_channels=64,
    object_decoder=DecoderConfig(kind="broadcast", grid=8, stages=(*[(2, 5, 64)] * 4, (1, 5, 64))),
    background_decoder=DecoderConfig(kind="broadcast", grid=32, stages=((2, 5, 16), (2, 5, 16), (1, 5, 16))),
)

COMPACT = OclocConfig(
    # Half the resolution; three more layers of 3x3 then see 15 pixels, about the 17 of the paper's features.
    feature_stride=2,
    feature_kernel=3,
    hidden=256,
    object_decoder=DecoderConfig(
        kind="compact",
        hidden=(1024, 1024),
        grid=16,
        grid_channels=64,
        stages=((1, 3, 64), (1, 3, 64), (2, 3, 32), (1, 3, 32)),
        final_scale=2,
    ),
    background_decoder=DecoderConfig(
        kind="compact", hidden=(256,), grid=16, grid_channels=32, stages=((1, 3, 16), (2, 3, 16)), final_scale=2
    ),
    nvil=NvilConfig(channels=(16, 32, 32), hidden=64),
    start=StartConfig(shape_logit=-2.0, selection_gain=30.0),
)
"""The same latents and losses in under 4 M parameters."""

UMBRA = UmbraConfig(**vars(COMPACT) | {"sigma_x": 0.1})
"""The networks of `compact`. Shadow and ground differ little in colour: a smaller sigma_x tells them apart."""

UMBRA_SCHEDULE = UmbraSchedule(
    steps=16_000, temperature_start=0.5, softness_start=0.5, kl_ramp_steps=0, compactness_start=0.05
)
"""As cold as `compact` ends."""

UMBRA_OPTIMISATION = Optimisation(
    learning_rate=2e-4, decay_steps=5_334, warmup_steps=400, single_view_steps=0, pretrained_preset="compact"
)

TINY = OclocConfig(
    image_size=32,
    slots=2,
    view_dim=1,
    background_dim=1,
    attr_dim=3,
    alpha=3.0,
    slot_view_dim=4,
    slot_attr_dim=32,
    key_dim=32,
    value_dim=36,
    feature_channels=24,
    # One convolution, so that a feature sees its surroundings only: features that see the whole picture let every slot
    # describe all of it.
    feature_layers=1,
    feature_kernel=5,
    feature_stride=4,
    update_hidden=48,
    hidden=64,
    object_decoder=DecoderConfig(
        kind="compact", grid=8, grid_channels=32, stages=((1, 1, 32), (1, 1, 32)), final_scale=4
    ),
    background_decoder=DecoderConfig(kind="compact", grid=8, grid_channels=2, stages=(), final_scale=4),
    nvil=NvilConfig(channels=(4,), hidden=32),
    start=StartConfig(shape_logit=-2.0, presence_logit=2.0, log_sigma=-3.0, selection_gain=100.0, query_gain=4.0),
)
"""For tests: learns two shapes on 32x32 pixels in two minutes on a CPU."""

TINY_SCHEDULE = Schedule(
    steps=2400,
    temperature_start=1.0,
    softness_start=1.0,
    kl_ramp_steps=5000,
    background_kl_factor=1.0,
    compactness_start=0.1,
    compactness_end=0.1,
)
"""Colder than the published runs from the start: no time to wait until probabilities have to tell the truth."""

TINY_OPTIMISATION = Optimisation(
    batch_size=24, learning_rate=3e-3, decay_factor=0.1, decay_steps=2400, warmup_steps=100, single_view_steps=1000
)

MODEL_PRESETS: dict[str, ModelPreset] = {
    "clevr-m1": MULTI,
    "clevr-m2": replace(MULTI, world="clevr-m2"),
    "clevr-m3": second_stage("clevr-m3", "clevr-m1"),
    "clevr-m4": second_stage("clevr-m4", "clevr-m2"),
    "dsprites": ModelPreset(DSPRITES, SINGLE_SCHEDULE, SINGLE_OPTIMISATION, views=1, test_slots=9, world="dsprites"),
    "abstract": ModelPreset(ABSTRACT, SINGLE_SCHEDULE, SINGLE_OPTIMISATION, views=1, test_slots=7, world="abstract"),
    "clevr": ModelPreset(CLEVR, CLEVR_SCHEDULE, SINGLE_OPTIMISATION, views=1, test_slots=11, world="clevr"),
    "compact": ModelPreset(COMPACT, Schedule(), Optimisation()),
    "umbra": ModelPreset(UMBRA, UMBRA_SCHEDULE, UMBRA_OPTIMISATION, kind=Umbra),
    "tiny": ModelPreset(TINY, TINY_SCHEDULE, TINY_OPTIMISATION, views=2, test_slots=3),
}


def model_preset(name: str) -> ModelPreset:
    if name not in MODEL_PRESETS:
        raise UserError(f"unknown preset {name!r}; known are {', '.join(MODEL_PRESETS)}")
    return MODEL_PRESETS[name]


def pinned_steps(name: str) -> tuple[int, ...]:
    """Steps of this preset from which other presets start, so that its runs keep them for good."""
    uses = [preset.optimisation for preset in MODEL_PRESETS.values() if preset.optimisation.pretrained_step]
    return tuple(sorted({use.pretrained_step for use in uses if use.pretrained_preset == name}))


def describe(name: str) -> dict[str, Any]:
    """What `viewslots info` prints: parameters by network, latent sizes, and how training is scheduled."""
    preset = model_preset(name)
    config = preset.model
    with torch.device("meta"):
        model = preset.kind(config)
    return {
        "preset": name,
        "world": preset.world,
        "parameters": parameter_counts(model),
        "latents": {"z_view": config.view_dim, "z_attr_0": config.background_dim, "z_attr_k": config.attr_dim},
        "views": preset.views,
        "slots": {"train": config.slots, "test2": preset.test_slots},
        "model": asdict(config),
        "schedule": asdict(preset.schedule),
        "optimisation": asdict(preset.optimisation),
    }
