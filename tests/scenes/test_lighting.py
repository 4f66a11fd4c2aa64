"""Lamps, ground, shadows and materials against Blender's calibration pictures, textbook formulas and dense sums."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import erf
from slow_tracer import (
    SUN,
    SUN_ANGLE,
    SUN_IRRADIANCE,
    Array,
    axes,
    blackman_harris,
    enter,
    lamp_light,
    lamp_radiance,
    outward,
    pixel_rays,
    some_body,
    sun_light,
    unit,
)

from viewslots.scenes import film
from viewslots.scenes.clevr import ground, lights, materials, render, shading
from viewslots.scenes.clevr.lights import Stage, light_samples
from viewslots.scenes.clevr.materials import Points
from viewslots.scenes.clevr.spec import Lights, Picture, Scene, SceneObject
from viewslots.scenes.vectors import Vec

BASE = (7.48113, -6.50764, 5.34367)
LAMPS = ("key", "fill", "back")
CALIBRATION = {"key": "Lamp_Key", "fill": "Lamp_Fill", "back": "Lamp_Back", "sun": "Area", "all": "all"}
LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
RED, CYAN = (173 / 255, 35 / 255, 35 / 255), (41 / 255, 208 / 255, 208 / 255)
UP = np.array([0.0, 0.0, 1.0])
TRUTH = np.load(Path(__file__).parents[1] / "data" / "blender_refs" / "calib_linear.npz")
WINDOW = Picture(108, 80, up=22, down=50, left=41, right=67)
"""The part of the picture that holds one large object at the origin and the ground around it."""


def vec(rows: Array) -> Vec:
    return Vec(*torch.from_numpy(np.array(rows, np.float32)).unbind(-1))


def array(vector: Vec) -> Array:
    return torch.stack([vector.x, vector.y, vector.z], -1).double().numpy()


def code(linear: Array) -> Array:
    """sRGB x 255, not rounded."""
    linear = np.clip(linear.astype(np.float64), 0, 1)
    return 255 * np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


def blender(key: str, picture: Picture) -> Array:
    """A calibration picture, cut to a window of the full picture."""
    nominal = Picture()
    rows = slice(picture.up - nominal.up, picture.down - nominal.up)
    return TRUTH[key][rows, picture.left - nominal.left : picture.right - nominal.left].astype(np.float64)


@pytest.fixture
def light_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put out all lamps but one."""
    full = lights.LAMP_COLOR

    def choose(lamp: str) -> None:
        kept = [lamp == "all" or name == lamp for name in (*LAMPS, "sun")]
        colors = tuple(tuple(value * on for value, on in zip(row, kept, strict=True)) for row in full)
        for module in (lights, ground, materials):
            monkeypatch.setattr(module, "LAMP_COLOR", colors)
        monkeypatch.setattr(lights, "SUN_IRRADIANCE", SUN_IRRADIANCE * kept[3])

    return choose


# --- Against Blender --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lamp", CALIBRATION)
def test_bare_ground_has_blenders_radiance(lamp: str, light_only: Callable[[str], None]) -> None:
    light_only(lamp)
    linear = render.render_views([Scene((), (BASE,))], 1)[1][0, 0]
    truth = blender(f"ground_{CALIBRATION[lamp]}", Picture())
    np.testing.assert_allclose(linear.mean((0, 1)), truth.mean((0, 1)), rtol=5e-3)
    # Blender's own noise is 0.2 to 0.4 of a level; the fall-off with distance must agree over the whole picture.
    assert np.abs(code(linear) - code(truth)).mean() < 0.6
    for rows in (slice(0, 16), slice(48, 64)):
        for half in (linear[rows] / truth[rows], linear[:, rows] / truth[:, rows]):
            assert half.mean() == pytest.approx(1, abs=0.01)


def test_lamps_add_up(light_only: Callable[[str], None]) -> None:
    scene = Scene((some_body("sphere"),), (BASE,), picture=WINDOW)
    parts = []
    for lamp in (*LAMPS, "sun"):
        light_only(lamp)
        parts.append(render.render_views([scene], 1)[1].astype(np.float64))
    light_only("all")
    whole = render.render_views([scene], 1)[1]
    np.testing.assert_allclose(sum(parts), whole, rtol=1e-4, atol=1e-5)


def pictures_of(body: SceneObject, quality: render.Quality, monkeypatch: pytest.MonkeyPatch) -> tuple[Array, Array]:
    """Linear radiance, the mean over four noises, and the pixels that lie fully on the body."""
    monkeypatch.setitem(render.QUALITIES, "test", quality)
    scene = Scene((body,), (BASE,) * 4, picture=WINDOW)
    pictures, linear = render.render_views([scene], 1, quality="test")
    return linear[0].astype(np.float64).mean(0), pictures.shapes[0, 0, 0] == 255


FULL = render.Quality(samples=64, bounces=4, ground_bounces=2)
LEVEL = {"rubber": (0.03, 1.5), "metal": (0.1, 2.8)}
"""Bounds of the mean level (relative) and of the mean error after sRGB (in levels). Metal: highlights far above 1 are
noisy, and the ground seen in it is lit by lamps alone."""


