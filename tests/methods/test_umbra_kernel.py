"""Umbra's image model as a Triton kernel against the plain code in float64: costs, pictures and all gradients.

The kernel runs on a GPU, or in Triton's interpreter on a CPU (`make twins`). Which code is taken is tested everywhere.
"""

import importlib.util
import os
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from small_model import SMALL_OCLOC, generator
from torch import Tensor

from viewslots.methods.ocloc.fast import placing
from viewslots.methods.ocloc.image_model import Cost
from viewslots.methods.ocloc.schedule import Annealing
from viewslots.methods.ocloc.variables import Decoded, Latents, Noise, Posterior, Rendering
from viewslots.methods.umbra.config import UmbraConfig, UmbraSchedule
from viewslots.methods.umbra.fast import mixture
from viewslots.methods.umbra.fast.mixture import FusedMixture
from viewslots.methods.umbra.glimpses import slope
from viewslots.methods.umbra.image_model import ShadowedMixture
from viewslots.methods.umbra.model import Umbra
from viewslots.types import SceneBatch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
ON_GPU = torch.cuda.is_available() and not INTERPRETED
DEVICE = "cuda" if ON_GPU else "cpu"
EXACT = 1e-5 if INTERPRETED else 1e-4
"""Of the largest gradient. Exponentials of a GPU are less exact."""
LEAST = 1e-12
"""A gradient that is nothing but rounding."""
HALF = 2**-8
"""Rounding to bfloat16."""
ANNEALING = Annealing(softness=0.5, compactness_rate=0.3, compactness_scale=0.8)
CONFIG = UmbraConfig(**vars(SMALL_OCLOC))
GLIMPSES = replace(CONFIG, glimpses=1, glimpse_size=8, glimpse_channels=(8, 8))
DETAILED = replace(GLIMPSES, box_fit=1.0, details=3, details_by_view=True)
NAMES = ("nll", "prices", "objects", "background", "order", "centre", "presence")


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken for every picture; skipped where there is none."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed (pip install triton)")
    if not (ON_GPU or INTERPRETED):
        pytest.skip("no GPU, and TRITON_INTERPRET=1 is not set (make twins)")
    monkeypatch.setattr(mixture, "has_kernel", lambda image: image.dtype == torch.float32)
    monkeypatch.setattr(placing, "has_kernel", lambda drawn, boxes: boxes.dtype == torch.float32)


@dataclass(frozen=True)
class Given:
    """Two scenes of two views, the last of which is padding."""

    objects: Tensor
    background: Tensor
    order: Tensor
    centre: Tensor
    presence: Tensor
    image: Tensor
    noise: Tensor
    mask: Tensor = field(default_factory=lambda: torch.tensor([[True, True], [True, False]], device=DEVICE))

    @property
    def inputs(self) -> list[Tensor]:
        return [self.objects, self.background, self.order, self.centre, self.presence]

    def wide(self) -> "Given":
        tensors = {name: value.detach().double() for name, value in vars(self).items() if name != "mask"}
        return replace(self, **tensors)


def some(K: int = 3, size: tuple[int, int] = (5, 7), spread: float = 2.0, seed: int = 0) -> Given:
    random = generator(seed)

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return (scale * torch.randn(shape, generator=random)).to(DEVICE)

    return Given(
        objects=normal(4 * K, 5, *size, scale=spread),
        background=normal(4, 3, *size),
        order=normal(2, 2, K, scale=spread),
        centre=normal(2, 2, K, 2).tanh(),
        presence=normal(2, K, scale=spread),
        image=torch.rand(2, 2, 3, *size, generator=random).to(DEVICE),
        noise=normal(2, 2, K, 3, *size),
    )


def asked(model: ShadowedMixture, given: Given, annealing: Annealing, noisy: bool) -> tuple[Cost, Rendering | None]:
    objects, background, order, centre, presence = (value.requires_grad_() for value in given.inputs)
    decoded, batch = Decoded(background, objects, order, centre), SceneBatch(given.image, given.mask)
    nothing = torch.empty(0)
    latents = Latents(nothing, nothing, nothing, presence)
    if noisy:
        noise = Noise(*[nothing] * 8, appearance=given.noise)
        return model.training_cost(decoded, latents, batch, annealing, noise), None
    shown, cost = model.drawn(decoded, latents, batch, annealing)
    return cost, shown


