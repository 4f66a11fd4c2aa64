"""Reading HDF5 files that nobody vouches for: nothing outside them is followed, nothing unpacks beyond its claim."""

import itertools
import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from viewslots.errors import UserError
from viewslots.files import open_regular, readable, shown

MAX_CHUNK_BYTES = 256 * 2**20
MAX_CHUNKS = 2_000_000
MAX_NAMES = 256

DEFLATE, SHUFFLE = h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE


def open_hdf5(path: Path) -> h5py.File:
    open_regular(path).close()
    with reading(path):
        return h5py.File(path, "r")


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Around every access to a foreign file: whatever the library finds broken in it becomes one line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # damage surfaces in h5py as any kind of exception
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise UserError(f"{path}: not a readable HDF5 file ({reason})") from error


def members(group: h5py.Group, where: str) -> dict[str, Any]:
    """The objects that truly lie in a group, by name. Links to other files or places are refused, not followed."""
    if len(group) > MAX_NAMES:
        raise UserError(f"{where}: {len(group)} entries, more than a file of this layout has")
    found = {}
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise UserError(f"{where}: {shown(name)} is a link to another place; only plain datasets are read")
        found[name] = group[name]
    return found


class Rows:
    """One dataset, read a range of its first axis at a time.

    HDF5's own inflate filter grows its buffer as far as a stream asks, so chunks are fetched raw and unpacked here, up
    to exactly the size that the dataset declares.
    """

    def __init__(self, dataset: h5py.Dataset, where: str) -> None:
        self._data = dataset
        self._where = where
        if not isinstance(dataset, h5py.Dataset):
            raise UserError(f"{where}: not a dataset")
        if dataset.external is not None or dataset.is_virtual:
            raise UserError(f"{where}: its data lie in other files; only data in the file itself are read")
        if dataset.dtype.kind not in "uif" or dataset.dtype.itemsize > 8:
            raise UserError(f"{where}: its type is {shown(str(dataset.dtype))}, but must be plain numbers")
        self.shape: tuple[int, ...] = dataset.shape or ()
        self.dtype: np.dtype[Any] = dataset.dtype
        self.chunk: tuple[int, ...] | None = dataset.chunks
        self._filters = [] if self.chunk is None else self._known_filters()

    @property
    def total_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def chunk_scenes(self) -> int:
        return 1 if self.chunk is None else min(self.chunk[0], self.shape[0])

    def read(self, low: int, high: int) -> NDArray[Any]:
        if self.chunk is None:
            return np.asarray(self._data[low:high])
        rows = np.empty((high - low, *self.shape[1:]), self.dtype)
        starts = [range(low - low % self.chunk[0], high, self.chunk[0])]
        starts += [range(0, extent, step) for extent, step in zip(self.shape[1:], self.chunk[1:], strict=True)]
        for corner in itertools.product(*starts):
            self._place(rows, low, corner)
        return rows

    def _place(self, rows: NDArray[Any], low: int, corner: tuple[int, ...]) -> None:
        """Copy the part of one chunk that lies within the wanted rows."""
        assert self.chunk is not None
        bounds = (low + len(rows), *self.shape[1:])
        begin = (max(corner[0], low), *corner[1:])
        end = [min(start + step, bound) for start, step, bound in zip(corner, self.chunk, bounds, strict=True)]
        source = tuple(slice(b - c, e - c) for b, c, e in zip(begin, corner, end, strict=True))
        target = (slice(begin[0] - low, end[0] - low), *(slice(b, e) for b, e in zip(begin[1:], end[1:], strict=True)))
        rows[target] = self._chunk(corner)[source]

    def _chunk(self, corner: tuple[int, ...]) -> NDArray[Any]:
        assert self.chunk is not None
        stored = self._data.id.get_chunk_info_by_coord(corner)
        if stored.byte_offset is None:
            return np.full(self.chunk, self._data.fillvalue, self.dtype)
        size = math.prod(self.chunk) * self.dtype.itemsize
        if stored.size > size + size // 100 + 1024:  # deflate adds less than this to what it cannot compress
            raise UserError(f"{self._where}: a chunk is stored in {stored.size} bytes, but holds only {size}")
        skipped, data = self._data.id.read_direct_chunk(corner)
        for position in reversed(range(len(self._filters))):
            if not skipped >> position & 1:
                data = self._undo(self._filters[position], data, size)
        if len(data) != size:
            raise UserError(f"{self._where}: a chunk unpacks to another size than the {size} bytes it declares")
        return np.frombuffer(data, self.dtype).reshape(self.chunk)

    def _undo(self, code: int, data: bytes, size: int) -> bytes:
        if code == DEFLATE:
            stream = zlib.decompressobj()
            data = stream.decompress(data, size + 1)
            return data if stream.eof else b""  # cut short, or longer than its chunk
        item = self.dtype.itemsize
        if len(data) % item:
            raise UserError(f"{self._where}: a chunk of broken length")
        return np.frombuffer(data, np.uint8).reshape(item, -1).T.tobytes()

    def _known_filters(self) -> list[int]:
        assert self.chunk is not None
        if math.prod(self.chunk) * self.dtype.itemsize > MAX_CHUNK_BYTES:
            raise UserError(f"{self._where}: chunks of {self.chunk} are too large (limit {readable(MAX_CHUNK_BYTES)})")
        chunks = math.prod(-(-extent // step) for extent, step in zip(self.shape, self.chunk, strict=True))
        if chunks > MAX_CHUNKS:
            raise UserError(f"{self._where}: {chunks} chunks are too many (limit {MAX_CHUNKS}); repack the file")
        pipeline = self._data.id.get_create_plist()
        codes = [int(pipeline.get_filter(index)[0]) for index in range(pipeline.get_nfilters())]
        if len(set(codes)) != len(codes) or not set(codes) <= {DEFLATE, SHUFFLE}:
            raise UserError(f"{self._where}: only gzip compression (with or without shuffle) is read; repack the file")
        return codes
