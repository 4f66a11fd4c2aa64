"""Tabletop: bodies against meshes, light and shadows against slow counts, descriptions, what pixels depend on."""

import json
import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import ConvexHull, Delaunay
from slow_table import Array, first_hit, mesh_of

from viewslots import kernels
from viewslots.errors import UserError
from viewslots.kernels import has_triton
from viewslots.scenes import film
from viewslots.scenes.clevr import render
from viewslots.scenes.descriptions import load_scene
from viewslots.scenes.tabletop import expose as exposing
from viewslots.scenes.tabletop import meet as meeting
from viewslots.scenes.tabletop import stage as staging
from viewslots.scenes.tabletop import textures
from viewslots.scenes.tabletop.bodies import KINDS, WHOLE, parts_of
from viewslots.scenes.tabletop.expose import SAMPLES, Cameras, Window, expose, render_tables
from viewslots.scenes.tabletop.family import TABLETOP
from viewslots.scenes.tabletop.light import Places, Points, ggx, mirrored, scattered, texture
from viewslots.scenes.tabletop.meet import Rays, meet_objects, meet_surroundings, normals
from viewslots.scenes.tabletop.stage import Stage
from viewslots.scenes.tabletop.table_scene import MAX_PIXELS, Camera, Finish, Lamp, Room, Table, TableScene, Thing
from viewslots.scenes.vectors import Vec
from viewslots.scenes.world import SOLID_KEYS

WHITE, GRAY, BLACK = ((1.0,) * 3,) * 2, ((0.5,) * 3,) * 2, ((0.0,) * 3,) * 2
MATTE = Finish(GRAY)
TABLE = Table("rectangle", 0.6, 0.5, 0.03, 0.7, 0.3, Finish(GRAY))
ROOM = Room((0.1, -0.1), 2.0, 2.4, 2.5, 0.4, Finish(BLACK), Finish(BLACK), (0.0, 0.0, 0.0))
LAMP = Lamp((0.5, -0.3, 1.2), (0.0, 0.0, -1.0), 0.3, 0.2, (10.0, 8.0, 6.0))
CAMERA = Camera((0.7, 0.6, 0.8), (0.0, 0.0, 0.02), 0.05, 1.4)


def a_thing(kind: str, at: float = 0.5, **changes: Any) -> Thing:
    """With sizes at that share of their ranges."""
    sizes = {}
    for name, (low, high) in KINDS[kind].ranges.items():
        value = low + at * (high - low)
        sizes[name] = float(round(value)) if name in WHOLE else value
    return replace(Thing(kind, sizes, (0.0, 0.0, 0.0), 0.0, 0.0, MATTE, MATTE), **changes)


def a_scene(*things: Thing, **changes: Any) -> TableScene:
    scene = TableScene(things, TABLE, ROOM, (LAMP,), (CAMERA,), 24, 24)
    return replace(scene, **changes)


def vec(values: Array) -> Vec:
    return Vec(*torch.tensor(values, dtype=torch.float32).T.contiguous())


def array(vector: Vec) -> Array:
    return torch.stack([vector.x, vector.y, vector.z], -1).double().numpy()


# --- Bodies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_bodies_are_met_where_their_meshes_are(kind: str) -> None:
    at = (list(KINDS).index(kind) % 3) / 2
    thing = a_thing(kind, at, location=(0.05, -0.02, 0.01), theta=0.7, tilt=0.4 if at else 0.0)
    stage = Stage.of([a_scene(thing)], 1, "cpu")
    triangles = mesh_of(thing)
    low, high = triangles.reshape(-1, 3).min(0), triangles.reshape(-1, 3).max(0)
    random = np.random.default_rng(3)
    towards = random.uniform(low, high, (80, 3))
    way = random.normal(size=(80, 3))
    way /= np.linalg.norm(way, axis=-1, keepdims=True)
    # Most rays come from afar, some begin within the box: in hollows, between legs, inside the body.
    start = towards - way * np.where(np.arange(80) % 4 == 0, 0.0, 0.9)[:, None]
    distance, facing = first_hit(triangles, start, way)
    rays = Rays(torch.zeros(80, dtype=torch.long), vec(start), vec(way))
    ours, surface = meet_objects(stage, rays)
    met = np.isfinite(distance) & torch.isfinite(ours).numpy()
    same = np.isclose(ours.numpy(), distance, rtol=0, atol=1e-3)
    assert met.sum() > 15
    assert same.mean() > 0.97  # a mesh lies a little within the body: rays along its outline may differ
    close = np.abs(ours.numpy()[met] - distance[met])
    assert np.median(close) < 5e-4
    normal = array(normals(stage, surface[met], rays.at(ours).map(lambda part: part[met])))
    assert np.quantile(np.abs((normal * facing[met]).sum(-1)), 0.1) > 0.98


