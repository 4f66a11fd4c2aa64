"""Bodies, cameras and lamps from their definition, in float64, slow and obvious: the oracle of the tests here.

A rounded body is the set of points within its edge radius of a smaller, sharp one.
"""

import numpy as np
from numpy.typing import NDArray

from viewslots.scenes.clevr.spec import Lights, Picture, SceneObject

Array = NDArray[np.float64]

BOX_EDGE, CYLINDER_EDGE = 0.184, 0.054
"""Of a body of half-extent 1, facts of CLEVR's meshes."""


def unit_gap(shape: str, points: Array) -> Array:
    """Distance of points [..., 3] from a body of half-extent 1 at the origin, negative inside."""
    if shape == "sphere":
        return np.linalg.norm(points, axis=-1) - 1
    if shape == "cube":
        inner = 1 - BOX_EDGE
        return np.linalg.norm(points - np.clip(points, -inner, inner), axis=-1) - BOX_EDGE
    inner = 1 - CYLINDER_EDGE
    ring = np.hypot(points[..., 0], points[..., 1])
    aside = np.maximum(ring - inner, 0)
    above = np.maximum(np.abs(points[..., 2]) - inner, 0)
    return np.hypot(aside, above) - CYLINDER_EDGE


def gap(body: SceneObject, points: Array) -> Array:
    """Distance of points [..., 3] in the world from a body, negative inside."""
    cos, sin = np.cos(body.rotation), np.sin(body.rotation)
    turn = np.array([[cos, sin, 0.0], [-sin, cos, 0.0], [0.0, 0.0, 1.0]])
    local = (points - np.array(body.location)) @ turn.T / body.radius
    return body.radius * unit_gap(body.shape, local)


def enter(body: SceneObject, origin: Array, direction: Array) -> tuple[Array, Array]:
    """Where rays [..., 3] enter a body (inf: never), and how near to it (how deep into it, negative) they come.

    The distance from a convex body is convex along a ray: a three-point search finds its least, bisection the way in.
    """
    origin, direction = np.broadcast_arrays(np.asarray(origin, np.float64), np.asarray(direction, np.float64))

    def height(t: Array) -> Array:
        return gap(body, origin + t[..., None] * direction)

    low = np.zeros(origin.shape[:-1])
    high = np.linalg.norm(origin - np.array(body.location), axis=-1) + 2 * body.radius
    for _ in range(45):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        falls = height(left) > height(right)
        low, high = np.where(falls, left, low), np.where(falls, high, right)
    deepest = (low + high) / 2
    least = np.minimum(height(deepest), height(np.zeros_like(deepest)))
    outside, inside = np.zeros_like(deepest), deepest
    for _ in range(40):
        middle = (outside + inside) / 2
        within = height(middle) <= 0
        outside, inside = np.where(within, outside, middle), np.where(within, middle, inside)
    return np.where(least <= 0, inside, np.inf), least


def outward(body: SceneObject, points: Array) -> Array:
    """Unit normals by differences of the distance."""
    step = 1e-6 * body.radius
    slope = np.stack([gap(body, points + step * axis) - gap(body, points - step * axis) for axis in np.eye(3)], -1)
    return slope / np.linalg.norm(slope, axis=-1, keepdims=True)


def unit(vectors: Array) -> Array:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def some_body(shape: str, radius: float = 0.7, at: tuple[float, float] = (0.0, 0.0), **other: object) -> SceneObject:
    """A red rubber body on the ground, unless told otherwise."""
    fields = {"rgb": (173 / 255, 35 / 255, 35 / 255), "material": "rubber", "rotation": 0.5} | other
    return SceneObject(shape=shape, radius=radius, location=(*at, radius), **fields)  # type: ignore[arg-type]


def axes(position: Array) -> tuple[Array, Array, Array]:
    """Right, up and backward of a camera or lamp that looks at the origin, z up."""
    back = unit(np.asarray(position, np.float64))
    right = unit(np.cross([0.0, 0.0, 1.0], back))
    return right, np.cross(back, right), back


def pixel_rays(camera: Array, picture: Picture, x: Array, y: Array) -> Array:
    """Unit directions [..., 3] through points of the window, in pixels from its upper left corner."""
    right, up, back = axes(camera)
    focal = 35 / 32 * picture.full_width
    across = (np.asarray(x) + picture.left - picture.full_width / 2) / focal
    down = (np.asarray(y) + picture.up - picture.full_height / 2) / focal
    return unit(across[..., None] * right - down[..., None] * up - back)


def blackman_harris(x: Array) -> Array:
    """The window of Harris (1978) over 3 pixels, zero outside."""
    v = 2 * np.pi * (np.asarray(x) / 3 + 0.5)
    value = 0.35875 - 0.48829 * np.cos(v) + 0.14128 * np.cos(2 * v) - 0.01168 * np.cos(3 * v)
    return np.where(np.abs(x) < 1.5, value, 0.0)


LAMP_POWER = {"key": 78.5398, "fill": 23.5619, "back": 39.2699}
LAMP_SIDE = {"key": 0.5, "fill": 0.5, "back": 1.0}
LAMP_TINT = {"key": (1.0, 0.93231, 0.81666), "fill": (0.76167, 0.81772, 1.0), "back": (1.0, 1.0, 1.0)}
SUN = np.array([0.41450, -0.19458, 0.88901])
SUN_ANGLE = 0.19934 / 2
"""Radius of its disc as an angle."""
SUN_IRRADIANCE = 0.45


def lamp_grid(lights: Lights, lamp: str, steps: int) -> tuple[Array, Array, float]:
    """Points all over a square lamp [steps^2, 3], its normal, and the area of each piece."""
    place, side = np.array(getattr(lights, lamp)), LAMP_SIDE[lamp]
    right, up, back = axes(place)
    offset = (np.arange(steps) + 0.5) / steps * side - side / 2
    points = place + offset[:, None, None] * right + offset[None, :, None] * up
    return points.reshape(-1, 3), -back, (side / steps) ** 2


def lamp_light(lights: Lights, lamp: str, points: Array, normal: Array, steps: int) -> tuple[Array, Array]:
    """Directions [P, n, 3] to pieces of a lamp, and the irradiance [P, n] of each if its radiance were 1."""
    pieces, facing, area = lamp_grid(lights, lamp, steps)
    path = pieces - points[:, None]
    square = (path**2).sum(-1)
    direction = path / np.sqrt(square)[..., None]
    return direction, np.maximum(direction @ normal, 0) * np.maximum(-direction @ facing, 0) / square * area


def sun_light(points: Array, normal: Array, steps: int) -> tuple[Array, Array]:
    """The same for the sun, a uniform disc: directions over its cap, irradiance if it were 1 at normal incidence."""
    right, up, back = axes(SUN)
    rise = 1 - (np.arange(steps) + 0.5) / steps * (1 - np.cos(SUN_ANGLE))
    turn = (np.arange(steps) + 0.5) / steps * 2 * np.pi
    flat = np.sqrt(1 - rise**2)
    direction = rise[:, None, None] * back + flat[:, None, None] * (
        np.cos(turn)[:, None] * right + np.sin(turn)[:, None] * up
    )
    direction = np.broadcast_to(direction.reshape(-1, 3), (len(points), steps**2, 3))
    return direction, np.maximum(direction @ normal, 0) / steps**2


def lamp_radiance(lamp: str) -> Array:
    """Power over pi and area, times its colour."""
    return LAMP_POWER[lamp] / (np.pi * LAMP_SIDE[lamp] ** 2) * np.array(LAMP_TINT[lamp])
