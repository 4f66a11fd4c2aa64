"""The latent variables of SPACE: their posteriors, their noise and their samples.

N pictures, K cells in rows from the upper left, J background components. Pairs are (x, y).
"""

import math
from dataclasses import dataclass

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from viewslots.methods.distributions import bernoulli_kl, full_precision, widen
from viewslots.methods.schedules import Scalar


@dataclass(frozen=True)
class Gaussian:
    mean: Float[Tensor, "*axes D"]
    std: Float[Tensor, "*axes D"]

    @classmethod
    def of(cls, raw: Float[Tensor, "*axes E"], least: float) -> "Gaussian":
        """From the output of a network: means, and what the softplus makes deviations of at least `least`."""
        mean, spread = widen(raw).chunk(2, -1)
        return cls(mean, F.softplus(spread) + least)

    def sample(self, noise: Float[Tensor, "*axes D"]) -> Float[Tensor, "*axes D"]:
        return self.mean + self.std * noise


@full_precision
def gaussian_kl(
    mean: Float[Tensor, "*axes D"],
    std: Float[Tensor, "*axes D"],
    prior_mean: Scalar | Tensor,
    prior_std: float | Tensor,
) -> Float[Tensor, "*axes"]:
    """KL(N(mean, std^2) || N(prior_mean, prior_std^2)), summed over the last axis."""
    ratio, distance = std / prior_std, (mean - prior_mean) / prior_std
    return (0.5 * (ratio.square() + distance.square() - 1) - ratio.log()).sum(-1)


def presence_kl(logit: Float[Tensor, "*axes"], prior: Scalar) -> Float[Tensor, "*axes"]:
    """KL(Bernoulli(sigmoid(logit)) || Bernoulli(prior))."""
    return bernoulli_kl(logit, logarithm(prior), logarithm(1 - prior))


def logarithm(value: Scalar) -> Scalar:
    """Of a number as a number: no tensor must be made of one while a graph is captured."""
    return value.log() if isinstance(value, Tensor) else math.log(value)


@dataclass(frozen=True)
class SpaceNoise:
    """All randomness of one pass: presence is logistic, the rest normal."""

    presence: Float[Tensor, "B M K"]
    depth: Float[Tensor, "B M K 1"]
    scale: Float[Tensor, "B M K 2"]
    shift: Float[Tensor, "B M K 2"]
    what: Float[Tensor, "B M K Dwhat"]
    mask: Float[Tensor, "B M J Dmask"]
    component: Float[Tensor, "B M J Dcomp"]


@dataclass(frozen=True)
class CellPosterior:
    """What the picture encoder says of every cell."""

    presence_logit: Float[Tensor, "N K"]
    depth: Gaussian
    """[N, K, 1]"""
    scale: Gaussian
    """[N, K, 2], before the sigmoid."""
    shift: Gaussian
    """[N, K, 2], before the hyperbolic tangent."""


@dataclass(frozen=True)
class Cells:
    """Samples: where every cell's object is."""

    presence: Float[Tensor, "N K"]
    depth: Float[Tensor, "N K"]
    """Smaller is nearer."""
    scale: Float[Tensor, "N K 2"]
    """Half the sides of an object's box, where the picture is [-1, 1] each way."""
    centre: Float[Tensor, "N K 2"]
