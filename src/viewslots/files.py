"""Files on a disk that may be full, read-only, cut off or shared: each becomes one clear line.

Atomic writes, folder locks, append-only files, checksums, and JSON that nobody vouches for.
"""

import errno
import glob
import hashlib
import io
import json
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from viewslots.errors import UserError

JSON_LIMIT = 4 * 2**20
"""No JSON file of ours comes near 4 MiB; reading one that does is refused."""

FREE_TOTAL = 4 * 2**30
"""Files may unpack to this much whatever their size;"""
MAX_RATIO = 256
"""beyond it to this many times their size. Real files of this field reach about 100, empty promises any number."""

SPARE_FILES = 32
"""Maps leave room for so many more: checkpoints, logs, pipes, sockets."""

FULL = (errno.ENOSPC, errno.EDQUOT)
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)


def shown(value: object, limit: int = 80) -> str:
    """Foreign text, made fit for one line of a message."""
    try:
        text = " ".join(repr(value).split())
    except (RecursionError, ValueError):
        text = f"{type(value).__name__} that is too deep or too large to be shown"
    return text if len(text) <= limit else text[:limit] + "..."


def printable(text: str, limit: int = 200) -> str:
    """Foreign text as a name: one line, nothing that a terminal would obey, not too long."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:limit])


@contextmanager
def plain_errors(doing: str, path: Path) -> Iterator[None]:
    """Turn what the operating system refuses into a UserError."""
    try:
        yield
    except OSError as error:
        raise UserError(_explain(doing, path, error)) from error


def _explain(doing: str, path: Path, error: OSError) -> str:
    if error.errno in FULL or "No space left" in str(error):
        return f"disk full while {doing} {path}: free some space and run the same command again"
    if error.errno in FORBIDDEN:
        return f"no permission while {doing} {path}: choose another place or change the permissions"
    if error.errno == errno.ENOENT:
        return f"{error.filename or path}: no such file or folder"
    if error.errno == errno.EMFILE:
        return f"too many open files while {doing} {path}: allow more with `ulimit -n`"
    reason = error.strerror or str(error)
    return f"error while {doing} {path}: {' '.join(reason.split())[:200]}"


def require_space(folder: Path, needed: int) -> None:
    """Refuse ahead of time what cannot fit."""
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UserError(f"{folder}: needs {readable(needed)}, but only {readable(free)} are free on that disk")


def require_total(logical: int, path: Path) -> None:
    """Refuse files whose datasets unpack to far more than their size can justify."""
    limit = max(FREE_TOTAL, MAX_RATIO * path.stat().st_size)
    if logical > limit:
        raise UserError(
            f"{path}: would unpack to {readable(logical)}, more than its size justifies ({readable(limit)})"
        )


def readable(size: int) -> str:
    if size < 1024:
        return f"{size} bytes"
    amount = size / 1024
    for unit in ("KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def open_regular(path: Path) -> io.BufferedReader:
    """Open for reading, unless it is a device or a pipe, which could block or never end."""
    with plain_errors("reading", path):
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise UserError(f"{path}: not a regular file")
    return os.fdopen(handle, "rb")


def allowed_files() -> int:
    """How many files this process may have open."""
    if sys.platform == "win32":
        return sys.maxsize
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def room_beside(handle: int) -> bool:
    """Whether more files can be opened than there are; the limit is raised where the system lets us.

    `handle`: any open file. Its copy gets the lowest number that is free, which tells how many there are.
    """
    free = os.dup(handle)
    os.close(free)
    if free + SPARE_FILES < allowed_files() or sys.platform == "win32":
        return True
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * soft if hard == resource.RLIM_INFINITY else min(2 * soft, hard)
    with suppress(ValueError, OSError):  # macOS names no limit and has one
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return free + SPARE_FILES < allowed_files()


def require_regular(path: Path) -> None:
    """Only a regular file is ever replaced: a rename over a device, a pipe or a link would destroy it."""
    with plain_errors("writing", path), suppress(FileNotFoundError):
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise UserError(f"{path}: not a regular file, and would be replaced; choose another place")


def require_file(out: Path) -> None:
    """Before hours of work: a place where the file --out can be written; its folder is made."""
    with plain_errors("writing", out):
        _require_name(out, "--out")
        if out.is_dir():
            raise UserError(f"--out: {out} is a folder; name a file in it, such as {out / 'results.json'}")
        require_regular(out)
        out.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(out.parent, os.W_OK):
            raise UserError(f"--out: no permission to write to {out.parent}; choose another place")


def require_folder(out: Path, option: str = "--out") -> None:
    """The same for a folder, which is not made yet."""
    with plain_errors("writing", out):
        _require_name(out, option)
        if os.path.lexists(out) and not out.is_dir():
            raise UserError(f"{option}: {out} is a file; name a folder")


def require_new(out: Path) -> None:
    """The same for a file or a folder that is made under another name and renamed: nothing is there yet."""
    with plain_errors("writing", out):
        _require_name(out, "--out")
        if os.path.lexists(out):
            raise UserError(f"{out}: already exists; choose another place or remove it")


def make_folder(path: Path) -> None:
    """Below a place that is ours already: a folder that lies there may be a link that somebody planted."""
    require_own_links(path)
    path.mkdir(exist_ok=True)


def require_own_links(path: Path, option: str = "") -> None:
    """A link leads where its owner wants. Links are followed, as people keep data on other disks, but not those that
    another user planted in a folder where everybody may write (Linux calls this rule protected_symlinks)."""
    if not hasattr(os, "geteuid"):  # Windows, where making a link needs rights
        return
    for link in _links(path):
        owner, folder = os.lstat(link).st_uid, os.stat(link.parent)
        if folder.st_mode & stat.S_IWOTH and owner not in (0, os.geteuid(), folder.st_uid):
            raise UserError(
                f"{option + ': ' if option else ''}{link} is a link of another user in a folder where everybody may "
                "write, so it may lead anywhere; choose another place, or remove it"
            )


def _links(path: Path) -> Iterator[Path]:
    """All links on the way to a place, through those that they lead to."""
    ways, seen = [path.absolute()], set[Path]()
    while ways:
        way = ways.pop()
        for part in (way, *way.parents):
            if part not in seen and part.is_symlink():
                seen.add(part)
                ways.append(part.parent / part.readlink())
                yield part


def _require_name(out: Path, option: str) -> None:
    """Some of the libraries that write take UTF-8 alone."""
    try:
        str(out).encode()
    except UnicodeEncodeError:
        raise UserError(f"{option}: {shown(str(out))} is no text in UTF-8; choose another name") from None
    require_own_links(out, option)


def sha256(path: Path) -> str:
    with open_regular(path) as file, plain_errors("reading", path):
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_bounded(path: Path, limit: int) -> bytes:
    """A file nobody vouches for: regular, and not larger than any of ours."""
    with open_regular(path) as file, plain_errors("reading", path):
        content = file.read(limit + 1)
    if len(content) > limit:
        raise UserError(f"{path}: larger than {readable(limit)}, not a file of ours")
    return content


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from such a file, without duplicate names, NaN or infinities."""
    text = read_bounded(path, JSON_LIMIT)
    try:
        value = json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: damaged JSON ({' '.join(str(error).split())[:120]})") from error
    if not isinstance(value, dict):
        raise NotAnObject(f"{path}: holds {type(value).__name__} where an object is expected")
    return value


