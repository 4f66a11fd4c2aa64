"""What is asked of a method: which scenes, views and slots it sees, how often, with which random numbers."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from viewslots.data.dataset import SceneDataset
from viewslots.data.store import SplitArrays, Store
from viewslots.errors import UserError, require_counts
from viewslots.methods.contract import Method, Search
from viewslots.methods.inputs import check_slots

BATCH = 20
"""Scenes at once: fits a small GPU with 8 views and 11 slots."""


@dataclass(frozen=True)
class Plan:
    """What is asked."""

    split: str
    views: int
    """M, the first of the stored views; M1 in viewpoint estimation."""
    slots: int
    new_views: int | None = None
    """M2 of viewpoint estimation, the last of the stored views; None: plain decomposition."""
    repeats: int = 5
    seed: int = 0
    batch: int = BATCH
    extras: bool = True
    search: Search | None = None
    """How far answers are searched for; None: plain answers."""
    probes: str | None = None
    """The split on which probes from object codes to properties are fitted; None: no such probes."""
    scenes: int | None = None
    """The first of the split; None: all of them."""

    def scored(self, arrays: SplitArrays) -> int:
        """How many scenes of the split are asked for."""
        return len(arrays) if self.scenes is None else self.scenes

    def require(self, arrays: SplitArrays) -> None:
        require_scenes(self.scenes, len(arrays), self.split)
        counts = {"repeats": self.repeats, "batch": self.batch, "views": self.views, "slots": self.slots}
        require_counts({**counts, "new views": self.new_views})
        check_slots(self.slots)
        new = self.new_views or 0
        stored = arrays.size.views if self.new_views is None else fewest_views(arrays, self.scenes)
        if self.views + new > stored:
            asked = f"{self.views} views" + (f" and {new} new ones" if new else "")
            raise UserError(f"{asked} asked for, but scenes have {stored}; ask for fewer")


def shown_to(
    method: Method, store: Store, split: str, device: str, size: tuple[int, int] | None = None
) -> SceneDataset:
    """The scenes of a split as the method is shown them: in the size it takes, with their cameras if it asks for those.

    A method whose `image_size` is None takes any `size`; None: pictures as they are.
    """
    arrays, options = store.split(split), dict[str, Any]()
    if method.needs_camera:
        options["camera"] = True
    size = method.image_size or size
    if size not in (None, (arrays.size.height, arrays.size.width)):
        options["size"] = size
    return SceneDataset(arrays, device=device, **options)


def require_scenes(asked: int | None, stored: int, where: str) -> None:
    """`asked`: the first so many; None: as many as the caller takes."""
    if asked is not None and not 1 <= asked <= stored:
        raise UserError(f"--scenes: {asked} asked for, but {where} has {stored}; ask for 1 to {stored}")


def fewest_views(arrays: SplitArrays, scenes: int | None = None) -> int:
    """Of any of the first scenes: so many first and last views can be asked for without any being both."""
    return int(arrays.view_counts[:scenes].min())


def answer_generator(*words: object) -> torch.Generator:
    """Random numbers of answers, which the words alone decide. Scores on record need its hash as it is."""
    digest = hashlib.sha256(repr(words).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def batches(scenes: int, size: int) -> Iterator[list[int]]:
    return (list(range(first, min(first + size, scenes))) for first in range(0, scenes, size))
