"""What points look like as Triton kernels: the operations of light.py and textures.py in the same order.

light.py explains the formulas; tests hold the twins together. A kernel is a function there: `coat_of`, `bounced`,
`lit_by_lamps`, `lamps_ahead`.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from viewslots.scenes.film import TURN_STEPS
from viewslots.scenes.geometry import Vec
from viewslots.scenes.tabletop.light import BLURRED, BRIGHTEST, NEAR, OFFSET, STEPS, Coat, Points
from viewslots.scenes.tabletop.meet import Rays
from viewslots.scenes.tabletop.meet_cuda import (
    AROUND,
    LAUNCH,
    OBJECT,
    PART,
    ROOM_COS,
    ROOM_SIN,
    ROOM_SIZE,
    ROOM_X,
    ROOM_Y,
    blocking,
    blocks,
    column,
    columns_of,
    meet_surroundings,
    meet_table,
    nearest_object,
    our_points,
    some,
    stacked,
    store3,
    surface_normal,
    three,
    unit,
)
from viewslots.scenes.tabletop.stage import Finishes, Lamps, Stage, Surroundings
from viewslots.scenes.tabletop.textures import PATTERNS

_METAL, _TO_TEXTURE, _COLOR, _OTHER_COLOR = columns_of(Finishes, "metal", "to_texture", "first", "second")
_IOR, _ALPHA, _FINISH = columns_of(Finishes, "ior", "alpha", "end")
_NORMAL, _RIGHT, _UP, _RADIANCE, _AREA, _LAMP = columns_of(Lamps, "normal", "right", "up", "radiance", "area", "end")
_SKY, _PEDESTAL = columns_of(Surroundings, "environment", "pedestal")
_OFFSET, _NEAR, _BLURRED, _BRIGHTEST = (tl.constexpr(value) for value in (OFFSET, NEAR, BLURRED, BRIGHTEST))
_PI, _OVER_PI, _TURN_STEPS = tl.constexpr(math.pi), tl.constexpr(1 / math.pi), tl.constexpr(TURN_STEPS)
(_A0, _B0), (_A1, _B1), (_A2, _B2), (_A3, _B3) = (tuple(map(tl.constexpr, pair)) for pair in STEPS)
_PLAIN, _STRIPES, _CHECKS, _DOTS, _NOISE, _WOOD, _MARBLE, _PRINT = (tl.constexpr(n) for n in range(len(PATTERNS)))


def coat_cuda(stage: Stage, points: Points, least: float) -> Coat:
    """See `light.coat_of`."""
    count = len(points.row)
    found = torch.empty(5, count, device=stage.device)
    metal = torch.empty(count, dtype=torch.bool, device=stage.device)
    if count:
        _coat[blocks(count)](
            found, metal, stage.tables.finishes, points.finish.contiguous(), _vectors(points), count, least,
            **LAUNCH,
        )  # fmt: skip
    return Coat(Vec(*found[:3]), metal, found[3], found[4])


def bounced_cuda(stage: Stage, points: Points, coat: Coat) -> Vec:
    """See `light.bounced`."""
    count = len(points.row)
    light = torch.empty(3, count, device=stage.device)
    table = stage.tables
    if count:
        _bounced[blocks(count)](
            light, table.objects, table.parts, table.pieces, table.faces, table.finishes, table.lamps, table.around,
            stage.circle, *_columns(points, coat), count, stage.slots, stage.lamp_slots, **LAUNCH,
        )  # fmt: skip
    return Vec(*light)


def lit_by_lamps_cuda(stage: Stage, points: Points, coat: Coat, light: Vec, shadows: bool) -> tuple[Vec, Tensor]:
    """See `light.lit_by_lamps`."""
    count = len(points.row)
    bright = stacked(light)
    taken = torch.zeros(stage.slots if shadows else 0, count, device=stage.device)
    full = torch.zeros(count, device=stage.device)
    table = stage.tables
    if count:
        _lit_by_lamps[blocks(count)](
            bright, taken, full, table.objects, table.parts, table.pieces, table.faces, table.lamps, table.around,
            *_columns(points, coat), count, stage.slots, stage.lamp_slots, SHADOWS=shadows, **LAUNCH,
        )  # fmt: skip
    return Vec(*bright), taken / full.clamp_min(1e-20)


def lamps_ahead_cuda(stage: Stage, rays: Rays, nearest: Tensor) -> tuple[Tensor, Vec, Tensor]:
    """See `light.lamps_ahead`."""
    count = len(rays.row)
    found = torch.empty(5, count, device=stage.device)
    if count:
        _lamps_ahead[blocks(count)](
            found, stage.tables.lamps, rays.row.contiguous(), stacked(rays.origin, rays.heading),
            nearest.contiguous(), count, stage.lamp_slots, **LAUNCH,
        )  # fmt: skip
    return found[0], Vec(*found[1:4]), found[4]


def _vectors(points: Points) -> Tensor:
    return stacked(points.position, points.normal, points.viewer)


def _columns(points: Points, coat: Coat) -> tuple[Tensor, ...]:
    """Row, key, sample and vectors of points, and their materials."""
    words = (points.row, points.place.key, points.place.sample)
    looks = torch.stack([coat.color.x, coat.color.y, coat.color.z, coat.alpha, coat.gloss])
    return *(word.contiguous() for word in words), _vectors(points), looks, coat.metal.contiguous()


@triton.jit(do_not_specialize=["count"])
def _coat(found, metals, finishes, finish, vectors, count, least, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = at < count
    wears = tl.load(finish + at, mask=real, other=0).to(tl.int32)
    count = count.to(tl.int64)
    x, y, z = column(vectors + at, count, real)
    a, b, c = column(vectors + 3 * count + at, count, real)
    e, f, g = column(vectors + 6 * count + at, count, real)
    red, green, blue, metal, alpha, gloss = _coat_at(
        finishes + wears * _FINISH, x, y, z, a, b, c, e, f, g, least, real, BLOCK
    )
    store3(found + at, count, red, green, blue, real)
    tl.store(found + 3 * count + at, alpha, mask=real)
    tl.store(found + 4 * count + at, gloss, mask=real)
    tl.store(metals + at, metal, mask=real)


@triton.jit(do_not_specialize=["count", "lamp_slots"])
def _lamps_ahead(found, lamps, row, rays, nearest, count, lamp_slots, BLOCK: tl.constexpr):
    at, real, scene, first, last = our_points(row, count, BLOCK)
    count = count.to(tl.int64)
    x, y, z = column(rays + at, count, real)
    u, v, w = column(rays + 3 * count + at, count, real)
    limit = tl.load(nearest + at, mask=real, other=0.0)
    for number in range(first, last + 1):
        reach, red, green, blue, density = _lamps_before(
            lamps + number * lamp_slots * _LAMP, lamp_slots, x, y, z, u, v, w, limit, BLOCK
        )
        asked = real & (scene == number)
        tl.store(found + at, reach, mask=asked)
        store3(found + count + at, count, red, green, blue, asked)
        tl.store(found + 4 * count + at, density, mask=asked)


@triton.jit(do_not_specialize=["count", "slots", "lamp_slots"])
def _lit_by_lamps(
    light, taken, full, objects, parts, pieces, faces, lamps, around, row, key, sample, vectors, looks, metals,
    count, slots, lamp_slots, SHADOWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at, real, scene, first, last = our_points(row, count, BLOCK)
    word = tl.load(key + at, mask=real, other=0).to(tl.uint32)
    turn = tl.load(sample + at, mask=real, other=0).to(tl.uint32)
    metal = tl.load(metals + at, mask=real, other=0) != 0
    count = count.to(tl.int64)
    x, y, z = column(vectors + at, count, real)
    a, b, c = column(vectors + 3 * count + at, count, real)
    e, f, g = column(vectors + 6 * count + at, count, real)
    color_r, color_g, color_b = column(looks + at, count, real)
    alpha = tl.load(looks + 3 * count + at, mask=real, other=1.0)
    gloss = tl.load(looks + 4 * count + at, mask=real, other=0.0)
    for number in range(first, last + 1):
        asked = real & (scene == number)
        red, green, blue = column(light + at, count, asked)
        total = tl.zeros((BLOCK,), tl.float32)
        for lamp_number in range(lamp_slots):
            lamp = lamps + (number * lamp_slots + lamp_number) * _LAMP
            s, t = _even(word, turn, 101 + lamp_number, _A0, _B0)
            u, v, w, distance, strength, density = _shine(lamp, x, y, z, a, b, c, s, t)
            strength, hidden = _shadowed(
                objects + number * slots * OBJECT, parts, pieces, faces, around + number * AROUND, slots,
                x, y, z, a, b, c, u, v, w, distance, strength, asked, SHADOWS, BLOCK,
            )  # fmt: skip
            lamp_r, lamp_g, lamp_b = three(lamp + _RADIANCE)
            if SHADOWS:
                power = strength * (lamp_r + lamp_g + lamp_b)
                total = total + power
                for slot in range(slots):
                    # One thread alone adds to a place: the sum has an order.
                    shaded = asked & (((hidden >> slot) & 1) != 0)
                    tl.atomic_add(taken + slot * count + at, power, mask=shaded, sem="relaxed")
            strength = tl.where(hidden != 0, 0.0, strength)
            factor, white = _reflected(alpha, gloss, metal, a, b, c, e, f, g, u, v, w, density, True)
            red = red + (color_r * factor + white) * lamp_r * strength
            green = green + (color_g * factor + white) * lamp_g * strength
            blue = blue + (color_b * factor + white) * lamp_b * strength
        store3(light + at, count, red, green, blue, asked)
        if SHADOWS:
            tl.store(full + at, total, mask=asked)


@triton.jit(do_not_specialize=["count", "slots", "lamp_slots"])
def _bounced(
    light, objects, parts, pieces, faces, finishes, lamps, around, circle, row, key, sample, vectors, looks, metals,
    count, slots, lamp_slots, BLOCK: tl.constexpr,
):  # fmt: skip
    at, real, scene, first, last = our_points(row, count, BLOCK)
    word = tl.load(key + at, mask=real, other=0).to(tl.uint32)
    turn = tl.load(sample + at, mask=real, other=0).to(tl.uint32)
    metal = tl.load(metals + at, mask=real, other=0) != 0
    count = count.to(tl.int64)
    x, y, z = column(vectors + at, count, real)
    a, b, c = column(vectors + 3 * count + at, count, real)
    e, f, g = column(vectors + 6 * count + at, count, real)
    color_r, color_g, color_b = column(looks + at, count, real)
    alpha = tl.load(looks + 3 * count + at, mask=real, other=1.0)
    gloss = tl.load(looks + 4 * count + at, mask=real, other=0.0)
    for number in range(first, last + 1):
        asked = real & (scene == number)
        about = around + number * AROUND
        sky_r, sky_g, sky_b = three(about + _SKY)
        wall_r, wall_g, wall_b = three(about + _PEDESTAL)
        wall_r, wall_g, wall_b = _at_most(wall_r, wall_g, wall_b, _BRIGHTEST)
        red, green, blue = _black(BLOCK)
        # A scattered ray, then a reflected one.
        for lobe in range(2):
            diffuse = lobe == 0
            thrown = asked & (gloss > 0)
            if diffuse:
                thrown = asked & (metal == 0)
            if some(thrown):
                u, v, w, weight, density = _thrown(diffuse, circle, word, turn, alpha, a, b, c, e, f, g, real)
                in_r, in_g, in_b = _incoming(
                    objects + number * slots * OBJECT, parts, pieces, faces, finishes,
                    lamps + number * lamp_slots * _LAMP, about, slots, lamp_slots, word, turn,
                    x + a * _OFFSET, y + b * _OFFSET, z + c * _OFFSET, u, v, w, density,
                    tl.where(diffuse, wall_r, sky_r), tl.where(diffuse, wall_g, sky_g),
                    tl.where(diffuse, wall_b, sky_b), thrown, BLOCK,
                )  # fmt: skip
                if diffuse:
                    in_r, in_g, in_b = _at_most(in_r, in_g, in_b, _BRIGHTEST)
                    strength = _open_sky(
                        objects + number * slots * OBJECT, parts, pieces, faces, about, slots, word, turn,
                        x, y, z, a, b, c, thrown, BLOCK,
                    )  # fmt: skip
                    in_r = color_r * (in_r + (sky_r - wall_r) * strength) * (1 - gloss)
                    in_g = color_g * (in_g + (sky_g - wall_g) * strength) * (1 - gloss)
                    in_b = color_b * (in_b + (sky_b - wall_b) * strength) * (1 - gloss)
                else:
                    in_r, in_g, in_b = in_r * (weight * gloss), in_g * (weight * gloss), in_b * (weight * gloss)
                    in_r, in_g = tl.where(metal, color_r * in_r, in_r), tl.where(metal, color_g * in_g, in_g)
                    in_b = tl.where(metal, color_b * in_b, in_b)
                red, green = tl.where(thrown, red + in_r, red), tl.where(thrown, green + in_g, green)
                blue = tl.where(thrown, blue + in_b, blue)
        store3(light + at, count, red, green, blue, asked)


# --- Numbers ----------------------------------------------------------------------------------------------------------


@triton.jit
def _black(BLOCK: tl.constexpr):
    return tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)


@triton.jit
def _at_most(first, second, third, most):
    return tl.minimum(first, most), tl.minimum(second, most), tl.minimum(third, most)


@triton.jit
def _hash(x):
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def _mix(key, word):
    return _hash(key + (key * 0 + word) * 0x9E3779B9)  # key * 0: the word as u32


@triton.jit
def _fraction(key):
    return (key >> 8).to(tl.float32) * 5.9604644775390625e-08


@triton.jit
def _even(key, sample, stream, FIRST: tl.constexpr, SECOND: tl.constexpr):
    """`Places.even` with that row of `STEPS`."""
    start = _mix(key, stream)
    return _fraction(start + sample * FIRST), _fraction(_mix(start, 1) + sample * SECOND)


@triton.jit
def _turn(share, circle, asked):
    step = (share * _TURN_STEPS).to(tl.int32)
    return tl.load(circle + step, mask=asked, other=1.0), tl.load(circle + _TURN_STEPS + step, mask=asked, other=0.0)


# --- Materials --------------------------------------------------------------------------------------------------------


@triton.jit
def _coat_at(finish, x, y, z, a, b, c, e, f, g, least, asked, BLOCK: tl.constexpr):
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


@triton.jit
def _part_of_one(x):
    return x - tl.floor(x)


@triton.jit
def _smooth(t):
    t = tl.minimum(tl.maximum(t, 0.0), 1.0)
    return t * t * (3 - 2 * t)


@triton.jit
def _words(cell, step):
    first = cell.to(tl.int32).to(tl.uint32) * step
    return first, first + step


@triton.jit
def _corner_pair(word, low, high, t):
    """Chance values at two neighbouring corners, joined."""
    first, second = _fraction(_hash(word ^ low)), _fraction(_hash(word ^ high))
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
        cloud, bent, fibre = _black(BLOCK)
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
    word_x, next_x = _words(tl.floor(x), 73856093)
    word_y, next_y = _words(tl.floor(y), 19349663)
    word_z, next_z = _words(tl.floor(z), 83492791)
    chance = _fraction(_hash(word_x ^ word_y ^ word_z)) * 5
    square = p * p + q * q + r * r
    disc = square < 0.12
    ring = disc & (square > 0.045)
    box = (p < 0.3) & (q < 0.3) & (r < 0.3)
    cross = box & ((p < 0.09) | (q < 0.09) | (r < 0.09))
    inside = ((chance < 1) & disc) | ((chance >= 1) & (chance < 2) & ring)
    return inside | ((chance >= 2) & (chance < 3) & box) | ((chance >= 3) & (chance < 4) & cross)


@triton.jit
def _smith(cosine, a2):
    return 0.5 * (tl.sqrt_rn(1 + a2 * (tl.div_rn(1.0, cosine * cosine) - 1)) - 1)


@triton.jit
def _ggx(alpha, a, b, c, e, f, g, u, v, w):
    nv, nl = tl.maximum(a * e + b * f + c * g, 1e-3), tl.maximum(a * u + b * v + c * w, 1e-4)
    hx, hy, hz = unit(e + u, f + v, g + w)
    nh = tl.minimum(tl.maximum(a * hx + b * hy + c * hz, 0.0), 1.0)
    a2 = alpha * alpha
    slope = 1 - nh * nh * (1 - a2)
    facets = tl.div_rn(a2, _PI * slope * slope * 4 * nv)
    hidden = _smith(nv, a2)
    return tl.div_rn(facets, 1 + hidden + _smith(nl, a2)), tl.div_rn(facets, 1 + hidden)


@triton.jit
def _reflected(alpha, gloss, metal, a, b, c, e, f, g, u, v, w, density, SHARED: tl.constexpr):
    """Radiance per irradiance: a factor of the colour, and white."""
    flat = tl.where(metal, 0.0, (1 - gloss) * _OVER_PI)
    lobe, sampled = _ggx(alpha, a, b, c, e, f, g, u, v, w)
    peak = tl.div_rn(lobe, tl.maximum(a * u + b * v + c * w, 1e-4)) * gloss
    if SHARED:
        peak = peak * tl.div_rn(density, density + sampled)
    white = tl.where(metal, 0.0, peak)
    return flat + peak - white, white


# --- Lamps and sky ----------------------------------------------------------------------------------------------------


@triton.jit
def _shine(lamp, x, y, z, a, b, c, s, t):
    """Heading, distance, strength and density of the sample (s, t) of a lamp."""
    px, py, pz = three(lamp)
    nx, ny, nz = three(lamp + _NORMAL)
    rx, ry, rz = three(lamp + _RIGHT)
    ux, uy, uz = three(lamp + _UP)
    aside, above = s - 0.5, t - 0.5
    u, v, w = (
        px + rx * aside + ux * above - x,
        py + ry * aside + uy * above - y,
        pz + rz * aside + uz * above - z,
    )
    square = tl.maximum(u * u + v * v + w * w, 1e-8)
    distance = tl.sqrt_rn(square)
    scale = tl.div_rn(1.0, distance)
    u, v, w = u * scale, v * scale, w * scale
    angle = tl.div_rn(tl.load(lamp + _AREA) * tl.maximum(-(nx * u + ny * v + nz * w), 0.0), square)
    strength = angle * tl.maximum(a * u + b * v + c * w, 0.0)
    return u, v, w, distance, strength, tl.div_rn(1.0, tl.maximum(angle, 1e-9))


@triton.jit
def _towards(position, half, depth, share):
    low, high = -half - position, half - position
    low, high = tl.div_rn(low, depth + tl.abs(low)), tl.div_rn(high, depth + tl.abs(high))
    inside = low + share * (high - low)
    place = tl.div_rn(inside, tl.maximum(1 - tl.abs(inside), 1e-4))
    reach = 1 + tl.abs(place)
    return place, reach * reach * (high - low)


@triton.jit
def _sky_light(about, x, y, z, a, b, c, s, t):
    """Heading, distance and strength of the sample (s, t) of the environment."""
    length, width, top = three(about + ROOM_SIZE)
    cos, sin = tl.load(about + ROOM_COS), tl.load(about + ROOM_SIN)
    px, py = x - tl.load(about + ROOM_X), y - tl.load(about + ROOM_Y)
    px, py = cos * px + sin * py, cos * py - sin * px
    depth = tl.maximum(top - z, 1e-3)
    across, spread_x = _towards(px, length, depth, s)
    along, spread_y = _towards(py, width, depth, t)
    far = tl.sqrt_rn(1 + across * across + along * along)
    rise = tl.div_rn(1.0, far)
    u, v = (cos * across - sin * along) * rise, (sin * across + cos * along) * rise
    strength = rise * rise * rise * spread_x * spread_y * tl.maximum(a * u + b * v + c * rise, 0.0)
    return u, v, rise, depth * far, strength


@triton.jit
def _shadowed(
    objects, parts, pieces, faces, about, slots, x, y, z, a, b, c, u, v, w, distance, strength, asked,
    ALL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The strength without what the table hides, and the slots of objects before the lamp (see `blocking`)."""
    x, y, low = x + a * _OFFSET, y + b * _OFFSET, tl.minimum(z, z + w * distance)
    z, reach = z + c * _OFFSET, distance - 2 * _OFFSET
    below = asked & (low < -1e-3) & (strength > 0)
    if some(below):
        met, ta, tb, tc = meet_table(about, x, y, z, u, v, w, below)
        strength = tl.where(below & (met < reach), 0.0, strength)
    hidden = blocking(objects, parts, pieces, faces, slots, x, y, z, u, v, w, reach, asked & (strength > 0), ALL, BLOCK)
    return strength, hidden


