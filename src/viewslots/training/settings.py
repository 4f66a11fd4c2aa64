"""What decides a run, as one frozen value: its JSON in the run folder is enough to build the run again.

`--set section.field=value` changes any constant of an experiment, under the name that config.json has for it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from itertools import takewhile
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from viewslots.errors import UserError
from viewslots.files import shown
from viewslots.methods.config import Bound, Count, Steps, StepsOr0, check_fields, from_values, frozen
from viewslots.methods.contract import Precision
from viewslots.methods.experiment import Experiment
from viewslots.methods.registry import trainable_class
from viewslots.methods.schedules import Optimisation, Schedule
from viewslots.run_format import FIRST
from viewslots.types import Extent

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
    views: Count
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
    pinned: tuple[Steps, ...]
    """Steps whose checkpoints are kept for good: other experiments start from them."""
    precision: Precision
    fast: bool
    validate_every: Steps
    checkpoint_every: Steps
    log_every: Steps
    tunes: bool = False
    """Whether it starts from a trained model of its own kind: the start is then validated too, and may be the best."""
    first: "RunSettings | None" = None
    """The stage before, whose best model this one starts from; its folder is first/ of this one's."""
    init_step: StepsOr0 | None = None
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


FIRST_NAME = FIRST + "."
"""Before the name of a field of an earlier stage."""
SECTIONS = ("model", "schedule", "optimisation")
OPTIONS = {
    "schedule.steps": "steps",
    "optimisation.batch_size": "batch",
    "optimisation.learning_rate": "learning_rate",
    "model.slots": "slots",
}
"""Fields that have an option of their own, and the field of `Asked` behind it."""


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
    """Fields of `Asked`: those given by options, and the changes; one that has an option counts as that option."""
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
