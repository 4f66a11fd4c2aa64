"""check_dataset against violations planted one by one, and against an oracle that loops over every pixel."""

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fake_world import COUNTS, FakeWorld, FullWorld, reseal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from viewslots.data import checks
from viewslots.data.checks import check_dataset, first_violation
from viewslots.data.generate import DatasetRecipe, make_dataset
from viewslots.errors import UserError

Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(
        DatasetRecipe(FakeWorld(), COUNTS, preset="fake", seed=3), tmp_path_factory.mktemp("made") / "set"
    )


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy"))


def test_a_good_set_is_reported_with_its_numbers(made: Path) -> None:
    report = check_dataset(made)
    assert report.scenes == COUNTS
    assert report.pictures == sum(COUNTS.values()) * FakeWorld.views
    assert report.preset == "fake"
    assert report.keys == FakeWorld.keys
    files = [path for path in made.rglob("*") if path.is_file() and path.name != "meta.json"]
    assert (report.files, report.bytes) == (len(files), sum(path.stat().st_size for path in files))


def scene_with(arrays: Arrays, fewest: int, most: int, first: int = 1) -> int:
    """A scene, not the first, whose number of objects lies in a range."""
    counts = arrays["num_objects"]
    return next(s for s in range(first, len(counts)) if fewest <= counts[s] <= most)


def plant_bad_index(arrays: Arrays) -> int:
    scene = scene_with(arrays, 1, 3)
    arrays["segment"][scene, 2, 4, 5] = arrays["num_objects"][scene]
    return scene


def plant_visible_without_shape(arrays: Arrays) -> int:
    scene = scene_with(arrays, 1, 4)
    y, x = np.argwhere((arrays["shapes"][scene, 2, 0] == 0) & (arrays["segment"][scene, 2] != 0))[0]
    arrays["segment"][scene, 2, y, x] = 0
    return scene


def plant_overlap(arrays: Arrays) -> int:
    arrays["overlap"][2, 2, 5, 7] += 1
    return 2


def plant_missed_overlap(arrays: Arrays) -> int:
    arrays["overlap"][1, 2, 0, 0] = 1
    arrays["shapes"][1, 2, 0, 0, 0] = 127
    arrays["shapes"][1, 2, 1:, 0, 0] = 0
    arrays["segment"][1, 2, 0, 0] = 255
    return 1


def plant_unused_shape(arrays: Arrays) -> int:
    scene = scene_with(arrays, 1, 3)
    arrays["shapes"][scene, 2, -1, 0, 0] = 1
    return scene


def plant_unused_shadow(arrays: Arrays) -> int:
    scene = scene_with(arrays, 1, 3)
    arrays["shadows"][scene, 2, -1, 0, 0] = 1
    return scene


def plant_order_of_unused(arrays: Arrays) -> int:
    scene = scene_with(arrays, 1, 3)
    arrays["depth_order"][scene, 2, -1] = 0
    return scene


def plant_order(value: float) -> Callable[[Arrays], int]:
    def plant(arrays: Arrays) -> int:
        arrays["depth_order"][1, 2, 0] = value
        return 1

    return plant


def plant_camera(value: float) -> Callable[[Arrays], int]:
    def plant(arrays: Arrays) -> int:
        arrays["camera"][1, 2, 1] = value
        return 1

    return plant


def plant_count(arrays: Arrays) -> int:
    arrays["num_objects"][1] = 5
    return 1


PLANTS: list[tuple[Callable[[Arrays], int], str, str]] = [
    (plant_bad_index, "segment", "neither an object of the scene nor 255"),
    (plant_visible_without_shape, "shapes", "visible where its complete shape is 0"),
    (plant_overlap, "overlap", "not the number of complete shapes"),
    (plant_missed_overlap, "overlap", "not the number of complete shapes"),
    (plant_unused_shape, "shapes", "unused slot is not empty"),
    (plant_unused_shadow, "shadows", "unused slot is not empty"),
    (plant_order_of_unused, "depth_order", "not -inf for an unused slot"),
    (plant_order(np.nan), "depth_order", "not a finite number for an object"),
    (plant_order(-np.inf), "depth_order", "not a finite number for an object"),
    (plant_camera(np.nan), "camera", "not finite"),
    (plant_camera(np.inf), "camera", "not finite"),
]


