"""What commands share: a progress bar, one way to print, the choice of a device."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal, TextIO, cast

from tqdm import tqdm

from viewslots.errors import UserError
from viewslots.files import plain_zeros
from viewslots.pulse import LINE_SECONDS

Device = Literal["auto", "cpu", "cuda"]


def pick_device(name: str) -> str:
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: no GPU that torch can use; leave the option out or say --device cpu")
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return name


class Progress:
    """How far it is, on stderr: on a terminal a bar with rate and remaining time, else a line now and then.

    The first sign comes within a second, whether anything is done by then or not.
    """

    def __init__(self, unit: str, doing: str = "", speaks: bool = True) -> None:
        """`unit`: what is counted; with "%" the total is 100. Of several processes one speaks."""
        hidden = None if speaks else True
        self._bar = tqdm(unit=unit, disable=hidden, file=sys.stderr, delay=FIRST_SIGN, desc=doing or None)
        silent = not speaks or os.environ.get("TQDM_DISABLE")
        self._lines = Lines(unit, doing) if self._bar.disable and not silent else None

    def __enter__(self) -> "Progress":
        _heard.set()
        if self._lines is not None:
            self._lines.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()
        if self._lines is not None:
            self._lines.end()

    def __call__(self, done: int, total: int) -> None:
        if self._lines is not None:
            self._lines.tell(done, total)
        if self._bar.total is None:
            self._bar.reset(total)
            self._bar.initial = done
        self._bar.update(done - self._bar.n)

    def share(self, part: float) -> None:
        """Of a whole that is not counted in anything."""
        self(int(100 * part), 100)


FIRST_SIGN = 0.8


@contextmanager
def loading_sign() -> Iterator[None]:
    """A word within a second to a person at a terminal, since loading torch alone may take longer; before the command
    shows what it does itself."""
    timer = threading.Timer(FIRST_SIGN, lambda: None if _heard.is_set() else say("loading ..."))
    timer.daemon = True
    _heard.clear()
    if sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


_heard = threading.Event()
"""Whether the command has said or begun to show something."""


class Lines:
    """Progress where nobody sees a bar: a line after a second, then every ten; rarely in a long job."""

    def __init__(self, unit: str, doing: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._unit, self._doing, self._clock = unit, doing or "working", clock
        self._begun = self._said = clock()
        self._known: tuple[int, int] | None = None
        self._awaited = False
        """Whether somebody knows that it has begun, and not that it is done."""
        self._first = 0
        self._timer = threading.Timer(FIRST_SIGN, self._say)
        self._timer.daemon = True

    def start(self) -> None:
        self._timer.start()

    def end(self) -> None:
        self._timer.cancel()
        if self._awaited and self._done:
            self._say()

    def tell(self, done: int, total: int) -> None:
        if self._known is None:
            self._first = done
        self._known, now = (done, total), self._clock()
        if done < total and now - self._said >= max(LINE_SECONDS, (now - self._begun) / 20):
            self._say()

    def _say(self) -> None:
        self._said, self._awaited = self._clock(), not self._done
        say(self.line())

    @property
    def _done(self) -> bool:
        return self._known is not None and self._known[0] == self._known[1]

    def line(self) -> str:
        if self._known is None:
            return f"{self._doing} ..."
        done, total = self._known
        counted = f"{done} %" if self._unit == "%" else f"{done} of {total} {self._unit}"
        new = done - self._first
        passed = self._said - self._begun
        if done == total:
            return f"{self._doing}: {counted}, {clock_time(passed)}"
        return f"{self._doing}: {counted}" + (f", {clock_time(passed / new * (total - done))} left" if new else "")


def clock_time(seconds: float) -> str:
    minutes, rest = divmod(max(int(seconds), 0), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"


class Log:
    """stderr, which may be closed, full, or a pipe that nobody reads any more: what cannot be written is dropped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


def lasting_streams() -> None:
    """Work never ends because of its log. Streams that were closed lead nowhere, not into the next file opened."""
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(handle)
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = cast(TextIO, Log(sys.stderr or open(os.devnull, "w", encoding="utf-8")))  # noqa: SIM115


def say(line: str) -> None:
    """A line; control characters, which foreign names may hold, do not reach the terminal. Work goes on where nobody
    listens any more, as in a terminal that was closed."""
    _heard.set()
    with suppress(OSError):
        print("".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in line), file=sys.stderr)


def print_json(value: Any) -> None:
    print(json.dumps(plain_zeros(value), indent=1, default=str))
