"""Occlusion where shapes are probabilities."""

import functools

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.methods.distributions import Scalar, full_precision

LEAST_COVER = 1e-3
"""Of a pixel. Below it, objects overlap so little that their shares add up to what they cover."""


@full_precision
def expected_shapes(
    logit_shp: Float[Tensor, "B M K H W"],
    logit_prs: Float[Tensor, "B K"],
    order: Float[Tensor, "B M K"],
    softness: Scalar,
) -> Float[Tensor, "B M L H W"]:
    """What the paper's perceived shapes s are on average, if z_shp are drawn: background first.

    s_0 = prod_k (1 - c_k) with c = z_prs sigmoid(logit_shp). An object is seen where it is and nothing nearer is: s_k
    is c_k prod_j (1 - c_j P(j nearer than k)), where the paper's softmax of two orders is P = sigmoid of their
    difference / lambda. Exact for two objects at a pixel, whose presence is drawn too. Of more, shares are scaled to
    sum to 1 - s_0: near the truth where their order is clear, else too much goes to the nearest. Probabilities in the
    paper's own formula would let the faint edge of a near object take a whole pixel of one behind it, and order would
    have to be vague to avoid that.
    """
    cover = logit_shp.sigmoid() * logit_prs.sigmoid()[:, None, :, None, None]
    covers = cover.unbind(2)
    nearer = ((order[:, :, :, None] - order[:, :, None, :]) / softness).sigmoid()  # [..., j, k]
    nearer = nearer.masked_fill(torch.eye(len(covers), dtype=torch.bool, device=order.device), 0.0)
    # Plain products over K, since the gradient of torch.prod asks on the host whether there are zeros.
    hidden = (1 - one[:, :, None] * nearer[:, :, j, :, None, None] for j, one in enumerate(covers))
    seen = cover * functools.reduce(torch.mul, hidden)
    background = functools.reduce(torch.mul, (1 - cover).unbind(2))
    covered = 1 - background
    overlaps = covered > LEAST_COVER
    scale = torch.where(overlaps, covered / torch.where(overlaps, seen.sum(2), 1.0), 1.0)
    return torch.cat([background[:, :, None], seen * scale[:, :, None]], 2)
