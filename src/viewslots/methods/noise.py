"""Standard random numbers from a generator, for the noise of a pass."""

from dataclasses import dataclass

import torch
from torch import Tensor

SMALLEST = 2.0**-25
"""Half the spacing of float32 uniform numbers: keeps logarithms finite."""


@dataclass(frozen=True)
class Sampler:
    """A generator and where its numbers go. A CPU generator gives the same numbers for a model on any device."""

    generator: torch.Generator
    device: torch.device

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.generator, device=self.generator.device).to(self.device)

    def uniform(self, *shape: int) -> Tensor:
        """In the open interval (0, 1)."""
        drawn = torch.rand(shape, generator=self.generator, device=self.generator.device)
        return drawn.clamp(SMALLEST, 1 - 2 * SMALLEST).to(self.device)

    def logistic(self, *shape: int) -> Tensor:
        return self.uniform(*shape).logit()

    def gumbel(self, *shape: int) -> Tensor:
        return -(-self.uniform(*shape).log()).log()
