"""GMIOO as it was trained for comparison with OCLOC, and a tiny one for tests."""

from dataclasses import replace

from viewslots.methods.experiment import Experiment
from viewslots.methods.gmioo.config import DecoderConfig, GmiooConfig
from viewslots.methods.gmioo.schedule import GmiooSchedule
from viewslots.methods.schedules import Optimisation

DSPRITES = GmiooConfig()
"""64x64 pictures, objects of one colour each."""

ABSTRACT = replace(DSPRITES, slots=5, alpha=3.0, scale_mean=0.0, appearance_decoder=DSPRITES.shape_decoder)

CLEVR_OBJECT_DECODER = DecoderConfig(8, 32, ((2, 32), (1, 16), (2, 16), (1, 8), (2, 8)), hidden=(256,))
CLEVR_OBJECT_ENCODER = ((8, 1), (8, 2), (16, 1), (16, 2), (32, 1), (32, 2))

CLEVR = replace(
    DSPRITES,
    image_size=128,
    slots=7,
    alpha=4.5,
    background_dim=8,
    glimpse_size=64,
    background_encoder=((4, 1), (4, 2), (8, 1), (8, 2), (16, 1), (16, 2)),
    object_encoder=CLEVR_OBJECT_ENCODER,
    # Paper: a start of 2x2, which five doublings make 64x64, not 128x128.
    background_decoder=DecoderConfig(4, 8, ((2, 8),) * 4, 2),
    appearance_decoder=CLEVR_OBJECT_DECODER,
    shape_decoder=CLEVR_OBJECT_DECODER,
)
"""128x128 pictures."""

SCHEDULE = GmiooSchedule()
OPTIMISATION = Optimisation(
    batch_size=64, learning_rate=2e-4, decay_factor=1.0, decay_steps=200_000, warmup_steps=0, single_view_steps=0
)

TINY = GmiooConfig(
    image_size=32,
    slots=2,
    background_dim=2,
    code_dim=8,
    glimpse_size=8,
    hidden=64,
    refinements=1,
    background_encoder=((4, 2), (8, 2)),
    object_encoder=((8, 2), (16, 2)),
    background_average=(16,),
    appearance_average=(16,),
    background_decoder=DecoderConfig(4, 4, ((2, 4),), 4),
    appearance_decoder=DecoderConfig(4, 8, (), 2),
    shape_decoder=DecoderConfig(4, 16, (), 2),
    # Boxes of 12 pixels, within a pixel: in the wide prior of the published runs, one box around both shapes costs no
    # more than two.
    scale_std=0.05,
)
"""For tests: learns two shapes on 32x32 pixels in a third of a minute on one core."""

TINY_SCHEDULE = GmiooSchedule(steps=300, guide_steps=75)
TINY_OPTIMISATION = Optimisation(
    batch_size=16, learning_rate=3e-3, decay_factor=0.3, decay_steps=300, warmup_steps=0, single_view_steps=0
)


def published(model: GmiooConfig, data: str, test_slots: int) -> Experiment:
    return Experiment("gmioo", data, model, SCHEDULE, OPTIMISATION, views=1, test_slots=test_slots)


EXPERIMENTS = {
    "gmioo/dsprites": published(DSPRITES, "dsprites", 9),
    "gmioo/abstract": published(ABSTRACT, "abstract", 7),
    "gmioo/clevr": published(CLEVR, "clevr", 11),
    "gmioo-tiny/dsprites": Experiment(
        "gmioo", "dsprites", TINY, TINY_SCHEDULE, TINY_OPTIMISATION, views=1, test_slots=3
    ),
}
