"""From tabletop scenes to pixels and truth.

Sub-pixel rays say who is seen where. The background is given light at a quarter of them, whether seen or not, which
also yields the shadows; objects at all of them.
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from viewslots.errors import UserError
from viewslots.kernels import has_triton
from viewslots.scenes import film
from viewslots.scenes.devices import most_at_once, on_all_cores, on_its_own, resolved
from viewslots.scenes.film import Film, segment_of
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
from viewslots.scenes.vectors import Vec
from viewslots.types import COVERED, OnProgress, Pictures

SAMPLES = {"fast": 16, "reference": 256}
"""Rays a pixel, 2^m, by quality."""
SAMPLES_ON_CPU = 130 * 130 * 16
"""Samples that a core traces together: a picture of the usual size, which still fits the caches."""
SAMPLES_ON_GPU = 80 * SAMPLES_ON_CPU
"""Enough to fill it. More would leave nothing to prepare and to fetch meanwhile."""
BYTES_PER_SAMPLE = 1500
"""On a GPU, with some to spare: with 6 objects less than 300 are used."""
UNFETCHED = 2
"""Parts that may wait on a GPU for their copy to the host."""


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

    @property
    def table(self) -> Tensor:
        """[V, 13]: all but row and key."""
        vectors = (self.position, self.right, self.up, self.back)
        return torch.stack([*(part for vector in vectors for part in (vector.x, vector.y, vector.z)), self.focal], -1)

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


class Shot:
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
        places = torch.tensor(positions, dtype=torch.float32, device=flat.device).T.contiguous()
        if has_triton(flat.device):
            from viewslots.scenes.tabletop.meet_cuda import camera_rays_cuda

            window = self.window
            corner = (window.top - film.PAD - window.height / 2, -film.PAD - window.width / 2)
            return camera_rays_cuda(self.cameras.table, self.cameras.row, flat, places, window.padded, corner)
        pixel, sample, view = self.split(flat, len(positions))
        return self.rays(view, pixel, places[0][sample], places[1][sample])

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


def near_pixels(stage: Stage, shot: Shot) -> tuple[Tensor, Tensor, Tensor]:
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


def meet_samples(stage: Stage, shot: Shot, positions: film.SubPixels) -> tuple[Tensor, Tensor, Tensor]:
    """Distance and surface of the nearest object of every sample [V * n * P], and all that it meets [V, K, n, P]."""
    views, count, pixels = len(shot.cameras.key), len(positions), shot.pixels
    if has_triton(stage.device):
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


def see_objects(stage: Stage, shot: Shot, positions: film.SubPixels) -> _Seen:
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


def paint_objects(stage: Stage, shot: Shot, count: int, seen: _Seen, color: Vec) -> None:
    """Fill in the colours [V, n, P] of samples that see objects."""
    position = seen.rays.at(seen.distance)
    normal = facing(normals(stage, seen.surface, position), seen.rays.heading)
    finish = stage.parts.finish[seen.surface >> ITEM_BITS]
    place = shot.places(seen.index, count)
    light = look(stage, Points(seen.rays.row, position, normal, -seen.rays.heading, finish, place))
    for part, value in zip((color.x, color.y, color.z), (light.x, light.y, light.z), strict=True):
        part.view(-1)[seen.index] = value


def paint_background(stage: Stage, shot: Shot, positions: film.SubPixels, bare: Tensor) -> tuple[Vec, Tensor]:
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
    seen, shown = which(bare.flatten()[index] & ~lamp[index]), which(~lamp[index])
    radiance, taken_by = look_behind(stage, points, seen)
    light.put(index[shown], taken(radiance, shown))
    shadows = torch.zeros(stage.slots, len(distance), device=device)
    shadows[:, index] = taken_by
    shape = (views, count, pixels)
    return light.map(lambda part: part.reshape(shape)), shadows.reshape(stage.slots, *shape).movedim(0, 1)


def expose(stage: Stage, cameras: Cameras, window: Window, samples: int) -> Film:
    """The lines of a window in V views."""
    fine, coarse = film.sub_pixels(samples), film.cells(samples // 4)
    shot = Shot(cameras, window)
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
    progress: OnProgress = lambda done, total: None,
) -> tuple[Pictures, np.ndarray]:
    """Pictures of scenes that share size and number of views, and linear radiance [S, M, H, W, 3]."""
    out = _drawn(scenes, slots, device, quality, progress, keep_linear=True)
    assert out.linear is not None
    return _pictures(scenes, slots, out), _by_scene(out.linear, scenes)


def picture_tables(
    scenes: Sequence[TableScene],
    slots: int,
    device: torch.device | str = "cpu",
    quality: str = "fast",
    progress: OnProgress = lambda done, total: None,
) -> Pictures:
    """The pictures alone: their radiance, four times as large, is neither fetched nor held."""
    return _pictures(scenes, slots, _drawn(scenes, slots, device, quality, progress, keep_linear=False))


def _drawn(
    scenes: Sequence[TableScene],
    slots: int,
    device: torch.device | str,
    quality: str,
    progress: OnProgress,
    keep_linear: bool,
) -> "_Stored":
    height, width, views = common_format(scenes, slots)
    where = resolved(device)
    with on_its_own(where):
        out = _Stored.empty(len(scenes) * views, slots, height, width, keep_linear)
        plan = _Plan(scenes, views, height, width, SAMPLES[quality], where, keep_linear)
        if where.type == "cuda":
            _draw_on_gpu(plan, out, progress)
        else:
            on_all_cores(lambda part: out.put(part, part.draw()), list(plan.parts()), where, progress)
    return out


def _by_scene(values: Tensor, scenes: Sequence[TableScene]) -> np.ndarray:
    return values.reshape(len(scenes), len(scenes[0].cameras), *values.shape[1:]).numpy()


def _pictures(scenes: Sequence[TableScene], slots: int, drawn: "_Stored") -> Pictures:
    height, width = scenes[0].height, scenes[0].width
    pose = np.array([[_pose(camera) for camera in scene.cameras] for scene in scenes])
    focal = np.array([[camera.focal * min(height, width) for camera in scene.cameras] for scene in scenes])
    middle = np.broadcast_to([width / 2, height / 2], (*focal.shape, 2))
    return Pictures(
        image=_by_scene(drawn.image, scenes),
        segment=_by_scene(drawn.segment, scenes),
        overlap=_by_scene(drawn.overlap, scenes),
        shapes=_by_scene(drawn.shapes, scenes),
        shadows=_by_scene(drawn.shadows, scenes),
        depth_order=np.stack([_nearness(scene, slots) for scene in scenes]),
        camera=pose[..., :3, 3].astype(np.float32),
        num_objects=np.array([len(scene.objects) for scene in scenes], np.uint8),
        pose=pose.astype(np.float32),
        intrinsics=np.concatenate([focal[..., None], focal[..., None], middle], -1).astype(np.float32),
    )


def _draw_on_gpu(plan: "_Plan", out: "_Stored", progress: OnProgress) -> None:
    """While a part is traced, the tables of the next are built, and the pictures of the last one are fetched.

    What was drawn belongs to the stream that drew it: freed, its memory may be written at once by the next part. So the
    copy on the other stream must have ended before `drawn` is let go. It has, because copies to pageable host memory
    block. Pinned memory or non_blocking=True would need `record_stream`.
    """
    fetching = torch.cuda.Stream(plan.device)  # type: ignore[no-untyped-call]

    def fetch(part: _Part, drawn: _Stored, ready: torch.cuda.Event) -> None:
        with torch.cuda.stream(fetching):
            fetching.wait_event(ready)
            out.put(part, drawn)

    with ThreadPoolExecutor(1) as fetcher:
        pending: deque[Future[None]] = deque()
        for number, part in enumerate(plan.parts()):
            drawn = part.draw()
            ready = torch.cuda.current_stream(plan.device).record_event()
            pending.append(fetcher.submit(fetch, part, drawn, ready))
            del drawn
            while pending and (len(pending) > UNFETCHED or pending[0].done()):
                pending.popleft().result()
            progress(number + 1, len(plan))
        for fetched in pending:
            fetched.result()


@dataclass(frozen=True)
class _Stored:
    """Lines of pictures as they are stored: in bytes, so that large pictures of many scenes fit."""

    linear: Tensor | None
    """[V, H, W, 3] float32, if it is asked for."""
    image: Tensor
    """[V, H, W, 3] u8."""
    segment: Tensor
    overlap: Tensor
    shapes: Tensor
    """[V, K, H, W] u8."""
    shadows: Tensor

    @staticmethod
    def empty(views: int, slots: int, height: int, width: int, keep_linear: bool) -> "_Stored":
        """On the host."""
        size, byte = (views, height, width), torch.uint8
        return _Stored(
            linear=torch.empty(*size, 3) if keep_linear else None,
            image=torch.empty(*size, 3, dtype=byte),
            segment=torch.empty(size, dtype=byte),
            overlap=torch.empty(size, dtype=byte),
            shapes=torch.zeros(views, slots, height, width, dtype=byte),
            shadows=torch.zeros(views, slots, height, width, dtype=byte),
        )

    @staticmethod
    def of(film_: Film, keep_linear: bool) -> "_Stored":
        linear, shapes, shadows = film_.linear.contiguous(), *map(film.to_alpha8, (film_.shapes, film_.shadows))
        return _Stored(
            linear=linear if keep_linear else None,
            image=film.to_srgb8(linear),
            segment=segment_of(film_.visible),
            overlap=(shapes >= COVERED).sum(1, dtype=torch.uint8),
            shapes=shapes,
            shadows=shadows,
        )

    def put(self, part: "_Part", drawn: "_Stored") -> None:
        """Copy what was drawn to its place."""
        lines = slice(part.window.top, part.window.bottom)
        for name in (*(() if self.linear is None else ("linear",)), "image", "segment", "overlap"):
            getattr(self, name)[part.views, lines].copy_(getattr(drawn, name))
        for name in ("shapes", "shadows"):
            slots = min(getattr(self, name).shape[1], getattr(drawn, name).shape[1])
            getattr(self, name)[part.views, :slots, lines].copy_(getattr(drawn, name)[:, :slots])


@dataclass(frozen=True)
class _Part:
    """Views that are traced together, and which lines of them."""

    stage: Stage
    cameras: Cameras
    views: slice
    """Of all that are asked for."""
    window: Window
    samples: int
    keep_linear: bool

    def draw(self) -> _Stored:
        return _Stored.of(expose(self.stage, self.cameras, self.window, self.samples), self.keep_linear)


class _Plan:
    """How the work is cut: on a CPU view by view, for the caches; on a GPU many at once. Large pictures in bands."""

    def __init__(
        self,
        scenes: Sequence[TableScene],
        views: int,
        height: int,
        width: int,
        samples: int,
        device: torch.device,
        keep_linear: bool,
    ) -> None:
        self.scenes, self.samples, self.device, self.keep_linear = scenes, samples, device, keep_linear
        most = most_at_once(device, SAMPLES_ON_CPU, SAMPLES_ON_GPU, BYTES_PER_SAMPLE)
        line = (width + 2 * film.PAD) * samples
        lines = max(1, min(height, most // line - 2 * film.PAD))
        self.at_once = max(1, most // ((lines + 2 * film.PAD) * line)) if device.type == "cuda" else 1
        self.windows = [Window(height, width, top, min(top + lines, height)) for top in range(0, height, lines)]
        self.every = [(scene, view) for scene in range(len(scenes)) for view in range(views)]

    def __len__(self) -> int:
        return math.ceil(len(self.every) / self.at_once) * len(self.windows)

    def parts(self) -> Iterator[_Part]:
        """One after another: tables are built when they are asked for."""
        stage, built = None, None
        for start in range(0, len(self.every), self.at_once):
            views = slice(start, min(start + self.at_once, len(self.every)))
            used = sorted({scene for scene, _ in self.every[views]})
            if stage is None or built != used:
                chosen = [self.scenes[scene] for scene in used]
                stage, built = Stage.of(chosen, max(len(scene.objects) for scene in chosen), self.device), used
            group = [(used.index(scene), view, self.scenes[scene]) for scene, view in self.every[views]]
            cameras = Cameras.of(group, self.device)
            for window in self.windows:
                yield _Part(stage, cameras, views, window, self.samples, self.keep_linear)


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
