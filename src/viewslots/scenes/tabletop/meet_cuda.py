"""Rays against objects, table and room as Triton kernels: the operations of meet.py in the same order.

A warp takes 32 rays of one scene through its tables, balls, boxes, surfaces, and leaves out what none of them needs.
Divisions and roots are correctly rounded, products not fused with sums: on one device meet.py gives the same bits.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from viewslots.scenes.tabletop.meet import BEHIND, ITEM_BITS, RING_STEPS, TINY, TOUCH, Rays
from viewslots.scenes.tabletop.stage import (
    CLOTH,
    FLOOR,
    TABLE,
    WALLS,
    Faces,
    Objects,
    Parts,
    Pieces,
    Rows,
    Stage,
    Surroundings,
)
from viewslots.scenes.vectors import Vec

LAUNCH = {"BLOCK": 32, "num_warps": 1, "num_stages": 1, "enable_fp_fusion": False}
"""A program is one warp of rays: what none of them needs is skipped without waiting for other warps."""


def columns_of(kind: type[Rows], *names: str, begins: str = "") -> list[tl.constexpr]:
    """Where fields begin in a row of the table; "end" is its width.

    Fields that kernels read together are named together, "a b c": they must lie side by side, a number each. The one
    that kernels read at the start of a row, without a name for its column, is `begins`.
    """
    columns = kind.columns()
    assert not begins or columns[begins] == 0, f"{kind.__name__} does not begin with {begins}"
    for name in names:
        places = [columns[part] for part in name.split()]
        assert places == list(range(places[0], places[0] + len(places))), f"{kind.__name__}: {name} are not neighbours"
    return [tl.constexpr(columns[name.split()[0]]) for name in names]


_BOUND, _FIRST_PART, _PARTS, OBJECT = columns_of(Objects, "bound", "first", "count", "end", begins="center")
_FIRST, _COUNT, _FINISH, _SINE, PART = columns_of(Parts, "first", "count", "finish", "sine", "end", begins="shape")
_TO_PART, _MIDDLE, _HALF, _RING = columns_of(Parts, "to_part", "middle", "half", "ring")
_SQUARE, _LOW, _HIGH, PIECE = columns_of(Pieces, "a b c", "low", "high", "end", begins="flat")
_FACE_DISTANCE, FACE = columns_of(Faces, "distance", "end", begins="normal")
_TABLE_SIZE, _FLOOR_Z, _LEG = columns_of(
    Surroundings, "half_length half_width thickness", "floor", "leg", begins="round"
)
_COS, _SIN, _CLOTH_LENGTH, _CLOTH_WIDTH = columns_of(
    Surroundings, "table_cos", "table_sin", "cloth_length", "cloth_width"
)
ROOM_SIZE, ROOM_COS, ROOM_SIN, ROOM_X, ROOM_Y = columns_of(
    Surroundings, "room_length room_width room_top", "room_cos", "room_sin", "room_x", "room_y"
)
_AROUND_FINISH, AROUND = columns_of(Surroundings, "finish", "end")
_RIGHT, _UP, _BACK, _FOCAL, CAMERA = (tl.constexpr(column) for column in (3, 6, 9, 12, 13))
"""Columns of `expose.Cameras.table` after the position, and its width."""
_HEADING = tl.constexpr(3)
"""Row of headings among origins and headings of rays [6, N]."""
_BEHIND, _TINY, _TOUCH = tl.constexpr(BEHIND), tl.constexpr(TINY), tl.constexpr(TOUCH)
_RING_STEPS, _ITEM_BITS = tl.constexpr(RING_STEPS), tl.constexpr(ITEM_BITS)
_TABLE, _CLOTH, _FLOOR, _WALLS = (tl.constexpr(finish) for finish in (TABLE, CLOTH, FLOOR, WALLS))
_SLACK = tl.constexpr(1e-4)
"""Metres by which a box must lie beyond the nearest surface before its part is left out."""


def blocks(count: int) -> tuple[int]:
    """Programs for so many rays."""
    return (triton.cdiv(count, LAUNCH["BLOCK"]),)


def stacked(*vectors: Vec) -> Tensor:
    """[3 n, N] of n vectors."""
    return torch.stack([part for vector in vectors for part in (vector.x, vector.y, vector.z)])


def camera_rays_cuda(
    cameras: Tensor, row: Tensor, samples: Tensor, places: Tensor, padded: tuple[int, int], corner: tuple[float, float]
) -> Rays:
    """See `expose.Shot.samples`.

    `cameras` [V, 13] are position, right, up, back and focal length; `places` [2, n] are within pixels, `padded` is the
    size of the window in pixels, `corner` the line and column of its first pixel from the middle of the picture.
    """
    assert cameras.shape[1] == CAMERA.value
    count = len(samples)
    rays, scene = torch.empty(6, count, device=samples.device), torch.empty_like(samples)
    if count:
        _camera_rays[blocks(count)](
            rays, scene, cameras.contiguous(), row.contiguous(), samples.contiguous(), places.contiguous(), count,
            padded[0] * padded[1], padded[1], places.shape[1], *corner, **LAUNCH,
        )  # fmt: skip
    return Rays(scene, Vec(*rays[:3]), Vec(*rays[3:]))


def meet_objects_cuda(stage: Stage, rays: Rays) -> tuple[Tensor, Tensor, Tensor]:
    """See `meet.meet_objects`; and the slots of all objects that the ray meets, a bit each."""
    count = len(rays.row)
    distance = torch.empty(count, device=rays.row.device)
    surface, slots = torch.empty_like(rays.row), torch.empty_like(rays.row, dtype=torch.int32)
    table = stage.tables
    if count:
        _meet_objects[blocks(count)](
            distance, surface, slots, table.objects, table.parts, table.pieces, table.faces,
            rays.row.contiguous(), stacked(rays.origin, rays.heading), count, stage.slots, **LAUNCH,
        )  # fmt: skip
    return distance, surface, slots


def meet_surroundings_cuda(stage: Stage, rays: Rays) -> tuple[Tensor, Vec, Tensor]:
    """See `meet.meet_surroundings`."""
    count = len(rays.row)
    found = torch.empty(4, count, device=rays.row.device)
    finish = torch.empty_like(rays.row)
    if count:
        _meet_surroundings[blocks(count)](
            found, finish, stage.tables.around, rays.row.contiguous(), stacked(rays.origin, rays.heading), count,
            **LAUNCH,
        )  # fmt: skip
    return found[0], Vec(*found[1:]), finish


@triton.jit(do_not_specialize=["count", "pixels", "columns", "per_pixel"])
def _camera_rays(
    rays, scene, cameras, row, samples, places, count, pixels, columns, per_pixel, top, left, BLOCK: tl.constexpr
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = at < count
    number = tl.load(samples + at, mask=real, other=0)
    pixel, rest = (number % pixels).to(tl.int32), number // pixels
    sample, view = (rest % per_pixel).to(tl.int32), (rest // per_pixel).to(tl.int32)
    camera = cameras + view * CAMERA
    scale = tl.div_rn(1.0, tl.load(camera + _FOCAL, mask=real, other=1.0))
    right = ((pixel % columns).to(tl.float32) + left + tl.load(places + sample, mask=real, other=0.0)) * scale
    down = (
        (pixel // columns).to(tl.float32) + top + tl.load(places + per_pixel + sample, mask=real, other=0.0)
    ) * scale
    x, y, z = column(camera, 1, real)
    rx, ry, rz = column(camera + _RIGHT, 1, real)
    ux, uy, uz = column(camera + _UP, 1, real)
    bx, by, bz = column(camera + _BACK, 1, real)
    u, v, w = unit(rx * right - ux * down - bx, ry * right - uy * down - by, rz * right - uz * down - bz)
    count = count.to(tl.int64)
    store3(rays + at, count, x, y, z, real)
    store3(rays + _HEADING * count + at, count, u, v, w, real)
    tl.store(scene + at, tl.load(row + view, mask=real, other=0), mask=real)


@triton.jit(do_not_specialize=["count", "slots"])
def _meet_objects(
    distance, surface, met, objects, parts, pieces, faces, row, rays, count, slots, BLOCK: tl.constexpr
):  # fmt: skip
    at, real, scene, first, last, x, y, z, u, v, w = our_rays(row, rays, count, BLOCK)
    count = count.to(tl.int64)
    for number in range(first, last + 1):
        asked = real & (scene == number)
        nearest, unlimited = tl.full((BLOCK,), float("inf"), tl.float32), tl.full((BLOCK,), float("inf"), tl.float32)
        part, item = tl.full((BLOCK,), -1, tl.int32), tl.full((BLOCK,), 0, tl.int32)
        bits = tl.zeros((BLOCK,), tl.int32)
        for slot in range(slots):
            # That an object is met counts, whatever stands before it.
            found, its_part, its_item = enter_object(
                objects + (number * slots + slot) * OBJECT, parts, pieces, faces, x, y, z, u, v, w,
                unlimited, asked, False, BLOCK,
            )  # fmt: skip
            bits = bits | tl.where(found < float("inf"), 1 << slot, 0)
            nearer = (found <= nearest) & (found < float("inf"))
            nearest = tl.where(nearer, found, nearest)
            part, item = tl.where(nearer, its_part, part), tl.where(nearer, its_item, item)
        tl.store(distance + at, nearest, mask=asked)
        tl.store(surface + at, tl.where(part < 0, -1, (part.to(tl.int64) << _ITEM_BITS) + item), mask=asked)
        tl.store(met + at, bits, mask=asked)


@triton.jit(do_not_specialize=["count"])
def _meet_surroundings(found, finish, around, row, rays, count, BLOCK: tl.constexpr):
    at, real, scene, first, last, x, y, z, u, v, w = our_rays(row, rays, count, BLOCK)
    count = count.to(tl.int64)
    for number in range(first, last + 1):
        asked = real & (scene == number)
        distance, a, b, c, wears = meet_surroundings(around + number * AROUND, x, y, z, u, v, w, asked)
        tl.store(found + at, distance, mask=asked)
        store3(found + count + at, count, a, b, c, asked)
        tl.store(finish + at, wears.to(tl.int64), mask=asked)


# --- For all kernels --------------------------------------------------------------------------------------------------


@triton.jit
def our_points(row, count, BLOCK: tl.constexpr):
    """Places of a program's points, which of them exist, their rows, and the first and last of these.

    Points lie in the order of rows, so that most programs know but one: what they read of its scene is the same for
    all their points.
    """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = at < count
    scene = tl.load(row + at, mask=real, other=0).to(tl.int32)
    return at, real, scene, tl.min(tl.where(real, scene, 2147483647), 0), tl.max(scene, 0)


@triton.jit
def our_rays(row, rays, count, BLOCK: tl.constexpr):
    """See `our_points`; and origins and headings."""
    at, real, scene, first, last = our_points(row, count, BLOCK)
    x, y, z = column(rays + at, count.to(tl.int64), real)
    u, v, w = column(rays + _HEADING * count.to(tl.int64) + at, count.to(tl.int64), real)
    return at, real, scene, first, last, x, y, z, u, v, w


@triton.jit
def three(start):
    """Three numbers in a row."""
    return tl.load(start), tl.load(start + 1), tl.load(start + 2)


@triton.jit
def column(start, step, asked):
    """Three numbers `step` apart, for each point."""
    first, second = tl.load(start, mask=asked, other=0.0), tl.load(start + step, mask=asked, other=0.0)
    return first, second, tl.load(start + 2 * step, mask=asked, other=0.0)


@triton.jit
def store3(start, step, first, second, third, asked):
    tl.store(start, first, mask=asked)
    tl.store(start + step, second, mask=asked)
    tl.store(start + 2 * step, third, mask=asked)


@triton.jit
def some(mask):
    """Whether it holds for any ray."""
    return tl.max(mask.to(tl.int32), 0) > 0


@triton.jit
def unit(x, y, z):
    scale = tl.div_rn(1.0, tl.sqrt_rn(tl.maximum(x * x + y * y + z * z, 1e-20)))
    return x * scale, y * scale, z * scale


# --- Objects ----------------------------------------------------------------------------------------------------------


@triton.jit
def enter_object(
    ball, parts, pieces, faces, x, y, z, u, v, w, reach, asked, ANY: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Distance at which rays enter an object (inf where they miss it or it lies beyond `reach`), part and item.

    With ANY the first surface before `reach` will do.
    """
    found = tl.full((BLOCK,), float("inf"), tl.float32)
    part, item = tl.full((BLOCK,), -1, tl.int32), tl.full((BLOCK,), 0, tl.int32)
    a, b, c = three(ball)
    bound = tl.load(ball + _BOUND)
    a, b, c = a - x, b - y, c - z
    along = a * u + b * v + c * w
    square = tl.where(bound > 0, bound * bound, float("-inf"))
    near = asked & (a * a + b * b + c * c - along * along < square) & (along > -bound) & (along - bound < reach)
    if some(near):
        first, count = tl.load(ball + _FIRST_PART).to(tl.int32), tl.load(ball + _PARTS).to(tl.int32)
        for number in range(first, first + count):
            here = near
            if ANY:
                here = near & (found >= reach)
            limit = tl.minimum(reach, found)
            distance, its_item = _enter_part(parts + number * PART, pieces, faces, x, y, z, u, v, w, limit, here, BLOCK)
            nearer = (distance <= found) & (distance < float("inf"))
            found = tl.where(nearer, distance, found)
            part, item = tl.where(nearer, number, part), tl.where(nearer, its_item, item)
    return found, part, item


