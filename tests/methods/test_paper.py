"""What the paper claims or implies, each claim against an oracle that shares no code with the model."""

import itertools
import math
from collections.abc import Callable
from dataclasses import fields, replace

import pytest
import torch
from paper_cases import SIZE, SMALL, WARM, K, case, drawn_in_training, generator, scenes, worst
from scipy.special import digamma
from torch import Tensor
from torch.distributions import Bernoulli, Beta, Normal, RelaxedBernoulli, kl_divergence

from viewslots.experiments import experiment
from viewslots.methods.distributions import beta_kl, normal_kl, presence_kl, relaxed_bernoulli_logit
from viewslots.methods.noise import Sampler
from viewslots.methods.ocloc.compositing import compactness_noise, composite, perceived_shapes
from viewslots.methods.ocloc.config import NvilConfig
from viewslots.methods.ocloc.inference import slot_attention
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.objective import negative_log_likelihood, weighted_loss
from viewslots.methods.ocloc.presets import COMPACT
from viewslots.methods.ocloc.schedule import Annealing
from viewslots.methods.ocloc.variables import ElboTerms, Noise, Posterior
from viewslots.methods.per_view.model import PerView
from viewslots.types import SceneBatch


@pytest.fixture(scope="module")
def model() -> Ocloc:
    """In evaluation mode: NVIL's statistics stay as they are."""
    return Ocloc(SMALL, generator(1)).double().eval()


def select(value: object, views: Tensor | slice | None = None, slots: Tensor | None = None) -> object:
    """Noise or batch with views and slots taken in another order (None: as they are)."""
    view_fields = {"y_view", "z_view", "z_shp", "appearance", "image", "view_mask"}
    changed = dict(vars(value))
    for name, item in changed.items():
        if views is not None and name in view_fields:
            changed[name] = item[:, views]
        if slots is not None and name in {"y_attr", "background"}:
            changed[name] = item[:, slots]
    return replace(value, **changed)  # type: ignore[type-var]


# Perceived shapes and occlusion.


def perceived_by_loop(z_shp: Tensor, z_prs: Tensor, order: Tensor, softness: float) -> Tensor:
    """The equation of s, pixel by pixel, in Python numbers."""
    B, M, count, H, W = z_shp.shape
    s = torch.zeros(B, M, count + 1, H, W, dtype=torch.float64)
    for b, m, h, w in itertools.product(range(B), range(M), range(H), range(W)):
        cover = [float(z_prs[b, k]) * float(z_shp[b, m, k, h, w]) for k in range(count)]
        o = [math.exp(float(order[b, m, k]) / softness) for k in range(count)]
        s[b, m, 0, h, w] = math.prod(1 - c for c in cover)
        total = sum(c * o_k for c, o_k in zip(cover, o, strict=True))
        for k in range(count):
            s[b, m, k + 1, h, w] = (1 - s[b, m, 0, h, w]) * cover[k] * o[k] / total if total > 0 else 0.0
    return s


@pytest.mark.parametrize("softness", [10.0, 0.5, 0.05])
def test_perceived_shapes_follow_the_equation(softness: float) -> None:
    source = Sampler(generator(), torch.device("cpu"))
    logit_shp, logit_prs, order = source.normal(2, 2, 4, 3, 3) * 3, source.normal(2, 4) * 2, source.normal(2, 2, 4)
    found = perceived_shapes(logit_shp.double(), logit_prs.double(), order.double(), softness)
    expected = perceived_by_loop(logit_shp.double().sigmoid(), logit_prs.double().sigmoid(), order.double(), softness)
    assert worst(found, expected) < 1e-12
    in_single = perceived_shapes(logit_shp, logit_prs, order, softness)
    assert worst(in_single.double(), expected) < 1e-5


def test_perceived_shapes_of_binary_latents_follow_the_equation() -> None:
    source = Sampler(generator(1), torch.device("cpu"))
    z_shp, z_prs = source.uniform(2, 2, 4, 5, 5) < 0.4, source.uniform(2, 4) < 0.7
    logits = [torch.where(z, torch.inf, -torch.inf) for z in (z_shp, z_prs)]
    order = source.normal(2, 2, 4)
    found = perceived_shapes(logits[0], logits[1], order, 0.5)
    assert worst(found.double(), perceived_by_loop(z_shp.double(), z_prs.double(), order, 0.5)) < 1e-6