@pytest.mark.parametrize(("plant", "key", "wrong"), PLANTS)
@pytest.mark.parametrize("block_bytes", [1, 2**25])
def test_each_violation_is_named(
    copy: Path, plant: Callable[[Arrays], int], key: str, wrong: str, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "BLOCK_BYTES", block_bytes)
    scene = plant(writable(copy / "test2"))
    reseal(copy)
    with pytest.raises(UserError, match=rf"copy: split test2, scene {scene}, view 2, key {key}: .*{wrong}"):
        check_dataset(copy)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(
        DatasetRecipe(FullWorld(), COUNTS, preset="full", seed=3), tmp_path_factory.mktemp("full") / "set"
    )


def test_a_set_with_every_key_is_good(full: Path) -> None:
    assert check_dataset(full).scenes == COUNTS


def sheared(arrays: Arrays) -> None:
    arrays["pose"][2, 1, 0, :3] += 0.01 * arrays["pose"][2, 1, 1, :3]


def mirrored(arrays: Arrays) -> None:
    arrays["pose"][2, 1, :3, 0] *= -1


def scaled(arrays: Arrays) -> None:
    arrays["pose"][2, 1, :3, :3] *= 1.01


def changed(key: str, where: tuple[int, ...], value: float) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        arrays[key][where] = value

    return change


NO_ROTATION, BEYOND = (
    "its rotation is not orthonormal with determinant 1",
    "not 0 in a view that the scene does not have",
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (sheared, f"scene 2, view 1, key pose: {NO_ROTATION}"),
        (mirrored, f"scene 2, view 1, key pose: {NO_ROTATION}"),
        (scaled, f"scene 2, view 1, key pose: {NO_ROTATION}"),
        (changed("pose", (2, 1, 3, 0), 0.1), "scene 2, view 1, key pose: its last row is not 0 0 0 1"),
        (changed("pose", (2, 1, 3, 3), 2), "scene 2, view 1, key pose: its last row is not 0 0 0 1"),
        (changed("pose", (2, 1, 0, 3), 99), "scene 2, view 1, key pose: its position is not that of camera"),
        (changed("pose", (2, 1, 1, 1), np.nan), "scene 2, view 1, key pose: not finite"),
        (changed("pose", (2, 1, 1, 3), np.inf), "scene 2, view 1, key pose: not finite"),
        (changed("camera", (2, 1, 1), np.nan), "scene 2, view 1, key camera: not finite"),
        (changed("intrinsics", (2, 1, 0), 0), "scene 2, view 1, key intrinsics: a focal length that is not positive"),
        (changed("intrinsics", (2, 1, 1), -3), "scene 2, view 1, key intrinsics: a focal length that is not positive"),
        (changed("intrinsics", (2, 1, 1), np.inf), "scene 2, view 1, key intrinsics: a focal length that is not"),
        (changed("intrinsics", (2, 1, 3), np.nan), "scene 2, view 1, key intrinsics: a centre that is not finite"),
        (changed("num_views", (1,), 0), r"scene 1, key num_views: not in 1\.\.3"),
        (changed("num_views", (1,), 4), r"scene 1, key num_views: not in 1\.\.3"),
        (changed("image", (0, 2, 5, 7, 2), 1), f"scene 0, view 2, key image: {BEYOND}"),
        (changed("segment", (0, 1, 0, 0), 255), f"scene 0, view 1, key segment: {BEYOND}"),
        (changed("shapes", (0, 1, 0, 0, 0), 1), f"scene 0, view 1, key shapes: {BEYOND}"),
        (changed("depth_order", (1, 2, 0), -np.inf), f"scene 1, view 2, key depth_order: {BEYOND}"),
        (changed("pose", (0, 2, 3, 3), 1), f"scene 0, view 2, key pose: {BEYOND}"),
    ],
)
def test_each_violation_of_cameras_and_missing_views_is_named(
    full: Path, tmp_path: Path, change: Callable[[Arrays], None], message: str
) -> None:
    copy = Path(shutil.copytree(full, tmp_path / "copy"))
    change(writable(copy / "test2"))
    reseal(copy)
    with pytest.raises(UserError, match=rf"copy: split test2, {message}"):
        check_dataset(copy)


