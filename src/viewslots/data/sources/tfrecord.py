"""TFRecord files of tf.Example, read without TensorFlow: framing, CRC-32C, and as much of protobuf as an Example needs.

A record is its length (u64), a checksum of that, its bytes, and a checksum of those. The file may be one gzip stream.
"""

import gzip
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO

import numpy as np
from jaxtyping import UInt8, UInt32

from viewslots.data.picture_files import one_line
from viewslots.errors import UserError
from viewslots.files import open_regular, plain_errors, readable

MOST_RECORD = 64 * 2**20
"""CLEVR's records, the largest we know, have 3 MiB."""
LANES = 4096
SMALL = 256
"""Below this many bytes a plain loop is faster."""


class Records:
    """The records of a file, one after another."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.next = 0
        self._raw = open_regular(path)
        with plain_errors("reading", path):
            zipped = self._raw.read(2) == b"\x1f\x8b"
            self._raw.seek(0)
        self._file: IO[bytes] = gzip.GzipFile(fileobj=self._raw) if zipped else self._raw  # type: ignore[assignment]

    def close(self) -> None:
        self._file.close()
        self._raw.close()

    def skip(self) -> bool:
        """Pass over a record without a look at its bytes; False at the end of the file."""
        length = self._length()
        if length is not None:
            self._exactly(length + 4)
            self.next += 1
        return length is not None

    def read(self) -> bytes:
        """The next record, its checksum verified."""
        length = self._length()
        if length is None:
            raise UserError(f"{one_line(self.path)}: ends before record {self.next}; the file has changed")
        data, check = self._exactly(length), self._exactly(4)
        if struct.unpack("<I", check)[0] != masked(crc32c(data)):
            raise UserError(f"{one_line(self.path)}: record {self.next}: damaged (its checksum differs); get it again")
        self.next += 1
        return data

    def _length(self) -> int | None:
        with self._reading():
            head = self._file.read(12)
        if not head:
            return None
        if len(head) < 12 or struct.unpack("<I", head[8:])[0] != masked(crc32c(head[:8])):
            what = "damaged (the checksum of its length differs)" if self.next else "not a TFRecord file"
            raise UserError(f"{one_line(self.path)}: record {self.next}: {what}")
        length = int(struct.unpack("<Q", head[:8])[0])
        if length > MOST_RECORD:
            raise UserError(
                f"{one_line(self.path)}: record {self.next}: {readable(length)} long, more than {readable(MOST_RECORD)}"
            )
        return length

    def _exactly(self, count: int) -> bytes:
        with self._reading():
            data = self._file.read(count)
        if len(data) < count:
            raise UserError(f"{one_line(self.path)}: record {self.next}: cut off; get the file again")
        return data

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            reason = " ".join(str(error).split())[:100]
            raise UserError(
                f"{one_line(self.path)}: record {self.next}: the gzip stream is damaged or cut off ({reason})"
            ) from error


def masked(crc: int) -> int:
    """As TFRecord stores a checksum."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _table() -> UInt32[np.ndarray, "256"]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(0x82F63B78), table >> 1)
    return table


TABLE = _table()
BYTES = TABLE.tolist()
AFTER = [TABLE]
"""What a byte makes of the checksum when 0, 1, 2, 3 more follow: four bytes are taken at a time."""
for _ in range(3):
    AFTER.append(TABLE[AFTER[-1] & 255] ^ AFTER[-1] >> 8)


def crc32c(data: bytes) -> int:
    """Castagnoli's CRC. Long data are cut into lanes that go side by side.

    It is linear, so zeros before the data change nothing once the start value lies in the first four bytes; lanes are
    joined in pairs: the left one moved on by as many zeros as the right one is long.
    """
    if len(data) < SMALL:
        crc = 0xFFFFFFFF
        for byte in data:
            crc = BYTES[(crc ^ byte) & 255] ^ crc >> 8
        return crc ^ 0xFFFFFFFF
    steps = -(-len(data) // (4 * LANES))
    padded = np.zeros(4 * steps * LANES, np.uint8)
    padded[-len(data) :] = np.frombuffer(data, np.uint8)
    padded[len(padded) - len(data) :][:4] ^= 255
    state = np.zeros(LANES, np.uint32)
    for word in np.ascontiguousarray(padded.view("<u4").reshape(LANES, steps).T):
        state ^= word
        low, high = AFTER[3][state & 255] ^ AFTER[2][state >> 8 & 255], AFTER[1][state >> 16 & 255]
        state = low ^ high ^ AFTER[0][state >> 24]
    length = 4 * steps
    while len(state) > 1:
        state = _moved(state[0::2], zeros(length)) ^ state[1::2]
        length *= 2
    return int(state[0]) ^ 0xFFFFFFFF


@lru_cache(maxsize=64)
def zeros(count: int) -> UInt32[np.ndarray, "32"]:
    """What `count` zero bytes make of each bit of a checksum."""
    if count == 0:
        return np.uint32(1) << np.arange(32, dtype=np.uint32)
    half = zeros(count // 2)
    both = _moved(half, half)
    return TABLE[both & 255] ^ both >> 8 if count % 2 else both


def _moved(state: UInt32[np.ndarray, "n"], bits: UInt32[np.ndarray, "32"]) -> UInt32[np.ndarray, "n"]:
    chosen = np.where(state[:, None] >> np.arange(32, dtype=np.uint32) & 1, bits, np.uint32(0))
    return np.bitwise_xor.reduce(chosen, axis=1)


VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
ONE_BYTE = (0x0A, 0x01)
"""Tag and length before each byte, where every byte is an entry of its own."""


def fields(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Number and content of the delimited fields of a message; others are passed over."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        kind = tag & 7
        if kind == DELIMITED:
            length, place = _varint(data, place)
            if place + length > len(data):
                raise ValueError("a field is longer than its message")
            yield tag >> 3, data[place : place + length]
            place += length
        elif kind == VARINT:
            _, place = _varint(data, place)
        elif kind in (FIXED32, FIXED64):
            place += 4 if kind == FIXED32 else 8
        else:
            raise ValueError(f"a field of the unknown type {kind}")


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(data) and shift < 64:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
    raise ValueError("a broken number")


def example(data: bytes) -> dict[str, tuple[int, memoryview]]:
    """Features of a tf.Example: kind of list (1 bytes, 2 floats, 3 integers) and its content."""
    found = {}
    for number, features in fields(memoryview(data)):
        for entry_number, entry in fields(features) if number == 1 else ():
            parts = dict(fields(entry)) if entry_number == 1 else {}
            if {1, 2} <= set(parts):
                kinds = list(fields(parts[2]))
                if kinds:
                    found[bytes(parts[1]).decode("utf-8")] = kinds[0]
    return found


def bytes_list(content: memoryview) -> UInt8[np.ndarray, "N"]:
    """All entries joined."""
    values = np.frombuffer(content, np.uint8)
    if len(values) % 3 == 0:
        triples = values.reshape(-1, 3)
        if (triples[:, 0] == ONE_BYTE[0]).all() and (triples[:, 1] == ONE_BYTE[1]).all():
            return triples[:, 2]
    parts = [np.frombuffer(part, np.uint8) for number, part in fields(content) if number == 1]
    return np.concatenate(parts) if parts else np.empty(0, np.uint8)


def float_list(content: memoryview) -> np.ndarray:
    """Packed floats."""
    parts = [np.frombuffer(part, "<f4") for number, part in fields(content) if number == 1]
    return np.concatenate(parts) if parts else np.empty(0, np.float32)