def test_perceived_shapes_are_a_partition() -> None:
    source = Sampler(generator(2), torch.device("cpu"))
    s = perceived_shapes(source.normal(3, 2, 5, 8, 8) * 20, source.normal(3, 5) * 20, source.normal(3, 2, 5) * 20, 0.5)
    assert float(s.min()) >= 0
    assert worst(s.sum(2), torch.ones(3, 2, 8, 8)) < 1e-6


def test_almost_certain_objects_leave_a_trace_of_background() -> None:
    """s_0 = 1 - sigmoid(20) = 2.06e-9, where 1 - exp(log cover) would have been rounded to 0 in float32."""
    s = perceived_shapes(torch.full((1, 1, 1, 1, 1), 20.0), torch.full((1, 1), torch.inf), torch.zeros(1, 1, 1), 0.5)
    assert float(s[0, 0, 0]) == pytest.approx(1 / (1 + math.exp(20)), rel=1e-5)


def test_perceived_shapes_become_one_hot_as_softness_vanishes() -> None:
    """Binary z and distinct orders: the nearest of the covering objects takes the pixel, else the background."""
    source = Sampler(generator(3), torch.device("cpu"))
    z_shp, z_prs = source.uniform(2, 2, 4, 6, 6) < 0.5, source.uniform(2, 4) < 0.8
    order = torch.stack([torch.randperm(4, generator=generator(i)).float() for i in range(4)]).view(2, 2, 4) * 0.1
    s = perceived_shapes(*[torch.where(z, torch.inf, -torch.inf) for z in (z_shp, z_prs)], order, 1e-4)
    cover = z_shp & z_prs[:, None, :, None, None]
    nearest = torch.where(cover, order[..., None, None], -torch.inf).argmax(2) + 1
    expected = torch.where(cover.any(2), nearest, 0)
    assert torch.equal(s.argmax(2), expected)
    assert worst(s, torch.nn.functional.one_hot(expected, 5).movedim(-1, 2).float()) < 1e-6


def test_uncovered_pixel_is_background_with_finite_gradients() -> None:
    logit_shp = torch.full((1, 1, 2, 1, 2), -torch.inf)
    logit_shp[..., 0, 1] = torch.inf
    inputs = [logit_shp, torch.tensor([[torch.inf, 0.5]]), torch.tensor([[[0.3, -0.2]]])]
    inputs = [value.requires_grad_() for value in inputs]
    appearance = torch.rand(1, 1, 2, 3, 1, 2, generator=generator())
    s = perceived_shapes(inputs[0], inputs[1], inputs[2], 0.5)
    assert s[0, 0, 0, 0, 0] == 1
    composite(s, torch.zeros(1, 1, 3, 1, 2), appearance).square().sum().backward()
    assert all(value.grad is not None and bool(value.grad.isfinite().all()) for value in inputs)


def test_composite_is_the_sum_over_layers() -> None:
    source = Sampler(generator(4), torch.device("cpu"))
    s, a = source.uniform(2, 2, 4, 3, 3).softmax(2), source.normal(2, 2, 4, 3, 3, 3)
    expected = torch.einsum("bmlhw,bmlchw->bmchw", s, a)
    assert worst(composite(s, a[:, :, 0], a[:, :, 1:]), expected) < 1e-6


def test_compactness_noise_grows_with_the_distance() -> None:
    noise = torch.ones(1, 1, 1, 3, 5, 5)
    found = compactness_noise(torch.tensor([[[[0.5, -1.0]]]]), noise, 0.3, 2.0)[0, 0, 0, 0]
    for row, column in itertools.product(range(5), range(5)):
        x, y = column / 2 - 1, row / 2 - 1
        expected = 2 * (1 - math.exp(-0.3 * ((x - 0.5) ** 2 + (y + 1) ** 2)))
        assert float(found[row, column]) == pytest.approx(expected, abs=1e-6)


def test_compactness_noise_in_a_wide_picture_grows_alike_in_all_directions() -> None:
    """Distances in units of half the side of a square of 8 x 32 pixels: 8 pixels."""
    noise = torch.ones(1, 1, 1, 3, 8, 32, dtype=torch.float64)
    found = compactness_noise(torch.zeros(1, 1, 1, 2, dtype=torch.float64), noise, 0.3, 2.0)[0, 0, 0, 0]
    for row, column in itertools.product(range(8), range(32)):
        x, y = (column / 15.5 - 1) * 16 / 8, (row / 3.5 - 1) * 4 / 8
        expected = 2 * (1 - math.exp(-0.3 * (x**2 + y**2)))
        assert float(found[row, column]) == pytest.approx(expected, abs=1e-6)


# Divergences.


