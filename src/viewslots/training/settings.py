"""What decides a run, as one frozen value: its JSON in the run folder is enough to build the run again."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, cast

from viewslots.errors import UserError
from viewslots.experiments import ModelPreset, model_preset, pinned_steps
from viewslots.methods.ocloc.config import OclocConfig, from_values
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.schedule import Optimisation, Schedule, scaled
from viewslots.methods.per_view.model import PerViewOcloc
from viewslots.methods.umbra.model import Umbra
from viewslots.training.step import Precision

Method = Literal["ocloc", "per-view", "umbra"]
METHODS: dict[str, type[Ocloc]] = {"ocloc": Ocloc, "per-view": PerViewOcloc, "umbra": Umbra}
LIVE = "live"
SEEDS = 2**63
"""Generators take seeds below this, and above its negative."""


@dataclass(frozen=True)
class RunSettings:
    """A preset, squeezed to the length of this run, and everything else that its result depends on."""

    preset: str
    method: Method
    model: OclocConfig
    schedule: Schedule
    optimisation: Optimisation
    """Its batch size is that of all ranks together."""
    views: int
    """M after the single-view phase."""
    data: str
    """Folder of a data set, or `live`."""
    data_sha256: str | None
    """Of its meta.json, which holds the checksums of all files."""
    world: str
    """The data preset that live scenes come from."""
    seed: int
    init: str | None
    """Where the first weights came from, if not from the seed."""
    pinned: tuple[int, ...]
    """Steps whose checkpoints are kept for good: other presets start from them."""
    precision: Precision
    fast: bool
    validate_every: int
    checkpoint_every: int
    log_every: int

    def __post_init__(self) -> None:
        require_counts({"--validate-every": self.validate_every, "--checkpoint-every": self.checkpoint_every})
        require_counts({"log_every": self.log_every, "views": self.views})
        if not -SEEDS < self.seed < SEEDS:
            raise UserError(f"--seed is {self.seed}, but must have at most 63 bits")
        if method_class(self.method).config_class is not type(self.model):
            raise UserError(f"--method {self.method} is not for the preset {self.preset}")

    @property
    def steps(self) -> int:
        return self.schedule.steps

    @property
    def batch(self) -> int:
        return self.optimisation.batch_size

    def views_at(self, step: int) -> int:
        return self.optimisation.views_at(step, self.views)

    def single_view(self, step: int) -> bool:
        """Whether the step belongs to the phase in which a model of several views sees one only."""
        return self.views_at(step) < self.views

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
        return {name: theirs[name] for name, value in self.to_json().items() if theirs[name] != value}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "RunSettings":
        """From the config.json of a run folder, which may hold more than the settings."""
        known = [field.name for field in fields(cls)]
        if missing := [name for name in known if name not in values]:
            raise UserError(f"the configuration of this run lacks {', '.join(missing)}: was it made by train?")
        kind = method_class(values["method"])
        nested = {
            "model": kind.config_class.from_json(values["model"]),
            "schedule": from_values(kind.schedule_class, values["schedule"]),
            "optimisation": from_values(Optimisation, values["optimisation"]),
            "pinned": tuple(values["pinned"]),
        }
        return cls(**{name: values[name] for name in known} | nested)


def method_class(name: str) -> type[Ocloc]:
    if name not in METHODS:
        raise UserError(f"unknown method {name!r}; known are {', '.join(METHODS)}")
    return METHODS[name]


def require_counts(counts: Mapping[str, int]) -> None:
    for name, value in counts.items():
        if value < 1:
            raise UserError(f"{name} is {value}, but must be at least 1")


def own_method(preset: ModelPreset) -> Method:
    return cast(Method, next(name for name, kind in METHODS.items() if kind is preset.kind))


def pinned_for(preset: str, steps: int) -> tuple[int, ...]:
    """Pinned steps of a run of this length."""
    factor = steps / model_preset(preset).schedule.steps
    return tuple(scaled(step, factor) for step in pinned_steps(preset))


def plan_run(
    preset: str,
    data: str,
    *,
    stored_views: int,
    data_sha256: str | None,
    method: Method | None = None,
    steps: int | None = None,
    batch: int | None = None,
    learning_rate: float | None = None,
    views: int | None = None,
    seed: int = 0,
    init: str | None = None,
    precision: Precision = "fp32",
    fast: bool = True,
    validate_every: int | None = None,
    checkpoint_every: int | None = None,
    changes: Mapping[str, Any] | None = None,
) -> RunSettings:
    """A preset for this data and length; what is None is as in the preset, or a share of the run.

    `changes` come last: a constant that counts steps is taken as it is given, not squeezed once more.
    """
    chosen = model_preset(preset)
    length = chosen.schedule.steps if steps is None else steps
    size = chosen.optimisation.batch_size if batch is None else batch
    require_counts({"--steps": length, "--batch": size})
    squeezed = chosen.squeezed(length)
    rate = squeezed.optimisation.learning_rate if learning_rate is None else learning_rate
    settings = RunSettings(
        preset=preset,
        method=method or own_method(chosen),
        model=chosen.model,
        schedule=squeezed.schedule,
        optimisation=replace(squeezed.optimisation, batch_size=size, learning_rate=rate),
        views=min(chosen.views, stored_views) if views is None else views,
        data=data,
        data_sha256=data_sha256,
        world=chosen.world,
        seed=seed,
        init=init,
        pinned=pinned_for(preset, length),
        precision=precision,
        fast=fast,
        validate_every=max(1, length // 20) if validate_every is None else validate_every,
        checkpoint_every=max(1, min(length // 20, 5000)) if checkpoint_every is None else checkpoint_every,
        log_every=max(1, min(length // 20, 100)),
    )
    settings = settings.changed(changes or {})
    require_init(settings)
    return settings


def require_init(settings: RunSettings) -> None:
    first = settings.optimisation.pretrained_preset
    if first is not None and settings.init is None:
        raise UserError(
            f"{settings.preset} starts from a trained {first}: first run "
            f"`viewslots train {first} --data DIR --run FIRST`, then this command with --init FIRST "
            "(the name of a shipped model does as well)"
        )
