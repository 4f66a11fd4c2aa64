"""Scene descriptions as JSON: nothing is lost, the reference files are read, and whatever is wrong is named."""

import copy
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from viewslots.errors import UserError
from viewslots.scenes.clevr.family import CLEVR_M, ClevrWorld, TinyClevrWorld
from viewslots.scenes.clevr.render import render_views
from viewslots.scenes.clevr.spec import Lights, Picture, Scene, SceneObject

REFERENCES = sorted((Path(__file__).parents[1] / "data" / "blender_refs").glob("ref_*.json"))

coordinate = st.floats(-1e6, 1e6)
vector = st.tuples(coordinate, coordinate, coordinate)
share = st.floats(0, 1)
label = st.text(max_size=8)
thing = st.builds(
    SceneObject,
    shape=st.sampled_from(["sphere", "cube", "cylinder"]),
    radius=st.floats(1e-3, 100),
    rgb=st.tuples(share, share, share),
    material=st.sampled_from(["rubber", "metal"]),
    location=vector,
    rotation=coordinate,
    size=label,
    color=label,
)
camera = st.tuples(coordinate, coordinate, st.floats(1e-3, 1e6)).filter(lambda c: math.hypot(c[0], c[1]) > 1e-5)


@st.composite
def pictures(draw: st.DrawFn) -> Picture:
    width, height = draw(st.integers(1, 1024)), draw(st.integers(1, 1024))
    up, left = draw(st.integers(0, height - 1)), draw(st.integers(0, width - 1))
    down, right = draw(st.integers(up + 1, height)), draw(st.integers(left + 1, width))
    return Picture(width, height, up, down, left, right, focal=draw(st.floats(1e-3, 1e6)))


scenes = st.builds(
    Scene,
    objects=st.lists(thing, max_size=4).map(tuple),
    cameras=st.lists(camera, min_size=1, max_size=4).map(tuple),
    lights=st.builds(Lights, key=vector, fill=vector, back=vector),
    picture=pictures(),
    backdrop=st.sampled_from(["plane", "sweep"]),
    key=st.integers(0, 2**32 - 1),
)


@settings(max_examples=150, deadline=None)
@given(scenes)
def test_round_trip_through_text(scene: Scene) -> None:
    assert Scene.from_dict(json.loads(json.dumps(scene.to_dict()))) == scene


def test_drawn_scenes_survive_a_file(tmp_path: Path) -> None:
    drawn = [world.sample(1, "test2", 0) for world in CLEVR_M.values()] + [ClevrWorld().sample(1, "train", 0)]
    for scene in drawn:
        path = tmp_path / "scene.json"
        path.write_text(json.dumps(scene.to_dict()))
        assert Scene.load(path) == scene


@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: path.stem)
def test_reference_files_are_read_as_they_are(path: Path) -> None:
    data, scene = json.loads(path.read_text()), Scene.load(path)
    assert len(scene.objects) == len(data["objects"])
    for body, raw in zip(scene.objects, data["objects"], strict=True):
        assert (body.shape, body.radius, body.material) == (raw["shape"], raw["r"], raw["material"])
        assert list(body.rgb) == raw["rgb"]
        assert list(body.location) == raw["loc"]
        assert body.rotation == raw["theta"]
        assert (body.size, body.color) == (raw["size"], raw["color"])
    assert [list(place) for place in scene.cameras] == [data["view"]["location"]]
    lamps = data["lights_area"]
    assert (list(scene.lights.key), list(scene.lights.fill), list(scene.lights.back)) == (
        lamps["Lamp_Key"],
        lamps["Lamp_Fill"],
        lamps["Lamp_Back"],
    )
    picture = scene.picture
    assert [picture.full_width, picture.full_height] == data["image_full"]
    assert {side: getattr(picture, side) for side in data["crop"]} == data["crop"]
    assert picture.focal == pytest.approx(data["focal_px"])
    assert scene.backdrop == "plane"


