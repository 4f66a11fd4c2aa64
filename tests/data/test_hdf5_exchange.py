"""Conversion to and from the published layout, against h5py and plain numpy, on made, published-like and real files."""

import json
import os
import resource
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from fake_world import COUNTS, FakeWorld, contents, kill_self, visible
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forked import in_child
from viewslots.data import writer
from viewslots.data.checks import check_dataset
from viewslots.data.exchange import hdf5, hdf5_layout
from viewslots.data.exchange.hdf5 import convert
from viewslots.data.exchange.hdf5_guard import Rows
from viewslots.data.generate import DatasetRecipe, make_dataset
from viewslots.data.store import Store
from viewslots.errors import UserError
from viewslots.files import AppendOnlyFile

REAL = Path(__file__).parents[1] / "data" / "clevr_m1_blender_2scenes.h5"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(
        DatasetRecipe(FakeWorld(), COUNTS, preset="fake", seed=1), tmp_path_factory.mktemp("made") / "set"
    )


def arrays_of(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in contents(folder).items() if name.endswith(".npy")}


def test_a_real_file_by_the_formulas_of_the_layout(tmp_path: Path) -> None:
    folder = convert(REAL, tmp_path / "real")
    split = Store.open(folder).split("valid")
    with h5py.File(REAL) as file:
        group = {name: file["valid"][name][()] for name in file["valid"]}
    assert split.size.slots == 6
    np.testing.assert_array_equal(split["image"], group["image"])
    for s, v, y, x in np.ndindex(2, 4, 64, 64):
        label = group["segment"][s, v, y, x]
        assert split["segment"][s, v, y, x] == (255 if label == 6 else label)
    for k in range(6):
        np.testing.assert_array_equal(split["shapes"][:, :, k], group["masks"][:, :, k, :, :, 0])
    np.testing.assert_array_equal(split["overlap"], group["overlap"])
    np.testing.assert_array_equal(split["depth_order"], -group["order"])
    np.testing.assert_array_equal(split["camera"], group["camera"])
    assert split["num_objects"].tolist() == [3, 6]
    assert "shadows" not in split
    assert check_dataset(folder).scenes == {"valid": 2}
    assert json.loads((folder / "meta.json").read_text())["source"]["name"] == REAL.name


def test_the_nearer_object_of_a_real_file_is_the_one_that_is_seen(tmp_path: Path) -> None:
    """Physics as the oracle of the sign of depth_order: where two shapes are opaque, the larger value is visible."""
    split = Store.open(convert(REAL, tmp_path / "real")).split("valid")
    both = agree = 0
    for s, v in np.ndindex(2, 4):
        for i, j in np.ndindex(6, 6):
            hidden = (split["shapes"][s, v, i] == 255) & (split["shapes"][s, v, j] == 255) & (i < j)
            seen = split["segment"][s, v][hidden]
            nearer = i if split["depth_order"][s, v, i] > split["depth_order"][s, v, j] else j
            both += np.isin(seen, (i, j)).sum()
            agree += (seen == nearer).sum()
    assert both > 100
    assert agree / both > 0.98


def test_real_file_there_and_back(tmp_path: Path) -> None:
    back = convert(convert(REAL, tmp_path / "real"), tmp_path / "back.hdf5")
    with h5py.File(REAL) as before, h5py.File(back) as after:
        assert set(after["valid"]) == set(before["valid"])
        for name in before["valid"]:
            np.testing.assert_array_equal(after["valid"][name], before["valid"][name])
            assert after["valid"][name].dtype == before["valid"][name].dtype
            assert after["valid"][name].chunks == (1, *before["valid"][name].shape[1:])
            assert after["valid"][name].compression == "gzip"


def test_a_store_there_and_back_is_the_same_to_the_byte(made: Path, tmp_path: Path) -> None:
    file = convert(made, tmp_path / "set.h5")
    with h5py.File(file) as exported:
        assert set(exported) == {"train", "valid", "general"}
        assert exported["general/masks"].shape == (3, 3, 5, 6, 8, 1)
        assert exported["general"].attrs["background_index"] == 4
        assert (exported["train/masks"][:, :, 3] == 255).all()
    back = convert(file, tmp_path / "back")
    assert arrays_of(back) == arrays_of(made)
    assert check_dataset(back).scenes == COUNTS
    assert json.loads((back / "meta.json").read_text())["preset"] is None


