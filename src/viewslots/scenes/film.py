"""The film: sub-pixel samples, Blackman-Harris pixel filter, sRGB, and the integer hash behind all pixel noise."""

import functools
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from viewslots.types import BACKGROUND, COVERED

FILTER_WIDTH = 3
"""Support of the pixel filter in pixels, as in Blender (1.5 to each side)."""
PAD = 1
"""Pixels beyond each border of the picture that the filter reaches."""
_STEP = 2.0**-20
"""Filter weights are multiples of this: sums of masks are exact whatever their order."""


def blackman_harris(x: float) -> float:
    """The window at x pixels from the centre, zero beyond 1.5."""
    v = 2 * math.pi * (x / FILTER_WIDTH + 0.5)
    return 0.35875 - 0.48829 * math.cos(v) + 0.14128 * math.cos(2 * v) - 0.01168 * math.cos(3 * v)


SubPixels = tuple[tuple[float, float], ...]
"""Positions (x, y) within a pixel, in [0, 1)^2."""


@functools.cache
def cells(count: int) -> SubPixels:
    """Centres of a grid of `count` = 2^m cells in a pixel, row by row."""
    rows = 1 << (count.bit_length() - 1) // 2
    columns = count // rows
    return tuple(((column + 0.5) / columns, (row + 0.5) / rows) for row in range(rows) for column in range(columns))


@functools.cache
def sub_pixels(count: int) -> SubPixels:
    """`count` = 2^m positions in a pixel: Hammersley's points, sorted so that every four share a cell of `cells`.

    No two share a row or column, so edges at any angle are met by many distinct positions.
    """
    bits = count.bit_length() - 1
    points = [((i + 0.5) / count, (int(f"{i:0{bits}b}"[::-1], 2) + 0.5) / count) for i in range(count)]
    rows = 1 << (bits - 2) // 2
    columns = count // 4 // rows
    return tuple(sorted(points, key=lambda point: (int(point[1] * rows), int(point[0] * columns))))


@functools.cache
def filter_weights(positions: SubPixels) -> Tensor:
    """[9, n]: weight of each sample of each pixel in the 3 x 3 neighbourhood, summing to 1."""
    raw = [
        [blackman_harris(column + x - 1.5) * blackman_harris(row + y - 1.5) for x, y in positions]
        for row in range(FILTER_WIDTH)
        for column in range(FILTER_WIDTH)
    ]
    total = sum(map(sum, raw))
    steps = [[round(weight / total / _STEP) for weight in row] for row in raw]
    left = round(1 / _STEP) - sum(map(sum, steps))
    heaviest = max(range(len(positions)), key=lambda n: steps[4][n])
    steps[4][heaviest] += left
    return torch.tensor(steps, dtype=torch.float64) * _STEP


def develop(samples: Tensor, positions: SubPixels) -> Tensor:
    """Filter samples [..., n, H+2, W+2] at sub-pixel `positions` to pixels [..., H, W].

    In float64, so that rounding never shows in 8 bits, whatever matrix products a training loop has made faster.
    """
    *_, height, width = samples.shape
    weights = filter_weights(positions).to(samples.device)
    spread = (weights @ samples.to(torch.float64).flatten(-2)).reshape(*samples.shape[:-3], len(weights), height, width)
    parts = [
        spread[..., 3 * row + column, row : row + height - 2, column : column + width - 2]
        for row in range(FILTER_WIDTH)
        for column in range(FILTER_WIDTH)
    ]
    return functools.reduce(torch.add, parts)


@functools.cache
def _srgb_steps() -> Tensor:
    """Linear values at which the 8-bit sRGB code rises by one."""
    code = (np.arange(255) + 0.5) / 255
    linear = np.where(code <= 0.04045, code / 12.92, ((code + 0.055) / 1.055) ** 2.4)
    return torch.from_numpy(linear.astype(np.float32))


def to_srgb8(linear: Tensor) -> Tensor:
    """round(255 * sRGB(clip(linear))) as u8, by table: the same on every device."""
    return torch.bucketize(linear.contiguous(), _srgb_steps().to(linear.device), right=True).to(torch.uint8)


def to_alpha8(share: Tensor) -> Tensor:
    """A share in [0, 1] as 0..255."""
    return torch.floor(share.clamp(0, 1) * 255 + 0.5).to(torch.uint8)


_MASK = 0xFFFFFFFF


def mix(key: Tensor, word: Tensor | int) -> Tensor:
    """Fold a word into 32-bit keys held in int64 (the 'lowbias32' integer finaliser)."""
    x = (key + word * 0x9E3779B9) & _MASK
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _MASK
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _MASK
    return x ^ (x >> 16)


def fraction(key: Tensor) -> Tensor:
    """A 32-bit key as a float in [0, 1), exactly representable."""
    return (key >> 8).to(torch.float32) * 2.0**-24


TURN_STEPS = 4096


def circle() -> Tensor:
    """[2, steps]: cosine and sine of evenly spaced angles."""
    angle = (torch.arange(TURN_STEPS, dtype=torch.float64) + 0.5) * (2 * math.pi / TURN_STEPS)
    return torch.stack([torch.cos(angle), torch.sin(angle)]).to(torch.float32)


def turn(share: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of `share` of a full turn, looked up in `circle`: the same on every device."""
    step = (share * TURN_STEPS).to(torch.long)
    return table[0, step], table[1, step]


@dataclass(frozen=True)
class Film:
    """What V views give before padding to a data set's slots."""

    linear: Tensor
    """[V, H, W, 3] f32 radiance."""
    visible: Tensor
    """[V, K, H, W] share of the pixel in which each object is seen."""
    shapes: Tensor
    """[V, K, H, W] share of the pixel that each complete object covers."""
    shadows: Tensor
    """[V, K, H, W] share of light that each object takes from the ground behind."""


def segment_of(visible: Tensor) -> Tensor:
    """[V, H, W] u8: the object seen most where objects fill at least half the pixel, else background."""
    alpha = to_alpha8(visible)
    best, index = alpha.max(1)
    covered = to_alpha8(visible.sum(1)) >= COVERED
    return torch.where(covered & (best > 0), index, BACKGROUND).to(torch.uint8)
