"""Anybody's pictures: folders written here by hand, their truth known; and folders that are damaged, lie or attack."""

import json
import os
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import importing
import numpy as np
import pytest
from fake_world import COUNTS, FullWorld, contents
from importing import noise, scenes_of
from PIL import Image, ImageFile, PngImagePlugin, TiffImagePlugin

from viewslots.commands.data import check_data
from viewslots.commands.evaluation import evaluate
from viewslots.commands.score import score
from viewslots.data import picture_files, writer
from viewslots.data.checks import check_dataset
from viewslots.data.exchange.folders import export_folders
from viewslots.data.format import DatasetPlan, Source, SplitPlan
from viewslots.data.generate import DatasetRecipe, make_dataset
from viewslots.data.import_data import Import, Survey, import_data
from viewslots.data.picture_files import picture_size, read_rgb
from viewslots.data.sources.source import Options
from viewslots.data.store import Store
from viewslots.errors import UserError


def imported(source: Path, out: Path | None = None, **asked: object) -> Store:
    return importing.imported("pictures", source, out, **asked)


def refused(source: Path, message: str, **asked: object) -> None:
    importing.refused("pictures", source, message, **asked)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twelve scenes of three views, 20x30 pixels: view v of scene s is noise(20, 30, 3, seed=10 s + v)."""
    for scene in range(12):
        folder = tmp_path / "photos" / f"scene{scene:02d}"
        folder.mkdir(parents=True)
        for view in range(3):
            Image.fromarray(noise(20, 30, 3, seed=10 * scene + view)).save(folder / f"view{view}.png")
    return tmp_path / "photos"


def test_every_tenth_scene_is_valid_and_pixels_stay_as_they_are(photos: Path) -> None:
    (photos / "scene00" / "notes.txt").write_text("not a picture")
    (photos / ".DS_Store").write_bytes(b"hidden")
    (photos / "__MACOSX").mkdir()
    (photos / "scene00" / "._view0.png").write_bytes(b"hidden")
    store = imported(photos)
    assert store.splits == ("train", "valid")
    assert store.meta.plan.keys == ("image",)
    for split, scenes in {"train": [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11], "valid": [9]}.items():
        truth = [[noise(20, 30, 3, seed=10 * scene + view) for view in range(3)] for scene in scenes]
        np.testing.assert_array_equal(store.split(split)["image"], truth)
    assert store.meta.plan.source.name == "photos"
    assert store.meta.plan.source.read_as == "pictures"
    assert store.meta.plan.source.bytes == sum(file.stat().st_size for file in photos.rglob("view*.png"))


def test_import_twice_gives_the_same_bytes_wherever_the_folder_is(photos: Path, tmp_path: Path) -> None:
    imported(photos, tmp_path / "one")
    (tmp_path / "elsewhere").mkdir()
    os.rename(photos, tmp_path / "elsewhere" / "photos")
    imported(tmp_path / "elsewhere" / "photos", tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    Image.fromarray(noise(20, 30, 3)).save(tmp_path / "elsewhere" / "photos" / "scene03" / "view1.png")
    imported(tmp_path / "elsewhere" / "photos", tmp_path / "three")
    assert contents(tmp_path / "three")["meta.json"] != contents(tmp_path / "one")["meta.json"]


def test_few_scenes_leave_one_for_valid(photos: Path, tmp_path: Path) -> None:
    for scene in range(3, 12):
        os.rename(photos / f"scene{scene:02d}", tmp_path / f"{scene}")
    assert scenes_of(imported(photos)) == {"train": 2, "valid": 1}


def test_split_moves_scenes(photos: Path, tmp_path: Path) -> None:
    rules = ("test1=scene0[12],11", "test2=3-7:2", "none=scene00")
    store = imported(photos, splits=rules)
    where = {"test1": [1, 2, 11], "test2": [3, 5, 7], "train": [4, 6, 8, 9], "valid": [10]}
    assert set(store.splits) == set(where)
    for split, scenes in where.items():
        firsts = [noise(20, 30, 3, seed=10 * scene) for scene in scenes]
        np.testing.assert_array_equal(store.split(split)["image"][:, 0], firsts)
    own = imported(photos, tmp_path / "own", splits=("valid=2,4",))
    assert scenes_of(own) == {"train": 10, "valid": 2}
    for rules, message in {
        ("valid",): "must be NAME=RULE",
        ("../up=1",): r"no split is called '\.\./up'; must be train, valid, test1, test2, none, or begin with test",
        ("vaild=1",): "no split is called 'vaild'; did you mean valid",
        ("test/../up=1",): "no split is called",
        ("valid=12",): r"12 is no range within the scenes 0\.\.11",
        ("valid=5-3",): "5-3 is no range",
        ("valid=kitchen*",): r"no scene is called 'kitchen\*'; the first is 'scene00'",
        ("valid=1", "test1=0-3"): "scene 'scene01' is asked for in valid and in test1",
        ("none=*",): "leaves no scene",
    }.items():
        refused(photos, message, splits=rules)


def test_folders_named_for_splits(photos: Path, tmp_path: Path) -> None:
    for split, scenes in {"train": [0, 1], "val": [2], "test": [3, 4], "test1-large": [5]}.items():
        for scene in scenes:
            (tmp_path / "split" / split).mkdir(parents=True, exist_ok=True)
            os.rename(photos / f"scene{scene:02d}", tmp_path / "split" / split / f"scene{scene:02d}")
    store = imported(tmp_path / "split")
    assert scenes_of(store) == {"train": 2, "valid": 1, "test1": 2, "test1-large": 1}
    np.testing.assert_array_equal(store.split("test1")["image"][1, 2], noise(20, 30, 3, seed=42))
    moved = imported(tmp_path / "split", tmp_path / "moved", splits=("valid=train/scene01",))
    assert scenes_of(moved) == {"train": 1, "valid": 2, "test1": 2, "test1-large": 1}


def test_fewer_views_are_padded_and_counted(photos: Path) -> None:
    (photos / "scene04" / "view1.png").unlink()
    store = imported(photos)
    assert check_dataset(store.path).pictures == 35
    split = store.split("train")
    assert split["num_views"].tolist() == [3, 3, 3, 3, 2, 3, 3, 3, 3, 3, 3]
    np.testing.assert_array_equal(split["image"][4, 1], noise(20, 30, 3, seed=42))
    assert not split["image"][4, 2].any()


def test_views_are_spread_evenly(photos: Path) -> None:
    split = imported(photos, views=1).split("valid")
    np.testing.assert_array_equal(split["image"], [[noise(20, 30, 3, seed=91)]])


@pytest.mark.parametrize(
    ("asked", "window", "size"),
    [
        ({"size": (10, 10)}, np.s_[0:20, 5:25], (10, 10)),
        ({"size": (10, 15)}, np.s_[:, :], (10, 15)),
        ({"size": (5, 10)}, np.s_[2:17, :], (5, 10)),
        ({"crop": 0.5}, np.s_[5:15, 7:22], (10, 15)),
        ({"crop": 0.8, "size": (8, 8)}, np.s_[2:18, 7:23], (8, 8)),
    ],
)
def test_crop_and_size_take_the_middle(photos: Path, asked: dict, window: tuple, size: tuple[int, int]) -> None:
    """Against means over squares by numpy; masks are the pixel in the middle."""
    for folder in photos.iterdir():
        for picture in list(folder.iterdir()):
            mask = noise(20, 30, seed=len(picture.name)) % 4
            Image.fromarray(mask).save(picture.with_name(f"{picture.stem}_segment.png"))
    split = imported(photos, **asked).split("valid")
    pixels = noise(20, 30, 3, seed=90)[window].astype(float)
    step = pixels.shape[0] // size[0]
    means = pixels.reshape(size[0], step, size[1], step, 3).mean((1, 3))
    np.testing.assert_allclose(split["image"][0, 0], means, atol=0.5001)
    labels = (noise(20, 30, seed=9) % 4)[window][step // 2 :: step, step // 2 :: step]
    np.testing.assert_array_equal(split["segment"][0, 0], labels - np.uint8(1))


def test_pictures_of_any_kind_and_size(tmp_path: Path) -> None:
    """One colour, as every kind of file and mode, of four shapes."""
    for scene, (height, width) in enumerate([(40, 60), (60, 40), (80, 120), (100, 100)]):
        folder = tmp_path / "mixed" / f"{scene}"
        folder.mkdir(parents=True)
        colours = np.zeros((height, width, 3), np.uint8)
        colours[..., 0], colours[..., 1], colours[..., 2] = 200, 100, 40
        image = Image.fromarray(colours)
        image.save(folder / "a.JPG", quality=95, subsampling=0)
        image.save(folder / "b.webp", lossless=True)
        image.convert("P", palette=Image.Palette.ADAPTIVE).save(folder / "c.png")
        image.convert("RGBA").save(folder / "d.png")
    refused(tmp_path / "mixed", r"1/a\.JPG: 60x40 pixels, but .*0/a\.JPG has 40x60; .* give --size N")
    store = imported(tmp_path / "mixed", size=(32, 32))
    for split in store.splits:
        image = store.split(split)["image"]
        np.testing.assert_allclose(image, np.broadcast_to([200, 100, 40], image.shape), atol=3)


def turned_by_exif() -> dict[str, object]:
    exif = Image.Exif()
    exif[0x0112] = 6
    return {"exif": exif}


def turned_by_xmp() -> dict[str, object]:
    told = PngImagePlugin.PngInfo()
    told.add_itxt("XML:com.adobe.xmp", '<rdf:Description tiff:Orientation="6"/>')
    return {"pnginfo": told}


@pytest.mark.parametrize("told", [turned_by_exif, turned_by_xmp])
def test_photos_are_turned_upright_before_they_are_measured(
    photos: Path, told: Callable[[], dict[str, object]]
) -> None:
    stored = np.ascontiguousarray(np.rot90(noise(20, 30, 3), 1))
    Image.fromarray(stored).save(photos / "scene00" / "view0.png", **told())
    np.testing.assert_array_equal(imported(photos).split("train")["image"][0, 0], noise(20, 30, 3))


def turned(folder: Path) -> Iterator[Path]:
    """Pictures of 30x20 pixels on their side, told in each way that a file has for it."""
    exif, xmp = turned_by_exif()["exif"], '<rdf:Description tiff:Orientation="6"/>'
    assert isinstance(exif, Image.Exif)
    raw, tags = PngImagePlugin.PngInfo(), TiffImagePlugin.ImageFileDirectory_v2()
    raw.add_text("Raw profile type exif", f"\nexif\n{len(exif.tobytes()):8}\n{exif.tobytes().hex()}\n")
    xmp_tag = TiffImagePlugin.ImageFileDirectory_v2()
    xmp_tag[700], xmp_tag.tagtype[700] = xmp.encode(), 7
    tags[0x0112], tags[700], tags.tagtype[700] = 6, xmp.encode(), 7
    ways: dict[str, dict[str, object]] = {
        "exif.png": {"exif": exif},
        "raw.png": {"pnginfo": raw},
        "xmp.png": turned_by_xmp(),
        "exif.jpg": {"exif": exif},
        "xmp.webp": {"xmp": xmp.encode()},
        "both.tif": {"tiffinfo": tags},
        "xmp.tif": {"tiffinfo": xmp_tag},
        "plain.png": {},
    }
    for name, way in ways.items():
        Image.fromarray(noise(20, 30, 3)).save(folder / name, **way)
        yield folder / name


def test_sizes_are_known_without_decoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle decodes."""
    expected = {path: read_rgb(path).shape[:2] for path in turned(tmp_path)}
    assert set(expected.values()) == {(30, 20), (20, 30)}

    def load_prepare(image: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(ImageFile.ImageFile, "load_prepare", load_prepare)
    assert {path: picture_size(path) for path in expected} == expected


def with_telling_last(png: bytes) -> bytes:
    """What is told of a picture, after its pixels."""
    chunks, place = [], 8
    while place < len(png):
        size = 12 + int.from_bytes(png[place : place + 4], "big")
        chunks.append(png[place : place + size])
        place += size
    told = [chunk for chunk in chunks[:-1] if chunk[4:8] in (b"eXIf", b"iTXt", b"tEXt")]
    rest = [chunk for chunk in chunks[:-1] if chunk not in told]
    assert told
    assert rest[-1][4:8] == b"IDAT"
    return png[:8] + b"".join([*rest, *told, chunks[-1]])


def test_what_a_png_tells_after_its_pixels_counts(tmp_path: Path) -> None:
    """The oracle decodes."""
    late = [path for path in turned(tmp_path) if path.suffix == ".png" and path.stem != "plain"]
    assert len(late) == 3
    for path in late:
        path.write_bytes(with_telling_last(path.read_bytes()))
        assert picture_size(path) == read_rgb(path).shape[:2] == (30, 20)


def labelled(photos: Path, make: Callable[[int, int], np.ndarray], **options: object) -> Path:
    for scene, folder in enumerate(sorted(photos.iterdir())):
        for view in range(3):
            Image.fromarray(make(scene, view)).save(folder / f"view{view}_segment.png", **options)
    return photos


def test_masks_keep_their_indices_over_views(photos: Path) -> None:
    """Object 3 is not seen in view 0, object 2 nowhere; the background is 0."""

    def make(scene: int, view: int) -> np.ndarray:
        mask = np.zeros((20, 30), np.uint8)
        mask[2:6, 3:9] = 1
        if view:
            mask[10:, 20:] = 3
        return mask

    split = imported(labelled(photos, make)).split("train")
    assert split.size.slots == 3
    assert (split["segment"][:, :, 2:6, 3:9] == 0).all()
    assert (split["segment"][:, 1:, 10:, 20:] == 2).all()
    assert (split["segment"][:, 0, 10:, 20:] == 255).all()
    assert set(np.unique(split["segment"])) == {0, 2, 255}


def test_large_ids_of_16_bits_count_up_over_the_views_of_a_scene(photos: Path) -> None:
    def make(scene: int, view: int) -> np.ndarray:
        mask = np.zeros((20, 30), np.uint16)
        mask[:5] = 40000
        if view == 2:
            mask[5:10] = 700
        return mask

    split = imported(labelled(photos, make)).split("train")
    assert (split["segment"][:, :2, :5] == 1).all()
    assert (split["segment"][:, 2, 5:10] == 0).all()
    assert (split["segment"][:, :, 10:] == 255).all()


def test_palette_and_grey_rgb_masks_are_indices(photos: Path) -> None:
    mask = np.zeros((20, 30), np.uint8)
    mask[:, 10:20] = 2
    labelled(photos, lambda scene, view: mask)
    palette = Image.fromarray(mask)
    palette.putpalette(bytes(noise(256 * 3)))
    palette.save(photos / "scene00" / "view0_segment.png")
    Image.fromarray(np.repeat(mask[..., None], 3, 2)).save(photos / "scene01" / "view0_segment.png")
    Image.fromarray(mask > 0).save(photos / "scene02" / "view0_segment.png")
    segment = imported(photos).split("train")["segment"]
    np.testing.assert_array_equal(segment[0, 0], segment[3, 0])
    np.testing.assert_array_equal(segment[1, 0], segment[3, 0])
    assert (segment[2, 0][:, 10:20] == 0).all()


def test_masks_of_one_split_alone_are_stored(photos: Path, tmp_path: Path) -> None:
    for folder in (photos / "scene03", photos / "scene07"):
        for view in range(3):
            Image.fromarray(np.full((20, 30), view, np.uint8)).save(folder / f"view{view}_segment.png")
    refused(photos, r"scene00: no segment for every view, but scene03, also in split train, has it.*--no-masks")
    assert imported(photos, tmp_path / "without", masks=False).meta.plan.keys == ("image",)
    store = imported(photos, splits=("test1=3,7",))
    assert "segment" not in store.split("train")
    assert not (store.path / "train" / "segment.npy").exists()
    assert store.split("test1")["segment"].shape == (2, 3, 20, 30)
    assert json.loads((store.path / "meta.json").read_text())["splits"] == {
        "train": {"scenes": 9, "slots": 0, "without": ["segment"]},
        "valid": {"scenes": 1, "slots": 0, "without": ["segment"]},
        "test1": {"scenes": 2, "slots": 2},
    }


def turn(angle: float) -> np.ndarray:
    """A camera on a circle in the plane z = 2, that looks along -x of its own place, by hand."""
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.array([[-sine, 0, cosine, 4 * cosine], [cosine, 0, sine, 4 * sine], [0, 1, 0, 2], [0, 0, 0, 1]])


def with_cameras(photos: Path) -> Path:
    """As ns-process-data writes it: pictures in images/, frames in any order."""
    for folder in photos.iterdir():
        (folder / "images").mkdir()
        for view in range(3):
            os.rename(folder / f"view{view}.png", folder / "images" / f"view{view}.png")
        frames = [
            {"file_path": f"images/view{view}.png", "transform_matrix": turn(view).tolist(), "colmap_im_id": view}
            for view in (2, 0, 1)
        ]
        lens = {"w": 30, "h": 20, "fl_x": 25.0, "fl_y": 24.0, "cx": 15.5, "cy": 9.5, "k1": 0.0}
        (folder / "transforms.json").write_text(json.dumps({"camera_model": "OPENCV", **lens, "frames": frames}))
    return photos


def test_cameras_of_transforms_json(photos: Path) -> None:
    split = imported(with_cameras(photos)).split("train")
    np.testing.assert_array_equal(split["image"][1, 2], noise(20, 30, 3, seed=12))
    np.testing.assert_allclose(split["pose"][5], [turn(view) for view in range(3)], atol=1e-6)
    np.testing.assert_array_equal(split["intrinsics"], np.broadcast_to([25, 24, 15.5, 9.5], (11, 3, 4)))


def test_intrinsics_follow_crop_and_size(photos: Path) -> None:
    """The same ray leaves through the same point of the scene: by hand, the middle 20x20 of 20x30, halved."""
    split = imported(with_cameras(photos), size=(10, 10)).split("train")
    np.testing.assert_allclose(split["intrinsics"][0, 0], [12.5, 12, 5.25, 4.75])
    split = imported(photos, photos.parent / "cut", crop=0.5).split("train")
    np.testing.assert_allclose(split["intrinsics"][0, 0], [25, 24, 8.5, 4.5])


def test_other_ways_to_write_cameras(photos: Path) -> None:
    with_cameras(photos)
    for number, folder in enumerate(sorted(photos.iterdir())):
        cameras = json.loads((folder / "transforms.json").read_text())
        for name in ("fl_x", "fl_y", "cx", "cy", "w", "h"):
            del cameras[name]
        cameras["camera_angle_x"] = 2 * np.arctan(30 / 2 / 25)
        if number == 1:  # of pictures twice as large
            cameras = {**cameras, "w": 60, "h": 40, "fl_x": 50, "cx": 30, "cy": 20, "k1": 0.1}
        for frame in cameras["frames"]:
            frame["file_path"] = "./" + frame["file_path"].removesuffix(".png")
        (folder / "transforms.json").write_text(json.dumps(cameras))
    path, notes = import_data("pictures", photos, photos.parent / "out")
    np.testing.assert_allclose(
        Store.open(path).split("train")["intrinsics"], np.broadcast_to([25, 25, 15, 10], (11, 3, 4))
    )
    assert any("distortion" in note for note in notes)


def changed_cameras(change: Callable[[dict], object]) -> Callable[[Path], None]:
    def damage(photos: Path) -> None:
        with_cameras(photos)
        file = photos / "scene02" / "transforms.json"
        cameras = json.loads(file.read_text())
        change(cameras)
        file.write_text(json.dumps(cameras))

    return damage


def first_frame(**values: object) -> Callable[[Path], None]:
    return changed_cameras(lambda cameras: cameras["frames"][0].update(values))


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png_of_claims(path: Path, width: int, height: int) -> None:
    """A picture whose header promises a great deal."""
    start = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    path.write_bytes(start + chunk(b"IDAT", zlib.compress(bytes(2**16))) + chunk(b"IEND", b""))


def cut(path: Path, keep: float = 0.6) -> None:
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])


