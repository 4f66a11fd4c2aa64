"""The on-disk contract, read back by plain numpy and json; and every way a folder may lie about itself."""

import json
import os
import pickle
import re
import shutil
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from fake_world import COUNTS, FakeWorld, contents, reseal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from viewslots.data.format import KEYS, DatasetPlan, SplitPlan
from viewslots.data.generate import DatasetRecipe, make_dataset
from viewslots.data.store import Store
from viewslots.data.writer import StoreWriter
from viewslots.errors import UserError
from viewslots.types import Pictures

FAST = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(
        DatasetRecipe(FakeWorld(), COUNTS, preset="fake", seed=7), tmp_path_factory.mktemp("made") / "set"
    )


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy"))


def opened(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    store = Store.open(folder)
    return {name: {key: np.array(array) for key, array in store.split(name).arrays.items()} for name in store.splits}


def test_plain_numpy_reads_what_the_world_drew(made: Path) -> None:
    world, meta = FakeWorld(), json.loads((made / "meta.json").read_text())
    assert {name: split["scenes"] for name, split in meta["splits"].items()} == COUNTS
    for split, count in COUNTS.items():
        arrays = {key: np.load(made / split / f"{key}.npy") for key in meta["keys"]}
        lines = (made / split / "scenes.jsonl").read_text().splitlines()
        assert len(lines) == count
        for index in range(count):
            scene = world.sample(7, split, index)
            truth = world.render([scene], world.slots(split))
            assert truth.keys() == tuple(arrays)
            for key in arrays:
                np.testing.assert_array_equal(arrays[key][index], getattr(truth, key)[0])
                assert arrays[key].dtype == getattr(truth, key).dtype
            assert json.loads(lines[index])["discs"] == [list(disc) for disc in scene.discs]


def test_the_manual_lists_the_keys_as_they_are() -> None:
    manual = (Path(__file__).parents[2] / "docs" / "data-format.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| \[([\w,]+)\] \| (\w+) \|", manual, re.MULTILINE)
    assert rows == [(name, key.axes.replace(" ", ","), key.dtype) for name, key in KEYS.items()]
    assert tuple(KEYS) == tuple(field.name for field in fields(Pictures))


def test_descriptions_draw_the_same_scenes_again(made: Path) -> None:
    lines = list(Store.open(made).descriptions("test2"))
    assert [line["index"] for line in lines] == [0, 1, 2]
    assert lines[1] == json.loads(json.dumps(FakeWorld().sample(7, "test2", 1).to_dict()))


@FAST
@given(st.data())
def test_whatever_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    draw = data.draw
    sizes = {axis: draw(st.integers(1, 4), axis) for axis in "SMKHW"}
    plan = DatasetPlan("test", None, None, None, None, None, None, sizes["M"], sizes["H"], sizes["W"],
                {"a-split_1": SplitPlan(sizes["S"], sizes["K"])}, tuple(KEYS))  # fmt: skip
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    arrays = {}
    for name, key in KEYS.items():
        bytes_ = random.integers(0, 256, (*key.shape(plan.size("a-split_1")), key.itemsize), np.uint8)
        arrays[name] = bytes_.view(key.dtype)[..., 0]
    folder = tmp_path_factory.mktemp("round") / "set"
    with StoreWriter(folder, plan) as writer:
        while (low := writer.done("a-split_1")) < sizes["S"]:
            high = draw(st.integers(low + 1, sizes["S"]))
            part = {name: array[low:high] for name, array in arrays.items()}
            writer.append(plan.parts()[0], part, [{"scene": index} for index in range(low, high)])
        writer.finish()
    read = Store.open(folder).split("a-split_1")
    for name, array in arrays.items():
        assert array.tobytes() == read[name].tobytes() == np.load(folder / f"a-split_1/{name}.npy").tobytes()
    assert list(Store.open(folder).descriptions("a-split_1")) == [{"scene": index} for index in range(sizes["S"])]


@FAST
@given(st.data())
def test_flipped_bytes_of_meta_give_one_line(made: Path, tmp_path: Path, data: st.DataObject) -> None:
    text = bytearray((made / "meta.json").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    _mirror(made, tmp_path / "set")
    (tmp_path / "set" / "meta.json").write_bytes(text)
    _opens_or_says_why(tmp_path / "set")


@FAST
@given(st.data())
def test_hostile_values_in_meta_give_one_line(made: Path, tmp_path: Path, data: st.DataObject) -> None:
    absurd = st.recursive(
        st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=5)
        | st.sampled_from(["../../etc", "a/b", "", "train\x00", 10**400]),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
        max_leaves=4,
    )  # fmt: skip
    meta = json.loads((made / "meta.json").read_text())
    node, steps = meta, data.draw(st.integers(1, 3))
    for step in range(steps):
        name = data.draw(st.sampled_from(sorted(node)))
        if step == steps - 1 or not isinstance(node[name], dict) or not node[name]:
            if data.draw(st.booleans()):
                node[name] = data.draw(absurd)
            else:
                node[data.draw(st.text(max_size=5) | st.just("../x"))] = node.pop(name)
            break
        node = node[name]
    _mirror(made, tmp_path / "set")
    (tmp_path / "set" / "meta.json").write_text(json.dumps(meta))
    _opens_or_says_why(tmp_path / "set")


@FAST
@given(st.data())
def test_flipped_bytes_of_headers_give_one_line_or_the_same_data(
    made: Path, tmp_path: Path, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(["train/image.npy", "test2/depth_order.npy", "valid/num_objects.npy"]))
    _mirror(made, tmp_path / "set")
    text = bytearray((made / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, 127))] = data.draw(st.integers(0, 255))
    (tmp_path / "set" / name).unlink()
    (tmp_path / "set" / name).write_bytes(text)
    if _opens_or_says_why(tmp_path / "set"):
        split, key = name.removesuffix(".npy").split("/")
        original = np.load(made / name)
        np.testing.assert_array_equal(Store.open(tmp_path / "set").split(split)[key], original)


