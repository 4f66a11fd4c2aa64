"""`shading.outgoing` and `shading.onto_ground` as one Triton kernel: a thread follows its path from surface to surface.

The formulas are those of lights.py, materials.py and ground.py, which explain them; tests hold the twins together.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from viewslots.scenes.clevr import ground, lights, materials
from viewslots.scenes.clevr.geometry_cuda import BLOCK, body_table, box_distance, can_distance, enter_body
from viewslots.scenes.clevr.lights import LAMP_COLOR, LAMPS, SUN_DIRECTION, SUN_RIGHT, SUN_UP, Stage
from viewslots.scenes.clevr.materials import GLOSS_ALPHA, METAL_LOBES, Points
from viewslots.scenes.clevr.sample import BEHIND
from viewslots.scenes.film import TURN_STEPS
from viewslots.scenes.vectors import Vec

_ALBEDO = tl.constexpr(ground.GROUND_ALBEDO)
_PI = tl.constexpr(math.pi)
_BEHIND_X, _BEHIND_Y = tl.constexpr(BEHIND[0]), tl.constexpr(BEHIND[1])
_SWEEP_START, _SWEEP_RADIUS = tl.constexpr(ground.SWEEP_START), tl.constexpr(ground.SWEEP_RADIUS)
_SUN_X, _SUN_Y, _SUN_Z = (tl.constexpr(part) for part in SUN_DIRECTION)
_SUN_TANGENT = tl.constexpr(lights.SUN_TANGENT)
_SUN_RADIANCE = tl.constexpr(lights.SUN_IRRADIANCE / (math.pi * lights.SUN_TANGENT**2))
_GLOSS_INDEX, _VELVET_INDEX = (tl.constexpr(index) for index in materials.RUBBER_COAT)
_VELVET, _GLOSS, _GLOSS_ALPHA = (tl.constexpr(v) for v in (materials.VELVET, materials.GLOSS, GLOSS_ALPHA))
_ROUGH_SHARE, _ROUGH_ALPHA = (tl.constexpr(value) for value in METAL_LOBES[0])
_MIRROR_SHARE, _MIRROR_ALPHA = (tl.constexpr(value) for value in METAL_LOBES[1])
_FREE, _BLURRED_ALPHA = tl.constexpr(materials.FREE), tl.constexpr(materials.BLURRED_ALPHA)
_NARROW, _WIDE = (tl.constexpr(factor) for factor in materials.STRETCH)
_TURN_STEPS = tl.constexpr(TURN_STEPS)


def trace_cuda(stage: Stage, points: Points, bounces: int, heading: Vec | None = None) -> Vec:
    """Light that leaves object points, or with `heading` light that arrives at ground points along it."""
    count, slots = len(points.view), stage.bodies.radius.shape[1]
    light = torch.zeros(3, count, device=stage.device)
    color = stage.bodies.color
    looks = torch.stack([color.x, color.y, color.z, stage.bodies.metal.to(torch.float32)], -1)
    vectors = (points.position, points.normal, points.viewer, heading or points.viewer)
    if count:
        _trace[(triton.cdiv(count, BLOCK),)](
            light,
            body_table(stage.bodies),
            looks,
            lamp_table(stage),
            stage.circle,
            points.view.contiguous(),
            points.slot.contiguous(),
            points.key.contiguous(),
            points.rank.contiguous(),
            points.blurred.contiguous(),
            torch.stack([part for vector in vectors for part in (vector.x, vector.y, vector.z)]),
            count,
            slots,
            bounces,
            1 if heading is not None else 0,
            BENT=stage.bent,
            BLOCK=BLOCK,
            enable_fp_fusion=False,
        )
    return Vec(*light)


def lamp_table(stage: Stage) -> Tensor:
    """[V, 4, 16]: position, right, up, normal, side and colour of each lamp; sun last, its direction as position."""
    views = len(stage.lamp.x)
    vectors = (stage.lamp, stage.lamp_right, stage.lamp_up, stage.lamp_normal)
    lamps = torch.stack([getattr(vector, axis) for vector in vectors for axis in "xyz"], -1)
    sun = torch.tensor([*SUN_DIRECTION, *SUN_RIGHT, *SUN_UP, 0.0, 0.0, 0.0], device=stage.device)
    placed = torch.cat([lamps, sun.expand(views, 1, 12)], 1)
    sides = [*(side for _, _, side in LAMPS), 0.0]
    looks = torch.tensor([[side, *(row[lamp] for row in LAMP_COLOR)] for lamp, side in enumerate(sides)])
    return torch.cat([placed, looks.to(stage.device).expand(views, 4, 4)], -1).contiguous()


@triton.jit(do_not_specialize=["count", "slots", "bounces", "first"])
def _trace(
    light, table, looks, lamps, circle, view, slot, key, rank, blurred, vectors, count, slots, bounces, first,
    BENT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    alive = at < count
    row = tl.load(view + at, mask=alive, other=0)
    own = tl.load(slot + at, mask=alive, other=-1)
    seed = tl.load(key + at, mask=alive, other=0)
    turn = tl.load(rank + at, mask=alive, other=0.0)
    dim = tl.load(blurred + at, mask=alive, other=0) != 0
    count = count.to(tl.int64)
    x, y, z = _column(vectors + at, count, alive)
    a, b, c = _column(vectors + 3 * count + at, count, alive)
    e, f, g = _column(vectors + 6 * count + at, count, alive)
    u, v, w = _column(vectors + 9 * count + at, count, alive)
    red, green, blue = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    carry_r, carry_g, carry_b = red + 1.0, green + 1.0, blue + 1.0
    mirrored = at < 0
    # Step `first` is the first on an object: 1 when the path starts on the ground, along a given heading.
    left = bounces + first
    for step in range(left + 1):
        if tl.max(alive.to(tl.int32), 0) > 0:
            if step >= first:
                look = looks + (row * slots + own) * 4
                color_r, color_g, color_b = _column(look, 1, alive)
                metal = tl.load(look + 3, mask=alive, other=0.0) > 0.5
                body = table + (row * slots + own) * 8
                ax, ay, az, bx, by, bz = _metal_frame(body, x, y, z, a, b, c, alive)
                lit_r, lit_g, lit_b = _direct(
                    table, lamps, circle, row, own, slots, seed, turn, dim, metal, color_r, color_g, color_b,
                    x, y, z, a, b, c, e, f, g, ax, ay, az, bx, by, bz, alive, BLOCK,
                )  # fmt: skip
                red += carry_r * lit_r
                green += carry_g * lit_g
                blue += carry_b * lit_b
                u, v, w, weight, glossy, sharp, mirrored = _scatter(
                    circle, seed, turn, dim, metal, a, b, c, e, f, g, ax, ay, az, bx, by, bz, alive
                )
                carry_r *= tl.where(glossy, _GLOSS, color_r) * weight
                carry_g *= tl.where(glossy, _GLOSS, color_g) * weight
                carry_b *= tl.where(glossy, _GLOSS, color_b) * weight
                dim = dim | (sharp == 0)
            alive = alive & (at * 0 + step < left)
            seed = _mix(_mix(seed, 1001 + left - step - 1), turn.to(tl.int64))
            turn = turn * 0.0
            entry, hit = _nearest(table, row, own, slots, x, y, z, u, v, w, alive, BLOCK)
            plane, ga, gb, gc = _ground_hit(x, y, z, u, v, w, BENT)
            seen_r, seen_g, seen_b = _lamps_seen(
                lamps, row, x, y, z, u, v, w, tl.minimum(entry, plane), mirrored & alive, BLOCK
            )
            to_ground = alive & (plane < entry)
            far = tl.where(to_ground, plane, 0.0)
            ground_r, ground_g, ground_b = _ground(
                table, lamps, circle, row, slots, seed, turn,
                x + u * far, y + v * far, z + w * far, ga, gb, gc, to_ground, BLOCK,
            )  # fmt: skip
            red += tl.where(alive, carry_r * (seen_r + ground_r), 0.0)
            green += tl.where(alive, carry_g * (seen_g + ground_g), 0.0)
            blue += tl.where(alive, carry_b * (seen_b + ground_b), 0.0)
            alive = alive & (entry < plane)
            own = tl.where(alive, hit, 0)
            near = tl.where(alive, entry, 0.0)
            x, y, z = x + u * near, y + v * near, z + w * near
            a, b, c = _normal(table + (row * slots + own) * 8, x, y, z, alive)
            e, f, g = -u, -v, -w
    real = at < count
    tl.store(light + at, red, mask=real)
    tl.store(light + count + at, green, mask=real)
    tl.store(light + 2 * count + at, blue, mask=real)


# --- Vectors and noise ------------------------------------------------------------------------------------------------


@triton.jit
def _column(start, step, alive):
    """Three numbers `step` apart."""
    first, second = tl.load(start, mask=alive, other=0.0), tl.load(start + step, mask=alive, other=0.0)
    return first, second, tl.load(start + 2 * step, mask=alive, other=0.0)


@triton.jit
def _unit(x, y, z):
    scale = tl.div_rn(1.0, tl.sqrt_rn(tl.maximum(x * x + y * y + z * z, 1e-20)))
    return x * scale, y * scale, z * scale


@triton.jit
def _mix(key, word):
    x = (key + (key * 0 + word) * 0x9E3779B9) & 0xFFFFFFFF  # key * 0: the word as int64
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return x ^ (x >> 16)


@triton.jit
def _stretch(key, turn, word, step):
    value = (_mix(key, word) >> 8).to(tl.float32) * 5.9604644775390625e-08 + turn * step
    return value - tl.floor(value)


@triton.jit
def _noise(key, turn, dimension):
    first = _stretch(key, turn, 3 * dimension + 1, 0.8191725133961645)
    second = _stretch(key, turn, 3 * dimension + 2, 0.6710436067037893)
    third = _stretch(key, turn, 3 * dimension + 3, 0.5497004779019703)
    return first, second, third


@triton.jit
def _turn(share, circle, alive):
    step = (share * _TURN_STEPS).to(tl.int64)
    return tl.load(circle + step, mask=alive, other=1.0), tl.load(circle + _TURN_STEPS + step, mask=alive, other=0.0)


# --- Rays -------------------------------------------------------------------------------------------------------------


@triton.jit
def _nearest(table, row, own, slots, x, y, z, u, v, w, alive, BLOCK: tl.constexpr):
    entry = tl.full((BLOCK,), float("inf"), tl.float32)
    hit = tl.zeros((BLOCK,), tl.int64)
    for slot in range(slots):
        found = enter_body(table + (row * slots + slot) * 8, x, y, z, u, v, w, alive & (own != slot), BLOCK)
        hit = tl.where(found < entry, slot, hit)
        entry = tl.minimum(entry, found)
    return entry, hit


@triton.jit
def _clear(table, row, own, slots, x, y, z, u, v, w, asked, BLOCK: tl.constexpr):
    for slot in range(slots):
        found = enter_body(table + (row * slots + slot) * 8, x, y, z, u, v, w, asked & (own != slot), BLOCK)
        asked = asked & (found == float("inf"))
    return asked


@triton.jit
def _normal(body, x, y, z, alive):
    radius = tl.load(body + 3, mask=alive, other=1.0)
    cos, sin = tl.load(body + 4, mask=alive, other=1.0), tl.load(body + 5, mask=alive, other=0.0)
    kind = tl.load(body + 7, mask=alive, other=0.0)
    scale = tl.div_rn(1.0, radius)
    px = x - tl.load(body, mask=alive, other=0.0)
    py = y - tl.load(body + 1, mask=alive, other=0.0)
    pz = z - tl.load(body + 2, mask=alive, other=0.0)
    lx, ly, lz = (cos * px + sin * py) * scale, (cos * py - sin * px) * scale, pz * scale
    _, bx, by, bz = box_distance(lx, ly, lz)
    _, cx, cy, cz = can_distance(lx, ly, lz)
    ball, box = kind < 0.5, kind < 1.5
    lx = tl.where(ball, lx, tl.where(box, bx, cx))
    ly = tl.where(ball, ly, tl.where(box, by, cy))
    lz = tl.where(ball, lz, tl.where(box, bz, cz))
    return _unit(cos * lx - sin * ly, sin * lx + cos * ly, lz)


@triton.jit
def _ground_hit(x, y, z, u, v, w, BENT: tl.constexpr):
    falls = w < -1e-6
    plane = tl.where(falls, tl.div_rn(-z, tl.where(falls, w, -1.0)), float("inf"))
    a, b, c = w * 0.0, w * 0.0, w * 0.0 + 1.0
    if BENT:
        start = x * _BEHIND_X + y * _BEHIND_Y
        speed = u * _BEHIND_X + v * _BEHIND_Y
        bends = (start + speed * tl.minimum(plane, 1e6) > _SWEEP_START) & (speed > 0)
        across, above = start - _SWEEP_START, z - _SWEEP_RADIUS
        square = tl.maximum(speed * speed + w * w, 1e-12)
        half = across * speed + above * w
        root = half * half - square * (across * across + above * above - _SWEEP_RADIUS * _SWEEP_RADIUS)
        arc = tl.div_rn(-half + tl.sqrt_rn(tl.maximum(root, 0.0)), square)
        ends = (root <= 0) | (z + w * arc > _SWEEP_RADIUS)
        plane = tl.where(bends, tl.where(ends, float("inf"), arc), plane)
        inward = (across + speed * arc) / _SWEEP_RADIUS
        a = tl.where(bends, -inward * _BEHIND_X, a)
        b = tl.where(bends, -inward * _BEHIND_Y, b)
        c = tl.where(bends, -(above + w * arc) / _SWEEP_RADIUS, c)
    return plane, a, b, c


# --- Lamps ------------------------------------------------------------------------------------------------------------


@triton.jit
def _lamp_sample(lamp, index, circle, seed, turn, x, y, z, alive):
    """Direction to a point on lamp `index`, and its strength."""
    s, t, _ = _noise(seed, turn, index)
    qx, qy, qz = _column(lamp, 1, alive)
    rx, ry, rz = _column(lamp + 3, 1, alive)
    ux, uy, uz = _column(lamp + 6, 1, alive)
    mx, my, mz = _column(lamp + 9, 1, alive)
    side = tl.load(lamp + 12, mask=alive, other=0.0)
    if index == 3:
        cos, sin = _turn(t, circle, alive)
        reach = tl.sqrt_rn(s) * _SUN_TANGENT
        aside, above = reach * cos, reach * sin
        lx, ly, lz = _unit(qx + rx * aside + ux * above, qy + ry * aside + uy * above, qz + rz * aside + uz * above)
        strength = s * 0.0 + 1.0
    else:
        aside, above = (s - 0.5) * side, (t - 0.5) * side
        lx, ly, lz = (
            qx + rx * aside + ux * above - x,
            qy + ry * aside + uy * above - y,
            qz + rz * aside + uz * above - z,
        )
        square = lx * lx + ly * ly + lz * lz
        scale = tl.div_rn(1.0, tl.sqrt_rn(square))
        lx, ly, lz = lx * scale, ly * scale, lz * scale
        strength = tl.div_rn(tl.maximum(-(lx * mx + ly * my + lz * mz), 0.0) * (side * side), square)
    return lx, ly, lz, strength


@triton.jit
def _ground(
    table, lamps, circle, row, slots, seed, turn, x, y, z, a, b, c, asked, BLOCK: tl.constexpr
):  # fmt: skip
    """Direct light that ground points send out."""
    red, green, blue = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    if tl.max(asked.to(tl.int32), 0) > 0:
        none = tl.full((BLOCK,), -1, tl.int64)
        for index in range(4):
            lamp = lamps + (row * 4 + index) * 16
            lx, ly, lz, strength = _lamp_sample(lamp, index, circle, seed, turn, x, y, z, asked)
            strength = strength * tl.maximum(a * lx + b * ly + c * lz, 0.0)
            open_ = _clear(table, row, none, slots, x, y, z, lx, ly, lz, asked & (strength > 0), BLOCK)
            strength = tl.where(open_, strength * (_ALBEDO / _PI), 0.0)
            lamp_r, lamp_g, lamp_b = _column(lamp + 13, 1, asked)
            red, green, blue = red + strength * lamp_r, green + strength * lamp_g, blue + strength * lamp_b
    return red, green, blue


@triton.jit
def _lamps_seen(lamps, row, x, y, z, u, v, w, nearest, asked, BLOCK: tl.constexpr):
    """Lamps and sun that show directly along mirrored rays."""
    aim = u * _SUN_X + v * _SUN_Y + w * _SUN_Z
    disc = (aim > 0) & (1 - aim * aim < aim * aim * (_SUN_TANGENT * _SUN_TANGENT))
    red = tl.where(asked & disc & (nearest == float("inf")), _SUN_RADIANCE, 0.0)
    green, blue = red, red
    if tl.max(asked.to(tl.int32), 0) > 0:
        for index in range(3):
            lamp = lamps + (row * 4 + index) * 16
            ox, oy, oz = _column(lamp, 1, asked)
            ox, oy, oz = ox - x, oy - y, oz - z
            rx, ry, rz = _column(lamp + 3, 1, asked)
            ux, uy, uz = _column(lamp + 6, 1, asked)
            mx, my, mz = _column(lamp + 9, 1, asked)
            half = tl.load(lamp + 12, mask=asked, other=0.0) / 2
            speed = -(u * mx + v * my + w * mz)
            distance = tl.div_rn(-(ox * mx + oy * my + oz * mz), tl.where(speed > 1e-6, speed, 1.0))
            dx, dy, dz = u * distance - ox, v * distance - oy, w * distance - oz
            right, up = dx * rx + dy * ry + dz * rz, dx * ux + dy * uy + dz * uz
            seen = (
                asked
                & (speed > 1e-6)
                & (distance > 0)
                & (distance < nearest)
                & (tl.abs(right) < half)
                & (tl.abs(up) < half)
            )
            lamp_r, lamp_g, lamp_b = _column(lamp + 13, 1, seen)
            red, green, blue = red + lamp_r, green + lamp_g, blue + lamp_b
    return red, green, blue


# --- Materials --------------------------------------------------------------------------------------------------------


@triton.jit
def _fresnel(cosine, index):
    root = tl.sqrt_rn(cosine * cosine + (index * index - 1))
    first = tl.div_rn(root - cosine, root + cosine)
    second = tl.div_rn(cosine * (root + cosine) - 1, cosine * (root - cosine) + 1)
    return 0.5 * first * first * (1 + second * second)


@triton.jit
def _beckmann_shadowing(cosine):
    value = tl.div_rn(cosine, tl.sqrt_rn(tl.maximum(1 - cosine * cosine, 1e-7)) * _GLOSS_ALPHA)
    fit = tl.div_rn(3.535 * value + 2.181 * value * value, 1 + 2.276 * value + 2.577 * value * value)
    return tl.where(value < 1.6, fit, 1.0)


@triton.jit
def _rubber(a, b, c, e, f, g, lx, ly, lz):
    """Diffuse factor (times the colour) and gloss towards a lamp."""
    nv, nl = tl.maximum(a * e + b * f + c * g, 1e-3), tl.maximum(a * lx + b * ly + c * lz, 0.0)
    hx, hy, hz = _unit(e + lx, f + ly, g + lz)
    nh = tl.minimum(tl.maximum(a * hx + b * hy + c * hz, 1e-4), 1.0)
    hv = tl.maximum(hx * e + hy * f + hz * g, 1e-4)
    cos2 = nh * nh
    sin2 = tl.maximum(1 - cos2, 1e-6)
    gloss_share, velvet_share = _fresnel(nv, _GLOSS_INDEX), _fresnel(nv, _VELVET_INDEX)
    spread = tl.div_rn(tl.exp(tl.div_rn(-cos2, sin2 * (_VELVET * _VELVET))), sin2 * sin2 * (_VELVET * _VELVET * _PI))
    masking = tl.minimum(tl.div_rn(2 * nh * tl.minimum(nv, nl), hv), 1.0)
    velvet = tl.div_rn(0.25 * spread * masking, nv)
    alpha2 = _GLOSS_ALPHA * _GLOSS_ALPHA
    beckmann = tl.div_rn(tl.exp(tl.div_rn(-sin2, cos2 * alpha2)), cos2 * cos2 * (_PI * alpha2))
    gloss = beckmann * (_GLOSS * 0.25) * _beckmann_shadowing(nv) * _beckmann_shadowing(tl.maximum(nl, 1e-3))
    gloss = tl.where(nl > 0, tl.div_rn(gloss, nv), 0.0)
    return (1 - gloss_share) * ((1 - velvet_share) * nl / _PI + velvet_share * velvet), gloss_share * gloss


@triton.jit
def _metal_frame(body, x, y, z, a, b, c, alive):
    cos, sin = tl.load(body + 4, mask=alive, other=1.0), tl.load(body + 5, mask=alive, other=0.0)
    px, py = x - tl.load(body, mask=alive, other=0.0), y - tl.load(body + 1, mask=alive, other=0.0)
    lx, ly = cos * px + sin * py, cos * py - sin * px
    around_x, around_y = cos * -ly - sin * lx, sin * -ly + cos * lx
    bx, by, bz = around_y * c, -around_x * c, around_x * b - around_y * a
    lost = bx * bx + by * by + bz * bz < 1e-12
    bx, by, bz = _unit(tl.where(lost, 1.0, bx), by, bz)
    return b * bz - c * by, c * bx - a * bz, a * by - b * bx, bx, by, bz


@triton.jit
def _smith(along, across, cosine, wide_x, wide_y):
    first, second = along * wide_x, across * wide_y
    slope2 = tl.div_rn(first * first + second * second, tl.maximum(cosine * cosine, 1e-7))
    return 0.5 * (tl.sqrt_rn(1 + slope2) - 1)


@triton.jit
def _metal(a, b, c, e, f, g, lx, ly, lz, ax, ay, az, bx, by, bz, share, alpha):
    """Factor (times the colour) of the rough lobe towards a lamp."""
    wide_x, wide_y = alpha * _NARROW, alpha * _WIDE
    nv, nl = tl.maximum(a * e + b * f + c * g, 1e-3), tl.maximum(a * lx + b * ly + c * lz, 0.0)
    hx, hy, hz = _unit(e + lx, f + ly, g + lz)
    first, second, third = (
        (hx * ax + hy * ay + hz * az) / wide_x,
        (hx * bx + hy * by + hz * bz) / wide_y,
        hx * a + hy * b + hz * c,
    )
    ellipse = first * first + second * second + third * third
    density = tl.div_rn(1.0, wide_x * wide_y * _PI * ellipse * ellipse)
    hidden = _smith(e * ax + f * ay + g * az, e * bx + f * by + g * bz, nv, wide_x, wide_y)
    unlit = _smith(lx * ax + ly * ay + lz * az, lx * bx + ly * by + lz * bz, nl, wide_x, wide_y)
    return tl.where(nl > 0, tl.div_rn(share * 0.25 * density, nv * (1 + hidden + unlit)), 0.0)


@triton.jit
def _direct(
    table, lamps, circle, row, own, slots, seed, turn, dim, metal, color_r, color_g, color_b,
    x, y, z, a, b, c, e, f, g, ax, ay, az, bx, by, bz, alive, BLOCK: tl.constexpr,
):  # fmt: skip
    """Direct light that object points send to their viewers."""
    red, green, blue = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    share, alpha = tl.where(dim, 1.0, _ROUGH_SHARE), tl.where(dim, _BLURRED_ALPHA, _ROUGH_ALPHA)
    for index in range(4):
        lamp = lamps + (row * 4 + index) * 16
        lx, ly, lz, strength = _lamp_sample(lamp, index, circle, seed, turn, x, y, z, alive)
        asked = alive & (a * lx + b * ly + c * lz > 0) & (strength > 0)
        open_ = _clear(table, row, own, slots, x, y, z, lx, ly, lz, asked, BLOCK)
        diffuse, gloss = _rubber(a, b, c, e, f, g, lx, ly, lz)
        shine = _metal(a, b, c, e, f, g, lx, ly, lz, ax, ay, az, bx, by, bz, share, alpha)
        factor, white = tl.where(metal, shine, diffuse), tl.where(metal, 0.0, gloss)
        strength = tl.where(open_, strength, 0.0)
        lamp_r, lamp_g, lamp_b = _column(lamp + 13, 1, alive)
        red += (color_r * factor + white) * strength * lamp_r
        green += (color_g * factor + white) * strength * lamp_g
        blue += (color_b * factor + white) * strength * lamp_b
    return red, green, blue


@triton.jit
def _facet_lambda(cosine, alpha):
    return 0.5 * (tl.sqrt_rn(1 + alpha * alpha * (tl.div_rn(1.0, cosine * cosine) - 1)) - 1)


@triton.jit
def _scatter(circle, seed, turn, dim, metal, a, b, c, e, f, g, ax, ay, az, bx, by, bz, alive):
    """A direction, the weight it carries, and the lobe that sent it: glossy, sharp (any facet), mirror."""
    s, t, pick = _noise(seed, turn, 9)
    cos, sin = _turn(t, circle, alive)
    nv = tl.maximum(a * e + b * f + c * g, 1e-3)
    mirror = metal & (dim == 0) & (pick < _MIRROR_SHARE)
    gloss = _fresnel(nv, _GLOSS_INDEX)
    glossy = (metal == 0) & (pick < gloss)
    s = tl.minimum(s, 0.9999)
    slope = tl.where(glossy, tl.sqrt_rn(-tl.log(1 - s)) * _GLOSS_ALPHA, tl.sqrt_rn(tl.div_rn(s, 1 - s)))
    lobe = tl.where(mirror, _MIRROR_ALPHA, tl.where(dim, _BLURRED_ALPHA, _ROUGH_ALPHA))
    tilt_x = tl.where(glossy, 1.0, lobe * _NARROW) * slope * cos
    tilt_y = tl.where(glossy, 1.0, lobe * _WIDE) * slope * sin
    fx, fy, fz = _unit(a + ax * tilt_x + bx * tilt_y, b + ay * tilt_x + by * tilt_y, c + az * tilt_x + bz * tilt_y)
    towards = e * fx + f * fy + g * fz
    flat, high = tl.sqrt_rn(s), tl.sqrt_rn(1 - s)
    along, across = flat * cos, flat * sin
    sharp = metal | glossy
    u = tl.where(sharp, fx * (2 * towards) - e, a * high + ax * along + bx * across)
    v = tl.where(sharp, fy * (2 * towards) - f, b * high + ay * along + by * across)
    rise = c * high + az * along + bz * across
    rise = tl.where(pick - gloss > (1 - gloss) * _FREE, -tl.abs(rise), rise)
    w = tl.where(sharp, fz * (2 * towards) - g, rise)
    u, v, w = _unit(u, v, w)
    rise = u * a + v * b + w * c
    masking = tl.div_rn(1.0, 1 + _facet_lambda(nv, lobe) + _facet_lambda(tl.maximum(rise, 1e-3), lobe))
    weight = tl.div_rn(masking * tl.maximum(towards, 0.0), nv * tl.maximum(fx * a + fy * b + fz * c, 1e-3))
    image = tl.maximum(rise - 2 * c * w, 0.0)
    down = tl.div_rn(rise, tl.maximum(rise + image * (1 - _FREE), 1e-6))
    folded = tl.where(w < 0, down, 1 / _FREE) * (1 - _fresnel(nv, _VELVET_INDEX))
    weight = tl.where(sharp, tl.minimum(weight, 4.0), folded)
    return u, v, w, tl.where(rise > 0, weight, 0.0), glossy, sharp, mirror
