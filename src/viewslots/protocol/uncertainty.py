"""How far a score is to be trusted: its spread over stochastic repeats, and over the scenes it was taken from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

Values = Mapping[str, float | None]
"""Scores of a data set; None where a method or a data set has no such score."""

RESAMPLES = 1000
LEVEL = 0.95


@dataclass(frozen=True)
class Estimate:
    """A score of a data set."""

    mean: float
    """Over the repeats."""
    std: float
    """Population standard deviation (divided by R, not R - 1) over the R repeats: 0 for a single one."""
    low: float
    high: float
    """95 % bootstrap interval over scenes, with all repeats of a scene drawn together."""


def resampled_scenes(scenes: int, seed: int, resamples: int = RESAMPLES) -> Int[np.ndarray, "resamples scenes"]:
    """Scenes drawn with replacement, as many as there are."""
    return np.random.default_rng([seed % 2**63, scenes]).integers(0, scenes, (resamples, scenes))


def bootstrap(
    statistic: Callable[[Int[np.ndarray, "scenes"]], Values],
    scenes: int,
    seed: int,
    resamples: int = RESAMPLES,
) -> dict[str, tuple[float, float]]:
    """Percentile intervals of a statistic of scene indices; resamples in which a score has no value are left out."""
    drawn = [statistic(chosen) for chosen in resampled_scenes(scenes, seed, resamples)]
    intervals = {}
    for name in drawn[0]:
        values = [value for found in drawn if (value := found[name]) is not None]
        if values:
            low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
            intervals[name] = (float(low), float(high))
    return intervals


def estimates(repeats: Sequence[Values], intervals: Mapping[str, tuple[float, float]]) -> dict[str, Estimate | None]:
    """Each score over its repeats; None where it has no value in any of them."""
    found: dict[str, Estimate | None] = {}
    for name in repeats[0]:
        values = [value for repeat in repeats if (value := repeat[name]) is not None]
        if not values or name not in intervals:
            found[name] = None
            continue
        found[name] = Estimate(float(np.mean(values)), float(np.std(values)), *intervals[name])
    return found