class NotAnObject(UserError):
    """JSON, but of another kind than anything of ours."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("the same name twice in one object")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def plain_zeros(value: Any) -> Any:
    """The same with 0.0 for -0.0, which is no news to whoever reads it."""
    if isinstance(value, Mapping):
        return {name: plain_zeros(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain_zeros(part) for part in value]
    return value + 0.0 if isinstance(value, float) else value


def write_json(path: Path, value: object) -> None:
    """All or nothing, also through a power cut."""
    with replacing(path) as draft, open(draft, "w", encoding="utf-8") as file:
        json.dump(plain_zeros(value), file, indent=1, allow_nan=False)
        file.write("\n")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A draft to fill; flushed and renamed if all went well, removed if not."""
    draft = path.with_name(path.name + ".tmp")
    require_regular(path)
    require_regular(draft)
    try:
        yield draft
        flush_file(draft)
        os.replace(draft, path)
        flush_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


@contextmanager
def drafting(out: Path) -> Iterator[Path]:
    """A name beside `out`, for a file or a folder that takes long to write; renamed if all went well, removed if not.

    What a killed process left there goes first.
    """
    for left in out.parent.glob(f".{glob.escape(out.name)}.*.partial"):
        if not _is_alive(left.name.split(".")[-2]):
            _remove(left)
    draft = out.with_name(f".{out.name}.{os.getpid()}.partial")
    try:
        yield draft
        os.replace(draft, out)
        flush_folder(out.parent)
    finally:
        _remove(draft)


