"""Frames to films: MP4 for pages, GIF for places that know no films."""

import subprocess
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from viewslots.errors import UserError

FRAMES_PER_SECOND = 12
GIF_COLOURS = 255

Frames = UInt8[np.ndarray, "F H W 3"]


def save_film(frames: Frames, stem: Path, rate: int = FRAMES_PER_SECOND) -> list[Path]:
    """STEM.mp4 and STEM.gif, which repeats for ever."""
    return [save_mp4(frames, stem.with_suffix(".mp4"), rate), save_gif(frames, stem.with_suffix(".gif"), rate)]


def save_mp4(frames: Frames, path: Path, rate: int = FRAMES_PER_SECOND) -> Path:
    """H.264 that every browser plays; it knows even sides alone, so odd ones gain a line of white."""
    import imageio_ffmpeg

    _, height, width, _ = frames.shape
    even = np.pad(frames, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)), constant_values=255)
    given = [
        "-f",
        "rawvideo",
        "-pix_fmt",
        "rgb24",
        "-s",
        f"{even.shape[2]}x{even.shape[1]}",
        "-r",
        str(rate),
        "-i",
        "-",
    ]
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
