"""Checking a data set: checksums, then every promise of every scene, a bounded block at a time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Shaped
from numpy.typing import NDArray

from viewslots.data.format import bytes_per_scene
from viewslots.data.store import SplitArrays, Store
from viewslots.errors import UserError
from viewslots.files import sha256
from viewslots.types import BACKGROUND, COVERED, SCENE_KEYS, OnProgress

BLOCK_BYTES = 32 * 2**20
NAMES_SHOWN = 20
ROUNDING = 1e-3
"""How far cameras may be from the ideal: numbers of foreign data sets are often written with few digits."""


@dataclass(frozen=True)
class Report:
    """What was found to be in order."""

    path: str
    preset: str | None
    keys: tuple[str, ...]
    scenes: dict[str, int]
    pictures: int
    files: int
    bytes: int
    names: dict[str, list[str]]
    """Of the first scenes of each split, where an import knows them."""


def check_dataset(path: str | Path, progress: OnProgress | None = None) -> Report:
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
    names = {name: known[:NAMES_SHOWN] for name in store.splits if (known := store.names(name)) is not None}
    pictures = sum(int(store.split(name).view_counts.sum()) for name in store.splits)
    return Report(str(store.path), plan.preset, plan.keys, scenes, pictures, len(store.meta.files), size, names)


def scenes_per_block(split: SplitArrays) -> int:
    return max(1, BLOCK_BYTES // bytes_per_scene(tuple(split.arrays), split.size))


def _check_checksums(store: Store) -> None:
    for name, entry in store.meta.files.items():
        if sha256(store.path / name) != entry.sha256:
            raise UserError(f"{store.path / name}: its bytes are not those that were written (checksum differs)")


def _check_block(store: Store, split: SplitArrays, first: int, last: int) -> None:
    block = {key: split[key][first:last] for key in split.arrays}
    violation = first_violation(block, split.size.slots)
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


def first_violation(block: Arrays, slots: int) -> Violation | None:
    """The earliest scene that breaks a promise, and of its faults the one that explains the others.

    `slots`: the largest number of objects that the split claims.
    """
    found = []
    for rank, (key, wrong, bad) in enumerate(_broken(block, slots)):
        if bad.any():
            scene, *view = (int(index) for index in np.argwhere(bad)[0])
            found.append((scene, rank, Violation(scene, view[0] if view else None, key, wrong)))
    return min(found)[-1] if found else None


Promise = tuple[str, str, Bool[np.ndarray, "..."]]
"""Key, what is wrong, and where it is: [s] or [s, m]."""


def _broken(block: Arrays, slots: int) -> Iterator[Promise]:
    """Causes before their consequences. Views that a scene does not have promise to be empty and nothing else."""
    views = block["image"].shape[1]
    real = np.ones(block["image"].shape[:2], bool)
    if "num_views" in block:
        count = block["num_views"]
        yield "num_views", f"not in 1..{views}", (count < 1) | (count > views)
        real = np.arange(views) < count[:, None]
        for key in block:
            if key not in SCENE_KEYS:
                filled = np.asarray((block[key] != 0).reshape(*real.shape, -1).any(axis=2))
                yield key, "not 0 in a view that the scene does not have", filled & ~real
    if "num_objects" in block:
        yield "num_objects", f"more objects than the {slots} slots", block["num_objects"] > slots
    for key, wrong, bad in (*_broken_objects(block, slots), *_broken_cameras(block)):
        yield key, wrong, bad & real


def _broken_objects(block: Arrays, slots: int) -> Iterator[Promise]:
    known = "num_objects" in block
    count = (block["num_objects"] if known else np.full(len(block["image"]), slots))[:, None, None]
    unused = np.arange(slots) >= count  # [s, 1, K] against [s, m, K]
    if "segment" in block:
        yield "segment", "an index that is neither an object of the scene nor 255", _bad_index(block["segment"], count)
    if "shapes" in block:
        yield "shapes", "an unused slot is not empty", _any_slot(unused & _any_pixel(block["shapes"]))
    if "shapes" in block and "segment" in block:
        hidden = _visible_without_shape(block["segment"], block["shapes"])
        yield "shapes", "an object is visible where its complete shape is 0", hidden
    if "shapes" in block and "overlap" in block:
        covering = (block["shapes"] >= COVERED).sum(axis=2, dtype=np.uint8)
        yield "overlap", "not the number of complete shapes with alpha >= 128", _any_pixel(block["overlap"] != covering)
    if "shadows" in block:
        yield "shadows", "an unused slot is not empty", _any_slot(unused & _any_pixel(block["shadows"]))
    if "depth_order" in block:
        order = block["depth_order"]
        finite = np.isfinite(order) if known else np.isfinite(order) | np.isneginf(order)
        yield "depth_order", "not a finite number for an object", _any_slot(~unused & ~finite)
        yield "depth_order", "not -inf for an unused slot", _any_slot(unused & ~np.isneginf(order))


def _broken_cameras(block: Arrays) -> Iterator[Promise]:
    if "camera" in block:
        yield "camera", "not finite", _any_slot(~np.isfinite(block["camera"]))
    if "pose" in block:
        pose = block["pose"].astype(np.float64)
        yield "pose", "not finite", _any_pixel(~np.isfinite(pose))
        yield "pose", "its last row is not 0 0 0 1", _any_slot(pose[:, :, 3] != (0, 0, 0, 1))
        yield "pose", "its rotation is not orthonormal with determinant 1", ~_rotations(pose[:, :, :3, :3])
    if "pose" in block and "camera" in block:
        camera = block["camera"].astype(np.float64)
        with np.errstate(invalid="ignore"):  # what is not finite was named above
            apart = np.abs(pose[:, :, :3, 3] - camera).max(axis=2)
            yield "pose", "its position is not that of camera", ~(apart <= ROUNDING * (1 + np.abs(camera).max(axis=2)))
    if "intrinsics" in block:
        focal, center = np.split(block["intrinsics"], 2, axis=2)
        usable = (focal > 0) & (focal < np.inf)
        yield "intrinsics", "a focal length that is not positive and finite", _any_slot(~usable)
        yield "intrinsics", "a centre that is not finite", _any_slot(~np.isfinite(center))


def _rotations(matrix: Float64[np.ndarray, "s m 3 3"]) -> Bool[np.ndarray, "s m"]:
    with np.errstate(invalid="ignore"):
        apart = np.abs(matrix @ matrix.swapaxes(2, 3) - np.eye(3)).max(axis=(2, 3))
        x, y, z = np.moveaxis(matrix, 2, 0)
        return np.asarray((apart <= ROUNDING) & ((np.cross(x, y) * z).sum(axis=2) > 0))


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