def secret_link(photos: Path) -> None:
    (photos.parent / "secret.png").write_bytes((photos / "scene00" / "view0.png").read_bytes())
    (photos / "scene05" / "view9.png").symlink_to(photos.parent / "secret.png")


def folder_link(photos: Path) -> None:
    (photos.parent / "elsewhere").mkdir()
    (photos / "scene99").symlink_to(photos.parent / "elsewhere")


def lone_mask(photos: Path) -> None:
    Image.fromarray(noise(20, 30)).save(photos / "scene05" / "view7_segment.png")


def one_mask(photos: Path) -> None:
    Image.fromarray(noise(20, 30)).save(photos / "scene05" / "view1_segment.png")


def mask_of(make: Callable[[], np.ndarray]) -> Callable[[Path], None]:
    def damage(photos: Path) -> None:
        labelled(photos, lambda scene, view: make())

    return damage


ESCAPE = {"file_path": "../../secret.png"}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: cut(p / "scene05" / "view1.png"), r"scene05/view1\.png: damaged or cut off"),
        (lambda p: (p / "scene05" / "view1.png").write_bytes(b""), r"scene05/view1\.png: an empty file"),
        (lambda p: (p / "scene05" / "view1.png").write_text("hello"), r"view1\.png: not a picture in a format"),
        (lambda p: (p / "scene05" / "view1.png").write_text("<svg/>"), r"view1\.png: SVG files are not read"),
        (lambda p: (p / "scene05" / "x.tif").write_text("hello"), r"x\.tif: pictures of this kind are not read"),
        (lambda p: (p / "scene05" / "x.CR2").write_text("hello"), r"x\.CR2: pictures of this kind are not read"),
        (lambda p: (p / "scene05" / "view0.jpg").write_text("x"), r"a second picture of this name, beside view0\.jpg"),
        (lambda p: png_of_claims(p / "scene05" / "view1.png", 10**5, 10**5), "more than 40 megapixels"),
        (lambda p: png_of_claims(p / "scene05" / "view1.png", 31, 20), r"view1\.png: 20x31 pixels, but .*--size"),
        (lambda p: png_of_claims(p / "scene00" / "view0.png", 5000, 20), "20x5000 pixels, more than 4096 a side"),
        (lambda p: Image.fromarray(noise(20, 30, 3)).save(p / "x.png"), r"x\.png: a picture outside a scene folder"),
        (lambda p: (p / "scene77").mkdir(), "scene77: a scene folder without pictures .* or a video$"),
        (lambda p: (p / "room" / "scene").mkdir(parents=True), "room: .*; for a split, call it train, valid or test$"),
        (lambda p: os.mkfifo(p / "scene05" / "view3.png"), r"view3\.png: not a regular file"),
        (secret_link, r"view9\.png: leads to a place outside .*photos, and is not followed"),
        (folder_link, "scene99: leads to a place outside"),
        (lone_mask, r"view7_segment\.png: a mask without a picture called view7"),
        (one_mask, r"scene05/view0_segment\.png: no such mask, but other views of the scene have one"),
        (mask_of(lambda: noise(21, 30)), r"view0\.png: 20x30 pixels, but its segment has 21x30"),
        (mask_of(lambda: noise(20, 30, 3)), r"view0_segment\.png: has colours, but masks must be indices"),
        (mask_of(lambda: np.arange(600, dtype=np.uint16).reshape(20, 30)), "599 objects in this scene"),
        (lambda p: (p / "scene02" / "transforms.json").write_text("{"), r"transforms\.json: damaged JSON"),
        (lambda p: (p / "scene02" / "transforms.json").write_text("[]"), "holds list where an object is expected"),
        (lambda p: (p / "scene02" / "transforms.json").write_text("{}"), "frames must be a list of objects"),
        (lambda p: (p / "scene02" / "transforms.json").write_text('{"a": NaN}'), "NaN is not a JSON number"),
        (lambda p: (with_cameras(p) / "scene02" / "transforms.json").unlink(), "scene02: no pose for every view"),
        (first_frame(**ESCAPE), r"secret\.png: leads to a place outside"),
        (first_frame(file_path="/etc/passwd"), "passwd: leads to a place outside"),
        (first_frame(file_path="images/view7.png"), r"names 'images/view7\.png', which is not there"),
        (first_frame(file_path="images/view1.png"), "names the same picture twice"),
        (first_frame(file_path=7), "a frame without file_path"),
        (first_frame(transform_matrix=[[1, 2], [3]]), "transform_matrix must have 4x4 numbers"),
        (first_frame(transform_matrix=None), "only some frames have a transform_matrix"),
        (first_frame(transform_matrix=np.ones((4, 4)).tolist()), r"view2\.png: pose: its last row is not 0 0 0 1"),
        (first_frame(transform_matrix=np.diag([2, 2, 2, 1]).tolist()), "its rotation is not orthonormal"),
        (first_frame(fl_x="wide"), "fl_x must be a number, but is 'wide'"),
        (first_frame(fl_x=-1), "intrinsics: a focal length that is not positive"),
        (changed_cameras(lambda c: c.update(w=40)), r"20x30 pixels, but .*transforms\.json says 20x40"),
        (changed_cameras(lambda c: c.update(camera_model="OPENCV_FISHEYE")), "'OPENCV_FISHEYE' are not read"),
        (changed_cameras(lambda c: c.update(frames=[])), "frames must be a list of objects"),
    ],
)
def test_damaged_and_hostile_folders_get_one_line(photos: Path, damage: Callable[[Path], object], message: str) -> None:
    damage(photos)
    refused(photos, message)


