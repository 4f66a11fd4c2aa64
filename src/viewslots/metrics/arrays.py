"""Anybody's arrays as `viewslots score` takes them, checked and read a few scenes at a time.

Layouts and sizes are settled from the headers alone, values block by block.
S scenes, M views, L layers, K object slots, G true objects, H x W pixels. K = L - 1 with a background, L without.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, UInt8
from numpy.typing import NDArray
from torch import Tensor

from viewslots.data.dataset import SceneTruth
from viewslots.data.exchange.npz import NpzFile, NpzRows
from viewslots.errors import UserError
from viewslots.files import shown
from viewslots.types import BACKGROUND, COVERED, Decomposition

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
    "shapes": Layout("SMGHW", "u", optional=True),
    "depth_order": Layout("SMG", "fui", optional=True),
}
FLAG = "has_background"
NUMBERS_AT_ONCE = 2**25
"""Values of all arrays in memory at once, unless a single scene has more;"""
NUMBERS_OF_A_SCENE = 2**28
"""which may have this many."""
SLACK = 1e-3
"""Masks may leave [0, 1] by this much: half-precision sums do."""
SHARES = ("layer_masks", "complete_shapes", "shapes")
"""Arrays whose bytes mean shares of 255."""


class ScorePair:
    """A prediction and its truth, two .npz files, as blocks of scenes ready to be scored."""

    def __init__(self, prediction: Path, truth: Path) -> None:
        with ExitStack() as stack:
            files = [stack.enter_context(NpzFile(path)) for path in (prediction, truth)]
            self.has_background = read_flag(files[0])
            sizes: dict[str, int] = {}
            self._prediction = open_arrays(files[0], PREDICTION, sizes, self.has_background)
            self._truth = open_arrays(files[1], TRUTH, sizes, self.has_background)
            self.scenes, self.views = sizes["S"], sizes["M"]
            self._block = _scenes_at_once(sizes, prediction)
            self._unread = {
                file.path: unread(file, known) for file, known in zip(files, (PREDICTION, TRUTH), strict=True)
            }
            self._largest: dict[str, int] = {}
            self._stack = stack.pop_all()

    def __enter__(self) -> "ScorePair":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def blocks(self, device: str = "cpu") -> Iterator[tuple[Decomposition, SceneTruth]]:
        """All scenes, once, in order."""
        for first in range(0, self.scenes, self._block):
            count = min(self._block, self.scenes - first)
            predicted = {key: _checked(rows, count, key, first) for key, rows in self._prediction.items()}
            true = {key: _checked(rows, count, key, first) for key, rows in self._truth.items()}
            self._watch(predicted | true)
            if "shapes" in true:
                _check_labels(true["segment"], true["shapes"].shape[2], self._truth["segment"].where, first)
            tensors = {key: torch.from_numpy(values).to(device) for key, values in true.items()}
            truth = scene_truth(tensors["segment"], tensors.get("shapes"), tensors.get("depth_order"))
            yield _decomposition(predicted, self.has_background, device), truth

    def _watch(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        for key in SHARES:
            if key in arrays and arrays[key].dtype == np.uint8 and arrays[key].size:
                self._largest[key] = max(self._largest.get(key, 0), int(arrays[key].max()))

    def remarks(self) -> list[str]:
        """After the last block: what is no error, but perhaps not what was meant."""
        found = [f"{path}: not used: {shown(', '.join(names), 200)}" for path, names in self._unread.items() if names]
        if "shapes" not in self._truth:
            found.append("the truth has no shapes, so IoU, F1, OOA and pooled ARI-O, AMI-O are null")
        where = {key: rows.where for key, rows in (self._prediction | self._truth).items()}
        return found + [
            f"{where[key]}: its bytes are 0 and 1 alone, but mean shares of 255; multiply masks by 255"
            for key, largest in self._largest.items()
            if largest == 1
        ]


def _scenes_at_once(sizes: Mapping[str, int], path: Path) -> int:
    if sizes["K"] < 1:
        raise UserError(f"{path}: layer_masks: a background and no object layer; nothing can be scored")
    pixels, objects, slots = sizes["H"] * sizes["W"], sizes.get("G", 0), sizes["K"]
    numbers = sizes["M"] * (pixels * (objects + 2 * slots + 2) + objects * (objects + slots))
    if numbers > NUMBERS_OF_A_SCENE:
        raise UserError(f"{path}: a scene has {numbers:,} values, more than the {NUMBERS_OF_A_SCENE:,} that are taken")
    return max(1, NUMBERS_AT_ONCE // numbers)


def _checked(rows: NpzRows, count: int, key: str, first: int) -> NDArray[Any]:
    """The next scenes; floats must be numbers and, but for depth, lie between 0 and 1."""
    values = rows.next_rows(count)
    if values.dtype.kind != "f" or not values.size:
        return values
    least, most = (0 - SLACK, 1 + SLACK) if key != "depth_order" else (-np.inf, np.inf)
    if least <= values.min() and values.max() <= most:  # false for NaN as well
        return values
    flat = values.reshape(count, -1)
    scene, place = divmod(int((~((flat >= least) & (flat <= most))).argmax()), flat.shape[1])
    bound = "0..1, or bytes 0..255" if key in SHARES else "0..1" if key != "depth_order" else "numbers"
    raise UserError(f"{rows.where}: {flat[scene, place]} in scene {first + scene}, but values must be {bound}")


def _check_labels(segment: UInt8[np.ndarray, "S M H W"], objects: int, where: str, first: int) -> None:
    wrong = (segment >= objects) & (segment != BACKGROUND)
    if wrong.any():
        scene, *place = np.argwhere(wrong)[0]
        value = segment[scene, *place]
        raise UserError(
            f"{where}: object {value} in scene {first + scene}, but shapes has {objects} objects (255 = background)"
        )


def _decomposition(arrays: Mapping[str, NDArray[Any]], has_background: bool, device: str) -> Decomposition:
    def tensor(key: str) -> Tensor | None:
        return torch.from_numpy(_floats(arrays[key], key)).to(device) if key in arrays else None

    layers = tensor("layer_masks")
    assert layers is not None
    scenes, views, _, height, width = layers.shape
    return Decomposition(
        reconstruction=torch.zeros((), device=device).expand(scenes, views, 3, height, width),
        layer_masks=layers,
        has_background=has_background,
        complete_shapes=tensor("complete_shapes"),
        presence=tensor("presence"),
        presence_probability=None,
        depth_order=tensor("depth_order"),
    )


def _floats(values: NDArray[Any], key: str) -> NDArray[Any]:
    """Masks of bytes mean shares of 255; other integers mean themselves."""
    if values.dtype == np.uint8 and key in SHARES:
        return values / 255.0
    if values.dtype in (np.float32, np.float64):
        return values
    return values.astype(np.float32 if values.dtype == np.float16 else np.float64)


def scene_truth(
    segment: UInt8[Tensor, "S M H W"],
    shapes: UInt8[Tensor, "S M G H W"] | None,
    order: Float[Tensor, "S M G"] | None,
) -> SceneTruth:
    """The truth of scenes without padded views, as far as it is known and the metrics ask for it."""
    counted: dict[str, Any] = {"shapes": shapes, "overlap": None, "num_objects": None}
    if shapes is not None:
        counted["overlap"] = (shapes >= COVERED).sum(2, dtype=torch.uint8)
        counted["num_objects"] = shapes.flatten(3).any(3).any(1).sum(1, dtype=torch.uint8)
    return SceneTruth(
        segment=segment,
        view_mask=torch.ones(segment.shape[:2], dtype=torch.bool, device=segment.device),
        shadows=None,
        depth_order=None if order is None else _ranks(order),
        camera=None,
        **counted,
    )


def _ranks(order: Float[Tensor, "S M G"]) -> Float32[Tensor, "S M G"]:
    """How many objects each one is nearer than: the same order, whatever the numbers were."""
    return (order[..., :, None] > order[..., None, :]).sum(3).float()


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
