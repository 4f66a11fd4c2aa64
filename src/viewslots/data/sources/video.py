"""Short videos as scenes: sharp frames, evenly spread.

Decoded by the ffmpeg that imageio-ffmpeg brings, as a process that is told the container, may open no other file, and
writes plain pictures (PGM, PPM) into a pipe.
"""

import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from jaxtyping import Float, UInt8
from numpy.typing import NDArray

from viewslots.data.picture_files import MOST_PIXELS, one_line
from viewslots.errors import UserError
from viewslots.files import open_regular, plain_errors

SUFFIXES = (".mp4", ".mov", ".m4v", ".webm", ".mkv", ".avi")
CONTAINERS = {"mov": rb"....(ftyp|moov|mdat|wide|free|skip)", "matroska": rb"\x1a\x45\xdf\xa3", "avi": rb"RIFF....AVI "}
"""What ffmpeg calls them, and how they begin. Nothing else is tried: playlists could name other files."""
MOST_FRAMES = 36_000
"""Ten minutes at 60 frames a second."""
LOOK_SIDE = 320
"""Sharpness is judged on frames of this width: noise of the sensor is no sharpness."""
WINDOW = 0.5
"""Frames are looked for in this share of the time between two of them."""

SMALL = f"scale={LOOK_SIDE}:-2:flags=area,format=gray"


def choose_frames(path: Path, count: int) -> tuple[list[int], tuple[int, int]]:
    """Numbers of at most `count` frames: the sharpest near evenly spread times. And height and width of the frames."""
    sharp = []
    with decoding(path, SMALL, "pgm") as stream:
        for frame in pictures(stream, path):
            sharp.append(sharpness(frame))
            if len(sharp) > MOST_FRAMES:
                raise UserError(f"{one_line(path)}: more than {MOST_FRAMES} frames; cut a short video of one scene")
    if not sharp:
        raise UserError(f"{one_line(path)}: no frames in it")
    numbers = sharpest(np.array(sharp), count)
    first = next(read_frames(path, numbers[:1]))
    return numbers, first.shape[:2]


def sharpest(sharp: Float[np.ndarray, "F"], count: int) -> list[int]:
    """The best of each of `count` windows around the middles of as many equal parts."""
    if count >= len(sharp):
        return list(range(len(sharp)))
    part, numbers = len(sharp) / count, []
    for place in range(count):
        middle, reach = (place + 0.5) * part, WINDOW / 2 * part
        first, last = int(middle - reach), max(int(middle - reach) + 1, int(np.ceil(middle + reach)))
        numbers.append(first + int(sharp[first:last].argmax()))
    return numbers


def sharpness(grey: UInt8[np.ndarray, "H W"]) -> float:
    """Variance of the Laplacian: little where a picture is blurred."""
    values = grey.astype(np.float32)
    sides = values[:-2, 1:-1] + values[2:, 1:-1] + values[1:-1, :-2] + values[1:-1, 2:]
    return float((sides - 4 * values[1:-1, 1:-1]).var()) if sides.size else 0.0


def read_frames(path: Path, numbers: Sequence[int]) -> Iterator[UInt8[np.ndarray, "H W 3"]]:
    """These frames, in rising order, upright."""
    chosen = "+".join(rf"eq(n\,{number})" for number in numbers)
    found = 0
    with decoding(path, f"select={chosen}", "ppm", len(numbers)) as stream:
        for frame in pictures(stream, path):
            found += 1
            yield frame
    if found != len(numbers):
        raise UserError(f"{one_line(path)}: damaged or cut off ({found} of {len(numbers)} frames could be read)")


@contextmanager
def decoding(path: Path, filters: str, kind: str, frames: int = MOST_FRAMES + 1) -> Iterator[IO[bytes]]:
    """ffmpeg at work, and the pipe it writes to."""
    command = [ffmpeg(path), "-nostdin", "-v", "error", "-protocol_whitelist", "file,pipe", "-f", container(path)]
    command += ["-i", f"file:{path.resolve()}", "-an", "-sn", "-dn", "-fps_mode", "passthrough"]
    command += ["-sws_flags", "accurate_rnd+full_chroma_int+bitexact", "-vf", filters, "-frames:v", str(frames)]
    command += ["-threads", "1", "-c:v", kind, "-f", "image2pipe", "-"]
    with plain_errors("decoding", path):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        process.kill()
        process.communicate()


def pictures(stream: IO[bytes], path: Path) -> Iterator[NDArray[np.uint8]]:
    """Binary PGM and PPM, one after another."""
    while start := stream.readline(16):
        size, depth = stream.readline(32), stream.readline(16)
        match = re.fullmatch(rb"(\d{1,6}) (\d{1,6})\n", size)
        if start not in (b"P5\n", b"P6\n") or match is None or depth != b"255\n":
            raise UserError(f"{one_line(path)}: a video that cannot be read; save it as MP4")
        width, height = int(match[1]), int(match[2])
        channels = 1 if start == b"P5\n" else 3
        if width * height > MOST_PIXELS:
            raise UserError(f"{one_line(path)}: more than {MOST_PIXELS // 10**6} megapixels; save it smaller")
        data = stream.read(width * height * channels)
        if len(data) < width * height * channels:
            return
        shape = (height, width) if channels == 1 else (height, width, 3)
        yield np.frombuffer(data, np.uint8).reshape(shape)


def ffmpeg(path: Path) -> str:
    try:
        import imageio_ffmpeg

        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError) as error:
        raise UserError(
            f"{one_line(path)}: videos are read with imageio-ffmpeg, which is not there: pip install imageio-ffmpeg"
        ) from error


def container(path: Path) -> str:
    with open_regular(path) as file, plain_errors("reading", path):
        start = file.read(16)
    for name, pattern in CONTAINERS.items():
        if re.match(pattern, start, re.DOTALL):
            return name
    raise UserError(f"{one_line(path)}: not a video that is read; save it as MP4")
