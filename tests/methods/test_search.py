"""Searched answers: what is left out, by slow twins and by hand; which start is taken; what an answer shows."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from small_model import SMALL_OCLOC, generator, see_everything
from torch import Tensor

from viewslots.errors import UserError
from viewslots.methods.contract import Search
from viewslots.methods.distributions import normal_kl
from viewslots.methods.ocloc import choice
from viewslots.methods.ocloc.choice import Drawn, most_likely, worth_keeping
from viewslots.methods.ocloc.generation import binary_logit
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.search import (
    PRUNED,
    length_of,
    objects_in,
    parted,
    pruned,
    refined,
    searched,
    shortest,
    taken,
    with_objects,
)
from viewslots.methods.ocloc.variables import Latents, Noise, Posterior
from viewslots.methods.per_view.model import PerView
from viewslots.types import SceneBatch

torch.set_num_threads(1)


def some_batch() -> SceneBatch:
    return SceneBatch(torch.rand(2, 2, 3, 16, 16, generator=generator(7)), torch.ones(2, 2, dtype=torch.bool))


@pytest.fixture
def model() -> Ocloc:
    return Ocloc(SMALL_OCLOC, generator(1)).eval()


# What is left out.


def slowly(present: list[bool], prices: list[float], table: dict[tuple[bool, ...], float], room: int) -> list[bool]:
    """One scene, by the words of `worth_keeping`."""
    while any(present):
        shorter = {}
        for slot in range(len(present)):
            if present[slot]:
                without = [there and other != slot for other, there in enumerate(present)]
                shorter[slot] = table[tuple(without)] - table[tuple(present)] - prices[slot]
        slot = min(shorter, key=shorter.__getitem__)
        if shorter[slot] >= 0 and sum(present) <= room:
            break
        present = [there and other != slot for other, there in enumerate(present)]
    return present


@pytest.mark.parametrize("room", [None, 1, 2])
def test_against_a_slow_twin(room: int | None) -> None:
    """Costs and prices at random: every subset of four objects has its own."""
    B, K = 40, 4
    costs, prices = torch.rand(B, 2**K, generator=generator()), torch.rand(B, K, generator=generator(1)) * 0.3
    present = torch.rand(B, K, generator=generator(2)) < 0.8
    bits = 2 ** torch.arange(K)
    found = worth_keeping(present, prices, lambda shown, scenes: costs[scenes, (shown * bits).sum(1)], room)
    for b in range(B):
        subsets = {tuple(bool(code & 2**k) for k in range(K)): float(costs[b, code]) for code in range(2**K)}
        assert found[b].tolist() == slowly(present[b].tolist(), prices[b].tolist(), subsets, room or K)
    assert not torch.equal(found, present)
    assert found.any()


def test_of_two_copies_one_stays() -> None:
    """Copies explain the same 50 nats; a third object 5, which its code is not worth, and a fourth 10, which it is."""
    weights = torch.tensor([0.0, 0.0, 5.0, 10.0])

    def cost(shown: Tensor, scenes: Tensor) -> Tensor:
        return 100 - 50.0 * (shown[:, 0] | shown[:, 1]) - (shown * weights).sum(1)

    kept = worth_keeping(torch.ones(1, 4, dtype=torch.bool), torch.full((1, 4), 7.0), cost)
    assert kept.sum(1).tolist() == [2]
    assert kept[0, :2].sum() == 1
    assert kept[0, 2:].tolist() == [False, True]


def test_the_picture_of_an_object_needs_it_once(model: Ocloc) -> None:
    """A scene drawn with two objects, described with one of them twice: one copy goes, nothing else."""
    batch = some_batch()
    noise = model.draw_noise(batch, generator())
    posterior = model.infer_posterior(batch, noise)
    with torch.no_grad():
        model.generation.last_layer().weight.mul_(20.0)  # shapes and colours that differ from the background
        drawn = model.sample(posterior, noise, model.annealed())
        shown = torch.tensor([[True, False, True]] * 2)
        drawn = replace(drawn, logit_prs=binary_logit(shown))
        image = model.render(drawn, model.annealed()).reconstruction
    exact = replace(posterior, mu_view=drawn.z_view, mu_bck=drawn.z_bck, mu_attr=drawn.z_attr[:, [0, 0, 2]])
    exact = replace(exact, log_sigma_attr=torch.zeros_like(exact.mu_attr), logit_kappa=torch.ones(2, 3))
    found = pruned(model, replace(batch, image=image), exact, model.annealed())
    gone = found.logit_kappa == PRUNED
    assert gone[:, :2].sum(1).tolist() == [1, 1]
    assert not gone[:, 2].any()
    assert (found.logit_kappa[~gone] == 1).all()
    for name in vars(exact).keys() - {"logit_kappa"}:
        assert getattr(found, name) is getattr(exact, name)


def test_what_is_absent_stays_so_and_is_not_asked(model: Ocloc, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects with less than even odds: their own log-odds stay, and no picture is looked at with them."""
    see_everything(monkeypatch)
    batch = some_batch()
    posterior = model.infer_posterior(batch, model.draw_noise(batch, generator()))
    posterior = replace(posterior, logit_kappa=torch.tensor([[1.0, -0.5, 0.0], [-1.0, -2.0, 3.0]]))
    asked, cost = [], Drawn.cost
    spy = lambda drawn, *given: asked.append(given) or cost(drawn, *given)  # noqa: E731
    monkeypatch.setattr(Drawn, "cost", spy)
    found = pruned(model, batch, posterior, model.annealed())
    absent = posterior.logit_kappa < 0
    assert torch.equal(found.logit_kappa[absent], posterior.logit_kappa[absent])
    assert asked[0][0].tolist() == [[True, False, True], [False, False, True]]
    assert not any((shown & absent[scenes]).any() for shown, scenes in asked)


