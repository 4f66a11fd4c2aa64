"""SPACE against the formulas of its paper, written out in numpy, and what the contract asks of a method."""

import copy
import math
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from shape_learning import learning
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributions import Bernoulli, Normal, kl_divergence

from viewslots.errors import UserError
from viewslots.experiments import experiment, slots_for
from viewslots.methods.contract import mapped
from viewslots.methods.space.background import Components, broken_stick
from viewslots.methods.space.batch_norm import BatchNorm
from viewslots.methods.space.config import SpaceConfig
from viewslots.methods.space.foreground import centres, located
from viewslots.methods.space.model import Space
from viewslots.methods.space.objective import (
    Priors,
    boundary_loss,
    foreground_kl,
    negative_log_likelihood,
)
from viewslots.methods.space.presets import (
    ABSTRACT,
    CLEVR,
    DSPRITES,
    OPTIMISATION,
    SCHEDULE,
    TINY,
    TINY_OPTIMISATION,
    TINY_SCHEDULE,
)
from viewslots.methods.space.rendering import Layers, composed, frames
from viewslots.methods.space.schedule import SpaceAnnealing
from viewslots.methods.space.variables import CellPosterior, Cells, Gaussian, SpaceNoise, gaussian_kl, presence_kl
from viewslots.training.step import EagerStep
from viewslots.types import SceneBatch

torch.set_num_threads(1)

PRESETS = {"clevr": CLEVR, "dsprites": DSPRITES, "abstract": ABSTRACT, "tiny": TINY}
SMALL = replace(TINY, image_size=16, grid=2, mask_decoder=((4, 8, 2), (4, 8, 2)), components=2)

Array = NDArray[np.float64]


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=draws(seed), dtype=torch.float64)


def small_model() -> Space:
    """Every parameter random, in double precision: nothing is zero or one by chance."""
    model = Space(SMALL).double()
    with torch.no_grad():
        for index, parameter in enumerate(model.parameters()):
            parameter.add_(0.1 * normal(index, *parameter.shape))
    return model


def pictures(scenes: int = 2, views: int = 3, size: int = 16) -> SceneBatch:
    image = torch.rand(scenes, views, 3, size, size, generator=draws(5), dtype=torch.float64)
    return SceneBatch(image, torch.ones(scenes, views, dtype=torch.bool))


def noise_of(model: Space, batch: SceneBatch, seed: int = 1) -> SpaceNoise:
    dtype = next(model.parameters()).dtype
    drawn = model.draw_noise(batch, draws(seed))
    return SpaceNoise(**{field.name: getattr(drawn, field.name).to(dtype) for field in fields(drawn)})


def some_cells(N: int = 2, K: int = 4) -> Cells:
    return Cells(
        presence=normal(1, N, K).sigmoid(),
        depth=normal(2, N, K),
        scale=(normal(3, N, K, 2) - 0.5).sigmoid(),
        centre=normal(4, N, K, 2).tanh(),
    )


# Cells and pictures.


def test_cells_lie_in_rows_and_reach_one_cell_away() -> None:
    """Two cells a side: their middles are a quarter of the picture from its edges; a cell is 1 wide."""
    middles = centres(torch.zeros(1, 4, 2))
    assert middles.tolist() == [[[-0.5, -0.5], [0.5, -0.5], [-0.5, 0.5], [0.5, 0.5]]]
    right = centres(torch.tensor([[[50.0, 0.0]] * 4]))
    assert right.tolist() == [[[0.5, -0.5], [1.5, -0.5], [0.5, 0.5], [1.5, 0.5]]]
    shift = torch.zeros(1, 64, 2)
    shift[0, 8 * 3 + 5] = torch.tensor([0.25, -0.75]).atanh()
    x, y = centres(shift)[0, 8 * 3 + 5].tolist()
    assert (x, y) == pytest.approx((2 / 8 * (5 + 0.5 + 0.25) - 1, 2 / 8 * (3 + 0.5 - 0.75) - 1))


def test_heads_read_the_map_in_rows() -> None:
    encoder = Space(SMALL).double().foreground.cells
    features = normal(0, 3, 32, 2, 2)
    weight, bias = encoder.heads.weight[:, :, 0, 0].detach(), encoder.heads.bias.detach()
    found = encoder.posterior(features)
    for n, row, column in np.ndindex(3, 2, 2):
        heads = weight @ features[n, :, row, column] + bias
        cell = 2 * row + column
        assert found.presence_logit[n, cell].item() == pytest.approx(8.8 * math.tanh(heads[0]))
        for part, first in ((found.depth, 1), (found.scale, 3), (found.shift, 7)):
            D = part.mean.shape[-1]
            torch.testing.assert_close(part.mean[n, cell], heads[first : first + D])
            expected = (heads[first + D : first + 2 * D].exp() + 1).log()
            torch.testing.assert_close(part.std[n, cell], expected)


