"""Gradient steps on codes, and further looks for objects: on toys whose answers are known, and on small models."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Bool
from paper_cases import SMALL, case, shaken, tensors
from small_model import SMALL_OCLOC, generator
from test_ocloc_algorithm import Loop
from torch import Tensor

from viewslots.methods.contract import Search
from viewslots.methods.ocloc.choice import Drawn, most_likely, seen_objects
from viewslots.methods.ocloc.compositing import composite, perceived_shapes
from viewslots.methods.ocloc.fast.accelerate import accelerated
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.schedule import Annealing
from viewslots.methods.ocloc.search import (
    CODES,
    OF_OBJECTS,
    PRUNED,
    RATE,
    TOLERANCE,
    WITH_VIEWS,
    best_of,
    by_view,
    found_by_view,
    joined,
    of_present,
    pruned,
    refined,
    searched,
    with_further_look,
    with_objects,
)
from viewslots.methods.ocloc.variables import Latents, Layers, Noise, Posterior, Rendering
from viewslots.methods.umbra.config import UmbraConfig
from viewslots.methods.umbra.model import Umbra
from viewslots.types import SceneBatch

torch.set_num_threads(1)

STILL = Annealing(softness=0.01)
LEFT = {"log_sigma_view", "log_sigma_bck", "log_sigma_attr", "tau", "logit_kappa", "log_pi", "y_view", "y_attr"}

Objects = Sequence[tuple[float, float, float, float, float, float]]
"""Place, colour, width, order, price, and the log-odds of the presence."""


def described(*scenes: Objects, background: float = 0.5, views: int = 1) -> Posterior:
    """Every part of an object tells its place, so that one sees which parts belong together."""
    objects = torch.tensor(scenes).double()
    B, K = objects.shape[:2]
    code, place, logit_kappa = objects[..., :5], objects[..., :1], objects[..., 5]
    view, bck = torch.zeros(B, views, 1).double(), torch.full((B, 1), background).double()
    return Posterior(
        mu_view=view,
        log_sigma_view=view,
        mu_bck=bck,
        log_sigma_bck=bck,
        mu_attr=code,
        log_sigma_attr=place.expand(B, K, 5),
        tau=torch.cat([place, place + 0.5], -1),
        logit_kappa=logit_kappa,
        log_pi=torch.zeros(B, K + 1).double(),
        background_index=torch.zeros(B, dtype=torch.long),
        y_view=view + 7,
        y_attr=torch.cat([torch.full((B, 1, 1), -1.0).double(), 10 * place], 1),
    )


def assert_aligned(posterior: Posterior) -> None:
    place = posterior.mu_attr[..., :1]
    assert torch.equal(posterior.log_sigma_attr, place.expand_as(posterior.log_sigma_attr))
    assert torch.equal(posterior.tau, torch.cat([place, place + 0.5], -1))
    assert torch.equal(posterior.y_attr[:, 1:], 10 * place)
    assert (posterior.y_attr[:, 0] == -1).all()


def shown_objects(posterior: Posterior, scene: int = 0) -> dict[float, float]:
    """Colours of present objects by their places."""
    present = posterior.logit_kappa[scene] >= 0
    return {float(place): float(colour) for place, colour in posterior.mu_attr[scene, present, :2]}


def noise_called(name: float, views: int = 1) -> Noise:
    """Its y_attr holds its name; its Gumbel noise is not zero."""
    empty, named = torch.zeros(1, views), torch.full((1, 1, 1), name)
    return Noise(empty, named, torch.ones(1, 3), empty, empty, empty, empty, empty, empty)


class Row:
    """Pictures of one row of grey pixels: objects cover some in a row. Inference answers what it is told to."""

    pixels, sigma = 8, 0.1

    def __init__(self, first: Sequence[Posterior], more: Posterior) -> None:
        self.first, self.more = iter(first), more
        self.inferred: list[Noise] = []
        self.looked: list[tuple[SceneBatch, Posterior, Noise]] = []

    def looked_at(
        self, batch: SceneBatch, posterior: Posterior, absent: Bool[Tensor, "B K"] | None = None
    ) -> Posterior:
        return posterior

    def infer_posteriors(self, batch: SceneBatch, noises: Sequence[Noise]) -> list[Posterior]:
        self.inferred += noises
        return [next(self.first) for _ in noises]

    def find_objects(self, batch: SceneBatch, given: Posterior, noise: Noise) -> Posterior:
        self.looked.append((batch, given, noise))
        return self.more

    def layers(self, latents: Latents) -> Layers:
        place, colour, width, order, _ = latents.z_attr.unbind(-1)
        (B, K), M, pixel = place.shape, latents.z_view.shape[1], torch.arange(self.pixels)
        covered = (pixel >= place[..., None]) & (pixel < (place + width)[..., None])
        return Layers(
            background=latents.z_bck[:, None, :, None, None].expand(B, M, 3, 1, self.pixels),
            appearance=colour[:, None, :, None, None, None].expand(B, M, K, 3, 1, self.pixels),
            logit_shp=torch.where(covered, torch.inf, -torch.inf)[:, None, :, None].double().expand(B, M, K, 1, -1),
            order=order[:, None].expand(B, M, K),
            centre=torch.zeros(B, M, K, 2),
        )

    def show(self, layers: Layers, latents: Latents, annealing: Annealing) -> Rendering:
        s = perceived_shapes(layers.logit_shp, latents.logit_prs, layers.order, annealing.softness)
        mean = composite(s, layers.background, layers.appearance)
        return Rendering(mean, s, layers.logit_shp, layers.order, layers.appearance, layers.background)

    def missed(self, batch: SceneBatch, shown: Rendering) -> Tensor:
        return (batch.image - shown.reconstruction).square().sum(2) / (2 * self.sigma**2)

    def canvas(self, batch: SceneBatch, latents: Latents, annealing: Annealing) -> "RowCanvas":
        return RowCanvas(self, batch, latents, annealing)

    def reconstruction_cost(self, batch: SceneBatch, layers: Layers, latents: Latents, annealing: Annealing) -> Tensor:
        return self.missed(batch, self.show(layers, latents, annealing)).sum((1, 2, 3))

    def object_lengths(self, posterior: Posterior, annealing: Annealing, views: Tensor) -> Tensor:
        return posterior.mu_attr[..., 4].detach()

    def description_length(
        self, batch: SceneBatch, posterior: Posterior, latents: Latents, annealing: Annealing
    ) -> Tensor:
        layers = self.layers(latents)
        prices = latents.z_prs * self.object_lengths(posterior, annealing, batch.view_mask.sum(1))
        views = self.background_and_view_kl(batch, posterior)
        return self.reconstruction_cost(batch, layers, latents, annealing) + prices.sum(1) + views

    def background_and_view_kl(self, batch: SceneBatch, posterior: Posterior) -> Tensor:
        return posterior.mu_view.square().sum((1, 2))

    def for_choices(self, posterior: Posterior) -> Posterior:
        return posterior


class RowCanvas:
    """Drawn anew for every question."""

    def __init__(self, row: Row, batch: SceneBatch, latents: Latents, annealing: Annealing) -> None:
        self.row, self.batch, self.latents, self.annealing = row, batch, latents, annealing
        self.cover = row.layers(latents).logit_shp.sigmoid()

    def show(self, scenes: Tensor, slots: Tensor, present: Tensor) -> Rendering:
        latents = self.latents.of_slots(scenes, slots, present)
        return self.row.show(self.row.layers(latents), latents, self.annealing)

    def cost(self, scenes: Tensor, slots: Tensor, present: Tensor) -> Tensor:
        some = SceneBatch(self.batch.image[scenes], self.batch.view_mask[scenes])
        return self.row.missed(some, self.show(scenes, slots, present)).sum((1, 2, 3))


def row_of(*scenes: list[float]) -> SceneBatch:
    image = torch.tensor(scenes).double()[:, None, None, None].expand(-1, 1, 3, 1, -1)
    return SceneBatch(image, torch.ones(len(scenes), 1, dtype=torch.bool))


THERE, GONE = 1.0, -2.0
PRICE = 5.0


def thing(place: float, colour: float, presence: float = THERE, width: float = 1.0, order: float = 0.0) -> tuple:
    """An error of 0.2 at one pixel costs 6 nats, one of 0.1 a nat and a half."""
    return place, colour, width, order, PRICE, presence


# Refinement: toys.


class Quadratic:
    """|A code - b|^2 / 2 of each scene, over all its codes in a row; no number for codes longer than `fence`."""

    def __init__(self) -> None:
        self.A = 0.08 * torch.randn(3, 12, 12, generator=generator(1)).double() + torch.eye(12).double()
        self.b, self.fence = torch.randn(3, 12, generator=generator(2)).double(), torch.full((3,), torch.inf)

    def row(self, posterior: Posterior) -> Tensor:
        return torch.cat([getattr(posterior, name).flatten(1) for name in CODES], 1)

    def description_length(
        self, batch: SceneBatch, posterior: Posterior, latents: Latents, annealing: Annealing
    ) -> Tensor:
        row = self.row(posterior)
        length = 0.5 * (torch.einsum("bij,bj->bi", self.A, row) - self.b).square().sum(1)
        return torch.where(row.detach().norm(dim=1) > self.fence, torch.nan, length)


SOME = described(*[[(0.3, -0.2, 0.1, 0.4, -0.1, THERE), (0.2, 0.1, -0.3, 0.0, 0.2, THERE)]] * 3, background=0.2)
NOWHERE = row_of(*[[0.0]] * 3)


def test_it_comes_near_the_least_there_is() -> None:
    toy = Quadratic()
    found = refined(toy, NOWHERE, SOME, STILL, 300)  # type: ignore[arg-type]
    least = torch.linalg.solve(toy.A, toy.b)
    torch.testing.assert_close(toy.row(found), least, rtol=0, atol=0.02)
    assert (toy.row(SOME) - least).abs().max() > 1


def test_the_steps_are_adam_s_and_grow_smaller() -> None:
    """Written out by hand, from the gradient A^T (A code - b)."""
    toy, steps = Quadratic(), 7
    code, first, second = toy.row(SOME), torch.zeros(3, 12).double(), torch.zeros(3, 12).double()
    for step in range(steps):
        gradient = torch.einsum("bij,bi->bj", toy.A, torch.einsum("bij,bj->bi", toy.A, code) - toy.b)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        scaled = (first / (1 - 0.9 ** (step + 1))) / ((second / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8)
        code = code - RATE * (1 - step / steps) * scaled
    found = refined(toy, NOWHERE, SOME, STILL, steps)  # type: ignore[arg-type]
    torch.testing.assert_close(toy.row(found), code, rtol=1e-9, atol=1e-12)


def test_what_comes_to_nothing_keeps_what_it_had() -> None:
    """The fence stands between the start and the end of the last scene."""
    toy = Quadratic()
    free = refined(toy, NOWHERE, SOME, STILL, 30)  # type: ignore[arg-type]
    start, end = (float(toy.row(one)[2].norm()) for one in (SOME, free))
    assert end > start + 0.2
    toy.fence[2] = (start + end) / 2
    found = refined(toy, NOWHERE, SOME, STILL, 30)  # type: ignore[arg-type]
    assert torch.equal(toy.row(found), torch.stack([toy.row(free)[0], toy.row(free)[1], toy.row(SOME)[2]]))


def test_a_step_too_far_is_not_taken() -> None:
    """|code - 1|: one scene starts as near to 1 as nothing, the other has far to go."""

    class Sharp:
        def description_length(self, batch: SceneBatch, posterior: Posterior, *rest: object) -> Tensor:
            return (posterior.mu_bck - 1).abs().sum(1)

    start = replace(SOME, mu_bck=torch.tensor([[1.001], [0.5], [1.0]]).double())
    found = refined(Sharp(), NOWHERE, start, STILL, 1, codes=["mu_bck"])  # type: ignore[arg-type]
    torch.testing.assert_close(found.mu_bck, torch.tensor([[1.001], [0.5 + RATE], [1.0]]).double())


@pytest.mark.parametrize("codes", [["mu_view"], ["mu_attr", "mu_bck"], list(CODES)])
def test_only_named_codes_change(codes: list[str]) -> None:
    found = refined(Quadratic(), NOWHERE, SOME, STILL, 3, codes=codes)  # type: ignore[arg-type]
    for name in vars(SOME):
        assert torch.equal(getattr(found, name), getattr(SOME, name)) == (name not in codes), name
    assert refined(Quadratic(), NOWHERE, SOME, STILL, 0) is SOME  # type: ignore[arg-type]


# Refinement: models.


def small(kind: type[Ocloc]) -> Ocloc:
    """In double precision, since Adam's steps make much of small differences; shapes and presences vary."""
    config = SMALL_OCLOC if kind is Ocloc else UmbraConfig(**vars(SMALL_OCLOC))
    model = kind(config, generator(1)).double().eval()
    with torch.no_grad():
        for parameter in [*model.generation.parameters(), *model.inference.g_obj.parameters()]:
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator(parameter.numel())).double()
    return model


