"""A world for the tests of training/: coloured discs on grey that shift from view to view, drawn by numpy."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from viewslots.data.generate import DatasetRecipe, make_dataset
from viewslots.scenes.world import FLAT_KEYS
from viewslots.types import Pictures


@dataclass(frozen=True)
class Discs:
    seed: int
    split: str
    index: int
    discs: tuple[tuple[float, ...], ...]
    """Row, column, radius and colour of each."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class ShapeWorld:
    keys = FLAT_KEYS

    def __init__(self, size: int = 32, views: int = 3) -> None:
        self.height = self.width = size
        self.views = views

    def slots(self, split: str) -> int:
        return 2

    def sample(self, seed: int, split: str, index: int) -> Discs:
        random = np.random.default_rng([*split.encode(), index, seed])
        low, high = [8, 8, 4, 0, 0, 0], [24, 24, 7, 1, 1, 1]
        discs = random.uniform(low, high, (int(random.integers(1, 3)), 6))
        return Discs(seed, split, index, tuple(tuple(round(float(x), 4) for x in disc) for disc in discs))

    def render(self, scenes: Sequence[Discs], slots: int, device: str = "cpu", quality: str = "fast") -> Pictures:
        return Pictures.concatenate([self._render(scene, slots) for scene in scenes])

    def _render(self, scene: Discs, slots: int) -> Pictures:
        size = (1, self.views, slots, self.height, self.width)
        shapes, order = np.zeros(size, np.uint8), np.full(size[:3], -np.inf, np.float32)
        image = np.full((1, self.views, self.height, self.width, 3), 100, np.uint8)
        segment = np.full((1, self.views, self.height, self.width), 255, np.uint8)
        row, column = np.mgrid[: self.height, : self.width] * (32 / self.height)
        for k, (y, x, radius, *colour) in enumerate(scene.discs):
            for view in range(self.views):
                inside = np.hypot(row - y, column - x - 2 * view + 2) < radius
                shapes[0, view, k] = 255 * inside
                order[0, view, k] = k
                segment[0, view][inside] = k
                image[0, view][inside] = (np.array(colour) * 255).astype(np.uint8)
        return Pictures(
            image=image,
            segment=segment,
            overlap=(shapes >= 128).sum(2).astype(np.uint8),
            shapes=shapes,
            shadows=np.zeros_like(shapes),
            depth_order=order,
            camera=np.zeros((1, self.views, 3), np.float32),
            num_objects=np.array([len(scene.discs)], np.uint8),
        )


def make_shapes(
    folder: Path,
    *,
    train: int = 12,
    valid: int = 3,
    size: int = 32,
    views: int = 3,
    shards: int = 1,
    preset: str = "shapes",
) -> Path:
    counts = {"train": train, "valid": valid}
    return make_dataset(DatasetRecipe(ShapeWorld(size, views), counts, preset=preset, seed=0, shards=shards), folder)
