"""What a surface point looks like: direct light, one scattered ray, one reflected ray.

Sampling is spread evenly over the samples of a pixel and of its neighbours, which the film's filter joins; it depends
on view, pixel and sample alone, so pixels do not depend on batches.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from viewslots.kernels import has_triton
from viewslots.scenes.clevr.materials import fresnel
from viewslots.scenes.film import fraction, mix, turn
from viewslots.scenes.tabletop.meet import (
    ITEM_BITS,
    Rays,
    around_of,
    blocked_by,
    meet_objects,
    meet_surroundings,
    meet_table,
    normals,
    which,
)
from viewslots.scenes.tabletop.stage import Finishes, Lamps, Rows, Stage, Surroundings, taken
from viewslots.scenes.tabletop.textures import PATTERNS, share
from viewslots.scenes.vectors import Vec

OFFSET = 2e-4
"""Metres that rays start above their surface."""
BRIGHTEST = 2.0
"""Most radiance that a scattered ray brings, where white paper has about 1: no bright dots by mirrors."""
NEAR = 2 * math.pi
"""Most irradiance that one sample of a lamp of radiance 1 may stand for after a bounce; the true one is at most pi."""
BLURRED = 0.3
"""Least alpha of surfaces that are met after a bounce."""
STEPS = ((0xCB2042B8, 0xB02451EC), (0x46BD3A56, 0xB2AC8118), (0x36A9536F, 0x3BBA738C), (0x8B825D40, 0xC6CC571C))
"""From a sample of a pixel to the next, in two coordinates, over 2^32. Found by search: what the filter leaves of
slow waves in the sampled square is little."""


@dataclass(frozen=True)
class Places(Rows):
    """Where samples lie in pictures: all that their noise depends on."""

    key: Tensor
    """[P] of the pixel. Pixels are independent: evenness over neighbours showed as a weave on plain surfaces."""
    sample: Tensor

    def even(self, stream: int, steps: int = 0) -> tuple[Tensor, Tensor]:
        """Two numbers in [0, 1) a sample, spread evenly over the samples of a pixel."""
        start = mix(self.key, stream)
        first, second = (
            (word + self.sample * step) & 0xFFFFFFFF
            for word, step in zip((start, mix(start, 1)), STEPS[steps], strict=True)
        )
        return fraction(first), fraction(second)


@dataclass(frozen=True)
class Points(Rows):
    """P surface points that someone looks at. Normals point to the side of the viewer."""

    row: Tensor
    position: Vec
    normal: Vec
    viewer: Vec
    finish: Tensor
    place: Places

    def rays(self, heading: Vec) -> Rays:
        return Rays(self.row, self.position + self.normal.scaled(torch.full_like(self.normal.x, OFFSET)), heading)


@dataclass(frozen=True)
class Coat(Rows):
    """The materials of points."""

    color: Vec
    metal: Tensor
    alpha: Tensor
    gloss: Tensor
    """Share of the glossy lobe: Fresnel's, 1 for metal."""


def coat_of(stage: Stage, points: Points, least: float = 0.0) -> Coat:
    """What points are made of, with an alpha of at `least` that."""
    if has_triton(stage.device):
        from viewslots.scenes.tabletop.coat_cuda import coat_cuda

        return coat_cuda(stage, points, least)
    finish = stage.finishes.take(points.finish)
    facing = points.normal.dot(points.viewer).clamp(1e-3, 1)
    gloss = torch.where(finish.metal, 1.0, fresnel(facing, finish.ior))  # type: ignore[arg-type]
    return Coat(texture(finish, points.position), finish.metal, finish.alpha.clamp_min(least), gloss)


def texture(finish: Finishes, position: Vec) -> Vec:
    """Colours of points."""
    at = finish.to_texture.point(position)
    part = torch.zeros_like(at.x)
    for number, pattern in enumerate(PATTERNS):
        if pattern != "plain":
            index = which(finish.pattern == number)
            part[index] = share(torch, pattern, at.x[index], at.y[index], at.z[index])
    return finish.first + (finish.second - finish.first).scaled(part)


# --- Lamps ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lit:
    """Light from one sample of a lamp at each point, shadows not yet asked for."""

    heading: Vec
    distance: Tensor
    strength: Tensor
    """Irradiance for a radiance of 1."""
    radiance: Vec
    density: Tensor
    """How densely the lamp is sampled: one over its solid angle, as a point of it sees it."""