def test_surroundings_by_hand() -> None:
    stage = Stage.of([a_scene()], 1, "cpu")
    c, s = math.cos(0.3), math.sin(0.3)
    starts = {
        # origin, heading, distance, which of table, cloth, floor, walls
        "top": ((0.1, 0.1, 1.0), (0.0, 0.0, -1.0), 1.0, 0),
        "underside": ((0.1, 0.1, -0.5), (0.0, 0.0, 1.0), 0.47, 0),
        "edge": ((c, s, -0.01), (-c, -s, 0.0), 0.4, 0),
        "leg": ((c * 2 * 0.51 - s * 0.41, s * 2 * 0.51 + c * 0.41, -0.4), (-c, -s, 0.0), 0.48, 0),
        "floor": ((1.5, 0.0, 0.0), (0.0, 0.0, -1.0), 0.7, 2),
        "wall": ((0.1, -0.1, 0.5), (math.cos(0.4), math.sin(0.4), 0.0), 2.0, 3),
        "sky": ((0.1, -0.1, 0.5), (0.6, 0.0, 0.8), math.inf, 3),
    }
    for name, (origin, heading, distance, finish) in starts.items():
        rays = (vec(np.array([origin])), vec(np.array([heading])))
        met, normal, which = meet_surroundings(stage, Rays(torch.zeros(1, dtype=torch.long), *rays))
        assert float(met) == pytest.approx(distance, abs=1e-4), name
        if distance < math.inf:
            assert int(which - stage.around.finish) == finish, name
            assert float(normal.dot(rays[1])) < -0.9, name


def test_a_round_table_is_round() -> None:
    stage = Stage.of([a_scene(table=replace(TABLE, shape="round", half_length=0.4, half_width=0.4))], 1, "cpu")
    angle = np.linspace(0, 6, 50)
    for radius, top in ((0.399, True), (0.401, False)):
        start = np.stack([radius * np.cos(angle), radius * np.sin(angle), 0 * angle + 1], -1)
        rays = Rays(torch.zeros(50, dtype=torch.long), vec(start), vec(np.tile([0.0, 0.0, -1.0], (50, 1))))
        met, _, _ = meet_surroundings(stage, rays)
        assert ((met.numpy() < 1.01) == top).all()


# --- Textures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", textures.PATTERNS)
def test_textures_are_the_same_for_numpy_and_torch(pattern: str) -> None:
    points = np.random.default_rng(0).uniform(-30, 30, (3, 4000)).astype(np.float32)
    plain = textures.share(np, pattern, *points)
    assert plain.dtype == np.float32
    assert (plain >= 0).all()
    assert (plain <= 1).all()
    other = textures.share(torch, pattern, *torch.from_numpy(points)).numpy()
    # torch's square root may be off by its last bit, which shows in the rings of wood alone.
    assert np.abs(other - plain).max() < 1e-4 if pattern == "wood" else np.array_equal(other, plain)
    assert pattern == "plain" or 0.05 < plain.mean() < 0.95


def test_textures_by_hand() -> None:
    x = np.array([0.25, 0.75, 1.25, -0.25], np.float32)
    zero, half = x * 0 + np.float32(0.25), x * 0 + np.float32(0.5)
    assert textures.share(np, "stripes", x, zero, zero).tolist() == [0, 1, 0, 1]
    assert textures.share(np, "checks", x, zero, zero).tolist() == [0, 0, 1, 1]
    assert textures.share(np, "checks", x, zero + 1, zero + 1).tolist() == [0, 0, 1, 1]
    assert textures.share(np, "dots", np.array([0.5, 0.8, 0.9, 1.5], np.float32), half, half).tolist() == [1, 1, 0, 1]


def test_value_noise_takes_its_lattice_values_and_is_smooth() -> None:
    x = np.linspace(-3, 3, 6001, dtype=np.float32)
    noise = textures.value_noise(np, x, x * 0 + 2, x * 0 - 1)
    assert np.abs(np.diff(noise)).max() < 2e-3  # slopes of at most 1.5 between values of 0..1
    moved = textures.value_noise(np, x, x * 0 + np.float32(2.001), x * 0 - np.float32(1.001))
    assert np.abs(moved - noise).max() < 5e-3
    assert noise.std() > 0.1


