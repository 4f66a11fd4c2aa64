"""dSprites scenes: coloured squares, ellipses and hearts before grey, drawn here or taken from the real file."""

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
from jaxtyping import Bool, UInt8

from viewslots.errors import UserError
from viewslots.files import open_regular
from viewslots.scenes.draws import Draws
from viewslots.scenes.fields import read_fields, read_list, read_number
from viewslots.scenes.flat.layers import Layer, Painting, paint_all, place
from viewslots.scenes.world import FLAT_KEYS, split_range
from viewslots.types import Pictures

SIZE = 64
SHAPES = ("square", "ellipse", "heart")
SCALES = tuple(round(0.5 + 0.1 * k, 6) for k in range(6))
ORIENTATIONS = tuple(round(2 * np.pi * k / 39, 6) for k in range(40))
"""Radians, clockwise. Both ends are included, as in the real file: the first and the last look the same."""
POSITIONS = tuple(round(k / 31, 6) for k in range(32))
FACTORS = (SHAPES, SCALES, ORIENTATIONS, POSITIONS, POSITIONS)

SQUARE_SIDE = 19.2
ELLIPSE_AXES = (12.0, 6.0)
HEART_SIDE = 12.75
"""Pixels at scale 1. All 737,280 pictures together have the real ones' mean, 0.042494, and mean deviation, 0.195166."""
REACH = 16
"""Pixels from a sprite's centre to the edge of its window: 31 steps of a pixel and two of these fill the picture."""

MIN_COLOR_DISTANCE = 0.5
COUNTS = {**dict.fromkeys(("train", "valid", "test1", "live"), (2, 5)), "test2": (6, 8)}
MAX_SPRITES = 64


@dataclass(frozen=True)
class Sprite:
    """One sprite; `shape`, `scale`, `orientation`, `x` and `y` take the values of dSprites' factors alone."""

    shape: str
    scale: float
    orientation: float
    x: float
    y: float
    rgb: tuple[float, float, float]

    @property
    def classes(self) -> tuple[int, ...]:
        """Index of each factor's value, in the order of the real file."""
        values = (self.shape, self.scale, self.orientation, self.x, self.y)
        return tuple(options.index(value) for options, value in zip(FACTORS, values, strict=True))

    @classmethod
    def from_dict(cls, data: Any, where: str = "sprite") -> "Sprite":
        names = ("shape", "scale", "orientation", "x", "y")
        *values, rgb = read_fields(data, (*names, "rgb"), where)
        for name, value, options in zip(names, values, FACTORS, strict=True):
            if isinstance(value, bool) or value not in options:
                listed = ", ".join(map(str, options[:6])) + (", ..." if len(options) > 6 else "")
                raise UserError(f"{where}.{name}: {value!r:.40} is none of dSprites' {len(options)} values {listed}")
        red, green, blue = (read_number(value, 0, 1, f"{where}.rgb") for value in read_list(rgb, 3, 3, f"{where}.rgb"))
        shape, scale, orientation, x, y = values
        return cls(shape, float(scale), float(orientation), float(x), float(y), (red, green, blue))


@dataclass(frozen=True)
class SpriteScene:
    """Sprites, nearest first, before one grey level."""

    sprites: tuple[Sprite, ...]
    background: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "sprites": [{**asdict(sprite), "rgb": list(sprite.rgb)} for sprite in self.sprites],
            "background": self.background,
        }

    @classmethod
    def from_dict(cls, data: Any) -> "SpriteScene":
        sprites, background = read_fields(data, ("sprites", "background"), "scene")
        items = read_list(sprites, 0, MAX_SPRITES, "sprites")
        return cls(
            sprites=tuple(Sprite.from_dict(item, f"sprites[{k}]") for k, item in enumerate(items)),
            background=read_number(background, 0, 1, "background"),
        )


class SpriteSheet(Protocol):
    def mask(self, sprite: Sprite) -> Bool[np.ndarray, "64 64"]: ...


class DrawnSheet:
    """Sprites drawn as vectors: a pixel is on where its centre lies inside, as a rasteriser without smoothing does it.

    One step of position is one pixel, so a sprite looks the same everywhere and 720 windows are all there is.
    """

    def __init__(self) -> None:
        grid = np.arange(-REACH, REACH + 1, dtype=np.float64)
        scale = np.array(SCALES)[:, None, None, None]
        cos, sin = (np.round(wave(ORIENTATIONS), 6)[:, None, None] for wave in (np.cos, np.sin))
        right = (grid * cos + grid[:, None] * sin) / scale
        down = (grid[:, None] * cos - grid * sin) / scale
        self._windows = np.stack([_square(right, down), _ellipse(right, down), _heart(right, down)])

    def mask(self, sprite: Sprite) -> Bool[np.ndarray, "64 64"]:
        shape, scale, orientation, x, y = sprite.classes
        side = 2 * REACH + 1
        picture = np.zeros((SIZE, SIZE), bool)
        picture[y : y + side, x : x + side] = self._windows[shape, scale, orientation]
        return picture


def _square(right: np.ndarray, down: np.ndarray) -> np.ndarray:
    return np.maximum(abs(right), abs(down)) <= SQUARE_SIDE / 2


def _ellipse(right: np.ndarray, down: np.ndarray) -> np.ndarray:
    return (right / ELLIPSE_AXES[0]) ** 2 + (down / ELLIPSE_AXES[1]) ** 2 <= 1


def _heart(right: np.ndarray, down: np.ndarray) -> np.ndarray:
    """A square on its corner with half a disc on each upper side, centred on its bounding box."""
    offset = HEART_SIDE / 8**0.5
    down = down - HEART_SIDE * (1 - 0.5**0.5) / 4
    diamond = abs(right) + abs(down) <= 2 * offset
    discs = (abs(right) - offset) ** 2 + (down + offset) ** 2 <= HEART_SIDE**2 / 4
    return diamond | discs


