"""Every repeat of every scene, before anything is averaged; and parts of the test set."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from viewslots.metrics.ratios import SceneRatios
from viewslots.metrics.score import SceneScores
from viewslots.protocol.uncertainty import Values

THIRDS = ("least", "middle", "most")


@dataclass(frozen=True)
class Repeats:
    """Scores of the same S scenes, R times, and what scenes are grouped by."""

    scores: Sequence[SceneScores]
    """One a repeat."""
    extras: Sequence[SceneRatios]
    """One a repeat."""
    num_objects: Int[np.ndarray, "S"]
    hidden: Float[np.ndarray, "S"]
    """Share of the objects that other objects hide, in the views used."""

    @property
    def scenes(self) -> int:
        return len(self.num_objects)

    def one(self, repeat: int) -> dict[str, Values]:
        """The data set's scores in one repeat."""
        return _values(self.scores[repeat], self.extras[repeat])

    def select(self, scenes: Int[np.ndarray, "n"]) -> dict[str, Values]:
        """Scores over all repeats of these scenes, any as often as it is named.

        The weights of scenes within a score come from the truth, equal in all repeats: this is the mean over repeats.
        """
        every = (np.arange(len(self.scores))[:, None] * self.scenes + scenes).ravel()
        return _values(self._all_scores.select(every.tolist()), self._all_extras.select(every))

    @cached_property
    def _all_scores(self) -> SceneScores:
        return SceneScores.concatenate(self.scores)

    @cached_property
    def _all_extras(self) -> SceneRatios:
        return SceneRatios.concatenate(self.extras)


def _values(scores: SceneScores, extras: SceneRatios) -> dict[str, Values]:
    return {"paper": scores.paper(), "pooled": scores.pooled(), "extras": extras.values()}


def by_objects(repeats: Repeats) -> dict[str, Any]:
    """Groups of scenes with the same number of objects, named by it."""
    counts = repeats.num_objects
    return {str(count): described(repeats, np.flatnonzero(counts == count)) for count in np.unique(counts).tolist()}


def by_occlusion(repeats: Repeats) -> dict[str, Any]:
    """Thirds of the scenes, ranked by the hidden share of their objects; `hidden` is its range in each."""
    order = np.argsort(repeats.hidden, kind="stable")
    found = {}
    for name, scenes in zip(THIRDS, np.array_split(order, len(THIRDS)), strict=True):
        if len(scenes):
            hidden = repeats.hidden[scenes]
            found[name] = {"hidden": [float(hidden.min()), float(hidden.max())]} | described(repeats, scenes)
    return found


def described(repeats: Repeats, scenes: Int[np.ndarray, "n"]) -> dict[str, Any]:
    return {"scenes": len(scenes)} | repeats.select(scenes)
