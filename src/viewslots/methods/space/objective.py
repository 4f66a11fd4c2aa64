"""The objective: a mixture likelihood of foreground and background, KL terms and the boundary loss."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from viewslots.methods.distributions import full_precision
from viewslots.methods.schedules import Scalar
from viewslots.methods.space.background import Components, log_mask
from viewslots.methods.space.config import SpaceConfig
from viewslots.methods.space.rendering import Layers
from viewslots.methods.space.schedule import SpaceAnnealing
from viewslots.methods.space.variables import CellPosterior, Gaussian, bernoulli_kl, gaussian_kl

BOUNDARY_SIGMA = 0.7


@full_precision
def log_normal(values: Float[Tensor, "*axes"], mean: Tensor | float, sigma: float) -> Float[Tensor, "*axes"]:
    """Log-density of N(mean, sigma^2)."""
    return -0.5 * ((values - mean) / sigma).square() - math.log(sigma * math.sqrt(2 * math.pi))


def negative_log_likelihood(
    images: Float[Tensor, "N 3 H W"], layers: Layers, components: Components, config: SpaceConfig
) -> Float[Tensor, "N"]:
    """Every channel of every pixel is a mixture of its own: of the foreground and of all background components."""
    alpha = layers.alpha[:, None]
    foreground = log_normal(images, layers.image, config.foreground_sigma) + log_mask(alpha)
    each = log_normal(images[:, None], components.images, config.background_sigma)
    background = (each + log_mask(components.masks[:, :, None])).logsumexp(1) + log_mask(1 - alpha)
    return -torch.logaddexp(foreground, background).sum((1, 2, 3))


def boundary_loss(frames: Float[Tensor, "N H W"], alpha: Float[Tensor, "N H W"]) -> Float[Tensor, "N"]:
    """What objects paint on the frames of glimpses, as an error."""
    return -log_normal(frames * alpha, 0.0, BOUNDARY_SIGMA).sum((1, 2))


def foreground_kl(
    cells: CellPosterior, what: Gaussian, scheduled: SpaceAnnealing, config: SpaceConfig
) -> dict[str, Float[Tensor, "N"]]:
    """Of all cells, present or not."""
    presence = annealed(config.presence_prior_start, config.presence_prior_end, scheduled.presence_share)
    scale = annealed(config.scale_prior_start, config.scale_prior_end, scheduled.scale_share)
    return {
        "presence": bernoulli_kl(cells.presence_logit, presence).sum(1),
        "depth": gaussian_kl(cells.depth.mean, cells.depth.std, 0.0, 1.0).sum(1),
        "scale": gaussian_kl(cells.scale.mean, cells.scale.std, scale, config.scale_prior_std).sum(1),
        "shift": gaussian_kl(cells.shift.mean, cells.shift.std, 0.0, 1.0).sum(1),
        "what": gaussian_kl(what.mean, what.std, 0.0, 1.0).sum(1),
    }


def annealed(start: float, end: float, share: Scalar) -> Scalar:
    return start + (end - start) * share


def over_views(values: Float[Tensor, "N"], view_mask: Bool[Tensor, "B M"]) -> Float[Tensor, "B"]:
    """Mean over a scene's real views."""
    return torch.where(view_mask, values.view(view_mask.shape), 0.0).sum(1) / view_mask.sum(1).clamp(min=1)
