"""Typed access to a JSON object of unknown origin; every surprise names the file and the field."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from viewslots.data.disk import shown
from viewslots.errors import UserError


class Fields:
    """Each method answers with a value of its type or raises a UserError."""

    def __init__(self, raw: Mapping[str, Any], path: Path) -> None:
        self.raw = raw
        self._path = path

    def _wrong(self, name: str, expected: str) -> UserError:
        found = shown(self.raw[name]) if name in self.raw else "missing"
        return UserError(f"{self._path}: {shown(name)} must be {expected}, but is {found}")

    def integer(self, name: str, low: int, high: int, optional: bool = False) -> int | None:
        value = self.raw.get(name)
        if value is None and optional and name in self.raw:
            return None
        if type(value) is not int or not low <= value <= high:
            raise self._wrong(name, f"an integer in {low}..{high}")
        return value

    def whole(self, name: str, low: int, high: int) -> int:
        value = self.integer(name, low, high)
        assert value is not None
        return value

    def text(self, name: str, optional: bool = False) -> Any:
        """A short printable string (or None where optional)."""
        value = self.raw.get(name)
        if value is None and optional and name in self.raw:
            return None
        if not isinstance(value, str) or len(value) > 200 or not value.isprintable():
            raise self._wrong(name, "a short text")
        return value

    def digest(self, name: str) -> str:
        value = self.raw.get(name)
        if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
            raise self._wrong(name, "64 hexadecimal digits")
        return value

    def mapping(self, name: str) -> Mapping[str, Any]:
        value = self.raw.get(name)
        if not isinstance(value, dict):
            raise self._wrong(name, "an object")
        return value
