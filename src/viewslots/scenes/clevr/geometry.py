"""Rays against spheres, rounded boxes and rounded cylinders, elementwise and exact over batch sizes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from viewslots.kernels import has_triton
from viewslots.scenes.clevr.spec import Scene
from viewslots.scenes.vectors import Vec

KINDS = ("sphere", "cube", "cylinder")
EDGE = {"cube": 0.184, "cylinder": 0.054}
"""Radius of the rounded edges of CLEVR's meshes, for a body of half-extent 1."""
BOUND = {"sphere": 1.0, "cube": 3**0.5 * (1 - EDGE["cube"]) + EDGE["cube"], "cylinder": 2**0.5}
"""Radius of the bounding sphere."""
NOWHERE = -1.0
"""Squared bound of an unused slot: no ray comes that near."""
NEWTON_STEPS = 6
TOUCH = 1e-3
"""A ray that comes closer than this to a unit body hits it."""


@dataclass(frozen=True)
class Bodies:
    """The objects of V views (or scenes), padded to K; unused slots have no bound that a ray could pass."""

    center: Vec
    """[V, K]"""
    radius: Tensor
    cos: Tensor
    sin: Tensor
    kind: Tensor
    """Index into KINDS."""
    bound2: Tensor
    """Squared radius of the bounding sphere."""
    color: Vec
    metal: Tensor
    """Bool."""

    def __getitem__(self, index: Any) -> "Bodies":
        return Bodies(*(getattr(self, name)[index] for name in self.__dataclass_fields__))

    @staticmethod
    def of(scenes: list[Scene], slots: int, device: torch.device | str) -> "Bodies":
        """[S, K] from descriptions."""
        rows = [
            [
                (
                    *body.location,
                    body.radius,
                    body.rotation,
                    KINDS.index(body.shape),
                    (body.radius * BOUND[body.shape]) ** 2,
                    *body.rgb,
                    body.material == "metal",
                )
                for body in scene.objects
            ]
            + [(0.0, 0.0, -1e3, 0.0, 0.0, 0, NOWHERE, 0.0, 0.0, 0.0, False)] * (slots - len(scene.objects))
            for scene in scenes
        ]
        table = torch.tensor(rows, dtype=torch.float64).reshape(len(scenes), slots, 11)
        x, y, z, radius, rotation, kind, bound2, red, green, blue, metal = table.unbind(-1)

        def single(values: Tensor) -> Tensor:
            return values.to(torch.float32).to(device)

        return Bodies(
            center=Vec(single(x), single(y), single(z)),
            radius=single(radius),
            cos=single(torch.cos(rotation)),
            sin=single(torch.sin(rotation)),
            kind=kind.to(torch.long).to(device),
            bound2=single(bound2),
            color=Vec(single(red), single(green), single(blue)),
            metal=metal.to(torch.bool).to(device),
        )


def to_body(vector: Vec, bodies: Bodies) -> Vec:
    """World axes to the axes of a body (turned about z)."""
    return Vec(
        bodies.cos * vector.x + bodies.sin * vector.y,
        bodies.cos * vector.y - bodies.sin * vector.x,
        vector.z,
    )


def to_world(vector: Vec, bodies: Bodies) -> Vec:
    return Vec(
        bodies.cos * vector.x - bodies.sin * vector.y,
        bodies.sin * vector.x + bodies.cos * vector.y,
        vector.z,
    )


def intersect(bodies: Bodies, view: Tensor, origin: Vec, direction: Vec, skip: Tensor | None = None) -> Tensor:
    """Distance at which each ray enters each body of its view, inf where it does not: [..., K].

    `view` (a row of `bodies` [V, K]), `origin` and `direction` (unit) broadcast to the shape of the rays [...].
    `skip` names the body a ray starts from, -1 for none: a convex body meets none of its own rays.
    The bounding sphere is tried for all pairs, the exact body for those that pass.
    """
    if has_triton(view.device):
        from viewslots.scenes.clevr.geometry_cuda import intersect_cuda

        return intersect_cuda(bodies, view, origin, direction, skip)
    to_center = bodies.center[view] - origin[..., None]
    along = to_center.dot(direction[..., None])
    outside = to_center.dot(to_center) - bodies.bound2[view]
    near = (along * along > outside) & ((along > 0) | (outside < 0))
    if skip is not None:
        near &= torch.arange(near.shape[-1], device=near.device) != skip[..., None]
    distance = torch.full(near.shape, torch.inf, device=near.device)
    pairs = near.nonzero(as_tuple=True)
    *ray, slot = pairs

    def of_pair(values: Tensor) -> Tensor:
        return values.expand(near.shape[:-1])[tuple(ray)]

    body = bodies[of_pair(view), slot]
    distance[pairs] = _enter(body, origin.map(of_pair), direction.map(of_pair))
    return distance


def _enter(body: Bodies, origin: Vec, direction: Vec) -> Tensor:
    """Distance along each ray to its own body [P], inf where it misses."""
    scale = 1 / body.radius
    start = to_body(origin - body.center, body).scaled(scale)
    heading = to_body(direction, body)
    distance = torch.empty_like(scale)
    for kind, enter in enumerate((_enter_sphere, _enter_cube, _enter_cylinder)):
        chosen = (body.kind == kind).nonzero(as_tuple=True)[0]
        distance[chosen] = enter(start[chosen], heading[chosen])
    return distance * body.radius


