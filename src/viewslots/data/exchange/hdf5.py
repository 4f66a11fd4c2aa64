"""Data sets to and from HDF5 files in the published OCLOC layout."""

import io
import math
import os
from pathlib import Path
from typing import Any

import h5py
from numpy.typing import NDArray

from viewslots.data.checks import scenes_per_block
from viewslots.data.exchange.hdf5_layout import GROUP_OF_SPLIT, published
from viewslots.data.import_data import import_data
from viewslots.data.sources.ocloc import SUFFIXES
from viewslots.data.store import Store
from viewslots.errors import UserError
from viewslots.files import drafting, plain_errors, require_new
from viewslots.types import OnProgress


def convert(source: str | Path, destination: str | Path, progress: OnProgress | None = None) -> Path:
    """HDF5 file -> data set folder (`import-data ocloc` as it is), or data set folder -> HDF5 file."""
    origin, target = Path(source), Path(destination)
    if not origin.exists():
        raise UserError(f"{origin}: no such file or folder")
    from_file, to_file = (path.suffix.lower() in SUFFIXES for path in (origin, target))
    if from_file == to_file:
        raise UserError(
            f"{origin} -> {target}: one of the two must be a folder, the other a file ending in .h5 or .hdf5"
        )
    if from_file:
        return import_data("ocloc", origin, target, progress=progress)[0]
    return export_hdf5(Store.open(origin), target, progress)


CHUNK_BYTES = 64 * 2**20


def export_hdf5(store: Store, out: Path, progress: OnProgress | None = None) -> Path:
    """Written under another name and renamed when complete: an interruption leaves nothing that passes for a result."""
    require_new(out)
    if not out.parent.is_dir():
        raise UserError(f"{out.parent}: no such folder; create it first")
    groups = [GROUP_OF_SPLIT.get(name, name) for name in store.splits]
    if len(set(groups)) < len(groups):
        raise UserError(f"{store.path}: two of its splits would share a group of the HDF5 file ({', '.join(groups)})")
    with plain_errors("writing", out), drafting(out) as draft, Draft(draft) as file:
        _write(store, file, progress)
        file.require_written()
    return out


class Draft(io.FileIO):
    """A file that remembers its first failure to write and then only pretends.

    HDF5 cannot live with a full disk: closing the file fails in turn, and every object of it complains on stderr.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w+")
        self.failure: OSError | None = None

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        try:
            while self.failure is None and len(view):
                view = view[super().write(view) :]
        except OSError as error:
            self.failure = error
        return memoryview(data).nbytes

    def truncate(self, size: int | None = None) -> int:
        try:
            if self.failure is None:
                return super().truncate(size)
        except OSError as error:
            self.failure = error
        return size or 0

    def require_written(self) -> None:
        if self.failure is None:
            os.fsync(self.fileno())
        else:
            raise self.failure


def _write(store: Store, draft: Draft, progress: OnProgress | None) -> None:
    plan = store.meta.plan
    done, total = 0, sum(split.scenes for split in plan.splits.values())
    with h5py.File(draft, "w") as file:
        for name in ("generator", "preset", "seed", "quality"):
            if getattr(plan, name) is not None:
                file.attrs[name] = getattr(plan, name)
        for name in store.splits:
            split = store.split(name)
            group = file.create_group(GROUP_OF_SPLIT.get(name, name))
            group.attrs["max_objects"] = group.attrs["background_index"] = split.size.slots
            for low in range(0, len(split), scenes_per_block(split)):
                high = min(low + scenes_per_block(split), len(split))
                rows = {key: split[key][low:high] for key in split.arrays}
                _write_block(group, len(split), low, published(rows, split.size.slots))
                if draft.failure:
                    return
                if progress is not None:
                    progress(done + high, total)
            done += len(split)


def _write_block(group: h5py.Group, scenes: int, low: int, block: dict[str, NDArray[Any]]) -> None:
    for name, rows in block.items():
        if name not in group:
            shape = (scenes, *rows.shape[1:])
            group.create_dataset(name, shape, rows.dtype, chunks=_chunk(shape, rows.itemsize), compression="gzip")
        group[name][low : low + len(rows)] = rows


def _chunk(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """One scene, which reads a hundred times faster than the library's own choice; less where a scene is huge."""
    chunk = [1, *shape[1:]]
    for axis in range(1, len(chunk)):
        if math.prod(chunk) * itemsize > CHUNK_BYTES:
            chunk[axis] = 1
    return tuple(chunk)
