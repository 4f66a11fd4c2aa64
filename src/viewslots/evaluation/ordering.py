"""Who stands in front of whom: OOA of the appendix, over pairs i < j of true objects in every view.

Object i of a pair is in front if o_i > o_j. A pair weighs as much as its true complete shapes overlap: the sum of
alpha_i alpha_j in "paper", of min(alpha_i, alpha_j) in "pooled". Where the truth has no depth order, and always in
"pooled", object i is in front if it owns at least as much of the region min(alpha_i, alpha_j) in the visible segment.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64, Int, UInt8
from torch import Tensor

from viewslots.evaluation.matching import UNMATCHED, of_objects

ENTRIES_AT_ONCE = 2**22
"""Pixels times pairs in memory at once."""


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
    """Only pixels with two shapes or more count, a few in a hundred, so these are gathered first.

    All sums are of integers below 2^53 and so exact, in whatever order they are taken.
    """
    views, objects = shapes.shape[:2]
    first, second = pairs(objects, shapes.device)
    sums = torch.zeros(views, 3, len(first), device=shapes.device, dtype=torch.float64)
    shared = ((shapes > 0).sum(1, dtype=torch.uint8) > 1).nonzero()
    for part in torch.split(shared, max(1, ENTRIES_AT_ONCE // max(1, len(first)))):
        view, row, column = part.unbind(1)
        alpha = shapes[view, :, row, column].double()
        owner = segment[view, row, column, None]
        one, other = alpha[:, first], alpha[:, second]
        region = torch.minimum(one, other)
        owned = (owner == first).to(torch.int8) - (owner == second).to(torch.int8)
        sums += _by_view(torch.stack([one * other, region, region * owned], 1), view, views)
    product, region, advantage = sums.unbind(1)
    return PairOverlaps(product / 255**2, region / 255, advantage >= 0)


def _by_view(values: Float64[Tensor, "P 3 Q"], view: Int[Tensor, "P"], views: int) -> Float64[Tensor, "V 3 Q"]:
    """Sums of the rows of each view; the views rise, so that running sums tell them."""
    count = torch.bincount(view, minlength=views)
    end = count.cumsum(0)
    running = torch.cat([values.new_zeros(1, *values.shape[1:]), values.cumsum(0)])
    return running[end] - running[end - count]


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
