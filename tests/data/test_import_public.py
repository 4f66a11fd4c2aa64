"""Public data sets of picture files, laid out here by hand from their descriptions, with known truth."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
from fake_world import COUNTS, FullWorld, contents
from importing import imported, noise, refused, scenes_of
from PIL import Image
from scipy.spatial.transform import Rotation

from viewslots.data.exchange.hdf5 import convert
from viewslots.data.generate import DatasetRecipe, make_dataset
from viewslots.data.import_data import Import, import_data
from viewslots.data.store import Store


def save(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def write(path: Path, matrix: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savetxt(path, matrix)


def camera(angle: float) -> np.ndarray:
    """Camera to world in OpenGL axes: on a circle around the z axis, looking at the origin."""
    position = np.array([3 * np.cos(angle), 3 * np.sin(angle), 2.0])
    back = position / np.linalg.norm(position)
    right = np.cross([0, 0, 1], back)
    right /= np.linalg.norm(right)
    pose = np.eye(4)
    pose[:3] = np.stack([right, np.cross(back, right), back, position], 1)
    return pose


def opencv(pose: np.ndarray) -> np.ndarray:
    """The same camera with y down and z forward."""
    return pose @ np.diag([1, -1, -1, 1])


def boxes(view: int, **objects: int) -> np.ndarray:
    """An index mask of 12x16 in which objects move from view to view: name=value."""
    mask = np.zeros((12, 16), np.uint8)
    for place, value in enumerate(objects.values()):
        mask[1 + 3 * place : 3 + 3 * place, view : view + 5] = value
    return mask


def segment(mask: np.ndarray) -> np.ndarray:
    return np.where(mask == 0, 255, mask - 1)


OCT_SCENES = (0, 1, 7, 3100, 3101)


def octscenes(root: Path, images: str = "image", axes: Callable[[np.ndarray], np.ndarray] = opencv) -> Path:
    """Four frames a scene in 128x128 and 640x480 (small here); masks of the test scenes."""
    for scene in OCT_SCENES:
        for frame in range(4):
            name = f"{scene:04d}_{frame:02d}"
            save(root / "128x128" / images / f"{name}.png", noise(12, 16, 3, seed=scene * 10 + frame))
            save(root / "640x480" / images / f"{name}.png", noise(24, 32, 3, seed=scene * 10 + frame))
            save(root / "640x480" / "depth" / f"{name}.png", noise(24, 32))
            write(root / "640x480" / "pose" / f"{name}.txt", axes(camera(scene + 1.5 * frame)))
            if scene >= 3100:
                save(root / "128x128" / "segments" / f"{name}.png", boxes(frame, cup=2, can=5))
    return root


@pytest.mark.parametrize(("images", "axes"), [("image", opencv), ("images", np.asarray), (".", opencv)])
def test_octscenes(tmp_path: Path, images: str, axes: Callable[[np.ndarray], np.ndarray]) -> None:
    store = imported("octscenes", octscenes(tmp_path / "oct", images, axes))
    assert scenes_of(store) == {"train": 3, "test1": 2}
    assert set(store.split("train").arrays) == {"image", "pose"}
    assert set(store.split("test1").arrays) == {"image", "segment", "pose"}
    for split, numbers in {"train": OCT_SCENES[:3], "test1": OCT_SCENES[3:]}.items():
        pictures = [[noise(12, 16, 3, seed=scene * 10 + frame) for frame in range(4)] for scene in numbers]
        np.testing.assert_array_equal(store.split(split)["image"], pictures)
        poses = [[camera(scene + 1.5 * frame) for frame in range(4)] for scene in numbers]
        np.testing.assert_allclose(store.split(split)["pose"], poses, atol=1e-6)
    masks = [[segment(boxes(frame, cup=2, can=5)) for frame in range(4)]] * 2
    np.testing.assert_array_equal(store.split("test1")["segment"], masks)


def test_octscenes_other_resolution_parts_and_notes(tmp_path: Path) -> None:
    root = octscenes(tmp_path / "oct")
    assert imported("octscenes", root, tmp_path / "large", resolution="640x480").meta.plan.width == 32
    path, notes = import_data("octscenes", root / "128x128", tmp_path / "alone")
    assert Store.open(path).meta.plan.keys == ("image", "segment")
    assert notes[0] == "pictures of image"
    assert notes[1].startswith("no split valid, which training needs; --split valid=0-2:10")
    assert scenes_of(imported("octscenes", root, tmp_path / "c", splits=("valid=0-2:10",)))["valid"] == 1
    for folder in ("128x128/image", "128x128/segments", "640x480/pose", "640x480/image"):
        for file in list((root / folder).glob("0007_*")):
            os.rename(file, file.with_name(file.name.replace("0007", "4950")))
    store = imported("octscenes", root, tmp_path / "b")  # part B: 3100 and 3101 are to train on
    assert scenes_of(store) == {"train": 4, "test1": 1}
    assert "segment" not in store.meta.plan.keys
    refused("octscenes", root, "no folder 256x256 in it", resolution="256x256")
    refused("octscenes", root, r"--resolution \.\./up: must be WIDTHxHEIGHT", resolution="../up")


def uorf(root: Path) -> Path:
    """Scenes of three views in a train and a test folder. Grey levels of the masks: 20 an object, 60 background, ..."""
    for split, scenes in {"train": 3, "test": 1}.items():
        for scene in range(scenes):
            for view in range(3):
                stem = root / f"clevr_567_{split}" / f"{scene * 3 + view:05d}_sc{scene:04d}_az{view:02d}_el00"
                save(stem.with_suffix(".png"), noise(12, 16, 3, seed=scene * 10 + view))
                write(Path(f"{stem}_RT.txt"), opencv(camera(view)))
                write(Path(f"{stem}_azi_rot.txt"), np.eye(3))
                save(Path(f"{stem}_mask.png"), uorf_mask(view))
                save(Path(f"{stem}_mask_for_moving.png"), noise(12, 16, 3))
                save(Path(f"{stem}_moved.png"), noise(12, 16, 3))
    return root


def uorf_mask(view: int) -> np.ndarray:
    """Background (60, 60, 60); a dark object; a red one; a light one that view 1 does not show."""
    mask = np.full((12, 16, 3), 60, np.uint8)
    mask[1:3, view : view + 4] = (20, 20, 20)
    mask[4:6, view : view + 4] = (255, 0, 0)
    if view != 1:
        mask[8:10, view : view + 4] = (200, 200, 210)
    return mask


def uorf_segment(view: int) -> np.ndarray:
    """From dark to light: 20 is object 0, red (grey level 76) 1, the light one 2."""
    truth = np.full((12, 16), 255)
    for k, row in enumerate((1, 4, 8)):
        if (k, view) != (2, 1):
            truth[row : row + 2, view : view + 4] = k
    return truth


def test_uorf(tmp_path: Path) -> None:
    store = imported("uorf", uorf(tmp_path / "data"))
    assert scenes_of(store) == {"train": 3, "test1": 1}
    split = store.split("train")
    pictures = [[noise(12, 16, 3, seed=scene * 10 + view) for view in range(3)] for scene in range(3)]
    np.testing.assert_array_equal(split["image"], pictures)
    np.testing.assert_array_equal(split["segment"], [[uorf_segment(view) for view in range(3)]] * 3)
    np.testing.assert_allclose(split["pose"][1], [camera(view) for view in range(3)], atol=1e-6)
    np.testing.assert_allclose(split["intrinsics"][0, 0], [350 / 320 * 16, 350 / 240 * 12, 8, 6])
    assert split["num_objects"].tolist() == [3, 3, 3]
    flat = imported("uorf", tmp_path / "data" / "clevr_567_train", tmp_path / "flat")
    assert scenes_of(flat) == {"train": 2, "valid": 1}


def test_uocf(tmp_path: Path) -> None:
    """Its own names; black is the background; principal points relative to the middle."""
    lens = np.array([[1.5, 0, 0.25], [0, 1.25, -0.5], [0, 0, 1]])
    for scene in range(2):
        for view in range(2):
            stem = tmp_path / "room" / f"{scene * 2 + view:05d}_sc{scene:04d}_az{view:02d}"
            save(stem.with_suffix(".png"), noise(12, 16, 3, seed=scene * 10 + view))
            write(Path(f"{stem}_RT.txt"), opencv(camera(view)))
            write(Path(f"{stem}_intrinsics.txt"), lens)
            mask = uorf_mask(view)
            mask[(mask == 60).all(2)] = 0
            save(Path(f"{stem}_mask.png"), mask)
            Path(f"{stem}_depth.pfm").write_bytes(b"Pf not read")
    split = imported("uorf", tmp_path / "room").split("train")
    np.testing.assert_array_equal(split["segment"][0], [uorf_segment(view) for view in range(2)])
    np.testing.assert_allclose(split["intrinsics"][0, 1], [24, 15, 10, 3])
    other = imported("uorf", tmp_path / "room", tmp_path / "light", background=230).split("train")
    light = uorf_mask(0)[..., 2] == 210
    np.testing.assert_array_equal(other["segment"][0, 0] == 255, light)


def movi(root: Path) -> Path:
    """Two training scenes and one to validate on: five frames, three instances, masks with a palette."""
    for name, scene in {"train/0": 0, "train/1": 1, "validation/0": 2}.items():
        folder = root / name
        turns = Rotation.from_euler("xyz", [[0.3, 0.1 * frame, scene] for frame in range(5)])
        for frame in range(5):
            pixels = np.full((12, 16, 4), 255, np.uint8)
            pixels[..., :3] = noise(12, 16, 3, seed=scene * 10 + frame)
            save(folder / f"rgba_{frame:05d}.png", pixels)
            mask = Image.fromarray(boxes(frame, ball=1, cone=3))
            mask.putpalette(bytes(noise(768)))
            mask.save(folder / f"segmentation_{frame:05d}.png")
            save(folder / f"depth_{frame:05d}.png", noise(12, 16))
        about = {
            "metadata": {"num_frames": 5, "num_instances": 3, "resolution": [16, 12]},
            "camera": {
                "focal_length": 35.0,
                "sensor_width": 32.0,
                "field_of_view": 2 * np.arctan(32 / 70),
                "positions": [[scene, frame, 2.0] for frame in range(5)],
                "quaternions": turns.as_quat()[:, [3, 0, 1, 2]].tolist(),
            },
            "instances": [
                {"shape": "cube", "size": 1.4, "size_label": "large", "color": [1, 0, 0.5], "visibility": [1] * 5},
                {"shape": "cone", "color_label": "red", "color": [1, 0, 0], "material": "metal"},
                {"asset_id": "mug", "color": [1, 0, "x"], "shape": "", "material": 7 * [[]]},
            ],
        }
        (folder / "metadata.json").write_text(json.dumps(about))
    return root


def test_movi(tmp_path: Path) -> None:
    store = imported("movi", movi(tmp_path / "movi"))
    assert scenes_of(store) == {"train": 2, "valid": 1}
    split = store.split("valid")
    np.testing.assert_array_equal(split["image"][0], [noise(12, 16, 3, seed=20 + frame) for frame in range(5)])
    np.testing.assert_array_equal(split["segment"][0], [segment(boxes(frame, ball=1, cone=3)) for frame in range(5)])
    assert split["num_objects"].tolist() == [3]
    assert store.names("train") == ["train/0", "train/1"]
    told = [
        {"color": [1.0, 0.0, 0.5], "shape": "cube", "size": "large"},
        {"color": "red", "shape": "cone", "material": "metal"},
        {},
    ]
    assert list(store.descriptions("valid")) == [{"name": "validation/0", "objects": told}]
    turns = Rotation.from_euler("xyz", [[0.3, 0.1 * frame, 2] for frame in range(5)])
    np.testing.assert_allclose(split["pose"][0, :, :3, :3], turns.as_matrix(), atol=1e-6)
    np.testing.assert_allclose(split["pose"][0, :, :3, 3], [[2, frame, 2] for frame in range(5)])
    width = 16 / 2 / np.tan(np.arctan(32 / 70))  # by the field of view
    np.testing.assert_allclose(split["intrinsics"][0, 0], [width, width, 8, 6], rtol=1e-6)
    fewer = imported("movi", tmp_path / "movi" / "validation" / "0", tmp_path / "one", views=2).split("valid")
    np.testing.assert_array_equal(fewer["image"][0], [noise(12, 16, 3, seed=20 + frame) for frame in (1, 3)])
    np.testing.assert_allclose(fewer["pose"][0, :, :3, 3], [[2, frame, 2] for frame in (1, 3)])


def clevrtex(root: Path, variant: str = "full", count: int = 30) -> Path:
    for number in range(count):
        stem = root / f"clevrtex_{variant}" / f"{number // 10}" / f"CLEVRTEX_{variant}_{number:06d}"
        save(stem.with_suffix(".png"), noise(12, 16, 3, seed=number))
        save(Path(f"{stem}_flat.png"), boxes(number % 8, cube=1, ball=2))
        save(Path(f"{stem}_depth_0001.png"), noise(12, 16))
        told = {"shape": f"s{number}", "size": "large", "material": "wood", "color": "red", "rotation": 1.5}
        stem.with_suffix(".json").write_text(json.dumps({"ground_material": "x", "objects": [told, {}, {"size": 0.7}]}))
    return root


def test_clevrtex(tmp_path: Path) -> None:
    store = imported("clevrtex", clevrtex(tmp_path / "tex"))
    assert scenes_of(store) == {"train": 24, "valid": 3, "test1": 3}
    for split, first in {"test1": 0, "valid": 3, "train": 6}.items():
        numbers = range(first, first + len(store.split(split)))
        pictures = [[noise(12, 16, 3, seed=number)] for number in numbers]
        np.testing.assert_array_equal(store.split(split)["image"], pictures)
        masks = [[segment(boxes(number % 8, cube=1, ball=2))] for number in numbers]
        np.testing.assert_array_equal(store.split(split)["segment"], masks)
        assert (store.split(split)["num_objects"][:] == 3).all()
        told = {"shape": f"s{first}", "size": "large", "material": "wood"}  # the colour lies under the material
        one = next(store.descriptions(split))
        assert one == {"name": f"CLEVRTEX_full_{first:06d}", "objects": [told, {}, {"size": 0.7}]}
    unseen = imported("clevrtex", clevrtex(tmp_path / "outd", "outd", 4), tmp_path / "unseen")
    assert scenes_of(unseen) == {"test1": 4}
    coloured = imported("clevrtex", clevrtex(tmp_path / "vbg", "vbg", 4), tmp_path / "coloured")
    assert next(coloured.descriptions("train"))["objects"][0]["color"] == "red"
    clevrtex(tmp_path / "tex", "camo", 2)
    refused("clevrtex", tmp_path / "tex", "holds the variants camo and full; import one folder at a time")
    assert scenes_of(imported("clevrtex", tmp_path / "tex" / "clevrtex_camo", tmp_path / "camo")) == {"train": 2}


def clevr3d(root: Path) -> Path:
    """Eleven scenes of three views; scene 0 has two objects."""
    positions = np.stack([[camera(scene + view)[:3, 3] for view in range(3)] for scene in range(11)])
    shapes = np.ones((11, 10), int)
    shapes[:, 3:] = 0
    shapes[0, 2] = 0
    root.mkdir(parents=True)
    np.savez(root / "metadata.npz", camera_pos=positions, shape=shapes, color=np.arange(110).reshape(11, 10))
    for scene in range(11):
        for view in range(3):
            save(root / "images" / f"img_{scene}_{view}.png", noise(12, 16, 4, seed=scene * 10 + view) | mask_alpha())
            save(root / "masks" / f"masks_{scene}_{view}.png", boxes(view, a=1, b=2))
    return root


def mask_alpha() -> np.ndarray:
    return np.array([0, 0, 0, 255], np.uint8)


def test_clevr3d(tmp_path: Path) -> None:
    store = imported("clevr3d", clevr3d(tmp_path / "clevr3d"))
    assert scenes_of(store) == {"train": 10, "valid": 1}
    split = store.split("train")
    order = [*range(9), 10]  # by number, not by name
    pictures = [[noise(12, 16, 4, seed=scene * 10 + view)[..., :3] for view in range(3)] for scene in order]
    np.testing.assert_array_equal(split["image"], pictures)
    np.testing.assert_array_equal(split["segment"][4], [segment(boxes(view, a=1, b=2)) for view in range(3)])
    assert split["num_objects"].tolist() == [2] + [3] * 9
    told = [scene["objects"] for scene in store.descriptions("train")]
    assert told[0] == [{"shape": "1", "color": "0"}, {"shape": "1", "color": "1"}]
    assert [one["color"] for one in told[9]] == ["100", "101", "102"]
    assert next(store.descriptions("train"))["name"] == "img_0"
    assert store.names("valid") == ["img_9"]
    np.testing.assert_allclose(split["pose"][9], [camera(10 + view) for view in range(3)], atol=1e-6)
    np.testing.assert_allclose(split["camera"], split["pose"][..., :3, 3])
    np.testing.assert_allclose(split["intrinsics"][0, 0], [17.5, 17.5, 8, 6])


def test_kinds_in_words_do_not_stop_clevr3d(tmp_path: Path) -> None:
    """They are told in no layout that we know of, and not needed."""
    root = clevr3d(tmp_path / "clevr3d")
    with np.load(root / "metadata.npz") as file:
        arrays = dict(file)
    np.savez(root / "metadata.npz", **arrays | {"material": np.full(arrays["shape"].shape, "metal")})
    store = imported("clevr3d", root)
    told = next(iter(store.descriptions(store.splits[0])))["objects"]
    assert {name for one in told for name in one} == {"shape", "color"}


def ocloc(root: Path) -> Path:
    root.mkdir()
    with h5py.File(root / "clevr.h5", "w") as file:
        for group, scenes in {"train": 3, "valid": 1, "test": 2, "general": 1}.items():
            image = np.stack(
                [[noise(12, 16, 3, seed=scene * 10 + view) for view in range(2)] for scene in range(scenes)]
            )
            masks = np.stack([[boxes(view, a=1, b=2) for view in range(2)]] * scenes)
            file[f"{group}/image"] = image
            file[f"{group}/segment"] = np.where(masks == 0, 4, masks - 1).astype(np.uint8)
    return root


def test_ocloc_with_pictures_and_segments_alone(tmp_path: Path) -> None:
    store = imported("ocloc", ocloc(tmp_path / "data"))
    assert scenes_of(store) == {"train": 3, "valid": 1, "test1": 2, "test2": 1}
    np.testing.assert_array_equal(store.split("test1")["image"][1, 1], noise(12, 16, 3, seed=11))
    np.testing.assert_array_equal(store.split("test2")["segment"][0, 1], segment(boxes(1, a=1, b=2)))
    again = convert(tmp_path / "data" / "clevr.h5", tmp_path / "again")
    whole = imported("ocloc", tmp_path / "data" / "clevr.h5", tmp_path / "file").path
    assert contents(again) == contents(whole)
    one = imported("ocloc", tmp_path / "data", tmp_path / "one", views=1, crop=0.5, splits=("test1=train/*",))
    np.testing.assert_array_equal(one.split("test1")["image"][2, 0], noise(12, 16, 3, seed=21)[3:9, 4:12])


def test_all_truth_of_an_ocloc_file_is_resized(tmp_path: Path) -> None:
    """Alphas are means, what is seen is the pixel in the middle, overlaps follow, promises hold (check-data)."""
    made = Store.open(make_dataset(DatasetRecipe(FullWorld(), COUNTS, preset="full", seed=1), tmp_path / "made"))
    file = convert(made.path, tmp_path / "set.h5")
    split, old = imported("ocloc", file, tmp_path / "half", size=(3, 4)).split("test2"), made.split("test2")
    assert set(split.arrays) == set(old.arrays)
    means = np.asarray(old["shapes"], float).reshape(3, 3, 4, 3, 2, 4, 2).mean((4, 6))
    apart = np.abs(split["shapes"] - means)
    assert ((apart <= 0.5) | (split["shapes"][:] == 1)).all()
    real = np.arange(3) < old["num_views"][:, None]
    np.testing.assert_array_equal(split["segment"][real], old["segment"][real][:, 1::2, 1::2])
    np.testing.assert_allclose(split["intrinsics"], old["intrinsics"] / 2)
    np.testing.assert_array_equal(split["pose"], old["pose"])
    np.testing.assert_array_equal(split["depth_order"], old["depth_order"])


KINDS = {"octscenes": octscenes, "uorf": uorf, "movi": movi, "clevrtex": clevrtex, "clevr3d": clevr3d, "ocloc": ocloc}


@pytest.mark.parametrize("kind", KINDS)
def test_import_twice_gives_the_same_bytes_also_after_an_interruption(kind: str, tmp_path: Path) -> None:
    source = KINDS[kind](tmp_path / "source")
    whole = contents(imported(kind, source, tmp_path / "one", size=(6, 6)).path)
    assert contents(imported(kind, source, tmp_path / "two", size=(6, 6)).path) == whole

    def interrupt(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_data(kind, source, tmp_path / "three", Import(size=(6, 6)), progress=interrupt)
    assert contents(imported(kind, source, tmp_path / "three", size=(6, 6)).path) == whole


@pytest.mark.parametrize("kind", [*KINDS, "multi-object"])
def test_folders_of_something_else(kind: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    refused(kind, tmp_path / "empty", "empty")
    (tmp_path / "empty" / "notes.txt").write_text("hello")
    refused(kind, tmp_path / "empty", "empty")
    refused(kind, tmp_path / "empty" / "notes.txt", r"notes\.txt")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])


def linked(path: Path) -> None:
    """Replaced by a link to a copy outside the source."""
    root = next(folder for folder in path.parents if folder.name == "source")
    outside = root.parent / path.name
    os.rename(path, outside)
    path.symlink_to(outside)


def metadata(change: Callable[[dict], object], scene: str = "train/1") -> Callable[[Path], None]:
    def damage(root: Path) -> None:
        file = root / scene / "metadata.json"
        about = json.loads(file.read_text())
        change(about)
        file.write_text(json.dumps(about))

    return damage


def npz(**arrays: np.ndarray) -> Callable[[Path], None]:
    return lambda root: np.savez(root / "metadata.npz", **arrays)


@pytest.mark.parametrize(
    ("kind", "damage", "message"),
    [
        ("octscenes", lambda r: (r / "128x128/image/0001_02.png").unlink(), r"0001_02\.png: missing, but 0001_03\.png"),
        ("octscenes", lambda r: cut(r / "128x128/image/0001_02.png"), r"0001_02\.png: damaged or cut off"),
        ("octscenes", lambda r: linked(r / "128x128/image/0001_02.png"), "leads to a place outside"),
        ("octscenes", lambda r: linked(r / "640x480/pose/0001_02.txt"), "leads to a place outside"),
        ("octscenes", lambda r: (r / "128x128/segments/3100_02.png").unlink(), r"3100_02\.png: no such mask"),
        ("octscenes", lambda r: [f.unlink() for f in (r / "128x128/segments").glob("3101*")], "3101: no segment"),
        ("octscenes", lambda r: (r / "640x480/pose/0001_02.txt").write_text("1 2"), "a matrix of 4x4 finite numbers"),
        ("octscenes", lambda r: (r / "640x480/pose/0001_02.txt").write_text("x"), "a matrix of 4x4 finite numbers"),
        ("octscenes", lambda r: write(r / "640x480/pose/0001_02.txt", np.ones((4, 4))), "pose: its last row is not"),
        ("octscenes", lambda r: save(r / "128x128/more/0009_00.png", noise(3, 3, 3)), "in more than one folder"),
        ("octscenes", lambda r: save(r / "128x128/image/0001_02.png", noise(9, 9, 3)), "9x9 pixels, but .*--size"),
        ("uorf", lambda r: (r / "clevr_567_train/00004_sc0001_az01_el00_RT.txt").unlink(), "RT.txt: no such pose"),
        ("uorf", lambda r: (r / "clevr_567_train/00004_sc0001_az01_el00_mask.png").unlink(), "no such mask"),
        (
            "uorf",
            lambda r: [save(f, noise(12, 16, 3, seed=n)) for n, f in enumerate(r.glob("*train/*_sc0001_*_mask.png"))],
            r"00003_sc0001.*: \d+ colours in the masks of this scene, more than 255",
        ),
        ("uorf", lambda r: linked(r / "clevr_567_train/00004_sc0001_az01_el00_mask.png"), "leads to a place outside"),
        ("uorf", lambda r: (r / "clevr_567_extra_test").mkdir(), None),
        ("movi", lambda r: (r / "train/1/rgba_00003.png").unlink(), r"rgba_00003\.png: missing, but other files"),
        ("movi", lambda r: (r / "train/1/rgba_00004.png").unlink(), r"metadata\.json: says 5 frames, but there are 4"),
        ("movi", lambda r: (r / "train/1/segmentation_00003.png").unlink(), r"segmentation_00003\.png: no such mask"),
        ("movi", lambda r: (r / "train/1/metadata.json").unlink(), r"metadata\.json: missing, but other files"),
        ("movi", lambda r: (r / "train/1/metadata.json").write_text("{"), r"metadata\.json: damaged JSON"),
        ("movi", metadata(lambda m: m["metadata"].update(num_frames=10**9)), "'num_frames' must be an integer in"),
        ("movi", metadata(lambda m: m["camera"].update(positions=[[1, 2]] * 5)), "positions must have 3 numbers"),
        ("movi", metadata(lambda m: m["camera"].update(quaternions=[])), "quaternions must have 4 numbers for frame 0"),
        ("movi", metadata(lambda m: m["camera"].update(quaternions=[[1, 1, 1, 1]] * 5)), "a quaternion of length 2"),
        ("movi", metadata(lambda m: m["camera"].update(sensor_width=0)), "sensor_width must be a number above 0"),
        ("movi", metadata(lambda m: m.pop("camera")), "train/1: no pose for every view"),
        ("clevrtex", lambda r: (r / "clevrtex_full/1/CLEVRTEX_full_000013_flat.png").unlink(), "000013: no segment"),
        ("clevrtex", lambda r: cut(r / "clevrtex_full/1/CLEVRTEX_full_000013_flat.png"), "damaged or cut off"),
        (
            "clevrtex",
            lambda r: save(r / "clevrtex_full/2/CLEVRTEX_full_000013.png", noise(12, 16, 3)),
            "a second picture of this number",
        ),
        (
            "clevrtex",
            lambda r: (r / "clevrtex_full/1/CLEVRTEX_full_000013.json").write_text('{"objects": 3}'),
            "objects must be a list",
        ),
        ("clevr3d", lambda r: (r / "images/img_4_1.png").unlink(), r"img_4_1\.png: missing; other scenes have 3 views"),
        ("clevr3d", lambda r: linked(r / "images"), "images: leads to a place outside"),
        ("clevr3d", lambda r: linked(r / "masks"), "leads to a place outside"),
        ("octscenes", lambda r: linked(r / "128x128"), "128x128: leads to a place outside"),
        ("octscenes", lambda r: linked(r / "640x480"), "leads to a place outside"),
        ("clevr3d", lambda r: (r / "masks/masks_4_1.png").unlink(), r"masks_4_1\.png: no such mask"),
        ("clevr3d", lambda r: (r / "metadata.npz").write_bytes(b"PK nonsense"), r"metadata\.npz: not a readable .npz"),
        ("clevr3d", npz(camera_pos=np.ones((3, 3, 3))), r"has no camera for img_3_2\.png"),
        ("clevr3d", npz(camera_pos=np.ones((11, 3))), r"camera_pos must be \[S,V,3\]"),
        ("clevr3d", npz(camera_pos=np.array([{}], object)), "holds Python objects"),
        ("clevr3d", npz(camera_pos=np.zeros((11, 3, 3))), "its camera_pos is"),
        ("clevr3d", npz(camera_pos=np.full((11, 3, 3), np.nan)), "its camera_pos is"),
        ("ocloc", lambda r: cut(r / "clevr.h5"), r"clevr\.h5: not a readable HDF5 file"),
        ("ocloc", lambda r: (r / "more.h5").write_bytes(b""), "holds 2 files ending in .h5; name the one to import"),
    ],
)
def test_damaged_and_hostile_sources_get_one_line(
    kind: str, damage: Callable[[Path], object], message: str | None, tmp_path: Path
) -> None:
    source = KINDS[kind](tmp_path / "source")
    damage(source)
    if message is None:
        imported(kind, source)
    else:
        refused(kind, source, message)