@triton.jit
def _slab(position, speed, half):
    inverse = tl.div_rn(1.0, tl.where(tl.abs(speed) < _TINY, _TINY, speed))
    middle, reach = -position * inverse, tl.abs(half * inverse)
    return middle - reach, middle + reach


@triton.jit
def _enter_part(part, pieces, faces, x, y, z, u, v, w, limit, asked, BLOCK: tl.constexpr):
    distance = tl.full((BLOCK,), float("inf"), tl.float32)
    item = tl.full((BLOCK,), 0, tl.int32)
    ax, ay, az = three(part + _TO_PART)
    bx, by, bz = three(part + _TO_PART + 3)
    cx, cy, cz = three(part + _TO_PART + 6)
    sx, sy, sz = three(part + _TO_PART + 9)
    mx, my, mz = three(part + _MIDDLE)
    hx, hy, hz = three(part + _HALF)
    dx, dy, dz = ax * u + ay * v + az * w, bx * u + by * v + bz * w, cx * u + cy * v + cz * w
    ox, oy, oz = ax * x + ay * y + az * z + sx, bx * x + by * y + bz * z + sy, cx * x + cy * y + cz * z + sz
    first_x, last_x = _slab(ox - mx, dx, hx)
    first_y, last_y = _slab(oy - my, dy, hy)
    first_z, last_z = _slab(oz - mz, dz, hz)
    entry = tl.maximum(tl.maximum(tl.maximum(first_x, first_y), first_z), 0.0)
    leave = tl.minimum(tl.minimum(last_x, last_y), last_z)
    enters = asked & (entry < leave) & (entry < limit + _SLACK)
    if some(enters):
        kind = tl.load(part)
        first, count = tl.load(part + _FIRST).to(tl.int32), tl.load(part + _COUNT).to(tl.int32)
        ox, oy, oz = ox + dx * entry, oy + dy * entry, oz + dz * entry
        if kind < 0.5:
            distance, item = _enter_turned(pieces, first, first + count, ox, oy, oz, dx, dy, dz, BLOCK)
        elif kind < 1.5:
            distance = _enter_ring(part, ox, oy, oz, dx, dy, dz, BLOCK)
        else:
            distance, item = _enter_solid(faces, first, first + count, ox, oy, oz, dx, dy, dz, BLOCK)
        distance = tl.where(enters, distance + entry, float("inf"))
    return distance, item