def test_normal_divergence_matches_torch() -> None:
    source = Sampler(generator(5), torch.device("cpu"))
    mu, log_sigma = source.normal(4, 6) * 3, source.normal(4, 6) * 2
    expected = kl_divergence(Normal(mu, log_sigma.exp()), Normal(0.0, 1.0)).sum(-1)
    assert torch.allclose(normal_kl(mu, log_sigma), expected, rtol=1e-5)


@pytest.mark.parametrize("alpha_over_k", [4.5 / 7, 4.5 / 11, 3.0])
def test_beta_divergence_matches_torch(alpha_over_k: float) -> None:
    tau = torch.tensor([[0.01, 0.02], [0.5, 3.0], [1.0, 1.0], [80.0, 0.3], [2000.0, 3000.0]], dtype=torch.float64)
    expected = kl_divergence(
        Beta(tau[:, 0], tau[:, 1]), Beta(torch.tensor(alpha_over_k, dtype=tau.dtype), tau.new_ones(()))
    )
    assert torch.allclose(beta_kl(tau, alpha_over_k), expected, rtol=1e-9, atol=1e-9)
    single = beta_kl(tau.float(), alpha_over_k)
    assert single.dtype == torch.float32
    # The terms of the last row are thousands of times their sum; what is left is the rounding of tau and the answer.
    assert torch.allclose(single.double(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("tau", "kappa"), [((0.7, 1.3), 0.3), ((4.0, 0.5), 0.9), ((20.0, 60.0), 0.05)])
def test_presence_divergence_matches_monte_carlo(tau: tuple[float, float], kappa: float) -> None:
    """E over rho of KL(Ber(kappa) || Ber(rho)), within five standard errors of 200,000 samples."""
    torch.manual_seed(0)
    rho = Beta(torch.tensor(tau[0]).double(), torch.tensor(tau[1]).double()).sample((200_000,))
    draws = kl_divergence(Bernoulli(torch.tensor(kappa).double()), Bernoulli(rho))
    found = presence_kl(torch.tensor(kappa).logit(), torch.tensor(tau))
    assert abs(float(draws.mean()) - float(found)) < 5 * float(draws.std()) / len(draws) ** 0.5


def test_divergences_stay_finite_at_extremes() -> None:
    raw = torch.tensor([[-200.0, -200.0], [-200.0, 50.0], [1e4, -30.0], [1e4, 1e4]], requires_grad=True)
    logit = torch.tensor([-300.0, 300.0, -40.0, 20.0], requires_grad=True)
    tau = torch.nn.functional.softplus(raw) + 1e-6
    total = beta_kl(tau, 4.5 / 7).sum() + presence_kl(logit, tau).sum()
    total.backward()
    assert bool(total.isfinite())
    assert raw.grad is not None
    assert logit.grad is not None
    assert bool(raw.grad.isfinite().all())
    assert bool(logit.grad.isfinite().all())
    assert float(beta_kl(tau.detach(), 4.5 / 7).min()) >= 0


def test_relaxed_samples_match_bernoulli_frequencies() -> None:
    """At a low temperature, within five standard errors; and at any temperature the law of torch's RelaxedBernoulli."""
    source, count = Sampler(generator(6), torch.device("cpu")), 100_000
    for probability in (0.02, 0.3, 0.9):
        logit = torch.full((count,), probability).logit()
        z = relaxed_bernoulli_logit(logit, source.logistic(count), 0.01).sigmoid()
        error = (probability * (1 - probability) / count) ** 0.5
        assert abs(float((z > 0.5).float().mean()) - probability) < 5 * error
        assert float(((z > 0.01) & (z < 0.99)).float().mean()) < 0.03
    law = RelaxedBernoulli(torch.tensor(0.7), logits=torch.tensor(0.4))
    torch.manual_seed(0)
    ours = relaxed_bernoulli_logit(torch.full((count,), 0.4), source.logistic(count), 0.7).sigmoid()
    shares = torch.linspace(0.05, 0.95, 10)
    assert worst(ours.quantile(shares), law.sample((count,)).quantile(shares)) < 0.015


# The loss.


def test_loss_is_the_negative_bound_of_one_sample(model: Ocloc) -> None:
    """Constant and five terms against torch.distributions; view masks drop the second view of the second scene."""
    batch, noise = case(model, B=2, M=2)
    mask = torch.tensor([[True, True], [True, False]])
    batch = replace(batch, view_mask=mask)
    posterior = model.infer_posterior(batch, noise)
    rendering = drawn_in_training(model, model.sample(posterior, noise, WARM), WARM, noise)
    terms = model.elbo(batch, WARM, noise)
    likelihood = Normal(rendering.reconstruction, SMALL.sigma_x).log_prob(batch.image).sum((2, 3, 4))
    expected = -(likelihood * mask).sum(1)
    assert worst(terms.constant + terms.nll, expected) < 1e-6 * float(expected.detach().abs().max())
    unit = Normal(0.0, 1.0)
    view = kl_divergence(Normal(posterior.mu_view, posterior.log_sigma_view.exp()), unit).sum(2)
    attr = kl_divergence(Normal(posterior.mu_attr, posterior.log_sigma_attr.exp()), unit).sum((1, 2))
    background = kl_divergence(Normal(posterior.mu_bck, posterior.log_sigma_bck.exp()), unit).sum(1)
    prior = Beta(torch.tensor(SMALL.alpha / K, dtype=torch.float64), torch.ones((), dtype=torch.float64))
    rho = kl_divergence(Beta(posterior.tau[..., 0], posterior.tau[..., 1]), prior).sum(1)
    assert worst(terms.view, (view * mask).sum(1)) < 1e-9
    assert worst(terms.attr, attr + background) < 1e-9
    assert worst(terms.attr_background, background) < 1e-9
    assert worst(terms.rho, rho) < 1e-9
    kappa, tau = posterior.kappa.detach().numpy(), posterior.tau.detach().numpy()
    for b in range(2):
        prs = 0.0
        for k in range(K):
            p, (first, second) = float(kappa[b, k]), tau[b, k]
            prs += p * (math.log(p) - digamma(first) + digamma(first + second))
            prs += (1 - p) * (math.log(1 - p) - digamma(second) + digamma(first + second))
        assert terms.prs[b].item() == pytest.approx(prs, rel=1e-9)
    parts = terms.constant + terms.nll + terms.view + terms.attr + terms.rho + terms.prs
    assert torch.equal(terms.loss, parts)
    assert not terms.costs.any()


def test_weights_reach_every_term() -> None:
    ones = {item.name: torch.ones(1) for item in fields(ElboTerms)}
    terms = ElboTerms(**{**ones, "attr": torch.full((1,), 3.0)})
    plain = float(weighted_loss(terms, Annealing()))
    assert plain == pytest.approx(1 + 1 + 1 + 3 + 1 + 1 + 1 + 1 + 1)
    effects = {"weight_view": 1, "weight_attr": 2, "weight_bck": 1, "weight_rho": 1, "weight_prs": 1}
    for name, effect in effects.items():
        assert float(weighted_loss(terms, replace(Annealing(), **{name: 5.0}))) == pytest.approx(plain + 4 * effect)


# Algorithm 1.


def answers(posterior: Posterior) -> tuple[Tensor, ...]:
    return (posterior.mu_view, posterior.mu_bck, posterior.mu_attr, posterior.tau, posterior.logit_kappa)


def test_views_permute(model: Ocloc) -> None:
    batch, noise = case(model, M=4)
    turn = torch.tensor([2, 0, 3, 1])
    plain, turned = model.infer_posterior(batch, noise), model.infer_posterior(select(batch, turn), select(noise, turn))  # type: ignore[arg-type]
    assert worst(turned.mu_view, plain.mu_view[:, turn]) < 1e-10
    for left, right in zip(answers(turned)[1:], answers(plain)[1:], strict=True):
        assert worst(left, right) < 1e-10
    assert worst(model.infer_posterior(batch, select(noise, turn)).mu_view, plain.mu_view) > 1e-3  # type: ignore[arg-type]


def test_initial_slots_permute_the_objects(model: Ocloc) -> None:
    """k* follows the permutation; the objects behind it permute accordingly."""
    batch, noise = case(model)
    turn = torch.tensor([3, 1, 0, 2])
    star = torch.tensor([1, 0])
    inverse = turn.argsort()
    plain = model.infer_posterior(batch, noise, star)
    turned = model.infer_posterior(batch, select(noise, slots=turn), inverse[star])  # type: ignore[arg-type]
    for b in range(2):
        rest = [k for k in range(4) if k != star[b]]
        order = [rest.index(int(k)) for k in turn if k != star[b]]
        assert worst(turned.mu_attr[b], plain.mu_attr[b, order]) < 1e-10
        assert worst(turned.logit_kappa[b], plain.logit_kappa[b, order]) < 1e-10
    assert worst(turned.mu_bck, plain.mu_bck) < 1e-10
    assert worst(turned.mu_view, plain.mu_view) < 1e-10
    assert worst(turned.log_pi, plain.log_pi[:, turn]) < 1e-10


def test_background_is_moved_to_the_front_and_the_rest_keep_their_order(model: Ocloc) -> None:
    batch, noise = case(model)
    unmoved = model.infer_posterior(batch, noise, torch.zeros(2, dtype=torch.long)).y_attr
    for star in range(4):
        moved = model.infer_posterior(batch, noise, torch.full((2,), star)).y_attr
        assert torch.equal(moved, unmoved[:, [star] + [k for k in range(4) if k != star]])


def test_background_index_is_a_sample_of_pi(model: Ocloc) -> None:
    batch, noise = case(model, B=1)
    log_pi = model.infer_posterior(batch, noise).log_pi.expand(40_000, -1)
    drawn = (log_pi + Sampler(generator(7), torch.device("cpu")).gumbel(40_000, 4)).argmax(-1)
    shares = torch.bincount(drawn, minlength=4) / 40_000
    assert worst(shares, log_pi[0].exp()) < 5 * 0.5 / 200
    chosen = (log_pi[:1] + noise.background).argmax(-1)
    assert torch.equal(model.infer_posterior(batch, noise).background_index, chosen)


def test_repeated_views_leave_attributes_unchanged(model: Ocloc) -> None:
    batch, noise = case(model, M=2)
    again = torch.tensor([0, 1, 0, 1, 0, 1])
    plain, repeated = (
        model.infer_posterior(batch, noise),
        model.infer_posterior(select(batch, again), select(noise, again)),
    )  # type: ignore[arg-type]
    assert worst(plain.y_attr, repeated.y_attr) < 1e-10
    assert worst(plain.y_view[:, again], repeated.y_view) < 1e-10


def test_viewpoint_round_equals_the_joint_one(model: Ocloc) -> None:
    """From the joint run's variables after round t, one viewpoint-only round gives its y_view of round t + 1."""
    batch, noise = case(model)
    inference = model.inference
    keys, values = inference.encode(batch.image)
    y_view, y_attr = inference.start_view(noise.y_view), inference.start_attr(noise.y_attr)
    single = Ocloc(replace(SMALL, rounds=1)).double()
    single.load_state_dict(model.state_dict())
    for _ in range(SMALL.rounds):
        # Undo the learned start, so that the estimation begins exactly at y_view.
        back = (y_view - inference.mu_hat[:4]) / inference.log_sigma_hat[:4].exp()
        given = replace(model.infer_posterior(batch, noise), y_attr=y_attr)
        estimated = single.inference.estimate_views(batch.image, given, back)
        y_view, y_attr = inference.refine(keys, values, batch.view_mask, y_view, y_attr)
        assert torch.equal(estimated.y_view, y_view)
    final = model.infer_posterior(batch, noise)
    assert torch.equal(final.y_view, y_view)


def test_estimated_views_keep_the_scene(model: Ocloc) -> None:
    batch, noise = case(model)
    given = model.infer_posterior(batch, noise)
    other, other_noise = case(model, M=2, seed=5)
    estimated = model.estimate_views(other, given, other_noise)
    assert estimated.mu_view.shape == (2, 2, SMALL.view_dim)
    assert estimated.mu_attr is given.mu_attr
    assert estimated.y_attr is given.y_attr


def test_padded_views_change_nothing(model: Ocloc) -> None:
    """Scenes of 3, 1 and 2 views in one batch answer as they do alone, whatever lies in the padding."""
    batch, noise = case(model, B=3, M=3)
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0]], dtype=torch.bool)
    padded = SceneBatch(torch.where(mask[:, :, None, None, None], batch.image, 0.7), mask)
    together = model.elbo(padded, WARM, noise)
    for b, views in enumerate((3, 1, 2)):
        alone = SceneBatch(batch.image[b : b + 1, :views], torch.ones(1, views, dtype=torch.bool))
        own = {item.name: getattr(noise, item.name)[b : b + 1] for item in fields(Noise)}
        own |= {name: own[name][:, :views] for name in ("y_view", "z_view", "z_shp", "appearance")}
        terms = model.elbo(alone, WARM, Noise(**own))
        for item in fields(ElboTerms):
            left, right = getattr(together, item.name)[b], getattr(terms, item.name)[0]
            assert left.item() == pytest.approx(right.item(), rel=1e-9, abs=1e-9), item.name


