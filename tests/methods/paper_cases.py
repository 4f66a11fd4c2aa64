"""A small model of the paper and cases for it, shared by the tests of the paper and of the algorithm."""

from dataclasses import fields, replace

import torch
from torch import Tensor

from viewslots.methods.ocloc.presets import TINY
from viewslots.methods.ocloc.config import StartConfig
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.noise import Noise
from viewslots.methods.ocloc.schedule import Annealing
from viewslots.types import SceneBatch

# The paper's start: an undecided background.
SMALL = replace(TINY, start=StartConfig())
K, SIZE = 3, SMALL.image_size
WARM = Annealing(temperature_prs=1.0, temperature_shp=1.0, softness=1.0, compactness_rate=0.1)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def scenes(B: int, M: int, seed: int = 0) -> SceneBatch:
    return SceneBatch(torch.rand(B, M, 3, SIZE, SIZE, generator=generator(seed)), torch.ones(B, M, dtype=torch.bool))


def in_double(value: object) -> object:
    """Batches and noise in float64, so that equalities hold to rounding far below any effect."""
    changed = {item.name: getattr(value, item.name) for item in fields(value)}  # type: ignore[arg-type]
    wide = {name: item.double() if item.is_floating_point() else item for name, item in changed.items()}
    return replace(value, **wide)  # type: ignore[type-var]


def case(model: Ocloc, B: int = 2, M: int = 3, slots: int = K, seed: int = 0) -> tuple[SceneBatch, Noise]:
    batch = scenes(B, M, seed)
    noise = model.draw_noise(batch, generator(seed + 10), slots)
    return in_double(batch), in_double(noise)  # type: ignore[return-value]


def worst(left: Tensor, right: Tensor) -> float:
    return float((left - right).detach().abs().max())


@torch.no_grad()
def shaken(model: Ocloc, seed: int) -> Ocloc:
    """In float64, every parameter moved: biases, gains and the learned start are no longer zeros and ones."""
    model, rng = model.double().eval(), generator(seed)
    for parameter in model.parameters():
        parameter += 0.1 * torch.randn(parameter.shape, generator=rng)
    for parameter in (model.inference.mu_hat, model.inference.log_sigma_hat):
        parameter += 0.5 * torch.randn(parameter.shape, generator=rng)
    return model
