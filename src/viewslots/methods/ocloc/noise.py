"""All randomness of one pass, drawn beforehand: the model itself is a deterministic function of batch and noise."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

SMALLEST = 2.0**-25
"""Half the spacing of float32 uniform numbers: keeps logarithms finite."""


@dataclass(frozen=True)
class Noise:
    """Standard noise for every variable that Algorithm 1 and the generative model draw."""

    y_view: Float[Tensor, "B M *slots Dvw"]
    """Normal, line 3."""
    y_attr: Float[Tensor, "B L Dat"]
    """Normal, line 4."""
    background: Float[Tensor, "B L"]
    """Gumbel, line 16: k* is the arg max of log pi + noise."""
    z_view: Float[Tensor, "B M *slots Dview"]
    """Normal."""
    z_bck: Float[Tensor, "B Dbck"]
    """Normal."""
    z_attr: Float[Tensor, "B K Dattr"]
    """Normal."""
    z_prs: Float[Tensor, "B K"]
    """Logistic."""
    z_shp: Float[Tensor, "B M K H_or_0 W_or_0"]
    """Logistic; nothing where a model draws no shapes."""
    appearance: Float[Tensor, "B M K 3 H W"]
    """Normal: the compactness noise."""


@dataclass(frozen=True)
class Source:
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
