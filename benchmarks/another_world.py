"""A world that no shipped model has seen: from all around, in other colours, from lower and nearer than clevr-m3.

    python benchmarks/another_world.py --out DIR --train-scenes 2000 --valid-scenes 100 --test-scenes 100 --size 72x96

Pictures to train on are in the order of a walk around the table; all others are in any order.
It stands in for somebody's own pictures: `viewslots export-data` makes folders of them, and
`viewslots import-data pictures --no-masks --no-cameras` a data set without truth.
"""

import argparse
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

from viewslots.data.generate import DatasetRecipe, make_dataset
from viewslots.scenes.clevr.family import COUNTS, RayTraced
from viewslots.scenes.clevr.sample import ViewRange, sample_multi_view
from viewslots.scenes.clevr.spec import LENS, Picture, Scene, Vec3
from viewslots.scenes.draws import Draws
from viewslots.scenes.world import split_range
from viewslots.terminal import Device, pick_device

COLOURS = (
    (0.95, 0.45, 0.65),
    (0.98, 0.62, 0.1),
    (0.3, 0.75, 0.45),
    (0.93, 0.9, 0.85),
    (0.05, 0.12, 0.3),
    (0.55, 0.65, 0.95),
)
"""Pink, orange, mint, cream, navy, lilac; linear."""
VIEWS = ViewRange((0.0, 1.0), (0.25, 0.45), (9.5, 10.5))


@dataclass(frozen=True)
class AnotherWorld(RayTraced):
    height: int
    width: int
    views: int = 10
    name: str = "another-world"

    def sample(self, seed: int, split: str, index: int) -> Scene:
        scene = sample_multi_view(self.name, VIEWS, False, split_range(COUNTS, split), self.views, seed, split, index)
        colours = Draws(self.name, seed, split, index, "colours")
        bodies = tuple(replace(body, rgb=colours.choice(COLOURS), color="") for body in scene.objects)
        cameras = walk(scene.cameras, colours) if split == "train" else scene.cameras
        return replace(scene, objects=bodies, cameras=cameras, picture=window(self.height, self.width))


def walk(cameras: tuple[Vec3, ...], draws: Draws) -> tuple[Vec3, ...]:
    """As somebody takes them who walks around the table, from a random place on."""
    start = draws.uniform(0, 2 * math.pi)
    return tuple(sorted(cameras, key=lambda camera: (math.atan2(camera[1], camera[0]) - start) % (2 * math.pi)))


def window(height: int, width: int) -> Picture:
    """The middle of a film of 4:3, of which CLEVR-M keeps 64 lines of 80."""
    full_height = height * 80 // 64
    full_width = max(full_height * 108 // 80, width)
    up, left = (full_height - height) // 2, (full_width - width) // 2
    return Picture(full_width, full_height, up, up + height, left, left + width, focal=LENS * full_height * 108 / 80)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", default="64x64", help="HxW")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=get_args(Device), default="auto")
    for split, count in (("train", 1000), ("valid", 100), ("test", 100)):
        parser.add_argument(f"--{split}-scenes", type=int, default=count)
    given = parser.parse_args()
    world = AnotherWorld(*map(int, given.size.split("x")))
    counts = {"train": given.train_scenes, "valid": given.valid_scenes, "test1": given.test_scenes}
    device = str(pick_device(given.device))
    batch = 64 if device.startswith("cuda") else 8
    make_dataset(
        DatasetRecipe(world, counts, preset=world.name, seed=given.seed, device=device), given.out, batch=batch
    )


if __name__ == "__main__":
    main()
