"""Occlusion of probable shapes, against the paper's formula for all binary shapes and against stick-breaking."""

import itertools

import pytest
import torch
from small_model import generator
from torch import Tensor

from viewslots.methods.ocloc.compositing import perceived_shapes
from viewslots.methods.ocloc.generation import binary_logit
from viewslots.methods.umbra.image_model import LEAST_COVER, expected_shapes

torch.set_num_threads(1)

B, M, H, W, SOFTNESS = 2, 2, 3, 2, 0.6


def case(K: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Log-odds of shapes and presences, and orders, in double precision."""
    sizes = ((B, M, K, H, W), (B, K), (B, M, K))
    return tuple(2 * torch.randn(size, generator=generator(seed + n)).double() for n, size in enumerate(sizes))  # type: ignore[return-value]


def covers(logit_shp: Tensor, logit_prs: Tensor) -> Tensor:
    """c: how probably each object is there and covers the pixel."""
    return logit_shp.sigmoid() * logit_prs.sigmoid()[:, None, :, None, None]


def averaged(cover: Tensor, order: Tensor, softness: float) -> Tensor:
    """The mean of the paper's s over all 2^K ways in which objects cover a pixel or do not."""
    K, total = cover.shape[2], torch.zeros(())
    sure = torch.full((len(cover), K), torch.inf).double()
    for there in itertools.product([False, True], repeat=K):
        covered = torch.tensor(there)[:, None, None].expand_as(cover)
        chance = torch.where(covered, cover, 1 - cover).prod(2, keepdim=True)
        total = total + chance * perceived_shapes(binary_logit(covered).double(), sure, order, softness)
    return total


@pytest.mark.parametrize("K", [1, 2])
def test_one_or_two_objects_are_exact(K: int) -> None:
    logit_shp, logit_prs, order = case(K)
    found = expected_shapes(logit_shp, logit_prs, order, SOFTNESS)
    torch.testing.assert_close(found, averaged(covers(logit_shp, logit_prs), order, SOFTNESS), rtol=1e-12, atol=1e-14)
    if K == 2:
        assert (found[:, :, 1:] < covers(logit_shp, logit_prs) - 1e-3).any()  # something is hidden


@pytest.mark.parametrize("K", [3, 4])
def test_more_objects_share_what_is_covered(K: int) -> None:
    """The background is exact, all sum to one, and shares are near the exact ones, though not equal to them."""
    logit_shp, logit_prs, order = case(K)
    found, cover = expected_shapes(logit_shp, logit_prs, order, SOFTNESS), covers(logit_shp, logit_prs)
    exact = averaged(cover, order, SOFTNESS)
    torch.testing.assert_close(found[:, :, 0], (1 - cover).prod(2), rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(found.sum(2), torch.ones(B, M, H, W).double(), rtol=1e-12, atol=0)
    assert (found >= 0).all()
    torch.testing.assert_close(found, exact, rtol=0, atol=0.05)


def test_many_objects_at_one_place_sum_to_one() -> None:
    """Copies of one object have one order; 2^(1 - K) of each is seen before shares are scaled."""
    K = 20
    shape, prs, order = torch.full((1, 1, K, 1, 1), 5.0), torch.full((1, K), torch.inf), torch.zeros(1, 1, K)
    found = expected_shapes(shape, prs, order, SOFTNESS)
    torch.testing.assert_close(found.sum(2), torch.ones(1, 1, 1, 1))


@pytest.mark.parametrize("K", [2, 3, 4])
def test_orders_far_apart_are_layers_of_glass(K: int) -> None:
    """From near to far, each takes its share of the light that is left."""
    logit_shp, logit_prs, _ = case(K)
    order = 100.0 * torch.stack([torch.randperm(K, generator=generator(n)) for n in range(B * M)]).view(B, M, K)
    found, cover = expected_shapes(logit_shp, logit_prs, order.double(), SOFTNESS), covers(logit_shp, logit_prs)
    for b, m in itertools.product(range(B), range(M)):
        light = torch.ones(H, W).double()
        for k in order[b, m].argsort(descending=True).tolist():
            torch.testing.assert_close(found[b, m, k + 1], light * cover[b, m, k])
            light = light * (1 - cover[b, m, k])
        torch.testing.assert_close(found[b, m, 0], light)


@pytest.mark.parametrize("K", [2, 4])
def test_what_is_absent_leaves_the_others_as_they_are(K: int) -> None:
    logit_shp, logit_prs, order = case(K)
    logit_prs[:, 1] = -torch.inf
    rest = [k for k in range(K) if k != 1]
    found = expected_shapes(logit_shp, logit_prs, order, SOFTNESS)
    alone = expected_shapes(logit_shp[:, :, rest], logit_prs[:, rest], order[:, :, rest], SOFTNESS)
    torch.testing.assert_close(found[:, :, [0] + [k + 1 for k in rest]], alone, rtol=1e-12, atol=1e-14)
    assert not found[:, :, 2].any()


def test_binary_shapes_are_the_paper_s() -> None:
    """Two objects, every pixel one of the four ways in which they can cover it."""
    there = torch.tensor([[False, False, True, True], [False, True, False, True]])[None, None, :, None]
    _, _, order = case(2)
    shapes, sure = binary_logit(there).double(), torch.full((1, 2), torch.inf).double()
    found = expected_shapes(shapes, sure, order[:1, :1], SOFTNESS)
    torch.testing.assert_close(found, perceived_shapes(shapes, sure, order[:1, :1], SOFTNESS))
    first, second = order[0, 0].div(SOFTNESS).softmax(0).tolist()
    expected = torch.tensor([[1, 0, 0, 0], [0, 0, 1, first], [0, 1, 0, second]]).double()
    torch.testing.assert_close(found[0, 0, :, 0], expected)
    assert 0.01 < first < 0.99


@pytest.mark.parametrize("K", [1, 2, 3])
def test_gradients_are_those_of_differences(K: int) -> None:
    given = [value[:1, :1, ..., :1, :1] if value.dim() == 5 else value for value in case(K)]
    inputs = (given[0], given[1][:1], given[2][:1, :1], torch.tensor(SOFTNESS).double())
    assert torch.autograd.gradcheck(expected_shapes, [value.clone().requires_grad_() for value in inputs])


def test_gradients_stay_finite_where_log_odds_are_not() -> None:
    logit_shp, logit_prs, order = (value.float() for value in case(3))
    logit_shp[0, 0, :, 0, 0] = torch.tensor([torch.inf, -torch.inf, torch.inf])
    logit_shp[0, 0, :, 1, 0] = -torch.inf
    logit_shp[0, 0, 0, 2, 0] = torch.inf
    logit_prs[1] = torch.tensor([torch.inf, -torch.inf, -torch.inf])
    inputs = [value.clone().requires_grad_() for value in (logit_shp, logit_prs, order)]
    found = expected_shapes(*inputs, SOFTNESS)
    torch.testing.assert_close(found.sum(2), torch.ones(B, M, H, W))
    (found * torch.randn(found.shape, generator=generator(8))).sum().backward()
    for value in inputs:
        assert value.grad.isfinite().all()  # type: ignore[union-attr]
    assert inputs[0].grad[0, 0, 1, 2, 0] != 0  # type: ignore[index]  # what is behind it still matters
    assert inputs[0].grad[1, :, 0].all()  # type: ignore[index]
    assert not inputs[0].grad[1, :, 1:].any()  # type: ignore[index]


def test_nothing_happens_where_hardly_anything_is_covered() -> None:
    """Float32 on both sides of LEAST_COVER, as near to it as numbers are: against exact means in double precision."""
    cover = LEAST_COVER * torch.linspace(0.99, 1.02, 400)[:, None] * torch.tensor([0.5, 0.3, 0.2])
    logit = cover.double().logit().float().t()[None, None, :, None]
    prs, order = torch.full((1, 3), torch.inf), torch.tensor([[[0.3, -0.2, 0.1]]])
    found = expected_shapes(logit, prs, order, SOFTNESS)[0, 0, :, 0].double()
    exact = averaged(covers(logit.double(), prs.double()), order.double(), SOFTNESS)[0, 0, :, 0]
    seen = found[1:].sum(0)
    assert (seen < LEAST_COVER).any()
    assert (seen > LEAST_COVER).any()
    torch.testing.assert_close(found, exact, rtol=2e-4, atol=0)  # 1 - s_0 is rounded at 6e-8, of 1e-3
    torch.testing.assert_close(found, exact, rtol=0, atol=2e-7)
    steps = (found[:, 1:] - found[:, :-1]).abs()
    assert float(steps.max()) < 5e-7  # 400 steps over 3e-5, and the rounding


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_widened(dtype: torch.dtype) -> None:
    """Inside autocast too."""
    logit_shp, logit_prs, order = (value.to(dtype) for value in case(3))
    with torch.autocast("cpu", torch.bfloat16):
        found = expected_shapes(logit_shp, logit_prs, order, SOFTNESS)
    assert found.dtype == torch.float32
    wide = expected_shapes(logit_shp.double(), logit_prs.double(), order.double(), SOFTNESS)
    torch.testing.assert_close(found.double(), wide, rtol=1e-5, atol=1e-6)
