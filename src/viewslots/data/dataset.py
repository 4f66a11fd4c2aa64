"""Batches of stored scenes: chosen views, padded, in the wanted size, straight to the device."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from numpy.typing import NDArray
from torch import Tensor

from viewslots.data.readahead import ReadAhead
from viewslots.data.resize import Resize
from viewslots.data.sharded import ShardedArray, StoredArray, in_file
from viewslots.data.store import SplitArrays
from viewslots.data.views import PADDING, FirstViews, ViewChoice, view_table
from viewslots.errors import UserError
from viewslots.types import BACKGROUND, SceneBatch, SceneTruth

UPLOAD_SCENES = 64
AIMED = 0.02
"""Sine of the angle by which a camera may look past the origin."""
CAMERA_KEYS = ("camera", "pose", "intrinsics")
TRUTH_OF_VIEWS = ("segment", "overlap", "shapes", "shadows", "depth_order", "camera")


class SceneDataset:
    """Scenes of a split as batches. Whole lists of indices at once: no workers, no collating.

    `size` (height, width): pictures and truth in this size (resize.py); None: as they are stored.
    `camera`: batches say where the cameras stand.
    `resident`: the pictures live on the device as bytes and never cross the bus again.
    For `torch.utils.data.DataLoader`, pass `collate_fn=lambda batch: batch`.
    """

    def __init__(
        self,
        split: SplitArrays,
        *,
        views: ViewChoice | None = None,
        device: str = "cpu",
        size: tuple[int, int] | None = None,
        camera: bool = False,
        resident: bool = False,
    ) -> None:
        self.split = split
        self.views: ViewChoice = views or FirstViews()
        self.device = torch.device(device)
        stored = (split.size.height, split.size.width)
        self.resize = Resize.between(stored, size or stored)
        self._camera_key = camera_key(split) if camera else None
        self._resident = upload(split["image"], self.device) if resident else None
        self._counts = split.view_counts
        self._ahead = ReadAhead(split["image"])

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_ahead"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Another process has maps of its own."""
        vars(self).update(state)
        self._ahead = ReadAhead(self.split["image"])

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, scene: int) -> SceneBatch:
        return self.batch([scene])

    def __getitems__(self, scenes: Sequence[int]) -> SceneBatch:
        return self.batch(scenes)

    def batch(self, scenes: Sequence[int], views: ViewChoice | None = None, padded_to: int = 0) -> SceneBatch:
        """Pictures of these scenes, in this order, in the views of `views` (or of the data set's own choice).

        Scenes with fewer views are padded to those with most, and to `padded_to` at least.
        """
        return self.batch_of(scenes, self.table(scenes, views, padded_to))

    def batch_of(self, scenes: Sequence[int], table: Int[np.ndarray, "B M"]) -> SceneBatch:
        """The same in the views of a table."""
        batch = scene_batch(self._bytes(scenes, table), table)
        return replace(batch, image=self.resize.pictures(batch.image), camera=self._camera(scenes, table))

    def expect(self, scenes: Sequence[int], table: Int[np.ndarray, "B M"]) -> None:
        """This batch will be asked for soon: the disk may fetch its pictures meanwhile."""
        if self.reads_disk:
            self._ahead.expect(scenes, table)

    @property
    def reads_disk(self) -> bool:
        """Whether pictures are fetched from files, and the system can be told beforehand."""
        return self._resident is None and self._ahead.useful

    def truth(self, scenes: Sequence[int], views: ViewChoice | None = None, padded_to: int = 0) -> SceneTruth:
        """The truth for the batch of the same arguments, as far as it is stored."""
        table = self.table(scenes, views, padded_to)
        padding = {"segment": BACKGROUND, "depth_order": -np.inf}

        def chosen(key: str) -> Tensor | None:
            if key not in self.split:
                return None
            rows = gather(self.split[key], scenes, table)
            rows[table == PADDING] = padding.get(key, 0)
            return to_device(torch.from_numpy(rows), self.device)

        counts = None
        if "num_objects" in self.split:
            counts = torch.from_numpy(self.split["num_objects"][list(scenes)]).to(self.device)
        mask = torch.from_numpy(table != PADDING).to(self.device)
        tensors = {key: chosen(key) for key in TRUTH_OF_VIEWS}
        lasting = not self.split.per_view_masks or table.shape[1] == 1
        return self.resize.truth(SceneTruth(**tensors, num_objects=counts, view_mask=mask, identities=lasting))

    def cameras(self, scenes: Sequence[int], views: ViewChoice | None = None, padded_to: int = 0) -> dict[str, Tensor]:
        """`camera`, `pose` and `intrinsics` of the batch of the same arguments, as far as they are stored; zeros in
        padded views. Intrinsics are those of the pictures in their new size."""
        table = self.table(scenes, views, padded_to)
        found = {}
        for key in CAMERA_KEYS:
            if key in self.split:
                rows = gather(self.split[key], scenes, table)
                rows = self.resize.intrinsics(rows).astype(np.float32) if key == "intrinsics" else rows
                rows[table == PADDING] = 0
                found[key] = to_device(torch.from_numpy(rows), self.device)
        return found

    def table(self, scenes: Sequence[int], views: ViewChoice | None, padded_to: int = 0) -> Int[np.ndarray, "B M"]:
        """The views of each scene of a batch."""
        if len(scenes) and not 0 <= min(scenes) <= max(scenes) < len(self):
            raise IndexError(f"scenes {min(scenes)}..{max(scenes)} of {len(self)}")
        return view_table(views or self.views, scenes, self.split.size.views, self._counts, padded_to)

    def _bytes(self, scenes: Sequence[int], table: Int[np.ndarray, "B M"]) -> UInt8[Tensor, "B M H W 3"]:
        if self._resident is None:
            return to_device(torch.from_numpy(gather(self.split["image"], scenes, table)), self.device)
        rows = np.broadcast_to(np.asarray(scenes)[:, None], table.shape)
        index = to_device(torch.from_numpy(np.stack([rows, table.clip(0)])), self.device)
        return self._resident[index[0], index[1]]

    def _camera(self, scenes: Sequence[int], table: Int[np.ndarray, "B M"]) -> Float[Tensor, "B M 5"] | None:
        if self._camera_key is None:
            return None
        values = gather(self.split[self._camera_key], scenes, table).astype(np.float64)
        position, back = (values[..., :3, 3], values[..., :3, 2]) if self._camera_key == "pose" else (values, values)
        angles = camera_angles(back)
        distance = np.sqrt((position**2).sum(-1, keepdims=True))
        known = np.concatenate([angles, distance], -1) * (table != PADDING)[..., None]
        return to_device(torch.from_numpy(known.astype(np.float32)), self.device)


