"""Which slot stands for which true object: the permutation xi of the appendix, section IoU.

xi maximises the overlap of the true and the predicted partition over all views of a scene, objects only. "paper" counts
the pixels of hard partitions (arg-max over all layers), "pooled" sums the soft perceived shapes (the published runs).
"""

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from viewslots.data.dataset import SceneTruth
from viewslots.errors import UserError
from viewslots.metrics.comparison import comparisons, tables_of
from viewslots.types import Decomposition

UNMATCHED = -1

GRAIN = 2.0**-20
"""Overlaps that differ by less are equal: the order in which a device sums must not decide between slots."""


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


def match(prediction: Decomposition, truth: SceneTruth) -> Int[Tensor, "S G"]:
    """The matching of "paper": the slot of each true object, counted without the background layer, or -1."""
    return torch.cat([assign(tables_of(views).objects) for views in comparisons(prediction, truth)])


def soft_overlap(visible: Bool[Tensor, "V G H W"], layers: Float[Tensor, "V K H W"]) -> Float64[Tensor, "V G K"]:
    """How much of the perceived shape of each slot lies where a true object is seen, view by view."""
    return torch.bmm(visible.flatten(2).double(), layers.flatten(2).double().mT)


def of_objects(values: Float[Tensor, "V K"], slot: Int[Tensor, "V G"]) -> Float[Tensor, "V G"]:
    """Values of slots, told for the true objects they stand for; those of unmatched objects mean nothing."""
    return values.gather(1, slot.clamp(min=0))
