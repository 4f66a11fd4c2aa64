"""Data sets in shards: plain numpy puts them together again, readers see no difference, mixed-up ones are told."""

import errno
import hashlib
import json
import os
import pickle
import re
import resource
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import h5py
import numpy as np
import pytest
import torch
from fake_world import COUNTS, FakeWorld, FullWorld, LargePictures, contents, kill_self, made_of, reseal
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from forked import in_child
from viewslots.data import writer
from viewslots.data.checks import check_dataset
from viewslots.data.dataset import SceneDataset
from viewslots.data.exchange.folders import export_folders
from viewslots.data.exchange.hdf5 import export_hdf5
from viewslots.data.filling import Job, dealt
from viewslots.data.format import MAX_FILES, DatasetPlan, Source, SplitPlan, read_meta
from viewslots.data.generate import DatasetRecipe, make_dataset
from viewslots.data.import_data import Import, import_data
from viewslots.data.sharded import Shard, ShardedArray
from viewslots.data.store import SplitArrays, Store
from viewslots.data.torch_dataset import Scenes
from viewslots.data.writer import StoreWriter
from viewslots.errors import UserError
from viewslots.files import JSON_LIMIT, SPARE_FILES, AppendOnlyFile, FileEntry, allowed_files
from viewslots.metrics.layouts import SplitFile
from viewslots.ranks import Team

SHARDS = 3
"""Of the 5, 2 and 3 scenes of COUNTS: train 1 + 2 + 2, valid 1 + 1, test2 1 + 1 + 1."""


def make(out: Path, world: FakeWorld | None = None, **changes: Any) -> Path:
    return made_of(DatasetRecipe(world or FullWorld(), COUNTS, preset="full", seed=7), out, **changes)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("whole") / "set")


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("cut") / "set", shards=SHARDS)


@pytest.fixture
def copy(cut: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(cut, tmp_path / "copy"))


def test_plain_numpy_puts_them_together(whole: Path, cut: Path) -> None:
    meta = json.loads((cut / "meta.json").read_text())
    assert meta["format_version"] == 3
    assert {name: split["shards"] for name, split in meta["splits"].items()} == {"train": 3, "valid": 2, "test2": 3}
    for split in COUNTS:
        folders = sorted((cut / split).iterdir())
        assert [folder.name for folder in folders] == [f"{n:05d}" for n in range(meta["splits"][split]["shards"])]
        for key in meta["keys"]:
            parts = [np.load(folder / f"{key}.npy") for folder in folders]
            np.testing.assert_array_equal(np.concatenate(parts), np.load(whole / split / f"{key}.npy"))
            assert max(map(len, parts)) - min(map(len, parts)) <= 1
        lines = "".join((folder / "scenes.jsonl").read_text() for folder in folders)
        assert lines == (whole / split / "scenes.jsonl").read_text()
    files = {str(path.relative_to(cut)): path.read_bytes() for path in cut.rglob("*") if path.name != "meta.json"
             and path.is_file()}  # fmt: skip
    entry = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    assert meta["files"] == entry


def test_one_shard_is_none(whole: Path, tmp_path: Path) -> None:
    assert contents(make(tmp_path / "set", shards=1)) == contents(whole)
    assert json.loads((whole / "meta.json").read_text())["format_version"] == 2