def camera_key(split: SplitArrays) -> str:
    """Where the cameras are known from; an error where a method cannot be told them."""
    if "pose" in split:
        _require_aimed(split)
        return "pose"
    if "camera" in split and np.asarray(split["camera"]).any():
        return "camera"
    raise UserError(f"split {split.name}: its cameras are not known, but the method must be told them")


def _require_aimed(split: SplitArrays) -> None:
    """Azimuth, elevation and distance say where a camera is only if it looks at the origin."""
    pose = np.asarray(split["pose"], np.float64)
    real = np.arange(pose.shape[1]) < split.view_counts[:, None]
    position, back = pose[..., :3, 3], pose[..., :3, 2]
    apart = np.linalg.norm(np.cross(position, back), axis=-1) > AIMED * np.linalg.norm(position, axis=-1)
    if (scenes := np.flatnonzero((apart & real).any(1))).size:
        raise UserError(
            f"split {split.name}, scene {scenes[0]}: a camera does not look at the origin, so azimuth, elevation and "
            "distance, which the method must be told, do not say where it is"
        )


def camera_angles(back: Float[np.ndarray, "*lead 3"]) -> Float[np.ndarray, "*lead 4"]:
    """Cosine and sine of azimuth and of elevation of the way from what a camera looks at to the camera."""
    x, y, z = np.moveaxis(back, -1, 0)
    flat, length = np.hypot(x, y), np.sqrt((back**2).sum(-1))
    safe, whole = np.where(flat > 0, flat, 1), np.where(length > 0, length, 1)
    azimuth = (np.where(flat > 0, x / safe, 1), y / safe)  # straight above any azimuth is right: 0
    return np.stack([*azimuth, flat / whole, z / whole], -1)


def gather(array: StoredArray, scenes: Sequence[int], table: Int[np.ndarray, "B M"]) -> NDArray[Any]:
    """array[scene, view] for every entry of the table; view 0 stands in for padding.

    Scenes are fetched in rising order, as a disk likes it, straight into their places in the batch.
    """
    # Indexing a memory map itself costs more than the copy.
    plain = array if isinstance(array, ShardedArray) else np.asarray(array)
    rows = np.empty((*table.shape, *array.shape[2:]), array.dtype)
    require_whole(array, scenes)
    for place in np.argsort(scenes, kind="stable"):
        np.take(plain[scenes[place]], table[place].clip(0), axis=0, out=rows[place], mode="clip")
    return rows


def require_whole(array: StoredArray, scenes: Sequence[int]) -> None:
    """Pages of a file that was cut off meanwhile would end the process without a word (SIGBUS)."""
    shards = sorted({array.locate(scene)[0] for scene in scenes}) if isinstance(array, ShardedArray) else (0,)
    for number in shards:
        part = in_file(array, number)
        if isinstance(part, np.memmap) and part.filename is not None:
            size = None
            with suppress(OSError):  # removed, renamed or out of reach: what is mapped is still there
                size = os.stat(part.filename).st_size
            if size is not None and size < part.offset + part.nbytes:
                raise UserError(f"{part.filename}: cut off while it is read; bring the data set back as it was")


def scene_batch(image: UInt8[Tensor, "B M H W 3"], table: Int[np.ndarray, "B M"]) -> SceneBatch:
    """Bytes to what a model sees; padded views become zeros."""
    batch = whole_batch(image)
    if (table == PADDING).any():
        mask = to_device(torch.from_numpy(table != PADDING), image.device)
        batch.image.masked_fill_(~mask[..., None, None, None], 0)
        batch = SceneBatch(batch.image, mask)
    return batch


def whole_batch(image: UInt8[Tensor, "B M H W 3"]) -> SceneBatch:
    """Bytes to what a model sees; all views are real."""
    channels_first = image.permute(0, 1, 4, 2, 3)
    pictures = channels_first.to(torch.float32, memory_format=torch.contiguous_format).div_(255)
    return SceneBatch(pictures, torch.ones(image.shape[:2], dtype=torch.bool, device=image.device))


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Without waiting: from pageable memory a copy would first let the device finish all its work."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values


def upload(images: StoredArray, device: torch.device) -> UInt8[Tensor, "S M H W 3"]:
    """A part at a time: the whole set is never held twice."""
    resident = torch.empty(images.shape, dtype=torch.uint8, device=device)
    for first in range(0, len(images), UPLOAD_SCENES):
        part = np.array(images[first : first + UPLOAD_SCENES])
        resident[first : first + UPLOAD_SCENES] = torch.from_numpy(part).to(device)
    return resident
