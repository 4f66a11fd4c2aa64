"""Layers computed with their norms against the layers one after another, in float64, on any device."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from viewslots.methods.contract import TrainableMethod
from viewslots.methods.fast.norm import NormedLayer, fuse_norms
from viewslots.methods.gmioo.model import Gmioo
from viewslots.methods.gmioo.networks import ChannelsLastEnlarge, connected, convolution, enlarge_channels_last
from viewslots.methods.gmioo.presets import TINY as GMIOO
from viewslots.methods.gmioo.schedule import Annealing
from viewslots.methods.layers import MultiLayerPerceptron
from viewslots.methods.space.layers import ShuffleDecoder, convolutions
from viewslots.methods.space.model import Space
from viewslots.methods.space.presets import TINY as SPACE
from viewslots.methods.space.schedule import SpaceAnnealing
from viewslots.types import SceneBatch


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def shaken(module: nn.Module) -> nn.Module:
    """In double precision, with no weight where it started: norms scale and shift, and biases are not 0."""
    generator = draws(5)
    with torch.no_grad():
        for parameter in module.double().parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return module


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolution, norm, ReLU": (lambda: nn.Sequential(convolution(3, 8), convolution(8, 6, stride=2)), (3, 9, 7)),
    "linear, norm, ReLU": (lambda: nn.Sequential(connected(5, 12), nn.Linear(12, 3)), (5,)),
    "convolution, CELU, norm": (lambda: convolutions(3, ((3, 1, 8, 2), (4, 2, 16, 4), (1, 1, 12, 1))), (3, 8, 8)),
    "pixel shuffle": (lambda: ShuffleDecoder(6, 16, 4, ((2, 8, 2), (4, 4, 1)), outputs=3), (6,)),
}


@pytest.mark.parametrize(("build", "size"), LAYERS.values(), ids=LAYERS)
def test_a_layer_with_its_norm_is_the_layer_and_the_norm(build: Callable[[], nn.Module], size: tuple[int, ...]) -> None:
    plain = shaken(build())
    fused = fuse_norms(plain)
    assert any(isinstance(part, NormedLayer) for part in fused.modules())
    assert not any(isinstance(part, nn.GroupNorm) for part in fused.children())
    assert {id(item) for item in fused.parameters()} == {id(item) for item in plain.parameters()}
    given = torch.randn(3, *size, generator=draws(1), dtype=torch.float64, requires_grad=True)
    expected, found = plain(given), fused(given)
    torch.testing.assert_close(found, expected)
    weights = torch.randn(expected.shape, generator=draws(2), dtype=torch.float64)
    asked = [given, *plain.parameters()]
    torch.testing.assert_close(
        torch.autograd.grad((found * weights).sum(), asked), torch.autograd.grad((expected * weights).sum(), asked)
    )


def test_what_has_no_norm_stays_the_same_object() -> None:
    bare = MultiLayerPerceptron(3, (4,), 2)
    model = nn.Sequential(bare, nn.Sequential(nn.Linear(2, 8), nn.CELU(), nn.GroupNorm(2, 8)))
    fused = fuse_norms(model)
    assert fuse_norms(bare) is bare
    assert fused[0] is bare
    assert isinstance(fused[1][0], NormedLayer)
    assert isinstance(model[1][2], nn.GroupNorm), "the model is as it was"


def loss_of(module: nn.Module, batch: SceneBatch, scheduled: Any, noise: Any) -> Tensor:
    total: Tensor = module(batch, scheduled, noise).minimised.sum()
    return total


@pytest.mark.parametrize(
    ("model", "scheduled"),
    [
        (Gmioo(GMIOO), Annealing(temperature_prs=1.3, weight_guide=0.2)),
        (Space(SPACE), SpaceAnnealing(1.5, 0.25, 0.5, 1.0)),
        (Space(replace(SPACE, components=2)), SpaceAnnealing(1.5, 0.25, 0.5, 1.0)),
    ],
    ids=["gmioo", "space", "space, two components"],
)
def test_a_step_with_fused_norms_is_the_step(model: TrainableMethod[Any], scheduled: Any) -> None:
    model = model.double().train()
    size = model.image_size
    batch = SceneBatch(
        torch.rand(2, 2, 3, *size, generator=draws(3), dtype=torch.float64), torch.tensor([[True, True], [True, False]])
    )
    noise = model.draw_noise(batch, draws(4))
    fused = enlarge_channels_last(fuse_norms(model))
    kinds = {type(part) for part in fused.modules()}
    assert NormedLayer in kinds
    assert (ChannelsLastEnlarge in kinds) == isinstance(model, Gmioo)
    expected, found = (loss_of(module, batch, scheduled, noise) for module in (model, fused))
    torch.testing.assert_close(found, expected)
    asked = [parameter for parameter in model.parameters() if parameter.requires_grad]
    theirs = torch.autograd.grad(expected, asked, allow_unused=True)
    ours = torch.autograd.grad(found, asked, allow_unused=True)
    for left, right in zip(ours, theirs, strict=True):
        assert (left is None) == (right is None)
        if left is not None and right is not None:
            torch.testing.assert_close(left, right, rtol=1e-6, atol=1e-9)
