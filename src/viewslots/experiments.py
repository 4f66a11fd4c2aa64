"""Experiments by name, METHOD/DATA: a method, the data it learns from, and how its training is scheduled."""

from dataclasses import asdict
from typing import Any

import torch

from viewslots.errors import UserError
from viewslots.methods.experiment import Experiment
from viewslots.methods.gmioo import presets as gmioo
from viewslots.methods.mulmon import presets as mulmon
from viewslots.methods.ocloc import presets as ocloc
from viewslots.methods.per_view import presets as per_view
from viewslots.methods.registry import trainable_class
from viewslots.methods.slot_attention import presets as slot_attention
from viewslots.methods.space import presets as space
from viewslots.methods.umbra import presets as umbra

EXPERIMENTS: dict[str, Experiment] = {
    **ocloc.EXPERIMENTS,
    **per_view.EXPERIMENTS,
    **umbra.EXPERIMENTS,
    **slot_attention.EXPERIMENTS,
    **gmioo.EXPERIMENTS,
    **space.EXPERIMENTS,
    **mulmon.EXPERIMENTS,
}

SHORT_NAMES = {
    **{made.data: name for name, made in ocloc.EXPERIMENTS.items() if name == f"ocloc/{made.data}"},
    "compact": "ocloc-compact/clevr-m1",
    "umbra": "umbra/clevr-m1",
    "tiny": "ocloc-tiny/clevr-m1",
    "tiny-clevr": "ocloc-tiny/tiny-clevr",
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
    made = next((made for made in ocloc.EXPERIMENTS.values() if made.data == data), None)
    if made is None:
        return None
    return made.test_slots if split.startswith("test2") else int(made.model.slots)


def pinned_steps(name: str) -> tuple[int, ...]:
    """Steps of this experiment from which others start, so that its runs keep them for good."""
    uses = [made.optimisation for made in EXPERIMENTS.values() if made.optimisation.pretrained_step]
    return tuple(sorted({use.pretrained_step for use in uses if use.pretrained_preset == full_name(name)}))


def overview() -> dict[str, Any]:
    """What `viewslots info` lists: every experiment with its steps and batch, and the short names."""
    made = {
        name: f"{one.schedule.steps:,} steps of {one.optimisation.batch_size} scenes"
        for name, one in EXPERIMENTS.items()
    }
    return {"experiments": made, "short_names": SHORT_NAMES}


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
