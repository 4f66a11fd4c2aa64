"""What every scene of a data set promises about itself, as one function over a block of scenes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped
from numpy.typing import NDArray

from viewslots.types import BACKGROUND, COVERED

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Violation:
    """The first broken promise of a block: scene within the block, view where it has one, key, and what is wrong."""

    scene: int
    view: int | None
    key: str
    wrong: str

    def place(self, first_scene: int) -> str:
        view = "" if self.view is None else f", view {self.view}"
        return f"scene {first_scene + self.scene}{view}, key {self.key}: {self.wrong}"


def first_violation(block: Arrays) -> Violation | None:
    """The earliest scene that breaks a promise, and of its faults the one that explains the others."""
    found = []
    for rank, (key, wrong, bad) in enumerate(_broken(block)):
        if bad.any():
            scene, *view = (int(index) for index in np.argwhere(bad)[0])
            found.append((scene, rank, Violation(scene, view[0] if view else None, key, wrong)))
    return min(found)[-1] if found else None


def _broken(block: Arrays) -> Iterator[tuple[str, str, Bool[np.ndarray, "..."]]]:
    """Each promise as (key, what is wrong, where: [s] or [s, m]), causes before their consequences."""
    shapes, segment = block["shapes"], block["segment"]
    slots = shapes.shape[2]
    count = block["num_objects"][:, None, None]  # [s, 1, 1] against [s, m, K]
    unused = np.arange(slots) >= count
    yield "num_objects", f"more objects than the {slots} slots", block["num_objects"] > slots
    yield "segment", "an index that is neither an object of the scene nor 255", _bad_index(segment, count)
    yield "shapes", "an unused slot is not empty", _any_slot(unused & _any_pixel(shapes))
    yield "shapes", "an object is visible where its complete shape is 0", _visible_without_shape(segment, shapes)
    covering = (shapes >= COVERED).sum(axis=2, dtype=np.uint8)
    yield "overlap", "not the number of complete shapes with alpha >= 128", _any_pixel(block["overlap"] != covering)
    if "shadows" in block:
        yield "shadows", "an unused slot is not empty", _any_slot(unused & _any_pixel(block["shadows"]))
    if "depth_order" in block:
        order = block["depth_order"]
        yield "depth_order", "not a finite number for an object", _any_slot(~unused & ~np.isfinite(order))
        yield "depth_order", "not -inf for an unused slot", _any_slot(unused & ~np.isneginf(order))
    if "camera" in block:
        yield "camera", "not finite", _any_slot(~np.isfinite(block["camera"]))


def _any_pixel(bad: Shaped[np.ndarray, "*lead H W"]) -> Bool[np.ndarray, "*lead"]:
    return np.asarray(bad.any(axis=(-2, -1)))


def _any_slot(bad: Bool[np.ndarray, "s m K"]) -> Bool[np.ndarray, "s m"]:
    return np.asarray(bad.any(axis=2))


def _bad_index(segment: NDArray[Any], count: NDArray[Any]) -> Bool[np.ndarray, "s m"]:
    return _any_pixel((segment >= count[..., None]) & (segment != BACKGROUND))


def _visible_without_shape(segment: NDArray[Any], shapes: NDArray[Any]) -> Bool[np.ndarray, "s m"]:
    """Anti-aliasing leaves visible pixels with little alpha, but never with none."""
    slot = np.minimum(segment, shapes.shape[2] - 1)[:, :, None]
    own = np.take_along_axis(shapes, slot, axis=2)[:, :, 0]
    return _any_pixel((own == 0) & (segment != BACKGROUND))
