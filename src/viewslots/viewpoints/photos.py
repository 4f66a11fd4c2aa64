"""A user's own pictures of one scene: checked, turned upright, cropped and made as small as the model sees them.

What becomes of a picture: what data/picture_files.py says, then the largest window of the model's shape in the middle,
for most models a square, then the mean over the area of each pixel of the model's grid. A `Photo` knows the way back:
from the model's grid to the pixels that were given. A short video stands for its sharpest frames.
"""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional

from viewslots.data.picture_files import MOST_BYTES as MOST_BYTES
from viewslots.data.picture_files import REFUSED, array_pixels, damage, file_bytes, image_pixels, one_line, opened
from viewslots.data.resize import Resize
from viewslots.data.sources.video import CONTAINERS, SUFFIXES, choose_frames, read_frames
from viewslots.errors import UserError
from viewslots.types import Extent, sides

MOST_PICTURES = 32
FRAMES = 6
"""Of a video, unless somebody says how many."""
OUTSIDE = 255
"""Of `Photo.segment`: beyond the window."""


@dataclass(frozen=True, eq=False)
class Photo:
    """A picture as it was given, upright, and the window of it that the model saw."""

    pixels: UInt8[np.ndarray, "H W 3"] | Float[np.ndarray, "H W 3"]
    """From 0 to 255; fractions of 16-bit pictures."""
    window: Resize

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the whole picture."""
        return self.pixels.shape[:2]

    def seen(self) -> Float[Tensor, "3 h w"]:
        """As the model sees it, in [0, 1]."""
        cut = self.window
        window = self.pixels[cut.top : cut.top + cut.crop_height, cut.left : cut.left + cut.crop_width]
        small = area_mean(area_mean(window, cut.height).swapaxes(0, 1), cut.width).swapaxes(0, 1)
        return torch.from_numpy((small / 255).astype(np.float32)).permute(2, 0, 1).contiguous()

    def seen_in(self, size: tuple[int, int]) -> "Photo":
        """By a model whose pictures have this height and width."""
        if (self.window.height, self.window.width) == size:
            return self
        return replace(self, window=Resize.between(self.size, size))

    def enlarged(self, values: Float[Tensor, "h w"]) -> Float[Tensor, "H W"]:
        """What the model says of each of its pixels, smoothly in those of the window."""
        size = (self.window.crop_height, self.window.crop_width)
        return functional.interpolate(values[None, None], size=size, mode="bilinear", align_corners=False)[0, 0]

    def segment(self, masks: Float[Tensor, "L h w"]) -> UInt8[np.ndarray, "H W"]:
        """The layer that is seen most at each pixel of the whole picture; OUTSIDE where the model did not look."""
        best, layer = self.enlarged(masks[0]), torch.zeros(self.window.crop_height, self.window.crop_width)
        for index, mask in enumerate(masks[1:], 1):  # one at a time: photos are large
            larger = self.enlarged(mask)
            layer = torch.where(larger > best, float(index), layer.to(larger))
            best = torch.maximum(best, larger)
        whole = np.full(self.size, OUTSIDE, np.uint8)
        cut = self.window
        inner = (slice(cut.top, cut.top + cut.crop_height), slice(cut.left, cut.left + cut.crop_width))
        whole[inner] = layer.byte().cpu().numpy()
        return whole

    def reduced(self, side: int) -> "Photo":
        """The same with no side longer than this: for a screen."""
        share = side / max(self.size)
        if share >= 1:
            return self
        height, width = (max(1, round(each * share)) for each in self.size)
        whole = Image.fromarray(self.pixels.astype(np.uint8))
        pixels = np.asarray(whole.resize((width, height), Image.Resampling.BOX, reducing_gap=2))
        return Photo(pixels, Resize.between((height, width), (self.window.height, self.window.width)))


Picture = str | Path | IO[bytes] | Image.Image | NDArray[Any] | Photo
Pictured = Picture | Sequence[Picture] | Tensor
"""One picture or several: files, open files, PIL pictures, arrays [H,W], [H,W,3] or [H,W,4], photos; or a tensor
[M,3,H,W]."""


def read_photos(pictures: Picture | Sequence[Picture], size: Extent, frames: int = FRAMES) -> list[Photo]:
    """Pictures of one scene, for a model that sees them in this size. A video is as many of its frames."""
    alone = isinstance(pictures, str | Path | Image.Image | Photo) or hasattr(pictures, "read")
    alone = alone or (isinstance(pictures, np.ndarray) and pictures.ndim < 4)
    several: list[Any] = [pictures] if alone else list(pictures)  # type: ignore[arg-type]
    if not several:
        raise UserError("no picture is given; name at least one")
    if is_video(several[0]) and len(several) == 1:
        several = video_frames(Path(several[0]), frames)
    elif videos := [one for one in several if is_video(one)]:
        raise UserError(f"{one_line(videos[0])}: a video is a scene of its own; name it alone, or pictures alone")
    if len(several) > MOST_PICTURES:
        raise UserError(f"{len(several)} pictures of one scene are more than {MOST_PICTURES}; leave some out")
    return [read_photo(picture, size, named(picture, place)) for place, picture in enumerate(several, 1)]


def read_pictures(pictures: Pictured, size: Extent) -> Float[Tensor, "M 3 H W"]:
    """Pictures of one scene as the model sees them, in [0, 1]. A tensor stays as it is and must have their size."""
    if isinstance(pictures, Tensor):
        return pictures[None] if pictures.dim() == 3 else pictures
    return torch.stack([photo.seen() for photo in read_photos(pictures, size)])


def is_video(picture: Any) -> bool:
    return isinstance(picture, str | Path) and str(picture).lower().endswith(SUFFIXES)


def looks_like_video(start: bytes) -> bool:
    """By the first bytes. HEIC and its like begin as MP4 does."""
    text = start[:400].decode("latin-1")
    still = any(re.match(pattern, text, re.DOTALL) for pattern in REFUSED.values())
    return not still and any(re.match(pattern, start, re.DOTALL) for pattern in CONTAINERS.values())


def video_frames(path: Path, count: int) -> list[NDArray[np.uint8]]:
    """The sharpest near evenly spread times."""
    if not 1 <= count <= MOST_PICTURES:
        raise UserError(f"{count} frames of a video are asked for; take 1 to {MOST_PICTURES}")
    if not path.exists():
        raise UserError(f"{one_line(path)}: no such file or folder")
    numbers, _ = choose_frames(path, count)
    return list(read_frames(path, numbers))


def named(picture: Any, place: int) -> str:
    """How messages call a picture: a file by its path, made fit for one line; anything else by its place."""
    if isinstance(picture, str | Path):
        return one_line(picture)
    return f"picture {place}"


def read_photo(picture: Picture, size: Extent, name: str) -> Photo:
    """One picture, from whatever holds it."""
    if isinstance(picture, Photo):
        return picture.seen_in(sides(size))
    if isinstance(picture, np.ndarray):
        pixels = array_pixels(picture, name)
    elif isinstance(picture, Image.Image):
        with damage(name):
            pixels = image_pixels(picture, name)
    else:
        with damage(name), opened(file_bytes(picture, name), name) as image:
            pixels = image_pixels(image, name)
    return Photo(pixels, Resize.between(pixels.shape[:2], sides(size)))


def area_mean(values: NDArray[Any], count: int) -> Float[np.ndarray, "count *rest"]:
    """The means of `count` equal parts of the first axis; an entry that a cut divides counts in part on both sides."""
    edges = np.linspace(0, len(values), count + 1)
    means = []
    for start, end in itertools.pairwise(edges):
        first, last = int(start), int(np.ceil(end))
        places = np.arange(first, last)
        weights = np.minimum(places + 1, end) - np.maximum(places, start)
        means.append(np.tensordot(weights / weights.sum(), values[first:last].astype(np.float64), 1))
    return np.stack(means)
