"""Meshes of the parts of tabletop's bodies: turned profiles, rings and convex solids, with exact normals.

Which side of a part is its inside does not matter: paths of light treat both sides alike. So every face agrees with its
normals, and normals point away from the axis, or up where the part is flat.
"""

import math

import bodies
import numpy as np
from bodies import Array, Mesh

from viewslots.scenes.tabletop.bodies import Part, Piece, Ring, Solid, Turned

AROUND, ALONG = 160, 48
"""Steps around an axis and along a bent piece, where nothing asks for more."""


def part_mesh(part: Part, step: float) -> Mesh:
    """The part in its body's frame; points are at most about `step` metres apart, so that they can carry a texture."""
    shape = part.shape
    if isinstance(shape, Turned):
        mesh = bodies.joined([_turned(piece, step) for piece in shape.pieces])
    elif isinstance(shape, Ring):
        mesh = _ring(shape, step)
    else:
        mesh = _solid(shape, step)
    stretch, axes = np.array(part.stretch), np.array(part.axes)
    normals = mesh.normals / stretch
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    return Mesh((mesh.points * stretch) @ axes.T + part.origin, normals @ axes.T, mesh.faces)


def _turned(piece: Piece, step: float) -> Mesh:
    outline, normals = _outline(piece, step)
    around = max(AROUND, math.ceil(2 * math.pi * outline[:, 0].max() / step))
    return bodies.revolved(outline, normals, around)


def _outline(piece: Piece, step: float) -> tuple[Array, Array]:
    """Points (r, z) of a piece and normals, upwards along it (towards the axis if flat).

    The gradient of x^2 + y^2 - r(z)^2 is the normal. Steps are short near the ends, where r may rise like a root.
    """
    length = math.hypot(piece.r1 - piece.r0, piece.z1 - piece.z0)
    if piece.flat:
        share = np.linspace(0, 1, max(2, math.ceil(length / step) + 1))
        radius = np.sort([piece.r0, piece.r1])[::-1] @ [1 - share, share]
        return np.stack([radius, np.full_like(share, piece.z0)], 1), np.tile([0.0, 1.0], (len(share), 1))
    share = (1 - np.cos(np.linspace(0, math.pi, max(ALONG, math.ceil(2 * length / step)) + 1))) / 2
    z = piece.z0 + (piece.z1 - piece.z0) * share
    a, b, c = piece.square
    radius = np.sqrt(np.maximum(a + b * z + c * z * z, 0))
    radius[[0, -1]] = piece.r0, piece.r1
    normals = np.stack([radius, -(b / 2 + c * z)], 1)
    # The tip of a cone has no normal of its own: every line of the cone keeps its normal to the end.
    for end, before in ((0, 1), (-1, -2)):
        if np.linalg.norm(normals[end]) < 1e-6 * np.linalg.norm(normals[before]):
            normals[end] = normals[before]
    return np.stack([radius, z], 1), normals / np.linalg.norm(normals, axis=1, keepdims=True)


def _ring(ring: Ring, step: float) -> Mesh:
    whole = ring.half_angle >= math.pi
    half = min(ring.half_angle, math.pi)
    rows = max(AROUND, math.ceil(2 * half * (ring.radius + ring.tube) / step))
    columns = max(AROUND // 2, math.ceil(2 * math.pi * ring.tube / step))
    along = np.linspace(-half, half, rows + 1)[: rows if whole else None, None, None]
    about = np.arange(columns)[:, None] * (2 * math.pi / columns)
    out = np.concatenate([np.cos(along), np.sin(along), np.zeros_like(along)], -1)
    normals = np.cos(about) * out + np.sin(about) * np.array([0.0, 0.0, 1.0])
    tube = bodies.sheet(
        ring.radius * out + ring.tube * normals, normals, round_rows=whole, round_columns=True, flip=False
    )
    if whole:
        return tube
    return bodies.joined([tube, *(_ball(ring.radius * out[end, 0], ring.tube, step) for end in (0, -1))])


def _ball(center: Array, radius: float, step: float) -> Mesh:
    ball = _turned(Piece(0.0, -radius, 0.0, radius, 1.0), step)
    return Mesh(ball.points + center, ball.normals, ball.faces)


def _solid(solid: Solid, step: float) -> Mesh:
    corners = np.array(solid.corners)
    sides = []
    for face, distance in solid.faces:
        normal = np.array(face)
        ring = corners[np.abs(corners @ normal - distance) < 1e-6]
        middle = ring.mean(0)
        right = ring[0] - middle
        arms = ring - middle
        ring = ring[np.argsort(np.arctan2(arms @ np.cross(normal, right), arms @ right))]
        if len(ring) == 4 and np.allclose(ring[0] + ring[2], ring[1] + ring[3]):
            sides.append(parallelogram(ring[0], ring[1], ring[3], normal, step))
        else:
            sides += [triangle(middle, ring[k - 1], ring[k], normal, step) for k in range(len(ring))]
    return bodies.joined(sides)


def parallelogram(a: Array, b: Array, c: Array, normal: Array, step: float) -> Mesh:
    """With the sides b - a and c - a, cut into steps along each."""
    rows, columns = (np.linspace(0, 1, max(1, math.ceil(np.linalg.norm(side - a) / step)) + 1) for side in (b, c))
    points = a + rows[:, None, None] * (b - a) + columns[:, None] * (c - a)
    return bodies.sheet(points, np.broadcast_to(normal, points.shape))


def triangle(a: Array, b: Array, c: Array, normal: Array, step: float) -> Mesh:
    """A flat triangle as n^2 smaller ones, sides at most `step` long."""
    n = max(1, math.ceil(max(np.linalg.norm(b - a), np.linalg.norm(c - a), np.linalg.norm(c - b)) / step))
    i, j = (part[np.add.outer(np.arange(n + 1), np.arange(n + 1)) <= n] for part in np.indices((n + 1, n + 1)))
    index = np.full((n + 2, n + 2), -1)
    index[i, j] = np.arange(len(i))
    up = np.stack([index[i, j], index[i + 1, j], index[i, j + 1]], 1)
    down = np.stack([index[i + 1, j], index[i + 1, j + 1], index[i, j + 1]], 1)
    faces = np.concatenate([up, down])
    points = a + np.outer(i / n, b - a) + np.outer(j / n, c - a)
    return Mesh(points, np.tile(normal, (len(points), 1)), faces[(faces >= 0).all(1)])
