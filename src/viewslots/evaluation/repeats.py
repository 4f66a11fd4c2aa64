"""Every repeat of every scene, before anything is averaged."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from viewslots.evaluation.ratios import SceneRatios
from viewslots.evaluation.score import SceneScores
from viewslots.evaluation.uncertainty import Values


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