@triton.jit
def _enter_turned(pieces, first, end, ox, oy, oz, dx, dy, dz, BLOCK: tl.constexpr):
    found = tl.full((BLOCK,), float("inf"), tl.float32)
    item = tl.full((BLOCK,), 0, tl.int32)
    speed2, drift, square = dx * dx + dy * dy, ox * dx + oy * dy, ox * ox + oy * oy
    for number in range(first, end):
        piece = pieces + number * PIECE
        pa, pb, pc = three(piece + _SQUARE)
        low, high = tl.load(piece + _LOW), tl.load(piece + _HIGH)
        if tl.load(piece) > 0.5:
            distance = tl.div_rn(pa - oz, tl.where(tl.abs(dz) < _TINY, _TINY, dz))
            place = square + distance * (2 * drift + distance * speed2)
            met = (place >= low) & (place <= high) & (distance > _BEHIND)
            distance = tl.where(met, distance, float("inf"))
        else:
            bend = pc * oz
            a = speed2 - pc * dz * dz
            b = drift - dz * (0.5 * pb + bend)
            c = square - pa - oz * (pb + bend)
            inside = b * b - a * c
            root = tl.sqrt_rn(tl.maximum(inside, 0.0))
            q = -(b + tl.where(b < 0, -root, root))
            one, two = tl.div_rn(q, a), tl.div_rn(c, q)
            place = oz + one * dz
            met = (inside >= 0) & (place >= low) & (place <= high) & (one > _BEHIND)
            distance = tl.where(met, one, float("inf"))
            place = oz + two * dz
            met = (inside >= 0) & (place >= low) & (place <= high) & (two > _BEHIND)
            distance = tl.minimum(distance, tl.where(met, two, float("inf")))
        nearer = (distance <= found) & (distance < float("inf"))
        found, item = tl.where(nearer, distance, found), tl.where(nearer, number, item)
    return found, item


