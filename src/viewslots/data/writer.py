"""Writing a data set safely: the one piece of code behind generating and importing.

Arrays grow by plain appends (never through memory maps, where a full disk kills the process), making.json says what
the data set will be and how much of it is flushed, and meta.json comes last. So an interruption at any point leaves a
folder that does not open as a data set and that the same plan can finish, byte for byte.
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

from viewslots.data.format import DESCRIPTIONS, KEYS, META, Meta, Plan, Source, bytes_per_scene, parse_plan
from viewslots.data.store import HEADER_BYTES, LINE_LIMIT, MAKING, header
from viewslots.errors import UserError
from viewslots.files import (
    AppendOnlyFile,
    Fields,
    FolderLock,
    flush_folder,
    plain_errors,
    read_json,
    require_folder,
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
    """Scenes and bytes of descriptions of a split; one value, so that Ctrl-C cannot come between the two."""

    scenes: int
    described_bytes: int


NOTHING = Done(0, 0)


class StoreWriter:
    """Fills a folder according to a plan, or goes on where an earlier writer of the same plan stopped.

    A context manager: leaving it without `finish` keeps what is done for the next attempt.
    """

    def __init__(self, out: str | Path, plan: Plan) -> None:
        self.path = Path(out)
        self.plan = plan
        self._progress = dict.fromkeys(plan.splits, NOTHING)
        self._files: dict[str, AppendOnlyFile] = {}
        self._finished = False
        self._flushed_at = time.monotonic()
        parse_plan(plan.to_json(), self.path / MAKING)  # what could not be read again is refused before it is written
        with plain_errors("writing", self.path):
            require_free(self.path)
            self._created = not self.path.exists()
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = FolderLock(self.path / LOCK)
            try:
                self._start()
            except BaseException:
                self.close()
                if self._created:
                    with suppress(OSError):  # not empty: something of it may be worth keeping
                        self.path.rmdir()
                raise

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._finished:
            with suppress(OSError):  # the reason we are leaving matters more
                self._checkpoint()
        self.close()

    def done(self, split: str) -> int:
        """How many scenes of a split are written."""
        return self._progress[split].scenes

    def append(
        self, split: str, arrays: Mapping[str, NDArray[Any]], descriptions: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Add the next scenes of a split."""
        count = len(arrays["image"])
        self._check(split, arrays, count)
        lines = b"".join(_line(description) for description in descriptions)
        if self.plan.has_descriptions and len(descriptions) != count:
            raise ValueError(f"{count} scenes with {len(descriptions)} descriptions")
        with plain_errors("writing", self.path):
            for key in self.plan.keys_of(split):
                self._files[f"{split}/{key}.npy"].append(np.ascontiguousarray(arrays[key]).data)
            if self.plan.has_descriptions:
                self._files[f"{split}/{DESCRIPTIONS}"].append(lines)
            before = self._progress[split]
            self._progress[split] = Done(before.scenes + count, before.described_bytes + len(lines))
            if time.monotonic() - self._flushed_at >= FLUSH_SECONDS:
                self._checkpoint()

    def finish(self) -> Path:
        """Flush everything, write meta.json, and only then remove making.json: now it is a data set."""
        missing = {split: plan.scenes - self.done(split) for split, plan in self.plan.splits.items()}
        if any(missing.values()):
            raise ValueError(f"scenes are missing: {missing}")
        with plain_errors("writing", self.path):
            self._checkpoint()
            for split in self.plan.splits:
                flush_folder(self.path / split)
            files = {name: file.entry() for name, file in self._files.items()}
            write_json(self.path / META, Meta(self.plan, files).to_json())
            (self.path / MAKING).unlink()
            flush_folder(self.path)
        self._finished = True
        return self.path

    def discard(self) -> None:
        """Remove what was written, when it can never become a data set."""
        self._finished = True
        for name, file in self._files.items():
            file.close()
            (self.path / name).unlink(missing_ok=True)
        for split in self.plan.splits:
            with suppress(OSError):
                (self.path / split).rmdir()
        for name in OURS | {META}:
            (self.path / name).unlink(missing_ok=True)
        if self._created:
            with suppress(OSError):
                self.path.rmdir()

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._lock.release()

    def _start(self) -> None:
        """Fresh folder or interrupted one: the state is judged only now that nobody else can change it."""
        require_free(self.path)
        if (self.path / MAKING).exists():
            self._resume()
        require_space(self.path, self._missing_bytes())
        self._write_progress()
        for split in self.plan.splits:
            folder = self.path / split
            folder.mkdir(exist_ok=True)
            if folder.is_symlink():
                raise UserError(f"{folder}: a link; remove it and start again")
            for name in self.plan.file_names(split):
                self._files[name] = self._open(name, split)

    def _open(self, name: str, split: str) -> AppendOnlyFile:
        if name.endswith(DESCRIPTIONS):
            return AppendOnlyFile(self.path / name, self._progress[split].described_bytes)
        key = KEYS[Path(name).stem]
        size = self.plan.size(split)
        kept = self.done(split) * key.scene_bytes(size)
        file = AppendOnlyFile(self.path / name, HEADER_BYTES + kept if kept else 0)
        if not kept:
            file.append(header(key.shape(size), key.dtype))
        return file

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
        for split, plan in self.plan.splits.items():
            state = Fields(done.mapping(split), path)
            scenes = state.whole("scenes", 0, plan.scenes)
            self._progress[split] = Done(scenes, state.whole("described_bytes", 0, LINE_LIMIT * plan.scenes))

    def _missing_bytes(self) -> int:
        return sum(
            (plan.scenes - self.done(split)) * bytes_per_scene(self.plan.keys_of(split), self.plan.size(split))
            for split, plan in self.plan.splits.items()
        )

    def _checkpoint(self) -> None:
        for file in self._files.values():
            file.flush()
        self._write_progress()
        self._flushed_at = time.monotonic()

    def _write_progress(self) -> None:
        done = {split: progress._asdict() for split, progress in self._progress.items()}
        write_json(self.path / MAKING, {"plan": self.plan.to_json(), "done": done})

    def _check(self, split: str, arrays: Mapping[str, NDArray[Any]], count: int) -> None:
        """Whoever renders or reads must answer in the contract's shapes; anything else is a fault of ours."""
        size = self.plan.size(split)
        if self.done(split) + count > size.scenes:
            raise ValueError(f"more than {size.scenes} scenes for split {split}")
        for key in self.plan.keys_of(split):
            shape = (count, *KEYS[key].shape(size)[1:])
            if arrays[key].shape != shape or arrays[key].dtype != KEYS[key].dtype:
                raise ValueError(f"{key} is {arrays[key].dtype}{arrays[key].shape}, not {KEYS[key].dtype}{shape}")


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


def _difference(begun: Plan | Source, wanted: Plan | Source) -> str:
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
