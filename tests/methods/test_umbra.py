"""Umbra: every new term against an oracle, and what it shares with OCLOC left as it is."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from paper_cases import drawn_in_training
from small_model import SMALL_OCLOC, UNFELT, generator, see_everything
from torch import Tensor
from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal

from viewslots.errors import UserError
from viewslots.experiments import experiment
from viewslots.methods.contract import Search
from viewslots.methods.distributions import beta_kl, normal_kl, presence_kl
from viewslots.methods.ocloc.choice import most_likely
from viewslots.methods.ocloc.compositing import perceived_shapes
from viewslots.methods.ocloc.config import StartConfig
from viewslots.methods.ocloc.generation import binary_logit
from viewslots.methods.ocloc.image_model import Canvas, WeightedSum
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.objective import negative_log_likelihood, weighted_loss
from viewslots.methods.ocloc.schedule import Annealing, OclocSchedule
from viewslots.methods.ocloc.search import PRUNED, pruned, searched, still
from viewslots.methods.ocloc.variables import Latents, Layers, Posterior
from viewslots.methods.per_view.model import PerView
from viewslots.methods.registry import load_model
from viewslots.methods.umbra.canvas import MOST_MISSED, ShadowedCanvas
from viewslots.methods.umbra.config import FADED, UmbraConfig, UmbraSchedule
from viewslots.methods.umbra.image_model import ShadowedMixture, expected_shapes, mixture_nll, shaded, shadows_of
from viewslots.methods.umbra.model import Umbra
from viewslots.types import SceneBatch

torch.set_num_threads(1)

START = StartConfig(shape_logit=-2.0, presence_logit=2.0, log_sigma=-3.0, query_gain=4.0)
SMALL = UmbraConfig(**vars(SMALL_OCLOC) | {"start": START})


def some_batch(views: int = 2) -> SceneBatch:
    image = torch.rand(2, views, 3, 16, 16, generator=generator(7))
    mask = torch.ones(2, views, dtype=torch.bool)
    mask[1, -1] = views == 1
    return SceneBatch(torch.where(mask[:, :, None, None, None], image, 0.0), mask)


@pytest.fixture
def model() -> Umbra:
    return Umbra(SMALL, generator(1))


# Shadows.


def test_shadows_multiply_the_background_pixel_by_pixel() -> None:
    background = torch.rand(1, 2, 3, 2, 3, generator=generator()).double()
    logit = torch.randn(1, 2, 2, 2, 3, generator=generator(1)).double()
    presence = torch.tensor([[0.3, 1.7]]).double()
    found = shaded(background, logit, presence, 0.8)
    for m, row, column in torch.cartesian_prod(torch.arange(2), torch.arange(2), torch.arange(3)).tolist():
        light = 1.0
        for k in range(2):
            light *= 1 - 0.8 * float(presence[0, k].sigmoid() * logit[0, m, k, row, column].sigmoid())
        expected = background[0, m, :, row, column] * light
        torch.testing.assert_close(found[0, m, :, row, column], expected)


def test_what_is_not_there_casts_no_shadow(model: Umbra) -> None:
    batch = some_batch()
    noise = model.draw_noise(batch, generator())
    latents = model.sample(model.infer_posterior(batch, noise), noise, model.annealed())
    gone = replace(latents, logit_prs=torch.full_like(latents.logit_prs, -torch.inf))
    bare = model.layers(latents).background
    assert torch.equal(model.render(gone, model.annealed()).background, bare)
    shown = model.render(latents, model.annealed())
    assert (shown.background < bare).all()
    parts = torch.cat([shown.background[:, :, None], shown.appearance], 2)
    torch.testing.assert_close(shown.reconstruction, (shown.perceived[:, :, :, None] * parts).sum(2))


def test_objects_begin_with_hardly_any_shadow() -> None:
    model = Umbra(replace(SMALL, shadow_logit=-5.0), generator(1))
    batch = some_batch()
    noise = model.draw_noise(batch, generator())
    layers = model.layers(model.sample(model.infer_posterior(batch, noise), noise, model.annealed()))
    assert (layers.logit_shadow == -5.0).all()
    assert layers.logit_shp.std() > 0
    assert float(layers.logit_shp.detach().mean()) == pytest.approx(-2.0, abs=0.5)
    assert layers.appearance.std() > 0


def test_colours_of_objects_are_colours(model: Umbra) -> None:
    """A faint shape of an impossible colour would paint as well as a whole one, and cost less."""
    batch = some_batch()
    with torch.no_grad():
        for parameter in model.generation.parameters():
            parameter.mul_(5.0)
    noise = model.draw_noise(batch, generator())
    layers = model.layers(model.sample(model.infer_posterior(batch, noise), noise, model.annealed()))
    assert layers.appearance.min() >= 0
    assert layers.appearance.max() <= 1
    assert layers.appearance.std() > 0.1


# The loss.


def test_the_mixture_is_that_of_torch() -> None:
    """Per pixel a mixture over layers of normal distributions over the three channels; all but its constant."""
    sigma, (B, M, K, H, W) = 0.3, (2, 2, 2, 2, 3)
    perceived = torch.rand(B, M, K + 1, H, W, generator=generator()).double().softmax(2)
    colours = torch.rand(B, M, K + 1, 3, H, W, generator=generator(1)).double()
    image = torch.rand(B, M, 3, H, W, generator=generator(2)).double()
    mask = torch.tensor([[True, True], [True, False]])
    perceived[:, :, :, 0, 0] = torch.tensor([0.7, 0.0, 0.3], dtype=torch.float64)  # one layer is not seen at all
    found = mixture_nll(image, perceived, colours[:, :, 0], colours[:, :, 1:], mask, sigma)
    layers = Independent(Normal(colours.permute(0, 1, 4, 5, 2, 3), sigma), 1)
    exact = MixtureSameFamily(Categorical(perceived.permute(0, 1, 3, 4, 2)), layers)
    log_likelihood = exact.log_prob(image.permute(0, 1, 3, 4, 2))
    constant = Normal(0.0, sigma).log_prob(torch.zeros(())) * 3
    pixels = torch.where(mask[:, :, None, None], constant - log_likelihood, 0.0)
    torch.testing.assert_close(found, pixels.sum((1, 2, 3)))


def test_a_layer_that_is_not_seen_explains_nothing() -> None:
    """Of one layer alone, the mixture is the weighted sum; what the others would paint has no part in it."""
    image, colours = (torch.rand(2, 1, 3, 4, 4, generator=generator(seed)).double() for seed in (0, 1))
    perceived = torch.cat([torch.ones(2, 1, 1, 4, 4), torch.zeros(2, 1, 1, 4, 4)], 2).double().requires_grad_()
    hidden = image[:, :, None].clone().requires_grad_()  # just right, where nobody looks
    mask = torch.ones(2, 1, dtype=torch.bool)
    found = mixture_nll(image, perceived, colours, hidden, mask, 0.02)
    torch.testing.assert_close(found, negative_log_likelihood(image, colours, mask, 0.02))
    found.sum().backward()
    assert not hidden.grad.any()  # type: ignore[union-attr]
    assert perceived.grad.isfinite().all()  # type: ignore[union-attr]


def layers_of(shape: Tensor, shadow: Tensor, order: Tensor) -> Layers:
    """Grey objects on white ground."""
    B, M, K, H, W = shape.shape
    white, grey = torch.ones(B, M, 3, H, W), torch.full((B, M, K, 3, H, W), 0.5)
    return Layers(white, grey, shape, order, torch.zeros(B, M, K, 2), logit_shadow=shadow)


def latents_with(presence: Tensor) -> Latents:
    return Latents(torch.zeros(0), torch.zeros(0), torch.zeros(0), presence.logit())


def shadowed(model: Umbra) -> ShadowedMixture:
    assert isinstance(model.image_model, ShadowedMixture)
    return model.image_model


def covering(model: Umbra, batch: SceneBatch, layers: Layers, latents: Latents) -> Tensor:
    shown = model.image_model.show(layers, latents, model.annealed())
    return shadowed(model).covering(shown, layers, latents, batch)


def test_covering_by_hand() -> None:
    """Nats for pixels and shadows; two scenes, of the second of which the second view is padding.

    The first object, half present in the first scene, covers two of three pixels; the second half of the last one.
    Shadows: of the first object a quarter of every pixel; of the second, at even odds, all of the first pixel.
    """
    model = Umbra(replace(SMALL, pixel_cost=2.0, shadow_cost=10.0), generator(1))
    shape, shadow = (torch.full((2, 2, 2, 1, 3), -torch.inf) for _ in range(2))
    shape[:, :, 0, 0, :2] = torch.inf
    shape[:, :, 1, 0, 2] = 0.0
    shadow[:, :, 0] = torch.tensor(0.25).logit()
    shadow[:, :, 1, 0, 0] = 0.0
    layers = layers_of(shape, shadow, torch.zeros(2, 2, 2))
    latents = latents_with(torch.tensor([[0.5, 1.0], [1.0, 0.0]]))
    batch = SceneBatch(torch.zeros(2, 2, 3, 1, 3), torch.tensor([[True, True], [True, False]]))
    found = covering(model, batch, layers, latents)
    first = 2 * (2 * (0.5 + 0.5 + 0.5) + 10 * (0.5 * 0.75 + 0.5))
    second = 2 * (1 + 1) + 10 * 0.75
    torch.testing.assert_close(found, torch.tensor([first, second]))


def test_what_is_hidden_costs_nothing() -> None:
    """An object behind an opaque one, whatever part of it; before it, what the two cover together."""
    model = Umbra(SMALL, generator(1))
    shape = torch.tensor([[50.0, 50.0, -50.0, -50.0], [50.0, -50.0, -50.0, -50.0], [0.0, 50.0, 50.0, -50.0]])
    shape, order = shape.view(1, 1, 3, 1, 4), torch.tensor([[[9.0, -9.0, 0.0]]])
    layers = layers_of(shape, torch.full_like(shape, -torch.inf), order)
    batch = SceneBatch(torch.zeros(1, 1, 3, 1, 4), torch.ones(1, 1, dtype=torch.bool))

    def price(*present: float, nearest: int = 0) -> float:
        placed = replace(layers, order=order.roll(nearest, 2))
        latents = latents_with(torch.tensor([present]))
        return float(covering(model, batch, placed, latents))

    pixel = SMALL.pixel_cost
    assert price(0, 0, 0) == 0
    assert price(1, 0, 0) == pytest.approx(2 * pixel)
    assert price(0, 1, 0) == pytest.approx(pixel)
    assert price(1, 1, 0) == pytest.approx(2 * pixel)  # wholly behind the first
    assert price(1, 1, 0, nearest=1) == pytest.approx(2 * pixel)  # or before it
    assert price(0, 0, 1) == pytest.approx(2.5 * pixel)
    assert price(1, 0, 1) == pytest.approx(3 * pixel)  # half a pixel and a whole one of it are hidden


def test_occlusion_is_that_of_probable_shapes(model: Umbra) -> None:
    """In pictures and in training; the paper's model keeps its own."""
    batch = some_batch()
    noise = model.draw_noise(batch, generator())
    annealing = Annealing(softness=0.7, temperature_prs=0.9)
    latents = model.sample(model.infer_posterior(batch, noise), noise, annealing)
    layers = model.layers(latents)
    expected = expected_shapes(layers.logit_shp, latents.logit_prs, layers.order, 0.7)
    assert torch.equal(model.render(latents, annealing).perceived, expected)
    assert torch.equal(drawn_in_training(model, latents, annealing, noise).perceived, expected)
    papers = perceived_shapes(layers.logit_shp, latents.logit_prs, layers.order, 0.7)
    assert not torch.allclose(expected, papers, atol=1e-3)
    first = trained_ocloc()
    assert type(first.image_model) is WeightedSum
    known = first.sample(first.infer_posterior(batch, noise), noise, annealing)
    theirs = first.layers(known)
    shapes = perceived_shapes(theirs.logit_shp, known.logit_prs, theirs.order, 0.7)
    assert torch.equal(first.render(known, annealing).perceived, shapes)


