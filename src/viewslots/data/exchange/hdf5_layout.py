"""The published OCLOC layout of HDF5 files: group names, datasets, and how each becomes a key of ours."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from jaxtyping import Bool, Int, UInt8
from numpy.typing import NDArray

from viewslots.data.checks import first_violation
from viewslots.data.exchange.hdf5_guard import Rows, members
from viewslots.data.format import KEYS, Size
from viewslots.errors import UserError
from viewslots.files import require_total
from viewslots.types import BACKGROUND, COVERED, SCENE_KEYS

GROUP_OF_SPLIT = {"train": "train", "valid": "valid", "test1": "test", "test2": "general"}

# L = K + 1: the last slot is the background. Single-view files have no axis M. Kinds are numpy's.
KNOWN = {"image": "S M H W 3", "segment": "S M H W", "masks": "S M L H W 1", "layers": "S M L H W 4"}
"""Must fit where they are there. Masks: alphas of the objects; layers: RGBA pictures of each alone, in some files."""
OPTIONAL = {
    "overlap": ("S M H W", "u"),
    "num_objects": ("S", "ui"),
    "order": ("S M K", "f"),
    "camera": ("S M 3", "f"),
    "shadows": ("S M K H W", "u"),
    "pose": ("S M 4 4", "f"),
    "intrinsics": ("S M 4", "f"),
    "num_views": ("S", "ui"),
}
"""What does not fit is something else under the same name, and left out."""
SAME_NAME = ("camera", "shadows", "pose", "intrinsics")
"""Ours, and written as they are."""
BACKGROUND_NAMES = ("background_index", "max_objects")
"""Attributes of a group that say which index of `segment` is the background."""

OPAQUE = 255
TOLERATED = 0.01
"""Share of pixels where a file's own overlap may differ from ours: the authors rounded some alphas after counting."""

BLOCK_BYTES = 256 * 2**20
"""Without one-scene chunks a file is unpacked many scenes at a time, or every chunk would be unpacked many times."""


