"""The camera turns through scenes, as a video: its frames, then MP4 for pages and GIF for those without videos."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from viewslots.errors import UserError
from viewslots.figures.decompositions import sorted_objects, tinted
from viewslots.figures.grid import Pixels, whole_zoom
from viewslots.viewpoints.export import pixels_of
from viewslots.viewpoints.paths import loop, tour
from viewslots.viewpoints.scene import InferredScene

FRAMES_PER_SECOND = 12
GIF_COLOURS = 255
GAP = 4
SIDE = 192
"""Largest side of one picture in the video."""

Frames = UInt8[np.ndarray, "F H W 3"]


class NoFfmpeg(UserError):
    """The package that brings ffmpeg is not installed: no MP4 here, but all else can be had."""


def turning_frames(scenes: Sequence[InferredScene], count: int) -> Frames:
    """Columns: scenes. Above: the scene as the camera passes all its viewpoints and comes back, without a seam. Below:
    the same with every object in a colour of its own, which it keeps.
    """
    columns = [scene_frames(scene, count) for scene in scenes]
    white = np.full((count, columns[0].shape[1], GAP, 3), 255, np.uint8)
    parts = [part for column in columns for part in (white, column)][1:]
    return np.concatenate(parts, axis=2)


def scene_frames(scene: InferredScene, count: int) -> Frames:
    path = loop(scene.views[tour(scene.views)], count)
    order = sorted_objects(scene)
    zoom = whole_zoom(scene.render().image.shape[1:], SIDE)
    frames = []
    for view in scene.render_many(path):
        above, below = grown(pixels_of(view.image), zoom), grown(tinted(view.image, view, order), zoom)
        frames.append(np.concatenate([above, np.full((GAP, above.shape[1], 3), 255, np.uint8), below]))
    return np.stack(frames)


def grown(pixels: Pixels, zoom: int) -> Pixels:
    return pixels.repeat(zoom, 0).repeat(zoom, 1)


def save_video(frames: Frames, stem: Path, rate: int = FRAMES_PER_SECOND) -> list[Path]:
    """STEM.mp4 and STEM.gif, which repeats for ever; the GIF alone where imageio-ffmpeg is missing."""
    gif = save_gif(frames, stem.with_suffix(".gif"), rate)
    try:
        return [save_mp4(frames, stem.with_suffix(".mp4"), rate), gif]
    except NoFfmpeg:
        return [gif]


def save_mp4(frames: Frames, path: Path, rate: int = FRAMES_PER_SECOND) -> Path:
    """H.264 that every browser plays; it knows even sides alone, so odd ones gain a line of white."""
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise NoFfmpeg(f"{path}: MP4 needs imageio-ffmpeg, which is missing; pip install imageio-ffmpeg") from error

    _, height, width, _ = frames.shape
    even = np.pad(frames, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), constant_values=255)
    size = f"{even.shape[2]}x{even.shape[1]}"
    given = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", size, "-r", str(rate), "-i", "-"]
    quality = ["-c:v", "libx264", "-crf", "14", "-preset", "medium", "-tune", "animation", "-pix_fmt", "yuv420p"]
    try:
        command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-v", "error", *given, *quality, "-movflags", "+faststart"]
        done = subprocess.run([*command, str(path)], input=even.tobytes(), capture_output=True, check=False)
        reason = done.stderr.decode(errors="replace") if done.returncode else ""
    except (OSError, RuntimeError) as error:
        reason = str(error) or type(error).__name__
    if reason:
        raise UserError(f"{path}: ffmpeg cannot write it ({' '.join(reason.split())[:160]})")
    return path


def save_gif(frames: Frames, path: Path, rate: int = FRAMES_PER_SECOND) -> Path:
    """One palette for all frames, so that colours do not flicker."""
    palette = shared_palette(frames)
    pictures = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=round(1000 / rate), loop=0)
    return path


def shared_palette(frames: Frames) -> Image.Image:
    """Colours weigh by the root of how often they occur: else the grey of a floor leaves no room for small objects."""
    colours, counts = np.unique(frames[::3, ::3, ::3].reshape(-1, 3) >> 1, axis=0, return_counts=True)
    weighted = np.repeat((colours << 1).astype(np.uint8), np.ceil(np.sqrt(counts)).astype(int), axis=0)
    return Image.fromarray(weighted[None]).quantize(GIF_COLOURS, method=Image.Quantize.MEDIANCUT, kmeans=3)
