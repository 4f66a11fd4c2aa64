"""The kernels of tabletop against the plain code, on one device, bit for bit.

On a GPU, or with Triton's interpreter on a CPU: `make twins`.
"""

import importlib.util
import itertools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from twins import moved

from viewslots.scenes import film
from viewslots.scenes.tabletop import expose as exposing
from viewslots.scenes.tabletop import light as lighting
from viewslots.scenes.tabletop import meet as meeting
from viewslots.scenes.tabletop.expose import Cameras, Shot, Window, expose, render_tables
from viewslots.scenes.tabletop.family import TABLETOP
from viewslots.scenes.tabletop.light import Coat, Places, Points
from viewslots.scenes.tabletop.meet import Rays, blocked_by, meet_objects, meet_surroundings
from viewslots.scenes.tabletop.stage import CLOTH, TABLE, Rows, Stage
from viewslots.scenes.tabletop.table_scene import MAX_OBJECTS, Finish, TableScene, Thing
from viewslots.scenes.tabletop.textures import PATTERNS
from viewslots.scenes.vectors import Vec

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
ON_GPU = torch.cuda.is_available() and not INTERPRETED
pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("triton") is None, reason="triton is not installed (pip install triton)"
    ),
    pytest.mark.skipif(not (ON_GPU or INTERPRETED), reason="no GPU, and TRITON_INTERPRET=1 is not set (make twins)"),
]
FINISHES = tuple(itertools.product(PATTERNS, (False, True)))
"""Patterns, and whether of metal."""


@dataclass(frozen=True)
class Spoilt(Rows):
    """As if someone had put a field between others."""

    a: Tensor
    between: Vec
    b: Tensor
    c: Tensor


def test_fields_that_kernels_read_together_lie_side_by_side() -> None:
    from viewslots.scenes.tabletop.meet_cuda import columns_of

    assert [column.value for column in columns_of(Spoilt, "between", "b c", "end", begins="a")] == [1, 4, 6]
    for wrong in ("a b", "between b", "c b"):
        with pytest.raises(AssertionError, match="neighbours"):
            columns_of(Spoilt, wrong)
    with pytest.raises(AssertionError, match="does not begin"):
        columns_of(Spoilt, "b", begins="b")


def use_kernels(monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    for module in (exposing, lighting, meeting):
        monkeypatch.setattr(module, "has_triton", lambda device: answer)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> str:
    """Where kernels run; the modules are told that there are none."""
    from viewslots.scenes.tabletop import meet_cuda

    use_kernels(monkeypatch, False)
    if ON_GPU:
        return "cuda"
    # The interpreter takes as long for many rays as for 32.
    monkeypatch.setitem(meet_cuda.LAUNCH, "BLOCK", 1024)
    # torch's root on a CPU may be off by its last bit.
    monkeypatch.setattr(torch, "sqrt", lambda values: torch.from_numpy(np.sqrt(values.numpy())))
    return "cpu"


def some_scenes() -> list[TableScene]:
    """With rings, solids and turned parts, all patterns, metal or not, one to four lamps, and cloths.

    They are drawn by the rules; finishes, lamps and cloths are then dealt out, since few scenes show all of them.
    """
    world = replace(TABLETOP["tabletop"], views=1, height=20, width=24)
    every = [world.sample(5, "train", index) for index in range(40)]
    kinds = (("mug", "teapot", "ring"), ("box", "house", "brick"), ("lamp", "vase", "bishop"), ("can", "cone"))
    drawn = [next(scene for scene in every if any(thing.kind in some for thing in scene.objects[:2])) for some in kinds]
    finishes = itertools.cycle(FINISHES)
    return [dealt(scene, number, finishes) for number, scene in enumerate(drawn)]


def dealt(scene: TableScene, number: int, finishes: Iterator[tuple[Any, bool]]) -> TableScene:
    """The scene with `number` + 1 lamps, finishes in turn, and a cloth: hung over a rectangle, hung over a round table,
    smaller than the table, none."""

    def finish(seed: int) -> Finish:
        pattern, metal = next(finishes)
        return Finish(
            ((0.8, 0.3, 0.2), (0.1, 0.4, 0.7)), pattern, 0.03, 0.7 * seed, 0.4, (3.3, 7.1, 1.7), metal, 1.4, 0.2
        )

    things = tuple(replace(thing, finish=finish(k), accent=finish(k + 1)) for k, thing in enumerate(scene.objects[:3]))
    lamps = []
    for k in range(number + 1):
        lamp = scene.lamps[k % len(scene.lamps)]
        x, y, z = lamp.center
        angle = 1.7 * k
        center = (x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle), z + 0.1 * k)
        red, green, blue = lamp.radiance
        down = (0.0, 0.0, -1.0) if k else lamp.normal
        lamps.append(replace(lamp, center=center, normal=down, radiance=(red * (1 + 0.1 * k), green, blue)))
    table = replace(scene.table, shape=("rectangle", "round", "rectangle", "round")[number], thickness=0.05)
    if table.shape == "round":
        table = replace(table, half_width=table.half_length)
    share = (1.0, 1.0, 0.5, 0.0)[number]
    sides = {"cloth_length": share * table.half_length, "cloth_width": share * table.half_width}
    table = replace(table, cloth=finish(9) if share else None, **sides)
    return replace(scene, objects=things, lamps=tuple(lamps), table=table)


