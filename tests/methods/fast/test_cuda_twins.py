"""The Triton kernels of a training step against the plain code, forward and gradient.

They run on a GPU, or in Triton's interpreter on a CPU (TRITON_INTERPRET=1), where triton is installed.
"""

import os

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not (torch.cuda.is_available() or INTERPRETED):
    pytest.skip("no CUDA device", allow_module_level=True)

from viewslots.methods.fast.attention import plain_attended_mean  # noqa: E402
from viewslots.methods.fast.attention_cuda import AttendedMean  # noqa: E402
from viewslots.methods.fast.epilogue import plain_bias_relu_shuffle  # noqa: E402
from viewslots.methods.fast.epilogue_cuda import BiasReluShuffle  # noqa: E402
from viewslots.methods.fast.features import plain_add_norm  # noqa: E402
from viewslots.methods.fast.features_cuda import AddNorm  # noqa: E402
from viewslots.methods.ocloc.fast.likelihood import plain_squared_error  # noqa: E402
from viewslots.methods.ocloc.fast.likelihood_cuda import SquaredError  # noqa: E402
from viewslots.methods.ocloc.schedule import Annealing  # noqa: E402
from viewslots.methods.ocloc.variables import Decoded, Noise  # noqa: E402

DEVICE = "cpu" if INTERPRETED else "cuda"


EXACT = 1e-4 if INTERPRETED else 5e-3
"""The matrix units of a GPU read factors with 11 bits."""


def normal(*shape: int, scale: float = 1.0, asked: bool = True) -> Tensor:
    return (scale * torch.randn(shape, device=DEVICE)).requires_grad_(asked)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize(("scale", "channels"), [(1, 16), (2, 8), (4, 12)])
def test_bias_relu_shuffle(scale: int, channels: int) -> None:
    phases, bias = normal(3, scale**2 * channels, 5, 7), normal(scale**2 * channels)
    expected, found = plain_bias_relu_shuffle(phases, bias, scale), BiasReluShuffle.apply(phases, bias, scale)
    weights = torch.randn_like(expected)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad((found * weights).sum(), [phases, bias]),
        torch.autograd.grad((expected * weights).sum(), [phases, bias]),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize(("images", "places", "size"), [(3, 100, 64), (20, 64, 24)])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("full", [True, False])
def test_add_norm(images: int, places: int, size: int, affine: bool, full: bool) -> None:
    values, table = normal(images, places, size), normal(places if full else 1, size)
    weights = [normal(size), normal(size)] if affine else [None, None]
    expected, found = plain_add_norm(values, table, *weights, 1e-5), AddNorm.apply(values, table, *weights, 1e-5)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    asked = [values, table, *([*weights] if affine else [])]
    factors = torch.randn_like(expected)
    for theirs, ours in zip(
        torch.autograd.grad((expected * factors).sum(), asked),
        torch.autograd.grad((found * factors).sum(), asked),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("floor", [0.0, 0.01])
@pytest.mark.parametrize(("pixels", "slots", "size"), [(150, 8, 64), (64, 3, 24), (1030, 12, 16)])
def test_attended_mean(pixels: int, slots: int, size: int, floor: float) -> None:
    given = [normal(2, 3, pixels, size), normal(2, 3, slots, size, scale=0.3), normal(2, 3, slots)]
    expected, found = plain_attended_mean(*given, floor), AttendedMean.apply(*given, floor)
    weights = torch.randn_like(expected)
    torch.testing.assert_close(found, expected, rtol=EXACT, atol=EXACT / 10)
    for theirs, ours in zip(
        torch.autograd.grad((expected * weights).sum(), given),
        torch.autograd.grad((found * weights).sum(), given),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=10 * EXACT, atol=EXACT * float(theirs.abs().max()))


def test_a_slot_that_is_wanted_nowhere_stays_finite() -> None:
    core, projected = normal(1, 1, 70, 16), normal(1, 1, 2, 16)
    mean = AttendedMean.apply(core, projected, torch.tensor([[[0.0, -1000.0]]], device=DEVICE), 0.0)
    assert mean.isfinite().all()


@pytest.mark.parametrize(("K", "size", "spread"), [(7, (16, 16), 1.0), (3, (20, 14), 1.0), (8, (8, 8), 6.0)])
def test_squared_error(K: int, size: tuple[int, int], spread: float) -> None:
    B, M = 2, 3
    objects, background = normal(B * M * K, 4, *size, scale=spread), normal(B * M, 3, *size)
    order, centre, logit_prs = normal(B, M, K, scale=spread), normal(B, M, K, 2, scale=0.4), normal(B, K, scale=spread)
    image = torch.rand(B, M, 3, *size, device=DEVICE)
    z_shp, appearance = normal(B, M, K, *size, asked=False), normal(B, M, K, 3, *size, asked=False)
    empty = torch.empty(0)
    noise = Noise(*[empty] * 7, z_shp=z_shp, appearance=appearance)
    annealing = Annealing(temperature_shp=0.7, softness=0.6, compactness_rate=0.3, compactness_scale=0.8)
    given = [objects, background, order, centre, logit_prs]
    expected = plain_squared_error(Decoded(background, objects, order, centre), logit_prs, image, annealing, noise)
    numbers = torch.tensor([0.7, 0.6, 0.3, 0.8], device=DEVICE)
    found = SquaredError.apply(*given, image, z_shp, appearance, numbers)
    weights = torch.rand_like(expected)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    for theirs, ours in zip(
        torch.autograd.grad((expected * weights).sum(), given),
        torch.autograd.grad((found * weights).sum(), given),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4 * float(theirs.abs().max()))
