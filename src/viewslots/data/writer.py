"""Writing a data set safely: the one piece of code behind generating and importing.

Arrays grow by plain appends (never through memory maps, where a full disk kills the process), making.json says what
the data set will be and how much of each part of it is flushed, and meta.json comes last. So an interruption at any
point leaves a folder that does not open as a data set and that the same plan can finish, byte for byte.
"""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from viewslots.data.format import DESCRIPTIONS, KEYS, META, DatasetPlan, Meta, Part, Source, bytes_per_scene, parse_plan
from viewslots.data.store import HEADER_BYTES, LINE_LIMIT, MAKING, header
from viewslots.errors import UserError
from viewslots.files import (
    AppendOnlyFile,
    Fields,
    FileEntry,
    FolderLock,
    flush_folder,
    plain_errors,
    read_json,
    require_folder,
    require_regular,
    require_space,
    shown,
    write_json,
)

LOCK = "making.lock"
OURS = {MAKING, MAKING + ".tmp", META + ".tmp", LOCK}
"""What an interrupted writer may leave beside the folders of its splits."""

FLUSH_SECONDS = 5.0
"""At most this much work is lost: flushing after every batch would cost more than rendering it on a GPU."""


class Done(NamedTuple):
    """Scenes and bytes of descriptions of a part; one value, so that Ctrl-C cannot come between the two."""

    scenes: int
    described_bytes: int


NOTHING = Done(0, 0)


class News(NamedTuple):
    """What is safely on the disk of a part, by its folder; with the record of its files when it is complete."""

    folder: str
    done: Done
    files: Mapping[str, FileEntry]


class PartFiles:
    """The files of one part, opened where an earlier writer stopped."""

    def __init__(self, path: Path, plan: DatasetPlan, part: Part, done: Done) -> None:
        self.plan, self.part, self.done = plan, part, done
        self._path, self._size = path, plan.part_size(part)
        self._files: dict[str, AppendOnlyFile] = {}
        for folder in _folders(path, part):
            folder.mkdir(exist_ok=True)
            _refuse_link(folder)
        try:
            for name in plan.files_of(part):
                self._files[name] = self._open(name)
        except BaseException:
            self.close()
            raise

    @property
    def complete(self) -> bool:
        return self.done.scenes == self.part.scenes

    def append(self, arrays: Mapping[str, NDArray[Any]], descriptions: Sequence[Mapping[str, Any]]) -> None:
        """Add the next scenes."""
        count = len(arrays["image"])
        self._check(arrays, count)
        lines = b"".join(_line(description) for description in descriptions)
        if self.plan.has_descriptions and len(descriptions) != count:
            raise ValueError(f"{count} scenes with {len(descriptions)} descriptions")
        for name, file in self._files.items():
            file.append(lines if name.endswith(DESCRIPTIONS) else np.ascontiguousarray(arrays[Path(name).stem]).data)
        self.done = Done(self.done.scenes + count, self.done.described_bytes + len(lines))

    def flush(self) -> News:
        done = self.done
        for file in self._files.values():
            file.flush()
        if not self.complete:
            return News(self.part.folder, done, {})
        for folder in _folders(self._path, self.part):
            flush_folder(folder)
        return News(self.part.folder, done, {name: file.entry() for name, file in self._files.items()})

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _open(self, name: str) -> AppendOnlyFile:
        kept = _kept_bytes(self.plan, self.part, self.done, name)
        file = AppendOnlyFile(self._path / name, kept)
        if not kept and not name.endswith(DESCRIPTIONS):
            key = KEYS[Path(name).stem]
            file.append(header(key.shape(self._size), key.dtype))
        return file

    def _check(self, arrays: Mapping[str, NDArray[Any]], count: int) -> None:
        """Whoever renders or reads must answer in the contract's shapes; anything else is a fault of ours."""
        if self.done.scenes + count > self.part.scenes:
            raise ValueError(f"more than {self.part.scenes} scenes for {self.part.folder}")
        for key in self.plan.keys_of(self.part.split):
            shape = (count, *KEYS[key].shape(self._size)[1:])
            if arrays[key].shape != shape or arrays[key].dtype != KEYS[key].dtype:
                raise ValueError(f"{key} is {arrays[key].dtype}{arrays[key].shape}, not {KEYS[key].dtype}{shape}")