@pytest.mark.parametrize("pattern", ["checks", "wood", "marble", "print"])
def test_a_point_has_one_colour_in_every_view(pattern: str) -> None:
    """The same spots of an object, seen by two cameras, and again after the object was moved and turned."""
    finish = Finish(((0.9, 0.1, 0.2), (0.1, 0.3, 0.8)), pattern, 0.02, 0.4, 0.9, (0.3, 0.2, 0.7))  # type: ignore[arg-type]
    thing = a_thing("egg", finish=finish)
    there = replace(thing, location=(0.2, -0.1, 0.03), theta=1.9, tilt=0.6)
    random = np.random.default_rng(1)
    spots = random.normal(size=(400, 3)) * 0.01 + [0, 0, 0.05]

    def looking(of: Thing, camera: Array, aims: Array) -> tuple[Stage, Rays, Any, Any]:
        """Rays from the camera to these points, and what they meet first."""
        stage = Stage.of([a_scene(of)], 1, "cpu")
        way = (aims - camera) / np.linalg.norm(aims - camera, axis=-1, keepdims=True)
        rays = Rays(torch.zeros(400, dtype=torch.long), vec(np.tile(camera, (400, 1))), vec(way))
        return stage, rays, *meet_objects(stage, rays)

    stage, rays, distance, surface = looking(thing, np.array([0.6, 0.5, 0.4]), spots)
    points = array(rays.at(distance))
    seen = array(texture(stage.finishes.take(stage.parts.finish[surface >> 32]), rays.at(distance)))
    # The other camera looks at exactly these points, in the frame of the moved object.
    world = points @ np.array(there.axes).T + there.location
    camera = world.mean(0) + np.array(there.axes) @ [0.5, 0.45, 0.5]
    moved, again, reached, which = looking(there, camera, world)
    same = np.linalg.norm(array(again.at(reached)) - world, axis=-1) < 2e-5
    assert same.sum() > 250
    other = array(texture(moved.finishes.take(moved.parts.finish[which.clamp_min(0) >> 32]), again.at(reached)))
    assert (np.abs(other - seen).max(-1)[same] < 0.02).mean() > 0.98  # but for points on an edge of the pattern
    assert seen.std(0).max() > 0.05


# --- Shadows and light ------------------------------------------------------------------------------------------------


def pixel_points(camera: Camera, size: int) -> Array:
    """Where the middles of pixels meet the table [size, size, 3], by the formulas of the docs."""
    back = np.subtract(camera.location, camera.target)
    back /= np.linalg.norm(back)
    right = np.cross([0, 0, 1], back)
    right /= np.linalg.norm(right)
    up = np.cross(back, right)
    c, s = math.cos(camera.roll), math.sin(camera.roll)
    right, up = c * right - s * up, s * right + c * up
    place = (np.arange(size) + 0.5 - size / 2) / (camera.focal * size)
    way = place[None, :, None] * right - place[:, None, None] * up - back
    return camera.location + way * (-camera.location[2] / way[..., 2])[..., None]


def test_shadows_are_what_a_count_over_the_lamp_finds() -> None:
    things = (a_thing("mug", location=(0.0, 0.0, 0.0), theta=2.0), a_thing("cone", location=(-0.12, 0.1, 0.0)))
    scene = a_scene(*things, cameras=(replace(CAMERA, focal=2.2),))
    made, _ = render_tables([scene], 2, quality="reference")
    points = pixel_points(scene.cameras[0], 24)
    u, v = ((np.arange(6) + 0.5) / 6 - 0.5 for _ in range(2))
    lamp = np.array(LAMP.center) + np.stack(np.meshgrid(u * LAMP.width, v * LAMP.height, [0.0]), -1).reshape(-1, 3)
    rows, columns = np.divmod(np.random.default_rng(0).permutation(24 * 24)[:25], 24)
    for slot, thing in enumerate(things):
        triangles, errors = mesh_of(thing), []
        for row, column in zip(rows, columns, strict=True):
            point = points[row, column] + [0, 0, 2e-4]
            path = lamp - point
            square = (path**2).sum(-1)
            strength = path[:, 2] ** 2 / square**2
            distance, _ = first_hit(triangles, np.tile(point, (len(lamp), 1)), path / np.sqrt(square)[:, None])
            share = (strength * (distance < np.sqrt(square))).sum() / strength.sum()
            errors.append(abs(share - made.shadows[0, 0, slot, row, column] / 255))
        assert np.mean(errors) < 0.03
        assert max(errors) < 0.5  # a pixel is wider than its middle
        assert (made.shadows[0, 0, slot] > 128).sum() > 5


def lit_table(scene: TableScene) -> Array:
    """Linear radiance of the middle of the picture, without objects."""
    _, linear = render_tables([scene], 0, quality="reference")
    return linear[0, 0, 10:14, 10:14].mean((0, 1)).astype(np.float64)


def test_direct_light_of_a_lamp_is_its_integral() -> None:
    scene = a_scene()
    points = pixel_points(CAMERA, 24)[10:14, 10:14].reshape(-1, 3)
    place = (np.arange(40) + 0.5) / 40 - 0.5
    lamp = np.array(LAMP.center) + np.stack(np.meshgrid(place * LAMP.width, place * LAMP.height, [0.0]), -1).reshape(
        -1, 3
    )
    path = lamp - points[:, None]
    square = (path**2).sum(-1)
    irradiance = (path[..., 2] ** 2 / square**2).mean() * LAMP.width * LAMP.height
    expected = 0.5 / math.pi * irradiance * np.array(LAMP.radiance)
    assert lit_table(scene) == pytest.approx(expected, rel=0.01)