@torch.no_grad()
def test_the_cost_of_any_choice(model: Ocloc, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the model's own cost of all slots, of which these are present; also if few are asked about at once."""
    batch, annealing = some_batch(), model.annealed()
    posterior = model.infer_posterior(batch, model.draw_noise(batch, generator()))
    drawn, latents = Drawn(model, batch, posterior, annealing), most_likely(posterior)
    shown = torch.tensor([[True, False, True], [False, True, False], [False] * 3, [True] * 3, [False, True, True]])
    scenes = torch.tensor([1, 0, 1, 1, 0])
    expected = []
    for chosen, b in zip(shown, scenes.tolist(), strict=True):
        only = replace(latents, logit_prs=binary_logit(chosen).expand(2, -1))
        expected.append(model.reconstruction_cost(batch, model.layers(only), only, annealing)[b])
    for at_once in (1, 3 * 2 * 3 * 16**2, 10**9):  # a scene, three scenes, all of them
        monkeypatch.setitem(choice.AT_ONCE, "cpu", at_once)
        torch.testing.assert_close(drawn.cost(shown, scenes), torch.stack(expected))
    whole = Drawn(model, batch, posterior, annealing).length(torch.tensor([[True] * 3] * 2))
    there = replace(latents, logit_prs=torch.full_like(latents.logit_prs, torch.inf))
    described = model.description_length(batch, posterior, there, annealing)
    torch.testing.assert_close(whole + model.background_and_view_kl(batch, posterior), described)


# Which start is taken.


def test_several_starts_are_each_their_own(model: Ocloc) -> None:
    """Pictures are encoded once for all of them; what comes out is the same."""
    encoded: list[int] = []
    noises = noises_of(model, 3)
    hook = model.inference.g_feat.register_forward_hook(lambda *_: encoded.append(1))
    found = model.infer_posteriors(some_batch(), noises)
    hook.remove()
    assert len(encoded) == 1
    for one, noise in zip(found, noises, strict=True):
        assert_equal(one, model.infer_posterior(some_batch(), noise))


def test_the_length_without_empty_slots(model: Ocloc) -> None:
    """As long as with them, scene by scene, where scenes have different slots empty."""
    batch, annealing = some_batch(), model.annealed()
    posterior = model.infer_posterior(batch, noises_of(model, 1)[0])
    posterior = replace(posterior, logit_kappa=torch.tensor([[1.0, -0.5, 3.0], [-1.0, 2.0, -3.0]]))
    assert parted(posterior)[0].logit_kappa.tolist() == [[3.0, 1.0], [2.0, -1.0]]
    expected = model.description_length(batch, posterior, most_likely(posterior), annealing)
    torch.testing.assert_close(length_of(model, batch, posterior, annealing), expected)


def test_the_length_of_a_description_by_hand(model: Ocloc) -> None:
    """The error of the pictures over 2 sigma^2; the divergences of the background, the views and present objects."""
    batch = some_batch()
    noise, annealing = model.draw_noise(batch, generator()), model.annealed()
    posterior = model.infer_posterior(batch, noise)
    sample = model.sample(posterior, noise, annealing)
    latents = replace(sample, logit_prs=binary_logit(torch.tensor([[True, False, True], [False] * 3])))
    found = model.description_length(batch, posterior, latents, annealing)
    rebuilt = model.render(latents, annealing).reconstruction
    for b, objects in enumerate(([0, 2], [])):
        length = ((rebuilt[b] - batch.image[b]) ** 2).sum() / (2 * SMALL_OCLOC.sigma_x**2)
        length = length + normal_kl(posterior.mu_bck[b], posterior.log_sigma_bck[b])
        length = length + sum(normal_kl(posterior.mu_view[b, m], posterior.log_sigma_view[b, m]) for m in range(2))
        length = length + sum(normal_kl(posterior.mu_attr[b, k], posterior.log_sigma_attr[b, k]) for k in objects)
        torch.testing.assert_close(found[b], length)


def likeliest_background(model: Ocloc, batch: SceneBatch, noise: Noise) -> Posterior:
    """Inference that is told which slot is the background: that with the largest pi."""
    likeliest = model.infer_posterior(batch, noise).log_pi.argmax(-1)
    return model.infer_posterior(batch, noise, background_index=likeliest)


def arranged(posterior: Posterior) -> Posterior:
    """The likeliest objects first, equals by their codes: searched answers say nothing about the order of slots."""
    by_code = with_objects(posterior, posterior.mu_attr[..., 0].argsort(dim=1))
    return with_objects(by_code, by_code.logit_kappa.argsort(dim=1, descending=True, stable=True))


def assert_equal(found: Posterior, expected: Posterior) -> None:
    for name in vars(expected):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name


def noises_of(model: Ocloc, count: int, seed: int = 3) -> list[Noise]:
    state = generator(seed)
    return [model.draw_latent_noise(some_batch(), state) for _ in range(count)]


@torch.no_grad()
def test_one_start_is_inference_without_its_surplus(model: Ocloc) -> None:
    batch, annealing, [noise] = some_batch(), model.annealed(), noises_of(model, 1, seed=6)
    expected = likeliest_background(model, batch, noise)
    assert not torch.equal(expected.background_index, model.infer_posterior(batch, noise).background_index)
    found = searched(model, batch, [noise], annealing, Search(1, 0, 0))
    assert_equal(arranged(found), arranged(pruned(model, batch, expected, annealing)))
    assert (found.logit_kappa.diff(dim=1) <= 0).all()  # what is there comes first
    assert (found.logit_kappa == PRUNED).any()


@torch.no_grad()
def test_spare_slots_are_those_of_a_larger_answer(model: Ocloc) -> None:
    """The same as with so many slots asked for, cut to those of the answer; no more objects are found than that."""
    batch, slots = some_batch(), model.config.slots
    spare = model.infer(batch, generator(3), slots, Search(2, spare=2)).posterior
    large = model.infer(batch, generator(3), slots + 2, Search(2)).posterior
    assert spare.logit_kappa.shape[1] == slots
    assert 0 < (large.logit_kappa >= 0).sum(1).max() <= slots
    few = model.infer(batch, generator(3), slots, Search(2)).posterior
    for name, value in objects_in(spare).items():
        assert torch.equal(value, objects_in(large)[name][:, :slots]), name
    assert not torch.equal(few.mu_attr, spare.mu_attr)


@torch.no_grad()
def test_a_searched_answer_is_the_shortest_and_has_no_surplus(model: Ocloc) -> None:
    """Against single searched starts from the same generator, put together here."""
    batch, annealing, found = some_batch(), model.annealed(), []
    for noise in noises_of(model, 5):
        kept = arranged(pruned(model, batch, likeliest_background(model, batch, noise), annealing))
        present = binary_logit(kept.kappa >= 0.5)
        latents = Latents(kept.mu_view, kept.mu_bck, kept.mu_attr, present)
        found.append((model.description_length(batch, kept, latents, annealing), kept, latents))
    answer = model.infer(batch, generator(3), search=Search(5)).decomposition()
    starts = torch.stack([length for length, *_ in found]).argmin(0).tolist()
    assert set(starts) != {0}
    for b, start in enumerate(starts):
        _, kept, latents = found[start]
        assert torch.equal(answer.presence_probability[b].msort().flip(0), kept.kappa[b])  # type: ignore[index]
        assert torch.equal(answer.presence[b].msort().flip(0), latents.z_prs[b])  # type: ignore[index]
        shown = model.render(latents, annealing)
        torch.testing.assert_close(answer.reconstruction[b], shown.reconstruction[b])


@torch.no_grad()
def test_scene_by_scene_the_shortest_that_is_a_number(model: Ocloc, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of equals; infinity before NaN; the first if none is a number."""
    several = [model.infer_posterior(some_batch(), noise) for noise in noises_of(model, 3)]
    cases = (
        ([[2.0, 1.0], [1.0, 2.0], [3.0, 3.0]], [1, 0]),
        ([[torch.nan, 4.0], [5.0, torch.nan], [5.0, 4.0]], [1, 0]),
        ([[torch.nan, torch.nan], [torch.inf, torch.nan], [torch.nan, torch.nan]], [1, 0]),
    )
    for lengths, best in cases:
        given = iter(torch.tensor(lengths))
        monkeypatch.setattr(model, "description_length", lambda *_, given=given: next(given))
        found = shortest(model, some_batch(), several, model.annealed())
        for name in vars(found):
            rows = [getattr(several[start], name)[b] for b, start in enumerate(best)]
            assert torch.equal(getattr(found, name), torch.stack(rows)), name
    assert_equal(taken(several, torch.tensor([2, 2])), several[2])


def test_noise_for_every_start_and_every_look(model: Ocloc, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other from the generator; nothing else is drawn, and the background is never a sample."""
    asked: dict[str, list[Any]] = {"infer_posteriors": [], "find_objects": []}
    for name, noises in asked.items():
        method = getattr(model, name)
        spy = lambda *given, method=method, noises=noises: noises.append(given[-1]) or method(*given)  # noqa: E731
        monkeypatch.setattr(model, name, spy)
    state, batch = generator(3), some_batch()
    model.infer(batch, state, search=Search(starts=3, looks=2, refinement=1))
    drawn, [starts] = noises_of(model, 5), asked["infer_posteriors"]
    together, apart = asked["find_objects"][::2], asked["find_objects"][1::2]
    assert (len(starts), len(together), len(apart)) == (3, 2, 2)
    for noise, alone in zip(together, apart, strict=True):
        assert torch.equal(alone.y_attr, noise.y_attr.repeat_interleave(batch.view_mask.shape[1], 0))
        assert not alone.background.any()
    for noise, expected in zip(starts + together, drawn, strict=True):
        assert not noise.background.any()
        for name in vars(noise).keys() - {"background"}:
            assert torch.equal(getattr(noise, name), getattr(expected, name)), name
    after = generator(3)
    for _ in range(5):
        model.draw_latent_noise(batch, after)
    assert torch.equal(state.get_state(), after.get_state())


# What an answer shows.


@pytest.mark.parametrize("search", [Search(1), Search(2, looks=1, refinement=2)])
def test_the_most_likely_latents(model: Ocloc, search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    """Means of the posterior in which the search ends, whatever the noise of the latents is."""
    batch, annealing = some_batch(), model.annealed()
    with torch.no_grad():
        posterior = searched(model, batch, noises_of(model, search.starts + search.looks), annealing, search)
    found = model.infer(batch, generator(3), search=search)
    answer, present = found.decomposition(), (posterior.logit_kappa >= 0).float()
    means = Latents(posterior.mu_view, posterior.mu_bck, posterior.mu_attr, present.logit())
    shown = model.render(means, annealing)
    assert torch.equal(answer.presence, present)  # type: ignore[arg-type]
    assert torch.equal(answer.reconstruction, shown.reconstruction)
    assert torch.equal(answer.layer_masks, shown.perceived)
    assert torch.equal(answer.depth_order, shown.order)  # type: ignore[arg-type]
    assert torch.equal(found.view_codes, posterior.mu_view)
    draw = model.draw_latent_noise

    def other(*given: Any) -> Noise:
        noise = draw(*given)
        names = ("background", "z_view", "z_bck", "z_attr", "z_prs")
        return replace(noise, **{name: 2 - getattr(noise, name) for name in names})

    monkeypatch.setattr(model, "draw_latent_noise", other)
    again = model.infer(batch, generator(3), search=search).decomposition()
    assert torch.equal(again.reconstruction, answer.reconstruction)
    plain = model.infer(batch, generator(3)).decomposition()
    assert not torch.equal(plain.reconstruction, answer.reconstruction)


def test_as_likely_as_not_is_present(model: Ocloc) -> None:
    posterior = model.infer_posterior(some_batch(), noises_of(model, 1)[0])
    found = most_likely(replace(posterior, logit_kappa=torch.tensor([[0.0, -1e-6, 4.0], [-4.0, 1e-6, -0.0]])))
    assert found.z_prs.tolist() == [[1, 0, 1], [0, 1, 1]]
    assert found.z_view is posterior.mu_view
    assert found.z_bck is posterior.mu_bck
    assert found.z_attr is posterior.mu_attr


def test_padded_views_have_no_say(model: Ocloc) -> None:
    """Whatever stands in them: the same objects stay, and the description is as long."""
    mask, annealing = torch.tensor([[True, True], [True, False]]), model.annealed()
    quiet = SceneBatch(torch.where(mask[:, :, None, None, None], some_batch().image, 0.0), mask)
    loud = SceneBatch(torch.where(mask[:, :, None, None, None], quiet.image, 9.0), mask)
    posterior = model.infer_posterior(quiet, model.draw_noise(quiet, generator()))
    posterior = replace(posterior, logit_kappa=torch.ones(2, 3))
    kept = [pruned(model, batch, posterior, annealing).logit_kappa for batch in (quiet, loud)]
    assert torch.equal(*kept)
    torch.testing.assert_close(
        *(model.description_length(batch, posterior, most_likely(posterior), annealing) for batch in (quiet, loud))
    )
    search, noises = Search(2, looks=1, refinement=2), noises_of(model, 3)
    ends = [searched(model, batch, noises, annealing, search) for batch in (quiet, loud)]
    for name in ("mu_attr", "mu_bck", "logit_kappa", "y_attr"):
        torch.testing.assert_close(*(getattr(end, name) for end in ends))
    torch.testing.assert_close(*(end.mu_view[mask] for end in ends))


def test_new_views_show_the_objects_that_stayed(model: Ocloc) -> None:
    given, state = some_batch(), generator(3)
    known = model.infer(given, state, search=Search(2))
    answer, turned = known.decomposition(), known.new_views(some_batch(), state).decomposition()
    assert torch.equal(answer.presence, turned.presence)  # type: ignore[arg-type]
    assert set(answer.presence.flatten().tolist()) == {0.0, 1.0}  # type: ignore[union-attr]


@torch.no_grad()
def test_of_new_views_only_the_viewpoints_are_refined(model: Ocloc) -> None:
    """By the pictures of the new views; objects and background stay as the given views have them."""
    search, given, annealing = Search(1, looks=1, refinement=4, view_refinement=6), some_batch(), model.annealed()
    new = SceneBatch(torch.rand(2, 3, 3, 16, 16, generator=generator(8)), torch.ones(2, 3, dtype=torch.bool))
    state = generator(3)
    noises = [model.draw_latent_noise(given, state) for _ in range(2)]
    known = searched(model, given, noises, annealing, search)
    found = model.estimate_views(new, known, model.draw_latent_noise(new, state))
    better = refined(model, new, found, annealing, 6, codes=["mu_view"])
    lengths = [model.description_length(new, one, most_likely(one), annealing) for one in (found, better)]
    assert (lengths[1] < lengths[0]).all()
    state = generator(3)
    turned = model.infer(given, state, search=search).new_views(new, state)
    answer, shown = turned.decomposition(), turned.latents
    torch.testing.assert_close(shown.z_view, better.mu_view)
    assert torch.equal(shown.z_attr, known.mu_attr)
    assert torch.equal(shown.z_bck, known.mu_bck)
    assert torch.equal(answer.presence_probability, known.kappa)  # type: ignore[arg-type]
    torch.testing.assert_close(answer.reconstruction, model.render(most_likely(better), annealing).reconstruction)


def test_a_plain_answer_is_the_paper_s(model: Ocloc) -> None:
    """One start and a sample of all latents, also after a search."""
    batch, [noise] = some_batch(), noises_of(model, 1)
    model.infer(batch, generator(3), search=Search(3, 1, 4))
    latents = model.sample(model.infer_posterior(batch, noise), noise, model.annealed())
    state, after = generator(3), generator(3)
    answer = model.infer(batch, state).decomposition()
    assert torch.equal(answer.presence, latents.z_prs)  # type: ignore[arg-type]
    shown = model.render(latents, model.annealed())
    assert torch.equal(answer.reconstruction, shown.reconstruction)
    assert torch.equal(answer.depth_order, shown.order)  # type: ignore[arg-type]
    model.draw_latent_noise(batch, after)
    assert torch.equal(state.get_state(), after.get_state())


def test_searches_that_cannot_be() -> None:
    with pytest.raises(UserError, match=r"search\.starts cannot be 0: it must be 1 or more"):
        Search(0)
    with pytest.raises(UserError, match=r"search\.looks cannot be -1: it must be 0 or above"):
        Search(looks=-1)
    with pytest.raises(UserError, match=r"search\.refinement cannot be -3: it must be 0 or above"):
        replace(Search(2), refinement=-3)
    with pytest.raises(UserError, match="per-view answers in one pass"):
        PerView(SMALL_OCLOC).infer(some_batch(), generator(), search=Search(2))
    assert Search() == Search(starts=1, looks=0, refinement=0, view_refinement=30)
