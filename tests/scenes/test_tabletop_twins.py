"""The kernels of tabletop against the plain code, on one device, bit for bit.

On a GPU, or with Triton's interpreter on a CPU: TRITON_INTERPRET=1 pytest tests/scenes/test_tabletop_twins.py
"""

import importlib.util
import os
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from twins import moved

from viewslots.scenes import film
from viewslots.scenes.geometry import Vec
from viewslots.scenes.tabletop import expose as exposing
from viewslots.scenes.tabletop import light as lighting
from viewslots.scenes.tabletop import meet as meeting
from viewslots.scenes.tabletop.expose import Cameras, Shot, Window, expose, render_tables
from viewslots.scenes.tabletop.family import TABLETOP
from viewslots.scenes.tabletop.light import Coat, Points
from viewslots.scenes.tabletop.meet import Rays, blocked_by, meet_objects, meet_surroundings
from viewslots.scenes.tabletop.stage import Rows, Stage
from viewslots.scenes.tabletop.table_scene import TableScene

ON_GPU = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton") is not None
pytestmark = pytest.mark.skipif(not (ON_GPU or INTERPRETED), reason="neither a GPU nor Triton's interpreter")


def use_kernels(monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    for module in (exposing, lighting, meeting):
        monkeypatch.setattr(module, "has_kernel", lambda device: answer)


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
    """With rings, solids and turned parts."""
    world = replace(TABLETOP["tabletop"], views=1, height=20, width=24)
    every = [world.sample(5, "train", index) for index in range(40)]
    return [
        next(scene for scene in every if any(thing.kind in kinds for thing in scene.objects[:2]))
        for kinds in (("mug", "teapot", "ring"), ("box", "house", "brick"), ("lamp", "vase", "bishop"))
    ]


def some_stage() -> tuple[Stage, Cameras]:
    scenes = some_scenes()
    views = [(row, 0, scene) for row, scene in enumerate(scenes)]
    return Stage.of(scenes, 6, "cpu"), Cameras.of(views, "cpu")


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
    random = torch.Generator().manual_seed(1)
    row = torch.arange(count) * stage.rows // count
    number = row * stage.slots + torch.randint(0, 2, (count,), generator=random)
    places = torch.rand(3, count, generator=random) - 0.5
    start = Vec(*(places * torch.tensor([[1.2], [1.2], [1.0]]) + torch.tensor([[0.0], [0.0], [0.1]])))
    aside = Vec(*(torch.randn(3, count, generator=random) * 0.04))
    return Rays(row, start, (meeting.taken(stage.objects.center, number) + aside - start).unit())


def test_rays_meet_objects_at_the_same_bits(device: str) -> None:
    from viewslots.scenes.tabletop.meet_cuda import meet_objects_cuda

    stage, _ = some_stage()
    stage, rays = moved(stage, device), moved(random_rays(stage, 30_000 if ON_GPU else 1500), device)
    distance, surface, bits = meet_objects_cuda(stage, rays)
    assert_same((distance, surface), meet_objects(stage, rays))
    assert 0.3 < (distance < torch.inf).float().mean() < 0.95
    assert set(stage.parts.shape[surface[surface >= 0] >> 32].tolist()) == {0, 1, 2}
    slot, ray = blocked_by(stage, rays, torch.full_like(distance, torch.inf))
    expected = torch.zeros_like(bits).index_add(0, ray, (torch.ones_like(slot) << slot).to(bits.dtype))
    assert torch.equal(bits, expected)


def test_rays_meet_table_and_room_at_the_same_bits(device: str) -> None:
    from viewslots.scenes.tabletop.meet_cuda import meet_surroundings_cuda

    stage, _ = some_stage()
    rays = random_rays(stage, 30_000 if ON_GPU else 3000)
    below = replace(rays, origin=replace(rays.origin, z=rays.origin.z - 0.4))
    for some in (rays, below):
        on_device = moved(stage, device), moved(some, device)
        assert_same(meet_surroundings_cuda(*on_device), meet_surroundings(*on_device))


def test_rays_of_cameras_are_the_same_bits(device: str) -> None:
    from viewslots.scenes.tabletop.meet_cuda import camera_rays_cuda

    _, cameras = some_stage()
    cameras, window, places = moved(cameras, device), Window(20, 24, 8, 16), film.sub_pixels(16)
    shot = Shot(cameras, window)
    numbers = torch.arange(3, 3 * 16 * shot.pixels, 5, device=device)
    within = torch.tensor(places, device=device).T.contiguous()
    found = camera_rays_cuda(cameras.table, cameras.row, numbers, within, window.padded, (8 - 1 - 10.0, -1 - 12.0))
    assert_same(found, shot.samples(numbers, places))


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
    lamp = stage.lamps.take(rays.row * stage.lamp_slots)
    aside = lamp.right.scaled(rays.origin.x) + lamp.up.scaled(rays.origin.y)
    rays = moved(replace(rays, heading=(lamp.center + aside - rays.origin).unit()), device)
    stage, nearest = moved(stage, device), torch.full((3000,), torch.inf, device=device)
    found = lamps_ahead_cuda(stage, rays, nearest)
    assert (found[0] < torch.inf).float().mean() > 0.3
    assert_same(found, lighting.lamps_ahead(stage, rays, nearest))


def test_nothing_asked_nothing_answered(device: str) -> None:
    from viewslots.scenes.tabletop import coat_cuda, light_cuda, meet_cuda

    stage, _ = some_stage()
    none = torch.zeros(0, dtype=torch.long)
    stage, rays = moved(stage, device), moved(random_rays(stage, 3).take(none), device)
    assert [len(part) for part in meet_cuda.meet_objects_cuda(stage, rays)] == [0, 0, 0]
    assert len(meet_cuda.meet_surroundings_cuda(stage, rays)[0]) == 0
    place = lighting.Places(rays.row, rays.row)
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
        assert all(np.array_equal(getattr(parts, key), getattr(whole, key)) for key in ("image", "shapes", "shadows"))