def test_all_references_are_here() -> None:
    assert len(REFERENCES) == 10


def plain() -> dict[str, Any]:
    body = {"shape": "cube", "r": 0.7, "rgb": [0.1, 0.2, 0.3], "material": "metal", "loc": [0, 1, 0.7], "theta": 1}
    return {"objects": [body], "view": {"location": [7, -6, 5]}}


def test_left_out_fields_take_their_defaults() -> None:
    scene = Scene.from_dict(plain())
    assert scene.lights == Lights()
    assert scene.picture == Picture(108, 80, 0, 80, 0, 108, focal=118.125)
    wide = Scene.from_dict(plain() | {"image_full": [320, 240]}).picture
    assert wide == Picture(320, 240, 0, 240, 0, 320, focal=350.0)
    assert Scene.from_dict(plain() | {"focal_px": 77}).picture.focal == 77
    assert scene.backdrop == "plane"
    assert scene.key == 0
    assert scene.objects[0].location == (0.0, 1.0, 0.7)
    assert Scene.from_dict(plain() | {"lights_area": {"Lamp_Back": [1, 2, 3]}}).lights == Lights(back=(1, 2, 3))


def test_unknown_fields_are_named() -> None:
    """But for the notes of the reference files."""
    assert Scene.from_dict(plain() | {"shared": "x", "samples": None}) == Scene.from_dict(plain())
    with pytest.raises(UserError, match=r"scene: unknown field 'new'; known are objects, views, view, "):
        Scene.from_dict(plain() | {"new": [1]})
    for where, named in (("objects.0.colour", r"objects\[0\]"), ("view.target", r"views\[0\]")):
        with pytest.raises(UserError, match=rf"{named}: unknown field '{where.split('.')[-1]}'"):
            Scene.from_dict(with_value(where, "red"))
    with pytest.raises(UserError, match="lights_area: unknown field 'Sun'; known are Lamp_Key, Lamp_Fill, Lamp_Back"):
        Scene.from_dict(plain() | {"lights_area": {"Sun": [1, 2, 3]}})
    with pytest.raises(UserError, match="crop: unknown field 'top'"):
        Scene.from_dict(plain() | {"crop": {"up": 0, "down": 8, "left": 0, "right": 9, "top": 1}})


def test_larger_pictures_show_the_same() -> None:
    """The axis of CLEVR-M's lens meets a place two pixels above the middle of the window."""
    picture = Picture()
    for height, width in ((64, 64), (128, 128), (100, 37), (9, 500)):
        window, scale = picture.sized(height, width), min(height, width) / 64
        assert (window.height, window.width) == (height, width)
        assert 0 <= window.up < window.down <= window.full_height
        assert 0 <= window.left < window.right <= window.full_width
        fx, fy, x, y = window.intrinsics
        assert (fx, fy) == (scale * picture.focal,) * 2
        np.testing.assert_allclose([x, y], [width / 2, height / 2 - 2 * scale], atol=0.25)
    assert picture.sized(128, 128).intrinsics == tuple(2 * value for value in picture.intrinsics)
    scene = TinyClevrWorld(views=1).sample(0, "test1", 0)
    (small, _), (large, _) = (render_views([one], 3) for one in (scene, scene.sized(64, 64)))
    mean = large.image[0, 0].reshape(32, 2, 32, 2, 3).mean((1, 3))
    assert np.abs(mean - small.image[0, 0]).mean() < 5
    assert (large.segment[0, 0, ::2, ::2] == small.segment[0, 0]).mean() > 0.95


