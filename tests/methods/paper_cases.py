"""A small model of the paper and cases for it, shared by the tests of the paper and of the algorithm."""

from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from viewslots.methods.distributions import relaxed_bernoulli_logit
from viewslots.methods.ocloc.config import StartConfig
from viewslots.methods.ocloc.image_model import noisy
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.presets import TINY
from viewslots.methods.ocloc.schedule import Annealing
from viewslots.methods.ocloc.variables import Latents, Noise, Rendering
from viewslots.methods.per_view.model import PerView
from viewslots.types import SceneBatch

M = TypeVar("M", Ocloc, PerView)

# The paper's start and likelihood: an undecided background, and the sigma_x of all its data sets.
SMALL = replace(TINY, start=StartConfig(), sigma_x=0.2)
K, SIZE = 3, SMALL.image_size
WARM = Annealing(temperature_prs=1.0, temperature_shp=1.0, softness=1.0, compactness_rate=0.1)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def scenes(B: int, M: int, seed: int = 0) -> SceneBatch:
    return SceneBatch(torch.rand(B, M, 3, SIZE, SIZE, generator=generator(seed)), torch.ones(B, M, dtype=torch.bool))


def in_double(value: object) -> object:
    """Batches and noise in float64, so that equalities hold to rounding far below any effect."""
    wide = {name: item.double() for name, item in tensors(value).items() if item.is_floating_point()}
    return replace(value, **wide)  # type: ignore[type-var]


def tensors(value: object) -> dict[str, Tensor]:
    """The fields of a dataclass that are tensors."""
    return {name: item for name, item in vars(value).items() if isinstance(item, Tensor)}


def drawn_in_training(model: Ocloc, latents: Latents, annealing: Annealing, noise: Noise) -> Rendering:
    """Pictures as the training likelihood sees them: relaxed shapes, where the image model draws any, and noisy
    appearances.
    """
    layers = noisy(model.layers(latents), annealing, noise)
    logit_shp = layers.logit_shp
    if model.image_model.samples_shapes:
        logit_shp = relaxed_bernoulli_logit(logit_shp, noise.z_shp, annealing.temperature_shp)
    return model.image_model.overlay(layers, latents, logit_shp, annealing)


def case(model: Ocloc | PerView, B: int = 2, M: int = 3, slots: int = K, seed: int = 0) -> tuple[SceneBatch, Noise]:
    batch = scenes(B, M, seed)
    noise = model.draw_noise(batch, generator(seed + 10), slots)
    return in_double(batch), in_double(noise)  # type: ignore[return-value]


def worst(left: Tensor, right: Tensor) -> float:
    return float((left - right).detach().abs().max())


@torch.no_grad()
def shaken(model: M, seed: int) -> M:
    """In float64, every parameter moved: biases, gains and the learned start are no longer zeros and ones."""
    model, rng = model.double().eval(), generator(seed)
    for parameter in model.parameters():
        parameter += 0.1 * torch.randn(parameter.shape, generator=rng)
    for parameter in (model.inference.mu_hat, model.inference.log_sigma_hat):
        parameter += 0.5 * torch.randn(parameter.shape, generator=rng)
    return model
