"""Beyond the paper: what the field reports of masks and pictures; and shadows, identity over views.

Each score is a sum over scenes divided by another, so that any group of scenes has its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from viewslots.metrics.lpips import Lpips
from viewslots.metrics.masks import best_overlaps, fg_ari, matched_overlaps, pixel_tables
from viewslots.metrics.objects import (
    UNMATCHED,
    assign,
    of_objects,
    pair_overlaps,
    pairs_in,
    require_numbers,
    rightly_ordered,
    true_objects,
)
from viewslots.metrics.score import comparisons, soft_match, tables_of
from viewslots.metrics.segmentation import adjusted_rand, contingency, partition
from viewslots.metrics.ssim import structural_similarity
from viewslots.types import BACKGROUND, COVERED, PRESENT, Decomposition, SceneBatch, SceneTruth

SHADOW = 51
"""A background pixel lies in shadow where one object alone takes at least a fifth of the direct light (51 / 255).

In CLEVR-M1 these are 8 % of the background, on average two thirds as bright as the rest.
"""
FAINTEST = 1e-10
"""Squared error below which pictures count as equal: no PSNR above 100 dB."""
MASK_SCORES = ("fg_ari", "mbo", "miou", "picture_fg_ari", "picture_mbo", "picture_miou")
"""Of the pictures that a method was given, by hard masks and the segment."""
ORDER_SCORES = ("pairs_found", "order_of_found")
"""What OOA mixes: how much of it two found objects decide, and how often these are in the right order."""
NOVEL_SCORES = ("novel_view_psnr", "novel_view_ssim", "novel_view_ari", "novel_view_fg_ari")
"""Of pictures that it was not given."""


@dataclass(frozen=True)
class Ratio:
    """Numerator and denominator, scene by scene; a scene with denominator 0 has nothing to say."""

    numerator: Float[np.ndarray, "S"]
    denominator: Float[np.ndarray, "S"]

    @classmethod
    def of(cls, numerator: Tensor, denominator: Tensor) -> "Ratio":
        return cls(numerator.double().cpu().numpy(), denominator.double().cpu().numpy())

    @classmethod
    def nothing(cls, scenes: int) -> "Ratio":
        return cls(np.zeros(scenes), np.zeros(scenes))

    @classmethod
    def mean(cls, values: Float64[Tensor, "S units"]) -> "Ratio":
        """Every unit of every scene counts once, unless it is NaN."""
        return cls.of(values.nansum(1), (~values.isnan()).sum(1))

    @property
    def value(self) -> float | None:
        below = float(self.denominator.sum())
        return float(self.numerator.sum()) / below if below > 0 else None


@dataclass(frozen=True)
class SceneRatios:
    """Named ratios of the same S scenes."""

    ratios: Mapping[str, Ratio]

    def values(self) -> dict[str, float | None]:
        return {name: ratio.value for name, ratio in self.ratios.items()}

    def per_scene(self) -> dict[str, list[float | None]]:
        """None for a scene with nothing to say."""
        pairs = {
            name: zip(one.numerator.tolist(), one.denominator.tolist(), strict=True)
            for name, one in self.ratios.items()
        }
        return {name: [above / below if below > 0 else None for above, below in pair] for name, pair in pairs.items()}

    def select(self, scenes: Int[np.ndarray, "n"]) -> "SceneRatios":
        """These scenes, in this order, any as often as it is named."""
        chosen = {name: Ratio(one.numerator[scenes], one.denominator[scenes]) for name, one in self.ratios.items()}
        return SceneRatios(chosen)

    def merge(self, other: "SceneRatios") -> "SceneRatios":
        """Further ratios of the same scenes."""
        return SceneRatios({**self.ratios, **other.ratios})

    @staticmethod
    def concatenate(parts: "Sequence[SceneRatios]") -> "SceneRatios":
        """Scenes of several parts with the same names, one after another."""

        def joined(name: str) -> Ratio:
            pairs = [(part.ratios[name].numerator, part.ratios[name].denominator) for part in parts]
            return Ratio(*(np.concatenate(side) for side in zip(*pairs, strict=True)))

        return SceneRatios({name: joined(name) for name in parts[0].ratios})


def scene_extras(
    prediction: Decomposition, truth: SceneTruth, batch: SceneBatch, lpips: Lpips | None = None
) -> SceneRatios:
    """All extras of a batch of scenes; those that need truth which is not known say nothing."""
    layer = winning_layer(prediction)
    masks = mask_scores(layer, prediction.layer_masks.shape[2], truth)
    return masks.merge(
        SceneRatios(
            {
                "ari_a_without_shadows": ari_without_shadows(layer, prediction.layer_masks.shape[2], truth),
                "shadow_claimed": shadow_claimed(layer, prediction.has_background, truth),
                "identity": identity(layer, prediction, truth),
                **order_scores(prediction, truth),
                "mse": squared_error(prediction.reconstruction, batch),
                "psnr": signal_to_noise(prediction.reconstruction, batch),
                "ssim": similarity(prediction.reconstruction, batch),
                **perceived("lpips", lpips, prediction.reconstruction, batch),
            }
        )
    )


def novel_view_extras(
    prediction: Decomposition, truth: SceneTruth, batch: SceneBatch, lpips: Lpips | None = None
) -> SceneRatios:
    """Of pictures that a method was not given, each alone: what is seen there, and which object it is said to be."""
    scenes, (ari, foreground) = len(batch.image), (Ratio.nothing(len(batch.image)),) * 2
    if truth.segment is not None:
        tables = pixel_tables(winning_layer(prediction), prediction.layer_masks.shape[2], truth).flatten(0, 1)
        ari, foreground = (Ratio.mean(score(tables).view(scenes, -1)) for score in (adjusted_rand, fg_ari))
    pictures = (signal_to_noise(prediction.reconstruction, batch), similarity(prediction.reconstruction, batch))
    seen = perceived("novel_view_lpips", lpips, prediction.reconstruction, batch)
    return SceneRatios(dict(zip(NOVEL_SCORES, (*pictures, ari, foreground), strict=True)) | seen)


def winning_layer(prediction: Decomposition) -> Int[Tensor, "B M H W"]:
    """Index of the layer with the largest mask at every pixel, background included."""
    winner, background = partition(prediction.layer_masks.flatten(0, 1), prediction.has_background)
    layer = (winner + int(prediction.has_background)).masked_fill(background, 0)
    return layer.view(*prediction.layer_masks.shape[:2], *layer.shape[1:])


def mask_scores(layer: Int[Tensor, "B M H W"], layers: int, truth: SceneTruth) -> SceneRatios:
    """The common scores of masks, of all views of a scene as one and of each picture alone.

    Means over the objects of a scene or picture, then over scenes or pictures.
    """
    if truth.segment is None:
        return SceneRatios(dict.fromkeys(MASK_SCORES, Ratio.nothing(len(layer))))
    tables = pixel_tables(layer, layers, truth)
    # Without identities there is no scene: tables without pixels have no score.
    whole, single = tables.sum(1) * truth.identities, tables.flatten(0, 1)
    shape = tables.shape[:2]
    return SceneRatios(
        {
            "fg_ari": Ratio.mean(fg_ari(whole)[:, None]),
            "mbo": Ratio.mean(best_overlaps(whole).nanmean(1)[:, None]),
            "miou": Ratio.mean(matched_overlaps(whole).nanmean(1)[:, None]),
            "picture_fg_ari": Ratio.mean(fg_ari(single).view(shape)),
            "picture_mbo": Ratio.mean(best_overlaps(single).nanmean(1).view(shape)),
            "picture_miou": Ratio.mean(matched_overlaps(single).nanmean(1).view(shape)),
        }
    )


def shadow_pixels(truth: SceneTruth) -> Bool[Tensor, "B M H W"]:
    """Background pixels of real views in the shadow of an object."""
    assert truth.shadows is not None
    assert truth.segment is not None
    dark = truth.shadows.amax(2) >= SHADOW
    return dark & (truth.segment == BACKGROUND) & truth.view_mask[:, :, None, None]


def ari_without_shadows(layer: Int[Tensor, "B M H W"], layers: int, truth: SceneTruth) -> Ratio:
    """ARI-A over the pixels of all views that do not lie in shadow; mean over scenes."""
    if truth.shadows is None or truth.scene_segment is None:
        return Ratio.nothing(len(layer))
    used = truth.view_mask[:, :, None, None] & ~shadow_pixels(truth)
    objects = true_objects(truth)
    segment = truth.scene_segment
    label = segment.long().where(segment != BACKGROUND, objects)
    table = contingency(label.flatten(1), layer.flatten(1), objects + 1, layers, used.flatten(1))
    score = adjusted_rand(table)
    return Ratio.of(score.nan_to_num(0), ~score.isnan())


def shadow_claimed(layer: Int[Tensor, "B M H W"], has_background: bool, truth: SceneTruth) -> Ratio:
    """Share of the shadow pixels that are given to an object layer. Without a background layer the word is empty."""
    if truth.shadows is None or truth.segment is None or not has_background:
        return Ratio.nothing(len(layer))
    shadow = shadow_pixels(truth)
    return Ratio.of((shadow & (layer > 0)).sum((1, 2, 3)), shadow.sum((1, 2, 3)))


def identity(layer: Int[Tensor, "B M H W"], prediction: Decomposition, truth: SceneTruth) -> Ratio:
    """Share of the pairs (object, view) with visible pixels in which the object keeps its slot.

    The slot of an object is the one matched to it over all views together. It keeps it in a view where no other layer,
    background included, holds more of its visible pixels; an object without a slot keeps none.
    """
    if truth.scene_segment is None:
        return Ratio.nothing(len(layer))
    counts = pixel_tables(layer, prediction.layer_masks.shape[2], truth)[:, :, 1:]
    first = int(prediction.has_background)
    slot = assign(counts.sum(1)[:, :, first:])
    own_layer = (slot + first)[:, None, :, None].expand(-1, counts.shape[1], -1, -1)
    own = counts.gather(3, own_layer.clamp(min=0))[..., 0]
    visible = counts.sum(3) > 0
    kept = visible & (own > 0) & (own == counts.amax(3)) & (slot >= 0)[:, None]
    return Ratio.of(kept.sum((1, 2)), visible.sum((1, 2)))


def order_scores(prediction: Decomposition, truth: SceneTruth) -> dict[str, Ratio]:
    """Of the pairs of overlapping objects, weighed as in pooled OOA: those of two objects that are found, and those of
    them in the right order. An object is found if its slot is present, and the largest layer at half of its visible
    pixels, all views together."""
    answered = prediction.depth_order is not None and prediction.presence is not None
    if not answered or truth.scene_segment is None or truth.shapes is None:
        return dict.fromkeys(ORDER_SCORES, Ratio.nothing(len(prediction.layer_masks)))
    sums = []
    for views in comparisons(prediction, truth):
        assert views.shapes is not None
        assert views.order is not None
        assert views.presence is not None
        slot, pixels = soft_match(views), tables_of(views).every[:, 1:]
        own = pixels.gather(2, (slot + int(views.has_background)).clamp(min=0)[..., None])[..., 0]
        held = (own > 0) & (2 * own >= pixels.sum(2)) & (slot != UNMATCHED)
        present = held & (of_objects(views.presence, slot) >= PRESENT)
        overlaps, both = pair_overlaps(views.segment, views.shapes), pairs_in(present[views.scene])
        right = both & rightly_ordered(overlaps.front, views.order, slot[views.scene])
        weights = [overlaps.region * kind for kind in (torch.ones_like(both), both, right)]
        sums.append(torch.stack([views.by_scene(weight.sum(1)) for weight in weights]))
    every, found, right = torch.cat(sums, 1)
    return dict(zip(ORDER_SCORES, (Ratio.of(found, every), Ratio.of(right, found)), strict=True))


def squared_errors(reconstruction: Float[Tensor, "B M 3 H W"], batch: SceneBatch) -> Float64[Tensor, "B M"]:
    """Mean squared error of each real picture, as it would be shown: clamped to [0, 1]. 0 in padded views."""
    errors = (reconstruction.clamp(0, 1) - batch.image).double().square().mean((2, 3, 4)).where(batch.view_mask, 0)
    require_numbers("reconstructions", errors)
    return errors


def squared_error(reconstruction: Float[Tensor, "B M 3 H W"], batch: SceneBatch) -> Ratio:
    """Mean over all pictures."""
    return Ratio.of(squared_errors(reconstruction, batch).sum(1), batch.view_mask.sum(1))


def signal_to_noise(reconstruction: Float[Tensor, "B M 3 H W"], batch: SceneBatch) -> Ratio:
    """PSNR in dB of each picture, mean over all pictures."""
    decibel = -10 * squared_errors(reconstruction, batch).clamp(min=FAINTEST).log10()
    return Ratio.of(decibel.where(batch.view_mask, 0).sum(1), batch.view_mask.sum(1))


def similarity(reconstruction: Float[Tensor, "B M 3 H W"], batch: SceneBatch) -> Ratio:
    """SSIM of each picture, clamped to [0, 1], mean over all pictures; none for pictures smaller than its window."""
    values = structural_similarity(reconstruction.clamp(0, 1), batch.image)
    return Ratio.mean(values.where(batch.view_mask, torch.nan))


def perceived(
    name: str, lpips: Lpips | None, reconstruction: Float[Tensor, "B M 3 H W"], batch: SceneBatch
) -> dict[str, Ratio]:
    """LPIPS of each picture, clamped to [0, 1], mean over all pictures; nothing without its weights."""
    if lpips is None:
        return {}
    pairs = (reconstruction.clamp(0, 1).flatten(0, 1), batch.image.flatten(0, 1))
    values = lpips(*pairs).view(batch.view_mask.shape).double()
    return {name: Ratio.mean(values.where(batch.view_mask, torch.nan))}


def hidden_share(truth: SceneTruth) -> Float64[Tensor, "B"] | None:
    """How much of the objects is hidden: 1 - visible pixels / pixels of complete shapes, over all views of a scene."""
    if truth.segment is None or truth.shapes is None:
        return None
    real = truth.view_mask[:, :, None, None]
    visible = ((truth.segment != BACKGROUND) & real).sum((1, 2, 3)).double()
    complete = ((truth.shapes >= COVERED) & real[:, :, None]).sum((1, 2, 3, 4)).double()
    return (1 - visible / complete.clamp(min=1)).clamp(0, 1).where(complete > 0, torch.zeros_like(complete))
