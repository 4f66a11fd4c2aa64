"""Pages of stored arrays that will be read soon: the system is told, and the disk fetches them meanwhile.

Reading a memory map waits for the disk page by page, with one request under way. Told beforehand, the system keeps many
under way and nobody waits. A hint and nothing more: what is read stays the same, and where there is no such call
nothing happens.
"""

import mmap
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray

from viewslots.data.sharded import ShardedArray, StoredArray, in_file

PAGE = mmap.ALLOCATIONGRANULARITY


class ReadAhead:
    """Rows of an array [S, M, ...] in files; of one in memory there is nothing to fetch."""

    def __init__(self, array: StoredArray) -> None:
        self._array = array
        self._starts = np.array(array.starts if isinstance(array, ShardedArray) else (0, len(array)))
        self._views, self._bytes = array.shape[1], array.nbytes // max(array.shape[0] * array.shape[1], 1)
        self.useful = hasattr(mmap, "MADV_WILLNEED") and _is_mapped(in_file(array, 0))
        """Whether there is anything to fetch."""

    def expect(self, scenes: Sequence[int], table: Int[np.ndarray, "B M"]) -> None:
        """These views of these scenes come soon; views below 0 are none."""
        if not self.useful:
            return
        row, column = np.nonzero(table >= 0)
        scene = np.asarray(scenes)[row]
        part = np.searchsorted(self._starts, scene, side="right") - 1
        first = ((scene - self._starts[part]) * self._views + table[row, column]) * self._bytes
        for number in np.unique(part):
            array: Any = in_file(self._array, int(number))
            for start, end in page_runs(first[part == number] + array.offset % PAGE, self._bytes):
                _will_need(array.base, start, end)


def _is_mapped(array: NDArray[Any]) -> bool:
    """A copy of a memory map, or one that was pickled, is none."""
    return isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap)


def page_runs(starts: Int[np.ndarray, "n"], length: int) -> list[tuple[int, int]]:
    """Whole pages that cover these stretches of bytes, neighbours joined, in rising order."""
    starts = np.sort(starts)
    low, high = starts // PAGE * PAGE, -(-(starts + length) // PAGE) * PAGE
    apart = np.flatnonzero(low[1:] > high[:-1])
    return list(zip(low[[0, *(apart + 1)]].tolist(), high[[*apart, -1]].tolist(), strict=True))


def _will_need(mapped: Any, start: int, end: int) -> None:
    with suppress(OSError):  # a file system that knows no hints
        mapped.madvise(mmap.MADV_WILLNEED, start, min(end, len(mapped)) - start)
