"""The Triton kernels of a training step against the plain code, forward and gradient.

They run on a GPU, or in Triton's interpreter on a CPU (TRITON_INTERPRET=1), where triton is installed.
"""

import math
import os
import subprocess
import sys
from itertools import product
from typing import Any

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
from viewslots.methods.fast.norm import plain_normed  # noqa: E402
from viewslots.methods.fast.norm_cuda import Normed, tiling  # noqa: E402
from viewslots.methods.ocloc.boxes import OUTSIDE, placed  # noqa: E402
from viewslots.methods.ocloc.fast.likelihood_cuda import SquaredError  # noqa: E402
from viewslots.methods.ocloc.fast.placing_cuda import Placed  # noqa: E402
from viewslots.methods.ocloc.image_model import WeightedSum  # noqa: E402
from viewslots.methods.ocloc.schedule import Annealing  # noqa: E402
from viewslots.methods.ocloc.variables import Decoded, Latents, Noise  # noqa: E402
from viewslots.types import SceneBatch  # noqa: E402

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


NORMS = {
    "in one program": (3, 8, (5, 7), 1, 1),
    "in two chunks, the last one short": (2, 12, (30, 23), 1, 2),
    "in more chunks than are added at a time": (2, 4, (200, 190), 1, 19),
    "without places": (3, 20, (), 1, 1),
    "groups": (4, 32, (6, 5), 8, 1),
    "groups in chunks": (2, 16, (33, 31), 4, 2),
    "groups without places": (3, 64, (), 16, 1),
}


@pytest.mark.parametrize(("samples", "channels", "size", "groups", "chunks"), NORMS.values(), ids=NORMS)
@pytest.mark.parametrize(("celu", "relu"), [(True, False), (False, True)])
@pytest.mark.parametrize("biased", [True, False])
def test_normed(
    samples: int, channels: int, size: tuple[int, ...], groups: int, chunks: int, celu: bool, relu: bool, biased: bool
) -> None:
    """Against double precision. The mean is three deviations from 0, so a variance by squares alone would show."""
    assert tiling(channels, math.prod(size))[2] == chunks
    values = (6 + 2 * normal(samples, channels, *size, asked=False)).requires_grad_()
    weights: list[Tensor | None] = [normal(channels) if biased else None, normal(channels), normal(channels)]
    exact = [None if one is None else one.detach().double().requires_grad_() for one in (values, *weights)]
    found = Normed.apply(values, *weights, groups, 1e-5, celu, relu)
    expected = plain_normed(*exact, groups, 1e-5, celu, relu)
    torch.testing.assert_close(found, expected.float(), rtol=1e-5, atol=2e-5)
    bent = plain_normed(*exact, groups, 1e-5, False, False).abs() < 1e-4  # rounding says on which side of a ReLU's kink
    factors = torch.randn_like(found).masked_fill(bent, 0)
    asked, theirs = ([one for one in given if one is not None] for given in ((values, *weights), exact))
    for ours, right in zip(
        torch.autograd.grad((found * factors).sum(), asked),
        torch.autograd.grad((expected * factors.double()).sum(), theirs),
        strict=True,
    ):
        torch.testing.assert_close(ours, right.float(), rtol=1e-4, atol=2e-5 * float(right.abs().max()))


@pytest.mark.parametrize("size", [(6, 5), (40, 60)])
def test_normed_in_half_precision_and_any_layout(size: tuple[int, int]) -> None:
    """Channels come last whatever comes in; gradients have the types of what they belong to; twice gives equal bits."""
    values, bias = normal(3, 16, *size).detach().bfloat16().requires_grad_(), normal(16).detach().bfloat16()
    bias.requires_grad_()
    given = (values, bias, normal(16), normal(16))
    found, again = (Normed.apply(*given, 4, 1e-5, True, False) for _ in range(2))
    expected = plain_normed(*(one.detach().double() for one in given), 4, 1e-5, True, False)
    assert found.dtype == torch.bfloat16
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(found, again)
    torch.testing.assert_close(found.double(), expected, rtol=2**-6, atol=2**-7)
    factors = torch.randn(found.shape, device=DEVICE).bfloat16()
    gradients = [torch.autograd.grad(one, given, laid) for one, laid in ((found, factors), (again, last(factors)))]
    for one, item in zip(gradients[0], given, strict=True):
        assert one.dtype == item.dtype
    assert all(torch.equal(left, right) for left, right in zip(*gradients, strict=True))


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from viewslots.methods.fast.norm_cuda import _gradient_sums, _moments, _norm_backward, _norm_forward, tiling

