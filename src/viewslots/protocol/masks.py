"""A contract of how masks are scored: which pixels and pictures, what is averaged over what, in which size.

Those of named papers are in viewslots/protocols.py.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn.functional import interpolate

from viewslots.data.resize import Resize
from viewslots.errors import UserError
from viewslots.metrics.arrays import MaskBlock
from viewslots.metrics.extras import Ratio, SceneRatios, perceived, signal_to_noise, similarity, squared_errors
from viewslots.metrics.lpips import Lpips
from viewslots.metrics.masks import best_overlaps, fg_ari, matched_overlap_of_all, pixel_tables
from viewslots.metrics.segmentation import adjusted_rand
from viewslots.types import SceneBatch, SceneTruth

NOVEL = "NV-"
"""Scores of this prefix are of the views beyond those given; then others are of the given ones."""


@dataclass(frozen=True)
class Protocol:
    """A contract. Masks are hard: the arg-max over all layers, background included."""

    name: str
    paper: str
    contract: str
    """In one line."""
    scores: tuple[str, ...]
    unit: Literal["picture", "scene"]
    """What is segmented as one: a picture, or all views of a scene (a video)."""
    average: Literal["units", "objects"] = "units"
    """Over objects: all objects of all units count the same, where a score is of objects."""
    given: int | None = None
    """Views that the method was given, the first ones; None: all."""
    size: int | None = None
    """Side of the square in which masks are compared; None: the size of the truth."""
    crop: float = 1.0
    """Where the truth is larger than that: the middle square with this share of the shorter side."""
    without_foreground: float | None = None
    """FG-ARI of a unit without true objects; None: left out."""

    @property
    def has_pictures(self) -> bool:
        return any(score.removeprefix(NOVEL) in PICTURE_SCORES for score in self.scores)

    @property
    def has_psnr(self) -> bool:
        """LPIPS stands beside it."""
        return any("PSNR" in score for score in self.scores)


def score_masks(protocol: Protocol, block: MaskBlock, lpips: Lpips | None = None) -> SceneRatios:
    """All scores of a protocol; but the eight metrics are those of metrics.score. Beside PSNR stands LPIPS, given its
    weights."""
    window = scored_window(protocol, *block.segment.shape[2:])
    layers = in_window(block.layers, block.segment.shape[2:], window)
    truth = SceneTruth(segment=window.labels(block.segment), view_mask=block.view_mask)
    tables = pixel_tables(layers.max(2).indices, layers.shape[2], truth)
    shown, batch = _pictures(block, window)
    ratios = {}
    beside = () if lpips is None else (name.replace("PSNR", "LPIPS") for name in protocol.scores if "PSNR" in name)
    for name in (*protocol.scores, *beside):
        measure = name.removeprefix(NOVEL)
        views = slice(protocol.given, None) if name.startswith(NOVEL) else slice(None, protocol.given)
        if not tables[:, views].shape[1] or (measure not in TABLE_SCORES and batch is None):
            ratios[name] = Ratio.nothing(len(tables))
        elif measure in TABLE_SCORES:
            ratios[name] = _of_tables(protocol, measure, tables[:, views])
        else:
            assert shown is not None
            assert batch is not None
            part = SceneBatch(batch.image[:, views], batch.view_mask[:, views])
            if measure == "LPIPS":
                ratios |= perceived(name, lpips, shown[:, views], part)
            else:
                ratios[name] = PICTURE_SCORES[measure](shown[:, views], part)
    return SceneRatios(ratios)


def scored_window(protocol: Protocol, height: int, width: int) -> Resize:
    """What is compared of a truth of this size."""
    size = protocol.size
    if size is None or (height, width) == (size, size):
        return Resize.between((height, width), (height, width))
    side = int(protocol.crop * min(height, width))
    if side < size:
        raise UserError(
            f"protocol {protocol.name} compares masks of {size}x{size} pixels, as they are or from the middle of "
            f"larger pictures, but the truth has {height}x{width}"
        )
    return Resize((height - side) // 2, (width - side) // 2, side, side, size, size)


def require_shape(masks: Sequence[int], truth: Sequence[int], window: Resize) -> str | None:
    """Masks of another size must have the shape of what they are compared with. What is done to them, in words."""
    wanted = (window.height, window.width)
    if tuple(masks) in (tuple(truth), wanted):
        return None
    found, compared = ("x".join(map(str, size)) for size in (masks, wanted))
    if abs(masks[0] * wanted[1] - masks[1] * wanted[0]) > max(*masks, *wanted):  # by more than a pixel
        raise UserError(
            f"prediction: masks of {found} pixels have another shape than the {compared} of the truth; "
            "is the order of axes scenes, views, layers, height, width?"
        )
    return f"masks of {found} pixels are compared at {compared}, by linear interpolation"


def in_window(
    layers: Float[Tensor, "S M L h w"], stored: Sequence[int], window: Resize
) -> Float[Tensor, "S M L wanted_h wanted_w"]:
    """Masks of the truth's size are cut and resized with it. Others show the window already: linear interpolation."""
    if tuple(layers.shape[3:]) == tuple(stored):
        return window.pictures(layers)
    size = (window.height, window.width)
    if tuple(layers.shape[3:]) == size:
        return layers
    resized = interpolate(layers.flatten(0, 1), size, mode="bilinear", antialias=True)
    return resized.view(*layers.shape[:3], *size)