class PartsWriter:
    """Fills parts of a data set and tells what is on the disk. Those that are complete are closed at once."""

    def __init__(self, path: Path, plan: DatasetPlan, begun: Mapping[str, Done]) -> None:
        """`begun`: what earlier writers have left of each part."""
        self.path, self.plan = path, plan
        self._begun = begun
        self._open: dict[str, PartFiles] = {}
        self._complete: set[str] = set()
        self._flushed_at = time.monotonic()

    def __enter__(self) -> "PartsWriter":
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def append(
        self, part: Part, arrays: Mapping[str, NDArray[Any]], descriptions: Sequence[Mapping[str, Any]] = ()
    ) -> list[News]:
        """Add the next scenes of a part."""
        with plain_errors("writing", self.path):
            files = self._opened(part)
            files.append(arrays, descriptions)
            news = [self._finished(files)] if files.complete else []
            return news + (self.flush() if time.monotonic() - self._flushed_at >= FLUSH_SECONDS else [])

    def record_of(self, part: Part) -> News:
        """Of a part that an earlier writer completed."""
        with plain_errors("writing", self.path):
            return self._finished(self._opened(part))

    def flush(self) -> list[News]:
        news = [files.flush() for files in self._open.values()]
        self._flushed_at = time.monotonic()
        return news

    def close(self) -> None:
        for files in self._open.values():
            files.close()

    def _opened(self, part: Part) -> PartFiles:
        if part.folder in self._complete:
            raise ValueError(f"more than {part.scenes} scenes for {part.folder}")
        if part.folder not in self._open:
            self._open[part.folder] = PartFiles(self.path, self.plan, part, self._begun[part.folder])
        return self._open[part.folder]

    def _finished(self, files: PartFiles) -> News:
        news = files.flush()
        files.close()
        del self._open[files.part.folder]
        self._complete.add(files.part.folder)  # what `begun` says of it is no longer so
        return news


