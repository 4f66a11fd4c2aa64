"""Settings as frozen dataclasses: their types and ranges, and their JSON."""

import math
from dataclasses import fields
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from viewslots.errors import UserError

C = TypeVar("C")


def fits(value: object, kind: Any) -> bool:
    """Whether a value has the type of its annotation; whole numbers are sizes and counts, so at least 1."""
    if kind is int:
        return type(value) is int and value >= 1
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
    if get_origin(kind) is tuple:
        item, *rest = get_args(kind)
        if not isinstance(value, tuple) or (rest[-1] is not Ellipsis and len(value) != len(rest) + 1):
            return False
        return all(fits(entry, item) for entry in value)
    return isinstance(value, kind)


def check_fields(config: object, may_be_zero: str = "", positive: tuple[str, ...] = ()) -> None:
    """One clear error for a field of the wrong type or size: configs come from files too."""
    for name, kind in get_type_hints(type(config)).items():
        value = getattr(config, name)
        zero = name == may_be_zero and value == 0
        if not zero and (not fits(value, kind) or (name in positive and value <= 0)):
            raise UserError(f"{type(config).__name__}.{name} cannot be {value!r}")


def from_values(kind: type[C], values: object) -> C:
    """A config from its JSON; a missing or an unknown field is an error, so that no setting is lost in silence.

    Fields that the class names as `later` are missing in older files, and then have their defaults.
    """
    if not isinstance(values, dict):
        raise UserError(f"{kind.__name__} must be a dictionary, not {values!r}")
    known = {item.name for item in fields(kind)}  # type: ignore[arg-type]
    if odd := sorted((known ^ set(values)) - getattr(kind, "later", frozenset())):
        raise UserError(f"{kind.__name__}: missing or unknown fields {odd}")
    return kind(**{name: frozen(value) for name, value in values.items()})


def frozen(value: Any) -> Any:
    """JSON's lists as the tuples they were."""
    return tuple(frozen(item) for item in value) if isinstance(value, list | tuple) else value