def test_the_environment_and_one_bounce_off_walls_and_floor() -> None:
    """By a million cosine-weighted rays from the table: the sky, and walls lit by the sky alone."""
    bright = replace(ROOM, environment=(1.0, 0.5, 0.25), walls=Finish(GRAY))
    scene = a_scene(room=bright, lamps=(replace(LAMP, radiance=(0.0, 0.0, 0.0)),))
    point = pixel_points(CAMERA, 24)[10:14, 10:14].reshape(-1, 3).mean(0)
    random = np.random.default_rng(0)
    leaves, at, normal = fly(bright, np.tile(point, (400_000, 1)), np.tile([0.0, 0.0, 1.0], (400_000, 1)), random)
    direct = leaves.mean()
    # What walls throw on: their light is the share of sky that they see, times their albedo.
    leaves_again, _, _ = fly(bright, at, normal, random)
    bounced = (0.5 * leaves_again * ~leaves).mean()
    expected = 0.5 * (direct + bounced) * np.array([1.0, 0.5, 0.25])
    assert bounced > 0.02
    assert lit_table(scene) == pytest.approx(expected, rel=0.02)


def fly(room: Room, start: Array, normal: Array, random: np.random.Generator) -> tuple[Array, Array, Array]:
    """Cosine-weighted rays within four walls: whether they leave above, else where they end and the normal there."""
    way = random.normal(size=start.shape)
    way = normal + way / np.linalg.norm(way, axis=-1, keepdims=True)
    way /= np.linalg.norm(way, axis=-1, keepdims=True)
    c, s = math.cos(room.theta), math.sin(room.theta)
    turn = np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]])
    o, d = (start - [*room.center, 0]) @ turn.T, way @ turn.T
    with np.errstate(divide="ignore"):
        sides = (np.sign(d[:, :2]) * [room.half_length, room.half_width] - o[:, :2]) / d[:, :2]
    side, t = sides.argmin(-1), sides.min(-1)
    end = o + d * t[:, None]
    onto = np.zeros_like(d)
    onto[np.arange(len(d)), side] = -np.sign(d[np.arange(len(d)), side])
    # Rays that go down end on the black floor or under the table: a wall that nobody lights.
    leaves = end[:, 2] > room.height - TABLE.height
    dark = d[:, 2] < 0
    end[dark] = [0, 0, -0.69]
    onto[dark] = [0, 0, -1]
    return leaves, end @ turn + [*room.center, 0], onto @ turn


def test_what_scattered_rays_take_the_sky_for_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    bright = replace(ROOM, environment=(1.0, 1.0, 1.0), walls=Finish(GRAY), floor=Finish(GRAY))
    scene = a_scene(a_thing("bowl"), room=bright)
    _, ours = render_tables([scene], 1, quality="reference")
    monkeypatch.setattr(staging, "wall_radiance", lambda scene: (0.0, 0.3, 1.0))
    _, other = render_tables([scene], 1, quality="reference")
    assert other.mean((0, 1, 2, 3)) == pytest.approx(ours.mean((0, 1, 2, 3)), rel=0.02)
    assert not np.array_equal(ours, other)


def test_direct_light_of_a_bright_sky_is_not_clamped() -> None:
    """Walls are black: the table sees the sky alone, which is as many times brighter as the environment."""
    room = replace(ROOM, floor=Finish(WHITE))
    dark = (replace(LAMP, radiance=(0.0, 0.0, 0.0)),)
    one, many = (lit_table(a_scene(room=replace(room, environment=(e,) * 3), lamps=dark)) for e in (1.0, 100.0))
    assert many / 100 == pytest.approx(one, rel=0.01)


@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.8])
def test_reflected_rays_follow_the_glossy_lobe(alpha: float) -> None:
    """The mean weight of sampled directions is the integral of the lobe, and so is that of any function of them."""
    stage = Stage.of([a_scene()], 1, "cpu")
    count = 200_000
    random = torch.Generator().manual_seed(0)
    viewer = Vec(*(torch.full((count,), value) for value in (0.6, 0.0, 0.8)))
    normal = Vec(*(torch.full((count,), value) for value in (0.0, 0.0, 1.0)))
    full = torch.full((count,), alpha)
    u, v = (torch.rand(count, generator=random) for _ in range(2))
    heading, weight = mirrored(stage, normal, viewer, full, u, v)
    place = Places(*(torch.zeros(count, dtype=torch.long),) * 2)
    row = torch.zeros(count, dtype=torch.long)
    points = Points(row, viewer, normal, viewer, row, place)
    even = scattered(stage, normal, u, v)  # density cos / pi
    lobe, _ = ggx(full, points, even)
    slow = (lobe / even.z.clamp_min(1e-6) * math.pi).double()
    tolerance = 4 * float(slow.std()) / count**0.5 + 0.01
    assert float(weight.double().mean()) == pytest.approx(float(slow.mean()), abs=tolerance)
    assert float((weight * heading.x).double().mean()) == pytest.approx(float((slow * even.x).mean()), abs=tolerance)
    _, density = ggx(full, points, heading)
    # E[1 / density] over where it falls is the solid angle: the density is that of the samples.
    below = heading.z > 0.7
    cap = 2 * math.pi * (1 - 0.7)
    if alpha > 0.1:
        inverse = torch.where(below, 1 / density, 0.0).double()
        assert float(inverse.mean()) == pytest.approx(cap, abs=5 * float(inverse.std()) / count**0.5 + 0.02)


