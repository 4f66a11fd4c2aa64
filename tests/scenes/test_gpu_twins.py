"""The CUDA kernels against the plain code that they stand in for. Only where there is a GPU."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from twins import moved

from viewslots.scenes.clevr import geometry, render, shading
from viewslots.scenes.clevr.family import CLEVR_M, ClevrWorld
from viewslots.scenes.clevr.geometry import Bodies, intersect
from viewslots.scenes.clevr.render import render_views
from viewslots.scenes.clevr.spec import Scene, SceneObject
from viewslots.scenes.vectors import Vec

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

SCENES = {
    "plane": lambda: replace(CLEVR_M["clevr-m1"].sample(0, "test2", 3), cameras=((7.4, -6.5, 5.3),)),
    "sweep": lambda: cropped(ClevrWorld().sample(0, "train", 2)),
}


def cropped(scene: Scene) -> Scene:
    return replace(scene, picture=replace(scene.picture, up=60, down=110, left=70, right=140))


@pytest.fixture
def plain_code(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Tell both modules that there are no kernels."""

    def choose() -> None:
        for module in (geometry, shading):
            monkeypatch.setattr(module, "has_triton", lambda device: False)

    return choose


def random_rays(count: int, seed: int) -> tuple[Vec, Vec]:
    """From around and within the scene, in all directions."""
    random = np.random.default_rng(seed)
    origin = random.uniform((-4, -4, 0), (4, 4, 3), (count, 3))
    target = random.uniform((-3, -3, 0), (3, 3, 1.4), (count, 3))
    direction = (target - origin) / np.linalg.norm(target - origin, axis=-1, keepdims=True)
    return Vec.of(origin.tolist(), "cpu"), Vec.of(direction.tolist(), "cpu")


def test_rays_meet_bodies_at_the_same_bits(plain_code: Callable[[], None]) -> None:
    from viewslots.scenes.clevr.geometry_cuda import intersect_cuda

    kinds = ("sphere", "cube", "cylinder")
    crowd = [
        SceneObject(
            kinds[k % 3], (0.7, 0.35)[k % 2], (1.0, 1.0, 1.0), "rubber", (k % 4 - 1.5, k // 4 - 1.0, 0.5), 0.7 * k
        )
        for k in range(9)
    ]
    bodies = Bodies.of([Scene(tuple(crowd[:n]), ((7.0, 7.0, 5.0),)) for n in (9, 3, 6)], 10, "cpu")
    origin, direction = random_rays(60_000, 1)
    view = torch.arange(60_000) % 3
    plain_code()
    for skip in (None, torch.arange(60_000) % 11 - 1):
        on_cpu = intersect(bodies, view, origin, direction, skip)
        moved_rays = [moved(part, "cuda") for part in (bodies, view, origin, direction, skip)]
        expected, found = intersect(*moved_rays), intersect_cuda(*moved_rays)
        # Roots and quotients are rounded alike and nothing is fused.
        assert torch.equal(found, expected)
        hit = on_cpu < torch.inf
        assert hit.float().mean() > 0.02
        assert torch.equal(found.cpu() < torch.inf, hit)
        assert (found.cpu()[hit] - on_cpu[hit]).abs().max() < 1e-5


def test_rays_broadcast_as_in_the_plain_code(plain_code: Callable[[], None]) -> None:
    from viewslots.scenes.clevr.geometry_cuda import intersect_cuda

    scenes = [CLEVR_M["clevr-m1"].sample(1, "train", index) for index in range(2)]
    bodies = Bodies.of(scenes, 6, "cpu")
    origin, direction = random_rays(2 * 5 * 33, 2)
    origin, direction = origin[:2].map(lambda x: x[:, None, None]), direction.map(lambda x: x.reshape(2, 5, 33))
    view = torch.tensor([1, 0])[:, None, None]
    plain_code()
    expected = intersect(bodies, view, origin, direction)
    found = intersect_cuda(*(moved(part, "cuda") for part in (bodies, view, origin, direction)), None)
    assert found.shape == expected.shape == (2, 5, 33, 6)
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-6, atol=1e-6)


