"""dSprites scenes: rules read back from pictures, shapes against scalar oracles, the real file's layout, bad input."""

import hashlib
import io
import json
import math
import os
import pickle
import zipfile
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from viewslots.errors import UserError
from viewslots.scenes.draws import Draws
from viewslots.scenes.flat import album, layers, sprites
from viewslots.scenes.flat.sprites import DrawnSheet, Sprite, SpriteScene, SpriteWorld, StoredSheet

WORLD = SpriteWorld()
SHEET = DrawnSheet()


def scenes_of(split: str, count: int, seed: int = 3) -> list[SpriteScene]:
    return [WORLD.sample(seed, split, index) for index in range(count)]


def some_sprite(shape: str, scale: float = 1.0, turn: int = 0, x: int = 0, y: int = 0) -> Sprite:
    place = sprites.POSITIONS[x], sprites.POSITIONS[y]
    return Sprite(shape, scale, sprites.ORIENTATIONS[turn], *place, rgb=(1.0, 0.0, 0.5))


@pytest.mark.parametrize(("split", "low", "high"), [("train", 2, 5), ("valid", 2, 5), ("live", 2, 5), ("test2", 6, 8)])
def test_counts(split: str, low: int, high: int) -> None:
    found = [len(scene.sprites) for scene in scenes_of(split, 120)]
    assert set(found) == set(range(low, high + 1))
    assert WORLD.slots(split) == high


