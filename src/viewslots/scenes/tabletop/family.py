"""The worlds of tabletop scenes."""

from collections.abc import Sequence
from dataclasses import dataclass

from viewslots.scenes.tabletop.arrange import sample_scene
from viewslots.scenes.tabletop.expose import picture_tables
from viewslots.scenes.tabletop.table_scene import TableScene
from viewslots.scenes.world import SOLID_KEYS, split_range
from viewslots.types import Pictures

COUNTS = {**dict.fromkeys(("train", "valid", "test1", "live"), (2, 6)), "test2": (7, 9)}
"""Range of the number of objects."""


@dataclass(frozen=True)
class TabletopWorld:
    """Things on a table in a room. `name` is a member of the family: tabletop, tabletop-plain or tabletop-still."""

    name: str
    views: int = 10
    height: int = 128
    width: int = 128
    keys: tuple[str, ...] = SOLID_KEYS

    def slots(self, split: str) -> int:
        return split_range(COUNTS, split)[1]

    def sample(self, seed: int, split: str, index: int) -> TableScene:
        size = (self.height, self.width)
        return sample_scene(self.name, split_range(COUNTS, split), self.views, size, seed, split, index)

    def render(self, scenes: Sequence[TableScene], slots: int, device: str = "cpu", quality: str = "fast") -> Pictures:
        return picture_tables(scenes, slots, device, quality)


TABLETOP = {name: TabletopWorld(name) for name in ("tabletop", "tabletop-plain", "tabletop-still")}
