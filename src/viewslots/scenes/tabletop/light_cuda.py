"""What points look like as Triton kernels: the operations of light.py in the same order.

light.py explains the formulas; tests hold the twins together.
"""

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from viewslots.scenes.film import TURN_STEPS
from viewslots.scenes.tabletop.coat_cuda import (
    ALPHA,
    FINISH,
    GLOSS,
    NORMAL,
    VIEWER,
    black,
    coat_at,
    fraction,
    ggx,
    hash_word,
    point_vectors,
    reflected,
    smith,
)
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
    our_rays,
    some,
    stacked,
    store3,
    surface_normal,
    three,
    unit,
)
from viewslots.scenes.tabletop.stage import Lamps, Rows, Stage, Surroundings
from viewslots.scenes.vectors import Vec

_NORMAL, _RIGHT, _UP, _RADIANCE, _AREA, _LAMP = columns_of(
    Lamps, "normal", "right", "up", "radiance", "area", "end", begins="center"
)
_SKY, _PEDESTAL = columns_of(Surroundings, "environment", "pedestal")
_OFFSET, _NEAR, _BLURRED, _BRIGHTEST = (tl.constexpr(value) for value in (OFFSET, NEAR, BLURRED, BRIGHTEST))
_OVER_PI, _TURN_STEPS = tl.constexpr(1 / math.pi), tl.constexpr(TURN_STEPS)
_DENSITY = tl.constexpr(4)
"""Row of densities in what `_lamps_ahead` finds, after distances and radiances."""
(_A0, _B0), (_A1, _B1), (_A2, _B2), (_A3, _B3) = (tuple(map(tl.constexpr, pair)) for pair in STEPS)


@dataclass(frozen=True)
class _Hits(Rows):
    """What thrown rays meet, as `_throw` leaves it to `_bounced`: a row [P] for each column here."""

    light: Vec
    """Radiance of lamp or sky."""
    weight: Tensor
    finish: Tensor
    """-1: of lamp or sky."""
    point: Vec
    normal: Vec
    heading: Vec


_HIT_WEIGHT, _HIT_FINISH, _HIT_POINT, _HIT_NORMAL, _HIT_HEADING, _HIT = columns_of(
    _Hits, "weight", "finish", "point", "normal", "heading", "end", begins="light"
)