# --- Descriptions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLETOP)
def test_drawn_scenes_survive_a_file(name: str, tmp_path: Path) -> None:
    for index in range(12):
        scene = TABLETOP[name].sample(1, "test2" if index % 2 else "train", index)
        path = tmp_path / "scene.json"
        path.write_text(json.dumps(scene.to_dict()))
        assert load_scene(path) == scene


DESCRIPTION = json.dumps(TABLETOP["tabletop"].sample(0, "train", 3).to_dict())
JUNK = st.one_of(
    st.none(), st.booleans(), st.text(max_size=3), st.just([]), st.just({}), st.just([1, 2]), st.integers(),
    st.floats(allow_nan=True, allow_infinity=True), st.sampled_from([-1e30, 1e30, 2**70, "mug", "inf"]),
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_hostile_descriptions_are_refused_in_one_line(data: st.DataObject) -> None:
    tree = json.loads(DESCRIPTION)
    node, steps = tree, []
    while isinstance(node, dict | list) and node and (not steps or data.draw(st.integers(0, 4))):
        steps.append(data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else list(range(len(node))))))
        parent, node = node, node[steps[-1]]
    if data.draw(st.booleans()) and isinstance(parent, dict):
        del parent[steps[-1]]
    else:
        parent[steps[-1]] = data.draw(JUNK)
    try:
        scene = TableScene.from_dict(tree)
    except UserError as error:
        refusal = str(error)
    else:
        refusal = ""
        assert TableScene.from_dict(json.loads(json.dumps(scene.to_dict()))) == scene
    assert "\n" not in refusal


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("objects", 0, "kind"), "sofa", r"objects\[0\].kind: expected one of ball"),
        (("objects", 0, "sizes"), {}, r"objects\[0\].sizes: `.*` is missing"),
        (("objects", 0, "finish", "alpha"), 0, r"objects\[0\].finish.alpha: expected a number"),
        (("objects", 0, "finish", "pattern"), "paisley", r"objects\[0\].finish.pattern: expected one of plain"),
        (("lamps", 0, "normal"), [0, 0, 2], r"lamps\[0\].normal"),
        (("lamps", 0, "normal"), [0, 0, 0.5], r"lamps\[0\].normal: expected a vector of length 1"),
        (("lamps",), [], "lamps: expected a list of 1 to 4 items"),
        (("views", 0, "location"), [0, 0, 1], r"views\[0\]: a camera must not look straight"),
        (("views", 0, "focal"), math.nan, r"views\[0\].focal: expected a number"),
        (("image",), [128, 5000], "image: expected an integer in 1..1024"),
        (("room", "height"), 1e9, "room.height: expected a number"),
        (("key",), -1, "key: expected an integer"),
    ],
)
def test_what_is_wrong_is_named(path: tuple[Any, ...], value: Any, said: str) -> None:
    scene = TABLETOP["tabletop"].sample(0, "train", 3)
    tree = json.loads(json.dumps(scene.to_dict()))
    if path[:2] == ("views", 0):
        tree["views"][0]["target"] = [0, 0, 0]
    node = tree
    for step in path[:-1]:
        node = node[step]
    node[path[-1]] = value
    with pytest.raises(UserError, match=said):
        TableScene.from_dict(tree)


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ((), "scene"),
        (("objects", 0), r"objects\[0\]"),
        (("objects", 0, "sizes"), r"objects\[0\].sizes"),
        (("objects", 0, "finish"), r"objects\[0\].finish"),
        (("table",), "table"),
        (("room",), "room"),
        (("room", "walls"), "room.walls"),
        (("lamps", 0), r"lamps\[0\]"),
        (("views", 0), r"views\[0\]"),
    ],
)
def test_unknown_fields_are_named(path: tuple[Any, ...], named: str) -> None:
    node = tree = json.loads(DESCRIPTION)
    for step in path:
        node = node[step]
    node["colour"] = "red"
    with pytest.raises(UserError, match=f"^{named}: unknown field 'colour'; known are "):
        TableScene.from_dict(tree)


def test_pictures_without_objects_count_too() -> None:
    tree = a_scene(height=1024, width=1024).to_dict()
    tree["views"] *= 50
    with pytest.raises(UserError, match="split the views"):
        TableScene.from_dict(tree)


# --- The rules --------------------------------------------------------------------------------------------------------


def hull(points: Array) -> Array:
    """Corners of the outline from above."""
    flat = points[:, :2]
    return flat[ConvexHull(flat).vertices]


def test_objects_stand_on_the_table_and_in_nobody() -> None:
    for index in range(6):
        scene = TABLETOP["tabletop"].sample(5, "test2", index)
        meshes = [mesh_of(thing).reshape(-1, 3) for thing in scene.objects]
        c, s = math.cos(scene.table.theta), math.sin(scene.table.theta)
        for slot, points in enumerate(meshes):
            assert -1e-4 < points[:, 2].min() < 1e-4
            x, y = c * points[:, 0] + s * points[:, 1], c * points[:, 1] - s * points[:, 0]
            if scene.table.shape == "round":
                assert np.hypot(x, y).max() < scene.table.half_length
            else:
                assert np.abs(x).max() < scene.table.half_length
                assert np.abs(y).max() < scene.table.half_width
            for other in meshes[:slot]:
                assert (Delaunay(hull(other)).find_simplex(hull(points)) < 0).all()