def test_factors_are_those_of_dsprites() -> None:
    assert sprites.SCALES == (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    np.testing.assert_allclose(sprites.ORIENTATIONS, np.linspace(0, 2 * np.pi, 40), atol=1e-6)
    np.testing.assert_allclose(sprites.POSITIONS, np.linspace(0, 1, 32), atol=1e-6)


def test_areas_have_the_moments_of_the_real_file() -> None:
    """Published statistics of all 737,280 pictures: the mean, and the mean of each picture's deviation (unbiased)."""
    area = np.array(
        [
            np.count_nonzero(SHEET.mask(some_sprite(shape, scale, turn)))
            for shape, scale, turn in product(sprites.SHAPES, sprites.SCALES, range(40))
        ]
    )
    share = area / 4096
    assert share.mean() == pytest.approx(0.042494423521889584, rel=1e-3)
    deviation = np.sqrt(share * (1 - share) * 4096 / 4095)
    assert deviation.mean() == pytest.approx(0.19516645880626055, rel=1e-3)


def oracle(sprite: Sprite, row: int, column: int) -> bool:
    """Is a pixel's centre inside? Corners turned forwards and foci, where the sheet turns the pixel back."""
    x, y = column - 16 - 31 * sprite.x, row - 16 - 31 * sprite.y
    cos, sin = math.cos(sprite.orientation), math.sin(sprite.orientation)

    def turned(u: float, v: float) -> tuple[float, float]:
        return sprite.scale * (u * cos - v * sin), sprite.scale * (u * sin + v * cos)

    def in_polygon(*corners: tuple[float, float]) -> bool:
        ring = [turned(*corner) for corner in corners]
        sides = zip(ring, ring[1:] + ring[:1], strict=True)
        return all((bx - ax) * (y - ay) - (by - ay) * (x - ax) >= 0 for (ax, ay), (bx, by) in sides)

    def distance(u: float, v: float) -> float:
        return math.dist(turned(u, v), (x, y))

    if sprite.shape == "square":
        return in_polygon((-9.6, -9.6), (9.6, -9.6), (9.6, 9.6), (-9.6, 9.6))
    if sprite.shape == "ellipse":
        focus = math.sqrt(12**2 - 6**2)
        return distance(-focus, 0) + distance(focus, 0) <= 2 * 12 * sprite.scale
    side, corner = 12.75, 12.75 / math.sqrt(2)
    top, bottom = -side / 2 - corner / 2, corner
    shift = -(top + bottom) / 2
    diamond = in_polygon((0, shift - corner), (corner, shift), (0, shift + corner), (-corner, shift))
    lobes = (distance(sign * corner / 2, shift - corner / 2) <= sprite.scale * side / 2 for sign in (-1, 1))
    return diamond or any(lobes)


@pytest.mark.parametrize("shape", sprites.SHAPES)
@pytest.mark.parametrize(
    ("scale", "turn", "x", "y"), [(1.0, 0, 0, 0), (0.7, 5, 31, 3), (0.5, 17, 12, 31), (1.0, 33, 20, 9)]
)
def test_shapes_against_a_scalar_oracle(shape: str, scale: float, turn: int, x: int, y: int) -> None:
    sprite = some_sprite(shape, scale, turn, x, y)
    expected = [[oracle(sprite, row, column) for column in range(64)] for row in range(64)]
    np.testing.assert_array_equal(SHEET.mask(sprite), expected)


@pytest.mark.parametrize("shape", sprites.SHAPES)
def test_no_sprite_is_cut_by_the_border(shape: str) -> None:
    for turn in range(40):
        whole = np.count_nonzero(SHEET.mask(some_sprite(shape, 1.0, turn, 15, 15)))
        corners = [SHEET.mask(some_sprite(shape, 1.0, turn, x, y)) for x, y in product((0, 31), repeat=2)]
        assert [np.count_nonzero(corner) for corner in corners] == [whole] * 4


def test_heart_points_down_and_turns_clockwise() -> None:
    upright = SHEET.mask(some_sprite("heart", 1.0, 0, 15, 15))
    rows = np.flatnonzero(upright.any(1))
    assert np.count_nonzero(upright[rows[-1]]) < 4 < np.count_nonzero(upright[rows[3]])
    quarter = SHEET.mask(some_sprite("heart", 1.0, 10, 15, 15))
    columns = np.flatnonzero(quarter.any(0))
    assert np.count_nonzero(quarter[:, columns[0]]) < 5 < np.count_nonzero(quarter[:, columns[-3]])


@pytest.mark.parametrize("split", ["train", "test2"])
def test_every_sprite_keeps_a_quarter_visible(split: str) -> None:
    scenes = scenes_of(split, 150)
    pictures = WORLD.render(scenes, WORLD.slots(split))
    shares = []
    for s, scene in enumerate(scenes):
        for k in range(len(scene.sprites)):
            area = np.count_nonzero(pictures.shapes[s, 0, k])
            shares.append(np.count_nonzero(pictures.segment[s, 0] == k) / area)
    assert min(shares) >= 0.25
    assert split != "test2" or min(shares) < 0.4


def test_places_ten_times_then_starts_again() -> None:
    """Proposals: one that fits, ten that are hidden behind it, then two that fit side by side."""
    left, right = np.zeros((2, 4, 4), bool)
    left[:, :2], right[:, 2:] = True, True
    script = [left] + [left] * 10 + [right, left]
    seen: list[int] = []

    def propose(items: list[int]) -> int:
        seen.append(len(items))
        return len(seen) - 1

    items = layers.place(2, propose, script.__getitem__, lambda items: [-float(item) for item in items])
    assert items == (11, 12)
    assert seen == [0] + [1] * 10 + [0, 1]


def test_visible_share_is_at_least_a_quarter() -> None:
    near, far = np.zeros((2, 1, 8), bool)
    near[0, :6], far[0, :] = True, True
    assert layers.all_visible([near, far], [1.0, 0.0])
    near[0, :7] = True
    assert not layers.all_visible([near, far], [1.0, 0.0])
    assert not layers.all_visible([near, far], [0.0, 1.0])


def test_colors_keep_their_distance_from_a_grey_ground() -> None:
    scenes = scenes_of("train", 200)
    pictures = WORLD.render(scenes, 5)
    for s, scene in enumerate(scenes):
        ground = pictures.image[s, 0][pictures.segment[s, 0] == 255]
        assert (ground == round(255 * scene.background)).all()
        for k, sprite in enumerate(scene.sprites):
            assert math.dist(sprite.rgb, [scene.background] * 3) >= 0.5 - 1e-9
            seen = pictures.image[s, 0][pictures.segment[s, 0] == k]
            assert (seen == np.rint(255 * np.array(sprite.rgb))).all()


def test_painting_against_a_loop_over_pixels() -> None:
    scenes = scenes_of("test2", 3)
    pictures = WORLD.render(scenes, 10)
    for s, scene in enumerate(scenes):
        masks = [SHEET.mask(sprite) for sprite in scene.sprites]
        for row, column in product(range(64), repeat=2):
            covering = [k for k, mask in enumerate(masks) if mask[row, column]]
            front = covering[0] if covering else None
            color = [scene.background] * 3 if front is None else scene.sprites[front].rgb
            assert pictures.segment[s, 0, row, column] == (255 if front is None else front)
            assert pictures.overlap[s, 0, row, column] == len(covering)
            assert pictures.image[s, 0, row, column].tolist() == [round(255 * value) for value in color]
        count = len(masks)
        np.testing.assert_array_equal(pictures.shapes[s, 0, :count], np.array(masks) * 255)
        assert not pictures.shapes[s, 0, count:].any()
        order = pictures.depth_order[s, 0]
        assert (np.diff(order[:count]) < 0).all()
        assert (order[count:] == -np.inf).all()
        assert pictures.num_objects[s] == count
    assert not pictures.shadows.any()
    assert not pictures.camera.any()


def test_same_pixels_for_every_batch_and_order() -> None:
    scenes = scenes_of("train", 9)
    whole = WORLD.render(scenes, 5)
    other = SpriteWorld()
    again = [other.sample(3, "train", index) for index in (7, 2, 4)]
    parts = [other.render([scene], 5, device="cpu", quality="reference") for scene in again]
    for part, index in zip(parts, (7, 2, 4), strict=True):
        for key in WORLD.keys:
            np.testing.assert_array_equal(getattr(part, key)[0], getattr(whole, key)[index])


def test_descriptions_are_equal_everywhere() -> None:
    """Written down once: any machine must draw the same scenes."""
    text = json.dumps([scene.to_dict() for split in ("train", "test2") for scene in scenes_of(split, 40)])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "eba5ec23f54ef5d9"


def test_keys_give_unrelated_scenes() -> None:
    drawn = {WORLD.sample(*key) for key in product((0, 1), ("train", "valid", "test1", "live"), (0, 1))}
    assert len(drawn) == 16


def test_draws_are_even() -> None:
    """Frequencies of every factor's values within five standard deviations."""
    count = 6000
    draws = Draws("test", "even")
    drawn = np.array([sprites.sample_sprite(draws, 0.5).classes for _ in range(count)])
    for column, options in enumerate(sprites.FACTORS):
        chance = 1 / len(options)
        found = np.bincount(drawn[:, column], minlength=len(options))
        assert abs(found - count * chance).max() < 5 * math.sqrt(count * chance * (1 - chance))
    greys = [scene.background for scene in scenes_of("train", 400)]
    assert np.mean(greys) == pytest.approx(0.5, abs=5 / math.sqrt(12 * 400))
    assert np.mean([len(scene.sprites) for scene in scenes_of("train", 400)]) == pytest.approx(3.5, abs=0.28)


unit = st.floats(0, 1)
any_sprite = st.builds(
    Sprite,
    *(st.sampled_from(options) for options in sprites.FACTORS),
    rgb=st.tuples(unit, unit, unit),
)


@given(st.builds(SpriteScene, st.lists(any_sprite, max_size=6).map(tuple), unit))
def test_json_round_trip(scene: SpriteScene) -> None:
    assert SpriteScene.from_dict(json.loads(json.dumps(scene.to_dict()))) == scene


GOOD = {"shape": "heart", "scale": 1, "orientation": 0.0, "x": 0.0, "y": 1, "rgb": [0, 0.5, 1]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shape": "star"}, "sprites[0].shape: 'star' is none of dSprites' 3 values square, ellipse, heart"),
        ({"scale": 0.55}, "scale: 0.55 is none of"),
        ({"scale": True}, "scale"),
        ({"orientation": float("nan")}, "orientation: nan"),
        ({"x": "0"}, "x: '0'"),
        ({"y": None}, "y: None"),
        ({"rgb": [0, 0.5]}, "rgb: expected a list of 3"),
        ({"rgb": [0, 0.5, 1.5]}, "rgb: expected a number in [0, 1]"),
        ({"rgb": "red"}, "rgb: expected a list"),
        ({"colour": "red"}, "sprites[0]: unknown field 'colour'; known are shape, "),
    ],
)
def test_bad_sprites_are_named(change: dict[str, object], message: str) -> None:
    data = {"sprites": [{**GOOD, **change}], "background": 0.5}
    with pytest.raises(UserError) as caught:
        SpriteScene.from_dict(data)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "data", [None, [], {"sprites": []}, {"sprites": {}, "background": 0}, {"sprites": [1], "background": 0}]
)
def test_bad_scenes_are_refused(data: object) -> None:
    with pytest.raises(UserError):
        SpriteScene.from_dict(data)
    assert SpriteScene.from_dict({"sprites": [GOOD], "background": 1}).sprites[0].y == 1.0


