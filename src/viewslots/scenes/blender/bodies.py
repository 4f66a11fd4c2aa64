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
Indices = npt.NDArray[np.int64]

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
    faces: Indices
    """[F,3] triangles, counter-clockwise seen from outside"""


def sphere() -> Mesh:
    angle = np.linspace(-math.pi / 2, math.pi / 2, ROUND // 2 + 1)
    arc = np.stack([np.cos(angle), np.sin(angle)], 1)
    arc[[0, -1], 0] = 0
    return revolved(arc, arc)


def cylinder() -> Mesh:
    """Radius 1, half-height 1: the profile runs from the middle of the base over both rims to the middle of the top."""
    angle = np.linspace(-math.pi / 2, 0, ARC + 1)
    lower = np.stack([np.cos(angle), np.sin(angle)], 1)
    upper = lower[::-1] * [1, -1]
    core = 1 - CYLINDER_RIM
    outline = np.concatenate(
        [[[0, -1]], [core, -core] + CYLINDER_RIM * lower, [core, core] + CYLINDER_RIM * upper, [[0, 1]]]
    )
    return revolved(outline, np.concatenate([[[0, -1]], lower, upper, [[0, 1]]]))


def cube() -> Mesh:
    return box((1.0, 1.0, 1.0), CUBE_EDGE)


def box(half: tuple[float, float, float], edge: float) -> Mesh:
    """Edges rounded by `edge` > 0: every point of a box lattice, moved to that distance from the core box."""
    core = np.array(half) - edge
    # Equal steps of angle over the rounded part: a lattice line at core + edge * tan(a) turns the normal by a.
    step = edge * np.tan(np.linspace(0, math.pi / 4, ARC // 2 + 1))
    lines = [np.concatenate([-(size + step)[::-1], size + step]) for size in core]
    sides = []
    for axis in range(3):
        first, second = np.meshgrid(lines[(axis + 1) % 3], lines[(axis + 2) % 3], indexing="ij")
        for sign in (-1.0, 1.0):
            lattice = np.empty((*first.shape, 3))
            lattice[..., axis] = sign * half[axis]
            lattice[..., (axis + 1) % 3], lattice[..., (axis + 2) % 3] = first, second
            inner = np.clip(lattice, -core, core)
            away = lattice - inner
            normals = away / np.linalg.norm(away, axis=-1, keepdims=True)
            sides.append(sheet(inner + edge * normals, normals, flip=sign < 0))
    return joined(sides)


def plane() -> Mesh:
    corners = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]]) * GROUND_REACH
    return Mesh(corners, np.tile([0.0, 0.0, 1.0], (4, 1)), np.array([[0, 1, 2], [0, 2, 3]]))


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
    points = np.stack([profile - GROUND_REACH * left, profile + GROUND_REACH * left], 1)
    return sheet(points, np.stack([normals, normals], 1))


def revolved(outline: Array, normals: Array, steps: int = ROUND) -> Mesh:
    """Turn an outline [n,2] (distance from the axis, height) about z; it faces to its right, seen with z up."""
    turn = np.arange(steps) * (2 * math.pi / steps)

    def around(flat: Array) -> Array:
        return np.stack(
            [flat[:, :1] * np.cos(turn), flat[:, :1] * np.sin(turn), np.broadcast_to(flat[:, 1:], (len(flat), steps))],
            -1,
        )

    return sheet(around(outline), around(normals), round_columns=True, flip=True)


def sheet(
    points: Array, normals: Array, round_rows: bool = False, round_columns: bool = False, flip: bool = False
) -> Mesh:
    """A lattice [R,C,3] as triangles that face (row axis) x (column axis), the other way if `flip`.

    Along a round axis the last line joins the first. Triangles without area, as at the poles of a ball, are left out.
    """
    index = np.arange(points.shape[0] * points.shape[1]).reshape(points.shape[:2])
    index = np.concatenate([index, index[:1]]) if round_rows else index
    index = np.concatenate([index, index[:, :1]], 1) if round_columns else index
    a, b, c, d = (part.ravel() for part in (index[:-1, :-1], index[1:, :-1], index[1:, 1:], index[:-1, 1:]))
    faces = np.concatenate([np.stack([a, b, c], 1), np.stack([a, c, d], 1)])
    flat = points.reshape(-1, 3)
    corner, second, third = (flat[faces[:, k]] for k in range(3))
    area = np.linalg.norm(np.cross(second - corner, third - corner), axis=1)
    faces = faces[area > 1e-12 * np.ptp(flat, axis=0).max() ** 2]
    return Mesh(flat, normals.reshape(-1, 3), faces[:, ::-1] if flip else faces)


def joined(parts: list[Mesh]) -> Mesh:
    starts = np.cumsum([0, *(len(part.points) for part in parts[:-1])])
    return Mesh(
        np.concatenate([part.points for part in parts]),
        np.concatenate([part.normals for part in parts]),
        np.concatenate([part.faces + start for part, start in zip(parts, starts, strict=True)]),
    )
