"""The f networks with a shadow for each object."""

import functools
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.methods.distributions import full_precision, widen
from viewslots.methods.ocloc.generation import Decoded, Generation, Layers

SHADOW = 4


@dataclass(frozen=True)
class ShadowedLayers(Layers):
    logit_shadow: Float[Tensor, "B M K H W"]


class ShadowedGeneration(Generation):
    """f_shp, f_apc and the shadow are one network."""

    channels = 5
    """The last one: log-odds of the shadow."""

    def layers(self, decoded: Decoded) -> ShadowedLayers:
        """An object's colour is sigmoid(2y), which has the slope of (y + 1) / 2 in the middle and stays a colour.

        Else a faint shape of an impossible colour paints as well as a whole one and costs less.
        """
        plain = super().layers(decoded)
        colour = (4 * plain.appearance - 2).sigmoid()
        shadow = widen(decoded.objects[:, SHADOW]).reshape(plain.logit_shp.shape)
        return ShadowedLayers(**vars(replace(plain, appearance=colour)), logit_shadow=shadow)


@full_precision
def shaded(
    background: Float[Tensor, "B M 3 H W"],
    logit_shadow: Float[Tensor, "B M K H W"],
    logit_prs: Float[Tensor, "B K"],
    darkest: float,
) -> Float[Tensor, "B M 3 H W"]:
    """The background times prod_k (1 - darkest z_prs shadow): shadows fall on it alone, in no order."""
    dark = darkest * logit_shadow.sigmoid() * logit_prs.sigmoid()[:, None, :, None, None]
    light = functools.reduce(torch.mul, (1 - dark).unbind(2))  # as in perceived_shapes, no torch.prod
    return background * light[:, :, None]
