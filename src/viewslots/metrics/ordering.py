"""Who stands in front of whom: OOA of the appendix, over pairs i < j of true objects in every view.

Object i of a pair is in front if o_i > o_j. A pair weighs as much as its true complete shapes overlap: the sum of
alpha_i alpha_j in "paper", of min(alpha_i, alpha_j) in "pooled". Where the truth has no depth order, and always in
"pooled", object i is in front if it owns at least as much of the region min(alpha_i, alpha_j) in the visible segment.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64, Int, UInt8
from torch import Tensor

from viewslots.metrics.matching import UNMATCHED, of_objects


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
    first, second = pairs(slot.shape[1], slot.device)
    matched = slot != UNMATCHED
    return (in_front(of_objects(order, slot)) == front) & matched[:, first] & matched[:, second]
