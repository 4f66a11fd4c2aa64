"""Clip art: what each piece is, where it lives, and its source picture, drawn here or read from a folder."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from viewslots.errors import UserError
from viewslots.files import open_regular
from viewslots.scenes.fields import read_fields, read_list, read_number
from viewslots.scenes.flat.drawings import DETAIL, DRAWINGS, MEADOW, OUTLINE, draw_vectors

SIZE = 64
HORIZON = 0.6
"""Ground objects stand between this share of the height and the lower border."""
SKYLINE = 0.47
"""Sky objects end above this share of the height."""
SMALLEST = 0.75
"""Least size: far away on the ground, or by chance in the sky. The largest is 1."""
MAX_LISTING = 2**20
MAX_ART = 2048
"""Pixels a side of art from a folder."""


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
        name, file, home, base = read_fields(data, ("name", "file", "home", "base"), where, ("lowest", "last"))
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
        if not listing.is_file() or listing.stat().st_size > MAX_LISTING:
            raise ValueError("not a small file")
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
        with open_regular(path) as file, Image.open(file, formats=["PNG"]) as image:
            if max(image.size) > MAX_ART:
                raise UserError(f"{path}: {image.size}, more than {MAX_ART} pixels a side")
            return image.convert("RGBA")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UserError(f"{path}: not a readable PNG ({error}); clip art lies there as `KINDS` names it") from error


def _cut(image: Image.Image) -> Image.Image:
    """Without its empty margins."""
    return image.crop(image.getchannel("A").getbbox() or (0, 0, 1, 1))