def answers(
    model: ShadowedMixture, given: Given, annealing: Annealing, noisy: bool
) -> tuple[list[Tensor | None], Rendering | None]:
    """Costs, and gradients of a sum in which every scene and both costs have a weight of their own."""
    cost, shown = asked(model, given, annealing, noisy)
    weights = torch.tensor([1.0, 0.7], device=DEVICE, dtype=given.image.dtype)
    total = (weights * cost.nll + 0.8 * weights.flip(0) * cost.prices).sum()
    gradients = torch.autograd.grad(total, given.inputs, allow_unused=True)
    return [cost.nll.detach(), cost.prices.detach(), *gradients], shown


def check(given: Given, config: UmbraConfig = CONFIG, annealing: Annealing = ANNEALING, noisy: bool = True) -> None:
    found, pictures = answers(FusedMixture(config), given, annealing, noisy)
    expected, shown = answers(ShadowedMixture(config), given.wide(), annealing, noisy)
    for name, ours, theirs in zip(NAMES, found, expected, strict=True):
        if theirs is None:
            assert ours is None, name
            continue
        assert ours is not None, name
        assert ours.isfinite().all(), name
        exact = HALF if ours.dtype == torch.bfloat16 else EXACT
        atol = exact * float(theirs.abs().max()) + LEAST
        torch.testing.assert_close(ours.double(), theirs, rtol=exact, atol=atol, msg=lambda m, n=name: n + m)
    if pictures is not None and shown is not None:
        for name, theirs in vars(shown).items():
            value = getattr(pictures, name)
            assert value.dtype == torch.float32, name
            assert not value.requires_grad or name in ("logit_shp", "order"), name
            torch.testing.assert_close(value.double(), theirs, rtol=EXACT, atol=EXACT, msg=lambda m, n=name: n + m)


# The kernel.

NOISY = pytest.mark.parametrize("noisy", [True, False], ids=["training", "looks"])


@pytest.mark.usefixtures("kernel")
@NOISY
@pytest.mark.parametrize(
    ("K", "size"), [(1, (5, 7)), (3, (9, 11)), (7, (6, 6)), (8, (4, 8)), (11, (3, 5)), (16, (2, 3))]
)
def test_any_number_of_layers_and_pixels(K: int, size: tuple[int, int], noisy: bool) -> None:
    check(some(K, size), noisy=noisy)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("size", [(1, 6), (40, 1), (1, 1)])
def test_pictures_of_one_row_or_column(size: tuple[int, int]) -> None:
    check(some(2, size))


@pytest.mark.usefixtures("kernel")
@NOISY
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_between_the_weighted_sum_and_the_mixture(share: float, noisy: bool) -> None:
    check(some(), replace(CONFIG, mixture=0.5 + share / 2), replace(ANNEALING, weight_mixture=share), noisy)


@pytest.mark.usefixtures("kernel")
def test_values_of_a_step_may_be_tensors() -> None:
    check(some(), annealing=replace(ANNEALING, weight_mixture=0.3).tensors(DEVICE))


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize(
    "changed",
    [
        {"darkest": 0.0},
        {"darkest": 1.0},
        {"pixel_cost": 0.0, "shadow_cost": 0.0},
        {"pixel_cost": 7.0, "shadow_cost": 3.0},
        {"sigma_x": 0.07},
        {"sigma_x": 1.0},
    ],
    ids=str,
)
def test_constants(changed: dict[str, float]) -> None:
    check(some(), replace(CONFIG, **changed))


@pytest.mark.usefixtures("kernel")
@NOISY
def test_half_precision_with_channels_last(noisy: bool) -> None:
    """Gradients come back as the maps lie in memory."""
    given = some(5)
    maps = {
        name: getattr(given, name).to(torch.bfloat16, memory_format=torch.channels_last)
        for name in ("objects", "background")
    }
    given = replace(given, **maps)
    check(given, noisy=noisy)
    found, _ = answers(FusedMixture(CONFIG), given, ANNEALING, noisy)
    for value, gradient in zip(given.inputs[:2], found[2:4], strict=True):
        assert gradient is not None
        assert gradient.dtype == torch.bfloat16
        assert gradient.stride() == value.stride()


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("order", ["channels first", "a part of others", "turned"])
def test_maps_may_lie_in_memory_as_they_like(order: str) -> None:
    given = some()
    if order == "a part of others":
        given = replace(given, objects=torch.cat([given.objects, given.objects], 1)[:, 5:].detach())
    if order == "turned":
        given = replace(given, background=given.background.mT.contiguous().mT.detach())
    check(given)