@triton.jit
def _ring_gap(radius, tube, cos, sin, x, y, z):
    """`meet.ring_gap`: the distance, and what leads there across the axis; along it that is z."""
    side = tl.abs(y)
    flat = tl.sqrt_rn(x * x + side * side)
    beyond = cos * side > sin * x
    scale = tl.div_rn(radius, tl.maximum(flat, _TINY))
    near_x = tl.where(beyond, radius * cos, x * scale)
    near_y = tl.where(beyond, radius * tl.where(y < 0, -sin, sin), y * scale)
    ax, ay = x - near_x, y - near_y
    return tl.sqrt_rn(ax * ax + ay * ay + z * z) - tube, ax, ay


@triton.jit
def _enter_ring(part, ox, oy, oz, dx, dy, dz, BLOCK: tl.constexpr):
    radius, tube, cos = three(part + _RING)
    sin = tl.load(part + _SINE)
    distance = tl.zeros((BLOCK,), tl.float32)
    gap, ax, ay = _ring_gap(radius, tube, cos, sin, ox, oy, oz)
    side = tl.where(gap < 0, -1.0, 1.0)
    for _step in range(_RING_STEPS):
        distance = distance + side * gap
        x, y, z = ox + dx * distance, oy + dy * distance, oz + dz * distance
        gap, ax, ay = _ring_gap(radius, tube, cos, sin, x, y, z)
    return tl.where(tl.abs(gap) < _TOUCH, distance, float("inf"))


