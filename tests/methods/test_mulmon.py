"""MulMON against slow twins written from its formulas, slot by slot, and what the contract asks of a method."""

import json
import math
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from disc_world import disc_store
from fake_world import FakeWorld
from numpy.typing import NDArray
from shape_world import ShapeWorld, make_shapes
from sklearn.metrics import adjusted_rand_score
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from viewslots.commands.evaluation import estimate_viewpoints, evaluate
from viewslots.commands.figures import figures
from viewslots.commands.training import train
from viewslots.errors import UserError
from viewslots.experiments import experiment
from viewslots.methods.contract import NewViewsAnswer, Precision, ViewpointAnswer, mapped
from viewslots.methods.mulmon.config import MulmonConfig
from viewslots.methods.mulmon.fast import fold_decoder, with_taps
from viewslots.methods.mulmon.model import Mulmon, MulmonNoise, drawn_on_host, rising_weights
from viewslots.methods.mulmon.presets import CLEVR, OPTIMISATION, SCHEDULE, TINY, TINY_SCHEDULE
from viewslots.methods.mulmon.refinement import (
    compare,
    gradients,
    image_inputs,
    normalised,
    posterior_gradient,
    sample,
    sampled_kl,
)
from viewslots.methods.schedules import Scheduled
from viewslots.training.distributed import Ranks
from viewslots.training.feed import LiveFeed
from viewslots.training.step import EagerStep, GraphStep, fast_step
from viewslots.types import SceneBatch

torch.set_num_threads(1)

PRESETS = {"clevr": CLEVR, "tiny": TINY}
SMALL = MulmonConfig(
    image_size=9,
    slots=2,
    latent_dim=3,
    view_hidden=6,
    projector_hidden=7,
    decoder_channels=(5, 4),
    refinement_channels=(4, 6),
    refinement_hidden=8,
    refinement_features=5,
    state_dim=6,
    iterations=3,
    sigma_x=0.4,
)
B, L, D, SIZE = 2, 3, 3, 9

Array = NDArray[np.float64]


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=draws(seed), dtype=torch.float64)


def small_model(config: MulmonConfig = SMALL) -> Mulmon:
    """Every parameter random, in double precision, large enough that all of them matter."""
    model = Mulmon(config).double().eval()
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            parameter.add_(0.25 * torch.randn(parameter.shape, generator=draws(index), dtype=torch.float64))
    for part in (model, model.decoder):
        line = torch.linspace(-1, 1, part.grid.shape[-1], dtype=torch.float64)
        part.grid = torch.stack(torch.meshgrid(line, line, indexing="xy"))
    return model


def pictures(views: int = 3, scenes: int = B) -> SceneBatch:
    image = torch.rand(scenes, views, 3, SIZE, SIZE, generator=draws(5), dtype=torch.float64)
    return SceneBatch(image, torch.ones(scenes, views, dtype=torch.bool), normal(scenes, views, 5, seed=6))


def noise_for(model: Mulmon, batch: SceneBatch, observed: int, seed: int = 3) -> MulmonNoise:
    """Views as they come."""
    scenes, views = batch.image.shape[:2]
    order = torch.arange(views).expand(scenes, views) / views
    return mapped(model.noise(batch, draws(seed), None, order, observed), Tensor.double)


def losses_of(model: Mulmon, batch: SceneBatch, noise: MulmonNoise) -> Tensor:
    return model(batch, Scheduled(), noise).minimised


# Slow twins: one scene at a time, one slot at a time, loops over iterations and views. Gradients come from autograd, of
# costs that are written out, so that closed forms have something to be compared with.


def slow_density(x: Tensor, colour: Tensor, sigma: float) -> Tensor:
    return torch.exp(-((x - colour) ** 2) / (2 * sigma**2)) / (sigma * math.sqrt(2 * math.pi))


def slow_nll(image: Tensor, colours: list[Tensor], masks: list[Tensor], sigma: float) -> Tensor:
    """image [3, H, W], colours [3, H, W] and masks [H, W] of every slot."""
    total = torch.zeros((), dtype=torch.float64)
    for c in range(3):
        mixture = sum((m + 1e-6) * slow_density(image[c], rgb[c], sigma) for rgb, m in zip(colours, masks, strict=True))
        total = total - torch.log(mixture).sum()  # type: ignore[arg-type]
    return total


def slow_masks(logits: list[Tensor]) -> list[Tensor]:
    odds = [torch.exp(logit) for logit in logits]
    return [odd / sum(odds) for odd in odds]


def slow_norm(values: Tensor) -> Tensor:
    """Over everything that is given, and only as numbers."""
    values = values.detach()
    mean = values.sum() / values.numel()
    spread = (((values - mean) ** 2).sum() / values.numel()).sqrt()
    return (values - mean) / (spread + 1e-5)


def slow_project(model: Mulmon, latent: Tensor, camera: Tensor) -> Tensor:
    (first, _, second), (third, _, last) = model.projector.view, model.projector.project
    code = second.weight @ torch.clamp(first.weight @ camera + first.bias, min=0) + second.bias
    return last.weight @ torch.clamp(third.weight @ torch.cat([latent, code]) + third.bias, min=0) + last.bias


def slow_decode(model: Mulmon, code: Tensor) -> tuple[Tensor, Tensor]:
    """Colours [3, H, W] and logit [H, W]: the code and x and y everywhere on a map that is larger by 2 a layer."""
    layers = [layer for layer in model.decoder.convolutions if isinstance(layer, nn.Conv2d)]
    side = model.config.image_size + 2 * (len(layers) - 1)
    line = torch.tensor([-1 + 2 * i / (side - 1) for i in range(side)], dtype=torch.float64)
    x, y = line.expand(side, side), line[:, None].expand(side, side)
    maps = torch.stack([*[value.expand(side, side) for value in code], x, y])[None]
    for layer in layers[:-1]:
        maps = nn.functional.conv2d(maps, layer.weight, layer.bias).clamp(min=0)
    maps = nn.functional.conv2d(maps, layers[-1].weight, layers[-1].bias)
    return maps[0, :3], maps[0, 3]