@pytest.mark.usefixtures("kernel")
@NOISY
@pytest.mark.parametrize("far", [30.0, 1000.0])
def test_log_odds_whose_exponentials_end(far: float, noisy: bool) -> None:
    """Outside its box an object is absent; inside, a shape or a shadow may be whole. All pairs of both, and more."""
    given = some(5, (8, 7))
    with torch.no_grad():
        shape, shadow = given.objects[:, 0], given.objects[:, 4]
        shape[:, :2], shape[:, 2:4, :4] = -far, far
        shadow[:, :, :2], shadow[:, ::2, 3:5] = -far, far
        given.presence[0, :2] = torch.tensor([far, -far])
        given.objects[:, 1:4, 5] = far
    check(given, noisy=noisy)
    check(given, replace(CONFIG, darkest=1.0), noisy=noisy)


@pytest.mark.usefixtures("kernel")
def test_presence_may_be_certain() -> None:
    given = some(4)
    with torch.no_grad():
        given.presence[0] = torch.tensor([torch.inf, -torch.inf, 0.3, torch.inf])
    check(given, noisy=False)


@pytest.mark.usefixtures("kernel")
@NOISY
def test_whole_objects_of_nearly_the_same_order(noisy: bool) -> None:
    given = some(7, (4, 8))
    with torch.no_grad():
        given.objects[:, 0] = 6 + given.objects[:, 0].abs()
        given.presence.abs_().add_(4)
        given.order.copy_(1 + 1e-3 * given.order)
    check(given, noisy=noisy)
    check(given, annealing=replace(ANNEALING, softness=1e-3), noisy=noisy)


@pytest.mark.usefixtures("kernel")
def test_an_order_that_is_clear() -> None:
    given = some(4)
    with torch.no_grad():
        given.order.mul_(5)
    check(given)


@pytest.mark.usefixtures("kernel")
def test_a_few_thousandths_of_a_pixel() -> None:
    """On both sides of LEAST_COVER, and shares on both sides of LEAST_SHARE."""
    given = some(3, (8, 8))
    with torch.no_grad():
        given.objects[:, 0] = torch.linspace(-22, -4, 64, device=DEVICE).view(8, 8) + 0.1 * given.objects[:, 0]
    check(given)


@pytest.mark.usefixtures("kernel")
def test_logits_of_shapes_are_not_copied() -> None:
    given = some()
    _, shown = asked(FusedMixture(CONFIG), given, ANNEALING, noisy=False)
    assert shown is not None
    assert shown.logit_shp.data_ptr() == given.objects.data_ptr()


@pytest.mark.usefixtures("kernel")
def test_padded_views_and_runs_repeat_bit_for_bit() -> None:
    given = some()
    first, again = (answers(FusedMixture(CONFIG), given, ANNEALING, True)[0] for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))  # type: ignore[arg-type]
    objects, background = first[2], first[3]
    assert objects is not None
    assert background is not None
    assert not objects.view(2, 2, 3, 5, 5, 7)[1, 1].any()
    assert not background[3].any()
    assert objects.view(2, 2, 3, 5, 5, 7)[1, 0].any()


def whole_model(config: UmbraConfig = GLIMPSES) -> tuple[Umbra, SceneBatch, Noise]:
    model = Umbra(config, generator(1)).to(DEVICE).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator(2)).to(DEVICE)
    given = some(GLIMPSES.slots, (16, 16))
    batch = SceneBatch(torch.where(given.mask[:, :, None, None, None], given.image, 0.0), given.mask)
    return model, batch, model.draw_noise(batch, torch.Generator(DEVICE).manual_seed(0))


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("config", [GLIMPSES, DETAILED], ids=["glimpses", "boxes and details"])
def test_a_model_learns_and_looks_the_same(config: UmbraConfig) -> None:
    """The whole loss with its gradients, glimpses included; boxes by their kernel."""
    model, batch, noise = whole_model(config)
    scheduled = UmbraSchedule(mixture_until=1.0, costs_until=1.0).at(100_000)
    results: list[dict[str, Tensor]] = []
    for called in (model, model.fast("fp32").module):
        model.zero_grad()
        loss = called(batch, scheduled, noise).minimised.mean()
        loss.backward()
        named = {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}
        results.append(named | {"loss": loss.detach()})
    plain, fast = results
    assert plain.keys() == fast.keys()
    largest = max(float(value.abs().max()) for value in plain.values())
    for name, value in plain.items():
        atol = 1e-3 * float(value.abs().max()) + 1e-6 * largest
        torch.testing.assert_close(fast[name], value, rtol=1e-3, atol=atol, msg=lambda m, n=name: n + m)


