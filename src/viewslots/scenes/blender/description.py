"""A scene description: JSON in, checked values out; standard library only, so bad input is named without Blender.

CLEVR's scenes are read here, tabletop's by their own reader, which needs no more than this one.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from viewslots.errors import UserError
from viewslots.scenes.tabletop.table_scene import WORLD, TableScene

Vector = tuple[float, float, float]

SHAPES = ("cube", "sphere", "cylinder")
MATERIALS = ("rubber", "metal")
BACKDROPS = ("plane", "sweep")
LIGHTS: dict[str, Vector] = {
    "Lamp_Key": (6.44671, -2.90517, 4.25840),
    "Lamp_Fill": (-4.67112, -4.01360, 3.01122),
    "Lamp_Back": (-1.16850, 2.64602, 5.81574),
}
"""Where CLEVR's area lights stand before a scene moves them."""
IMAGE_FULL = [108, 80]
LENS, SENSOR = 35.0, 32.0
"""Millimetres; the focal length in pixels follows where `focal_px` does not give it."""

MAX_OBJECTS, MAX_VIEWS = 64, 1024
PICTURE_SIDE = (4, 2048)
"""Smallest side that Blender renders; largest that anyone means."""
FARTHEST = 1e4
"""Metres: beyond this, single precision loses the objects."""


class SceneError(Exception):
    """A description that cannot be rendered; the text is the one line the user sees."""


@dataclass(frozen=True)
class Body:
    """One object. `rgb` is linear, `theta` (radians) turns it about the vertical."""

    shape: Literal["cube", "sphere", "cylinder"]
    r: float
    rgb: Vector
    material: Literal["rubber", "metal"]
    loc: Vector
    theta: float


@dataclass(frozen=True)
class Film:
    """The rendered window of the full picture, with the optical axis in pixels of that window."""

    width: int
    height: int
    centre: tuple[float, float]
    focal_px: float


@dataclass(frozen=True)
class Scene:
    bodies: tuple[Body, ...]
    lights: dict[str, Vector]
    """Positions of the three area lights; each looks at the origin."""
    cameras: tuple[Vector, ...]
    """Positions; each camera looks at the origin."""
    film: Film
    backdrop: Literal["plane", "sweep"]


