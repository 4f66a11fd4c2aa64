"""The four lamps of CLEVR, and the stage they stand on. All values are linear radiance."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from viewslots.scenes.clevr.geometry import Bodies
from viewslots.scenes.clevr.spec import Scene
from viewslots.scenes.film import circle, fraction, mix, turn
from viewslots.scenes.vectors import Vec

LAMPS = (
    # radiance of the square, its colour, its side
    (100.0, (1.0, 0.93231, 0.81666), 0.5),  # key
    (30.0, (0.76167, 0.81772, 1.0), 0.5),  # fill
    (12.5, (1.0, 1.0, 1.0), 1.0),  # back
)
SUN_DIRECTION = (0.41450, -0.19458, 0.88901)
SUN_IRRADIANCE = 0.45
_SUN_FLAT = math.hypot(SUN_DIRECTION[0], SUN_DIRECTION[1])
SUN_RIGHT = (-SUN_DIRECTION[1] / _SUN_FLAT, SUN_DIRECTION[0] / _SUN_FLAT, 0.0)
SUN_UP = (-SUN_DIRECTION[2] * SUN_RIGHT[1], SUN_DIRECTION[2] * SUN_RIGHT[0], _SUN_FLAT)
SUN_TANGENT = math.tan(0.09967)
"""Tangent of the sun's angular radius."""
LAMP_COLOR = tuple((*(radiance * color[c] for radiance, color, _ in LAMPS), SUN_IRRADIANCE) for c in range(3))
"""A row a channel: radiance of each lamp per unit of `light_samples`' strength, the sun last."""


@dataclass(frozen=True)
class Stage:
    """Everything but the rays, a row a view: bodies [V, K], lamps [V, 3]."""

    bodies: Bodies
    lamp: Vec
    """Positions of the lamps."""
    lamp_right: Vec
    lamp_up: Vec
    lamp_normal: Vec
    circle: Tensor
    """Cosines and sines by table, see film.turn."""
    bent: bool
    """The ground bends up behind the scenes."""

    def __getitem__(self, view: Any) -> "Stage":
        return Stage(
            self.bodies[view],
            self.lamp[view],
            self.lamp_right[view],
            self.lamp_up[view],
            self.lamp_normal[view],
            self.circle,
            self.bent,
        )

    @property
    def device(self) -> torch.device:
        return self.lamp.device

    @staticmethod
    def of(scenes: list[Scene], slots: int, device: torch.device | str) -> "Stage":
        """[S] from descriptions that share a backdrop."""
        lamp = Vec.of([[scene.lights.key, scene.lights.fill, scene.lights.back] for scene in scenes], device)
        right, up, back = look_at_origin(lamp)
        return Stage(
            bodies=Bodies.of(scenes, slots, device),
            lamp=lamp,
            lamp_right=right,
            lamp_up=up,
            lamp_normal=-back,
            circle=circle().to(device),
            bent=scenes[0].backdrop == "sweep",
        )


def look_at_origin(position: Vec) -> tuple[Vec, Vec, Vec]:
    """Right, up and backward axes of something that looks at the origin; straight above it, right is x."""
    back = position.unit()
    zero = torch.zeros_like(back.x)
    above = (back.x == 0) & (back.y == 0)
    right = Vec(torch.where(above, 1.0, -back.y), back.x, zero).unit()
    return right, back.cross(right), back


def noise(key: Tensor, rank: Tensor, dimension: int) -> tuple[Tensor, Tensor, Tensor]:
    """Three numbers in [0, 1): a random shift by key, an even spread over ranks (Roberts' R3 sequence)."""

    def stretch(word: int, step: float) -> Tensor:
        value = fraction(mix(key, 3 * dimension + word)) + rank * step
        return value - torch.floor(value)

    return stretch(1, 0.8191725133961645), stretch(2, 0.6710436067037893), stretch(3, 0.5497004779019703)


def light_samples(
    stage: Stage, view: Tensor, position: Vec, normal: Vec, key: Tensor, rank: Tensor
) -> tuple[Vec, Tensor]:
    """A point on every lamp as seen from [...]: unit directions [..., 4] and strengths [..., 4], 0 behind the surface.

    Strength times `LAMP_COLOR` is irradiance at normal incidence: cos_lamp * area / distance^2, and 1 for the sun.
    """
    directions, strengths = [], []
    for index, (_, _, side) in enumerate(LAMPS):
        u, v, _ = noise(key, rank, index)
        pick = (view, index)
        across, along = (u - 0.5) * side, (v - 0.5) * side
        target = stage.lamp[pick] + stage.lamp_right[pick].scaled(across) + stage.lamp_up[pick].scaled(along)
        path = target - position
        square = path.dot(path)
        directions.append(path.scaled(1 / torch.sqrt(square)))
        strengths.append((-directions[-1].dot(stage.lamp_normal[pick])).clamp_min(0) * (side * side) / square)
    u, v, _ = noise(key, rank, len(LAMPS))
    cos, sin = turn(v, stage.circle)
    reach = torch.sqrt(u) * SUN_TANGENT
    aside, above = reach * cos, reach * sin
    sun = zip(SUN_DIRECTION, SUN_RIGHT, SUN_UP, strict=True)
    directions.append(Vec(*(ahead + right * aside + up * above for ahead, right, up in sun)).unit())
    strengths.append(torch.ones_like(strengths[0]))
    direction = Vec(*(torch.stack([getattr(d, axis) for d in directions], -1) for axis in "xyz"))
    return direction, torch.stack(strengths, -1) * (normal[..., None].dot(direction) > 0)


def lamp_sum(weight: Tensor, color: tuple[float, ...]) -> Tensor:
    """Sum over the lamps of weight [..., 4] times a number each, in fixed order."""
    parts = [weight[..., lamp] * color[lamp] for lamp in range(len(color))]
    return parts[0] + parts[1] + parts[2] + parts[3]


def lamp_radiance(stage: Stage, view: Tensor, origin: Vec, heading: Vec, nearest: Tensor, mirrored: Tensor) -> Vec:
    """Lamps and sun seen directly along mirrored rays that reach them before `nearest`."""
    aim = heading.x * SUN_DIRECTION[0] + heading.y * SUN_DIRECTION[1] + heading.z * SUN_DIRECTION[2]
    in_disc = (aim > 0) & (1 - aim * aim < SUN_TANGENT**2 * aim * aim)
    seen = mirrored & in_disc & (nearest == torch.inf)
    light = Vec(*([seen * (SUN_IRRADIANCE / (math.pi * SUN_TANGENT**2))] * 3))
    for index, (_, _, side) in enumerate(LAMPS):
        pick = (view, index)
        normal = stage.lamp_normal[pick]
        offset = stage.lamp[pick] - origin
        speed = -heading.dot(normal)
        distance = -offset.dot(normal) / torch.where(speed > 1e-6, speed, 1.0)
        miss = heading.scaled(distance) - offset
        inside = (miss.dot(stage.lamp_right[pick]).abs() < side / 2) & (miss.dot(stage.lamp_up[pick]).abs() < side / 2)
        seen = mirrored & (speed > 1e-6) & (distance > 0) & (distance < nearest) & inside
        light = light + Vec(*(seen * color[index] for color in LAMP_COLOR))
    return light
