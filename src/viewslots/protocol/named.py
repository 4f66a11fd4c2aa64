"""How named papers score masks: which pixels and pictures, what is averaged over what, in which size.

A score under one contract says little about another: one Slot Attention checkpoint has FG-ARI .62 and .89 under two.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn.functional import interpolate

from viewslots.data.resize import Resize
from viewslots.errors import UserError
from viewslots.files import shown
from viewslots.metrics.arrays import MaskBlock
from viewslots.metrics.extras import Ratio, SceneRatios, signal_to_noise, similarity, squared_errors
from viewslots.metrics.masks import best_overlaps, fg_ari, matched_overlap_of_all, pixel_tables
from viewslots.metrics.score import METRICS
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


OURS = Protocol(
    name="ocloc",
    paper="Yuan et al., Unsupervised Learning of Compositional Scene Representations from Multiple Unspecified "
    "Viewpoints (OCLOC)",
    contract="the paper's eight metrics, by its formulas (paper) and as its numbers were averaged (pooled)",
    scores=METRICS,
    unit="scene",
)
PROTOCOLS = {
    protocol.name: protocol
    for protocol in (
        OURS,
        Protocol(
            name="slot-attention",
            paper="Locatello et al., Object-Centric Learning with Slot Attention, 2020",
            contract="FG-ARI of each picture without the pixels of the true background; mean over pictures",
            scores=("FG-ARI",),
            unit="picture",
        ),
        Protocol(
            name="slot-attention-video",
            paper="Kipf et al., Conditional Object-Centric Learning from Video (SAVi), 2022",
            contract="FG-ARI of all frames of a video as one, without the pixels of the true background; mean over "
            "videos, 1 for one without objects",
            scores=("FG-ARI",),
            unit="scene",
            without_foreground=1.0,
        ),
        Protocol(
            name="mbo-i",
            paper="Seitzer et al., Bridging the Gap to Real-World Object-Centric Learning (DINOSAUR), 2023",
            contract="FG-ARI and mBO of instances of each picture; best overlaps are averaged over the objects of a "
            "picture, then over pictures with objects",
            scores=("FG-ARI", "mBO"),
            unit="picture",
            without_foreground=1.0,
        ),
        Protocol(
            name="mbo-i-video",
            paper="Zadaianchuk et al., Object-Centric Learning for Real-World Videos by Predicting Temporal Feature "
            "Similarities (VideoSAUR), 2023",
            contract="as mbo-i with all frames of a video as one, so that an object must keep its slot",
            scores=("FG-ARI", "mBO"),
            unit="scene",
            without_foreground=1.0,
        ),
        Protocol(
            name="mbo-i-objects",
            paper="Pont-Tuset et al., Multiscale Combinatorial Grouping for Image Segmentation and Object Proposal "
            "Generation, 2017 (Jaccard index at instance level)",
            contract="mBO of instances of each picture; mean over all objects of the data set",
            scores=("mBO",),
            unit="picture",
            average="objects",
        ),
        Protocol(
            name="clevrtex",
            paper="Karazija et al., ClevrTex: A Texture-Rich Benchmark for Unsupervised Multi-Object Segmentation, "
            "2021",
            contract="128x128 pixels, from the middle .8 of larger truth; mIoU by Hungarian matching with the "
            "background, superfluous segments count as 0; FG-ARI; MSE summed over pixels and colours; mean over "
            "pictures",
            scores=("mIoU", "FG-ARI", "MSE"),
            unit="picture",
            size=128,
            crop=0.8,
            without_foreground=1.0,
        ),
        Protocol(
            name="uorf",
            paper="Yu et al., Unsupervised Discovery of Object Radiance Fields (uORF), 2022; NV-FG-ARI as in "
            "later papers",
            contract="the first view is given: ARI of all pixels and FG-ARI there; NV-: of each further view alone; "
            "mean over pictures; no LPIPS",
            scores=("ARI", "FG-ARI", "NV-ARI", "NV-FG-ARI", "NV-PSNR", "NV-SSIM"),
            unit="picture",
            given=1,
            without_foreground=1.0,
        ),
    )
}


def find_protocol(name: str) -> Protocol:
    if name not in PROTOCOLS:
        raise UserError(f"no protocol {shown(name)}; there are {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]


def score_masks(protocol: Protocol, block: MaskBlock) -> SceneRatios:
    """All scores of a protocol but of `ocloc`, which are those of metrics.score."""
    window = scored_window(protocol, *block.segment.shape[2:])
    layers = in_window(block.layers, block.segment.shape[2:], window)
    truth = SceneTruth(segment=window.labels(block.segment), view_mask=block.view_mask)
    tables = pixel_tables(layers.max(2).indices, layers.shape[2], truth)
    shown, batch = _pictures(block, window)
    ratios = {}
    for name in protocol.scores:
        measure = name.removeprefix(NOVEL)
        views = slice(protocol.given, None) if name.startswith(NOVEL) else slice(None, protocol.given)
        if not tables[:, views].shape[1] or (measure in PICTURE_SCORES and batch is None):
            ratios[name] = Ratio.nothing(len(tables))
        elif measure in TABLE_SCORES:
            ratios[name] = _of_tables(protocol, measure, tables[:, views])
        else:
            assert shown is not None
            assert batch is not None
            part = SceneBatch(batch.image[:, views], batch.view_mask[:, views])
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
