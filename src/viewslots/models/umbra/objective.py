"""The likelihood as a mixture over layers, and costs that keep objects small and few."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from viewslots.models.distributions import Scalar, full_precision
from viewslots.models.ocloc.objective import sum_over_views
from viewslots.types import Rendering

LEAST_SHARE = 1e-8
"""Of a layer in a pixel: the logarithm of none has no gradient."""


@full_precision
def mixture_nll(
    image: Float[Tensor, "B M 3 H W"],
    rendering: Rendering,
    appearance: Float[Tensor, "B M K 3 H W"],
    view_mask: Bool[Tensor, "B M"],
    sigma_x: float,
) -> Float[Tensor, "B"]:
    """-log sum_k s_k N(x; a_k, sigma_x^2), pixel by pixel, without the constant of the normal distribution.

    A layer that shares a pixel must paint it right by itself. Under the weighted sum, two wrong ones may add up to the
    right colour, and their edge may lie anywhere.
    """
    background = (image - rendering.background).square().sum(2, keepdim=True)
    objects = (image[:, :, None] - appearance).square().sum(3)
    errors = torch.cat([background, objects], 2)
    log_share = rendering.perceived.clamp(min=LEAST_SHARE).log()
    return sum_over_views(-(log_share - errors / (2 * sigma_x**2)).logsumexp(2), view_mask)


@full_precision
def covered_pixels(
    logit_shp: Float[Tensor, "B M K H W"], logit_prs: Float[Tensor, "B K"], view_mask: Bool[Tensor, "B M"]
) -> Float[Tensor, "B"]:
    """Expected pixels of all complete shapes in all views, hidden ones too."""
    return sum_over_views(logit_shp.sigmoid() * logit_prs.sigmoid()[:, None, :, None, None], view_mask)


def blend(a: Tensor, b: Tensor, share: Scalar) -> Tensor:
    """share of b, the rest of a."""
    return a + share * (b - a)
