"""What a picture looks like in 34 numbers: light, colours, and detail at each scale."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

SIDE = 64
"""Statistics are of pictures of this size: those of models differ."""
SCALES = (32, 16, 8, 4, 1)
LAYOUT = 4
"""Light is told in so many rows and columns."""
GREYISH = 0.08
"""Pixels whose channels differ by less have no colour to speak of."""
FLOOR = 1e-6
"""Variance that bytes cannot show."""
STATISTICS = LAYOUT**2 + 2 + 3 * len(SCALES) + 1


def picture_statistics(images: Float[Tensor, "M 3 H W"]) -> Float[Tensor, "M F"]:
    """Light in 4 x 4 parts, tint, contrasts of light and of two colour axes, and the share of grey pixels."""
    pictures = functional.adaptive_avg_pool2d(images.detach().cpu().double().clamp(0, 1), SIDE)
    red, green, blue = pictures.unbind(1)
    axes = torch.stack([pictures.mean(1), red - green, (red + green) / 2 - blue], 1)
    light = functional.adaptive_avg_pool2d(axes[:, :1], LAYOUT).flatten(1)
    grey = (pictures.amax(1) - pictures.amin(1) < GREYISH).double().mean((1, 2)).sqrt()
    return torch.cat([light, axes[:, 1:].mean((2, 3)), contrasts(axes), grey[:, None]], 1)


def contrasts(axes: Float[Tensor, "M C 64 64"]) -> Float[Tensor, "M F"]:
    """Of a pyramid: what each level has and the next coarser one has not, as log10 of its standard deviation."""
    found, level = [], axes
    for scale in SCALES:
        coarser = functional.adaptive_avg_pool2d(level, scale)
        detail = level - functional.interpolate(coarser, size=level.shape[2:])
        found.append((detail.square().mean((2, 3)) + FLOOR).log10() / 2)
        level = coarser
    return torch.cat(found, 1)
