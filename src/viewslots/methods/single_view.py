"""What methods for single pictures share: every view of a scene stands alone, as one of N = B M pictures."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def mean_of_pictures(values: Float[Tensor, "N"], view_mask: Bool[Tensor, "B M"]) -> Float[Tensor, "B"]:
    """Of a scene's real views."""
    real = torch.where(view_mask, values.view(view_mask.shape), 0.0)
    return real.sum(1) / view_mask.sum(1).clamp(min=1)


@dataclass(frozen=True, eq=False)
class PicturesOfScenes:
    """What was found in N pictures, as what was found in B scenes of M views."""

    view_mask: Bool[Tensor, "B M"]

    def views(self, values: Float[Tensor, "N *rest"]) -> Float[Tensor, "B M *rest"]:
        return values.view(*self.view_mask.shape, *values.shape[1:])

    def codes(self, *parts: Float[Tensor, "N K _"]) -> Float[Tensor, "B M K D"]:
        """Several parts of an object's code as one."""
        return self.views(torch.cat(parts, -1))

    def most(self, values: Float[Tensor, "N K"]) -> Float[Tensor, "B K"]:
        """The maximum over real views: what is present in one of them is present in the scene."""
        return torch.where(self.view_mask[:, :, None], self.views(values), 0.0).amax(1)