@triton.jit
def _open_sky(
    objects, parts, pieces, faces, about, slots, word, turn, x, y, z, a, b, c, asked, BLOCK: tl.constexpr
):  # fmt: skip
    """Irradiance over pi by a sample of an environment of radiance 1, shadows included."""
    s, t = _even(word, turn, 31, _A3, _B3)
    u, v, w, distance, strength = _sky_light(about, x, y, z, a, b, c, s, t)
    strength, hidden = _shadowed(
        objects, parts, pieces, faces, about, slots, x, y, z, a, b, c, u, v, w, distance, strength, asked, False, BLOCK
    )
    return tl.where(hidden != 0, 0.0, strength * _OVER_PI)


@triton.jit
def _lamps_before(lamps, lamp_slots, x, y, z, u, v, w, nearest, BLOCK: tl.constexpr):
    """`light.lamps_ahead`."""
    red, green, blue = _black(BLOCK)
    density = tl.zeros((BLOCK,), tl.float32)
    for number in range(lamp_slots):
        lamp = lamps + number * _LAMP
        px, py, pz = three(lamp)
        px, py, pz = px - x, py - y, pz - z
        nx, ny, nz = three(lamp + _NORMAL)
        speed = nx * u + ny * v + nz * w
        distance = tl.div_rn(nx * px + ny * py + nz * pz, tl.minimum(speed, -1e-9))
        sx, sy, sz = u * distance - px, v * distance - py, w * distance - pz
        rx, ry, rz = three(lamp + _RIGHT)
        ux, uy, uz = three(lamp + _UP)
        area = tl.load(lamp + _AREA)
        across, along = tl.abs(sx * rx + sy * ry + sz * rz), tl.abs(sx * ux + sy * uy + sz * uz)
        within = (across <= 0.5 * (rx * rx + ry * ry + rz * rz)) & (along <= 0.5 * (ux * ux + uy * uy + uz * uz))
        met = within & (distance > 0) & (distance < nearest) & (area * speed < 0)
        nearest = tl.where(met, distance, nearest)
        lamp_r, lamp_g, lamp_b = three(lamp + _RADIANCE)
        red, green, blue = tl.where(met, lamp_r, red), tl.where(met, lamp_g, green), tl.where(met, lamp_b, blue)
        here = tl.div_rn(distance * distance, tl.maximum(area * -speed, 1e-9))
        density = tl.where(met, here, density)
    return nearest, red, green, blue, density


