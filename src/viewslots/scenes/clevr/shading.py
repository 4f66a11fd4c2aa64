"""Paths of light.

`outgoing` and `incoming` call each other: what leaves a surface is direct light plus what one scattered ray brings.
"""

import torch
from torch import Tensor

from viewslots.kernels import has_triton
from viewslots.scenes.clevr.geometry import intersect, normals
from viewslots.scenes.clevr.ground import GROUND_ALBEDO, ground_hit, ground_light, ground_radiance
from viewslots.scenes.clevr.lights import Stage, lamp_radiance, light_samples, look_at_origin, noise
from viewslots.scenes.clevr.materials import Points, reflected, scatter
from viewslots.scenes.film import mix, turn
from viewslots.scenes.vectors import Vec


def outgoing(stage: Stage, points: Points, bounces: int) -> Vec:
    """Radiance that leaves object points towards their viewers: direct light and one scattered ray."""
    if has_triton(stage.device):
        from viewslots.scenes.clevr.shading_cuda import trace_cuda

        return trace_cuda(stage, points, bounces)
    direction, strength = lamps_seen(stage, points)
    row, lamp = strength.nonzero(as_tuple=True)
    entry = intersect(stage.bodies, points.view[row], points.position[row], direction[row, lamp], skip=points.slot[row])
    strength[row, lamp] *= (entry == torch.inf).all(-1)
    light = reflected(stage, points, direction, strength)
    if bounces == 0:
        return light
    heading, share, mirrored, blurred = scatter(stage, points)
    return light + share * incoming(stage, points, heading, mirrored, blurred, bounces - 1)


def lamps_seen(stage: Stage, points: Points) -> tuple[Vec, Tensor]:
    """Directions and strengths of the lamps before the points' surfaces, shadows not yet asked for."""
    return light_samples(stage, points.view, points.position, points.normal, points.key, points.rank)


def incoming(stage: Stage, start: Points, heading: Vec, mirrored: Tensor, blurred: Tensor, bounces: int) -> Vec:
    """Radiance that arrives at points along `heading`: from objects, ground, lamps (if `mirrored`), or nothing."""
    entry, slot = intersect(stage.bodies, start.view, start.position, heading, skip=start.slot).min(-1)
    ground, normal, light = beyond_bodies(stage, start, heading, entry, mirrored)
    key = mix(mix(start.key, 1001 + bounces), start.rank.to(torch.long))

    rows = (ground < entry).nonzero(as_tuple=True)[0]
    position = start.position[rows] + heading[rows].scaled(ground[rows])
    rank = torch.zeros_like(position.x)
    strength, blocked = ground_light(stage, start.view[rows], position, normal[rows], key[rows], rank)
    light.put(rows, light[rows] + ground_radiance(strength, blocked))

    rows = (entry < ground).nonzero(as_tuple=True)[0]
    view, slot, towards = start.view[rows], slot[rows], heading[rows]
    position, normal = surface(stage, view, slot, start.position[rows], towards, entry[rows])
    rank = torch.zeros_like(position.x)
    hits = Points(view, slot, position, normal, -towards, key[rows], rank, blurred[rows])
    light.put(rows, light[rows] + outgoing(stage, hits, bounces))
    return light


def beyond_bodies(
    stage: Stage, start: Points, heading: Vec, entry: Tensor, mirrored: Tensor
) -> tuple[Tensor, Vec, Vec]:
    """Distance and normal of the ground, and lamps that show before ground and bodies (at `entry`)."""
    ground, normal = ground_hit(stage.bent, start.position, heading)
    nearest = torch.minimum(entry, ground)
    return ground, normal, lamp_radiance(stage, start.view, start.position, heading, nearest, mirrored)


def surface(stage: Stage, view: Tensor, slot: Tensor, origin: Vec, heading: Vec, entry: Tensor) -> tuple[Vec, Vec]:
    """Points where rays enter bodies, and the normals there."""
    position = origin + heading.scaled(entry)
    return position, normals(stage.bodies[view, slot], position)


def onto_ground(stage: Stage, points: Points, bounces: int) -> Vec:
    """Radiance of ground points by light that objects throw onto them; `points` are marked blurred."""
    heading, weight = towards_bodies(stage, points)
    if has_triton(stage.device):
        from viewslots.scenes.clevr.shading_cuda import trace_cuda

        return trace_cuda(stage, points, bounces, heading).scaled(weight)
    return incoming(stage, points, heading, ~points.blurred, points.blurred, bounces).scaled(weight)


def towards_bodies(stage: Stage, points: Points) -> tuple[Vec, Tensor]:
    """One ray a ground point, and what its light counts.

    It goes into the cones around the bodies, uniformly over all of them: few rays of a whole hemisphere would meet an
    object at all. A direction in several cones is that much likelier.
    """
    u, v, pick = noise(points.key, points.rank, 9)
    path = stage.bodies.center[points.view] - points.position[..., None]
    square = path.dot(path)
    # 1 - cos of each cone's half angle; a point within a bounding sphere takes the half space towards its centre.
    reach = (stage.bodies.bound2[points.view] / square).clamp(0, 1)
    opening = reach / (1 + torch.sqrt(1 - reach))
    total, chosen = torch.zeros_like(u), torch.zeros_like(points.view)
    sums = []
    for slot in range(opening.shape[-1]):
        total = total + opening[..., slot]
        sums.append(total)
    for so_far in sums[:-1]:
        chosen = chosen + (so_far <= pick * total)
    axis = path.map(lambda part: part.gather(-1, chosen[..., None])[..., 0]).unit()
    right, up, _ = look_at_origin(axis)
    rise = 1 - u * opening.gather(-1, chosen[..., None])[..., 0]
    flat = torch.sqrt((1 - rise * rise).clamp_min(0))
    cos, sin = turn(v, stage.circle)
    heading = (axis.scaled(rise) + right.scaled(flat * cos) + up.scaled(flat * sin)).unit()
    inside = path.dot(heading[..., None]) >= torch.sqrt(square) * (1 - opening - 1e-6)
    # cos / pi over the density count / (2 pi total).
    weight = 2 * total / inside.sum(-1).clamp_min(1) * points.normal.dot(heading).clamp_min(0)
    return heading, weight * GROUND_ALBEDO
