"""step -> what the model sees: stored scenes or live ones, in random views, and the noise of the pass.

All of it is a function of (seed, step), so a run needs no more than a step number to go on. Nothing here waits for
the device, except rendering live scenes.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from viewslots.data.dataset import SceneDataset
from viewslots.data.sharded import StoredArray
from viewslots.data.store import SplitArrays
from viewslots.data.views import RandomViews, shuffled, view_table
from viewslots.errors import UserError
from viewslots.methods.contract import TrainableMethod, mapped
from viewslots.scenes.draws import Draws
from viewslots.scenes.world import LIVE_SPLIT, World
from viewslots.training.distributed import Ranks
from viewslots.types import OnProgress, Pictures, SceneBatch

SHOWN = ("image", "camera", "pose")
"""What is used of live pictures: they have no truth to be compared with."""
RENDER_SCENES = 16
"""Rendered at once where many are."""
STEPS_AHEAD = 8
"""The disk is told of the pictures of so many steps beforehand: enough for the time that a request takes."""
BYTES_AHEAD = 2**28
"""At most so many bytes of pictures of all ranks, and one step at least: pages that wait push others out of memory."""

Chosen = tuple[list[int], Int[np.ndarray, "B M"]]
"""Scenes, and the views of each."""
Shown = tuple[int, float]
"""Views of each scene, and the share of neighbouring ones that they come from."""


class Feed(Protocol):
    def __call__(self, step: int, views: int, within: float = 1.0) -> SceneBatch:
        """This rank's part of the batch of a step: views of each scene from that share of neighbouring ones."""
        ...


def batches_of(scenes: int, batch: int) -> int:
    """Batches in an epoch; scenes that are left over wait for the next one."""
    if scenes < batch:
        raise UserError(f"{scenes} scenes to train on do not fill one batch of {batch}; use a smaller --batch")
    return scenes // batch


