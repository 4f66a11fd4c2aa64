"""The run folder: everything a training leaves on disk, written so that a kill at any moment leaves it readable."""

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from viewslots.errors import UserError
from viewslots.files import (
    FolderLock,
    flush_file,
    flush_folder,
    make_folder,
    plain_errors,
    read_json,
    replacing,
    require_folder,
    require_space,
    write_json,
)
from viewslots.methods.contract import TrainableMethod
from viewslots.provenance import provenance
from viewslots.run_format import CONFIG, FIRST, METRICS_FILE, ORIGIN, RUN_KIND, is_run, pointed, pointer
from viewslots.training.checkpoint import SIDECAR_ROOM, disk_errors, load_newest, save_checkpoint
from viewslots.training.log import TENSORBOARD, Metrics
from viewslots.training.state import TrainState, finite_json

FORMAT_VERSION = 1
LOCK, README, CHECKPOINTS, PICTURES = "training.lock", "README.txt", "checkpoints", "pictures"
SAVED = "saved.json"

MANUAL = """A training run of viewslots.

config.json      what was asked for (config), the seed, and where it ran (environment: command, commit, hardware)
metrics.jsonl    one JSON object a line; "kind" is train, valid or event, "step" the steps done; null = not finite
best.json        names the folder of the model with the lowest validation loss so far, its step and its scores
best-STEP/       that model: `viewslots evaluate` takes this run folder, or this folder alone
last.json        names the folder of the newest model that was saved: at each checkpoint, when stopped, at the end
last-STEP/       that model
checkpoints/     the last states of training, each .safetensors with a .json of checksums; `--resume` reads the newest
saved.json       there since the first checkpoint: a run that has lost them all does not begin anew
pictures/        decompositions drawn during training
tensorboard/     the numbers of metrics.jsonl for `tensorboard --logdir`
first/           of a training in stages the one before, a run folder like this; its best model is where this starts
training.lock    there while a training writes this folder
"""


class RunFolder:
    """The one writer of a run folder. In a distributed run only rank 0 has one. A context manager."""

    path: Path
    config: dict[str, Any]

    def __init__(self, path: Path, config: dict[str, Any], lock: FolderLock) -> None:
        self.path, self.config, self._lock = path, config, lock
        self._metrics = Metrics(path)
        self._closed = False

    @classmethod
    def create(cls, path: Path, config: dict[str, Any]) -> "RunFolder":
        """A new run. `config` must say all that is needed to build it again; its "seed" is shown beside it."""
        path, config = Path(path), finite_json(config)
        with plain_errors("writing", path):
            _require_free(path)
            created = not path.exists()
            path.mkdir(parents=True, exist_ok=True)
            lock = FolderLock(path / LOCK, "--run")
            try:
                _require_free(path)  # judged again now that nobody else can change it
                _begin(path, config)
            except BaseException:
                lock.release()
                if created:
                    with suppress(OSError):  # not empty: something in it may be worth keeping
                        path.rmdir()
                raise
        return cls(path, config, lock)

    @classmethod
    def resume(cls, path: Path) -> "RunFolder":
        """A run that was begun before, whether it was stopped or had ended."""
        path = Path(path)
        require_folder(path, "--run")
        config = read_run_config(path)
        with plain_errors("writing", path):
            return cls(path, config, FolderLock(path / LOCK, "--run"))

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    @property
    def checkpoints(self) -> Path:
        return self.path / CHECKPOINTS

    def log(self, row: dict[str, Any]) -> None:
        """A row with "step" and "kind": "train" | "valid" | "event"."""
        self._metrics.log(row)

    def rewind(self, step: int) -> None:
        """Drop all rows beyond `step`: the metrics then agree with the checkpoint of that step."""
        self._metrics.rewind(step)

    def save(self, state: TrainState, pinned: Collection[int] = ()) -> Path:
        """A checkpoint, with all rows logged so far as durable as it is."""
        self._metrics.flush()
        path = save_checkpoint(self.checkpoints, state, pinned=pinned)
        if not self.was_saved:
            with plain_errors("writing", self.path):
                write_json(self.path / SAVED, {"step": state.step})
        return path

    @property
    def was_saved(self) -> bool:
        """Whether there ever was a checkpoint: if there is none now, they were lost."""
        return (self.path / SAVED).is_file()

    def newest(self, warn: Callable[[str], None]) -> TrainState | None:
        return load_newest(self.checkpoints, warn)

    def keep_best(self, model: TrainableMethod[Any], step: int, facts: dict[str, Any]) -> None:
        """Make this the run's best model; until it is durable, the older one stays."""
        self._keep("best", model, step, facts)

    def keep_last(self, model: TrainableMethod[Any], step: int) -> None:
        """The newest model, which goes with a checkpoint."""
        self._keep("last", model, step, {})

    @property
    def last_kept(self) -> int:
        """Its step; -1 if there is none."""
        try:
            name, step = pointed(self.path, "last")
        except UserError:
            return -1
        return -1 if step is None or name is None or not (self.path / name).is_dir() else step

    def picture(self, name: str, image: Image.Image) -> Path:
        """pictures/NAME.png; the same name replaces it."""
        if not re.fullmatch(r"[\w-][\w.-]*", name):
            raise ValueError(f"{name!r} cannot be the name of a picture")
        path = self.path / PICTURES / f"{name}.png"
        with plain_errors("writing", path):
            make_folder(path.parent)
            with replacing(path) as draft:
                image.save(draft, format="PNG")
        return path

    def close(self) -> None:
        """Let the next training in; harmless the second time."""
        if not self._closed:
            self._closed = True
            try:
                self._metrics.close()
            finally:
                self._lock.release()

    def _keep(self, role: str, model: TrainableMethod[Any], step: int, facts: dict[str, Any]) -> None:
        with plain_errors("writing", pointer(self.path, role)):
            # A resumed run may keep a step again, while the pointer still needs the folder of that name.
            name = f"{role}-{step:08d}"
            name += "-again" if name == self._named(role) else ""
            self._remove(rf"{role}-\d+(-again)?\.tmp|{name}")
            require_space(self.path, sum(value.nbytes for value in model.state_dict().values()) + SIDECAR_ROOM)
            self._write_model(self.path / name, model, {"step": step, "facts": facts, "config": self.config})
            self._point(role, name, finite_json(facts) | {"folder": name, "step": step})
            self._remove(rf"(?!{name}$){role}-\d+(-again)?")

    def _write_model(self, folder: Path, model: TrainableMethod[Any], origin: dict[str, Any]) -> None:
        """The whole folder under a draft's name, flushed, then renamed."""
        draft = folder.with_name(folder.name + ".tmp")
        try:
            with disk_errors():
                model.save_pretrained(draft)
            write_json(draft / ORIGIN, finite_json({"format_version": FORMAT_VERSION} | origin))
            for entry in draft.iterdir():
                entry.chmod((draft / ORIGIN).stat().st_mode)  # safetensors lets nobody else read its files
                flush_file(entry)
            flush_folder(draft)
            os.rename(draft, folder)
            flush_folder(self.path)
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _point(self, role: str, name: str, values: dict[str, Any]) -> None:
        """The old pointer or the new one, never a folder that neither names."""
        try:
            with replacing(pointer(self.path, role)) as draft:
                draft.write_text(json.dumps(values, indent=1, allow_nan=False) + "\n")
        except BaseException:
            if self._named(role) != name:
                shutil.rmtree(self.path / name, ignore_errors=True)
            raise

    def _named(self, role: str) -> str | None:
        """The folder that best.json or last.json names, if there is one."""
        with suppress(UserError):
            return pointed(self.path, role)[0]
        return None

    def _remove(self, pattern: str) -> None:
        """Folders of models that were superseded, or left by a kill."""
        for entry in list(self.path.iterdir()):
            if re.fullmatch(pattern, entry.name):
                shutil.rmtree(entry)


