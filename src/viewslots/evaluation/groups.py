"""Scores of parts of a test set: by number of objects, and by how much the objects hide one another."""

from typing import Any

import numpy as np
from jaxtyping import Int

from viewslots.evaluation.repeats import Repeats

THIRDS = ("least", "middle", "most")


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
