"""An array whose rows lie in several files, read as if it were one."""

import math
import operator
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakSet

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray


class Shard(NamedTuple):
    """Rows in one file, and how they are mapped."""

    shape: tuple[int, ...]
    open: Callable[[], NDArray[Any]]


class ShardedArray:
    """Arrays one after the other along their first axis, never copied as a whole.

    Each is mapped when it is first needed. Indices, slices and integer arrays of rows, and what may follow them, answer
    as those of numpy do: with a view of one shard where it can be, else with a copy of the rows that are asked for.
    `np.asarray` reads everything.
    """

    def __init__(self, shards: Sequence[Shard], dtype: np.dtype[Any]) -> None:
        self.shards = tuple(shards)
        self.starts = (0, *accumulate(shard.shape[0] for shard in shards))
        self.shape = (self.starts[-1], *shards[0].shape[1:])
        self.dtype = dtype
        self.nbytes = math.prod(self.shape) * dtype.itemsize
        self._maps: dict[int, NDArray[Any]] = {}
        _remember(self)

    def __repr__(self) -> str:
        return f"ShardedArray({self.dtype}{list(self.shape)} in {len(self.shards)} parts)"

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_maps": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        _remember(self)

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if copy is False:
            raise ValueError("the rows lie in several files: no array without a copy")
        every = self._slice(slice(None), ())
        return every.astype(self.dtype if dtype is None else dtype, copy=len(self.shards) == 1)

    def __getitem__(self, index: Any) -> Any:
        index = index if isinstance(index, tuple) else (index,)
        rows, rest = (index[0], index[1:]) if index else (..., ())
        if rows is Ellipsis:  # the rows are among what it stands for, unless all axes are named behind it
            named = sum(one is not None for one in rest)
            return self[rest] if named == len(self.shape) else self[(slice(None), *index)]
        if isinstance(rows, slice):
            return self._slice(rows, rest)
        if isinstance(rows, list | np.ndarray):
            return self._take(np.asarray(rows), rest)
        return self._row(rows, rest)

    def shard(self, number: int) -> NDArray[Any]:
        """Its memory map."""
        found = self._maps.get(number)
        if found is None:
            found = self._maps[number] = self.shards[number].open()
        return found

    def forget(self) -> None:
        """The maps: files of which nobody has a view are closed."""
        self._maps.clear()

    def locate(self, row: int) -> tuple[int, int]:
        """The shard that has a row, and the row's number there."""
        number = bisect_right(self.starts, row) - 1
        return number, row - self.starts[number]

    def _row(self, index: Any, rest: tuple[Any, ...]) -> Any:
        if index is None or isinstance(index, bool | np.bool_):
            raise IndexError(f"rows of a data set in shards are read by their numbers, not by {index}")
        row = operator.index(index)
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        number, inside = self.locate(row % len(self))
        return np.asarray(self.shard(number))[(inside, *rest)]  # indexing a memory map itself is slow

    def _slice(self, rows: slice, rest: tuple[Any, ...]) -> NDArray[Any]:
        first, last, step = rows.indices(len(self))
        if step != 1:
            raise IndexError("rows of a data set in shards are read one after the other: slices have step 1")
        if any(isinstance(one, list | np.ndarray) for one in rest):  # where its axis goes depends on the whole
            return self._slice(rows, ())[(slice(None), *rest)]
        last = max(first, last)
        begin, end = (self.locate(min(row, len(self) - 1))[0] for row in (first, max(first, last - 1)))
        found = self._piece(begin, first, last, rest)
        if begin < end:
            part, found = found, np.empty((last - first, *found.shape[1:]), self.dtype)
            found[: len(part)] = part
            for number in range(begin + 1, end + 1):  # copied at once: a view would keep a file open
                place = self.starts[number] - first
                found[place : place + self.shards[number].shape[0]] = self._piece(number, first, last, rest)
        return found

    def _piece(self, number: int, first: int, last: int, rest: tuple[Any, ...]) -> NDArray[Any]:
        """Of these rows those in one shard."""
        start = self.starts[number]
        return np.asarray(self.shard(number))[(slice(max(first - start, 0), max(last - start, 0)), *rest)]

    def _take(self, rows: Int[np.ndarray, "..."], rest: tuple[Any, ...]) -> Any:
        if rows.size and rows.dtype.kind not in "iu":
            raise IndexError(f"rows of a data set in shards are read by their numbers, not by {rows.dtype}")
        found = np.empty((rows.size, *self.shape[1:]), self.dtype)
        for place, row in enumerate(rows.reshape(-1).tolist()):
            found[place] = self._row(row, ())
        numbers = np.arange(rows.size).reshape(rows.shape)
        return found[(numbers, *rest)] if rest else found.reshape(*rows.shape, *self.shape[1:])


_ALL: WeakSet[ShardedArray] = WeakSet()
_ONE_AT_A_TIME = Lock()


def _remember(array: ShardedArray) -> None:
    with _ONE_AT_A_TIME:
        _ALL.add(array)


def forget_maps() -> None:
    """Of all arrays of this process: files are open for each of them."""
    with _ONE_AT_A_TIME:
        for array in _ALL:
            array.forget()


StoredArray = NDArray[Any] | ShardedArray
"""What a key of a split is: a memory map, pictures in memory, or shards."""


def in_file(array: StoredArray, number: int) -> NDArray[Any]:
    """What lies in one file: a shard, or the whole of an array that has none."""
    return array.shard(number) if isinstance(array, ShardedArray) else array
