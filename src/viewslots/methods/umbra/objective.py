"""The likelihood as a mixture over layers, and prices that keep objects small and few."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from viewslots.methods.distributions import full_precision
from viewslots.methods.ocloc.noise import Source
from viewslots.methods.ocloc.objective import sum_over_views
from viewslots.types import Rendering

LEAST_SHARE = 1e-8
"""A layer with less of a pixel takes no part in it: it is not seen there, and must not explain it."""


@full_precision
def mixture_nll(
    image: Float[Tensor, "B M 3 H W"],
    perceived: Float[Tensor, "B M L H W"],
    background: Float[Tensor, "B M 3 H W"],
    appearance: Float[Tensor, "B M K 3 H W"],
    view_mask: Bool[Tensor, "B M"],
    sigma_x: float,
) -> Float[Tensor, "B"]:
    """-log sum_k s_k N(x; a_k, sigma_x^2), pixel by pixel, without the constant of the normal distribution.

    A layer that shares a pixel must paint it right by itself. Under the weighted sum, two wrong ones may add up to the
    right colour, and their edge may lie anywhere.
    """
    errors = (image[:, :, None] - torch.cat([background[:, :, None], appearance], 2)).square().sum(3)
    seen = perceived > LEAST_SHARE
    log_share = torch.where(seen, perceived, 1.0).log()
    scores = torch.where(seen, log_share - errors / (2 * sigma_x**2), -torch.inf)
    return sum_over_views(-scores.logsumexp(2), view_mask)


def draw_pixels(rendering: Rendering, source: Source) -> Float[Tensor, "B M 3 H W"]:
    """The colour of one layer at each pixel, drawn by the layers' shares."""
    colours = torch.cat([rendering.background[:, :, None], rendering.appearance], 2)
    layer = (rendering.perceived.log() + source.gumbel(*rendering.perceived.shape)).argmax(2)
    return colours.gather(2, layer[:, :, None, None].expand(-1, -1, 1, 3, -1, -1)).squeeze(2)
