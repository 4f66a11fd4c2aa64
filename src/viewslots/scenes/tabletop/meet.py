"""Where rays meet objects, table and room. Everything is elementwise, so a ray gives the same bits in any batch.

Bounding balls are tried for all pairs of ray and object, boxes for the parts of those that pass, exact surfaces for the
rest. Indices of what passes are the only thing the host waits for.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from viewslots.kernels import has_triton
from viewslots.scenes.tabletop.stage import (
    CLOTH,
    FLOOR,
    RING,
    SOLID,
    TABLE,
    TURNED,
    WALLS,
    Parts,
    Rows,
    Stage,
    Surroundings,
    taken,
)
from viewslots.scenes.vectors import Vec

BEHIND = -1e-6
"""A surface this little behind the entry of a part's box still counts: rounding may put it there."""
RING_STEPS = 32
TOUCH = 2e-5
"""A ray that comes this near to a ring, in metres, meets it."""
ITEM_BITS = 32
"""A surface is named by part and piece (or face) in one number."""
TINY = 1e-12
PAIRS_AT_ONCE = {"cpu": 2**18, "cuda": 2**24}
"""Rays and objects whose parts are met together: bounds the memory where many objects fill the picture."""


@dataclass(frozen=True)
class Rays(Rows):
    """N rays of unit heading; `row` of the stage each belongs to."""

    row: Tensor
    origin: Vec
    heading: Vec

    def at(self, distance: Tensor) -> Vec:
        return self.origin + self.heading.scaled(distance)


def which(mask: Tensor) -> Tensor:
    return mask.nonzero(as_tuple=True)[0]


# --- Objects ----------------------------------------------------------------------------------------------------------


def near_pairs(
    stage: Stage, rays: Rays, reach: Tensor | None = None, widening: Tensor | float = 0.0
) -> tuple[Tensor, Tensor]:
    """(slot, ray) of all pairs whose bounding ball the ray passes, before `reach` where given.

    Rays may be cones that grow wider by `widening` a metre.
    """
    shape = (stage.rows, stage.slots)

    def of_ray(values: Tensor) -> Tensor:
        """[K, N], or [K, 1] where all rays see one scene."""
        table = values.reshape(shape).T
        return table if stage.rows == 1 else table[:, rays.row]

    bound = of_ray(stage.objects.bound)
    path = stage.objects.center.map(of_ray) - rays.origin
    along = path.dot(rays.heading)
    wide = bound + widening * along.clamp_min(0)
    near = (path.dot(path) - along * along < wide * wide) & (along > -bound) & (bound > 0)
    if reach is not None:
        near &= along - bound < reach
    slot, ray = near.nonzero(as_tuple=True)
    return slot, ray


