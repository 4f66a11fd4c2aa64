"""The networks and schedules of the OCLOC paper's comparison, and a tiny one for tests."""

from dataclasses import replace

from viewslots.methods.experiment import Experiment
from viewslots.methods.space.config import SpaceConfig
from viewslots.methods.space.schedule import SpaceOptimisation, SpaceSchedule

DSPRITES = SpaceConfig()
"""64x64 pictures."""

ABSTRACT = replace(
    DSPRITES,
    component_dim=4,
    scale_prior_start=0.5,
    scale_prior_end=0.0,
    foreground_sigma=0.2,
    background_sigma=0.1,
)
"""64x64 pictures with backgrounds that differ in colour alone, and larger objects."""

CLEVR = SpaceConfig(
    image_size=128,
    encoder=(
        (4, 2, 16, 4),
        (4, 2, 32, 8),
        (4, 2, 64, 8),
        (3, 1, 128, 16),
        (3, 2, 256, 32),
        (1, 1, 128, 16),
    ),
    glimpse_size=64,
    glimpse_decoder=((4, 128, 16), (2, 128, 16), (2, 64, 8), (2, 32, 8), (2, 16, 4)),
    mask_decoder=((4, 256, 16), (2, 128, 16), (4, 64, 8), (4, 16, 4)),
)
"""128x128 pictures."""

SCHEDULE = SpaceSchedule()
OPTIMISATION = SpaceOptimisation()

TINY = SpaceConfig(
    image_size=32,
    grid=4,
    encoder=((4, 2, 8, 2), (4, 2, 16, 4), (4, 2, 32, 4), (1, 1, 32, 4)),
    lateral_layers=1,
    glimpse_size=8,
    glimpse_encoder=((3, 1, 8, 2), (4, 2, 16, 4)),
    glimpse_channels=32,
    glimpse_groups=4,
    glimpse_decoder=((4, 16, 4), (2, 8, 2)),
    what_dim=8,
    background_channels=(8, 8),
    background_hidden=8,
    mask_dim=4,
    mask_channels=16,
    mask_groups=4,
    mask_decoder=((4, 16, 4), (4, 8, 2), (2, 8, 2)),
    component_dim=2,
    component_channels=(8, 8),
    painter_channels=(4,),
    scale_prior_start=0.0,
    scale_prior_end=-0.3,
    scale_prior_std=0.2,
)
"""For tests: learns two shapes on 32x32 pixels in a quarter of a minute on one core."""

TINY_SCHEDULE = SpaceSchedule(
    steps=300,
    temperature_steps=150,
    presence_first_step=60,
    presence_last_step=150,
    scale_first_step=60,
    scale_last_step=150,
    # To the end: without it, objects of a short run break into pieces (OCA of three seeds .5 instead of .7).
    boundary_steps=300,
)
TINY_OPTIMISATION = SpaceOptimisation(
    batch_size=8,
    learning_rate=1e-3,
    background_rate=2e-2,
    decay_factor=0.2,
    decay_steps=300,
    warmup_steps=60,
)


def published(model: SpaceConfig, data: str) -> Experiment:
    return Experiment("space", data, model, SCHEDULE, OPTIMISATION, views=1, test_slots=model.slots)


EXPERIMENTS = {
    "space/dsprites": published(DSPRITES, "dsprites"),
    "space/abstract": published(ABSTRACT, "abstract"),
    "space/clevr": published(CLEVR, "clevr"),
    "space-tiny/dsprites": Experiment(
        "space", "dsprites", TINY, TINY_SCHEDULE, TINY_OPTIMISATION, views=1, test_slots=TINY.slots
    ),
}
