"""CLEVR's rules, read back from many drawn scenes: what is allowed, how often, and what a scene depends on."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from viewslots.errors import UserError
from viewslots.scenes.clevr import render
from viewslots.scenes.clevr.family import CLEVR_M, ClevrWorld
from viewslots.scenes.clevr.spec import Scene
from viewslots.scenes.draws import Draws

BASE_CAMERA = np.array([7.48113, -6.50764, 5.34367])
COLORS = {
    "gray": (87, 87, 87),
    "red": (173, 35, 35),
    "blue": (42, 75, 215),
    "green": (29, 105, 20),
    "brown": (129, 74, 25),
    "purple": (129, 38, 192),
    "cyan": (41, 208, 208),
    "yellow": (255, 238, 51),
}
NOMINAL_LAMPS = {
    "key": (6.44671, -2.90517, 4.25840),
    "fill": (-4.67112, -4.01360, 3.01122),
    "back": (-1.16850, 2.64602, 5.81574),
}
MICRO = 2e-6
"""Positions are rounded to a micrometre after the rules were applied."""
RARE = 1e-4
"""Probability below which a fit to a distribution is refused; the seed is fixed, so a pass stays a pass."""


def drawn(name: str, split: str, count: int, seed: int = 5) -> list[Scene]:
    return [CLEVR_M[name].sample(seed, split, index) for index in range(count)]


@pytest.fixture(scope="module")
def few() -> list[Scene]:
    return drawn("clevr-m1", "train", 500)


@pytest.fixture(scope="module")
def many() -> list[Scene]:
    return drawn("clevr-m1", "test2", 80)


@pytest.fixture(scope="module")
def single() -> list[Scene]:
    world = ClevrWorld()
    return [world.sample(5, "train", index) for index in range(40)]


def equally_likely(values: Sequence[object], kinds: Sequence[object]) -> bool:
    counts = Counter(values)
    assert set(counts) == set(kinds)
    return bool(stats.chisquare([counts[kind] for kind in kinds]).pvalue > RARE)


def uniform(values: Sequence[float] | np.ndarray, low: float, high: float) -> bool:
    assert low - MICRO <= min(values)
    assert max(values) <= high + MICRO
    # And the range is filled: n draws leave 1 / n of it free at an end, seldom ten times that.
    assert max(min(values) - low, high - max(values)) < 10 / len(values) * (high - low)
    return bool(stats.kstest(values, "uniform", args=(low, high - low)).pvalue > RARE)


@pytest.mark.parametrize("name", sorted(CLEVR_M))
@pytest.mark.parametrize(("split", "low", "high"), [("train", 3, 6), ("valid", 3, 6), ("test1", 3, 6), ("live", 3, 6)])
def test_few_objects(name: str, split: str, low: int, high: int) -> None:
    assert equally_likely([len(s.objects) for s in drawn(name, split, 120)], range(low, high + 1))
    assert CLEVR_M[name].slots(split) == high


@pytest.mark.parametrize("split", ["test2", "test2-large"])
def test_many_objects_in_test2(split: str) -> None:
    found = [len(scene.objects) for scene in drawn("clevr-m2", split, 60)]
    assert equally_likely(found, range(7, 11))
    assert CLEVR_M["clevr-m2"].slots(split) == 10


def test_attributes_are_uniform(few: list[Scene]) -> None:
    bodies = [body for scene in few for body in scene.objects]
    assert equally_likely([body.shape for body in bodies], ["cube", "sphere", "cylinder"])
    assert equally_likely([body.material for body in bodies], ["rubber", "metal"])
    assert equally_likely([body.color for body in bodies], list(COLORS))
    assert equally_likely([body.size for body in bodies], ["large", "small"])
    assert uniform([body.rotation for body in bodies], 0, 2 * math.pi)
    pairs = [(body.shape, body.color, body.material, body.size) for body in bodies]
    assert len(set(pairs)) == 3 * 8 * 2 * 2, "attributes are not drawn independently"


def test_names_match_numbers(few: list[Scene], many: list[Scene]) -> None:
    for body in (body for scene in few + many for body in scene.objects):
        assert body.radius == {"large": 0.7, "small": 0.35}[body.size]
        assert body.rgb == tuple(value / 255 for value in COLORS[body.color])
        assert body.location[2] == body.radius


def test_places_fill_the_square(few: list[Scene]) -> None:
    for axis in (0, 1):
        places = np.array([body.location[axis] for scene in few for body in scene.objects])
        assert np.abs(places).max() <= 3 + MICRO
        # Distances push objects outwards a little; the square is filled to its border, and evenly to both sides.
        assert places.min() < -2.99
        assert places.max() > 2.99
        assert abs(places.mean()) < 4 * 3 / math.sqrt(3 * len(places))


def pair_distances(scenes: list[Scene]) -> tuple[np.ndarray, np.ndarray]:
    """Free distance of every two objects, and their offsets along the ground axes of the base camera [pairs, 2]."""
    behind = -BASE_CAMERA[:2] / math.hypot(*BASE_CAMERA[:2])
    left = np.array([-behind[1], behind[0]])
    np.testing.assert_allclose(behind, (-0.7545, 0.6563), atol=1e-4)
    np.testing.assert_allclose(left, (-0.6563, -0.7545), atol=1e-4)
    gaps, offsets = [], []
    for scene in scenes:
        for one, two in combinations(scene.objects, 2):
            path = np.array(one.location[:2]) - two.location[:2]
            gaps.append(np.linalg.norm(path) - one.radius - two.radius)
            offsets.append((abs(path @ behind), abs(path @ left)))
    return np.array(gaps), np.array(offsets)


@pytest.mark.parametrize("scenes", ["few", "many", "single"])
def test_objects_keep_their_distances(scenes: str, request: pytest.FixtureRequest) -> None:
    gaps, offsets = pair_distances(request.getfixturevalue(scenes))
    assert gaps.min() >= 0.25 - MICRO
    assert offsets.min() >= 0.4 - MICRO
    # And no more than that: neighbours come as close as they may, along both axes.
    assert gaps.min() < 0.25 + 0.08
    assert (offsets.min(0) < 0.4 + 0.02).all()


def test_farthest_from_the_base_camera_comes_first(few: list[Scene], many: list[Scene], single: list[Scene]) -> None:
    for scene in few + many + single:
        depth = [float((BASE_CAMERA - body.location) @ BASE_CAMERA) for body in scene.objects]
        assert depth == sorted(depth, reverse=True)


def test_shared_attributes() -> None:
    scenes = drawn("clevr-m2", "train", 300)
    for scene in scenes:
        assert len({(body.shape, body.color, body.material) for body in scene.objects}) == 1
    first = [scene.objects[0] for scene in scenes]
    assert equally_likely([body.shape for body in first], ["cube", "sphere", "cylinder"])
    assert equally_likely([body.color for body in first], list(COLORS))
    assert equally_likely([body.material for body in first], ["rubber", "metal"])
    bodies = [body for scene in scenes for body in scene.objects]
    assert equally_likely([body.size for body in bodies], ["large", "small"])
    assert uniform([body.rotation for body in bodies], 0, 2 * math.pi)
    assert sum(len({body.size for body in scene.objects}) == 2 for scene in scenes) > 200
    gaps, offsets = pair_distances(scenes)
    assert gaps.min() >= 0.25 - MICRO
    assert offsets.min() >= 0.4 - MICRO


VIEWS = {
    "clevr-m1": ((0, 0.5), (0.15, 0.25), (10.75, 11.75)),
    "clevr-m2": ((0, 0.5), (0.15, 0.25), (10.75, 11.75)),
    "clevr-m3": ((0, 1), (0.15, 0.3), (10.5, 12)),
    "clevr-m4": ((0, 1), (0.15, 0.3), (10.5, 12)),
}
"""Azimuth in turns, elevation in half turns, distance in metres."""


@pytest.mark.parametrize("name", sorted(VIEWS))
def test_views_are_independent_and_uniform_in_their_ranges(name: str) -> None:
    camera = np.array([scene.cameras for scene in drawn(name, "train", 100)])
    assert camera.shape == (100, 10, 3)
    distance = np.linalg.norm(camera, axis=-1)
    azimuth = np.arctan2(camera[..., 1], camera[..., 0]) / (2 * np.pi) % 1
    elevation = np.arcsin(camera[..., 2] / distance) / np.pi
    for found, (low, high) in zip((azimuth, elevation, distance), VIEWS[name], strict=True):
        assert uniform(found.ravel(), low, high)
        # Independent in a scene: the spread within scenes is that of all.
        assert found.var(1, ddof=1).mean() == pytest.approx((high - low) ** 2 / 12, rel=0.12)
    flat = np.stack([azimuth.ravel(), elevation.ravel(), distance.ravel()])
    assert np.abs(np.corrcoef(flat) - np.eye(3)).max() < 0.12


@pytest.mark.parametrize("scenes", ["few", "single"])
def test_lamps_are_jittered_by_a_metre(scenes: str, request: pytest.FixtureRequest) -> None:
    lights = [scene.lights for scene in request.getfixturevalue(scenes)]
    moves = np.array([[getattr(light, lamp) for lamp in NOMINAL_LAMPS] for light in lights])
    moves = (moves - np.array(list(NOMINAL_LAMPS.values()))).reshape(len(lights), 9)
    for column in moves.T:
        assert uniform(column, -1, 1)
    assert uniform(moves.ravel(), -1, 1)
    assert np.abs(np.corrcoef(moves.T) - np.eye(9)).max() < 4.5 / math.sqrt(len(lights))


def test_single_view_camera_is_the_jittered_base_camera(single: list[Scene]) -> None:
    cameras = np.array([scene.cameras for scene in single])
    assert cameras.shape == (len(single), 1, 3)
    for axis in range(3):
        assert uniform(cameras[:, 0, axis], BASE_CAMERA[axis] - 0.5, BASE_CAMERA[axis] + 0.5)
    assert uniform((cameras[:, 0] - BASE_CAMERA).ravel(), -0.5, 0.5)
    picture = single[0].picture
    assert (picture.full_width, picture.full_height) == (214, 160)
    assert (picture.up, picture.down, picture.left, picture.right) == (19, 147, 43, 171)
    assert picture.focal == pytest.approx(234.0625)
    assert {scene.backdrop for scene in single} == {"sweep"}


def test_single_view_shows_128_pixels_of_every_object(single: list[Scene], monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted on the segment of a picture without shading; edges are antialiased, so a count may be off by a few."""
    monkeypatch.setitem(render.QUALITIES, "truth", render.Quality(samples=16, bounces=0, ground_bounces=0))
    monkeypatch.setattr(render, "outgoing", lambda stage, points, bounces: points.normal)
    monkeypatch.setattr(render, "onto_ground", lambda stage, points, bounces: points.normal)
    scenes = single[:8] + [ClevrWorld().sample(5, "test2", index) for index in range(2)]
    for scene in scenes:
        pictures = ClevrWorld().render([scene], len(scene.objects), quality="truth")
        seen = [int((pictures.segment == k).sum()) for k in range(len(scene.objects))]
        assert min(seen) >= 128 - 8
        centers = render.visible_pixels(scene)
        np.testing.assert_allclose(seen, centers, rtol=0.02, atol=6)
        assert min(centers) >= 128