def kls_by_hand(posterior: Posterior, batch: SceneBatch) -> dict[str, Tensor]:
    """Scene by scene and one by one: of the views that are there, the background, and every object."""
    K, found = SMALL.slots, {name: [] for name in ("view", "attr", "attr_background", "rho", "prs")}
    for b, mask in enumerate(batch.view_mask):
        views = [normal_kl(posterior.mu_view[b, m], posterior.log_sigma_view[b, m]) for m in mask.nonzero().flatten()]
        objects = [normal_kl(posterior.mu_attr[b, k], posterior.log_sigma_attr[b, k]) for k in range(K)]
        background = normal_kl(posterior.mu_bck[b], posterior.log_sigma_bck[b])
        found["view"].append(sum(views))
        found["attr"].append(background + sum(objects))
        found["attr_background"].append(background)
        found["rho"].append(sum(beta_kl(posterior.tau[b, k], SMALL.alpha / K) for k in range(K)))
        found["prs"].append(sum(presence_kl(posterior.logit_kappa[b, k], posterior.tau[b, k]) for k in range(K)))
    return {name: torch.stack(values) for name, values in found.items()}


def test_the_bound_is_the_sum_of_its_parts(model: Umbra) -> None:
    """Both likelihoods from one rendering, the divergences, the prices of what it shows, and what NVIL adds."""
    model.eval()  # NVIL's statistics stay as they are
    batch = some_batch()
    noise = model.draw_noise(batch, generator())
    annealing = Annealing(
        weight_mixture=0.25,
        weight_costs=0.5,
        softness=0.7,
        temperature_prs=0.9,
        compactness_rate=0.4,
        weight_view=0.3,
        weight_attr=0.6,
        weight_bck=1.5,
        weight_rho=0.8,
        weight_prs=0.7,
    )
    terms, losses = model.elbo(batch, annealing, noise), model(batch, annealing, noise)
    posterior = model.infer_posterior(batch, noise)
    latents = model.sample(posterior, noise, annealing)
    rendering = drawn_in_training(model, latents, annealing, noise)
    plain = negative_log_likelihood(batch.image, rendering.reconstruction, batch.view_mask, SMALL.sigma_x)
    layers = (rendering.perceived, rendering.background, rendering.appearance)
    mixed = mixture_nll(batch.image, *layers, batch.view_mask, SMALL.sigma_x)
    nll = 0.75 * plain + 0.25 * mixed
    torch.testing.assert_close(terms.nll, nll)
    cover = rendering.logit_shp.sigmoid() * latents.z_prs[:, None, :, None, None]
    covered = 1 - (1 - cover).prod(2)
    pixels = torch.where(batch.view_mask, covered.sum((2, 3)), 0.0).sum(1)
    shadow = model.layers(latents).logit_shadow.sigmoid() * latents.z_prs[:, None, :, None, None]
    shadows = torch.where(batch.view_mask, shadow.sum((2, 3, 4)), 0.0).sum(1)
    price = SMALL.pixel_cost * pixels + SMALL.shadow_cost * shadows + SMALL.object_cost * posterior.kappa.sum(1)
    torch.testing.assert_close(terms.costs, 0.5 * price)
    kls = kls_by_hand(posterior, batch)
    for name, value in kls.items():
        torch.testing.assert_close(getattr(terms, name), value)
    constant = torch.tensor([2, 1]) * 3 * 16 * 16 / 2 * math.log(2 * math.pi * SMALL.sigma_x**2)
    torch.testing.assert_close(terms.constant, constant)
    bound = constant + nll + kls["view"] + kls["attr"] + kls["rho"] + kls["prs"] + 0.5 * price
    torch.testing.assert_close(terms.loss, bound)
    torch.testing.assert_close(losses.comparable, bound)
    nvil = model.nvil(batch.image, batch.view_mask, posterior, nll.detach())
    background = kls["attr_background"]
    minimised = constant + nll + 0.3 * kls["view"] + 0.6 * (kls["attr"] - background) + 1.5 * background
    minimised = minimised + 0.8 * kls["rho"] + 0.7 * kls["prs"] + 0.5 * price + nvil["policy"] + nvil["baseline"]
    torch.testing.assert_close(losses.minimised, minimised)
    assert tuple(losses.terms) == Umbra.terms
    assert all(torch.equal(losses.terms[name], getattr(terms, name)) for name in Umbra.terms)