def some_batch() -> SceneBatch:
    image, mask = torch.rand(3, 2, 3, 16, 16, generator=generator(7)).double(), torch.ones(3, 2, dtype=torch.bool)
    mask[1, 1] = False
    return SceneBatch(torch.where(mask[:, :, None, None, None], image, 0.0), mask)


def start_of(model: Ocloc) -> Posterior:
    """The second object of the first scene is absent."""
    noise = model.draw_latent_noise(some_batch(), generator(3))
    noise = replace(noise, **{name: value.double() for name, value in vars(noise).items()})
    with torch.no_grad():
        posterior = model.infer_posterior(some_batch(), noise)
    present = torch.tensor([[3.0, -3.0, 3.0], [3.0, 3.0, 3.0], [-3.0, 3.0, 3.0]]).double()
    return replace(posterior, logit_kappa=present)


def one_scene(value: Posterior | SceneBatch, b: int) -> Posterior | SceneBatch:
    return replace(value, **{name: item[b : b + 1] for name, item in tensors(value).items()})  # type: ignore[type-var]


KINDS = pytest.mark.parametrize("kind", [Ocloc, Umbra])


@KINDS
@pytest.mark.parametrize("steps", [1, 15])
def test_descriptions_grow_shorter(kind: type[Ocloc], steps: int) -> None:
    model, batch = small(kind), some_batch()
    start, annealing = start_of(model), model.annealed()
    found = refined(model, batch, start, annealing, steps)
    before, after = (
        model.description_length(batch, one, most_likely(one), annealing).detach() for one in (start, found)
    )
    assert (after < before).all()
    assert steps == 1 or (after < before - 1).all()