def test_scenes_keep_to_the_rules() -> None:
    world = TABLETOP["tabletop"]
    scenes = [world.sample(0, "train", index) for index in range(150)]
    kinds = {thing.kind for scene in scenes for thing in scene.objects}
    assert len(kinds) >= 14
    assert kinds == set(KINDS)
    assert {len(scene.objects) for scene in scenes} == set(range(2, 7))
    assert {len(world.sample(0, "test2", index).objects) for index in range(30)} == {7, 8, 9}
    finishes = [thing.finish for scene in scenes for thing in scene.objects]
    assert {finish.pattern for finish in finishes} == set(textures.PATTERNS)
    assert 0.1 < np.mean([finish.metal for finish in finishes]) < 0.25
    assert {len(scene.lamps) for scene in scenes} == {1, 2, 3}
    cameras = [camera for scene in scenes for camera in scene.cameras]
    back = np.array([camera.axes[2] for camera in cameras])
    elevation = np.degrees(np.arcsin(back[:, 2]))
    assert 15 <= elevation.min() < 17
    assert 63 < elevation.max() <= 65.001
    azimuth = np.histogram(np.arctan2(back[:, 1], back[:, 0]), 8, (-np.pi, np.pi))[0]
    assert azimuth.min() > 130
    for scene in scenes:
        for camera in scene.cameras:
            path = np.subtract(camera.location[:2], scene.room.center)
            assert np.linalg.norm(path) < min(scene.room.half_length, scene.room.half_width)
            for thing in scene.objects:
                assert math.dist(camera.location, thing.location) > 0.15


def test_members_of_the_family() -> None:
    full, plain, still = (TABLETOP[name].sample(0, "train", 4) for name in TABLETOP)
    assert [thing.location for thing in plain.objects] == [thing.location for thing in full.objects]
    assert plain.cameras == full.cameras == still.cameras
    finishes = [*(thing.finish for thing in plain.objects), plain.table.finish, plain.room.walls, plain.room.floor]
    assert all(finish.pattern == "plain" for finish in finishes)
    others = [TABLETOP["tabletop-still"].sample(seed, "test1", 9) for seed in range(4)]
    assert all((other.table, other.room, other.lamps) == (still.table, still.room, still.lamps) for other in others)
    assert len(still.lamps) == 1


# --- Pixels -----------------------------------------------------------------------------------------------------------


def small(count: int, views: int = 2, size: tuple[int, int] = (16, 20)) -> list[TableScene]:
    world = replace(TABLETOP["tabletop"], views=views, height=size[0], width=size[1])
    return [world.sample(2, "train", index) for index in range(count)]


def test_pixels_depend_neither_on_batches_nor_on_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    scenes = small(2)
    together, linear = render_tables(scenes, 6)
    for index, scene in enumerate(scenes):
        alone, light = render_tables([scene], len(scene.objects))
        assert np.array_equal(light[0], linear[index])
        for key in SOLID_KEYS:
            whole = getattr(together, key)[index]
            part = getattr(alone, key)[0]
            if key in ("shapes", "shadows", "depth_order"):
                whole = whole[:, : len(scene.objects)]
            assert np.array_equal(part, whole), key
    monkeypatch.setattr(exposing, "SAMPLES_ON_CPU", 22 * 9 * 16)
    banded, light = render_tables(scenes, 6)
    assert np.array_equal(light, linear)
    assert np.array_equal(banded.shadows, together.shadows)
    monkeypatch.setattr(meeting, "PAIRS_AT_ONCE", {"cpu": 1000})
    chunked, light = render_tables(scenes, 6)
    assert np.array_equal(light, linear)
    assert np.array_equal(chunked.shapes, together.shapes)


def test_the_radiance_is_held_only_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    scenes = small(2)
    expected, _ = render_tables(scenes, 6)
    held: list[bool] = []
    put = exposing._Stored.put

    def watched(self: Any, part: Any, drawn: Any) -> None:
        held.append(self.linear is not None or drawn.linear is not None)
        put(self, part, drawn)

    monkeypatch.setattr(exposing._Stored, "put", watched)
    found = TABLETOP["tabletop"].render(scenes, 6)
    assert held == [False] * 4
    assert all(np.array_equal(getattr(found, key), getattr(expected, key)) for key in SOLID_KEYS)


