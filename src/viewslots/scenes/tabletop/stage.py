"""Scenes as flat tables on a device: what rays meet and what light needs, gathered by index.

A row is a scene. Objects are numbered over all rows (row * K + slot), parts over all objects, pieces and faces over all
parts: a ray follows first index and count from one table to the next.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from viewslots.scenes.film import circle
from viewslots.scenes.tabletop.bodies import Matrix, Part, Piece, Ring, Solid, Turned, Vec3, parts_of
from viewslots.scenes.tabletop.table_scene import Finish, TableScene, Thing
from viewslots.scenes.tabletop.textures import PATTERNS, placement
from viewslots.scenes.vectors import Vec

TURNED, RING, SOLID = range(3)
TABLE, CLOTH, FLOOR, WALLS = range(4)
"""Finishes of the surroundings, after the two of every object."""
NOWHERE = -1.0
"""Bound of an unused slot: no ray comes that near."""

SEAM = 1e-6
"""By how much neighbouring pieces overlap in metres, so that no ray slips between them."""

R = TypeVar("R", bound="Rows")
WHOLE, FLAG = {"dtype": torch.long}, {"dtype": torch.bool}
"""Of columns that are not float32."""


@dataclass(frozen=True)
class Rows:
    """Columns of one length: tensors, vectors or further tables."""

    def take(self: R, index: Tensor) -> R:
        """The rows of these numbers."""
        return type(self)(**{each.name: _column(getattr(self, each.name), index) for each in fields(self)})

    @classmethod
    def columns(cls) -> dict[str, int]:
        """First column of each field in a table of numbers; that of "end" is the width of the table."""
        widths = [_WIDTHS[each.type] for each in fields(cls)]
        return dict(
            zip((*(each.name for each in fields(cls)), "end"), itertools.accumulate(widths, initial=0), strict=True)
        )

    @classmethod
    def of(cls: type[R], table: Tensor) -> R:
        """From a table of numbers [N, columns]."""
        left = list(table.T.contiguous().unbind(0))
        values: dict[str, Any] = {}
        for each in fields(cls):
            first, *more = (left.pop(0) for _ in range(_WIDTHS[each.type]))
            if each.type is Tensor:
                values[each.name] = first.to(each.metadata.get("dtype", torch.float32))
            else:
                vectors = [Vec(*three) for three in zip(*[iter((first, *more))] * 3, strict=True)]
                values[each.name] = vectors[0] if each.type is Vec else Map(*vectors)
        return cls(**values)


def taken(vector: Vec, index: Tensor) -> Vec:
    return vector.map(lambda part: part.index_select(0, index))


def _column(column: Any, index: Tensor) -> Any:
    if isinstance(column, Vec):
        return taken(column, index)
    return column.index_select(0, index) if isinstance(column, Tensor) else column.take(index)


@dataclass(frozen=True)
class Map(Rows):
    """Affine maps: p -> (x . p, y . p, z . p) + shift."""

    x: Vec
    y: Vec
    z: Vec
    shift: Vec

    def point(self, p: Vec) -> Vec:
        return self.way(p) + self.shift

    def way(self, p: Vec) -> Vec:
        return Vec(self.x.dot(p), self.y.dot(p), self.z.dot(p))

    def normal(self, n: Vec) -> Vec:
        """A normal of the image, in the source: by the transposed rows. Not of unit length."""
        return self.x.scaled(n.x) + self.y.scaled(n.y) + self.z.scaled(n.z)


_WIDTHS: dict[Any, int] = {Tensor: 1, Vec: 3, Map: 12}


@dataclass(frozen=True)
class Objects(Rows):
    """Numbered row * K + slot."""

    center: Vec
    """Of the bounding ball."""
    bound: Tensor
    """Radius of that ball, negative for unused slots."""
    first: Tensor = field(metadata=WHOLE)
    """Its first part."""
    count: Tensor = field(metadata=WHOLE)


@dataclass(frozen=True)
class Parts(Rows):
    shape: Tensor = field(metadata=WHOLE)
    """TURNED, RING or SOLID."""
    first: Tensor = field(metadata=WHOLE)
    """First piece or face."""
    count: Tensor = field(metadata=WHOLE)
    finish: Tensor = field(metadata=WHOLE)
    slot: Tensor = field(metadata=WHOLE)
    """Of the object it belongs to."""
    to_part: Map
    middle: Vec
    """Of the box that holds the part, in its frame."""
    half: Vec
    ring: Vec
    """Radius, tube, cosine of the half angle."""
    sine: Tensor
    """Of the half angle."""


@dataclass(frozen=True)
class Pieces(Rows):
    """Of profiles: r^2 = a + b z + c z^2 where low <= z <= high. Flat ones: z = a where low <= r^2 <= high."""

    flat: Tensor = field(metadata=FLAG)
    a: Tensor
    b: Tensor
    c: Tensor
    low: Tensor
    high: Tensor


@dataclass(frozen=True)
class Faces(Rows):
    normal: Vec
    distance: Tensor


@dataclass(frozen=True)
class Finishes(Rows):
    pattern: Tensor = field(metadata=WHOLE)
    metal: Tensor = field(metadata=FLAG)
    to_texture: Map
    """From the world to periods of the texture."""
    first: Vec
    second: Vec
    ior: Tensor
    alpha: Tensor


@dataclass(frozen=True)
class Lamps(Rows):
    """Numbered row * L + lamp, padded with dark ones."""

    center: Vec
    normal: Vec
    right: Vec
    """As long as the lamp is wide."""
    up: Vec
    radiance: Vec
    area: Tensor


@dataclass(frozen=True)
class Surroundings(Rows):
    """Table and room of every row; angles as cosine and sine."""

    round: Tensor = field(metadata=FLAG)
    half_length: Tensor
    half_width: Tensor
    thickness: Tensor
    floor: Tensor
    """Its z."""
    leg: Tensor
    table_cos: Tensor
    table_sin: Tensor
    cloth_length: Tensor
    """-1 where there is no cloth."""
    cloth_width: Tensor
    room_length: Tensor
    room_width: Tensor
    room_top: Tensor
    """z of the upper end of the walls."""
    room_cos: Tensor
    room_sin: Tensor
    room_x: Tensor
    room_y: Tensor
    environment: Vec
    pedestal: Vec
    """About the radiance of the walls; see light.bounced."""
    finish: Tensor = field(metadata=WHOLE)
    """Number of the table's finish; those of cloth, floor and walls follow."""


