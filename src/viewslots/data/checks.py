"""Checking a data set: checksums, then every promise of every scene, a bounded block at a time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped
from numpy.typing import NDArray

from viewslots.data.format import bytes_per_scene
from viewslots.data.store import SplitArrays, Store
from viewslots.errors import UserError
from viewslots.files import sha256
from viewslots.types import BACKGROUND, COVERED, Progress

BLOCK_BYTES = 32 * 2**20


@dataclass(frozen=True)
class Report:
    """What was found to be in order."""

    path: str
    preset: str | None
    scenes: dict[str, int]
    pictures: int
    files: int
    bytes: int


def check_dataset(path: str | Path, progress: Progress | None = None) -> Report:
    """Raise a UserError that names the first offending split, scene, view and key, or report that all is well."""
    store = Store.open(path)
    plan = store.meta.plan
    _check_checksums(store)
    done, total = 0, sum(split.scenes for split in plan.splits.values())
    for name in store.splits:
        split = store.split(name)
        for first in range(0, len(split), scenes_per_block(split)):
            last = min(first + scenes_per_block(split), len(split))
            _check_block(store, split, first, last)
            if progress is not None:
                progress(done + last, total)
        done += len(split)
        if plan.has_descriptions:
            for _ in store.descriptions(name):  # each line is parsed on the way
                pass
    scenes = {name: plan.splits[name].scenes for name in store.splits}
    size = sum(entry.bytes for entry in store.meta.files.values())
    return Report(str(store.path), plan.preset, scenes, total * plan.views, len(store.meta.files), size)


def scenes_per_block(split: SplitArrays) -> int:
    return max(1, BLOCK_BYTES // bytes_per_scene(tuple(split.arrays), split.size))


def _check_checksums(store: Store) -> None:
    for name, entry in store.meta.files.items():
        if sha256(store.path / name) != entry.sha256:
            raise UserError(f"{store.path / name}: its bytes are not those that were written (checksum differs)")


def _check_block(store: Store, split: SplitArrays, first: int, last: int) -> None:
    violation = first_violation({key: split[key][first:last] for key in split.arrays})
    if violation is not None:
        raise UserError(f"{store.path}: split {split.name}, {violation.place(first)}")


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
