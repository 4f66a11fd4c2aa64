"""Rubber and metal: how much light they turn from one direction into another, and where they send a ray."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from viewslots.scenes.clevr.geometry import Bodies, to_body, to_world
from viewslots.scenes.clevr.lights import LAMP_COLOR, Stage, lamp_sum, noise
from viewslots.scenes.film import turn
from viewslots.scenes.vectors import Vec

RUBBER_COAT = (1.2, 1.4)
"""Indices of refraction that blend in the gloss and the velvet."""
VELVET = 0.6
GLOSS = 0.8
GLOSS_ALPHA = 0.35
METAL_LOBES = ((0.4, 0.2), (0.6, 0.01))
"""(share, GGX alpha): a rough lobe and almost a mirror."""
BLURRED_ALPHA = 0.35
"""Of metal that a diffuse ray looks at."""
FREE = 0.25
"""Share of diffuse rays that may go up; the others are turned down to the ground."""
STRETCH = (1 - 0.25, 1 / (1 - 0.25))
"""Both metal lobes have anisotropy 0.25: factors of alpha along the turn about z and across it."""


@dataclass(frozen=True)
class Points:
    """P surface points with what their light depends on."""

    view: Tensor
    """[P] row of the stage."""
    slot: Tensor
    """[P] body they lie on, -1 for the ground."""
    position: Vec
    normal: Vec
    viewer: Vec
    """Unit vector towards whoever looks."""
    key: Tensor
    """[P] noise key."""
    rank: Tensor
    """[P] index among the samples that share a key; spreads them evenly."""
    blurred: Tensor
    """[P] bool: looked at by a diffuse ray, to which mirrors are rough (Blender's 'filter glossy': no fireflies)."""

    @property
    def device(self) -> torch.device:
        return self.view.device

    def __getitem__(self, index: Any) -> "Points":
        return Points(*(getattr(self, name)[index] for name in self.__dataclass_fields__))


def fresnel(cosine: Tensor, index: float) -> Tensor:
    """Unpolarised reflectance of a dielectric."""
    g = torch.sqrt(index * index - 1 + cosine * cosine)
    a = (g - cosine) / (g + cosine)
    b = (cosine * (g + cosine) - 1) / (cosine * (g - cosine) + 1)
    return 0.5 * a * a * (1 + b * b)


def rubber(color: Vec, normal: Vec, viewer: Vec, light: Vec) -> Vec:
    """Reflectance times cos_light: Lambert and Ashikhmin's velvet under a Beckmann gloss, blended by Fresnel."""
    nv, nl = normal.dot(viewer).clamp_min(1e-3), normal.dot(light).clamp_min(0)
    half = (viewer + light).unit()
    nh, hv = normal.dot(half).clamp(1e-4, 1), half.dot(viewer).clamp_min(1e-4)
    cos2 = nh * nh
    sin2 = (1 - cos2).clamp_min(1e-6)
    gloss_share, velvet_share = fresnel(nv, RUBBER_COAT[0]), fresnel(nv, RUBBER_COAT[1])
    spread = torch.exp(-cos2 / (sin2 * VELVET**2)) / (VELVET**2 * math.pi * sin2 * sin2)
    masking = torch.minimum(2 * nh * torch.minimum(nv, nl) / hv, torch.ones_like(nh))
    velvet = 0.25 * spread * masking / nv
    beckmann = torch.exp(-sin2 / (cos2 * GLOSS_ALPHA**2)) / (math.pi * GLOSS_ALPHA**2 * cos2 * cos2)
    gloss = GLOSS * 0.25 * beckmann * beckmann_shadowing(nv) * beckmann_shadowing(nl.clamp_min(1e-3)) / nv
    gloss = torch.where(nl > 0, gloss, 0.0)
    base = (1 - gloss_share) * ((1 - velvet_share) * nl / math.pi + velvet_share * velvet)
    return color.scaled(base) + Vec(*([gloss_share * gloss] * 3))


def beckmann_shadowing(cosine: Tensor) -> Tensor:
    """Smith's G1 for Beckmann (Walter's rational fit)."""
    a = cosine / (GLOSS_ALPHA * torch.sqrt((1 - cosine * cosine).clamp_min(1e-7)))
    return torch.where(a < 1.6, (3.535 * a + 2.181 * a * a) / (1 + 2.276 * a + 2.577 * a * a), 1.0)


def metal_frame(body: Bodies, position: Vec, normal: Vec) -> tuple[Vec, Vec]:
    """Tangents of the stretched highlights: around the body's vertical axis, and up along it."""
    local = to_body(position - body.center, body)
    around = to_world(Vec(-local.y, local.x, torch.zeros_like(local.x)), body)
    across = around.cross(normal)
    # On the axis itself the direction is arbitrary.
    lost = across.dot(across) < 1e-12
    across = Vec(torch.where(lost, 1.0, across.x), across.y, across.z).unit()
    return normal.cross(across), across


def smith_lambda(along: Tensor, across: Tensor, cosine: Tensor, alpha: tuple[Tensor, Tensor]) -> Tensor:
    """Smith's Lambda of GGX for a direction with these components in the frame."""
    slope2 = ((along * alpha[0]) ** 2 + (across * alpha[1]) ** 2) / (cosine * cosine).clamp_min(1e-7)
    return 0.5 * (torch.sqrt(1 + slope2) - 1)


def metal(
    color: Vec, frame: tuple[Vec, Vec], normal: Vec, viewer: Vec, light: Vec, share: Tensor, alpha: Tensor
) -> Vec:
    """The rough lobe, of weight `share`, towards a lamp (the mirror-like lobe finds lamps by its own rays)."""
    ax, ay = alpha * STRETCH[0], alpha * STRETCH[1]
    nv, nl = normal.dot(viewer).clamp_min(1e-3), normal.dot(light).clamp_min(0)
    half = (viewer + light).unit()
    hx, hy, hz = half.dot(frame[0]) / ax, half.dot(frame[1]) / ay, half.dot(normal)
    ellipse = hx * hx + hy * hy + hz * hz
    density = 1 / (math.pi * ax * ay * ellipse * ellipse)
    hidden = smith_lambda(viewer.dot(frame[0]), viewer.dot(frame[1]), nv, (ax, ay))
    unlit = smith_lambda(light.dot(frame[0]), light.dot(frame[1]), nl, (ax, ay))
    return color.scaled(torch.where(nl > 0, share * 0.25 * density / (nv * (1 + hidden + unlit)), 0.0))


def reflected(stage: Stage, points: Points, light: Vec, strength: Tensor) -> Vec:
    """Radiance towards the viewers by lamps in directions [P, 4] of strength [P, 4]."""
    body = stage.bodies[points.view, points.slot]
    normal, viewer, color = points.normal[..., None], points.viewer[..., None], body.color[..., None]
    along, across = metal_frame(body, points.position, points.normal)
    share = torch.where(points.blurred, 1.0, METAL_LOBES[0][0])[..., None]
    alpha = torch.where(points.blurred, BLURRED_ALPHA, METAL_LOBES[0][1])[..., None]
    hard = metal(color, (along[..., None], across[..., None]), normal, viewer, light, share, alpha)
    soft = rubber(color, normal, viewer, light)
    is_metal = body.metal[..., None]
    value = hard.where(is_metal, soft).scaled(strength)
    return Vec(*(lamp_sum(part, row) for part, row in zip((value.x, value.y, value.z), LAMP_COLOR, strict=True)))


def scatter(stage: Stage, points: Points) -> tuple[Vec, Vec, Tensor, Tensor]:
    """One direction a point, the colour it carries, whether the mirror-like lobe or the diffuse one sent it."""
    body = stage.bodies[points.view, points.slot]
    u, v, pick = noise(points.key, points.rank, 9)
    cos, sin = turn(v, stage.circle)
    along, across = metal_frame(body, points.position, points.normal)
    gloss = fresnel(points.normal.dot(points.viewer).clamp_min(1e-3), RUBBER_COAT[0])
    mirror = body.metal & ~points.blurred & (pick < METAL_LOBES[1][0])
    glossy = ~body.metal & (pick < gloss)
    # Slope of a micro-facet: GGX for metal, Beckmann for the gloss of rubber.
    u = u.clamp_max(0.9999)
    slope = torch.where(glossy, torch.sqrt(-torch.log1p(-u)) * GLOSS_ALPHA, torch.sqrt(u / (1 - u)))
    rough = torch.where(points.blurred, BLURRED_ALPHA, METAL_LOBES[0][1])
    lobe = torch.where(mirror, METAL_LOBES[1][1], rough)
    tilt_x = torch.where(glossy, 1.0, lobe * STRETCH[0]) * slope * cos
    tilt_y = torch.where(glossy, 1.0, lobe * STRETCH[1]) * slope * sin
    facet = (points.normal + along.scaled(tilt_x) + across.scaled(tilt_y)).unit()
    towards = points.viewer.dot(facet)
    bounced = facet.scaled(2 * towards) - points.viewer
    # A cosine-weighted direction for Lambert, most of them turned down: light comes from the ground, above is black.
    flat = torch.sqrt(u)
    diffuse = points.normal.scaled(torch.sqrt(1 - u)) + along.scaled(flat * cos) + across.scaled(flat * sin)
    turned = (pick - gloss) > (1 - gloss) * FREE
    diffuse = Vec(diffuse.x, diffuse.y, torch.where(turned, -diffuse.z.abs(), diffuse.z))
    sharp = body.metal | glossy
    heading = bounced.where(sharp, diffuse).unit()
    # Sampling facets by density leaves G * (v.h) / (n.v * n.h).
    rise = heading.dot(points.normal)
    nv = points.normal.dot(points.viewer).clamp_min(1e-3)
    masking = 1 / (1 + _facet_lambda(nv, lobe) + _facet_lambda(rise.clamp_min(1e-3), lobe))
    weight = masking * towards.clamp_min(0) / (nv * facet.dot(points.normal).clamp_min(1e-3))
    # The density of a downward direction holds that of its mirror image too.
    image = (rise - 2 * points.normal.z * heading.z).clamp_min(0)
    down = rise / (rise + (1 - FREE) * image).clamp_min(1e-6)
    folded = torch.where(heading.z < 0, down, 1 / FREE)
    weight = torch.where(sharp, weight.clamp_max(4.0), folded) * (rise > 0)
    white = torch.where(glossy, GLOSS, 1.0)
    share = Vec(*(torch.where(glossy, white, getattr(body.color, a)) * weight for a in "xyz"))
    velvet = fresnel(nv, RUBBER_COAT[1])
    return heading, share.scaled(torch.where(sharp, 1.0, 1 - velvet)), mirror, points.blurred | ~sharp


def _facet_lambda(cosine: Tensor, alpha: Tensor) -> Tensor:
    """Isotropic Smith Lambda, close enough for the weight of a scattered ray."""
    slope2 = alpha * alpha * (1 / (cosine * cosine) - 1)
    return 0.5 * (torch.sqrt(1 + slope2) - 1)
