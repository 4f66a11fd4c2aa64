"""The ground: where rays meet it, its direct light, and the shadow that each body casts on it."""

import math

import torch
from torch import Tensor

from viewslots.scenes.clevr.geometry import intersect
from viewslots.scenes.clevr.lights import LAMP_COLOR, Stage, lamp_sum, light_samples
from viewslots.scenes.clevr.sample import BEHIND
from viewslots.scenes.vectors import Vec

GROUND_ALBEDO = 0.8
LUMINANCE = (0.2126, 0.7152, 0.0722)

SWEEP_START, SWEEP_RADIUS = 10.0, 12.0
"""The backdrop of single-view CLEVR leaves the plane this far behind the origin, on a quarter circle of this radius."""


def ground_hit(bent: bool, origin: Vec, direction: Vec) -> tuple[Tensor, Vec]:
    """Distance to the ground (inf if never) and its normal: the plane z = 0, `bent` up behind the scene or not."""
    falls = direction.z < -1e-6
    plane = torch.where(falls, -origin.z / torch.where(falls, direction.z, -1.0), torch.inf)
    zero, one = torch.zeros_like(plane), torch.ones_like(plane)
    if not bent:
        return plane, Vec(zero, zero, one)
    start = origin.x * BEHIND[0] + origin.y * BEHIND[1]
    speed = direction.x * BEHIND[0] + direction.y * BEHIND[1]
    bends = (start + speed * plane.clamp_max(1e6) > SWEEP_START) & (speed > 0)
    # Inside of a lying cylinder around (SWEEP_START, SWEEP_RADIUS) in the (behind, up) plane; it ends at its axis.
    across, above = start - SWEEP_START, origin.z - SWEEP_RADIUS
    square = (speed * speed + direction.z * direction.z).clamp_min(1e-12)
    half = across * speed + above * direction.z
    root = half * half - square * (across * across + above * above - SWEEP_RADIUS**2)
    arc = (-half + torch.sqrt(root.clamp_min(0))) / square
    ends = (root <= 0) | (origin.z + direction.z * arc > SWEEP_RADIUS)
    distance = torch.where(bends, torch.where(ends, torch.inf, arc), plane)
    inward = (across + speed * arc) / SWEEP_RADIUS
    upward = -(above + direction.z * arc) / SWEEP_RADIUS
    return distance, Vec(
        torch.where(bends, -inward * BEHIND[0], zero),
        torch.where(bends, -inward * BEHIND[1], zero),
        torch.where(bends, upward, one),
    )


def ground_light(
    stage: Stage, view: Tensor, position: Vec, normal: Vec, key: Tensor, rank: Tensor
) -> tuple[Tensor, Tensor]:
    """Direct light on ground points [...]: strength of each lamp [..., 4], and whether body k blocks it [..., 4, K]."""
    direction, strength = ground_samples(stage, view, position, normal, key, rank)
    return strength, intersect(stage.bodies, view[..., None], position[..., None], direction) < torch.inf


def ground_samples(
    stage: Stage, view: Tensor, position: Vec, normal: Vec, key: Tensor, rank: Tensor
) -> tuple[Vec, Tensor]:
    """Towards the lamps, and how strongly they light a unit of ground."""
    direction, strength = light_samples(stage, view, position, normal, key, rank)
    return direction, strength * normal[..., None].dot(direction)


def ground_radiance(strength: Tensor, blocked: Tensor) -> Vec:
    """What leaves the (Lambertian) ground."""
    open_strength = strength * ~blocked.any(-1) * (GROUND_ALBEDO / math.pi)
    return Vec(*(lamp_sum(open_strength, color) for color in LAMP_COLOR))


def ground_shadows(strength: Tensor, blocked: Tensor) -> Tensor:
    """[..., K]: the share of luminance that each body alone takes away."""
    luminance = tuple(sum(w * row[lamp] for w, row in zip(LUMINANCE, LAMP_COLOR, strict=True)) for lamp in range(4))
    taken = lamp_sum(strength[..., None, :] * blocked.transpose(-1, -2), luminance)
    return taken / lamp_sum(strength, luminance).clamp_min(1e-12)[..., None]
