"""The networks and schedules of the published runs, and a tiny one for tests."""

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

ABSTRACT = SlotAttentionConfig(
    image_size=64,
    slots=5,
    encoder_channels=32,
    decoder_grid=64,
    decoder_stages=((1, 5, 32),) * 3,
)
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
    encoder_layers=1,
    encoder_stride=4,
    slot_dim=32,
    mlp_hidden=64,
    decoder_grid=8,
    decoder_stages=((2, 4, 16), (2, 4, 8)),
)
"""For tests: learns two shapes on 32x32 pixels in seconds on a CPU."""

TINY_SCHEDULE = Schedule(steps=600)
TINY_OPTIMISATION = Optimisation(
    batch_size=16,
    learning_rate=3e-3,
    decay_factor=0.1,
    decay_steps=600,
    warmup_steps=50,
    single_view_steps=0,
)