@dataclass(frozen=True)
class Tables:
    """The numbers of a stage as rows [N, columns], which kernels follow."""

    objects: Tensor
    parts: Tensor
    pieces: Tensor
    faces: Tensor
    finishes: Tensor
    lamps: Tensor
    around: Tensor


@dataclass(frozen=True)
class Stage:
    """Everything but the rays."""

    tables: Tables
    objects: Objects
    parts: Parts
    pieces: Pieces
    faces: Faces
    finishes: Finishes
    lamps: Lamps
    around: Surroundings
    circle: Tensor
    """Cosines and sines by table, see film.turn."""
    slots: int
    """K."""
    lamp_slots: int
    """L."""

    @property
    def device(self) -> torch.device:
        return self.circle.device

    @property
    def rows(self) -> int:
        return int(self.around.floor.shape[0])

    @staticmethod
    def of(scenes: Sequence[TableScene], slots: int, device: torch.device | str) -> "Stage":
        return _Builder(scenes, slots).stage(device)


class _Builder:
    """Collects the tables in double precision on the host."""

    def __init__(self, scenes: Sequence[TableScene], slots: int) -> None:
        self.slots, self.lamp_slots = max(slots, 1), max(len(scene.lamps) for scene in scenes)
        self.objects: list[tuple[float, ...]] = []
        self.parts: list[tuple[float, ...]] = []
        self.pieces: list[tuple[float, ...]] = []
        self.faces: list[tuple[float, ...]] = []
        self.finishes: list[tuple[float, ...]] = []
        self.lamps: list[tuple[float, ...]] = []
        self.around: list[tuple[float, ...]] = []
        for scene in scenes:
            self._add(scene)

    def _add(self, scene: TableScene) -> None:
        for slot, thing in enumerate(scene.objects):
            self._add_thing(slot, thing)
        self.objects += [(0.0, 0.0, -1e3, NOWHERE, 0, 0)] * (self.slots - len(scene.objects))
        for lamp in scene.lamps:
            right, up = lamp.axes
            sides = (*(lamp.width * x for x in right), *(lamp.height * x for x in up))
            self.lamps.append((*lamp.center, *lamp.normal, *sides, *lamp.radiance, lamp.width * lamp.height))
        self.lamps += [(0.0,) * 16] * (self.lamp_slots - len(scene.lamps))
        self._add_surroundings(scene)

    def _add_thing(self, slot: int, thing: Thing) -> None:
        first = len(self.parts)
        body_to_world = thing.axes
        finishes = []
        for finish in (thing.finish, thing.accent):
            finishes.append(len(self.finishes))
            self._add_finish(finish, body_to_world, thing.location)
        parts, middle, radius = _body(thing.kind, tuple(thing.sizes.items()))
        for part in parts:
            self._add_part(part, body_to_world, thing.location, (finishes[part.accent], slot))
        self.objects.append((*_placed(thing, middle), radius, first, len(parts)))

    def _add_part(self, part: Part, axes: Matrix, location: Vec3, wears: tuple[int, int]) -> None:
        turn = _product(axes, part.axes)
        origin = tuple(location[i] + _dot(axes[i], part.origin) for i in range(3))
        rows = [[turn[i][j] / part.stretch[j] for i in range(3)] for j in range(3)]
        shift = [-_dot(row, origin) for row in rows]
        low, high = part.bounds()
        middle = [(a + b) / 2 for a, b in zip(low, high, strict=True)]
        half = [(b - a) / 2 + 1e-5 for a, b in zip(low, high, strict=True)]
        shape, first, count, ring = self._add_shape(part.shape)
        placed = (*rows[0], *rows[1], *rows[2], *shift, *middle, *half)
        self.parts.append((shape, first, count, *wears, *placed, *ring))

    def _add_shape(self, shape: Turned | Ring | Solid) -> tuple[int, int, int, tuple[float, ...]]:
        """Which shape, its first piece or face, how many of them, and what a ring is."""
        if isinstance(shape, Turned):
            self.pieces += [_piece(piece) for piece in shape.pieces]
            return TURNED, len(self.pieces) - len(shape.pieces), len(shape.pieces), (0.0,) * 4
        if isinstance(shape, Solid):
            self.faces += [(*normal, distance) for normal, distance in shape.faces]
            return SOLID, len(self.faces) - len(shape.faces), len(shape.faces), (0.0,) * 4
        full = shape.half_angle >= math.pi
        ends = (-1.0, 0.0) if full else (math.cos(shape.half_angle), math.sin(shape.half_angle))
        return RING, 0, 1, (shape.radius, shape.tube, *ends)

    def _add_finish(self, finish: Finish, axes: Matrix, location: Vec3) -> None:
        turn = placement(finish.azimuth, finish.tilt)
        rows = [[_dot(row, axes[i]) / finish.period for i in range(3)] for row in turn]
        shift = [offset - _dot(row, location) for row, offset in zip(rows, finish.offset, strict=True)]
        colors = (*finish.colors[0], *finish.colors[1])
        kind = (PATTERNS.index(finish.pattern), finish.metal)
        self.finishes.append((*kind, *rows[0], *rows[1], *rows[2], *shift, *colors, finish.ior, finish.alpha))

    def _add_surroundings(self, scene: TableScene) -> None:
        table, room = scene.table, scene.room
        first = len(self.finishes)
        on_table = (_about_z(table.theta), (0.0, 0.0, 0.0))
        in_room = (_about_z(room.theta), (*room.center, 0.0))
        self._add_finish(table.finish, *on_table)
        self._add_finish(table.cloth or table.finish, *on_table)
        self._add_finish(room.floor, *in_room)
        self._add_finish(room.walls, *in_room)
        self.around.append((
            table.shape == "round", table.half_length, table.half_width, table.thickness, -table.height, table.leg,
            math.cos(table.theta), math.sin(table.theta),
            table.cloth_length if table.cloth else -1.0, table.cloth_width if table.cloth else -1.0,
            room.half_length, room.half_width, room.height - table.height, math.cos(room.theta), math.sin(room.theta),
            *room.center, *room.environment, *wall_radiance(scene), first,
        ))  # fmt: skip

    def stage(self, device: torch.device | str) -> Stage:
        kinds: dict[str, type[Rows]] = {
            "objects": Objects, "parts": Parts, "pieces": Pieces, "faces": Faces, "finishes": Finishes, "lamps": Lamps,
            "around": Surroundings,
        }  # fmt: skip
        tables = {name: _table(getattr(self, name), kind).to(device) for name, kind in kinds.items()}
        where = tables["around"].device
        columns: dict[str, Any] = {name: kind.of(tables[name]) for name, kind in kinds.items()}
        return Stage(Tables(**tables), **columns, circle=_circle(where), slots=self.slots, lamp_slots=self.lamp_slots)


