"""An array whose rows lie in several files, read as if it were one."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray


class ShardedArray:
    """Arrays one after the other along their first axis, never copied as a whole.

    An index or a slice of rows, and what may follow it, answers with an array: a view of one part where it can,
    else a copy of the rows that are asked for. `np.asarray` reads everything.
    """

    def __init__(self, parts: Sequence[NDArray[Any]]) -> None:
        self.parts = tuple(parts)
        self.starts = (0, *accumulate(map(len, parts)))
        self.shape = (self.starts[-1], *parts[0].shape[1:])
        self.dtype = parts[0].dtype
        self.nbytes = sum(part.nbytes for part in parts)
        self._plain = [np.asarray(part) for part in parts]  # indexing a memory map itself is slow

    def __repr__(self) -> str:
        return f"ShardedArray({self.dtype}{list(self.shape)} in {len(self.parts)} parts)"

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("the rows lie in several files: no array without a copy")
        return np.concatenate(self._plain).astype(self.dtype if dtype is None else dtype, copy=False)

    def __getitem__(self, index: Any) -> Any:
        rows, rest = (index[0], index[1:]) if isinstance(index, tuple) else (index, ())
        if isinstance(rows, slice):
            return self._slice(*rows.indices(len(self)), rest)
        row = int(rows)
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        part, inside = self.locate(row % len(self))
        return self._plain[part][(inside, *rest)]

    def locate(self, row: int) -> tuple[int, int]:
        """The part that has a row, and the row's number there."""
        part = bisect_right(self.starts, row) - 1
        return part, row - self.starts[part]

    def _slice(self, first: int, last: int, step: int, rest: tuple[Any, ...]) -> NDArray[Any]:
        if step != 1:
            raise IndexError("rows of a data set in shards are read one after the other: slices have step 1")
        found = [
            plain[(slice(max(first - start, 0), max(last - start, 0)), *rest)]
            for start, plain in zip(self.starts, self._plain, strict=False)
            if start < last and first < start + len(plain)
        ] or [self._plain[0][(slice(0, 0), *rest)]]
        return found[0] if len(found) == 1 else np.concatenate(found)


StoredArray = NDArray[Any] | ShardedArray
"""What a key of a split is: a memory map, pictures in memory, or shards."""