def test_many_scenes_in_one_call_give_the_pixels_of_each() -> None:
    """As a GPU does it: the tables of several scenes, views of all of them at once."""
    scenes = small(3)
    stage = Stage.of(scenes, 6, "cpu")
    views = [(row, view, scene) for row, scene in enumerate(scenes) for view in range(2)]
    with torch.no_grad():
        made = expose(stage, Cameras.of(views, "cpu"), Window(16, 20, 0, 16), 16)
    _, linear = render_tables(scenes, 6)
    assert np.array_equal(made.linear.reshape(3, 2, 16, 20, 3).numpy(), linear)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_pixels_of_a_gpu_are_those_of_a_cpu() -> None:
    scenes = small(4, size=(48, 48))
    here, _ = render_tables(scenes, 6, "cpu")
    there, _ = render_tables(scenes, 6, "cuda")
    again, _ = render_tables(scenes[2:], 6, "cuda")
    assert np.array_equal(again.image, there.image[2:])
    assert (np.abs(here.image.astype(int) - there.image) > 1).mean() < 0.002
    for key in ("segment", "shapes", "shadows"):
        assert (getattr(here, key) != getattr(there, key)).mean() < 0.002


def test_reference_agrees_with_fast_but_for_noise() -> None:
    scene = small(1, views=1)[0]
    fast, linear = render_tables([scene], 6)
    slow, better = render_tables([scene], 6, quality="reference")
    assert np.abs(fast.image.astype(int) - slow.image).mean() < 6
    assert linear.mean() == pytest.approx(better.mean(), rel=0.03)
    assert (fast.segment == slow.segment).mean() > 0.98
    assert np.abs(fast.shapes.astype(int) - slow.shapes).mean() < 3


def test_pictures_are_neither_black_nor_blown_out() -> None:
    made, _ = render_tables(small(8, views=1, size=(16, 16)), 6)
    for picture in made.image[:, 0]:
        assert 30 < picture.mean() < 225
        assert (picture == 255).mean() < 0.3
        assert picture.std() > 8


def test_segments_and_cameras_point_at_the_objects() -> None:
    """The middle of a ball lies where pose and intrinsics say, and its shape around it."""
    ball = a_thing("ball", location=(0.1, -0.05, 0.0))
    scene = a_scene(ball, height=40, width=60)
    made, _ = render_tables([scene], 1)
    pose, (fx, fy, cx, cy) = made.pose[0, 0].astype(float), made.intrinsics[0, 0].astype(float)
    local = pose[:3, :3].T @ (np.array([0.1, -0.05, ball.sizes["radius"]]) - pose[:3, 3])
    column, row = cx + fx * local[0] / -local[2], cy - fy * local[1] / -local[2]
    rows, columns = np.nonzero(made.segment[0, 0] == 0)
    assert abs(rows.mean() + 0.5 - row) < 0.5
    assert abs(columns.mean() + 0.5 - column) < 0.5
    reach = fx * ball.sizes["radius"] / -local[2]
    assert len(rows) == pytest.approx(math.pi * reach**2, rel=0.1)


def test_scenes_that_do_not_fit_together() -> None:
    first, second = small(2)
    with pytest.raises(UserError, match="must share"):
        render_tables([first, replace(second, height=20)], 6)
    with pytest.raises(UserError, match="more than the 1 slots"):
        render_tables([first], 1)


def test_noise_is_even_within_a_pixel_and_independent_between_pixels() -> None:
    """The mean of a slow wave over the four samples of a pixel varies less than half as much as by chance; that of one
    pixel says nothing of its neighbours (correlations of 40,000 pixels: within five standard errors of zero)."""
    sample, line, column = torch.meshgrid(*(torch.arange(n) for n in (4, 200, 200)), indexing="ij")
    place = Places(film.mix(torch.full_like(line, 7), column + (line << 12)), sample)
    for steps in range(4):
        for number in place.even(5, steps):
            seen = torch.cos(2 * math.pi * number).mean(0)
            assert float(seen.var()) < 0.5 * 0.5 / 4
            normal = (seen - seen.mean()) / seen.std()
            for one, other in (
                (normal[1:], normal[:-1]),
                (normal[:, 1:], normal[:, :-1]),
                (normal[1:, 1:], normal[:-1, :-1]),
            ):
                assert abs(float((one * other).mean())) < 5 / 200


# --- What the caller has chosen, and GPUs without one ---------------------------------------------------------------


@pytest.fixture
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def test_a_caller_in_inference_mode_gets_the_same_pictures(two_threads: None) -> None:
    """Inference mode is a matter of one thread; pictures are drawn by several."""
    staging._circle.cache_clear()
    scenes = small(2)
    with torch.inference_mode():
        found, light = render_tables(scenes, 6)
    expected, linear = render_tables(scenes, 6)
    assert np.array_equal(light, linear)
    assert all(np.array_equal(getattr(found, key), getattr(expected, key)) for key in SOLID_KEYS)
    assert not Stage.of(scenes, 6, "cpu").circle.is_inference()


