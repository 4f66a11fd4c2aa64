"""Algorithm 1 and the training likelihood, written out a second time from weights and noise, and compared."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from paper_cases import SMALL, K, case, drawn_in_training, generator, in_double, scenes, shaken, worst
from torch import Tensor

from viewslots.methods.ocloc.config import DecoderConfig
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.networks import DenseDecoder, SlotUpdate, upsampling_stages
from viewslots.methods.ocloc.schedule import Annealing
from viewslots.methods.ocloc.variables import Latents, Noise, Posterior
from viewslots.methods.per_view.model import PerView, fold
from viewslots.types import SceneBatch

Array = NDArray[np.float64]

UNEVEN = Annealing(temperature_prs=0.7, temperature_shp=1.9, softness=1.3, compactness_rate=0.4, compactness_scale=0.8)
"""Every value its own, so that none can stand in for another."""


def relu(value: Array) -> Array:
    return np.maximum(value, 0)


def sigmoid(value: Array) -> Array:
    return 1 / (1 + np.exp(-value))


class Loop:
    """Algorithm 1 of one scene with numpy vectors: for every m, k and n a line, with the weights of a state_dict."""

    def __init__(self, model: Ocloc | PerView) -> None:
        self.weights = {name: value.numpy() for name, value in model.inference.state_dict().items()}
        self.config, self.per_view = model.config, isinstance(model, PerView)

    def linear(self, name: str, value: Array) -> Array:
        return self.weights[f"{name}.weight"] @ value + self.weights.get(f"{name}.bias", 0.0)

    def norm(self, name: str, value: Array) -> Array:
        scaled = (value - value.mean()) / np.sqrt(value.var() + 1e-5)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def perceptron(self, name: str, value: Array) -> Array:
        return self.linear(f"{name}.4", relu(self.linear(f"{name}.2", relu(self.linear(f"{name}.0", value)))))

    def convolved(self, layer: int, maps: Array, stride: int) -> Array:
        """One convolution with its ReLU, place by place."""
        name, kernel = f"g_feat.convolutions.{2 * layer}", self.config.feature_kernel
        weight, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        padded, side = np.pad(maps, ((0, 0), (kernel // 2,) * 2, (kernel // 2,) * 2)), maps.shape[-1] // stride
        found = np.zeros((len(weight), side, side))
        for row, column in itertools.product(range(side), range(side)):
            top, left = row * stride, column * stride
            patch = padded[:, top : top + kernel, left : left + kernel]
            found[:, row, column] = relu(np.tensordot(weight, patch, 3) + bias)
        return found

    def features(self, image: Array) -> list[Array]:
        """Line 2 for one picture in [0, 1]: convolutions, position, two layers a place."""
        maps = 2 * image - 1
        for layer in range(self.config.feature_layers):
            maps = self.convolved(layer, maps, self.config.feature_stride if layer == 0 else 1)
        side, found = maps.shape[-1], []
        for row, column in itertools.product(range(side), range(side)):
            x, y = 2 * column / (side - 1) - 1, 2 * row / (side - 1) - 1
            place = np.array([(1 + x) / 2, (1 + y) / 2, (1 - x) / 2, (1 - y) / 2])
            position = self.weights["g_feat.position.project.weight"][:, :, 0, 0] @ place
            value = maps[:, row, column] + position + self.weights["g_feat.position.project.bias"]
            value = self.norm("g_feat.pixelwise.0", value)
            found.append(self.linear("g_feat.pixelwise.3", relu(self.linear("g_feat.pixelwise.1", value))))
        return found

    def recurrent(self, u: Array, y: Array) -> Array:
        """The gated recurrent unit's three gates."""
        part = "g_upd.recurrent"
        inputs = np.split(self.weights[f"{part}.weight_ih"] @ u + self.weights[f"{part}.bias_ih"], 3)
        states = np.split(self.weights[f"{part}.weight_hh"] @ y + self.weights[f"{part}.bias_hh"], 3)
        reset, keep = sigmoid(inputs[0] + states[0]), sigmoid(inputs[1] + states[1])
        return (1 - keep) * np.tanh(inputs[2] + reset * states[2]) + keep * y

    def update(self, y: Array, u: Array) -> Array:
        """Line 10: the unit and the residual perceptron."""
        state = self.recurrent(u, y)
        hidden = relu(self.linear("g_upd.residual.1", self.norm("g_upd.residual.0", state)))
        return state + self.linear("g_upd.residual.3", hidden)

    def view(self, features: list[Array], y_view: Array, y_attr: Array) -> Array:
        """Lines 7 to 10 for one view: v of every slot."""
        keys = [self.linear("g_key.linear", self.norm("g_key.norm", value)) for value in features]
        values = [self.linear("g_val.linear", self.norm("g_val.norm", value)) for value in features]
        full = [np.concatenate([y_view[k], y_attr[k]]) for k in range(len(y_attr))]
        queries = [self.linear("g_qry.linear", self.norm("g_qry.norm", y)) for y in full]
        a = np.zeros((len(full), len(keys)))
        for n, key in enumerate(keys):
            scores = np.array([np.exp(key @ query / np.sqrt(len(key))) for query in queries])
            a[:, n] = scores / scores.sum()
        u = [sum(a[k, n] / a[k].sum() * values[n] for n in range(len(keys))) for k in range(len(full))]
        return np.stack([self.update(full[k], u[k]) for k in range(len(full))])

    def start(self, noise: Array, part: slice) -> Array:
        return self.weights["mu_hat"][part] + np.exp(self.weights["log_sigma_hat"][part]) * noise

    def rounds(self, image: Array, noise_view: Array, y_attr: Array, fixed: bool = False) -> tuple[Array, Array]:
        """Lines 2 to 13 for pictures [M, 3, H, W] from line 3's noise; `fixed` leaves line 12 out."""
        D, L = self.config.slot_view_dim, len(y_attr)
        features = [self.features(picture) for picture in image]
        y_view = self.start(noise_view, slice(D))
        y_view = y_view if self.per_view else np.repeat(y_view[:, None], L, 1)
        for _ in range(self.config.rounds):
            v = np.stack([self.view(features[m], y_view[m], y_attr) for m in range(len(image))])
            y_view = v[:, :, :D] if self.per_view else np.repeat(v[:, :, :D].mean(1, keepdims=True), L, 1)
            y_attr = y_attr if fixed else v[:, :, D:].mean(0)
        return y_view, y_attr

    def answers(self, y_view: Array, y_attr: Array, gumbel: Array) -> dict[str, Array]:
        """Lines 15 to 20, under the names of Posterior."""
        scores = np.array([self.perceptron("g_sel", y)[0] for y in y_attr])
        log_pi = scores - np.log(np.exp(scores).sum())
        star = int(np.argmax(log_pi + gumbel))
        order = [star, *[k for k in range(len(y_attr)) if k != star]]
        y_attr, y_view = y_attr[order], y_view[:, order]
        background, D = self.perceptron("g_bck", y_attr[0]), self.config.attr_dim
        objects = np.stack([self.perceptron("g_obj", y) for y in y_attr[1:]])
        views = np.stack([[self.perceptron("g_view", y) for y in row] for row in y_view])
        views = views if self.per_view else views[:, 0]
        return {
            "mu_view": views[..., : self.config.view_dim],
            "log_sigma_view": views[..., self.config.view_dim :],
            "mu_bck": background[: self.config.background_dim],
            "log_sigma_bck": background[self.config.background_dim :],
            "mu_attr": objects[:, :D],
            "log_sigma_attr": objects[:, D : 2 * D],
            "tau": np.log(1 + np.exp(objects[:, 2 * D : 2 * D + 2])) + 1e-6,
            "logit_kappa": objects[:, 2 * D + 2],
            "log_pi": log_pi,
            "background_index": np.array(star),
        }


