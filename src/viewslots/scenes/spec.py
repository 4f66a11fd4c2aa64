"""A scene as plain data: objects, lights, cameras. Drawn by `sample`, looked at by `render`, written as JSON.

Units: metres, radians, linear colours. The world is right handed, z is up, objects rest on z = 0.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from viewslots.errors import UserError

Vec3 = tuple[float, float, float]
Shape = Literal["sphere", "cube", "cylinder"]
Material = Literal["rubber", "metal"]
Backdrop = Literal["plane", "sweep"]

MAX_OBJECTS = 64
MAX_VIEWS = 1024
MAX_PIXELS = 2048


@dataclass(frozen=True)
class SceneObject:
    """One object; `radius` scales a body of half-extent 1."""

    shape: Shape
    radius: float
    rgb: Vec3
    material: Material
    location: Vec3
    rotation: float
    size: str = ""
    color: str = ""


@dataclass(frozen=True)
class Lights:
    """Positions of the three area lamps; the sun stands still. Every lamp looks at the origin."""

    key: Vec3 = (6.44671, -2.90517, 4.25840)
    fill: Vec3 = (-4.67112, -4.01360, 3.01122)
    back: Vec3 = (-1.16850, 2.64602, 5.81574)


@dataclass(frozen=True)
class Picture:
    """The film: a full picture and the window that is kept, in pixels."""

    full_width: int = 108
    full_height: int = 80
    up: int = 10
    down: int = 74
    left: int = 22
    right: int = 86

    @property
    def height(self) -> int:
        return self.down - self.up

    @property
    def width(self) -> int:
        return self.right - self.left

    @property
    def focal(self) -> float:
        """A 35 mm lens before a 32 mm sensor, fitted to the width."""
        return 35 / 32 * self.full_width


@dataclass(frozen=True)
class Scene:
    """Everything a renderer needs. `key` seeds the pixel noise."""

    objects: tuple[SceneObject, ...]
    cameras: tuple[Vec3, ...]
    lights: Lights = Lights()
    picture: Picture = Picture()
    backdrop: Backdrop = "plane"
    key: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The JSON layout of docs/data-format.md."""
        return {
            "objects": [
                {
                    "shape": body.shape,
                    "size": body.size,
                    "r": body.radius,
                    "color": body.color,
                    "rgb": list(body.rgb),
                    "material": body.material,
                    "loc": list(body.location),
                    "theta": body.rotation,
                }
                for body in self.objects
            ],
            "lights_area": {
                "Lamp_Key": list(self.lights.key),
                "Lamp_Fill": list(self.lights.fill),
                "Lamp_Back": list(self.lights.back),
            },
            "views": [{"location": list(camera)} for camera in self.cameras],
            "image_full": [self.picture.full_width, self.picture.full_height],
            "crop": {side: getattr(self.picture, side) for side in ("up", "down", "left", "right")},
            "backdrop": self.backdrop,
            "key": self.key,
        }

    @classmethod
    def from_dict(cls, data: Any) -> "Scene":
        """Read our own layout or that of the reference files (`view` for a single camera, `focal_px` ignored)."""
        fields = _mapping(data, "scene")
        views = [fields["view"]] if "view" in fields else _list(fields, "views", MAX_VIEWS)
        if not views:
            raise UserError("scene: no views; give `view` or a non-empty list `views`")
        lamps = _mapping(fields.get("lights_area", {}), "lights_area")
        defaults = Lights()
        return cls(
            objects=tuple(
                _object(item, f"objects[{k}]") for k, item in enumerate(_list(fields, "objects", MAX_OBJECTS))
            ),
            cameras=tuple(_camera(view, f"views[{m}]") for m, view in enumerate(views)),
            lights=Lights(
                key=_vec(lamps.get("Lamp_Key", defaults.key), "lights_area.Lamp_Key"),
                fill=_vec(lamps.get("Lamp_Fill", defaults.fill), "lights_area.Lamp_Fill"),
                back=_vec(lamps.get("Lamp_Back", defaults.back), "lights_area.Lamp_Back"),
            ),
            picture=_picture(fields),
            backdrop=_choice(fields.get("backdrop", "plane"), Backdrop, "backdrop"),
            key=_integer(fields.get("key", 0), "key", 0, 2**32 - 1),
        )

    @classmethod
    def load(cls, path: Path) -> "Scene":
        try:
            data = json.loads(path.read_text())
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror}); give the path of a scene JSON") from error
        except (UnicodeDecodeError, ValueError, RecursionError) as error:
            raise UserError(f"{path}: not JSON ({error})") from error
        try:
            return cls.from_dict(data)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None


