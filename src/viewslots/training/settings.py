"""What decides a run, as one frozen value: its JSON in the run folder is enough to build the run again.

`--set section.field=value` changes any constant of an experiment, under the name that config.json has for it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from itertools import takewhile
from operator import attrgetter
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import torch

from viewslots.errors import UserError
from viewslots.experiments import all_steps, experiment, first_stage, full_name, pinned_steps, stages
from viewslots.files import FIRST, shown
from viewslots.methods.config import Bound, check_fields, from_values, frozen
from viewslots.methods.contract import Precision, TrainableMethod
from viewslots.methods.experiment import Experiment
from viewslots.methods.registry import trainable_class
from viewslots.methods.schedules import Optimisation, Schedule, scaled
from viewslots.types import Extent, sides

LIVE = "live"
Seed = Annotated[int, Bound("a number of at most 63 bits", lambda value: abs(value) < 2**63)]
"""As generators take it."""


@dataclass(frozen=True)
class RunSettings:
    """An experiment, squeezed to the length of this run, and everything else that its result depends on."""

    preset: str
    """The experiment, METHOD/DATA."""
    method: str
    model: Any
    """The method's config."""
    schedule: Schedule
    optimisation: Optimisation
    """Its batch size is that of all ranks together."""
    views: int
    """M after the single-view phase, at most."""
    data: str
    """Folder of a data set, or `live`."""
    data_sha256: str | None
    """Of its meta.json, which holds the checksums of all files."""
    world: str
    """The data preset that live scenes come from."""
    seed: Seed
    init: str | None
    """Where the first weights came from, if not from the seed."""
    pinned: tuple[int, ...]
    """Steps whose checkpoints are kept for good: other experiments start from them."""
    precision: Precision
    fast: bool
    validate_every: int
    checkpoint_every: int
    log_every: int
    tunes: bool = False
    """Whether it starts from a trained model of its own kind: the start is then validated too, and may be the best."""
    first: "RunSettings | None" = None
    """The stage before, whose best model this one starts from; its folder is first/ of this one's."""
    init_step: int | None = None
    """The step that the first weights had in their own run; None where nothing tells."""

    section, later = "run", frozenset({"tunes", "first", "init_step"})

    def __post_init__(self) -> None:
        check_fields(self)
        if trainable_class(self.method).config_class is not type(self.model):
            raise UserError(f"--method {self.method} is not for the experiment {self.preset}")

    @property
    def steps(self) -> int:
        return self.schedule.steps

    @property
    def stages(self) -> tuple["RunSettings", ...]:
        """In their order; this one is the last."""
        return (*(() if self.first is None else self.first.stages), self)

    @property
    def all_steps(self) -> int:
        """With those of the stages before."""
        return sum(stage.steps for stage in self.stages)

    @property
    def batch(self) -> int:
        return self.optimisation.batch_size

    def views_at(self, step: int) -> int:
        return self.optimisation.views_at(step, self.views)

    def shown_at(self, step: int) -> tuple[int, float]:
        """Views of each scene of a step, and the share of neighbouring ones that they come from."""
        return self.views_at(step), self.optimisation.within_at(step)

    def single_view(self, step: int) -> bool:
        """Whether the step belongs to the phase in which a model of several views sees one only."""
        return self.views > 1 and step < self.optimisation.single_view_steps

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def changed(self, changes: Mapping[str, Any]) -> "RunSettings":
        """Other values under dotted names, such as schedule.steps; all at once, since some are right only together."""
        values = self.to_json()
        for name, value in changes.items():
            *path, last = name.split(".")
            place = values
            for part in path:
                place = place[part]
            place[last] = value
        return RunSettings.from_json(values)

    def differences(self, other: "RunSettings") -> dict[str, Any]:
        """What the other one has otherwise."""
        theirs = other.to_json()
        mine = {name: value for name, value in self.to_json().items() if name != FIRST}  # which tells its own
        return {name: theirs[name] for name, value in mine.items() if theirs[name] != value}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "RunSettings":
        """From the config.json of a run folder, which may hold more than the settings."""
        known = [field.name for field in fields(cls)]
        if missing := [name for name in known if name not in values and name not in cls.later]:
            raise UserError(f"the configuration of this run lacks {', '.join(missing)}: was it made by train?")
        kinds = {"method": str, "model": dict, "schedule": dict, "optimisation": dict}
        if odd := [name for name, wanted in kinds.items() if not isinstance(values[name], wanted)]:
            raise UserError(f"the configuration of this run is damaged: {odd[0]} is {shown(values[odd[0]])}")
        kind = trainable_class(values["method"])
        nested = {
            "model": kind.config_class.from_json(values["model"]),
            "schedule": from_values(kind.schedule_class, values["schedule"]),
            "optimisation": from_values(kind.optimisation_class, values["optimisation"]),
            "pinned": frozen(values["pinned"]),
        }
        if isinstance(before := values.get(FIRST), dict):
            nested[FIRST] = cls.from_json(before)
        return cls(**{name: values[name] for name in known if name in values} | nested)


