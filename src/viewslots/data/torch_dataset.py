"""A split of a data set as a plain torch Dataset, for loops that are not ours."""

from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils.data import Dataset

from viewslots.data.dataset import TRUTH_OF_VIEWS, SceneDataset
from viewslots.data.store import Store
from viewslots.data.views import FirstViews
from viewslots.errors import UserError
from viewslots.types import Extent, sides


class Scenes(Dataset[dict[str, Tensor]]):
    """Scenes as dictionaries of tensors, which the plain DataLoader collates, with workers or without.

    `image` [M,3,H,W] in [0, 1] and `view_mask` [M]; scenes with fewer than M views are padded. With `truth` also
    whatever the data set knows, under the names of docs/data-format.md: `segment`, `shapes`, `depth_order`,
    `num_objects` and so on, and of the cameras `camera` [M,3] (position), `pose` [M,4,4] and `intrinsics` [M,4], which
    follow `size`. With `camera`, `camera` is [M,5] instead: as methods that need cameras are told them.
    """

    def __init__(
        self,
        folder: str | Path,
        split: str = "train",
        *,
        views: int | None = None,
        size: Extent | None = None,
        truth: bool = False,
        camera: bool = False,
    ) -> None:
        """`views`: the first so many, or all; `size`: of the pictures, or as they are stored."""
        self.folder, self.split_name, self.truth = Path(folder), split, truth
        self._asked: dict[str, Any] = {"size": None if size is None else sides(size), "camera": camera}
        self._open()
        stored = self._data.split.size.views
        if views is not None and not 1 <= views <= stored:
            raise UserError(f"{folder}: {views} views asked for, but scenes have {stored}")
        self.views = stored if views is None else views

    def _open(self) -> None:
        self._data = SceneDataset(Store.open(self.folder).split(self.split_name), **self._asked)

    def __getstate__(self) -> dict[str, Any]:
        """Workers map the files themselves: a copy of a memory map would be a copy of the data set."""
        return {name: value for name, value in vars(self).items() if name != "_data"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open()

    def __repr__(self) -> str:
        size = self._data.resize
        return (
            f"Scenes({str(self.folder)!r}, {self.split_name!r}: {len(self)} scenes, {self.views} views, "
            f"{size.height}x{size.width})"
        )

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, scene: int) -> dict[str, Tensor]:
        if not -len(self) <= scene < len(self):
            raise IndexError(f"scene {scene} of {len(self)}")
        chosen, views = [scene % len(self)], FirstViews(self.views)
        batch = self._data.batch(chosen, views, padded_to=self.views)
        found = {"image": batch.image[0], "view_mask": batch.view_mask[0]}
        if self.truth:
            known = self._data.truth(chosen, views, padded_to=self.views)
            names = ("num_objects", *(name for name in TRUTH_OF_VIEWS if name != "camera"))
            found |= {name: getattr(known, name)[0] for name in names if getattr(known, name) is not None}
            cameras = self._data.cameras(chosen, views, padded_to=self.views)
            found |= {name: values[0] for name, values in cameras.items()}
        return found if batch.camera is None else found | {"camera": batch.camera[0]}