@KINDS
def test_scenes_do_not_influence_each_other(kind: type[Ocloc]) -> None:
    """Each alone, and beside one that came to nothing."""
    model, batch = small(kind), some_batch()
    start, annealing = start_of(model), model.annealed()
    found = refined(model, batch, start, annealing, 5)
    spoilt = replace(batch, image=batch.image.clone())
    spoilt.image[2] = torch.nan
    beside = refined(model, spoilt, start, annealing, 5)
    for b in range(3):
        alone = refined(model, one_scene(batch, b), one_scene(start, b), annealing, 5)  # type: ignore[arg-type]
        for name in CODES:
            torch.testing.assert_close(getattr(found, name)[b], getattr(alone, name)[0], rtol=1e-6, atol=1e-8)
            other = start if b == 2 else found
            torch.testing.assert_close(getattr(beside, name)[b], getattr(other, name)[b], rtol=1e-6, atol=1e-8)


@KINDS
def test_what_is_not_seen_keeps_its_code(kind: type[Ocloc]) -> None:
    """Absent objects and padded views; all others move."""
    model = small(kind)
    start = start_of(model)
    found = refined(model, some_batch(), start, model.annealed(), 5)
    moved = (found.mu_attr != start.mu_attr).any(-1)
    assert moved.tolist() == (start.logit_kappa >= 0).tolist()
    assert (found.mu_view != start.mu_view).any(-1).tolist() == some_batch().view_mask.tolist()
    assert (found.mu_bck != start.mu_bck).all()


@KINDS
def test_inference_mode_is_no_hindrance(kind: type[Ocloc]) -> None:
    """Pictures and a start that were made in it, too."""
    model = small(kind)
    loud = refined(model, some_batch(), start_of(model), model.annealed(), 3)
    with torch.inference_mode():
        batch, start = some_batch(), start_of(model)
        assert batch.image.is_inference()
        quiet = refined(model, batch, start, model.annealed(), 3)
    for name in CODES:
        assert torch.equal(getattr(quiet, name), getattr(loud, name))


@KINDS
def test_weights_are_left_alone(kind: type[Ocloc]) -> None:
    """Without gradients around it too, as `infer` has it; and gradients that a model has stay as they are."""
    model, batch = small(kind), some_batch()
    start, weights = start_of(model), {name: value.clone() for name, value in model.state_dict().items()}
    loud = refined(model, batch, start, model.annealed(), 3)
    assert all(parameter.grad is None for parameter in model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    with torch.no_grad():
        quiet = refined(model, batch, start, model.annealed(), 3)
        assert not torch.is_grad_enabled()
    assert all((parameter.grad == 1).all() for parameter in model.parameters())  # type: ignore[union-attr]
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    for name in CODES:
        assert torch.equal(getattr(quiet, name), getattr(loud, name))
        assert not getattr(loud, name).requires_grad
    assert all(torch.equal(getattr(loud, name), getattr(start, name)) for name in LEFT)


@KINDS
def test_empty_slots_are_not_drawn(kind: type[Ocloc]) -> None:
    """At most two objects are present in a scene: two are decoded, and found as if all three had been."""
    model, batch, decoded = small(kind), some_batch(), set()
    present = torch.tensor([[3.0, -3.0, 4.0], [-1.0, -2.0, 3.0], [-3.0, 2.0, 0.0]]).double()
    start = replace(start_of(model), logit_kappa=present)
    expected = refined(model, batch, start, model.annealed(), 5)
    hook = model.generation.register_forward_hook(lambda _, given, made: decoded.add(given[0].z_attr.shape[1]))
    found = of_present(lambda shown: refined(model, batch, shown, model.annealed(), 5), start)
    hook.remove()
    assert decoded == {2}
    order = torch.tensor([[2, 0, 1], [2, 0, 1], [1, 2, 0]])
    expected = with_objects(expected, order)
    for name in vars(start):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-6, atol=1e-8)