@pytest.mark.parametrize("views", [1, 2, 8])
@pytest.mark.parametrize("slots", [1, 5, 11])
def test_any_number_of_views_and_slots(model: Ocloc, views: int, slots: int) -> None:
    batch, noise = case(model, B=1, M=views, slots=slots)
    posterior = model.infer_posterior(batch, noise)
    assert posterior.mu_attr.shape[1] == slots
    terms = model.elbo(batch, WARM, noise)
    prior = Beta(torch.tensor(SMALL.alpha / slots, dtype=torch.float64), torch.ones((), dtype=torch.float64))
    rho = kl_divergence(Beta(posterior.tau[..., 0], posterior.tau[..., 1]), prior).sum(1)
    assert worst(terms.rho, rho) < 1e-9


# NVIL.


def expected_gradient(model: Ocloc, batch: SceneBatch, noise: Noise) -> tuple[list[Tensor], list[Tensor]]:
    """(exact gradient of E[nll] through pi, mean NVIL gradient under pi).

    With respect to g_sel and to what lies before it: g_upd and the learned start of the slots.
    """
    inference = model.inference
    weights = [inference.g_sel.last.weight, inference.g_upd.recurrent.weight_hh, inference.mu_hat]
    log_pi = model.infer_posterior(batch, noise).log_pi[0]
    nlls, estimates = [], []
    for star in range(log_pi.numel()):
        terms = model.elbo(batch, WARM, noise, torch.tensor([star]))
        nlls.append(terms.nll[0].detach())
        estimates.append(torch.autograd.grad(terms.policy.sum(), weights))
    pi = log_pi.exp()
    exact = torch.autograd.grad((pi * torch.stack(nlls)).sum(), weights)
    mean = [sum(p * one for p, one in zip(pi.detach(), parts, strict=True)) for parts in zip(*estimates, strict=True)]
    return list(exact), mean  # type: ignore[return-value]