def require_counts(counts: Mapping[str, int]) -> None:
    for name, value in counts.items():
        if value < 1:
            raise UserError(f"{name} is {value}, but must be at least 1")


def pinned_for(preset: str, steps: int) -> tuple[int, ...]:
    """Pinned steps of a run of this length."""
    factor = steps / experiment(preset).schedule.steps
    return tuple(scaled(step, factor) for step in pinned_steps(preset))


def plan_run(
    preset: str,
    data: str,
    *,
    steps: int | None = None,
    init: str | None = None,
    start: TrainableMethod[Any] | None = None,
    changes: Mapping[str, Any] | None = None,
    **shared: Any,
) -> RunSettings:
    """A run of an experiment for this data and length: the arguments are those of `plan_stage`.

    Earlier stages on the same data come along, unless `init` names other weights to start from (`start`, the model).
    All stages share the data, the batch, the views, the slots and the constants of the model in which their experiments
    agree. `steps` counts all of them; changes first.NAME are for the stage before, first.first.NAME for the one before
    that.
    """
    before, changes = first_stage(preset) if init is None else None, changes or {}
    own = {name: value for name, value in changes.items() if not name.startswith(FIRST_NAME)}
    if before is None:
        if odd := [name for name in changes if name not in own]:
            raise UserError(f"--set {odd[0]}: this run has no first stage" + (" because of --init" if init else ""))
        return plan_stage(preset, data, steps=steps, init=init, start=start, changes=own, **shared)
    length = all_steps(preset) if steps is None else steps
    if length < (least := len(stages(preset))):
        raise UserError(f"--steps {length}: {preset} has {least} stages, so give at least {least}")
    share = min(max(round(length * all_steps(before) / all_steps(preset)), least - 1), length - 1)
    kept = {name: value for name, value in shared.items() if name not in LAST_ONLY}
    first = plan_run(before, data, steps=share, changes=changes_before(changes, preset, before), **kept)
    return plan_stage(preset, data, steps=length - share, changes=own, first=first, **shared)


LAST_ONLY = ("method", "learning_rate")
"""Arguments that the last stage alone takes."""
FIRST_NAME = FIRST + "."


def changes_before(changes: Mapping[str, Any], preset: str, before: str) -> dict[str, Any]:
    """Those of the stage before: its own, and the model's, whose networks both share. Where the two experiments differ
    (glimpses, details), a change is the later one's alone: glimpses in the stage before them would ruin it."""
    chosen, first = experiment(preset), experiment(before)
    known = dict(fields_below(type(first.model), "model."))
    alike = [name for name in changes if name in known and attrgetter(name)(first) == attrgetter(name)(chosen)]
    own = {name.removeprefix(FIRST_NAME): value for name, value in changes.items() if name.startswith(FIRST_NAME)}
    return {name: changes[name] for name in alike} | own


