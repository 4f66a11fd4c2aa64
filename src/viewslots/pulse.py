"""Signs of life out of long work: whoever works says how far it is, whoever listens hears it.

A search inside one answer takes most of a command's time. It knows nothing of commands, and its callers need no
further argument.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[float], None]
LINE_SECONDS = 10.0
"""How often whoever reads lines hears how far it is."""

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


def beat(done: float, total: float) -> None:
    """So much of the work at hand is done."""
    listener = _listener.get()
    if listener is not None:
        listener(min(done / total, 1.0) if total else 1.0)


@contextmanager
def heard(listener: Listener) -> Iterator[None]:
    """Within, `listener` is told the share that is done, of whatever is worked on in this thread."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