@pytest.mark.parametrize("views", [1, 3])
def test_nvil_gradient_is_unbiased(views: int) -> None:
    """Summed over all values of k*, with running statistics frozen: the exact gradient of the expected nll.

    With scaling, the same divided by max(deviation, 1), where the deviation a view is multiplied by the views.
    """
    plain = (
        Ocloc(replace(SMALL, nvil=NvilConfig(channels=(4,), hidden=32, normalise=False)), generator(2)).double().eval()
    )
    plain.nvil.mean.fill_(-321.0)
    plain.nvil.variance.fill_(49.0)
    plain.nvil.weight.fill_(1.0)
    scaled = Ocloc(SMALL).double().eval()
    scaled.load_state_dict(plain.state_dict())
    batch, noise = case(plain, B=1, M=views)
    exact, mean = expected_gradient(plain, batch, noise)
    _, divided = expected_gradient(scaled, batch, noise)
    for truth, plainly, scaled_down in zip(exact, mean, divided, strict=True):
        largest = float(truth.abs().max())
        assert largest > 1e-3
        assert worst(plainly, truth) < 1e-9 * largest + 1e-9
        assert worst(scaled_down * 7.0 * views, truth) < 1e-9 * largest + 1e-9


def test_nvil_statistics_follow_a_view_and_only_in_training() -> None:
    model = Ocloc(SMALL, generator(3))
    batch = scenes(4, 2)
    noise = model.draw_noise(batch, generator(4))
    model.eval().elbo(batch, WARM, noise)
    assert float(model.nvil.weight) == 0
    model.train()
    with torch.no_grad():
        b = model.nvil.network(2 * batch.image.flatten(0, 1) - 1).view(4, 2).sum(1)
        nll = model.elbo(batch, WARM, noise).nll
    signal = (-nll - b) / 2
    assert float(model.nvil.mean) == pytest.approx(0.2 * float(signal.mean()), rel=1e-4)
    assert float(model.nvil.variance) == pytest.approx(0.2 * float(signal.var(correction=0)), rel=1e-3)