def slow_lstm(cell: nn.LSTMCell, given: Tensor, output: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    gates = cell.weight_ih @ given + cell.bias_ih + cell.weight_hh @ output + cell.bias_hh
    i, f, g, o = gates.split(cell.hidden_size)
    memory = torch.sigmoid(f) * memory + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(memory), memory


def slow_image_inputs(
    image: Tensor,
    colours: list[Tensor],
    logits: list[Tensor],
    masks: list[Tensor],
    to_colours: tuple[Tensor, ...],
    to_masks: tuple[Tensor, ...],
    sigma: float,
) -> list[Tensor]:
    """[17, H, W] of every slot."""
    densities = [slow_density(image, colour, sigma) for colour in colours]
    alone = [density.prod(0) for density in densities]
    total = sum((m + 1e-6) * density for m, density in zip(masks, densities, strict=True)).prod(0)  # type: ignore[union-attr]
    line = torch.linspace(-1, 1, image.shape[-1], dtype=torch.float64)
    x, y = line.expand_as(total), line[:, None].expand_as(total)
    found = []
    for k in range(len(colours)):
        others = (total - masks[k] * alone[k]) / (1 - masks[k] + 1e-5)
        channels = [*image, *colours[k], masks[k], logits[k], *slow_norm(to_colours[k]), slow_norm(to_masks[k])]
        channels += [alone[k] / sum(alone), slow_norm(total), slow_norm(others), x, y]
        found.append(torch.stack(channels))
    return found


def slow_look(
    model: Mulmon, priors: list[Tensor], image: Tensor, camera: Tensor, noise: Tensor
) -> tuple[list[Tensor], Tensor, Tensor]:
    """One scene, one view. Posteriors [2 D] of every slot after it, weighted reconstruction cost and KL."""
    config, network = model.config, model.refinement
    convolutions = [layer for layer in network.convolutions if isinstance(layer, nn.Conv2d)]
    first, _, second = network.features
    posteriors, T = list(priors), config.iterations
    states = [(torch.zeros(config.state_dim).double(), torch.zeros(config.state_dim).double()) for _ in priors]
    nll = kl = torch.zeros((), dtype=torch.float64)
    for t in range(T):
        own = [posterior * 1 for posterior in posteriors]
        colours, logits, divergence = [], [], torch.zeros((), dtype=torch.float64)
        for k, posterior in enumerate(own):
            q = torch.distributions.Normal(posterior[:D], torch.exp(posterior[D:] / 2))
            p = torch.distributions.Normal(priors[k][:D], torch.exp(priors[k][D:] / 2))
            latent = posterior[:D] + torch.exp(posterior[D:] / 2) * noise[t, k]
            divergence = divergence + (q.log_prob(latent) - p.log_prob(latent)).sum()
            colour, logit = slow_decode(model, slow_project(model, latent, camera))
            colours.append(colour)
            logits.append(logit)
        masks = slow_masks(logits)
        cost = slow_nll(image, colours, masks, config.sigma_x)
        weight = (t + 1) / T * 2 / (T + 1)
        nll, kl = nll + weight * cost, kl + weight * divergence
        if t == T - 1:
            break
        to_colours = torch.autograd.grad(cost, colours, retain_graph=True)
        to_masks = torch.autograd.grad(cost, masks, retain_graph=True)
        to_own = torch.autograd.grad(cost + divergence, own, retain_graph=True)
        told = slow_image_inputs(image, colours, logits, masks, to_colours, to_masks, config.sigma_x)
        for k, maps in enumerate(told):
            for layer in convolutions:
                maps = nn.functional.conv2d(maps, layer.weight, layer.bias, stride=2).clamp(min=0)
            hidden = torch.clamp(first.weight @ maps.flatten() + first.bias, min=0)
            seen = torch.cat([second.weight @ hidden + second.bias, own[k], slow_norm(to_own[k])])
            states[k] = slow_lstm(network.recurrent, seen, *states[k])
            posteriors[k] = own[k] + network.update.weight @ states[k][0] + network.update.bias
    return posteriors, nll, kl


def slow_losses(model: Mulmon, batch: SceneBatch, noise: MulmonNoise) -> dict[str, Tensor]:
    """All scenes, views in the order of the noise."""
    assert batch.camera is not None
    rows = []
    for b in range(len(batch.image)):
        cameras = batch.camera[b] + model.config.camera_noise * noise.camera[b]
        order = sorted(range(batch.image.shape[1]), key=lambda view: float(noise.order[b, view]))
        posteriors = [model.first_posterior * 1] * noise.latent.shape[3]
        nll = kl = query = torch.zeros((), dtype=torch.float64)
        n = noise.observed
        for place, view in enumerate(order[:n]):
            posteriors, cost, divergence = slow_look(
                model, posteriors, batch.image[b, view], cameras[view], noise.latent[b, place]
            )
            weight = (place + 1) / n * 2 / (n + 1)
            nll, kl = nll + weight * cost, kl + weight * divergence
        for view in order[n:]:
            colours, logits = [], []
            for k, posterior in enumerate(posteriors):
                latent = posterior[:D] + torch.exp(posterior[D:] / 2) * noise.query[b, view, k]
                colour, logit = slow_decode(model, slow_project(model, latent, cameras[view]))
                colours.append(colour)
                logits.append(logit)
            cost = slow_nll(batch.image[b, view], colours, slow_masks(logits), model.config.sigma_x)
            query = query + cost / len(order[n:])
        rows.append((nll, kl, query))
    return {
        name: torch.stack(values) for name, values in zip(("nll", "kl", "query"), zip(*rows, strict=True), strict=True)
    }


@pytest.mark.parametrize("observed", [1, 2])
def test_a_pass_follows_the_formulas(observed: int) -> None:
    """All terms, and gradients of all parameters: so what is told as numbers is cut off, and nothing else is. The slow
    twin makes the code of a camera for every sample, the method once."""
    model, batch, codes = small_model(), pictures(views=3), []
    noise = replace(noise_for(model, batch, observed), order=torch.rand(B, 3, generator=draws(8)))
    model.projector.view.register_forward_hook(lambda *_: codes.append(1))
    losses, expected = model(batch, Scheduled(), noise), slow_losses(model, batch, noise)
    assert len(codes) == 1
    for name, values in expected.items():
        torch.testing.assert_close(losses.terms[name], values, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(losses.minimised, expected["nll"] + expected["kl"] + expected["query"])
    assert torch.equal(losses.minimised, losses.comparable)
    parameters = dict(model.named_parameters())
    found = torch.autograd.grad(losses.minimised.sum(), list(parameters.values()))
    wanted = torch.autograd.grad(sum(values.sum() for values in expected.values()), list(parameters.values()))  # type: ignore[arg-type]
    for name, left, right in zip(parameters, found, wanted, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-7, atol=1e-7 * float(right.abs().max()), msg=name)
        assert right.abs().max() > 0, name


# The parts.


def layers_and_picture() -> tuple[Tensor, Tensor]:
    return normal(B, L, 4, 5, 6, seed=1), torch.rand(B, 3, 5, 6, generator=draws(2), dtype=torch.float64)


def test_the_likelihood_is_a_mixture_in_every_channel() -> None:
    """Pixel by pixel in numpy."""
    layers, image = layers_and_picture()
    seen, sigma = compare(layers, image, 0.3), 0.3
    shown, given = layers.numpy(), image.numpy()
    for b in range(B):
        total = 0.0
        for c, y, x in np.ndindex(3, 5, 6):
            odds = np.exp(shown[b, :, 3, y, x])
            mixture = 0.0
            for k in range(L):
                distance = (given[b, c, y, x] - shown[b, k, c, y, x]) / sigma
                mask = odds[k] / odds.sum()
                mixture += (mask + 1e-6) * math.exp(-(distance**2) / 2) / (sigma * math.sqrt(2 * math.pi))
            total -= math.log(mixture)
        assert seen.nll[b].item() == pytest.approx(total, rel=1e-10)
    torch.testing.assert_close(seen.mask.sum(1), torch.ones(B, 1, 5, 6, dtype=torch.float64))


def test_gradients_have_the_closed_forms() -> None:
    """With respect to colours, to masks as if they were free, and to what the decoder answers."""
    layers, image = layers_and_picture()
    found = gradients(compare(layers, image, 0.3), image, 0.3)
    for b in range(B):
        own = layers[b].clone().requires_grad_()
        colours, logits = [own[k, :3] for k in range(L)], [own[k, 3] for k in range(L)]
        masks = slow_masks(logits)
        cost = slow_nll(image[b], colours, masks, 0.3)
        to_colours, to_masks = (torch.autograd.grad(cost, values, retain_graph=True) for values in (colours, masks))
        torch.testing.assert_close(found.colour[b], torch.stack(to_colours))
        torch.testing.assert_close(found.mask[b, :, 0], torch.stack(to_masks))
        torch.testing.assert_close(found.layers[b], torch.autograd.grad(cost, own)[0])


@pytest.mark.parametrize("first", [False, True])
def test_the_gradient_of_a_posterior_has_the_closed_form(first: bool) -> None:
    """Of any cost of the sample, and the KL; also where the prior is the same tensor, but held fixed."""
    posterior, noise = normal(B, L, 2 * D, seed=1).requires_grad_(), normal(B, L, D, seed=3)
    prior, weight = posterior if first else normal(B, L, 2 * D, seed=2), 0.7
    fixed = prior.detach().clone()
    q, p = (torch.distributions.Normal(one[..., :D], (one[..., D:] / 2).exp()) for one in (posterior, fixed))
    latent = q.mean + q.stddev * noise
    cost = (latent * normal(B, L, D, seed=4)).sin().sum()
    divergence = (q.log_prob(latent) - p.log_prob(latent)).sum()
    (expected,) = torch.autograd.grad(cost + weight * divergence, posterior, retain_graph=True)
    (to_latent,) = torch.autograd.grad(cost, latent)
    found = posterior_gradient(posterior, prior, latent, to_latent, weight)
    assert not found.requires_grad
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_the_networks_seventeen_channels() -> None:
    layers, image = (value[..., :5] for value in layers_and_picture())
    seen = compare(layers, image, 0.3)
    line = torch.linspace(-1, 1, 5, dtype=torch.float64)
    grid = torch.stack(torch.meshgrid(line, line, indexing="xy"))
    told = gradients(seen, image, 0.3)
    found = image_inputs(seen, told, image, grid)
    assert found.shape == (B, L, 17, 5, 5)
    for b in range(B):
        colours, logits = [*layers[b, :, :3]], [*layers[b, :, 3]]
        to_colours, to_masks = tuple(told.colour[b]), tuple(told.mask[b, :, 0])
        expected = slow_image_inputs(image[b], colours, logits, slow_masks(logits), to_colours, to_masks, 0.3)
        torch.testing.assert_close(found[b], torch.stack(expected))


def test_the_likelihood_without_a_slot() -> None:
    """Two slots on one pixel, by hand: the whole, less what a slot gives, over the share of the others."""
    layers = torch.zeros(1, 2, 4, 1, 2, dtype=torch.float64)
    layers[0, 0, 3], layers[0, 1, :3] = math.log(3), 0.5  # masks 3/4 and 1/4, colours 0 and 0.5
    image = torch.tensor([0.0, 0.2, 0.4], dtype=torch.float64)[None, :, None, None].expand(1, 3, 1, 2)
    layers[0, 1, :3, 0, 1] = 0.1  # the other pixel differs, so that the spread is not zero
    seen = compare(layers, image, 0.3)
    found = image_inputs(seen, gradients(seen, image, 0.3), image, torch.zeros(2, 1, 2, dtype=torch.float64))
    raw = []
    for second in (0.5, 0.1):
        first = [float(slow_density(x, torch.zeros(()), 0.3)) for x in image[0, :, 0, 0]]
        other = [float(slow_density(x, torch.tensor(second), 0.3)) for x in image[0, :, 0, 0]]
        whole = math.prod(0.75 * p + 0.25 * q for p, q in zip(first, other, strict=True))
        raw.append((whole - 0.75 * math.prod(first)) / 0.25)
    # Two pixels, normalised: one spread above the mean and one below.
    assert found[0, 0, 14, 0, 0].item() == pytest.approx(math.copysign(1, raw[0] - raw[1]), abs=1e-3)
    assert found[0, 0, 14, 0, 1].item() == pytest.approx(-math.copysign(1, raw[0] - raw[1]), abs=1e-3)


def test_normalised_over_all_but_scene_and_slot() -> None:
    values = 3 + 7 * normal(B, L, 3, 4, 5, seed=4)
    found = normalised(values).numpy()
    for b, k in np.ndindex(B, L):
        given = values[b, k].numpy()
        np.testing.assert_allclose(found[b, k], (given - given.mean()) / (given.std() + 1e-5), rtol=1e-10)
    assert torch.equal(normalised(torch.full((1, 1, 4), 2.5)), torch.zeros(1, 1, 4))  # a constant has no spread


def test_samples_and_their_divergence() -> None:
    posterior, prior, noise = normal(B, L, 2 * D, seed=1), normal(B, L, 2 * D, seed=2), normal(B, L, D, seed=3)
    latent = sample(posterior, noise)
    q, p = (torch.distributions.Normal(one[..., :D], (one[..., D:] / 2).exp()) for one in (posterior, prior))
    torch.testing.assert_close(latent, q.mean + q.stddev * noise)
    expected = (q.log_prob(latent) - p.log_prob(latent)).sum((1, 2))
    torch.testing.assert_close(sampled_kl(posterior, prior, noise, latent), expected)
    many = normal(20_000, L, D, seed=4)
    found = sampled_kl(posterior[:1], prior[:1], many, sample(posterior[:1], many)).mean()
    closed = torch.distributions.kl_divergence(q, p)[0].sum()
    assert found.item() == pytest.approx(closed.item(), rel=0.05)


def test_delicate_parts_leave_autocast() -> None:
    layers, image = (value.float() for value in layers_and_picture())
    posterior, noise = normal(B, L, 2 * D, seed=1).float(), normal(B, L, D, seed=3).float()
    expected = [compare(layers, image, 0.1).nll, sample(posterior, noise)]
    with torch.autocast("cpu", torch.bfloat16):
        found = [compare(layers, image, 0.1).nll, sample(posterior, noise)]
    for left, right in zip(found, expected, strict=True):
        assert torch.equal(left, right)


def test_later_ones_count_more() -> None:
    weights = rising_weights(torch.tensor([[True, True, True], [True, True, False], [True, False, False]]))
    expected = [[1 / 6, 2 / 6, 3 / 6], [1 / 3, 2 / 3, 0], [1, 0, 0]]
    torch.testing.assert_close(weights, torch.tensor(expected, dtype=torch.float64))


# Networks.


def convolution(inputs: int, outputs: int, kernel: int) -> int:
    return inputs * outputs * kernel**2 + outputs


def dense(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


COUNTS = {
    "projector": dense(5, 128) + dense(128, 5) + dense(21, 512) + dense(512, 16),
    "decoder": convolution(18, 32, 3) + 3 * convolution(32, 32, 3) + convolution(32, 4, 1),
    "refinement": convolution(17, 32, 3)
    + convolution(32, 32, 3)
    + convolution(32, 64, 3)
    + convolution(64, 64, 3)
    + dense(576, 256)
    + dense(256, 128)
    + 4 * (192 * 128 + 128 * 128 + 2 * 128)
    + dense(128, 32),
}
TOTAL = 473_209


def test_parameters_are_those_of_the_layer_list() -> None:
    with torch.device("meta"):
        model = Mulmon(CLEVR)
    found = model.parameter_counts()
    assert {name: found[name] for name in COUNTS} == COUNTS
    assert found["total"] == sum(COUNTS.values()) + 32  # and the first posterior
    assert found["total"] == TOTAL


def test_sizes_of_the_maps() -> None:
    """72 -> 64 in the decoder, 64 -> 31 -> 15 -> 7 -> 3 in the refinement network."""
    with torch.device("meta"):
        model = Mulmon(CLEVR)
        maps, sides = torch.zeros(1, 17, 64, 64), []
        for layer in model.refinement.convolutions[::2]:
            maps = layer(maps)
            sides.append(maps.shape[-1])
        assert model.decoder(torch.zeros(2, 16)).shape == (2, 4, 64, 64)
    assert model.decoder.grid.shape == (2, 72, 72)
    assert (sides, maps.numel()) == ([31, 15, 7, 3], 576)


def test_coordinates_are_columns_and_rows() -> None:
    grid = Mulmon(SMALL).grid
    assert grid[:, 0, -1].tolist() == [1, -1]
    assert grid[:, -1, 0].tolist() == [-1, 1]


def test_weights_start_as_torch_has_them() -> None:
    model, other = Mulmon(CLEVR, draws(3)), Mulmon(CLEVR, draws(4))
    limits = {
        "projector.view.0.weight": 5,
        "projector.project.0.bias": 21,
        "decoder.convolutions.0.weight": 18 * 9,
        "decoder.convolutions.8.weight": 32,
        "refinement.convolutions.0.weight": 17 * 9,
        "refinement.features.0.weight": 576,
        "refinement.recurrent.weight_ih": 128,
        "refinement.recurrent.bias_hh": 128,
        "refinement.update.weight": 128,
    }
    parameters = dict(model.named_parameters())
    for name, inputs in limits.items():
        limit, values = 1 / math.sqrt(inputs), parameters[name].detach()
        assert 0.9 * limit < float(values.abs().max()) <= limit, name
        assert float(values.std()) == pytest.approx(limit / math.sqrt(3), rel=0.2), name
    first = torch.cat([Mulmon(CLEVR, draws(seed)).first_posterior.detach() for seed in range(10)])
    assert first.mean().item() == pytest.approx(-0.5, abs=0.2)
    assert first.std().item() == pytest.approx(1, abs=0.15)
    assert torch.equal(Mulmon(CLEVR, draws(3)).decoder.convolutions[0].weight, model.decoder.convolutions[0].weight)
    assert not torch.equal(other.decoder.convolutions[0].weight, model.decoder.convolutions[0].weight)


@pytest.mark.parametrize("neighbours", [1, 2])
def test_the_fast_twin_gives_losses_and_gradients_of_the_model(neighbours: int) -> None:
    """In float64, also with pixels in pairs, as a GPU has them."""
    model = small_model(replace(SMALL, image_size=10))
    image = torch.rand(B, 3, 3, 10, 10, generator=draws(), dtype=torch.float64)
    batch = replace(pictures(), image=image)
    twin = model.fast("fp32").module
    assert isinstance(twin, Mulmon)
    assert twin.decoder.neighbours == 1
    twin.decoder.neighbours = neighbours
    with_taps(twin.decoder)
    noise = noise_for(model, batch, 2)
    expected, found = losses_of(model, batch, noise), losses_of(twin, batch, noise)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    asked = list(model.parameters())
    left, right = (torch.autograd.grad(one.sum(), asked) for one in (found, expected))
    for one, two in zip(left, right, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-7, atol=1e-8 * float(two.abs().max()))


# Views.


def posterior_after(model: Mulmon, batch: SceneBatch, noise: MulmonNoise) -> Tensor:
    with torch.no_grad():
        return model.observe(model.taken(batch, noise), noise.latent, model.decoder.ready()).posterior


def test_the_posterior_after_a_view_is_the_prior_of_the_next() -> None:
    """And the LSTM begins anew: two views at once are one, and then the other."""
    model, batch = small_model(), pictures(views=2)
    noise = noise_for(model, batch, 2)
    views, decode = model.taken(batch, noise), model.decoder.ready()
    first = model.look(
        model.first_posterior.expand(B, L, -1), views.image[:, 0], views.viewpoint[:, 0], noise.latent[:, 0], decode
    )
    second = model.look(first.posterior, views.image[:, 1], views.viewpoint[:, 1], noise.latent[:, 1], decode)
    both = model.observe(views, noise.latent, decode)
    torch.testing.assert_close(both.posterior, second.posterior)
    torch.testing.assert_close(both.nll, first.nll / 3 + 2 * second.nll / 3)
    torch.testing.assert_close(both.kl, first.kl / 3 + 2 * second.kl / 3)


def test_the_order_of_views_counts() -> None:
    """Another order gives another posterior, and one view twice is not two views."""
    model, batch = small_model(), pictures(views=2)
    noise = noise_for(model, batch, 2)
    turned = posterior_after(model, batch, replace(noise, order=noise.order.flip(1)))
    plain = posterior_after(model, batch, noise)
    twice = replace(batch, image=batch.image[:, [0, 0]], camera=batch.camera[:, [0, 0]])  # type: ignore[index]
    assert (plain - turned).abs().max() > 1e-3
    assert (plain - posterior_after(model, twice, replace(noise, camera=noise.camera[:, [0, 0]]))).abs().max() > 1e-3
    flipped = SceneBatch(batch.image.flip(1), batch.view_mask, batch.camera.flip(1))  # type: ignore[union-attr]
    again = posterior_after(model, flipped, replace(noise, order=noise.order.flip(1), camera=noise.camera.flip(1)))
    torch.testing.assert_close(again, plain)  # whatever order they are stored in


def test_padded_views_change_nothing() -> None:
    """Neither loss, nor gradient, nor what the other views answer, whatever they hold and wherever they stand."""
    model, batch = small_model(), pictures(views=4)
    mask = torch.tensor([[True, True, True, True], [True, False, True, False]])
    noise = replace(noise_for(model, batch, 2), order=torch.rand(B, 4, generator=draws(8)))
    noise = mapped(noise, Tensor.double)
    found = []
    for filling in (0.0, 0.9):
        image = torch.where(mask[:, :, None, None, None], batch.image, filling)
        camera = torch.where(mask[:, :, None], batch.camera, filling)  # type: ignore[arg-type]
        filled = SceneBatch(image, mask, camera)
        losses = losses_of(model, filled, noise)
        gradient = torch.autograd.grad(losses.sum(), list(model.parameters()))
        answer = model.infer(filled, draws(4))
        found.append((losses.detach(), *gradient, answer.masks[mask], answer.posterior))
    for left, right in zip(*found, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)
    keep = [0, 2]
    part = SceneBatch(batch.image[1:, keep], torch.ones(1, 2, dtype=torch.bool), batch.camera[1:, keep])  # type: ignore[index]
    chosen = MulmonNoise(
        noise.order[1:, keep], noise.camera[1:, keep], noise.query[1:, keep], noise.latent[1:], noise.observed
    )
    torch.testing.assert_close(losses_of(model, part, chosen), found[0][0][1:])


def test_a_scene_with_fewer_views_than_are_observed() -> None:
    """All it has are observed, and none is left to predict."""
    model, batch = small_model(), pictures(views=3)
    batch = replace(batch, view_mask=torch.tensor([[True, True, True], [True, False, False]]))
    noise = noise_for(model, batch, 2)
    terms = model(batch, Scheduled(), noise).terms
    assert terms["query"][1] == 0
    alone = SceneBatch(batch.image[1:, :1], batch.view_mask[1:, :1], batch.camera[1:, :1])  # type: ignore[index]
    chosen = MulmonNoise(
        noise.order[1:, :1], noise.camera[1:, :1], noise.query[1:, :1], noise.latent[1:, :1], observed=1
    )
    expected = model(alone, Scheduled(), chosen).terms
    for name in ("nll", "kl"):
        torch.testing.assert_close(terms[name][1:], expected[name])


def test_scenes_stand_alone() -> None:
    """A share of the scenes with its share of the noise answers as the whole batch does."""
    model, batch = small_model(), pictures(scenes=4)
    noise = mapped(model.draw_noise(batch, draws(2)), Tensor.double)
    whole, parts = losses_of(model, batch, noise), []
    for half in (slice(0, 2), slice(2, 4)):
        part = SceneBatch(batch.image[half], batch.view_mask[half], batch.camera[half])  # type: ignore[index]
        parts.append(losses_of(model, part, mapped(noise, lambda values, half=half: values[half])))
    torch.testing.assert_close(torch.cat(parts), whole)


def test_slots_follow_their_noise() -> None:
    model, batch, order = small_model(), pictures(), [2, 0, 1]
    noise = noise_for(model, batch, 2)
    turned = replace(noise, latent=noise.latent[:, :, :, order], query=noise.query[:, :, order])
    torch.testing.assert_close(posterior_after(model, batch, turned), posterior_after(model, batch, noise)[:, order])
    torch.testing.assert_close(losses_of(model, batch, turned), losses_of(model, batch, noise))


def test_noise_of_a_pass() -> None:
    """One to three of four views are observed, equally often, in any order; a single view is observed."""
    model, batch = Mulmon(SMALL), pictures(views=4)
    generator, counts, firsts = draws(), Counter(), Counter()
    for _ in range(600):
        noise = model.draw_noise(batch, generator)
        counts[noise.observed] += 1
        firsts[int(noise.order[0].argmin())] += 1
        assert noise.latent.shape == (B, noise.observed, 3, L, D)
    assert set(counts) == {1, 2, 3}
    assert set(firsts) == {0, 1, 2, 3}
    assert min(counts.values()) > 160
    assert min(firsts.values()) > 110
    assert noise.query.shape == (B, 4, L, D)
    assert model.draw_noise(pictures(views=1), draws()).observed == 1
    assert {model.draw_noise(pictures(views=2), generator).observed for _ in range(20)} == {1}
    assert {model.draw_noise(pictures(views=6), generator).observed for _ in range(40)} == {1, 2, 3}
    first, again = (model.draw_noise(batch, draws(7)) for _ in range(2))
    assert first.observed == again.observed
    assert torch.equal(first.latent, again.latent)
    assert model.draw_noise(batch, draws(), slots=6).query.shape == (B, 4, 7, D)


def test_drawn_on_the_host() -> None:
    """A function of the generator's state, which it leaves alone."""
    generator = draws(5)
    before = generator.get_state()
    assert drawn_on_host(generator, 10) == drawn_on_host(generator, 10)
    assert torch.equal(generator.get_state(), before)
    torch.rand(1, generator=generator)
    assert len({drawn_on_host(draws(seed), 10) for seed in range(100)}) == 10


# The method.


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("name", PRESETS)
def test_a_pass_never_looks_at_a_value(name: str, fast: bool) -> None:
    """Tensors without values go through, so a step can be captured as a graph; there and back."""
    config = PRESETS[name]
    with FakeTensorMode():
        model, views, slots = Mulmon(config), 4, config.slots + 1
        batch = SceneBatch(
            torch.zeros(2, views, 3, *model.image_size),
            torch.ones(2, views, dtype=torch.bool),
            torch.zeros(2, views, 5),
        )
        noise = MulmonNoise(
            order=torch.zeros(2, views),
            camera=torch.zeros(2, views, 5),
            query=torch.zeros(2, views, slots, config.latent_dim),
            latent=torch.zeros(2, 2, config.iterations, slots, config.latent_dim),
            observed=2,
        )
        if fast:
            model.decoder = fold_decoder(model.decoder)
        losses = model(batch, model.annealed(), noise)
        losses.minimised.sum().backward()
    assert tuple(losses.terms) == Mulmon.terms
    for value in (losses.minimised, losses.comparable, *losses.terms.values()):
        assert value.shape == (2,)
    assert all(parameter.grad is not None for parameter in model.parameters())


def single(views: int = 3, scenes: int = 2) -> SceneBatch:
    """For the tiny preset, in single precision."""
    size = TINY.image_size
    image = torch.rand(scenes, views, 3, size, size, generator=draws(1))
    return SceneBatch(
        image, torch.ones(scenes, views, dtype=torch.bool), torch.randn(scenes, views, 5, generator=draws(2))
    )


def test_an_answer_shows_all_views_from_what_all_have_taught() -> None:
    model, batch = small_model(), pictures(views=3)
    answer = model.infer(batch, draws(4))
    noise = mapped(noise_for(model, batch, 3, seed=4), Tensor.double)
    torch.testing.assert_close(answer.posterior, posterior_after(model, batch, noise), rtol=1e-5, atol=1e-5)
    found = answer.decomposition()
    torch.testing.assert_close(found.layer_masks.sum(2), torch.ones(B, 3, SIZE, SIZE, dtype=torch.float64))
    assert not found.has_background
    for missing in (found.complete_shapes, found.presence, found.presence_probability, found.depth_order):
        assert missing is None
    assert batch.camera is not None
    cameras = batch.camera + 0.015 * noise.camera
    for b, view in np.ndindex(B, 3):
        latents = answer.posterior[b, :, :D] + (answer.posterior[b, :, D:] / 2).exp() * noise.query[b, view]
        layers = [slow_decode(model, slow_project(model, latent, cameras[b, view])) for latent in latents]
        masks = slow_masks([logit for _, logit in layers])
        picture = sum(mask * colour for mask, (colour, _) in zip(masks, layers, strict=True))
        torch.testing.assert_close(found.layer_masks[b, view], torch.stack(masks), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(found.reconstruction[b, view], picture, rtol=1e-5, atol=1e-6)


def test_new_views_are_shown_by_their_cameras() -> None:
    """Whatever their pictures are; from the same cameras with the same noise, as the answer has shown them."""
    model, batch = Mulmon(TINY).eval(), single()
    answer = model.infer(batch, draws(4))
    assert isinstance(answer, NewViewsAnswer)
    assert not isinstance(answer, ViewpointAnswer)
    given = single(views=5)
    shown = answer.new_views(given, draws(5))
    assert shown.masks.shape == (2, 5, 4, 12, 12)
    assert torch.equal(shown.posterior, answer.posterior)
    other = answer.new_views(replace(given, image=1 - given.image), draws(5))
    assert torch.equal(shown.masks, other.masks)
    assert torch.equal(shown.reconstruction, other.reconstruction)
    moved = answer.new_views(replace(given, camera=given.camera + 1), draws(5))  # type: ignore[operator]
    assert not torch.allclose(shown.reconstruction, moved.reconstruction, atol=1e-4)
    assert not torch.equal(shown.masks, answer.new_views(given, draws(6)).masks)
    with pytest.raises(UserError, match="must be told the cameras"):
        answer.new_views(replace(given, camera=None), draws())


@pytest.mark.parametrize("frozen", [False, True])
def test_inference_enables_gradients_for_itself(frozen: bool) -> None:
    """Under no_grad, with parameters that want no gradient, the answer is the same, and nothing is left behind."""
    model, batch = Mulmon(TINY).eval(), single()
    expected = model.infer(batch, draws(4))
    model.requires_grad_(not frozen)
    with torch.no_grad():
        found = model.infer(batch, draws(4))
        noise = model.draw_noise(batch, draws(3))
        losses = losses_of(model, batch, noise)
        assert not torch.is_grad_enabled()
    assert torch.equal(found.masks, expected.masks)
    assert not found.masks.requires_grad
    assert not found.posterior.requires_grad
    assert not losses.requires_grad
    torch.testing.assert_close(losses, losses_of(model, batch, noise).detach())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_k_objects_have_one_slot_more() -> None:
    model, batch = Mulmon(TINY).eval(), single()
    for slots, layers in ((None, 4), (1, 2), (6, 7)):
        answer = model.infer(batch, draws(4), slots)
        assert answer.masks.shape == (2, 3, layers, 12, 12)
        assert torch.equal(answer.masks, model.infer(batch, draws(4), slots).masks)
    assert not torch.equal(model.infer(batch, draws(4)).masks, model.infer(batch, draws(5)).masks)


def test_diagnostics_are_deviations() -> None:
    model, batch = small_model(), pictures()
    answer, first = model.infer(batch, draws(4)), model.first_posterior.detach()
    found = {"posterior_sigma": np.exp(answer.posterior[..., D:].numpy() / 2).mean()}
    assert model.diagnostics(answer) == pytest.approx(found | {"first_sigma": np.exp(first[D:].numpy() / 2).mean()})


@pytest.mark.parametrize("fast", [False, True])
def test_a_pass_in_half_precision_answers_in_full(fast: bool) -> None:
    model, batch = Mulmon(TINY), single()
    noise = model.draw_noise(batch, draws())
    called = model.fast("bf16").module if fast else model
    expected = losses_of(model, batch, noise)
    with torch.autocast("cpu", torch.bfloat16):
        losses = losses_of(called, batch, noise)
        answer = model.infer(batch, draws(4))
    losses.mean().backward()
    for value in (losses, answer.posterior, answer.masks, answer.reconstruction):
        assert value.dtype == torch.float32
        assert value.isfinite().all()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())
    torch.testing.assert_close(losses, expected, rtol=0.05, atol=0)


def test_cameras_must_be_told() -> None:
    model, batch = Mulmon(TINY), single()
    with pytest.raises(UserError, match="mulmon must be told the cameras"):
        model.infer(replace(batch, camera=None), draws())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_size": 2}, "too small for 1 convolutions"),
        ({"slots": 0}, "slots cannot be 0"),
        ({"sigma_x": 0}, "sigma_x cannot be 0"),
        ({"camera_noise": -0.1}, "camera_noise cannot be -0.1"),
        ({"decoder_channels": ()}, "need one convolution at least"),
        ({"iterations": 2.5}, "iterations cannot be 2.5"),
    ],
)
def test_impossible_sizes_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        MulmonConfig.from_json(TINY.to_json() | changes)


def test_the_published_constants() -> None:
    """2e-4, falling along a line to 2e-5 in a million steps; clipped at 5; batches of 4; 600k steps; 8 slots."""
    assert (SCHEDULE.steps, OPTIMISATION.batch_size, OPTIMISATION.clip_norm) == (600_000, 4, 5)
    for step, rate in ((1, 2e-4), (500_000, 1.1e-4), (600_000, 9.2e-5), (1_000_000, 2e-5), (2_000_000, 2e-5)):
        assert OPTIMISATION.learning_rates_at(step) == (pytest.approx(rate, rel=1e-5),)
    assert OPTIMISATION.squeezed(0.1).learning_rate_at(60_000) == pytest.approx(9.2e-5)
    assert OPTIMISATION.views_at(0, 4) == 4
    assert (CLEVR.sigma_x, CLEVR.camera_noise, CLEVR.iterations, CLEVR.slots + 1) == (0.1, 0.015, 5, 8)
    for data in ("clevr-m1", "clevr-m2", "clevr-m3", "clevr-m4"):
        made = experiment(f"mulmon/{data}")
        assert (made.model, made.views, made.test_slots, made.data) == (CLEVR, 4, 11, data)
    (optimiser,) = Mulmon(TINY).optimisers(OPTIMISATION)
    assert isinstance(optimiser, torch.optim.Adam)
    assert (optimiser.defaults["betas"], optimiser.defaults["eps"]) == ((0.9, 0.999), 1e-8)


def test_shapes_of_signatures_hold_at_run_time() -> None:
    """jaxtyping and beartype check every annotated call of a pass, in a process of its own."""
    program = """
from jaxtyping import install_import_hook
modules = ["viewslots.methods.mulmon", "viewslots.methods.distributions", "viewslots.types"]
with install_import_hook(modules, "beartype.beartype"):
    import torch
    from viewslots.methods.mulmon.model import Mulmon
    from viewslots.methods.mulmon.presets import TINY
    from viewslots.types import SceneBatch
model, rng = Mulmon(TINY), torch.Generator().manual_seed(0)
batch = SceneBatch(torch.rand(2, 3, 3, 12, 12), torch.ones(2, 3, dtype=torch.bool), torch.rand(2, 3, 5))
for called in (model, model.fast("fp32").module):
    called(batch, model.annealed(), model.draw_noise(batch, rng, 4)).minimised.sum().backward()
model.infer(batch, rng).new_views(batch, rng).decomposition()
print("checked")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "checked\n", done.stderr[-2000:]


# The rest of the package.


def test_it_is_trained_scored_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the commands, on scenes that know their cameras; held-out views are shown by their cameras."""
    data, run, out = tmp_path / "data", tmp_path / "run", tmp_path / "results.json"
    disc_store(data)
    train(
        "mulmon-tiny/clevr-m1", data=str(data), run=run, steps=2, batch=1, device="cpu", set_=("model.image_size=32",)
    )
    evaluate(str(run), data=data, out=out, repeats=1, views=2, device="cpu")
    result = json.loads(out.read_text())
    assert result["method"] == "mulmon"
    assert [name for name, value in result["pooled"].items() if value is None] == ["IoU", "F1", "OOA"]
    assert result["extras"]["novel_view_psnr"]["mean"] > 0
    estimate_viewpoints(str(run), data=data, given=1, new=1, out=tmp_path / "new.json", repeats=1, device="cpu")
    assert json.loads((tmp_path / "new.json").read_text())["pooled"]["ARI-O"] is not None
    options = {"data": data, "scenes": 1, "views": 2, "frames": 2, "device": "cpu"}
    capsys.readouterr()
    figures("kmeans", out=tmp_path / "figures", slots=3, compare=(str(run),), **options)  # told by the one compared
    made = json.loads(capsys.readouterr().out)
    assert any(name.startswith("comparison") for name in made)


def test_without_cameras_there_is_one_clear_line(tmp_path: Path) -> None:
    data = make_shapes(tmp_path / "shapes", train=2, valid=1)
    with pytest.raises(UserError, match="split train: its cameras are not known, but the method must be told them"):
        train("mulmon-tiny/clevr-m1", data=str(data), run=tmp_path / "run", steps=2, batch=1, device="cpu")
    assert not (tmp_path / "run").exists()


def test_live_scenes_tell_their_cameras() -> None:
    """Those of the views that are shown, with and without cameras that can be chosen beforehand."""
    options = {"seed": 1, "batch": 2, "device": torch.device("cpu"), "ranks": Ranks()}
    world = FakeWorld()
    found = LiveFeed(world, size=(6, 8), camera=True, **options)(3, 2)
    plain = LiveFeed(world, size=(6, 8), camera=False, **options)(3, 2)
    assert plain.camera is None
    assert torch.equal(found.image, plain.image)
    whole = world.render([world.sample(1, "live", number) for number in (6, 7)], 3)
    for scene, view in np.ndindex(2, 2):
        given = torch.as_tensor(whole.image[scene]).permute(0, 3, 1, 2) / 255
        [which] = [m for m in range(3) if torch.equal(given[m], found.image[scene, view])]
        assert found.camera[scene, view, 4].item() == pytest.approx(
            np.linalg.norm(whole.camera[scene, which]), rel=1e-5
        )
    with pytest.raises(UserError, match="split live: its cameras are not known"):
        LiveFeed(ShapeWorld(), size=(32, 32), camera=True, **options)(0, 1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_recorded_steps_follow_the_plain_loop(precision: Precision) -> None:
    """One graph for each number of observed views; each is used after the others have changed the weights."""
    generator, losses = torch.Generator("cuda").manual_seed(1), []
    image = torch.rand(4, 4, 3, 64, 64, device="cuda", generator=generator)
    camera = torch.rand(4, 4, 5, device="cuda", generator=generator)
    batch = SceneBatch(image, torch.ones(4, 4, dtype=torch.bool, device="cuda"), camera)
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=False, allow_tf32=False):
        for fast in (False, True):
            model = Mulmon(CLEVR, draws()).cuda().train()
            optimisers = model.optimisers(OPTIMISATION)
            step = fast_step(model, optimisers, precision, 5.0) if fast else EagerStep(model, optimisers, "fp32", 5.0)
            assert isinstance(step, GraphStep) == fast
            noises = torch.Generator("cuda").manual_seed(2)
            steps = [step(batch, model.draw_noise(batch, noises), Scheduled(), [1e-5]) for _ in range(8)]
            losses.append([terms.minimised.item() for terms in steps])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4 if precision == "fp32" else 3e-2)