@pytest.mark.parametrize("material", ["rubber", "metal"])
@pytest.mark.parametrize("shape", ["cube", "sphere", "cylinder"])
def test_objects_look_as_in_blender(shape: str, material: str, monkeypatch: pytest.MonkeyPatch) -> None:
    linear, inside = pictures_of(some_body(shape, material=material), FULL, monkeypatch)
    truth = blender(f"{shape}_{material}_red", WINDOW)
    level, error = LEVEL[material]
    found, expected = (np.clip(picture[inside], 0, 1).mean(0) for picture in (linear, truth))
    np.testing.assert_allclose(found, expected, rtol=level)
    assert np.abs(code(linear) - code(truth))[inside].mean() < error
    around = ~inside
    assert linear[around].mean() == pytest.approx(truth[around].mean(), rel=0.015)
    assert np.abs(code(linear) - code(truth))[around].mean() < 1.5


@pytest.mark.parametrize("lamp", [*LAMPS, "sun"])
def test_rubber_under_each_lamp(lamp: str, light_only: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    light_only(lamp)
    linear, inside = pictures_of(some_body("sphere", rgb=CYAN), FULL, monkeypatch)
    truth = blender(f"sphere_rubber_cyan_{CALIBRATION[lamp]}", WINDOW)
    np.testing.assert_allclose(linear[inside].mean(0), truth[inside].mean(0), rtol=0.035)
    assert np.abs(code(linear) - code(truth))[inside].mean() < 1.0


@pytest.mark.parametrize(("lamp", "level"), [("back", 0.1), ("sun", 0.06)])
def test_metal_under_the_large_lamps(
    lamp: str, level: float, light_only: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The small lamps show as highlights of a pixel or two: too noisy to compare one by one."""
    light_only(lamp)
    linear, inside = pictures_of(some_body("sphere", rgb=CYAN, material="metal"), FULL, monkeypatch)
    truth = blender(f"sphere_metal_cyan_{CALIBRATION[lamp]}", WINDOW)
    np.testing.assert_allclose(linear[inside].mean(0), truth[inside].mean(0), rtol=level)
    assert np.abs(code(linear) - code(truth))[inside].mean() < 1.8


def test_direct_light_on_rubber(monkeypatch: pytest.MonkeyPatch) -> None:
    linear, inside = pictures_of(some_body("sphere"), render.Quality(64, bounces=0, ground_bounces=0), monkeypatch)
    truth = blender("sphere_rubber_red_directonly", WINDOW)
    np.testing.assert_allclose(linear[inside].mean(0), truth[inside].mean(0), rtol=5e-3)
    assert np.abs(code(linear) - code(truth))[inside].mean() < 0.4


def test_direct_light_on_metal(monkeypatch: pytest.MonkeyPatch) -> None:
    """One bounce before a dark ground: the mirror-like lobe finds the lamps by rays."""
    monkeypatch.setattr(
        shading, "ground_radiance", lambda strength, blocked: Vec(*torch.zeros(3, *strength.shape[:-1]))
    )
    body = some_body("sphere", material="metal")
    linear, inside = pictures_of(body, render.Quality(256, bounces=1, ground_bounces=0), monkeypatch)
    truth = blender("sphere_metal_red_directonly", WINDOW)
    found, expected = (np.clip(picture[inside], 0, 1).mean(0) for picture in (linear, truth))
    np.testing.assert_allclose(found, expected, rtol=0.1)
    assert np.abs(code(linear) - code(truth))[inside].mean() < 2.5


# --- Lamps ------------------------------------------------------------------------------------------------------------

JITTERED = Lights(key=(6.9, -3.5, 3.6), fill=(-4.1, -3.2, 3.9), back=(-0.4, 2.1, 5.0))


def noise(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and ranks as pixels have them: 16 ranks a key."""
    index = torch.arange(count)
    return film.mix(torch.tensor(99), index // 16), (index % 16).to(torch.float32)


@pytest.mark.parametrize("normal", [(0.0, 0.0, 1.0), (0.6, 0.0, 0.8), (-0.6, -0.64, 0.48)])
@pytest.mark.parametrize("point", [(0.0, 0.0, 0.0), (2.5, -1.0, 0.7)])
def test_light_samples_sum_to_the_irradiance_of_the_lamps(point: tuple, normal: tuple) -> None:
    stage = Stage.of([Scene((), (BASE,), lights=JITTERED)], 1, "cpu")
    count = 4096
    here = torch.zeros(count, dtype=torch.long)
    direction, strength = light_samples(
        stage, here, vec(np.tile(point, (count, 1))), vec(np.tile(normal, (count, 1))), *noise(count)
    )
    slope = np.clip(array(direction) @ np.array(normal), 0, None)
    found = strength.double().numpy() * slope
    place, facing = np.array([point]), np.array(normal)
    for index, lamp in enumerate((*LAMPS, "sun")):
        one = sun_light(place, facing, 40) if lamp == "sun" else lamp_light(JITTERED, lamp, place, facing, 40)
        error = 4 * found[:, index].std() / math.sqrt(count)
        # The sun's samples are even on a flat disc, not on the sphere: a quarter of a percent.
        assert found[:, index].mean() == pytest.approx(one[1].sum(), rel=4e-3, abs=error)
        heading = array(direction)[:, index]
        assert np.linalg.norm(heading.mean(0) - one[0][0].mean(0)) < 5e-3
        spread = np.linalg.norm(heading - heading.mean(0), axis=-1)
        dense = np.linalg.norm(one[0][0] - one[0][0].mean(0), axis=-1)
        assert spread.mean() == pytest.approx(dense.mean(), rel=0.03)
        assert spread.max() == pytest.approx(dense.max(), rel=0.06)


def test_lamp_colours_are_power_over_area() -> None:
    for index, lamp in enumerate(LAMPS):
        np.testing.assert_allclose([row[index] for row in lights.LAMP_COLOR], lamp_radiance(lamp), rtol=1e-4)
    assert [row[3] for row in lights.LAMP_COLOR] == [0.45] * 3


def test_mirrored_rays_see_lamps_where_they_are() -> None:
    """Rays at points of each lamp's plane: bright inside the square, from the front, before anything else."""
    stage = Stage.of([Scene((), (BASE,), lights=JITTERED)], 1, "cpu")
    random = np.random.default_rng(1)
    start = np.array([0.5, -0.3, 0.4])
    for index, lamp in enumerate(LAMPS):
        place = np.array(getattr(JITTERED, lamp))
        right, up, _ = axes(place)
        side = (0.5, 0.5, 1.0)[index]
        offset = random.uniform(-side, side, (300, 2))
        offset = offset[np.abs(np.abs(offset).max(1) - side / 2) > 1e-3]
        target = place + offset[:, :1] * right + offset[:, 1:] * up
        inside = np.abs(offset).max(1) < side / 2
        assert 40 < inside.sum() < len(inside) - 40

        def look(origin: Array, target: Array, nearest: float, mirrored: bool) -> Array:
            count = len(target)
            view = torch.zeros(count, dtype=torch.long)
            rows = np.broadcast_to(origin, target.shape)
            far = torch.full((count,), nearest)
            return array(
                lights.lamp_radiance(
                    stage, view, vec(rows), vec(unit(target - rows)), far, torch.full((count,), mirrored)
                )
            )

        expected = inside[:, None] * lamp_radiance(lamp)
        np.testing.assert_allclose(look(start, target, math.inf, True), expected, rtol=1e-4)
        distance = np.linalg.norm(place - start)
        np.testing.assert_allclose(look(start, target, distance + side, True), expected, rtol=1e-4)
        assert not look(start, target, distance - side, True).any(), "seen through something nearer"
        assert not look(start, target, math.inf, False).any(), "seen by a ray that is no mirror's"
        assert not look(2.0 * place, target, math.inf, True).any(), "seen from behind"
        assert not look(start, 2 * start - target, math.inf, True).any(), "seen backwards"


def test_a_lamp_straight_above_is_still_a_square() -> None:
    """Its sides run along x and y."""
    high = Lights(back=(0.0, 0.0, 6.0))
    stage = Stage.of([Scene((), (BASE,), lights=high)], 1, "cpu")
    view = torch.zeros(4096, dtype=torch.long)
    rows = np.zeros((4096, 3))
    direction, strength = light_samples(stage, view, vec(rows), vec(rows + UP), *noise(4096))
    heading = array(direction)[:, 2]
    spots = heading * 6 / heading[:, 2:]
    np.testing.assert_allclose(spots.min(0), (-0.5, -0.5, 6), atol=0.01)
    np.testing.assert_allclose(spots.max(0), (0.5, 0.5, 6), atol=0.01)
    assert np.abs(spots[:, :2].std(0) - 1 / math.sqrt(12)).max() < 0.01
    assert strength[:, 2].mean().item() == pytest.approx(1 / 36, rel=0.03)


def test_mirrored_rays_see_the_disc_of_the_sun() -> None:
    stage = Stage.of([Scene((), (BASE,))], 1, "cpu")
    right, up, back = axes(SUN)
    angle, turn = np.meshgrid(np.linspace(0, 2, 21) * SUN_ANGLE, np.linspace(0, 6, 7))
    angle, turn = angle.ravel(), turn.ravel()
    clear = np.abs(angle - SUN_ANGLE) > 1e-3
    angle, turn = angle[clear, None], turn[clear, None]
    heading = np.cos(angle) * back + np.sin(angle) * (np.cos(turn) * right + np.sin(turn) * up)
    count = len(heading)
    origin = vec(np.tile([2.0, 2.0, 1.0], (count, 1)))
    view, mirrored = torch.zeros(count, dtype=torch.long), torch.ones(count, dtype=torch.bool)
    for sign, nearest in ((1, math.inf), (-1, math.inf), (1, 1e4)):
        far = torch.full((count,), nearest)
        found = array(lights.lamp_radiance(stage, view, origin, vec(sign * heading), far, mirrored))
        inside = (angle < SUN_ANGLE) & (sign > 0) & (nearest == math.inf)
        # Radiance of a disc that gives 0.45 at normal incidence.
        np.testing.assert_allclose(found, np.tile(inside * 0.45 / (math.pi * math.tan(SUN_ANGLE) ** 2), 3), rtol=1e-3)


# --- Ground and shadows -----------------------------------------------------------------------------------------------


def shade_oracle(body: SceneObject, points: Array, steps: int) -> tuple[Array, Array]:
    """[P, 4] share of each lamp's light that the body takes, and [P] share of all light by luminance."""
    shares, taken, total = [], 0.0, 0.0
    for lamp in (*LAMPS, "sun"):
        one = sun_light(points, UP, steps) if lamp == "sun" else lamp_light(JITTERED, lamp, points, UP, steps)
        direction, light = one
        blocked = enter(body, points[:, None], direction)[0] < np.inf
        dark, full = (light * blocked).sum(1), light.sum(1)
        shares.append(dark / full)
        weight = LUMINANCE @ lamp_radiance(lamp) if lamp != "sun" else SUN_IRRADIANCE
        taken, total = taken + weight * dark, total + weight * full
    return np.stack(shares, 1), taken / total


@pytest.mark.parametrize("shape", ["sphere", "cube", "cylinder"])
def test_shadow_on_the_ground_against_a_dense_sum_over_the_lamps(shape: str) -> None:
    body = some_body(shape, 0.7, (0.2, -0.1))
    # Outside the bounding sphere: places all around, and of many more a few in the penumbra of each lamp.
    random = np.random.default_rng(3)
    turn, radius = random.uniform(0, 2 * np.pi, 500), random.uniform(1.15, 2.3, 500)
    points = np.stack([0.2 + radius * np.cos(turn), -0.1 + radius * np.sin(turn), 0 * turn], 1)
    rough = shade_oracle(body, points, steps=3)[0]
    partial = [np.flatnonzero((lamp > 0.15) & (lamp < 0.85))[:5] for lamp in rough.T]
    points = points[np.concatenate([*partial, np.arange(8)])]
    expected, expected_all = shade_oracle(body, points, steps=16)
    assert ((expected > 0.1) & (expected < 0.9)).any(0).all()
    assert (expected == 0).any()
    assert (expected == 1).any()

    other = some_body("sphere", 0.35, (-2.5, 2.5))
    stage = Stage.of([Scene((other, body), (BASE,), lights=JITTERED)], 2, "cpu")
    count = 1024
    key, rank = (part.reshape(len(points), count) for part in noise(len(points) * count))
    position = vec(np.broadcast_to(points[:, None], (len(points), count, 3)))
    view = torch.zeros(len(points), count, dtype=torch.long)
    normal = vec(np.broadcast_to(UP, (len(points), count, 3)))
    strength, blocked = ground.ground_light(stage, view, position, normal, key, rank)
    found = (strength * blocked[..., 1]).sum(1) / strength.sum(1)
    error = 4 * np.sqrt(expected * (1 - expected) / count)
    assert (np.abs(found.numpy() - expected) < 0.012 + error).all()
    found_all = ground.ground_shadows(strength, blocked).mean(1)[:, 1]
    assert np.abs(found_all.numpy() - expected_all).max() < 0.02


def test_shadows_count_by_luminance() -> None:
    """One body before one lamp each: what it takes is that lamp's part of the light, as an eye weighs it."""
    strength = torch.tensor([0.3, 1.0, 2.0, 5.0])
    blocked = torch.eye(4, dtype=torch.bool)
    weight = [0.3, 1.0, 2.0, 5.0] * np.array([*(LUMINANCE @ lamp_radiance(lamp) for lamp in LAMPS), SUN_IRRADIANCE])
    np.testing.assert_allclose(ground.ground_shadows(strength, blocked), weight / weight.sum(), rtol=1e-4)
    # Two bodies before the same lamp each take it all; a body before none takes nothing.
    pair = torch.tensor([[True, True, False]] * 4)
    np.testing.assert_allclose(ground.ground_shadows(strength, pair), [1, 1, 0], rtol=1e-6)


def test_bodies_stand_in_each_others_light(light_only: Callable[[str], None]) -> None:
    """Points of a small sphere in the penumbra of a large one get the share of the key lamp that a dense sum leaves."""
    light_only("key")
    place = np.array(JITTERED.key)
    small = some_body("sphere", 0.35, (0.0, 0.0))
    middle = np.array(small.location)
    right, _, back = axes(place)
    large = replace(some_body("sphere"), location=tuple(middle + 1.6 * back + 0.75 * right))
    normal = unit(back + np.linspace(-1.2, 1.2, 25)[:, None] * right)
    spots = middle + 0.35 * normal
    direction, light = (
        np.stack(part)
        for part in zip(
            *(lamp_light(JITTERED, "key", p[None], n, 24) for p, n in zip(spots, normal, strict=True)), strict=True
        )
    )
    open_ = enter(large, spots[:, None], direction[:, 0])[0] == np.inf
    expected = (light[:, 0] * open_).sum(1) / light[:, 0].sum(1)
    assert (expected == 0).any()
    assert ((expected > 0.1) & (expected < 0.9)).sum() >= 2
    assert (expected == 1).any()

    count = 512
    key, rank = noise(25 * count)
    zero = torch.zeros(25 * count, dtype=torch.long)
    rows = [vec(np.repeat(part, count, 0)) for part in (spots, normal)]
    # A viewer right above each point sees all of them, and the light changes little over the lamp.
    points = Points(zero, zero, *rows, rows[1], key, rank, zero.bool())
    means = []
    for bodies in ((small,), (small, large)):
        stage = Stage.of([Scene(bodies, (BASE,), lights=JITTERED)], 2, "cpu")
        means.append(array(shading.outgoing(stage, points, 0)).reshape(25, count, 3).mean((1, 2)))
    error = 4 * np.sqrt(expected * (1 - expected) / count)
    assert (np.abs(means[1] / means[0] - expected) < 0.02 + error).all()


def test_shadow_in_the_picture_is_that_of_the_ground_behind_each_pixel() -> None:
    """Camera, ground, lamps, filter: a small window over a penumbra against a dense sum, at reference quality."""
    body = some_body("sphere", 0.7, (0.2, -0.1))
    window = Picture(108, 80, up=37, down=42, left=40, right=47)
    scene = Scene((body,), (BASE,), lights=JITTERED, picture=window)
    found = render.render_views([scene], 1, quality="reference")[0].shadows[0, 0, 0] / 255
    fine = 4
    # Sub-pixel points of the window and of a pixel and a half around it.
    x, y = np.meshgrid((np.arange(-6, 7 * fine + 6) + 0.5) / fine, (np.arange(-6, 5 * fine + 6) + 0.5) / fine)
    direction = pixel_rays(BASE, window, x, y)
    points = np.array(BASE) - direction * (BASE[2] / direction[..., 2:])
    shade = shade_oracle(body, points.reshape(-1, 3), steps=7)[1].reshape(x.shape)
    for row in range(5):
        for column in range(7):
            weight = blackman_harris(x - column - 0.5) * blackman_harris(y - row - 0.5)
            expected = (weight * shade).sum() / weight.sum()
            assert found[row, column] == pytest.approx(expected, abs=0.04)
    assert found.max() - found.min() > 0.4


def test_no_light_through_the_ground_or_from_behind() -> None:
    """A surface that faces away from a lamp gets nothing of it."""
    stage = Stage.of([Scene((), (BASE,), lights=JITTERED)], 1, "cpu")
    for index, lamp in enumerate((*LAMPS, "sun")):
        away = -unit(np.array(getattr(JITTERED, lamp)) if lamp != "sun" else SUN)
        view = torch.zeros(16, dtype=torch.long)
        rows = vec(np.zeros((16, 3)))
        strength = light_samples(stage, view, rows, vec(np.tile(away, (16, 1))), *noise(16))[1]
        assert (strength[:, index] == 0).all()


def sheet(position: Array) -> Array:
    """Height above the backdrop of single-view CLEVR: flat, from 10 on a quarter of a circle of radius 12."""
    behind = -np.array(BASE[:2]) / math.hypot(*BASE[:2])
    along = position[..., :2] @ behind - 10
    return np.where(along <= 0, position[..., 2], 12 - np.hypot(along, position[..., 2] - 12))


@pytest.mark.parametrize("bent", [False, True])
def test_ground_is_met_where_it_lies(bent: bool) -> None:
    random = np.random.default_rng(2)
    origin = np.concatenate([np.tile(BASE, (200, 1)), random.uniform((-3, -3, 0.1), (3, 3, 1.4), (200, 3))])
    direction = unit(random.normal(size=(400, 3)) * (1, 1, 0.5))
    found, normal = ground.ground_hit(bent, vec(origin), vec(direction))
    found, normal = found.double().numpy(), array(normal)
    steps = np.linspace(0, 60, 6001)
    for start, way, distance, facing in zip(origin, direction, found, normal, strict=True):
        path = start + steps[:, None] * way
        below = (sheet(path) if bent else path[:, 2]) <= 0
        # Above its upper end there is no sheet: a ray that leaves the quarter circle is gone.
        gone = bent & (path[:, 2] > 12) & (path[:, 2] - start[2] > 0)
        first = int(below.argmax()) if below.any() else None
        if first is None or gone[:first].any() or steps[first] > 59:
            # Far plane hits lie beyond the search.
            assert distance == np.inf or distance > 55
            continue
        assert distance == pytest.approx(steps[first], abs=0.011)
        point = start + distance * way
        height = (lambda p: sheet(p)) if bent else (lambda p: p[..., 2])
        assert height(point) == pytest.approx(0, abs=2e-4)
        slope = np.array([(height(point + 1e-4 * e) - height(point - 1e-4 * e)) / 2e-4 for e in np.eye(3)])
        np.testing.assert_allclose(facing, slope, atol=2e-3)
    assert 100 < np.isfinite(found).sum() < 390


def test_light_from_objects_onto_the_ground_has_their_form_factor() -> None:
    """Of a glowing sphere at distance d, above the horizon, a point of the ground gets (r / d)^2 cos.

    The weights of the sampled rays that hit it sum to albedo times that, for one sphere and two in overlapping cones.
    """
    one, two = some_body("sphere", 0.7, (0.0, 0.0)), some_body("sphere", 0.35, (1.3, 0.2))
    for bodies in ((one,), (one, two)):
        stage = Stage.of([Scene(bodies, (BASE,))], 3, "cpu")
        for x, y in ((-1.0, 0.4), (0.2, -2.0), (-1.5, -0.3)):
            place, count = np.array([x, y, 0.0]), 20000
            rows = np.tile(place, (count, 1))
            none = torch.full((count,), -1)
            key, rank = noise(count)
            points = Points(none + 1, none, vec(rows), vec(np.tile(UP, (count, 1))), vec(rows), key, rank, none < 0)
            heading, weight = shading.towards_bodies(stage, points)
            heading, weight = array(heading), weight.double().numpy()
            for body in bodies:
                hit = weight * (enter(body, rows, heading)[0] < np.inf)
                path = np.array(body.location) - place
                square = path @ path
                expected = 0.8 * body.radius**2 / square * path[2] / math.sqrt(square)
                assert hit.mean() == pytest.approx(expected, abs=4 * hit.std() / math.sqrt(count) + 1e-4)


# --- Materials --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [1.2, 1.4])
def test_fresnel_is_the_mean_of_both_polarisations(index: float) -> None:
    angle = np.linspace(0, np.pi / 2 - 1e-3, 200)
    inner = np.arcsin(np.sin(angle) / index)
    across = (np.cos(angle) - index * np.cos(inner)) / (np.cos(angle) + index * np.cos(inner))
    along = (np.cos(inner) - index * np.cos(angle)) / (np.cos(inner) + index * np.cos(angle))
    found = materials.fresnel(torch.from_numpy(np.cos(angle)), index)
    np.testing.assert_allclose(found, (across**2 + along**2) / 2, rtol=1e-9)
    assert found[0].item() == pytest.approx(((index - 1) / (index + 1)) ** 2)


def fresnel(cosine: Array, index: float) -> Array:
    inner = np.sqrt(1 - (1 - cosine**2) / index**2)
    across = (cosine - index * inner) / (cosine + index * inner)
    along = (inner - index * cosine) / (inner + index * cosine)
    return (across**2 + along**2) / 2


def rubber_oracle(color: Array, viewer: Array, light: Array) -> Array:
    """Reflectance x cosine at normal (0, 0, 1), term by term from the node groups; Smith's shadowing in full."""
    nv, nl = viewer[..., 2], light[..., 2]
    half = unit(viewer + light)
    nh, hv = half[..., 2], (half * viewer).sum(-1)
    tilt = np.arccos(np.clip(nh, -1, 1))

    def shadowing(cosine: Array) -> Array:
        a = 1 / (0.35 * np.tan(np.arccos(cosine)))
        return 2 / (1 + erf(a) + np.exp(-(a**2)) / (a * math.sqrt(math.pi)))

    velvet = np.exp(-1 / np.tan(tilt) ** 2 / 0.6**2) / (0.6**2 * math.pi * np.sin(tilt) ** 4)
    velvet = 0.25 * velvet * np.minimum(1, np.minimum(2 * nh * nv / hv, 2 * nh * nl / hv)) / nv
    beckmann = np.exp(-(np.tan(tilt) ** 2) / 0.35**2) / (math.pi * 0.35**2 * nh**4)
    gloss = 0.8 * 0.25 * beckmann * shadowing(nv) * shadowing(nl) / nv
    coat, fuzz = fresnel(nv, 1.2), fresnel(nv, 1.4)
    base = (1 - coat) * ((1 - fuzz) * nl / math.pi + fuzz * velvet)
    return base[..., None] * color + (coat * gloss)[..., None]


def directions(count: int, seed: int, least: float = 0.05) -> Array:
    """Above the horizon."""
    random = np.random.default_rng(seed)
    found = unit(random.normal(size=(4 * count, 3)))
    found[:, 2] = np.abs(found[:, 2])
    return found[found[:, 2] > least][:count]


ACROSS = np.array([0.0, 1.0, 0.0])


def points_at(normal: Array, viewer: Array, key: torch.Tensor, blurred: bool, **look: object) -> tuple[Stage, Points]:
    """A point of a sphere, seen along `viewer` [P, 3]; a little towards -y, so that tangents on top are x and y."""
    body = some_body("sphere", 0.7, (0.0, 0.0), **look)
    zero, rows = torch.zeros(len(viewer), dtype=torch.long), np.ones((len(viewer), 1))
    return Stage.of([Scene((body,), (BASE,))], 1, "cpu"), Points(
        view=zero,
        slot=zero,
        position=vec(rows * (np.array(body.location) + 0.7 * normal - 1e-3 * ACROSS)),
        normal=vec(rows * normal),
        viewer=vec(viewer),
        key=key,
        rank=zero.float(),
        blurred=torch.full(zero.shape, blurred),
    )


def lit(viewer: Array, light: Array, color: Array, material: str, blurred: bool = False) -> Array:
    """Reflectance x cosine: radiance under one lamp of strength 1, over that lamp's radiance [P, 3]."""
    stage, points = points_at(UP, viewer, torch.zeros(len(viewer)), blurred, rgb=tuple(color), material=material)
    direction = vec(np.repeat(light[:, None], 4, 1))
    strength = torch.tensor([1.0, 0.0, 0.0, 0.0]).expand(len(viewer), 4)
    return array(materials.reflected(stage, points, direction, strength)) / [row[0] for row in lights.LAMP_COLOR]


def test_rubber_is_lambert_and_velvet_under_a_gloss() -> None:
    viewer, light = directions(2000, 1), directions(2000, 2)
    color = np.array([0.7, 0.3, 0.1])
    found = lit(viewer, light, color, "rubber")
    # The code takes Walter's fit of the shadowing: within 0.35 % each.
    np.testing.assert_allclose(found, rubber_oracle(color, viewer, light), rtol=0.01, atol=2e-5)
    assert not lit(viewer, light * (1, 1, -1), color, "rubber").any()


SLOPES = {alpha: (alpha * 0.75, alpha / 0.75) for alpha in (0.2, 0.01)}
"""Roughness along and across for an anisotropy of 0.25."""
WHITE = np.ones(3)


def shiny(viewer: Array, light: Array) -> Array:
    """The rough lobe of white metal, without its share of 0.4."""
    return lit(viewer, light, WHITE, "metal")[:, 0] / 0.4


def ggx(viewer: Array, light: Array, alpha: tuple[float, float]) -> Array:
    """Anisotropic GGX x cosine with height-correlated Smith masking (Heitz 2014)."""
    half = unit(viewer + light)
    stretch = (half[..., 0] / alpha[0]) ** 2 + (half[..., 1] / alpha[1]) ** 2 + half[..., 2] ** 2
    density = 1 / (math.pi * alpha[0] * alpha[1] * stretch**2)

    def hidden(way: Array) -> Array:
        tan2 = ((way[..., 0] * alpha[0]) ** 2 + (way[..., 1] * alpha[1]) ** 2) / way[..., 2] ** 2
        return (-1 + np.sqrt(1 + tan2)) / 2

    return density / (1 + hidden(viewer) + hidden(light)) / (4 * viewer[..., 2])


def test_metal_is_anisotropic_ggx() -> None:
    viewer, light = directions(4000, 3), directions(4000, 4)
    light[::2] = unit(light[::2] * 0.3 + viewer[::2] * (-1, -1, 1))  # half of them about the highlight
    np.testing.assert_allclose(shiny(viewer, light), ggx(viewer, light, SLOPES[0.2]), rtol=5e-4, atol=1e-6)
    assert not shiny(viewer, light * (1, 1, -1)).any()
    color = np.array([0.7, 0.3, 0.1])
    np.testing.assert_allclose(
        lit(viewer, light, color, "metal"), 0.4 * shiny(viewer, light)[:, None] * color, rtol=1e-5
    )


def test_metal_is_reciprocal() -> None:
    one, two = directions(1000, 5), directions(1000, 6)
    np.testing.assert_allclose(shiny(one, two) / two[:, 2], shiny(two, one) / one[:, 2], rtol=1e-4)


def hemisphere(rings: int = 400, turns: int = 400) -> tuple[Array, Array]:
    """Directions over the upper half, denser towards the pole, and their solid angles."""
    # tan of the polar angle grows like a lobe's slopes.
    edge = np.arctan(np.linspace(0, 1, rings + 1) ** 3 * 60)
    edge[-1] = np.pi / 2
    middle = (edge[1:] + edge[:-1]) / 2
    around = (np.arange(turns) + 0.5) / turns * 2 * np.pi
    size = (np.cos(edge[:-1]) - np.cos(edge[1:])) * 2 * np.pi / turns
    theta, phi = np.meshgrid(middle, around, indexing="ij")
    ways = np.stack([np.sin(theta) * np.cos(phi), np.sin(theta) * np.sin(phi), np.cos(theta)], -1)
    return ways.reshape(-1, 3), np.repeat(size, turns)


def test_lobe_of_metal_is_normalised() -> None:
    """Seen and lit along h, the lobe is D(h) / (4 cos (1 + 2 Lambda)): D cos sums to one over all facets."""
    ways, size = hemisphere()
    tan2 = ((ways[:, 0] * SLOPES[0.2][0]) ** 2 + (ways[:, 1] * SLOPES[0.2][1]) ** 2) / ways[:, 2] ** 2
    clear = ways[:, 2] > 2e-3  # the code's guard against division by zero; next to no facets stand so steep
    density = 4 * ways[:, 2] * np.sqrt(1 + tan2) * shiny(ways, ways)
    assert (density * ways[:, 2] * size)[clear].sum() == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("cosine", [0.98, 0.7, 0.4])
def test_materials_give_back_no_more_light_than_they_get(cosine: float) -> None:
    light, size = hemisphere(200, 200)
    viewer = np.broadcast_to([math.sqrt(1 - cosine**2), 0.0, cosine], light.shape)
    white = (lit(viewer, light, WHITE, "rubber")[:, 0] * size).sum()
    assert 0.75 < white < 1
    # Of a black one only the gloss is left: at most what Fresnel turns back.
    black = (lit(viewer, light, 0 * WHITE, "rubber")[:, 0] * size).sum()
    assert 0 < black < 0.8 * float(fresnel(np.array(cosine), 1.2))
    assert 0.85 < (shiny(viewer, light) * size).sum() < 1.001
    blurred = (lit(viewer, light, WHITE, "metal", blurred=True)[:, 0] * size).sum()
    assert 0.7 < blurred < 1.001, "to a diffuse ray all of the metal is rough"


def test_tangents_run_around_the_vertical_axis() -> None:
    for shape in ("sphere", "cube", "cylinder"):
        body = some_body(shape, 0.7, (0.4, -0.8), rotation=1.1)
        stage = Stage.of([Scene((body,), (BASE,))], 1, "cpu")
        start = np.array(body.location) + 4 * directions(200, 7)
        way = unit(np.array(body.location) + np.random.default_rng(0).normal(size=(200, 3)) * 0.3 - start)
        distance = enter(body, start, way)[0]
        point = (start + distance[:, None] * way)[distance < np.inf]
        normal = outward(body, point)
        zero = torch.zeros(len(point), dtype=torch.long)
        along, across = (
            array(axis) for axis in materials.metal_frame(stage.bodies[zero, zero], vec(point), vec(normal))
        )
        around = np.cross(UP, point - np.array(body.location))
        flat = around - (around * normal).sum(-1, keepdims=True) * normal
        # Parallel to the turn, as far as the surface allows; the sign does not matter to a lobe.
        cosine = np.abs((along * unit(flat)).sum(-1))
        clear = np.linalg.norm(around, axis=-1) > 0.05
        assert cosine[clear].min() > 1 - 1e-4
        for one, two in ((along, normal), (across, normal), (along, across)):
            assert np.abs((one * two).sum(-1)).max() < 1e-4
        np.testing.assert_allclose(np.linalg.norm(across, axis=-1), 1, atol=1e-5)


COLOR = np.array([0.8, 0.4, 0.2])
SLANTS = [unit(np.array(way)) for way in ((0.1, 0.0, 1.0), (1.0, 0.5, 0.3), (0.3, -1.0, -0.6))]
"""Normals that look up, aside, and down: light comes from below, and the code favours rays that go there."""
TARGET = unit(np.array([-0.5, 0.4, -0.7]))


def surroundings(way: Array) -> Array:
    """Something smooth to reflect, with no symmetry of its own."""
    return 0.5 + (1 + way @ TARGET) ** 3


def local_frame(normal: Array) -> Array:
    """Rows: around the vertical axis, across that, normal."""
    along = unit(np.cross(UP, normal))
    return np.stack([along, np.cross(normal, along), normal])


def thrown(material: str, normal: Array, viewer: Array, blurred: bool = False) -> tuple[Array, Array, Array, Array]:
    """`scatter` from one point: directions, colours carried, and whether the mirror or the diffuse lobe."""
    count = 40000
    key = film.mix(torch.tensor(5), torch.arange(count))
    ways = np.broadcast_to(viewer, (count, 3))
    stage, points = points_at(normal, ways, key, blurred, material=material, rgb=tuple(COLOR))
    heading, share, mirror, diffuse = materials.scatter(stage, points)
    return array(heading), array(share), mirror.numpy(), diffuse.numpy()


def assert_mean(values: Array, expected: Array, relative: float) -> None:
    """Over samples, within four standard errors and a share that the code trades for speed."""
    error = 4 * values.std(0) / math.sqrt(len(values))
    np.testing.assert_array_less(np.abs(values.mean(0) - expected), error + relative * expected)
    assert (error < 0.1 * expected).all(), "too noisy to say anything"


@pytest.mark.parametrize("normal", SLANTS, ids=["up", "aside", "down"])
@pytest.mark.parametrize("cosine", [0.95, 0.6])
def test_rays_of_metal_follow_its_lobes(cosine: float, normal: Array) -> None:
    frame = local_frame(normal)
    viewer = np.array([0.6, 0.8, 0.0]) * math.sqrt(1 - cosine**2) + cosine * UP  # in the frame
    heading, share, mirror, _ = thrown("metal", normal, viewer @ frame)
    expected = 0.0
    for weight, alpha in ((0.4, 0.2), (0.6, 0.01)):
        # A sum over facets, where the lobe lies: the hemisphere squeezed by its slopes, with its solid angles.
        facet, size = hemisphere(150, 150)
        facet = facet * (*SLOPES[alpha], 1)
        length = np.linalg.norm(facet, axis=-1)
        facet, size = facet / length[:, None], size * SLOPES[alpha][0] * SLOPES[alpha][1] / length**3
        towards = facet @ viewer
        light = 2 * towards[:, None] * facet - viewer
        seen = (towards > 1e-3) & (light[:, 2] > 1e-3)
        light, size = light[seen], 4 * towards[seen] * size[seen]
        value = ggx(np.broadcast_to(viewer, light.shape), light, SLOPES[alpha])
        expected += weight * (value * surroundings(light @ frame) * size).sum()
    # The code takes the masking of an isotropic lobe for the weight of a ray: up to 3 % more of the rough one.
    assert_mean(surroundings(heading)[:, None] * share, expected * COLOR, relative=0.03)
    assert mirror.mean() == pytest.approx(0.6, abs=0.02)


def test_blurred_metal_throws_rays_as_it_takes_light() -> None:
    """Looked at by a diffuse ray it is rough: no mirror, and the lobe of its rays is the lobe that lamps see."""
    viewer = np.array([0.36, 0.48, 0.8])
    heading, share, mirror, _ = thrown("metal", UP, viewer, blurred=True)
    assert not mirror.any()
    light, size = hemisphere(300, 300)
    lobe = lit(np.broadcast_to(viewer, light.shape), light, WHITE, "metal", blurred=True)[:, 0]
    expected = (lobe * surroundings(light) * size)[light[:, 2] > 1e-3].sum()
    assert_mean(surroundings(heading)[:, None] * share, expected * COLOR, relative=0.05)


@pytest.mark.parametrize("normal", SLANTS, ids=["up", "aside", "down"])
@pytest.mark.parametrize("cosine", [0.95, 0.6, 0.3])
def test_rays_of_rubber_follow_lambert_and_gloss(cosine: float, normal: Array) -> None:
    frame = local_frame(normal)
    viewer = np.array([0.6, 0.8, 0.0]) * math.sqrt(1 - cosine**2) + cosine * UP
    heading, share, mirror, diffuse = thrown("rubber", normal, viewer @ frame)
    assert not mirror.any()
    light, size = hemisphere(150, 150)
    scene = surroundings(light @ frame) * size
    coat, fuzz = (float(fresnel(np.array(cosine), index)) for index in (1.2, 1.4))
    assert 1 - diffuse.mean() == pytest.approx(coat, abs=0.01)
    # Velvet throws no rays: its part of the light is left out.
    lambert = (1 - coat) * (1 - fuzz) * (scene * light[:, 2]).sum() / math.pi
    gloss = rubber_oracle(np.zeros(3), np.broadcast_to(viewer, light.shape), light)[:, 0]
    gloss = (scene * gloss)[light[:, 2] > 1e-3].sum()
    assert_mean(surroundings(heading)[:, None] * share, COLOR * lambert + gloss, relative=0.03)