@triton.jit
def _enter_solid(faces, first, end, ox, oy, oz, dx, dy, dz, BLOCK: tl.constexpr):
    entry, leave = tl.full((BLOCK,), float("-inf"), tl.float32), tl.full((BLOCK,), float("inf"), tl.float32)
    enters, leaves = tl.full((BLOCK,), 0, tl.int32), tl.full((BLOCK,), 0, tl.int32)
    for number in range(first, end):
        face = faces + number * FACE
        nx, ny, nz = three(face)
        speed = nx * dx + ny * dy + nz * dz
        room = tl.load(face + _FACE_DISTANCE) - (nx * ox + ny * oy + nz * oz)
        along = tl.abs(speed) < _TINY
        time = tl.div_rn(room, tl.where(along, _TINY, speed))
        outside = along & (room < 0)
        comes = tl.where(outside, float("inf"), tl.where(speed < 0, time, float("-inf")))
        goes = tl.where((speed > 0) & (outside == 0), time, float("inf"))
        enters = tl.where(comes >= entry, number, enters)
        entry = tl.maximum(entry, comes)
        leaves = tl.where(goes <= leave, number, leaves)
        leave = tl.minimum(leave, goes)
    from_outside = entry > _BEHIND
    met = tl.where(from_outside, entry, leave)
    item = tl.where(from_outside, enters, leaves)
    return tl.where((entry <= leave) & (met > _BEHIND), met, float("inf")), item


