"""What the stages of a pass exchange. N pictures, each on its own; K objects; L = K + 1 layers, background first.

After every stage the objects of a picture are put into their depth order, nearest first, with all that belongs to them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from viewslots.methods.contract import leaves_of, mapped
from viewslots.methods.distributions import reparameterised_normal

State = tuple[Float[Tensor, "*N S"], Float[Tensor, "*N S"]]
"""Of an LSTM: what it says and what it keeps."""


@dataclass(frozen=True)
class Normal:
    """A diagonal normal distribution."""

    mu: Float[Tensor, "*N D"]
    log_sigma: Float[Tensor, "*N D"]

    def sample(self, noise: Float[Tensor, "*N D"]) -> Float[Tensor, "*N D"]:
        return reparameterised_normal(self.mu, self.log_sigma, noise)


@dataclass(frozen=True)
class Background:
    """q of its code, and the picture of a sample."""

    state: State
    code: Normal
    picture: Float[Tensor, "N 3 H W"]


@dataclass(frozen=True)
class Objects:
    """q of what each object is, and a sample of it."""

    full: State
    """What was seen of it in the whole picture ..."""
    crop: State
    """... and in its box."""
    box: Normal
    code: Normal
    tau: Float[Tensor, "*N 2"]
    """q(nu) = Beta(tau_1, tau_2)."""
    logit_zeta: Float[Tensor, "*N"]
    """q(present) = sigmoid of it."""
    z_box: Float[Tensor, "*N 4"]
    z_code: Float[Tensor, "*N D"]
    presence: Float[Tensor, "*N"]
    """Relaxed in training, 0 or 1 at test."""


@dataclass(frozen=True)
class Layers:
    """Objects as pictures."""

    glimpse: Float[Tensor, "N K 4 g g"]
    """Colours and shape inside the box."""
    appearance: Float[Tensor, "N K 3 H W"]
    shape: Float[Tensor, "N K H W"]
    """Complete, as probabilities; 0 outside the box."""
    scaled_error: Float[Tensor, "N K H W"]
    """||x - appearance||^2 / (2 sigma^2), pixel by pixel."""


@dataclass(frozen=True)
class Stage:
    """What one of the T stages, the first look or a refinement, has found."""

    background: Background
    objects: Objects
    layers: Layers
    masks: Float[Tensor, "N L H W"]
    """Perceived; they sum to one."""
    reconstruction: Float[Tensor, "N 3 H W"]
    """Without gradients: the loss is that of a mixture."""


@dataclass(frozen=True)
class ObjectNoise:
    box: Float[Tensor, "*N 4"]
    code: Float[Tensor, "*N D"]
    presence: Float[Tensor, "*N"]
    """Logistic; all else is normal."""


@dataclass(frozen=True)
class Noise:
    """All randomness of a pass, with axes B M T before D and B M T K in the objects'; of one stage N and N K."""

    background: Float[Tensor, "*N D"]
    objects: ObjectNoise


def take(values: Float[Tensor, "N K *rest"], order: Int[Tensor, "N J"]) -> Float[Tensor, "N J *rest"]:
    """The objects with these indices."""
    index = order.view(*order.shape, *[1] * (values.dim() - 2))
    return values.gather(1, index.expand(*order.shape, *values.shape[2:]))


def parted(values: Float[Tensor, "I *rest"], sizes: tuple[int, int]) -> Float[Tensor, "N K *rest"]:
    """I = N K rows as N times K."""
    return values.view(*sizes, *values.shape[1:])


Random = TypeVar("Random", Noise, ObjectNoise)


def at(noise: Random, index: int) -> Random:
    """Of one stage, or of one object."""
    return mapped(noise, lambda values: values[:, index])


Some = TypeVar("Some", Objects, Layers)


def joined(parts: Sequence[Some]) -> Some:
    """Objects of several values as one."""
    leaves = iter([torch.cat(same, 1) for same in zip(*map(leaves_of, parts), strict=True)])
    return mapped(parts[0], lambda _: next(leaves))
