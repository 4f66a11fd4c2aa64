"""The sizes and schedule of the published runs, and tiny ones for tests."""

from viewslots.methods.experiment import Experiment
from viewslots.methods.mulmon.config import MulmonConfig
from viewslots.methods.mulmon.schedule import LinearDecay
from viewslots.methods.schedules import Schedule

CLEVR = MulmonConfig()
"""64x64 pictures, 8 slots."""

SCHEDULE = Schedule(steps=600_000)
OPTIMISATION = LinearDecay(
    batch_size=4,
    learning_rate=2e-4,
    decay_factor=0.1,
    decay_steps=1_000_000,
    warmup_steps=0,
    single_view_steps=0,
    clip_norm=5.0,
)

TINY = MulmonConfig(
    image_size=12,
    slots=3,
    latent_dim=12,
    view_hidden=16,
    projector_hidden=32,
    decoder_channels=(16, 16),
    refinement_channels=(24,),
    refinement_hidden=64,
    refinement_features=64,
    state_dim=64,
    iterations=3,
    sigma_x=0.3,
    # So few pixels weigh little against the KL.
    kl_weight=0.01,
    # So that posteriors differ between scenes from the first step (docs/reproduction.md).
    start_gain=2.0,
    start_log_variance=-3.0,
)
"""For tests: learns three coloured discs on 12x12 pixels in half a minute on one core."""

TINY_SCHEDULE = Schedule(steps=800)
TINY_OPTIMISATION = LinearDecay(
    batch_size=12,
    learning_rate=4e-3,
    decay_factor=0.2,
    decay_steps=800,
    warmup_steps=20,
    single_view_steps=0,
    clip_norm=5.0,
)

EXPERIMENTS = {
    **{
        f"mulmon/{data}": Experiment("mulmon", data, CLEVR, SCHEDULE, OPTIMISATION, views=4, test_slots=11)
        for data in ("clevr-m1", "clevr-m2", "clevr-m3", "clevr-m4")
    },
    "mulmon-tiny/clevr-m1": Experiment(
        "mulmon", "clevr-m1", TINY, TINY_SCHEDULE, TINY_OPTIMISATION, views=2, test_slots=4
    ),
}