def captured(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[Any, ...]]:
    """What the renderer asks of `outgoing` and `onto_ground` in a picture."""
    asked = {}
    for name in ("outgoing", "onto_ground"):
        plain = getattr(render, name)

        def watched(*args: Any, name: str = name, plain: Callable[..., Vec] = plain) -> Vec:
            asked[name] = args
            return plain(*args)

        monkeypatch.setattr(render, name, watched)
    render_views([scene], len(scene.objects))
    return asked


def stacked(light: Vec) -> torch.Tensor:
    return torch.stack([light.x, light.y, light.z]).cpu()


@pytest.mark.parametrize("bounces", [0, 1, 2, 4])
@pytest.mark.parametrize("backdrop", SCENES)
def test_paths_bring_the_same_light(
    backdrop: str, bounces: int, plain_code: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Path by path: exponentials and logarithms differ in the last bit, so a few paths go another way."""
    from viewslots.scenes.clevr.shading_cuda import trace_cuda

    asked = captured(SCENES[backdrop](), monkeypatch)
    plain_code()
    for name, (stage, points, _) in asked.items():
        chosen = torch.randperm(len(points.view), generator=torch.Generator().manual_seed(0))[:20_000]
        stage, points = moved(stage, "cuda"), moved(points[chosen], "cuda")
        if name == "outgoing":
            expected, found = shading.outgoing(stage, points, bounces), trace_cuda(stage, points, bounces)
        else:
            heading, _ = shading.towards_bodies(stage, points)
            expected = shading.incoming(stage, points, heading, ~points.blurred, points.blurred, bounces)
            found = trace_cuda(stage, points, bounces, heading)
        expected, found = stacked(expected), stacked(found)
        assert expected.mean() > 0
        close = (found - expected).abs() <= 1e-4 * (expected.abs() + 1e-3)
        assert close.float().mean() > 0.999
        assert (found.mean() - expected.mean()).abs() < 1e-3 * expected.mean()


def test_no_points_no_light() -> None:
    from viewslots.scenes.clevr.shading_cuda import trace_cuda

    scene = SCENES["plane"]()
    stage = render.Stage.of([scene], len(scene.objects), "cuda")
    empty = torch.zeros(0, device="cuda")
    index = torch.zeros(0, dtype=torch.long, device="cuda")
    vector = Vec(empty, empty, empty)
    points = render.Points(index, index, vector, vector, vector, index, empty, index.bool())
    assert stacked(trace_cuda(stage, points, 2)).shape == (3, 0)


def assert_close_pictures(one: Any, two: Any) -> None:
    for key in ("image", "segment", "overlap", "shapes", "shadows"):
        here, there = (getattr(part, key).astype(int) for part in (one, two))
        assert (np.abs(here - there) <= 1).mean() >= 0.999, key
    np.testing.assert_allclose(one.depth_order, two.depth_order, rtol=1e-5)
    np.testing.assert_array_equal(one.camera, two.camera)
    np.testing.assert_array_equal(one.num_objects, two.num_objects)


@pytest.mark.parametrize("backdrop", SCENES)
def test_a_picture_is_the_same_on_both_devices(backdrop: str) -> None:
    scene = SCENES[backdrop]()
    assert_close_pictures(*(render_views([scene], 10, device)[0] for device in ("cpu", "cuda")))


def test_a_picture_is_the_same_without_kernels(plain_code: Callable[[], None]) -> None:
    scene = SCENES["plane"]()
    with_kernels = render_views([scene], 10, "cuda")[0]
    plain_code()
    assert_close_pictures(with_kernels, render_views([scene], 10, "cuda")[0])


def test_pixels_on_the_gpu_do_not_depend_on_the_batch() -> None:
    scenes = [replace(s, cameras=s.cameras[:3]) for s in (CLEVR_M["clevr-m3"].sample(0, "train", k) for k in range(4))]
    together = render_views(scenes, 6, "cuda")[0]
    for index, scene in enumerate(scenes):
        alone = render_views([scene], 6, "cuda")[0]
        for key in together.keys():  # noqa: SIM118
            np.testing.assert_array_equal(getattr(alone, key)[0], getattr(together, key)[index], err_msg=key)
