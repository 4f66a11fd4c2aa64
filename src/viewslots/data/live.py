"""Endless fresh scenes, rendered while training; nothing touches the disk."""

import torch

from viewslots.data.dataset import scene_batch
from viewslots.data.views import FirstViews, ViewChoice, view_table
from viewslots.errors import UserError
from viewslots.scenes.world import World
from viewslots.types import Pictures, SceneBatch

SPLIT = "live"
"""A stream of its own: no scene of it is ever in a stored split."""


class LiveScenes:
    """An iterator of batches. `position` counts the scenes that all ranks have taken: save it, and pass it to resume.

    Each step takes the next batch * ranks scenes and divides them, so ranks never share a scene, nor does a
    run that is resumed with another number of ranks.
    """

    def __init__(
        self,
        world: World,
        seed: int,
        *,
        batch: int,
        views: ViewChoice | None = None,
        device: str = "cpu",
        quality: str = "fast",
        rank: int = 0,
        ranks: int = 1,
        position: int = 0,
    ) -> None:
        if batch < 1 or not 0 <= rank < ranks or position < 0:
            raise UserError(f"batches of {batch} scenes from {position} on, rank {rank} of {ranks}: must make sense")
        self.world = world
        self.seed = seed
        self.batch = batch
        self.views: ViewChoice = views or FirstViews()
        self.device = device
        self.quality = quality
        self.rank = rank
        self.ranks = ranks
        self.position = position

    def __iter__(self) -> "LiveScenes":
        return self

    def __next__(self) -> SceneBatch:
        first = self.position + self.rank * self.batch
        scenes = range(first, first + self.batch)
        image = torch.from_numpy(self.render(scenes).image).to(self.device)
        table = view_table(self.views, scenes, self.world.views)
        chosen = image[torch.arange(len(scenes))[:, None], torch.from_numpy(table.clip(0))]
        self.position += self.batch * self.ranks
        return scene_batch(chosen, table)

    def render(self, scenes: range) -> Pictures:
        """Pictures and truth of given scenes of the stream, in all views."""
        drawn = [self.world.sample(self.seed, SPLIT, index) for index in scenes]
        return self.world.render(drawn, self.world.slots(SPLIT), self.device, self.quality)
