"""Painted surfaces of tabletop scenes: bodies, table and room as meshes with the colours of their textures. No Blender.

A body carries its texture as colours of its points. A large flat surface carries it as a picture.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import bodies
import numpy as np
from bodies import Array, Mesh
from parts import part_mesh

from viewslots.scenes.tabletop import textures
from viewslots.scenes.tabletop.bodies import Part, Piece, Turned, block, parts_of
from viewslots.scenes.tabletop.table_scene import Finish, Room, Table, Thing

FINE, COARSE = 0.0015, 0.005
"""Metres between points that carry a texture, on bodies and on table legs. A pixel is about 6 mm wide, a metre away."""
WIDE = 100.0
"""The same where all points have one colour: no limit."""
LAYER = 1e-5
"""Metres between faces that share a plane."""
TEXELS = 1024
"""A side of the picture on a flat surface."""


@dataclass(frozen=True)
class Surface:
    """A mesh with one finish. Flat ones with a pattern have `places` and a `picture`."""

    mesh: Mesh
    finish: Finish
    colors: Array
    """[V,3] linear, at the points"""
    places: Array | None = None
    """[V,2]: where the points lie in the picture, 0 to 1"""
    picture: Array | None = None
    """[T,T,3] linear, rows along the second of `places`"""


def colors_at(finish: Finish, points: Array) -> Array:
    """[N,3] linear colours at points of the frame that the finish belongs to (docs/tabletop.md, Textures)."""
    turn = np.array(textures.placement(finish.azimuth, finish.tilt))
    x, y, z = (points @ turn.T / finish.period + finish.offset).astype(np.float32).T
    second = textures.share(np, finish.pattern, x, y, z)[:, None].astype(np.float64)
    return (1 - second) * finish.colors[0] + second * finish.colors[1]


def painted(part: Part, finish: Finish, step: float = FINE) -> Surface:
    mesh = part_mesh(part, WIDE if finish.pattern == "plain" else step)
    return Surface(mesh, finish, colors_at(finish, mesh.points))


def papered(mesh: Mesh, finish: Finish) -> Surface:
    """A flat mesh in a plane of two of the axes; the picture fills its bounding rectangle."""
    corners = colors_at(finish, mesh.points)
    if finish.pattern == "plain":
        return Surface(mesh, finish, corners)
    low, size = mesh.points.min(0), np.ptp(mesh.points, axis=0)
    across, along = np.sort(np.argsort(size)[1:])
    texel = (np.arange(TEXELS) + 0.5) / TEXELS
    points = np.tile(low, (TEXELS, TEXELS, 1))
    points[..., across] += texel * size[across]
    points[..., along] += texel[:, None] * size[along]
    picture = colors_at(finish, points.reshape(-1, 3)).reshape(TEXELS, TEXELS, 3)
    places = (mesh.points - low)[:, [across, along]] / size[[across, along]]
    return Surface(mesh, finish, corners, places, picture)


def thing_surfaces(thing: Thing) -> list[Surface]:
    """In the frame of the body."""
    surfaces = []
    for layer, part in enumerate(parts_of(thing.kind, thing.sizes)):
        surface = painted(part, thing.accent if part.accent else thing.finish)
        # Parts may share a plane, as cover and spine of a book. Two faces in one place shade each other in Cycles: each
        # part lies a little above those before it.
        raised = surface.mesh.points + LAYER * layer * surface.mesh.normals
        surfaces.append(replace(surface, mesh=replace(surface.mesh, points=raised)))
    return surfaces


def table_surfaces(table: Table) -> list[Surface]:
    """In the frame of the table: slab, cloth and legs."""
    edge = _edge_angles(table)
    outline = _reach(table, edge)
    cloth = table.cloth
    surfaces = [papered(_lying(edge, 0 * outline, outline, -table.thickness), table.finish)]
    if cloth is None:
        surfaces.append(papered(_lying(edge, 0 * outline, outline, 0.0), table.finish))
    else:
        covered = np.minimum(outline, _rectangle(edge, table.cloth_length, table.cloth_width))
        surfaces.append(papered(_lying(edge, 0 * covered, covered, 0.0), cloth))
        if (covered < outline).any():
            surfaces.append(papered(_lying(edge, covered, outline, 0.0), table.finish))
    wide = table.cloth_length >= table.half_length and table.cloth_width >= table.half_width
    rim = cloth if cloth and wide else table.finish
    # The slab is closed: its top and bottom lie in the planes above, so only its sides are left to show.
    surfaces += [painted(part, rim, COARSE) for part in _sides(table)]
    return surfaces + [painted(part, table.finish, COARSE) for part in _legs(table)]


def room_surfaces(room: Room, floor: float) -> list[Surface]:
    """In the frame of the room: floor and walls. Heights are those of the world."""
    x, y = room.half_length, room.half_width
    corners = [(-x, -y), (x, -y), (x, y), (-x, y)]
    low = np.array([[*corner, floor] for corner in corners])
    high = low + np.array([0.0, 0.0, room.height])
    surfaces = [papered(_quad(low[0], low[1], low[3], low[2]), room.floor)]
    for here in range(4):
        there = (here + 1) % 4
        surfaces.append(papered(_quad(low[here], high[here], low[there], high[there]), room.walls))
    return surfaces


def _quad(a: Array, b: Array, c: Array, d: Array) -> Mesh:
    """Corners a, b of one side and c, d of the opposite one; it faces (b - a) x (c - a)."""
    points = np.array([[a, c], [b, d]])
    normal = np.cross(b - a, c - a)
    return bodies.sheet(points, np.broadcast_to(normal / np.linalg.norm(normal), points.shape))


def _lying(angle: Array, inner: Array, outer: Array, height: float) -> Mesh:
    """The level surface between two outlines around the axis, given as distances at angles."""
    circle = np.stack([np.cos(angle), np.sin(angle), np.zeros_like(angle)], 1)
    points = np.stack([inner[:, None] * circle, outer[:, None] * circle])
    points[..., 2] = height
    return bodies.sheet(points, np.broadcast_to([0.0, 0.0, 1.0], points.shape), round_columns=True)


def _edge_angles(table: Table) -> Array:
    """A fine division of the full turn with the corners of table and cloth in it."""
    corners = [math.atan2(table.half_width, table.half_length), math.atan2(table.cloth_width, table.cloth_length or 1)]
    if table.cloth and table.shape == "round":
        # Where the sides of the cloth leave the table.
        radius = table.half_length
        corners += [math.acos(min(table.cloth_length / radius, 1)), math.asin(min(table.cloth_width / radius, 1))]
    exact = [sign * angle + turn for angle in corners for sign in (-1, 1) for turn in (0, math.pi)]
    steps = np.arange(720) * (2 * math.pi / 720)
    return np.unique(np.round(np.concatenate([steps, exact]) % (2 * math.pi), 12))


def _reach(table: Table, angle: Array) -> Array:
    """Distance of the edge of the table from its middle."""
    if table.shape == "round":
        return np.full_like(angle, table.half_length)
    return _rectangle(angle, table.half_length, table.half_width)


def _rectangle(angle: Array, length: float, width: float) -> Array:
    across, along = np.abs(np.cos(angle)), np.abs(np.sin(angle))
    return np.minimum(length / np.maximum(across, 1e-12), width / np.maximum(along, 1e-12))


def _sides(table: Table) -> Iterator[Part]:
    """The upright sides of the slab, as parts that are nothing else."""
    if table.shape == "round":
        radius = table.half_length
        yield Part(Turned((Piece(radius, -table.thickness, radius, 0.0),)))
        return
    slab = block(table.half_length, table.half_width, table.thickness)
    upright = tuple(face for face in slab.faces if face[0][2] == 0)
    yield Part(type(slab)(upright, slab.corners), origin=(0.0, 0.0, -table.thickness))


def _legs(table: Table) -> Iterator[Part]:
    height = table.height - table.thickness
    if table.shape == "round":
        yield Part(Turned((Piece(table.leg, -table.height, table.leg, -table.thickness),)))
        return
    x, y = table.half_length - 3 * table.leg, table.half_width - 3 * table.leg
    for across in (-x, x):
        for along in (-y, y):
            yield Part(block(table.leg, table.leg, height), origin=(across, along, -table.height))
