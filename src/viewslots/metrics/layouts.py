"""Arrays that `viewslots score` asks for: their axes and kinds of numbers, checked from the headers alone.

S scenes, M views, L layers, K object slots, G true objects, H x W pixels. K = L - 1 with a background, L without. Where
masks are compared in a size of its own, they may have h x w pixels and pictures y x x. C = 3 colours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from viewslots.data.exchange.npz import NpzFile, NpzRows
from viewslots.data.sharded import StoredArray
from viewslots.data.store import SplitArrays, Store
from viewslots.errors import UserError
from viewslots.files import shown

LEAST = {"G": 0, "C": 3}
"""Extent of an axis; 1 for all others: a world may have no objects."""
MOST = {"L": 4096, "G": 255, "C": 3}
"""Objects that a segment of bytes can tell apart beside its background; layers, so that their tables fit the memory."""
WORDS = {"f": "floats", "u": "uint8", "i": "integers", "b": "bool"}


@dataclass(frozen=True)
class Layout:
    """What an array must be: its axes and its kinds of numbers (f floats, u bytes, i any integers, b bool)."""

    axes: str
    kinds: str
    optional: bool = False

    @property
    def words(self) -> str:
        return " or ".join(WORDS[kind] for kind in self.kinds)


PREDICTION = {
    "layer_masks": Layout("SMLHW", "fu"),
    "complete_shapes": Layout("SMKHW", "fu", optional=True),
    "presence": Layout("SK", "fuib", optional=True),
    "depth_order": Layout("SMK", "fui", optional=True),
}
TRUTH = {
    "segment": Layout("SMHW", "u"),
    "shapes": Layout("SMGHW", "u", optional=True),
    "depth_order": Layout("SMG", "fui", optional=True),
}
MASKS = {"layer_masks": Layout("SMLhw", "fu")}
RECONSTRUCTION = {"reconstruction": Layout("SMyxC", "fu", optional=True)}
SEGMENT = {"segment": Layout("SMHW", "u")}
IMAGE = {"image": Layout("SMHWC", "fu", optional=True)}
FLAG = "has_background"


class Rows(Protocol):
    """An array that is read once, from its first row to its last."""

    where: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def next_rows(self, count: int) -> NDArray[Any]: ...


class SplitRows:
    """An array of a data set, in the first views."""

    def __init__(self, array: StoredArray, views: int, where: str) -> None:
        self._array, self._views, self._next = array, views, 0
        self.where, self.dtype = where, array.dtype
        self.shape = (array.shape[0], views, *array.shape[2:])

    def next_rows(self, count: int) -> NDArray[Any]:
        first, self._next = self._next, self._next + count
        return np.array(self._array[first : self._next, : self._views])


class SplitFile:
    """A split of a data set as if it were one file: all its scenes in their first views, as many as are asked for."""

    def __init__(self, folder: Path, split: str | None, views: int) -> None:
        store = Store.open(folder)
        if split is None:
            raise UserError(f"{folder}: a data set of several splits; say --split and one of {', '.join(store.splits)}")
        self.path = folder / split
        self._arrays: SplitArrays = store.split(split)
        self._views = max(1, min(views, self._arrays.size.views))
        self.keys = list(self._arrays.arrays)
        self.identities = not self._arrays.per_view_masks

    def open(self, key: str) -> SplitRows:
        return SplitRows(self._arrays[key], self._views, f"{self.path}: {key}")

    def view_counts(self) -> NDArray[Any]:
        """Real views of each scene, among those asked for."""
        return np.minimum(self._arrays.view_counts, self._views)


File = NpzFile | SplitFile


def read_flag(file: NpzFile, optional: bool) -> bool:
    """has_background; false where it is not there and need not be."""
    if optional and FLAG not in file.keys:
        return False
    if FLAG not in file.keys:
        raise UserError(
            f"{file.path}: no array {FLAG}: store True if layer 0 of layer_masks is the background, False if none is"
        )
    rows = _open(file, FLAG, Layout("", "b"))
    assert isinstance(rows, NpzRows)
    if rows.shape not in ((), (1,)):
        raise UserError(f"{rows.where}: has shape {shown(rows.shape)}, but must be a single bool")
    return bool(rows.everything().item())


def _open(file: File, key: str, layout: Layout) -> Rows | None:
    """The array if it is there and of the right kind of numbers."""
    if key not in file.keys:
        if layout.optional:
            return None
        what = f"[{','.join(layout.axes)}], {layout.words}" if layout.axes else layout.words
        raise UserError(f"{file.path}: no array {key} ({what}); it holds {shown(', '.join(sorted(file.keys)), 200)}")
    rows = file.open(key)
    if not any(_is_kind(rows.dtype, kind) for kind in layout.kinds):
        raise UserError(f"{rows.where}: its type is {rows.dtype}, but must be {layout.words}; convert it with astype")
    return rows


def _is_kind(dtype: np.dtype[Any], kind: str) -> bool:
    return dtype == np.uint8 if kind == "u" else dtype.kind in ("iu" if kind == "i" else kind)


def open_arrays(file: File, layouts: Mapping[str, Layout]) -> dict[str, Rows]:
    """The arrays of a file that are asked for and there."""
    opened = {key: _open(file, key, layout) for key, layout in layouts.items()}
    return {key: rows for key, rows in opened.items() if rows is not None}


def check_shapes(
    arrays: Mapping[str, Rows], layouts: Mapping[str, Layout], sizes: dict[str, int], has_background: bool, fit: str
) -> None:
    """Sizes must agree with those known so far, and so with what was checked before; `sizes` learns the new ones."""
    for key, rows in arrays.items():
        _check_shape(rows, layouts[key].axes, sizes, fit)
        sizes.update(zip(layouts[key].axes, rows.shape, strict=True))
        if "L" in sizes:
            sizes["K"] = sizes["L"] - int(has_background)


def unread(file: File, known: Sequence[str]) -> list[str]:
    """Arrays that nobody asks for; perhaps a name was misspelt. Data sets have more than is asked for."""
    return sorted(set(file.keys) - {*known, FLAG}) if isinstance(file, NpzFile) else []


def _check_shape(rows: Rows, axes: str, sizes: Mapping[str, int], fit: str) -> None:
    names = ",".join(axes)
    wanted = ",".join(str(sizes.get(axis, axis)) for axis in axes)
    reason = f" = [{wanted}], to fit {fit}" if sizes else ""
    wrong = UserError(f"{rows.where}: has shape {shown(rows.shape)}, but must be [{names}]{reason}")
    if len(rows.shape) != len(axes):
        raise wrong
    for axis, extent in zip(axes, rows.shape, strict=True):
        least, most = LEAST.get(axis, 1), MOST.get(axis, extent)
        if not least <= extent <= most:
            bound = f"at least {least}" if extent < least else f"at most {most}"
            raise UserError(f"{rows.where}: {axis} of [{names}] is {extent}, but must be {bound}")
    if any(sizes.get(axis, n) != n for axis, n in zip(axes, rows.shape, strict=True)):
        raise wrong
