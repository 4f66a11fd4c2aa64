"""The one exception that reaches a user as a single clear line."""

import difflib
from collections.abc import Iterable, Mapping


class UserError(Exception):
    """Bad input: the message says what was wrong, where, and what to do. The command line prints it and exits 1."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A question with what is nearest to a misspelt name, to stand before what is known; empty if nothing is near."""
    near = difflib.get_close_matches(name, list(known), 3)
    return f"did you mean {' or '.join(near)}? " if near else ""


def require_counts(counts: Mapping[str, int | None]) -> None:
    """Counts by the names that a user gave them by, such as --views; None where none is given."""
    for name, value in counts.items():
        if value is not None and value < 1:
            raise UserError(f"{name}: must be at least 1, not {value}")
