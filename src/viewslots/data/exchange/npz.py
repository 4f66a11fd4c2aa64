"""Writing .npz files; and reading those that nobody vouches for: never pickles, never more than is declared."""

import math
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viewslots.errors import UserError
from viewslots.files import (
    open_regular,
    plain_errors,
    readable,
    replacing,
    require_own_links,
    require_regular,
    require_total,
    shown,
)


def require_npz(path: Path, otherwise: str = "") -> None:
    """Say ahead of the work that its result could not be written. `otherwise`: what else there is, in words."""
    if path.suffix != ".npz":
        raise UserError(f"{path}: arrays are written as .npz{otherwise}; give a name that ends so")
    if not path.parent.is_dir():
        raise UserError(f"{path.parent}: no such folder; create it first")
    require_own_links(path, "--out")
    require_regular(path)


def save_npz(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Path:
    """A handful of arrays as one file, whole or not at all."""
    require_npz(path)
    with plain_errors("writing", path), replacing(path) as draft, open(draft, "wb") as file:
        np.savez_compressed(file, **dict(arrays))  # type: ignore[arg-type]
    return path


PLAIN_KINDS = "fuib"
WHOLE_LIMIT = 2 * 2**30
"""Arrays in Fortran's order have their rows scattered and are read whole, up to this size."""


class NpzRows:
    """One array of an .npz, read once from its first row to its last."""

    def __init__(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo, where: str) -> None:
        self._stream = stream = archive.open(info)
        self.where = where
        if np.lib.format.read_magic(stream) != (1, 0):  # later versions allow headers of gigabytes
            raise UserError(f"{where}: written in a version of the .npy format other than 1.0")
        self.shape, self._fortran, self.dtype = np.lib.format.read_array_header_1_0(stream)
        if self.dtype.hasobject:
            raise UserError(f"{where}: holds Python objects (pickles), which are never loaded; save plain numbers")
        if self.dtype.kind not in PLAIN_KINDS or self.dtype.itemsize > 8:
            raise UserError(f"{where}: its type is {shown(str(self.dtype))}, but must be plain numbers")
        if any(extent < 0 for extent in self.shape) or info.file_size - stream.tell() != self.total_bytes:
            raise UserError(f"{where}: its header promises {shown(self.shape)}, but its data have another size")
        self._whole: NDArray[Any] | None = None
        self._next = 0

    @property
    def total_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def everything(self) -> NDArray[Any]:
        with reading(self.where):
            data = np.frombuffer(self._exactly(self.total_bytes), self.dtype)
            return _native(data.reshape(self.shape, order="F" if self._fortran else "C"))

    def next_rows(self, count: int) -> NDArray[Any]:
        """The next `count` entries along the first axis."""
        first, self._next = self._next, self._next + count
        if self._fortran:
            self._whole = self._gathered() if self._whole is None else self._whole
            return self._whole[first : self._next]
        shape = (count, *self.shape[1:])
        with reading(self.where):
            data = self._exactly(math.prod(shape) * self.dtype.itemsize)
            return _native(np.frombuffer(data, self.dtype).reshape(shape))

    def _gathered(self) -> NDArray[Any]:
        if self.total_bytes > WHOLE_LIMIT:
            size = readable(self.total_bytes)
            raise UserError(f"{self.where}: {size} in Fortran's order; save it through np.ascontiguousarray")
        return self.everything()

    def _exactly(self, size: int) -> bytearray:
        buffer = bytearray(size)
        view, filled = memoryview(buffer), 0
        while filled < size:
            part = self._stream.read(min(size - filled, 2**24))
            if not part:
                raise UserError(f"{self.where}: ends before the size that its header promises")
            view[filled : filled + len(part)] = part
            filled += len(part)
        return buffer


def _native(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(values.dtype.newbyteorder("="), copy=False)


class NpzFile:
    """An .npz whose arrays are opened by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open_regular(path)
        self._declared = 0
        try:
            with reading(str(path)):
                self._archive = zipfile.ZipFile(self._file)
        except UserError:
            self._file.close()
            raise
        names = (info.filename for info in self._archive.infolist())
        self.keys = [name.removesuffix(".npy") for name in names if name.endswith(".npy")]

    def __enter__(self) -> "NpzFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._archive.close()
        self._file.close()

    def open(self, key: str) -> NpzRows:
        """An array, refused where it declares more than the size of the file can justify."""
        where = f"{self.path}: {key}"
        info = self._archive.getinfo(f"{key}.npy")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise UserError(f"{where}: compressed in a way that numpy does not use; save it with np.savez_compressed")
        with reading(where):
            rows = NpzRows(self._archive, info, where)
        self._declared += rows.total_bytes
        require_total(self._declared, self.path)
        return rows


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Around every access to a foreign file: whatever is found broken in it becomes one line."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as error:  # damage surfaces in zipfile, zlib and numpy as any kind of exception
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise UserError(f"{where}: not a readable .npz file ({reason})") from error