@pytest.mark.parametrize("world", [CLEVR_M["clevr-m1"], ClevrWorld()])
def test_unknown_splits_are_refused(world) -> None:
    for split in ("tets2", "", "train-large"):
        with pytest.raises(UserError, match="split"):
            world.sample(0, split, 0)
        with pytest.raises(UserError, match="split"):
            world.slots(split)


def test_counts_of_single_view_sets(single: list[Scene]) -> None:
    assert {len(scene.objects) for scene in single} == {3, 4, 5, 6}
    assert {ClevrWorld().slots(split) for split in ("train", "valid", "test1", "live")} == {6}
    assert ClevrWorld().slots("test2") == ClevrWorld().slots("test2-large") == 10
    assert len(ClevrWorld().sample(5, "test2", 0).objects) in range(7, 11)


def test_window_of_multi_view_sets(few: list[Scene]) -> None:
    picture = few[0].picture
    assert (picture.full_width, picture.full_height) == (108, 80)
    assert (picture.up, picture.down, picture.left, picture.right) == (10, 74, 22, 86)
    assert picture.focal == pytest.approx(118.125)
    assert {scene.backdrop for scene in few} == {"plane"}


@pytest.mark.parametrize("world", [CLEVR_M["clevr-m1"], CLEVR_M["clevr-m4"], ClevrWorld()])
def test_a_scene_depends_on_seed_split_and_index_alone(world) -> None:
    first = [world.sample(3, "train", index) for index in range(4)]
    assert [world.sample(3, "train", index) for index in (3, 1, 0, 2)] == [first[k] for k in (3, 1, 0, 2)]
    others = [world.sample(4, "train", 0), world.sample(3, "valid", 0), world.sample(3, "live", 0), *first]
    for one, two in combinations(others, 2):
        assert one.objects != two.objects
        assert one.lights != two.lights
        assert one.cameras != two.cameras
        assert one.key != two.key