def bounced_cuda(stage: Stage, points: Points, coat: Coat) -> Vec:
    """See `light.bounced`."""
    count = len(points.row)
    light, sky, hits = (torch.empty(n, count, device=stage.device) for n in (3, 1, 2 * _HIT.value))
    table = stage.tables
    row, key, sample, vectors, looks, metal = _columns(points, coat)
    if count:
        _open_sky[blocks(count)](
            sky, table.objects, table.parts, table.pieces, table.faces, table.around,
            row, key, sample, vectors, metal, count, stage.slots, **LAUNCH,
        )  # fmt: skip
        _throw[blocks(count)](
            hits, table.objects, table.parts, table.pieces, table.faces, table.lamps, table.around, stage.circle,
            row, key, sample, vectors, looks, metal, count, stage.slots, stage.lamp_slots, **LAUNCH,
        )  # fmt: skip
        _bounced[blocks(count)](
            light, hits, sky, table.objects, table.parts, table.pieces, table.faces, table.finishes, table.lamps,
            table.around, row, key, sample, looks, metal, count, stage.slots, stage.lamp_slots, **LAUNCH,
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


def _columns(points: Points, coat: Coat) -> tuple[Tensor, ...]:
    """Row, key, sample and vectors of points, and their materials."""
    words = (points.row, points.place.key, points.place.sample)
    looks = torch.stack([coat.color.x, coat.color.y, coat.color.z, coat.alpha, coat.gloss])
    return *(word.contiguous() for word in words), point_vectors(points), looks, coat.metal.contiguous()


@triton.jit(do_not_specialize=["count", "lamp_slots"])
def _lamps_ahead(found, lamps, row, rays, nearest, count, lamp_slots, BLOCK: tl.constexpr):
    at, real, scene, first, last, x, y, z, u, v, w = our_rays(row, rays, count, BLOCK)
    count = count.to(tl.int64)
    limit = tl.load(nearest + at, mask=real, other=0.0)
    for number in range(first, last + 1):
        reach, red, green, blue, density = _lamps_before(
            lamps + number * lamp_slots * _LAMP, lamp_slots, x, y, z, u, v, w, limit, BLOCK
        )
        asked = real & (scene == number)
        tl.store(found + at, reach, mask=asked)
        store3(found + count + at, count, red, green, blue, asked)
        tl.store(found + _DENSITY * count + at, density, mask=asked)


@triton.jit(do_not_specialize=["count", "slots", "lamp_slots"])
def _lit_by_lamps(
    light, taken, full, objects, parts, pieces, faces, lamps, around, row, key, sample, vectors, looks, metals,
    count, slots, lamp_slots, SHADOWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at, real, scene, first, last, word, turn, metal = _our_points(row, key, sample, metals, count, BLOCK)
    count = count.to(tl.int64)
    x, y, z = column(vectors + at, count, real)
    a, b, c = column(vectors + NORMAL * count + at, count, real)
    e, f, g = column(vectors + VIEWER * count + at, count, real)
    color_r, color_g, color_b = column(looks + at, count, real)
    alpha = tl.load(looks + ALPHA * count + at, mask=real, other=1.0)
    gloss = tl.load(looks + GLOSS * count + at, mask=real, other=0.0)
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
            factor, white = reflected(alpha, gloss, metal, a, b, c, e, f, g, u, v, w, density, True)
            red = red + (color_r * factor + white) * lamp_r * strength
            green = green + (color_g * factor + white) * lamp_g * strength
            blue = blue + (color_b * factor + white) * lamp_b * strength
        store3(light + at, count, red, green, blue, asked)
        if SHADOWS:
            tl.store(full + at, total, mask=asked)


@triton.jit(do_not_specialize=["count", "slots"])
def _open_sky(
    sky, objects, parts, pieces, faces, around, row, key, sample, vectors, metals, count, slots, BLOCK: tl.constexpr
):  # fmt: skip
    """Irradiance over pi by a sample of an environment of radiance 1, shadows included."""
    at, real, scene, first, last, word, turn, metal = _our_points(row, key, sample, metals, count, BLOCK)
    count = count.to(tl.int64)
    x, y, z = column(vectors + at, count, real)
    a, b, c = column(vectors + NORMAL * count + at, count, real)
    s, t = _even(word, turn, 31, _A3, _B3)
    for number in range(first, last + 1):
        asked = real & (scene == number) & (metal == 0)
        about = around + number * AROUND
        u, v, w, distance, strength = _sky_light(about, x, y, z, a, b, c, s, t)
        strength, hidden = _shadowed(
            objects + number * slots * OBJECT, parts, pieces, faces, about, slots,
            x, y, z, a, b, c, u, v, w, distance, strength, asked, False, BLOCK,
        )  # fmt: skip
        tl.store(sky + at, tl.where(hidden != 0, 0.0, strength * _OVER_PI), mask=asked)


@triton.jit(do_not_specialize=["count", "slots", "lamp_slots"])
def _throw(
    hits, objects, parts, pieces, faces, lamps, around, circle, row, key, sample, vectors, looks, metals,
    count, slots, lamp_slots, BLOCK: tl.constexpr,
):  # fmt: skip
    """A scattered ray of each point, then a reflected one, and what they meet: the columns of `_Hits` of each."""
    at, real, scene, first, last, word, turn, metal = _our_points(row, key, sample, metals, count, BLOCK)
    count = count.to(tl.int64)
    px, py, pz = column(vectors + at, count, real)
    na, nb, nc = column(vectors + NORMAL * count + at, count, real)
    e, f, g = column(vectors + VIEWER * count + at, count, real)
    alpha = tl.load(looks + ALPHA * count + at, mask=real, other=1.0)
    gloss = tl.load(looks + GLOSS * count + at, mask=real, other=0.0)
    for number in range(first, last + 1):
        for lobe in range(2):
            diffuse = lobe == 0
            thrown = real & (scene == number) & (gloss > 0)
            if diffuse:
                thrown = real & (scene == number) & (metal == 0)
            if some(thrown):
                u, v, w, weight, density = _thrown(diffuse, circle, word, turn, alpha, na, nb, nc, e, f, g, real)
                x, y, z = px + na * _OFFSET, py + nb * _OFFSET, pz + nc * _OFFSET
                about = around + number * AROUND
                red, green, blue, far, a, b, c, finish = _met(
                    objects + number * slots * OBJECT, parts, pieces, faces, lamps + number * lamp_slots * _LAMP,
                    about, slots, lamp_slots, diffuse, x, y, z, u, v, w, density, thrown, BLOCK,
                )  # fmt: skip
                to = hits + lobe * _HIT * count + at
                store3(to, count, red, green, blue, thrown)
                tl.store(to + _HIT_WEIGHT * count, weight, mask=thrown)
                tl.store(to + _HIT_FINISH * count, finish, mask=thrown)
                store3(to + _HIT_POINT * count, count, x + u * far, y + v * far, z + w * far, thrown)
                store3(to + _HIT_NORMAL * count, count, a, b, c, thrown)
                store3(to + _HIT_HEADING * count, count, u, v, w, thrown)


@triton.jit(do_not_specialize=["count", "slots", "lamp_slots"])
def _bounced(
    light, hits, sky, objects, parts, pieces, faces, finishes, lamps, around, row, key, sample, looks, metals,
    count, slots, lamp_slots, BLOCK: tl.constexpr,
):  # fmt: skip
    """What the rays of `_throw` bring, as their points reflect it."""
    at, real, scene, first, last, word, turn, metal = _our_points(row, key, sample, metals, count, BLOCK)
    count = count.to(tl.int64)
    color_r, color_g, color_b = column(looks + at, count, real)
    gloss = tl.load(looks + GLOSS * count + at, mask=real, other=0.0)
    for number in range(first, last + 1):
        asked = real & (scene == number)
        about = around + number * AROUND
        red, green, blue = black(BLOCK)
        for lobe in range(2):
            thrown = asked & (gloss > 0)
            if lobe == 0:
                thrown = asked & (metal == 0)
            if some(thrown):
                hit = hits + lobe * _HIT * count + at
                in_r, in_g, in_b = column(hit, count, thrown)
                finish = tl.load(hit + _HIT_FINISH * count, mask=thrown, other=-1.0).to(tl.int32)
                x, y, z = column(hit + _HIT_POINT * count, count, thrown)
                a, b, c = column(hit + _HIT_NORMAL * count, count, thrown)
                u, v, w = column(hit + _HIT_HEADING * count, count, thrown)
                if some(finish >= 0):
                    seen_r, seen_g, seen_b = _glimpse(
                        objects + number * slots * OBJECT, parts, pieces, faces, finishes + finish * FINISH,
                        lamps + number * lamp_slots * _LAMP, about, slots, lamp_slots, word, turn,
                        x, y, z, a, b, c, -u, -v, -w, finish >= 0, BLOCK,
                    )  # fmt: skip
                    in_r, in_g = tl.where(finish >= 0, seen_r, in_r), tl.where(finish >= 0, seen_g, in_g)
                    in_b = tl.where(finish >= 0, seen_b, in_b)
                if lobe == 0:
                    strength = tl.load(sky + at, mask=thrown, other=0.0)
                    sky_r, sky_g, sky_b = three(about + _SKY)
                    wall_r, wall_g, wall_b = _pedestal(about)
                    in_r, in_g, in_b = _at_most(in_r, in_g, in_b, _BRIGHTEST)
                    in_r = color_r * (in_r + (sky_r - wall_r) * strength) * (1 - gloss)
                    in_g = color_g * (in_g + (sky_g - wall_g) * strength) * (1 - gloss)
                    in_b = color_b * (in_b + (sky_b - wall_b) * strength) * (1 - gloss)
                else:
                    share = tl.load(hit + _HIT_WEIGHT * count, mask=thrown, other=0.0) * gloss
                    in_r, in_g, in_b = in_r * share, in_g * share, in_b * share
                    in_r, in_g = tl.where(metal, color_r * in_r, in_r), tl.where(metal, color_g * in_g, in_g)
                    in_b = tl.where(metal, color_b * in_b, in_b)
                red, green = tl.where(thrown, red + in_r, red), tl.where(thrown, green + in_g, green)
                blue = tl.where(thrown, blue + in_b, blue)
        store3(light + at, count, red, green, blue, asked)


# --- Numbers ----------------------------------------------------------------------------------------------------------


@triton.jit
def _our_points(row, key, sample, metals, count, BLOCK: tl.constexpr):
    """See `our_points`; and the words of their noise, and which are metal."""
    at, real, scene, first, last = our_points(row, count, BLOCK)
    word = tl.load(key + at, mask=real, other=0).to(tl.uint32)
    turn = tl.load(sample + at, mask=real, other=0).to(tl.uint32)
    return at, real, scene, first, last, word, turn, tl.load(metals + at, mask=real, other=0) != 0


@triton.jit
def _at_most(first, second, third, most):
    return tl.minimum(first, most), tl.minimum(second, most), tl.minimum(third, most)


@triton.jit
def _mix(key, word):
    return hash_word(key + (key * 0 + word) * 0x9E3779B9)  # key * 0: the word as u32


@triton.jit
def _even(key, sample, stream, FIRST: tl.constexpr, SECOND: tl.constexpr):
    """`Places.even` with that row of `STEPS`."""
    start = _mix(key, stream)
    return fraction(start + sample * FIRST), fraction(_mix(start, 1) + sample * SECOND)


@triton.jit
def _turn(share, circle, asked):
    step = (share * _TURN_STEPS).to(tl.int32)
    return tl.load(circle + step, mask=asked, other=1.0), tl.load(circle + _TURN_STEPS + step, mask=asked, other=0.0)


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
def _lamps_before(lamps, lamp_slots, x, y, z, u, v, w, nearest, BLOCK: tl.constexpr):
    """`light.lamps_ahead`."""
    red, green, blue = black(BLOCK)
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
    u, v, w = black(BLOCK)
    red, green, blue = black(BLOCK)
    distance, strength, so_far = black(BLOCK)
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
    hidden = smith(nv, a2)
    weight = tl.div_rn(1 + hidden, 1 + hidden + smith(tl.maximum(rise, 1e-3), a2))
    lobe, density = ggx(alpha, a, b, c, e, f, g, u, v, w)
    u, v, w = tl.where(diffuse, dx, u), tl.where(diffuse, dy, v), tl.where(diffuse, dz, w)
    return u, v, w, tl.where(rise > 0, weight, 0.0), tl.where(diffuse, 0.0, density)


@triton.jit
def _pedestal(about):
    red, green, blue = three(about + _PEDESTAL)
    return _at_most(red, green, blue, _BRIGHTEST)


@triton.jit
def _met(
    objects, parts, pieces, faces, lamps, about, slots, lamp_slots, diffuse, x, y, z, u, v, w, density, asked,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """What rays meet: radiance of lamp or sky, or the distance, normal and finish of a surface."""
    distance, a, b, c, finish = meet_surroundings(about, x, y, z, u, v, w, asked)
    entry, part, item = nearest_object(objects, parts, pieces, faces, slots, x, y, z, u, v, w, distance, asked, BLOCK)
    nearest = tl.minimum(distance, entry)
    reach, red, green, blue, other = _lamps_before(lamps, lamp_slots, x, y, z, u, v, w, nearest, BLOCK)
    lit = reach < nearest
    seen = tl.div_rn(density, tl.maximum(density + other, 1e-9))
    red, green, blue = red * seen, green * seen, blue * seen
    gone = (nearest == float("inf")) & (lit == 0)
    sky_r, sky_g, sky_b = three(about + _SKY)
    wall_r, wall_g, wall_b = _pedestal(about)
    red = tl.where(gone, tl.where(diffuse, wall_r, sky_r), red)
    green = tl.where(gone, tl.where(diffuse, wall_g, sky_g), green)
    blue = tl.where(gone, tl.where(diffuse, wall_b, sky_b), blue)
    hit = asked & (nearest < float("inf")) & (lit == 0)
    onto = hit & (entry < distance)
    far = tl.where(hit, nearest, 0.0)
    if some(onto):
        oa, ob, oc, wears = surface_normal(
            parts + part * PART, pieces, faces, item, x + u * far, y + v * far, z + w * far, onto
        )
        a, b, c = tl.where(onto, oa, a), tl.where(onto, ob, b), tl.where(onto, oc, c)
        finish = tl.where(onto, wears, finish)
    side = tl.where(a * u + b * v + c * w > 0, -1.0, 1.0)
    return red, green, blue, far, a * side, b * side, c * side, tl.where(hit, finish, -1).to(tl.float32)


@triton.jit
def _glimpse(
    objects, parts, pieces, faces, finish, lamps, about, slots, lamp_slots, word, turn,
    x, y, z, a, b, c, e, f, g, asked, BLOCK: tl.constexpr,
):  # fmt: skip
    """Radiance of points that a bounced ray meets."""
    color_r, color_g, color_b, metal, alpha, gloss = coat_at(finish, x, y, z, a, b, c, e, f, g, _BLURRED, asked, BLOCK)
    red, green, blue = black(BLOCK)
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
            lamp_r, lamp_g, lamp_b = black(BLOCK)
            sky_r, sky_g, sky_b = three(about + _SKY)
            lamp_r, lamp_g, lamp_b = lamp_r + sky_r, lamp_g + sky_g, lamp_b + sky_b
        strength, hidden = _shadowed(
            objects, parts, pieces, faces, about, slots, x, y, z, a, b, c, u, v, w, distance, strength, asked,
            False, BLOCK,
        )  # fmt: skip
        strength = tl.where(hidden != 0, 0.0, tl.where(of_lamp, tl.minimum(strength, _NEAR), strength))
        factor, white = reflected(alpha, gloss, metal, a, b, c, e, f, g, u, v, w, strength, False)
        red = red + (color_r * factor + white) * lamp_r * strength
        green = green + (color_g * factor + white) * lamp_g * strength
        blue = blue + (color_b * factor + white) * lamp_b * strength
    return red, green, blue
