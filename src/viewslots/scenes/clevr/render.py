"""Scenes and cameras to pixels and truth.

Sub-pixel rays say who is seen where; the ground is lit at a quarter of them, which also yields every object's shadow;
object points are shaded one by one. The film filters all of it to pixels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from viewslots.errors import UserError
from viewslots.scenes import film
from viewslots.scenes.clevr.geometry import intersect
from viewslots.scenes.clevr.ground import ground_hit, ground_light, ground_radiance, ground_shadows
from viewslots.scenes.clevr.lights import Stage, look_at_origin
from viewslots.scenes.clevr.materials import Points
from viewslots.scenes.clevr.shading import onto_ground, outgoing, surface
from viewslots.scenes.clevr.spec import Picture, Scene
from viewslots.scenes.devices import most_at_once, on_all_cores, on_its_own, resolved
from viewslots.scenes.film import Film, SubPixels, segment_of
from viewslots.scenes.vectors import Vec, camera_poses
from viewslots.types import COVERED, OnProgress, Pictures


@dataclass(frozen=True)
class Quality:
    """How finely a picture is sampled."""

    samples: int
    """Rays a pixel, 2^m. Every four share a ground point."""
    bounces: int
    """Scattered rays after the first surface."""
    ground_bounces: int
    """The same for light that objects throw onto the ground."""


QUALITIES = {
    "draft": Quality(samples=4, bounces=1, ground_bounces=0),
    "fast": Quality(samples=16, bounces=2, ground_bounces=1),
    "reference": Quality(samples=256, bounces=4, ground_bounces=2),
}


@dataclass(frozen=True)
class Cameras:
    """V cameras: positions and axes [V]."""

    position: Vec
    right: Vec
    up: Vec
    back: Vec

    def __getitem__(self, index: Any) -> "Cameras":
        return Cameras(self.position[index], self.right[index], self.up[index], self.back[index])

    @staticmethod
    def of(positions: Any, device: torch.device | str) -> "Cameras":
        position = Vec.of(positions, device)
        return Cameras(position, *look_at_origin(position))

    def rays(self, picture: Picture, positions: SubPixels) -> Vec:
        """Unit directions [V, n, P] through sub-pixel positions of every pixel and of one beyond each border."""

        def offsets(pixels: int, center: float, within: list[float]) -> Tensor:
            steps = torch.arange(pixels + 2 * film.PAD, dtype=torch.float64) - film.PAD - center
            return ((steps + torch.tensor(within, dtype=torch.float64)[:, None]) / picture.focal).to(self.position.x)

        across = offsets(picture.width, picture.full_width / 2 - picture.left, [x for x, _ in positions])
        down = offsets(picture.height, picture.full_height / 2 - picture.up, [y for _, y in positions])
        right, up, back = (axis[:, None, None, None] for axis in (self.right, self.up, self.back))
        rays = (right.scaled(across[:, None, :]) - up.scaled(down[:, :, None]) - back).unit()
        return rays.map(lambda part: part.flatten(2))


def pixel_index(picture: Picture) -> Tensor:
    """Place of every pixel of the padded window in the full picture [P]: noise does not depend on the window."""
    rows = torch.arange(picture.up - film.PAD, picture.down + film.PAD)[:, None] + film.PAD
    columns = torch.arange(picture.left - film.PAD, picture.right + film.PAD) + film.PAD
    return (rows * (picture.full_width + 2 * film.PAD) + columns).flatten()


def expose(stage: Stage, cameras: Cameras, keys: Tensor, picture: Picture, quality: Quality) -> Film:
    """Render V views that share a film format; `stage` has a row a view and `keys` [V] seed their noise."""
    views, slots = stage.bodies.radius.shape
    fine, coarse = film.sub_pixels(quality.samples), film.cells(quality.samples // 4)
    padded = (picture.height + 2 * film.PAD, picture.width + 2 * film.PAD)
    view = torch.arange(views, device=stage.device)[:, None, None]
    origin = cameras.position[:, None, None]
    pixel = film.mix(keys[:, None, None], pixel_index(picture).to(stage.device))

    rays = cameras.rays(picture, fine)
    entry = intersect(stage.bodies, view, origin, rays)
    nearest, front = entry.min(-1)
    seen = (nearest < torch.inf) & (nearest <= ground_hit(stage.bent, origin, rays)[0])
    bare = ~seen.reshape(views, len(coarse), 4, -1).all(2)
    ground, shadows = light_ground(stage, cameras, picture, coarse, pixel, bare, quality.ground_bounces)
    color = ground.map(lambda part: part.repeat_interleave(4, 1))

    index = seen.nonzero(as_tuple=True)
    row, sample, place = index
    slot, heading = front[index], rays[index]
    position, normal = surface(stage, row, slot, cameras.position[row], heading, nearest[index])
    key = film.mix(pixel, 2)[row, 0, place]
    sharp = torch.zeros_like(row, dtype=torch.bool)
    points = Points(row, slot, position, normal, -heading, key, rank=sample.to(torch.float32), blurred=sharp)
    color.put(index, outgoing(stage, points, quality.bounces))

    covered = (entry < torch.inf).movedim(-1, 1)
    frontmost = (torch.arange(slots, device=stage.device)[:, None, None] == front[:, None]) & seen[:, None]

    def on_film(values: Tensor, positions: SubPixels) -> Tensor:
        return film.develop(values.reshape(*values.shape[:-1], *padded), positions).to(torch.float32)

    masks = on_film(torch.cat([covered, frontmost], 1), fine)
    linear = on_film(torch.stack([color.x, color.y, color.z], 1), fine)
    return Film(
        linear=linear.movedim(1, -1),
        shapes=masks[:, :slots],
        visible=masks[:, slots:],
        shadows=on_film(shadows.movedim(-1, 1), coarse),
    )


def light_ground(
    stage: Stage, cameras: Cameras, picture: Picture, positions: SubPixels, pixel: Tensor, bare: Tensor, bounces: int
) -> tuple[Vec, Tensor]:
    """Ground behind every pixel: radiance [V, n, P] (light off objects too where `bare`) and shadows [V, n, P, K]."""
    rays = cameras.rays(picture, positions)
    view = torch.arange(rays.x.shape[0], device=stage.device)[:, None, None]
    origin = cameras.position[:, None, None]
    distance, normal = ground_hit(stage.bent, origin, rays)
    position = origin + rays.scaled(distance.clamp_max(1e4))
    key = film.mix(pixel, 1)
    rank = torch.arange(len(positions), device=stage.device, dtype=torch.float32)[:, None]
    strength, blocked = ground_light(stage, view, position, normal, key, rank)
    strength = strength * (distance < torch.inf)[..., None]  # beyond the ground all is black
    color = ground_radiance(strength, blocked)
    index = (bare & (distance < torch.inf)).nonzero(as_tuple=True)
    row, sample, place = index
    points = Points(
        view=row,
        slot=torch.full_like(row, -1),
        position=position[index],
        normal=normal[index],
        viewer=-rays[index],
        key=key[row, 0, place],
        rank=rank[sample, 0],
        blurred=torch.ones_like(row, dtype=torch.bool),
    )
    color.put(index, color[index] + onto_ground(stage, points, bounces))
    return color, ground_shadows(strength, blocked)


PAIRS_ON_CPU = 2_000_000
"""Ray-body pairs that a core holds at once: what still fits the caches."""
PAIRS_ON_GPU = 400_000_000
BYTES_PER_PAIR = 64
"""Measured on a GPU: 12 GB at 250 million pairs, and some to spare."""


def pairs_at_once(device: torch.device) -> int:
    return most_at_once(device, PAIRS_ON_CPU, PAIRS_ON_GPU, 2 * BYTES_PER_PAIR)


def render_views(
    scenes: Sequence[Scene],
    slots: int,
    device: torch.device | str = "cpu",
    quality: str = "fast",
    progress: OnProgress = lambda done, total: None,
) -> tuple[Pictures, np.ndarray]:
    """Pictures of scenes that share film format, backdrop and number of views, and linear radiance [S, M, H, W, 3]."""
    where = resolved(device)
    with on_its_own(where):
        return _render_views(scenes, slots, where, quality, progress)


def _render_views(
    scenes: Sequence[Scene], slots: int, device: torch.device, quality: str, progress: OnProgress
) -> tuple[Pictures, np.ndarray]:
    picture, views = common_format(scenes, slots)
    stage = Stage.of(list(scenes), max(slots, 1), device)
    row = torch.arange(len(scenes), device=device).repeat_interleave(views)
    cameras = Cameras.of([camera for scene in scenes for camera in scene.cameras], device)
    key = torch.tensor([scene.key for scene in scenes], device=device)[row]
    key = film.mix(key, torch.arange(views, device=device).repeat(len(scenes)))
    out = expose_in_parts(stage[row], cameras, key, picture, QUALITIES[quality], progress)

    def stored(values: Tensor) -> np.ndarray:
        return values.reshape(len(scenes), views, *values.shape[1:]).cpu().numpy()

    shapes = film.to_alpha8(out.shapes[:, :slots])
    counts = torch.tensor([len(scene.objects) for scene in scenes], device=device)[row]
    used = torch.arange(slots, device=device) < counts[:, None]
    path = stage.bodies.center[row][:, :slots] - cameras.position[:, None]
    near = torch.where(used, -torch.sqrt(path.dot(path)), -torch.inf)
    pictures = Pictures(
        image=stored(film.to_srgb8(out.linear)),
        segment=stored(segment_of(out.visible)),
        overlap=stored((shapes >= COVERED).sum(1).to(torch.uint8)),
        shapes=stored(shapes),
        shadows=stored(film.to_alpha8(out.shadows[:, :slots])),
        depth_order=stored(near),
        camera=np.array([scene.cameras for scene in scenes], np.float32),
        num_objects=np.array([len(scene.objects) for scene in scenes], np.uint8),
        pose=camera_poses(np.array([scene.cameras for scene in scenes], np.float64)).astype(np.float32),
        intrinsics=np.tile(np.array(picture.intrinsics, np.float32), (len(scenes), views, 1)),
    )
    return pictures, stored(out.linear)


def common_format(scenes: Sequence[Scene], slots: int) -> tuple[Picture, int]:
    """Film format and number of views that all scenes share."""
    first = scenes[0]
    for scene in scenes:
        if (scene.picture, scene.backdrop, len(scene.cameras)) != (first.picture, first.backdrop, len(first.cameras)):
            raise UserError("scenes rendered together must share picture, backdrop and number of views")
        if len(scene.objects) > slots:
            raise UserError(f"a scene has {len(scene.objects)} objects, more than the {slots} slots asked for")
    return first.picture, len(first.cameras)


def expose_in_parts(
    stage: Stage, cameras: Cameras, keys: Tensor, picture: Picture, quality: Quality, progress: OnProgress
) -> Film:
    """`expose` in bands of rows and groups of views: memory stays bounded, pixels do not depend on the parts."""
    pairs_per_row = picture.width * quality.samples * max(stage.bodies.radius.shape[1], 1)
    rows_at_once = max(1, pairs_at_once(stage.device) // pairs_per_row)
    band = min(picture.height, rows_at_once)
    group = max(1, min(rows_at_once // picture.height, shares(len(keys), stage.device)))
    bands = [replace(picture, up=up, down=min(up + band, picture.down)) for up in range(picture.up, picture.down, band)]
    parts = [(slice(start, start + group), window) for start in range(0, len(keys), group) for window in bands]
    films = on_all_cores(
        lambda part: expose(stage[part[0]], cameras[part[0]], keys[part[0]], part[1], quality),
        parts,
        stage.device,
        progress,
    )
    groups = [films[start : start + len(bands)] for start in range(0, len(films), len(bands))]

    def joined(name: str, row_axis: int) -> Tensor:
        return torch.cat([torch.cat([getattr(film, name) for film in row], row_axis) for row in groups])

    return Film(joined("linear", 1), joined("visible", 2), joined("shapes", 2), joined("shadows", 2))


def shares(views: int, device: torch.device) -> int:
    """Views for each core, so that small pictures keep all of them busy."""
    return -(-views // torch.get_num_threads()) if device.type == "cpu" else views


def visible_pixels(scene: Scene) -> list[int]:
    """How many pixel centres of the (first) view see each object; on the CPU, so that every machine agrees."""
    stage = Stage.of([scene], len(scene.objects), "cpu")
    cameras = Cameras.of(scene.cameras[:1], "cpu")
    rays = cameras.rays(scene.picture, ((0.5, 0.5),))
    entry = intersect(stage.bodies, torch.zeros(1, 1, 1, dtype=torch.long), cameras.position[:, None, None], rays)
    inside = (scene.picture.height + 2 * film.PAD, scene.picture.width + 2 * film.PAD)
    nearest, front = (values.reshape(inside)[film.PAD : -film.PAD, film.PAD : -film.PAD] for values in entry.min(-1))
    return torch.bincount(front[nearest < torch.inf], minlength=len(scene.objects)).tolist()