@triton.jit
def surface_normal(part, pieces, faces, item, x, y, z, asked):
    """`meet.normals`: outward unit normals of points on parts of their own, and the number of the finish."""
    kind = tl.load(part, mask=asked, other=0.0)
    ax, ay, az = column(part + _TO_PART, 1, asked)
    bx, by, bz = column(part + _TO_PART + 3, 1, asked)
    cx, cy, cz = column(part + _TO_PART + 6, 1, asked)
    sx, sy, sz = column(part + _TO_PART + 9, 1, asked)
    ox, oy, oz = ax * x + ay * y + az * z + sx, bx * x + by * y + bz * z + sy, cx * x + cy * y + cz * z + sz
    turned, solid = kind < 0.5, kind > 1.5
    piece = pieces + item * PIECE
    flat = tl.load(piece, mask=asked & turned, other=0.0) > 0.5
    pa, pb, pc = column(piece + _SQUARE, 1, asked & turned)
    nx, ny = tl.where(flat, 0.0, ox), tl.where(flat, 0.0, oy)
    nz = tl.where(flat, 1.0, -0.5 * pb - pc * oz)
    fx, fy, fz = column(faces + item * FACE, 1, asked & solid)
    radius, tube, cos = column(part + _RING, 1, asked)
    sin = tl.load(part + _SINE, mask=asked, other=0.0)
    gap, rx, ry = _ring_gap(radius, tube, cos, sin, ox, oy, oz)
    nx = tl.where(turned, nx, tl.where(solid, fx, rx))
    ny = tl.where(turned, ny, tl.where(solid, fy, ry))
    nz = tl.where(turned, nz, tl.where(solid, fz, oz))
    nx, ny, nz = unit(ax * nx + bx * ny + cx * nz, ay * nx + by * ny + cy * nz, az * nx + bz * ny + cz * nz)
    return nx, ny, nz, tl.load(part + _FINISH, mask=asked, other=0.0).to(tl.int32)


@triton.jit
def nearest_object(objects, parts, pieces, faces, slots, x, y, z, u, v, w, limit, asked, BLOCK: tl.constexpr):
    """Distance, part and item of the first of a scene's objects; where it lies beyond `limit`, perhaps inf."""
    nearest = tl.full((BLOCK,), float("inf"), tl.float32)
    part, item = tl.full((BLOCK,), 0, tl.int32), tl.full((BLOCK,), 0, tl.int32)
    for slot in range(slots):
        found, its_part, its_item = enter_object(
            objects + slot * OBJECT, parts, pieces, faces, x, y, z, u, v, w,
            tl.minimum(nearest, limit), asked, False, BLOCK,
        )  # fmt: skip
        nearer = (found <= nearest) & (found < float("inf"))
        nearest = tl.where(nearer, found, nearest)
        part, item = tl.where(nearer, its_part, part), tl.where(nearer, its_item, item)
    return nearest, part, item


