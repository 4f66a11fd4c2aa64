"""From tabletop scenes to pixels and truth.

Sub-pixel rays say who is seen where. The background is given light at a quarter of them, whether seen or not, which
also yields the shadows; objects at all of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from viewslots.errors import UserError
from viewslots.scenes import film
from viewslots.scenes.geometry import Vec, has_kernel
from viewslots.scenes.render import Film, most_at_once, on_all_cores, segment_of
from viewslots.scenes.tabletop.light import Places, Points, facing, lamps_ahead, look, look_behind
from viewslots.scenes.tabletop.meet import (
    ITEM_BITS,
    Rays,
    enter_objects,
    meet_surroundings,
    near_pairs,
    nearest_of,
    normals,
    which,
)
from viewslots.scenes.tabletop.stage import Stage, middle_of, taken
from viewslots.scenes.tabletop.table_scene import Camera, TableScene
from viewslots.types import COVERED, Pictures, Progress

SAMPLES = {"fast": 16, "reference": 256}
"""Rays a pixel, 2^m, by quality."""
SAMPLES_ON_CPU = 130 * 130 * 16
"""Samples that a core traces together: a picture of the usual size, which still fits the caches."""
SAMPLES_ON_GPU = 160 * SAMPLES_ON_CPU
BYTES_PER_SAMPLE = 1500
"""On a GPU, with some to spare."""


@dataclass(frozen=True)
class Cameras:
    """V cameras [V]."""

    row: Tensor
    """Of the stage."""
    key: Tensor
    position: Vec
    right: Vec
    up: Vec
    back: Vec
    focal: Tensor
    """In pixels."""

    @staticmethod
    def of(views: Sequence[tuple[int, int, TableScene]], device: torch.device | str) -> "Cameras":
        """From (row, number of the view, scene)."""
        cameras = [scene.cameras[view] for _, view, scene in views]
        axes = Vec.of([camera.axes for camera in cameras], device)
        key = torch.tensor([scene.key for *_, scene in views], device=device)
        sides = [min(scene.height, scene.width) for *_, scene in views]
        focal = [camera.focal * side for camera, side in zip(cameras, sides, strict=True)]
        return Cameras(
            row=torch.tensor([row for row, *_ in views], device=device),
            key=film.mix(key, torch.tensor([view for _, view, _ in views], device=device)),
            position=Vec.of([camera.location for camera in cameras], device),
            right=axes[:, 0],
            up=axes[:, 1],
            back=axes[:, 2],
            focal=torch.tensor(focal, dtype=torch.float32, device=device),
        )


@dataclass(frozen=True)
class Window:
    """The lines top .. bottom of pictures of height x width, and one pixel beyond each border."""

    height: int
    width: int
    top: int
    bottom: int

    @property
    def padded(self) -> tuple[int, int]:
        return self.bottom - self.top + 2 * film.PAD, self.width + 2 * film.PAD


class _Shot:
    """Rays through sub-pixel positions of all pixels of a window in V views."""

    def __init__(self, cameras: Cameras, window: Window) -> None:
        self.cameras, self.window = cameras, window
        lines, columns = window.padded
        device = cameras.key.device
        self.pixels = lines * columns
        self.line = (torch.arange(lines, device=device) + (window.top - film.PAD)).repeat_interleave(columns)
        self.column = (torch.arange(columns, device=device) - film.PAD).repeat(lines)

    def samples(self, flat: Tensor, positions: film.SubPixels) -> Rays:
        """Of samples of these numbers of V * n * P."""
        pixel, sample, view = self.split(flat, len(positions))
        x, y = torch.tensor(positions, dtype=torch.float32, device=flat.device).T.contiguous()
        return self.rays(view, pixel, x[sample], y[sample])

    def split(self, flat: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Pixel, sample and view of samples."""
        return flat % self.pixels, flat // self.pixels % count, flat // (self.pixels * count)

    def rays(self, view: Tensor, pixel: Tensor, x: Tensor, y: Tensor) -> Rays:
        """Through the place (x, y) in [0, 1)^2 of each pixel."""
        cameras = self.cameras
        scale = 1 / cameras.focal[view]
        across = ((self.column[pixel].to(x.dtype) - self.window.width / 2) + x) * scale
        down = ((self.line[pixel].to(x.dtype) - self.window.height / 2) + y) * scale
        heading = taken(cameras.right, view).scaled(across) - taken(cameras.up, view).scaled(down)
        heading = (heading - taken(cameras.back, view)).unit()
        return Rays(cameras.row[view], taken(cameras.position, view), heading)

    def places(self, flat: Tensor, count: int) -> Places:
        pixel, sample, view = self.split(flat, count)
        number = (self.column[pixel] + film.PAD) + ((self.line[pixel] + film.PAD) << 12)
        return Places(film.mix(self.cameras.key[view], number), sample)


