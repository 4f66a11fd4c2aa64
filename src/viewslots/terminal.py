"""What commands share: a progress bar, one way to print, the choice of a device."""

import json
import os
import sys
from contextlib import suppress
from typing import Any, Literal, TextIO, cast

from tqdm import tqdm

from viewslots.errors import UserError

Device = Literal["auto", "cpu", "cuda"]


def pick_device(name: str) -> str:
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: no GPU that torch can use; leave the option out or say --device cpu")
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return name


class Progress:
    """A bar with rate and remaining time on stderr; silent when that is not a terminal."""

    def __init__(self, unit: str) -> None:
        self._bar = tqdm(unit=unit, disable=None, file=sys.stderr, delay=2)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def __call__(self, done: int, total: int) -> None:
        if self._bar.total is None:
            self._bar.reset(total)
            self._bar.initial = done
        self._bar.update(done - self._bar.n)


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
    """A line; control characters, which foreign names may hold, do not reach the terminal."""
    print("".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in line), file=sys.stderr)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=1, default=str))