# Learning: three discs of random colours, and cameras that shift the picture.

SIDE, BACKGROUND = TINY.image_size, 255


@dataclass(frozen=True)
class Discs:
    image: NDArray[np.float32]
    segment: NDArray[np.uint8]
    camera: NDArray[np.float32]

    def batch(self, scenes: NDArray[np.int64] | slice = slice(None), views: int = 2) -> SceneBatch:
        image, camera = (torch.from_numpy(part[scenes][:, :views]) for part in (self.image, self.camera))
        return SceneBatch(image, torch.ones(image.shape[:2], dtype=torch.bool), camera)


def apart(rng: np.random.Generator, low: float, high: float, size: int, distance: float, *others: float) -> Array:
    """Three points at random, no two of them near each other, nor near the `others`."""
    while True:
        points = rng.uniform(low, high, (3, size))
        near = [np.linalg.norm(points[i] - points[j]) < distance for i in range(3) for j in range(i)]
        if not any(near) and all(np.linalg.norm(points - other, axis=1).min() > distance for other in others):
            return points


def coloured_discs(seed: int, scenes: int, views: int = 2, radius: float = 2.4) -> Discs:
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:SIDE, :SIDE] - (SIDE - 1) / 2
    image = np.full((scenes, views, 3, SIDE, SIDE), 0.1, np.float32)
    segment = np.full((scenes, views, SIDE, SIDE), BACKGROUND, np.uint8)
    camera = np.zeros((scenes, views, 5), np.float32)
    reach = SIDE / 2 - 0.8 * radius
    for scene in range(scenes):
        centres, colours = apart(rng, -reach, reach, 2, 2 * radius), apart(rng, 0, 1, 3, 0.5, 0.1)
        for view in range(views):
            azimuth = rng.uniform(-1, 1)
            camera[scene, view] = math.cos(azimuth), math.sin(azimuth), 1, 0, 1
            for k, (row, column) in enumerate(centres):
                inside = np.hypot(rows - row, columns - column - SIDE / 8 * math.sin(azimuth)) < radius
                image[scene, view][:, inside] = colours[k][:, None]
                segment[scene, view][inside] = k
    return Discs(image, segment, camera)


