"""Abstract scenes: clip-art animals on a meadow and things in the sky above it, drawn here or taken from a folder."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from PIL import Image, ImageOps

from viewslots.errors import UserError
from viewslots.scenes.draws import Draws
from viewslots.scenes.layers import (
    DETAIL,
    Layer,
    Painting,
    draw_vectors,
    paint_all,
    place,
    read_fields,
    read_list,
    read_number,
    split_range,
)
from viewslots.types import COVERED, Pictures

SIZE = 64
COUNTS = {**dict.fromkeys(("train", "valid", "test1", "live"), (2, 4)), "test2": (5, 6)}
HORIZON = 0.6
"""Ground objects stand between this share of the height and the lower border."""
SKYLINE = 0.47
"""Sky objects end above this share of the height."""
SMALLEST = 0.75
"""Least size: far away on the ground, or by chance in the sky. The largest is 1."""
HUE_SHIFT = 0.1
DIMMEST = 0.9
MAX_PIECES = 64
MAX_ART = 2048
"""Pixels a side of art from a folder."""

OUTLINE = {"ground": 2.2, "sky": 4.5}
"""Half the width of outlines in the drawings: a bit less than a pixel of a scene."""
DRAWINGS = {
    "bear": """
        #9c6235 oval 16 15 9 9; oval 56 15 9 9
        flat #e8b98a oval 16 15 4.5 4.5; oval 56 15 4.5 4.5
        #9c6235 oval 10 50 8 13 25; oval 62 50 8 13 -25; oval 36 55 23 20; oval 17 70 11 8; oval 55 70 11 8
        flat #e8b98a oval 36 57 13 13; oval 17 71 5 4; oval 55 71 5 4
        #9c6235 oval 36 27 25 21
        flat #e8b98a oval 36 34 12 9
        flat ink oval 36 30 5 3.5; oval 25 23 3.2 3.2; oval 47 23 3.2 3.2; line 2.2 30 37 36 40 42 37""",
    "cat": """
        #f29a2e line 8 48 64 62 62 65 50 59 42
        #f29a2e blob 20 70 18 54 24 38 36 34 48 38 54 54 52 70 36 72
        flat #fff1dc oval 36 58 9 11
        flat #c76a12 poly 18 52 28 55 18 59; poly 54 52 44 55 54 59
        #f29a2e poly 12 26 11 3 29 12; poly 60 26 61 3 43 12; oval 36 25 26 18
        flat #ffb9b0 poly 16 17 15 9 23 13; poly 56 17 57 9 49 13
        flat #c76a12 poly 32 7 40 7 36 17
        flat #fff1dc oval 30 32 7 5.5; oval 42 32 7 5.5
        flat ink oval 24 23 3.6 4.6; oval 48 23 3.6 4.6; poly 32 27 40 27 36 31""",
    "dog": """
        #f3e3c8 line 7 66 36 74 30 77 20
        #f3e3c8 oval 48 44 24 13; poly 26 48 36 48 35 68 27 68; poly 38 50 46 50 45 68 38 68
        #f3e3c8 poly 56 50 64 50 63 68 56 68; poly 64 44 73 44 72 68 65 68
        flat #f3e3c8 oval 48 44 24 13
        flat #a8662f oval 55 39 11 7
        #f3e3c8 oval 26 24 17 16; oval 12 31 12 8
        flat #a8662f oval 22 20 7 8
        #a8662f blob 30 10 40 12 45 26 42 40 34 38 30 24
        flat #e0322f poly 22 41 40 38 41 44 25 47
        flat ink oval 4 27 5 4; oval 20 21 3.4 3.4; line 2 6 34 12 37 18 35""",
    "duck": """
        #ffd53a poly 52 38 70 28 66 48; blob 14 44 26 38 40 38 56 34 64 42 56 58 38 62 20 58
        #ff8a1e poly 30 60 38 60 38 66 28 68; poly 42 60 50 60 50 66 40 68
        #f5b31b blob 30 46 46 42 56 44 48 54 36 55
        #ff8a1e blob 10 20 1 24 1 29 14 30
        #ffd53a oval 22 20 15 15
        flat #ffd53a blob 14 28 30 28 38 40 26 50 15 46
        flat ink oval 17 17 3.2 4""",
    "snake": """
        #e0322f line 3 8 20 0 22; line 3 8 20 1 16
        #8f63d2 line 6 88 42 80 53 70 54; line 10 80 53 70 54 62 48; oval 17 16 13 10
        #8f63d2 line 14 70 54 60 47 50 48 42 60 28 60 22 46 26 30 22 18
        flat #8f63d2 line 6 88 42 80 53 70 54; line 10 80 53 70 54 62 48; oval 17 16 13 10
        flat #ffe066 oval 62 48 4.5 4.5; oval 48 51 4.5 4.5; oval 35 61 4.5 4.5; oval 23 47 4.5 4.5; oval 25 33 4.5 4.5
        flat #ffffff oval 15 12 4.4 4.4
        flat ink oval 14 12.5 2.6 2.6""",
    "sun": """
        #ffb300 star 65 65 42 63 12
        #ffe033 oval 65 65 40 40
        flat #ff9a5c oval 40 74 7 5; oval 90 74 7 5
        flat ink oval 52 57 4.5 7; oval 78 57 4.5 7; line 5 50 77 65 86 80 77""",
    "cloud": """
        #ffffff oval 32 58 28 24; oval 62 36 34 30; oval 100 44 28 26; oval 122 62 24 20; poly 30 52 122 52 122 82 30 82
        flat #cfe3f7 poly 28 70 126 70 122 82 30 82; oval 34 72 14 10; oval 118 72 14 10""",
    "balloon": """
        #e53935 blob 45 2 75 14 86 42 74 70 56 88 34 88 16 70 4 42 15 14
        flat #ffd23f blob 45 2 60 14 66 42 60 70 51 88 39 88 30 70 24 42 30 14
        flat #2f7fd6 blob 45 2 51 14 54 42 51 70 47 88 43 88 39 70 36 42 39 14
        flat ink line 3 34 90 38 106; line 3 56 90 52 106
        #a0662f poly 33 104 57 104 54 122 36 122""",
    "airplane": """
        #e53935 poly 132 34 150 4 164 4 156 42
        #f4f7fb blob 8 52 22 38 60 32 120 34 160 36 160 50 120 62 60 68 22 66
        #7fb2e5 blob 12 50 24 38 40 37 38 50
        flat #2f6fbf oval 62 46 6 6; oval 82 46 6 6; oval 102 46 6 6; oval 122 46 6 6
        #e53935 poly 66 56 104 56 128 92 108 92; poly 136 44 166 44 170 56 150 54""",
    "rocket": """
        #ff9a1f blob 24 96 36 92 48 96 44 110 36 124 28 110
        flat #ffe033 oval 36 102 6 10
        #e53935 poly 18 58 2 84 4 98 22 88; poly 54 58 70 84 68 98 50 88
        #eef2f7 blob 36 2 52 26 56 54 52 88 48 96 24 96 20 88 16 54 20 26
        #e53935 blob 36 1 46 14 52 28 36 31 20 28 26 14
        #4aa3e8 oval 36 52 10 10""",
}
MEADOW = """
    flat #7fc8f3 poly 0 0 64 0 64 64 0 64
    flat #8dcff5 poly 0 8 64 8 64 64 0 64
    flat #9bd6f7 poly 0 15 64 15 64 64 0 64
    flat #aaddf9 poly 0 21 64 21 64 64 0 64
    flat #b9e5fb poly 0 26 64 26 64 64 0 64
    flat #8ec9a4 oval 12 40 22 9; oval 52 41 28 11
    flat #7bbf6a oval 34 42 24 7; oval 0 44 18 9; oval 66 44 20 8
    flat #8ed463 poly 0 38 64 38 64 64 0 64
    flat #80c955 blob -4 46 20 44 44 47 68 45 68 56 40 54 18 57 -4 54
    flat #74bd4a blob -4 60 24 58 44 61 68 58 68 68 -4 68
    flat #ffffff oval 9 51 0.8 0.8; oval 30 57 0.9 0.9; oval 57 49 0.8 0.8
    flat #ffe14d oval 20 61 0.9 0.9; oval 47 51 0.8 0.8
    flat #ff8fb0 oval 38 48 0.8 0.8; oval 60 59 0.9 0.9; oval 4 58 0.9 0.9"""


