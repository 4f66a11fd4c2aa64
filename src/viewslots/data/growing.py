"""Files that grow by appending, hashed on the way, and cut back to what is known to be good."""

import hashlib
import os
from pathlib import Path

from viewslots.data.meta import FileEntry
from viewslots.errors import UserError


class GrowingFile:
    """Unbuffered: what `append` has taken, the operating system has, and a kill does not lose it."""

    def __init__(self, path: Path, keep: int) -> None:
        """Opens or creates; what lies beyond the first `keep` bytes was never confirmed and is cut off."""
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        self._file = os.fdopen(os.open(path, flags, 0o644), "r+b", buffering=0)
        self._hash = hashlib.sha256()
        self._flushed = True
        self.size = 0
        self._keep(keep, path)

    def _keep(self, keep: int, path: Path) -> None:
        if os.fstat(self._file.fileno()).st_size < keep:
            self._file.close()
            raise UserError(f"{path}: shorter than it was; remove the folder and start again")
        self._file.truncate(keep)
        while self.size < keep and (part := self._file.read(min(2**20, keep - self.size))):
            self._hash.update(part)
            self.size += len(part)

    def append(self, data: bytes | memoryview) -> None:
        view = memoryview(data).cast("B")
        self._flushed = False
        self._hash.update(view)
        self.size += len(view)
        while len(view):
            view = view[self._file.write(view) :]

    def flush(self) -> None:
        if not self._flushed:
            os.fsync(self._file.fileno())
            self._flushed = True

    def entry(self) -> FileEntry:
        return FileEntry(self.size, self._hash.hexdigest())

    def close(self) -> None:
        self._file.close()