def test_where_nothing_is_present_the_rest_is_refined() -> None:
    toy = Row([], SOME)
    empty = described([thing(1, 0.9, GONE), thing(2, 0.1, -1.0)], background=0.3)
    found = of_present(lambda shown: refined(toy, row_of([0.5] * 8), shown, STILL, 60), empty)  # type: ignore[arg-type]
    assert found.mu_bck.item() == pytest.approx(0.5, abs=0.01)
    assert found.mu_attr[0, :, 0].tolist() == [2, 1]
    assert_aligned(found)


# Further looks: which slot is which.


def test_objects_of_two_answers_in_a_row() -> None:
    known, more = described([thing(1, 0.1), thing(2, 0.2)]), described([thing(3, 0.3), thing(4, 0.4)], background=0.9)
    both = joined(known, more)
    assert_aligned(both)
    assert both.mu_attr[0, :, 0].tolist() == [1, 2, 3, 4]
    assert both.mu_attr[0, :, 1].tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4])
    for name in ("mu_view", "log_sigma_view", "mu_bck", "log_sigma_bck", "log_pi", "background_index", "y_view"):
        assert getattr(both, name) is getattr(known, name)


def test_some_objects_of_each_scene() -> None:
    posterior = described([thing(place, 0.1) for place in (5, 6, 7)], [thing(place, 0.2) for place in (1, 2, 3)])
    found = with_objects(posterior, torch.tensor([[2, 0], [1, 2]]))
    assert_aligned(found)
    assert found.mu_attr[..., 0].tolist() == [[7, 5], [2, 3]]
    assert found.y_attr[..., 0].tolist() == [[-1, 70, 50], [-1, 20, 30]]
    assert found.log_pi is posterior.log_pi


# Further looks: what is found.

ROW = [0.5, 0.9, 0.5, 0.5, 0.1, 0.5, 1.0, 0.5]
"""Three things on a grey ground: at 1, 4 and 6."""
ALL = {1.0: 0.9, 4.0: 0.1, 6.0: 1.0}


def test_a_missed_object_is_found_and_worth_its_price() -> None:
    """In the first scene; in the second it is there already, and its price is not paid twice."""
    known = described([thing(1, 0.9), thing(4, 0.1), thing(0, 0.8, GONE)], [thing(place, ALL[place]) for place in ALL])
    more = described(*[[thing(6, 1.0), thing(3, 0.5, GONE), thing(2, 0.5, GONE)]] * 2)
    row = Row([], more)
    found = with_further_look(row, row_of(ROW, ROW), known, noise_called(5), STILL)  # type: ignore[arg-type]
    assert found.logit_kappa.shape == (2, 3)
    assert_aligned(found)
    for b in range(2):
        assert shown_objects(found, b) == pytest.approx(ALL)


def test_what_is_left_of_the_pictures() -> None:
    """All that was found is painted over with the background as the model has it; all else is as it was."""
    known = described([thing(1, 0.9), thing(4, 0.1), thing(6, 1.0, GONE)], background=0.4)
    row = Row([], known)
    with_further_look(row, row_of(ROW), known, noise_called(5), STILL)  # type: ignore[arg-type]
    [(left, given, noise)] = row.looked
    expected = [0.5, 0.4, 0.5, 0.5, 0.4, 0.5, 1.0, 0.5]
    torch.testing.assert_close(left.image, row_of(expected).image)
    assert shown_objects(given) == shown_objects(known)
    assert noise.y_attr.item() == 5
    assert not noise.background.any()


def test_each_view_is_looked_at_by_itself() -> None:
    """The first view by itself shows what all of them together do not; the second shows a piece of the ground."""
    known = described([thing(1, 0.9), thing(4, 0.1), thing(0, 0.8, GONE)], views=2)
    nothing, alone = described(NOTHING), described([thing(6, 1.0), *NOTHING[1:]], GROUND)

    class Alone(Row):
        def find_objects(self, batch: SceneBatch, given: Posterior, noise: Noise) -> Posterior:
            super().find_objects(batch, given, noise)
            return alone if batch.view_mask.shape[1] == 1 else nothing

    row, two = Alone([], nothing), row_of(ROW)
    two = SceneBatch(two.image.repeat(1, 2, 1, 1, 1), torch.ones(1, 2, dtype=torch.bool))
    two.image[0, 1, :, 0, 0] = 0.7
    found = with_further_look(row, two, known, noise_called(5, views=2), STILL)  # type: ignore[arg-type]
    assert shown_objects(found) == pytest.approx(ALL)
    assert_aligned(found)
    assert found.logit_kappa.shape == (1, 3)
    (together, _, _), (apart, given, noise) = row.looked
    assert torch.equal(apart.image, together.image.flatten(0, 1)[:, None])
    assert given.mu_view.shape == (2, 1, 1)
    assert torch.equal(given.mu_attr, known.mu_attr.repeat(2, 1, 1))
    assert noise.y_attr.flatten().tolist() == [5, 5]