def read_scene(path: Path) -> Scene | TableScene:
    """Read and check a description; SceneError says what is wrong and where."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SceneError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise SceneError(f"{path} is not a text file: byte {error.start} is not UTF-8") from error
    try:
        tree = json.loads(text)
    except json.JSONDecodeError as error:
        raise SceneError(f"{path} is not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:
        raise SceneError(f"{path} is not JSON that can be read: {error}") from error
    try:
        if isinstance(tree, dict) and tree.get("world") == WORLD:
            return TableScene.from_dict(tree)
        return parse_scene(tree)
    except (SceneError, UserError) as error:
        raise SceneError(f"{path}: {error}") from error


def parse_scene(tree: object) -> Scene:
    root = _mapping(tree, "the description")
    lights = _mapping(root.get("lights_area", {}), "lights_area")
    return Scene(
        bodies=_bodies(root),
        lights={name: _place(lights.get(name, list(usual)), f"lights_area.{name}") for name, usual in LIGHTS.items()},
        cameras=_cameras(root),
        film=_film(root),
        backdrop=cast(Any, _choice(root.get("backdrop", "plane"), BACKDROPS, "backdrop")),
    )


def _bodies(root: dict[str, Any]) -> tuple[Body, ...]:
    listed = _sequence(_get(root, "objects", ""), "objects")
    if len(listed) > MAX_OBJECTS:
        raise SceneError(f"objects: {len(listed)} given, at most {MAX_OBJECTS} can be rendered")
    return tuple(_body(_mapping(item, f"objects[{k}]"), f"objects[{k}]") for k, item in enumerate(listed))


def _body(item: dict[str, Any], where: str) -> Body:
    rgb = _vector(_get(item, "rgb", where), f"{where}.rgb")
    if not all(0 <= channel <= 1 for channel in rgb):
        raise SceneError(f"{where}.rgb: channels are linear values in 0..1, not {list(rgb)}")
    radius = _number(_get(item, "r", where), f"{where}.r")
    if not 0 < radius <= FARTHEST:
        raise SceneError(f"{where}.r: a radius in metres above 0 is needed, not {radius:g}")
    return Body(
        shape=cast(Any, _choice(_get(item, "shape", where), SHAPES, f"{where}.shape")),
        r=radius,
        rgb=rgb,
        material=cast(Any, _choice(_get(item, "material", where), MATERIALS, f"{where}.material")),
        loc=_vector(_get(item, "loc", where), f"{where}.loc"),
        theta=_number(item.get("theta", 0.0), f"{where}.theta"),
    )


def _cameras(root: dict[str, Any]) -> tuple[Vector, ...]:
    if "view" in root:
        named = [(root["view"], "view")]
    elif "views" in root:
        listed = _sequence(root["views"], "views")
        if not 1 <= len(listed) <= MAX_VIEWS:
            raise SceneError(f"views: 1 to {MAX_VIEWS} are needed, not {len(listed)}")
        named = [(view, f"views[{m}]") for m, view in enumerate(listed)]
    else:
        raise SceneError("missing key 'view' (one) or 'views' (a list)")
    return tuple(_camera(_mapping(view, at), at) for view, at in named)


def _camera(view: dict[str, Any], where: str) -> Vector:
    place = _place(_get(view, "location", where), f"{where}.location")
    if place[2] <= 0:
        raise SceneError(f"{where}.location: a camera stands above the ground, not at height {place[2]:g}")
    return place


def _film(root: dict[str, Any]) -> Film:
    full = _sequence(root.get("image_full", IMAGE_FULL), "image_full")
    if len(full) != 2:
        raise SceneError(f"image_full: [width, height] is needed, not {len(full)} values")
    width, height = (_whole(value, "image_full") for value in full)
    up, down, left, right = _crop(root, width, height)
    focal = _number(root.get("focal_px", LENS / SENSOR * width), "focal_px")
    # Blender's lens is at least 1 mm long.
    if not (right - left) / SENSOR <= focal <= FARTHEST * (right - left):
        raise SceneError(f"focal_px: {focal:g} pixels is no focal length for a picture {right - left} pixels wide")
    return Film(right - left, down - up, (width / 2 - left, height / 2 - up), focal)


def _crop(root: dict[str, Any], width: int, height: int) -> tuple[int, int, int, int]:
    """Rows up..down and columns left..right that are kept; all where the description does not say."""
    crop = _mapping(root.get("crop", {"up": 0, "down": height, "left": 0, "right": width}), "crop")
    sides = ("up", "down", "left", "right")
    up, down, left, right = (_whole(_get(crop, side, "crop"), f"crop.{side}") for side in sides)
    if not (0 <= up < down <= height and 0 <= left < right <= width):
        raise SceneError(f"crop: rows {up}..{down}, columns {left}..{right} do not lie in a {width} x {height} picture")
    smallest, largest = PICTURE_SIDE
    if not all(smallest <= side <= largest for side in (right - left, down - up)):
        raise SceneError(f"crop: sides must be {smallest}..{largest} pixels, not {right - left} x {down - up}")
    return up, down, left, right


def _get(mapping: dict[str, Any], key: str, where: str) -> Any:
    if key not in mapping:
        raise SceneError(f"missing key '{key}'" + (f" in {where}" if where else ""))
    return mapping[key]


def _mapping(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SceneError(f"{where}: a JSON object is needed, not {_kind(value)}")
    return value


def _sequence(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise SceneError(f"{where}: a list is needed, not {_kind(value)}")
    return value


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SceneError(f"{where}: a number is needed, not {_kind(value)}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise SceneError(f"{where}: a finite number is needed")
    return number


def _whole(value: object, where: str) -> int:
    number = _number(value, where)
    if number != int(number):
        raise SceneError(f"{where}: a whole number of pixels is needed, not {number:g}")
    return int(number)


def _vector(value: object, where: str) -> Vector:
    parts = _sequence(value, where)
    if len(parts) != 3:
        raise SceneError(f"{where}: three numbers are needed, not {len(parts)}")
    x, y, z = (_number(part, where) for part in parts)
    if max(abs(x), abs(y), abs(z)) > FARTHEST:
        raise SceneError(f"{where}: coordinates beyond {FARTHEST:g} m cannot be rendered")
    return x, y, z


def _place(value: object, where: str) -> Vector:
    """A position from which the origin can be looked at with the vertical up."""
    x, y, z = _vector(value, where)
    if math.hypot(x, y) < 1e-6:
        raise SceneError(
            f"{where}: must not lie on the vertical axis: looking at the origin from there, up is undefined"
        )
    return x, y, z


def _choice(value: object, allowed: tuple[str, ...], where: str) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise SceneError(f"{where}: one of {', '.join(allowed)} is needed, not {_shown(value)}")
    return value


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _kind(value: object) -> str:
    if value is None:
        return "null"
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    return names.get(type(value), "a number")
