"""Batches of stored scenes: chosen views, padded, straight to the device."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int, UInt8
from numpy.typing import NDArray
from torch import Tensor

from viewslots.data.store import SplitArrays
from viewslots.data.views import PADDING, FirstViews, ViewChoice, view_table
from viewslots.types import BACKGROUND, SceneBatch

UPLOAD_SCENES = 64


@dataclass(frozen=True)
class SceneTruth:
    """What an evaluation compares with: the truth of B scenes in the views that the model saw, padded as they are."""

    segment: UInt8[Tensor, "B M H W"]
    """255 in padded views."""
    overlap: UInt8[Tensor, "B M H W"]
    shapes: UInt8[Tensor, "B M K H W"]
    num_objects: UInt8[Tensor, "B"]
    view_mask: Bool[Tensor, "B M"]
    shadows: UInt8[Tensor, "B M K H W"] | None
    depth_order: Float32[Tensor, "B M K"] | None
    """-inf in padded views."""
    camera: Float32[Tensor, "B M 3"] | None


class SceneDataset:
    """Scenes of a split as batches. Whole lists of indices at once: no workers, no collating.

    With `resident` the pictures live on the device as bytes and never cross the bus again.
    For `torch.utils.data.DataLoader`, pass `collate_fn=lambda batch: batch`.
    """

    def __init__(
        self, split: SplitArrays, *, views: ViewChoice | None = None, device: str = "cpu", resident: bool = False
    ) -> None:
        self.split = split
        self.views: ViewChoice = views or FirstViews()
        self.device = torch.device(device)
        self._resident = upload(split["image"], self.device) if resident else None

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, scene: int) -> SceneBatch:
        return self.batch([scene])

    def __getitems__(self, scenes: Sequence[int]) -> SceneBatch:
        return self.batch(scenes)

    def batch(self, scenes: Sequence[int], views: ViewChoice | None = None) -> SceneBatch:
        """Pictures of these scenes, in this order, in the views of `views` (or of the data set's own choice)."""
        table = self._table(scenes, views)
        if self._resident is None:
            image = torch.from_numpy(gather(self.split["image"], scenes, table)).to(self.device)
        else:
            rows = torch.tensor(scenes, device=self.device)[:, None]
            image = self._resident[rows, torch.from_numpy(table.clip(0)).to(self.device)]
        return scene_batch(image, table)

    def truth(self, scenes: Sequence[int], views: ViewChoice | None = None) -> SceneTruth:
        """The truth for the batch of the same arguments."""
        table = self._table(scenes, views)
        padding = {"segment": BACKGROUND, "depth_order": -np.inf}

        def chosen(key: str) -> Tensor | None:
            if key not in self.split:
                return None
            rows = gather(self.split[key], scenes, table)
            rows[table == PADDING] = padding.get(key, 0)
            return torch.from_numpy(rows).to(self.device)

        tensors = {key: chosen(key) for key in ("segment", "overlap", "shapes", "shadows", "depth_order", "camera")}
        counts = torch.from_numpy(np.asarray(self.split["num_objects"])[list(scenes)]).to(self.device)
        mask = torch.from_numpy(table != PADDING).to(self.device)
        return SceneTruth(**tensors, num_objects=counts, view_mask=mask)  # type: ignore[arg-type]

    def _table(self, scenes: Sequence[int], views: ViewChoice | None) -> Int[np.ndarray, "B M"]:
        if len(scenes) and not 0 <= min(scenes) <= max(scenes) < len(self):
            raise IndexError(f"scenes {min(scenes)}..{max(scenes)} of {len(self)}")
        return view_table(views or self.views, scenes, self.split.size.views)


def gather(array: NDArray[Any], scenes: Sequence[int], table: Int[np.ndarray, "B M"]) -> NDArray[Any]:
    """array[scene, view] for every entry of the table; view 0 stands in for padding.

    Scenes are fetched in rising order, as a disk likes it, straight into their places in the batch.
    """
    plain = np.asarray(array)  # indexing a memory map itself costs more than the copy
    rows = np.empty((*table.shape, *array.shape[2:]), array.dtype)
    for place in np.argsort(scenes, kind="stable"):
        np.take(plain[scenes[place]], table[place].clip(0), axis=0, out=rows[place], mode="clip")
    return rows


def scene_batch(image: UInt8[Tensor, "B M H W 3"], table: Int[np.ndarray, "B M"]) -> SceneBatch:
    """Bytes to what a model sees; padded views become zeros."""
    batch = whole_batch(image)
    if (table == PADDING).any():
        mask = torch.from_numpy(table != PADDING).to(image.device)
        batch.image[~mask] = 0
        batch = SceneBatch(batch.image, mask)
    return batch


def whole_batch(image: UInt8[Tensor, "B M H W 3"]) -> SceneBatch:
    """Bytes to what a model sees; all views are real."""
    channels_first = image.permute(0, 1, 4, 2, 3)
    pictures = channels_first.to(torch.float32, memory_format=torch.contiguous_format).div_(255)
    return SceneBatch(pictures, torch.ones(image.shape[:2], dtype=torch.bool, device=image.device))


def upload(images: NDArray[Any], device: torch.device) -> UInt8[Tensor, "S M H W 3"]:
    """A part at a time: the whole set is never held twice."""
    resident = torch.empty(images.shape, dtype=torch.uint8, device=device)
    for first in range(0, len(images), UPLOAD_SCENES):
        part = np.array(images[first : first + UPLOAD_SCENES])
        resident[first : first + UPLOAD_SCENES] = torch.from_numpy(part).to(device)
    return resident