@dataclass(frozen=True)
class Kind:
    """One of the ten things. `base` is how many pixels of a scene one pixel of the source art takes at size 1."""

    name: str
    file: str
    home: str
    base: float
    lowest: float = 1.0
    last: bool = False

    @classmethod
    def from_dict(cls, data: Any, where: str) -> "Kind":
        name, file, home, base = read_fields(data, ("name", "file", "home", "base"), where)
        if not isinstance(name, str) or not isinstance(file, str) or Path(file).name != file:
            raise UserError(f"{where}: `name` and `file` are words, `file` without a folder")
        if home not in ("ground", "sky"):
            raise UserError(f"{where}.home: expected ground or sky, got {home!r:.40}")
        lowest = read_number(data.get("lowest", SKYLINE if home == "sky" else 1.0), 0, 1, f"{where}.lowest")
        return cls(name, file, home, read_number(base, 1e-3, 10, f"{where}.base"), lowest, data.get("last") is True)


KINDS = (
    Kind("bear", "a_0s.png", "ground", 0.34),
    Kind("cat", "a_1s.png", "ground", 0.37),
    Kind("dog", "a_2s.png", "ground", 0.32),
    Kind("duck", "a_3s.png", "ground", 0.35),
    Kind("snake", "a_5s.png", "ground", 0.29),
    Kind("sun", "s_3s.png", "sky", 0.18, SKYLINE, last=True),
    Kind("cloud", "s_2s.png", "sky", 0.17, SKYLINE),
    Kind("balloon", "s_1s.png", "sky", 0.20, HORIZON),
    Kind("airplane", "s_7s.png", "sky", 0.15, SKYLINE),
    Kind("rocket", "s_6s.png", "sky", 0.19, SKYLINE),
)
"""With their files in the Abstract Scene data set; the sun lies behind all other things, the balloon may hang lower."""


