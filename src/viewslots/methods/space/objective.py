"""The objective: a mixture likelihood of foreground and background, KL terms and the boundary loss."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.methods.distributions import full_precision
from viewslots.methods.schedules import Scalar
from viewslots.methods.space.background import Components, log_mask
from viewslots.methods.space.config import SpaceConfig
from viewslots.methods.space.rendering import Layers
from viewslots.methods.space.schedule import SpaceAnnealing
from viewslots.methods.space.variables import CellPosterior, Gaussian, gaussian_kl, presence_kl

BOUNDARY_SIGMA = 0.7


@full_precision
def log_normal(values: Float[Tensor, "*axes"], mean: Tensor | float, sigma: float) -> Float[Tensor, "*axes"]:
    """Log-density of N(mean, sigma^2)."""
    return -0.5 * ((values - mean) / sigma).square() - math.log(sigma * math.sqrt(2 * math.pi))


def negative_log_likelihood(
    images: Float[Tensor, "N 3 H W"], layers: Layers, components: Components, sigmas: tuple[float, float]
) -> Float[Tensor, "N"]:
    """Every channel of every pixel is a mixture of its own: of the foreground and of all background components."""
    alpha, (sigma_foreground, sigma_background) = layers.alpha[:, None], sigmas
    foreground = log_normal(images, layers.image, sigma_foreground) + log_mask(alpha)
    each = log_normal(components.images, images[:, None], sigma_background)
    background = (each + log_mask(components.masks[:, :, None])).logsumexp(1) + log_mask(1 - alpha)
    return -torch.logaddexp(foreground, background).sum((1, 2, 3))


def boundary_loss(frames: Float[Tensor, "N H W"], alpha: Float[Tensor, "N H W"]) -> Float[Tensor, "N"]:
    """What objects paint on the frames of glimpses, as an error."""
    return -log_normal(frames * alpha, 0.0, BOUNDARY_SIGMA).sum((1, 2))


@dataclass(frozen=True)
class Priors:
    """Those that change during training, and the spread of scales; depth, shift and what are standard normal."""

    presence: Scalar
    scale_mean: Scalar
    scale_std: float

    @classmethod
    def at(cls, scheduled: SpaceAnnealing, config: SpaceConfig) -> "Priors":
        return cls(
            presence=between(config.presence_prior_start, config.presence_prior_end, scheduled.presence_share),
            scale_mean=between(config.scale_prior_start, config.scale_prior_end, scheduled.scale_share),
            scale_std=config.scale_prior_std,
        )


def between(start: float, end: float, share: Scalar) -> Scalar:
    return start + (end - start) * share


def foreground_kl(cells: CellPosterior, what: Gaussian, priors: Priors) -> dict[str, Float[Tensor, "N"]]:
    """Of all cells, present or not."""
    return {
        "presence": presence_kl(cells.presence_logit, priors.presence).sum(1),
        "depth": gaussian_kl(cells.depth.mean, cells.depth.std, 0.0, 1.0).sum(1),
        "scale": gaussian_kl(cells.scale.mean, cells.scale.std, priors.scale_mean, priors.scale_std).sum(1),
        "shift": gaussian_kl(cells.shift.mean, cells.shift.std, 0.0, 1.0).sum(1),
        "what": gaussian_kl(what.mean, what.std, 0.0, 1.0).sum(1),
    }
