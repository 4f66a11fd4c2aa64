"""Spatial transformers for upright boxes: a glimpse out of a picture, and a glimpse back into it.

Rows and columns are resampled apart, each by a matrix of tent functions. That is bilinear interpolation with zeros
outside the picture (torch's grid_sample with align_corners=False) as two matrix products: the same gradients, but
computed in one order on every device.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.methods.distributions import full_precision


def pixel_centres(size: int, like: Tensor) -> Float[Tensor, "size"]:
    """Of pixels that fill [-1, 1]."""
    return (2 * torch.arange(size, device=like.device, dtype=like.dtype) + 1) / size - 1


def tents(places: Float[Tensor, "*N out"], size: int) -> Float[Tensor, "*N out size"]:
    """How much each of `size` pixels over [-1, 1] counts at every place."""
    indices = ((places + 1) * size - 1) / 2
    pixels = torch.arange(size, device=places.device, dtype=places.dtype)
    return (1 - (indices[..., None] - pixels).abs()).clamp(min=0)


def resampled(
    maps: Float[Tensor, "N C h w"], columns: Float[Tensor, "N W"], rows: Float[Tensor, "N H"]
) -> Float[Tensor, "N C H W"]:
    horizontal, vertical = tents(columns, maps.shape[-1]), tents(rows, maps.shape[-2])
    return vertical[:, None] @ maps @ horizontal[:, None].mT


@full_precision
def crop(
    pictures: Float[Tensor, "N C H W"], scale: Float[Tensor, "N 2"], shift: Float[Tensor, "N 2"], size: int
) -> Float[Tensor, "N C size size"]:
    """What lies in each picture's box. Boxes are (x, y): half their sides, and their centres, where the picture is
    [-1, 1] each way and y grows downwards."""
    centres = pixel_centres(size, scale)
    across, down = (scale[..., None] * centres + shift[..., None]).unbind(1)
    return resampled(pictures, across, down)


@full_precision
def paste(
    glimpses: Float[Tensor, "N C h w"], scale: Float[Tensor, "N 2"], shift: Float[Tensor, "N 2"], size: tuple[int, int]
) -> Float[Tensor, "N C H W"]:
    """The inverse: glimpses at the places of their boxes, in pictures of `size` (height, width) that are 0 elsewhere.

    Boxes must not vanish: a scale of 0 is divided by."""
    height, width = size
    across = (pixel_centres(width, scale) - shift[:, :1]) / scale[:, :1]
    down = (pixel_centres(height, scale) - shift[:, 1:]) / scale[:, 1:]
    return resampled(glimpses, across, down)
