"""What the field reports of hard masks: FG-ARI, mBO and mIoU, all from one table of pixels.

A table [R, L] counts the pixels with true label r (0 = background, then objects) that layer l wins: the arg-max over
all layers, background included. Tables of pictures add up to that of a scene, so each score exists for single pictures
and for all views of a scene as one.

FG-ARI takes the pixels of true objects, as ARI-O of "paper" does, but leaves them to whatever layer wins: an object's
pixel that the background layer claims counts as claimed by it. ARI-O gives it to the next best object. Without a
background layer the two are equal.
"""

import math

import torch
from jaxtyping import Float64, Int
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from viewslots.metrics.objects import true_objects
from viewslots.metrics.segmentation import adjusted_rand, contingency
from viewslots.types import SceneTruth


def pixel_tables(layer: Int[Tensor, "B M H W"], layers: int, truth: SceneTruth) -> Float64[Tensor, "B M R L"]:
    """Pixels of every picture by true label and winning layer; zero in padded views."""
    assert truth.segment is not None
    scenes, views = layer.shape[:2]
    label = (truth.segment + 1).to(torch.int32)  # bytes wrap: the background, 255, becomes 0
    real = truth.view_mask[:, :, None, None].expand_as(label)
    pixels = [values.flatten(0, 1).flatten(1) for values in (label, layer, real)]
    table = contingency(pixels[0], pixels[1], true_objects(truth) + 1, layers, pixels[2])
    return table.view(scenes, views, *table.shape[1:])


def fg_ari(table: Float64[Tensor, "N R L"]) -> Float64[Tensor, "N"]:
    """Adjusted Rand index of the pixels of true objects; NaN without any."""
    return adjusted_rand(table[:, 1:])


def intersection_over_union(table: Float64[Tensor, "N R L"]) -> Float64[Tensor, "N R L"]:
    """Of every true label and every layer, over all pixels; 0 where both are empty.

    >>> intersection_over_union(torch.tensor([[[3.0, 1.0], [0.0, 2.0]]]).double()).tolist()
    [[[0.75, 0.16666666666666666], [0.0, 0.6666666666666666]]]
    """
    union = table.sum(2, keepdim=True) + table.sum(1, keepdim=True) - table
    return table / union.clamp(min=1)


def best_overlaps(table: Float64[Tensor, "N R L"]) -> Float64[Tensor, "N G"]:
    """IoU of every true object with the layer that fits it best, which may fit others too; NaN for unseen objects.

    The mean over objects is mBO of instances: in [0, 1], and 1 only if every object is a segment of its own.
    """
    return intersection_over_union(table)[:, 1:].amax(2).where(table[:, 1:].sum(2) > 0, math.nan)


def matched_overlaps(table: Float64[Tensor, "N R L"]) -> Float64[Tensor, "N G"]:
    """IoU of every true object with a layer of its own, so that the sum is largest; NaN for unseen objects.

    The mean over objects is mIoU by Hungarian matching. Objects without a layer score 0.
    """
    iou = intersection_over_union(table)[:, 1:]
    own = torch.zeros_like(iou[:, :, 0])
    for unit, matrix in enumerate(iou.cpu().numpy()):
        rows, columns = linear_sum_assignment(matrix, maximize=True)
        own[unit, rows] = iou[unit, rows, columns]
    return own.where(table[:, 1:].sum(2) > 0, math.nan)


def matched_overlap_of_all(table: Float64[Tensor, "N R L"]) -> Float64[Tensor, "N"]:
    """mIoU as CLEVRTEX has it: the background is a segment like others, and superfluous layers cost.

    Labels and layers are matched one to one, empty ones included. The sum of the IoU is divided by the number of pairs
    in which at least one side has pixels. Pairs that share no pixel may be formed in several ways, which changes their
    number: scipy's linear_sum_assignment decides on a square matrix, labels in index order.
    """
    size = max(table.shape[1:])
    square = torch.zeros(len(table), size, size, device=table.device, dtype=table.dtype)
    square[:, : table.shape[1], : table.shape[2]] = intersection_over_union(table)
    true, mine = (_padded(table.sum(axis) > 0, size) for axis in (2, 1))
    score = torch.full((len(table),), math.nan, device=table.device, dtype=table.dtype)
    for unit, matrix in enumerate(square.cpu().numpy()):
        rows, columns = linear_sum_assignment(matrix, maximize=True)
        pairs = (true[unit, rows] | mine[unit, columns]).sum()
        if pairs:
            score[unit] = square[unit, rows, columns].sum() / pairs
    return score


def _padded(used: Tensor, size: int) -> Tensor:
    return torch.nn.functional.pad(used, (0, size - used.shape[1]))
