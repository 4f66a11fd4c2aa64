"""Random numbers as a pure function of a key, equal on every machine."""

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draws:
    """A stream of draws keyed by words, e.g. `Draws("clevr", seed, split, index, "objects")`.

    Only `random.Random.random` lies beneath: Python guarantees its values for a seed. Seeding by text hashes it, so
    neighbouring keys give unrelated streams.
    """

    def __init__(self, *key: str | int) -> None:
        self._random = random.Random("/".join(map(str, key))).random

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self._random()

    def integer(self, low: int, high: int) -> int:
        """Uniform in low..high, both included."""
        return low + min(int(self._random() * (high - low + 1)), high - low)

    def choice(self, items: Sequence[T]) -> T:
        return items[self.integer(0, len(items) - 1)]


def noise_key(*key: str | int) -> int:
    """A 32-bit key for pixel noise from the same words."""
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:4], "little")
