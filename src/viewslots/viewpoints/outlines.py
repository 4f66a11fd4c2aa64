"""Shapes as lines: sharp at any size, in the pixels of a photo or on a screen."""

from collections.abc import Sequence

import contourpy
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

FINER = 4
"""Shapes are made so many times finer before a line is drawn, smoothly: the model's pixels are large."""
INSIDE = 0.5
Line = Float[np.ndarray, "N 2"]
"""Points (x, y), the first of them again at the end."""


def outlines(shape: Float[Tensor, "H W"], height: float = 1.0, width: float = 1.0) -> list[Line]:
    """Closed lines around where a shape is more than one half, on a picture of this height and width, whose outer
    corner is (0, 0). What is cut by the border of the picture is closed along it."""
    rows, columns = shape.shape
    finer = functional.interpolate(shape[None, None].float(), scale_factor=FINER, mode="bicubic", align_corners=False)
    padded = np.pad(finer[0, 0].detach().cpu().numpy(), 1, constant_values=0.0)
    lines = contourpy.contour_generator(z=padded).lines(INSIDE)
    scale = np.array([width / (columns * FINER), height / (rows * FINER)])
    # A value stands in the middle of its pixel, and one pixel was padded.
    return [((line - 0.5) * scale).clip(0, [width, height]) for line in map(np.asarray, lines)]


def svg_path(lines: Sequence[Line]) -> str:
    """As the `d` of an SVG path, to a tenth of its unit."""
    return "".join("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in line[:-1]) + "Z" for line in lines if len(line) > 2)


def hidden(complete: Float[Tensor, "H W"], seen: Float[Tensor, "H W"]) -> Float[Tensor, "H W"]:
    """Where a shape goes on behind others."""
    return torch.minimum(complete, 1 - seen)
