"""A scene as plain data: objects, lights, cameras. Drawn by `sample`, looked at by `render`, written as JSON.

Units: metres, radians, linear colours. The world is right handed, z is up, objects rest on z = 0.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from viewslots.errors import UserError
from viewslots.scenes.fields import read_choice, read_fields, read_integer, read_list, read_number, require_renderable

T = TypeVar("T")
Vec3 = tuple[float, float, float]
Shape = Literal["sphere", "cube", "cylinder"]
Material = Literal["rubber", "metal"]
Backdrop = Literal["plane", "sweep"]

MAX_OBJECTS = 64
MAX_VIEWS = 1024
MAX_PIXELS = 1024
"""Of a side."""
MAX_FILE = 2**22
LENS = 35 / 32
"""Focal length over width: 35 mm before a 32 mm sensor."""
LIMIT = 1e6
"""Largest coordinate or angle."""
SCENE_FIELDS = ("views", "view", "lights_area", "image_full", "crop", "focal_px", "backdrop", "key")
REFERENCE_FIELDS = ("scene", "shared", "samples", "base_camera", "camera_matrix_world", "wide_view_range")
"""Notes in the reference files, which say nothing new; likewise those of their objects and cameras."""
REFERENCE_ANGLES = ("rho", "phi", "theta")


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
    focal: float = LENS * 108
    """In pixels."""

    @property
    def height(self) -> int:
        return self.down - self.up

    @property
    def width(self) -> int:
        return self.right - self.left

    @property
    def intrinsics(self) -> tuple[float, float, float, float]:
        """fx, fy, cx, cy in pixels of the window: the lens looks through the middle of the full picture."""
        return self.focal, self.focal, self.full_width / 2 - self.left, self.full_height / 2 - self.up

    def sized(self, height: int, width: int) -> "Picture":
        """A window of this size that shows as much over its shorter side. The axis of the lens meets the same place,
        to a quarter of a pixel: full pictures have whole pixels."""
        scale = min(height, width) / min(self.height, self.width)
        *_, x, y = self.intrinsics
        full_width, left = _around(width, width / 2 + scale * (x - self.width / 2))
        full_height, up = _around(height, height / 2 + scale * (y - self.height / 2))
        return Picture(full_width, full_height, up, up + height, left, left + width, scale * self.focal)


def _around(side: int, axis: float) -> tuple[int, int]:
    """The smallest full side around a window, and where the window begins, so that the middle lies at `axis` of it."""
    twice = round(2 * axis)
    first = max(side - twice, 0)
    return twice + 2 * first, first


@dataclass(frozen=True)
class Scene:
    """Everything a renderer needs. `key` seeds the pixel noise."""

    objects: tuple[SceneObject, ...]
    cameras: tuple[Vec3, ...]
    lights: Lights = Lights()
    picture: Picture = Picture()
    backdrop: Backdrop = "plane"
    key: int = 0

    def sized(self, height: int, width: int) -> "Scene":
        """In pictures of another size, with the same field of view over the shorter side."""
        require_renderable(len(self.cameras), height * width, len(self.objects))
        return replace(self, picture=self.picture.sized(height, width))

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
            "focal_px": self.picture.focal,
            "backdrop": self.backdrop,
            "key": self.key,
        }

    @classmethod
    def from_dict(cls, data: Any) -> "Scene":
        """Read our own layout or that of the reference files (`view` for a single camera)."""
        if isinstance(data, Mapping) and ("sprites" in data or "pieces" in data):
            raise UserError(
                "a flat scene (dsprites or abstract); only scenes with cameras are rendered from a description"
            )
        (objects,) = read_fields(data, ("objects",), "scene", (*SCENE_FIELDS, *REFERENCE_FIELDS))
        if "view" not in data and "views" not in data:
            raise UserError("scene: `views` is missing")
        views = [data["view"]] if "view" in data else read_list(data.get("views"), 1, MAX_VIEWS, "views")
        objects = read_list(objects, 0, MAX_OBJECTS, "objects")
        picture = _picture(data)
        require_renderable(len(views), picture.height * picture.width, len(objects))
        return cls(
            objects=tuple(_object(item, f"objects[{k}]") for k, item in enumerate(objects)),
            cameras=tuple(_camera(view, f"views[{m}]") for m, view in enumerate(views)),
            lights=_lights(data.get("lights_area", {})),
            picture=picture,
            backdrop=read_choice(data.get("backdrop", "plane"), Backdrop, "backdrop"),
            key=read_integer(data.get("key", 0), 0, 2**32 - 1, "key"),
        )

    @classmethod
    def load(cls, path: Path) -> "Scene":
        return load_json(path, cls.from_dict)


def load_json(path: Path, read: Callable[[Any], T], line: int | None = None) -> T:
    """A description in a file that nobody vouches for; whatever is wrong is told in one line with the path.

    `line`, from 0: of a file that has one scene a line.
    """
    try:
        data = json.loads(_whole_text(path) if line is None else _text_of_line(path, line))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give the path of a scene JSON") from error
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        if line is None and isinstance(error, json.JSONDecodeError) and error.msg == "Extra data":
            raise UserError(f"{path}: {MANY}") from error
        raise UserError(f"{path}: not JSON ({error})") from error
    try:
        return read(data)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


MANY = "more than one scene; where each has a line of its own, choose one with --scene N, from 0"


def _whole_text(path: Path) -> str:
    if not path.is_file():
        raise UserError(f"{path}: no scene file; give the path of a scene JSON")
    if path.stat().st_size > MAX_FILE:
        raise UserError(f"{path}: {MANY if path.suffix == '.jsonl' else 'too large; give the path of a scene JSON'}")
    return path.read_text()


def _text_of_line(path: Path, line: int) -> str:
    if line < 0 or not path.is_file():
        raise UserError(f"{path}: no scene {line}; give a file with one scene a line, and a number from 0")
    with path.open("rb") as lines:
        for number in range(line + 1):
            text = lines.readline(MAX_FILE + 1)
            if not text.strip():
                raise UserError(f"{path}: no scene {line}; it has {number}")
            if len(text) > MAX_FILE:
                raise UserError(f"{path}: line {number + 1} is too long for a scene")
    return text.decode()


def _object(data: Any, where: str) -> SceneObject:
    names, optional = ("shape", "r", "rgb", "material", "loc"), ("theta", "size", "color", "theta_mod_2pi")
    shape, radius, rgb, material, location = read_fields(data, names, where, optional)
    return SceneObject(
        shape=read_choice(shape, Shape, f"{where}.shape"),
        radius=read_number(radius, 1e-3, 100, f"{where}.r"),
        rgb=_vec(rgb, f"{where}.rgb", 0, 1),
        material=read_choice(material, Material, f"{where}.material"),
        location=_vec(location, f"{where}.loc"),
        rotation=read_number(data.get("theta", 0.0), -LIMIT, LIMIT, f"{where}.theta"),
        size=str(data.get("size", "")),
        color=str(data.get("color", "")),
    )


def _camera(data: Any, where: str) -> Vec3:
    (location,) = read_fields(data, ("location",), where, REFERENCE_ANGLES)
    camera = _vec(location, f"{where}.location")
    if camera[2] <= 0 or math.hypot(camera[0], camera[1]) < 1e-6:
        raise UserError(
            f"{where}.location: a camera stands above the ground and beside the vertical axis, got {camera}"
        )
    return camera


def _lights(data: Any) -> Lights:
    nominal = Lights()
    names = {"key": "Lamp_Key", "fill": "Lamp_Fill", "back": "Lamp_Back"}
    read_fields(data, (), "lights_area", tuple(names.values()))
    return Lights(
        **{lamp: _vec(data.get(name, getattr(nominal, lamp)), f"lights_area.{name}") for lamp, name in names.items()}
    )


def _picture(data: Mapping[str, Any]) -> Picture:
    """The window; by default the full picture, and of that CLEVR-M's size."""
    nominal = Picture()
    full = read_list(data.get("image_full", (nominal.full_width, nominal.full_height)), 2, 2, "image_full")
    width, height = (read_integer(size, 1, MAX_PIXELS, "image_full") for size in full)
    crop = data.get("crop", {"up": 0, "down": height, "left": 0, "right": width})
    up, down, left, right = (
        read_integer(value, 0, most, f"crop.{side}")
        for side, value, most in zip(
            ("up", "down", "left", "right"),
            read_fields(crop, ("up", "down", "left", "right"), "crop"),
            (height, height, width, width),
            strict=True,
        )
    )
    if up >= down or left >= right:
        raise UserError(f"crop: empty window, rows {up}..{down}, columns {left}..{right}")
    focal = read_number(data.get("focal_px", LENS * width), 1e-3, LIMIT, "focal_px")
    return Picture(width, height, up, down, left, right, focal)


def _vec(value: Any, where: str, low: float = -LIMIT, high: float = LIMIT) -> Vec3:
    x, y, z = (read_number(item, low, high, where) for item in read_list(value, 3, 3, where))
    return x, y, z
