"""Making data sets: the same bytes however it went - batch size, Ctrl-C, kill -9, full disk - or one clear line."""

import errno
import json
import os
import resource
import shutil
import sys
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_world import COUNTS, FakeScene, FakeWorld, contents, kill_self, made_of

from forked import in_child
from viewslots import files
from viewslots.data import writer
from viewslots.data.format import DESCRIPTIONS
from viewslots.data.generate import DatasetRecipe
from viewslots.data.store import Store
from viewslots.errors import UserError
from viewslots.files import AppendOnlyFile
from viewslots.types import Pictures

TOTAL = sum(COUNTS.values())


@pytest.fixture(autouse=True)
def _every_batch_is_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "FLUSH_SECONDS", 0.0)


def make(out: Path, world: FakeWorld | None = None, **changes: object) -> Path:
    return made_of(DatasetRecipe(world or FakeWorld(), COUNTS, preset="fake", seed=7), out, **changes)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return contents(make(tmp_path_factory.mktemp("whole") / "set"))


def test_bytes_do_not_depend_on_the_batch_and_memory_does(tmp_path: Path, whole: dict[str, bytes]) -> None:
    for batch in (1, 3, 100):
        world = FakeWorld()
        assert contents(make(tmp_path / str(batch), world, batch=batch)) == whole
        assert max(world.rendered) <= batch
        assert sum(world.rendered) == TOTAL


def test_only_what_the_manual_lists_is_left(whole: dict[str, bytes]) -> None:
    meta = json.loads(whole["meta.json"])
    assert set(whole) == {"meta.json", *meta["files"]}
    assert (meta["preset"], meta["seed"], meta["quality"], meta["device"]) == ("fake", 7, "fast", "cpu")