@pytest.mark.parametrize("correct_start", [True, False])
def test_nvil_signal_of_the_second_step(correct_start: bool) -> None:
    """By hand, with scenes of 1, 3 and 2 views: statistics a view, their start divided out (or not), then rescaled."""
    nvil = NvilConfig(channels=(4,), hidden=32, correct_start=correct_start)
    model = Ocloc(replace(SMALL, nvil=nvil), generator(3)).double()
    batch, noise = case(model, B=3, M=3)
    mask = torch.tensor([[True, False, False], [True, True, True], [True, True, False]])
    posterior = model.infer_posterior(batch, noise)
    with torch.no_grad():
        b_view = model.nvil.network(2 * batch.image.flatten(0, 1) - 1).view(3, 3)
    views, mean, variance, weight = [1, 3, 2], 0.0, 0.0, 0.0
    for nll in ([100.0, 700.0, 350.0], [90.0, 500.0, 420.0]):
        found = model.nvil(batch.image, mask, posterior, torch.tensor(nll).double())
        b = [sum(b_view[i, :count].tolist()) for i, count in enumerate(views)]
        signal = [-nll[i] - b[i] for i in range(3)]
        single = [signal[i] / views[i] for i in range(3)]
        batch_mean = sum(single) / 3
        batch_variance = sum((value - batch_mean) ** 2 for value in single) / 3
        mean, variance = 0.8 * mean + 0.2 * batch_mean, 0.8 * variance + 0.2 * batch_variance
        weight = 0.8 * weight + 0.2
    assert weight == pytest.approx(0.36)
    share = weight if correct_start else 1.0
    for i, count in enumerate(views):
        scale = max(count * math.sqrt(variance / share), 1.0)
        expected = (signal[i] - count * mean / share) / scale
        log_pi = posterior.log_pi[i, posterior.background_index[i]].item()
        assert found["policy"][i].item() == pytest.approx(-expected * log_pi, rel=1e-9)
        assert found["baseline"][i].item() == pytest.approx(-expected * b[i], rel=1e-9)