NAN, INF = float("nan"), float("inf")
WRONG: list[tuple[str, Any, str]] = [
    # where (dots and numbers lead into the description), what is put there, what the message names
    ("objects", None, "objects"),
    ("objects", {"0": 1}, "objects"),
    ("objects", "cube", "objects"),
    ("objects", [plain()["objects"][0]] * 65, "objects"),
    ("objects.0", [1, 2], "objects[0]"),
    ("objects.0.shape", "cone", "objects[0].shape"),
    ("objects.0.shape", ["cube"], "objects[0].shape"),
    ("objects.0.shape", None, "objects[0].shape"),
    ("objects.0.material", "glass", "objects[0].material"),
    ("objects.0.material", 3, "objects[0].material"),
    ("objects.0.r", 0, "objects[0].r"),
    ("objects.0.r", -0.7, "objects[0].r"),
    ("objects.0.r", "0.7", "objects[0].r"),
    ("objects.0.r", NAN, "objects[0].r"),
    ("objects.0.r", True, "objects[0].r"),
    ("objects.0.r", 10**400, "objects[0].r"),
    ("objects.0.rgb", [0.1, 0.2], "objects[0].rgb"),
    ("objects.0.rgb", [0.1, 0.2, 255], "objects[0].rgb"),
    ("objects.0.rgb", "red", "objects[0].rgb"),
    ("objects.0.rgb", [0.1, NAN, 0.3], "objects[0].rgb"),
    ("objects.0.loc", [0, 0, INF], "objects[0].loc"),
    ("objects.0.loc", [0, 0, NAN], "objects[0].loc"),
    ("objects.0.loc", [[0], 0, 0], "objects[0].loc"),
    ("objects.0.loc", {"x": 1}, "objects[0].loc"),
    ("objects.0.theta", "north", "objects[0].theta"),
    ("objects.0.theta", NAN, "objects[0].theta"),
    ("objects.0.theta", 1e30, "objects[0].theta"),
    ("view", [7, -6, 5], "views[0]"),
    ("view.location", [7, -6], "views[0].location"),
    ("view.location", [7, -6, 0], "views[0].location"),
    ("view.location", [7, -6, -5], "views[0].location"),
    ("view.location", [0, 0, 5], "views[0].location"),
    ("view.location", [7, NAN, 5], "views[0].location"),
    ("lights_area", [1, 2, 3], "lights_area"),
    ("lights_area", {"Lamp_Key": [1, 2]}, "lights_area.Lamp_Key"),
    ("lights_area", {"Lamp_Fill": [1, 2, "3"]}, "lights_area.Lamp_Fill"),
    ("lights_area", {"Lamp_Back": [1, 2, NAN]}, "lights_area.Lamp_Back"),
    ("image_full", [108], "image_full"),
    ("image_full", [108, 80.5], "image_full"),
    ("image_full", [0, 80], "image_full"),
    ("image_full", [10**6, 80], "image_full"),
    ("image_full", "108x80", "image_full"),
    ("crop", {"up": 10, "down": 10, "left": 0, "right": 9}, "crop"),
    ("crop", {"up": 1, "down": 10, "left": 9, "right": 3}, "crop"),
    ("crop", {"up": 0, "down": 81, "left": 0, "right": 9}, "crop.down"),
    ("crop", {"up": 0, "down": 8, "left": -1, "right": 9}, "crop.left"),
    ("crop", {"up": 0, "down": 8, "left": 0, "right": 109}, "crop.right"),
    ("crop", {"up": 0.5, "down": 8, "left": 0, "right": 9}, "crop.up"),
    ("crop", {"up": 0, "down": 8, "left": 0}, "`right` is missing"),
    ("crop", [0, 8, 0, 9], "crop"),
    ("focal_px", 0, "focal_px"),
    ("focal_px", NAN, "focal_px"),
    ("focal_px", "long", "focal_px"),
    ("backdrop", "sea", "backdrop"),
    ("key", -1, "key"),
    ("key", 2**32, "key"),
    ("key", 0.5, "key"),
    ("key", "0", "key"),
]


def with_value(where: str, value: Any) -> dict[str, Any]:
    data: Any = plain()
    *path, last = where.split(".")
    target = data
    for step in path:
        target = target[int(step)] if step.isdigit() else target[step]
    target[int(last) if last.isdigit() else last] = copy.deepcopy(value)
    return data


