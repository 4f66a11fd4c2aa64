"""The networks and schedules of the published runs, and a tiny one for tests."""

from dataclasses import replace

from viewslots.methods.experiment import Experiment
from viewslots.methods.schedules import Optimisation, Schedule
from viewslots.methods.slot_attention.config import SlotAttentionConfig

CLEVR = SlotAttentionConfig()
"""128x128 pictures, 8 slots."""

DSPRITES = SlotAttentionConfig(
    image_size=64,
    slots=6,
    encoder_channels=32,
    decoder_grid=64,
    decoder_stages=((1, 5, 32),) * 3,
)
"""64x64 pictures, 7 slots."""

ABSTRACT = replace(DSPRITES, slots=5)
"""64x64 pictures, 6 slots."""

SCHEDULE = Schedule(steps=500_000)
OPTIMISATION = Optimisation(
    batch_size=64,
    learning_rate=4e-4,
    decay_factor=0.5,
    decay_steps=100_000,
    warmup_steps=10_000,
    single_view_steps=0,
)

TINY = SlotAttentionConfig(
    image_size=32,
    slots=2,
    encoder_channels=32,
    # One convolution, so that a feature sees its surroundings only.
    encoder_layers=1,
    encoder_stride=4,
    slot_dim=32,
    mlp_hidden=64,
    decoder_grid=8,
    decoder_stages=((2, 4, 16), (2, 4, 8)),
)
"""For tests: learns two shapes on 32x32 pixels in a quarter of a minute on one core."""

TINY_SCHEDULE = Schedule(steps=600)
TINY_OPTIMISATION = Optimisation(
    batch_size=16,
    learning_rate=6e-3,
    # For some 200 steps all slots see both shapes. With 150 steps of warm-up and a fall to a tenth, one seed of five
    # was still there at the end.
    decay_factor=0.15,
    decay_steps=600,
    warmup_steps=50,
    single_view_steps=0,
)

TINY_CLEVR = replace(
    TINY,
    slots=3,
    encoder_channels=64,
    slot_dim=64,
    mlp_hidden=128,
    decoder_stages=((2, 4, 32), (2, 4, 16)),
)
"""Three solid objects on 32x32 pixels, in minutes on a CPU."""

TINY_CLEVR_SCHEDULE = Schedule(steps=4000)
TINY_CLEVR_OPTIMISATION = replace(TINY_OPTIMISATION, learning_rate=4e-3, decay_steps=4000, warmup_steps=100)


def published(model: SlotAttentionConfig, data: str, test_slots: int) -> Experiment:
    return Experiment("slot-attention", data, model, SCHEDULE, OPTIMISATION, views=1, test_slots=test_slots)


EXPERIMENTS = {
    "slot-attention/dsprites": published(DSPRITES, "dsprites", 9),
    "slot-attention/abstract": published(ABSTRACT, "abstract", 7),
    "slot-attention/clevr": published(CLEVR, "clevr", 11),
    "slot-attention-tiny/dsprites": Experiment(
        "slot-attention", "dsprites", TINY, TINY_SCHEDULE, TINY_OPTIMISATION, views=1, test_slots=3
    ),
    "slot-attention-tiny/tiny-clevr": Experiment(
        "slot-attention",
        "tiny-clevr",
        TINY_CLEVR,
        TINY_CLEVR_SCHEDULE,
        TINY_CLEVR_OPTIMISATION,
        views=1,
        test_slots=4,
    ),
}