@dataclass(frozen=True)
class Jitter:
    """One change of colour for all pixels: `hue` is added and wraps, `saturation` and `value` are factors."""

    hue: float
    saturation: float
    value: float

    @classmethod
    def sample(cls, draws: Draws) -> "Jitter":
        hue, saturation, value = (
            round(draws.uniform(low, high), 6)
            for low, high in ((-HUE_SHIFT, HUE_SHIFT), (DIMMEST, 1.0), (DIMMEST, 1.0))
        )
        return cls(hue, saturation, value)

    @classmethod
    def from_dict(cls, data: Any, where: str) -> "Jitter":
        hue, saturation, value = read_fields(data, ("hue", "saturation", "value"), where)
        return cls(
            read_number(hue, -1, 1, f"{where}.hue"),
            read_number(saturation, 0, 1, f"{where}.saturation"),
            read_number(value, 0, 1, f"{where}.value"),
        )

    def apply(self, hsv: Float[np.ndarray, "*HW 3"]) -> Float[np.ndarray, "*HW 3"]:
        """sRGB, 0 to 255."""
        hue = (hsv[..., 0] + self.hue) % 1.0
        return 255 * to_rgb(np.stack([hue, hsv[..., 1] * self.saturation, hsv[..., 2] * self.value], -1))


@dataclass(frozen=True)
class Piece:
    """One thing. `left` is the share of the free width on its left, `bottom` its lower edge over the height."""

    kind: str
    left: float
    bottom: float
    size: float
    jitter: Jitter

    @classmethod
    def from_dict(cls, data: Any, where: str) -> "Piece":
        kind, left, bottom, size, jitter = read_fields(data, ("kind", "left", "bottom", "size", "jitter"), where)
        if not isinstance(kind, str):
            raise UserError(f"{where}.kind: expected a name, got {kind!r:.40}")
        return cls(
            kind,
            read_number(left, 0, 1, f"{where}.left"),
            read_number(bottom, 0, 1, f"{where}.bottom"),
            read_number(size, 0.01, 1, f"{where}.size"),
            Jitter.from_dict(jitter, f"{where}.jitter"),
        )


@dataclass(frozen=True)
class ClipartScene:
    """Pieces in the order they were placed, and the colours of the one background picture."""

    pieces: tuple[Piece, ...]
    background: Jitter

    def to_dict(self) -> dict[str, Any]:
        return {"pieces": [asdict(piece) for piece in self.pieces], "background": asdict(self.background)}

    @classmethod
    def from_dict(cls, data: Any) -> "ClipartScene":
        pieces, background = read_fields(data, ("pieces", "background"), "scene")
        items = read_list(pieces, 0, MAX_PIECES, "pieces")
        return cls(
            tuple(Piece.from_dict(item, f"pieces[{k}]") for k, item in enumerate(items)),
            Jitter.from_dict(background, "background"),
        )