@pytest.mark.parametrize(("glimpses", "dear"), [(0, 6_600.0), (2, 9_000.0)])
@torch.no_grad()
def test_what_views_show_by_themselves_one_after_the_other(glimpses: int, dear: float) -> None:
    """Each as a scene of one view, told the background, viewpoint and noise that it has among the others. Padded views
    show nothing, and a scene of one view nothing more than it did. Some objects cannot hope to save what they cost."""
    config = UmbraConfig(**vars(SMALL), glimpses=glimpses, object_cost=dear)
    model, B, M = shaken(Umbra(config, generator(1)), 2), 3, 3
    model.inference.g_obj.last.bias[-1] += 5  # all are likely there
    batch, noise = case(model, B=B, M=M)
    given, annealing = model.infer_posterior(batch, noise), model.annealed()
    mask = torch.tensor([[True, True, True], [True, False, True], [False, True, False]])
    found = found_by_view(model, replace(batch, view_mask=mask), given, noise, annealing)
    K, kept = noise.y_attr.shape[1] - 1, []
    assert found.logit_kappa.shape == (B, M * K)

    def of_one(values: Any, b: int, m: int) -> Any:
        parts = {name: value[b : b + 1] for name, value in vars(values).items() if value is not None}
        return replace(values, **parts | {name: parts[name][:, m : m + 1] for name in WITH_VIEWS & parts.keys()})

    for b, m in itertools.product(range(B), range(M)):
        here = slice(m * K, (m + 1) * K)
        if not mask[b, m] or b == 2:
            assert (found.logit_kappa[b, here] < 0).all()
            continue
        one, place = of_one(batch, b, m), of_one(given, b, m)
        alone = model.find_objects(one, place, of_one(noise, b, m))
        drawn = replace(place, **{name: getattr(alone, name) for name in (*OF_OBJECTS, "y_attr")})
        hopeful = Drawn(model, one, drawn, annealing).hopeful(torch.zeros(1, K, dtype=torch.bool))
        kappa = torch.where((alone.logit_kappa >= 0) & ~hopeful, PRUNED, alone.logit_kappa)
        kept += hopeful[alone.logit_kappa >= 0].tolist()
        for name in ("mu_attr", "log_sigma_attr", "tau"):
            torch.testing.assert_close(getattr(found, name)[b, here], getattr(alone, name)[0])
        torch.testing.assert_close(found.logit_kappa[b, here], kappa[0])
        torch.testing.assert_close(found.y_attr[b, 1:][here], alone.y_attr[0, 1:])
    assert 0 < sum(kept) < len(kept)
    for name in ("mu_view", "mu_bck", "y_view", "log_pi"):
        assert getattr(found, name) is getattr(given, name)


def test_views_as_scenes() -> None:
    """Field by field, of all that is handed on. Nothing but views comes by sevens."""
    model, M = shaken(Ocloc(SMALL, generator(1)), 2), 7
    batch, noise = case(model, B=2, M=M)
    batch = replace(batch, camera=torch.rand(2, M, 5, generator=generator(4)))
    for values in (batch, noise, model.infer_posterior(batch, noise)):
        for name, value in vars(by_view(values, M)).items():
            own = getattr(values, name)
            for b, m in itertools.product(range(2), range(M)):
                expected = own[b, m][None] if own.shape[1:2] == (M,) else own[b]
                assert torch.equal(value[M * b + m], expected), name


def test_a_scene_of_one_view_in_a_batch_of_more_is_not_looked_at_twice() -> None:
    """A second copy of the blur between two neighbours would take its place when it is left out."""
    known, blur = described([thing(6, 1.0), *NOTHING[:2]]), described([BLOB, *NOTHING[:2]])
    others = [described([thing(1, 1.0), thing(2, 0.7), NOTHING[2]])]
    picture = row_of([*NEIGHBOURS[:6], 1.0, 0.5])
    padded = SceneBatch(picture.image.repeat(1, 2, 1, 1, 1), torch.tensor([[True, False]]))
    two = SceneBatch(padded.image.repeat(2, 1, 1, 1, 1), torch.tensor([[True, False], [True, True]]))

    class Blurred(Row):
        def find_objects(self, batch: SceneBatch, given: Posterior, noise: Noise) -> Posterior:
            return described(*[[BLOB, *NOTHING[:2]]] * len(batch.image), views=batch.view_mask.shape[1])

    def answer(batch: SceneBatch) -> dict[float, float]:
        B, M = batch.view_mask.shape

        def several(one: Posterior) -> Posterior:
            many = {name: value.repeat(B, *[1] * (value.dim() - 1)) for name, value in vars(one).items()}
            views = {name: many[name].repeat(1, M, 1) for name in ("mu_view", "log_sigma_view", "y_view")}
            return replace(one, **many | views)

        noise = noise_called(5, views=M)
        noise = replace(
            noise, **{name: value.repeat(B, *[1] * (value.dim() - 1)) for name, value in vars(noise).items()}
        )
        row = Blurred([], blur)
        found = with_further_look(row, batch, several(known), noise, STILL, list(map(several, others)))  # type: ignore[arg-type]
        return shown_objects(found)

    assert answer(picture) == answer(padded) == answer(two) == pytest.approx({1.0: 1.0, 2.0: 0.7, 6.0: 1.0})


NOTHING = [thing(2, 0.5, GONE), thing(3, 0.5, GONE), thing(0, 0.5, GONE)]
COPIES = [thing(1, 0.9), thing(4, 0.1), thing(6, 1.0)]
GROUND = [thing(0, 0.5), thing(3, 0.5), thing(7, 0.55)]


@pytest.mark.parametrize("more", [NOTHING, COPIES, GROUND])
def test_where_nothing_was_missed_nothing_changes(more: list[tuple]) -> None:
    """Whatever is found: nothing, copies of what is known, pieces of the ground."""
    known = described([thing(place, colour, 2.0) for place, colour in ALL.items()])
    row, batch = Row([], described(more)), row_of(ROW)
    found = with_further_look(row, batch, known, noise_called(5), STILL)  # type: ignore[arg-type]
    assert shown_objects(found) == pytest.approx(ALL)
    before, after = (
        row.show(row.layers(latents), latents, STILL) for latents in (most_likely(one) for one in (known, found))
    )
    torch.testing.assert_close(after.reconstruction, before.reconstruction)
    lengths = [row.description_length(batch, one, most_likely(one), STILL) for one in (known, found)]
    torch.testing.assert_close(*lengths)