def _is_alive(process: str) -> bool:
    """Unless we know better."""
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except (OSError, ValueError):
        pass
    return True


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def flush_file(path: Path) -> None:
    """Flushing is a matter of the file, whoever wrote it."""
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_folder(folder: Path) -> None:
    """Make renames and removals in a folder durable; Windows has no such call and needs none."""
    if sys.platform == "win32":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class FolderLock:
    """Held by the one process that may write a folder; the system drops it when that process dies."""

    def __init__(self, path: Path, option: str = "--out") -> None:
        """`option` names what the user may choose differently."""
        self._path = path
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        if not self._acquire():
            os.close(self._handle)
            raise UserError(
                f"{path.parent}: another process is writing this folder; wait for it or choose another {option}"
            )

    def _acquire(self) -> bool:
        if sys.platform == "win32":
            return True
        import fcntl

        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The file may have been removed by its last owner between our open and our lock.
            return os.fstat(self._handle).st_ino == os.stat(self._path).st_ino
        except (BlockingIOError, FileNotFoundError):
            return False

    def release(self) -> None:
        """Removes the file while the lock is still held."""
        self._path.unlink(missing_ok=True)
        os.close(self._handle)


@dataclass(frozen=True)
class FileEntry:
    """What is on record of a file."""

    bytes: int
    sha256: str


class AppendOnlyFile:
    """Unbuffered: what `append` has taken, the operating system has, and a kill does not lose it."""

    def __init__(self, path: Path, keep: int) -> None:
        """Opens or creates; what lies beyond the first `keep` bytes was never confirmed and is cut off."""
        require_regular(path)
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


class Fields:
    """Each method answers with a value of its type or raises a UserError."""

    def __init__(self, raw: Mapping[str, Any], path: Path) -> None:
        self.raw = raw
        self._path = path

    def _wrong(self, name: str, expected: str) -> UserError:
        found = shown(self.raw[name]) if name in self.raw else "missing"
        return UserError(f"{self._path}: {shown(name)} must be {expected}, but is {found}")

    def integer(self, name: str, low: int, high: int, optional: bool = False) -> int | None:
        value = self.raw.get(name)
        if value is None and optional and name in self.raw:
            return None
        if type(value) is not int or not low <= value <= high:
            raise self._wrong(name, f"an integer in {low}..{high}")
        return value

    def whole(self, name: str, low: int, high: int) -> int:
        value = self.integer(name, low, high)
        assert value is not None
        return value

    def text(self, name: str, optional: bool = False) -> Any:
        """A short printable string (or None where optional)."""
        value = self.raw.get(name)
        if value is None and optional and name in self.raw:
            return None
        if not isinstance(value, str) or len(value) > 200 or not value.isprintable():
            raise self._wrong(name, "a short text")
        return value

    def digest(self, name: str) -> str:
        value = self.raw.get(name)
        if not isinstance(value, str) or not re.fullmatch("[0-9a-f]{64}", value):
            raise self._wrong(name, "64 hexadecimal digits")
        return value

    def mapping(self, name: str) -> Mapping[str, Any]:
        value = self.raw.get(name)
        if not isinstance(value, dict):
            raise self._wrong(name, "an object")
        return value