@functools.cache
def _circle(device: torch.device) -> Tensor:
    """By a device with its index: "cuda" is now this GPU, now that."""
    return circle().to(device)


def wall_radiance(scene: TableScene) -> Vec3:
    """A guess at the mean radiance of walls and floor: all light of the lamps over all their area, and some of the sky.

    Nothing but the noise of pictures depends on it.
    """
    room = scene.room
    area = 4 * room.half_length * room.half_width + 4 * (room.half_length + room.half_width) * room.height
    guess = []
    for c in range(3):
        albedo = (room.walls.colors[0][c] + room.walls.colors[1][c] + room.floor.colors[0][c]) / 3
        lamps = sum(lamp.width * lamp.height * lamp.radiance[c] for lamp in scene.lamps)
        guess.append(albedo * (lamps / area + 0.3 * room.environment[c]))
    return guess[0], guess[1], guess[2]


@functools.lru_cache(maxsize=4096)
def _body(kind: str, sizes: tuple[tuple[str, float], ...]) -> tuple[list[Part], Vec3, float]:
    """Parts of a body, and a ball around it in its own frame."""
    parts = parts_of(kind, dict(sizes))
    outlines = [part.outline() for part in parts]
    centers, radii = np.concatenate([c for c, _ in outlines]), np.concatenate([r for _, r in outlines])
    middle = ((centers - radii[:, None]).min(0) + (centers + radii[:, None]).max(0)) / 2
    radius = float((np.sqrt(((centers - middle) ** 2).sum(-1)) + radii).max())
    x, y, z = middle.tolist()
    # What the outlines miss.
    return parts, (x, y, z), 1.01 * radius