class GroupReader:
    """One group of a foreign file, answered in the shapes of our format."""

    def __init__(self, group: h5py.Group, where: str) -> None:
        self.where = where
        found = members(group, where)
        if "image" not in found:
            raise UserError(f"{where}: no image in this group")
        self._complete = next((name for name in ("masks", "layers") if name in found), None)
        wanted = [name for name in (*KNOWN, *OPTIONAL) if name in found]
        if self._complete == "masks" and "layers" in wanted:
            wanted.remove("layers")
        self._rows = {name: Rows(found[name], f"{where}/{name}") for name in wanted}
        self._single = len(self._rows["image"].shape) == 4
        self.size = self._find_size(group)
        self._settle_shapes()
        if self.size.scenes and (problem := self.size.problem(self.keys)):
            raise UserError(f"{where}: {problem}")

    def _find_size(self, group: h5py.Group) -> Size:
        image, rank = self._rows["image"].shape, 4 if self._single else 5
        if len(image) != rank:
            raise UserError(f"{self.where}: image {image} must be [S,M,H,W,3], or without M")
        scenes, views, height, width = (image[0], 1, *image[1:3]) if self._single else image[:4]
        size = Size(scenes, views, 0, height, width)
        if scenes and (problem := size.problem(("image",))):
            raise UserError(f"{self.where}: {problem}")
        return replace(size, slots=self._slots(group, rank))

    def _slots(self, group: h5py.Group, rank: int) -> int:
        """K, which is also the background's index in `segment`: from the complete shapes, else from what the group
        says of itself, else the largest index that occurs."""
        if self._complete is not None:
            complete = self._rows[self._complete].shape
            if len(complete) != rank + 1:
                raise UserError(f"{self.where}: {self._complete} {complete} must be [S,M,L,H,W,...], or without M")
            return complete[-4] - 1
        for name in BACKGROUND_NAMES:
            if (number := whole_attribute(group, name)) is not None:
                return number
        return self._largest_label(Path(group.file.filename)) if "segment" in self._rows else 0

    def _largest_label(self, path: Path) -> int:
        rows, largest = self._rows["segment"], 0
        if not rows.shape:
            return 0  # refused soon
        require_total(self.total_bytes, path)  # before anything is unpacked
        step = scenes_at_once([rows], rows.shape[0])
        for low in range(0, rows.shape[0], step):
            largest = max(largest, int(rows.read(low, min(low + step, rows.shape[0])).max(initial=0)))
        return largest

    def _settle_shapes(self) -> None:
        for name, axes in KNOWN.items():
            rows = self._rows.get(name)
            if rows and (rows.shape != self._shape(axes) or rows.dtype != np.uint8):
                found = f"{rows.dtype} {rows.shape}"
                raise UserError(f"{self.where}/{name}: {found}, but must be uint8 {self._shape(axes)}")
        for name, (axes, kinds) in OPTIONAL.items():
            rows = self._rows.get(name)
            if rows and (rows.shape != self._shape(axes) or rows.dtype.kind not in kinds or _wide(rows, kinds)):
                del self._rows[name]

    def _shape(self, axes: str) -> tuple[int, ...]:
        size = self.size
        letters = {"S": size.scenes, "M": size.views, "K": size.slots, "L": size.slots + 1}
        letters |= {"H": size.height, "W": size.width}
        return tuple(letters[a] if a in letters else int(a) for a in axes.split() if not (self._single and a == "M"))

    @property
    def keys(self) -> tuple[str, ...]:
        """Overlap and number of objects follow from complete shapes."""
        given = {"depth_order" if name == "order" else name for name in self._rows}
        if self._complete is not None:
            given |= {"shapes", "overlap", "num_objects"}
        return tuple(key for key in KEYS if key in given)

    @property
    def total_bytes(self) -> int:
        return sum(rows.total_bytes for rows in self._rows.values())

    @property
    def block(self) -> int:
        return scenes_at_once(list(self._rows.values()), self.size.scenes)

    def view_counts(self) -> Int[np.ndarray, "S"]:
        """How many views each scene has."""
        if "num_views" not in self._rows:
            return np.full(self.size.scenes, self.size.views)
        stored = self._rows["num_views"].read(0, self.size.scenes)
        return _counts(stored, 1, self.size.views, "num_views", Place(self.where, 0)).astype(int)

    def read(self, low: int, high: int) -> dict[str, NDArray[Any]]:
        """Scenes low..high-1, with every promise of our format checked, whoever wrote the file."""
        raw = {name: rows.read(low, high) for name, rows in self._rows.items()}
        if self._single:
            raw = {name: rows if name in SCENE_KEYS else rows[:, None] for name, rows in raw.items()}
        block = self._block(raw, Place(self.where, low))
        if violation := first_violation(block, self.size.slots):
            raise UserError(f"{self.where}: {violation.place(low)}")
        return block

    def _block(self, raw: Mapping[str, NDArray[Any]], place: "Place") -> dict[str, NDArray[Any]]:
        slots, block = self.size.slots, {"image": raw["image"]}
        if "segment" in raw:
            block["segment"] = _segment(raw["segment"], slots, place)
        if "overlap" in raw:
            block["overlap"] = raw["overlap"]
        if "num_objects" in raw:
            block["num_objects"] = _counts(raw["num_objects"], 0, slots, "num_objects", place)
        if "num_views" in raw:
            block["num_views"] = _counts(raw["num_views"], 1, self.size.views, "num_views", place)
        if self._complete is not None:
            shapes = _shapes(raw[self._complete], place)
            block["shapes"] = shapes
            block["overlap"] = _overlap(shapes, raw.get("overlap"), place)
            if "num_objects" not in raw:  # the published files do not say how many objects there are
                block["num_objects"] = last_used(shapes).astype(np.uint8)
        return block | _extras(raw)