def test_truth_is_checked_as_far_as_it_is_there(made: Path) -> None:
    """Without the number of objects every slot may be used; what has nothing to be compared with is taken as it is."""
    whole = {path.stem: np.array(np.load(path)) for path in (made / "test2").glob("*.npy")}
    scene = scene_with(whole, 1, 3)
    whole["segment"][scene, 0, 0, 0] = whole["num_objects"][scene]
    whole["overlap"][0, 1, 2, 3] += 1
    found = first_violation({key: whole[key] for key in ("image", "segment", "num_objects")}, 4)
    assert (found.scene, found.view, found.key) == (scene, 0, "segment")
    assert first_violation({key: whole[key] for key in ("image", "segment", "overlap")}, 4) is None
    found = first_violation({key: whole[key] for key in ("image", "overlap", "shapes")}, 4)
    assert (found.scene, found.view, found.key) == (0, 1, "overlap")
    whole["segment"][2, 1, 0, 0] = 4
    found = first_violation({key: whole[key] for key in ("image", "segment")}, 4)
    assert (found.scene, found.view, found.key) == (2, 1, "segment")
    assert first_violation({"image": whole["image"], "depth_order": whole["depth_order"]}, 4) is None
    whole["depth_order"][1, 0, 3] = np.nan
    assert first_violation({"image": whole["image"], "depth_order": whole["depth_order"]}, 4).scene == 1
    assert first_violation({"image": whole["image"]}, 0) is None


def writable(folder: Path) -> Arrays:
    return {path.stem: np.load(path, mmap_mode="r+") for path in folder.glob("*.npy")}


@pytest.mark.parametrize(("alpha", "overlap"), [(127, 0), (128, 1)])
def test_half_covered_pixels_count_from_128_on(copy: Path, alpha: int, overlap: int) -> None:
    arrays = writable(copy / "test2")
    arrays["shapes"][1, 2, :, 0, 0] = 0
    arrays["shapes"][1, 2, 0, 0, 0] = alpha
    arrays["segment"][1, 2, 0, 0] = 0
    for claimed in (overlap, 1 - overlap):
        arrays["overlap"][1, 2, 0, 0] = claimed
        reseal(copy)
        if claimed == overlap:
            check_dataset(copy)
            continue
        with pytest.raises(UserError, match="scene 1, view 2, key overlap"):
            check_dataset(copy)


def test_too_many_objects_are_named(copy: Path) -> None:
    scene = plant_count(writable(copy / "test2"))
    reseal(copy)
    with pytest.raises(UserError, match=f"split test2, scene {scene}, key num_objects: more objects than the 4 slots"):
        check_dataset(copy)


def test_the_first_of_several_is_named(copy: Path) -> None:
    arrays = writable(copy / "train")
    arrays["camera"][1, 2, 0] = np.nan
    arrays["overlap"][3, 0, 0, 0] += 1
    plant_overlap(writable(copy / "valid") | writable(copy / "test2"))
    reseal(copy)
    with pytest.raises(UserError, match="split train, scene 1, view 2, key camera"):
        check_dataset(copy)


def test_one_flipped_bit_anywhere_is_found(copy: Path) -> None:
    for name in ("train/image.npy", "valid/scenes.jsonl", "test2/camera.npy"):
        path = copy / name
        original = path.read_bytes()
        flipped = bytearray(original)
        flipped[-2] ^= 1
        path.write_bytes(flipped)
        with pytest.raises(UserError, match=rf"{name}: its bytes are not those that were written"):
            check_dataset(copy)
        path.write_bytes(original)
    check_dataset(copy)


