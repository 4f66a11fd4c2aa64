"""Data sets that know less than ours, or other things: pictures alone, fewer views, and folders of version 1."""

import json
import shutil
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import h5py
import numpy as np
import pytest
from fake_world import COUNTS, FakeWorld, FullWorld, contents

from viewslots.data.checks import check_dataset
from viewslots.data.dataset import SceneDataset
from viewslots.data.exchange.hdf5 import convert
from viewslots.data.format import KEYS, DatasetPlan, SplitPlan
from viewslots.data.generate import DatasetRecipe, make_dataset
from viewslots.data.store import SplitArrays, Store
from viewslots.data.views import FirstViews, LastViews, RandomViews, view_table
from viewslots.data.writer import StoreWriter
from viewslots.errors import UserError
from viewslots.types import Pictures


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(
        DatasetRecipe(FakeWorld(), COUNTS, preset="fake", seed=1), tmp_path_factory.mktemp("made") / "set"
    )


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(
        DatasetRecipe(FullWorld(), COUNTS, preset="full", seed=1), tmp_path_factory.mktemp("full") / "set"
    )


def reduced(folder: Path, out: Path, keys: tuple[str, ...], slots: int | None = None) -> Path:
    """A data set with some of another one's keys."""
    store = Store.open(folder)
    splits = {
        name: SplitPlan(COUNTS[name], store.split(name).size.slots if slots is None else slots) for name in COUNTS
    }
    plan = DatasetPlan("test", None, None, None, None, None, None, 3, 6, 8, splits, keys)
    with StoreWriter(out, plan) as writer:
        for name, count in COUNTS.items():
            split = store.split(name)
            writer.append(plan.parts(name)[0], {key: split[key] for key in keys}, [{}] * count)
        return writer.finish()


def test_pictures_alone_are_a_data_set(made: Path, tmp_path: Path) -> None:
    folder = reduced(made, tmp_path / "set", ("image",), slots=0)
    assert check_dataset(folder).scenes == COUNTS
    meta = json.loads((folder / "meta.json").read_text())
    assert meta["format_version"] == 2
    assert list(meta["keys"]) == ["image"]
    data = SceneDataset(Store.open(folder).split("train"))
    image = np.load(made / "train" / "image.npy")[[3]].transpose(0, 1, 4, 2, 3) / 255
    np.testing.assert_allclose(data.batch([3]).image, image, atol=1e-7)
    truth = data.truth([3])
    assert {name.name for name in fields(truth) if getattr(truth, name.name) is not None} == {"view_mask", "identities"}


def test_slots_are_needed_where_arrays_have_them(made: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"slots is 0, but must be in 1\.\.255"):
        reduced(made, tmp_path / "set", ("image", "depth_order"), slots=0)


def test_num_views_limits_the_views(tmp_path: Path) -> None:
    plan = DatasetPlan(
        "test", None, None, None, None, None, None, 256, 2, 2, {"a": SplitPlan(1, 0)}, ("image", "num_views")
    )
    with pytest.raises(UserError, match="views is 256, but num_views counts only to 255"):
        StoreWriter(tmp_path / "set", plan)


def as_version_1(folder: Path, out: Path) -> Path:
    """As folders were written before there was a version 2."""
    shutil.copytree(folder, out)
    meta = json.loads((out / "meta.json").read_text())
    (out / "meta.json").write_text(json.dumps(meta | {"format_version": 1}, indent=1))
    return out


def test_version_1_still_opens_checks_and_reads(made: Path, tmp_path: Path) -> None:
    old = as_version_1(made, tmp_path / "old")
    assert check_dataset(old).scenes == COUNTS
    for name, array in Store.open(made).split("test2").arrays.items():
        np.testing.assert_array_equal(Store.open(old).split("test2")[name], array)


