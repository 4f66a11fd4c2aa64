"""Checkpoints: complete or not there, checked when read, the last few kept. Safetensors and JSON, never pickle.

A checkpoint is step-00012000.safetensors and step-00012000.json. The JSON comes last and carries the checksums, so a
kill at any moment leaves either the whole of it or nothing that counts.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save_file

from viewslots.errors import UserError
from viewslots.files import (
    flush_file,
    flush_folder,
    open_regular,
    plain_errors,
    read_json,
    require_space,
    sha256,
    write_json,
)
from viewslots.training.state import TrainState, finite_json

FORMAT_VERSION = 1
OURS = re.compile(r"step-(\d{8,})\.(safetensors|json)(\.tmp)?")
DRAFTS = "drafts.tmp"
SIDECAR_ROOM = 2**20
"""Far more than a JSON of ours needs beside the tensors."""


class Damaged(UserError):
    """A checkpoint that cannot be trusted; the one before it may be."""


def save_checkpoint(folder: Path, state: TrainState, *, keep: int = 3, pinned: Collection[int] = ()) -> Path:
    """Write a checkpoint; only when it is durable remove those beyond the last `keep`, except pinned steps.

    Later steps go as well: whoever saves an earlier one has gone on from before them.
    """
    path = _tensors_file(folder, state.step)
    with plain_errors("writing", path):
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        require_space(folder, sum(value.nbytes for value in state.tensors.values()) + SIDECAR_ROOM)
        try:
            checksum, size = _write(path, state)
            write_json(_sidecar_file(folder, state.step), _sidecar(state, checksum, size))
        except BaseException:
            with suppress(OSError):  # the reason we are leaving matters more
                _sweep(folder)
            raise
        _prune(folder, state.step, max(keep, 1), pinned)
    return path


def load_newest(folder: Path, warn: Callable[[str], None]) -> TrainState | None:
    """The newest checkpoint that is whole, with a warning for every newer one; None where none was ever completed."""
    sidecars, orphans = _steps(folder, "json"), _steps(folder, "safetensors")
    orphans -= sidecars
    for step in sorted(sidecars | orphans, reverse=True):
        if step in orphans:
            warn(f"{_tensors_file(folder, step)}: never completed (it has no .json), skipped")
            continue
        try:
            return load_step(folder, step)
        except Damaged as error:
            warn(f"{error}; skipped")
    # One save that was cut off leaves one orphan at most; more mean that somebody lost the .json files.
    if sidecars or len(orphans) > 1:
        raise UserError(f"{folder}: all {len(sidecars | orphans)} checkpoints are damaged; start a new run")
    return None


def load_step(folder: Path, step: int) -> TrainState:
    """One checkpoint, its size and checksums verified."""
    path = _tensors_file(folder, step)
    sidecar = _read_sidecar(folder, step)
    with _damage(), open_regular(path) as file, plain_errors("reading", path):
        size = os.fstat(file.fileno()).st_size
        data = file.read() if size == sidecar["bytes"] else b""
    if size != sidecar["bytes"]:
        raise Damaged(f"{path}: damaged ({size} bytes instead of {sidecar['bytes']})")
    if hashlib.sha256(data).hexdigest() != sidecar["sha256"]:
        raise Damaged(f"{path}: damaged (its checksum differs)")
    try:
        return TrainState(step, load(data), sidecar["facts"])
    except SafetensorError as error:
        raise Damaged(f"{path}: damaged ({error})") from error


def saved_steps(folder: Path) -> list[int]:
    """Steps of all checkpoints, damaged ones included; the newest first."""
    return sorted(_steps(folder, "json"), reverse=True)


def read_facts(folder: Path, step: int) -> dict[str, Any]:
    """What a checkpoint holds beside its tensors."""
    facts: dict[str, Any] = _read_sidecar(folder, step)["facts"]
    return facts


def _tensors_file(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}.safetensors"


def _sidecar_file(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08d}.json"


def _steps(folder: Path, ending: str) -> set[int]:
    """Steps that have a file of this kind."""
    if not folder.is_dir():
        return set()
    matches = [OURS.fullmatch(entry.name) for entry in folder.iterdir()]
    return {int(match[1]) for match in matches if match and match[2] == ending and not match[3]}


def _seal(values: dict[str, Any]) -> str:
    """A checksum of the sidecar itself, so that no byte of a checkpoint is taken on trust."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, allow_nan=False).encode()).hexdigest()


