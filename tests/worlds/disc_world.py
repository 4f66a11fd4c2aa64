"""A small world for the tests of the protocol: flat discs with shadows at 32x32, seen from cameras on a circle.

The first pixel of every picture says which view of which scene of which split it is.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from viewslots.data.generate import DatasetRecipe, make_dataset
from viewslots.data.store import Store
from viewslots.scenes.world import FLAT_KEYS
from viewslots.types import Pictures

torch.set_num_threads(1)
SIZE, VIEWS = 32, 6
COUNTS = {"train": 1, "valid": 8, "test1": 7, "test2": 3}
GREY = 128


@dataclass(frozen=True)
class DiscScene:
    discs: tuple[tuple[float, float, float], ...]
    """Row, column and radius; a later one is nearer."""
    colours: tuple[tuple[int, int, int], ...]
    azimuths: tuple[float, ...]
    place: tuple[int, int]
    """Scene, and split by its place in COUNTS."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class DiscWorld:
    keys = FLAT_KEYS
    views, height, width = VIEWS, SIZE, SIZE

    def slots(self, split: str) -> int:
        return 3 if split == "test2" else 2

    def sample(self, seed: int, split: str, index: int) -> DiscScene:
        random = np.random.default_rng([*split.encode(), index, seed])
        count = int(random.integers(1, self.slots(split) + 1))
        discs = random.uniform([9, 9, 3], [21, 21, 7], (count, 3)).round(3)
        colours = random.integers(0, 256, (count, 3))
        return DiscScene(
            tuple(map(tuple, discs.tolist())),
            tuple(map(tuple, colours.tolist())),
            tuple(random.uniform(0, np.pi, VIEWS).round(6).tolist()),
            (index, list(COUNTS).index(split)),
        )

    def render(self, scenes: Sequence[DiscScene], slots: int, device: str = "cpu", quality: str = "fast") -> Pictures:
        return Pictures.concatenate([self._render(scene, slots) for scene in scenes])

    def _render(self, scene: DiscScene, slots: int) -> Pictures:
        shapes = np.zeros((1, VIEWS, slots, SIZE, SIZE), np.uint8)
        shadows, order = shapes.copy(), np.full((1, VIEWS, slots), -np.inf, np.float32)
        image = np.full((1, VIEWS, SIZE, SIZE, 3), GREY, np.uint8)
        segment = np.full((1, VIEWS, SIZE, SIZE), 255, np.uint8)
        row, column = np.mgrid[:SIZE, :SIZE]
        for view, azimuth in enumerate(scene.azimuths):
            shift = 5 * np.cos(azimuth)
            for k, (y, x, radius) in enumerate(scene.discs):
                inside = np.hypot(row - y, column - x - shift) < radius
                shapes[0, view, k][inside] = 255
                shadows[0, view, k][np.hypot(row - y - 4, column - x - shift) < radius] = 180
                order[0, view, k] = k
            dark = shadows[0, view].max(0) > 0
            image[0, view][dark] = GREY // 2
            for k, colour in enumerate(scene.colours):
                image[0, view][shapes[0, view, k] > 0] = colour
                segment[0, view][shapes[0, view, k] > 0] = k
            image[0, view, 0, 0] = view, *scene.place
        angles = np.array(scene.azimuths)
        camera = 11 * np.stack([0.8 * np.cos(angles), 0.8 * np.sin(angles), np.full(VIEWS, 0.6)], -1)
        return Pictures(
            image=image,
            segment=segment,
            overlap=(shapes >= 128).sum(2).astype(np.uint8),
            shapes=shapes,
            shadows=shadows,
            depth_order=order,
            camera=camera[None].astype(np.float32),
            num_objects=np.array([len(scene.discs)], np.uint8),
        )


def disc_store(folder: Path, preset: str = "clevr-m1") -> Store:
    return Store.open(make_dataset(DatasetRecipe(DiscWorld(), COUNTS, preset=preset, seed=5), folder))