def test_every_parameter_learns(model: Umbra) -> None:
    batch = some_batch()
    annealing = UmbraSchedule().at(100_000)
    weighted_loss(model.elbo(batch, annealing, model.draw_noise(batch, generator())), annealing).mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert name in UNFELT or parameter.grad.any(), name


def test_the_compactness_noise_is_on_appearances_in_training_alone(model: Umbra) -> None:
    batch = some_batch()
    noise = model.draw_noise(batch, generator())
    annealing = Annealing(compactness_rate=0.5)
    latents = model.sample(model.infer_posterior(batch, noise), noise, annealing)
    still, noisy = model.render(latents, annealing), drawn_in_training(model, latents, annealing, noise)
    assert torch.equal(still.perceived, noisy.perceived)  # shapes are probabilities, never samples
    assert not torch.equal(still.reconstruction, noisy.reconstruction)


# Starting from a trained OCLOC.


def trained_ocloc() -> Ocloc:
    return Ocloc(replace(SMALL_OCLOC, start=START), generator(9))


def test_it_starts_as_the_ocloc_it_is_given(model: Umbra) -> None:
    """The same posterior, shapes and order; colours squashed; shadows as at the start of a fresh model."""
    first, batch = trained_ocloc(), some_batch()
    given = model.weights_from(first)
    assert given is not None
    model.load_state_dict(given)
    noise = model.draw_noise(batch, generator())
    known = first.infer_posterior(batch, noise)
    assert torch.equal(model.infer_posterior(batch, noise).mu_attr, known.mu_attr)
    latents = first.sample(known, noise, first.annealed())
    theirs, ours = first.layers(latents), model.layers(latents)
    for name in ("logit_shp", "order", "background"):
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name))
    torch.testing.assert_close(ours.appearance, torch.special.expit(4 * theirs.appearance - 2))
    assert (ours.logit_shadow == SMALL.shadow_logit).all()


