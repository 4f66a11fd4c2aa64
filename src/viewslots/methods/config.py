"""Settings as frozen dataclasses: types and ranges are part of the annotation, and JSON goes both ways."""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from viewslots.errors import UserError
from viewslots.files import shown

C = TypeVar("C")


@dataclass(frozen=True)
class Bound:
    """A range of numbers, and its name for people."""

    words: str
    holds: Callable[[float], bool]


COUNT = Bound("1 or more", lambda value: value >= 1)
"""Of every whole number whose annotation says nothing else: sizes and counts."""

Positive = Annotated[float, Bound("above 0", lambda value: value > 0)]
Amount = Annotated[float, Bound("0 or above", lambda value: value >= 0)]
Share = Annotated[float, Bound("between 0 and 1", lambda value: 0 <= value <= 1)]
Proper = Annotated[float, Bound("0 or above, and below 1", lambda value: 0 <= value < 1)]
Whole = Annotated[int, Bound("0 or above", lambda value: value >= 0)]

MOST = {
    "glimpse": 256,
    "step": 10**9,
    "every": 10**9,
    "pinned": 10**9,
    "batch": 10**6,
    "refinement": 10**4,
    "rounds": 1000,
    "iterations": 1000,
    "layers": 1000,
    "components": 1000,
    "slots": 1000,
    "starts": 1000,
    "looks": 1000,
    "spare": 64,
    "views": 1000,
    "size": 4096,
    "grid": 4096,
}
"""No whole number of a field with this word in its name is larger; all others end at MOST_ELSE. Real ones are far
below: it is for damaged and hostile files, which would otherwise fill the memory or never come to an end."""
MOST_ELSE = 2**16
MOST_ITEMS = 1000
"""Length of a list."""
MOST_NUMBER = 1e9
"""Size of a number that is no count: beyond it single precision overflows somewhere."""


def check_fields(config: object) -> None:
    """One clear error for a field of the wrong type or range: settings come from files and from people.

    The class may name its `section`, as people know it.
    """
    for name, kind in get_type_hints(type(config), include_extras=True).items():
        value = getattr(config, name)
        own = get_origin(kind) is Annotated and kind != Whole  # has a range of its own
        if problem := requirement(value, kind) or ("" if own else excess(name, value)):
            section = getattr(config, "section", type(config).__name__)
            raise UserError(f"{section}.{name} cannot be {shown(value)}: it must be {problem}")


def excess(name: str, value: object) -> str:
    """What a whole number, or each of a list, must be; empty where it is."""
    if isinstance(value, tuple):
        return next(filter(None, (excess(name, item) for item in value)), "") if len(value) <= MOST_ITEMS else "shorter"
    most = next((most for word, most in MOST.items() if word in name), MOST_ELSE)
    return f"at most {most}" if type(value) is int and value > most else ""


def requirement(value: object, kind: Any) -> str:
    """What a value of this annotation must be; empty where it is."""
    if kind is Any:
        return ""
    if get_origin(kind) is Literal:
        return "" if value in get_args(kind) else f"one of {', '.join(map(str, get_args(kind)))}"
    if get_origin(kind) in (Union, UnionType):
        problems = [requirement(value, one) for one in get_args(kind)]
        return "" if "" in problems else " or ".join(problems)
    bound: Bound | None = COUNT if kind is int else None
    if get_origin(kind) is Annotated:
        kind, bound = get_args(kind)
    if kind in (int, float):
        known = type(value) is int or (kind is float and type(value) is float and math.isfinite(value))
        words = {int: "a whole number", float: "a number"}[kind]
        if not known:
            return words
        if kind is float and not abs(value) <= MOST_NUMBER:  # type: ignore[arg-type]
            return f"at most {MOST_NUMBER:.0e}, and no less than -{MOST_NUMBER:.0e}"
        return "" if bound is None or bound.holds(value) else bound.words  # type: ignore[arg-type]
    if get_origin(kind) is tuple:
        item, *rest = get_args(kind)
        sized = isinstance(value, tuple) and (rest[-1] is Ellipsis or len(value) == len(rest) + 1)
        fits = sized and not any(requirement(entry, item) for entry in value)  # type: ignore[attr-defined]
        return "" if fits else f"a list, {kind}"
    return "" if isinstance(value, kind) else f"{getattr(kind, '__name__', kind)}"


def from_values(kind: type[C], values: object) -> C:
    """A config from its JSON; a missing or an unknown field is an error, so that no setting is lost in silence.

    Fields that the class names as `later` are missing in older files, and then have their defaults.
    """
    if not isinstance(values, dict):
        raise UserError(f"{kind.__name__} must be a dictionary, not {shown(values)}")
    known = {item.name for item in fields(kind)}  # type: ignore[arg-type]
    missing, unknown = known - set(values) - getattr(kind, "later", frozenset()), set(values) - known
    if missing or unknown:
        raise UserError(f"{kind.__name__}: missing or unknown fields {sorted(missing | unknown)}")
    return kind(**{name: frozen(value) for name, value in values.items()})


def frozen(value: Any) -> Any:
    """JSON's lists as the tuples they were."""
    return tuple(frozen(item) for item in value) if isinstance(value, list | tuple) else value
