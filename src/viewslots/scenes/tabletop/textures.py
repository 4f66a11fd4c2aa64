"""Solid textures: the share of the second colour at a point of an object, by formulas without trigonometry.

`xp` is numpy or torch: both give the same up to rounding, and a point has one colour in every view and renderer.
Coordinates are in periods of the texture, `place` brings points there.
"""

import math
from typing import Any

PATTERNS = ("plain", "stripes", "checks", "dots", "noise", "wood", "marble", "print")

Array = Any
"""Of numpy or of torch, float32."""


def placement(azimuth: float, tilt: float) -> tuple[tuple[float, float, float], ...]:
    """Rows of the rotation that turns points by `azimuth` about z, then by `tilt` about x."""
    c, s, u, v = math.cos(azimuth), math.sin(azimuth), math.cos(tilt), math.sin(tilt)
    return (c, -s, 0.0), (s * u, c * u, -v), (s * v, c * v, u)


def share(xp: Any, pattern: str, x: Array, y: Array, z: Array) -> Array:
    """How much of the second colour shows at points in periods, 0 to 1."""
    return _SHARES[pattern](xp, x, y, z)


def _fraction(xp: Any, x: Array) -> Array:
    return x - xp.floor(x)


def _plain(xp: Any, x: Array, y: Array, z: Array) -> Array:
    return x * 0


def _stripes(xp: Any, x: Array, y: Array, z: Array) -> Array:
    return xp.where(_fraction(xp, x) < 0.5, x * 0, x * 0 + 1)


def _checks(xp: Any, x: Array, y: Array, z: Array) -> Array:
    half = (xp.floor(x) + xp.floor(y) + xp.floor(z)) * 0.5
    return 2 * _fraction(xp, half)


def _dots(xp: Any, x: Array, y: Array, z: Array) -> Array:
    a, b, c = (_fraction(xp, value) - 0.5 for value in (x, y, z))
    return xp.where(a * a + b * b + c * c < 0.1, x * 0 + 1, x * 0)


def _noise(xp: Any, x: Array, y: Array, z: Array) -> Array:
    return _smooth(xp, _cloud(xp, x, y, z) * 1.8 - 0.4)


def _wood(xp: Any, x: Array, y: Array, z: Array) -> Array:
    """Growth rings around the x axis, a little bent, with fibres along it."""
    bent = value_noise(xp, x * 0.2, y * 0.7, z * 0.7)
    ring = _fraction(xp, xp.sqrt(y * y + z * z) + bent * 0.9)
    fibre = value_noise(xp, x * 0.7, y * 13, z * 13)
    return ring * ring * 0.7 + fibre * 0.3


def _marble(xp: Any, x: Array, y: Array, z: Array) -> Array:
    """Thin veins across x, bent by turbulence."""
    wave = _fraction(xp, x + _cloud(xp, x, y, z) * 2.2)
    vein = xp.abs(wave * 2 - 1) * 3
    return 1 - _smooth(xp, vein)


def _print(xp: Any, x: Array, y: Array, z: Array) -> Array:
    """A motif in every cell, chosen by chance: a disc, a ring, a square, a cross or nothing."""
    a, b, c = (xp.abs(_fraction(xp, value) - 0.5) for value in (x, y, z))
    chance = _lattice(xp, xp.floor(x), xp.floor(y), xp.floor(z)) * 5
    square = a * a + b * b + c * c
    disc = square < 0.12
    ring = disc & (square > 0.045)
    box = (a < 0.3) & (b < 0.3) & (c < 0.3)
    thin = (a < 0.09) | (b < 0.09) | (c < 0.09)
    inside = xp.where(chance < 1, disc, xp.where(chance < 2, ring, xp.where(chance < 3, box, box & thin)))
    return xp.where(inside & (chance < 4), x * 0 + 1, x * 0)


_SHARES = {
    "plain": _plain,
    "stripes": _stripes,
    "checks": _checks,
    "dots": _dots,
    "noise": _noise,
    "wood": _wood,
    "marble": _marble,
    "print": _print,
}


def _smooth(xp: Any, t: Array) -> Array:
    """0 below 0, 1 above 1, 3 t^2 - 2 t^3 between."""
    t = xp.clip(t, 0, 1)
    return t * t * (3 - 2 * t)


def _cloud(xp: Any, x: Array, y: Array, z: Array) -> Array:
    """Three octaves of value noise, 0 to 1."""
    low = value_noise(xp, x, y, z)
    middle = value_noise(xp, x * 2.03 + 7.1, y * 2.03 + 3.7, z * 2.03 + 5.3)
    high = value_noise(xp, x * 4.11 + 1.9, y * 4.11 + 8.3, z * 4.11 + 2.1)
    return low * 0.5 + middle * 0.3 + high * 0.2


def value_noise(xp: Any, x: Array, y: Array, z: Array) -> Array:
    """Chance values on the whole numbers, joined by 3 t^2 - 2 t^3 along each axis."""
    cell = [xp.floor(value) for value in (x, y, z)]
    u, v, w = (_smooth(xp, value - low) for value, low in zip((x, y, z), cell, strict=True))
    along, across, up = (_words(value, step) for value, step in zip(cell, _STEPS, strict=True))
    corners = [[[_chance(xp, along[i] ^ across[j] ^ up[k]) for k in range(2)] for j in range(2)] for i in range(2)]
    slabs = [[_mix(row[0], row[1], w) for row in slab] for slab in corners]
    low, high = (_mix(slab[0], slab[1], v) for slab in slabs)
    return _mix(low, high, u)


def _mix(a: Array, b: Array, t: Array) -> Array:
    return a + (b - a) * t


_STEPS = (73856093, 19349663, 83492791)
_MASK = 0xFFFFFFFF


def _whole(value: Array) -> Array:
    """Float whole numbers as 64-bit integers, of either library."""
    return value.astype("int64") if hasattr(value, "astype") else value.long()


def _words(cell: Array, step: int) -> tuple[Array, Array]:
    """Hash words of a cell and of the next one."""
    first = _whole(cell) * step
    return first & _MASK, (first + step) & _MASK


def _lattice(xp: Any, x: Array, y: Array, z: Array) -> Array:
    words = [(_whole(value) * step) & _MASK for value, step in zip((x, y, z), _STEPS, strict=True)]
    return _chance(xp, words[0] ^ words[1] ^ words[2])


def _chance(xp: Any, word: Array) -> Array:
    """A 32-bit word as a float32 in [0, 1) ('lowbias32')."""
    word = ((word ^ (word >> 16)) * 0x7FEB352D) & _MASK
    word = ((word ^ (word >> 15)) * 0x846CA68B) & _MASK
    word = (word ^ (word >> 16)) >> 8
    single = word.astype("float32") if hasattr(word, "astype") else word.float()
    return single * 2.0**-24