def scenes_at_once(datasets: list[Rows], scenes: int) -> int:
    """Whole chunks where memory allows it."""
    wanted = max(16, *(rows.chunk_scenes for rows in datasets))
    total = sum(rows.total_bytes for rows in datasets)
    return max(1, min(wanted, BLOCK_BYTES // max(1, total // max(1, scenes))))


def whole_attribute(group: h5py.Group, name: str) -> int | None:
    """A number of objects that a group says of itself; its type is looked at before anything is read."""
    if name not in group.attrs:
        return None
    stored = group.attrs.get_id(name)
    if stored.shape != () or stored.dtype.kind not in "ui":
        return None
    return int(group.attrs[name])


def published(rows: Mapping[str, NDArray[Any]], slots: int) -> dict[str, NDArray[Any]]:
    """A block of our scenes in the layout's terms; pictures from a single view have no view axis there."""
    block = {name: rows[name] for name in ("image", "overlap", *SAME_NAME) if name in rows}
    if "segment" in rows:
        block["segment"] = np.where(rows["segment"] == BACKGROUND, np.uint8(slots), rows["segment"])
    if "shapes" in rows:
        background = np.full_like(rows["shapes"][:, :, :1], OPAQUE)
        block["masks"] = np.concatenate([rows["shapes"], background], axis=2)[..., None]
    if "depth_order" in rows:
        block["order"] = -rows["depth_order"]
    if rows["image"].shape[1] == 1:
        block = {name: value[:, 0] for name, value in block.items()}
    return block | {name: rows[name] for name in SCENE_KEYS if name in rows}


class Place(NamedTuple):
    """Where a block comes from, to name the scene that is wrong."""

    where: str
    first_scene: int

    def refuse(self, bad: Bool[np.ndarray, "s ..."], wrong: str) -> None:
        scenes = np.flatnonzero(bad.reshape(len(bad), -1).any(axis=1))
        if len(scenes):
            raise UserError(f"{self.where}: scene {self.first_scene + int(scenes[0])}: {wrong}")


def _wide(rows: Rows, kinds: str) -> bool:
    return kinds == "u" and rows.dtype.itemsize != 1


def _shapes(complete: UInt8[np.ndarray, "s m L H W c"], place: Place) -> UInt8[np.ndarray, "s m K H W"]:
    """The last channel is alpha, in masks and in RGBA layers; the last slot is the background, opaque."""
    alpha = complete[..., -1]
    place.refuse(alpha[:, :, -1] != OPAQUE, "the last slot must be the background, with alpha 255 everywhere")
    return np.ascontiguousarray(alpha[:, :, :-1])


def _segment(segment: UInt8[np.ndarray, "s m H W"], slots: int, place: Place) -> UInt8[np.ndarray, "s m H W"]:
    """The layout's background is the index of the last slot."""
    place.refuse(segment > slots, f"segment has values above {slots}, which is the background in this layout")
    return np.where(segment == slots, np.uint8(BACKGROUND), segment)


def _overlap(shapes: NDArray[Any], stored: NDArray[Any] | None, place: Place) -> UInt8[np.ndarray, "s m H W"]:
    overlap = np.asarray((shapes >= COVERED).sum(axis=2, dtype=np.uint8))
    if stored is not None:
        share = np.asarray((stored != overlap).mean(axis=(1, 2, 3)))
        place.refuse(share > TOLERATED, f"overlap is not the number of alphas >= {COVERED}")
    return overlap


def _counts(stored: NDArray[Any], least: int, most: int, name: str, place: Place) -> UInt8[np.ndarray, "s"]:
    place.refuse((stored < least) | (stored > most), f"{name} must be in {least}..{most}")
    return stored.astype(np.uint8)


def last_used(shapes: UInt8[np.ndarray, "s m K H W"]) -> Int[np.ndarray, "s"]:
    """Slots up to the last one with anything in it: an object in the middle may be out of sight in every view."""
    used = np.asarray(shapes.any(axis=(1, 3, 4)))
    return np.where(used, np.arange(1, used.shape[1] + 1), 0).max(axis=1)


def _extras(raw: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    extras = {}
    with np.errstate(over="ignore"):  # an absurd number becomes infinite, and is refused as such
        for name in SAME_NAME:
            if name in raw:
                extras[name] = raw[name].astype(KEYS[name].dtype)
        if "order" in raw:
            extras["depth_order"] = -raw["order"].astype(np.float32)  # a distance: small is near
    return extras