def published(
    path: Path, scenes: int = 40, single: bool = False, layers: bool = False, **options: object
) -> dict[str, np.ndarray]:
    """A file as the authors' scripts write it: no counts, no order, the library's own chunks over many scenes."""
    random = np.random.default_rng(3)
    views = 1 if single else 2
    shapes = (random.random((scenes, views, 3, 5, 7)) * 255).astype(np.uint8)
    shapes[::2, :, 2] = 0
    shapes[1, :, 1] = 0  # an object that is out of sight in every view, before one that is not
    order = np.broadcast_to([3.0, 2.0, 1.0], (scenes, views, 3))
    data = {
        "image": random.integers(0, 256, (scenes, views, 5, 7, 3), np.uint8),
        "segment": visible(shapes, order),
        "overlap": (shapes >= 128).sum(2).astype(np.uint8),
        "shapes": shapes,
    }
    background = np.full((scenes, views, 1, 5, 7), 255, np.uint8)
    alpha = np.concatenate([shapes, background], 2)[..., None]
    colour = random.integers(0, 256, (*alpha.shape[:-1], 3), np.uint8)
    stored = {
        "image": data["image"],
        "segment": np.where(data["segment"] == 255, 3, data["segment"]).astype(np.uint8),
        "overlap": data["overlap"],
        ("layers" if layers else "masks"): np.concatenate([colour, alpha], -1) if layers else alpha,
    }
    with h5py.File(path, "w") as file:
        for group in ("train", "test"):
            for name, value in stored.items():
                value = value[:, 0] if single else value
                file.create_dataset(f"{group}/{name}", data=value, **(options or {"compression": True}))
    return data


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("layers", [False, True])
def test_published_files_single_and_multi_view_masks_and_layers(tmp_path: Path, single: bool, layers: bool) -> None:
    data = published(tmp_path / "authors.h5", single=single, layers=layers)
    store = Store.open(convert(tmp_path / "authors.h5", tmp_path / "set"))
    assert store.splits == ("train", "test1")
    split = store.split("train")
    for key, value in data.items():
        np.testing.assert_array_equal(split[key], value)
    for scene, count in enumerate(split["num_objects"]):
        used = [k for k in range(3) if data["shapes"][scene, :, k].any()]
        assert count == max(used) + 1
    assert split["num_objects"][1] == 3
    check_dataset(tmp_path / "set")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": None},
        {"compression": "gzip", "shuffle": True},
        {"chunks": True},
    ],
)
@pytest.mark.parametrize("block_bytes", [1, 3000, 2**28])
def test_every_way_of_storing_reads_the_same(
    tmp_path: Path, options: dict[str, object], block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hdf5_layout, "BLOCK_BYTES", block_bytes)
    data = published(tmp_path / "authors.h5", scenes=9, **options)
    split = Store.open(convert(tmp_path / "authors.h5", tmp_path / "set")).split("test1")
    for key, value in data.items():
        np.testing.assert_array_equal(split[key], value)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_chunk_by_chunk_reading_agrees_with_h5py(tmp_path: Path, data: st.DataObject) -> None:
    draw = data.draw
    shape = draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    chunk = tuple(draw(st.integers(1, extent)) for extent in shape)
    values = np.random.default_rng(0).normal(size=shape).astype(draw(st.sampled_from(["u1", "<f4", ">f8", "<i2"])))
    with h5py.File(tmp_path / "any.h5", "w") as file:
        dataset = file.create_dataset(
            "x", shape, values.dtype, chunks=chunk, shuffle=draw(st.booleans()), fillvalue=7,
            compression=draw(st.sampled_from([None, "gzip"])),
        )  # fmt: skip
        low = draw(st.integers(0, shape[0]))
        dataset[low:] = values[low:]  # what was never written is the fill value
        low = draw(st.integers(0, shape[0] - 1))
        high = draw(st.integers(low + 1, shape[0]))
        np.testing.assert_array_equal(Rows(dataset, "x").read(low, high), dataset[low:high])


