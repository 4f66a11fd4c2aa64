"""Structural similarity of two pictures (Wang et al., 2004)."""

import math

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from torch.nn.functional import conv2d

WINDOW = 11
SIGMA = 1.5
STEADY = (0.01**2, 0.03**2)
"""C1 and C2 for values in [0, 1]."""


def structural_similarity(
    one: Float[Tensor, "*lead C H W"], other: Float[Tensor, "*lead C H W"]
) -> Float64[Tensor, "*lead"]:
    """SSIM of pictures with values in [0, 1]: 1 for equal ones, mean over channels and over all whole windows.

    SSIM(x, y) = (2 m_x m_y + C1) (2 s_xy + C2) / ((m_x^2 + m_y^2 + C1) (s_x^2 + s_y^2 + C2)), with means m, variances
    and covariances s under a Gaussian window. NaN where pictures are smaller than a window.

    >>> picture = torch.rand(2, 3, 16, 16)
    >>> structural_similarity(picture, picture).tolist()
    [1.0, 1.0]
    """
    *lead, _, height, width = one.shape
    if min(height, width) < WINDOW:
        return torch.full(lead, math.nan, device=one.device, dtype=torch.float64)
    x, y = one.double().reshape(-1, 1, height, width), other.double().reshape(-1, 1, height, width)
    mean_x, mean_y = _blurred(x), _blurred(y)
    variance_x, variance_y = _blurred(x * x) - mean_x**2, _blurred(y * y) - mean_y**2
    covariance = _blurred(x * y) - mean_x * mean_y
    light, contrast = STEADY
    above = (2 * mean_x * mean_y + light) * (2 * covariance + contrast)
    below = (mean_x**2 + mean_y**2 + light) * (variance_x + variance_y + contrast)
    return (above / below).reshape(*lead, -1).mean(-1)


def _blurred(pictures: Float64[Tensor, "N 1 H W"]) -> Float64[Tensor, "N 1 h w"]:
    """Rows, then columns, where the whole window fits."""
    place = torch.arange(WINDOW, device=pictures.device, dtype=pictures.dtype) - WINDOW // 2
    weight = (-(place**2) / (2 * SIGMA**2)).exp()
    weight = weight / weight.sum()
    return conv2d(conv2d(pictures, weight.view(1, 1, 1, -1)), weight.view(1, 1, -1, 1))