def test_more_views_go_on_where_fewer_stop() -> None:
    world = CLEVR_M["clevr-m3"]
    short, long = replace(world, views=3).sample(0, "train", 7), replace(world, views=12).sample(0, "train", 7)
    assert long.cameras[:3] == short.cameras
    assert replace(long, cameras=()) == replace(short, cameras=())


def test_sets_share_scenes_and_differ_in_views() -> None:
    for split in ("train", "test2"):
        m1, m2, m3, m4 = (drawn(f"clevr-m{n}", split, 3) for n in (1, 2, 3, 4))
        for index in range(3):
            for one, two in ((m1[index], m3[index]), (m2[index], m4[index])):
                assert one.objects == two.objects
                assert one.lights == two.lights
                # Not even the same draws in another range: azimuths are halves and whole turns.
                turns = [np.arctan2(*np.array(scene.cameras).T[1::-1]) / np.pi % 2 for scene in (one, two)]
                assert np.abs(2 * turns[0] - turns[1]).min() > 1e-3
                assert one.key != two.key
            assert m1[index].objects != m2[index].objects
            assert m1[index].lights != m2[index].lights


def test_live_scenes_meet_no_stored_ones() -> None:
    for name in CLEVR_M:
        live = {scene.objects for scene in drawn(name, "live", 60)}
        for split in ("train", "valid", "test1", "test2", "test1-large"):
            assert not live & {scene.objects for scene in drawn(name, split, 20)}


