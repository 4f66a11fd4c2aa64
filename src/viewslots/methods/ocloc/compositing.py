"""Depth order and occlusion: section 'Likelihood Function', the equations of s and of the mean of x."""

import functools

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from viewslots.methods.distributions import full_precision
from viewslots.methods.schedules import Scalar


@full_precision
def perceived_shapes(
    logit_shp: Float[Tensor, "B M K H W"],
    logit_prs: Float[Tensor, "B K"],
    order: Float[Tensor, "B M K"],
    softness: Scalar,
) -> Float[Tensor, "B M L H W"]:
    """s_{m,k,n}, background first.

    s_0 = prod_k (1 - z_prs z_shp) and, for objects, (1 - s_0) times the softmax over k of log(z_prs z_shp) + order / λ:
    the paper's masked softmax with o = exp(order / lambda). Infinite log-odds (binary z) are allowed: an object that
    does not cover a pixel takes no part there; a pixel that no object covers has s_0 = 1; gradients stay finite.
    """
    cover = F.logsigmoid(logit_shp) + F.logsigmoid(logit_prs)[:, None, :, None, None]
    # A plain product over K, since the gradient of torch.prod asks on the host whether there are zeros.
    background = functools.reduce(torch.mul, (-torch.expm1(cover)).unbind(2))
    takes_part = ~cover.isneginf()
    score = torch.where(takes_part, cover, 0.0) + (order / softness)[:, :, :, None, None]
    covered = takes_part.any(2, keepdim=True)
    share = torch.where(takes_part | ~covered, score, -torch.inf).softmax(2)
    return torch.cat([background[:, :, None], (1 - background[:, :, None]) * share], 2)


@full_precision
def composite(
    perceived: Float[Tensor, "B M L H W"],
    background: Float[Tensor, "B M 3 H W"],
    appearance: Float[Tensor, "B M K 3 H W"],
) -> Float[Tensor, "B M 3 H W"]:
    """The mean of x: sum over layers of s_{m,k,n} a_{m,k,n}."""
    objects = (perceived[:, :, 1:, None] * appearance).sum(2)
    return perceived[:, :, :1] * background + objects


@full_precision
def compactness_noise(
    centre: Float[Tensor, "B M K 2"],
    noise: Float[Tensor, "B M K 3 H W"],
    rate: Scalar,
    scale: Scalar,
) -> Float[Tensor, "B M K 3 H W"]:
    """Noise on an object's appearance that grows with the distance d from its centre: scale (1 - exp(-rate d^2)) eps.

    A centre lies in [-1, 1] along both sides; d is the same for as many pixels down as across, in units of half the
    side of a square of that area.

    Paper: not mentioned; the authors' runs train with it, so that objects stay compact.
    """
    H, W = noise.shape[-2:]
    y = torch.linspace(-1, 1, H, device=noise.device)[:, None]
    x = torch.linspace(-1, 1, W, device=noise.device)
    centre_x, centre_y = centre[..., None, None].unbind(3)
    squared_distance = (x - centre_x).square() * (W / H) + (y - centre_y).square() * (H / W)
    amplitude = scale * -torch.expm1(-rate * squared_distance)
    return amplitude[:, :, :, None] * noise