def test_killed_after_any_write_it_finishes_to_the_same_bytes(tmp_path: Path, whole: dict[str, bytes]) -> None:
    """kill -9 with half of a block written, at moments through all 78 writes: headers, arrays, descriptions."""
    append = AppendOnlyFile.append
    for moment in range(0, 78, 3):
        out = tmp_path / str(moment)
        calls = iter(range(10**6))

        def dying(self: AppendOnlyFile, data: bytes, moment: int = moment, calls: object = calls) -> None:
            if next(calls) == moment:  # type: ignore[call-overload]
                append(self, bytes(data)[: len(data) // 2])
                kill_self()
            append(self, data)

        def work(out: Path = out, dying: object = dying) -> None:
            AppendOnlyFile.append = dying  # type: ignore[method-assign, assignment]
            make(out)

        assert in_child(work) == -9
        with pytest.raises(UserError, match="unfinished data set"):
            Store.open(out)
        world = FakeWorld()
        assert contents(make(out, world)) == whole
        if moment >= 44:
            assert sum(world.rendered) < TOTAL, "finished work was done again"


@pytest.mark.parametrize("moment", range(0, 14, 3))
def test_killed_around_any_rename_it_finishes_to_the_same_bytes(
    tmp_path: Path, whole: dict[str, bytes], moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 before the n-th of all renames, the last of which makes meta.json appear."""
    calls = iter(range(10**6))
    replace = os.replace

    def work() -> None:
        def dying(source: Path, target: Path) -> None:
            if next(calls) == moment or Path(target).name == "meta.json":
                kill_self()
            replace(source, target)

        os.replace = dying
        make(tmp_path / "set")

    assert in_child(work) == -9
    with pytest.raises(UserError, match=r"unfinished data set|no meta\.json"):
        Store.open(tmp_path / "set")
    assert contents(make(tmp_path / "set")) == whole


def test_killed_between_meta_and_the_end_it_is_finished_by_the_same_command(
    tmp_path: Path, whole: dict[str, bytes]
) -> None:
    replace = os.replace

    def work() -> None:
        def dying(source: Path, target: Path) -> None:
            replace(source, target)
            if Path(target).name == "meta.json":
                kill_self()

        os.replace = dying
        make(tmp_path / "set")

    assert in_child(work) == -9
    assert (tmp_path / "set" / "meta.json").exists()
    with pytest.raises(UserError, match="unfinished data set"):
        Store.open(tmp_path / "set")
    assert contents(make(tmp_path / "set")) == whole


def test_all_data_are_on_the_disk_before_anything_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a power cut would spare: at each rename of making.json or meta.json, no array has unflushed bytes."""
    flushed: dict[str, int] = {}
    replace, renamed = os.replace, []

    def fsync(handle: int) -> None:
        flushed[os.readlink(f"/proc/self/fd/{handle}")] = os.fstat(handle).st_size

    def checked(source: Path, target: Path) -> None:
        assert flushed[str(source)] == os.stat(source).st_size > 0
        done = json.loads(Path(source).read_text()).get("done", {})
        for path in (tmp_path / "set").glob("*/*"):
            if not done or done[path.parent.name]["scenes"]:
                assert flushed[str(path)] == path.stat().st_size, path
        renamed.append(Path(target).name)
        replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", checked)
    make(tmp_path / "set")
    assert renamed == ["making.json"] * (1 + 6) + ["meta.json"]  # at the start and after each of six batches
    assert str(tmp_path / "set") in flushed


@pytest.mark.parametrize("flush_seconds", [0.0, 1e9])
def test_interrupted_by_the_user_nothing_is_rendered_twice(
    tmp_path: Path, whole: dict[str, bytes], flush_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "FLUSH_SECONDS", flush_seconds)
    world = FakeWorld()

    def interrupt() -> None:
        if len(world.rendered) == 3:
            raise KeyboardInterrupt

    world.before_render = interrupt
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "set", world)
    with pytest.raises(UserError, match="run the command that made it again"):
        Store.open(tmp_path / "set")
    again, reports = FakeWorld(), []
    make(tmp_path / "set", again, progress=lambda done, total: reports.append((done, total)))
    assert contents(tmp_path / "set") == whole
    looked_at_again = 1  # the last scene of train
    assert sum(world.rendered) + sum(again.rendered) == TOTAL + looked_at_again
    assert reports == [(5, TOTAL), (7, TOTAL), (9, TOTAL), (10, TOTAL)]


@pytest.mark.parametrize("write", [3, 30, 60])
def test_a_full_disk_gives_one_line_and_can_be_finished(
    tmp_path: Path, whole: dict[str, bytes], write: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, calls = AppendOnlyFile.append, iter(range(10**6))

    def full(self: AppendOnlyFile, data: bytes) -> None:
        if next(calls) >= write:
            self._file.write(bytes(data)[:3])
            raise OSError(errno.ENOSPC, "No space left on device")
        append(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(AppendOnlyFile, "append", full)
        with pytest.raises(UserError, match=r"disk full while writing .*set: free some space and run the same command"):
            make(tmp_path / "set")
    with pytest.raises(UserError, match="unfinished"):
        Store.open(tmp_path / "set")
    assert contents(make(tmp_path / "set")) == whole


def test_a_real_limit_on_file_size_gives_one_line(tmp_path: Path) -> None:
    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
        try:
            make(tmp_path / "set")
        except UserError as error:
            os._exit(17 if "File too large" in str(error) else 18)

    assert in_child(work) == 17
    with pytest.raises(UserError, match="unfinished"):
        Store.open(tmp_path / "set")


def test_too_little_space_is_noticed_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    pixels = FakeWorld.height * FakeWorld.width
    scene = FakeWorld.views * (pixels * (3 + 1 + 1 + 2 * 3) + 4 * 3 + 4 * 3) + 1
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: usage(10**9, 0, 4 * scene - 1))
    with pytest.raises(UserError, match=r"needs 6\.\d KiB, but only 6\.\d KiB are free"):
        make(tmp_path / "set", counts={"train": 4})
    assert not (tmp_path / "set").exists()
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: usage(10**9, 0, 4 * scene))
    make(tmp_path / "set", counts={"train": 4})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 8}, "seed: 7 there, 8 here"),
        ({"quality": "reference"}, "quality: 'fast' there, 'reference' here"),
        ({"preset": "other"}, "preset: 'fake' there, 'other' here"),
        ({"device": "cuda:1"}, "device: 'cpu' there, 'cuda' here"),
        ({"counts": {"train": 6}}, "splits: .* there, .* here"),
    ],
)
def test_another_plan_does_not_touch_an_unfinished_set(tmp_path: Path, change: dict[str, object], message: str) -> None:
    _interrupted(tmp_path / "set")
    before = contents(tmp_path / "set")
    with pytest.raises(UserError, match=message):
        make(tmp_path / "set", **change)
    before.pop("making.lock")  # the lock of the dead process
    assert contents(tmp_path / "set") == before


def _interrupted(out: Path) -> None:
    world = FakeWorld()
    world.before_render = lambda: kill_self() if len(world.rendered) == 4 else None
    assert in_child(lambda: make(out, world) and None) == -9


class OtherRules(FakeWorld):
    def sample(self, seed: int, split: str, index: int) -> FakeScene:
        return replace(super().sample(seed, split, index), discs=((1.0, 1.0, 1.0),))


class OtherArt(FakeWorld):
    def render(self, *args: Any) -> Pictures:
        pictures = super().render(*args)
        return replace(pictures, image=255 - pictures.image)


class OtherRounding(FakeWorld):
    def render(self, *args: Any) -> Pictures:
        pictures = super().render(*args)
        return replace(pictures, image=pictures.image ^ 1)


@pytest.mark.parametrize("world", [OtherRules, OtherArt])
def test_other_rules_or_art_are_noticed(tmp_path: Path, world: type[FakeWorld]) -> None:
    _interrupted(tmp_path / "set")
    with pytest.raises(UserError, match=r"begun with other rules or art \(see split train, scene 4\)"):
        make(tmp_path / "set", world())


def test_another_processor_may_finish_the_work(tmp_path: Path) -> None:
    _interrupted(tmp_path / "set")
    assert Store.open(make(tmp_path / "set", OtherRounding())).splits == tuple(COUNTS)