@pytest.mark.parametrize("key", ["image", "segment", "overlap", "shapes", "num_objects"])
def test_version_1_had_more_to_have(made: Path, tmp_path: Path, key: str) -> None:
    old = as_version_1(made, tmp_path / "old")
    meta = json.loads((old / "meta.json").read_text())
    del meta["keys"][key]
    meta["files"] = {name: entry for name, entry in meta["files"].items() if not name.endswith(f"/{key}.npy")}
    (old / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(UserError, match=f"key {key} is missing"):
        Store.open(old)


def test_views_that_a_scene_does_not_have_are_never_shown(full: Path) -> None:
    data = SceneDataset(Store.open(full).split("train"))  # 1, 2, 3, 1, 2 views
    assert data.batch([0, 1, 2, 3]).view_mask.sum(1).tolist() == [1, 2, 3, 1]
    batch, truth = data.batch([1, 2], LastViews(2)), data.truth([1, 2], LastViews(2))
    images = np.load(full / "train" / "image.npy").transpose(0, 1, 4, 2, 3) / 255
    np.testing.assert_allclose(batch.image[0], images[1, :2], atol=1e-7)
    np.testing.assert_allclose(batch.image[1], images[2, 1:], atol=1e-7)
    assert batch.view_mask.all()
    one = data.truth([0, 2])
    assert (one.segment[0, 1:] == 255).all()
    assert (one.depth_order[0, 1:] == -np.inf).all()
    assert truth.view_mask.all()
    with pytest.raises(UserError, match="4 views asked for, but scenes have 3 views"):
        data.batch([0], FirstViews(4))


@pytest.mark.parametrize("count", [0, 4])
def test_a_lie_about_the_views_is_named(count: int) -> None:
    world = FullWorld()
    pictures = world.render([world.sample(1, "train", index) for index in range(3)], 3)
    pictures.num_views[1] = count
    with pytest.raises(UserError, match=r"split train, scene 1: num_views is not in 1\.\.3"):
        SceneDataset(SplitArrays.from_pictures("train", pictures))


def test_random_views_of_fewer_are_all_there_are() -> None:
    counts = np.array([2, 10, 5])
    choice = RandomViews(4, 4, seed=1)
    table = view_table(choice, [0, 1, 2], 10, counts)
    assert sorted(table[0].tolist()) == [-1, -1, 0, 1]
    assert table[1].tolist() == list(choice.choose(1, 10))
    assert set(table[2].tolist()) <= set(range(5))
    assert len(set(table[2].tolist())) == 4


def test_pictures_follow_what_they_know() -> None:
    world = FullWorld()
    scenes = [world.render([world.sample(1, "train", index)], 3) for index in range(3)]
    joined = Pictures.concatenate(scenes)
    assert joined.keys() == tuple(KEYS)
    assert joined.num_views.tolist() == [1, 2, 3]
    fewer = joined.first_views(2)
    assert fewer.num_views.tolist() == [1, 2, 2]
    assert fewer.pose.shape == (3, 2, 4, 4)
    np.testing.assert_array_equal(fewer.num_objects, joined.num_objects)
    alone = Pictures(joined.image)
    assert alone.keys() == ("image",)
    assert alone.padded(7).first_views(1).keys() == ("image",)
    assert SplitArrays.from_pictures("x", alone).size.slots == 0
    assert SplitArrays.from_pictures("x", Pictures(joined.image, np.full((3, 3, 6, 8), 4, np.uint8))).size.slots == 5
    padded = joined.padded(5)
    assert padded.shapes.shape[2] == padded.shadows.shape[2] == padded.depth_order.shape[2] == 5
    assert (padded.depth_order[:, :, 3:] == -np.inf).all()
    assert not padded.shapes[:, :, 3:].any()
    np.testing.assert_array_equal(padded.shapes[:, :, :3], joined.shapes)
    with pytest.raises(ValueError, match="different things are known"):
        Pictures.concatenate([joined, alone])


def arrays_of(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in contents(folder).items() if name.endswith(".npy")}


@pytest.mark.parametrize(
    "keys",
    [
        ("image",),
        ("image", "segment"),
        ("image", "segment", "num_objects"),
        ("image", "shapes", "overlap", "num_objects", "num_views"),
        ("image", "depth_order", "camera"),
        ("image", "shadows", "pose", "intrinsics"),
        tuple(KEYS),
    ],
)
def test_hdf5_there_and_back_with_some_of_the_truth(full: Path, tmp_path: Path, keys: tuple[str, ...]) -> None:
    keys = tuple(key for key in KEYS if key in keys)
    if "num_views" not in keys:  # then empty views would be lies
        full = make_dataset(DatasetRecipe(AllViews(), COUNTS, preset="full", seed=1), tmp_path / "all")
    folder = reduced(full, tmp_path / "set", keys)
    file = convert(folder, tmp_path / "set.h5")
    with h5py.File(file) as opened:
        assert ("masks" in opened["train"]) == ("shapes" in keys)
        assert ("segment" in opened["train"]) == ("segment" in keys)
    back = convert(file, tmp_path / "back")
    assert arrays_of(back) == arrays_of(folder)
    assert check_dataset(back).scenes == COUNTS


class AllViews(FullWorld):
    keys = tuple(key for key in KEYS if key != "num_views")

    def _render(self, scene, slots):  # type: ignore[no-untyped-def]
        flat = FakeWorld._render(self, scene, slots)
        pose = np.broadcast_to(np.eye(4, dtype=np.float32), (1, 3, 4, 4)).copy()
        pose[..., :3, 3] = flat.camera
        return Pictures(**vars(flat) | {"pose": pose, "intrinsics": np.full((1, 3, 4), 2, np.float32)})


def foreign(path: Path, segment: np.ndarray, **attributes: int) -> Path:
    with h5py.File(path, "w") as file:
        group = file.create_group("train")
        group["image"] = np.zeros((*segment.shape, 3), np.uint8)
        group["segment"] = segment
        group.attrs.update(attributes)
    return path


SEGMENT = np.array([[[[0, 0, 3], [1, 3, 3]]], [[[3, 3, 3], [0, 2, 3]]]], np.uint8)


def test_the_background_of_a_foreign_segment_is_its_largest_index(tmp_path: Path) -> None:
    folder = convert(foreign(tmp_path / "a.h5", SEGMENT), tmp_path / "a")
    split = Store.open(folder).split("train")
    assert tuple(split.arrays) == ("image", "segment")
    assert split.size.slots == 3
    assert split["segment"].tolist() == [[[[0, 0, 255], [1, 255, 255]]], [[[255, 255, 255], [0, 2, 255]]]]
    check_dataset(folder)


@pytest.mark.parametrize("name", ["background_index", "max_objects"])
def test_the_background_may_be_named(tmp_path: Path, name: str) -> None:
    split = Store.open(convert(foreign(tmp_path / "a.h5", SEGMENT, **{name: 6}), tmp_path / "a")).split("train")
    assert split.size.slots == 6
    np.testing.assert_array_equal(split["segment"], SEGMENT)
    with pytest.raises(UserError, match="train: scene 0: segment has values above 2"):
        convert(foreign(tmp_path / "b.h5", SEGMENT, **{name: 2}), tmp_path / "b")


@pytest.mark.parametrize("value", ["six", [6, 6], 6.5, np.zeros(100)])
def test_a_name_for_something_else_is_ignored(tmp_path: Path, value: object) -> None:
    path = foreign(tmp_path / "a.h5", SEGMENT)
    with h5py.File(path, "a") as file:
        file["train"].attrs["max_objects"] = value
    assert Store.open(convert(path, tmp_path / "a")).split("train").size.slots == 3


@pytest.mark.parametrize("value", [-1, 256, 10**12])
def test_an_absurd_number_of_objects_is_refused(tmp_path: Path, value: int) -> None:
    path = foreign(tmp_path / "a.h5", SEGMENT, max_objects=value)
    with pytest.raises(UserError, match=rf"train: slots is {value}, but must be in 0\.\.255"):
        convert(path, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_nothing_but_background(tmp_path: Path) -> None:
    folder = convert(foreign(tmp_path / "a.h5", np.zeros((2, 1, 2, 3), np.uint8)), tmp_path / "a")
    assert (Store.open(folder).split("train")["segment"] == 255).all()
    check_dataset(folder)


def test_what_one_group_lacks_the_others_keep(full: Path, tmp_path: Path) -> None:
    file = convert(full, tmp_path / "set.h5")
    with h5py.File(file, "a") as opened:
        del opened["valid/pose"], opened["train/masks"]
    store = Store.open(convert(file, tmp_path / "set"))
    assert set(KEYS) - set(store.split("valid").arrays) == {"pose"}
    assert set(KEYS) - set(store.split("train").arrays) == {"shapes"}
    assert set(KEYS) == set(store.split("test2").arrays)
    check_dataset(store.path)
    np.testing.assert_array_equal(store.split("train")["segment"], np.load(full / "train" / "segment.npy"))


def test_a_group_with_fewer_views_is_padded(made: Path, tmp_path: Path) -> None:
    file = convert(made, tmp_path / "set.h5")
    with h5py.File(file, "a") as opened:
        for name, dataset in list(opened["valid"].items()):
            rows = dataset[()] if name == "num_objects" else dataset[:, :2]
            del opened[f"valid/{name}"]
            opened[f"valid/{name}"] = rows
    store = Store.open(convert(file, tmp_path / "set"))
    check_dataset(store.path)
    assert store.split("valid")["num_views"].tolist() == [2, 2]
    assert store.split("train")["num_views"].tolist() == [3] * 5
    np.testing.assert_array_equal(store.split("valid")["image"][:, :2], np.load(made / "valid" / "image.npy")[:, :2])


def rewritten(folder: Path, change: Callable[[dict], object]) -> Path:
    meta = json.loads((folder / "meta.json").read_text())
    change(meta)
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda meta: meta["splits"]["train"].update(without=["image"]), "split train cannot be without"),
        (lambda meta: meta["splits"]["train"].update(without="segment"), "split train cannot be without"),
        (lambda meta: meta["splits"]["train"].update(without=[{}]), "split train cannot be without"),
        (lambda meta: meta["splits"]["train"].update(without=["segment"]), "its list of files does not fit"),
        (lambda meta: [s.update(without=["camera"]) for s in meta["splits"].values()], "no split has the key camera"),
        (
            lambda meta: (meta.update(format_version=1), meta["splits"]["train"].update(without=["camera"])),
            "split train cannot be without",
        ),
    ],
)
def test_lies_about_what_a_split_lacks(
    made: Path, tmp_path: Path, change: Callable[[dict], object], message: str
) -> None:
    shutil.copytree(made, tmp_path / "set")
    with pytest.raises(UserError, match=message):
        Store.open(rewritten(tmp_path / "set", change))
