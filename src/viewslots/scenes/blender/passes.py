"""The renders that make a view: the lit picture, who is seen where, and every body's complete shape."""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bpy
import numpy as np
import numpy.typing as npt
from clevr import ClevrStage
from description import Scene, SceneError
from stage import Stage
from tabletop import TableStage

from viewslots.scenes.tabletop.table_scene import TableScene

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

BACKGROUND = 255
COVERED = 128
"""A pixel belongs to an object where the visible alphas of all objects sum to at least this."""
MASK_SAMPLES = 128
"""Flat colours are cheap, and the noise of an edge pixel's alpha is then about 2/255."""


@dataclass(frozen=True)
class Quality:
    samples: int
    """Light paths a pixel."""
    bounces: int | None = None
    """Most of a path, of any sort; None: the stage's own."""
    truth: bool = True
    """Masks beside the picture."""


def render(scene: Scene | TableScene, quality: Quality, threads: int, seed: int) -> dict[str, npt.NDArray[Any]]:
    """image [M,H,W,3] u8, linear [M,H,W,3] f32; with truth also segment [M,H,W] u8 and shapes [M,K,H,W] u8."""
    stage = ClevrStage(scene) if isinstance(scene, Scene) else TableStage(scene)
    _settings(stage, threads, quality.bounces)
    linear, segment, shapes = [], [], []
    with tempfile.TemporaryDirectory(prefix="viewslots-blender-") as folder:
        shot = Path(folder) / "shot.exr"
        for m, camera in enumerate(stage.cameras):
            if sys.stderr.isatty():
                print(f"view {m + 1} of {len(stage.cameras)}", file=sys.stderr)
            stage.look_from(camera)
            stage.scene.cycles.seed = (seed + m) % 2**31
            stage.show_picture()
            linear.append(_shoot(stage, quality.samples, shot))
            if quality.truth:
                segment.append(_segment(_visible(stage, shot)))
                shapes.append(_shapes(stage, shot))
    truth = {"segment": np.stack(segment), "shapes": np.stack(shapes)} if quality.truth else {}
    return {"image": _bytes(_srgb(np.stack(linear))), "linear": np.stack(linear), **truth}


def _settings(stage: Stage, threads: int, bounces: int | None) -> None:
    """Cycles as CLEVR set it, but for the bounces if the user names their number; no clamping, no denoising."""
    output, cycles = stage.scene.render, stage.scene.cycles
    output.engine = "CYCLES"
    output.resolution_x, output.resolution_y, output.resolution_percentage = stage.film.width, stage.film.height, 100
    output.use_persistent_data = True
    if threads:
        output.threads_mode, output.threads = "FIXED", threads
    output.image_settings.file_format, output.image_settings.exr_codec = "OPEN_EXR", "NONE"
    output.image_settings.color_mode, output.image_settings.color_depth = "RGB", "32"
    stage.scene.view_settings.view_transform = "Standard"
    cycles.device = "CPU"
    cycles.use_adaptive_sampling = cycles.use_denoising = False
    most, diffuse, glossy = stage.bounces if bounces is None else (bounces,) * 3
    cycles.max_bounces, cycles.diffuse_bounces, cycles.glossy_bounces = most, diffuse, glossy
    cycles.blur_glossy = 2.0
    cycles.caustics_reflective = True
    cycles.sample_clamp_direct = cycles.sample_clamp_indirect = 0.0
    cycles.pixel_filter_type, cycles.filter_width = "BLACKMAN_HARRIS", 1.5


def _shoot(stage: Stage, samples: int, file: Path) -> Floats:
    """One render, [H,W,3] linear, first row on top. Blender hands out a render's floats only by way of a file."""
    stage.scene.cycles.samples = samples
    stage.scene.render.filepath = str(file)
    try:
        bpy.ops.render.render(write_still=True)
        shot = bpy.data.images.load(str(file))
    except RuntimeError as error:
        raise SceneError(f"Blender could not render: {error}") from error
    shot.colorspace_settings.name = "Non-Color"
    pixels = np.empty(stage.film.height * stage.film.width * 4, np.float32)
    shot.pixels.foreach_get(pixels)
    bpy.data.images.remove(shot)
    return pixels.reshape(stage.film.height, stage.film.width, 4)[::-1, :, :3].copy()


def _visible(stage: Stage, file: Path) -> Bytes:
    """[K,H,W]: the share of each pixel in which body k is seen; three bodies a render, one in each colour channel."""
    count = len(stage.bodies)
    alphas = np.zeros((count, stage.film.height, stage.film.width), np.uint8)
    for first in range(0, count, 3):
        group = range(first, min(first + 3, count))
        stage.show_visible([k - first if k in group else None for k in range(count)])
        shot = _shoot(stage, MASK_SAMPLES, file)
        alphas[group.start : group.stop] = _bytes(shot).transpose(2, 0, 1)[: len(group)]
    return alphas


def _shapes(stage: Stage, file: Path) -> Bytes:
    """[K,H,W]: the share of each pixel that body k would fill if it were alone; a render each."""
    alphas = np.zeros((len(stage.bodies), stage.film.height, stage.film.width), np.uint8)
    for k in range(len(stage.bodies)):
        stage.show_alone(k)
        alphas[k] = _bytes(_shoot(stage, MASK_SAMPLES, file)[..., 0])
    return alphas


def _segment(visible: Bytes) -> Bytes:
    """[K,H,W] alphas to [H,W]: the object with the largest share, background where all together fill less than half."""
    segment = np.full(visible.shape[1:], BACKGROUND, np.uint8)
    if len(visible):
        filled = visible.sum(0, dtype=np.int64) >= COVERED
        segment[filled] = visible.argmax(0)[filled]
    return segment


def _srgb(linear: Floats) -> Floats:
    light = np.clip(linear, 0, 1)
    return np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055).astype(np.float32)


def _bytes(values: Floats) -> Bytes:
    return np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)