def test_whose_weights_it_takes(model: Umbra) -> None:
    other = Umbra(replace(SMALL, pixel_cost=7.0), generator(2))
    given = model.weights_from(other)
    assert given is not None
    assert all(torch.equal(given[name], value) for name, value in other.state_dict().items())
    first = trained_ocloc()
    assert model.weights_from(PerView(first.config)) is None
    assert model.weights_from(Ocloc(replace(first.config, object_decoder=first.config.background_decoder))) is None
    assert first.weights_from(model) is None


# Searched answers.


@pytest.mark.parametrize(("weighed", "weights"), [(1, (1, 1)), (2, (1, 0.5)), (8, (0.25, 0.125))])
def test_the_length_of_a_description_by_hand(model: Umbra, weighed: int, weights: tuple[float, float]) -> None:
    """Half the mixture, half of all prices; the divergences; of the second scene, one view is padding. Codes that
    pictures share, and the price of an object, count less beside fewer than they were weighed against."""
    model.config = replace(model.config, weighed_views=weighed)
    batch = some_batch()
    noise = model.draw_noise(batch, generator())
    posterior, annealing = model.infer_posterior(batch, noise), Annealing(weight_mixture=0.5, weight_costs=0.5)
    present = torch.tensor([[True, False, True], [True, False, False]])
    latents = replace(model.sample(posterior, noise, annealing), logit_prs=binary_logit(present))
    found = model.description_length(batch, posterior, latents, annealing)
    layers, shown = model.layers(latents), model.render(latents, annealing)
    for b, (objects, views) in enumerate((([0, 2], 2), ([0], 1))):
        one = SceneBatch(batch.image[b : b + 1, :views], batch.view_mask[b : b + 1, :views])
        parts = [value[b : b + 1, :views] for value in (shown.perceived, shown.background, shown.appearance)]
        rebuilt = shown.reconstruction[b : b + 1, :views]
        length = negative_log_likelihood(one.image, rebuilt, one.view_mask, SMALL.sigma_x) / 2
        length = length + mixture_nll(one.image, *parts, one.view_mask, SMALL.sigma_x) / 2
        bare, codes = torch.ones(views, 16, 16), torch.zeros(())
        for k in objects:
            bare = bare * (1 - layers.logit_shp[b, :views, k].sigmoid())
            length = length + SMALL.shadow_cost * layers.logit_shadow[b, :views, k].sigmoid().sum() / 2
            codes = codes + SMALL.object_cost / 2 + normal_kl(posterior.mu_attr[b, k], posterior.log_sigma_attr[b, k])
        length = length + SMALL.pixel_cost * (1 - bare).sum() / 2
        for m in range(views):
            length = length + normal_kl(posterior.mu_view[b, m], posterior.log_sigma_view[b, m])
        codes = codes + normal_kl(posterior.mu_bck[b], posterior.log_sigma_bck[b])
        torch.testing.assert_close(found[b : b + 1], length + weights[b] * codes)