def read_run_config(path: Path) -> dict[str, Any]:
    """What a run was started with."""
    file = path / CONFIG
    values = read_json(file) if file.is_file() else {}
    if values.get("kind") != RUN_KIND or not isinstance(values.get("config"), dict):
        raise UserError(f"{path}: holds no run to resume; start one without --resume, or correct --run")
    version = values.get("format_version")
    if type(version) is not int or version > FORMAT_VERSION:
        raise UserError(f"{file} has format version {version}, newer than {FORMAT_VERSION}: please update viewslots")
    config: dict[str, Any] = values["config"]
    return config


def _described(config: dict[str, Any]) -> dict[str, Any]:
    started = datetime.now(UTC).isoformat(timespec="seconds")
    facts = {"format_version": FORMAT_VERSION, "kind": RUN_KIND, "started": started, "seed": config.get("seed")}
    return facts | {"environment": provenance(), "config": config}


def _require_free(path: Path) -> None:
    """Refuse to write over a run, or over somebody's files that have our names."""
    require_folder(path, "--run")
    if _is_run(path):
        raise UserError(f"{path}: already holds a run; continue it with --resume, or choose another --run")
    names = (CONFIG, METRICS_FILE, "best.json", "last.json", CHECKPOINTS, PICTURES, TENSORBOARD, FIRST)
    taken = [name for name in names if (path / name).exists()]
    if (path / README).exists() and not MANUAL.encode().startswith((path / README).read_bytes()):
        taken.append(README)  # not one that we began
    if taken:
        raise UserError(f"{path}: holds {taken[0]}, which a run would write over; choose another --run")


def _is_run(path: Path) -> bool:
    try:
        return is_run(path)
    except UserError:
        return False


def _begin(path: Path, config: dict[str, Any]) -> None:
    """The config makes a folder a run, so it comes last."""
    try:
        (path / README).write_text(MANUAL)
        write_json(path / CONFIG, _described(config))
    except BaseException:
        with suppress(OSError):
            for name in (CONFIG, CONFIG + ".tmp", README):
                (path / name).unlink(missing_ok=True)
        raise


class Saver:
    """Writes checkpoints behind the loop's back: a step never waits for the disk, only for the write before.

    One write at a time. A write that failed is raised by the next call; on leaving, writes are finished. After a
    checkpoint comes its model, as the run's last one: on disk it is never ahead of the checkpoints.
    """

    def __init__(self, model: TrainableMethod[Any]) -> None:
        """`model`: one such as those that will be saved."""
        with torch.device("meta"):
            self._sketch = type(model)(model.config)
        self.last: int | None = None
        """Step of the last checkpoint that is on disk."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None
        self._since = time.monotonic()

    def __enter__(self) -> "Saver":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self._pool.shutdown(wait=True)

    def age(self) -> float:
        """Seconds since the last save began."""
        return time.monotonic() - self._since

    def save(self, folder: RunFolder, state: TrainState, pinned: Collection[int]) -> None:
        self.finish()
        self._since = time.monotonic()
        self._pending = self._pool.submit(self._write, folder, state, pinned)

    def finish(self) -> None:
        """Wait for the write; raises what it raised."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _write(self, folder: RunFolder, state: TrainState, pinned: Collection[int]) -> None:
        folder.save(state, pinned=pinned)
        self.last = state.step
        self._sketch.load_state_dict(state.weights, assign=True)
        folder.keep_last(self._sketch, state.step)