def test_objects_that_are_absent_make_room() -> None:
    """Of six, three are present: two that were known, however unlikely before, and the new one."""
    known = described([thing(1, 0.9, 0.1), thing(2, 0.5, PRUNED), thing(4, 0.1, 0.2)])
    more = described([thing(6, 1.0, 9.0), thing(3, 0.5, 8.0), thing(0, 0.5, GONE)])
    found = with_further_look(Row([], more), row_of(ROW), known, noise_called(5), STILL)  # type: ignore[arg-type]
    assert shown_objects(found) == pytest.approx(ALL)


def test_no_slot_is_free_for_it() -> None:
    """Two slots hold two objects. A third was missed: it explains less than they do, but is more likely present."""
    batch = row_of([0.5, 0.9, 0.5, 0.5, 0.1, 0.5, 0.75, 0.5])
    known = described([thing(1, 0.9, 1.0), thing(4, 0.1, 1.0)])
    more = described([thing(6, 0.75, 3.0), thing(2, 0.5, GONE)])
    found = with_further_look(Row([], more), batch, known, noise_called(5), STILL)  # type: ignore[arg-type]
    assert shown_objects(found) == pytest.approx({1.0: 0.9, 4.0: 0.1})


def test_a_look_makes_no_description_longer() -> None:
    """Two copies of one thing that hides two known ones: each of the four can be spared, and the dearest go first."""
    batch = row_of([0.5, 0.9, 0.6, 0.5, 0.5, 0.5, 0.5, 0.5])
    known = described([(1, 0.9, 1, 0, 6.0, THERE), (2, 0.6, 1, 0, 6.0, THERE)])
    more = described([(1, 0.75, 2, 1, 5.9, THERE)] * 2)
    row = Row([], more)
    found = with_further_look(row, batch, known, noise_called(5), STILL)  # type: ignore[arg-type]
    before, after = (row.description_length(batch, one, most_likely(one), STILL) for one in (known, found))
    assert float(after) <= float(before)


def test_what_is_explained_badly_is_looked_at_again() -> None:
    """A thing that is painted .2 too dark at one pixel, 6 nats a channel, and right at the next."""
    known = described([thing(1, 0.9, width=2.0)])
    row = Row([], known)
    with_further_look(row, row_of([0.5, 0.7, 0.9, *[0.5] * 5]), known, noise_called(5), STILL)  # type: ignore[arg-type]
    [(left, _, _)] = row.looked
    there = math.exp(-3 * 0.2**2 / (2 * Row.sigma**2) / TOLERANCE)
    expected = [0.5, 0.7 + there * (0.5 - 0.7), *[0.5] * 6]
    torch.testing.assert_close(left.image, row_of(expected).image)


BLOB = (1.0, 0.9, 2.0, 1.0, PRICE, THERE)
"""Before two neighbours, and of neither's colour."""
NEIGHBOURS = [0.5, 1.0, 0.7, *[0.5] * 5]


def test_one_slot_that_holds_two_neighbours_gives_way() -> None:
    """It hides both, so that neither of them alone is worth its price beside it."""
    known, apart = described([BLOB, thing(4, 0.5, GONE)]), [thing(1, 1.0), thing(2, 0.7)]
    batch, nothing = row_of(NEIGHBOURS), described([thing(4, 0.5, GONE), thing(5, 0.5, GONE)])
    for more, others in (
        (described(apart), []),
        (nothing, [described(apart)]),
        (nothing, [described(apart[:1] * 2), described(apart)]),
    ):
        row = Row([], more)
        drawn = Drawn(row, batch, joined(known, described(apart)), STILL)  # type: ignore[arg-type]
        blob, free = torch.tensor([[True, False, False, False]]), torch.tensor([[False, False, True, True]])
        assert drawn.pruned(drawn.extended(blob, free, 4)).tolist() == blob.tolist()
        found = with_further_look(row, batch, known, noise_called(5), STILL, others)  # type: ignore[arg-type]
        assert shown_objects(found) == pytest.approx({1.0: 1.0, 2.0: 0.7})
        assert_aligned(found)
        assert found.logit_kappa.shape == (1, 2)


def test_two_do_not_come_where_one_slot_is_free() -> None:
    """Of the neighbours that one slot stands for, only one may take its place: the brighter one alone leaves 6 nats,
    the blur of both 7.5."""
    known, more, batch = described([BLOB]), described([thing(1, 1.0), thing(2, 0.7)]), row_of(NEIGHBOURS)
    found = with_further_look(Row([], more), batch, known, noise_called(5), STILL)  # type: ignore[arg-type]
    assert shown_objects(found) == pytest.approx({1.0: 1.0})
    drawn = Drawn(Row([], more), batch, joined(known, more), STILL)  # type: ignore[arg-type]
    blob = torch.tensor([[True, False, False]])
    for room, kept in ((1, [[False, True, False]]), (2, [[False, True, True]])):
        assert drawn.rearranged(blob, ~blob, room).tolist() == kept


def test_each_object_is_left_out_once() -> None:
    """Two blurs of two neighbours each, the first worse than the second, for which there is nothing better."""
    batch = row_of([0.5, 1.0, 0.7, 0.5, 0.5, 1.0, 0.6, 0.5])
    known = described([BLOB, (5.0, 0.85, 2.0, 1.0, PRICE, THERE), *[thing(4, 0.5, GONE)] * 2])
    drawn = Drawn(Row([], known), batch, joined(known, described([thing(1, 1.0), thing(2, 0.7)])), STILL)  # type: ignore[arg-type]
    blurs = drawn.slots[None] < 2
    worst = drawn.missed_within(blurs)[0, :2].argmax().item()
    assert worst == 1  # so the first can only be replaced in a second round
    assert drawn.rearranged(blurs, drawn.likely & ~blurs, 6)[0].nonzero().flatten().tolist() == [1, 4, 5]


