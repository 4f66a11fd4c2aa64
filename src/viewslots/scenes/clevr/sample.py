"""CLEVR's rules: from a key to a scene description.

Placement and attributes follow the CLEVR generator; the ranges of views follow the paper's Table 'data_multi'.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from viewslots.scenes.clevr.spec import LENS, Lights, Picture, Scene, SceneObject, Vec3
from viewslots.scenes.draws import Draws, noise_key

SHAPES = ("cube", "sphere", "cylinder")
MATERIALS = ("rubber", "metal")
SIZES = {"large": 0.7, "small": 0.35}
COLORS = {
    "gray": (87, 87, 87),
    "red": (173, 35, 35),
    "blue": (42, 75, 215),
    "green": (29, 105, 20),
    "brown": (129, 74, 25),
    "purple": (129, 38, 192),
    "cyan": (41, 208, 208),
    "yellow": (255, 238, 51),
}
"""Used over 255 as linear values, as CLEVR does."""

BASE_CAMERA = (7.48113, -6.50764, 5.34367)
_GROUND_LENGTH = math.sqrt(BASE_CAMERA[0] ** 2 + BASE_CAMERA[1] ** 2)
BEHIND = (-BASE_CAMERA[0] / _GROUND_LENGTH, -BASE_CAMERA[1] / _GROUND_LENGTH)
"""Ground direction away from the base camera."""
LEFT = (BASE_CAMERA[1] / _GROUND_LENGTH, -BASE_CAMERA[0] / _GROUND_LENGTH)

HALF_SIDE = 3.0
MIN_GAP = 0.25
"""Least free distance between the bounding circles of two objects on the ground."""
MARGIN = 0.4
"""Least distance of two centres along each ground axis of the base camera, so that left and behind are unambiguous."""
TRIES = 50
MIN_VISIBLE_PIXELS = 128
"""Of each object in single-view CLEVR, after the crop."""


@dataclass(frozen=True)
class ViewRange:
    """Ranges of azimuth (fraction of a turn), elevation (fraction of a right angle) and distance."""

    azimuth: tuple[float, float]
    elevation: tuple[float, float]
    distance: tuple[float, float]


@dataclass(frozen=True)
class Furnishing:
    """What objects a scene may have, and where they stand. The defaults are CLEVR's."""

    sizes: tuple[str, ...] = tuple(SIZES)
    materials: tuple[str, ...] = MATERIALS
    half_side: float = HALF_SIDE
    """Of the square on which they stand."""
    colors: tuple[str, ...] = tuple(COLORS)
    distinct: bool = False
    """No two objects of a scene have the same colour."""


CLEVR_OBJECTS = Furnishing()
BRIGHT = tuple(color for color in COLORS if color != "gray")
LARGE_OBJECTS = Furnishing(("large",), ("rubber",), 1.8, BRIGHT, distinct=True)
"""Near the middle, without highlights, none of the ground's colour: what 32x32 pixels can show."""

NARROW_VIEWS = ViewRange((0.0, 0.5), (0.3, 0.5), (10.75, 11.75))
WIDE_VIEWS = ViewRange((0.0, 1.0), (0.3, 0.6), (10.5, 12.0))

ARC_VIEWS = ViewRange((0.0, 0.25), (0.42, 0.42), (9.5, 9.5))
"""An arc of a quarter of a turn, nearer to the objects."""

WINDOW_32 = Picture(54, 40, up=5, down=37, left=11, right=43, focal=LENS * 54)
WINDOW_64 = Picture(108, 80, up=10, down=74, left=22, right=86)
WINDOW_128 = Picture(214, 160, up=19, down=147, left=43, right=171, focal=LENS * 214)


def rounded(*vector: float) -> Vec3:
    """To a micrometre: hides the last bit of the platform's trigonometry."""
    x, y, z = (round(value, 6) for value in vector)
    return x, y, z


def sample_objects(
    draws: Draws, count: int, shared: bool, chosen: Furnishing = CLEVR_OBJECTS
) -> tuple[SceneObject, ...]:
    """`count` objects that keep their distances, farthest from the base camera first; anew if one finds no place."""
    common = (draws.choice(SHAPES), draws.choice(chosen.colors), draws.choice(chosen.materials)) if shared else None
    while True:
        objects: list[SceneObject] = []
        while len(objects) < count and (body := _place(draws, objects, common, chosen)) is not None:
            objects.append(body)
        if len(objects) == count:
            return tuple(sorted(objects, key=lambda body: _along(body.location, BASE_CAMERA)))