def spread(first: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """For every owner its items first .. first + count - 1: (owner, item) of each."""
    owner = torch.repeat_interleave(torch.arange(len(count), device=count.device), count)
    start = torch.cumsum(count, 0) - count
    item = torch.arange(len(owner), device=count.device) + (first - start)[owner]
    return owner, item


@dataclass(frozen=True)
class _Local(Rows):
    """Rays in the frames of parts, from where they enter the box."""

    pair: Tensor
    part: Tensor
    origin: Vec
    heading: Vec
    skipped: Tensor
    """Distance up to the box."""


def enter_objects(stage: Stage, number: Tensor, origin: Vec, heading: Vec) -> tuple[Tensor, Tensor]:
    """Distance at which each ray enters its own object [P] (inf where it misses), and the surface it meets there."""
    most = PAIRS_AT_ONCE[number.device.type]
    if len(number) <= most:
        return _enter_objects(stage, number, origin, heading)
    some = (slice(start, start + most) for start in range(0, len(number), most))
    met = [_enter_objects(stage, number[these], origin[these], heading[these]) for these in some]
    return torch.cat([distance for distance, _ in met]), torch.cat([surface for _, surface in met])


def _enter_objects(stage: Stage, number: Tensor, origin: Vec, heading: Vec) -> tuple[Tensor, Tensor]:
    local = _to_parts(stage, number, origin, heading)
    shape = stage.parts.shape[local.part]
    met = [
        enter(stage, local.take(which(shape == kind)))
        for kind, enter in ((TURNED, _enter_turned), (RING, _enter_rings), (SOLID, _enter_solids))
    ]
    pair, distance, surface = (torch.cat(column) for column in zip(*met, strict=True))
    return nearest_of(len(number), pair, distance, surface)


def nearest_of(count: int, owner: Tensor, distance: Tensor, surface: Tensor) -> tuple[Tensor, Tensor]:
    """Least distance of each owner and the surface at it; of equal ones the last surface."""
    least = torch.full((count,), torch.inf, device=owner.device)
    least = least.scatter_reduce(0, owner, distance, "amin")
    best = which((distance == least[owner]) & (distance < torch.inf))
    name = torch.full((count,), -1, dtype=torch.long, device=owner.device)
    return least, name.scatter_reduce(0, owner[best], surface[best], "amax")


def _to_parts(stage: Stage, number: Tensor, origin: Vec, heading: Vec) -> _Local:
    """All parts of the objects whose box is passed."""
    pair, part = spread(stage.objects.first[number], stage.objects.count[number])
    to_part = stage.parts.to_part.take(part)
    way = to_part.way(taken(heading, pair))
    start = to_part.point(taken(origin, pair))
    middle, half = taken(stage.parts.middle, part), taken(stage.parts.half, part)
    entry, leave = _slab(start.x - middle.x, way.x, half.x)
    for axis in "yz":
        first, last = _slab(getattr(start, axis) - getattr(middle, axis), getattr(way, axis), getattr(half, axis))
        entry, leave = torch.maximum(entry, first), torch.minimum(leave, last)
    entry = entry.clamp_min(0)
    index = which(entry < leave)
    skipped, way = entry[index], taken(way, index)
    return _Local(pair[index], part[index], taken(start, index) + way.scaled(skipped), way, skipped)


def _slab(position: Tensor, speed: Tensor, half: Tensor) -> tuple[Tensor, Tensor]:
    """Entry and exit of the slab -half..half along one axis."""
    inverse = 1 / torch.where(speed.abs() < TINY, TINY, speed)
    middle, reach = -position * inverse, (half * inverse).abs()
    return middle - reach, middle + reach


def _named(part: Tensor, item: Tensor) -> Tensor:
    return (part << ITEM_BITS) + item


def _enter_turned(stage: Stage, local: _Local) -> tuple[Tensor, Tensor, Tensor]:
    """Pair, distance and surface of every piece that is met."""
    o, d = local.origin, local.heading
    owner, item = spread(stage.parts.first[local.part], stage.parts.count[local.part])
    piece = stage.pieces.take(item)
    speed2, drift, square, z, rise = (
        values.index_select(0, owner)
        for values in (d.x * d.x + d.y * d.y, o.x * d.x + o.y * d.y, o.x * o.x + o.y * o.y, o.z, d.z)
    )
    # |xy|^2 - (a + b z + c z^2) along the ray is A t^2 + 2 B t + C.
    bend = piece.c * z
    a = speed2 - piece.c * rise * rise
    b = drift - rise * (0.5 * piece.b + bend)
    c = square - piece.a - z * (piece.b + bend)
    inside = b * b - a * c
    root = torch.sqrt(inside.clamp_min(0))
    q = -(b + torch.where(b < 0, -root, root))
    plane = (piece.a - z) / torch.where(rise.abs() < TINY, TINY, rise)
    first = torch.where(piece.flat, plane, q / a)
    second = torch.where(piece.flat, torch.inf, c / q)
    place = torch.where(piece.flat, square + first * (2 * drift + first * speed2), z + first * rise)
    real = (inside >= 0) | piece.flat
    first = torch.where(real & (place >= piece.low) & (place <= piece.high) & (first > BEHIND), first, torch.inf)
    place = z + second * rise
    second = torch.where(real & (place >= piece.low) & (place <= piece.high) & (second > BEHIND), second, torch.inf)
    distance = torch.minimum(first, second)
    index = which(distance < torch.inf)
    owner, distance = owner[index], distance[index]
    return local.pair[owner], distance + local.skipped[owner], _named(local.part[owner], item[index])


def ring_gap(parts: Parts, point: Vec) -> tuple[Tensor, Vec]:
    """Distance of points from the tubes of rings, and what leads there from the middle of the tube."""
    radius, cos, sin = parts.ring.x, parts.ring.z, parts.sine
    side = point.y.abs()
    flat = torch.sqrt(point.x * point.x + side * side)
    # Beyond the arc its end is the nearest point of it.
    beyond = cos * side > sin * point.x
    scale = radius / flat.clamp_min(TINY)
    near_x = torch.where(beyond, radius * cos, point.x * scale)
    near_y = torch.where(beyond, radius * torch.where(point.y < 0, -sin, sin), point.y * scale)
    away = Vec(point.x - near_x, point.y - near_y, point.z)
    return torch.sqrt(away.dot(away)) - parts.ring.y, away


def _enter_rings(stage: Stage, local: _Local) -> tuple[Tensor, Tensor, Tensor]:
    """By steps as long as the way to the surface is free, from outside or from within."""
    parts = stage.parts.take(local.part)
    distance = torch.zeros_like(local.skipped)
    gap, _ = ring_gap(parts, local.origin)
    side = torch.where(gap < 0, -1.0, 1.0)
    for _ in range(RING_STEPS if len(distance) else 0):
        distance = distance + side * gap
        gap, _ = ring_gap(parts, local.origin + local.heading.scaled(distance))
    index = which(gap.abs() < TOUCH)
    return (
        local.pair[index],
        (distance + local.skipped)[index],
        _named(local.part[index], torch.zeros_like(index)),
    )


def _enter_solids(stage: Stage, local: _Local) -> tuple[Tensor, Tensor, Tensor]:
    """Entry is the last face passed from outside; a ray from within meets the first face it leaves by."""
    owner, item = spread(stage.parts.first[local.part], stage.parts.count[local.part])
    face = stage.faces.take(item)
    speed = face.normal.dot(taken(local.heading, owner))
    room = face.distance - face.normal.dot(taken(local.origin, owner))
    time = room / torch.where(speed.abs() < TINY, TINY, speed)
    outside = (speed.abs() < TINY) & (room < 0)
    into, out = (speed < 0) & ~outside, (speed > 0) & ~outside
    count = len(local.pair)

    def reduced(values: Tensor, start: float, how: str) -> Tensor:
        return torch.full((count,), start, device=values.device).scatter_reduce(0, owner, values, how)

    entry = reduced(torch.where(into, time, torch.where(outside, torch.inf, -torch.inf)), -torch.inf, "amax")
    leave = reduced(torch.where(out, time, torch.inf), torch.inf, "amin")
    met = torch.where(entry > BEHIND, entry, leave)
    met = torch.where((entry <= leave) & (met > BEHIND), met, torch.inf)
    index = which((time == met[owner]) & (met[owner] < torch.inf))
    owner = owner[index]
    return local.pair[owner], (met + local.skipped)[owner], _named(local.part[owner], item[index])


def normals(stage: Stage, surface: Tensor, point: Vec) -> Vec:
    """Outward unit normals of points on surfaces."""
    part, item = surface >> ITEM_BITS, surface & ((1 << ITEM_BITS) - 1)
    parts = stage.parts.take(part)
    local = parts.to_part.point(point)
    turned, solid = parts.shape == TURNED, parts.shape == SOLID
    piece = stage.pieces.take(torch.where(turned, item, 0))
    slope = torch.where(piece.flat, 1.0, -0.5 * piece.b - piece.c * local.z)
    round_ = Vec(torch.where(piece.flat, 0.0, local.x), torch.where(piece.flat, 0.0, local.y), slope)
    face = stage.faces.take(torch.where(solid, item, 0)).normal
    ring = ring_gap(parts, local)[1]
    return parts.to_part.normal(round_.where(turned, face.where(solid, ring))).unit()


def meet_objects(stage: Stage, rays: Rays) -> tuple[Tensor, Tensor]:
    """Of each ray: distance of the nearest object (inf for none), and its surface."""
    slot, ray = near_pairs(stage, rays)
    number = rays.row[ray] * stage.slots + slot
    distance, surface = enter_objects(stage, number, taken(rays.origin, ray), taken(rays.heading, ray))
    return nearest_of(len(rays.row), ray, distance, surface)


def blocked_by(stage: Stage, rays: Rays, reach: Tensor) -> tuple[Tensor, Tensor]:
    """(slot, ray) of all objects that rays meet before `reach`."""
    slot, ray = near_pairs(stage, rays, reach)
    number = rays.row[ray] * stage.slots + slot
    distance, _ = enter_objects(stage, number, taken(rays.origin, ray), taken(rays.heading, ray))
    index = which(distance < reach[ray])
    return slot[index], ray[index]


# --- Table and room ---------------------------------------------------------------------------------------------------


def _turned(x: Tensor, y: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """From the world to a frame turned by that angle."""
    return cos * x + sin * y, cos * y - sin * x


def around_of(stage: Stage, row: Tensor) -> Surroundings:
    """The surroundings of each ray; one row for all where there is but one scene."""
    return stage.around if stage.rows == 1 else stage.around.take(row)


def meet_table(around: Surroundings, rays: Rays) -> tuple[Tensor, Vec]:
    """Distance to the table and its legs (inf where they are missed), and the normal there."""
    origin, heading = rays.origin, rays.heading
    x, y = _turned(origin.x, origin.y, around.table_cos, around.table_sin)
    dx, dy = _turned(heading.x, heading.y, around.table_cos, around.table_sin)
    local, way = Vec(x, y, origin.z), Vec(dx, dy, heading.z)
    distance, normal = _meet_post(local, way, around.round, around.half_length, around.half_width, -around.thickness, 0)
    low = which((distance == torch.inf) & ((origin.z < -around.thickness) | (heading.z < 0)))
    legs = around if around.floor.numel() == 1 else around.take(low)
    local, way = taken(local, low), taken(way, low)
    for side_x, side_y in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
        middle_x = torch.where(legs.round, 0.0, side_x * (legs.half_length - 3 * legs.leg))
        middle_y = torch.where(legs.round, 0.0, side_y * (legs.half_width - 3 * legs.leg))
        moved = Vec(local.x - middle_x, local.y - middle_y, local.z)
        met, facing = _meet_post(moved, way, legs.round, legs.leg, legs.leg, legs.floor, -legs.thickness)
        nearer = met < distance[low]
        distance[low] = torch.where(nearer, met, distance[low])
        normal.put(low, facing.where(nearer, taken(normal, low)))
    back_x, back_y = _turned(normal.x, normal.y, around.table_cos, -around.table_sin)
    return distance, Vec(back_x, back_y, normal.z)


def _meet_post(
    local: Vec, way: Vec, is_round: Tensor, half_x: Tensor, half_y: Tensor, low: Tensor, high: Tensor | float
) -> tuple[Tensor, Vec]:
    """An upright box or cylinder around the z axis."""
    first_x, last_x = _slab(local.x, way.x, half_x)
    first_y, last_y = _slab(local.y, way.y, half_y)
    speed2 = (way.x * way.x + way.y * way.y).clamp_min(TINY)
    drift = local.x * way.x + local.y * way.y
    level = local.x * local.x + local.y * local.y - half_x * half_x
    inside = drift * drift - speed2 * level
    root = torch.sqrt(inside.clamp_min(0))
    first_r = torch.where(inside > 0, (-drift - root) / speed2, torch.inf)
    last_r = (-drift + root) / speed2
    first_z, last_z = _slab(local.z - 0.5 * (low + high), way.z, 0.5 * (high - low))
    side = torch.where(is_round, first_r, torch.maximum(first_x, first_y))
    entry = torch.maximum(side, first_z)
    leave = torch.minimum(torch.where(is_round, last_r, torch.minimum(last_x, last_y)), last_z)
    distance = torch.where((entry > 0) & (entry < leave), entry, torch.inf)
    upright = first_z > side
    along = first_x > first_y
    zero = torch.zeros_like(entry)
    normal_x = torch.where(is_round, local.x + entry * way.x, torch.where(along, -way.x.sign(), zero))
    normal_y = torch.where(is_round, local.y + entry * way.y, torch.where(along, zero, -way.y.sign()))
    scale = torch.where(is_round, 1 / half_x, 1.0)
    normal = Vec(
        torch.where(upright, zero, normal_x * scale),
        torch.where(upright, zero, normal_y * scale),
        torch.where(upright, -way.z.sign(), zero),
    )
    return distance, normal


def meet_room(around: Surroundings, rays: Rays) -> tuple[Tensor, Vec, Tensor]:
    """Distance to floor or walls (inf where the ray leaves above them), the normal there, FLOOR or WALLS."""
    origin, heading = rays.origin, rays.heading
    x, y = _turned(origin.x - around.room_x, origin.y - around.room_y, around.room_cos, around.room_sin)
    dx, dy = _turned(heading.x, heading.y, around.room_cos, around.room_sin)
    _, far_x = _slab(x, dx, around.room_length)
    _, far_y = _slab(y, dy, around.room_width)
    wall = torch.minimum(far_x, far_y)
    wall = torch.where((wall > 0) & (origin.z + wall * heading.z < around.room_top), wall, torch.inf)
    floor = (around.floor - origin.z) / torch.where(heading.z.abs() < TINY, TINY, heading.z)
    floor = torch.where((heading.z < 0) & (floor > 0), floor, torch.inf)
    down = floor < wall
    along = far_x < far_y
    zero = torch.zeros_like(x)
    normal_x, normal_y = _turned(
        torch.where(along, -dx.sign(), zero),
        torch.where(along, zero, -dy.sign()),
        around.room_cos,
        -around.room_sin,
    )
    normal = Vec(
        torch.where(down, zero, normal_x), torch.where(down, zero, normal_y), torch.where(down, zero + 1, zero)
    )
    return torch.minimum(floor, wall), normal, torch.where(down, FLOOR, WALLS)


def meet_surroundings(stage: Stage, rays: Rays) -> tuple[Tensor, Vec, Tensor]:
    """Distance to table or room (inf: the environment), the normal there, and the number of the finish."""
    if has_triton(stage.device):
        from viewslots.scenes.tabletop.meet_cuda import meet_surroundings_cuda

        return meet_surroundings_cuda(stage, rays)
    around = around_of(stage, rays.row)
    distance, normal, which_one = meet_room(around, rays)
    table, facing = meet_table(around, rays)
    nearer = table < distance
    point = rays.at(torch.where(nearer, table, 0.0))
    x, y = _turned(point.x, point.y, around.table_cos, around.table_sin)
    on_cloth = (x.abs() <= around.cloth_length) & (y.abs() <= around.cloth_width) & (point.z > -1e-4)
    hung = (around.cloth_length >= around.half_length) & (around.cloth_width >= around.half_width)
    on_cloth |= hung & (point.z > -around.thickness * 0.999)
    finish = torch.where(nearer, torch.where(on_cloth, CLOTH, TABLE), which_one)
    return torch.minimum(table, distance), facing.where(nearer, normal), around.finish + finish
