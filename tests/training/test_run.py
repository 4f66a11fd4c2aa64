"""The run folder: one writer, rows that agree with the checkpoint, models that are there or not."""

import json
import math
import os
import signal
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from forked import begin, end, fatal_at, give_up_rights, in_child, limit_files
from viewslots import files
from viewslots.errors import UserError
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.presets import TINY
from viewslots.provenance import provenance
from viewslots.training import run
from viewslots.training.run import RunFolder
from viewslots.training.state import TrainState

SETTINGS = {"preset": "tiny", "seed": 7, "steps": 20}


@pytest.fixture(autouse=True)
def _one_thread_and_no_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Only power cuts need fsync, and a busy disk is slow at it; tests that watch it patch it themselves."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunFolder]:
    with RunFolder.create(tmp_path / "run", SETTINGS) as folder:
        yield folder


@cache
def tiny(seed: int) -> Ocloc:
    return Ocloc(TINY, torch.Generator().manual_seed(seed))


def rows(path: Path) -> list[dict[str, Any]]:
    """Strictly: JSON has no NaN."""

    def refuse(name: str) -> Any:
        raise AssertionError(name)

    return [json.loads(line, parse_constant=refuse) for line in (path / "metrics.jsonl").read_text().splitlines()]


def names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}


# --- the folder and its one writer


def test_a_run_explains_itself(tmp_path: Path) -> None:
    before = time.time()
    with RunFolder.create(tmp_path / "runs" / "first", SETTINGS | {"rate": math.inf}) as folder:
        assert folder.config == SETTINGS | {"rate": None}
        folder.log({"step": 1, "kind": "train", "loss": 1.0})
        folder.save(TrainState(1, {"a": torch.ones(1)}, {}))
        folder.keep_best(tiny(1), 1, {"loss": 2.0})
        folder.keep_last(tiny(1), 1)
        folder.picture("start", Image.new("RGB", (2, 2)))
        manual = (folder.path / "README.txt").read_text()
        for name in names(folder.path) - {"README.txt"}:
            assert f"\n{name.replace('00000001', 'STEP')}" in manual
    values = json.loads((tmp_path / "runs" / "first" / "config.json").read_text())
    assert values["config"] == folder.config
    assert (values["kind"], values["format_version"], values["seed"]) == ("viewslots run", 1, 7)
    assert values["environment"] == provenance()
    started = time.mktime(time.strptime(values["started"], "%Y-%m-%dT%H:%M:%S+00:00")) - time.timezone
    assert before - 1 <= started <= time.time()
    assert not (folder.path / "training.lock").exists()


def test_a_run_is_never_written_over(tmp_path: Path, folder: RunFolder) -> None:
    folder.log({"step": 1, "kind": "train"})
    folder.close()
    folder.close()
    with pytest.raises(
        UserError, match=r"run: already holds a run; continue it with --resume, or choose another --run"
    ):
        RunFolder.create(folder.path, SETTINGS | {"seed": 8})
    with RunFolder.resume(folder.path) as again:
        assert again.config == SETTINGS
        again.log({"step": 2, "kind": "train"})
    assert [row["step"] for row in rows(folder.path)] == [1, 2]
    assert "training.lock" not in names(folder.path)


def test_somebodys_files_are_not_written_over(tmp_path: Path) -> None:
    for name in ("config.json", "README.txt", "metrics.jsonl", "checkpoints"):
        place = tmp_path / f"with {name}"
        place.mkdir()
        (place / name).write_text("precious")
        with pytest.raises(UserError, match=f"holds {name}, which a run would write over; choose another --run"):
            RunFolder.create(place, SETTINGS)
        assert names(place) == {name}
        assert (place / name).read_text() == "precious"
    (tmp_path / "file").write_text("precious")
    with pytest.raises(UserError, match=r"--run: .* is a file; name a folder"):
        RunFolder.create(tmp_path / "file", SETTINGS)
    (tmp_path / "with notes").mkdir()
    (tmp_path / "with notes" / "notes.txt").write_text("mine")
    RunFolder.create(tmp_path / "with notes", SETTINGS).close()


@pytest.mark.parametrize("content", [None, "{}", '{"kind": "viewslots run"}', '{"method": "ocloc", "config": {}}'])
def test_what_is_no_run_is_not_resumed(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match="holds no run to resume; start one without --resume"):
        RunFolder.resume(tmp_path)
    with pytest.raises(UserError, match="nowhere: holds no run to resume"):
        RunFolder.resume(tmp_path / "nowhere")
    assert "training.lock" not in names(tmp_path)