def train_tiny(seed: int, scenes: Discs, steps: int) -> Mulmon:
    """The preset's own schedule and optimisation, on the fast twin."""
    made, generator, rng = experiment("mulmon-tiny/clevr-m1").squeezed(steps), draws(seed), np.random.default_rng(seed)
    model = Mulmon(made.model, generator)
    twin, (optimiser,) = model.fast("fp32").module, model.optimisers(made.optimisation)
    for step in range(steps):
        batch = scenes.batch(rng.integers(0, len(scenes.image), made.optimisation.batch_size))
        losses = twin(batch, made.schedule.at(step), model.draw_noise(batch, generator))
        (optimiser.param_groups[0]["lr"],) = made.optimisation.learning_rates_at(step + 1)
        optimiser.zero_grad()
        losses.minimised.mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), made.optimisation.clip_norm)
        optimiser.step()
    return model.eval()


def ari_o(masks: Tensor, segment: NDArray[np.uint8]) -> float:
    """Over the pixels of objects in all views of a scene, mean over scenes."""
    pairs = zip(masks.argmax(2).numpy(), segment, strict=True)
    return float(
        np.mean([adjusted_rand_score(truth[truth != BACKGROUND], found[truth != BACKGROUND]) for found, truth in pairs])
    )


def check_learning(seed: int, steps: int) -> None:
    """Discs are told apart in both views; from one view the other is shown, and better from where it was taken."""
    test, start = coloured_discs(9, 100), time.process_time()
    model = train_tiny(seed, coloured_discs(seed + 100, 2000), steps)
    seconds = time.process_time() - start
    untrained = ari_o(Mulmon(TINY).infer(test.batch(), draws()).masks, test.segment)
    found = ari_o(model.infer(test.batch(), draws()).masks, test.segment)
    one, other = model.infer(test.batch(views=1), draws()), test.batch()
    shown = one.new_views(other, draws(1))
    wrong = one.new_views(replace(other, camera=other.camera.roll(1, 0)), draws(1))  # type: ignore[union-attr]
    right, elsewhere = (float((a.reconstruction - other.image)[:, 1].square().mean()) for a in (shown, wrong))
    figures = {"seed": seed, "seconds": seconds, "ARI-O": found, "untrained": untrained}
    figures |= {"ARI-O of new views": ari_o(shown.masks[:, 1:], test.segment[:, 1:])}
    figures |= {"error": right, "error from elsewhere": elsewhere}
    print(figures)
    assert found > max(0.5, untrained + 0.3), figures
    assert figures["ARI-O of new views"] > 0.4, figures
    assert right < 0.95 * elsewhere, figures


def test_tiny_learns() -> None:
    """In two thirds of its steps, for the sake of time."""
    check_learning(2, 550)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_tiny_learns_on_three_seeds(seed: int) -> None:
    check_learning(seed, TINY_SCHEDULE.steps)