# Everywhere.


def test_a_fast_twin_has_it() -> None:
    model, _, _ = whole_model()
    assert type(model.image_model) is ShadowedMixture
    fast = model.fast("fp32").module.image_model
    assert type(fast) is FusedMixture
    assert fast.config == model.config
    assert fast.object_price == model.image_model.object_price
    assert type(fast.fast()) is FusedMixture


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@NOISY
def test_on_a_cpu_it_is_the_plain_code(dtype: torch.dtype, noisy: bool) -> None:
    given = some()
    given = replace(given, **{name: value.cpu().to(dtype) for name, value in vars(given).items() if name != "mask"})
    given = replace(given, mask=given.mask.cpu())
    ours, shown = asked(FusedMixture(CONFIG), given, ANNEALING, noisy)
    theirs, other = asked(ShadowedMixture(CONFIG), given, ANNEALING, noisy)
    assert torch.equal(ours.nll, theirs.nll)
    assert torch.equal(ours.prices, theirs.prices)
    if shown is not None:
        assert all(torch.equal(value, getattr(other, name)) for name, value in vars(shown).items())


def test_the_whole_mixture_needs_no_weighted_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    given, model = some(), ShadowedMixture(CONFIG)
    slow, _ = asked(model, given, replace(ANNEALING, weight_mixture=torch.tensor(1.0, device=DEVICE)), False)

    def never(*_: Any) -> Tensor:
        raise AssertionError("asked for")

    monkeypatch.setattr("viewslots.methods.umbra.image_model.negative_log_likelihood", never)
    cost, _ = asked(model, given, ANNEALING, False)
    torch.testing.assert_close(cost.nll, slow.nll)


def old_slopes(model: Umbra, batch: SceneBatch, posterior: Posterior) -> list[Tensor]:
    """The gradient of all in one sum: cost of the pictures, and half the square of every code."""
    names = ("mu_view", "mu_bck", "mu_attr")
    codes = [getattr(posterior, name).detach().requires_grad_() for name in names]
    means, annealing = Latents(*codes, posterior.logit_kappa.detach()), model.annealed()
    cost = model.image_model.cost(model.layers(means), means, batch, annealing)
    length = cost.total(annealing).sum() + sum(code.square().sum() / 2 for code in codes)
    return [slope(gradient) for gradient in torch.autograd.grad(length, codes)]


@pytest.mark.parametrize("half", [False, True], ids=["fp32", "bf16"])
def test_slopes_of_a_drawing(half: bool) -> None:
    model, batch, noise = whole_model()
    posterior = model.infer_posterior(batch, noise)
    with torch.autocast(DEVICE, torch.bfloat16, enabled=half):
        drawing, expected = model.drawing(batch, posterior), old_slopes(model, batch, posterior)
    found = (drawing.slope_view, drawing.slope_bck, drawing.slope_attr)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0.05 if half else 1e-4, atol=0.05 if half else 1e-5)
    assert not any(value.requires_grad for value in vars(drawing.shown).values())
    shown = model.render(
        Latents(posterior.mu_view, posterior.mu_bck, posterior.mu_attr, posterior.logit_kappa), model.annealed()
    )
    if not half:
        for name, value in vars(shown).items():
            torch.testing.assert_close(getattr(drawing.shown, name), value)


@pytest.mark.usefixtures("kernel")
def test_slopes_of_a_drawing_by_the_kernel() -> None:
    model, batch, noise = whole_model()
    posterior = model.infer_posterior(batch, noise)
    drawing, expected = model.fast("fp32").module.drawing(batch, posterior), old_slopes(model, batch, posterior)
    for ours, theirs in zip((drawing.slope_view, drawing.slope_bck, drawing.slope_attr), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
