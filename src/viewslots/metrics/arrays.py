"""Anybody's arrays as `viewslots score` takes them, checked and read a few scenes at a time.

Layouts and sizes are settled from the headers alone (`layouts.py`), values block by block.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
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
from viewslots.metrics.layouts import PREDICTION, TRUTH, open_arrays, read_flag, unread
from viewslots.types import BACKGROUND, COVERED, Decomposition

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
            _check_labels(true["segment"], true["shapes"].shape[2], self._truth["segment"].where, first)
            tensors = {key: torch.from_numpy(values).to(device) for key, values in true.items()}
            truth = scene_truth(tensors["segment"], tensors["shapes"], tensors.get("depth_order"))
            yield _decomposition(predicted, self.has_background, device), truth

    def _watch(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        for key in SHARES:
            if key in arrays and arrays[key].dtype == np.uint8 and arrays[key].size:
                self._largest[key] = max(self._largest.get(key, 0), int(arrays[key].max()))

    def remarks(self) -> list[str]:
        """After the last block: what is no error, but perhaps not what was meant."""
        found = [f"{path}: not used: {shown(', '.join(names), 200)}" for path, names in self._unread.items() if names]
        where = {key: rows.where for key, rows in (self._prediction | self._truth).items()}
        return found + [
            f"{where[key]}: its bytes are 0 and 1 alone, but mean shares of 255; multiply masks by 255"
            for key, largest in self._largest.items()
            if largest == 1
        ]


def _scenes_at_once(sizes: Mapping[str, int], path: Path) -> int:
    if sizes["K"] < 1:
        raise UserError(f"{path}: layer_masks: a background and no object layer; nothing can be scored")
    pixels, objects, slots = sizes["H"] * sizes["W"], sizes["G"], sizes["K"]
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
    segment: UInt8[Tensor, "S M H W"], shapes: UInt8[Tensor, "S M G H W"], order: Float[Tensor, "S M G"] | None
) -> SceneTruth:
    """The truth of scenes without padded views, as far as the metrics ask for it."""
    return SceneTruth(
        segment=segment,
        overlap=(shapes >= COVERED).sum(2, dtype=torch.uint8),
        shapes=shapes,
        num_objects=shapes.flatten(3).any(3).any(1).sum(1, dtype=torch.uint8),
        view_mask=torch.ones(segment.shape[:2], dtype=torch.bool, device=segment.device),
        shadows=None,
        depth_order=None if order is None else _ranks(order),
        camera=None,
    )


def _ranks(order: Float[Tensor, "S M G"]) -> Float32[Tensor, "S M G"]:
    """How many objects each one is nearer than: the same order, whatever the numbers were."""
    return (order[..., :, None] > order[..., None, :]).sum(3).float()