def test_the_best_start_is_not_offered_twice() -> None:
    starts = [described([thing(1, 0.9), thing(4, 0.1)], [thing(6, 1.0), thing(2, 0.5, GONE)])]
    starts.append(described([thing(6, 1.0), thing(2, 0.5, GONE)], [thing(1, 0.9), thing(4, 0.1)]))
    best, others = best_of(Row([], starts[0]), row_of(ROW, ROW), starts, STILL, 2)  # type: ignore[arg-type]
    for b in range(2):
        assert shown_objects(best, b) == pytest.approx({1.0: 0.9, 4.0: 0.1})
        assert shown_objects(others[b], b) == {}
        assert shown_objects(others[1 - b], b) == pytest.approx({6.0: 1.0})


@pytest.mark.parametrize("of_look", [False, True])
def test_what_came_to_nothing_spoils_nothing(of_look: bool) -> None:
    """A start, or what a further look finds, that is no number in one scene: the other has its things all the same."""
    broken = described(*[[thing(6, 1.0), thing(2, 0.5, GONE), thing(3, 0.5, GONE)]] * 2)
    broken.mu_attr[0], broken.logit_kappa[0, 1:], broken.y_attr[0, 1:] = torch.nan, torch.nan, torch.nan
    good = described(*[[thing(1, 0.9), thing(4, 0.1), thing(3, 0.5, GONE)]] * 2)
    nothing = described(*[[thing(2, 0.5, GONE)] * 3] * 2)
    row = Row([good, nothing if of_look else broken], broken if of_look else nothing)
    noises = [noise_called(number) for number in range(3)]
    found = searched(row, row_of(ROW, ROW), noises, STILL, Search(2, looks=1))  # type: ignore[arg-type]
    assert shown_objects(found, 0) == pytest.approx({1.0: 0.9, 4.0: 0.1})
    assert shown_objects(found, 1) == pytest.approx(ALL)
    assert all(value.isfinite().all() for value in vars(found).values())


def test_a_search_takes_what_another_start_found() -> None:
    """The second start has the shorter description; the first alone has found the thing at 6. Without a further look
    the answer is the second start."""
    starts = [described([thing(6, 1.0), thing(2, 0.5, GONE), thing(3, 0.5, GONE)])]
    starts.append(described([thing(1, 0.9), thing(4, 0.1), thing(3, 0.5, GONE)]))
    noises = [noise_called(number) for number in range(3)]
    nothing = described([thing(2, 0.5, GONE)] * 3)
    for search, expected in ((Search(2), {1.0: 0.9, 4.0: 0.1}), (Search(2, looks=1), ALL)):
        found = searched(Row(starts, nothing), row_of(ROW), noises[: search.starts + search.looks], STILL, search)  # type: ignore[arg-type]
        assert shown_objects(found) == pytest.approx(expected)
        assert_aligned(found)


# All of it.


def test_a_searched_answer_from_its_parts() -> None:
    """Two starts: one that explains less, and one with a copy; a look that finds the rest; colours set right."""
    poor = described([thing(4, 0.15), thing(2, 0.5, GONE), thing(3, 0.5, GONE)])
    good = described([thing(1, 0.8), thing(1, 0.8), thing(4, 0.15)])
    more = described([thing(6, 0.95), thing(2, 0.55), thing(0, 0.5, GONE)])
    for search, expected in (
        (Search(1), {4.0: 0.15}),
        (Search(2), {1.0: 0.8, 4.0: 0.15}),
        (Search(2, looks=1), {1.0: 0.8, 4.0: 0.15, 6.0: 0.95}),
        (Search(2, refinement=60), {1.0: 0.9, 4.0: 0.1}),
        (Search(2, looks=2, refinement=60), ALL),
    ):
        row = Row([poor, good], more)
        noises = [noise_called(n) for n in range(search.starts + search.looks)]
        found = searched(row, row_of(ROW), noises, STILL, search)  # type: ignore[arg-type]
        assert shown_objects(found) == pytest.approx(expected, abs=0.01 if search.refinement else 1e-6)
        assert found.logit_kappa.shape == (1, 3)
        names = [noise.y_attr.item() for noise in [*row.inferred, *[noise for *_, noise in row.looked]]]
        assert names == list(range(len(noises)))
        assert not any(noise.background.any() for noise in row.inferred)


def test_of_what_spare_slots_find_the_best_is_kept() -> None:
    """Of three things that are there, one or two have room; the one at 1 differs least from the ground. A further look
    finds the others again, and they stay out."""
    start, more = described([thing(1, 0.6), thing(4, 0.1), thing(6, 1.0)]), described([thing(1, 0.6), thing(4, 0.1)])
    batch, noises = row_of([0.5, 0.6, 0.5, 0.5, 0.1, 0.5, 1.0, 0.5]), [noise_called(number) for number in range(2)]
    for room, expected in ((1, {6.0: 1.0}), (2, {4.0: 0.1, 6.0: 1.0})):
        for looks in (0, 1):
            search = Search(1, looks=looks, spare=3 - room)
            found = searched(Row([start], more), batch, noises[: search.starts + search.looks], STILL, search)  # type: ignore[arg-type]
            assert shown_objects(found) == pytest.approx(expected)
            assert found.logit_kappa.shape == (1, room)


def test_no_ghost_takes_the_room_of_an_object() -> None:
    """A slot that is worth many nats and is not seen goes before anything is cut."""
    ghost = (3.0, 0.2, 0.0, 0.0, -100.0, THERE)
    start, batch = described([thing(1, 0.9), ghost, thing(6, 1.0)]), row_of([0.5, 0.9, 0.5, 0.5, 0.5, 0.5, 1.0, 0.5])
    for spare, expected in ((1, {1.0: 0.9, 6.0: 1.0}), (2, {6.0: 1.0})):
        found = searched(Row([start], start), batch, [noise_called(0)], STILL, Search(1, spare=spare))  # type: ignore[arg-type]
        assert shown_objects(found) == pytest.approx(expected)


