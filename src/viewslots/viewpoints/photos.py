"""A user's own pictures of one scene: checked, turned upright, cropped and made as small as the model sees them.

What becomes of a picture: what data/picture_files.py says, then the largest window of the model's shape in the middle,
for most models a square, then the mean over the area of each pixel of the model's grid.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from viewslots.data.picture_files import MOST_BYTES as MOST_BYTES
from viewslots.data.picture_files import array_pixels, damage, file_bytes, image_pixels, one_line, opened
from viewslots.data.resize import Resize
from viewslots.errors import UserError
from viewslots.types import Extent, sides

MOST_PICTURES = 32

Picture = str | Path | IO[bytes] | Image.Image | NDArray[Any]
Pictured = Picture | Sequence[Picture] | Tensor
"""One picture or several: files, open files, PIL pictures, arrays [H,W], [H,W,3] or [H,W,4]; or a tensor [M,3,H,W]."""


def read_pictures(pictures: Pictured, size: Extent) -> Float[Tensor, "M 3 H W"]:
    """Pictures of one scene as the model sees them, in [0, 1]. A tensor stays as it is and must have their size."""
    if isinstance(pictures, Tensor):
        return pictures[None] if pictures.dim() == 3 else pictures
    alone = isinstance(pictures, str | Path | Image.Image) or hasattr(pictures, "read")
    alone = alone or (isinstance(pictures, np.ndarray) and pictures.ndim < 4)
    several: list[Any] = [pictures] if alone else list(pictures)  # type: ignore[arg-type]
    if not several:
        raise UserError("no picture is given; name at least one")
    if len(several) > MOST_PICTURES:
        raise UserError(f"{len(several)} pictures of one scene are more than {MOST_PICTURES}; leave some out")
    seen = [read_picture(picture, size, named(picture, place)) for place, picture in enumerate(several, 1)]
    return torch.from_numpy(np.stack(seen)).permute(0, 3, 1, 2).contiguous()


def named(picture: Any, place: int) -> str:
    """How messages call a picture: a file by its path, made fit for one line; anything else by its place."""
    if isinstance(picture, str | Path):
        return one_line(picture)
    return f"picture {place}"


def read_picture(picture: Picture, size: Extent, name: str) -> Float[np.ndarray, "H W 3"]:
    """One picture, from whatever holds it."""
    if isinstance(picture, np.ndarray):
        pixels = array_pixels(picture, name)
    elif isinstance(picture, Image.Image):
        with damage(name):
            pixels = image_pixels(picture, name)
    else:
        with damage(name), opened(file_bytes(picture, name), name) as image:
            pixels = image_pixels(image, name)
    cut = Resize.between(pixels.shape[:2], sides(size))
    window = pixels[cut.top : cut.top + cut.crop_height, cut.left : cut.left + cut.crop_width]
    small = area_mean(area_mean(window, cut.height).swapaxes(0, 1), cut.width).swapaxes(0, 1)
    return (small / 255).astype(np.float32)


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
