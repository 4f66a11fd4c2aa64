"""Which of the stored views of a scene a model sees."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from jaxtyping import Int

from viewslots.data.names import PAPER_VIEWS
from viewslots.errors import UserError
from viewslots.scenes.draws import Draws

PADDING = -1


class ViewChoice(Protocol):
    @property
    def most(self) -> int | None:
        """How many views of a scene are asked for, at most; None: as many as there are."""
        ...

    def choose(self, scene: int, stored: int) -> Sequence[int]:
        """Indices into the `stored` views of a scene: all of them where it has fewer than are asked for."""
        ...


@dataclass(frozen=True)
class FirstViews:
    """The first M, as in the paper's evaluation; all where `most` is None."""

    most: int | None = None

    def choose(self, scene: int, stored: int) -> Sequence[int]:
        return range(stored if self.most is None else min(self.most, stored))


@dataclass(frozen=True)
class LastViews:
    """The last M, as in the paper's viewpoint estimation."""

    most: int

    def choose(self, scene: int, stored: int) -> Sequence[int]:
        return range(stored)[-self.most :]


@dataclass(frozen=True)
class HeldOutViews:
    """The last M of those that are not among the first `given`. A scene that has no more shows its last one again."""

    given: int
    most: int

    def choose(self, scene: int, stored: int) -> Sequence[int]:
        return range(min(self.given, stored - 1), stored)[-self.most :]


@dataclass(frozen=True)
class RandomViews:
    """Between `fewest` and `most` views in random order: a function of seed, epoch and scene, whatever the batches."""

    fewest: int
    most: int
    seed: int
    epoch: int = 0
    within: float = 1.0
    """All come from a run of neighbouring views, this share of those stored: near places, where views are in the order
    in which somebody walked around the scene."""

    def choose(self, scene: int, stored: int) -> Sequence[int]:
        if not 1 <= self.fewest <= self.most:
            raise UserError(f"between {self.fewest} and {self.most} views asked for; give 1 <= fewest <= most")
        draws = Draws("views", self.seed, self.epoch, scene)
        count = min(draws.integer(self.fewest, self.most), stored)
        run = max(count, math.ceil(self.within * stored))
        first = draws.integer(0, stored - run) if run < stored else 0
        return [first + view for view in shuffled(run, draws, count)]


def shuffled(length: int, draws: Draws, count: int | None = None) -> list[int]:
    """The first `count` of a random order of 0..length-1, equal on every machine."""
    order = list(range(length))
    for place in range(length if count is None else count):
        other = draws.integer(place, length - 1)
        order[place], order[other] = order[other], order[place]
    return order[:count]


def view_table(
    choice: ViewChoice,
    scenes: Sequence[int],
    stored: int,
    counts: Int[np.ndarray, "S"] | None = None,
    padded_to: int = 0,
) -> Int[np.ndarray, "B M"]:
    """The chosen views of each scene, padded with -1 to the longest, and to `padded_to` at least.

    Scenes have `stored` views; where `counts` is given, scene s has the first counts[s] of them.
    """
    if choice.most is not None and not 1 <= choice.most <= stored:
        raise UserError(f"{choice.most} views asked for, but scenes have {stored} views; ask for 1..{stored}")
    chosen = [choice.choose(scene, stored if counts is None else int(counts[scene])) for scene in scenes]
    table = np.full((len(chosen), max([padded_to, *map(len, chosen)])), PADDING)
    for row, views in zip(table, chosen, strict=True):
        row[: len(views)] = views
    return table


def views_shown(asked: int | None, stored: int) -> int:
    """M, where a person may have asked for another number than usual."""
    if asked is not None and asked > stored:
        raise UserError(f"{asked} views asked for, but scenes have {stored}; ask for fewer")
    return min(PAPER_VIEWS, stored) if asked is None else asked
