"""Slow twins of the tabletop renderer: bodies as fine meshes, rays against every triangle, in double precision."""

import math

import numpy as np
import numpy.typing as npt
from scipy.spatial import ConvexHull

from viewslots.scenes.tabletop.bodies import Part, Ring, Solid, Turned, parts_of
from viewslots.scenes.tabletop.table_scene import Thing

Array = npt.NDArray[np.float64]
AROUND, STEPS = 48, 10


def mesh_of(thing: Thing) -> Array:
    """Triangles [T, 3, 3] of an object in the world."""
    c, s, u, v = np.cos(thing.theta), np.sin(thing.theta), np.cos(thing.tilt), np.sin(thing.tilt)
    turn = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) @ np.array([[1, 0, 0], [0, u, -v], [0, v, u]])
    triangles = np.concatenate([part_mesh(part) for part in parts_of(thing.kind, thing.sizes)])
    return triangles @ turn.T + np.array(thing.location)


def part_mesh(part: Part) -> Array:
    axes = np.array(part.axes)
    return part.origin + (shape_mesh(part.shape) * part.stretch) @ axes.T


def shape_mesh(shape: Turned | Ring | Solid) -> Array:
    if isinstance(shape, Solid):
        corners = np.array(shape.corners)
        return corners[ConvexHull(corners).simplices]
    if isinstance(shape, Turned):
        return np.concatenate([turned_mesh(np.array(piece_points(piece))) for piece in shape.pieces])
    return ring_mesh(shape)


def piece_points(piece: object) -> list[tuple[float, float]]:
    """By the formula of the docs, not by `Piece.points`; steps of angle, so that both ends are fine."""
    r0, z0, r1, z1, bulge = (getattr(piece, name) for name in ("r0", "z0", "r1", "z1", "bulge"))
    points = []
    for step in range(STEPS + 1):
        share = 0.5 - 0.5 * math.cos(math.pi * step / STEPS)
        z = z0 + (z1 - z0) * share
        square = r0**2 + (r1**2 - r0**2) * share + bulge * (z - z0) * (z1 - z)
        points.append((math.sqrt(max(square, 0)) if z0 != z1 else r0 + (r1 - r0) * share, z))
    return points


def turned_mesh(outline: Array) -> Array:
    angle = np.arange(AROUND + 1) * (2 * np.pi / AROUND)
    ring = np.stack(
        [
            outline[:, None, 0] * np.cos(angle),
            outline[:, None, 0] * np.sin(angle),
            np.broadcast_to(outline[:, None, 1], (len(outline), AROUND + 1)),
        ],
        -1,
    )
    return grid_mesh(ring)


def ring_mesh(shape: Ring) -> Array:
    """The tube; its open ends are closed by balls."""
    along = shape.half_angle * np.linspace(-1, 1, AROUND + 1)
    around = np.linspace(0, 2 * np.pi, 33)
    flat = shape.radius + shape.tube * np.cos(around)
    height = np.broadcast_to(shape.tube * np.sin(around), (len(along), len(around)))
    tube = grid_mesh(np.stack([np.cos(along)[:, None] * flat, np.sin(along)[:, None] * flat, height], -1))
    if shape.half_angle >= math.pi:
        return tube
    ball = turned_mesh(np.array([(shape.tube * np.sin(a), shape.tube * np.cos(a)) for a in np.linspace(0, np.pi, 13)]))
    ends = [shape.radius * np.array([math.cos(a), math.sin(a), 0]) for a in (-shape.half_angle, shape.half_angle)]
    return np.concatenate([tube, *(ball + end for end in ends)])


def grid_mesh(points: Array) -> Array:
    a, b, c, d = points[:-1, :-1], points[1:, :-1], points[1:, 1:], points[:-1, 1:]
    both = np.concatenate([np.stack([a, b, c], -2).reshape(-1, 3, 3), np.stack([a, c, d], -2).reshape(-1, 3, 3)])
    area = np.linalg.norm(np.cross(both[:, 1] - both[:, 0], both[:, 2] - both[:, 0]), axis=-1)
    return both[area > 1e-12]


def first_hit(triangles: Array, origin: Array, heading: Array) -> tuple[Array, Array]:
    """Distance of the first triangle on each ray (inf for none) and its unit normal (Moeller and Trumbore)."""
    first, second = triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]
    normal = np.cross(first, second)
    normal /= np.linalg.norm(normal, axis=-1, keepdims=True)
    distance, facing = np.full(len(origin), np.inf), np.zeros((len(origin), 3))
    for ray, (start, way) in enumerate(zip(origin, heading, strict=True)):
        p = np.cross(way, second)
        with np.errstate(divide="ignore", invalid="ignore"):
            inverse = 1 / (first * p).sum(-1)
            path = start - triangles[:, 0]
            u = (path * p).sum(-1) * inverse
            q = np.cross(path, first)
            v = q @ way * inverse
            t = (second * q).sum(-1) * inverse
            met = (u >= -1e-9) & (v >= -1e-9) & (u + v <= 1 + 1e-9) & (t > 1e-9)
        if met.any():
            nearest = np.where(met, t, np.inf).argmin()
            distance[ray], facing[ray] = t[nearest], normal[nearest]
    return distance, facing
