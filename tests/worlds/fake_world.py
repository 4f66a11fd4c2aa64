"""A tiny world for the tests of data/: soft discs, drawn pixel by pixel from (seed, split, index) alone."""

import hashlib
import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from viewslots.data.format import KEYS
from viewslots.data.generate import DatasetRecipe, make_dataset
from viewslots.scenes.world import FLAT_KEYS
from viewslots.types import Pictures

COUNTS = {"train": 5, "valid": 2, "test2": 3}


@dataclass(frozen=True)
class FakeScene:
    seed: int
    split: str
    index: int
    discs: tuple[tuple[float, float, float], ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class FakeWorld:
    keys = FLAT_KEYS
    views, height, width = 3, 6, 8

    def __init__(self) -> None:
        self.rendered: list[int] = []
        self.before_render: Callable[[], None] = lambda: None

    def slots(self, split: str) -> int:
        return 4 if split == "test2" else 3

    def sample(self, seed: int, split: str, index: int) -> FakeScene:
        random = np.random.default_rng([*split.encode(), index, seed % 2**32])
        count = int(random.integers(1, self.slots(split) + 1))
        discs = random.uniform([0, 0, 1], [self.height, self.width, 3], (count, 3))
        return FakeScene(seed, split, index, tuple(tuple(round(float(x), 6) for x in disc) for disc in discs))

    def render(self, scenes: Sequence[FakeScene], slots: int, device: str = "cpu", quality: str = "fast") -> Pictures:
        self.before_render()
        self.rendered.append(len(scenes))
        return Pictures.concatenate([self._render(scene, slots) for scene in scenes])

    def _render(self, scene: FakeScene, slots: int) -> Pictures:
        size = (1, self.views, slots, self.height, self.width)
        shapes = np.zeros(size, np.uint8)
        order = np.full(size[:3], -np.inf, np.float32)
        row, column = np.mgrid[: self.height, : self.width]
        for k, (y, x, radius) in enumerate(scene.discs):
            for view in range(self.views):
                distance = np.hypot(row - y, (column - x - view) % self.width)
                shapes[0, view, k] = np.clip((radius - distance + 0.5) * 255, 0, 255)
                order[0, view, k] = np.float32(radius - view * (k + 1))
        segment = visible(shapes, order)
        random = np.random.default_rng([*scene.split.encode(), scene.index, scene.seed % 2**32, 1])
        return Pictures(
            image=random.integers(0, 256, (1, self.views, self.height, self.width, 3), np.uint8),
            segment=segment,
            overlap=(shapes >= 128).sum(2).astype(np.uint8),
            shapes=shapes,
            shadows=shapes // 3,
            depth_order=order,
            camera=random.normal(size=(1, self.views, 3)).astype(np.float32),
            num_objects=np.array([len(scene.discs)], np.uint8),
        )


class LargePictures(FakeWorld):
    """Pictures of more than a page, whose size is no multiple of one."""

    height, width = 40, 50


class FullWorld(FakeWorld):
    """Every key of the format: the same discs, cameras that look anywhere, and scenes with fewer views than others."""

    keys = tuple(KEYS)

    def _render(self, scene: FakeScene, slots: int) -> Pictures:
        pictures = super()._render(scene, slots)
        random = np.random.default_rng([*scene.split.encode(), scene.index, scene.seed % 2**32, 2])
        assert pictures.camera is not None
        pose = np.zeros((1, self.views, 4, 4), np.float32)
        for view in range(self.views):
            pose[0, view, :3, :3] = rotation(random)
            pose[0, view, :3, 3] = pictures.camera[0, view]
            pose[0, view, 3, 3] = 1
        intrinsics = random.uniform([3, 3, 0, 0], [9, 9, 8, 6], (1, self.views, 4)).astype(np.float32)
        count = 1 + scene.index % self.views
        full = replace(pictures, pose=pose, intrinsics=intrinsics, num_views=np.array([count], np.uint8))
        for key in full.keys():  # noqa: SIM118
            if key not in ("num_objects", "num_views"):
                getattr(full, key)[:, count:] = 0
        return full


def rotation(random: np.random.Generator) -> np.ndarray:
    """By Rodrigues' formula."""
    x, y, z = axis = random.normal(size=3)
    x, y, z = axis / np.sqrt(x * x + y * y + z * z)
    angle, cross = random.uniform(0, 6), np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


def visible(shapes: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The nearest object with alpha >= 100: as with real anti-aliasing, some visible alphas are below 128."""
    nearness = np.where(shapes >= 100, order[..., None, None], -np.inf)
    return np.where(np.isneginf(nearness).all(2), 255, nearness.argmax(2)).astype(np.uint8)


def made_of(recipe: DatasetRecipe, out: Path, **changes: Any) -> Path:
    """The data set of a recipe with other parts; a change of anything else is an option of `make_dataset`."""
    parts = {name: changes.pop(name) for name in vars(recipe) if name in changes}
    return make_dataset(replace(recipe, **parts), out, **{"batch": 2} | changes)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def reseal(folder: Path) -> None:
    """Make meta.json agree with the files again, after a test has tampered with them."""
    meta = json.loads((folder / "meta.json").read_text())
    for name in meta["files"]:
        data = (folder / name).read_bytes()
        meta["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    (folder / "meta.json").write_text(json.dumps(meta))


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