def test_a_part_that_cannot_be_fetched_stops_the_work_and_few_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU's loop with a stand-in for the GPU."""
    stream = SimpleNamespace(record_event=lambda: None, wait_event=lambda event: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    drawn: list[int] = []
    fetched: list[int] = []
    waiting: list[int] = []

    class Out:
        broken = 100

        def put(self, part: Any, numbers: int) -> None:
            time.sleep(0.01)
            if numbers == self.broken:
                raise OSError("no room")
            fetched.append(numbers)

    class Plan:
        device = torch.device("cuda", 1)

        def __len__(self) -> int:
            return 12

        def parts(self) -> Iterator[Any]:
            for number in range(len(self)):
                yield SimpleNamespace(draw=lambda number=number: self.draw(number))

        def draw(self, number: int) -> int:
            waiting.append(len(drawn) - len(fetched))
            drawn.append(number)
            return number

    out: Any = Out()
    plan: Any = Plan()
    exposing._draw_on_gpu(plan, out, lambda done, total: None)
    assert fetched == list(range(12))
    assert max(waiting) <= exposing.UNFETCHED
    drawn.clear()
    fetched.clear()
    out.broken = 1
    with pytest.raises(OSError, match="no room"):
        exposing._draw_on_gpu(plan, out, lambda done, total: None)
    assert len(drawn) <= 2 + exposing.UNFETCHED


@pytest.mark.parametrize(("asked", "used"), [("cuda", 1), ("cuda:0", 0), ("cuda:2", 2)])
@pytest.mark.parametrize("renderer", ["tabletop", "clevr"])
def test_work_is_launched_on_the_device_that_was_asked_for(
    asked: str, used: int, renderer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With stand-ins for three GPUs, of which number 1 is the current one: kernels run on the current one."""
    current, seen = [1], []

    @contextmanager
    def chosen(device: torch.device) -> Iterator[None]:
        current.append(device.index)
        yield
        current.pop()

    def draw(device: torch.device) -> None:
        seen.append((device, current[-1]))

    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[-1])
    monkeypatch.setattr(torch.cuda, "device", chosen)
    if renderer == "tabletop":
        monkeypatch.setattr(exposing, "most_at_once", lambda *_: 10_000)
        monkeypatch.setattr(exposing, "_draw_on_gpu", lambda plan, out, progress: draw(plan.device))
        render_tables(small(1), 6, asked)
    else:
        monkeypatch.setattr(render, "_render_views", lambda scenes, slots, device, quality, progress: draw(device))
        render.render_views([], 6, asked)
    assert seen == [(torch.device("cuda", used), used)]
    assert current == [1]


def test_kernels_are_for_gpus_that_triton_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    ages = {"cuda:0": (6, 1), "cuda:1": (7, 0), "cuda:2": (9, 0)}
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: ages[str(device)])
    monkeypatch.setattr(kernels.importlib.util, "find_spec", lambda name: SimpleNamespace())
    assert [has_triton.__wrapped__(torch.device(name)) for name in ("cpu", *ages)] == [False, False, True, True]
    monkeypatch.setattr(kernels.importlib.util, "find_spec", lambda name: None)
    assert not has_triton.__wrapped__(torch.device("cuda:2"))


# --- The documents ----------------------------------------------------------------------------------------------------


def test_the_document_lists_every_kind_and_pattern() -> None:
    """docs/tabletop.md, from which a description can be written without the source."""
    text = (Path(__file__).parents[2] / "docs" / "tabletop.md").read_text()
    kinds = dict(re.findall(r"^\| `(\w+)` \| (`\w+` [\d.]+ to .*?) \| .* \|$", text, re.M))
    assert kinds == {
        name: ", ".join(f"`{size}` {low:g} to {high:g}" for size, (low, high) in kind.ranges.items())
        for name, kind in KINDS.items()
    }
    worn = dict(re.findall(r"^\| `(\w+)` \| `\w+` [\d.]+ to .*? \| (.*?) \|", text, re.M))
    for name, kind in KINDS.items():
        parts = parts_of(name, {size: low for size, (low, _) in kind.ranges.items()})
        assert any(part.accent for part in parts) == (worn[name] != "–"), name
    patterns = text[text.index("| pattern |") :]
    assert tuple(re.findall(r"^\| `(\w+)` \|", patterns[: patterns.index("\n\n")], re.M)) == textures.PATTERNS
    assert f"at most {MAX_PIXELS} pixels" in text
    assert f"`fast` traces {SAMPLES['fast']} rays a pixel, `reference` {SAMPLES['reference']}" in text


def test_depth_order_is_what_the_document_says() -> None:
    """Minus the distance to the middle of the box around the body; of a ball, its centre."""
    scene = TABLETOP["tabletop-plain"].sample(0, "test1", 0)
    ball = replace(scene.objects[0], kind="ball", sizes={"radius": 0.05}, location=(0.1, 0.2, 0.0), theta=1, tilt=0.0)
    scene = replace(scene, objects=(ball,), cameras=scene.cameras[:2]).sized(8, 8)
    pictures, _ = render_tables([scene], 1)
    expected = [-math.dist(camera.location, (0.1, 0.2, 0.05)) for camera in scene.cameras]
    np.testing.assert_allclose(pictures.depth_order[0, :, 0], expected, atol=1e-4)
