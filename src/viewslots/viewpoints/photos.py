"""A user's own pictures of one scene: checked, turned upright, cropped to a square, made as small as the model sees.

What becomes of a picture, in this order: the first frame of an animation; upright as its EXIF orientation says; grey,
palette, 1-bit and 16-bit pictures as RGB; transparent parts over mid grey; the largest square in the middle; the mean
over the area of each pixel of the model's grid. Colour profiles are ignored: pictures count as sRGB.
"""

import io
import itertools
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from viewslots.errors import UserError
from viewslots.files import open_regular, shown

MOST_PICTURES = 32
MOST_BYTES = 20 * 10**6
MOST_PIXELS = 40 * 10**6
GREY = (128, 128, 128, 255)
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""Nothing else is even tried: fewer decoders, fewer surprises."""
REFUSED: dict[str, str] = {
    "HEIC": r"....ftyp(heic|heix|hevc|hevx|heim|heis|mif1|msf1)",
    "AVIF": r"....ftypavi[fs]",
    "Canon RAW": r"....ftypcrx |II\*\x00....CR",
    "RAW": r"FUJIFILMCCD-RAW|IIRO|IIRS|MMOR|IIU\x00|FOVb",
    "PDF": r"\s*%PDF",
    "SVG": r"(\xef\xbb\xbf)?\s*(<\?xml|<!--|<!DOCTYPE svg|<svg)",
    "PostScript": r"%!PS",
    "Photoshop": r"8BPS",
    "JPEG XL": r"\xff\x0a|....JXL ",
}
"""First bytes of files that are pictures to people, but not to us."""
RAW_ENDINGS = (".arw", ".cr2", ".cr3", ".dng", ".nef", ".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".srw")
"""Many RAW files are TIFFs inside, which would open as their thumbnail."""

Picture = str | Path | IO[bytes] | Image.Image | NDArray[Any]
Pictured = Picture | Sequence[Picture] | Tensor
"""One picture or several: files, open files, PIL pictures, arrays [H,W], [H,W,3] or [H,W,4]; or a tensor [M,3,H,W]."""


def read_pictures(pictures: Pictured, size: int) -> Float[Tensor, "M 3 H W"]:
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
        text = str(picture)
        return text if text.isprintable() and text else shown(Path(text).name)
    return f"picture {place}"


def read_picture(picture: Picture, size: int, name: str) -> Float[np.ndarray, "H W 3"]:
    """One picture, from whatever holds it."""
    if isinstance(picture, np.ndarray):
        pixels = array_pixels(picture, name)
    elif isinstance(picture, Image.Image):
        with damage(name):
            pixels = image_pixels(picture, name)
    else:
        with damage(name), opened(file_bytes(picture, name), name) as image:
            pixels = image_pixels(image, name)
    H, W, side = *pixels.shape[:2], min(pixels.shape[:2])
    top, left = (H - side) // 2, (W - side) // 2
    square = pixels[top : top + side, left : left + side]
    small = area_mean(area_mean(square, size).swapaxes(0, 1), size).swapaxes(0, 1)
    return (small / 255).astype(np.float32)


def file_bytes(file: str | Path | IO[bytes], name: str) -> bytes:
    """Content of a file, unless it is none, empty, too large, or of a kind that we cannot read."""
    if isinstance(file, str | Path):
        if "\0" in str(file) or not Path(file).exists():
            raise UserError(f"{name}: no such file or folder")
        if Path(file).is_dir():
            raise UserError(f"{name}: a folder; name the pictures in it")
        with open_regular(Path(file)) as stored:
            content = stored.read(MOST_BYTES + 1)
    else:
        content = file.read(MOST_BYTES + 1)
    if not content:
        raise UserError(f"{name}: an empty file")
    if len(content) > MOST_BYTES:
        raise UserError(f"{name}: larger than {MOST_BYTES // 10**6} MB; save it smaller")
    require_readable_kind(content, name, Path(name).suffix.lower())
    return content


def require_readable_kind(content: bytes, name: str, ending: str) -> None:
    """A line of its own for formats that people do have, but we do not read."""
    start = content[:400].decode("latin-1")
    kind = next((kind for kind, pattern in REFUSED.items() if re.match(pattern, start, re.DOTALL)), None)
    if kind is None and ending in RAW_ENDINGS:
        kind = "RAW"
    if kind is not None:
        raise UserError(f"{name}: {kind} files are not read; save the picture as PNG or JPEG")


@contextmanager
def opened(content: bytes, name: str) -> Iterator[Image.Image]:
    """The picture in a file, with its size known to be sane but its pixels not yet read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd tags, and of sizes, which are judged here
        with Image.open(io.BytesIO(content), formats=FORMATS) as image:
            yield image


@contextmanager
def damage(name: str) -> Iterator[None]:
    """Whatever is found broken in a picture becomes one line."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    except UnidentifiedImageError as error:
        raise UserError(f"{name}: not a picture in a format that is read; save it as PNG or JPEG") from error
    except Image.DecompressionBombError as error:
        raise UserError(too_large(name)) from error
    except Exception as error:  # decoders raise any kind of exception on damaged files
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise UserError(f"{name}: damaged or cut off ({reason}); save the picture again") from error


def too_large(name: str) -> str:
    return f"{name}: more than {MOST_PIXELS // 10**6} megapixels; save it smaller"


def image_pixels(image: Image.Image, name: str) -> UInt8[np.ndarray, "H W 3"] | Float[np.ndarray, "H W 3"]:
    """Pixels of 0..255 of a PIL picture of any mode; the first frame if there are several."""
    if image.width * image.height > MOST_PIXELS:
        raise UserError(too_large(name))
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith(("I", "F")):
        return array_pixels(np.asarray(upright), name)
    if not upright.has_transparency_data:
        return np.asarray(upright.convert("RGB"))
    clear = upright.convert("RGBA")
    return np.asarray(Image.alpha_composite(Image.new("RGBA", clear.size, GREY), clear).convert("RGB"))


def array_pixels(values: NDArray[Any], name: str) -> UInt8[np.ndarray, "H W 3"] | Float[np.ndarray, "H W 3"]:
    """Pixels of 0..255 of an array: u8, u16, other whole numbers up to 65535 (16 bits), or fractions in [0, 1]."""
    if values.ndim not in (2, 3) or (values.ndim == 3 and values.shape[2] not in (1, 3, 4)) or 0 in values.shape:
        raise UserError(f"{name}: must be an array [H,W], [H,W,3] or [H,W,4], not {list(values.shape)}")
    if values.shape[0] * values.shape[1] > MOST_PIXELS:
        raise UserError(too_large(name))
    if values.dtype == np.uint8:
        return image_pixels(Image.fromarray(values.squeeze(2) if values.shape[2:] == (1,) else values), name)
    whole = values.dtype.kind in "ui"
    most = 65535 if whole else 1
    if values.dtype.kind not in "uif" or not (values.min() >= 0 and values.max() <= most):
        raise UserError(f"{name}: pixels must be 8 bits, 16 bits, or fractions from 0 to 1; save it as PNG or JPEG")
    pixels = (values[..., None] if values.ndim == 2 else values).astype(np.float32) * (255 / most)
    if pixels.shape[2] == 4:
        alpha = pixels[..., 3:] / 255
        pixels = pixels[..., :3] * alpha + GREY[0] * (1 - alpha)
    return np.broadcast_to(pixels, (*pixels.shape[:2], 3))


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