def _place(
    draws: Draws, others: list[SceneObject], common: tuple[str, str, str] | None, chosen: Furnishing
) -> SceneObject | None:
    """One more object. Order of draws as in CLEVR: size, position tries, shape, colour, rotation, material."""
    size, side = draws.choice(chosen.sizes), chosen.half_side
    radius = SIZES[size]
    for _ in range(TRIES):
        x, y = draws.uniform(-side, side), draws.uniform(-side, side)
        if all(keeps_distance(x, y, radius, other) for other in others):
            break
    else:
        return None
    taken = {other.color for other in others} if chosen.distinct else set()
    shape, color = draws.choice(SHAPES), draws.choice(tuple(color for color in chosen.colors if color not in taken))
    rotation = draws.uniform(0, 2 * math.pi)
    material = draws.choice(chosen.materials)
    if common:
        shape, color, material = common
    red, green, blue = COLORS[color]
    return SceneObject(
        shape=shape,  # type: ignore[arg-type]
        radius=radius,
        rgb=(red / 255, green / 255, blue / 255),
        material=material,  # type: ignore[arg-type]
        location=rounded(x, y, radius),
        rotation=round(rotation, 6),
        size=size,
        color=color,
    )


def keeps_distance(x: float, y: float, radius: float, other: SceneObject) -> bool:
    dx, dy = x - other.location[0], y - other.location[1]
    if math.sqrt(dx * dx + dy * dy) - radius - other.radius < MIN_GAP:
        return False
    return all(not 0 < abs(dx * axis[0] + dy * axis[1]) < MARGIN for axis in (LEFT, BEHIND))


def _along(point: Vec3, axis: Vec3) -> float:
    """Larger is nearer to a camera on that axis."""
    return sum(a * b for a, b in zip(point, axis, strict=True))


def sample_lights(draws: Draws) -> Lights:
    """Each lamp's coordinates + U(-1, 1)."""
    nominal = Lights()
    key, back, fill = (
        rounded(*(value + draws.uniform(-1, 1) for value in lamp)) for lamp in (nominal.key, nominal.back, nominal.fill)
    )
    return Lights(key=key, back=back, fill=fill)


def sample_camera(draws: Draws, views: ViewRange) -> Vec3:
    """A camera on a piece of a sphere around the origin."""
    azimuth = 2 * math.pi * draws.uniform(*views.azimuth)
    elevation = math.pi / 2 * draws.uniform(*views.elevation)
    distance = draws.uniform(*views.distance)
    flat = distance * math.cos(elevation)
    return rounded(flat * math.cos(azimuth), flat * math.sin(azimuth), distance * math.sin(elevation))


def sample_multi_view(
    name: str,
    ranges: ViewRange,
    shared: bool,
    objects: tuple[int, int],
    views: int,
    seed: int,
    split: str,
    index: int,
    *,
    family: str | None = None,
    chosen: Furnishing = CLEVR_OBJECTS,
    picture: Picture = WINDOW_64,
) -> Scene:
    """Sets of equal `family` have equal objects and lights for a seed; views are keyed by `name`.

    The families of CLEVR-M, unless one is named: objects of their own, or with colour, shape and material `shared`.
    """
    family = family or ("clevr-m-shared" if shared else "clevr-m")
    draws = Draws(family, seed, split, index, "objects")
    bodies = sample_objects(draws, draws.integer(*objects), shared, chosen)
    cameras = Draws(name, seed, split, index, "views")
    return Scene(
        objects=bodies,
        lights=sample_lights(Draws(family, seed, split, index, "lights")),
        cameras=tuple(sample_camera(cameras, ranges) for _ in range(views)),
        picture=picture,
        key=noise_key(name, seed, split, index),
    )


def sample_single_view(
    objects: tuple[int, int], seed: int, split: str, index: int, visible: Callable[[Scene], list[int]]
) -> Scene:
    """A CLEVR scene before the jittered base camera; objects are placed anew until `visible` finds enough of each."""
    family = "clevr"
    draws = Draws(family, seed, split, index, "objects")
    count = draws.integer(*objects)
    jitter = Draws(family, seed, split, index, "views")
    scene = Scene(
        objects=(),
        lights=sample_lights(Draws(family, seed, split, index, "lights")),
        cameras=(rounded(*(value + jitter.uniform(-0.5, 0.5) for value in BASE_CAMERA)),),
        picture=WINDOW_128,
        backdrop="sweep",
        key=noise_key(family, seed, split, index),
    )
    while True:
        scene = replace(scene, objects=sample_objects(draws, count, shared=False))
        if min(visible(scene)) >= MIN_VISIBLE_PIXELS:
            return scene