def to_hsv(rgb: Float[np.ndarray, "*HW 3"]) -> Float[np.ndarray, "*HW 3"]:
    """All channels in [0, 1]."""
    red, green, blue = rgb[..., 0], rgb[..., 1], rgb[..., 2]
    value, span = rgb.max(-1), rgb.max(-1) - rgb.min(-1)
    scale = np.where(span > 0, span, 1)
    hue = np.where(value == green, (blue - red) / scale + 2, (red - green) / scale + 4)
    hue = np.where(value == red, (green - blue) / scale, hue)
    return np.stack([hue / 6 % 1, span / np.where(value > 0, value, 1), value], -1)


def to_rgb(hsv: Float[np.ndarray, "*HW 3"]) -> Float[np.ndarray, "*HW 3"]:
    hue, saturation, value = hsv[..., :1], hsv[..., 1:2], hsv[..., 2:]
    turn = (np.array([5.0, 3.0, 1.0]) + 6 * hue) % 6
    return value * (1 - saturation * np.clip(np.minimum(turn, 4 - turn), 0, 1))


@dataclass(frozen=True)
class Art:
    """The source picture of a kind, cut to its outline, `detail` of its pixels to one of the source art."""

    kind: Kind
    image: Image.Image
    detail: int = 1

    def __post_init__(self) -> None:
        """Every place that the rules can draw must lie inside the picture."""
        if not self.image.getchannel("A").getbbox():
            raise UserError(f"{self.kind.file}: no visible pixel; clip art needs alpha")
        width, height = self.extent(1.0)
        room = SIZE * (self.kind.lowest if self.kind.home == "sky" else HORIZON / SMALLEST)
        if width > SIZE or height > room:
            raise UserError(
                f"{self.kind.file}: {width} x {height} pixels at size 1, more than {SIZE} x {room:.0f} of room"
            )

    def extent(self, size: float) -> tuple[int, int]:
        """Width and height in whole pixels of a scene."""
        factor = self.kind.base * size / self.detail
        return max(1, round(self.image.width * factor)), max(1, round(self.image.height * factor))


@dataclass(frozen=True)
class Album:
    """Ten pieces of art and a background."""

    art: dict[str, Art]
    background: Image.Image


@cache
def drawn_album() -> Album:
    """Our own drawings."""
    art = {
        kind.name: Art(kind, _cut(draw_vectors(DRAWINGS[kind.name], 176, 8, OUTLINE[kind.home])), DETAIL)
        for kind in KINDS
    }
    return Album(art, draw_vectors(MEADOW, SIZE))


def read_album(folder: Path) -> Album:
    """PNGs with alpha and `background.png`, under the names of the Abstract Scene data set (see `KINDS`).

    Other names, or other art, are listed in `clipart.json` beside them:
    `{"pieces": [{"name": "owl", "file": "a_4s.png", "home": "ground", "base": 0.35}, ...]}`, five of `ground` and five
    of `sky`, which may have `lowest` (the largest bottom edge) and `last` (behind the rest).
    """
    listing = folder / "clipart.json"
    kinds = _read_kinds(listing) if listing.exists() else KINDS
    art = {kind.name: Art(kind, _cut(_read_png(folder / kind.file))) for kind in kinds}
    return Album(art, ImageOps.fit(_read_png(folder / "background.png").convert("RGB"), (512, 512)))


