"""Experiments by name, METHOD/DATA: a method, the data it learns from, and how its training is scheduled."""

from dataclasses import asdict
from typing import Any

import torch

from viewslots.errors import UserError, did_you_mean
from viewslots.files import shown
from viewslots.methods.experiment import Experiment
from viewslots.methods.gmioo import presets as gmioo
from viewslots.methods.mulmon import presets as mulmon
from viewslots.methods.names import METHODS
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
    "umbra-details": "umbra-details/clevr-m1",
    "tiny": "ocloc-tiny/clevr-m1",
    "tiny-clevr": "slot-attention-tiny/tiny-clevr",
}


def full_name(name: str) -> str:
    """METHOD/DATA of an experiment that may be named in short."""
    return SHORT_NAMES.get(name, name)


def experiment(name: str) -> Experiment:
    if full_name(name) not in EXPERIMENTS:
        if (method := name.partition("/")[0]) in METHODS and not METHODS[method].learns:
            trainable_class(method)  # says so
        meant = did_you_mean(name, [*SHORT_NAMES, *EXPERIMENTS])
        raise UserError(f"unknown experiment {shown(name)}; {meant}viewslots info lists all")
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


def first_stage(name: str) -> str | None:
    """The experiment that `train` runs by itself before this one: it learns from the same data, and its best model is
    what this one starts from. None where there is none, or where it cannot be trained from scratch on that data."""
    made = experiment(name)
    first = made.optimisation.pretrained_preset
    if first is None or made.optimisation.pretrained_step or experiment(first).data != made.data:
        return None
    from_scratch = experiment(first).optimisation.pretrained_preset is None or first_stage(first) is not None
    return full_name(first) if from_scratch else None


def stages(name: str) -> tuple[str, ...]:
    """The experiments that `train` runs for this one, in their order; it is the last."""
    first = first_stage(name)
    return (*(() if first is None else stages(first)), full_name(name))


def all_steps(name: str) -> int:
    """Of an experiment with its earlier stages."""
    return sum(experiment(stage).schedule.steps for stage in stages(name))


def pinned_steps(name: str) -> tuple[int, ...]:
    """Steps of this experiment from which others start, so that its runs keep them for good."""
    uses = [made.optimisation for made in EXPERIMENTS.values() if made.optimisation.pretrained_step]
    return tuple(sorted({use.pretrained_step for use in uses if use.pretrained_preset == full_name(name)}))


def overview() -> dict[str, Any]:
    """What `viewslots info` lists: every experiment with its steps and batch, and the short names."""
    return {"experiments": {name: length_in_words(name) for name in EXPERIMENTS}, "short_names": SHORT_NAMES}


def length_in_words(name: str) -> str:
    steps = " + ".join(f"{experiment(stage).schedule.steps:,}" for stage in stages(name))
    before = experiment(stages(name)[0]).optimisation.pretrained_preset
    start = "" if before is None else f", from a trained {before}"
    return f"{steps} steps of {experiment(name).optimisation.batch_size} scenes{start}"


def describe(name: str) -> dict[str, Any]:
    """What `viewslots info` prints: parameters by network, sizes, and how training is scheduled."""
    chosen = experiment(name)
    with torch.device("meta"):
        model = trainable_class(chosen.method)(chosen.model)
    return {
        "experiment": full_name(name),
        "method": chosen.method,
        "data": chosen.data,
        "training": in_words(name),
        "parameters": model.parameter_counts(),
        "views": chosen.views,
        "slots": {"train": chosen.model.slots, "test2": chosen.test_slots},
        "model": asdict(chosen.model),
        "schedule": asdict(chosen.schedule),
        "optimisation": asdict(chosen.optimisation),
        **({} if chosen.tuning is None else {"fine_tuning": asdict(chosen.tuning)}),
    }


def in_words(name: str) -> dict[str, str]:
    """Commands for people: from scratch, and from a trained model."""
    before, (first, *others) = experiment(name).optimisation.pretrained_preset, stages(name)
    ways = {}
    if others:
        later = "".join(f", then {experiment(stage).schedule.steps:,} of {stage}" for stage in others)
        ways["from scratch"] = (
            f"viewslots train {name} --data DIR --run RUN: {experiment(first).schedule.steps:,} steps of {first}"
            f"{later}, each from the best model of the stage before"
        )
    elif before is None:
        ways["from scratch"] = f"viewslots train {name} --data DIR --run RUN"
    if before is not None:
        ways["from a run"] = f"viewslots train {name} --data DIR --run RUN --init FIRST, a run of {before}"
    if (tuning := experiment(name).tuning) is not None:
        method = experiment(name).method
        ways["fine-tuning"] = (
            f"viewslots train {name} --data DIR --run RUN --init MODEL, a trained {method}: {tuning.schedule.steps:,} "
            "steps at a low rate; the best step counts, the start included"
        )
    return ways
