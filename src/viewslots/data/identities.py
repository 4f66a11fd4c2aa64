"""Do the indices of masks mean the same object in all views of a scene? Masks of people's own rarely say.

Objects seldom change their colour between views. Where the mean colours of two views fit much better in another order
than in that of the indices, masks were probably numbered view by view.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from viewslots.types import BACKGROUND

EXCESS = 0.1
"""Distance of colours in [0, 1], on average over objects, that another order must save ..."""
TIMES = 2.0
"""... and how many times smaller it must become, before the indices are doubted."""
DOUBTED = 0.25
"""Share of the pairs of views that must be in doubt: by chance two objects keep their order every second time."""


class Identities:
    """What masks show of it, scene by scene."""

    def __init__(self) -> None:
        self.objects = 0
        self.seen_again = 0
        """In more than one view."""
        self.pairs = 0
        """Of views that follow one another, with two objects or more in common."""
        self.doubted = 0

    def look(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """One scene, in the arrays of the format."""
        if "segment" not in arrays:
            return
        views = int(arrays["num_views"][0]) if "num_views" in arrays else arrays["image"].shape[1]
        found = [mean_colours(arrays["image"][0, view], arrays["segment"][0, view]) for view in range(views)]
        times = np.sum([present for _, present in found], axis=0)
        self.objects += int((times > 0).sum())
        self.seen_again += int((times > 1).sum())
        for (first, here), (second, there) in pairwise(found):
            both = here & there
            if both.sum() > 1:
                self.pairs += 1
                self.doubted += in_doubt(first[both], second[both])

    @classmethod
    def together(cls, several: Sequence["Identities"]) -> "Identities":
        """What several processes have seen, each of its scenes."""
        total = cls()
        for name in vars(total):
            setattr(total, name, sum(getattr(one, name) for one in several))
        return total

    def notes(self) -> list[str]:
        if self.pairs and self.doubted > DOUBTED * self.pairs:
            return [
                f"masks: in {self.doubted} of {self.pairs} pairs of views the colours of objects fit better in another "
                "order than that of the indices; if each view is numbered alone, import again with --per-view-masks, "
                "or scores over views will be wrong"
            ]
        if self.seen_again:
            return [
                f"masks: the same index is taken to be the same object in all views of a scene; {self.seen_again} of "
                f"{self.objects} objects are seen in several views"
            ]
        return []


def mean_colours(
    image: NDArray[np.uint8], segment: NDArray[np.uint8]
) -> tuple[Float64[np.ndarray, "255 3"], Bool[np.ndarray, "255"]]:
    """Of the objects of a view, in [0, 1], and which of them are seen."""
    label = segment.ravel()
    count = np.bincount(label, minlength=BACKGROUND + 1)[:BACKGROUND]
    sums = [np.bincount(label, channel, BACKGROUND + 1)[:BACKGROUND] for channel in image.reshape(-1, 3).T]
    return np.stack(sums, 1) / 255 / np.maximum(count, 1)[:, None], count > 0


def in_doubt(first: Float64[np.ndarray, "n 3"], second: Float64[np.ndarray, "n 3"]) -> bool:
    """Whether another order of the objects fits much better."""
    apart = np.linalg.norm(first[:, None] - second[None], axis=2)
    as_told, best = float(np.trace(apart)), float(apart[linear_sum_assignment(apart)].sum())
    return as_told - best > EXCESS * len(first) and as_told > TIMES * best