def test_links_within_the_folder_are_followed(photos: Path) -> None:
    (photos / "scene05" / "view9.png").symlink_to(photos / "scene00" / "view0.png")
    split = imported(photos).split("train")
    np.testing.assert_array_equal(split["image"][5, 3], noise(20, 30, 3))


def test_what_is_no_folder_of_scenes(tmp_path: Path, photos: Path) -> None:
    refused(tmp_path / "missing", "no such file or folder")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "no scenes of the kind pictures in it")
    refused(photos / "scene00" / "view0.png", "must be a folder of scene folders, or a video")
    refused(photos, "--resolution: the kind pictures has no such choice", resolution="128x128")
    refused(photos, "--background: the kind pictures has no such choice", background=3)
    with pytest.raises(UserError, match="inside the source; choose another --out"):
        imported(photos, photos / "set")
    importing.refused("films", photos, "no kind of source 'films'")
    for asked, message in {"crop": (0.0, "above 0"), "views": (0, "must be in"), "size": ((0, 5), "asked for")}.items():
        refused(photos, message[1], **{asked: message[0]})


@pytest.mark.parametrize("moment", [1, 5, 11])
def test_an_interrupted_import_goes_on_to_the_same_bytes(
    photos: Path, tmp_path: Path, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "FLUSH_SECONDS", 0.0)
    whole = contents(import_data("pictures", photos, tmp_path / "whole")[0])

    def interrupt(done: int, total: int) -> None:
        assert total == 12
        if done == moment:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_data("pictures", photos, tmp_path / "set", progress=interrupt)
    with pytest.raises(UserError, match="unfinished data set; run the command that made it again"):
        Store.open(tmp_path / "set")
    with pytest.raises(UserError, match=r"holds another unfinished data set \(source: .*--crop 0\.5"):
        import_data("pictures", photos, tmp_path / "set", Import(crop=0.5, size=(20, 30)))
    seen: list[int] = []
    import_data("pictures", photos, tmp_path / "set", progress=lambda done, total: seen.append(done))
    assert seen == list(range(moment + 1, 13))
    assert contents(tmp_path / "set") == whole