@triton.jit
def _lamp_power(lamp, x, y, z, a, b, c):
    """How much light a lamp would send by its middle."""
    u, v, w, distance, strength, density = _shine(lamp, x, y, z, a, b, c, 0.5, 0.5)
    red, green, blue = three(lamp + _RADIANCE)
    return (strength + tl.div_rn(1.0, density) * 0.1) * (red + green + blue)


@triton.jit
def _one_lamp(lamps, lamp_slots, word, turn, x, y, z, a, b, c, BLOCK: tl.constexpr):
    """Heading, distance, strength and radiance of a sample of one lamp that stands for all."""
    s, t = _even(word, turn, 23, _A1, _B1)
    pick, other = _even(word, turn, 29, _A2, _B2)
    total = tl.zeros((BLOCK,), tl.float32)
    for number in range(lamp_slots):
        total = total + _lamp_power(lamps + number * _LAMP, x, y, z, a, b, c)
    u, v, w = _black(BLOCK)
    red, green, blue = _black(BLOCK)
    distance, strength, so_far = _black(BLOCK)
    open_ = tl.full((BLOCK,), 1, tl.int32) != 0
    for number in range(lamp_slots):
        lamp = lamps + number * _LAMP
        power = _lamp_power(lamp, x, y, z, a, b, c)
        so_far = so_far + power
        chosen = open_ & (so_far > pick * total)
        if number == lamp_slots - 1:
            chosen = open_
        open_ = open_ & (chosen == 0)
        if some(chosen):
            its_u, its_v, its_w, its_distance, its_strength, density = _shine(lamp, x, y, z, a, b, c, s, t)
            its_strength = tl.div_rn(its_strength * total, tl.maximum(power, 1e-20))
            u, v, w = tl.where(chosen, its_u, u), tl.where(chosen, its_v, v), tl.where(chosen, its_w, w)
            distance, strength = tl.where(chosen, its_distance, distance), tl.where(chosen, its_strength, strength)
            its_r, its_g, its_b = three(lamp + _RADIANCE)
            red, green, blue = (
                tl.where(chosen, its_r, red),
                tl.where(chosen, its_g, green),
                tl.where(chosen, its_b, blue),
            )
    return u, v, w, distance, strength, red, green, blue


