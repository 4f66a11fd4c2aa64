"""A tabletop scene as plain data: bodies, table, room, lamps, cameras. Written as JSON, checked when read.

Units: metres, radians, linear colours. Right handed, z is up; the table top is z = 0, the floor is z = -table.height.
docs/tabletop.md has the formulas behind every field.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from viewslots.errors import UserError
from viewslots.scenes.fields import read_choice, read_fields, read_integer, read_list, read_number, require_renderable
from viewslots.scenes.tabletop.bodies import KINDS, WHOLE, Matrix, Vec3

Pattern = Literal["plain", "stripes", "checks", "dots", "noise", "wood", "marble", "print"]
TableShape = Literal["rectangle", "round"]

WORLD = "tabletop"
MAX_OBJECTS = 32
MAX_VIEWS = 1024
MAX_PIXELS = 1024
"""Of a side."""
MAX_LAMPS = 4
FAR = 20.0
"""Largest coordinate."""
TURN = 100.0
"""Largest angle."""
BRIGHT = 1000.0
"""Largest radiance."""


@dataclass(frozen=True)
class Finish:
    """The surface of something: a texture of two colours under a coat.

    Reflectance is (1 - F) colour / pi + F GGX(alpha) with F the exact Fresnel reflectance of the view angle for the
    index `ior` (1: no coat); of metal, colour GGX(alpha).
    """

    colors: tuple[Vec3, Vec3]
    pattern: Pattern = "plain"
    period: float = 0.05
    azimuth: float = 0.0
    tilt: float = 0.0
    offset: Vec3 = (0.0, 0.0, 0.0)
    """In periods."""
    metal: bool = False
    ior: float = 1.0
    alpha: float = 0.3

    @staticmethod
    def of(data: Any, where: str) -> "Finish":
        (colors,) = read_fields(data, ("colors",), where, names_of(Finish))
        first, second = (_vec(item, f"{where}.colors", 0, 1) for item in read_list(colors, 2, 2, f"{where}.colors"))
        if not isinstance(metal := data.get("metal", False), bool):
            raise UserError(f"{where}.metal: expected true or false, got {metal!r:.40}")
        return Finish(
            colors=(first, second),
            pattern=read_choice(data.get("pattern", "plain"), Pattern, f"{where}.pattern"),
            period=read_number(data.get("period", 0.05), 1e-3, 10, f"{where}.period"),
            azimuth=read_number(data.get("azimuth", 0.0), -TURN, TURN, f"{where}.azimuth"),
            tilt=read_number(data.get("tilt", 0.0), -TURN, TURN, f"{where}.tilt"),
            offset=_vec(data.get("offset", (0, 0, 0)), f"{where}.offset", -1000, 1000),
            metal=metal,
            ior=read_number(data.get("ior", 1.0), 1, 3, f"{where}.ior"),
            alpha=read_number(data.get("alpha", 0.3), 0.01, 1, f"{where}.alpha"),
        )


@dataclass(frozen=True)
class Thing:
    """An object: world point = location + Rz(theta) Rx(tilt) (body point)."""

    kind: str
    sizes: Mapping[str, float]
    location: Vec3
    theta: float
    tilt: float
    finish: Finish
    accent: Finish

    @property
    def axes(self) -> Matrix:
        """Rows of the rotation from the body to the world."""
        c, s, u, v = math.cos(self.theta), math.sin(self.theta), math.cos(self.tilt), math.sin(self.tilt)
        return (c, -s * u, s * v), (s, c * u, -c * v), (0.0, v, u)

    @staticmethod
    def of(data: Any, where: str) -> "Thing":
        kind, sizes, location, finish = read_fields(
            data, ("kind", "sizes", "loc", "finish"), where, ("theta", "tilt", "accent")
        )
        if not isinstance(kind, str) or kind not in KINDS:
            raise UserError(f"{where}.kind: expected one of {', '.join(KINDS)}, got {kind!r:.40}")
        return Thing(
            kind=kind,
            sizes=_sizes(kind, sizes, f"{where}.sizes"),
            location=_vec(location, f"{where}.loc"),
            theta=read_number(data.get("theta", 0.0), -TURN, TURN, f"{where}.theta"),
            tilt=read_number(data.get("tilt", 0.0), -TURN, TURN, f"{where}.tilt"),
            finish=Finish.of(finish, f"{where}.finish"),
            accent=Finish.of(data.get("accent", finish), f"{where}.accent"),
        )


@dataclass(frozen=True)
class Table:
    """A slab `thickness` thick on legs; `cloth` covers the middle of the top (all of it and the edge if as large)."""

    shape: TableShape
    half_length: float
    """Along the table's x; of a round table its radius."""
    half_width: float
    thickness: float
    height: float
    theta: float
    finish: Finish
    cloth: Finish | None = None
    cloth_length: float = 0.0
    """Half-sizes of the cloth, along the table's x and y."""
    cloth_width: float = 0.0
    leg: float = 0.03
    """Half-side of a leg; a round table has one of radius `leg`."""

    @staticmethod
    def of(data: Any, where: str) -> "Table":
        names = ("shape", "half_length", "half_width", "thickness", "height", "finish")
        shape, length, width, thickness, height, finish = read_fields(data, names, where, names_of(Table))
        cloth = data.get("cloth")
        return Table(
            shape=read_choice(shape, TableShape, f"{where}.shape"),
            half_length=read_number(length, 0.05, 5, f"{where}.half_length"),
            half_width=read_number(width, 0.05, 5, f"{where}.half_width"),
            thickness=read_number(thickness, 0.005, 0.5, f"{where}.thickness"),
            height=read_number(height, 0.1, 5, f"{where}.height"),
            theta=read_number(data.get("theta", 0.0), -TURN, TURN, f"{where}.theta"),
            finish=Finish.of(finish, f"{where}.finish"),
            cloth=None if cloth is None else Finish.of(cloth, f"{where}.cloth"),
            cloth_length=read_number(data.get("cloth_length", 0.0), 0, 5, f"{where}.cloth_length"),
            cloth_width=read_number(data.get("cloth_width", 0.0), 0, 5, f"{where}.cloth_width"),
            leg=read_number(data.get("leg", 0.03), 0.005, 0.5, f"{where}.leg"),
        )