def steps_within(batch_bytes: int) -> int:
    """How many steps ahead the disk is told of batches of this size."""
    return min(STEPS_AHEAD, max(BYTES_AHEAD // batch_bytes, 1))


class StoredFeed:
    """Scenes of a split, every one once an epoch, in a new order and new views each time.

    On a GPU the pictures live there as bytes if they take at most half of the free memory.
    """

    def __init__(
        self,
        split: SplitArrays,
        *,
        seed: int,
        batch: int,
        size: tuple[int, int],
        camera: bool,
        device: torch.device,
        ranks: Ranks,
        shown_at: Callable[[int], Shown] | None = None,
    ) -> None:
        """`shown_at`: what later steps will ask for, so that the disk is told the right pictures; None: as this one."""
        self.seed, self.batch, self.part = seed, batch, ranks.part(batch)
        self.batches = batches_of(len(split), batch)
        resident = fits(split["image"], device)
        self.data = SceneDataset(split, device=str(device), size=size, camera=camera, resident=resident)
        self.steps_ahead = STEPS_AHEAD if self.data.reads_disk else 0
        self._shown_at = shown_at
        self._orders: dict[int, list[int]] = {}
        self._told: dict[int, tuple[Shown, Chosen]] = {}

    def __call__(self, step: int, views: int, within: float = 1.0) -> SceneBatch:
        shown = (views, within)
        if self.steps_ahead:
            self._look_ahead(step, shown)
        told = self._told.get(step)
        chosen = told[1] if told and told[0] == shown else self._chosen(step, *shown)
        return self.data.batch_of(*chosen)

    def _look_ahead(self, step: int, now: Shown) -> None:
        """Choose for this step and those to come, and tell the disk, once each."""
        size = self.data.split.size
        steps = min(self.steps_ahead, steps_within(self.batch * now[0] * size.height * size.width * 3))
        self._told = {later: what for later, what in self._told.items() if step <= later <= step + self.steps_ahead}
        for later in range(step, step + steps + 1):
            if later not in self._told:
                shown = now if later == step or self._shown_at is None else self._shown_at(later)
                self._told[later] = shown, self._chosen(later, *shown)
                self.data.expect(*self._told[later][1])

    def _chosen(self, step: int, views: int, within: float) -> Chosen:
        """The scenes and views of this rank."""
        epoch, place = divmod(step, self.batches)
        scenes = self.order(epoch)[place * self.batch : (place + 1) * self.batch][self.part]
        return scenes, self.data.table(scenes, RandomViews(views, views, self.seed, epoch, within), padded_to=views)

    def order(self, epoch: int) -> list[int]:
        """Of the scenes. Two are kept: steps ahead may be in the next epoch."""
        if epoch not in self._orders:
            kept = {near: self._orders[near] for near in (epoch - 1, epoch + 1) if near in self._orders}
            self._orders = kept | {epoch: shuffled(len(self.data), Draws("epoch", self.seed, epoch))}
        return self._orders[epoch]


class LiveFeed:
    """Fresh scenes at every step, rendered in the views that are used.

    `seen`: scenes of the stage before, which do not come again.
    """

    def __init__(
        self,
        world: World,
        *,
        seen: int = 0,
        seed: int,
        batch: int,
        size: tuple[int, int],
        camera: bool,
        device: torch.device,
        ranks: Ranks,
    ) -> None:
        self.world, self.seed, self.batch, self.part = world, seed, batch, ranks.part(batch)
        self.seen = seen
        self.shown: dict[str, Any] = {"device": str(device), "size": size, "camera": camera}

    def __call__(self, step: int, views: int, within: float = 1.0) -> SceneBatch:
        first = self.seen + step * self.batch
        numbers = range(first, first + self.batch)[self.part]
        scenes = [self.world.sample(self.seed, LIVE_SPLIT, number) for number in numbers]
        table = view_table(RandomViews(views, views, self.seed, within=within), numbers, self.world.views)
        pictures = render_views(self.world, scenes, table, LIVE_SPLIT, self.shown["device"])
        data = SceneDataset(SplitArrays.from_pictures(LIVE_SPLIT, pictures), **self.shown)
        return data.batch(range(len(scenes)))


def render_views(
    world: World, scenes: Sequence[Any], table: Int[np.ndarray, "B M"], split: str, device: str
) -> Pictures:
    """In the views of the table; no others are rendered where a scene says where its cameras stand."""
    if all(hasattr(scene, "cameras") for scene in scenes):
        cut = [
            replace(scene, cameras=tuple(scene.cameras[view] for view in views))
            for scene, views in zip(scenes, table, strict=True)
        ]
        return world.render(cut, world.slots(split), device)
    pictures = world.render(scenes, world.slots(split), device)
    rows = np.arange(len(scenes))[:, None]
    chosen = {key: getattr(pictures, key)[rows, table] for key in pictures.keys() if key in SHOWN}  # noqa: SIM118
    return Pictures(**chosen)


def rendered_split(
    world: World,
    seed: int,
    split: str,
    count: int,
    views: int,
    device: torch.device,
    progress: OnProgress = lambda done, total: None,
) -> SplitArrays:
    """The first scenes of a split in their first views, in memory."""
    scenes = [world.sample(seed, split, index) for index in range(count)]
    if all(hasattr(scene, "cameras") for scene in scenes):
        scenes = [replace(scene, cameras=scene.cameras[:views]) for scene in scenes]
    parts = []
    for first in range(0, count, RENDER_SCENES):
        parts.append(world.render(scenes[first : first + RENDER_SCENES], world.slots(split), str(device)))
        progress(min(first + RENDER_SCENES, count), count)
    return SplitArrays.from_pictures(split, Pictures.concatenate(parts).first_views(views))


def fits(images: StoredArray, device: torch.device) -> bool:
    return device.type == "cuda" and images.nbytes <= torch.cuda.mem_get_info(device)[0] // 2


def training_generator(device: torch.device, *key: str | int) -> torch.Generator:
    """A stream of random numbers that the words alone decide (and the kind of device). Runs that go on need the very
    same, so its hash never changes."""
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "little") >> 1)


class NoiseSource:
    """step -> the noise of the pass. Each rank draws that of the whole batch and takes its part."""

    def __init__(self, model: TrainableMethod[Any], *, seed: int, batch: int, ranks: Ranks) -> None:
        self.model, self.seed, self.batch, self.ranks = model, seed, batch, ranks

    def __call__(self, step: int, views: int) -> Any:
        generator = training_generator(self.model.device, "noise", self.seed, step)
        return mapped(self.model.draw_noise(self.whole(views), generator), self.share)

    def share(self, values: Tensor) -> Tensor:
        """The leading dimension counts scenes, or things that belong to scenes."""
        return values[self.ranks.part(len(values))] if self.ranks.count > 1 else values

    def whole(self, views: int) -> SceneBatch:
        """The sizes of the whole batch without its pictures."""
        size, device = self.model.image_size, self.model.device
        image = torch.zeros((), device=device).expand(self.batch, views, 3, *size)
        return SceneBatch(image, torch.ones((), dtype=torch.bool, device=device).expand(self.batch, views))