# --- Scattered and reflected rays -------------------------------------------------------------------------------------


@triton.jit
def _basis(a, b, c):
    sign = tl.where(c < 0, -1.0, 1.0)
    scale = -tl.div_rn(1.0, sign + c)
    mixed = a * b * scale
    return 1 + sign * a * a * scale, sign * mixed, -sign * a, mixed, sign + b * b * scale, -b


@triton.jit
def _thrown(diffuse, circle, word, turn, alpha, a, b, c, e, f, g, asked):
    """A scattered or a reflected heading, the weight of the latter and how densely it was sampled (else 0)."""
    rx, ry, rz, ux, uy, uz = _basis(a, b, c)
    s, t = _even(word, turn, tl.where(diffuse, 11, 17), _A0, _B0)
    cos, sin = _turn(t, circle, asked)
    flat = tl.sqrt_rn(s)
    p, q = flat * cos, flat * sin
    rise = tl.sqrt_rn(1 - s)
    dx, dy, dz = rx * p + ux * q + a * rise, ry * p + uy * q + b * rise, rz * p + uz * q + c * rise
    # By the facets that the viewer sees.
    nv = tl.maximum(a * e + b * f + c * g, 1e-3)
    sx, sy, sz = unit(alpha * (e * rx + f * ry + g * rz), alpha * (e * ux + f * uy + g * uz), nv)
    flat2 = sx * sx + sy * sy
    scale = tl.div_rn(1.0, tl.sqrt_rn(tl.maximum(flat2, 1e-12)))
    straight = flat2 < 1e-12
    ox, oy = tl.where(straight, 1.0, -sy * scale), tl.where(straight, 0.0, sx * scale)
    tx, ty, tz = -sz * oy, sz * ox, sx * oy - sy * ox
    lean = 0.5 * (1 + sz)
    q = (1 - lean) * tl.sqrt_rn(tl.maximum(1 - p * p, 0.0)) + lean * q
    rest = tl.sqrt_rn(tl.maximum(1 - p * p - q * q, 0.0))
    mx, my, mz = ox * p + tx * q + sx * rest, oy * p + ty * q + sy * rest, tz * q + sz * rest
    mx, my, mz = unit(alpha * mx, alpha * my, tl.maximum(mz, 1e-6))
    hx, hy, hz = rx * mx + ux * my + a * mz, ry * mx + uy * my + b * mz, rz * mx + uz * my + c * mz
    twice = 2 * (e * hx + f * hy + g * hz)
    u, v, w = unit(hx * twice - e, hy * twice - f, hz * twice - g)
    rise = a * u + b * v + c * w
    a2 = alpha * alpha
    hidden = _smith(nv, a2)
    weight = tl.div_rn(1 + hidden, 1 + hidden + _smith(tl.maximum(rise, 1e-3), a2))
    lobe, density = _ggx(alpha, a, b, c, e, f, g, u, v, w)
    u, v, w = tl.where(diffuse, dx, u), tl.where(diffuse, dy, v), tl.where(diffuse, dz, w)
    return u, v, w, tl.where(rise > 0, weight, 0.0), tl.where(diffuse, 0.0, density)