@pytest.mark.parametrize("skipped", [0b10, 0b11])
def test_chunks_that_were_stored_without_compression_are_read_as_they_are(tmp_path: Path, skipped: int) -> None:
    with h5py.File(tmp_path / "any.h5", "w") as file:
        dataset = file.create_dataset("x", (4, 6), "<i2", chunks=(2, 6), shuffle=True, compression="gzip")
        dataset[:] = 1
        dataset.id.write_direct_chunk((2, 0), bytes(range(24)), filter_mask=skipped)
    with h5py.File(tmp_path / "any.h5") as file:
        np.testing.assert_array_equal(Rows(file["x"], "x").read(0, 4), file["x"][:])


def test_phase_names_of_the_loaders_and_foreign_groups(made: Path, tmp_path: Path) -> None:
    convert(made, tmp_path / "set.h5")
    with h5py.File(tmp_path / "set.h5", "a") as file:
        file.move("valid", "validation")
        file.move("general", "test_2")
        file.move("train", "my-own")
        file.create_group("notes").create_dataset("words", data=[1, 2])
        file.create_dataset("version", data=3)
        file["my-own"].create_dataset("viewpoint", data=np.zeros(4))
        del file["my-own/camera"]
        file["my-own/camera"] = np.eye(4)  # the same name for something else
    store = Store.open(convert(tmp_path / "set.h5", tmp_path / "back"))
    assert set(store.splits) == {"my-own", "valid", "test2"}
    np.testing.assert_array_equal(store.split("my-own")["image"], np.load(made / "train" / "image.npy"))
    np.testing.assert_array_equal(store.split("test2")["shapes"], np.load(made / "test2" / "shapes.npy"))
    assert "camera" in store.split("valid")
    assert "camera" not in store.split("my-own")
    assert "depth_order" in store.split("my-own")


def test_sets_of_one_view_are_written_without_the_view_axis(tmp_path: Path) -> None:
    class OneView(FakeWorld):
        views = 1

    made = make_dataset(DatasetRecipe(OneView(), {"train": 3}, preset="fake", seed=1), tmp_path / "set")
    file = convert(made, tmp_path / "set.h5")
    with h5py.File(file) as exported:
        shapes = {name: dataset.shape for name, dataset in exported["train"].items()}
    assert shapes["image"] == (3, 6, 8, 3)
    assert shapes["masks"] == (3, 4, 6, 8, 1)
    assert shapes["order"] == (3, 3)
    assert shapes["num_objects"] == (3,)
    assert arrays_of(convert(file, tmp_path / "back")) == arrays_of(made)


def test_huge_scenes_are_cut_into_chunks_that_can_be_read_again(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hdf5, "CHUNK_BYTES", 100)
    file = convert(made, tmp_path / "set.h5")
    with h5py.File(file) as exported:
        assert exported["train/masks"].chunks == (1, 1, 1, 6, 8, 1)
    assert arrays_of(convert(file, tmp_path / "back")) == arrays_of(made)


def test_a_few_rounded_overlaps_are_counted_again(tmp_path: Path) -> None:
    data = published(tmp_path / "authors.h5")
    with h5py.File(tmp_path / "authors.h5", "a") as file:
        file["train/overlap"][4, 0, 2, 3] += 1  # 1 pixel of 70: more than 1 %
    with pytest.raises(UserError, match="train: scene 4: overlap is not the number of alphas >= 128"):
        convert(tmp_path / "authors.h5", tmp_path / "set")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hdf5_layout, "TOLERATED", 0.02)
        split = Store.open(convert(tmp_path / "authors.h5", tmp_path / "set")).split("train")
    np.testing.assert_array_equal(split["overlap"], data["overlap"])


