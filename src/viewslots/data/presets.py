"""The seven data sets of the paper, mixtures of them and worlds of ours, as named values."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from viewslots.errors import UserError, did_you_mean
from viewslots.scenes.clevr.family import CLEVR_M, CLEVR_MIXED, ClevrWorld, TinyClevrWorld
from viewslots.scenes.flat.clipart import ClipartWorld
from viewslots.scenes.flat.sprites import SpriteWorld
from viewslots.scenes.tabletop.family import TABLETOP
from viewslots.scenes.world import World

TEST_SPLITS = ("test1", "test2")


@dataclass(frozen=True)
class DataPreset:
    """A family of scenes, and how many of them the paper uses. `world` may be given the path of original art."""

    world: Callable[[Path | None], World]
    train: int
    valid: int
    test: int
    takes_art: bool = False
    """Whether `--art` may name the original art."""
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


def _multi_view(world: World) -> DataPreset:
    return DataPreset(lambda art: world, train=5_000, valid=100, test=100)


def _single_view(world: Callable[[Path | None], World], takes_art: bool = False) -> DataPreset:
    return DataPreset(world, train=50_000, valid=1_000, test=1_000, takes_art=takes_art)


def _tabletop(name: str) -> DataPreset:
    def sized(height: int, width: int) -> World:
        return replace(TABLETOP[name], height=height, width=width)

    return replace(_multi_view(TABLETOP[name]), sized=sized)


DATA_PRESETS = {
    **{name: _multi_view(CLEVR_M[name]) for name in CLEVR_M},
    "clevr-mixed": _multi_view(CLEVR_MIXED),
    **{name: _tabletop(name) for name in TABLETOP},
    "tiny-clevr": DataPreset(lambda art: TinyClevrWorld(), train=1_000, valid=100, test=100, pool=1_000),
    # Enough of every object must show, so each scene is looked at on the processor: 51 a second (research log, 36).
    "clevr": replace(_single_view(lambda art: ClevrWorld()), drawn_slowly=True),
    "dsprites": _single_view(SpriteWorld, takes_art=True),
    "abstract": _single_view(ClipartWorld, takes_art=True),
}
"""As named and described in data/names.py."""


def data_preset(name: str) -> DataPreset:
    if name not in DATA_PRESETS:
        raise UserError(
            f"no data set {name!r}; {did_you_mean(name, DATA_PRESETS)}choose one of {', '.join(DATA_PRESETS)}"
        )
    return DATA_PRESETS[name]