@triton.jit
def _incoming(
    objects, parts, pieces, faces, finishes, lamps, about, slots, lamp_slots, word, turn,
    x, y, z, u, v, w, density, sky_r, sky_g, sky_b, asked, BLOCK: tl.constexpr,
):  # fmt: skip
    """Radiance that arrives along rays."""
    distance, a, b, c, finish = meet_surroundings(about, x, y, z, u, v, w, asked)
    entry, part, item = nearest_object(objects, parts, pieces, faces, slots, x, y, z, u, v, w, distance, asked, BLOCK)
    nearest = tl.minimum(distance, entry)
    reach, red, green, blue, other = _lamps_before(lamps, lamp_slots, x, y, z, u, v, w, nearest, BLOCK)
    lit = reach < nearest
    seen = tl.div_rn(density, tl.maximum(density + other, 1e-9))
    red, green, blue = red * seen, green * seen, blue * seen
    gone = (nearest == float("inf")) & (lit == 0)
    red, green, blue = tl.where(gone, sky_r, red), tl.where(gone, sky_g, green), tl.where(gone, sky_b, blue)
    hit = asked & (nearest < float("inf")) & (lit == 0)
    if some(hit):
        onto = hit & (entry < distance)
        far = tl.where(hit, nearest, 0.0)
        x, y, z = x + u * far, y + v * far, z + w * far
        if some(onto):
            oa, ob, oc, wears = surface_normal(parts + part * PART, pieces, faces, item, x, y, z, onto)
            a, b, c = tl.where(onto, oa, a), tl.where(onto, ob, b), tl.where(onto, oc, c)
            finish = tl.where(onto, wears, finish)
        side = tl.where(a * u + b * v + c * w > 0, -1.0, 1.0)
        light_r, light_g, light_b = _glimpse(
            objects, parts, pieces, faces, finishes + finish * _FINISH, lamps, about, slots, lamp_slots,
            word, turn, x, y, z, a * side, b * side, c * side, -u, -v, -w, hit, BLOCK,
        )  # fmt: skip
        red, green, blue = tl.where(hit, light_r, red), tl.where(hit, light_g, green), tl.where(hit, light_b, blue)
    return red, green, blue