def test_a_run_of_a_newer_format_is_not_resumed(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.close()
    monkeypatch.setattr(run, "FORMAT_VERSION", 0)
    with pytest.raises(UserError, match="format version 1, newer than 0: please update"):
        RunFolder.resume(folder.path)


def test_a_second_training_is_refused(folder: RunFolder) -> None:
    def attempt() -> None:
        with pytest.raises(UserError, match=r"run: another process is writing this folder; .* choose another --run"):
            RunFolder.resume(folder.path)

    attempt()
    assert in_child(attempt) == 0
    folder.close()
    assert in_child(lambda: RunFolder.resume(folder.path)) == 0


def test_the_lock_of_a_killed_training_is_free(tmp_path: Path) -> None:
    read, write = os.pipe()

    def hold() -> None:
        folder = RunFolder.create(tmp_path / "run", SETTINGS)
        os.write(write, b"x")
        time.sleep(60)
        folder.close()

    pid = begin(hold)
    assert os.read(read, 1) == b"x"
    with pytest.raises(UserError, match="another process"):
        RunFolder.resume(tmp_path / "run")
    os.kill(pid, signal.SIGKILL)
    assert end(pid) == -signal.SIGKILL
    RunFolder.resume(tmp_path / "run").close()
    os.close(read)
    os.close(write)


def test_a_creation_that_was_cut_off_may_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(path: Path, value: object) -> None:
        (path.parent / "README.txt").write_text(run.MANUAL[:100])
        os.kill(os.getpid(), signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(run, "write_json", cut)
        assert in_child(lambda: RunFolder.create(tmp_path / "run", SETTINGS)) == -signal.SIGKILL
    with RunFolder.create(tmp_path / "run", SETTINGS) as folder:
        assert names(folder.path) == {"README.txt", "config.json", "training.lock"}
        assert (folder.path / "README.txt").read_text() == run.MANUAL


def test_a_creation_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def attempt() -> None:
        limit_files(2000)  # enough for the manual, not for the config
        with pytest.raises(UserError, match=r"error while writing .*run: File too large"):
            RunFolder.create(tmp_path / "run", SETTINGS | {"long": "x" * 3000})

    assert in_child(attempt) == 0
    assert names(tmp_path) == set()


def test_a_place_without_permission(tmp_path: Path) -> None:
    def attempt() -> None:
        give_up_rights()
        with pytest.raises(UserError, match=r"no permission while writing .*run"):
            RunFolder.create(tmp_path / "run", SETTINGS)

    tmp_path.chmod(0o555)
    assert in_child(attempt) == 0
    tmp_path.chmod(0o755)


# --- figures


def test_rows_are_json_whatever_they_hold(folder: RunFolder) -> None:
    folder.log({"step": 3, "kind": "train", "loss": math.nan, "terms": {"nll": np.float32(0.5), "rho": -math.inf}})
    folder.log({"step": 3, "kind": "valid", "loss": torch.tensor(2.0), "slots": (1, math.nan), "ok": True})
    folder.log({"step": 3, "kind": "event", "what": "line\nbreak \u2028 \r"})
    assert rows(folder.path) == [
        {"step": 3, "kind": "train", "loss": None, "terms": {"nll": 0.5, "rho": None}},
        {"step": 3, "kind": "valid", "loss": 2.0, "slots": [1, None], "ok": True},
        {"step": 3, "kind": "event", "what": "line\nbreak \u2028 \r"},
    ]
    for row in ({"kind": "train"}, {"step": 1}, {"step": 1.0, "kind": "train"}, {"step": 1, "kind": "other"}):
        with pytest.raises(ValueError, match="a row needs"):
            folder.log(row)
    assert len(rows(folder.path)) == 3


def test_rows_survive_a_kill(tmp_path: Path) -> None:
    def work() -> None:
        folder = RunFolder.create(tmp_path / "run", SETTINGS)
        for step in range(5):
            folder.log({"step": step, "kind": "train", "loss": 1.5})
        os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(work) == -signal.SIGKILL
    assert [row["step"] for row in rows(tmp_path / "run")] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("torn", [b'{"step": 3, "kind": "tr', b'{"step": 3, "kind": "train"}', b"\0\0\0\0", b"[3]\n"])
def test_rewinding_to_a_checkpoint(folder: RunFolder, torn: bytes) -> None:
    path = folder.path / "metrics.jsonl"
    for step in (1, 2, 3, 4, 5):
        folder.log({"step": step, "kind": "train", "loss": step / 3})
        folder.log({"step": step, "kind": "valid", "loss": step / 3})
    kept = b"".join(path.read_bytes().splitlines(keepends=True)[:6])
    with path.open("ab") as file:
        file.write(torn)
    folder.rewind(3)
    assert path.read_bytes() == kept
    folder.log({"step": 4, "kind": "event"})
    assert path.read_bytes() == kept + b'{"step": 4, "kind": "event"}\n'
    folder.rewind(0)
    assert path.read_bytes() == b""
    assert not (folder.path / "metrics.jsonl.tmp").exists()


def test_rewinding_is_all_or_nothing(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder.path / "metrics.jsonl"
    folder.rewind(3)  # nothing there yet
    for step in (1, 2, 3):
        folder.log({"step": step, "kind": "event"})
    before = path.read_bytes()

    def cut() -> None:
        monkeypatch.setattr(files, "flush_file", lambda draft: os.kill(os.getpid(), signal.SIGKILL))
        folder.rewind(1)

    assert in_child(cut) == -signal.SIGKILL
    assert path.read_bytes() == before
    inode = path.stat().st_ino
    folder.rewind(3)
    assert path.stat().st_ino == inode  # nothing to drop: not written again
    folder.rewind(1)
    assert [row["step"] for row in rows(folder.path)] == [1]


def scalars(path: Path, name: str) -> list[tuple[int, float]]:
    """What TensorBoard itself would show."""
    events = EventAccumulator(str(path / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_tensorboard_shows_the_numbers(folder: RunFolder) -> None:
    for step in (1, 2, 3):
        row = {"loss": step / 2, "terms": {"nll": 4 * step}, "none": math.nan, "text": "x", "yes": True}
        folder.log({"step": step, "kind": "train"} | row)
    folder.log({"step": 3, "kind": "event", "loss": 9.0})
    folder.close()
    assert scalars(folder.path, "train/loss") == [(1, 0.5), (2, 1.0), (3, 1.5)]
    assert scalars(folder.path, "train/terms/nll") == [(1, 4.0), (2, 8.0), (3, 12.0)]
    events = EventAccumulator(str(folder.path / "tensorboard"))
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == ["train/loss", "train/terms/nll"]


def test_tensorboard_forgets_what_was_rewound(folder: RunFolder) -> None:
    for step in (1, 2, 3):
        folder.log({"step": step, "kind": "train", "loss": 1.0})
    folder.close()
    time.sleep(1.1 - time.time() % 1)  # TensorBoard orders its files by the second in their names
    with RunFolder.resume(folder.path) as again:
        again.rewind(1)
        again.log({"step": 2, "kind": "train", "loss": 2.0})
    assert scalars(folder.path, "train/loss") == [(1, 1.0), (2, 2.0)]


def test_figures_without_tensorboard(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    folder.log({"step": 1, "kind": "train", "loss": 1.0})
    folder.save(TrainState(1, {"a": torch.ones(1)}, {}))
    assert len(rows(folder.path)) == 1
    assert "tensorboard" not in names(folder.path)


def test_figures_that_tensorboard_cannot_take(folder: RunFolder) -> None:
    """Training goes on; metrics.jsonl has all numbers, and says it once."""
    (folder.path / "tensorboard").write_text("no folder")
    for step in (1, 2):
        folder.log({"step": step, "kind": "train", "loss": 1.0})
        folder.save(TrainState(step, {"a": torch.ones(1)}, {}))
    first, warning, second = rows(folder.path)
    assert (first["loss"], second["loss"]) == (1.0, 1.0)
    assert warning["warning"].startswith("no TensorBoard from here on: ")


def test_figures_on_a_full_disk(folder: RunFolder) -> None:
    """A row that does not fit leaves no half of it."""
    folder.log({"step": 1, "kind": "event"})
    folder.close()

    def attempt() -> None:
        limit_files(1000)
        again = RunFolder.resume(folder.path)
        with pytest.raises(UserError, match=r"error while writing .*metrics\.jsonl: File too large"):
            again.log({"step": 2, "kind": "event", "text": "x" * 2000})
        again.log({"step": 3, "kind": "event"})
        again.close()

    assert in_child(attempt) == 0
    assert [row["step"] for row in rows(folder.path)] == [1, 3]


# --- checkpoints


def test_checkpoints_of_a_run(folder: RunFolder) -> None:
    said: list[str] = []
    assert folder.newest(said.append) is None
    for step in (1, 2, 3, 4):
        path = folder.save(TrainState(step, {"a": torch.full((3,), float(step))}, {"n": step}), pinned=[1])
    assert path == folder.path / "checkpoints" / "step-00000004.safetensors"
    assert len(names(folder.checkpoints)) == 2 * 4
    path.write_bytes(b"")
    newest = folder.newest(said.append)
    assert newest is not None
    assert (newest.step, newest.facts, newest.tensors["a"].tolist()) == (3, {"n": 3}, [3.0] * 3)
    assert ["step-00000004.safetensors" in line for line in said] == [True]


def test_rows_are_durable_before_the_checkpoint(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2, 3):
        folder.log({"step": step, "kind": "train", "loss": 1.0})
    flushed: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name))
    folder.save(TrainState(1, {"a": torch.ones(1)}, {}))
    assert flushed.index("metrics.jsonl") < flushed.index("step-00000001.safetensors")
    assert scalars(folder.path, "train/loss") == [(1, 1.0), (2, 1.0), (3, 1.0)]


# --- models


def kept(path: Path, role: str) -> tuple[dict[str, Any], Ocloc]:
    pointer = json.loads((path / f"{role}.json").read_text())
    return pointer, Ocloc.from_pretrained(path / pointer["folder"], expect=TINY)


def is_tiny(model: Ocloc, seed: int) -> bool:
    return all(torch.equal(value, model.state_dict()[name]) for name, value in tiny(seed).state_dict().items())


def test_the_best_model(folder: RunFolder) -> None:
    folder.keep_best(tiny(1), 100, {"loss": 3.0, "scores": {"ARI-O": math.nan}})
    pointer, model = kept(folder.path, "best")
    assert pointer == {"folder": "best-00000100", "step": 100, "loss": 3.0, "scores": {"ARI-O": None}}
    assert is_tiny(model, 1)
    folder.keep_best(tiny(2), 200, {"loss": 2.0})
    folder.keep_last(tiny(3), 300)
    assert is_tiny(kept(folder.path, "best")[1], 2)
    assert is_tiny(kept(folder.path, "last")[1], 3)
    assert kept(folder.path, "last")[0] == {"folder": "last-00000300", "step": 300}
    models = {"best-00000200", "last-00000300", "best.json", "last.json"}
    assert names(folder.path) == models | {"README.txt", "config.json", "training.lock"}
    modes = {entry.name: entry.stat().st_mode for entry in (folder.path / "best-00000200").iterdir()}
    assert len(set(modes.values())) == 1  # whoever may read one file may read all
    origin = json.loads((folder.path / "best-00000200" / "run.json").read_text())
    assert origin == {"format_version": 1, "step": 200, "facts": {"loss": 2.0}, "config": SETTINGS}


def test_a_step_kept_again_after_resuming(folder: RunFolder) -> None:
    for seed in (1, 2, 3):
        folder.keep_best(tiny(seed), 100, {"loss": float(seed)})
        pointer, model = kept(folder.path, "best")
        assert pointer["loss"] == seed
        assert is_tiny(model, seed)
        assert sum(name.startswith("best-") for name in names(folder.path)) == 1


def test_leftovers_of_a_kill_are_removed(folder: RunFolder) -> None:
    folder.keep_best(tiny(1), 100, {})
    for name in ("best-00000150", "best-00000200", "best-00000300.tmp", "last-00000100", "best-of-mine"):
        (folder.path / name).mkdir()
        (folder.path / name / "half").touch()
    folder.keep_best(tiny(2), 200, {})
    assert is_tiny(kept(folder.path, "best")[1], 2)
    left = {name for name in names(folder.path) if "-" in name}
    assert left == {"best-00000200", "last-00000100", "best-of-mine"}


def strike_at(count: int) -> None:
    """Kill this process at the given one of its dealings with the files."""
    fatal = fatal_at(count)
    for name in ("fsync", "replace", "rename", "unlink", "rmdir"):
        setattr(os, name, fatal(getattr(os, name)))


@pytest.mark.parametrize("step", [100, 200])
def test_there_is_always_a_best_model(folder: RunFolder, step: int) -> None:
    """Killed at every dealing with the disk: best.json names a whole model, the old one or the new one."""
    folder.keep_best(tiny(1), 100, {"seed": 1})
    seen: list[int] = []
    for count in range(100):
        code = in_child(lambda count=count: (strike_at(count), folder.keep_best(tiny(2), step, {"seed": 2})))  # type: ignore[misc]
        pointer, model = kept(folder.path, "best")
        assert is_tiny(model, pointer["seed"])
        seen.append(pointer["seed"])
        folder.keep_best(tiny(1), 100, {"seed": 1})
        assert is_tiny(kept(folder.path, "best")[1], 1)
        assert sum(name.startswith("best-") for name in names(folder.path)) == 1
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert seen == sorted(seen)
    assert set(seen) == {1, 2}
    assert len(seen) > 8


def test_a_disk_that_fills_while_keeping_a_model(folder: RunFolder) -> None:
    folder.keep_best(tiny(1), 100, {"loss": 3.0})
    before = names(folder.path)

    def attempt() -> None:
        limit_files(10_000)
        with pytest.raises(UserError, match=r"error while writing .*best\.json: .*File too large"):
            folder.keep_best(tiny(2), 200, {"loss": 2.0})

    assert in_child(attempt) == 0
    assert names(folder.path) == before
    assert is_tiny(kept(folder.path, "best")[1], 1)


def test_a_full_disk_is_called_so(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """As safetensors words it, and as the space is counted ahead."""
    from safetensors import SafetensorError

    def full(*args: object, **kwargs: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    with monkeypatch.context() as patch:
        patch.setattr("viewslots.methods.pretrained.save_file", full)
        with pytest.raises(UserError, match=r"disk full while writing .*best\.json: free some space"):
            folder.keep_best(tiny(1), 100, {})
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: files.shutil._ntuple_diskusage(10**9, 10**9, 1000))
    with pytest.raises(UserError, match="only 1000 bytes are free"):
        folder.keep_best(tiny(1), 100, {})
    assert not any(name.startswith("best") for name in names(folder.path))


def test_a_pointer_that_cannot_be_written(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.keep_best(tiny(1), 100, {})
    before, replace = names(folder.path), os.replace

    def refuse(source: Path, target: Path) -> None:
        if Path(target).name == "best.json":
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(UserError, match="disk full"):
        folder.keep_best(tiny(2), 200, {})
    assert names(folder.path) == before
    assert is_tiny(kept(folder.path, "best")[1], 1)


def test_models_are_flushed_before_they_are_named(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    rename, replace = os.rename, os.replace
    monkeypatch.setattr(
        os, "fsync", lambda handle: events.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")))
    )
    monkeypatch.setattr(os, "rename", lambda a, b: (events.append(f"-> {Path(b).name}"), rename(a, b)))
    monkeypatch.setattr(os, "replace", lambda a, b: (events.append(f"-> {Path(b).name}"), replace(a, b)))
    folder.keep_best(tiny(1), 100, {})
    renamed, pointed = events.index("-> best-00000100"), events.index("-> best.json")
    assert {"model.safetensors", "config.json", "README.md", "best-00000100.tmp"} <= set(events[:renamed])
    assert events[renamed + 1 : pointed] == ["run", "best.json.tmp"]
    assert events[pointed + 1] == "run"


# --- pictures


def test_pictures(folder: RunFolder) -> None:
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (4, 5, 3), np.uint8))
    path = folder.picture("step-00000100", image)
    assert path == folder.path / "pictures" / "step-00000100.png"
    assert np.array_equal(np.asarray(Image.open(path)), np.asarray(image))
    folder.picture("step-00000100", Image.new("RGB", (2, 2)))
    assert Image.open(path).size == (2, 2)
    for name in ("../up", "a/b", "", ".hidden"):
        with pytest.raises(ValueError, match="cannot be the name of a picture"):
            folder.picture(name, image)
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (200, 200, 3), np.uint8))

    def attempt() -> None:
        limit_files(5000)
        with pytest.raises(UserError, match=r"error while writing .*step-00000100\.png"):
            folder.picture("step-00000100", noise)

    assert in_child(attempt) == 0
    assert names(folder.path / "pictures") == {"step-00000100.png"}
    assert Image.open(path).size == (2, 2)
