"""step -> what the model sees: stored scenes or live ones, in random views, and the noise of the pass.

All of it is a function of (seed, step), so a run needs no more than a step number to go on. Nothing here waits for
the device, except rendering live scenes.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import avg_pool2d

from viewslots.data.dataset import gather, upload, whole_batch
from viewslots.data.store import SplitArrays
from viewslots.data.views import RandomViews, shuffled, view_table
from viewslots.errors import UserError
from viewslots.methods.contract import TrainableMethod
from viewslots.scenes.draws import Draws
from viewslots.scenes.world import LIVE_SPLIT, World
from viewslots.training.distributed import Ranks
from viewslots.types import SceneBatch


class Feed(Protocol):
    def __call__(self, step: int, views: int) -> SceneBatch:
        """This rank's part of the batch of a step."""
        ...


def shrink_factor(height: int, width: int, size: int) -> int:
    """How many pixels of a data set make one of the model, along a side."""
    if height != width or height % size:
        raise UserError(
            f"pictures of {height}x{width} pixels for a model of {size}x{size}: only squares of a whole multiple of "
            f"{size} can be averaged down; choose another data set or preset"
        )
    return height // size


def shrunk(pictures: Float[Tensor, "*lead H W"], factor: int) -> Float[Tensor, "*lead h w"]:
    """Means over squares of factor x factor pixels."""
    if factor == 1:
        return pictures
    small = avg_pool2d(pictures.flatten(0, -3)[:, None], factor)
    return small.view(*pictures.shape[:-2], *small.shape[-2:])


def shrunk_batch(image: UInt8[Tensor, "B M H W 3"], factor: int) -> SceneBatch:
    batch = whole_batch(image)
    return replace(batch, image=shrunk(batch.image, factor))


def batches_of(scenes: int, batch: int) -> int:
    """Batches in an epoch; scenes that are left over wait for the next one."""
    if scenes < batch:
        raise UserError(f"{scenes} scenes to train on do not fill one batch of {batch}; use a smaller --batch")
    return scenes // batch


class StoredFeed:
    """Scenes of a split, every one once an epoch, in a new order and new views each time.

    On a GPU the pictures live there as bytes if they take at most half of the free memory.
    """

    def __init__(
        self, split: SplitArrays, *, seed: int, batch: int, size: int, device: torch.device, ranks: Ranks
    ) -> None:
        self.split, self.seed, self.batch, self.device = split, seed, batch, device
        self.part, self.factor = ranks.part(batch), shrink_factor(split.size.height, split.size.width, size)
        self.batches = batches_of(len(split), batch)
        self.resident = upload(split["image"], device) if fits(split["image"], device) else None
        self._epoch, self._order = -1, [0]

    def __call__(self, step: int, views: int) -> SceneBatch:
        epoch, place = divmod(step, self.batches)
        scenes = self.order(epoch)[place * self.batch : (place + 1) * self.batch][self.part]
        table = view_table(RandomViews(views, views, self.seed, epoch), scenes, self.split.size.views)
        return shrunk_batch(self.bytes(scenes, table), self.factor)

    def order(self, epoch: int) -> list[int]:
        if epoch != self._epoch:
            self._epoch, self._order = epoch, shuffled(len(self.split), Draws("epoch", self.seed, epoch))
        return self._order

    def bytes(self, scenes: Sequence[int], table: Int[np.ndarray, "B M"]) -> UInt8[Tensor, "B M H W 3"]:
        if self.resident is None:
            return to_device(torch.from_numpy(gather(self.split["image"], scenes, table)), self.device)
        rows = np.broadcast_to(np.asarray(scenes)[:, None], table.shape)
        index = to_device(torch.from_numpy(np.stack([rows, table])), self.device)
        return self.resident[index[0], index[1]]


class LiveFeed:
    """Fresh scenes at every step, rendered in the views that are used."""

    def __init__(self, world: World, *, seed: int, batch: int, size: int, device: torch.device, ranks: Ranks) -> None:
        self.world, self.seed, self.batch, self.device = world, seed, batch, device
        self.part, self.factor = ranks.part(batch), shrink_factor(world.height, world.width, size)

    def __call__(self, step: int, views: int) -> SceneBatch:
        numbers = range(step * self.batch, (step + 1) * self.batch)[self.part]
        scenes = [self.world.sample(self.seed, LIVE_SPLIT, number) for number in numbers]
        table = view_table(RandomViews(views, views, self.seed), numbers, self.world.views)
        image = render_views(self.world, scenes, table, LIVE_SPLIT, self.device)
        return shrunk_batch(to_device(torch.from_numpy(image), self.device), self.factor)


def render_views(
    world: World, scenes: Sequence[Any], table: Int[np.ndarray, "B M"], split: str, device: torch.device
) -> UInt8[np.ndarray, "B M H W 3"]:
    """Pictures in the views of the table alone, where a scene says where its cameras stand."""
    if all(hasattr(scene, "cameras") for scene in scenes):
        cut = [
            replace(scene, cameras=tuple(scene.cameras[view] for view in views))
            for scene, views in zip(scenes, table, strict=True)
        ]
        return world.render(cut, world.slots(split), str(device)).image
    pictures = world.render(scenes, world.slots(split), str(device)).image
    return pictures[np.arange(len(scenes))[:, None], table]


def fits(images: NDArray[Any], device: torch.device) -> bool:
    return device.type == "cuda" and images.nbytes <= torch.cuda.mem_get_info(device)[0] // 2


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Without waiting: from pageable memory a copy would first let the device finish all its work."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values


def keyed_generator(device: torch.device, *key: str | int) -> torch.Generator:
    """A stream of random numbers that the words alone decide (and the kind of device)."""
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "little") >> 1)


class NoiseSource:
    """step -> the noise of the pass. Each rank draws that of the whole batch and takes its part."""

    def __init__(self, model: TrainableMethod[Any], *, seed: int, batch: int, ranks: Ranks) -> None:
        self.model, self.seed, self.batch, self.ranks = model, seed, batch, ranks

    def __call__(self, step: int, views: int) -> Any:
        generator = keyed_generator(self.model.device, "noise", self.seed, step)
        noise = self.model.draw_noise(self.whole(views), generator)
        parts = {field.name: self.share(getattr(noise, field.name)) for field in fields(noise)}
        return replace(noise, **parts)

    def share(self, values: Tensor) -> Tensor:
        """The leading dimension counts scenes, or things that belong to scenes."""
        return values[self.ranks.part(len(values))] if self.ranks.count > 1 else values

    def whole(self, views: int) -> SceneBatch:
        """The sizes of the whole batch without its pictures."""
        size, device = self.model.image_size, self.model.device
        image = torch.zeros((), device=device).expand(self.batch, views, 3, *size)
        return SceneBatch(image, torch.ones((), dtype=torch.bool, device=device).expand(self.batch, views))