@pytest.mark.parametrize("line", ["{]", "7", "[1]", "\xff", "[" * 10**5, "{}{}"])
def test_descriptions_must_be_descriptions(copy: Path, line: str) -> None:
    path = copy / "train" / "scenes.jsonl"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:2], line.encode("latin1"), *lines[3:]]))
    reseal(copy)
    with pytest.raises(UserError, match=r"line 3 \(scene 2\) is not a scene description"):
        check_dataset(copy)


def test_descriptions_must_be_as_many_as_scenes(copy: Path) -> None:
    path = copy / "valid" / "scenes.jsonl"
    lines = path.read_text()
    path.write_text(lines + "{}\n")
    reseal(copy)
    with pytest.raises(UserError, match="more lines than scenes"):
        check_dataset(copy)
    path.write_text(lines[: lines.index("\n") + 1])
    reseal(copy)
    with pytest.raises(UserError, match=r"line 2 \(scene 1\)"):
        check_dataset(copy)
    path.write_text(lines.rstrip("\n"))
    reseal(copy)
    with pytest.raises(UserError, match=r"line 2 \(scene 1\)"):
        check_dataset(copy)


def test_an_endless_line_is_not_read_to_its_end(copy: Path) -> None:
    path = copy / "valid" / "scenes.jsonl"
    first, second = path.read_text().splitlines()
    path.write_text(first + "\n" + second + " " * 2**20 + "\n")  # still JSON, were it read as a whole
    reseal(copy)
    with pytest.raises(UserError, match=r"line 2 \(scene 1\) is not a scene description"):
        check_dataset(copy)


def oracle(block: Arrays) -> tuple[int, int | None] | None:
    """Scene and view of the first broken promise, by loops over everything."""
    scenes, views, slots = block["shapes"].shape[:3]
    for s in range(scenes):
        count = int(block["num_objects"][s])
        if count > slots:
            return s, None
        broken = [v for v in range(views) if not view_is_good(block, s, v, count)]
        if broken:
            return s, broken[0]
    return None


def view_is_good(block: Arrays, s: int, v: int, count: int) -> bool:
    shapes, segment, order = block["shapes"][s, v], block["segment"][s, v], block["depth_order"][s, v]
    for k in range(shapes.shape[0]):
        if k < count and not math.isfinite(order[k]):
            return False
        if k >= count and not (order[k] == -math.inf and not shapes[k].any() and not block["shadows"][s, v, k].any()):
            return False
    for y in range(segment.shape[0]):
        for x in range(segment.shape[1]):
            label = int(segment[y, x])
            if label != 255 and (label >= count or shapes[label, y, x] == 0):
                return False
            if int(block["overlap"][s, v, y, x]) != sum(int(alpha) >= 128 for alpha in shapes[:, y, x]):
                return False
    return all(math.isfinite(number) for number in block["camera"][s, v])


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_change_is_judged_as_the_oracle_judges_it(made: Path, data: st.DataObject) -> None:
    block = {path.stem: np.array(np.load(path)) for path in (made / "test2").glob("*.npy")}
    for _ in range(data.draw(st.integers(0, 2))):
        key = data.draw(st.sampled_from([key for key in block if key != "image"]))
        where = data.draw(st.tuples(*(st.integers(0, extent - 1) for extent in block[key].shape)))
        if block[key].dtype == np.uint8:
            block[key][where] = data.draw(st.sampled_from([0, 1, 2, 3, 4, 127, 128, 255]))
        else:
            block[key][where] = data.draw(st.sampled_from([0.0, 1.5, np.nan, np.inf, -np.inf]))
    found, expected = first_violation(block, block["shapes"].shape[2]), oracle(block)
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert found.scene == expected[0]
        assert found.view is None or found.view >= (expected[1] or 0)