@pytest.mark.parametrize("method", [Ocloc, PerView])
@pytest.mark.parametrize("feature_layers", [1, 2])
def test_algorithm_1_line_by_line(method: type[Ocloc] | type[PerView], feature_layers: int) -> None:
    """All parameters of q for every scene; the baseline sees one view a scene."""
    model = shaken(method(replace(SMALL, feature_layers=feature_layers), generator(1)), 2)
    batch, noise = case(model, B=2, M=3 if method is Ocloc else 1)
    single = model.single if isinstance(model, PerView) else model
    found, loop = single.infer_posterior(batch, noise), Loop(model)
    for b in range(2):
        y_attr = loop.start(noise.y_attr[b].numpy(), slice(SMALL.slot_view_dim, None))
        y_view, y_attr = loop.rounds(batch.image[b].numpy(), noise.y_view[b].numpy(), y_attr)
        expected = loop.answers(y_view, y_attr, noise.background[b].numpy())
        for name, value in expected.items():
            # The grid of positions is kept in float32: 1e-7 is its rounding.
            error = np.abs(getattr(found, name)[b].detach().numpy() - value).max()
            assert error < 5e-7, (name, error)


def test_viewpoints_of_a_known_scene_line_by_line() -> None:
    model = shaken(Ocloc(SMALL, generator(1)), 2)
    batch, noise = case(model, B=2, M=2)
    given = model.infer_posterior(batch, noise)
    other, other_noise = case(model, B=2, M=3, seed=5)
    found, loop = model.estimate_views(other, given, other_noise), Loop(model)
    assert SMALL.rounds == 3
    for b in range(2):
        y_attr = given.y_attr[b].detach().numpy()
        y_view, _ = loop.rounds(other.image[b].numpy(), other_noise.y_view[b].numpy(), y_attr, fixed=True)
        expected = np.stack([loop.perceptron("g_view", row[0]) for row in y_view])
        assert np.abs(found.y_view[b].detach().numpy() - y_view[:, 0]).max() < 5e-7
        assert np.abs(found.mu_view[b].detach().numpy() - expected[:, :1]).max() < 5e-7
        assert np.abs(found.log_sigma_view[b].detach().numpy() - expected[:, 1:]).max() < 5e-7