def test_the_reconstruction_cost_is_what_is_missed_and_what_is_covered(model: Umbra) -> None:
    batch, annealing = some_batch(), Annealing(weight_mixture=0.25, weight_costs=0.5, softness=0.7)
    posterior = model.infer_posterior(batch, model.draw_noise(batch, generator()))
    latents = replace(most_likely(posterior), logit_prs=torch.tensor([[torch.inf, 0.3, -torch.inf], [-0.5, 0.0, 2.0]]))
    layers, shown = model.layers(latents), model.render(latents, annealing)
    missed = shadowed(model).nll(shown, batch, annealing)
    covered = shadowed(model).covering(shown, layers, latents, batch)
    torch.testing.assert_close(model.reconstruction_cost(batch, layers, latents, annealing), missed + 0.5 * covered)
    kl = normal_kl(posterior.mu_attr, posterior.log_sigma_attr)
    views = batch.view_mask.sum(1)
    torch.testing.assert_close(model.object_lengths(posterior, annealing, views), kl + 0.5 * SMALL.object_cost)


def test_objects_go_that_cost_more_than_they_explain(model: Umbra, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the description with and without the only object, at two prices."""
    see_everything(monkeypatch)
    batch, annealing = some_batch(), model.annealed()
    posterior = model.infer_posterior(batch, model.draw_noise(batch, generator()))
    posterior = replace(posterior, logit_kappa=torch.tensor([[-1.0, 1.0, -1.0]] * 2))
    latents = most_likely(posterior)
    bare = replace(latents, logit_prs=torch.full_like(latents.logit_prs, -torch.inf))
    gain = model.description_length(batch, posterior, bare, annealing) - model.description_length(
        batch, posterior, latents, annealing
    )
    for price, stays in ((-1.0, True), (1.0, False)):
        other = Umbra(replace(SMALL, object_cost=SMALL.object_cost + gain[0].item() + price), generator(1))
        kept = pruned(other, batch, posterior, annealing)
        assert bool(kept.logit_kappa[0, 1] != PRUNED) == stays


@torch.no_grad()
@pytest.mark.parametrize("wide", [False, True])
def test_the_canvas_is_its_slow_twin(wide: bool) -> None:
    """Sharp shapes that overlap, shadows, a view that is padded; choices of objects, none among them. In single
    precision as in double."""
    model = Umbra(replace(SMALL, sigma_x=0.2), generator(1)).eval()
    batch = replace(some_batch(), view_mask=torch.tensor([[True, True], [True, False]]))
    for parameter in model.generation.parameters():
        parameter.mul_(4.0)
    latents = most_likely(model.infer_posterior(batch, model.draw_noise(batch, generator())))
    layers = model.layers(latents)
    more = {"logit_shp": layers.logit_shp + 3, "logit_shadow": shadows_of(layers) + 18}
    layers = replace(layers, background=layers.background.clamp(0, 1), **more)
    if wide:
        layers = replace(layers, **{name: value.double() for name, value in vars(layers).items()})
        batch = replace(batch, image=batch.image.double())
    annealing = replace(model.annealed(), weight_costs=0.7)
    fast = model.image_model.canvas(layers, latents, batch, annealing)
    slow = Canvas(model.image_model, layers, latents, batch, annealing)
    assert type(fast) is ShadowedCanvas
    scenes, slots = torch.tensor([0, 1, 1, 0, 1]), torch.tensor([[0, 1], [2, 0], [1, 2], [2, 1], [0, 1]])
    present = torch.tensor([[True, True], [True, False], [True, True], [False, True], [False, False]])
    expected = slow.cost(scenes, slots, present)
    torch.testing.assert_close(fast.cost(scenes, slots, present), expected, rtol=1e-9 if wide else 1e-5, atol=0.0)
    assert len(expected.unique()) == 5
    shown = slow.show(scenes, slots, present)
    assert (shown.perceived[0, :, 1:].amin(1) > 0.05).any()  # they overlap
    assert (shown.background[0] < 0.9 * layers.background[0]).any()  # and cast shadows
    assert type(model.image_model.canvas(layers, latents, batch, replace(annealing, weight_mixture=0.5))) is Canvas


@torch.no_grad()
def test_what_a_canvas_cannot_explain_has_an_end() -> None:
    """Black pictures on a white ground, which an object that is left out would explain: 150 nats a pixel, told as 80.
    Not so if it is absent anyhow: how many absent slots are drawn depends on the other scenes of a batch."""
    model = Umbra(replace(SMALL, sigma_x=0.1), generator(1)).eval()
    batch = SceneBatch(torch.zeros(1, 1, 3, 16, 16), torch.ones(1, 1, dtype=torch.bool))
    latents = most_likely(model.infer_posterior(batch, model.draw_noise(batch, generator())))
    layers = model.layers(latents)
    layers = replace(
        layers, background=torch.ones_like(layers.background), appearance=torch.zeros_like(layers.appearance)
    )
    for logit, nats in ((torch.inf, MOST_MISSED), (-torch.inf, 3 / (2 * 0.1**2))):
        drawn = replace(latents, logit_prs=torch.full_like(latents.logit_prs, logit))
        canvas = model.image_model.canvas(layers, drawn, batch, model.annealed())
        found = canvas.cost(torch.tensor([0]), torch.tensor([[0]]), torch.tensor([[False]]))
        assert found.item() == pytest.approx(16 * 16 * nats, rel=1e-5)


# Use.


def test_an_object_counts_if_it_is_as_likely_there_as_not(model: Umbra, monkeypatch: pytest.MonkeyPatch) -> None:
    """And where it does not count, it is not drawn."""
    see_everything(monkeypatch)
    with torch.no_grad():
        model.inference.g_obj.last.weight[-1].mul_(30.0)
        model.inference.g_obj.last.bias[-1] = 0.0
        batch = some_batch()
        likely = model.infer_posterior(batch, model.draw_noise(batch, generator())).logit_kappa
        model.inference.g_obj.last.bias[-1] = -likely.mean()
    state = generator(3)
    found = model.infer(batch, state, search=model.default_search)
    answer = found.decomposition()
    assert answer.presence is not None
    assert answer.presence_probability is not None
    assert torch.equal(answer.presence, (answer.presence_probability >= 0.5).float())
    assert set(answer.presence.flatten().tolist()) == {0.0, 1.0}
    absent = answer.presence[:, None, :, None, None] == 0
    assert not answer.layer_masks[:, :, 1:][absent.expand_as(answer.layer_masks[:, :, 1:])].any()
    new = found.new_views(some_batch(1), state).decomposition()
    assert torch.equal(new.presence, answer.presence)  # type: ignore[arg-type]


@torch.no_grad()
def test_the_best_of_several_starts_scene_by_scene(model: Umbra) -> None:
    """Against searches with one start each, from the same generator."""
    batch, state, annealing = some_batch(), generator(3), model.annealed()
    ends = [model.infer(batch, state, search=Search(1)).posterior for _ in range(6)]
    lengths = [model.description_length(batch, end, most_likely(end), annealing) for end in ends]
    best = torch.stack(lengths).argmin(0).tolist()
    assert len({*best, 0}) > 1
    found = model.infer(batch, generator(3), search=Search(6))
    for b, k in enumerate(best):
        for name in vars(found.posterior):
            assert torch.equal(getattr(found.posterior, name)[b], getattr(ends[k], name)[b]), name
    assert torch.equal(found.noise.z_attr, model.draw_latent_noise(batch, generator(3)).z_attr)  # of its first start
    assert torch.equal(found.view_codes, found.posterior.mu_view)
    assert torch.equal(found.decomposition().presence_probability, found.posterior.kappa)  # type: ignore[arg-type]


@torch.no_grad()
def test_a_start_that_came_to_nothing_is_not_the_best(model: Umbra, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, state = some_batch(), generator(3)
    noises = [model.draw_latent_noise(batch, state) for _ in range(4)]
    ends = [model.infer_posterior(batch, still(noise)) for noise in noises]
    lengths = 1e7 * torch.tensor([[torch.nan, 2.0], [5.0, torch.nan], [9.0, 9.0], [9.0, 9.0]])
    monkeypatch.setattr(model, "background_and_view_kl", lambda *given: lengths.flatten())
    found = searched(model, batch, noises, model.annealed(), Search(4))
    assert torch.equal(found.mu_bck, torch.stack([ends[1].mu_bck[0], ends[0].mu_bck[1]]))
    expected = torch.stack([ends[1].y_attr[0, 1:], ends[0].y_attr[1, 1:]])
    assert torch.equal(found.y_attr[:, 1:].sort(dim=1)[0], expected.sort(dim=1)[0])  # in any order of the slots


def test_it_is_saved_with_its_method(model: Umbra, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    again = load_model(tmp_path)
    assert type(again) is Umbra
    assert again.config == SMALL
    assert json.loads((tmp_path / "config.json").read_text())["method"] == "umbra"
    batch = some_batch()
    model.eval()
    left, right = (one.infer(batch, generator()).decomposition() for one in (again, model))
    assert torch.equal(left.layer_masks, right.layer_masks)


def test_the_preset_is_small_and_has_the_networks_of_its_first_stage() -> None:
    preset, first = experiment("umbra"), experiment("ocloc-first/clevr-m1")
    assert sum(value.numel() for value in Umbra(preset.model).parameters()) < 2_000_000
    assert (preset.model.object_decoder, preset.model.box_fit) == (first.model.object_decoder, first.model.box_fit)


@pytest.mark.parametrize(
    ("step", "mixture", "costs"), [(0, 0, 0), (100, 0, 0), (200, 0.25, 0), (350, 0.625, 0.5), (500, 1, 1), (999, 1, 1)]
)
def test_what_fades_in(step: int, mixture: float, costs: float) -> None:
    at = UmbraSchedule(steps=1000, mixture_from=0.1, mixture_until=0.5, costs_from=0.2, costs_until=0.5).at(step)
    assert float(at.weight_mixture) == pytest.approx(mixture)
    assert float(at.weight_costs) == pytest.approx(costs)
    assert at.temperature_prs == OclocSchedule(steps=1000).at(step).temperature_prs
    tensors = at.tensors("cpu")
    assert float(tensors.weight_costs) == pytest.approx(costs)


def test_what_is_there_from_the_start() -> None:
    spans = {f"{name}_{end}": 0.0 for name in FADED for end in ("from", "until")}
    at = UmbraSchedule(**spans).at(0)  # type: ignore[arg-type]
    assert (at.weight_mixture, at.weight_costs) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("darkest", 1.1),
        ("darkest", -0.1),
        ("mixture", 2.0),
        ("pixel_cost", -1.0),
        ("shadow_cost", -1.0),
        ("object_cost", float("nan")),
    ],
)
def test_configs_that_cannot_be(name: str, value: float) -> None:
    with pytest.raises(UserError, match=name):
        replace(SMALL, **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FADED)
def test_schedules_that_cannot_be(name: str) -> None:
    with pytest.raises(UserError, match=rf"schedule\.{name}_until is 0\.4, but schedule\.{name}_from is 0\.5"):
        UmbraSchedule(**{f"{name}_from": 0.5, f"{name}_until": 0.4})  # type: ignore[arg-type]
