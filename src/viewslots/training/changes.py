"""`--set section.field=value`: any constant of a preset, under the name that config.json has for it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from viewslots.errors import UserError
from viewslots.experiments import ModelPreset
from viewslots.methods.ocloc.config import frozen

SECTIONS = ("model", "schedule", "optimisation")
OPTIONS = {"schedule.steps": "steps", "optimisation.batch_size": "batch", "optimisation.learning_rate": "learning_rate"}
"""Fields that have an option of their own, and the argument of plan_run behind it."""


def parse_changes(words: Sequence[str], preset: ModelPreset) -> dict[str, Any]:
    """Values by dotted name, of the type that the field has; ranges are checked where the config is made."""
    changes: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise UserError(f"--set {word}: give section.field=value, such as schedule.temperature_start=2")
        if name in changes:
            raise UserError(f"--set {name}: given twice")
        changes[name] = typed(name, text, kind_of(name, preset))
    return changes


def with_changes(given: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of plan_run: those given by options, and the changes; one that has an option counts as that option."""
    options = {OPTIONS[name]: value for name, value in changes.items() if name in OPTIONS}
    if twice := [name for name in changes if OPTIONS.get(name) in given]:
        option = "--" + OPTIONS[twice[0]].replace("_", "-")
        raise UserError(f"{option} and --set {twice[0]} are the same: give one of them")
    others = {name: value for name, value in changes.items() if name not in OPTIONS}
    return {**given, **options} | ({"changes": others} if others else {})


def kind_of(name: str, preset: ModelPreset) -> Any:
    """The type of a field; if there is none of that name, an error with those there are."""
    section = name.split(".")[0]
    if section not in SECTIONS:
        raise UserError(f"--set {name}: unknown section {section!r}; known are {', '.join(SECTIONS)}")
    known = dict(fields_below(type(getattr(preset, section)), section + "."))
    if name not in known:
        raise UserError(f"--set {name}: no such field; known are {', '.join(known)}")
    return known[name]


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
        if get_origin(kind) is tuple:
            return frozen(json.loads(text))
    except (KeyError, ValueError):
        wanted = {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "a JSON list")
        raise UserError(f"--set {name}={text}: must be {wanted}") from None
    return None if NoneType in get_args(kind) and text.lower() == "none" else text
