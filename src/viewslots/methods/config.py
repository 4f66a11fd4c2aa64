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


@dataclass(frozen=True)
class Most:
    """The largest that a whole number may be; of several the smallest counts. Real ones are far below: it is for
    damaged and hostile files, which would otherwise fill the memory or never come to an end."""

    number: int


COUNT = Bound("1 or more", lambda value: value >= 1)
"""Of every whole number whose annotation says nothing else: sizes and counts."""
MOST_WHOLE = Most(2**16)
"""Of whole numbers whose annotation has no other bound, and of Whole: widths, lengths of codes, kernels, strides."""
MOST_COUNT = Most(1000)

Positive = Annotated[float, Bound("above 0", lambda value: value > 0)]
Amount = Annotated[float, Bound("0 or above", lambda value: value >= 0)]
Share = Annotated[float, Bound("between 0 and 1", lambda value: 0 <= value <= 1)]
Proper = Annotated[float, Bound("0 or above, and below 1", lambda value: 0 <= value < 1)]
NotBelow0 = Bound("0 or above", lambda value: value >= 0)
Whole = Annotated[int, NotBelow0, MOST_WHOLE]
Count = Annotated[int, MOST_COUNT]
"""Of what is held or done once more for each: slots, views, layers, rounds."""
CountOr0 = Annotated[int, NotBelow0, MOST_COUNT]
Side = Annotated[int, Most(4096)]
"""Of a picture or a map."""
Sides = Side | tuple[Side, Side]
"""Of a square, or height and width: an `Extent`."""
Glimpse = Annotated[int, Most(256)]
"""Sides and widths of what sees or paints a part of a picture, once for each object or cell."""
Batch = Annotated[int, Most(10**6)]
Steps = Annotated[int, Most(10**9)]
"""Of a training."""
StepsOr0 = Annotated[int, NotBelow0, Most(10**9)]

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
        if problem := requirement(value, kind) or excess(value, kind):
            section = getattr(config, "section", type(config).__name__)
            raise UserError(f"{section}.{name} cannot be {shown(value)}: it must be {problem}")


def excess(value: object, kind: Any) -> str:
    """What a value of the right type must be so as not to be too large; empty where it is not."""
    if get_origin(kind) in (Union, UnionType):
        return next(excess(value, one) for one in get_args(kind) if not requirement(value, one))
    if isinstance(value, tuple):
        item, *_ = get_args(kind)
        return next(filter(None, (excess(one, item) for one in value)), "") if len(value) <= MOST_ITEMS else "shorter"
    if type(value) is not int:
        return ""
    limits = [MOST_WHOLE] if kind is int else [limit for limit in get_args(kind) if isinstance(limit, Most)]
    most = min((limit.number for limit in limits), default=value)
    return f"at most {most}" if value > most else ""


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
        kind, *limits = get_args(kind)
        bound = next((limit for limit in limits if isinstance(limit, Bound)), COUNT if kind is int else None)
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
        return "" if fits else f"a list, {bare(kind)}"
    return "" if isinstance(value, kind) else f"{getattr(kind, '__name__', kind)}"


def bare(kind: Any) -> Any:
    """An annotation without its ranges, as people know it."""
    if get_origin(kind) is Annotated:
        return get_args(kind)[0]
    return tuple[tuple(map(bare, get_args(kind)))] if get_origin(kind) is tuple else kind  # type: ignore[misc]


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