def _read_kinds(listing: Path) -> tuple[Kind, ...]:
    try:
        data = json.loads(listing.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{listing}: not readable as JSON ({error})") from error
    (items,) = read_fields(data, ("pieces",), str(listing))
    items = read_list(items, len(KINDS), len(KINDS), f"{listing}: pieces")
    kinds = tuple(Kind.from_dict(item, f"{listing}: pieces[{k}]") for k, item in enumerate(items))
    if len({kind.name for kind in kinds}) < len(kinds) or sum(kind.home == "ground" for kind in kinds) != 5:
        raise UserError(f"{listing}: expected ten different names, five of ground and five of sky")
    return kinds


def _read_png(path: Path) -> Image.Image:
    try:
        with Image.open(path, formats=["PNG"]) as image:
            if max(image.size) > MAX_ART:
                raise UserError(f"{path}: {image.size}, more than {MAX_ART} pixels a side")
            return image.convert("RGBA")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{path}: not a readable PNG ({error}); clip art lies there as `KINDS` names it") from error


def _cut(image: Image.Image) -> Image.Image:
    """Without its empty margins."""
    return image.crop(image.getchannel("A").getbbox() or (0, 0, 1, 1))


class ClipartWorld:
    """2 to 4 things, 5 or 6 in test2. `folder` holds other clip art (see `read_album`); without it ours is used."""

    views = 1
    height = SIZE
    width = SIZE

    def __init__(self, folder: str | Path | None = None) -> None:
        self._album = drawn_album() if folder is None else read_album(Path(folder))
        self._looks: dict[tuple[str, int, int], tuple[np.ndarray, np.ndarray]] = {}
        self._ground = _hsv_of(self._album.background.resize((SIZE, SIZE), Image.Resampling.BOX))

    def slots(self, split: str) -> int:
        return split_range(COUNTS, split)[1]

    def sample(self, seed: int, split: str, index: int) -> ClipartScene:
        draws = Draws("abstract", seed, split, index)
        names = list(self._album.art)
        count = draws.integer(*split_range(COUNTS, split))
        arts = [self._album.art[names.pop(draws.integer(0, len(names) - 1))] for _ in range(count)]
        background = Jitter.sample(draws)
        pieces = place(count, lambda placed: sample_piece(draws, arts[len(placed)]), self._covered, self._nearness)
        return ClipartScene(pieces, background)

    def render(
        self, scenes: Sequence[ClipartScene], slots: int, device: str = "cpu", quality: str = "fast"
    ) -> Pictures:
        """In numpy, the same at every quality. Pieces take whole pixels: few sizes exist and each is resized once."""
        return paint_all([self._painting(scene) for scene in scenes], slots, SIZE, SIZE)

    def _painting(self, scene: ClipartScene) -> Painting:
        pieces = list(scene.pieces)
        layers = []
        for piece, near in zip(pieces, self._nearness(pieces), strict=True):
            window, hsv, alpha = self._look(piece)
            color, shape = np.zeros((SIZE, SIZE, 3)), np.zeros((SIZE, SIZE), np.uint8)
            color[window], shape[window] = piece.jitter.apply(hsv), alpha
            layers.append(Layer(color, shape, near))
        return Painting(scene.background.apply(self._ground), layers)

    def _art(self, piece: Piece) -> Art:
        if piece.kind not in self._album.art:
            raise UserError(f"clip art {piece.kind!r:.40} is none of {', '.join(self._album.art)}")
        return self._album.art[piece.kind]

    def _look(self, piece: Piece) -> tuple[tuple[slice, slice], np.ndarray, np.ndarray]:
        """Where a piece lies, its colours before the jitter, and its alpha there."""
        art = self._art(piece)
        width, height = art.extent(piece.size)
        bottom, left = round(piece.bottom * SIZE), round(piece.left * (SIZE - width))
        if height > bottom:
            raise UserError(f"{piece.kind}: {height} pixels high, cut by the upper border at bottom {piece.bottom:g}")
        key = (piece.kind, width, height)
        if key not in self._looks:
            small = art.image.resize((width, height), Image.Resampling.HAMMING)
            self._looks[key] = _hsv_of(small), np.array(small.getchannel("A"))
        return (slice(bottom - height, bottom), slice(left, left + width)), *self._looks[key]

    def _covered(self, piece: Piece) -> Bool[np.ndarray, "64 64"]:
        window, _, alpha = self._look(piece)
        covered = np.zeros((SIZE, SIZE), bool)
        covered[window] = alpha >= COVERED
        return covered

    def _nearness(self, pieces: list[Piece]) -> list[float]:
        """Rank from the back: the sun, sky things (the first in front), ground things by their bottom edge."""

        def key(index: int) -> tuple[int, float]:
            piece = pieces[index]
            kind = self._art(piece).kind
            return (2, piece.bottom) if kind.home == "ground" else (0 if kind.last else 1, -float(index))

        ranks = {index: rank for rank, index in enumerate(sorted(range(len(pieces)), key=key))}
        return [float(ranks[index]) for index in range(len(pieces))]


def _hsv_of(image: Image.Image) -> Float[np.ndarray, "H W 3"]:
    return to_hsv(np.asarray(image.convert("RGB")) / 255)


def sample_piece(draws: Draws, art: Art) -> Piece:
    """A place by the rules of the piece's home, never cut by a border."""
    if art.kind.home == "ground":
        bottom = round(draws.uniform(HORIZON, 1), 6)
        size = round(SMALLEST + (1 - SMALLEST) * (bottom - HORIZON) / (1 - HORIZON), 6)
    else:
        size = round(draws.uniform(SMALLEST, 1), 6)
        bottom = round(draws.uniform(art.extent(size)[1] / SIZE, art.kind.lowest), 6)
    left = round(draws.uniform(0, 1), 6)
    return Piece(art.kind.name, left, bottom, size, Jitter.sample(draws))
