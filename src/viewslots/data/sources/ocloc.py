"""HDF5 files in the layout of the OCLOC data sets: an .h5 file, or a folder that holds one."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from viewslots.data.exchange.hdf5_guard import members, open_hdf5, reading
from viewslots.data.exchange.hdf5_layout import GROUP_OF_SPLIT, GroupReader
from viewslots.data.format import SPLIT_NAME, SPLIT_OF_NAME
from viewslots.data.picture_files import one_line
from viewslots.data.sources.source import Facts, Options, Picture, Tree, View, spread
from viewslots.errors import UserError
from viewslots.files import require_total, shown
from viewslots.types import SCENE_KEYS

SUFFIXES = (".h5", ".hdf5")


class OclocFile:
    """See Source."""

    splits: Sequence[str]
    notes: Sequence[str] = ()

    def __init__(self, path: Path, options: Options) -> None:
        if path.is_dir() and path.suffix.lower() not in SUFFIXES:
            files = [file for file in Tree(path).files(path) if file.suffix.lower() in SUFFIXES]
            if len(files) != 1:
                raise UserError(f"{one_line(path)}: holds {len(files)} files ending in .h5; name the one to import")
            path = files[0]
        self._path, self._options = path, options
        self._file = open_hdf5(path)
        try:
            with reading(path):
                self._groups = _groups(self._file, path)
                self._counts = [group.view_counts() for group in self._groups.values()]
        except BaseException:
            self.close()
            raise
        self.names = [f"{split}/{scene}" for split, group in self._groups.items() for scene in range(group.size.scenes)]
        self.splits = [split for split, group in self._groups.items() for _ in range(group.size.scenes)]
        self._block: tuple[GroupReader, int, dict[str, NDArray[Any]]] | None = None

    def objects(self, scene: int) -> None:
        """The layout has no place for what objects are."""

    def close(self) -> None:
        self._file.close()

    def files(self) -> Iterator[Path]:
        yield self._path

    def _place(self, scene: int) -> tuple[int, GroupReader, int]:
        for number, group in enumerate(self._groups.values()):
            if scene < group.size.scenes:
                return number, group, scene
            scene -= group.size.scenes
        raise IndexError(scene)

    def _chosen(self, scene: int) -> list[int]:
        number, _, index = self._place(scene)
        return spread(int(self._counts[number][index]), self._options.views)

    def facts(self, scene: int) -> Facts:
        _, group, index = self._place(scene)
        picture = Picture(f"{group.where}: scene {index}", (group.size.height, group.size.width))
        keys = frozenset(key for key in group.keys if key != "num_views")
        return Facts([picture] * len(self._chosen(scene)), keys, group.size.slots)

    def views(self, scene: int) -> Iterator[View]:
        _, group, index = self._place(scene)
        if self._block is None or self._block[0] is not group or not 0 <= index - self._block[1] < group.block:
            low = index - index % group.block
            with reading(self._path):
                rows = group.read(low, min(low + group.block, group.size.scenes))
            self._block = (group, low, rows)
        _, low, rows = self._block
        for view in self._chosen(scene):
            yield {
                key: np.asarray(values[index - low] if key in SCENE_KEYS else values[index - low, view])
                for key, values in rows.items()
                if key != "num_views"
            }


def _groups(file: h5py.File, source: Path) -> dict[str, GroupReader]:
    """The groups that hold scenes, by the name of our split and in the usual order."""
    groups: dict[str, GroupReader] = {}
    for name, member in members(file, str(source)).items():
        where = f"{source}:{name}"
        if not isinstance(member, h5py.Group) or (name not in SPLIT_OF_NAME and "image" not in members(member, where)):
            continue  # none of our business
        split = SPLIT_OF_NAME.get(name, name)
        if not SPLIT_NAME.fullmatch(split):
            raise UserError(f"{source}: group {shown(name)} cannot be the name of a split")
        if split in groups:
            raise UserError(f"{source}: more than one group for the split {split}, {name} among them")
        reader = GroupReader(member, where)
        if reader.size.scenes:
            groups[split] = reader
    if not groups:
        raise UserError(f"{source}: no group with scenes (train, valid, test or general)")
    require_total(sum(group.total_bytes for group in groups.values()), source)
    usual = list(GROUP_OF_SPLIT)
    return dict(sorted(groups.items(), key=lambda item: usual.index(item[0]) if item[0] in usual else len(usual)))