@pytest.mark.parametrize(
    ("where", "value", "named"), WRONG, ids=[f"{n}-{where}" for n, (where, _, _) in enumerate(WRONG)]
)
def test_wrong_values_are_named(where: str, value: Any, named: str) -> None:
    with pytest.raises(UserError) as caught:
        Scene.from_dict(with_value(where, value))
    message = str(caught.value)
    assert named in message
    assert "\n" not in message
    assert len(message) < 200


@pytest.mark.parametrize("key", ["shape", "r", "rgb", "material", "loc"])
def test_missing_keys_are_named(key: str) -> None:
    data = plain()
    del data["objects"][0][key]
    with pytest.raises(UserError, match=rf"objects\[0\]: `{key}` is missing"):
        Scene.from_dict(data)


def test_missing_parts_are_named() -> None:
    with pytest.raises(UserError, match="objects"):
        Scene.from_dict({"view": {"location": [7, -6, 5]}})
    with pytest.raises(UserError, match="view"):
        Scene.from_dict({"objects": []})
    with pytest.raises(UserError, match="view"):
        Scene.from_dict({"objects": [], "views": []})
    with pytest.raises(UserError, match=r"views\[0\]: `location` is missing"):
        Scene.from_dict({"objects": [], "view": {}})
    with pytest.raises(UserError, match="views"):
        Scene.from_dict({"objects": [], "views": [{"location": [7, -6, 5]}] * 1025})
    with pytest.raises(UserError, match="split the views"):
        Scene.from_dict({"objects": [], "views": [{"location": [7, -6, 5]}] * 1024, "image_full": [1024, 1024]})
    with pytest.raises(UserError, match=r"views\[1\].location"):
        Scene.from_dict({"objects": [], "views": [{"location": [7, -6, 5]}, {"location": [7, -6, -5]}]})


def test_the_second_bad_object_is_the_one_named() -> None:
    data = plain()
    data["objects"].append(data["objects"][0] | {"r": -1})
    with pytest.raises(UserError, match=r"objects\[1\].r"):
        Scene.from_dict(data)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"not json",
        b"\xff\xfe\x00\x01",
        b"[" * 200_000,
        b'{"key": ' + b"9" * 5000 + b"}",
        b"[1, 2]",
        b"null",
        b'"text"',
        b"3",
        b'{"objects": [], "view": {"location": [NaN, 1, 2]}}',
    ],
    ids=["empty", "cut", "words", "binary", "deep", "digits", "list", "null", "string", "number", "nan"],
)
def test_bad_files_give_one_line_with_their_name(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        Scene.load(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_missing_file_folder_and_huge_file(tmp_path: Path) -> None:
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(2**30)
    for path in (tmp_path / "nowhere.json", tmp_path, huge):
        with pytest.raises(UserError, match="give the path of a scene JSON"):
            Scene.load(path)


def test_scenes_too_large_for_memory_are_refused() -> None:
    data = plain() | {"image_full": [1000, 1000]}
    data["objects"] = data["objects"] * 60
    del data["view"]
    with pytest.raises(UserError, match="too many"):
        Scene.from_dict(data | {"views": [{"location": [7, -6, 5]}] * 900})


@pytest.mark.parametrize("key", ["sprites", "pieces"])
def test_flat_scenes_are_told_apart(key: str) -> None:
    with pytest.raises(UserError, match="flat"):
        Scene.from_dict({key: []})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None)
@given(where=st.sampled_from(sorted({where for where, _, _ in WRONG})), value=json_values)
def test_whatever_stands_in_a_field_is_read_or_refused(where: str, value: Any) -> None:
    """Never another exception, and what is accepted can be written and read again."""
    try:
        scene = Scene.from_dict(with_value(where, value))
    except UserError:
        return
    assert Scene.from_dict(json.loads(json.dumps(scene.to_dict()))) == scene
    assert np.isfinite([number for body in scene.objects for number in (*body.location, body.radius)]).all()
