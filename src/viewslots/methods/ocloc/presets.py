"""OCLOC as the paper trained it on its seven data sets, a smaller one of ours, and a tiny one for tests.

The paper's multi-view model has the defaults of OclocConfig, OclocSchedule and Optimisation.
"""

from dataclasses import replace

from viewslots.methods.experiment import Experiment
from viewslots.methods.ocloc.config import DecoderConfig, NvilConfig, OclocConfig, StartConfig
from viewslots.methods.ocloc.schedule import OclocSchedule
from viewslots.methods.schedules import Optimisation

SECOND_STAGE_SCHEDULE = OclocSchedule(steps=100_000, kl_ramp_steps=50_000)
"""Further steps on the full circle of viewpoints; temperatures start again, KL weights in half the time."""


def second_stage(pretrained: str) -> Optimisation:
    return Optimisation(
        learning_rate=1e-4,
        warmup_steps=0,
        single_view_steps=0,
        pretrained_preset=pretrained,
        pretrained_step=100_000,
    )


SINGLE_SCHEDULE = OclocSchedule(steps=500_000, kl_ramp_steps=400_000, background_kl_factor=1.0, compactness_start=0.0)
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

FIRST = replace(
    COMPACT,
    sigma_x=0.1,
    feature_kernel=5,
    box_fit=100.0,
    object_decoder=replace(
        COMPACT.object_decoder, hidden=(512, 512), grid=8, stages=((1, 3, 64), (2, 3, 64), (1, 3, 32))
    ),
    start=replace(COMPACT.start, log_sigma=-3.0),
)
"""The first stage of umbra: with these, runs of 12,000 steps find objects (docs/research-log.md, entries 18 and 29)."""
FIRST_STEPS = 12_000

FIRST_DSPRITES = replace(
    FIRST,
    slots=6,
    view_dim=1,
    background_dim=4,
    alpha=3.5,
    slot_view_dim=1,
    value_dim=129,
)
FIRST_ABSTRACT = replace(FIRST_DSPRITES, slots=5, alpha=3.0)
FIRST_CLEVR = replace(
    FIRST_DSPRITES,
    image_size=128,
    slots=7,
    background_dim=8,
    alpha=4.5,
    # Four times the pixels are four times the likelihood.
    sigma_x=0.2,
    feature_stride=4,
    object_decoder=replace(FIRST.object_decoder, stages=((1, 3, 64), (2, 3, 64), (2, 3, 32))),
    background_decoder=replace(COMPACT.background_decoder, final_scale=4),
)
FIRST_SINGLE_SCHEDULE = OclocSchedule(steps=30_000, kl_ramp_steps=20_000, background_kl_factor=1.0)
FIRST_SINGLE_OPTIMISATION = Optimisation(batch_size=64, decay_steps=10_000, warmup_steps=2_000, single_view_steps=0)

TINY = OclocConfig(
    image_size=32,
    slots=2,
    view_dim=1,
    background_dim=1,
    attr_dim=3,
    alpha=3.0,
    sigma_x=0.14,
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

TINY_SCHEDULE = OclocSchedule(
    steps=2400,
    temperature_start=1.0,
    softness_start=1.0,
    kl_ramp_steps=5000,
    background_kl_factor=1.0,
    compactness_start=0.3,
    compactness_end=0.3,
)
"""Colder than the published runs from the start: no time to wait until probabilities have to tell the truth. More
compactness noise, and a sharper likelihood to go with it: else slots often say the same for good (research log, 53)."""

TINY_OPTIMISATION = Optimisation(
    batch_size=24, learning_rate=3e-3, decay_factor=0.1, decay_steps=2400, warmup_steps=100, single_view_steps=1000
)

HALF_CIRCLE, FULL_CIRCLE = ("clevr-m1", "clevr-m2"), {"clevr-m3": "clevr-m1", "clevr-m4": "clevr-m2"}
"""Of viewpoints. The paper trains on a half circle first, and goes on from there to the full one."""


def multi_view(method: str, kind: str, model: OclocConfig) -> dict[str, Experiment]:
    """The paper's curriculum of its four multi-view sets."""
    first = {data: Experiment(method, data, model, OclocSchedule(), Optimisation()) for data in HALF_CIRCLE}
    second = {
        data: replace(
            first[before],
            data=data,
            schedule=SECOND_STAGE_SCHEDULE,
            optimisation=second_stage(f"{kind}/{before}"),
        )
        for data, before in FULL_CIRCLE.items()
    }
    return {f"{kind}/{data}": made for data, made in (first | second).items()}


TEST_SLOTS = {"dsprites": 9, "abstract": 7, "clevr": 11}
"""K of test2, in sets of single pictures."""


def single_view(
    model: OclocConfig, data: str, schedule: OclocSchedule, optimisation: Optimisation = SINGLE_OPTIMISATION
) -> Experiment:
    return Experiment("ocloc", data, model, schedule, optimisation, views=1, test_slots=TEST_SLOTS[data])


FIRST_SINGLE = {"dsprites": FIRST_DSPRITES, "abstract": FIRST_ABSTRACT, "clevr": FIRST_CLEVR}

EXPERIMENTS = {
    **multi_view("ocloc", "ocloc", OclocConfig()),
    "ocloc/dsprites": single_view(DSPRITES, "dsprites", SINGLE_SCHEDULE),
    "ocloc/abstract": single_view(ABSTRACT, "abstract", SINGLE_SCHEDULE),
    "ocloc/clevr": single_view(CLEVR, "clevr", CLEVR_SCHEDULE),
    **multi_view("ocloc", "ocloc-compact", COMPACT),
    "ocloc-compact/clevr-mixed": Experiment("ocloc", "clevr-mixed", COMPACT, OclocSchedule(), Optimisation()),
    **{
        f"ocloc-first/{data}": Experiment("ocloc", data, FIRST, OclocSchedule(), Optimisation()).squeezed(FIRST_STEPS)
        for data in HALF_CIRCLE
    },
    **{
        f"ocloc-first/{data}": single_view(model, data, FIRST_SINGLE_SCHEDULE, FIRST_SINGLE_OPTIMISATION)
        for data, model in FIRST_SINGLE.items()
    },
    "ocloc-tiny/clevr-m1": Experiment(
        "ocloc", "clevr-m1", TINY, TINY_SCHEDULE, TINY_OPTIMISATION, views=2, test_slots=3
    ),
}