def in_parts(arrays: list[np.ndarray]) -> ShardedArray:
    return ShardedArray([Shard(array.shape, partial(np.asarray, array)) for array in arrays], arrays[0].dtype)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_an_array_in_parts_is_indexed_like_the_whole(data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    flat = np.arange(sum(lengths) * 6).reshape(-1, 2, 3)
    array = in_parts(np.split(flat, np.cumsum(lengths)[:-1]))
    assert (array.shape, array.dtype, array.nbytes, len(array)) == (flat.shape, flat.dtype, flat.nbytes, len(flat))
    np.testing.assert_array_equal(np.asarray(array), flat)
    row = data.draw(st.integers(-len(flat), len(flat) - 1))
    low, high = (data.draw(st.none() | st.integers(-9, 25)) for _ in range(2))
    rows = data.draw(st.lists(st.integers(-len(flat), len(flat) - 1), max_size=6))
    table, pairs = np.array([rows, rows], int), [view % 2 for view in rows]
    plain = (
        row,
        np.int64(row),
        np.array(row),
        (row, 1),
        (row, slice(1), 2),
        slice(None),
        ...,
        (),
        (..., 1),
        (row, ...),
    )
    slices = (slice(low, high), (slice(low, high), slice(1)), (slice(low, high), [1, 0, 1], slice(None)),
              (slice(low, high), [1, 0], [0, 2]), (slice(low, high), ..., 2), (slice(low, high), 1))  # fmt: skip
    lists = (rows, np.array(rows, int), np.array(rows, int) % len(flat), table, (rows, 1), (rows, slice(None), 2),
             (rows, pairs), (table, 1, 2), (rows, ..., 0), (..., rows[:0], 1))  # fmt: skip
    for index in (*plain, *slices, *lists, (..., row, 1, 2)):
        found = array[index]
        assert isinstance(found, np.ndarray | np.integer)
        np.testing.assert_array_equal(found, flat[index])
    for wrong in (len(flat), -len(flat) - 1, [0, len(flat)], [0.5], "0"):
        with pytest.raises((IndexError, TypeError)):
            array[wrong]
    for wrong in (True, False, np.True_, [True], np.ones(len(flat), bool), None):
        with pytest.raises(IndexError, match="read by their numbers, not by"):
            array[wrong]
    with pytest.raises(IndexError, match="step 1"):
        array[::2]


def test_batches_and_truth_are_the_same_bits(whole: Path, cut: Path) -> None:
    for split in COUNTS:
        one, other = (SceneDataset(Store.open(folder).split(split)) for folder in (whole, cut))
        scenes = [COUNTS[split] - 1, 0, 1, 0]
        for asked in ("batch", "truth"):
            first, second = (getattr(data, asked)(scenes) for data in (one, other))
            for field in fields(first):
                value, twin = getattr(first, field.name), getattr(second, field.name)
                assert torch.equal(value, twin) if isinstance(value, torch.Tensor) else value == twin, field.name
        small = SceneDataset(other.split, size=(3, 4)).batch(scenes).image
        assert torch.equal(small, SceneDataset(one.split, size=(3, 4)).batch(scenes).image)


def test_other_readers_see_no_difference(whole: Path, cut: Path, tmp_path: Path) -> None:
    one, other = Store.open(whole), Store.open(cut)
    assert check_dataset(whole).scenes == check_dataset(cut).scenes == COUNTS
    assert check_dataset(whole).pictures == check_dataset(cut).pictures
    for split in COUNTS:
        assert list(one.descriptions(split)) == list(other.descriptions(split))
        mine, its = Scenes(cut, split, truth=True), Scenes(whole, split, truth=True)
        for scene in range(COUNTS[split]):
            for key, value in pickle.loads(pickle.dumps(mine))[scene].items():
                assert torch.equal(value, its[scene][key])
        first, second = (SplitFile(folder, split, 2).open("shapes") for folder in (whole, cut))
        assert first.shape == second.shape
        while len(rows := first.next_rows(2)):
            np.testing.assert_array_equal(rows, second.next_rows(2))
    assert contents(export_folders(one, tmp_path / "one")) == contents(export_folders(other, tmp_path / "other"))
    files = [h5py.File(export_hdf5(store, tmp_path / f"{name}.h5")) for name, store in (("a", one), ("b", other))]
    files[0].visititems(lambda name, node: isinstance(node, h5py.Group) or check_equal(node, files[1][name]))


def check_equal(one: Any, other: Any) -> None:
    np.testing.assert_array_equal(one[()], other[()])


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    random = np.random.default_rng(3)
    for scene in range(7):
        folder = tmp_path / "photos" / f"scene-{scene}"
        folder.mkdir(parents=True)
        for view in range(1 + scene % 3):
            Image.fromarray(random.integers(0, 256, (6, 8, 3), np.uint8)).save(folder / f"{view}.png")
            Image.fromarray(random.integers(0, 3, (6, 8), np.uint8)).save(folder / f"{view}_segment.png")
    return tmp_path / "photos"


def test_imports_in_shards(photos: Path, tmp_path: Path) -> None:
    asked = Import(splits=("valid=1,4",))
    (one, notes), (other, same) = (
        import_data("pictures", photos, tmp_path / str(shards), asked, shards=shards) for shards in (1, 3)
    )
    assert notes == same
    assert notes[0].startswith("masks: ")
    assert sorted(path.name for path in (other / "train").iterdir()) == ["00000", "00001", "00002"]
    for split in ("train", "valid"):
        assert Store.open(one).names(split) == Store.open(other).names(split)
        for key, array in Store.open(one).split(split).arrays.items():
            np.testing.assert_array_equal(array, Store.open(other).split(split)[key])
    check_dataset(other)


# What becomes of them on the way: kills, copies, malice.


def test_killed_after_any_write_it_finishes_to_the_same_bytes(
    tmp_path: Path, cut: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "FLUSH_SECONDS", 0.0)
    append = AppendOnlyFile.append
    for moment in range(0, 184, 13):
        calls = iter(range(10**6))

        def dying(self: AppendOnlyFile, data: bytes, moment: int = moment, calls: Any = calls) -> None:
            if next(calls) == moment:
                append(self, bytes(data)[: len(data) // 2])
                kill_self()
            append(self, data)

        def work(out: Path = tmp_path / str(moment), dying: Any = dying) -> None:
            AppendOnlyFile.append = dying  # type: ignore[method-assign]
            make(out, shards=SHARDS)

        assert in_child(work) == -9
        with pytest.raises(UserError, match="unfinished data set"):
            Store.open(tmp_path / str(moment))
        assert contents(make(tmp_path / str(moment), shards=SHARDS)) == contents(cut)


def test_another_number_of_shards_is_another_data_set(tmp_path: Path) -> None:
    world = FullWorld()
    world.before_render = lambda: kill_self() if len(world.rendered) == 4 else None
    assert in_child(lambda: make(tmp_path / "set", world, shards=SHARDS) and None) == -9
    with pytest.raises(UserError, match=r"holds another unfinished data set \(splits: "):
        make(tmp_path / "set", shards=2)


class Torn(BaseException):
    """A process that ended."""


@dataclass(frozen=True)
class Threads(Team):
    """A team of threads; what they send each other is pickled, as between processes."""

    table: Any = None
    largest: Any = None

    def _pass(self, value: Any) -> list[Any]:
        slots, barrier = self.table
        slots[self.rank] = pickle.dumps(value)
        self.largest.append(len(slots[self.rank]))
        barrier.wait()
        found = [pickle.loads(slot) for slot in slots]
        barrier.wait()
        return found

    def tell(self, value: Any) -> Any:
        return self._pass(value)[0]

    def most(self, value: int) -> int:
        return max(self._pass(value))

    def collect(self, value: Any) -> list[Any]:
        return self._pass(value) if self.first else self._pass(value)[:0]


def together(count: int, work: Callable[[Team], object]) -> list[int]:
    """Run a team; answer the sizes of what its members sent. Where one is torn away, all end."""
    slots, barrier, sizes, failures = [b""] * count, threading.Barrier(count), list[int](), list[BaseException]()

    def member(rank: int) -> None:
        try:
            work(Threads(rank, count, table=(slots, barrier), largest=sizes))
        except SystemExit:
            pass  # rank 0 has the word
        except (Torn, threading.BrokenBarrierError):
            barrier.abort()
        except BaseException as error:
            failures.append(error)
            barrier.abort()

    threads = [threading.Thread(target=member, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return sizes


@pytest.mark.parametrize("ranks", [2, 3])
def test_each_process_writes_its_own_shards(ranks: int, cut: Path, tmp_path: Path) -> None:
    """Pictures are larger than all that is sent, and none of them goes through rank 0's hands."""
    worlds = [LargePictures() for _ in range(ranks)]
    sizes = together(ranks, lambda team: make(tmp_path / "set", worlds[team.rank], shards=SHARDS, team=team))
    make(tmp_path / "one", LargePictures(), shards=SHARDS)
    assert contents(tmp_path / "set") == contents(tmp_path / "one")
    assert all(world.rendered for world in worlds)
    image = next((tmp_path / "set" / "train").rglob("image.npy")).stat().st_size
    assert max(sizes) < image / 5


@pytest.mark.parametrize(("ranks", "later"), [(3, 1), (3, 2), (2, 3), (1, 3)])
@pytest.mark.parametrize("moment", range(6))
def test_torn_at_any_batch_others_finish_it(
    ranks: int, later: int, moment: int, cut: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "FLUSH_SECONDS", 0.0)
    lock, rendered = threading.Lock(), iter(range(10**6))

    class Mortal(FullWorld):
        def render(self, *args: Any) -> Any:
            with lock:
                if next(rendered) == moment:
                    raise Torn
            return super().render(*args)

    together(ranks, lambda team: make(tmp_path / "set", Mortal(), shards=SHARDS, batch=1, team=team))
    with pytest.raises(UserError, match="unfinished data set"):
        Store.open(tmp_path / "set")
    together(later, lambda team: make(tmp_path / "set", shards=SHARDS, team=team))
    assert contents(tmp_path / "set") == contents(cut)


def test_an_import_by_several_and_a_broken_source(photos: Path, tmp_path: Path) -> None:
    def work(team: Team, out: str) -> list[str]:
        found.append(import_data("pictures", photos, tmp_path / out, shards=3, team=team)[1])
        return []

    found: list[Any] = []
    together(3, lambda team: work(team, "three"))
    path, notes = import_data("pictures", photos, tmp_path / "one", shards=3)
    assert contents(tmp_path / "three") == contents(path)
    assert notes in found  # masks that the others have seen are counted
    broken = photos / "scene-5" / "1.png"
    broken.write_bytes(broken.read_bytes()[:100])
    with pytest.raises(UserError, match="scene-5"):
        together(3, lambda team: work(team, "none"))
    assert not (tmp_path / "none").exists()


def test_an_import_by_several_without_a_damaged_scene(photos: Path, tmp_path: Path) -> None:
    """Scene 6 would be the whole of valid: all ranks split what is left in the same way."""

    def work(team: Team) -> list[str]:
        import_data("pictures", photos, tmp_path / "three", asked, shards=2, team=team)
        return []

    (photos / "scene-6" / "0.png").write_text("no picture")
    asked = Import(skip_damaged=True)
    together(3, work)
    path, _ = import_data("pictures", photos, tmp_path / "one", asked, shards=2)
    assert Store.open(path).names("valid") == ["scene-5"]
    assert contents(tmp_path / "three") == contents(path)


def test_jobs_are_dealt_by_part() -> None:
    plan = DatasetPlan("t", None, None, None, None, None, None, 1, 1, 1, {"a": SplitPlan(5, 0, (), 3)}, ("image",))
    first, second, third = plan.parts()
    jobs = [Job(first, 0, 1), Job(third, 3, 4), Job(third, 4, 5)]
    assert dealt(plan, jobs, 2) == [jobs[0], Job(second, 3, 3), jobs[1], None, jobs[2], None]


def refused(folder: Path, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        Store.open(folder)
    assert "\n" not in str(caught.value)


def test_missing_truncated_and_strange_shards_are_refused(copy: Path) -> None:
    shutil.move(copy / "train" / "00001", copy / "kept")
    refused(copy, r"train/00001: no such file or folder")
    shutil.copytree(copy / "train" / "00000", copy / "train" / "00001")
    refused(copy, r"train/00001/image\.npy: header says shape \(1, 3, 6, 8, 3\), but it must be \(2, ")
    shutil.rmtree(copy / "train" / "00001")
    shutil.move(copy / "kept", copy / "train" / "00001")
    Store.open(copy)
    shutil.copytree(copy / "train" / "00001", copy / "train" / "00003")
    refused(copy, r"train/00003: a shard that is none of this data set; meta\.json has 3 shards of train")
    shutil.rmtree(copy / "train" / "00003")
    path = copy / "valid" / "00001" / "shapes.npy"
    path.write_bytes(path.read_bytes()[:-1])
    refused(copy, r"valid/00001/shapes\.npy: \d+ bytes long where its header promises")


def test_shards_that_changed_places_or_came_from_elsewhere_have_another_checksum(copy: Path, tmp_path: Path) -> None:
    """Sizes agree: only check-data can tell. (Lines of scenes.jsonl have other lengths; most mix-ups end there.)"""
    foreign = make(tmp_path / "foreign", shards=SHARDS, seed=8)
    for other in (copy / "train" / "00001", foreign / "train" / "00002"):  # with as many scenes
        shutil.copy(other / "image.npy", copy / "train" / "00002" / "image.npy")
        Store.open(copy)
        with pytest.raises(UserError, match=r"train/00002/image\.npy: its bytes are not those that were written"):
            check_dataset(copy)


def test_shards_beside_an_unsharded_split_are_refused(whole: Path, cut: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(whole, tmp_path / "copy"))
    shutil.copytree(cut / "train" / "00000", copy / "train" / "00000")
    refused(copy, r"train/00000: a shard that is none of this data set; meta\.json has no shards of train")


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        (4, "its list of files does not fit its splits and keys"),
        (2, "its list of files does not fit its splits and keys"),
        (1, "its list of files does not fit its splits and keys"),
        (0, r"'shards' must be an integer in 1\.\.5, but is 0"),
        (6, r"'shards' must be an integer in 1\.\.5, but is 6"),
        (-1, "'shards' must be an integer"),
        (10**9, "'shards' must be an integer"),
        (3.0, "'shards' must be an integer"),
        (True, "'shards' must be an integer"),
        ("3", "'shards' must be an integer"),
        (None, "'shards' must be an integer"),
        ([3], "'shards' must be an integer"),
    ],
)
def test_hostile_numbers_of_shards(copy: Path, shards: object, message: str) -> None:
    meta = json.loads((copy / "meta.json").read_text())
    meta["splits"]["train"]["shards"] = shards
    (copy / "meta.json").write_text(json.dumps(meta))
    refused(copy, message)


def test_absurdly_many_shards_cost_no_memory(copy: Path) -> None:
    meta = json.loads((copy / "meta.json").read_text())
    meta["splits"] = {f"s{n}": {"scenes": 10**8, "slots": 3, "shards": 10_000} for n in range(64)}
    (copy / "meta.json").write_text(json.dumps(meta))
    refused(copy, r"7680000 files, more than the limit of 16384")


def test_links_of_shards_cannot_leave_the_folder(copy: Path, tmp_path: Path) -> None:
    shutil.move(copy / "train" / "00001", tmp_path / "outside")
    (copy / "train" / "00001").symlink_to(tmp_path / "outside")
    refused(copy, r"train/00001: links to a place outside the data set")


def test_links_of_shards_are_not_written_through(tmp_path: Path) -> None:
    world = FullWorld()
    world.before_render = lambda: kill_self() if len(world.rendered) == 3 else None
    assert in_child(lambda: make(tmp_path / "set", world, shards=SHARDS) and None) == -9
    (tmp_path / "elsewhere").mkdir()
    shutil.rmtree(tmp_path / "set" / "train" / "00001")
    (tmp_path / "set" / "train" / "00001").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="train/00001: a link; remove it"):
        make(tmp_path / "set", shards=SHARDS)
    assert not any((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("shards", [0, -1, 10_001])
def test_senseless_numbers_are_refused(tmp_path: Path, shards: int) -> None:
    with pytest.raises(UserError, match=rf"--shards {shards}: must be in 1\.\.10000"):
        make(tmp_path / "set", shards=shards)
    assert not (tmp_path / "set").exists()


def test_the_largest_list_of_files_can_be_read_again(tmp_path: Path) -> None:
    split, keys = "s" * 32, tuple(key for key in FullWorld.keys)
    most = MAX_FILES // (len(keys) + 1)
    plan = DatasetPlan(
        "g" * 200, "p" * 200, 0, "fast", "cpu", None, None, 3, 6, 8, {split: SplitPlan(10**8, 255)}, keys
    )
    with pytest.raises(UserError, match=f"--shards {most + 1}: .* files, more than the limit"):
        plan.sharded(most + 1)
    meta = {"files": {name: vars(FileEntry(2**53, "f" * 64)) for name in plan.sharded(most).file_names()}}
    (tmp_path / "meta.json").write_text(json.dumps(plan.sharded(most).to_json() | meta, indent=1))
    assert (tmp_path / "meta.json").stat().st_size < JSON_LIMIT
    assert read_meta(tmp_path / "meta.json").plan == plan.sharded(most)


def test_descriptions_name_the_scene_of_the_split(copy: Path) -> None:
    path = copy / "train" / "00001" / "scenes.jsonl"
    first = path.read_text().splitlines()[0]
    path.write_text(first + "\n" + "x\n")
    reseal(copy)
    with pytest.raises(UserError, match=re.escape("00001/scenes.jsonl: line 2 (scene 2) is not a scene description")):
        check_dataset(copy)


# Open files: every map has one.

MANY = 40
"""Shards of each of two splits: 880 arrays."""


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("many") / "set"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)  # nobody pulls the plug here
        return make_dataset(
            DatasetRecipe(FullWorld(), {"train": MANY, "valid": MANY}, preset="full", seed=7, shards=MANY), out
        )


def allow(soft: int, hard: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def check_all_rows(folder: Path) -> dict[str, SplitArrays]:
    """Scene after scene, every key of both splits, against the plain files."""
    store = Store.open(folder)
    splits = {name: store.split(name) for name in ("train", "valid")}
    for scene in range(MANY):
        for name, split in splits.items():
            for key in split.arrays:
                expected = np.load(folder / name / f"{scene:05d}" / f"{key}.npy")
                np.testing.assert_array_equal(split[key][scene], expected[0])
    return splits


def test_more_shards_than_files_may_be_open(many: Path) -> None:
    """256 is what macOS allows at first. Here it is the last word: maps give way to each other."""

    def work() -> None:
        allow(256, 256)
        check_all_rows(many)
        assert check_dataset(many).scenes == {"train": MANY, "valid": MANY}
        datasets = [SceneDataset(split) for split in check_all_rows(many).values()]
        for data in datasets:
            data.expect(range(MANY), np.tile([0, 1, 2], (MANY, 1)))
            assert len(data.batch(range(MANY)).image) == len(data.truth(range(MANY)).num_objects) == MANY
        assert [os.open(many / "meta.json", os.O_RDONLY) for _ in range(SPARE_FILES)]

    assert in_child(work) == 0


def test_an_array_is_read_whole_with_fewer_files_than_shards(many: Path) -> None:
    def work() -> None:
        few = len(os.listdir("/proc/self/fd")) + SPARE_FILES + MANY // 4
        allow(few, few)
        image = Store.open(many).split("train")["image"]
        expected = np.concatenate([np.load(file) for file in sorted((many / "train").rglob("image.npy"))])
        for found in (np.asarray(image), image[:], image[list(range(MANY))], image[...]):
            np.testing.assert_array_equal(found, expected)

    assert in_child(work) == 0


def test_the_limit_of_open_files_is_raised_where_it_can_be(many: Path) -> None:
    def work() -> None:
        allow(256, 2048)
        splits = check_all_rows(many)
        assert allowed_files() > 256
        arrays = [split[key] for split in splits.values() for key in split.arrays]
        assert all(len(array._maps) == MANY for array in arrays)  # none gave way

    assert in_child(work) == 0


def test_maps_that_are_all_in_use_are_told_in_one_line(many: Path) -> None:
    def work() -> None:
        allow(256, 256)
        splits = [Store.open(many).split(name) for name in ("train", "valid")]
        with pytest.raises(UserError, match=r"256 open files are allowed .*ulimit -n") as caught:
            [split[key][scene] for split in splits for key in split.arrays for scene in range(MANY)]
        assert "\n" not in str(caught.value)

    assert in_child(work) == 0


def test_other_open_files_that_leave_no_room_are_told_too(many: Path) -> None:
    def work() -> None:
        allow(256, 256)
        with pytest.raises(OSError, match="Too many"):
            [os.open(many / "meta.json", os.O_RDONLY) for _ in range(256)]
        with pytest.raises(
            UserError, match=r"^too many open files while reading \S+meta\.json: allow more with `ulimit"
        ):
            Store.open(many)

    assert in_child(work) == 0


def test_keys_and_shards_are_mapped_when_they_are_asked_for(many: Path) -> None:
    def work() -> None:
        before = len(os.listdir("/proc/self/fd"))
        split = Store.open(many).split("train")
        assert "image" in split
        assert len(split.arrays) == len(FullWorld.keys)
        assert len(os.listdir("/proc/self/fd")) == before
        assert split["image"].shape[0] == MANY
        rows = split["image"][3:5]
        assert len(rows) == 2
        assert len(os.listdir("/proc/self/fd")) == before + 2

    assert in_child(work) == 0


def test_a_shard_that_is_cut_off_while_it_is_read_is_told(copy: Path) -> None:
    """In a process of its own, which would be killed. Scene 3 is the first of shard 2."""

    def work() -> None:
        data = SceneDataset(Store.open(copy).split("train"))
        before = data.batch(range(5)).image
        os.truncate(copy / "train" / "00002" / "image.npy", 128)
        with pytest.raises(UserError, match=r"train/00002/image\.npy: cut off while it is read"):
            data.batch([0, 3])
        assert torch.equal(data.batch([0, 2]).image, before[[0, 2]])

    assert in_child(work) == 0


@pytest.mark.parametrize("shards", [False, True])
def test_a_file_out_of_reach_is_still_mapped(
    whole: Path, cut: Path, shards: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removed, renamed with a file in the folder's place, or on a disk that does not answer: only a file that is
    shorter is a reason to stop."""
    folder = Path(shutil.copytree(cut if shards else whole, tmp_path / "copy")) / "train"
    data = SceneDataset(Store.open(folder.parent).split("train"))
    before = data.batch(range(len(data))).image
    folder.rename(tmp_path / "moved")
    assert torch.equal(data.batch(range(len(data))).image, before)
    folder.write_text("a plain file")
    assert torch.equal(data.batch(range(len(data))).image, before)
    for number in (errno.EACCES, errno.ESTALE, errno.EIO):
        with monkeypatch.context() as patched:
            patched.setattr(os, "stat", failing(OSError(number, os.strerror(number))))
            found = data.batch(range(len(data))).image
        assert torch.equal(found, before)


def failing(error: OSError) -> Callable[..., NoReturn]:
    def stat(*_: object, **__: object) -> NoReturn:
        raise error

    return stat


def test_opening_opens_each_file_once(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, plain = list[Path](), os.open
    monkeypatch.setattr(
        os, "open", lambda path, *words, **named: (opened.append(path), plain(path, *words, **named))[1]
    )
    store = Store.open(many)
    assert sorted(opened) == sorted(path for path in many.rglob("*") if path.is_file())
    opened.clear()
    assert len(store.split("train")) == MANY
    assert not opened


def test_an_unpickled_dataset_maps_the_files_again(many: Path, whole: Path) -> None:
    for folder in (many, whole):
        data = SceneDataset(Store.open(folder).split("train"))
        first = data.batch([0, 3]).image
        sent = pickle.dumps(data)
        assert len(sent) < 20_000
        again = pickle.loads(sent)
        again.expect([0, 3], np.array([[0], [1]]))
        assert again.reads_disk
        assert torch.equal(again.batch([0, 3]).image, first)


def test_a_finished_part_is_not_written_again(tmp_path: Path) -> None:
    splits = {"train": SplitPlan(4, 0, (), 2)}
    source = Source("random pictures", 0, "0" * 64)
    plan = DatasetPlan("t", None, None, None, None, source, None, 1, 2, 2, splits, ("image",))
    pictures = np.random.default_rng(0).integers(0, 256, (4, 1, 2, 2, 3), np.uint8)
    with StoreWriter(tmp_path / "set", plan) as writing:
        first, second = plan.parts()
        writing.append(first, {"image": pictures[:2]})
        with pytest.raises(ValueError, match="more than 2 scenes for train/00000"):
            writing.append(first, {"image": pictures[2:]})
        writing.append(second, {"image": pictures[2:]})
        writing.finish()
    np.testing.assert_array_equal(np.asarray(Store.open(tmp_path / "set").split("train")["image"]), pictures)
    check_dataset(tmp_path / "set")