def _mirror(made: Path, folder: Path) -> None:
    """A copy of hard links, quick enough for a property test; meta.json its own."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(made, folder, copy_function=os.link)
    (folder / "meta.json").unlink()
    shutil.copy(made / "meta.json", folder)


def _opens_or_says_why(folder: Path) -> bool:
    try:
        opened(folder)
    except UserError as error:
        message = str(error)
    else:
        return True
    assert message.startswith(str(folder))
    assert "\n" not in message
    return False


class Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, int]]:
        return os.open, (str(self.path), os.O_CREAT)


def test_a_pickle_is_not_executed(copy: Path, tmp_path: Path) -> None:
    bait = np.empty(COUNTS["train"], object)
    bait[:] = [Evil(tmp_path / "owned")] * len(bait)
    np.save(copy / "train" / "num_objects.npy", bait, allow_pickle=True)
    assert b"posix" in pickle.dumps(Evil(tmp_path / "owned"))
    reseal(copy)
    with pytest.raises(UserError, match=r"num_objects\.npy: header says descr '\|O'"):
        Store.open(copy)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: np.asfortranarray(np.load(f)), "fortran_order True"),
        (lambda f: np.load(f).astype(">f4"), "descr '>f4'"),
        (lambda f: np.load(f).astype("<f8"), "descr '<f8'"),
        (lambda f: np.load(f)[:, :2], r"shape \(5, 2, 3\)"),
        (lambda f: np.load(f)[..., None], r"shape \(5, 3, 3, 1\)"),
    ],
)
def test_arrays_must_be_exactly_as_promised(copy: Path, change: object, message: str) -> None:
    path = copy / "train" / "camera.npy"
    np.save(path, change(path))  # type: ignore[operator]
    reseal(copy)
    with pytest.raises(UserError, match=rf"train/camera\.npy: header says {message}"):
        Store.open(copy)


@pytest.mark.parametrize("change", [lambda b: b[:-1], lambda b: b + b"\0", lambda b: b[:100], lambda b: b""])
def test_a_file_shorter_or_longer_than_its_header_is_never_mapped(copy: Path, change: object) -> None:
    path = copy / "valid" / "shapes.npy"
    path.write_bytes(change(path.read_bytes()))  # type: ignore[operator]
    reseal(copy)
    with pytest.raises(UserError, match=r"valid/shapes\.npy: "):
        Store.open(copy)


def test_a_file_of_another_size_than_meta_says_is_refused(copy: Path) -> None:
    with open(copy / "train" / "scenes.jsonl", "ab") as file:
        file.write(b"{}\n")
    with pytest.raises(UserError, match=r"scenes\.jsonl: \d+ bytes long where meta\.json says"):
        Store.open(copy)


def edited(folder: Path, **changes: object) -> Path:
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | changes))
    return folder


def test_a_newer_version_says_update(copy: Path) -> None:
    with pytest.raises(UserError, match="format version 4 is newer than this program reads"):
        Store.open(edited(copy, format_version=4, splits="something new"))


@pytest.mark.parametrize("name", ["../copy/train", "..", "/tmp", "", "Train", "a/b", "train\n"])
def test_split_names_cannot_climb(copy: Path, name: str) -> None:
    with pytest.raises(UserError, match="cannot be the name of a split"):
        Store.open(edited(copy, splits={name: {"scenes": 5, "slots": 3}}))


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"scenes": 5, "slots": 256}, "'slots' must be an integer in 0..255, but is 256"),
        ({"scenes": 10**9, "slots": 3}, "'scenes' must be an integer in 1..100000000"),
        ({"scenes": -5, "slots": 3}, "'scenes' must be an integer"),
        ({"scenes": 5.0, "slots": 3}, "'scenes' must be an integer"),
        ({"scenes": True, "slots": 3}, "'scenes' must be an integer"),
        ({"scenes": "5", "slots": 3}, "'scenes' must be an integer"),
        ({"scenes": 5}, "'slots' must be an integer in 0..255, but is missing"),
        ([], "'train' must be an object"),
        ({"scenes": 6, "slots": 3}, "header says shape (5, 3, 6, 8, 3), but it must be (6, 3, 6, 8, 3)"),
        ({"scenes": 5, "slots": 255}, "header says shape (5, 3, 3, 6, 8), but it must be (5, 3, 255, 6, 8)"),
    ],
)
def test_absurd_or_wrong_sizes_are_refused(copy: Path, split: object, message: str) -> None:
    splits = json.loads((copy / "meta.json").read_text())["splits"]
    with pytest.raises(UserError, match=re.escape(message)):
        Store.open(edited(copy, splits=splits | {"train": split}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"splits": {}}, "0 splits, but must have 1..64"),
        ({"splits": []}, "'splits' must be an object"),
        ({"files": {}}, "its list of files does not fit its splits and keys (see 'test2/camera.npy')"),
        ({"views": None}, "'views' must be an integer"),
        ({"seed": 2**63}, "'seed' must be an integer"),
        ({"preset": "x" * 300}, "'preset' must be a short text"),
        ({"generator": "a\nb"}, "'generator' must be a short text"),
        ({"format_version": 0}, "'format_version' must be an integer"),
    ],
)
def test_wrong_fields_are_named(copy: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        Store.open(edited(copy, **changes))


def test_a_scene_beyond_the_memory_limit_is_refused(copy: Path) -> None:
    with pytest.raises(UserError, match="one scene would take"):
        Store.open(edited(copy, views=1024, height=4096, width=4096))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": "viewslots-data", "format": "viewslots-data"}', "same name twice"),
        ('{"seed": NaN}', "NaN is not a JSON number"),
        ("[" * 100_000, "damaged JSON"),
        ("[]", "holds list"),
        ("", "damaged JSON"),
        ('{"a": ' + "9" * 5000 + "}", "damaged JSON"),
        ("\xff", "damaged JSON"),
        (" " * (4 * 2**20 + 1), "larger than 4.0 MiB"),
        ('{"format": "zip"}', "not a viewslots data set"),
    ],
)
def test_broken_json_gives_one_line(copy: Path, text: str, message: str) -> None:
    (copy / "meta.json").write_bytes(text.encode("latin1"))
    with pytest.raises(UserError, match=message):
        Store.open(copy)


def test_links_out_of_the_folder_are_refused(copy: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.npy"
    shutil.move(copy / "train" / "image.npy", outside)
    (copy / "train" / "image.npy").symlink_to(outside)
    with pytest.raises(UserError, match=r"train/image\.npy: links to a place outside"):
        Store.open(copy)
    (copy / "train" / "image.npy").unlink()
    shutil.move(outside, copy / "valid" / "kept.npy")
    (copy / "train" / "image.npy").symlink_to(copy / "valid" / "kept.npy")
    assert len(Store.open(copy).split("train")["image"]) == 5


def test_pipes_and_loops_do_not_hang(copy: Path) -> None:
    path = copy / "train" / "image.npy"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(UserError, match="not a regular file"):
        Store.open(copy)
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(UserError, match=r"image\.npy"):
        Store.open(copy)


def test_what_is_not_there_is_named(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a data set"):
        Store.open(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"has no meta\.json"):
        Store.open(tmp_path)
    store = Store.open(copy)
    with pytest.raises(UserError, match="no split 'test9'; name one that it has: --split train or valid or test2"):
        store.split("test9")
    (copy / "test2" / "camera.npy").unlink()
    with pytest.raises(UserError, match=r"test2/camera\.npy: no such file"):
        Store.open(copy)


def test_optional_keys_may_be_missing_and_required_ones_not(copy: Path) -> None:
    meta = json.loads((copy / "meta.json").read_text())
    del meta["keys"]["camera"]
    for split in COUNTS:
        (copy / split / "camera.npy").unlink()
        del meta["files"][f"{split}/camera.npy"]
    (copy / "meta.json").write_text(json.dumps(meta))
    split = Store.open(copy).split("train")
    assert "camera" not in split
    with pytest.raises(UserError, match="split train has no 'camera'; it has image, segment"):
        split["camera"]
    del meta["keys"]["image"]
    (copy / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(UserError, match="key image is missing"):
        Store.open(copy)


def test_memory_maps_cannot_change_the_files(made: Path) -> None:
    before = contents(made)
    image = Store.open(made).split("train")["image"]
    with pytest.raises(ValueError, match="read-only"):
        image[0] = 0
    assert contents(made) == before
