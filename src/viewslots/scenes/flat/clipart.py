"""Abstract scenes: clip-art animals on a meadow and things in the sky above it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from PIL import Image

from viewslots.errors import UserError
from viewslots.scenes.draws import Draws
from viewslots.scenes.fields import read_fields, read_list, read_number
from viewslots.scenes.flat.album import HORIZON, SIZE, SMALLEST, Art, drawn_album, read_album
from viewslots.scenes.flat.layers import Layer, Painting, paint_all, place
from viewslots.scenes.world import FLAT_KEYS, split_range
from viewslots.types import COVERED, Pictures

COUNTS = {**dict.fromkeys(("train", "valid", "test1", "live"), (2, 4)), "test2": (5, 6)}
HUE_SHIFT = 0.1
DIMMEST = 0.9
MAX_PIECES = 64


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


class ClipartWorld:
    """2 to 4 things, 5 or 6 in test2. `folder` holds other clip art (see `read_album`); without it ours is used."""

    keys = FLAT_KEYS
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