def _placed(thing: Thing, point: Vec3) -> Vec3:
    """A point of the body in the world."""
    x, y, z = (thing.location[i] + _dot(thing.axes[i], point) for i in range(3))
    return x, y, z


def middle_of(thing: Thing) -> Vec3:
    """Of the ball around an object, in the world."""
    return _placed(thing, _body(thing.kind, tuple(thing.sizes.items()))[1])


def _piece(piece: Piece) -> tuple[float, ...]:
    if piece.flat:
        low, high = sorted((piece.r0, piece.r1))
        return True, piece.z0, 0.0, 0.0, low**2 * (1 - 2e-6) if low else -1.0, high**2 * (1 + 2e-6)
    return False, *piece.square, piece.z0 - SEAM, piece.z1 + SEAM


def _about_z(angle: float) -> Matrix:
    c, s = math.cos(angle), math.sin(angle)
    return (c, -s, 0.0), (s, c, 0.0), (0.0, 0.0, 1.0)


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _product(a: Matrix, b: Matrix) -> list[list[float]]:
    return [[sum(a[i][k] * b[k][j] for k in range(3)) for j in range(3)] for i in range(3)]


def _table(rows: list[tuple[float, ...]], kind: type[Rows]) -> Tensor:
    """In single precision. An empty table has one row of zeros, so that it can be gathered from."""
    return torch.tensor(rows or [(0.0,) * kind.columns()["end"]], dtype=torch.float64).to(torch.float32)