def test_nvil_statistics_survive_a_bad_step() -> None:
    """Signals that are not finite are left out; where none is left, the statistics stay as they are."""
    model = Ocloc(SMALL, generator(3))
    batch = scenes(3, 2)
    posterior = model.infer_posterior(batch, model.draw_noise(batch, generator(4)))
    keep = SceneBatch(batch.image[:1], batch.view_mask[:1])
    alone = Ocloc(SMALL, generator(3))
    first = alone.infer_posterior(keep, alone.draw_noise(keep, generator()))
    alone.nvil(keep.image, keep.view_mask, first, torch.tensor([50.0]))
    model.nvil(batch.image, batch.view_mask, posterior, torch.tensor([50.0, torch.nan, torch.inf]))
    for name in ("mean", "variance", "weight"):
        assert float(getattr(model.nvil, name)) == pytest.approx(float(getattr(alone.nvil, name)), rel=1e-5, abs=1e-9)
    before = {name: value.clone() for name, value in model.nvil.named_buffers()}
    model.nvil(batch.image, batch.view_mask, posterior, torch.full((3,), torch.nan))
    assert all(torch.equal(value, before[name]) for name, value in model.nvil.named_buffers())


def test_baseline_gradient_pulls_towards_the_reward(model: Ocloc) -> None:
    """-signal * b with the signal held fixed: the gradient with respect to b is minus the signal."""
    batch, noise = case(model, B=1, M=1)
    bias = model.nvil.network.connected.last.bias
    terms = model.elbo(batch, WARM, noise)
    (gradient,) = torch.autograd.grad(terms.baseline.sum(), bias)
    b = model.nvil.network(2 * batch.image[:, 0] - 1)
    assert float(gradient) == pytest.approx(float(terms.nll.detach() + b.detach()), rel=1e-9)


# The prior.


def test_prior_of_the_number_of_objects() -> None:
    """rho ~ Beta(alpha / K, 1): every slot is present with probability alpha / (alpha + K)."""
    model = Ocloc(SMALL)
    latents = model.generation.prior(20_000, 1, 4, 3.0, Sampler(generator(8), torch.device("cpu")))
    share = float(latents.z_prs.mean())
    assert abs(share - 3 / (3 + 4)) < 5 * 0.5 / 80_000**0.5
    assert set(latents.z_prs.unique().tolist()) == {0.0, 1.0}


def test_codes_of_a_scene_from_the_prior() -> None:
    """z_view, z_attr ~ N(0, I), each as often as it is drawn; presences are 0 or 1; the generator decides."""
    model, state = Ocloc(SMALL, generator(9)), generator(10)
    drawn = [model.sample_codes(2, 5, state) for _ in range(2000)]
    sizes = {"views": (2, SMALL.view_dim), "background": (SMALL.background_dim,), "objects": (5, SMALL.attr_dim)}
    for name, size in sizes.items():
        values = torch.stack([getattr(codes, name) for codes in drawn])
        assert values.shape == (2000, *size)
        assert worst(values.mean(0), torch.zeros(size)) < 5 / 2000**0.5
        assert worst(values.square().mean(0), torch.ones(size)) < 5 * (2 / 2000) ** 0.5
    presence = torch.stack([codes.presence for codes in drawn])
    assert set(presence.unique().tolist()) == {0.0, 1.0}
    assert abs(float(presence.mean()) - SMALL.alpha / (SMALL.alpha + 5)) < 5 * 0.5 / 10_000**0.5
    again = model.sample_codes(2, 5, generator(10))
    assert all(torch.equal(getattr(again, name), getattr(drawn[0], name)) for name in vars(again))