def test_too_few_slots_and_unknown_splits() -> None:
    with pytest.raises(UserError, match="more than the 1 slots"):
        WORLD.render(scenes_of("train", 1), 1)
    with pytest.raises(UserError, match="'training' is none of train, valid"):
        WORLD.sample(0, "training", 0)


class Trap:
    """Pickled data that would raise if anyone unpickled it."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('unpickled')",)


SMALL = {"SCALES": sprites.SCALES[:2], "ORIENTATIONS": sprites.ORIENTATIONS[:3], "POSITIONS": sprites.POSITIONS[:4]}
SIZES = (1, 3, 2, 3, 4, 4)


@pytest.fixture
def small_factors(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, options in SMALL.items():
        monkeypatch.setattr(sprites, name, options)
    places = SMALL["POSITIONS"]
    monkeypatch.setattr(sprites, "FACTORS", (sprites.SHAPES, SMALL["SCALES"], SMALL["ORIENTATIONS"], places, places))


def stand_in(**changes: np.ndarray | bytes | None) -> bytes:
    """An archive in the layout of the real one: pictures of noise, sizes as above."""
    count = math.prod(SIZES)
    arrays: dict[str, np.ndarray | bytes | None] = {
        "metadata": pickle.dumps(Trap()),
        "imgs": np.random.default_rng(0).integers(0, 2, (count, 64, 64), np.uint8),
        "latents_classes": np.indices(SIZES).reshape(6, -1).T.copy(),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in {**arrays, **changes}.items():
            if value is None:
                continue
            if isinstance(value, np.ndarray):
                member = io.BytesIO()
                np.save(member, value)
                value = member.getvalue()
            archive.writestr(f"{name}.npy", value)
    return buffer.getvalue()


@pytest.mark.usefixtures("small_factors")
def test_sprites_of_the_real_file(tmp_path) -> None:
    path = tmp_path / "dsprites.npz"
    path.write_bytes(stand_in())
    with np.load(path, allow_pickle=False) as archive:
        imgs, classes = archive["imgs"], archive["latents_classes"]
    sheet = StoredSheet(path)
    for row in range(0, len(imgs), 7):
        values = [options[k] for options, k in zip(sprites.FACTORS, classes[row, 1:], strict=True)]
        np.testing.assert_array_equal(sheet.mask(Sprite(*values, rgb=(0, 0, 0))), imgs[row] == 1)
    world = SpriteWorld(npz=path)
    scene = world.sample(0, "train", 0)
    pictures = world.render([scene], 5)
    row = np.ravel_multi_index(scene.sprites[0].classes, SIZES[1:])
    np.testing.assert_array_equal(pictures.shapes[0, 0, 0], imgs[row] * 255)


def test_the_real_size_is_expected(tmp_path) -> None:
    path = tmp_path / "small.npz"
    path.write_bytes(stand_in())
    with pytest.raises(UserError, match=r"latents_classes: expected \(737280, 6\) i64"):
        SpriteWorld(npz=str(path))


COUNT = math.prod(SIZES)


@pytest.mark.usefixtures("small_factors")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"imgs": None}, "not the npz of dSprites"),
        ({"imgs": b"junk"}, "imgs: not a .npy array"),
        ({"imgs": np.zeros((COUNT, 64, 64), np.float32)}, "imgs: expected"),
        ({"imgs": np.zeros((COUNT, 32, 64), np.uint8)}, "imgs: expected"),
        ({"imgs": np.zeros((COUNT, 64, 64), np.uint8, order="F")}, "imgs: expected"),
        ({"imgs": np.full((COUNT, 64, 64), 255, np.uint8)}, "pictures are 0 or 1, got 255"),
        ({"imgs": np.array([Trap()] * COUNT, object)}, "imgs: expected"),
        ({"latents_classes": np.zeros((COUNT, 6), np.int64)}, "not dSprites' order of factors"),
        ({"latents_classes": np.zeros((COUNT, 6), ">i8")}, "latents_classes: expected"),
    ],
)
def test_bad_files_are_refused(tmp_path, changes: dict[str, np.ndarray | bytes | None], message: str) -> None:
    path = tmp_path / "bad.npz"
    path.write_bytes(stand_in(**changes))
    with pytest.raises(UserError) as caught:
        StoredSheet(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.usefixtures("small_factors")
def test_truncated_and_missing_files_are_refused(tmp_path) -> None:
    member = io.BytesIO()
    np.save(member, np.zeros((COUNT, 64, 64), np.uint8))
    path = tmp_path / "short.npz"
    path.write_bytes(stand_in(imgs=member.getvalue()[:-1]))
    with pytest.raises(UserError, match="ends early"):
        StoredSheet(path)
    path.write_bytes(stand_in()[:2000])
    with pytest.raises(UserError, match="not the npz of dSprites"):
        StoredSheet(path)
    with pytest.raises(UserError, match="no such file"):
        StoredSheet(tmp_path / "nowhere.npz")


def test_art_that_would_never_end_is_refused(tmp_path) -> None:
    """Devices and pipes, as art of both kinds."""
    os.mkfifo(tmp_path / "background.png")
    for path in (Path("/dev/zero"), tmp_path / "background.png"):
        with pytest.raises(UserError, match="not a regular file"):
            StoredSheet(path)
    with pytest.raises(UserError, match="not a regular file"):
        album._read_png(tmp_path / "background.png")
