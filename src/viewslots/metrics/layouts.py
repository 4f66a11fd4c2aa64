"""What the arrays of `viewslots score` must be, and one clear line for each way in which they are not.

S scenes, M views, L layers, K object slots, G true objects, H x W pixels. K = L - 1 with a background, L without.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from viewslots.data.exchange.npz import NpzFile, NpzRows
from viewslots.errors import UserError
from viewslots.files import shown

LEAST = {"G": 0}
"""Extent of an axis; 1 for all others: a world may have no objects."""
MOST = {"L": 4096, "G": 255}
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
    "shapes": Layout("SMGHW", "u"),
    "depth_order": Layout("SMG", "fui", optional=True),
}
FLAG = "has_background"


def read_flag(file: NpzFile) -> bool:
    """has_background."""
    rows = _open(file, FLAG, Layout("", "b"))
    assert rows is not None
    if rows.shape not in ((), (1,)):
        raise UserError(f"{rows.where}: has shape {shown(rows.shape)}, but must be a single bool")
    return bool(rows.everything().item())


def _open(file: NpzFile, key: str, layout: Layout) -> NpzRows | None:
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


def open_arrays(
    file: NpzFile, layouts: Mapping[str, Layout], sizes: dict[str, int], has_background: bool
) -> dict[str, NpzRows]:
    """The arrays of a file, whose sizes must agree with those known so far; `sizes` learns the new ones."""
    opened = {}
    for key, layout in layouts.items():
        rows = _open(file, key, layout)
        if rows is None:
            continue
        _check_shape(rows, layout.axes, sizes)
        sizes.update(zip(layout.axes, rows.shape, strict=True))
        if "L" in sizes:
            sizes["K"] = sizes["L"] - int(has_background)
        opened[key] = rows
    return opened


def unread(file: NpzFile, layouts: Mapping[str, Layout]) -> list[str]:
    """Arrays that nobody asks for; perhaps a name was misspelt."""
    return sorted(set(file.keys) - {*layouts, FLAG})


def _check_shape(rows: NpzRows, axes: str, sizes: Mapping[str, int]) -> None:
    names = ",".join(axes)
    if len(rows.shape) != len(axes) or any(sizes.get(axis, n) != n for axis, n in zip(axes, rows.shape, strict=True)):
        wanted = ",".join(str(sizes.get(axis, axis)) for axis in axes)
        reason = f" = [{wanted}], to fit the other arrays" if sizes else ""
        raise UserError(f"{rows.where}: has shape {shown(rows.shape)}, but must be [{names}]{reason}")
    for axis, extent in zip(axes, rows.shape, strict=True):
        least, most = LEAST.get(axis, 1), MOST.get(axis, extent)
        if not least <= extent <= most:
            bound = f"at least {least}" if extent < least else f"at most {most}"
            raise UserError(f"{rows.where}: {axis} of [{names}] is {extent}, but must be {bound}")