def _object(data: Any, where: str) -> SceneObject:
    fields = _mapping(data, where)
    return SceneObject(
        shape=_choice(_get(fields, "shape", where), Shape, f"{where}.shape"),
        radius=_number(_get(fields, "r", where), f"{where}.r", 1e-3, 100),
        rgb=_vec(_get(fields, "rgb", where), f"{where}.rgb", 0, 1),
        material=_choice(_get(fields, "material", where), Material, f"{where}.material"),
        location=_vec(_get(fields, "loc", where), f"{where}.loc"),
        rotation=_number(fields.get("theta", 0.0), f"{where}.theta"),
        size=str(fields.get("size", "")),
        color=str(fields.get("color", "")),
    )


def _camera(data: Any, where: str) -> Vec3:
    location = _vec(_get(_mapping(data, where), "location", where), f"{where}.location")
    if location[2] <= 0 or math.hypot(location[0], location[1]) < 1e-6:
        raise UserError(
            f"{where}.location: a camera stands above the ground and beside the vertical axis, got {location}"
        )
    return location


def _picture(fields: Mapping[str, Any]) -> Picture:
    default = Picture()
    full = fields.get("image_full", [default.full_width, default.full_height])
    if not isinstance(full, list | tuple) or len(full) != 2:
        raise UserError("image_full: expected [width, height]")
    width, height = (_integer(size, "image_full", 1, MAX_PIXELS) for size in full)
    crop = _mapping(fields.get("crop", {"up": 0, "down": height, "left": 0, "right": width}), "crop")
    up, down = (_integer(_get(crop, side, "crop"), f"crop.{side}", 0, height) for side in ("up", "down"))
    left, right = (_integer(_get(crop, side, "crop"), f"crop.{side}", 0, width) for side in ("left", "right"))
    if up >= down or left >= right:
        raise UserError(f"crop: empty window, rows {up}..{down}, columns {left}..{right}")
    return Picture(width, height, up, down, left, right)


def _mapping(data: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise UserError(f"{where}: expected a JSON object, got {type(data).__name__}")
    return data


def _get(fields: Mapping[str, Any], key: str, where: str) -> Any:
    if key not in fields:
        raise UserError(f"{where}: `{key}` is missing")
    return fields[key]


def _list(fields: Mapping[str, Any], key: str, most: int) -> list[Any]:
    items = _get(fields, key, "scene")
    if not isinstance(items, list) or len(items) > most:
        raise UserError(f"{key}: expected a list of at most {most} items")
    return items


def _number(value: Any, where: str, low: float = -1e6, high: float = 1e6) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise UserError(f"{where}: expected a number in [{low:g}, {high:g}], got {value!r:.40}")
    return float(value)


def _integer(value: Any, where: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UserError(f"{where}: expected an integer in {low}..{high}, got {value!r:.40}")
    return value


def _vec(value: Any, where: str, low: float = -1e6, high: float = 1e6) -> Vec3:
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise UserError(f"{where}: expected three numbers")
    x, y, z = (_number(item, where, low, high) for item in value)
    return x, y, z


def _choice(value: Any, options: Any, where: str) -> Any:
    names = get_args(options)
    if value not in names:
        raise UserError(f"{where}: expected one of {', '.join(names)}, got {value!r:.40}")
    return value
