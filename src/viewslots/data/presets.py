"""The seven data sets of the paper, mixtures of them and worlds of ours, as named values."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from viewslots.errors import UserError
from viewslots.scenes.clevr import CLEVR_M, CLEVR_MIXED, ClevrWorld, TinyClevrWorld
from viewslots.scenes.clipart import ClipartWorld
from viewslots.scenes.sprites import SpriteWorld
from viewslots.scenes.tabletop.family import TABLETOP
from viewslots.scenes.world import World

TEST_SPLITS = ("test1", "test2")


@dataclass(frozen=True)
class DataPreset:
    """A family of scenes, and how many of them the paper uses. `world` may be given the path of original art."""

    about: str
    world: Callable[[Path | None], World]
    train: int
    valid: int
    test: int
    takes_art: str = ""
    """What `--art` may name for this set; empty where there is none."""
    pool: int = 0
    """`train --data live` renders so many scenes once and goes through them again and again; 0: new ones every step."""
    drawn_slowly: bool = False
    """Whether one core draws scenes more slowly than a GPU renders them."""
    sized: Callable[[int, int], World] | None = None
    """The same world in pictures of another height and width, where it can."""

    def counts(self, train: int | None, valid: int | None, test: int | None, large: int) -> dict[str, int]:
        """Scenes a split, the paper's numbers where None."""
        chosen = {
            "train": self.train if train is None else train,
            "valid": self.valid if valid is None else valid,
        }
        chosen |= {split: self.test if test is None else test for split in TEST_SPLITS}
        return chosen | ({f"{split}-large": large for split in TEST_SPLITS} if large else {})


def _multi_view(name: str, about: str) -> DataPreset:
    return DataPreset(about, lambda art: CLEVR_M[name], train=5_000, valid=100, test=100)


def _single_view(about: str, world: Callable[[Path | None], World], takes_art: str = "") -> DataPreset:
    return DataPreset(about, world, train=50_000, valid=1_000, test=1_000, takes_art=takes_art)


def _tabletop(name: str, about: str) -> DataPreset:
    def sized(height: int, width: int) -> World:
        return replace(TABLETOP[name], height=height, width=width)

    return DataPreset(about, lambda art: TABLETOP[name], train=5_000, valid=100, test=100, sized=sized)


DATA_PRESETS = {
    "clevr-m1": _multi_view("clevr-m1", "CLEVR, 10 views over half a circle; colours, shapes and materials free"),
    "clevr-m2": _multi_view("clevr-m2", "CLEVR, 10 views over half a circle; colour, shape and material shared"),
    "clevr-m3": _multi_view("clevr-m3", "the scenes of clevr-m1, 10 views over the full circle"),
    "clevr-m4": _multi_view("clevr-m4", "the scenes of clevr-m2, 10 views over the full circle"),
    "clevr-mixed": DataPreset(
        "scenes of clevr-m1 to clevr-m4 in turn", lambda art: CLEVR_MIXED, train=5_000, valid=100, test=100
    ),
    "tiny-clevr": DataPreset(
        "three large objects of different colours on 32x32 pixels, 4 views along an arc; for a CPU",
        lambda art: TinyClevrWorld(),
        train=1_000,
        valid=100,
        test=100,
        pool=1_000,
    ),
    "tabletop": _tabletop("tabletop", "things on a table in a room, textures, lamps of all kinds; 10 views, 128x128"),
    "tabletop-plain": _tabletop("tabletop-plain", "the scenes of tabletop without textures"),
    "tabletop-still": _tabletop("tabletop-still", "the objects and views of tabletop on one table under one lamp"),
    # Enough of every object must show, so each scene is looked at on the processor: 51 a second (research log, 36).
    "clevr": replace(
        _single_view("CLEVR from its own camera, 128x128, one view", lambda art: ClevrWorld()), drawn_slowly=True
    ),
    "dsprites": _single_view(
        "coloured sprites on grey, 64x64, one view", SpriteWorld, "the npz file of the original dSprites"
    ),
    "abstract": _single_view(
        "clip art on a meadow, 64x64, one view", ClipartWorld, "a folder of the original Abstract Scene clip art"
    ),
}


def data_preset(name: str) -> DataPreset:
    if name not in DATA_PRESETS:
        raise UserError(f"no data set {name!r}; choose one of {', '.join(DATA_PRESETS)}")
    return DATA_PRESETS[name]
