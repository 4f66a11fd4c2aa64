"""`geometry.intersect` as one Triton kernel: the same operations in the same order, a hundred launches fewer.

Divisions and roots are correctly rounded, products not fused with sums: on one device geometry.py gives the same bits.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from viewslots.scenes.clevr.geometry import EDGE, NEWTON_STEPS, TOUCH, Bodies
from viewslots.scenes.vectors import Vec

BLOCK = 128
_BOX_INNER = tl.constexpr(1 - EDGE["cube"])
_BOX_EDGE = tl.constexpr(EDGE["cube"])
_CAN_INNER = tl.constexpr(1 - EDGE["cylinder"])
_CAN_EDGE = tl.constexpr(EDGE["cylinder"])
_STEPS = tl.constexpr(NEWTON_STEPS)
_TOUCH = tl.constexpr(TOUCH)


def body_table(bodies: Bodies) -> Tensor:
    """[V, K, 8]: what `enter_body` reads of each body."""
    center = bodies.center
    fields = (center.x, center.y, center.z, bodies.radius, bodies.cos, bodies.sin, bodies.bound2, bodies.kind)
    return torch.stack([field.to(torch.float32) for field in fields], -1)


def intersect_cuda(bodies: Bodies, view: Tensor, origin: Vec, direction: Vec, skip: Tensor | None) -> Tensor:
    """See `geometry.intersect`."""
    slots = bodies.radius.shape[1]
    shape = torch.broadcast_shapes(view.shape, origin.x.shape, direction.x.shape)
    entry = torch.empty(*shape, slots, device=view.device)
    table = body_table(bodies)

    def flat(values: Tensor) -> Tensor:
        return values.expand(shape).contiguous()

    rays = entry.numel() // max(slots, 1)
    if rays * slots:
        _intersect[(triton.cdiv(rays, BLOCK),)](
            entry,
            table,
            flat(view),
            flat(skip) if skip is not None else flat(view),
            *(flat(part) for part in (origin.x, origin.y, origin.z, direction.x, direction.y, direction.z)),
            rays,
            slots,
            HAS_SKIP=skip is not None,
            BLOCK=BLOCK,
            enable_fp_fusion=False,
        )
    return entry


@triton.jit
def _intersect(
    entry, table, view, skip, ox, oy, oz, dx, dy, dz, rays, slots, HAS_SKIP: tl.constexpr, BLOCK: tl.constexpr
):
    ray = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    real = ray < rays
    row = tl.load(view + ray, mask=real, other=0)
    x, y, z = tl.load(ox + ray, mask=real), tl.load(oy + ray, mask=real), tl.load(oz + ray, mask=real)
    u, v, w = tl.load(dx + ray, mask=real), tl.load(dy + ray, mask=real), tl.load(dz + ray, mask=real)
    own = tl.full((BLOCK,), -1, tl.int64)
    if HAS_SKIP:
        own = tl.load(skip + ray, mask=real, other=-1)
    for slot in range(slots):
        body = table + (row * slots + slot) * 8
        distance = enter_body(body, x, y, z, u, v, w, real & (own != slot), BLOCK)
        tl.store(entry + ray * slots + slot, distance, mask=real)


@triton.jit
def enter_body(body, x, y, z, u, v, w, asked, BLOCK: tl.constexpr):
    """Distance at which rays (x, y, z) + t (u, v, w) enter the bodies at `body`; inf where not `asked` or missed."""
    cx, cy, cz = tl.load(body, mask=asked), tl.load(body + 1, mask=asked), tl.load(body + 2, mask=asked)
    bound2 = tl.load(body + 6, mask=asked)
    a, b, c = cx - x, cy - y, cz - z
    along = a * u + b * v + c * w
    outside = a * a + b * b + c * c - bound2
    near = asked & (along * along > outside) & ((along > 0) | (outside < 0))
    distance = tl.full((BLOCK,), float("inf"), tl.float32)
    if tl.max(near.to(tl.int32), 0) > 0:
        radius = tl.load(body + 3, mask=near, other=1.0)
        cos, sin = tl.load(body + 4, mask=near, other=1.0), tl.load(body + 5, mask=near, other=0.0)
        kind = tl.load(body + 7, mask=near, other=-1.0)
        scale = tl.div_rn(1.0, radius)
        px, py, pz = x - cx, y - cy, z - cz
        sx, sy, sz = (cos * px + sin * py) * scale, (cos * py - sin * px) * scale, pz * scale
        hx, hy, hz = cos * u + sin * v, cos * v - sin * u, w
        found = _enter(sx, sy, sz, hx, hy, hz, kind, BLOCK)
        distance = tl.where(near, found * radius, float("inf"))
    return distance


@triton.jit
def _enter(sx, sy, sz, hx, hy, hz, kind, BLOCK: tl.constexpr):
    half = sx * hx + sy * hy + sz * hz
    fx, fy, fz = sx - hx * half, sy - hy * half, sz - hz * half
    inside = 1 - (fx * fx + fy * fy + fz * fz)
    ball = -half - tl.sqrt_rn(tl.maximum(inside, 0.0))
    ball = tl.where((inside > 0) & (ball > 0), ball, float("inf"))
    result = ball
    if tl.max((kind > 0.5).to(tl.int32), 0) > 0:
        first_x, last_x = _slab(sx, hx)
        first_y, last_y = _slab(sy, hy)
        first_z, last_z = _slab(sz, hz)
        box = kind < 1.5
        entry = tl.maximum(tl.maximum(first_x, first_y), first_z)
        leave = tl.minimum(tl.minimum(last_x, last_y), last_z)
        enters = tl.maximum(entry, 0.0) < leave
        square = tl.maximum(hx * hx + hy * hy, 1e-12)
        flat = sx * hx + sy * hy
        cross = sx * hy - sy * hx
        root = square - cross * cross
        reach = tl.sqrt_rn(tl.maximum(root, 0.0))
        entry_can = tl.maximum(tl.maximum(first_z, tl.div_rn(-flat - reach, square)), 0.0)
        leave_can = tl.minimum(last_z, tl.div_rn(-flat + reach, square))
        enters_can = (root > 0) & (entry_can < leave_can)
        entry = tl.where(box, tl.maximum(entry, 0.0), entry_can)
        enters = tl.where(box, enters, enters_can) & (kind > 0.5)
        gap = tl.zeros((BLOCK,), tl.float32)
        going = enters
        for _ in range(_STEPS):
            x, y, z = sx + hx * entry, sy + hy * entry, sz + hz * entry
            box_gap, box_x, box_y, box_z = box_distance(x, y, z)
            can_gap, can_x, can_y, can_z = can_distance(x, y, z)
            now = tl.where(box, box_gap, can_gap)
            nx, ny, nz = tl.where(box, box_x, can_x), tl.where(box, box_y, can_y), tl.where(box, box_z, can_z)
            slope = nx * hx + ny * hy + nz * hz
            gap = tl.where(going, now, gap)
            going = going & (now > _TOUCH / 4) & (slope < -1e-4)
            entry = tl.where(going, entry - tl.div_rn(now, tl.minimum(slope, -1e-4)), entry)
        rounded = tl.where(enters & (gap < _TOUCH), entry, float("inf"))
        result = tl.where(kind > 0.5, rounded, ball)
    return result


@triton.jit
def _slab(position, speed):
    inverse = tl.div_rn(1.0, tl.where(tl.abs(speed) < 1e-9, 1e-9, speed))
    middle, half = -position * inverse, tl.abs(inverse)
    return middle - half, middle + half


@triton.jit
def _sign(value):
    return tl.where(value > 0, 1.0, tl.where(value < 0, -1.0, 0.0))


@triton.jit
def box_distance(x, y, z):
    """`geometry.cube_distance`: the distance and its gradient."""
    bx, by, bz = tl.abs(x) - _BOX_INNER, tl.abs(y) - _BOX_INNER, tl.abs(z) - _BOX_INNER
    px, py, pz = tl.maximum(bx, 0.0), tl.maximum(by, 0.0), tl.maximum(bz, 0.0)
    length = tl.sqrt_rn(px * px + py * py + pz * pz)
    deepest = tl.maximum(tl.maximum(bx, by), bz)
    over = tl.div_rn(1.0, tl.maximum(length, 1e-12))
    distance = length + tl.minimum(deepest, 0.0) - _BOX_EDGE
    return distance, px * over * _sign(x), py * over * _sign(y), pz * over * _sign(z)


@triton.jit
def can_distance(x, y, z):
    """`geometry.cylinder_distance`: the distance and its gradient."""
    ring = tl.sqrt_rn(x * x + y * y)
    wide, tall = ring - _CAN_INNER, tl.abs(z) - _CAN_INNER
    out_wide, out_tall = tl.maximum(wide, 0.0), tl.maximum(tall, 0.0)
    length = tl.sqrt_rn(out_wide * out_wide + out_tall * out_tall)
    least = tl.maximum(length, 1e-12)
    radial = tl.div_rn(out_wide, least * tl.maximum(ring, 1e-12))
    distance = length + tl.minimum(tl.maximum(wide, tall), 0.0) - _CAN_EDGE
    return distance, radial * x, radial * y, tl.div_rn(out_tall, least) * _sign(z)
