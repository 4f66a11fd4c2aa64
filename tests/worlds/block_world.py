"""A world for the tests of figures/: coloured blocks that slide from view to view."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from viewslots.data.generate import DatasetRecipe, make_dataset
from viewslots.scenes.world import FLAT_KEYS
from viewslots.types import Pictures

SIZE, SIDE = 64, 16


@dataclass(frozen=True)
class Blocks:
    corners: tuple[tuple[int, int], ...]
    colours: tuple[tuple[int, int, int], ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class BlockWorld:
    keys = FLAT_KEYS
    height = width = SIZE

    def __init__(self, views: int) -> None:
        self.views = views

    def slots(self, split: str) -> int:
        return 2

    def sample(self, seed: int, split: str, index: int) -> Blocks:
        random = np.random.default_rng([*split.encode(), index, seed])
        corners, colours = random.integers(0, 20, (2, 2)).tolist(), random.integers(0, 256, (2, 3)).tolist()
        return Blocks(tuple(map(tuple, corners)), tuple(map(tuple, colours)))

    def render(self, scenes: Sequence[Blocks], slots: int, device: str = "cpu", quality: str = "fast") -> Pictures:
        return Pictures.concatenate([self._render(scene, slots) for scene in scenes])

    def _render(self, scene: Blocks, slots: int) -> Pictures:
        shapes = np.zeros((1, self.views, slots, SIZE, SIZE), np.uint8)
        image = np.full((1, self.views, SIZE, SIZE, 3), 120, np.uint8)
        segment = np.full((1, self.views, SIZE, SIZE), 255, np.uint8)
        for view in range(self.views):
            for k, ((top, left), colour) in enumerate(zip(scene.corners, scene.colours, strict=True)):
                place = slice(top, top + SIDE), slice(left + 4 * view, left + 4 * view + SIDE)
                shapes[0, view, k][place] = 255
                segment[0, view][place] = k
                image[0, view][place] = colour
        return Pictures(
            image=image,
            segment=segment,
            overlap=(shapes >= 128).sum(2).astype(np.uint8),
            shapes=shapes,
            shadows=np.zeros_like(shapes),
            depth_order=np.broadcast_to(np.arange(slots, dtype=np.float32), shapes.shape[:3]).copy(),
            camera=np.zeros((1, self.views, 3), np.float32),
            num_objects=np.array([slots], np.uint8),
        )


def make_blocks(folder: Path, views: int = 5) -> Path:
    return make_dataset(DatasetRecipe(BlockWorld(views), {"test1": 3}, preset="blocks", seed=0), folder)