GOLDEN = {
    ("clevr-m1", 0, "train", 0): "888ca1c21f5feedebb7ef84c4e251b8bac3f7b313b4fc9e0bf7407f91ce6df37",
    ("clevr-m2", 1, "test2", 5): "715533b2ba3386b63b8fd04f2f446fca3675f79c45abfffb96d2f4a76fd250c5",
    ("clevr-m3", 0, "train", 0): "d9a8537555693723bb786a135f276e18240b75e804441100019d05fab38b6665",
    ("clevr-m4", 2**31, "live", 123456): "712c9adb2de2fb8e6cd576300ec3feb486d66cc0589c8892e9f444d788a8c0a7",
    ("clevr", 0, "test1", 3): "56d22b0bb7f0808631c1500fdd5ecabb6ef1b0b823887dc744c4dc6d33602272",
}


@pytest.mark.parametrize("where", GOLDEN)
def test_descriptions_are_the_same_bits_everywhere(where: tuple[str, int, str, int]) -> None:
    name, *key = where
    world = ClevrWorld() if name == "clevr" else CLEVR_M[name]
    text = json.dumps(world.sample(*key).to_dict(), sort_keys=True)
    assert hashlib.sha256(text.encode()).hexdigest() == GOLDEN[where]


def test_draws_cover_their_ranges_evenly() -> None:
    draws = Draws("test", 1)
    assert uniform([draws.uniform(-2, 5) for _ in range(3000)], -2, 5)
    assert equally_likely([draws.integer(-1, 3) for _ in range(3000)], range(-1, 4))
    assert equally_likely([draws.choice("abc") for _ in range(3000)], "abc")
    assert draws.integer(4, 4) == 4


def test_neighbouring_keys_give_unrelated_streams() -> None:
    streams = [[Draws("world", seed, split, k).uniform(0, 1) for k in range(500)] for seed in (0, 1) for split in "ab"]
    assert np.abs(np.corrcoef(streams) - np.eye(4)).max() < 0.2
    assert uniform(np.ravel(streams), 0, 1)
    assert len(set(np.ravel(streams))) == 2000