def _enter_sphere(start: Vec, heading: Vec) -> Tensor:
    half = start.dot(heading)
    # Distance of the line from the centre, squared: less cancellation than start.start - half^2 for far starts.
    foot = start - heading.scaled(half)
    inside = 1 - foot.dot(foot)
    entry = -half - torch.sqrt(inside.clamp_min(0))
    return torch.where((inside > 0) & (entry > 0), entry, torch.inf)


def _enter_cube(start: Vec, heading: Vec) -> Tensor:
    entry, leave = _slab(start.x, heading.x)
    for position, speed in ((start.y, heading.y), (start.z, heading.z)):
        first, last = _slab(position, speed)
        entry, leave = torch.maximum(entry, first), torch.minimum(leave, last)
    entry = entry.clamp_min(0)
    return _newton(cube_distance, start, heading, entry, entry < leave)


def _enter_cylinder(start: Vec, heading: Vec) -> Tensor:
    first, last = _slab(start.z, heading.z)
    square = (heading.x * heading.x + heading.y * heading.y).clamp_min(1e-12)
    half = start.x * heading.x + start.y * heading.y
    # Squared distance of the ray from the axis, seen from above.
    cross = start.x * heading.y - start.y * heading.x
    root = square - cross * cross
    reach = torch.sqrt(root.clamp_min(0))
    entry = torch.maximum(first, (-half - reach) / square).clamp_min(0)
    leave = torch.minimum(last, (-half + reach) / square)
    return _newton(cylinder_distance, start, heading, entry, (root > 0) & (entry < leave))


def _slab(position: Tensor, speed: Tensor) -> tuple[Tensor, Tensor]:
    """Entry and exit of the slab -1..1 along one axis."""
    inverse = 1 / torch.where(speed.abs() < 1e-9, 1e-9, speed)
    middle, half = -position * inverse, inverse.abs()
    return middle - half, middle + half


def _newton(
    distance: Callable[[Vec], tuple[Tensor, Vec]], start: Vec, heading: Vec, entry: Tensor, enters: Tensor
) -> Tensor:
    """From the entry into the sharp-edged hull (or the start, if that lies within) to the rounded body.

    The distance to a convex body is convex along the ray, so Newton's steps from outside never overshoot; a ray that
    stops coming closer misses.
    """
    reached = entry.clone()
    gap, slope = torch.zeros_like(entry), torch.full_like(entry, -1)
    # Most rays enter at a face, where hull and body agree: Newton is for the few at the edges.
    index = enters.nonzero(as_tuple=True)[0]
    for _ in range(NEWTON_STEPS):
        t = reached[index]
        part, way = start[index], heading[index]
        gap_now, normal = distance(part + way.scaled(t))
        slope_now = normal.dot(way)
        gap[index], slope[index] = gap_now, slope_now
        going = (gap_now > TOUCH / 4) & (slope_now < -1e-4)
        reached[index] = torch.where(going, t - gap_now / slope_now.clamp_max(-1e-4), t)
        index = index[going]
    return torch.where(enters & (gap < TOUCH), reached, torch.inf)


def cube_distance(point: Vec) -> tuple[Tensor, Vec]:
    """Signed distance to a rounded box of half-extent 1, and its gradient."""
    inner = 1 - EDGE["cube"]
    beyond = point.map(lambda value: value.abs() - inner)
    outside = beyond.map(lambda value: value.clamp_min(0))
    length = torch.sqrt(outside.dot(outside))
    deepest = torch.maximum(torch.maximum(beyond.x, beyond.y), beyond.z)
    normal = outside.scaled(1 / length.clamp_min(1e-12))
    signed = Vec(normal.x * point.x.sign(), normal.y * point.y.sign(), normal.z * point.z.sign())
    return length + deepest.clamp_max(0) - EDGE["cube"], signed


def cylinder_distance(point: Vec) -> tuple[Tensor, Vec]:
    """Signed distance to an upright cylinder with rounded rims, radius and half-height 1, and its gradient."""
    inner = 1 - EDGE["cylinder"]
    ring = torch.sqrt(point.x * point.x + point.y * point.y)
    wide, tall = ring - inner, point.z.abs() - inner
    out_wide, out_tall = wide.clamp_min(0), tall.clamp_min(0)
    length = torch.sqrt(out_wide * out_wide + out_tall * out_tall)
    radial = out_wide / (length.clamp_min(1e-12) * ring.clamp_min(1e-12))
    normal = Vec(radial * point.x, radial * point.y, out_tall / length.clamp_min(1e-12) * point.z.sign())
    return length + torch.maximum(wide, tall).clamp_max(0) - EDGE["cylinder"], normal


def normals(body: Bodies, point: Vec) -> Vec:
    """Outward unit normal of each point's own body [P]."""
    local = to_body(point - body.center, body).scaled(1 / body.radius)
    cube, cylinder = cube_distance(local)[1], cylinder_distance(local)[1]

    return to_world(local.where(body.kind == 0, cube.where(body.kind == 1, cylinder)), body).unit()
