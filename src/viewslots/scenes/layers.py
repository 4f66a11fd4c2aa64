"""Flat layers: drawn from vectors, placed so that each stays visible, and painted in order into Pictures."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Bool, Float, UInt8
from PIL import Image, ImageDraw

from viewslots.errors import UserError
from viewslots.types import BACKGROUND, COVERED, Pictures

T = TypeVar("T")
Point = tuple[float, float]

MIN_VISIBLE = 0.25
"""Least share of its covered pixels that an object shows."""
TRIES = 10
"""Places tried for one object before the whole picture starts again."""
RESTARTS = 1000
"""Far more than any rule of ours needs: reached only by art that can never be placed."""
DETAIL = 6
"""Pixels a unit of a vector drawing."""
INK = "#3a2b35"


@dataclass(frozen=True)
class Layer:
    """One object of a picture."""

    color: Float[np.ndarray, "*#HW 3"]
    """sRGB, 0 to 255, one colour or one a pixel."""
    alpha: UInt8[np.ndarray, "H W"]
    nearness: float
    """Larger is nearer; no two layers of a picture share it."""


@dataclass(frozen=True)
class Painting:
    """A picture before it is painted."""

    ground: Float[np.ndarray, "*#HW 3"]
    layers: Sequence[Layer]


def place(
    count: int,
    propose: Callable[[list[T]], T],
    mask_of: Callable[[T], Bool[np.ndarray, "H W"]],
    nearness_of: Callable[[list[T]], list[float]],
) -> tuple[T, ...]:
    """`count` items, one after another, each tried anew until it and all before it stay visible.

    `propose` draws one more item for a picture that holds those given; `nearness_of` orders a whole picture.
    """

    def one_more(items: list[T], masks: list[np.ndarray]) -> bool:
        for _ in range(TRIES):
            item = propose(items)
            mask = mask_of(item)
            if all_visible([*masks, mask], nearness_of([*items, item])):
                items.append(item)
                masks.append(mask)
                return True
        return False

    for _ in range(RESTARTS):
        items: list[T] = []
        masks: list[np.ndarray] = []
        while len(items) < count and one_more(items, masks):
            pass
        if len(items) == count:
            return tuple(items)
    raise UserError(f"{count} objects find no place where each keeps {MIN_VISIBLE:.0%} visible; use smaller art")


def all_visible(masks: Sequence[Bool[np.ndarray, "H W"]], nearness: Sequence[float]) -> bool:
    """Whether each mask keeps its least share outside the nearer ones."""
    taken = np.zeros_like(masks[0])
    for k in near_first(nearness):
        area = np.count_nonzero(masks[k])
        if np.count_nonzero(masks[k] & ~taken) < MIN_VISIBLE * area:
            return False
        taken |= masks[k]
    return True


def near_first(nearness: Sequence[float]) -> list[int]:
    return sorted(range(len(nearness)), key=lambda k: -nearness[k])


def paint(
    ground: Float[np.ndarray, "*#HW 3"], layers: Sequence[Layer], height: int, width: int
) -> tuple[UInt8[np.ndarray, "H W 3"], UInt8[np.ndarray, "H W"]]:
    """Image and segment: each layer takes its alpha of what the nearer ones left, the ground takes the rest.

    A pixel belongs to the layer with the largest share, where the layers together take at least half.
    """
    left = np.ones((height, width), np.float32)
    image = np.zeros((height, width, 3), np.float32)
    largest = np.zeros((height, width), np.float32)
    segment = np.full((height, width), BACKGROUND, np.uint8)
    for k in near_first([layer.nearness for layer in layers]):
        share = left * (layers[k].alpha / np.float32(255))
        image += share[..., None] * layers[k].color.astype(np.float32)
        segment[share > largest] = k
        np.maximum(largest, share, out=largest)
        left -= share
    image += left[..., None] * ground.astype(np.float32)
    segment[left > 0.5] = BACKGROUND
    return np.rint(image).astype(np.uint8), segment


def paint_all(paintings: Sequence[Painting], slots: int, height: int, width: int) -> Pictures:
    """Pictures with one view each; flat worlds have neither shadows nor a camera."""
    scenes = len(paintings)
    image = np.zeros((scenes, 1, height, width, 3), np.uint8)
    segment = np.zeros((scenes, 1, height, width), np.uint8)
    shapes = np.zeros((scenes, 1, slots, height, width), np.uint8)
    order = np.full((scenes, 1, slots), -np.inf, np.float32)
    for s, painting in enumerate(paintings):
        if len(painting.layers) > slots:
            raise UserError(f"scene {s} has {len(painting.layers)} objects, more than the {slots} slots asked for")
        image[s, 0], segment[s, 0] = paint(painting.ground, painting.layers, height, width)
        for k, layer in enumerate(painting.layers):
            shapes[s, 0, k] = layer.alpha
            order[s, 0, k] = layer.nearness
    return Pictures(
        image=image,
        segment=segment,
        overlap=(shapes >= COVERED).sum(2).astype(np.uint8),
        shapes=shapes,
        shadows=np.zeros_like(shapes),
        depth_order=order,
        camera=np.zeros((scenes, 1, 3), np.float32),
        num_objects=np.array([len(painting.layers) for painting in paintings], np.uint8),
    )


def draw_vectors(text: str, side: int, margin: int = 0, ink: float = 0.0) -> Image.Image:
    """An RGBA picture of `DETAIL` pixels a unit, drawn line by line: `[flat] color shape; shape; ...`.

    Shapes are `oval x y rx ry [degrees]`, `poly x y x y ...`, `blob` (a smooth poly), `star x y inner outer rays` and
    `line width x y x y ...` (smooth). Those of one line share an outline, `ink` units wide, unless it is flat.
    A colour is `#rrggbb` or `ink`.
    """
    image = Image.new("RGBA", ((side + 2 * margin) * DETAIL,) * 2)
    canvas = ImageDraw.Draw(image)
    for line in filter(None, map(str.strip, text.splitlines())):
        color, _, shapes = line.removeprefix("flat ").partition(" ")
        polygons = [polygon for shape in shapes.split(";") for polygon in _trace(shape)]
        polygons = [[((x + margin) * DETAIL, (y + margin) * DETAIL) for x, y in polygon] for polygon in polygons]
        if not line.startswith("flat "):
            for polygon in polygons:
                canvas.line([*polygon, *polygon[:2]], INK, round(2 * ink * DETAIL), joint="curve")
        for polygon in polygons:
            canvas.polygon(polygon, INK if color == "ink" else color)
    return image


def _trace(shape: str) -> list[list[Point]]:
    """The closed polygons that fill a shape."""
    name, *words = shape.split()
    numbers = [float(word) for word in words]
    points = list(zip(numbers[0::2], numbers[1::2], strict=False))
    if name == "poly":
        return [points]
    if name == "blob":
        return [_smooth([points[-1], *points, *points[:2]])]
    if name == "oval":
        return [_oval(*numbers)]
    if name == "star":
        x, y, inner, outer, rays = numbers
        rim = [((inner, outer)[k % 2], math.pi * k / rays) for k in range(2 * int(rays))]
        return [[(x + radius * math.cos(angle), y + radius * math.sin(angle)) for radius, angle in rim]]
    points = list(zip(numbers[1::2], numbers[2::2], strict=True))
    return [_oval(x, y, numbers[0] / 2, numbers[0] / 2) for x, y in _smooth([points[0], *points, points[-1]])]


def _oval(x: float, y: float, across: float, down: float, degrees: float = 0.0) -> list[Point]:
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    rim = [(across * math.cos(math.pi * k / 36), down * math.sin(math.pi * k / 36)) for k in range(72)]
    return [(x + u * cos - v * sin, y + u * sin + v * cos) for u, v in rim]


def _smooth(points: Sequence[Point]) -> list[Point]:
    """Catmull and Rom's curve through all points but the first and the last."""

    def between(a: float, b: float, c: float, d: float, t: float) -> float:
        return b + t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * b - a - 3 * c + d))) / 2

    curve = []
    for four in zip(points, points[1:], points[2:], points[3:], strict=False):
        xs, ys = zip(*four, strict=True)
        curve += [(between(*xs, k / 16), between(*ys, k / 16)) for k in range(17)]
    return curve


def split_range(counts: Mapping[str, tuple[int, int]], split: str) -> tuple[int, int]:
    """Least and largest number of objects in a scene of `split`."""
    if split not in counts:
        raise UserError(f"split {split!r:.40} is none of {', '.join(counts)}")
    return counts[split]


def read_fields(data: Any, names: Sequence[str], where: str) -> list[Any]:
    """The values of a JSON object's fields, in the order of `names`."""
    if not isinstance(data, Mapping):
        raise UserError(f"{where}: expected a JSON object, got {type(data).__name__}")
    if missing := [name for name in names if name not in data]:
        raise UserError(f"{where}: `{missing[0]}` is missing")
    return [data[name] for name in names]


def read_list(value: Any, least: int, most: int, where: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple) or not least <= len(value) <= most:
        raise UserError(f"{where}: expected a list of {least} to {most} items")
    return value


def read_number(value: Any, low: float, high: float, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise UserError(f"{where}: expected a number in [{low:g}, {high:g}], got {value!r:.40}")
    return float(value)