def _sidecar(state: TrainState, checksum: str, size: int) -> dict[str, Any]:
    values = {"format_version": FORMAT_VERSION, "step": state.step, "sha256": checksum, "bytes": size}
    values |= {"facts": finite_json(state.facts)}
    return values | {"seal": _seal(values)}


def _read_sidecar(folder: Path, step: int) -> dict[str, Any]:
    path = _sidecar_file(folder, step)
    with _damage():
        values = read_json(path)
    if values.pop("seal", None) != _seal(values):
        raise Damaged(f"{path}: damaged (its checksum differs)")
    if values["format_version"] > FORMAT_VERSION:
        version = values["format_version"]
        raise UserError(f"{path} has format version {version}, newer than {FORMAT_VERSION}: please update viewslots")
    if values["step"] != step:
        raise Damaged(f"{path}: damaged (it is of step {values['step']})")
    return values


@contextmanager
def _damage() -> Iterator[None]:
    """What cannot be read is damaged, unless the user need only grant permission."""
    try:
        yield
    except UserError as error:
        if isinstance(error.__cause__, PermissionError):
            raise
        raise Damaged(str(error)) from error


def _write(path: Path, state: TrainState) -> tuple[str, int]:
    """Checksum and size of the file. In a folder of its own, because safetensors makes a draft under a random name."""
    draft = path.parent / DRAFTS / path.name
    draft.parent.mkdir()
    with disk_errors():
        save_file(state.tensors, draft)
    draft.chmod(0o666 & path.parent.stat().st_mode)  # safetensors lets nobody else read its files
    flush_file(draft)
    written = sha256(draft), draft.stat().st_size
    os.replace(draft, path)
    draft.parent.rmdir()
    flush_folder(path.parent)
    return written


@contextmanager
def disk_errors() -> Iterator[None]:
    """What the disk refuses, as safetensors words it."""
    try:
        yield
    except SafetensorError as error:
        raise OSError(str(error)) from error


def _sweep(folder: Path) -> None:
    """Remove what never became part of a checkpoint: drafts, and tensors without their JSON."""
    shutil.rmtree(folder / DRAFTS, ignore_errors=True)
    for entry in list(folder.iterdir()):
        match = OURS.fullmatch(entry.name)
        orphan = match and match[2] == "safetensors" and not _sidecar_file(folder, int(match[1])).exists()
        if match and (match[3] or orphan):
            entry.unlink(missing_ok=True)


def _prune(folder: Path, newest: int, keep: int, pinned: Collection[int]) -> None:
    """The JSON goes first: what has none counts for nothing. Cut-off ones do not take the place of good ones."""
    steps = _steps(folder, "json")
    good = sorted(step for step in steps if step <= newest and _looks_whole(folder, step))
    stay = set(good[-keep:]) | (set(pinned) & set(good))
    for step in sorted(steps - stay):
        _sidecar_file(folder, step).unlink(missing_ok=True)
        _tensors_file(folder, step).unlink(missing_ok=True)
    flush_folder(folder)


def _looks_whole(folder: Path, step: int) -> bool:
    """Without the checksum of the tensors, which would take a second for each at every save."""
    try:
        return bool(_tensors_file(folder, step).stat().st_size == _read_sidecar(folder, step)["bytes"])
    except (Damaged, FileNotFoundError):
        return False