class StoredSheet:
    """The pictures of the real file, `dsprites_ndarray_co1sh3sc6or40x32y32_64x64.npz`.

    `imgs` (3 GB) is streamed out of the archive and kept as bits (377 MB); the pickled `metadata` is never touched.
    """

    def __init__(self, path: Path) -> None:
        count = int(np.prod([len(options) for options in FACTORS]))
        try:
            with open_regular(path) as whole, zipfile.ZipFile(whole) as archive:
                with archive.open("latents_classes.npy") as file:
                    _check_header(file, (count, 6), "i", f"{path}: latents_classes")
                    _check_order(file.read(count * 6 * 8), f"{path}: latents_classes")
                with archive.open("imgs.npy") as file:
                    _check_header(file, (count, SIZE, SIZE), "u", f"{path}: imgs")
                    self._bits = _read_bits(file, count, f"{path}: imgs")
        except OSError as error:
            raise UserError(
                f"{path}: cannot be read ({error.strerror or error}); give the path of dSprites' npz"
            ) from error
        except (KeyError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
            raise UserError(f"{path}: not the npz of dSprites ({error})") from error

    def mask(self, sprite: Sprite) -> Bool[np.ndarray, "64 64"]:
        row = np.ravel_multi_index(sprite.classes, [len(options) for options in FACTORS])
        return np.unpackbits(self._bits[row]).astype(bool).reshape(SIZE, SIZE)


def _check_header(file: IO[bytes], shape: tuple[int, ...], kind: str, where: str) -> None:
    """Read past the .npy header, which is parsed as a literal and never executed."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        found, fortran, dtype = readers[np.lib.format.read_magic(file)](file)
    except (ValueError, KeyError) as error:
        raise UserError(f"{where}: not a .npy array ({error})") from error
    width = {"u": 1, "i": 8}[kind]
    if found != shape or fortran or dtype.kind != kind or dtype.itemsize != width or dtype.byteorder == ">":
        raise UserError(f"{where}: expected {shape} {kind}{8 * width} in C order, got {found} {dtype}")


def _check_order(raw: bytes, where: str) -> None:
    """The row of a picture must follow from its factors: colour, shape, scale, orientation, x, y, the last fastest."""
    sizes = (1, *(len(options) for options in FACTORS))
    if raw != np.indices(sizes).reshape(6, -1).T.astype("<i8").tobytes():
        raise UserError(f"{where}: not dSprites' order of factors; use the file as published")


def _read_bits(file: IO[bytes], count: int, where: str) -> UInt8[np.ndarray, "count 512"]:
    bits = np.empty((count, SIZE * SIZE // 8), np.uint8)
    step = 4096
    for start in range(0, count, step):
        rows = min(step, count - start)
        raw = file.read(rows * SIZE * SIZE)
        if len(raw) < rows * SIZE * SIZE:
            raise UserError(f"{where}: ends early, after picture {start}; download it again")
        pixels = np.frombuffer(raw, np.uint8).reshape(rows, -1)
        if pixels.max() > 1:
            raise UserError(f"{where}: pictures are 0 or 1, got {pixels.max()} at or after picture {start}")
        bits[start : start + rows] = np.packbits(pixels, axis=1)
    return bits


class SpriteWorld:
    """2 to 5 sprites, 6 to 8 in test2. `npz` is the path of the real dSprites file; without it sprites are drawn."""

    keys = FLAT_KEYS
    views = 1
    height = SIZE
    width = SIZE

    def __init__(self, npz: str | Path | None = None) -> None:
        self._sheet: SpriteSheet = DrawnSheet() if npz is None else StoredSheet(Path(npz))

    def slots(self, split: str) -> int:
        return split_range(COUNTS, split)[1]

    def sample(self, seed: int, split: str, index: int) -> SpriteScene:
        draws = Draws("dsprites", seed, split, index)
        count = draws.integer(*split_range(COUNTS, split))
        background = round(draws.uniform(0, 1), 6)
        sprites = place(count, lambda _: sample_sprite(draws, background), self._sheet.mask, _nearness)
        return SpriteScene(sprites, background)

    def render(self, scenes: Sequence[SpriteScene], slots: int, device: str = "cpu", quality: str = "fast") -> Pictures:
        """In numpy, the same at every quality."""
        return paint_all([self._painting(scene) for scene in scenes], slots, SIZE, SIZE)

    def _painting(self, scene: SpriteScene) -> Painting:
        sprites = list(scene.sprites)
        layers = [
            Layer(np.rint(255 * np.array(sprite.rgb)), self._sheet.mask(sprite) * np.uint8(255), near)
            for sprite, near in zip(sprites, _nearness(sprites), strict=True)
        ]
        return Painting(np.rint(np.full(3, 255 * scene.background)), layers)


def _nearness(sprites: list[Sprite]) -> list[float]:
    """Each sprite lies behind those before it."""
    return [float(-k) for k in range(len(sprites))]


def sample_sprite(draws: Draws, background: float) -> Sprite:
    """Every combination of factors alike; a colour at least `MIN_COLOR_DISTANCE` away from the background's."""
    shape = draws.choice(SHAPES)
    scale, orientation, x, y = (draws.choice(options) for options in (SCALES, ORIENTATIONS, POSITIONS, POSITIONS))
    while True:
        red, green, blue = (round(draws.uniform(0, 1), 6) for _ in range(3))
        if sum((value - background) ** 2 for value in (red, green, blue)) >= MIN_COLOR_DISTANCE**2:
            return Sprite(shape, scale, orientation, x, y, (red, green, blue))
