"""How well complete shapes are recovered: IoU and F1 of the appendix, with soft minimum and maximum.

Truth is alpha / 255, never thresholded; the prediction is the shape probability of the matched slot, as given. Sums run
over all pixels of the views used. An unmatched object scores 0.
"""

import torch
from jaxtyping import Float, Float64, Int, UInt8
from torch import Tensor

from viewslots.metrics.matching import UNMATCHED


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
