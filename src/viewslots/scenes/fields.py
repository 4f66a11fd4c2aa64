"""Reading the fields of a JSON description: whatever is wrong is named by its path, in one line."""

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from viewslots.errors import UserError

MAX_BYTES = 2**29
"""Of the pictures of one scene that are rendered at once."""
RADIANCE = 12
"""Bytes of linear radiance of a pixel; a complete shape has one."""


def read_fields(data: Any, names: Sequence[str], where: str, optional: Sequence[str] = ()) -> list[Any]:
    """The values of a JSON object's fields, in the order of `names`. Besides them it may have the `optional` ones: a
    field that nobody reads is a mistake of whoever wrote it."""
    if not isinstance(data, Mapping):
        raise UserError(f"{where}: expected a JSON object, got {type(data).__name__}")
    if odd := [name for name in data if name not in names and name not in optional]:
        known = dict.fromkeys((*names, *optional))
        raise UserError(f"{where}: unknown field {odd[0]!r:.40}; known are {', '.join(known)}")
    if missing := [name for name in names if name not in data]:
        raise UserError(f"{where}: `{missing[0]}` is missing")
    return [data[name] for name in names]


def read_list(value: Any, least: int, most: int, where: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple) or not least <= len(value) <= most:
        raise UserError(f"{where}: expected a list of {least} to {most} items")
    return value


def read_number(value: Any, low: float, high: float, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise UserError(f"{where}: expected a number in [{low:g}, {high:g}], got {value!r:.40}")
    return float(value)


def read_integer(value: Any, low: int, high: int, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UserError(f"{where}: expected an integer in {low}..{high}, got {value!r:.40}")
    return value


def read_choice(value: Any, options: Any, where: str) -> Any:
    """One of a Literal's words."""
    names = get_args(options)
    if value not in names:
        raise UserError(f"{where}: expected one of {', '.join(names)}, got {value!r:.40}")
    return value


def require_renderable(views: int, pixels: int, objects: int) -> None:
    if views * pixels * (objects + RADIANCE) > MAX_BYTES:
        raise UserError("scene: too many views, pixels and objects to render at once; split the views")