class StoreWriter:
    """Fills a folder according to a plan, or goes on where an earlier writer of the same plan stopped.

    A context manager: leaving it without `finish` keeps what is done for the next attempt. Parts may be filled
    through it (`append`) or by other processes, whose news it is told (`record`).
    """

    def __init__(self, out: str | Path, plan: DatasetPlan) -> None:
        self.path = Path(out)
        self.plan = plan
        self.begun = {part.folder: NOTHING for part in plan.parts()}
        self._files: dict[str, FileEntry] = {}
        self._finished = False
        parse_plan(plan.to_json(), self.path / MAKING)  # what could not be read again is refused before it is written
        with plain_errors("writing", self.path):
            require_free(self.path)
            self._created = not self.path.exists()
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = FolderLock(self.path / LOCK)
            try:
                self._start()
            except BaseException:
                self._lock.release()
                if self._created:
                    with suppress(OSError):  # not empty: something of it may be worth keeping
                        self.path.rmdir()
                raise
        self._written = {folder: done.scenes for folder, done in self.begun.items()}
        self._parts = PartsWriter(self.path, self.plan, self.begun)

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._finished:
            with suppress(OSError):  # the reason we are leaving matters more
                self.record(self._parts.flush())
        self.close()

    def done(self, split: str) -> int:
        """How many scenes of a split are written."""
        return sum(self._written[part.folder] for part in self.plan.parts(split))

    def append(
        self, part: Part, arrays: Mapping[str, NDArray[Any]], descriptions: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Add the next scenes of a part."""
        self.record(self._parts.append(part, arrays, descriptions))
        self._written[part.folder] += len(arrays["image"])

    def record(self, news: Sequence[News]) -> None:
        """Whatever these tell is on the disk: from now on it is not done again."""
        for folder, done, files in news:
            self._flushed[folder] = done
            self._files |= files
        if news:
            self._write_progress()

    def finish(self) -> Path:
        """Flush everything, write meta.json, and only then remove making.json: now it is a data set."""
        with plain_errors("writing", self.path):
            self.record(self._parts.flush())
            missing = {part.folder: part.scenes - self._flushed[part.folder].scenes for part in self.plan.parts()}
            if any(missing.values()):
                raise ValueError(f"scenes are missing: {missing}")
            for part in self.plan.parts():
                if not self._files.keys() >= set(self.plan.files_of(part)):
                    self._files |= self._parts.record_of(part).files
            files = {name: self._files[name] for name in self.plan.file_names()}
            write_json(self.path / META, Meta(self.plan, files).to_json())
            (self.path / MAKING).unlink()
            flush_folder(self.path)
        self._finished = True
        return self.path

    def discard(self) -> None:
        """Remove what was written, when it can never become a data set."""
        self._finished = True
        self._parts.close()
        for name in self.plan.file_names():
            (self.path / name).unlink(missing_ok=True)
        folders = [folder for part in self.plan.parts() for folder in _folders(self.path, part)]
        for folder in sorted(set(folders), reverse=True):  # shards before their splits
            with suppress(OSError):
                folder.rmdir()
        for name in OURS | {META}:
            (self.path / name).unlink(missing_ok=True)
        if self._created:
            with suppress(OSError):
                self.path.rmdir()

    def close(self) -> None:
        self._parts.close()
        self._lock.release()

    def _start(self) -> None:
        """Fresh folder or interrupted one: the state is judged only now that nobody else can change it."""
        require_free(self.path)
        if (self.path / MAKING).exists():
            self._resume()
        require_space(self.path, self._missing_bytes())
        self._flushed = dict(self.begun)
        self._write_progress()

    def _resume(self) -> None:
        path = self.path / MAKING
        fields = Fields(read_json(path), path)
        begun = parse_plan(fields.mapping("plan"), path)
        if begun != self.plan:
            raise UserError(
                f"{self.path}: holds another unfinished data set ({_difference(begun, self.plan)}); "
                "finish it with its own command, or remove the folder"
            )
        self.plan = begun  # equal, and in the order of splits that meta.json will have
        done = Fields(fields.mapping("done"), path)
        self.begun = {}
        for part in self.plan.parts():
            state = Fields(done.mapping(part.folder), path)
            scenes = state.whole("scenes", 0, part.scenes)
            self.begun[part.folder] = Done(scenes, state.whole("described_bytes", 0, LINE_LIMIT * part.scenes))
            self._require_kept(part)

    def _require_kept(self, part: Part) -> None:
        """What is on record as done must be there, as plain files in plain folders."""
        done = self.begun[part.folder]
        for folder in _folders(self.path, part):
            _refuse_link(folder)
        for name in self.plan.files_of(part) if done.scenes else ():
            path = self.path / name
            require_regular(path)
            if path.stat().st_size < _kept_bytes(self.plan, part, done, name):
                raise UserError(f"{path}: shorter than it was; remove the folder and start again")

    def _missing_bytes(self) -> int:
        return sum(
            (part.scenes - self.begun[part.folder].scenes)
            * bytes_per_scene(self.plan.keys_of(part.split), self.plan.size(part.split))
            for part in self.plan.parts()
        )

    def _write_progress(self) -> None:
        done = {folder: progress._asdict() for folder, progress in self._flushed.items()}
        write_json(self.path / MAKING, {"plan": self.plan.to_json(), "done": done})


def _folders(path: Path, part: Part) -> list[Path]:
    """Of a part, the outer one first."""
    return [path / name for name in dict.fromkeys((part.split, part.folder))]


def _refuse_link(folder: Path) -> None:
    if folder.is_symlink():
        raise UserError(f"{folder}: a link; remove it and start again")


def _kept_bytes(plan: DatasetPlan, part: Part, done: Done, name: str) -> int:
    """How much of a file is done."""
    if name.endswith(DESCRIPTIONS):
        return done.described_bytes
    kept = done.scenes * KEYS[Path(name).stem].scene_bytes(plan.size(part.split))
    return HEADER_BYTES + kept if kept else 0


def require_free(path: Path) -> None:
    """Refuse whatever we must not write into: a file, a finished data set, somebody's other files."""
    require_folder(path)
    if not path.exists() or (path / MAKING).exists():
        return
    if (path / META).exists():
        raise UserError(f"{path}: already a complete data set; choose another place or remove it")
    others = sorted(entry.name for entry in path.iterdir() if entry.name not in OURS)
    if others:
        raise UserError(f"{path}: not empty (it holds {others[0]}); choose an empty or new folder")


def _difference(begun: DatasetPlan | Source, wanted: DatasetPlan | Source) -> str:
    for name, value in vars(begun).items():
        other = getattr(wanted, name)
        if isinstance(value, Source) and isinstance(other, Source) and value != other:
            return f"{name}: {_difference(value, other)}"
        if value != other:
            return f"{name}: {shown(value, 120)} there, {shown(other, 120)} here"
    return "equal"


def _line(description: Mapping[str, Any]) -> bytes:
    line = json.dumps(description, separators=(",", ":"), allow_nan=False).encode("utf-8") + b"\n"
    if len(line) > LINE_LIMIT:
        raise ValueError(f"a scene description of {len(line)} bytes")
    return line
