"""Reading picture files that nobody vouches for: bounded, upright, as RGB bytes, or one clear line.

What becomes of a picture, in this order: the first frame of an animation; upright as its EXIF orientation says; grey,
palette, 1-bit and 16-bit pictures as RGB; transparent parts over mid grey. Colour profiles are ignored: pictures count
as sRGB. HEIC files are read where pillow-heif is installed.
"""

import importlib
import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from jaxtyping import Float, Integer, UInt8
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.TiffImagePlugin import TiffImageFile

from viewslots.errors import UserError
from viewslots.files import open_regular, plain_errors, shown

MOST_BYTES = 20 * 10**6
"""Of a picture that somebody uploads or names;"""
STORED_BYTES = 200 * 10**6
"""of one in a data set: an uncompressed PNG of the most pixels, 16 bits each, still fits."""
MOST_PIXELS = 40 * 10**6
MOST_CHUNKS = 2**20
TELLING = (b"eXIf", b"iTXt", b"tEXt", b"zTXt")
"""Chunks of a PNG that may say how it is turned."""
GREY = (128, 128, 128, 255)
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""Nothing else is even tried, but HEIF where it can be read: fewer decoders, fewer surprises."""
ORIENTATION, SIDEWAYS = 0x0112, (5, 6, 7, 8)
"""The EXIF tag, and its values for pictures that lie on their side."""
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


def one_line(path: str | Path) -> str:
    """How messages call a file, made fit for one line."""
    text = str(path)
    return text if text.isprintable() and text else shown(Path(text).name)


def read_rgb(path: Path) -> UInt8[np.ndarray, "H W 3"]:
    """A picture from a file."""
    name = one_line(path)
    with damage(name), opened(file_bytes(path, name, STORED_BYTES), name) as image:
        pixels = image_pixels(image, name)
    return pixels if pixels.dtype == np.uint8 else pixels.round().astype(np.uint8)


def picture_size(path: Path) -> tuple[int, int]:
    """Height and width of an upright picture; its pixels are not read, nor, for most files, all of its bytes."""
    name = one_line(path)
    require_readable_kind(_beginning(path), name, path.suffix.lower())
    with damage(name), open_regular(path) as file, _pillow(file, name) as image:
        require_pixels(image, name)
        if image.format == "PNG" and _tells_late(file):
            image.load()
        # Of a TIFF with a tag for it Pillow turns the size itself. A PNG's own getexif would decode it.
        by_pillow = isinstance(image, TiffImageFile) and ORIENTATION in image.tag_v2
        turned = not by_pillow and Image.Image.getexif(image).get(ORIENTATION, 1) in SIDEWAYS
        return (image.width, image.height) if turned else (image.height, image.width)


def _tells_late(file: IO[bytes]) -> bool:
    """Whether a PNG says something after its pixels, where Pillow sees it only once they are decoded."""
    place, seen = file.tell(), False
    file.seek(8)
    for _ in range(MOST_CHUNKS):
        head = file.read(8)
        seen = seen or head[4:] == b"IDAT"
        if len(head) < 8 or head[4:] == b"IEND" or (seen and head[4:] in TELLING):
            break
        file.seek(int.from_bytes(head[:4], "big") + 4, 1)
    file.seek(place)
    return seen and head[4:] in TELLING


def read_indices(path: Path) -> Integer[np.ndarray, "H W"]:
    """An index mask: palette indices and grey levels as they are, 8 or 16 bits; RGB only where it is grey."""
    name = one_line(path)
    with damage(name), opened(file_bytes(path, name, STORED_BYTES), name) as image:
        require_pixels(image, name)
        values = np.asarray(image)
    if values.dtype == bool:
        values = values.astype(np.uint8)
    if values.ndim == 3:
        colours = values[..., :3] if values.shape[2] > 2 else values[..., :1]
        if (colours != colours[..., :1]).any():
            raise UserError(
                f"{name}: has colours, but masks must be indices: one grey level or palette entry an object"
            )
        values = colours[..., 0]
    if values.dtype.kind not in "ui":
        raise UserError(f"{name}: masks must hold whole numbers, 8 or 16 bits; save it as PNG")
    return values


def _beginning(path: Path) -> bytes:
    with open_regular(path) as file, plain_errors("reading", path):
        content = file.read(400)
    if not content:
        raise UserError(f"{one_line(path)}: an empty file")
    return content


def file_bytes(file: str | Path | IO[bytes], name: str, most: int = MOST_BYTES) -> bytes:
    """Content of a file, unless it is none, empty, too large, or of a kind that we cannot read."""
    if isinstance(file, str | Path):
        if "\0" in str(file) or not Path(file).exists():
            raise UserError(f"{name}: no such file or folder")
        if Path(file).is_dir():
            raise UserError(f"{name}: a folder; name the pictures in it")
        with open_regular(Path(file)) as stored:
            content = stored.read(most + 1)
    else:
        content = file.read(most + 1)
    if not content:
        raise UserError(f"{name}: an empty file")
    if len(content) > most:
        raise UserError(too_many_bytes(name, most))
    require_readable_kind(content, name, Path(name).suffix.lower())
    return content


def too_many_bytes(name: str, most: int, how: str = "smaller") -> str:
    return f"{name}: larger than {most // 10**6} MB; save it {how}"


def require_readable_kind(content: bytes, name: str, ending: str) -> None:
    """A line of its own for formats that people do have, but we do not read."""
    kind = known_kind(content) or ("RAW" if ending in RAW_ENDINGS else None)
    if kind == "HEIC":
        require_heic(name)
    elif kind is not None:
        raise UserError(f"{name}: {kind} files are not read; save the picture as PNG or JPEG")


def known_kind(content: bytes) -> str | None:
    """Which of `REFUSED` a file is, by its first bytes."""
    start = content[:400].decode("latin-1")
    return next((kind for kind, pattern in REFUSED.items() if re.match(pattern, start, re.DOTALL)), None)


def require_heic(name: str) -> None:
    """Photos of iPhones, read by an optional package."""
    try:
        importlib.import_module("pillow_heif").register_heif_opener()
    except ImportError as error:
        raise UserError(
            f"{name}: HEIC files are read with pillow-heif: pip install 'viewslots[heic]', or save it as PNG or JPEG"
        ) from error


@contextmanager
def opened(content: bytes, name: str) -> Iterator[Image.Image]:
    """The picture in a file, with its size known to be sane but its pixels not yet read."""
    with _pillow(io.BytesIO(content), name) as image:
        yield image


@contextmanager
def _pillow(file: IO[bytes], name: str) -> Iterator[Image.Image]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd tags, and of sizes, which are judged here
        with _identified(file, name) as image:
            yield image


def _identified(file: IO[bytes], name: str) -> Image.Image:
    formats = [*FORMATS, *(("HEIF",) if "HEIF" in Image.OPEN else ())]
    try:
        return Image.open(file, formats=formats)
    except UnidentifiedImageError as error:
        file.seek(0)
        if known_kind(file.read(400)) != "HEIC":
            raise
        raise UserError(f"{name}: a HEIC file that is damaged or not understood; save it as PNG or JPEG") from error


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


def require_pixels(image: Image.Image, name: str) -> None:
    if image.width * image.height > MOST_PIXELS:
        raise UserError(too_large(name))


BITS = "pixels must be 8 bits, 16 bits, or fractions from 0 to 1; save it as PNG or JPEG"


def too_large(name: str) -> str:
    return f"{name}: more than {MOST_PIXELS // 10**6} megapixels; save it smaller"


def image_pixels(image: Image.Image, name: str) -> UInt8[np.ndarray, "H W 3"] | Float[np.ndarray, "H W 3"]:
    """Pixels of 0..255 of a PIL picture of any mode; the first frame if there are several."""
    require_pixels(image, name)
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith(("I", "F")):
        return array_pixels(sixteen_bits(np.asarray(upright), name), name)
    if not upright.has_transparency_data:
        return np.asarray(upright.convert("RGB"))
    clear = upright.convert("RGBA")
    return np.asarray(Image.alpha_composite(Image.new("RGBA", clear.size, GREY), clear).convert("RGB"))


def sixteen_bits(values: NDArray[Any], name: str) -> NDArray[Any]:
    """Pillow may hold pixels of 16 bits as 32."""
    if values.dtype.kind != "i":
        return values
    if values.size == 0 or values.min() < 0 or values.max() > 65535:
        raise UserError(f"{name}: {BITS}")
    return values.astype(np.uint16)


def array_pixels(values: NDArray[Any], name: str) -> UInt8[np.ndarray, "H W 3"] | Float[np.ndarray, "H W 3"]:
    """Pixels of 0..255 of an array: u8, u16, or fractions in [0, 1]. Of other whole numbers nobody knows how many bits
    they mean."""
    if values.ndim not in (2, 3) or (values.ndim == 3 and values.shape[2] not in (1, 3, 4)) or 0 in values.shape:
        raise UserError(f"{name}: must be an array [H,W], [H,W,3] or [H,W,4], not {list(values.shape)}")
    if values.shape[0] * values.shape[1] > MOST_PIXELS:
        raise UserError(too_large(name))
    if values.dtype == np.uint8:
        return image_pixels(Image.fromarray(values.squeeze(2) if values.shape[2:] == (1,) else values), name)
    whole = values.dtype.kind == "u" and values.dtype.itemsize == 2  # of either byte order
    if not whole and values.dtype.kind in "ui":
        raise UserError(f"{name}: pixels of type {values.dtype}; make them uint8 (0 to 255) or uint16 (0 to 65535)")
    most = 65535 if whole else 1
    if not whole and (values.dtype.kind != "f" or not (values.min() >= 0 and values.max() <= most)):
        raise UserError(f"{name}: {BITS}")
    pixels = (values[..., None] if values.ndim == 2 else values).astype(np.float32) * (255 / most)
    if pixels.shape[2] == 4:
        alpha = pixels[..., 3:] / 255
        pixels = pixels[..., :3] * alpha + GREY[0] * (1 - alpha)
    return np.broadcast_to(pixels, (*pixels.shape[:2], 3))
