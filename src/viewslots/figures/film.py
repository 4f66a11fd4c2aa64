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
    options = ["-crf", "14", "-preset", "medium", "-tune", "animation", "-movflags", "+faststart"]
    try:
        writer = imageio_ffmpeg.write_frames(
            str(path),
            (even.shape[2], even.shape[1]),
            fps=rate,
            codec="libx264",
            macro_block_size=2,
            output_params=options,
            ffmpeg_log_level="error",
        )
        writer.send(None)
        for frame in even:
            writer.send(np.ascontiguousarray(frame))
        writer.close()
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"{path}: ffmpeg cannot write it ({reason}); reinstall imageio-ffmpeg") from error
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