def a_crowd() -> TableScene:
    """As many objects as a scene may have, in rows and partly before each other."""
    scene = some_scenes()[0]
    ball = Thing("ball", {"radius": 0.03}, (0.0, 0.0, 0.0), 0.0, 0.0, scene.room.walls, scene.room.walls)
    places = [(0.09 * (k % 6) - 0.22, 0.09 * (k // 6) - 0.22, 0.0) for k in range(MAX_OBJECTS)]
    return replace(scene, objects=tuple(replace(ball, location=place) for place in places))


def on_stage(scenes: Sequence[TableScene], slots: int) -> tuple[Stage, Cameras]:
    return Stage.of(scenes, slots, "cpu"), Cameras.of([(row, 0, scene) for row, scene in enumerate(scenes)], "cpu")


def some_stage() -> tuple[Stage, Cameras]:
    return on_stage(some_scenes(), 4)


def test_the_scenes_of_these_tests_have_everything() -> None:
    scenes = some_scenes()
    worn = [finish for scene in scenes for thing in scene.objects for finish in (thing.finish, thing.accent)]
    worn += [scene.table.cloth for scene in scenes if scene.table.cloth]
    assert {(finish.pattern, finish.metal) for finish in worn} == set(FINISHES)
    assert [len(scene.lamps) for scene in scenes] == [1, 2, 3, 4]
    assert len({lamp.radiance for scene in scenes for lamp in scene.lamps}) == 10
    around = Stage.of(scenes, 4, "cpu").around
    hung = (around.cloth_length >= around.half_length) & (around.cloth_width >= around.half_width)
    assert hung.tolist() == [True, True, False, False]
    assert around.round.tolist() == [False, True, False, True]
    assert (around.cloth_length < 0).tolist() == [False, False, False, True]
    assert len(a_crowd().objects) == MAX_OBJECTS == 32


def a_few(points: Points, coat: Coat, device: str) -> tuple[Points, Coat]:
    """All on a GPU, every ninth for the interpreter."""
    index = torch.arange(0, len(points.row), 1 if ON_GPU else 9)
    return moved(points.take(index), device), moved(coat.take(index), device)


def stacked(vector: Vec) -> Tensor:
    return torch.stack([vector.x, vector.y, vector.z])


def assert_same(found: Any, expected: Any) -> None:
    """Bit for bit."""
    if isinstance(expected, tuple | list):
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, Rows):
        for field in fields(expected):
            assert_same(getattr(found, field.name), getattr(expected, field.name))
    elif isinstance(expected, Vec):
        assert_same(stacked(found), stacked(expected))
    else:
        assert torch.equal(found, expected)


def random_rays(stage: Stage, count: int) -> Rays:
    """From around and within the scenes, most of them towards objects, also from below the table."""
    row = torch.arange(count) * stage.rows // count
    return aimed(stage, row * stage.slots + torch.arange(count) % 2)


def aimed(stage: Stage, number: Tensor) -> Rays:
    """Towards objects of these numbers, or somewhat beside them."""
    random, count = torch.Generator().manual_seed(1), len(number)
    places = torch.rand(3, count, generator=random) - 0.5
    start = Vec(*(places * torch.tensor([[1.2], [1.2], [1.0]]) + torch.tensor([[0.0], [0.0], [0.1]])))
    aside = Vec(*(torch.randn(3, count, generator=random) * 0.04))
    return Rays(number // stage.slots, start, (meeting.taken(stage.objects.center, number) + aside - start).unit())


def test_rays_meet_objects_at_the_same_bits(device: str) -> None:
    from viewslots.scenes.tabletop.meet_cuda import meet_objects_cuda

    stage, _ = some_stage()
    stage, rays = moved(stage, device), moved(random_rays(stage, 30_000 if ON_GPU else 1500), device)
    distance, surface, bits = meet_objects_cuda(stage, rays)
    assert_same((distance, surface), meet_objects(stage, rays))
    assert 0.3 < (distance < torch.inf).float().mean() < 0.95
    assert set(stage.parts.shape[surface[surface >= 0] >> 32].tolist()) == {0, 1, 2}
    assert torch.equal(bits, all_met(stage, rays))


def all_met(stage: Stage, rays: Rays) -> Tensor:
    """A bit for each object that a ray meets, by the plain code."""
    slot, ray = blocked_by(stage, rays, torch.full_like(rays.origin.x, torch.inf))
    bits = torch.zeros_like(rays.row).index_add(0, ray, torch.ones_like(slot) << slot)
    return torch.where(bits >= 2**31, bits - 2**32, bits).to(torch.int32)


def test_each_of_32_objects_has_its_bit(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit 31 is the sign; in what rays meet, in masks and in shadows."""
    from viewslots.scenes.tabletop.light_cuda import lit_by_lamps_cuda
    from viewslots.scenes.tabletop.meet_cuda import meet_objects_cuda

    stage, cameras = on_stage([a_crowd()], 32)
    rays = aimed(stage, torch.arange(640) % 32)
    stage, rays, cameras = moved(stage, device), moved(rays, device), moved(cameras, device)
    *found, bits = meet_objects_cuda(stage, rays)
    assert_same(tuple(found), meet_objects(stage, rays))
    assert torch.equal(bits, all_met(stage, rays))
    assert all(bool(((bits >> slot) & 1).any()) for slot in range(32))

    random = torch.Generator().manual_seed(2)
    x, y = torch.rand(2, 2000, generator=random) * 0.6 - 0.3
    row, up = torch.zeros(2000, dtype=torch.long), Vec(*torch.tensor([[0.0], [0.0], [1.0]]).expand(3, 2000))
    place = Places(torch.arange(2000), row)
    points = moved(Points(row, Vec(x, y, torch.zeros(2000)), up, up, row, place), device)
    coat, dark = lighting.coat_of(stage, points), points.normal.map(torch.zeros_like)
    expected = lighting.lit_by_lamps(stage, points, coat, dark, shadows=True)
    assert bool((expected[1] > 0).any(1).all())
    assert_same(lit_by_lamps_cuda(stage, points, coat, dark, True), expected)

    shot = Shot(cameras, Window(20, 24, 0, 20))
    plain = exposing.meet_samples(stage, shot, film.cells(4))
    use_kernels(monkeypatch, True)
    assert bool(plain[2].any((0, 2, 3)).all())
    assert_same(exposing.meet_samples(stage, shot, film.cells(4)), plain)


def test_rays_meet_table_and_room_at_the_same_bits(device: str) -> None:
    from viewslots.scenes.tabletop.meet_cuda import meet_surroundings_cuda

    stage, _ = some_stage()
    rays = random_rays(stage, 30_000 if ON_GPU else 3000)
    below = replace(rays, origin=replace(rays.origin, z=rays.origin.z - 0.4))
    for some in (rays, below, towards_edges(stage, 3000)):
        on_device = moved(stage, device), moved(some, device)
        assert_same(meet_surroundings_cuda(*on_device), meet_surroundings(*on_device))


def towards_edges(stage: Stage, count: int) -> Rays:
    """From outside the table, level or steep, to its edge and past it."""
    random = torch.Generator().manual_seed(4)
    row = torch.arange(count) * stage.rows // count
    start = torch.randn(3, count, generator=random)
    start[:2] *= 1.5 / start[:2].norm(dim=0)
    start[2] = start[2] * 0.3 - 0.03
    target = torch.stack([start[0] * 0.2, start[1] * 0.2, torch.rand(count, generator=random) * 0.09 - 0.07])
    return Rays(row, Vec(*start), Vec(*(target - start)).unit())


def test_rays_towards_edges_tell_hung_cloths(device: str) -> None:
    """That is, the rays above do: all down a hung cloth, and the underside of that table."""
    stage, _ = some_stage()
    rays = towards_edges(stage, 3000)
    distance, normal, finish = meet_surroundings(stage, rays)
    finish = finish - stage.around.finish[rays.row]
    z, side = rays.at(distance).z, normal.z == 0
    on_edge = side & (z < -1e-4) & (z > -0.0499) & ((finish == TABLE) | (finish == CLOTH))
    for row, wears in enumerate((CLOTH, CLOTH, TABLE, TABLE)):
        here = on_edge & (rays.row == row)
        assert set(finish[here].tolist()) == {wears}
        heights = torch.histc(z[here], 10, -0.05, 0.0)
        assert bool((heights > 3).all())
        assert bool(((normal.z < 0) & (finish == TABLE) & (rays.row == row)).any())


def test_rays_of_cameras_are_the_same_bits(device: str) -> None:
    from viewslots.scenes.tabletop.meet_cuda import camera_rays_cuda

    _, cameras = some_stage()
    cameras, window, places = moved(cameras, device), Window(20, 24, 8, 16), film.sub_pixels(16)
    shot = Shot(cameras, window)
    numbers = torch.arange(3, 3 * 16 * shot.pixels, 5, device=device)
    within = torch.tensor(places, device=device).T.contiguous()
    found = camera_rays_cuda(cameras.table, cameras.row, numbers, within, window.padded, (8 - 1 - 10.0, -1 - 12.0))
    assert_same(found, shot.samples(numbers, places))


def test_every_finish_is_the_same(device: str) -> None:
    """All patterns, metal or not, over several of their periods."""
    from viewslots.scenes.tabletop.coat_cuda import coat_cuda

    stage, _ = some_stage()
    each = 5000 if ON_GPU else 250
    finish = torch.arange(len(stage.finishes.pattern)).repeat_interleave(each)
    kinds = [
        (PATTERNS[p], m) for p, m in zip(stage.finishes.pattern.tolist(), stage.finishes.metal.tolist(), strict=True)
    ]
    assert set(kinds) == set(FINISHES)
    random = torch.Generator().manual_seed(3)
    place, normal, viewer = (Vec(*torch.randn(3, len(finish), generator=random)) for _ in range(3))
    row = torch.zeros_like(finish)
    points = Points(
        row, place.scaled(torch.full_like(place.x, 0.1)), normal.unit(), viewer.unit(), finish, Places(row, row)
    )
    stage, points = moved(stage, device), moved(points, device)
    expected = lighting.coat_of(stage, points, 0.3)
    for number, (pattern, _) in enumerate(kinds):
        shades = expected.color.x[finish.to(device) == number]
        first, second = stage.finishes.first.x[number], stage.finishes.second.x[number]
        share = (shades - first) / (second - first) if first != second else shades * 0
        assert pattern == "plain" or first == second or (share.min() < 0.25 and share.max() > 0.75), pattern
    assert_same(coat_cuda(stage, points, 0.3), expected)


@pytest.fixture
def asked(device: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[Any, ...]]]:
    """What the light of a picture is asked for: of the background, then of objects."""
    calls: dict[str, list[tuple[Any, ...]]] = {}
    for name in ("bounced", "lit_by_lamps"):
        plain = getattr(lighting, name)

        def watched(*args: Any, name: str = name, plain: Callable[..., Any] = plain, **kinds: Any) -> Any:
            calls.setdefault(name, []).append((*args, *kinds.values()))
            return plain(*args, **kinds)

        monkeypatch.setattr(lighting, name, watched)
    stage, cameras = some_stage()
    expose(stage, cameras, Window(20, 24, 0, 20), 16)
    return {name: calls[name][:2] for name in calls}


@pytest.mark.parametrize("of_objects", [0, 1])
def test_points_have_the_same_coats(device: str, asked: dict[str, Any], of_objects: int) -> None:
    from viewslots.scenes.tabletop.coat_cuda import coat_cuda

    stage, points, *_ = asked["bounced"][of_objects]
    stage, points = moved(stage, device), moved(points, device)
    for least in (0.0, 0.3):
        assert_same(coat_cuda(stage, points, least), lighting.coat_of(stage, points, least))


@pytest.mark.parametrize("of_objects", [0, 1])
def test_bounced_light_is_the_same(device: str, asked: dict[str, Any], of_objects: int) -> None:
    from viewslots.scenes.tabletop.light_cuda import bounced_cuda

    stage, points, coat = asked["bounced"][of_objects]
    assert {0, 1, 2, 3} == set(points.row.tolist())
    assert {False, True} == set(coat.metal.tolist()) or not of_objects
    stage, (points, coat) = moved(stage, device), a_few(points, coat, device)
    expected = lighting.bounced(stage, points, coat)
    assert stacked(expected).mean() > 0.01
    assert_same(bounced_cuda(stage, points, coat), expected)


@pytest.mark.parametrize("of_objects", [0, 1])
def test_light_and_shadows_of_lamps_are_the_same(device: str, asked: dict[str, Any], of_objects: int) -> None:
    from viewslots.scenes.tabletop.light_cuda import lit_by_lamps_cuda

    stage, points, coat, light, shadows = asked["lit_by_lamps"][of_objects]
    assert shadows == (not of_objects)
    stage, (points, coat) = moved(stage, device), a_few(points, coat, device)
    light = Vec(*torch.rand(3, len(points.row), generator=torch.Generator().manual_seed(0)).to(device))
    expected = lighting.lit_by_lamps(stage, points, coat, light, shadows)
    assert of_objects or (expected[1] > 0).float().mean() > 0.01
    assert_same(lit_by_lamps_cuda(stage, points, coat, light, shadows), expected)


def test_lamps_are_seen_alike(device: str) -> None:
    from viewslots.scenes.tabletop.light_cuda import lamps_ahead_cuda

    stage, _ = some_stage()
    rays = random_rays(stage, 3000)
    lamp = stage.lamps.take(rays.row * stage.lamp_slots + torch.arange(3000) % (rays.row + 1))
    aside = lamp.right.scaled(rays.origin.x) + lamp.up.scaled(rays.origin.y)
    rays = moved(replace(rays, heading=(lamp.center + aside - rays.origin).unit()), device)
    stage, nearest = moved(stage, device), torch.full((3000,), torch.inf, device=device)
    found = lamps_ahead_cuda(stage, rays, nearest)
    assert (found[0] < torch.inf).float().mean() > 0.3
    assert len(stacked(found[1]).unique(dim=1).T) == 1 + 10
    assert_same(found, lighting.lamps_ahead(stage, rays, nearest))


def test_nothing_asked_nothing_answered(device: str) -> None:
    from viewslots.scenes.tabletop import coat_cuda, light_cuda, meet_cuda

    stage, _ = some_stage()
    none = torch.zeros(0, dtype=torch.long)
    stage, rays = moved(stage, device), moved(random_rays(stage, 3).take(none), device)
    assert [len(part) for part in meet_cuda.meet_objects_cuda(stage, rays)] == [0, 0, 0]
    assert len(meet_cuda.meet_surroundings_cuda(stage, rays)[0]) == 0
    place = Places(rays.row, rays.row)
    points = Points(rays.row, rays.origin, rays.origin, rays.origin, rays.row, place)
    coat = coat_cuda.coat_cuda(stage, points, 0.0)
    assert isinstance(coat, Coat)
    assert len(light_cuda.bounced_cuda(stage, points, coat).x) == 0
    assert light_cuda.lit_by_lamps_cuda(stage, points, coat, rays.origin, True)[1].shape == (stage.slots, 0)


def test_a_picture_is_the_same_without_kernels(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, cameras = some_stage()
    picture = (moved(stage, device), moved(cameras, device), Window(20, 24, *((0, 20) if ON_GPU else (9, 12))), 4)
    expected = expose(*picture)
    use_kernels(monkeypatch, True)
    found = expose(*picture)
    for field in fields(found):
        assert_same(getattr(found, field.name), getattr(expected, field.name))


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
def test_parts_of_a_gpu_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bands of lines and groups of views, prepared and fetched while others are traced."""
    scenes = some_scenes()
    whole, linear = render_tables(scenes, 6, "cuda")
    for samples in (26 * 22 * 16, 26 * 9 * 16):
        monkeypatch.setattr(exposing, "most_at_once", lambda *_, samples=samples: samples)
        parts, light = render_tables(scenes, 6, "cuda")
        assert np.array_equal(light, linear)
        for key in ("image", "segment", "overlap", "shapes", "shadows"):
            assert np.array_equal(getattr(parts, key), getattr(whole, key)), key
