"""Ways of the camera, against numpy and by hand."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from viewslots.errors import UserError
from viewslots.viewpoints.paths import axes_of, interpolate, loop, principal_axes, sample, tour, walk
from viewslots.viewpoints.scene import InferredScene


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_interpolation_is_linear_with_both_ends() -> None:
    a, b = torch.tensor([0.0, 2.0]), torch.tensor([4.0, -2.0])
    expected = torch.tensor([[0.0, 2.0], [1.0, 1.0], [2.0, 0.0], [3.0, -1.0], [4.0, -2.0]])
    torch.testing.assert_close(interpolate(a, b, 5), expected)
    assert torch.equal(interpolate(a, b, 1), a[None])


def test_a_loop_passes_all_views_and_has_no_seam() -> None:
    views = normal(4, 3)
    path = loop(views, 12)
    torch.testing.assert_close(path[::3], views)
    torch.testing.assert_close(path[10], views[3] * 2 / 3 + views[0] / 3)
    torch.testing.assert_close(path[11], views[3] / 3 + views[0] * 2 / 3)
    steps = torch.cat([path, path[:1]]).diff(dim=0).norm(dim=1)
    sides = torch.cat([views, views[:1]]).diff(dim=0).norm(dim=1)
    torch.testing.assert_close(steps, sides.repeat_interleave(3) / 3)


@pytest.mark.parametrize(("views", "count"), [(1, 5), (7, 3), (3, 100), (5, 5)])
def test_a_loop_of_any_length_stays_on_the_polygon(views: int, count: int) -> None:
    corners = normal(views, 2, seed=views)
    path = loop(corners, count).numpy()
    grid = np.arange(count) * views / count
    closed = np.concatenate([corners.numpy(), corners[:1].numpy()])
    expected = np.stack([np.interp(grid, np.arange(views + 1), closed[:, d]) for d in range(2)], 1)
    np.testing.assert_allclose(path, expected, atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_the_tour_is_the_shortest(seed: int) -> None:
    views = torch.randn(6, 3, generator=torch.Generator().manual_seed(seed))

    def length(order: list[int]) -> float:
        return sum(float((views[a] - views[b]).norm()) for a, b in zip(order, [*order[1:], order[0]], strict=True))

    found = tour(views)
    assert found[0] == 0
    assert sorted(found) == list(range(6))
    shortest = min(length([0, *rest]) for rest in itertools.permutations(range(1, 6)))
    assert length(found) == pytest.approx(shortest)


def test_a_long_tour_goes_to_the_nearest() -> None:
    order = torch.tensor([0, 5, 2, 8, 1, 7, 3, 6, 4])
    line = order[:, None].float()
    assert order[tour(line)].tolist() == list(range(9))
    assert tour(torch.zeros(1, 2)) == [0]


@pytest.mark.parametrize("shape", [(200, 4), (3, 4), (2, 5), (4, 4)])
def test_principal_axes_against_numpy(shape: tuple[int, int]) -> None:
    views = normal(*shape) * torch.arange(1.0, shape[1] + 1) + 3
    made = principal_axes(views)
    centred = views.double().numpy() - views.double().numpy().mean(0)
    _, values, axes = np.linalg.svd(centred, full_matrices=False)
    known = min(shape[0] - 1, shape[1])
    np.testing.assert_allclose(made.spreads[:known].numpy(), values[:known] / np.sqrt(shape[0] - 1), rtol=1e-4)
    np.testing.assert_allclose(np.abs((made.axes[:known].numpy() * axes[:known]).sum(1)), 1, atol=1e-4)
    assert made.spreads[known:].abs().max() < 1e-5 if known < shape[1] else True
    np.testing.assert_allclose((made.axes @ made.axes.T).numpy(), np.eye(shape[1]), atol=1e-5)
    np.testing.assert_allclose(made.mean.numpy(), views.numpy().mean(0), atol=1e-5)
    largest = made.axes.gather(1, made.axes.abs().argmax(1, keepdim=True))
    assert (largest > 0).all()


def test_samples_follow_the_prior_or_the_views(scene: InferredScene) -> None:
    free = sample(scene, 20_000, seed=1)
    np.testing.assert_allclose(free.mean(0).numpy(), 0, atol=0.03)
    np.testing.assert_allclose(np.cov(free.numpy().T), np.eye(3), atol=0.04)
    wide = replace(scene, views=normal(6, 3) * torch.tensor([1.0, 3.0, 0.5]) + torch.tensor([5.0, 0.0, -2.0]))
    near = sample(wide, 20_000, seed=1, around="views").numpy()
    np.testing.assert_allclose(near.mean(0), wide.views.numpy().mean(0), atol=0.1)
    np.testing.assert_allclose(np.cov(near.T), np.cov(wide.views.numpy().T), rtol=0.05, atol=0.1)


def test_samples_depend_on_the_seed_alone(scene: InferredScene) -> None:
    for around in ("prior", "views"):
        first, again, other = (sample(scene, 4, seed, around) for seed in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        torch.testing.assert_close(sample(scene, 2, 1, around), first[:2])


def test_a_walk_goes_through_the_middle(scene: InferredScene) -> None:
    axes = principal_axes(scene.views)
    path = walk(scene, 1, reach=2.0, count=5)
    torch.testing.assert_close(path[2], scene.views.mean(0))
    along = (path - axes.mean) @ axes.axes.T
    torch.testing.assert_close(along[:, 1], torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0]) * axes.spreads[1])
    assert along[:, [0, 2]].abs().max() < 1e-6


def test_one_view_walks_as_the_prior_spreads(scene: InferredScene) -> None:
    lonely = replace(scene, views=scene.views[:1])
    path = walk(lonely, 2, reach=1.5, count=3)
    torch.testing.assert_close(path - scene.views[0], torch.tensor([[0, 0, -1.5], [0, 0, 0], [0, 0, 1.5]]))
    assert axes_of(scene).spreads[2] < 1e-6  # three views span a plane


def test_axes_of_many_scenes_may_be_given(scene: InferredScene) -> None:
    axes = principal_axes(normal(50, 3, seed=4))
    path = walk(scene, 0, 1.0, 2, axes)
    torch.testing.assert_close(path[1] - path[0], 2 * axes.spreads[0] * axes.axes[0])


def test_one_clear_line_for_bad_ways(scene: InferredScene) -> None:
    lonely = replace(scene, views=scene.views[:1])
    with pytest.raises(UserError, match="at least one viewpoint"):
        interpolate(scene.views[0], scene.views[1], 0)
    with pytest.raises(UserError, match="at least one viewpoint"):
        loop(scene.views, 0)
    with pytest.raises(UserError, match="no axis 3"):
        walk(scene, 3, 1.0, 2)
    with pytest.raises(UserError, match="two viewpoints"):
        principal_axes(scene.views[:1])
    with pytest.raises(UserError, match="take the prior"):
        sample(lonely, 2, 0, "views")
