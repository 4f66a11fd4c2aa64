"""What points are made of as Triton kernels: `light.coat_of` with textures.py, and how that reflects.

The operations are those of the twins, in the same order.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from viewslots.scenes.tabletop.light import Coat, Points
from viewslots.scenes.tabletop.meet_cuda import LAUNCH, blocks, column, columns_of, some, stacked, store3, unit
from viewslots.scenes.tabletop.stage import Finishes, Stage
from viewslots.scenes.tabletop.textures import PATTERNS
from viewslots.scenes.vectors import Vec

_METAL, _TO_TEXTURE, _COLOR, _OTHER_COLOR = columns_of(
    Finishes, "metal", "to_texture", "first", "second", begins="pattern"
)
_IOR, _ALPHA, FINISH = columns_of(Finishes, "ior", "alpha", "end")
_PI, _OVER_PI = tl.constexpr(math.pi), tl.constexpr(1 / math.pi)
_STRIPES, _CHECKS, _DOTS, _NOISE, _WOOD, _MARBLE, _PRINT = (
    tl.constexpr(PATTERNS.index(name)) for name in ("stripes", "checks", "dots", "noise", "wood", "marble", "print")
)
NORMAL, VIEWER = tl.constexpr(3), tl.constexpr(6)
"""Rows of normals and directions to viewers in `point_vectors`, after the positions."""
ALPHA, GLOSS = tl.constexpr(3), tl.constexpr(4)
"""Rows of looks, after the colours."""


def coat_cuda(stage: Stage, points: Points, least: float) -> Coat:
    """See `light.coat_of`."""
    count = len(points.row)
    found = torch.empty(5, count, device=stage.device)
    metal = torch.empty(count, dtype=torch.bool, device=stage.device)
    if count:
        _coat[blocks(count)](
            found, metal, stage.tables.finishes, points.finish.contiguous(), point_vectors(points), count, least,
            **LAUNCH,
        )  # fmt: skip
    return Coat(Vec(*found[:3]), metal, found[3], found[4])


def point_vectors(points: Points) -> Tensor:
    """[9, P]."""
    return stacked(points.position, points.normal, points.viewer)


@triton.jit(do_not_specialize=["count"])
def _coat(found, metals, finishes, finish, vectors, count, least, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = at < count
    wears = tl.load(finish + at, mask=real, other=0).to(tl.int32)
    count = count.to(tl.int64)
    x, y, z = column(vectors + at, count, real)
    a, b, c = column(vectors + NORMAL * count + at, count, real)
    e, f, g = column(vectors + VIEWER * count + at, count, real)
    red, green, blue, metal, alpha, gloss = coat_at(
        finishes + wears * FINISH, x, y, z, a, b, c, e, f, g, least, real, BLOCK
    )
    store3(found + at, count, red, green, blue, real)
    tl.store(found + ALPHA * count + at, alpha, mask=real)
    tl.store(found + GLOSS * count + at, gloss, mask=real)
    tl.store(metals + at, metal, mask=real)


@triton.jit
def coat_at(finish, x, y, z, a, b, c, e, f, g, least, asked, BLOCK: tl.constexpr):
    """Colour, metal, alpha and gloss of points."""
    pattern = tl.load(finish, mask=asked, other=0.0).to(tl.int32)
    metal = tl.load(finish + _METAL, mask=asked, other=0.0) > 0.5
    ax, ay, az = column(finish + _TO_TEXTURE, 1, asked)
    bx, by, bz = column(finish + _TO_TEXTURE + 3, 1, asked)
    cx, cy, cz = column(finish + _TO_TEXTURE + 6, 1, asked)
    sx, sy, sz = column(finish + _TO_TEXTURE + 9, 1, asked)
    px, py, pz = ax * x + ay * y + az * z + sx, bx * x + by * y + bz * z + sy, cx * x + cy * y + cz * z + sz
    share = _share(pattern, px, py, pz, asked, BLOCK)
    red, green, blue = column(finish + _COLOR, 1, asked)
    other_r, other_g, other_b = column(finish + _OTHER_COLOR, 1, asked)
    red, green, blue = red + (other_r - red) * share, green + (other_g - green) * share, blue + (other_b - blue) * share
    ior = tl.load(finish + _IOR, mask=asked, other=1.5)
    alpha = tl.maximum(tl.load(finish + _ALPHA, mask=asked, other=1.0), least)
    cosine = tl.minimum(tl.maximum(a * e + b * f + c * g, 1e-3), 1.0)
    root = tl.sqrt_rn(ior * ior - 1 + cosine * cosine)
    first = tl.div_rn(root - cosine, root + cosine)
    second = tl.div_rn(cosine * (root + cosine) - 1, cosine * (root - cosine) + 1)
    gloss = tl.where(metal, 1.0, 0.5 * first * first * (1 + second * second))
    return red, green, blue, metal, alpha, gloss


# --- Textures ---------------------------------------------------------------------------------------------------------


@triton.jit
def black(BLOCK: tl.constexpr):
    return tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)


@triton.jit
def hash_word(x):
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def fraction(key):
    return (key >> 8).to(tl.float32) * 5.9604644775390625e-08


@triton.jit
def _part_of_one(x):
    return x - tl.floor(x)


@triton.jit
def _smooth(t):
    t = tl.minimum(tl.maximum(t, 0.0), 1.0)
    return t * t * (3 - 2 * t)


@triton.jit
def _word(cell, step):
    return cell.to(tl.int32).to(tl.uint32) * step


@triton.jit
def _words(cell, step):
    """Of a cell and of the next one."""
    first = _word(cell, step)
    return first, first + step


@triton.jit
def _corner_pair(word, low, high, t):
    """Chance values at two neighbouring corners, joined."""
    first, second = fraction(hash_word(word ^ low)), fraction(hash_word(word ^ high))
    return first + (second - first) * t


@triton.jit
def _value_noise(x, y, z):
    cell_x, cell_y, cell_z = tl.floor(x), tl.floor(y), tl.floor(z)
    u, v, w = _smooth(x - cell_x), _smooth(y - cell_y), _smooth(z - cell_z)
    x0, x1 = _words(cell_x, 73856093)
    y0, y1 = _words(cell_y, 19349663)
    z0, z1 = _words(cell_z, 83492791)
    low, high = _corner_pair(x0 ^ y0, z0, z1, w), _corner_pair(x0 ^ y1, z0, z1, w)
    near = low + (high - low) * v
    low, high = _corner_pair(x1 ^ y0, z0, z1, w), _corner_pair(x1 ^ y1, z0, z1, w)
    far = low + (high - low) * v
    return near + (far - near) * u


@triton.jit
def _share(pattern, x, y, z, asked, BLOCK: tl.constexpr):
    """`textures.share`, by the number of the pattern."""
    share = tl.zeros((BLOCK,), tl.float32)
    share = tl.where((pattern == _STRIPES) & (_part_of_one(x) >= 0.5), 1.0, share)
    checks = 2 * _part_of_one((tl.floor(x) + tl.floor(y) + tl.floor(z)) * 0.5)
    share = tl.where(pattern == _CHECKS, checks, share)
    p, q, r = _part_of_one(x) - 0.5, _part_of_one(y) - 0.5, _part_of_one(z) - 0.5
    square = p * p + q * q + r * r
    share = tl.where((pattern == _DOTS) & (square < 0.1), 1.0, share)
    if some(asked & (pattern == _PRINT)):
        share = tl.where((pattern == _PRINT) & _printed(x, y, z, tl.abs(p), tl.abs(q), tl.abs(r)), 1.0, share)
    wood = pattern == _WOOD
    clouded = asked & (wood | (pattern == _NOISE) | (pattern == _MARBLE))
    if some(clouded):
        cloud, bent, fibre = black(BLOCK)
        for octave in range(3):
            first, second = octave == 0, octave == 1
            scale = tl.where(first, 1.0, tl.where(second, 2.03, 4.11))
            nx = x * scale + tl.where(first, 0.0, tl.where(second, 7.1, 1.9))
            ny = y * scale + tl.where(first, 0.0, tl.where(second, 3.7, 8.3))
            nz = z * scale + tl.where(first, 0.0, tl.where(second, 5.3, 2.1))
            along, across = tl.where(first, 0.2, 0.7), tl.where(first, 0.7, 13.0)
            nx, ny = tl.where(wood, x * along, nx), tl.where(wood, y * across, ny)
            nz = tl.where(wood, z * across, nz)
            value = _value_noise(nx, ny, nz)
            cloud = cloud + value * tl.where(first, 0.5, tl.where(second, 0.3, 0.2))
            bent = tl.where(first, value, bent)
            fibre = tl.where(second, value, fibre)
        ring = _part_of_one(tl.sqrt_rn(y * y + z * z) + bent * 0.9)
        vein = tl.abs(_part_of_one(x + cloud * 2.2) * 2 - 1) * 3
        share = tl.where(pattern == _NOISE, _smooth(cloud * 1.8 - 0.4), share)
        share = tl.where(wood, ring * ring * 0.7 + fibre * 0.3, share)
        share = tl.where(pattern == _MARBLE, 1 - _smooth(vein), share)
    return share


@triton.jit
def _printed(x, y, z, p, q, r):
    """Whether points lie within a motif; p, q, r from the middle of their cell."""
    word_x = _word(tl.floor(x), 73856093)
    word_y = _word(tl.floor(y), 19349663)
    word_z = _word(tl.floor(z), 83492791)
    chance = fraction(hash_word(word_x ^ word_y ^ word_z)) * 5
    square = p * p + q * q + r * r
    disc = square < 0.12
    ring = disc & (square > 0.045)
    box = (p < 0.3) & (q < 0.3) & (r < 0.3)
    cross = box & ((p < 0.09) | (q < 0.09) | (r < 0.09))
    inside = ((chance < 1) & disc) | ((chance >= 1) & (chance < 2) & ring)
    return inside | ((chance >= 2) & (chance < 3) & box) | ((chance >= 3) & (chance < 4) & cross)


# --- Lobes ------------------------------------------------------------------------------------------------------------


@triton.jit
def smith(cosine, a2):
    return 0.5 * (tl.sqrt_rn(1 + a2 * (tl.div_rn(1.0, cosine * cosine) - 1)) - 1)


@triton.jit
def ggx(alpha, a, b, c, e, f, g, u, v, w):
    nv, nl = tl.maximum(a * e + b * f + c * g, 1e-3), tl.maximum(a * u + b * v + c * w, 1e-4)
    hx, hy, hz = unit(e + u, f + v, g + w)
    nh = tl.minimum(tl.maximum(a * hx + b * hy + c * hz, 0.0), 1.0)
    a2 = alpha * alpha
    slope = 1 - nh * nh * (1 - a2)
    facets = tl.div_rn(a2, _PI * slope * slope * 4 * nv)
    hidden = smith(nv, a2)
    return tl.div_rn(facets, 1 + hidden + smith(nl, a2)), tl.div_rn(facets, 1 + hidden)


@triton.jit
def reflected(alpha, gloss, metal, a, b, c, e, f, g, u, v, w, density, SHARED: tl.constexpr):
    """Radiance per irradiance: a factor of the colour, and white."""
    flat = tl.where(metal, 0.0, (1 - gloss) * _OVER_PI)
    lobe, sampled = ggx(alpha, a, b, c, e, f, g, u, v, w)
    peak = tl.div_rn(lobe, tl.maximum(a * u + b * v + c * w, 1e-4)) * gloss
    if SHARED:
        peak = peak * tl.div_rn(density, density + sampled)
    white = tl.where(metal, 0.0, peak)
    return flat + peak - white, white