@triton.jit
def blocking(
    objects, parts, pieces, faces, slots, x, y, z, u, v, w, reach, asked, ALL: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Slots of a scene's objects that rays meet before `reach`, a bit each; with ALL every one, else at least one."""
    bits = tl.zeros((BLOCK,), tl.int32)
    for slot in range(slots):
        open_ = asked
        if not ALL:
            open_ = asked & (bits == 0)
        found, part, item = enter_object(
            objects + slot * OBJECT, parts, pieces, faces, x, y, z, u, v, w, reach, open_, True, BLOCK
        )
        bits = bits | tl.where(found < reach, 1 << slot, 0)
    return bits


# --- Table and room ---------------------------------------------------------------------------------------------------


@triton.jit
def _turned(x, y, cos, sin):
    return cos * x + sin * y, cos * y - sin * x


@triton.jit
def _sign(value):
    return tl.where(value > 0, 1.0, tl.where(value < 0, -1.0, 0.0))


@triton.jit
def _meet_post(x, y, z, u, v, w, is_round, half_x, half_y, low, high):
    first_z, last_z = _slab(z - 0.5 * (low + high), w, 0.5 * (high - low))
    if is_round:
        speed2 = tl.maximum(u * u + v * v, _TINY)
        drift = x * u + y * v
        level = x * x + y * y - half_x * half_x
        inside = drift * drift - speed2 * level
        root = tl.sqrt_rn(tl.maximum(inside, 0.0))
        first = tl.where(inside > 0, tl.div_rn(-drift - root, speed2), float("inf"))
        last = tl.div_rn(-drift + root, speed2)
        entry = tl.maximum(first, first_z)
        scale = tl.div_rn(1.0, half_x)
        a, b = (x + entry * u) * scale, (y + entry * v) * scale
    else:
        first_x, last_x = _slab(x, u, half_x)
        first_y, last_y = _slab(y, v, half_y)
        first, last = tl.maximum(first_x, first_y), tl.minimum(last_x, last_y)
        entry = tl.maximum(first, first_z)
        along = first_x > first_y
        a, b = tl.where(along, -_sign(u), 0.0), tl.where(along, 0.0, -_sign(v))
    distance = tl.where((entry > 0) & (entry < tl.minimum(last, last_z)), entry, float("inf"))
    upright = first_z > first
    return distance, tl.where(upright, 0.0, a), tl.where(upright, 0.0, b), tl.where(upright, -_sign(w), 0.0)


@triton.jit
def meet_table(about, x, y, z, u, v, w, asked):
    """Distance and normal of the table and its legs."""
    is_round = tl.load(about) > 0.5
    length, width, thickness = three(about + _TABLE_SIZE)
    cos, sin = tl.load(about + _COS), tl.load(about + _SIN)
    low = asked & ((z < -thickness) | (w < 0))
    x, y = _turned(x, y, cos, sin)
    u, v = _turned(u, v, cos, sin)
    distance, a, b, c = _meet_post(x, y, z, u, v, w, is_round, length, width, -thickness, 0.0)
    low = low & (distance == float("inf"))
    if some(low):
        floor, leg = tl.load(about + _FLOOR_Z), tl.load(about + _LEG)
        for corner in range(4):
            middle_x = tl.where(is_round, 0.0, (1.0 - 2.0 * (corner // 2)) * (length - 3 * leg))
            middle_y = tl.where(is_round, 0.0, (1.0 - 2.0 * (corner % 2)) * (width - 3 * leg))
            met, fx, fy, fz = _meet_post(x - middle_x, y - middle_y, z, u, v, w, is_round, leg, leg, floor, -thickness)
            nearer = low & (met < distance)
            distance = tl.where(nearer, met, distance)
            a, b, c = tl.where(nearer, fx, a), tl.where(nearer, fy, b), tl.where(nearer, fz, c)
    a, b = _turned(a, b, cos, -sin)
    return distance, a, b, c


@triton.jit
def _meet_room(about, x, y, z, u, v, w):
    length, width, top = three(about + ROOM_SIZE)
    cos, sin = tl.load(about + ROOM_COS), tl.load(about + ROOM_SIN)
    x, y = _turned(x - tl.load(about + ROOM_X), y - tl.load(about + ROOM_Y), cos, sin)
    u, v = _turned(u, v, cos, sin)
    first_x, far_x = _slab(x, u, length)
    first_y, far_y = _slab(y, v, width)
    wall = tl.minimum(far_x, far_y)
    wall = tl.where((wall > 0) & (z + wall * w < top), wall, float("inf"))
    floor = tl.div_rn(tl.load(about + _FLOOR_Z) - z, tl.where(tl.abs(w) < _TINY, _TINY, w))
    floor = tl.where((w < 0) & (floor > 0), floor, float("inf"))
    down, along = floor < wall, far_x < far_y
    a, b = _turned(tl.where(along, -_sign(u), 0.0), tl.where(along, 0.0, -_sign(v)), cos, -sin)
    a, b, c = tl.where(down, 0.0, a), tl.where(down, 0.0, b), tl.where(down, 1.0, 0.0)
    return tl.minimum(floor, wall), a, b, c, tl.where(down, _FLOOR, _WALLS)


@triton.jit
def meet_surroundings(about, x, y, z, u, v, w, asked):
    """Distance and normal of table or room, and the number of the finish."""
    distance, a, b, c, which = _meet_room(about, x, y, z, u, v, w)
    table, ta, tb, tc = meet_table(about, x, y, z, u, v, w, asked)
    nearer = table < distance
    length, width, thickness = three(about + _TABLE_SIZE)
    cloth_length, cloth_width = tl.load(about + _CLOTH_LENGTH), tl.load(about + _CLOTH_WIDTH)
    way = tl.where(nearer, table, 0.0)
    px, py = _turned(x + u * way, y + v * way, tl.load(about + _COS), tl.load(about + _SIN))
    pz = z + w * way
    on_cloth = (tl.abs(px) <= cloth_length) & (tl.abs(py) <= cloth_width) & (pz > -1e-4)
    hung = (cloth_length >= length) & (cloth_width >= width)
    on_cloth = on_cloth | (pz > tl.where(hung, -thickness * 0.999, float("inf")))
    finish = tl.where(nearer, tl.where(on_cloth, _CLOTH, _TABLE), which) + tl.load(about + _AROUND_FINISH).to(tl.int32)
    a, b, c = tl.where(nearer, ta, a), tl.where(nearer, tb, b), tl.where(nearer, tc, c)
    return tl.minimum(table, distance), a, b, c, finish
