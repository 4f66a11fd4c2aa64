"""Experiments: a method, the data it learns from, and how its training is scheduled, as named values METHOD/DATA."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from viewslots.errors import UserError
from viewslots.methods.ocloc import presets as ocloc
from viewslots.methods.ocloc.config import OclocConfig
from viewslots.methods.ocloc.schedule import OclocSchedule
from viewslots.methods.registry import trainable_class
from viewslots.methods.schedules import Optimisation, Schedule
from viewslots.methods.slot_attention import presets as slot_attention
from viewslots.methods.slot_attention.config import SlotAttentionConfig
from viewslots.methods.umbra import presets as umbra


@dataclass(frozen=True)
class Experiment:
    """A method on a data set, and the sizes it is trained with."""

    method: str
    data: str
    """The data preset whose scenes it is trained on."""
    model: Any
    """The method's config."""
    schedule: Schedule
    optimisation: Optimisation
    views: int = 4
    """M while training, after the single-view phase."""
    test_slots: int = 11
    """K on the split with more objects."""

    def squeezed(self, steps: int) -> "Experiment":
        """The same training in a run of `steps`: every constant that counts steps shrinks or grows with it."""
        factor = steps / self.schedule.steps
        return replace(self, schedule=self.schedule.squeezed(steps), optimisation=self.optimisation.squeezed(factor))


HALF_CIRCLE, FULL_CIRCLE = ("clevr-m1", "clevr-m2"), {"clevr-m3": "clevr-m1", "clevr-m4": "clevr-m2"}
"""Of viewpoints. The paper trains on a half circle first, and goes on from there to the full one."""
MULTI_VIEW = (*HALF_CIRCLE, *FULL_CIRCLE)


def _multi_view(method: str, kind: str, model: OclocConfig) -> dict[str, Experiment]:
    """The paper's curriculum of its four multi-view sets."""
    first = {data: Experiment(method, data, model, OclocSchedule(), Optimisation()) for data in HALF_CIRCLE}
    second = {
        data: replace(
            first[before],
            data=data,
            schedule=ocloc.SECOND_STAGE_SCHEDULE,
            optimisation=ocloc.second_stage(f"{kind}/{before}"),
        )
        for data, before in FULL_CIRCLE.items()
    }
    return {f"{kind}/{data}": made for data, made in (first | second).items()}


def _single_view(model: OclocConfig, data: str, test_slots: int, schedule: Schedule) -> Experiment:
    optimisation = ocloc.SINGLE_OPTIMISATION
    return Experiment("ocloc", data, model, schedule, optimisation, views=1, test_slots=test_slots)


def _umbra(data: str) -> Experiment:
    first = f"ocloc-compact/{data}"
    return Experiment("umbra", data, umbra.UMBRA, umbra.UMBRA_SCHEDULE, umbra.umbra_optimisation(first))


def _slot_attention(model: SlotAttentionConfig, data: str, test_slots: int) -> Experiment:
    schedule, optimisation = slot_attention.SCHEDULE, slot_attention.OPTIMISATION
    return Experiment("slot-attention", data, model, schedule, optimisation, views=1, test_slots=test_slots)


EXPERIMENTS: dict[str, Experiment] = {
    **_multi_view("ocloc", "ocloc", OclocConfig()),
    "ocloc/dsprites": _single_view(ocloc.DSPRITES, "dsprites", 9, ocloc.SINGLE_SCHEDULE),
    "ocloc/abstract": _single_view(ocloc.ABSTRACT, "abstract", 7, ocloc.SINGLE_SCHEDULE),
    "ocloc/clevr": _single_view(ocloc.CLEVR, "clevr", 11, ocloc.CLEVR_SCHEDULE),
    **_multi_view("ocloc", "ocloc-compact", ocloc.COMPACT),
    "ocloc-compact/clevr-mixed": Experiment("ocloc", "clevr-mixed", ocloc.COMPACT, OclocSchedule(), Optimisation()),
    **_multi_view("per-view", "per-view", OclocConfig()),
    **_multi_view("per-view", "per-view-compact", ocloc.COMPACT),
    **{f"umbra/{data}": _umbra(data) for data in (*MULTI_VIEW, "clevr-mixed")},
    "slot-attention/dsprites": _slot_attention(slot_attention.DSPRITES, "dsprites", 9),
    "slot-attention/abstract": _slot_attention(slot_attention.ABSTRACT, "abstract", 7),
    "slot-attention/clevr": _slot_attention(slot_attention.CLEVR, "clevr", 11),
    "ocloc-tiny/clevr-m1": Experiment(
        "ocloc", "clevr-m1", ocloc.TINY, ocloc.TINY_SCHEDULE, ocloc.TINY_OPTIMISATION, views=2, test_slots=3
    ),
    "slot-attention-tiny/dsprites": Experiment(
        "slot-attention",
        "dsprites",
        slot_attention.TINY,
        slot_attention.TINY_SCHEDULE,
        slot_attention.TINY_OPTIMISATION,
        views=1,
        test_slots=3,
    ),
}

SHORT_NAMES = {
    **{data: f"ocloc/{data}" for data in (*MULTI_VIEW, "dsprites", "abstract", "clevr")},
    "compact": "ocloc-compact/clevr-m1",
    "umbra": "umbra/clevr-m1",
    "tiny": "ocloc-tiny/clevr-m1",
}


def full_name(name: str) -> str:
    """METHOD/DATA of an experiment that may be named in short."""
    return SHORT_NAMES.get(name, name)


def experiment(name: str) -> Experiment:
    if full_name(name) not in EXPERIMENTS:
        raise UserError(f"unknown experiment {name!r}; known are {', '.join(SHORT_NAMES)}, {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[full_name(name)]


def known_experiment(name: object) -> Experiment | None:
    """The same for a name out of a file, which may be of another time."""
    return EXPERIMENTS.get(full_name(str(name)))


def slots_for(data: str | None, split: str) -> int | None:
    """How many objects the paper's methods may find in a data set; None where no experiment learns from it."""
    made = next((made for made in EXPERIMENTS.values() if made.data == data), None)
    if made is None:
        return None
    return made.test_slots if split.startswith("test2") else int(made.model.slots)


def pinned_steps(name: str) -> tuple[int, ...]:
    """Steps of this experiment from which others start, so that its runs keep them for good."""
    uses = [made.optimisation for made in EXPERIMENTS.values() if made.optimisation.pretrained_step]
    return tuple(sorted({use.pretrained_step for use in uses if use.pretrained_preset == full_name(name)}))


def describe(name: str) -> dict[str, Any]:
    """What `viewslots info` prints: parameters by network, sizes, and how training is scheduled."""
    chosen = experiment(name)
    with torch.device("meta"):
        model = trainable_class(chosen.method)(chosen.model)
    return {
        "experiment": full_name(name),
        "method": chosen.method,
        "data": chosen.data,
        "parameters": model.parameter_counts(),
        "views": chosen.views,
        "slots": {"train": chosen.model.slots, "test2": chosen.test_slots},
        "model": asdict(chosen.model),
        "schedule": asdict(chosen.schedule),
        "optimisation": asdict(chosen.optimisation),
    }
