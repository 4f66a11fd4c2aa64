"""What commands share: a progress bar, one way to print, the choice of a device."""

import json
import sys
from typing import Any, Literal

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


def say(line: str) -> None:
    print(line, file=sys.stderr)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=1, default=str))