def test_progress_counts_scenes(made: Path, tmp_path: Path) -> None:
    for source, target in ((made, "set.h5"), (tmp_path / "set.h5", "back")):
        reports: list[tuple[int, int]] = []
        convert(source, tmp_path / target, lambda done, total, reports=reports: reports.append((done, total)))
        assert reports[-1] == (10, 10)
        assert reports == sorted(reports)


def test_an_interrupted_import_is_no_data_set_and_is_finished_by_the_same_command(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = convert(made, tmp_path / "set.h5")
    whole = contents(convert(file, tmp_path / "whole"))
    monkeypatch.setattr(writer, "FLUSH_SECONDS", 0.0)
    append = AppendOnlyFile.append
    for moment in (3, 22, 29, 37, 44):
        calls = iter(range(10**6))

        def dying(self: AppendOnlyFile, data: bytes, moment: int = moment, calls: object = calls) -> None:
            if next(calls) == moment:  # type: ignore[call-overload]
                append(self, bytes(data)[:5])
                kill_self()
            append(self, data)

        def work(out: Path = tmp_path / str(moment), dying: object = dying) -> None:
            AppendOnlyFile.append = dying  # type: ignore[method-assign, assignment]
            convert(file, out)

        assert in_child(work) == -9
        with pytest.raises(UserError, match="unfinished data set"):
            Store.open(tmp_path / str(moment))
        assert contents(convert(file, tmp_path / str(moment))) == whole


def test_an_interrupted_export_leaves_no_file(made: Path, tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        if done > 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(made, tmp_path / "set.h5", interrupt)
    assert list(tmp_path.iterdir()) == []
    assert in_child(lambda: convert(made, tmp_path / "set.h5", lambda done, total: kill_self()) and None) == -9
    assert not list(tmp_path.glob("*.h5"))
    convert(made, tmp_path / "set.h5")


def test_places_that_are_taken_missing_or_senseless(made: Path, tmp_path: Path) -> None:
    file = convert(made, tmp_path / "set.h5")
    before = file.read_bytes()
    with pytest.raises(UserError, match=r"set\.h5: already exists"):
        convert(made, file)
    with pytest.raises(UserError, match="nowhere: no such folder"):
        convert(made, tmp_path / "nowhere" / "set.h5")
    with pytest.raises(UserError, match="already a complete data set"):
        convert(file, made)
    with pytest.raises(UserError, match="one of the two must be a folder"):
        convert(file, tmp_path / "other.hdf5")
    with pytest.raises(UserError, match="one of the two must be a folder"):
        convert(made, tmp_path / "other")
    with pytest.raises(UserError, match=r"missing\.h5: no such file"):
        convert(tmp_path / "missing.h5", tmp_path / "other")
    assert file.read_bytes() == before


def test_splits_that_would_share_a_group_are_refused(tmp_path: Path) -> None:
    made = make_dataset(DatasetRecipe(FakeWorld(), {"test": 1, "test1": 1}, preset="fake", seed=1), tmp_path / "set")
    with pytest.raises(UserError, match="would share a group"):
        convert(made, tmp_path / "set.h5")


@pytest.mark.parametrize("limit", [0, 100, 9000, 50_000])
def test_a_full_disk_while_exporting_gives_one_line_and_no_noise(
    made: Path, tmp_path: Path, limit: int, capfd: pytest.CaptureFixture[str]
) -> None:
    def work() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        reports: list[int] = []
        try:
            convert(made, tmp_path / "set.h5", lambda done, total: reports.append(done))
        except UserError as error:
            stopped = len(reports) < len(COUNTS)
            os._exit(17 if "set.h5: File too large" in str(error) and stopped else 18)

    assert in_child(work) == 17
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr().err == ""


def test_an_imported_set_needs_no_original(tmp_path: Path) -> None:
    shutil.copy(REAL, tmp_path / "real.h5")
    folder = convert(tmp_path / "real.h5", tmp_path / "set")
    (tmp_path / "real.h5").unlink()
    check_dataset(folder)
    assert next(Store.open(folder).descriptions("valid")) == {"name": "valid/0"}