def near_pixels(stage: Stage, shot: _Shot) -> tuple[Tensor, Tensor, Tensor]:
    """(slot, view, pixel) where some ray of the pixel may meet the object's bounding ball."""
    views = len(shot.cameras.key)
    device = stage.device
    view = torch.arange(views, device=device).repeat_interleave(shot.pixels)
    pixel = torch.arange(shot.pixels, device=device).repeat(views)
    half = torch.full_like(view, 0.5, dtype=torch.float32)
    rays = shot.rays(view, pixel, half, half)

    # The corner of a pixel lies 0.71 pixels from its middle.
    slot, ray = near_pairs(stage, rays, widening=0.75 / shot.cameras.focal[view])
    return slot, view[ray], pixel[ray]


def meet_samples(stage: Stage, shot: _Shot, positions: film.SubPixels) -> tuple[Tensor, Tensor, Tensor]:
    """Of every sample [V * n * P] distance and surface of the nearest object; of all objects who is met [V, K, n, P]."""
    views, count, pixels = len(shot.cameras.key), len(positions), shot.pixels
    if has_kernel(stage.device):
        from viewslots.scenes.tabletop.meet_cuda import meet_objects_cuda

        rays = shot.samples(torch.arange(views * count * pixels, device=stage.device), positions)
        distance, surface, bits = meet_objects_cuda(stage, rays)
        bit = torch.ones_like(bits[:1]) << torch.arange(stage.slots, device=stage.device, dtype=bits.dtype)
        return distance, surface, (bits.reshape(views, 1, count, pixels) & bit[:, None, None]) != 0
    slot, view, pixel = (values.repeat_interleave(count) for values in near_pixels(stage, shot))
    sample = torch.arange(count, device=stage.device).repeat(len(slot) // count)
    flat = (view * count + sample) * pixels + pixel
    rays = shot.samples(flat, positions)
    distance, surface = enter_objects(stage, rays.row * stage.slots + slot, rays.origin, rays.heading)
    index = which(distance < torch.inf)
    covered = torch.zeros(views, stage.slots, count, pixels, dtype=torch.bool, device=stage.device)
    covered[tuple(values[index] for values in (view, slot, sample, pixel))] = True
    return *nearest_of(views * count * pixels, flat[index], distance[index], surface[index]), covered


@dataclass(frozen=True)
class _Seen:
    """Samples that see objects."""

    covered: Tensor
    """[V, K, n, P] bool: samples of complete objects."""
    front: Tensor
    """[V, n, P]: slot of the object that is seen, -1 for none."""
    index: Tensor
    """Those that see one, of V * n * P."""
    rays: Rays
    distance: Tensor
    surface: Tensor


def see_objects(stage: Stage, shot: _Shot, positions: film.SubPixels) -> _Seen:
    nearest, surface, covered = meet_samples(stage, shot, positions)
    index = which(surface >= 0)
    rays, distance, surface = shot.samples(index, positions), nearest[index], surface[index]
    # From above the table nothing lies between a camera and what stands on it.
    low = which(torch.minimum(rays.origin.z, rays.origin.z + distance * rays.heading.z) < 0)
    wall, _, _ = meet_surroundings(stage, rays.take(low))
    free = torch.ones_like(index, dtype=torch.bool)
    free[low] = wall >= distance[low]
    kept = which(free)
    index, surface = index[kept], surface[kept]
    front = torch.full_like(nearest, -1, dtype=torch.long)
    front[index] = stage.parts.slot[surface >> ITEM_BITS]
    shape = (len(shot.cameras.key), len(positions), shot.pixels)
    return _Seen(covered, front.reshape(shape), index, rays.take(kept), distance[kept], surface)


def paint_objects(stage: Stage, shot: _Shot, count: int, seen: _Seen, color: Vec) -> None:
    """Fill in the colours [V, n, P] of samples that see objects."""
    position = seen.rays.at(seen.distance)
    normal = facing(normals(stage, seen.surface, position), seen.rays.heading)
    finish = stage.parts.finish[seen.surface >> ITEM_BITS]
    place = shot.places(seen.index, count)
    light = look(stage, Points(seen.rays.row, position, normal, -seen.rays.heading, finish, place))
    for part, value in zip((color.x, color.y, color.z), (light.x, light.y, light.z), strict=True):
        part.view(-1)[seen.index] = value


def paint_background(stage: Stage, shot: _Shot, positions: film.SubPixels, bare: Tensor) -> tuple[Vec, Tensor]:
    """Radiance of the background [V, n, P], exact where `bare`, and shadows on it [V, K, n, P]."""
    views, count, pixels = len(shot.cameras.key), len(positions), shot.pixels
    device = stage.device
    rays = shot.samples(torch.arange(views * count * pixels, device=device), positions)
    distance, normal, finish = meet_surroundings(stage, rays)
    reach, light, _ = lamps_ahead(stage, rays, distance)
    lamp = reach < distance
    gone = which((distance == torch.inf) & ~lamp)
    light.put(gone, taken(stage.around.environment, rays.row[gone]))
    index = which(distance < torch.inf)
    hits = rays.take(index)
    points = Points(
        hits.row,
        hits.at(distance[index]),
        taken(normal, index),
        -hits.heading,
        finish[index],
        shot.places(index, count),
    )
    seen = bare.flatten()[index] & ~lamp[index]
    radiance, taken_by = look_behind(stage, points, which(seen))
    shown = which(~lamp[index])
    light.put(index[shown], taken(radiance, shown))
    shadows = torch.zeros(stage.slots, len(distance), device=device)
    shadows[:, index] = taken_by
    shape = (views, count, pixels)
    return light.map(lambda part: part.reshape(shape)), shadows.reshape(stage.slots, *shape).movedim(0, 1)


def expose(stage: Stage, cameras: Cameras, window: Window, samples: int) -> Film:
    """The lines of a window in V views."""
    fine, coarse = film.sub_pixels(samples), film.cells(samples // 4)
    shot = _Shot(cameras, window)
    views, pixels = len(cameras.key), shot.pixels
    seen = see_objects(stage, shot, fine)
    bare = (seen.front.reshape(views, samples // 4, 4, pixels) < 0).any(2)
    ground, shadows = paint_background(stage, shot, coarse, bare)
    color = ground.map(lambda part: part.repeat_interleave(4, 1))
    paint_objects(stage, shot, samples, seen, color)
    frontmost = torch.arange(stage.slots, device=stage.device)[:, None, None] == seen.front[:, None]

    def on_film(values: Tensor, positions: film.SubPixels) -> Tensor:
        shaped = values.reshape(*values.shape[:-1], *window.padded)
        return film.develop(shaped, positions).to(torch.float32)

    return Film(
        linear=on_film(torch.stack([color.x, color.y, color.z], 1), fine).movedim(1, -1),
        visible=on_film(frontmost, fine),
        shapes=on_film(seen.covered, fine),
        shadows=on_film(shadows, coarse),
    )


def render_tables(
    scenes: Sequence[TableScene],
    slots: int,
    device: torch.device | str = "cpu",
    quality: str = "fast",
    progress: Progress = lambda done, total: None,
) -> tuple[Pictures, np.ndarray]:
    """Pictures of scenes that share size and number of views, and linear radiance [S, M, H, W, 3]."""
    height, width, views = common_format(scenes, slots)
    where = torch.device(device)
    samples = SAMPLES[quality]
    parts = _parts(scenes, views, height, width, samples, where)
    # A training loop around us may have chosen lower precision for its own products.
    with torch.no_grad(), torch.autocast(where.type, enabled=False):
        films = on_all_cores(lambda part: _stored_part(part, slots, samples), parts, where, progress)
    out = _joined(films, parts)

    def stored(values: Tensor) -> np.ndarray:
        return values.reshape(len(scenes), views, *values.shape[1:]).numpy()

    pose = np.array([[_pose(camera) for camera in scene.cameras] for scene in scenes])
    focal = np.array([[camera.focal * min(height, width) for camera in scene.cameras] for scene in scenes])
    middle = np.broadcast_to([width / 2, height / 2], (*focal.shape, 2))
    pictures = Pictures(
        image=stored(film.to_srgb8(out.linear)),
        segment=stored(out.segment),
        overlap=stored((out.shapes >= COVERED).sum(1, dtype=torch.uint8)),
        shapes=stored(out.shapes),
        shadows=stored(out.shadows),
        depth_order=np.stack([_nearness(scene, slots) for scene in scenes]),
        camera=pose[..., :3, 3].astype(np.float32),
        num_objects=np.array([len(scene.objects) for scene in scenes], np.uint8),
        pose=pose.astype(np.float32),
        intrinsics=np.concatenate([focal[..., None], focal[..., None], middle], -1).astype(np.float32),
    )
    return pictures, stored(out.linear)


@dataclass(frozen=True)
class _Part:
    """Views that are traced together, and which lines of them."""

    stage: Stage
    cameras: Cameras
    window: Window
    last: bool
    """The last window of its views."""


def _parts(
    scenes: Sequence[TableScene], views: int, height: int, width: int, samples: int, device: torch.device
) -> list[_Part]:
    """On a CPU view by view, for the caches; on a GPU many at once. Large pictures in bands of lines."""
    most = most_at_once(device, SAMPLES_ON_CPU, SAMPLES_ON_GPU, BYTES_PER_SAMPLE)
    line = (width + 2 * film.PAD) * samples
    lines = max(1, min(height, most // line - 2 * film.PAD))
    at_once = max(1, most // ((lines + 2 * film.PAD) * line)) if device.type == "cuda" else 1
    windows = [Window(height, width, top, min(top + lines, height)) for top in range(0, height, lines)]
    every = [(scene, view) for scene in range(len(scenes)) for view in range(views)]
    parts: list[_Part] = []
    stage, built = None, None
    for start in range(0, len(every), at_once):
        group = every[start : start + at_once]
        used = sorted({scene for scene, _ in group})
        if built != used:
            chosen = [scenes[scene] for scene in used]
            stage, built = Stage.of(chosen, max(len(scene.objects) for scene in chosen), device), used
        cameras = Cameras.of([(used.index(scene), view, scenes[scene]) for scene, view in group], device)
        parts += [_Part(stage, cameras, window, window is windows[-1]) for window in windows]  # type: ignore[arg-type]
    return parts


@dataclass(frozen=True)
class _Stored:
    """Lines of pictures as they are stored, on the host: in bytes, so that large pictures of many scenes fit."""

    linear: Tensor
    """[V, H, W, 3] float32."""
    segment: Tensor
    shapes: Tensor
    """[V, K, H, W] u8."""
    shadows: Tensor


def _stored_part(part: _Part, slots: int, samples: int) -> _Stored:
    out = expose(part.stage, part.cameras, part.window, samples)

    def fitted(values: Tensor) -> Tensor:
        """[V, K, ...] u8 with as many slots as asked for."""
        alpha = film.to_alpha8(values)[:, :slots]
        missing = slots - alpha.shape[1]
        return torch.cat([alpha, alpha.new_zeros(len(alpha), missing, *alpha.shape[2:])], 1).cpu()

    return _Stored(out.linear.cpu(), segment_of(out.visible).cpu(), fitted(out.shapes), fitted(out.shadows))


def _joined(films: Sequence[_Stored], parts: Sequence[_Part]) -> _Stored:
    """Bands to pictures, pictures of all views."""
    ends = [number + 1 for number, part in enumerate(parts) if part.last]
    groups = [films[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def joined(name: str, lines: int) -> Tensor:
        return torch.cat([torch.cat([getattr(band, name) for band in group], lines) for group in groups])

    return _Stored(joined("linear", 1), joined("segment", 1), joined("shapes", 2), joined("shadows", 2))


def common_format(scenes: Sequence[TableScene], slots: int) -> tuple[int, int, int]:
    """Height, width and number of views that all scenes share."""
    first = scenes[0]
    for scene in scenes:
        if (scene.height, scene.width, len(scene.cameras)) != (first.height, first.width, len(first.cameras)):
            raise UserError("scenes rendered together must share the size of the picture and the number of views")
        if len(scene.objects) > slots:
            raise UserError(f"a scene has {len(scene.objects)} objects, more than the {slots} slots asked for")
    return first.height, first.width, len(first.cameras)


def _pose(camera: Camera) -> np.ndarray:
    """Camera to world [4, 4]."""
    pose = np.eye(4)
    pose[:3, :3] = np.array(camera.axes).T
    pose[:3, 3] = camera.location
    return pose


def _nearness(scene: TableScene, slots: int) -> np.ndarray:
    """[M, K]: minus the distance to the middle of each object; -inf for unused slots."""
    near = np.full((len(scene.cameras), slots), -np.inf, np.float32)
    for slot, thing in enumerate(scene.objects):
        center = middle_of(thing)
        near[:, slot] = [-math.dist(camera.location, center) for camera in scene.cameras]
    return near