def test_tampering_with_an_unfinished_set_is_noticed(tmp_path: Path) -> None:
    _interrupted(tmp_path / "set")
    os.truncate(tmp_path / "set" / "train" / "image.npy", 200)
    with pytest.raises(UserError, match=r"train/image\.npy: shorter than it was"):
        make(tmp_path / "set")
    (tmp_path / "set" / "making.json").write_text("{}")
    with pytest.raises(UserError, match=r"making\.json: 'plan' must be an object"):
        make(tmp_path / "set")


def test_links_in_an_unfinished_set_are_not_followed(tmp_path: Path) -> None:
    _interrupted(tmp_path / "set")
    precious = tmp_path / "precious"
    precious.write_bytes(b"x" * 10**5)
    (tmp_path / "set" / "train" / "image.npy").unlink()
    (tmp_path / "set" / "train" / "image.npy").symlink_to(precious)
    with pytest.raises(UserError, match="not a regular file"):
        make(tmp_path / "set")
    shutil.rmtree(tmp_path / "set" / "valid")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "set" / "train" / "image.npy").unlink()
    shutil.rmtree(tmp_path / "set" / "train")
    (tmp_path / "set" / "train").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="a link; remove it"):
        make(tmp_path / "set")
    assert precious.read_bytes() == b"x" * 10**5
    assert not any((tmp_path / "elsewhere").iterdir())


def test_places_that_are_taken_or_not_there_yet(tmp_path: Path, whole: dict[str, bytes]) -> None:
    make(tmp_path / "set")
    with pytest.raises(UserError, match="already a complete data set"):
        make(tmp_path / "set")
    assert contents(make(tmp_path / "not" / "yet" / "there")) == whole
    (tmp_path / "busy").mkdir()
    (tmp_path / "busy" / "thesis.tex").write_text("precious")
    with pytest.raises(UserError, match=r"not empty \(it holds thesis\.tex\)"):
        make(tmp_path / "busy")
    with pytest.raises(UserError, match="is a file"):
        make(tmp_path / "busy" / "thesis.tex")
    (tmp_path / "empty").mkdir()
    assert contents(make(tmp_path / "empty")) == contents(tmp_path / "set") == whole
    assert contents(tmp_path / "busy") == {"thesis.tex": b"precious"}


def test_a_place_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(UserError, match=r"no permission while writing .*set: choose another place"):
        make(tmp_path / "set")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"counts": {"train": -1}}, "split train: -1 scenes"),
        ({"counts": {"train": 0}}, "no scenes asked for"),
        ({"counts": {"../up": 1}}, "'../up' cannot be the name of a split"),
        ({"counts": {"train": 10**9}}, "'scenes' must be an integer"),
        ({"seed": 2**63}, "seed: expected a 64-bit integer"),
        ({"batch": 0}, "batch: must be at least 1, not 0"),
    ],
)
def test_senseless_requests(tmp_path: Path, change: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(tmp_path / "set", **change)
    assert not (tmp_path / "set").exists()


def test_two_makers_cannot_write_one_folder(tmp_path: Path, whole: dict[str, bytes]) -> None:
    world, refused = FakeWorld(), []

    def rival() -> None:
        if len(world.rendered) == 2:
            try:
                make(tmp_path / "set")
            except UserError as error:
                refused.append(str(error))
            assert in_child(lambda: make(tmp_path / "set") and None) == 99

    world.before_render = rival
    assert contents(make(tmp_path / "set", world)) == whole
    assert len(refused) == 1
    assert "another process is writing this folder" in refused[0]


def test_a_lock_whose_file_was_replaced_is_no_lock(tmp_path: Path) -> None:
    """The last owner removes the file: whoever opened it just before must not believe to hold the folder."""
    stat = os.stat

    def replaced(path: object, *args: object, **kwargs: object) -> os.stat_result:
        if str(path).endswith("making.lock"):
            (tmp_path / "making.lock").unlink()
            (tmp_path / "making.lock").touch()
            (tmp_path / "other").touch()
        return stat(path, *args, **kwargs)  # type: ignore[call-overload, no-any-return]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files.os, "stat", replaced)
        with pytest.raises(UserError, match="another process"):
            files.FolderLock(tmp_path / "making.lock")
    files.FolderLock(tmp_path / "making.lock").release()


def test_descriptions_are_never_cut(tmp_path: Path) -> None:
    """The two counters of a split move together, wherever Ctrl-C strikes."""
    traced = [writer.StoreWriter.append, writer.StoreWriter.record, writer.PartsWriter.append, writer.PartFiles.append]
    codes = [function.__code__ for function in traced]
    for strike in range(110):
        out, lines = tmp_path / str(strike), iter(range(10**9))

        def trace(frame, event, arg, lines=lines, strike=strike):  # type: ignore[no-untyped-def]
            if frame.f_code in codes:
                frame.f_trace_lines = True
                if event == "line" and next(lines) == strike:
                    raise KeyboardInterrupt
                return trace
            return None

        sys.settrace(trace)
        try:
            make(out, counts={"train": 5})
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        if not (out / "meta.json").exists():
            make(out, counts={"train": 5})
        assert len((out / "train" / DESCRIPTIONS).read_text().splitlines()) == 5