def plan_stage(
    preset: str,
    data: str,
    *,
    stored_views: int,
    data_sha256: str | None,
    method: str | None = None,
    steps: int | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    views: int | None = None,
    seed: int = 0,
    init: str | None = None,
    init_step: int | None = None,
    start: TrainableMethod[Any] | None = None,
    first: RunSettings | None = None,
    slots: int | None = None,
    pictures: tuple[int, int] | None = None,
    precision: Precision = "fp32",
    fast: bool = True,
    validate_every: int | None = None,
    checkpoint_every: int | None = None,
    changes: Mapping[str, Any] | None = None,
) -> RunSettings:
    """One stage for this data and length; what is None is as in the experiment, or a share of the run.

    `pictures`: height and width, where they are not the experiment's own data; the model follows them as far as its
    method can. `start`: the model behind `init`, whose networks this one has. `changes` come last: what counts
    steps is taken as it is given, not squeezed once more.
    """
    chosen = experiment(preset)
    kind = trainable_class(method or chosen.method)
    tunes = chosen.tuning is not None and type(start) is kind
    chosen = chosen.tuned() if tunes else chosen
    length = chosen.schedule.steps if steps is None else steps
    size = chosen.optimisation.batch_size if batch is None else batch
    require_counts({"--steps": length, "--batch": size})
    squeezed = chosen.squeezed(length)
    rate = squeezed.optimisation.learning_rate if learning_rate is None else learning_rate
    settings = RunSettings(
        preset=full_name(preset),
        method=method or chosen.method,
        model=chosen.model if start is None else kind.config_from(chosen.model, start),
        schedule=squeezed.schedule,
        optimisation=replace(squeezed.optimisation, batch_size=size, learning_rate=rate),
        views=min(chosen.views, stored_views) if views is None else views,
        data=data,
        data_sha256=data_sha256,
        world=chosen.data,
        seed=seed,
        init=init,
        pinned=pinned_for(preset, length),
        precision=precision,
        fast=fast,
        validate_every=max(1, length // 20) if validate_every is None else validate_every,
        checkpoint_every=max(1, min(length // 20, 5000)) if checkpoint_every is None else checkpoint_every,
        log_every=max(1, min(length // 20, 100)),
        tunes=tunes,
        first=first,
        init_step=init_step,
    )
    pictures = sides(chosen.model.image_size) if pictures is None else pictures
    if IMAGE_SIZE not in (changes or {}) and pictures != sides(settings.model.image_size):
        settings = replace(settings, model=kind.sized(settings.model, *pictures))
    if slots is not None:
        settings = replace(settings, model=with_slots(settings.model, slots, settings.method))
    settings = settings.changed(changes or {})
    require_init(settings)
    require_parts(settings)
    before = type(start) if first is None else trainable_class(first.method)
    return replace(settings, tunes=settings.tunes or (bool(settings.optimisation.parts) and before is kind))


def with_slots(model: Any, slots: int, method: str) -> Any:
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


SECTIONS = ("model", "schedule", "optimisation")
IMAGE_SIZE = "model.image_size"
OPTIONS = {
    "schedule.steps": "steps",
    "optimisation.batch_size": "batch",
    "optimisation.learning_rate": "learning_rate",
    "model.slots": "slots",
}
"""Fields that have an option of their own, and the argument of plan_run behind it."""


def parse_changes(words: Sequence[str], chosen: Experiment, *earlier: Experiment) -> dict[str, Any]:
    """Values by dotted name, of the type that the field has; ranges are checked where the config is made. Each `first.`
    before a name goes back by one stage: `earlier` are those before the chosen one, the nearest first."""
    changes: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        parts = name.split(".")
        back = len(list(takewhile(FIRST.__eq__, parts)))
        if back > len(earlier):
            raise UserError(
                f"--set {name}: each `{FIRST_NAME}` goes back one stage, but the experiment has "
                f"{len(earlier) or 'none'} before its last; `viewslots info EXPERIMENT` lists its stages"
            )
        field, stage = ".".join(parts[back:]), (chosen, *earlier)[back]
        if not equals or not field:
            before, where = FIRST_NAME * back, " for an earlier stage" if back else ""
            raise UserError(
                f"--set {word}: give {before}section.field=value{where}, such as {before}optimisation.warmup_steps=100"
            )
        if name in changes:
            raise UserError(f"--set {name}: given twice")
        if back and field == "schedule.steps":
            raise UserError(f"--set {name}: an earlier stage has its share of --steps, and is squeezed to it")
        changes[name] = typed(name, text, kind_of(field, stage, name))
    return changes


def with_changes(given: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of plan_run: those given by options, and the changes; one that has an option counts as that option."""
    options = {OPTIONS[name]: value for name, value in changes.items() if name in OPTIONS}
    if twice := [name for name in changes if OPTIONS.get(name) in given]:
        option = "--" + OPTIONS[twice[0]].replace("_", "-")
        raise UserError(f"{option} and --set {twice[0]} are the same: give one of them")
    others = {name: value for name, value in changes.items() if name not in OPTIONS}
    return {**given, **options} | ({"changes": others} if others else {})


def kind_of(field: str, stage: Experiment, name: str) -> Any:
    """The type of a field of a stage; if there is none, an error with those there are, under the given name."""
    section = field.split(".")[0]
    if section not in SECTIONS:
        raise UserError(f"--set {name}: unknown section {section!r}; known are {', '.join(SECTIONS)}")
    known = dict(fields_below(type(getattr(stage, section)), section + "."))
    if field not in known:
        raise UserError(f"--set {name}: no such field; known are {', '.join(known)}")
    return known[field]


def fields_below(kind: type[Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Dotted name and type of every field, through configs within configs."""
    for name, hint in get_type_hints(kind).items():
        if is_dataclass(hint):
            yield from fields_below(hint, f"{prefix}{name}.")  # type: ignore[arg-type]
        else:
            yield prefix + name, hint


def typed(name: str, text: str, kind: Any) -> Any:
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind in (int, float):
            return kind(text)
        if get_origin(kind) is tuple or kind == Extent:
            return frozen(json.loads(text))
    except (KeyError, ValueError):
        words = {bool: "true or false", int: "a whole number", float: "a number", Extent: "a whole number, or [H, W]"}
        wanted = words.get(kind, "a JSON list")
        raise UserError(f"--set {name}={text}: must be {wanted}") from None
    return None if NoneType in get_args(kind) and text.lower() == "none" else text
