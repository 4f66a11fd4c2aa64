"""The worlds of CLEVR: four multi-view sets, all four of them together, and the single-view one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from viewslots.scenes.clevr.render import render_views, visible_pixels
from viewslots.scenes.clevr.sample import (
    ARC_VIEWS,
    LARGE_OBJECTS,
    NARROW_VIEWS,
    WIDE_VIEWS,
    WINDOW_32,
    WINDOW_64,
    WINDOW_128,
    ViewRange,
    sample_multi_view,
    sample_single_view,
)
from viewslots.scenes.clevr.spec import Scene
from viewslots.scenes.world import SOLID_KEYS, split_range
from viewslots.types import Pictures

COUNTS = {**dict.fromkeys(("train", "valid", "test1", "live"), (3, 6)), "test2": (7, 10)}
"""Range of the number of objects."""
TINY_COUNTS = {**dict.fromkeys(("train", "valid", "test1", "live"), (3, 3)), "test2": (4, 4)}


class RayTraced:
    """What the worlds of CLEVR share."""

    keys = SOLID_KEYS

    def slots(self, split: str) -> int:
        return split_range(COUNTS, split)[1]

    def render(self, scenes: Sequence[Scene], slots: int, device: str = "cpu", quality: str = "fast") -> Pictures:
        return render_views(scenes, slots, device, quality)[0]


@dataclass(frozen=True)
class ClevrMultiWorld(RayTraced):
    """CLEVR-M1..M4: narrow or wide ranges of views; colour, shape and material of a scene's objects free or shared."""

    name: str
    ranges: ViewRange
    shared: bool
    views: int = 10
    height: int = WINDOW_64.height
    width: int = WINDOW_64.width

    def sample(self, seed: int, split: str, index: int) -> Scene:
        return sample_multi_view(
            self.name, self.ranges, self.shared, split_range(COUNTS, split), self.views, seed, split, index
        )


@dataclass(frozen=True)
class ClevrWorld(RayTraced):
    """CLEVR from its own camera, at least 128 pixels of every object in sight."""

    views: int = 1
    height: int = WINDOW_128.height
    width: int = WINDOW_128.width

    def sample(self, seed: int, split: str, index: int) -> Scene:
        return sample_single_view(split_range(COUNTS, split), seed, split, index, visible_pixels)


@dataclass(frozen=True)
class MixedWorld(RayTraced):
    """Scenes of several worlds in turn: for one model that knows them all."""

    worlds: tuple[ClevrMultiWorld, ...]
    views: int = 10
    height: int = WINDOW_64.height
    width: int = WINDOW_64.width

    def sample(self, seed: int, split: str, index: int) -> Scene:
        return self.worlds[index % len(self.worlds)].sample(seed, split, index)


@dataclass(frozen=True)
class TinyClevrWorld(RayTraced):
    """Three large objects on 32x32 pixels: scenes from which a CPU learns in minutes."""

    views: int = 4
    height: int = WINDOW_32.height
    width: int = WINDOW_32.width

    def slots(self, split: str) -> int:
        return split_range(TINY_COUNTS, split)[1]

    def sample(self, seed: int, split: str, index: int) -> Scene:
        name, objects = "tiny-clevr", split_range(TINY_COUNTS, split)
        chosen: dict[str, Any] = {"family": name, "chosen": LARGE_OBJECTS, "picture": WINDOW_32}
        return sample_multi_view(name, ARC_VIEWS, False, objects, self.views, seed, split, index, **chosen)

    def render(self, scenes: Sequence[Scene], slots: int, device: str = "cpu", quality: str = "fast") -> Pictures:
        return super().render(scenes, slots, device, "draft" if quality == "fast" else quality)


CLEVR_M = {
    "clevr-m1": ClevrMultiWorld("clevr-m1", NARROW_VIEWS, shared=False),
    "clevr-m2": ClevrMultiWorld("clevr-m2", NARROW_VIEWS, shared=True),
    "clevr-m3": ClevrMultiWorld("clevr-m3", WIDE_VIEWS, shared=False),
    "clevr-m4": ClevrMultiWorld("clevr-m4", WIDE_VIEWS, shared=True),
}
CLEVR_MIXED = MixedWorld(tuple(CLEVR_M.values()))
