"""Anybody's arrays as `viewslots score` takes them, read and checked a few scenes at a time.

Layouts and sizes are settled from the headers alone (layouts.py), values block by block.
S scenes, M views, L layers, K object slots, G true objects, H x W pixels. K = L - 1 with a background, L without.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, UInt8
from numpy.typing import NDArray
from torch import Tensor

from viewslots.data.exchange.npz import NpzFile
from viewslots.errors import UserError
from viewslots.files import shown
from viewslots.metrics.layouts import (
    IMAGE,
    MASKS,
    PREDICTION,
    RECONSTRUCTION,
    SEGMENT,
    TRUTH,
    File,
    Layout,
    Rows,
    SplitFile,
    check_shapes,
    open_arrays,
    read_flag,
    unread,
)
from viewslots.types import BACKGROUND, COVERED, Decomposition, SceneTruth

NUMBERS_AT_ONCE = 2**25
"""Values of all arrays in memory at once, unless a single scene has more;"""
NUMBERS_OF_A_SCENE = 2**28
"""which may have this many."""
SLACK = 1e-3
"""Masks may leave [0, 1] by this much: half-precision sums do."""
SHARES = ("layer_masks", "complete_shapes", "shapes", "reconstruction", "image")
"""Arrays whose bytes mean shares of 255."""


@dataclass(frozen=True)
class Wanted:
    """The arrays that are asked for, and whether the prediction must tell its background layer from the others."""

    prediction: Mapping[str, Layout]
    truth: Mapping[str, Layout]
    needs_flag: bool = False


EVERYTHING = Wanted(PREDICTION, TRUTH, needs_flag=True)
MASKS_ALONE = Wanted(MASKS, SEGMENT)
MASKS_AND_PICTURES = Wanted(MASKS | RECONSTRUCTION, SEGMENT | IMAGE)


@dataclass(frozen=True)
class MaskBlock:
    """Masks of some scenes and the segments they are compared with, perhaps in another size; pictures if known."""

    layers: Float[Tensor, "S M L h w"]
    segment: UInt8[Tensor, "S M H W"]
    view_mask: Bool[Tensor, "S M"]
    reconstruction: Float[Tensor, "S M 3 y x"] | None
    image: Float[Tensor, "S M 3 H W"] | None


class ScorePair:
    """A prediction and its truth, a file and a file or a split of a data set, as blocks of scenes ready to be scored.

    The truth is checked first: what does not fit it is wrong in the prediction.
    """

    def __init__(self, prediction: Path, truth: Path, split: str | None = None, wanted: Wanted = EVERYTHING) -> None:
        self._wanted = wanted
        with ExitStack() as stack:
            file = stack.enter_context(NpzFile(prediction))
            self._prediction = open_arrays(file, wanted.prediction)
            self.has_background = read_flag(file, optional=not wanted.needs_flag)
            shape = self._prediction["layer_masks"].shape
            source = _truth_file(truth, split, shape[1] if len(shape) > 1 else 1, stack)
            self._truth = open_arrays(source, wanted.truth)
            sizes: dict[str, int] = {}
            check_shapes(self._truth, wanted.truth, sizes, self.has_background, "the other arrays")
            check_shapes(self._prediction, wanted.prediction, sizes, self.has_background, "the truth and the rest")
            self.scenes, self.views, self.layers = sizes["S"], sizes["M"], sizes["L"]
            self.truth_size = (sizes["H"], sizes["W"])
            self.mask_size = (sizes.get("h", sizes["H"]), sizes.get("w", sizes["W"]))
            self._counts = source.view_counts() if isinstance(source, SplitFile) else None
            self._identities = not isinstance(source, SplitFile) or source.identities
            self._block = _scenes_at_once(sizes, prediction)
            self._unread = {
                file.path: unread(file, [*PREDICTION, *wanted.prediction]),
                source.path: unread(source, [*TRUTH, *wanted.truth]),
            }
            self._largest: dict[str, int] = {}
            self._stack = stack.pop_all()

    def __enter__(self) -> "ScorePair":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def require_identities(self, what: str) -> None:
        """Refuse scores over several views where the truth numbers objects in each view alone."""
        if not self._identities and self.views > 1:
            raise UserError(
                f"{self._truth['segment'].where}: masks are numbered in each view alone, but {what} "
                "compares all views of a scene as one; choose a --protocol of single pictures, such as mbo-i"
            )

    def blocks(self, device: str = "cpu") -> Iterator[tuple[Decomposition, SceneTruth]]:
        """All scenes, once, in order."""
        for predicted, true, first in self._read():
            if "shapes" in true:
                _check_labels(true["segment"], true["shapes"].shape[2], self._truth["segment"].where, first)
            tensors = {key: torch.from_numpy(values).to(device) for key, values in true.items()}
            truth = scene_truth(tensors["segment"], tensors.get("shapes"), tensors.get("depth_order"))
            if self._counts is not None:
                truth = replace(truth, view_mask=self._real_views(first, len(truth.view_mask)).to(device))
            yield _decomposition(predicted, self.has_background, device), truth

    def mask_blocks(self, device: str = "cpu") -> Iterator[MaskBlock]:
        """The same for scores of masks and pictures alone."""
        for predicted, true, first in self._read():
            pictures = (_pictures(predicted, "reconstruction", device), _pictures(true, "image", device))
            segment = torch.from_numpy(true["segment"]).to(device)
            layers = torch.from_numpy(_floats(predicted["layer_masks"], "layer_masks")).to(device)
            yield MaskBlock(layers, segment, self._real_views(first, len(segment)).to(device), *pictures)

    def _read(self) -> Iterator[tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]], int]]:
        for first in range(0, self.scenes, self._block):
            count = min(self._block, self.scenes - first)
            predicted = {key: _checked(rows, count, key, first) for key, rows in self._prediction.items()}
            true = {key: _checked(rows, count, key, first) for key, rows in self._truth.items()}
            self._watch(predicted | true)
            yield predicted, true, first

    def _real_views(self, first: int, count: int) -> Bool[Tensor, "S M"]:
        if self._counts is None:
            return torch.ones(count, self.views, dtype=torch.bool)
        return torch.arange(self.views) < torch.from_numpy(self._counts[first : first + count])[:, None]

    def _watch(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        for key in SHARES:
            if key in arrays and arrays[key].dtype == np.uint8 and arrays[key].size:
                self._largest[key] = max(self._largest.get(key, 0), int(arrays[key].max()))

    def remarks(self) -> list[str]:
        """After the last block: what is no error, but perhaps not what was meant."""
        found = [f"{path}: not used: {shown(', '.join(names), 200)}" for path, names in self._unread.items() if names]
        if "shapes" in self._wanted.truth and "shapes" not in self._truth:
            found.append("the truth has no shapes, so IoU, F1, OOA and pooled ARI-O, AMI-O are null")
        for name, wanted, arrays in (
            ("prediction", self._wanted.prediction, self._prediction),
            ("truth", self._wanted.truth, self._truth),
        ):
            for key in ("reconstruction", "image"):
                if key in wanted and key not in arrays:
                    found.append(f"the {name} has no {key}, so scores of pictures are null")
        where = {key: rows.where for key, rows in (self._prediction | self._truth).items()}
        return found + [
            f"{where[key]}: its bytes are 0 and 1 alone, but mean shares of 255; multiply masks by 255"
            for key, largest in self._largest.items()
            if largest == 1
        ]


def _truth_file(path: Path, split: str | None, views: int, stack: ExitStack) -> File:
    if path.is_dir():
        return SplitFile(path, split, views)
    if split is not None:
        raise UserError(f"{path}: --split is of a data set, but this is a file; leave the option out")
    return stack.enter_context(NpzFile(path))


def _scenes_at_once(sizes: Mapping[str, int], path: Path) -> int:
    if sizes["K"] < 1:
        raise UserError(f"{path}: layer_masks: a background and no object layer; nothing can be scored")
    objects, slots = sizes.get("G", 0), sizes["K"]
    pixels = max(sizes["H"] * sizes["W"], sizes.get("h", 1) * sizes.get("w", 1), sizes.get("y", 1) * sizes.get("x", 1))
    numbers = sizes["M"] * (pixels * (objects + 2 * slots + 2) + objects * (objects + slots))
    if (
        "h" in sizes
    ):  # pictures and their blurred products; a table for every picture and any object that bytes can name
        numbers += sizes["M"] * (30 * pixels * ("y" in sizes) + 2**8 * sizes["L"])
    if numbers > NUMBERS_OF_A_SCENE:
        raise UserError(f"{path}: a scene has {numbers:,} values, more than the {NUMBERS_OF_A_SCENE:,} that are taken")
    return max(1, NUMBERS_AT_ONCE // numbers)


def _checked(rows: Rows, count: int, key: str, first: int) -> NDArray[Any]:
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
        depth_order=tensor("depth_order"),
    )


def _pictures(arrays: Mapping[str, NDArray[Any]], key: str, device: str) -> Float[Tensor, "S M 3 H W"] | None:
    return torch.from_numpy(_floats(arrays[key], key)).to(device).movedim(-1, 2) if key in arrays else None


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
