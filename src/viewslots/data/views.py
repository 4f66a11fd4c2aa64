"""Which of the stored views of a scene a model sees."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from viewslots.errors import UserError
from viewslots.scenes.draws import Draws

PADDING = -1


@runtime_checkable
class ViewChoice(Protocol):
    def choose(self, scene: int, stored: int) -> Sequence[int]:
        """Indices into the `stored` views of a scene."""
        ...


@dataclass(frozen=True)
class FirstViews:
    """The first M, as in the paper's evaluation; all where `count` is None."""

    count: int | None = None

    def choose(self, scene: int, stored: int) -> Sequence[int]:
        return range(_require(stored if self.count is None else self.count, stored))


@dataclass(frozen=True)
class LastViews:
    """The last M, as in the paper's viewpoint estimation."""

    count: int

    def choose(self, scene: int, stored: int) -> Sequence[int]:
        return range(stored - _require(self.count, stored), stored)


@dataclass(frozen=True)
class RandomViews:
    """Between `fewest` and `most` views in random order: a function of seed, epoch and scene, whatever the batches."""

    fewest: int
    most: int
    seed: int
    epoch: int = 0

    def choose(self, scene: int, stored: int) -> Sequence[int]:
        if not 1 <= self.fewest <= self.most:
            raise UserError(f"between {self.fewest} and {self.most} views asked for; give 1 <= fewest <= most")
        _require(self.most, stored)
        draws = Draws("views", self.seed, self.epoch, scene)
        count = draws.integer(self.fewest, self.most)
        return shuffled(stored, draws, count)


def shuffled(length: int, draws: Draws, count: int | None = None) -> list[int]:
    """The first `count` of a random order of 0..length-1, equal on every machine."""
    order = list(range(length))
    for place in range(length if count is None else count):
        other = draws.integer(place, length - 1)
        order[place], order[other] = order[other], order[place]
    return order[:count]


def view_table(choice: ViewChoice, scenes: Sequence[int], stored: int) -> Int[np.ndarray, "B M"]:
    """The chosen views of each scene, padded with -1 to the longest."""
    chosen = [choice.choose(scene, stored) for scene in scenes]
    table = np.full((len(chosen), max(map(len, chosen), default=0)), PADDING)
    for row, views in zip(table, chosen, strict=True):
        row[: len(views)] = views
    return table


def _require(count: int, stored: int) -> int:
    if not 1 <= count <= stored:
        raise UserError(f"{count} views asked for, but scenes have {stored} views; ask for 1..{stored}")
    return count
