"""True objects and the slots that stand for them: matching, IoU and F1, OOA, OCA of the appendix.

**Matching.** The permutation xi of section IoU maximises the overlap of the true and the predicted partition over all
views of a scene, objects only. "paper" counts the pixels of hard partitions (arg-max over all layers), "pooled" sums
the soft perceived shapes, as the published runs did.

**IoU, F1.** Soft minimum and maximum. Truth is alpha / 255, never thresholded; the prediction is the shape probability
of the matched slot, as given. Sums run over all pixels of the views used. An unmatched object scores 0.

**OOA.** Pairs i < j of true objects in every view. Object i of a pair is in front if o_i > o_j. A pair weighs as much
as its true complete shapes overlap: the sum of alpha_i alpha_j in "paper", of min(alpha_i, alpha_j) in "pooled". Where
the truth has no depth order, and always in "pooled", object i is in front if it owns at least as much of the region
min(alpha_i, alpha_j) in the visible segment.

**OCA.** The truth is the number of objects with a visible pixel in the views used. A method with a background counts
the slots whose presence is at least 0.5, and cannot answer without presence. A method without one counts the slots that
win a pixel, minus one for the background, whatever presence it gives.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int, UInt8
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from viewslots.errors import UserError
from viewslots.types import BACKGROUND, PRESENT, SceneTruth

UNMATCHED = -1

GRAIN = 2.0**-20
"""Overlaps that differ by less are equal: the order in which a device sums must not decide between slots."""


def true_objects(truth: SceneTruth) -> int:
    """G, the room for objects in the truth: that of the complete shapes or, without them, what the segment names."""
    if truth.shapes is not None:
        return truth.shapes.shape[2]
    assert truth.segment is not None
    labels = truth.segment[truth.view_mask]
    named = labels[labels != BACKGROUND]
    return int(named.max()) + 1 if len(named) else 0


def assign(overlap: Float64[Tensor, "S G K"]) -> Int[Tensor, "S G"]:
    """The slot of each true object, or -1 for those left over when there are more objects than slots.

    scipy's linear_sum_assignment on minus the overlap, rows in index order, which settles ties.

    >>> assign(torch.tensor([[[0.0, 5.0], [4.0, 3.0]], [[1.0, 2.0], [0.0, 9.0]]]).double()).tolist()
    [[1, 0], [0, 1]]
    """
    scenes, objects, _ = overlap.shape
    require_numbers("layer_masks", overlap)
    costs = -(overlap / GRAIN).round().cpu().numpy()
    slots = np.full((scenes, objects), UNMATCHED)
    for scene, cost in enumerate(costs):
        rows, columns = linear_sum_assignment(cost)
        slots[scene, rows] = columns
    return torch.from_numpy(slots).to(overlap.device)


def require_numbers(name: str, values: Float[Tensor, "*axes"], *, infinite: bool = False) -> None:
    """One line instead of scores that are no numbers, for an array or for sums of it."""
    if (values.isnan() if infinite else ~values.isfinite()).any():
        raise UserError(f"{name} hold values that are no numbers (NaN or infinite): nothing can be scored")


def soft_overlap(visible: Bool[Tensor, "V G H W"], layers: Float[Tensor, "V K H W"]) -> Float64[Tensor, "V G K"]:
    """How much of the perceived shape of each slot lies where a true object is seen, view by view."""
    return torch.bmm(visible.flatten(2).double(), layers.flatten(2).double().mT)


def of_objects(values: Float[Tensor, "V K"], slot: Int[Tensor, "V G"]) -> Float[Tensor, "V G"]:
    """Values of slots, told for the true objects they stand for; those of unmatched objects mean nothing."""
    return values.gather(1, slot.clamp(min=0))


def shape_sums(
    shapes: UInt8[Tensor, "V G H W"], complete: Float[Tensor, "V K H W"], slot: Int[Tensor, "V G"]
) -> Float64[Tensor, "V G 3"]:
    """Of every true object in every view: d_inter with its slot, its own area and the area of its slot.

    An unmatched object meets nothing, and so scores 0 whatever the area.
    """
    view = torch.arange(len(slot), device=slot.device)[:, None]
    true = shapes.double() / 255
    mine = complete[view, slot.clamp(min=0)].double()
    inter, area = torch.minimum(true, mine).sum((2, 3)), mine.sum((2, 3))
    return torch.stack([inter.where(slot != UNMATCHED, 0), true.sum((2, 3)), area], -1)


def iou_and_f1(sums: Float64[Tensor, "*objects 3"]) -> Float64[Tensor, "*objects 2"]:
    """d_inter / d_union and 2 d_inter / (d_inter + d_union); 0 for objects whose complete shape is empty.

    The union follows from the areas: min(a, b) + max(a, b) = a + b.

    >>> iou_and_f1(torch.tensor([[[1.0, 2.0, 2.0], [0.0, 0.0, 5.0]]]).double()).tolist()
    [[[0.3333333333333333, 0.5], [0.0, 0.0]]]
    """
    inter, true, mine = sums.unbind(-1)
    both = (true + mine).where(true > 0, 1)
    return torch.stack([inter / (both - inter), 2 * inter / both], -1)


@dataclass(frozen=True)
class PairOverlaps:
    """What the truth tells about the pairs i < j, in the order of `pairs`, in every view."""

    product: Float64[Tensor, "V Q"]
    """Sum over pixels of alpha_i alpha_j."""
    region: Float64[Tensor, "V Q"]
    """Sum over pixels of min(alpha_i, alpha_j)."""
    front: Bool[Tensor, "V Q"]
    """Object i owns at least as much of the region as object j."""


def pairs(objects: int, device: torch.device) -> Int[Tensor, "2 Q"]:
    return torch.triu_indices(objects, objects, 1, device=device)


def pair_overlaps(segment: UInt8[Tensor, "V H W"], shapes: UInt8[Tensor, "V G H W"]) -> PairOverlaps:
    """All sums are of integers below 2^53 and so exact, in whatever order they are taken.

    Where object i is seen its visible alpha is alpha_i, elsewhere 0: the minimum with alpha_j sums what i owns.
    """
    index = torch.arange(shapes.shape[1], device=shapes.device, dtype=torch.uint8)
    visible = shapes * (segment[:, None] == index[:, None, None])
    alpha, seen = shapes.flatten(2), visible.flatten(2)
    first, second = pairs(len(index), shapes.device)
    weights = alpha.double()
    product, region, owned = torch.bmm(weights, weights.mT), _shared(alpha, alpha), _shared(seen, alpha)
    return PairOverlaps(
        product=product[:, first, second] / 255**2,
        region=region[:, first, second] / 255,
        front=owned[:, first, second] >= owned[:, second, first],
    )


def _shared(one: UInt8[Tensor, "V G N"], other: UInt8[Tensor, "V G N"]) -> Float64[Tensor, "V G G"]:
    """Sums over pixels of min(one_i, other_j), a row at a time: bytes are compared many at once."""
    views, objects, _ = one.shape
    sums = torch.empty(views, objects, objects, device=one.device, dtype=torch.float64)
    for i in range(objects):
        sums[:, i] = torch.minimum(one[:, i, None], other).sum(2)
    return sums


def in_front(order: Float[Tensor, "V G"]) -> Bool[Tensor, "V Q"]:
    """Is object i nearer than object j?"""
    first, second = pairs(order.shape[1], order.device)
    return order[:, first] > order[:, second]


def rightly_ordered(
    front: Bool[Tensor, "V Q"], order: Float[Tensor, "V K"], slot: Int[Tensor, "V G"]
) -> Bool[Tensor, "V Q"]:
    """Pairs that the slots of a prediction order as the truth does; pairs with an unmatched object are wrong."""
    return (in_front(of_objects(order, slot)) == front) & pairs_in(slot != UNMATCHED)


def pairs_in(objects: Bool[Tensor, "V G"]) -> Bool[Tensor, "V Q"]:
    """Pairs of two of these objects."""
    first, second = pairs(objects.shape[1], objects.device)
    return objects[:, first] & objects[:, second]


def visible_objects(table: Float64[Tensor, "S G L"]) -> Int[Tensor, "S"]:
    """Objects that own a pixel, from the contingency table of objects and layers."""
    return (table.sum(2) > 0).sum(1)


def counted_objects(
    table: Float64[Tensor, "S R L"], presence: Float[Tensor, "S K"] | None, has_background: bool
) -> Int[Tensor, "S"] | None:
    """The prediction, from the contingency table of all pixels or from presence; None if there is no answer."""
    if not has_background:
        return (table.sum(1) > 0).sum(1) - 1
    return None if presence is None else (presence >= PRESENT).sum(1)