def test_samples_are_squeezed_into_the_picture() -> None:
    K, noise = 4, [normal(seed, 1, 1, 4, size) for seed, size in ((0, 1), (1, 2), (2, 2))]
    gaussians = [
        Gaussian(normal(seed, 1, K, size), normal(seed + 9, 1, K, size).exp())
        for seed, size in ((3, 1), (4, 2), (5, 2))
    ]
    logit, logistic = normal(6, 1, K), normal(7, 1, 1, K)
    other = torch.zeros(1, 1, 1, 1)
    cells = located(
        CellPosterior(logit, *gaussians), SpaceNoise(logistic, *noise, what=other, mask=other, component=other), 2.5
    )
    depth, scale, shift = (
        numbers(one.mean[0] + one.std[0] * given[0, 0]) for one, given in zip(gaussians, noise, strict=True)
    )
    for k in range(K):
        odds = (logit[0, k].item() + logistic[0, 0, k].item()) / 2.5
        assert cells.presence[0, k].item() == pytest.approx(1 / (1 + math.exp(-odds)))
        assert cells.depth[0, k].item() == pytest.approx(depth[k, 0])
        for axis, index in enumerate((k % 2, k // 2)):
            assert cells.scale[0, k, axis].item() == pytest.approx(1 / (1 + math.exp(-scale[k, axis])))
            place = 2 / 2 * (index + 0.5 + math.tanh(shift[k, axis])) - 1
            assert cells.centre[0, k, axis].item() == pytest.approx(place)


def numbers(value: Tensor) -> Array:
    return value.detach().numpy()


def test_a_cell_sees_its_part_of_the_picture() -> None:
    """Boxes that are the cells, in pixels of the picture's size: glimpses are its tiles, row by row."""
    model, seen = Space(TINY).double(), []
    model.foreground.encoder.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    images = pictures(2, 1, 32).image[:, 0]
    size = torch.full((2, 16, 2), 1 / 4, dtype=torch.float64)
    flat = torch.zeros(2, 16, dtype=torch.float64)
    what = model.foreground.look(images, Cells(flat, flat, size, centres(torch.zeros_like(size))))
    assert what.mean.shape == what.std.shape == (2, 16, TINY.what_dim)
    for n, row, column in np.ndindex(2, 4, 4):
        tile = images[n, :, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
        torch.testing.assert_close(seen[0][16 * n + 4 * row + column], tile)


# Rendering.


def sampled(glimpse: Array, x: float, y: float) -> Array:
    """Bilinear, at (x, y) of a glimpse [C, g, g] that fills [-1, 1]; nothing lies outside."""
    g = glimpse.shape[-1]
    total = np.zeros(len(glimpse))
    for i, j in np.ndindex(g, g):
        row, column = (2 * i + 1) / g - 1, (2 * j + 1) / g - 1
        weight = max(0, 1 - abs(y - row) * g / 2) * max(0, 1 - abs(x - column) * g / 2)
        total += weight * glimpse[:, i, j]
    return total


def slow_rendering(glimpses: Array, cells: Cells, size: int) -> tuple[Array, Array, Array, Array]:
    """One picture, pixel by pixel: foreground, alpha map, perceived and complete shapes."""
    K = len(glimpses)
    image, alpha = np.zeros((3, size, size)), np.zeros((size, size))
    perceived, complete = np.zeros((K, size, size)), np.zeros((K, size, size))
    presence, depth, scale, centre = (
        numbers(getattr(cells, name)[0]) for name in ("presence", "depth", "scale", "centre")
    )
    for i, j in np.ndindex(size, size):
        importance, alpha_hat, colour = np.zeros(K), np.zeros(K), np.zeros((K, 3))
        for k in range(K):
            x = ((2 * j + 1) / size - 1 - centre[k, 0]) / (scale[k, 0] + 1e-9)
            y = ((2 * i + 1) / size - 1 - centre[k, 1]) / (scale[k, 1] + 1e-9)
            hat = glimpses[k, 3] * presence[k]
            maps = np.stack([*(hat * glimpses[k, :3]), hat, 100 * hat / (1 + math.exp(depth[k])), glimpses[k, 3]])
            *colour[k], alpha_hat[k], importance[k], complete[k, i, j] = sampled(maps, x, y)
        share = np.exp(importance - importance.max())
        share /= share.sum()
        for k in range(K):
            image[:, i, j] += share[k] * colour[k]
            alpha[i, j] += share[k] * alpha_hat[k]
            perceived[k, i, j] = share[k] * alpha_hat[k]
    return image, alpha, perceived, complete


def test_rendering_follows_the_formulas() -> None:
    glimpses, cells = normal(8, 1, 4, 4, 4, 4).sigmoid(), some_cells(1)
    found = composed(glimpses, cells, (12, 12))
    image, alpha, perceived, complete = slow_rendering(glimpses[0].numpy(), cells, 12)
    assert complete.max() > 0.3
    for left, right in (
        (found.image, image),
        (found.alpha, alpha),
        (found.perceived, perceived),
        (found.shapes, complete),
    ):
        np.testing.assert_allclose(numbers(left[0]), right, rtol=1e-8, atol=1e-12)


def test_an_object_is_painted_into_its_box_by_hand() -> None:
    """Half as wide as a quarter of the picture, right of the middle, above it: columns 20 to 27, rows 4 to 11."""
    cells = Cells(
        presence=torch.ones(1, 1),
        depth=torch.zeros(1, 1),
        scale=torch.full((1, 1, 2), 0.25),
        centre=torch.tensor([[[0.5, -0.5]]]),
    )
    glimpses = torch.ones(1, 1, 4, 8, 8)
    glimpses[:, :, :3] = torch.rand(3, 8, 8, generator=draws())
    found = composed(glimpses, cells, (32, 32))
    box = torch.zeros(32, 32)
    box[4:12, 20:28] = 1
    torch.testing.assert_close(found.alpha[0], box)
    torch.testing.assert_close(found.image[0, :, 4:12, 20:28], glimpses[0, 0, :3])


def test_the_nearer_object_is_in_front() -> None:
    glimpses = torch.ones(1, 2, 4, 8, 8)
    glimpses[0, 0, :3], glimpses[0, 1, :3] = 0.2, 0.8
    scale, centre = torch.full((1, 2, 2), 0.9), torch.zeros(1, 2, 2)
    for depth, colour in (([-1.0, 1.0], 0.2), ([1.0, -1.0], 0.8)):
        found = composed(glimpses, Cells(torch.ones(1, 2), torch.tensor([depth]), scale, centre), (8, 8))
        torch.testing.assert_close(found.image[0, :, 4, 4], torch.full((3,), colour))
        assert found.alpha[0, 4, 4].item() == pytest.approx(1)


def test_absent_objects_leave_no_trace() -> None:
    glimpses, cells = normal(8, 2, 4, 4, 4, 4).sigmoid(), some_cells()
    presence = cells.presence.clone()
    presence[:, 1] = 0
    found = [composed(each, replace(cells, presence=presence), (12, 12)) for each in (glimpses, glimpses.flip(3))]
    assert not found[0].perceived[:, 1].any()
    other = glimpses.clone()
    other[:, 1] = 0.5
    again = composed(other, replace(cells, presence=presence), (12, 12))
    torch.testing.assert_close(again.image, found[0].image)
    torch.testing.assert_close(again.perceived, found[0].perceived)
    assert not torch.allclose(found[0].image, found[1].image)


def test_frames_are_those_of_all_present_objects() -> None:
    """Every frame pasted alone: 1 / 1024 on six pixels at each edge of 32, times presence, times 1000."""
    cells, size = some_cells(2, 3), 5
    frame = np.full((1, 32, 32), 1 / 1024)
    frame[:, 6:-6, 6:-6] = 0
    found = numbers(frames(cells, (size, size)))
    scale, centre = numbers(cells.scale) + 1e-9, numbers(cells.centre)
    expected = np.zeros((2, size, size))
    for n, i, j in np.ndindex(2, size, size):
        for k in range(3):
            x, y = (2 * j + 1) / size - 1, (2 * i + 1) / size - 1
            pasted = sampled(frame, (x - centre[n, k, 0]) / scale[n, k, 0], (y - centre[n, k, 1]) / scale[n, k, 1])
            expected[n, i, j] += 1000 * cells.presence[n, k].item() * pasted[0]
    assert expected.max() > 0.5
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-12)


def test_boundary_loss_by_hand() -> None:
    """A glimpse that is the picture: 624 pixels of frame, of which an object of alpha 0.5 fills the upper row."""
    cells = Cells(torch.ones(1, 1), torch.zeros(1, 1), torch.ones(1, 1, 2), torch.zeros(1, 1, 2))
    frame = frames(cells, (32, 32))
    assert int((frame > 0.5).sum()) == 32**2 - 20**2
    torch.testing.assert_close(frame.max().item(), 1000 / 1024)
    alpha = torch.zeros(1, 32, 32)
    alpha[:, 0] = 0.5
    alpha[:, 10:20, 10:20] = 1
    error = 32 * (0.5 * 1000 / 1024 / 0.7) ** 2 / 2
    constant = 1024 * (math.log(0.7) + 0.5 * math.log(2 * math.pi))
    assert boundary_loss(frame, alpha).item() == pytest.approx(error + constant, rel=1e-5)


# The background.


def test_components_break_a_stick() -> None:
    shares = normal(0, 2, 3, 4, 4).sigmoid()
    found = broken_stick(shares)
    left = torch.ones(2, 4, 4, dtype=torch.float64)
    for j in range(3):
        torch.testing.assert_close(found[:, j], left * shares[:, j])
        left = left * (1 - shares[:, j])
    torch.testing.assert_close(found[:, 3], left)
    torch.testing.assert_close(found.sum(1), torch.ones(2, 4, 4, dtype=torch.float64))


def test_the_background_step_by_step() -> None:
    """Two components: posterior and prior of masks, then of components given masks, in the paper's order."""
    model = small_model().eval()
    background, N, D = model.background, 3, SMALL.mask_dim
    images, noise = pictures(3, 1).image[:, 0], noise_of(model, pictures(3, 1))
    found = background(images, noise, None)
    posterior, prior = background.mask_posterior, background.mask_prior
    features = nn.functional.elu(background.encoder(images, None))

    def gaussian(raw: Tensor) -> Normal:
        mean, spread = raw.chunk(2, -1)
        return Normal(mean, nn.functional.softplus(spread) + 1e-4)

    z, state = (
        posterior.first_mask.expand(N, D),
        (posterior.first_hidden.expand(N, -1), posterior.first_cell.expand(N, -1)),
    )
    before = (prior.first_hidden.expand(N, -1), prior.first_cell.expand(N, -1))
    mask_kl, samples = torch.zeros(N, dtype=torch.float64), []
    for j in range(2):
        state = posterior.recurrent(torch.cat([z, features], 1), state)
        believed, expected = gaussian(posterior.predict(state[0])), gaussian(prior.predict(before[0]))
        z = believed.mean + believed.stddev * noise.mask[:, 0, j]
        mask_kl = mask_kl + kl_divergence(believed, expected).sum(1)
        before = prior.recurrent(z, before)
        samples.append(z)
    assert background.mask_decoder is not None
    first = background.mask_decoder(samples[0])[:, 0].sigmoid()
    component_kl = torch.zeros(N, dtype=torch.float64)
    for j, mask in enumerate((first, 1 - first)):
        seen = torch.cat([(mask + 1e-5).log()[:, None], images], 1)
        believed = gaussian(background.component_encoder(seen, None))
        expected = gaussian(background.component_prior(samples[j]))
        component_kl = component_kl + kl_divergence(believed, expected).sum(1)
        painted = background.painter(believed.mean + believed.stddev * noise.component[:, 0, j], None)
        torch.testing.assert_close(found.images[:, j], painted)
        torch.testing.assert_close(found.masks[:, j], mask)
    torch.testing.assert_close(found.mask_kl, mask_kl)
    torch.testing.assert_close(found.component_kl, component_kl)
    torch.testing.assert_close(
        found.image(), first[:, None] * found.images[:, 0] + (1 - first)[:, None] * found.images[:, 1]
    )


def test_a_single_component_is_the_whole_picture() -> None:
    model = Space(TINY).eval()
    found = model.background(torch.rand(2, 3, 32, 32), noise_of(model, pictures(2, 1, 32)), None)
    assert torch.equal(found.masks, torch.ones(2, 1, 32, 32))
    assert model.background.mask_decoder is None
    assert bool((found.mask_kl > 0).all())


def test_components_know_their_place() -> None:
    """Coordinates from -1 to 1 over the picture and a margin, which the convolutions use up."""
    painter = Space(SMALL).double().background.painter
    places = painter.places
    assert places.shape == (2, 18, 18)
    torch.testing.assert_close(places[0, 3], torch.linspace(-1, 1, 18).double())
    torch.testing.assert_close(places[1, :, 3], torch.linspace(-1, 1, 18).double())
    assert painter(normal(0, 2, SMALL.component_dim), None).shape == (2, 3, 16, 16)


# Batch normalisation.


def test_batch_statistics_are_torchs() -> None:
    """With nothing padded, outputs, gradients and running statistics are those of torch's own layer."""
    ours, theirs = BatchNorm(3).double(), nn.BatchNorm2d(3).double()
    every = torch.ones(4, dtype=torch.bool)
    for step in range(3):
        maps = [normal(step, 4, 3, 5, 5).requires_grad_() for _ in range(2)]
        answers = ours(maps[0], every), theirs(maps[1])
        torch.testing.assert_close(*answers)
        for answer in answers:
            (answer * normal(9, *answer.shape)).sum().backward()
        torch.testing.assert_close(maps[0].grad, maps[1].grad)
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)
    torch.testing.assert_close(ours.eval()(maps[0], every), theirs.eval()(maps[1]))


def test_padding_is_in_no_statistics() -> None:
    ours, theirs = BatchNorm(3).double(), nn.BatchNorm2d(3).double()
    maps, real = normal(0, 5, 3, 4, 4), torch.tensor([True, False, True, True, False])
    maps[~real] = 1e3
    torch.testing.assert_close(ours(maps, real)[real], theirs(maps[real]))
    torch.testing.assert_close(ours.running_mean, theirs.running_mean)
    torch.testing.assert_close(ours.running_var, theirs.running_var)


class Meeting:
    """Two processes as two threads that wait for each other."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2, timeout=30)
        self.brought: list[Tensor] = [torch.zeros(0)] * 2

    def gather(self, rank: int) -> Callable[[Tensor], Tensor]:
        def joined(values: Tensor) -> Tensor:
            self.brought[rank] = values.detach()
            self.barrier.wait()
            both = torch.cat(self.brought)
            self.barrier.wait()
            return both

        return joined

    def run(self, work: Callable[[int], None]) -> None:
        failures: list[BaseException] = []

        def guarded(rank: int) -> None:
            try:
                work(rank)
            except BaseException as error:
                failures.append(error)
                self.barrier.abort()

        threads = [threading.Thread(target=guarded, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures


def test_two_processes_train_as_one() -> None:
    """A share of the scenes with its share of the noise: losses, mean gradient and statistics are those of all."""
    model, batch = small_model(), pictures(4, 2)
    batch = replace(batch, view_mask=torch.tensor([[True, True], [True, False], [True, True], [True, True]]))
    noise, twins, meeting = noise_of(model, batch), [copy.deepcopy(model) for _ in range(2)], Meeting()
    whole = model(batch, SCHEDULE.at(0), noise).minimised
    whole.mean().backward()
    found: list[Any] = [None, None]

    def work(rank: int) -> None:
        part, twin = slice(2 * rank, 2 * rank + 2), twins[rank]
        twin.share_statistics(meeting.gather(rank))
        share = SceneBatch(batch.image[part], batch.view_mask[part])
        found[rank] = twin(share, SCHEDULE.at(0), mapped(noise, lambda value: value[part])).minimised
        found[rank].mean().backward()

    meeting.run(work)
    torch.testing.assert_close(torch.cat(found), whole)
    for parts in zip(model.parameters(), *(twin.parameters() for twin in twins), strict=True):
        mine, *theirs = (part.grad for part in parts)
        torch.testing.assert_close(sum(theirs) / 2, mine, rtol=1e-7, atol=1e-7)
    for mine, *theirs in zip(model.buffers(), *(twin.buffers() for twin in twins), strict=True):
        for their in theirs:
            torch.testing.assert_close(their, mine)


# The objective.


def test_divergences_are_those_of_torch() -> None:
    mean, std, other = normal(0, 3, 4), normal(1, 3, 4).exp(), normal(2, 3, 4)
    for prior_mean, prior_std in ((0.0, 1.0), (torch.tensor(-0.5).double(), 0.5), (other, other.exp())):
        expected = kl_divergence(Normal(mean, std), Normal(prior_mean, prior_std)).sum(-1)
        torch.testing.assert_close(gaussian_kl(mean, std, prior_mean, prior_std), expected)
    logit = 8.8 * normal(3, 50).tanh()
    for prior in (0.1, 0.01):
        expected = kl_divergence(Bernoulli(logits=logit), Bernoulli(torch.tensor(prior).double()))
        torch.testing.assert_close(presence_kl(logit, prior), expected)
        torch.testing.assert_close(presence_kl(logit, torch.tensor(prior).double()), expected)


def test_every_cell_pays_for_its_code() -> None:
    """Sums over cells and dimensions, whether an object is there or not."""
    parts = [(normal(seed, 2, 4, D), normal(seed + 5, 2, 4, D).exp()) for seed, D in ((0, 1), (1, 2), (2, 2), (3, 6))]
    depth, scale, shift, what = (Gaussian(*part) for part in parts)
    logit, priors = normal(9, 2, 4), Priors.at(SpaceAnnealing(presence_share=0.5, scale_share=0.25), DSPRITES)
    assert (priors.presence, priors.scale_mean, priors.scale_std) == (pytest.approx(0.055), pytest.approx(-0.125), 0.5)
    found = foreground_kl(CellPosterior(logit, depth, scale, shift), what, priors)
    expected = {"presence": kl_divergence(Bernoulli(logits=logit), Bernoulli(torch.tensor(0.055).double())).sum(1)}
    for name, one in (("depth", depth), ("shift", shift), ("what", what)):
        expected[name] = kl_divergence(Normal(one.mean, one.std), Normal(0.0, 1.0)).sum((1, 2))
    expected["scale"] = kl_divergence(Normal(scale.mean, scale.std), Normal(-0.125, 0.5)).sum((1, 2))
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-6, atol=1e-8)


def density(value: float, mean: float, sigma: float) -> float:
    return math.exp(-0.5 * ((value - mean) / sigma) ** 2) / (sigma * math.sqrt(2 * math.pi))


def test_every_channel_is_a_mixture() -> None:
    N, J, size = 2, 3, 4
    images, shown = normal(0, N, 3, size, size).sigmoid(), normal(1, N, 3, size, size).sigmoid()
    alpha, masks = normal(2, N, size, size).sigmoid(), normal(3, N, J, size, size).softmax(1)
    painted = normal(4, N, J, 3, size, size).sigmoid()
    nothing = torch.zeros(N, dtype=torch.float64)
    layers = Layers(shown, alpha, weights=alpha[:, None], shapes=alpha[:, None])
    found = negative_log_likelihood(images, layers, Components(masks, painted, nothing, nothing), (0.2, 0.1))
    for n in range(N):
        total = 0.0
        for c, i, j in np.ndindex(3, size, size):
            x, a = images[n, c, i, j].item(), alpha[n, i, j].item()
            front = density(x, shown[n, c, i, j].item(), 0.2)
            behind = sum(
                (masks[n, k, i, j].item() + 1e-5) * density(x, painted[n, k, c, i, j].item(), 0.1) for k in range(J)
            )
            total -= math.log((a + 1e-5) * front + (1 - a + 1e-5) * behind)
        assert found[n].item() == pytest.approx(total, rel=1e-10)


def test_what_is_minimised_and_what_compares() -> None:
    """The priors of the step and the boundary loss; the final priors and none, which the terms add up to."""
    model, batch = small_model().eval(), pictures()
    noise, scheduled = noise_of(model, batch), SpaceAnnealing(1.5, 0.25, 0.5, 1.0)
    losses, seen = model(batch, scheduled, noise), model.explain(batch, scheduled, noise)
    assert tuple(losses.terms) == Space.terms
    assert set(Space.headline) <= set(Space.terms)
    parts = {name: value for name, value in losses.terms.items() if name != "boundary"}
    torch.testing.assert_close(losses.comparable, torch.stack([*parts.values()]).sum(0))
    now = foreground_kl(seen.posterior, seen.what, Priors.at(scheduled, SMALL))
    for name in ("presence", "scale"):
        assert not torch.allclose(now[name].view(2, 3).mean(1), parts[name])
        parts[name] = now[name].view(2, 3).mean(1)
    torch.testing.assert_close(losses.minimised, torch.stack([*parts.values(), losses.terms["boundary"]]).sum(0))
    without = model(batch, replace(scheduled, weight_boundary=0.0), noise)
    torch.testing.assert_close(without.minimised, losses.minimised - losses.terms["boundary"])
    after = model(batch, model.annealed(), noise)
    torch.testing.assert_close(after.minimised, after.comparable)


def test_the_papers_annealing() -> None:
    """Temperature 2.5 to 0.5 over 20k steps; presence 0.1 to 0.01 from 4k to 10k; scales from 10k to 20k; boundary
    loss until 100k."""
    table = {  # temperature, presence and scale prior (dSprites), weight of the boundary loss
        0: (2.5, 0.1, 0.0, 1),
        4_000: (2.1, 0.1, 0.0, 1),
        7_000: (1.8, 0.055, 0.0, 1),
        10_000: (1.5, 0.01, 0.0, 1),
        15_000: (1.0, 0.01, -0.25, 1),
        20_000: (0.5, 0.01, -0.5, 1),
        99_999: (0.5, 0.01, -0.5, 1),
        100_000: (0.5, 0.01, -0.5, 0),
        200_000: (0.5, 0.01, -0.5, 0),
    }
    for step, expected in table.items():
        now = SCHEDULE.at(step)
        priors = Priors.at(now, DSPRITES)
        assert (now.temperature, priors.presence, priors.scale_mean, now.weight_boundary) == pytest.approx(expected)
    assert SCHEDULE.at(200_000) == SpaceAnnealing()
    half = SCHEDULE.squeezed(100_000)
    assert vars(half.at(3_500)) == pytest.approx(vars(SCHEDULE.at(7_000)))
    assert (half.boundary_steps, half.scale_last_step) == (50_000, 10_000)


def test_the_papers_exceptions() -> None:
    """Of the OCLOC paper's comparison, in the order of its list."""
    assert SCHEDULE.steps == 200_000
    assert {config.components for config in PRESETS.values()} == {1}
    assert (DSPRITES.component_dim, ABSTRACT.component_dim, CLEVR.component_dim) == (32, 4, 32)
    scales = {name: (one.scale_prior_start, one.scale_prior_end) for name, one in PRESETS.items() if name != "tiny"}
    assert scales == {"clevr": (0.0, -0.5), "dsprites": (0.0, -0.5), "abstract": (0.5, 0.0)}
    assert {one.scale_prior_std for one in (CLEVR, DSPRITES, ABSTRACT)} == {0.5}
    sigmas = {name: (one.foreground_sigma, one.background_sigma) for name, one in PRESETS.items() if name != "tiny"}
    assert sigmas == {"clevr": (0.15, 0.15), "dsprites": (0.15, 0.15), "abstract": (0.2, 0.1)}
    assert (DSPRITES.glimpse_size, ABSTRACT.glimpse_size, CLEVR.glimpse_size) == (32, 32, 64)
    assert {one.slots for one in (CLEVR, DSPRITES, ABSTRACT)} == {64}


# Networks.


def convolution(inputs: int, outputs: int, kernel: int) -> int:
    return inputs * outputs * kernel**2 + outputs


def normed(inputs: int, outputs: int, kernel: int) -> int:
    return convolution(inputs, outputs, kernel) + 2 * outputs


def linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def enlarged(inputs: int, outputs: int, factor: int) -> int:
    """1x1 convolution to factor^2 times the channels, normalised after the shuffle, then a 3x3 convolution."""
    return convolution(inputs, outputs * factor**2, 1) + 2 * outputs + normed(outputs, outputs, 3)


def foreground_count(last_map: int, first_factor: int) -> int:
    encoder = normed(3, 16, 4) + normed(16, 32, 4) + normed(32, 64, 4) + normed(64, 128, 3) + normed(128, 256, 3)
    encoder += normed(256, 128, 1)
    lateral = 2 * normed(128, 128, 3) + normed(256, 128, 3)
    heads = linear(128, 1) + linear(128, 2) + linear(128, 4) + linear(128, 4)
    glimpse = normed(3, 16, 3) + normed(16, 32, 4) + normed(32, 32, 3) + normed(32, 64, 4) + normed(64, 128, 4)
    glimpse += normed(128, 256, last_map) + linear(256, 64)
    decoder = normed(32, 256, 1) + enlarged(256, 128, first_factor) + enlarged(128, 128, 2) + enlarged(128, 64, 2)
    decoder += enlarged(64, 32, 2) + enlarged(32, 16, 2) + convolution(16, 3, 3) + convolution(16, 1, 3)
    return encoder + lateral + heads + glimpse + decoder


def background_count(last_map: int, component: int) -> int:
    """Without what a single component has no use for: the mask decoder and the LSTM of the prior."""
    encoder = normed(3, 64, 3) + 3 * normed(64, 64, 3) + linear(64 * last_map**2, 64)
    recurrent = 4 * 64 * (32 + 64) + 4 * 64 * 64 + 2 * 4 * 64
    masks = recurrent + (32 + 64 + 64) + linear(64, 64) + 64 + linear(64, 64)
    components = normed(4, 32, 3) + normed(32, 32, 3) + normed(32, 64, 3) + normed(64, 64, 3)
    components += linear(64 * last_map**2, 2 * component)
    prior = linear(32, 64) + linear(64, 64) + linear(64, 2 * component)
    painter = normed(component + 2, 32, 3) + 3 * normed(32, 32, 3) + convolution(32, 3, 1)
    return encoder + masks + components + prior + painter


COUNTS = {
    "dsprites": (foreground_count(4, 2), background_count(4, 32)),
    "abstract": (foreground_count(4, 2), background_count(4, 4)),
    "clevr": (foreground_count(8, 4), background_count(8, 32)),
}
TOTALS = {"dsprites": 2_766_066, "abstract": 2_696_962, "clevr": 5_126_898}


@pytest.mark.parametrize("name", COUNTS)
def test_parameters_are_those_of_the_layer_list(name: str) -> None:
    with torch.device("meta"):
        model = Space(PRESETS[name])
    foreground, background = COUNTS[name]
    assert model.parameter_counts() == {"total": TOTALS[name], "foreground": foreground, "background": background}
    assert foreground + background == TOTALS[name]


def test_several_components_have_their_networks() -> None:
    """The mask decoder 1 -> 4 -> 8 -> 32 -> 64, and the LSTM of the prior with its first cell state."""
    with torch.device("meta"):
        one, three = (Space(replace(DSPRITES, components=components)).parameter_counts() for components in (1, 3))
    decoder = normed(32, 256, 1) + enlarged(256, 256, 4) + enlarged(256, 128, 2) + enlarged(128, 64, 4)
    decoder += enlarged(64, 16, 2) + convolution(16, 1, 3)
    recurrent = 4 * 64 * 32 + 4 * 64 * 64 + 2 * 4 * 64 + 64
    assert three["background"] - one["background"] == decoder + recurrent
    assert three["foreground"] == one["foreground"]


@pytest.mark.parametrize("name", PRESETS)
def test_a_pass_never_looks_at_a_value(name: str) -> None:
    """Tensors without values go through, so a step can be captured as a graph; the losses are one number a scene."""
    config = PRESETS[name]
    components, views = (2, 2) if config is TINY else (1, 1)
    with FakeTensorMode():
        model = Space(replace(config, components=components))
        batch = SceneBatch(torch.zeros(2, views, 3, *model.image_size), torch.ones(2, views, dtype=torch.bool))
        noise = SpaceNoise(
            presence=torch.zeros(2, views, config.slots),
            depth=torch.zeros(2, views, config.slots, 1),
            scale=torch.zeros(2, views, config.slots, 2),
            shift=torch.zeros(2, views, config.slots, 2),
            what=torch.zeros(2, views, config.slots, config.what_dim),
            mask=torch.zeros(2, views, components, config.mask_dim),
            component=torch.zeros(2, views, components, config.component_dim),
        )
        scheduled = SpaceAnnealing(*(torch.zeros(()) for _ in range(4)))
        losses = model(batch, scheduled, noise)
        losses.minimised.mean().backward()
        seen = model.explain(batch, scheduled, noise)
    assert seen.layers.shapes.shape == (2 * views, config.slots, *model.image_size)
    assert seen.background.images.shape == (2 * views, components, 3, *model.image_size)
    assert all(value.shape == (2,) for value in (losses.minimised, losses.comparable, *losses.terms.values()))
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_weights_start_as_torch_has_them() -> None:
    model = Space(DSPRITES, draws(3))
    limits = {  # inputs of a unit
        "foreground.cells.features.0.weight": 3 * 16,
        "foreground.cells.features.0.bias": 3 * 16,
        "foreground.cells.heads.weight": 128,
        "foreground.encoder.what.weight": 256,
        "foreground.decoder.layers.0.weight": 32,
        "background.encoder.linear.weight": 64 * 16,
        "background.mask_posterior.recurrent.weight_ih": 64,
        "background.component_prior.0.bias": 32,
    }
    parameters = dict(model.named_parameters())
    for name, inputs in limits.items():
        limit, values = 1 / math.sqrt(inputs), parameters[name].detach()
        assert 0.8 * limit < float(values.abs().max()) <= limit, name
        assert float(values.std()) == pytest.approx(limit / math.sqrt(3), rel=0.3), name
    for name, value in parameters.items():
        if "first" in name:
            assert not value.any(), name
    again, other = Space(DSPRITES, draws(3)), Space(DSPRITES, draws(4))
    assert torch.equal(again.foreground.cells.heads.weight, model.foreground.cells.heads.weight)
    assert not torch.equal(other.foreground.cells.heads.weight, model.foreground.cells.heads.weight)


# Learning.


def test_two_optimisers_share_all_parameters() -> None:
    model = Space(TINY)
    first, second = model.optimisers(TINY_OPTIMISATION)
    assert isinstance(first, torch.optim.RMSprop)
    assert isinstance(second, torch.optim.Adam)
    assert (first.defaults["alpha"], first.defaults["eps"], first.defaults["momentum"]) == (0.99, 1e-8, 0)
    assert (second.defaults["betas"], second.defaults["eps"]) == ((0.9, 0.999), 1e-8)
    held = [id(parameter) for one in (first, second) for group in one.param_groups for parameter in group["params"]]
    assert len(held) == len(set(held))
    assert set(held) == {id(parameter) for parameter in model.parameters()}
    assert {id(parameter) for parameter in model.foreground.parameters()} == set(
        held[: len(first.param_groups[0]["params"])]
    )


def test_the_papers_learning_rates() -> None:
    assert (OPTIMISATION.batch_size, OPTIMISATION.clip_norm) == (12, 1.0)
    for step in (0, 1, 200_000):
        assert OPTIMISATION.learning_rates_at(step) == (1e-5, 1e-3)
    slower = replace(OPTIMISATION, warmup_steps=100, decay_factor=0.5, decay_steps=1000)
    assert slower.learning_rates_at(50) == pytest.approx((0.5e-5 * 0.5**0.05, 1e-3 * 0.5**0.05))


def test_gradients_are_clipped_together() -> None:
    """RMSprop's first second moment is a hundredth of the squared gradient, Adam's a thousandth: they tell its norm."""
    model = Space(TINY, draws(1))
    batch = SceneBatch(torch.rand(3, 1, 3, 32, 32, generator=draws()), torch.ones(3, 1, dtype=torch.bool))
    optimisers = model.optimisers(OPTIMISATION)
    step = EagerStep(model, optimisers, "fp32", OPTIMISATION.clip_norm)
    step(batch, model.draw_noise(batch, draws(2)), SCHEDULE.at(0), OPTIMISATION.learning_rates_at(1))
    foreground = sum(float(entry["square_avg"].sum()) * 100 for entry in optimisers[0].state.values())
    background = sum(float(entry["exp_avg_sq"].sum()) * 1000 for entry in optimisers[1].state.values())
    assert foreground + background == pytest.approx(1, rel=1e-3)
    assert min(foreground, background) > 0


def test_gradients_reach_everything() -> None:
    """Where objects are is learned through the glimpse and through the picture; priors of masks by their KL alone."""
    model, batch = small_model(), pictures()
    noise = noise_of(model, batch)
    model(batch, SCHEDULE.at(0), noise).minimised.mean().backward()
    assert all(parameter.grad is not None and bool(parameter.grad.any()) for parameter in model.parameters())
    seen = model.explain(batch, SCHEDULE.at(0), noise)
    (through_glimpse,) = torch.autograd.grad(
        seen.what.mean.sum(), model.foreground.cells.heads.weight, retain_graph=True
    )
    (through_picture,) = torch.autograd.grad(
        seen.layers.shapes.square().sum(), model.foreground.cells.heads.weight, retain_graph=True
    )
    assert not through_glimpse[:3].any()  # what a cell sees depends on its box, not on presence or depth
    assert through_glimpse[3:].any()
    assert through_picture[3:].any()
    prior = model.background.mask_prior.predict.weight
    assert torch.autograd.grad(seen.background.images.sum(), prior, retain_graph=True, allow_unused=True) == (None,)
    assert torch.autograd.grad(seen.background.mask_kl.sum(), prior)[0].any()


def test_delicate_parts_leave_autocast() -> None:
    glimpses, cells = normal(8, 2, 4, 4, 4, 4).sigmoid().float(), mapped(some_cells(), Tensor.float)
    images, nothing = torch.rand(2, 3, 12, 12, generator=draws()), torch.zeros(2)
    painted = torch.rand(2, 1, 3, 12, 12, generator=draws(1))
    components = Components(torch.ones(2, 1, 12, 12), painted, nothing, nothing)

    def all_of_it() -> list[Tensor]:
        layers = composed(glimpses, cells, (12, 12))
        nll = negative_log_likelihood(images, layers, components, (0.15, 0.15))
        boundary = boundary_loss(frames(cells, (12, 12)), layers.alpha)
        kl = gaussian_kl(cells.scale, cells.scale, 0.3, 0.5)
        return [layers.image, layers.alpha, layers.weights, nll, boundary, kl, presence_kl(cells.depth, 0.01)]

    expected = all_of_it()
    with torch.autocast("cpu", torch.bfloat16):
        found = all_of_it()
    for left, right in zip(found, expected, strict=True):
        assert torch.equal(left, right)


def test_a_pass_in_half_precision_answers_in_full() -> None:
    model = Space(TINY)
    batch = SceneBatch(torch.rand(4, 1, 3, 32, 32, generator=draws(1)), torch.ones(4, 1, dtype=torch.bool))
    noise, scheduled = model.draw_noise(batch, draws()), TINY_SCHEDULE.at(0)
    expected = model(batch, scheduled, noise).minimised
    with torch.autocast("cpu", torch.bfloat16):
        seen, losses = model.explain(batch, scheduled, noise), model(batch, scheduled, noise)
    losses.minimised.mean().backward()
    kept = (seen.posterior.presence_logit, seen.cells.scale, seen.what.mean, seen.layers.image, seen.background.images)
    assert {value.dtype for value in (*kept, losses.minimised, *losses.terms.values())} == {torch.float32}
    torch.testing.assert_close(losses.minimised, expected, rtol=0.02, atol=0)


# The method.


def test_padded_views_change_nothing() -> None:
    """Neither loss, nor gradient, nor running statistics, nor what the other views answer, whatever they hold."""
    batch, mask = pictures(), torch.tensor([[True, True, True], [True, True, False]])
    found = []
    for filling in (0.0, 0.9):
        model = small_model()
        noise = noise_of(model, batch)
        image = torch.where(mask[:, :, None, None, None], batch.image, filling)
        losses = model(SceneBatch(image, mask), SCHEDULE.at(0), noise)
        losses.minimised.sum().backward()
        gradient = torch.cat([item.grad.flatten() for item in model.parameters() if item.grad is not None])
        statistics = torch.cat([item.flatten().double() for item in model.buffers()])
        answer = model.eval().explain(SceneBatch(image, mask), model.annealed(), noise)
        found.append((losses.minimised.detach(), gradient, statistics, answer.layers.perceived[mask.flatten()]))
    for left, right in zip(*found, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-9)
    alone = model(batch, model.annealed(), noise).minimised
    part = SceneBatch(batch.image[1:, :2], mask[1:, :2])
    cut = model(part, model.annealed(), mapped(noise, lambda value: value[1:, :2])).minimised
    padded = model(SceneBatch(batch.image, mask), model.annealed(), noise).minimised
    torch.testing.assert_close(cut, padded[1:])
    torch.testing.assert_close(padded[:1], alone[:1])


def test_views_and_scenes_stand_alone() -> None:
    model, batch = small_model().eval(), pictures(views=2)
    noise = noise_of(model, batch)
    both, losses = model.explain(batch, model.annealed(), noise), model(batch, model.annealed(), noise).minimised
    for scene in range(2):
        ones = []
        for view in range(2):
            part = SceneBatch(batch.image[scene, view][None, None], torch.ones(1, 1, dtype=torch.bool))
            given = mapped(noise, lambda value, at=(scene, view): value[at][None, None])
            single = model.explain(part, model.annealed(), given)
            torch.testing.assert_close(single.layers.perceived[0], both.layers.perceived[2 * scene + view])
            ones.append(model(part, model.annealed(), given).minimised)
        torch.testing.assert_close(torch.cat(ones).mean(), losses[scene])


def test_an_answer_as_layers() -> None:
    """Cells, nearer ones with the larger order; the background has what they leave; absent ones have no shape."""
    model, batch = (
        Space(TINY, draws(1)).eval(),
        SceneBatch(
            torch.rand(3, 2, 3, 32, 32, generator=draws(1)), torch.tensor([[True, True], [True, False], [True, True]])
        ),
    )
    answer = model.infer(batch, draws(4))
    found, seen = answer.decomposition(), answer.seen
    assert found.has_background
    assert found.layer_masks.shape == (3, 2, 17, 32, 32)
    torch.testing.assert_close(found.layer_masks.sum(2), torch.ones(3, 2, 32, 32))
    assert float(found.layer_masks.min()) > -1e-6
    shown = seen.layers.image + (1 - seen.layers.alpha[:, None]) * seen.background.image()
    assert torch.equal(found.reconstruction.flatten(0, 1), shown)
    presence = seen.cells.presence.view(3, 2, 16)
    assert bool((presence < 0.5).any())
    assert bool((presence >= 0.5).any())
    assert found.complete_shapes is not None
    shapes = seen.layers.shapes.view(3, 2, 16, 32, 32)
    assert not found.complete_shapes[presence < 0.5].any()
    assert torch.equal(found.complete_shapes[presence >= 0.5], shapes[presence >= 0.5])
    assert found.presence is not None
    assert torch.equal(found.presence[0], presence[0].amax(0))
    assert torch.equal(found.presence[1], presence[1, 0])  # its second view is padding
    assert found.presence_probability is not None
    assert torch.equal(found.presence_probability[1], seen.posterior.presence_logit.view(3, 2, 16)[1, 0].sigmoid())
    assert found.depth_order is not None
    assert torch.equal(found.depth_order, -seen.cells.depth.view(3, 2, 16))
    told = model.diagnostics(answer)
    real = presence[batch.view_mask]
    assert told["objects"] == pytest.approx(float((real >= 0.5).sum(1).float().mean()))
    assert told["foreground"] == pytest.approx(float(1 - found.layer_masks[:, :, 0][batch.view_mask].mean()), rel=1e-5)


def test_slots_are_the_cells_whatever_is_asked_for() -> None:
    model = Space(TINY).eval()
    batch = SceneBatch(torch.rand(1, 1, 3, 32, 32, generator=draws(1)), torch.ones(1, 1, dtype=torch.bool))
    plain = model.infer(batch, draws(4)).decomposition().layer_masks
    assert not plain.requires_grad
    for slots in (None, 1, 40):
        assert torch.equal(model.infer(batch, draws(4), slots).decomposition().layer_masks, plain)
    assert not torch.equal(model.infer(batch, draws(5)).decomposition().layer_masks, plain)
    assert model.slots == 16
    made = experiment("space/dsprites")
    assert (made.model.slots, made.test_slots) == (64, 64)
    assert (slots_for("dsprites", "test"), slots_for("dsprites", "test2")) == (6, 9)  # objects, for those who must know


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": 8}, "strides of 8 make 32 pixels no grid of 8 cells"),
        ({"glimpse_size": 9}, "do not divide a glimpse of 9"),
        ({"glimpse_decoder": ((2, 8, 2),)}, "glimpse decoder makes maps of side 2, not 8"),
        ({"mask_decoder": ((2, 8, 2),)}, "mask decoder makes maps of side 2, not 32"),
        ({"background_channels": (8,) * 6}, "background_channels: 32 pixels cannot be halved 6 times"),
        ({"glimpse_groups": 5}, "32 channels cannot be normalised in 5 groups"),
        ({"presence_prior_end": 0.0}, "presence_prior_end cannot be 0.0: it must be above 0 and below 1"),
        ({"what_dim": 2.5}, "what_dim cannot be 2.5"),
    ],
)
def test_impossible_sizes_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        SpaceConfig.from_json(TINY.to_json() | changes)