def test_what_came_to_nothing_takes_no_room() -> None:
    """Of four slots one holds no numbers; the answer has two."""
    start = described([thing(1, 0.6), thing(4, 0.1), thing(6, 1.0), thing(2, 0.5)])
    start.mu_attr[0, 3], start.logit_kappa[0, 3] = torch.nan, torch.nan
    batch = row_of([0.5, 0.6, 0.5, 0.5, 0.1, 0.5, 1.0, 0.5])
    found = searched(Row([start], start), batch, [noise_called(0)], STILL, Search(1, spare=2))  # type: ignore[arg-type]
    assert shown_objects(found) == pytest.approx({4.0: 0.1, 6.0: 1.0})


def test_what_refinement_makes_needless_goes() -> None:
    """A piece of ground is worth its price, until the background has the colour of the ground."""
    first = described([thing(0, 0.5, width=4.0), thing(6, 1.0)], background=0.4)
    for steps, expected in ((0, {0.0: 0.5, 6.0: 1.0}), (60, {6.0: 1.0})):
        batch, search = row_of([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1.0, 0.5]), Search(1, refinement=steps)
        found = searched(Row([first], first), batch, [noise_called(0)], STILL, search)  # type: ignore[arg-type]
        assert shown_objects(found) == pytest.approx(expected, abs=0.01)
        assert (found.logit_kappa.diff(dim=1) <= 0).all()  # what is there comes first, whatever went last


# Algorithm 1 from known viewpoints.


def test_finding_objects_line_by_line() -> None:
    """With numpy vectors, from weights: line 3 takes the given y_view and line 11 is left out."""
    model = shaken(Ocloc(SMALL, generator(1)), 2)
    batch, noise = case(model, B=2, M=3)
    given = model.infer_posterior(batch, noise)
    other, other_noise = case(model, B=2, M=3, seed=5)
    mask = torch.tensor([[True, True, True], [True, False, True]])
    other = replace(other, view_mask=mask)
    found, loop, D = model.find_objects(other, given, other_noise), Loop(model), SMALL.slot_view_dim
    for b in range(2):
        views = mask[b].nonzero().flatten().tolist()
        features = [loop.features(other.image[b, m].numpy()) for m in views]
        y_attr = loop.start(other_noise.y_attr[b].numpy(), slice(D, None))
        y_view = given.y_view[b, views].detach().numpy()[:, None].repeat(len(y_attr), 1)
        for _ in range(SMALL.rounds):
            v = np.stack([loop.view(features[m], y_view[m], y_attr) for m in range(len(views))])
            y_attr = v[:, :, D:].mean(0)
        expected = loop.answers(y_view, y_attr, other_noise.background[b].numpy())
        for name, value in expected.items():
            answer = getattr(found, name)[b].detach().numpy()
            answer = answer[views] if name.endswith("_view") else answer
            assert np.abs(answer - value).max() < 5e-7, name
    assert torch.equal(found.y_view, given.y_view)
    assert not torch.allclose(found.mu_attr, model.infer_posterior(other, other_noise).mu_attr, atol=1e-3)


def test_a_fast_view_finds_the_same_objects() -> None:
    model = shaken(Ocloc(SMALL, generator(1)), 2)
    batch, noise = case(model, B=2, M=3)
    given = model.infer_posterior(batch, noise)
    plain, fast = (one.find_objects(batch, given, noise) for one in (model, accelerated(model)))
    for name in vars(plain):
        torch.testing.assert_close(getattr(fast, name), getattr(plain, name), rtol=1e-9, atol=1e-9)


def test_what_has_no_pixel_of_its_own_is_no_object() -> None:
    """However many nats it saves: here each has a price below zero. One is as wide as nothing, one is hidden."""

    def cheap(place: float, colour: float, width: float, order: float) -> tuple:
        return place, colour, width, order, -PRICE, THERE

    things = [cheap(1, 0.9, 2, 1), cheap(4, 0.8, 0, 0), cheap(1, 0.3, 1, -9)]
    posterior = described(things, background=0.0)
    found = pruned(Row([], posterior), row_of([0, 0.9, 0.9, 0, 0, 0, 0, 0]), posterior, STILL)  # type: ignore[arg-type]
    assert (found.logit_kappa >= 0).tolist() == [[True, False, False]]
    shares = torch.zeros(1, 2, 3, 1, 2)
    shares[0, :, 0], shares[0, 1, 2, 0, 1] = 0.5, 0.6
    real = torch.ones(1, 2, dtype=torch.bool)
    assert seen_objects(shares, real).tolist() == [[False, True]]  # in one view is enough ...
    assert seen_objects(shares, real & torch.tensor([True, False])).tolist() == [[False, False]]  # ... if it is real


def test_what_a_wrong_copy_hides_is_seen_when_that_is_gone() -> None:
    posterior = described([thing(1, 0.9, order=0.0), thing(1, 0.1, order=1.0)])
    found = pruned(Row([], posterior), row_of([0.5, 0.9, *[0.5] * 6]), posterior, STILL)  # type: ignore[arg-type]
    assert shown_objects(found) == pytest.approx({1: 0.9})


def test_a_slot_that_is_no_object_keeps_no_object_away() -> None:
    """It saves more nats than the object that a further look finds, and is not seen."""
    ghost = (3.0, 0.2, 0.0, 0.0, -100.0, THERE)
    known, more = described([thing(1, 0.9), ghost]), described([thing(6, 1.0), thing(5, 0.5, GONE)])
    row, batch = Row([], more), row_of([0.5, 0.9, 0.5, 0.5, 0.5, 0.5, 1.0, 0.5])
    found = with_further_look(row, batch, known, noise_called(5), STILL)  # type: ignore[arg-type]
    assert shown_objects(found) == pytest.approx({1: 0.9, 6: 1.0})
