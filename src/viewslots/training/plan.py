"""From what a training is asked for to the settings of its run, and of the stages before it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any

import torch

from viewslots.errors import UserError, require_counts
from viewslots.experiments import all_steps, experiment, first_stage, full_name, pinned_steps, stages
from viewslots.files import shown
from viewslots.methods.contract import Precision, TrainableMethod
from viewslots.methods.registry import trainable_class
from viewslots.methods.schedules import scaled
from viewslots.training.settings import FIRST_NAME, RunSettings, fields_below
from viewslots.types import sides

IMAGE_SIZE = "model.image_size"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a run is asked for. What is None is as in the experiment, or a share of the run."""

    preset: str
    """The experiment, in full or in short."""
    data: str
    stored_views: int
    data_sha256: str | None
    pictures: tuple[int, int] | None = None
    """Height and width, where they are not those of the experiment's own data; the model follows as far as its method
    can."""
    method: str | None = None
    """Another one with the same config; of the last stage alone, like the rate."""
    steps: int | None = None
    """Of all stages."""
    batch: int | None = None
    learning_rate: float | None = None
    views: int | None = None
    slots: int | None = None
    seed: int = 0
    init: str | None = None
    init_step: int | None = None
    start: TrainableMethod[Any] | None = None
    """The model behind `init`, whose networks this one has."""
    precision: Precision = "fp32"
    fast: bool = True
    validate_every: int | None = None
    checkpoint_every: int | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    """By dotted name. They come last: what counts steps is taken as it is given, not squeezed once more. first.NAME is
    for the stage before, first.first.NAME for the one before that."""


def plan_run(asked: Asked) -> RunSettings:
    """Earlier stages on the same data come along, unless `init` names other weights to start from.

    All stages share the data, the batch, the views, the slots and the constants of the model in which their experiments
    agree.
    """
    preset, changes = asked.preset, asked.changes
    before = first_stage(preset) if asked.init is None else None
    own = {name: value for name, value in changes.items() if not name.startswith(FIRST_NAME)}
    if before is None:
        if odd := [name for name in changes if name not in own]:
            why = " because of --init" if asked.init else ""
            raise UserError(f"--set {odd[0]}: this run has no first stage{why}")
        return plan_stage(asked)
    length = all_steps(preset) if asked.steps is None else asked.steps
    if length < (least := len(stages(preset))):
        raise UserError(f"--steps {length}: {preset} has {least} stages, so give at least {least}")
    share = min(max(round(length * all_steps(before) / all_steps(preset)), least - 1), length - 1)
    theirs = changes_before(changes, preset, before)
    first = plan_run(replace(asked, preset=before, steps=share, changes=theirs, method=None, learning_rate=None))
    return plan_stage(replace(asked, steps=length - share, changes=own), first)


def changes_before(changes: Mapping[str, Any], preset: str, before: str) -> dict[str, Any]:
    """Those of the stage before: its own, and the model's, whose networks both share. Where the two experiments differ
    (glimpses, details), a change is the later one's alone: glimpses in the stage before them would ruin it."""
    chosen, first = experiment(preset), experiment(before)
    known = dict(fields_below(type(first.model), "model."))
    alike = [name for name in changes if name in known and attrgetter(name)(first) == attrgetter(name)(chosen)]
    own = {name.removeprefix(FIRST_NAME): value for name, value in changes.items() if name.startswith(FIRST_NAME)}
    return {name: changes[name] for name in alike} | own


def plan_stage(asked: Asked, first: RunSettings | None = None) -> RunSettings:
    """One stage; `first` is the one before it."""
    chosen = experiment(asked.preset)
    kind = trainable_class(asked.method or chosen.method)
    tunes = chosen.tuning is not None and type(asked.start) is kind
    chosen = chosen.tuned() if tunes else chosen
    length = chosen.schedule.steps if asked.steps is None else asked.steps
    size = chosen.optimisation.batch_size if asked.batch is None else asked.batch
    intervals = {"--validate-every": asked.validate_every, "--checkpoint-every": asked.checkpoint_every}
    require_counts({"--steps": length, "--batch": size, "--views": asked.views, **intervals})
    squeezed = chosen.squeezed(length)
    rate = squeezed.optimisation.learning_rate if asked.learning_rate is None else asked.learning_rate
    settings = RunSettings(
        preset=full_name(asked.preset),
        method=asked.method or chosen.method,
        model=chosen.model if asked.start is None else kind.config_from(chosen.model, asked.start),
        schedule=squeezed.schedule,
        optimisation=replace(squeezed.optimisation, batch_size=size, learning_rate=rate),
        views=min(chosen.views, asked.stored_views) if asked.views is None else asked.views,
        data=asked.data,
        data_sha256=asked.data_sha256,
        world=chosen.data,
        seed=asked.seed,
        init=asked.init,
        pinned=pinned_for(asked.preset, length),
        precision=asked.precision,
        fast=asked.fast,
        validate_every=max(1, length // 20) if asked.validate_every is None else asked.validate_every,
        checkpoint_every=max(1, min(length // 20, 5000)) if asked.checkpoint_every is None else asked.checkpoint_every,
        log_every=max(1, min(length // 20, 100)),
        tunes=tunes,
        first=first,
        init_step=asked.init_step,
    )
    pictures = sides(chosen.model.image_size) if asked.pictures is None else asked.pictures
    if IMAGE_SIZE not in asked.changes and pictures != sides(settings.model.image_size):
        settings = replace(settings, model=kind.sized(settings.model, *pictures))
    if asked.slots is not None:
        settings = replace(settings, model=with_slots(settings.model, asked.slots, settings.method))
    settings = settings.changed(asked.changes)
    require_init(settings)
    require_parts(settings)
    before = type(asked.start) if first is None else trainable_class(first.method)
    return replace(settings, tunes=settings.tunes or (bool(settings.optimisation.parts) and before is kind))


def pinned_for(preset: str, steps: int) -> tuple[int, ...]:
    """Pinned steps of a run of this length."""
    factor = steps / experiment(preset).schedule.steps
    return tuple(scaled(step, factor) for step in pinned_steps(preset))


def with_slots(model: Any, slots: int, method: str) -> Any:
    require_counts({"--slots": slots})
    if "slots" not in {field.name for field in fields(model)}:
        raise UserError(f"--slots {slots}: the networks of {method} fix how many objects it can find, {model.slots}")
    return replace(model, slots=slots)


def require_init(settings: RunSettings) -> None:
    first = settings.optimisation.pretrained_preset
    if first is not None and settings.init is None and settings.first is None:
        before = None if first_stage(first) else experiment(first).optimisation.pretrained_preset
        own = "" if before is None else f" --init a trained {before}"
        raise UserError(
            f"{settings.preset} starts from a trained {first}: first run "
            f"`viewslots train {first} --data DIR --run FIRST`{own}, then this command with --init FIRST "
            "(a shipped model with such networks does as well: `viewslots info`)"
        )


def require_parts(settings: RunSettings) -> None:
    """That the parts of the model that are to be trained alone are there."""
    if not (parts := settings.optimisation.parts):
        return
    with torch.device("meta"):
        model = trainable_class(settings.method)(settings.model)
    known = {name for name, module in model.named_modules() if name and any(True for _ in module.parameters())}
    if odd := [part for part in parts if part not in known]:
        own = ", ".join(name for name, _ in model.named_children())
        origin = "" if settings.init is None else f" (networks are those of --init {settings.init})"
        raise UserError(
            f"optimisation.parts: {settings.method} has no part {shown(odd[0])}; it has {own}, and parts of "
            f"these{origin}"
        )