@triton.jit
def _glimpse(
    objects, parts, pieces, faces, finish, lamps, about, slots, lamp_slots, word, turn,
    x, y, z, a, b, c, e, f, g, asked, BLOCK: tl.constexpr,
):  # fmt: skip
    """Radiance of points that a bounced ray meets."""
    color_r, color_g, color_b, metal, alpha, gloss = _coat_at(finish, x, y, z, a, b, c, e, f, g, _BLURRED, asked, BLOCK)
    red, green, blue = _black(BLOCK)
    # A lamp, then the environment.
    for source in range(2):
        of_lamp = source == 0
        if of_lamp:
            u, v, w, distance, strength, lamp_r, lamp_g, lamp_b = _one_lamp(
                lamps, lamp_slots, word, turn, x, y, z, a, b, c, BLOCK
            )
        else:
            s, t = _even(word, turn, 19, _A3, _B3)
            u, v, w, distance, strength = _sky_light(about, x, y, z, a, b, c, s, t)
            lamp_r, lamp_g, lamp_b = _black(BLOCK)
            sky_r, sky_g, sky_b = three(about + _SKY)
            lamp_r, lamp_g, lamp_b = lamp_r + sky_r, lamp_g + sky_g, lamp_b + sky_b
        strength, hidden = _shadowed(
            objects, parts, pieces, faces, about, slots, x, y, z, a, b, c, u, v, w, distance, strength, asked,
            False, BLOCK,
        )  # fmt: skip
        strength = tl.where(hidden != 0, 0.0, tl.where(of_lamp, tl.minimum(strength, _NEAR), strength))
        factor, white = _reflected(alpha, gloss, metal, a, b, c, e, f, g, u, v, w, strength, False)
        red = red + (color_r * factor + white) * lamp_r * strength
        green = green + (color_g * factor + white) * lamp_g * strength
        blue = blue + (color_b * factor + white) * lamp_b * strength
    return red, green, blue