def lamp_of(stage: Stage, row: Tensor, lamp: Tensor | int) -> Lamps:
    if stage.rows == 1 and isinstance(lamp, int):
        return stage.lamps.take(torch.tensor([lamp], device=row.device))
    return stage.lamps.take(row * stage.lamp_slots + lamp)


def shine(lamp: Lamps, points: Points, u: Tensor, v: Tensor) -> Lit:
    spot = lamp.center + lamp.right.scaled(u - 0.5) + lamp.up.scaled(v - 0.5)
    path = spot - points.position
    square = path.dot(path).clamp_min(1e-8)
    distance = torch.sqrt(square)
    heading = path.scaled(1 / distance)
    angle = lamp.area * (-lamp.normal.dot(heading)).clamp_min(0) / square
    strength = angle * points.normal.dot(heading).clamp_min(0)
    return Lit(heading, distance, strength, lamp.radiance, 1 / angle.clamp_min(1e-9))


def sky_light(around: Surroundings, points: Points, u: Tensor, v: Tensor) -> Lit:
    """The environment as a lamp: what arrives from it comes through the rectangle above the walls.

    Points of the rectangle are drawn by a density 1 / (1 + |x|)^2 a side, with x from the foot of the point and in
    units of its depth below: about where the light comes from.
    """
    x = points.position.x - around.room_x
    y = points.position.y - around.room_y
    x, y = around.room_cos * x + around.room_sin * y, around.room_cos * y - around.room_sin * x
    depth = (around.room_top - points.position.z).clamp_min(1e-3)
    across, spread_x = _towards(x, around.room_length, depth, u)
    along, spread_y = _towards(y, around.room_width, depth, v)
    length = torch.sqrt(1 + across * across + along * along)
    rise = 1 / length
    heading = Vec(
        (around.room_cos * across - around.room_sin * along) * rise,
        (around.room_sin * across + around.room_cos * along) * rise,
        rise,
    )
    angle = rise * rise * rise * spread_x * spread_y
    strength = angle * points.normal.dot(heading).clamp_min(0)
    return Lit(heading, depth * length, strength, around.environment, 1 / angle.clamp_min(1e-9))


