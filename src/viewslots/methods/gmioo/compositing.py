"""Depth order and occlusion. The order is no latent variable: the nearest object is the one that explains best what it
would show, then the nearest of the others, and so on."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from viewslots.methods.distributions import full_precision
from viewslots.methods.gmioo.variables import Layers, take

NEVER = -1e6
"""Log-score of an object that is absent or hidden: below every other, but above those that are placed already."""


@torch.no_grad()
@full_precision
def greedy_order(
    shape: Float[Tensor, "N K H W"], scaled_error: Float[Tensor, "N K H W"], presence: Float[Tensor, "N K"]
) -> Int[Tensor, "N K"]:
    """Indices of the objects, nearest first.

    Next is always the object with the largest  max(visible) presence exp(-mean error where it is visible).  What is
    visible of the others then loses what it covers. Scores are compared by their logarithms, which do not underflow.
    """
    visible, placed, order = shape, torch.zeros_like(presence, dtype=torch.bool), []
    for _ in range(shape.shape[1] - 1):
        area = visible.sum((2, 3))
        mean = (visible * scaled_error).sum((2, 3)) / area.clamp(min=1e-6)
        score = (visible.amax((2, 3)) * presence).log().clamp(min=NEVER) - mean
        chosen = score.masked_fill(placed, -torch.inf).argmax(1, keepdim=True)
        placed = placed.scatter(1, chosen, True)
        visible = visible * (1 - take(shape, chosen))
        order.append(chosen)
    last = placed.int().argmin(1, keepdim=True)
    return torch.cat([*order, last], 1)


@full_precision
def perceived_masks(shape: Float[Tensor, "N K H W"], presence: Float[Tensor, "N K"]) -> Float[Tensor, "N L H W"]:
    """m_k = s_k prod_{j<k} (1 - s_j), where s is shape times presence, nearest first; the background is what is left.

    A plain loop, since the gradient of torch.cumprod asks on the host whether there are zeros.
    """
    masks, clear = [], torch.ones_like(shape[:, 0])
    for covering in (shape * presence[:, :, None, None]).unbind(1):
        masks.append(covering * clear)
        clear = clear * (1 - covering)
    return torch.stack([clear, *masks], 1)


@torch.no_grad()
@full_precision
def composite(
    masks: Float[Tensor, "N L H W"], background: Float[Tensor, "N 3 H W"], appearance: Float[Tensor, "N K 3 H W"]
) -> Float[Tensor, "N 3 H W"]:
    """The picture that is expected: colours weighted by masks."""
    return masks[:, :1] * background + (masks[:, 1:, None] * appearance).sum(1)


@torch.no_grad()
@full_precision
def surroundings(
    presence: Float[Tensor, "N K"], background: Float[Tensor, "N 3 H W"], layers: Layers
) -> tuple[Float[Tensor, "N K 3 H W"], Float[Tensor, "N K 1 H W"]]:
    """For every object, the picture without it, and how far other objects cover what lies at its depth.

    Objects are in depth order. The picture behind each is gathered from the back, the one before it from the front.
    """
    coverings = (layers.shape * presence[:, :, None, None])[:, :, None].unbind(1)
    appearances = layers.appearance.unbind(1)
    behind = [background]
    for covering, appearance in zip(coverings[:0:-1], appearances[:0:-1], strict=True):
        behind.append(covering * appearance + (1 - covering) * behind[-1])
    before, clear = torch.zeros_like(background), torch.ones_like(coverings[0])
    others, front = [], []
    for covering, appearance, rest in zip(coverings, appearances, reversed(behind), strict=True):
        others.append(before + clear * rest)
        front.append(1 - clear)
        before = before + clear * covering * appearance
        clear = clear * (1 - covering)
    return torch.stack(others, 1), torch.stack(front, 1)
