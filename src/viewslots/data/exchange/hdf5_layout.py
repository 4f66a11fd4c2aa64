"""The published OCLOC layout of HDF5 files: group names, datasets, and how each becomes a key of ours."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import h5py
import numpy as np
from jaxtyping import Bool, Int, UInt8
from numpy.typing import NDArray

from viewslots.data.checks import first_violation
from viewslots.data.exchange.hdf5_guard import Rows, members
from viewslots.data.format import KEYS, Size
from viewslots.errors import UserError
from viewslots.types import BACKGROUND, COVERED

SPLIT_OF_GROUP = {
    **{"train": "train", "training": "train"},
    **{"valid": "valid", "val": "valid", "validation": "valid"},
    **{"test": "test1", "testing": "test1", "test_1": "test1"},
    **{"general": "test2", "generalization": "test2", "test_2": "test2"},
}
"""Phase names of the authors' files and loaders; any other group keeps its own name."""

GROUP_OF_SPLIT = {"train": "train", "valid": "valid", "test1": "test", "test2": "general"}

# L = K + 1: the last slot is the background. Single-view files have no axis M. Kinds are numpy's.
REQUIRED = {"image": "S M H W 3", "segment": "S M H W"}
COMPLETE = {"masks": "S M L H W 1", "layers": "S M L H W 4"}
"""One of the two: alphas, or RGBA pictures of every object alone (dSprites, Abstract)."""
OPTIONAL = {
    "overlap": ("S M H W", "u"),
    "num_objects": ("S", "ui"),
    "order": ("S M K", "f"),
    "camera": ("S M 3", "f"),
    "shadows": ("S M K H W", "u"),
}
NAME_OF_KEY = {"depth_order": "order", "camera": "camera", "shadows": "shadows"}

OPAQUE = 255
TOLERATED = 0.01
"""Share of pixels where a file's own overlap may differ from ours: the authors rounded some alphas after counting."""

BLOCK_BYTES = 256 * 2**20
"""Without one-scene chunks a file is unpacked many scenes at a time, or every chunk would be unpacked many times."""


class GroupReader:
    """One group of a foreign file, answered in the shapes of the contract."""

    def __init__(self, group: h5py.Group, where: str) -> None:
        self.where = where
        found = members(group, where)
        self._complete = "masks" if "masks" in found else "layers"
        for name in (*REQUIRED, self._complete):
            if name not in found:
                raise UserError(f"{where}: no {'masks or layers' if name == 'layers' else name} in this group")
        wanted = (*REQUIRED, self._complete, *(name for name in OPTIONAL if name in found))
        self._rows = {name: Rows(found[name], f"{where}/{name}") for name in wanted}
        self._single = len(self._rows["image"].shape) == 4
        self.size = self._find_size()
        self._settle_shapes()

    def _find_size(self) -> Size:
        image, complete = self._rows["image"].shape, self._rows[self._complete].shape
        rank = 4 if self._single else 5
        if len(image) != rank or len(complete) != rank + 1:
            raise UserError(
                f"{self.where}: image {image} and {self._complete} {complete} must be [S,M,H,W,3] and [S,M,L,H,W,...], "
                "or both without M"
            )
        scenes, views, height, width = (image[0], 1, *image[1:3]) if self._single else image[:4]
        size = Size(scenes, views, complete[-4] - 1, height, width)
        if scenes and (problem := size.problem()):
            raise UserError(f"{self.where}: {problem}")
        return size

    def _settle_shapes(self) -> None:
        """What is required must fit; what is optional and does not fit is something else under the same name."""
        for name, axes in {**REQUIRED, self._complete: COMPLETE[self._complete]}.items():
            if self._rows[name].shape != self._shape(axes) or self._rows[name].dtype != np.uint8:
                found = f"{self._rows[name].dtype} {self._rows[name].shape}"
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
        return tuple(key for key in KEYS if KEYS[key].required or NAME_OF_KEY[key] in self._rows)

    @property
    def total_bytes(self) -> int:
        return sum(rows.total_bytes for rows in self._rows.values())

    @property
    def block(self) -> int:
        """Scenes to read at once: whole chunks where memory allows it."""
        wanted = max(16, *(rows.chunk_scenes for rows in self._rows.values()))
        return max(1, min(wanted, BLOCK_BYTES // max(1, self.total_bytes // self.size.scenes)))

    def read(self, low: int, high: int) -> dict[str, NDArray[Any]]:
        """Scenes low..high-1, with every promise of our format checked, whoever wrote the file."""
        raw = {name: rows.read(low, high) for name, rows in self._rows.items()}
        if self._single:
            raw = {name: rows if name == "num_objects" else rows[:, None] for name, rows in raw.items()}
        place = Place(self.where, low)
        shapes = _shapes(raw[self._complete], place)
        block = {
            "image": raw["image"],
            "segment": _segment(raw["segment"], self.size.slots, place),
            "overlap": _overlap(shapes, raw.get("overlap"), place),
            "shapes": shapes,
            "num_objects": _counts(raw.get("num_objects"), shapes, place),
        }
        block |= _extras(raw)
        if violation := first_violation(block):
            raise UserError(f"{self.where}: {violation.place(low)}")
        return block


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


def _counts(stored: NDArray[Any] | None, shapes: NDArray[Any], place: Place) -> UInt8[np.ndarray, "s"]:
    """The published files do not say how many objects there are."""
    counts = last_used(shapes) if stored is None else stored
    place.refuse((counts < 0) | (counts > shapes.shape[2]), f"num_objects must be in 0..{shapes.shape[2]}")
    return counts.astype(np.uint8)


def last_used(shapes: UInt8[np.ndarray, "s m K H W"]) -> Int[np.ndarray, "s"]:
    """Slots up to the last one with anything in it: an object in the middle may be out of sight in every view."""
    used = np.asarray(shapes.any(axis=(1, 3, 4)))
    return np.where(used, np.arange(1, used.shape[1] + 1), 0).max(axis=1)


def _extras(raw: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    extras = {}
    with np.errstate(over="ignore"):  # an absurd number becomes infinite, and is refused as such
        if "order" in raw:
            extras["depth_order"] = -raw["order"].astype(np.float32)  # a distance: small is near
        if "camera" in raw:
            extras["camera"] = raw["camera"].astype(np.float32)
    if "shadows" in raw:
        extras["shadows"] = raw["shadows"]
    return extras
