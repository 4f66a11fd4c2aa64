"""Meshes with exact normals: unit sphere, rounded cube, rounded-rim cylinder, and the two grounds.

Normals come from the formula, not from the faces: the second lobe of metal is nearly a mirror and would show
every facet. No mesh carries UV coordinates, so Blender derives the tangent of anisotropic metal from the object's
bounding box, as it did for the CLEVR shapes.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

CUBE_EDGE = 0.184
"""Edge radius of CLEVR's SmoothCube, in units of its half-size."""
CYLINDER_RIM = 0.054
"""Rim radius of CLEVR's SmoothCylinder, in units of its radius."""

ROUND = 192
"""Steps around: the silhouette then lies 0.0001 radii inside the circle."""
ARC = 12
"""Steps over a quarter turn of a rounded edge."""

GROUND_REACH = 500.0
"""Half-size of the ground in metres: nothing in view ends before it."""
SWEEP_TOWARDS = (-0.7545, 0.6563)
"""Ground direction that CLEVR's base camera looks along."""
SWEEP_START = 10.0
"""Metres behind the origin where the ground begins to bend."""
SWEEP_RADIUS = 12.0
"""Radius of the bend in metres."""


@dataclass(frozen=True)
class Mesh:
    points: Array
    """[V,3]"""
    normals: Array
    """[V,3], unit length, outward"""
    faces: list[tuple[int, ...]]
    """Counter-clockwise seen from outside"""


def sphere() -> Mesh:
    angle = np.linspace(-math.pi / 2, math.pi / 2, ROUND // 2 + 1)
    arc = np.stack([np.cos(angle), np.sin(angle)], 1)
    arc[[0, -1], 0] = 0
    return _revolve(arc, arc)


def cylinder() -> Mesh:
    """Radius 1, half-height 1: the profile runs from the middle of the base over both rims to the middle of the top."""
    angle = np.linspace(-math.pi / 2, 0, ARC + 1)
    lower = np.stack([np.cos(angle), np.sin(angle)], 1)
    upper = lower[::-1] * [1, -1]
    core = 1 - CYLINDER_RIM
    outline = np.concatenate(
        [[[0, -1]], [core, -core] + CYLINDER_RIM * lower, [core, core] + CYLINDER_RIM * upper, [[0, 1]]]
    )
    return _revolve(outline, np.concatenate([[[0, -1]], lower, upper, [[0, 1]]]))


def cube() -> Mesh:
    """Half-size 1: every point of a box lattice, moved to distance CUBE_EDGE from the core box."""
    core = 1 - CUBE_EDGE
    # Equal steps of angle over the rounded part: a lattice line at core + edge * tan(a) turns the normal by a.
    step = core + CUBE_EDGE * np.tan(np.linspace(0, math.pi / 4, ARC // 2 + 1))
    line = np.concatenate([-step[::-1], step])
    first, second = (side.ravel() for side in np.meshgrid(line, line, indexing="ij"))
    points: list[Array] = []
    faces: list[tuple[int, ...]] = []
    count = len(line)
    for axis in range(3):
        for sign in (-1.0, 1.0):
            lattice = np.empty((count * count, 3))
            lattice[:, axis] = sign
            lattice[:, (axis + 1) % 3] = first
            lattice[:, (axis + 2) % 3] = second
            faces += _grid(count, count, offset=len(points) * count * count, flip=sign < 0)
            points.append(lattice)
    lattice = np.concatenate(points)
    inner = np.clip(lattice, -core, core)
    away = lattice - inner
    normals = away / np.linalg.norm(away, axis=1, keepdims=True)
    return Mesh(inner + CUBE_EDGE * normals, normals, faces)


def plane() -> Mesh:
    corners = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]]) * GROUND_REACH
    return Mesh(corners, np.tile([0.0, 0.0, 1.0], (4, 1)), [(0, 1, 2, 3)])


def sweep() -> Mesh:
    """The ground, bent upwards behind the objects over a quarter circle.

    It ends where it stands upright: no camera of CLEVR sees higher, and a tall wall would throw light on the ground.
    """
    angle = np.linspace(0, math.pi / 2, 8 * ARC + 1)
    along = np.concatenate([[-GROUND_REACH], SWEEP_START + SWEEP_RADIUS * np.sin(angle)])
    height = np.concatenate([[0.0], SWEEP_RADIUS * (1 - np.cos(angle))])
    turn = np.concatenate([[0.0], angle])
    ahead = np.array([*SWEEP_TOWARDS, 0.0]) / math.hypot(*SWEEP_TOWARDS)
    left, up = np.array([-ahead[1], ahead[0], 0.0]), np.array([0.0, 0.0, 1.0])
    profile = along[:, None] * ahead + height[:, None] * up
    normals = np.cos(turn)[:, None] * up - np.sin(turn)[:, None] * ahead
    points = np.stack([profile - GROUND_REACH * left, profile + GROUND_REACH * left], 1).reshape(-1, 3)
    return Mesh(points, np.repeat(normals, 2, 0), _grid(len(along), 2))


def _revolve(outline: Array, normals: Array) -> Mesh:
    """Turn an outline (distance from the axis, height), bottom to top, about z; its two ends lie on the axis."""
    turn = np.arange(ROUND) * (2 * math.pi / ROUND)
    rings = len(outline) - 2

    def around(flat: Array) -> Array:
        ring = np.empty((rings, ROUND, 3))
        ring[..., 0] = flat[1:-1, :1] * np.cos(turn)
        ring[..., 1] = flat[1:-1, :1] * np.sin(turn)
        ring[..., 2] = flat[1:-1, 1:]
        ends = np.array([[0, 0, flat[0, 1]], [0, 0, flat[-1, 1]]])
        return np.concatenate([ring.reshape(-1, 3), ends])

    bottom, top = rings * ROUND, rings * ROUND + 1
    last = (rings - 1) * ROUND
    faces: list[tuple[int, ...]] = []
    for here in range(ROUND):
        there = (here + 1) % ROUND
        faces.append((bottom, there, here))
        faces.append((top, last + here, last + there))
        for base in range(0, last, ROUND):
            faces.append((base + here, base + there, base + ROUND + there, base + ROUND + here))
    return Mesh(around(outline), around(normals), faces)


def _grid(rows: int, columns: int, offset: int = 0, flip: bool = False) -> list[tuple[int, ...]]:
    """Quads of a lattice whose point (i, j) has the index offset + i * columns + j; they face (i axis) x (j axis)."""
    faces: list[tuple[int, ...]] = []
    for i in range(rows - 1):
        for j in range(columns - 1):
            a = offset + i * columns + j
            quad = (a, a + columns, a + columns + 1, a + 1)
            faces.append(quad[::-1] if flip else quad)
    return faces
