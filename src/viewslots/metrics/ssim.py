"""Structural similarity of two pictures (Wang et al., 2004)."""

import math

import torch
from jaxtyping import Float, Float64
from torch import Tensor

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
    x, y = one.double().reshape(-1, height, width), other.double().reshape(-1, height, width)
    mean_x, mean_y = _blurred(x), _blurred(y)
    variance_x, variance_y = _blurred(x * x) - mean_x**2, _blurred(y * y) - mean_y**2
    covariance = _blurred(x * y) - mean_x * mean_y
    light, contrast = STEADY
    above = (2 * mean_x * mean_y + light) * (2 * covariance + contrast)
    below = (mean_x**2 + mean_y**2 + light) * (variance_x + variance_y + contrast)
    return (above / below).reshape(*lead, -1).mean(-1)


def _blurred(pictures: Float64[Tensor, "N H W"]) -> Float64[Tensor, "N h w"]:
    """Means under the window wherever it fits as a whole, as products of matrices: conv2d is slow in float64."""
    rows, columns = (_weights(side, pictures) for side in pictures.shape[1:])
    return rows @ pictures @ columns.T


def _weights(side: int, like: Tensor) -> Float64[Tensor, "places side"]:
    """The Gaussian along one axis, at every place where it fits."""
    pixel, place = torch.arange(side), torch.arange(side - WINDOW + 1) + WINDOW // 2
    away = (pixel - place[:, None]).to(like)
    weight = (-(away**2) / (2 * SIGMA**2)).exp().where(away.abs() <= WINDOW // 2, 0)
    return weight / weight.sum(1, keepdim=True)