# From latents to pictures.


def relaxed(logit: Tensor, noise: Tensor, temperature: float) -> Tensor:
    """RelaxedBernoulli as Maddison et al. write it, from the uniform number behind logistic noise."""
    u, p = noise.sigmoid(), logit.sigmoid()
    alpha = p / (1 - p)
    powered = (alpha * u / (1 - u)) ** (1 / temperature)
    return powered / (1 + powered)


def decoded(model: Ocloc, latents: Latents) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(shape log-odds, colours, background, order, centre), view by view and object by object."""
    networks, M, count = model.generation, latents.z_view.shape[1], latents.z_attr.shape[1]
    layers, backgrounds, places = [], [], []
    for m in range(M):
        view = latents.z_view[:, m]
        backgrounds.append(networks.f_bck(torch.cat([view, latents.z_bck], 1)))
        codes = [torch.cat([view, latents.z_attr[:, k]], 1) for k in range(count)]
        layers.append(torch.stack([networks.f_shp_apc(code) for code in codes], 1))
        places.append(torch.stack([networks.f_ord(code) for code in codes], 1))
    raw, place = torch.stack(layers, 1), torch.stack(places, 1)
    background = torch.stack(backgrounds, 1) * 0.5 + 0.5
    return raw[:, :, :, 0], raw[:, :, :, 1:] * 0.5 + 0.5, background, place[..., 0], place[..., 1:].tanh()


def overlaid(z_shp: Tensor, z_prs: Tensor, order: Tensor, softness: float) -> Tensor:
    """s with products, for z strictly between 0 and 1."""
    cover = z_shp * z_prs[:, None, :, None, None]
    weight = cover * (order / softness).exp()[..., None, None]
    s_0 = (1 - cover).prod(2, keepdim=True)
    return torch.cat([s_0, (1 - s_0) * weight / weight.sum(2, keepdim=True)], 2)


def latents_of(posterior: Posterior, noise: Noise) -> Latents:
    """Normal latents by reparameterisation; the presence is left to the tests."""
    return Latents(
        z_view=posterior.mu_view + posterior.log_sigma_view.exp() * noise.z_view,
        z_bck=posterior.mu_bck + posterior.log_sigma_bck.exp() * noise.z_bck,
        z_attr=posterior.mu_attr + posterior.log_sigma_attr.exp() * noise.z_attr,
        logit_prs=torch.zeros(()),
    )


@torch.no_grad()
def test_training_likelihood_from_its_noise() -> None:
    """Relaxed shapes and presences, each at its own temperature, and noisy appearances around tanh centres."""
    model = shaken(Ocloc(SMALL, generator(3)), 4)
    batch, noise = case(model, B=2, M=2)
    posterior = model.infer_posterior(batch, noise)
    logit_shp, colour, background, order, centre = decoded(model, latents_of(posterior, noise))
    assert float(centre.abs().max()) > 0.05
    z_shp, z_prs = relaxed(logit_shp, noise.z_shp, 1.9), relaxed(posterior.logit_kappa, noise.z_prs, 0.7)
    s = overlaid(z_shp, z_prs, order, 1.3)
    axis = torch.linspace(-1, 1, SMALL.image_size).double()
    d2 = (axis - centre[..., 0, None, None]) ** 2 + (axis[:, None] - centre[..., 1, None, None]) ** 2
    noisy = colour + (0.8 * (1 - (-0.4 * d2).exp()))[:, :, :, None] * noise.appearance
    layers = torch.cat([background[:, :, None], noisy], 2)
    reconstruction = (s[:, :, :, None] * layers).sum(2)
    expected = ((batch.image - reconstruction) ** 2).sum((1, 2, 3, 4)) / (2 * 0.2**2)
    terms = model.elbo(batch, UNEVEN, noise)
    assert worst(terms.nll / expected, torch.ones(2)) < 1e-7
    latents = model.sample(posterior, noise, UNEVEN)
    assert worst(drawn_in_training(model, latents, UNEVEN, noise).reconstruction, reconstruction) < 1e-6
    assert worst(model.render(latents, UNEVEN).appearance, colour) < 1e-9


@torch.no_grad()
def test_decomposition_from_its_noise() -> None:
    """Soft shapes, sampled presence, plain appearances; complete shapes free of presence; test-time values."""
    model = shaken(Ocloc(replace(SMALL, temperature=0.6, softness=0.3), generator(3)), 4)
    batch: SceneBatch = in_double(scenes(2, 2))  # type: ignore[assignment]
    answer = model.infer(batch, generator(7), slots=K).decomposition()
    noise = model.draw_noise(batch, generator(7), K)
    posterior = model.infer_posterior(batch, noise)
    logit_shp, colour, background, order, _ = decoded(model, latents_of(posterior, noise))
    presence = relaxed(posterior.logit_kappa, noise.z_prs, 0.6)
    s = overlaid(logit_shp.sigmoid(), presence, order, 0.3)
    expected = (s[:, :, :, None] * torch.cat([background[:, :, None], colour], 2)).sum(2)
    assert answer.complete_shapes is not None
    assert answer.presence is not None
    assert answer.presence_probability is not None
    assert answer.depth_order is not None
    assert worst(answer.reconstruction, expected) < 1e-6
    assert worst(answer.layer_masks, s) < 1e-6
    assert worst(answer.complete_shapes, logit_shp.sigmoid()) < 1e-9
    assert worst(answer.presence, presence) < 1e-6
    assert worst(answer.presence_probability, posterior.logit_kappa.sigmoid()) < 1e-9
    assert worst(answer.depth_order, order) < 1e-9


@pytest.mark.parametrize("method", [Ocloc, PerView])
def test_pictures_enter_and_leave_between_minus_one_and_one(method: type[Ocloc] | type[PerView]) -> None:
    """g_feat and b(x) see 2x - 1; decoders that say 0 paint mid-grey."""
    model, seen = method(SMALL), []
    networks = (model.inference.g_feat, model.nvil.network)
    for network in networks:
        network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    for decoder in (model.generation.f_shp_apc, model.generation.f_bck):
        last = [module for module in decoder.modules() if isinstance(module, torch.nn.Conv2d)][-1]
        torch.nn.init.zeros_(last.weight)
        torch.nn.init.zeros_(last.bias)
    batch = scenes(2, 2)
    noise = model.draw_noise(batch, generator())
    model(batch, Annealing(), noise)
    assert len(seen) == 2
    for images in seen:
        assert torch.equal(images.flatten(), (2 * batch.image - 1).flatten())
    single, views = (model.single, fold(batch)) if isinstance(model, PerView) else (model, batch)
    latents = single.sample(single.infer_posterior(views, noise), noise, Annealing())
    rendering = single.render(latents, Annealing())
    assert bool((rendering.appearance == 0.5).all())
    assert bool((rendering.background == 0.5).all())


# Decoders and precision.


def test_dense_decoder_is_the_list_of_the_appendix() -> None:
    """Fully connected ReLU layers, a map, nearest-neighbour upsampling before its convolution, a linear 3x3 last."""
    config = DecoderConfig(
        kind="dense", hidden=(6, 5), grid=2, grid_channels=3, stages=((2, 5, 4), (1, 3, 4), (4, 5, 2))
    )
    decoder = DenseDecoder(config, 3, 4).double()
    weights, code = list(decoder.state_dict().values()), torch.randn(2, 3, generator=generator()).double()
    value = code
    for layer in range(3):
        value = (value @ weights[2 * layer].T + weights[2 * layer + 1]).relu()
    maps = value.reshape(2, 3, 2, 2)
    for stage, (scale, kernel, _) in enumerate((*config.stages, (1, 3, 4))):
        maps = maps.repeat_interleave(scale, 2).repeat_interleave(scale, 3)
        weight, bias = weights[6 + 2 * stage], weights[7 + 2 * stage]
        maps = torch.nn.functional.conv2d(maps, weight, bias, padding=kernel // 2)
        maps = maps.relu() if stage < len(config.stages) else maps
    assert maps.shape == (2, 4, 16, 16)
    assert worst(decoder(code), maps) < 1e-12


def test_upsampling_repeats_pixels() -> None:
    stages = upsampling_stages(1, ((2, 1, 1),), 1)
    with torch.no_grad():
        for parameter in stages.parameters():
            parameter.zero_()
        stages[1].weight.fill_(1.0)
        stages[3].weight[0, 0, 1, 1] = 1.0
    found = stages(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]))[0, 0]
    assert found.tolist() == [[1, 1, 2, 2], [1, 1, 2, 2], [3, 3, 4, 4], [3, 3, 4, 4]]


def test_slots_stay_in_full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Autocast on CUDA makes the recurrent unit answer in half precision, as both parts do here."""
    update = SlotUpdate(5, 4, 6)
    for part in (update.recurrent, update.residual):
        forward = part.forward
        monkeypatch.setattr(part, "forward", lambda *inputs, forward=forward: forward(*inputs).bfloat16())
    y, u = torch.randn(2, 3, 4, generator=generator()), torch.randn(2, 3, 5, generator=generator(1))
    assert update(y, u).dtype == torch.float32
    inference = Ocloc(SMALL).inference
    assert inference.sharing.merge(torch.zeros(1, 1, 2, 4, dtype=torch.bfloat16)).dtype == torch.float32


def test_baseline_value_is_not_rounded_by_autocast() -> None:
    """b(x) of 1001 would be 1000 in bfloat16."""
    network = Ocloc(SMALL).nvil.network
    with torch.no_grad():
        network.connected.last.weight.zero_()
        network.connected.last.bias.fill_(1001.0)
        with torch.autocast("cpu", torch.bfloat16):
            assert network(scenes(1, 1).image[0]).tolist() == [1001.0]