def _towards(position: Tensor, half: Tensor, depth: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """A place of -half..half seen from `position`, in units of depth, and one over its density."""
    low, high = (side - position for side in (-half, half))
    low, high = low / (depth + low.abs()), high / (depth + high.abs())
    inside = low + u * (high - low)
    place = inside / (1 - inside.abs()).clamp_min(1e-4)
    reach = 1 + place.abs()
    return place, reach * reach * (high - low)


def free_of_table(stage: Stage, points: Points, lit: Lit) -> Lit:
    """The same without what the table hides: of points and lamps above the table it hides nothing."""
    end = points.position.z + lit.heading.z * lit.distance
    index = which((torch.minimum(points.position.z, end) < -1e-3) & (lit.strength > 0))
    rays = points.rays(lit.heading).take(index)
    met, _ = meet_table(around_of(stage, rays.row), rays)
    strength = lit.strength.clone()
    strength[index] *= met >= lit.distance[index] - 2 * OFFSET
    return replace(lit, strength=strength)


def shadowed_by(stage: Stage, points: Points, lit: Lit) -> tuple[Tensor, Tensor]:
    """(slot, point) of objects between points and the lamp."""
    index = which(lit.strength > 0)
    rays = points.rays(lit.heading).take(index)
    slot, ray = blocked_by(stage, rays, lit.distance[index] - 2 * OFFSET)
    return slot, index[ray]


def reflected(coat: Coat, points: Points, lit: Lit, shared: bool = True) -> Vec:
    """Radiance towards the viewers per irradiance.

    If `shared`, reflected rays find the lamp too: the highlight is shared between both ways of finding it by how likely
    each is (Veach's balance heuristic).
    """
    flat = (1 - coat.gloss) * (1 / math.pi) * ~coat.metal
    lobe, density = ggx(coat.alpha, points, lit.heading)
    cosine = points.normal.dot(lit.heading).clamp_min(1e-4)
    peak = lobe / cosine * coat.gloss
    if shared:
        peak = peak * (lit.density / (lit.density + density))
    white = torch.where(coat.metal, 0.0, peak)
    return coat.color.scaled(flat + peak - white) + Vec(white, white, white)


def ggx(alpha: Tensor, points: Points, heading: Vec) -> tuple[Tensor, Tensor]:
    """The glossy lobe times the cosine of the light, D G2 / (4 n.v), and how densely `mirrored` samples it."""
    nv, nl = points.normal.dot(points.viewer).clamp_min(1e-3), points.normal.dot(heading).clamp_min(1e-4)
    half = (points.viewer + heading).unit()
    nh = points.normal.dot(half).clamp(0, 1)
    a2 = alpha * alpha
    slope = 1 - nh * nh * (1 - a2)
    facets = a2 / (math.pi * slope * slope * 4 * nv)
    hidden = smith(nv, a2)
    return facets / (1 + hidden + smith(nl, a2)), facets / (1 + hidden)


def smith(cosine: Tensor, a2: Tensor) -> Tensor:
    """Smith's Lambda of GGX."""
    return 0.5 * (torch.sqrt(1 + a2 * (1 / (cosine * cosine) - 1)) - 1)


# --- Scattered and reflected rays -------------------------------------------------------------------------------------


def basis(normal: Vec) -> tuple[Vec, Vec]:
    """Two unit vectors across a unit normal."""
    sign = torch.where(normal.z < 0, -1.0, 1.0)
    a = -1 / (sign + normal.z)
    b = normal.x * normal.y * a
    first = Vec(1 + sign * normal.x * normal.x * a, sign * b, -sign * normal.x)
    return first, Vec(b, sign + normal.y * normal.y * a, -normal.y)


def scattered(stage: Stage, normal: Vec, u: Tensor, v: Tensor) -> Vec:
    """Cosine-weighted directions."""
    right, up = basis(normal)
    cos, sin = turn(v, stage.circle)
    flat = torch.sqrt(u)
    return right.scaled(flat * cos) + up.scaled(flat * sin) + normal.scaled(torch.sqrt(1 - u))


def mirrored(stage: Stage, normal: Vec, viewer: Vec, alpha: Tensor, u: Tensor, v: Tensor) -> tuple[Vec, Tensor]:
    """Directions by the GGX facets that the viewer sees (Heitz 2018), and the weight G2 / G1 of each."""
    right, up = basis(normal)
    nv = normal.dot(viewer).clamp_min(1e-3)
    seen = Vec(alpha * viewer.dot(right), alpha * viewer.dot(up), nv).unit()
    flat2 = seen.x * seen.x + seen.y * seen.y
    scale = 1 / torch.sqrt(flat2.clamp_min(1e-12))
    straight = flat2 < 1e-12
    one = Vec(torch.where(straight, 1.0, -seen.y * scale), torch.where(straight, 0.0, seen.x * scale), flat2 * 0)
    two = seen.cross(one)
    cos, sin = turn(v, stage.circle)
    radius = torch.sqrt(u)
    p, q = radius * cos, radius * sin
    lean = 0.5 * (1 + seen.z)
    q = (1 - lean) * torch.sqrt((1 - p * p).clamp_min(0)) + lean * q
    rest = torch.sqrt((1 - p * p - q * q).clamp_min(0))
    facet = one.scaled(p) + two.scaled(q) + seen.scaled(rest)
    facet = Vec(alpha * facet.x, alpha * facet.y, facet.z.clamp_min(1e-6)).unit()
    half = right.scaled(facet.x) + up.scaled(facet.y) + normal.scaled(facet.z)
    heading = (half.scaled(2 * viewer.dot(half)) - viewer).unit()
    rise = normal.dot(heading)
    a2 = alpha * alpha
    hidden = smith(nv, a2)
    weight = (1 + hidden) / (1 + hidden + smith(rise.clamp_min(1e-3), a2))
    return heading, torch.where(rise > 0, weight, 0.0)


def lamps_ahead(stage: Stage, rays: Rays, nearest: Tensor) -> tuple[Tensor, Vec, Tensor]:
    """Distance of the lamp that each ray meets first before `nearest` (else that), its radiance (else 0), and how
    densely `shine` samples it there."""
    if has_triton(stage.device):
        from viewslots.scenes.tabletop.light_cuda import lamps_ahead_cuda

        return lamps_ahead_cuda(stage, rays, nearest)
    zero = torch.zeros_like(nearest)
    light, density = Vec(zero, zero, zero), zero
    for number in range(stage.lamp_slots):
        lamp = lamp_of(stage, rays.row, number)
        speed = lamp.normal.dot(rays.heading)
        path = lamp.center - rays.origin
        distance = lamp.normal.dot(path) / speed.clamp_max(-1e-9)
        spot = rays.heading.scaled(distance) - path
        # Sides are as long as the lamp: half of it lies to each side of the middle.
        across, along = spot.dot(lamp.right).abs(), spot.dot(lamp.up).abs()
        within = (across <= 0.5 * lamp.right.dot(lamp.right)) & (along <= 0.5 * lamp.up.dot(lamp.up))
        met = (speed < 0) & within & (distance > 0) & (distance < nearest) & (lamp.area > 0)
        nearest = torch.where(met, distance, nearest)
        light = Vec(*(torch.where(met, a, b) for a, b in zip(_xyz(lamp.radiance), _xyz(light), strict=True)))
        here = distance * distance / (lamp.area * -speed).clamp_min(1e-9)
        density = torch.where(met, here, density)
    return nearest, light, density


def _xyz(vector: Vec) -> tuple[Tensor, Tensor, Tensor]:
    return vector.x, vector.y, vector.z


def incoming(stage: Stage, rays: Rays, place: Places, density: Tensor, sky: Vec) -> Vec:
    """Radiance that arrives along rays: from surfaces, from lamps, and `sky` from above the walls.

    `density` is how densely the rays were sampled where they share the lamps with `shine`; 0 leaves the lamps to it.
    """
    distance, normal, finish = meet_surroundings(stage, rays)
    entry, surface = meet_objects(stage, rays)
    nearest = torch.minimum(distance, entry)
    reach, light, other = lamps_ahead(stage, rays, nearest)
    lit = reach < nearest
    light = light.scaled(density / (density + other).clamp_min(1e-9))
    gone = which((nearest == torch.inf) & ~lit)
    light.put(gone, taken(sky, gone))
    index = which((nearest < torch.inf) & ~lit)
    onto = which((entry < distance)[index])
    hits = rays.take(index)
    position = hits.at(nearest[index])
    normal, finish = taken(normal, index), finish[index]
    names = surface[index][onto]
    normal.put(onto, normals(stage, names, taken(position, onto)))
    finish[onto] = stage.parts.finish[names >> ITEM_BITS]
    points = Points(hits.row, position, facing(normal, hits.heading), -hits.heading, finish, place.take(index))
    light.put(index, glimpse(stage, points))
    return light


def facing(normal: Vec, heading: Vec) -> Vec:
    """Normals turned against the rays that meet them."""
    return normal.scaled(torch.where(normal.dot(heading) > 0, -1.0, 1.0))


def glimpse(stage: Stage, points: Points) -> Vec:
    """Radiance of points that a bounced ray meets: by a sample of one lamp and one of the environment."""
    coat = coat_of(stage, points, BLURRED)
    around = around_of(stage, points.row)
    lit = free_of_table(stage, points, one_lamp(stage, points))
    _, hidden = shadowed_by(stage, points, lit)
    strength = lit.strength.clamp_max(NEAR)
    strength[hidden] = 0.0
    light = (reflected(coat, points, lit, shared=False) * lit.radiance).scaled(strength)
    sky = free_of_table(stage, points, sky_light(around, points, *points.place.even(19, steps=3)))
    _, hidden = shadowed_by(stage, points, sky)
    strength = sky.strength.clone()
    strength[hidden] = 0.0
    return light + (reflected(coat, points, sky, shared=False) * sky.radiance).scaled(strength)


def one_lamp(stage: Stage, points: Points) -> Lit:
    """A sample of one of the lamps, chosen by how much light they would send without shadows, and standing for all."""
    u, v = points.place.even(23, steps=1)
    pick, _ = points.place.even(29, steps=2)
    middle = torch.full_like(u, 0.5)
    total, sums = torch.zeros_like(u), []
    for number in range(stage.lamp_slots):
        lamp = lamp_of(stage, points.row, number)
        lit = shine(lamp, points, middle, middle)
        # Some for the corners of a lamp whose middle lies behind the surface.
        power = (lit.strength + 0.1 / lit.density) * (lamp.radiance.x + lamp.radiance.y + lamp.radiance.z)
        total = total + power
        sums.append((total, power))
    chosen = torch.zeros_like(points.row)
    for so_far, _ in sums[:-1]:
        chosen = chosen + (so_far <= pick * total)
    power = sums[-1][1]
    for number in reversed(range(stage.lamp_slots - 1)):
        power = torch.where(chosen == number, sums[number][1], power)
    lit = shine(lamp_of(stage, points.row, chosen), points, u, v)
    return replace(lit, strength=lit.strength * total / power.clamp_min(1e-20))


def bounced(stage: Stage, points: Points, coat: Coat) -> Vec:
    """Light that reaches points over one more surface, and by reflection from the environment and lamps.

    To scattered rays the sky is as bright as walls may be (`around.pedestal`), so that they bring much the same
    wherever they go; what it has beyond that is sampled as a lamp, here too.
    """
    if has_triton(stage.device):
        from viewslots.scenes.tabletop.light_cuda import bounced_cuda

        return bounced_cuda(stage, points, coat)
    total = points.normal.map(torch.zeros_like)
    index = which(~coat.metal)
    some, under = points.take(index), coat.take(index)
    around = around_of(stage, some.row)
    heading = scattered(stage, some.normal, *some.place.even(11))
    # Not above what a scattered ray may bring: direct light of the sky is not clamped.
    pedestal = around.pedestal.map(lambda part: part.clamp_max(BRIGHTEST))
    bright = pedestal.map(lambda part: part.expand(heading.x.shape))
    arriving = incoming(stage, some.rays(heading), some.place, torch.zeros_like(under.gloss), bright)
    sky = free_of_table(stage, some, sky_light(around, some, *some.place.even(31, steps=3)))
    _, hidden = shadowed_by(stage, some, sky)
    strength = sky.strength * (1 / math.pi)
    strength[hidden] = 0.0
    arriving = arriving.map(lambda part: part.clamp_max(BRIGHTEST))
    arriving = arriving + (around.environment - pedestal).scaled(strength)
    total.put(index, (under.color * arriving).scaled(1 - under.gloss))

    index = which(coat.gloss > 0)
    some, over = points.take(index), coat.take(index)
    heading, weight = mirrored(stage, some.normal, some.viewer, over.alpha, *some.place.even(17))
    _, density = ggx(over.alpha, some, heading)
    environment = around_of(stage, some.row).environment.map(lambda part: part.expand(heading.x.shape))
    arriving = incoming(stage, some.rays(heading), some.place, density, environment)
    arriving = arriving.scaled(weight * over.gloss)
    total.put(index, taken(total, index) + (over.color * arriving).where(over.metal, arriving))
    return total


def lit_by_lamps(stage: Stage, points: Points, coat: Coat, light: Vec, shadows: bool) -> tuple[Vec, Tensor]:
    """`light` and the direct light of lamps, and if asked for, the share of it that each object takes [K, P]."""
    if has_triton(stage.device):
        from viewslots.scenes.tabletop.light_cuda import lit_by_lamps_cuda

        return lit_by_lamps_cuda(stage, points, coat, light, shadows)
    taken_by = torch.zeros(stage.slots if shadows else 0, len(points.row), device=stage.device)
    full = torch.zeros_like(points.normal.x)
    for number in range(stage.lamp_slots):
        lamp = lamp_of(stage, points.row, number)
        lit = free_of_table(stage, points, shine(lamp, points, *points.place.even(101 + number)))
        slot, point = shadowed_by(stage, points, lit)
        if shadows:
            power = lit.strength * (lamp.radiance.x + lamp.radiance.y + lamp.radiance.z)
            full = full + power
            taken_by[slot, point] += power[point]
        strength = lit.strength.clone()
        strength[point] = 0.0
        light = light + (reflected(coat, points, lit) * lamp.radiance).scaled(strength)
    return light, taken_by / full.clamp_min(1e-20)


def look(stage: Stage, points: Points) -> Vec:
    """Radiance of points towards their viewers."""
    coat = coat_of(stage, points)
    return lit_by_lamps(stage, points, coat, bounced(stage, points, coat), shadows=False)[0]


def look_behind(stage: Stage, points: Points, seen: Tensor) -> tuple[Vec, Tensor]:
    """The same for the background, and the share of the lamps' light that each object takes [K, P].

    Only points in `seen` are given bounced light.
    """
    coat = coat_of(stage, points)
    light = points.normal.map(torch.zeros_like)
    light.put(seen, bounced(stage, points.take(seen), coat.take(seen)))
    return lit_by_lamps(stage, points, coat, light, shadows=True)
