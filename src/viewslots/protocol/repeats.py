"""Every repeat of every scene before anything is averaged, parts of the test set, and how far a score is to be trusted:
its spread over stochastic repeats, and over the scenes it was taken from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Integer

from viewslots.metrics.extras import SceneRatios
from viewslots.metrics.score import SceneScores

Values = Mapping[str, float | None]
"""Scores of a data set; None where a method or a data set has no such score."""

RESAMPLES = 1000
LEVEL = 0.95
THIRDS = ("least", "middle", "most")


@dataclass(frozen=True)
class Repeats:
    """Scores of the same S scenes, R times, and what scenes are grouped by."""

    scores: Sequence[SceneScores]
    """One a repeat."""
    extras: Sequence[SceneRatios]
    """One a repeat."""
    num_objects: Integer[np.ndarray, "S"] | None
    hidden: Float[np.ndarray, "S"] | None
    """Share of the objects that other objects hide, in the views used."""
    missing: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By kind of truth that the data set lacks: the scores that are None for that reason."""

    @property
    def scenes(self) -> int:
        return len(self.scores[0].values)

    def one(self, repeat: int) -> dict[str, Values]:
        """The data set's scores in one repeat."""
        return _values(self.scores[repeat], self.extras[repeat])

    def select(self, scenes: Int[np.ndarray, "n"]) -> dict[str, Values]:
        """Scores of these scenes, any as often as it is named: the mean over the repeats, as of the whole data set. A
        sum over all repeats would be another number, since what a scene weighs may depend on the answer."""
        chosen = scenes.tolist()
        parts = zip(self.scores, self.extras, strict=True)
        ones = [_values(scores.select(chosen), extras.select(scenes)) for scores, extras in parts]
        return {
            kind: {name: _mean([one[kind][name] for one in ones]) for name in part} for kind, part in ones[0].items()
        }

    def per_scene(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Of every scene by the formulas of "paper", mean over repeats; None where a scene has no value. `names`: of
        the split, whose first scenes these are."""
        columns = [
            {"paper": scores.per_scene(), "extras": extras.per_scene()}
            for scores, extras in zip(self.scores, self.extras, strict=True)
        ]
        means = {
            kind: {name: list(map(_mean, zip(*(one[kind][name] for one in columns), strict=True))) for name in part}
            for kind, part in columns[0].items()
        }
        return ({} if names is None else {"names": list(names[: self.scenes])}) | means


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _values(scores: SceneScores, extras: SceneRatios) -> dict[str, Values]:
    return {"paper": scores.paper(), "pooled": scores.pooled(), "extras": extras.values()}


def by_objects(repeats: Repeats) -> dict[str, Any]:
    """Groups of scenes with the same number of objects, named by it; none if that number is not known."""
    counts = repeats.num_objects
    if counts is None:
        return {}
    return {str(count): described(repeats, np.flatnonzero(counts == count)) for count in np.unique(counts).tolist()}


def by_occlusion(repeats: Repeats) -> dict[str, Any]:
    """Thirds of the scenes, ranked by the hidden share of their objects; `hidden` is its range in each.

    None if it is not known how much is hidden.
    """
    if repeats.hidden is None:
        return {}
    order = np.argsort(repeats.hidden, kind="stable")
    found = {}
    for name, scenes in zip(THIRDS, np.array_split(order, len(THIRDS)), strict=True):
        if len(scenes):
            hidden = repeats.hidden[scenes]
            found[name] = {"hidden": [float(hidden.min()), float(hidden.max())]} | described(repeats, scenes)
    return found


def described(repeats: Repeats, scenes: Int[np.ndarray, "n"]) -> dict[str, Any]:
    return {"scenes": len(scenes)} | repeats.select(scenes)


Interval = tuple[float, float] | tuple[None, None]


@dataclass(frozen=True)
class Estimate:
    """A score of a data set."""

    mean: float
    """Over the repeats."""
    std: float
    """Population standard deviation (divided by R, not R - 1) over the R repeats: 0 for a single one."""
    low: float | None
    high: float | None
    """95 % bootstrap interval over scenes, with all repeats of a scene drawn together; None for a single scene."""


def resampled_scenes(scenes: int, seed: int, resamples: int = RESAMPLES) -> Int[np.ndarray, "resamples scenes"]:
    """Scenes drawn with replacement, as many as there are."""
    return np.random.default_rng([seed % 2**63, scenes]).integers(0, scenes, (resamples, scenes))


def bootstrap(
    statistic: Callable[[Int[np.ndarray, "scenes"]], Values],
    scenes: int,
    seed: int,
    resamples: int = RESAMPLES,
) -> dict[str, Interval]:
    """Percentile intervals of a statistic of scene indices; resamples in which a score has no value are left out.

    One scene tells nothing of others: its interval is unknown, not of width zero.
    """
    drawn = [statistic(chosen) for chosen in resampled_scenes(scenes, seed, resamples)]
    intervals: dict[str, Interval] = {}
    for name in drawn[0]:
        values = [value for found in drawn if (value := found[name]) is not None]
        if values:
            low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
            intervals[name] = (float(low), float(high)) if scenes > 1 else (None, None)
    return intervals


def estimates(repeats: Sequence[Values], intervals: Mapping[str, Interval]) -> dict[str, Estimate | None]:
    """Each score over its repeats; None where it has no value in any of them."""
    found: dict[str, Estimate | None] = {}
    for name in repeats[0]:
        values = [value for repeat in repeats if (value := repeat[name]) is not None]
        if not values or name not in intervals:
            found[name] = None
            continue
        found[name] = Estimate(float(np.mean(values)), float(np.std(values)), *intervals[name])
    return found