def test_only_one_scene_is_in_memory(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    appended = []
    append = writer.StoreWriter.append
    monkeypatch.setattr(writer.StoreWriter, "append", lambda self, *scene: appended.append(1) or append(self, *scene))
    read = Survey.arrays
    monkeypatch.setattr(
        Survey, "arrays", lambda self, scene, plan: check_order(appended, scene, read(self, scene, plan))
    )
    imported(photos)


def check_order(appended: list[int], scene: int, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    assert len(appended) == scene, "a scene is read before the last one is written"
    assert {len(array) for array in arrays.values()} == {1}
    return arrays


def test_damaged_scenes_are_left_out_on_request(photos: Path, tmp_path: Path) -> None:
    """A cut picture is found only when it is read; one that is none at once. What is left is what an import without
    those scenes makes, and the set tells what it lacks."""
    picture = photos / "scene03" / "view1.png"
    picture.write_bytes(picture.read_bytes()[:-200])
    (photos / "scene07" / "view0.png").write_text("no picture")
    refused(photos, r"scene07/view0\.png: not a picture")
    path, notes = import_data("pictures", photos, tmp_path / "set", Import(skip_damaged=True))
    store = Store.open(path)
    assert store.meta.plan.source.skipped == 2
    assert store.meta.plan.source.skipped_scenes == ("scene03", "scene07")
    assert "--skip-damaged" in store.meta.plan.source.read_as
    (note,) = [note for note in notes if "left out" in note]
    assert note.startswith("2 of 12 scenes cannot be read and were left out")
    assert "view1.png: damaged or cut off" in note
    check_dataset(path)
    for name in ("scene03", "scene07"):
        shutil.rmtree(photos / name)
    without = Store.open(import_data("pictures", photos, tmp_path / "without")[0])
    assert store.splits == without.splits
    for split in store.splits:
        np.testing.assert_array_equal(store.split(split)["image"], without.split(split)["image"])
        assert store.names(split) == without.names(split)


def test_what_is_left_of_damaged_scenes_is_split(photos: Path, tmp_path: Path) -> None:
    """Scene 9, the tenth, would have been the whole of valid; numbers in rules still count it."""
    (photos / "scene09" / "view0.png").write_text("no picture")
    left = [f"scene{number:02d}" for number in range(12) if number != 9]
    store = Store.open(import_data("pictures", photos, tmp_path / "set", Import(skip_damaged=True))[0])
    assert store.names("valid") == ["scene10"]
    assert store.names("train") == [name for name in left if name != "scene10"]
    asked = Import(skip_damaged=True, splits=("valid=9-11", "test1=0"))
    store = Store.open(import_data("pictures", photos, tmp_path / "moved", asked)[0])
    assert {split: store.names(split) for split in store.splits} == {
        "train": left[1:9],
        "valid": ["scene10", "scene11"],
        "test1": ["scene00"],
    }


def test_with_all_scenes_damaged_nothing_is_made(photos: Path, tmp_path: Path) -> None:
    for picture in photos.rglob("*.png"):
        picture.write_text("no picture")
    with pytest.raises(UserError, match=r"no scene can be read: .*not a picture"):
        import_data("pictures", photos, tmp_path / "set", Import(skip_damaged=True))
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize("odd", [{"skipped": 0}, {"skipped_scenes": "x"}, {"skipped_scenes": [3]}])
def test_damaged_records_of_skipped_scenes(photos: Path, odd: dict[str, object]) -> None:
    store = imported(photos)
    meta = json.loads((store.path / "meta.json").read_text())
    meta["source"] |= odd
    (store.path / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(UserError, match="skipped"):
        Store.open(store.path)


def test_heic_names_the_package_it_needs(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    (photos / "scene05" / "view1.png").unlink()
    (photos / "scene05" / "view1.heic").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic")
    refused(photos, r"view1\.heic: HEIC files are read with pillow-heif: pip install 'viewslots\[heic\]'")


def test_heic_is_read_where_the_package_is_there(photos: Path) -> None:
    heif = pytest.importorskip("pillow_heif")
    grey = np.full((20, 30, 3), 90, np.uint8)
    heif.from_pillow(Image.fromarray(grey)).save(photos / "scene05" / "view1.heic", quality=100)
    (photos / "scene05" / "view1.png").unlink()
    np.testing.assert_allclose(imported(photos).split("train")["image"][5, 1], grey, atol=2)
    picture_files.require_heic("x")


def test_export_writes_what_import_reads(tmp_path: Path) -> None:
    """Every key that travels: pictures, masks, cameras, numbers of views; and the splits."""
    made = Store.open(make_dataset(DatasetRecipe(FullWorld(), COUNTS, preset="full", seed=1), tmp_path / "made"))
    folder = export_folders(made, tmp_path / "folders")
    again = imported(folder)
    assert again.splits == made.splits
    assert again.meta.plan.keys == ("image", "segment", "pose", "intrinsics", "num_views")
    for split in made.splits:
        for key in again.meta.plan.keys:
            views = again.split(split)[key].shape[1:2]
            stored = made.split(split)[key]
            np.testing.assert_array_equal(again.split(split)[key], stored[:, : views[0]] if views else stored)
    with Image.open(folder / "train" / "0001" / "000_segment.png") as mask:
        np.testing.assert_array_equal(np.asarray(mask) - np.uint8(1), made.split("train")["segment"][1, 0])
        assert mask.mode == "P", "programs read indices"
        colours = [mask.getpalette()[3 * index : 3 * index + 3] for index in range(8)]
    assert colours[0] == [0, 0, 0]
    assert min(np.abs(np.subtract(one, other)).sum() for one, other in combinations(colours, 2)) > 60, "people see them"
    with pytest.raises(UserError, match="already exists"):
        export_folders(made, folder)


def test_scenes_keep_their_names(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Through import, check, export and import."""
    for number, name in enumerate(("desk 1", "kitchen-é")):
        os.rename(photos / f"scene{number:02d}", photos / name)
    store = imported(photos)
    assert store.names("train")[:2] == ["desk 1", "kitchen-é"]
    assert store.names("valid") == ["scene09"]
    check_data(store.path)
    assert json.loads(capsys.readouterr().out)["names"]["valid"] == ["scene09"]
    folder = export_folders(store, tmp_path / "folders")
    assert {path.name for path in (folder / "valid").iterdir()} == {"scene09"}
    again = imported(folder, tmp_path / "again")
    assert again.names("train") == [f"train/{name}" for name in store.names("train")]
    np.testing.assert_array_equal(again.split("train")["image"], store.split("train")["image"])
    meta = json.loads((store.path / "meta.json").read_text())
    for bad in (1, "yes", None):
        (store.path / "meta.json").write_text(json.dumps(meta | {"named": bad}))
        with pytest.raises(UserError, match="named must be true or false"):
            Store.open(store.path)


@pytest.mark.parametrize(
    "names",
    [
        ["a", "A"],
        ["..", "b"],
        ["x/../..", "b"],
        ["", "b"],
        [".hidden", "b"],
        ["a:b", "c"],
        ["images", "b"],
        ["\x1b[2J", "b" * 9999],
    ],
)
def test_names_that_are_no_folders_are_not_trusted(tmp_path: Path, names: list[str]) -> None:
    """A data set of somebody else's may name its scenes as it likes."""
    plan = replace(import_plan(tmp_path), named=True)
    with writer.StoreWriter(tmp_path / "set", plan) as made:
        for name in names:
            made.append(plan.parts("train")[0], {"image": noise(1, 1, 4, 4, 3)}, [{"name": name}])
        made.finish()
    assert all(name.isprintable() and len(name) <= 200 for name in Store.open(tmp_path / "set").names("train"))
    folder = export_folders(Store.open(tmp_path / "set"), tmp_path / "out")
    assert sorted(path.name for path in (folder / "train").iterdir()) == ["0000", "0001"]


def import_plan(tmp_path: Path) -> DatasetPlan:
    source = Source("x", 1, "0" * 64)
    return DatasetPlan("test", None, None, None, None, source, None, 1, 4, 4, {"train": SplitPlan(2, 0)}, ("image",))


def squares(folder: Path, order: Callable[[int], list[int]], scenes: int = 8) -> Path:
    """Three squares of different colours; object k has the index order(view)[k] + 1 in the masks."""
    colours = np.array([[220, 30, 30], [30, 200, 40], [40, 60, 230]])
    for scene in range(scenes):
        (folder / f"s{scene}").mkdir(parents=True)
        for view in range(3):
            image, mask = np.full((20, 30, 3), 128, np.uint8), np.zeros((20, 30), np.uint8)
            for k in range(3):
                place = slice(2 + view, 10 + view), slice(10 * k, 10 * k + 8)
                image[place], mask[place] = np.roll(colours, scene, 0)[k], order(view)[k] + 1
            Image.fromarray(image).save(folder / f"s{scene}" / f"{view}.png")
            Image.fromarray(mask).save(folder / f"s{scene}" / f"{view}_segment.png")
    return folder


def notes_of(source: Path, out: Path, **options: bool) -> str:
    return "; ".join(import_data("pictures", source, out, Import(options=Options(**options)))[1])


def test_masks_that_number_every_view_alone_are_noticed(tmp_path: Path) -> None:
    same = squares(tmp_path / "same", lambda view: [0, 1, 2])
    other = squares(tmp_path / "other", lambda view: [(k + view) % 3 for k in range(3)])
    told = notes_of(same, tmp_path / "a")
    assert "the same index is taken to be the same object" in told
    assert "24 of 24 objects are seen in several views" in told
    assert "in 16 of 16 pairs of views" in notes_of(other, tmp_path / "b")
    assert "masks" not in notes_of(other, tmp_path / "c", per_view_masks=True)
    assert "masks" not in notes_of(other, tmp_path / "d", masks=False)
    store = Store.open(tmp_path / "c")
    assert store.meta.plan.per_view_masks
    assert store.meta.plan.source.read_as == "pictures --per-view-masks"
    np.testing.assert_array_equal(store.split("train")["segment"], Store.open(tmp_path / "b").split("train")["segment"])
    assert not Store.open(tmp_path / "b").meta.plan.per_view_masks
    with pytest.raises(UserError, match="--per-view-masks: the kind movi has no such choice"):
        import_data("movi", same, tmp_path / "e", Import(options=Options(per_view_masks=True)))


def test_per_view_masks_have_scores_of_pictures_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """k-means finds these squares, whichever way they are numbered; scores over views must not punish it."""
    source = squares(tmp_path / "other", lambda view: [(k + view) % 3 for k in range(3)], scenes=2)
    notes_of(source, tmp_path / "set", per_view_masks=True)
    asked = {"split": "valid", "views": 3, "repeats": 1, "device": "cpu", "per_scene": True}
    evaluate("kmeans", data=tmp_path / "set", out=tmp_path / "x.json", **asked)
    assert "identities (ARI-A" in capsys.readouterr().err
    written = json.loads((tmp_path / "x.json").read_text())
    assert set(written["paper"].values()) == {None}
    assert written["extras"]["fg_ari"] is written["extras"]["miou"] is written["extras"]["identity"] is None
    assert written["extras"]["picture_fg_ari"]["mean"] == written["extras"]["picture_mbo"]["mean"] == 1
    assert written["per_scene"]["names"] == ["s1"]
    evaluate("kmeans", data=tmp_path / "set", out=tmp_path / "one.json", **asked | {"views": 1})
    assert json.loads((tmp_path / "one.json").read_text())["paper"]["ARI-A"]["mean"] == 1  # a picture is a scene
    segment = np.asarray(Store.open(tmp_path / "set").split("valid")["segment"])
    layers = (np.where(segment == 255, 0, segment + 1)[:, :, None] == np.arange(4)[:, None, None]).astype(np.float32)
    np.savez(tmp_path / "p.npz", layer_masks=layers, has_background=True)
    score(tmp_path / "p.npz", tmp_path / "set", split="valid", protocol="mbo-i", device="cpu")
    assert json.loads(capsys.readouterr().out.split("\n}\n")[-2] + "}")["scores"]["mBO"] == 1
    for protocol in ("ocloc", "slot-attention-video"):
        with pytest.raises(UserError, match="numbered in each view alone"):
            score(tmp_path / "p.npz", tmp_path / "set", split="valid", protocol=protocol, device="cpu")


def test_a_single_scene_gets_a_note(photos: Path, tmp_path: Path) -> None:
    for scene in range(1, 12):
        os.rename(photos / f"scene{scene:02d}", tmp_path / f"{scene}")
    assert "the only scene is in valid: no split train, which training needs" in notes_of(photos, tmp_path / "one")
    _, notes = import_data("pictures", photos, tmp_path / "two", Import(splits=("train=0",)))
    assert "no split valid" in notes[-1]


def test_an_interrupted_export_leaves_nothing(tmp_path: Path) -> None:
    made = Store.open(make_dataset(DatasetRecipe(FullWorld(), COUNTS, preset="full", seed=1), tmp_path / "made"))

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_folders(made, tmp_path / "folders", interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def film(path: Path, frames: list[np.ndarray], *options: str) -> None:
    """Lossless H.264, by ffmpeg's own command line."""
    ffmpeg = pytest.importorskip("imageio_ffmpeg").get_ffmpeg_exe()
    height, width = frames[0].shape[:2]
    command = [ffmpeg, "-v", "error", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", "10"]
    command += ["-i", "-", "-c:v", "libx264rgb", "-qp", "0", *options, str(path)]
    subprocess.run(command, input=b"".join(frame.tobytes() for frame in frames), check=True)


def smooth(level: int) -> np.ndarray:
    return np.full((48, 64, 3), level, np.uint8)


def test_a_video_is_a_scene_of_its_sharp_frames(tmp_path: Path) -> None:
    """24 frames, 3 views: windows of 4 frames around 4, 12 and 20. Sharp frames are checkerboards of a level."""
    checkers = (np.indices((48, 64)).sum(0) // 4 % 2)[..., None].astype(np.uint8)
    frames = [smooth(10 * number) for number in range(24)]
    for number in (0, 5, 11, 16, 21):  # 0 and 16 are sharp, too, but too far from the middles
        frames[number] = np.broadcast_to(checkers * 10 * number + 5, (48, 64, 3)).astype(np.uint8)
    (tmp_path / "films" / "desk").mkdir(parents=True)
    film(tmp_path / "films" / "desk" / "clip.mp4", frames)
    film(tmp_path / "films" / "kitchen.mkv", frames[::-1])
    store = imported(tmp_path / "films", views=3)
    np.testing.assert_array_equal(store.split("train")["image"][0], [frames[number] for number in (5, 11, 21)])
    np.testing.assert_array_equal(store.split("valid")["image"][0], [frames[::-1][number] for number in (2, 12, 18)])
    again = imported(tmp_path / "films", tmp_path / "again", views=3)
    assert contents(again.path) == contents(store.path)
    alone = imported(tmp_path / "films" / "kitchen.mkv", tmp_path / "alone", views=50)
    np.testing.assert_array_equal(alone.split("valid")["image"][0], frames[::-1])
    assert imported(tmp_path / "films", tmp_path / "default").meta.plan.views == 8


def test_videos_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "films"
    folder.mkdir()
    (tmp_path / "secret.png").write_bytes(b"secret")
    playlist = f"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nfile://{tmp_path}/secret.png\n"
    for content in (b"", b"hello", playlist.encode(), b"ffconcat version 1.0\nfile secret.png\n"):
        (folder / "clip.mp4").write_bytes(content)
        refused(folder, r"clip\.mp4: not a video that is read")
    (folder / "clip.mp4").write_bytes(b"\0\0\0\x18ftypisom" + bytes(200))
    refused(folder, r"clip\.mp4: no frames in it")
    film(folder / "clip.mp4", [smooth(level) for level in range(20)])
    (folder / "x").mkdir()
    os.rename(folder / "clip.mp4", folder / "x" / "clip.mp4")
    Image.fromarray(smooth(1)).save(folder / "x" / "a.png")
    refused(folder, r"clip\.mp4: one video is a scene; keep other pictures and videos elsewhere")
    (folder / "x" / "a.png").unlink()
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    refused(folder, r"clip\.mp4: videos are read with imageio-ffmpeg, which is not there: pip install imageio-ffmpeg")