half, number = {"values", "bias", "shown", "gradient", "moved"}, {"P": "i32", "chunks": "i32", "eps": "fp32"}
for channels, places, groups in ((16, 4096, 1), (12, 900, 1), (2048, 1, 1), (16, 1024, 4), (256, 1, 16)):
    padded, block, chunks, warps = tiling(channels, places)
    whole = chunks == 1
    for kernel in (_norm_forward, _norm_backward, *(() if whole else (_moments, _gradient_sums))):
        for celu in (True, False):
            sizes = {"C": channels, "PADDED": padded, "BLOCK": block, "GROUPS": groups, "BIASED": places != 900}
            sizes |= {"CELU": celu, "RELU": not celu, "WHOLE": whole}
            # A whole number of 1 is known when a kernel is compiled.
            sizes |= {name: 1 for name, value in (("P", places), ("chunks", chunks)) if value == 1}
            kinds = {name: number.get(name, "*bf16" if name in half else "*fp32") for name in kernel.arg_names}
            given = kinds | dict.fromkeys(sizes, "constexpr")
            fixed = {(place,): sizes[name] for place, name in enumerate(kernel.arg_names) if name in sizes}
            source, target = ASTSource(kernel, given, fixed), GPUTarget("cuda", 90, 32)
            made = triton.compile(source, target=target, options={"num_warps": warps})
            assert made.asm["cubin"]
print("compiled")
"""


@pytest.mark.parametrize(("celu", "relu"), [(True, False), (False, True)])
@pytest.mark.parametrize("size", [(3, 3), (100, 100)])
def test_what_is_no_number_stays_none(celu: bool, relu: bool, size: tuple[int, int]) -> None:
    """Else a training that has come to nothing would look well."""
    values = normal(2, 4, *size).detach()
    values[0, 1, 2, 2] = float("nan")
    given = [values.requires_grad_(), normal(4), normal(4), normal(4)]
    found, expected = Normed.apply(*given, 1, 1e-5, celu, relu), plain_normed(*given, 1, 1e-5, celu, relu)
    assert torch.equal(found.isnan(), expected.isnan())
    assert found[0].isnan().all()
    for ours, theirs in zip(
        torch.autograd.grad(found.sum(), given), torch.autograd.grad(expected.sum(), given), strict=True
    ):
        assert torch.equal(ours.isnan(), theirs.isnan())


def test_kernels_of_norms_compile_without_a_gpu() -> None:
    """For an H100 or H200: the interpreter takes what the compiler may refuse."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", COMPILE], env=env, capture_output=True, text=True, check=False)
    assert done.stdout == "compiled\n", done.stderr[-3000:]


def last(values: Tensor) -> Tensor:
    return values.contiguous(memory_format=torch.channels_last)


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
    decoded, latents = Decoded(background, objects, order, centre), Latents(*[empty] * 3, logit_prs)
    views = torch.eye(M, dtype=torch.bool, device=DEVICE).expand(B, M, M).unbind(1)  # each by itself
    costs = [
        WeightedSum(0.5**0.5).training_cost(decoded, latents, SceneBatch(image, view), annealing, noise).nll
        for view in views
    ]
    expected = torch.stack(costs, 1)
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


BOXES = {
    "inside": (0.4137, 0.5271, 0.1093, -0.2177),
    "partly outside": (0.5219, 0.3317, 0.8713, -0.7919),
    "outside": (0.3171, 0.2913, 3.1373, 0.0237),
    "larger than the picture": (1.7321, 1.9133, 0.0571, 0.1037),
    "tiny": (0.0213, 0.0317, 0.3119, 0.2033),
}
"""No pixel of the tests lies on a kink of their tents."""


def drawing(channels: int, cells: tuple[int, int], dtype: torch.dtype, items: int = len(BOXES)) -> Tensor:
    drawn = normal(items, channels, *cells, scale=3.0, asked=False).to(dtype)
    half = dtype != torch.float32
    return (drawn.contiguous(memory_format=torch.channels_last) if half else drawn).requires_grad_()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("channels", "cells", "size"),
    [(5, (16, 16), (32, 32)), (4, (8, 8), (16, 40)), (5, (7, 9), (21, 13)), (4, (20, 33), (11, 35))],
)
def test_placing(channels: int, cells: tuple[int, int], size: tuple[int, int], dtype: torch.dtype) -> None:
    drawn, boxes = drawing(channels, cells, dtype), torch.tensor([*BOXES.values()], device=DEVICE, requires_grad=True)
    expected, found = placed(drawn, boxes, size), Placed.apply(drawn, boxes, size)
    assert (found.dtype, found.stride()) == (expected.dtype, expected.stride())
    # A tiny box magnifies how a GPU rounds the places of its cells.
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4 if INTERPRETED else 1e-3)
    weights = torch.randn_like(expected)
    to_drawn, to_boxes = torch.autograd.grad((found * weights).sum(), [drawn, boxes])
    their_drawn, their_boxes = torch.autograd.grad((expected * weights).sum(), [drawn, boxes])
    assert (to_drawn.dtype, to_drawn.stride()) == (drawn.dtype, drawn.stride())
    exact = 1e-4 if dtype == torch.float32 else 2**-6  # the interpreter cuts bits off where a GPU rounds
    torch.testing.assert_close(to_drawn, their_drawn, rtol=exact, atol=1e-5 * float(their_drawn.abs().max()))
    torch.testing.assert_close(to_boxes, their_boxes, rtol=1e-4, atol=1e-5 * float(their_boxes.abs().max()))