@dataclass(frozen=True)
class Room:
    """Floor and four walls around `centre`, open above: what leaves it sees the environment's constant radiance."""

    center: tuple[float, float]
    half_length: float
    half_width: float
    height: float
    """Of the walls, above the floor."""
    theta: float
    floor: Finish
    walls: Finish
    environment: Vec3

    @staticmethod
    def of(data: Any, where: str) -> "Room":
        names = ("half_length", "half_width", "height", "floor", "walls", "environment")
        length, width, height, floor, walls, environment = read_fields(data, names, where, names_of(Room))
        center = read_list(data.get("center", (0, 0)), 2, 2, f"{where}.center")
        x, y = (read_number(value, -FAR, FAR, f"{where}.center") for value in center)
        return Room(
            center=(x, y),
            half_length=read_number(length, 0.5, FAR, f"{where}.half_length"),
            half_width=read_number(width, 0.5, FAR, f"{where}.half_width"),
            height=read_number(height, 0.1, FAR, f"{where}.height"),
            theta=read_number(data.get("theta", 0.0), -TURN, TURN, f"{where}.theta"),
            floor=Finish.of(floor, f"{where}.floor"),
            walls=Finish.of(walls, f"{where}.walls"),
            environment=_vec(environment, f"{where}.environment", 0, BRIGHT),
        )


@dataclass(frozen=True)
class Lamp:
    """A rectangle that shines to the side of `normal` and cannot be seen from the other.

    Its width lies along z x normal (x for a normal straight up or down), its height along normal x (width axis).
    """

    center: Vec3
    normal: Vec3
    """Unit length."""
    width: float
    height: float
    radiance: Vec3

    @property
    def axes(self) -> tuple[Vec3, Vec3]:
        """Directions of width and height."""
        x, y, z = self.normal
        flat = math.hypot(x, y)
        right = (-y / flat, x / flat, 0.0) if flat > 1e-6 else (1.0, 0.0, 0.0)
        up = (y * right[2] - z * right[1], z * right[0] - x * right[2], x * right[1] - y * right[0])
        return right, up

    @staticmethod
    def of(data: Any, where: str) -> "Lamp":
        names = ("center", "normal", "width", "height", "radiance")
        center, normal, width, height, radiance = read_fields(data, names, where)
        direction = _vec(normal, f"{where}.normal", -1, 1)
        if abs(math.hypot(*direction) - 1) > 1e-4:
            raise UserError(f"{where}.normal: expected a vector of length 1, got {direction}")
        return Lamp(
            center=_vec(center, f"{where}.center"),
            normal=direction,
            width=read_number(width, 1e-3, FAR, f"{where}.width"),
            height=read_number(height, 1e-3, FAR, f"{where}.height"),
            radiance=_vec(radiance, f"{where}.radiance", 0, BRIGHT),
        )


