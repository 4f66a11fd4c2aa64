"""The .npy files: a fixed 128-byte header, written and read without numpy's loader, so nothing in one is executed."""

import ast
import os
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from viewslots.data.disk import open_regular, plain_errors, shown
from viewslots.errors import UserError

MAGIC = b"\x93NUMPY\x01\x00"
HEADER_BYTES = 128
"""Ours is always this long: the bytes of a data set do not depend on the version of numpy that wrote it."""
HEADER_LIMIT = 1024
"""Headers that numpy itself wrote are accepted too, up to this length."""

DESCR = {"uint8": "|u1", "float32": "<f4"}


def header(shape: tuple[int, ...], dtype: str) -> bytes:
    """Version 1.0 of the format that `numpy.load` reads."""
    text = f"{{'descr': '{DESCR[dtype]}', 'fortran_order': False, 'shape': {shape!r}, }}"
    length = HEADER_BYTES - len(MAGIC) - 2
    return MAGIC + length.to_bytes(2, "little") + text.ljust(length - 1).encode("ascii") + b"\n"


def check_array(path: Path, shape: tuple[int, ...], dtype: str) -> int:
    """Where the data start, once header and real size agree with what is promised."""
    with open_regular(path) as file, plain_errors("reading", path):
        return _check(file, path, shape, dtype)


def map_array(path: Path, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """The array as a read-only memory map. Checked first: a map beyond the end of a file would kill the process."""
    with open_regular(path) as file, plain_errors("mapping", path):
        offset = _check(file, path, shape, dtype)
        return np.memmap(file, dtype=DESCR[dtype], mode="r", offset=offset, shape=shape)


def _check(file: IO[bytes], path: Path, shape: tuple[int, ...], dtype: str) -> int:
    found, offset = _read_header(file, path)
    expected = {"descr": DESCR[dtype], "fortran_order": False, "shape": shape}
    for name, value in expected.items():
        if type(found[name]) is not type(value) or found[name] != value:
            raise UserError(f"{path}: header says {name} {shown(found[name])}, but it must be {value!r}")
    size = os.fstat(file.fileno()).st_size
    promised = offset + int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
    if size != promised:
        raise UserError(f"{path}: {size} bytes long where its header promises {promised}; copy or make it again")
    return offset


def _read_header(file: IO[bytes], path: Path) -> tuple[dict[str, Any], int]:
    prefix = file.read(len(MAGIC) + 2)
    if len(prefix) < len(MAGIC) + 2 or not prefix.startswith(MAGIC):
        raise UserError(f"{path}: not a .npy file of version 1.0")
    length = int.from_bytes(prefix[-2:], "little")
    text = file.read(length)
    if length > HEADER_LIMIT or len(text) < length:
        raise UserError(f"{path}: truncated or oversized .npy header")
    try:
        value = ast.literal_eval(text.decode("ascii").strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise UserError(f"{path}: damaged .npy header") from error
    if not isinstance(value, dict) or set(value) != {"descr", "fortran_order", "shape"}:
        raise UserError(f"{path}: damaged .npy header")
    return value, len(prefix) + length