def test_placing_has_the_slopes_of_torch_at_the_kinks_of_tents() -> None:
    """Where the box is the picture, every pixel lies on a cell."""
    drawn, size = drawing(5, (16, 16), torch.float32, items=1), (16, 16)
    boxes = torch.tensor([[1.0, 1.0, 0.0, 0.0]], device=DEVICE, requires_grad=True)
    expected, found = placed(drawn, boxes, size), Placed.apply(drawn, boxes, size)
    weights = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad((found * weights).sum(), [drawn, boxes]),
        torch.autograd.grad((expected * weights).sum(), [drawn, boxes]),
        rtol=1e-4,
        atol=1e-3,
    )


def test_placing_takes_gradients_as_they_lie_in_memory() -> None:
    drawn, size = drawing(5, (8, 8), torch.bfloat16, items=2), (16, 24)
    boxes = torch.tensor([BOXES["inside"], BOXES["partly outside"]], device=DEVICE, requires_grad=True)
    weights = normal(len(boxes), 5, *size, asked=False)
    asked, laid = [drawn, boxes], weights.contiguous(memory_format=torch.channels_last)
    for given in (laid, weights.mean((0, 1))[None, None].expand_as(weights)):
        found = torch.autograd.grad(Placed.apply(drawn, boxes, size), asked, given)
        expected = torch.autograd.grad(Placed.apply(drawn, boxes, size), asked, given.contiguous())
        torch.testing.assert_close(found, expected)


def test_a_box_that_is_no_number_shows() -> None:
    drawn = drawing(4, (8, 8), torch.float32, items=2)
    boxes = torch.tensor([[float("nan"), 0.5, 0.0, 0.0], BOXES["outside"]], device=DEVICE, requires_grad=True)
    found = Placed.apply(drawn, boxes, (16, 16))
    assert found[0].isnan().all()
    assert (found[1, 0] == OUTSIDE).all()
    to_drawn, to_boxes = torch.autograd.grad(found.sum(), [drawn, boxes])
    assert to_drawn[0].isnan().all()
    assert to_boxes[0].isnan().any()
    assert not to_drawn[1].any()
    assert not to_boxes[1].any()


def frozen_cases() -> dict[str, tuple[type[torch.autograd.Function], list[Tensor], list[Any]]]:
    boxes = torch.tensor([BOXES["partly outside"]], device=DEVICE, requires_grad=True)
    return {
        "shuffle": (BiasReluShuffle, [normal(2, 16, 3, 5), normal(16)], [2]),
        "norm": (AddNorm, [normal(3, 5, 16), normal(5, 16), normal(16), normal(16)], [1e-5]),
        "norm of one row": (AddNorm, [normal(3, 5, 16), normal(1, 16)], [None, None, 1e-5]),
        "attention": (AttendedMean, [normal(1, 2, 70, 16), normal(1, 2, 3, 16), normal(1, 2, 3)], [0.01]),
        "placing": (Placed, [drawing(5, (8, 8), torch.float32, items=1), boxes], [(16, 16)]),
    }


@pytest.mark.parametrize("name", ["shuffle", "norm", "norm of one row", "attention", "placing"])
def test_frozen_inputs_get_no_gradient_and_the_others_theirs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, given, rest = frozen_cases()[name]
    backward, answers = function.backward, []

    def heard(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        answers.append(backward(ctx, *gradients))
        return answers[-1]

    monkeypatch.setattr(function, "backward", staticmethod(heard))
    shown = function.apply(*given, *rest)
    weights = torch.randn_like(shown)
    expected = torch.autograd.grad((shown * weights).sum(), given)
    for asked in product([False, True], repeat=len(given)):
        if not any(asked):
            continue
        inputs = [value.detach().requires_grad_(wanted) for value, wanted in zip(given, asked, strict=True)]
        function.apply(*inputs, *rest).backward(weights)
        for answer, theirs, wanted in zip(answers[-1], expected, asked, strict=False):
            assert (answer is not None) == wanted
            if wanted:
                torch.testing.assert_close(answer, theirs)