@dataclass(frozen=True)
class Camera:
    """Looks from `location` at `target`; `roll` turns it to its right about the line of sight.

    `focal` is the focal length over the shorter side of the picture; the optical axis meets the middle of the picture.
    """

    location: Vec3
    target: Vec3
    roll: float
    focal: float

    @property
    def axes(self) -> Matrix:
        """Right, up and backward axes as rows."""
        back = _unit(*(a - b for a, b in zip(self.location, self.target, strict=True)))
        flat = math.hypot(back[0], back[1])
        x, y = -back[1] / flat, back[0] / flat
        up = (-back[2] * y, back[2] * x, back[0] * y - back[1] * x)
        c, s = math.cos(self.roll), math.sin(self.roll)
        # Rolled to the right: the right axis sinks.
        right = (c * x - s * up[0], c * y - s * up[1], -s * up[2])
        top = (s * x + c * up[0], s * y + c * up[1], c * up[2])
        return right, top, back

    @staticmethod
    def of(data: Any, where: str) -> "Camera":
        location, target, focal = read_fields(data, ("location", "target", "focal"), where, ("roll",))
        camera = Camera(
            location=_vec(location, f"{where}.location"),
            target=_vec(target, f"{where}.target"),
            roll=read_number(data.get("roll", 0.0), -TURN, TURN, f"{where}.roll"),
            focal=read_number(focal, 0.1, 100, f"{where}.focal"),
        )
        if math.hypot(*(a - b for a, b in zip(camera.location[:2], camera.target[:2], strict=True))) < 1e-6:
            raise UserError(f"{where}: a camera must not look straight up or down")
        return camera


@dataclass(frozen=True)
class TableScene:
    """Everything a renderer needs. `key` seeds the pixel noise."""

    objects: tuple[Thing, ...]
    table: Table
    room: Room
    lamps: tuple[Lamp, ...]
    cameras: tuple[Camera, ...]
    height: int = 128
    width: int = 128
    key: int = 0

    def sized(self, height: int, width: int) -> "TableScene":
        """In pictures of another size, with the same field of view over the shorter side."""
        require_renderable(len(self.cameras), height * width, len(self.objects))
        return replace(self, height=height, width=width)

    def to_dict(self) -> dict[str, Any]:
        """The JSON layout of docs/data-format.md."""
        things = []
        for thing in self.objects:
            item = asdict(thing)
            item["loc"] = item.pop("location")
            item["sizes"] = dict(thing.sizes)
            things.append(item)
        return {
            "world": WORLD,
            "objects": things,
            "table": asdict(self.table),
            "room": asdict(self.room),
            "lamps": [asdict(lamp) for lamp in self.lamps],
            "views": [asdict(camera) for camera in self.cameras],
            "image": [self.width, self.height],
            "key": self.key,
        }

    @classmethod
    def from_dict(cls, data: Any) -> "TableScene":
        """Read a description that nobody vouches for."""
        names = ("objects", "table", "room", "lamps", "views", "image")
        objects, table, room, lamps, views, image = read_fields(data, names, "scene", ("world", "key"))
        objects = read_list(objects, 0, MAX_OBJECTS, "objects")
        views = read_list(views, 1, MAX_VIEWS, "views")
        sides = read_list(image, 2, 2, "image")
        width, height = (read_integer(side, 1, MAX_PIXELS, "image") for side in sides)
        require_renderable(len(views), height * width, len(objects))
        lamps = read_list(lamps, 1, MAX_LAMPS, "lamps")
        return cls(
            objects=tuple(Thing.of(item, f"objects[{k}]") for k, item in enumerate(objects)),
            table=Table.of(table, "table"),
            room=Room.of(room, "room"),
            lamps=tuple(Lamp.of(item, f"lamps[{n}]") for n, item in enumerate(lamps)),
            cameras=tuple(Camera.of(item, f"views[{m}]") for m, item in enumerate(views)),
            height=height,
            width=width,
            key=read_integer(data.get("key", 0), 0, 2**32 - 1, "key"),
        )


def names_of(kind: type[Any]) -> tuple[str, ...]:
    """Of the fields of a dataclass, which its JSON shares."""
    return tuple(field.name for field in fields(kind))


def _sizes(kind: str, data: Any, where: str) -> dict[str, float]:
    """The parameters of a kind, all of them within their ranges."""
    ranges = KINDS[kind].ranges
    values = read_fields(data, tuple(ranges), where)
    sizes = {}
    for (name, (low, high)), value in zip(ranges.items(), values, strict=True):
        sizes[name] = read_number(value, low, high, f"{where}.{name}")
        if name in WHOLE and sizes[name] != int(sizes[name]):
            raise UserError(f"{where}.{name}: expected a whole number, got {value!r:.40}")
    return sizes


def _vec(value: Any, where: str, low: float = -FAR, high: float = FAR) -> Vec3:
    x, y, z = (read_number(item, low, high, where) for item in read_list(value, 3, 3, where))
    return x, y, z


def _unit(x: float, y: float, z: float) -> Vec3:
    length = math.hypot(x, y, z)
    return x / length, y / length, z / length