def _pictures(block: MaskBlock, window: Resize) -> tuple[Float[Tensor, "S M 3 H W"] | None, SceneBatch | None]:
    """Reconstructions and what they are compared with. A reconstruction is never resized but along with the truth."""
    if block.reconstruction is None or block.image is None:
        return None, None
    shown, wanted = block.reconstruction, (window.height, window.width)
    if shown.shape[3:] == block.image.shape[3:]:
        shown = window.pictures(shown)
    if tuple(shown.shape[3:]) != wanted:
        found = "x".join(map(str, shown.shape[3:]))
        raise UserError(f"reconstruction: pictures of {found} pixels, but {wanted[0]}x{wanted[1]} are compared")
    return shown, SceneBatch(window.pictures(block.image), block.view_mask)


TABLE_SCORES: dict[str, Callable[[Float64[Tensor, "N R L"]], Float64[Tensor, "N *G"]]] = {
    "ARI": adjusted_rand,
    "FG-ARI": fg_ari,
    "mBO": best_overlaps,
    "mIoU": matched_overlap_of_all,
}
"""Of hard masks, from tables of pixels: a value a unit, or one an object."""


def _of_tables(protocol: Protocol, measure: str, tables: Float64[Tensor, "S M R L"]) -> Ratio:
    units = tables.sum(1, keepdim=True) if protocol.unit == "scene" else tables
    values = TABLE_SCORES[measure](units.flatten(0, 1))
    if measure == "FG-ARI" and protocol.without_foreground is not None:
        real = units.flatten(0, 1).sum((1, 2)) > 0
        values = values.where(~(values.isnan() & real), protocol.without_foreground)
    if values.dim() > 1 and protocol.average == "units":
        values = values.nanmean(1)
    return Ratio.mean(values.reshape(len(tables), values.numel() // len(tables)))


def _summed_error(shown: Float[Tensor, "S M 3 H W"], batch: SceneBatch) -> Ratio:
    """Squared error summed over pixels and colours, mean over pictures."""
    pixels = batch.image[0, 0].numel()
    return Ratio.of(pixels * squared_errors(shown, batch).sum(1), batch.view_mask.sum(1))


PICTURE_SCORES: dict[str, Callable[[Float[Tensor, "S M 3 H W"], SceneBatch], Ratio]] = {
    "MSE": _summed_error,
    "PSNR": signal_to_noise,
    "SSIM": similarity,
}
"""Of reconstructions and pictures."""