def test_pictures_of_a_scene_from_the_prior() -> None:
    model = Ocloc(SMALL, generator(9))
    shown = model.render_codes(model.sample_codes(2, 5, generator(10)))
    assert shown.image.shape == (2, 3, SIZE, SIZE)
    assert shown.masks.shape == (2, 6, SIZE, SIZE)
    assert shown.order.shape == (2, 5)
    assert worst(shown.masks.sum(1), torch.ones(())) < 1e-5


# Sizes.


def test_parameter_counts_of_the_multi_view_model() -> None:
    counts = Ocloc(experiment("clevr-m1").model).parameter_counts()
    assert counts == {
        "total": 55_086_527,
        "f_shp_apc": 51_421_636,
        "f_bck": 420_323,
        "f_ord": 299_523,
        "g_feat": 321_024,
        "g_key": 4_224,
        "g_qry": 8_976,
        "g_val": 8_832,
        "g_upd": 147_144,
        "g_sel": 329_217,
        "g_bck": 336_912,
        "g_obj": 395_907,
        "g_view": 271_368,
        "nvil": 1_121_169,
        "initial": 272,
    }


def test_compact_is_small() -> None:
    assert Ocloc(COMPACT).parameter_counts()["total"] <= 4_000_000


# Precision.


@pytest.mark.parametrize("method", [Ocloc, PerView])
def test_bfloat16_gives_the_same_loss(method: type[Ocloc] | type[PerView]) -> None:
    """Likelihood within 1 %, every other term within 5 % of its size or 0.1 nat; all terms come in float32."""
    model = method(SMALL, generator(11)).eval()
    batch = scenes(4, 2)
    noise = model.draw_noise(batch, generator(12))
    first = torch.zeros_like(noise.background)  # always the first slot, however close the choice is
    first[:, 0] = 1e6
    noise = replace(noise, background=first)
    plain = model(batch, WARM, noise)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = model(batch, WARM, noise)
    for name, left in plain.terms.items():
        right = mixed.terms[name]
        assert right.dtype == torch.float32
        tolerance = 0.01 if name == "nll" else 0.05
        assert worst(left, right) < tolerance * float(left.detach().abs().max()) + 0.1, name


def test_delicate_parts_leave_autocast(model: Ocloc) -> None:
    """Attention, divergences and compositing give the same in autocast as outside it, to the last bit."""
    source = Sampler(generator(13), torch.device("cpu"))
    keys, queries = source.normal(1, 2, 9, 8), source.normal(1, 2, 4, 8)
    tau, logit = source.uniform(3, 2) * 3, source.normal(3)
    shapes = source.normal(1, 2, 3, 4, 4), source.normal(1, 3), source.normal(1, 2, 3)
    calls: list[Callable[[], Tensor]] = [
        lambda: slot_attention(keys, queries),
        lambda: beta_kl(tau, 0.5) + presence_kl(logit, tau),
        lambda: normal_kl(tau, tau.log()),
        lambda: perceived_shapes(*shapes, 0.5),
        lambda: relaxed_bernoulli_logit(logit, logit, 0.7),
    ]
    for call in calls:
        outside = call()
        with torch.autocast("cpu", torch.bfloat16):
            inside = call()
        assert torch.equal(outside, inside)
    with torch.autocast("cpu", torch.bfloat16):
        assert slot_attention(keys.bfloat16(), queries.bfloat16()).dtype == torch.float32


def test_attention_is_the_equation() -> None:
    """Lines 8 and 9: softmax over slots, then each slot's weights divided by their sum over pixels, no epsilon."""
    source = Sampler(generator(14), torch.device("cpu"))
    keys, queries = source.normal(2, 2, 9, 8).double(), source.normal(2, 2, 4, 8).double() * 3
    a = ((keys @ queries.transpose(-1, -2)) / 8**0.5).softmax(-1)
    expected = (a / a.sum(2, keepdim=True)).transpose(-1, -2)
    assert worst(slot_attention(keys, queries), expected) < 1e-12


def test_likelihood_counts_real_views_only() -> None:
    image, other = torch.zeros(1, 2, 3, 4, 4), torch.ones(1, 2, 3, 4, 4)
    found = negative_log_likelihood(image, other, torch.tensor([[True, False]]), 0.5)
    assert float(found) == pytest.approx(48 / (2 * 0.25))