def test_saved_models_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With their running statistics."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model = Space(TINY, draws(1))
    batch = SceneBatch(torch.rand(1, 2, 3, 32, 32, generator=draws()), torch.ones(1, 2, dtype=torch.bool))
    model(batch, SCHEDULE.at(0), model.draw_noise(batch, draws()))
    model.eval().save_pretrained(tmp_path / "model")
    loaded = Space.from_pretrained(tmp_path / "model", expect=TINY)
    assert loaded.config == TINY
    answers = [one.infer(batch, draws(3)).decomposition().reconstruction for one in (model, loaded)]
    assert torch.equal(*answers)
    model.restart_statistics()
    assert not torch.equal(model.infer(batch, draws(3)).decomposition().reconstruction, answers[0])


def test_shapes_of_signatures_hold_at_run_time() -> None:
    """jaxtyping and beartype check every annotated call of a pass, in a process of its own."""
    program = """
from dataclasses import replace
from jaxtyping import install_import_hook
modules = ["viewslots.methods.space", "viewslots.methods.spatial", "viewslots.methods.distributions", "viewslots.types"]
with install_import_hook(modules, "beartype.beartype"):
    import torch
    from viewslots.methods.space.model import Space
    from viewslots.methods.space.presets import TINY, TINY_SCHEDULE
    from viewslots.types import SceneBatch
rng = torch.Generator().manual_seed(0)
for components in (1, 2):
    for views in (1, 3):
        model = Space(replace(TINY, components=components))
        batch = SceneBatch(torch.rand(2, views, 3, 32, 32), torch.ones(2, views, dtype=torch.bool))
        for scheduled in (TINY_SCHEDULE.at(0), TINY_SCHEDULE.at(0).tensors("cpu")):
            model(batch, scheduled, model.draw_noise(batch, rng, 4)).minimised.sum().backward()
        answer = model.eval().infer(batch, rng)
        answer.decomposition()
        model.diagnostics(answer)
print("checked")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "checked\n", done.stderr[-3000:]


# Learning: two shapes of one colour, which colour cannot tell apart.

ARI_O, ARI_A, MARGIN = 0.75, 0.65, 0.3
"""What every seed must reach, and by how much it must beat the references."""


def opposite(image: NDArray[np.float32]) -> SceneBatch:
    """In the opposite colours: dark shapes on light ground. Colours of the foreground are weighted by its alpha, so
    what is dark looks to an untrained model like an object that is hardly there."""
    return SceneBatch(torch.as_tensor(1 - image), torch.ones(image.shape[:2], dtype=torch.bool))


def check_learning(seed: int) -> None:
    figures = learning("space-tiny/dsprites", seed, first_layer=1, shown=opposite)
    assert figures["ARI-O"] > max(ARI_O, figures["untrained"] + MARGIN, figures["k-means"] + MARGIN), figures
    assert figures["ARI-A"] > ARI_A, figures


def test_tiny_learns() -> None:
    check_learning(1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_tiny_learns_on_three_seeds(seed: int) -> None:
    check_learning(seed)
