"""Careful answers: what is left out, by slow twins and by hand; which start is taken."""

from dataclasses import replace

import pytest
import torch
from small_model import SMALL_OCLOC, generator
from torch import Tensor

from viewslots.errors import UserError
from viewslots.models.distributions import normal_kl
from viewslots.models.ocloc.care import LEFT_OUT, Care, worthwhile
from viewslots.models.ocloc.generation import binary_logit
from viewslots.models.ocloc.model import Ocloc
from viewslots.models.ocloc.per_view import PerViewOcloc
from viewslots.types import Latents, SceneBatch

torch.set_num_threads(1)


def some_batch() -> SceneBatch:
    return SceneBatch(torch.rand(2, 2, 3, 16, 16, generator=generator(7)), torch.ones(2, 2, dtype=torch.bool))


@pytest.fixture
def model() -> Ocloc:
    return Ocloc(SMALL_OCLOC, generator(1)).eval()


# What is left out.


def slowly(present: list[bool], prices: list[float], table: dict[tuple[bool, ...], float]) -> list[bool]:
    """One scene, by the words of `worthwhile`."""
    while any(present):
        shorter = {}
        for slot in range(len(present)):
            if present[slot]:
                without = [there and other != slot for other, there in enumerate(present)]
                shorter[slot] = table[tuple(without)] - table[tuple(present)] - prices[slot]
        slot = min(shorter, key=shorter.__getitem__)
        if shorter[slot] >= 0:
            break
        present = [there and other != slot for other, there in enumerate(present)]
    return present


def test_against_a_slow_twin() -> None:
    """Misfits and prices at random: every subset of four objects has its own."""
    B, K = 40, 4
    misfits, prices = torch.rand(B, 2**K, generator=generator()), torch.rand(B, K, generator=generator(1)) * 0.3
    present = torch.rand(B, K, generator=generator(2)) < 0.8
    bits = 2 ** torch.arange(K)
    found = worthwhile(present, prices, lambda shown: misfits.gather(1, (shown * bits).sum(1, keepdim=True)).squeeze(1))
    for b in range(B):
        subsets = {tuple(bool(code & 2**k) for k in range(K)): float(misfits[b, code]) for code in range(2**K)}
        assert found[b].tolist() == slowly(present[b].tolist(), prices[b].tolist(), subsets)
    assert not torch.equal(found, present)
    assert found.any()


def test_of_two_copies_one_stays() -> None:
    """Copies explain the same 50 nats; a third object 5, which its code is not worth, and a fourth 10, which it is."""
    weights = torch.tensor([0.0, 0.0, 5.0, 10.0])

    def misfit(shown: Tensor) -> Tensor:
        return 100 - 50.0 * (shown[:, 0] | shown[:, 1]) - (shown * weights).sum(1)

    kept = worthwhile(torch.ones(1, 4, dtype=torch.bool), torch.full((1, 4), 7.0), misfit)
    assert kept.sum(1).tolist() == [2]
    assert kept[0, :2].sum() == 1
    assert kept[0, 2:].tolist() == [False, True]


def test_the_picture_of_an_object_needs_it_once(model: Ocloc) -> None:
    """A scene drawn with two objects, described with one of them twice: one copy goes, nothing else."""
    batch = some_batch()
    noise = model.draw_noise(batch, generator())
    posterior = model.infer(batch, noise)
    with torch.no_grad():
        model.generation.last_layer().weight.mul_(20.0)  # shapes and colours that differ from the background
        drawn = model.sample(posterior, noise, model.annealed())
        shown = torch.tensor([[True, False, True]] * 2)
        drawn = replace(drawn, logit_prs=binary_logit(shown))
        image = model.render(drawn, model.annealed()).reconstruction
    twice = replace(drawn, z_attr=drawn.z_attr[:, [0, 0, 2]], logit_prs=binary_logit(torch.ones_like(shown)))
    exact = replace(posterior, mu_attr=twice.z_attr, log_sigma_attr=torch.zeros_like(twice.z_attr))
    found = model.without_surplus(replace(batch, image=image), exact, twice, model.annealed())
    gone = found.logit_kappa == LEFT_OUT
    assert gone[:, :2].sum(1).tolist() == [1, 1]
    assert not gone[:, 2].any()
    assert torch.equal(found.logit_kappa[~gone], posterior.logit_kappa[~gone])


# Which start is taken.


def test_the_length_of_a_description_by_hand(model: Ocloc) -> None:
    """The error of the pictures over 2 sigma^2; the divergences of the background, the views and present objects."""
    batch = some_batch()
    noise, annealing = model.draw_noise(batch, generator()), model.annealed()
    posterior = model.infer(batch, noise)
    sample = model.sample(posterior, noise, annealing)
    latents = replace(sample, logit_prs=binary_logit(torch.tensor([[True, False, True], [False] * 3])))
    found = model.fault(batch, posterior, latents, annealing)
    rebuilt = model.render(latents, annealing).reconstruction
    for b, objects in enumerate(([0, 2], [])):
        length = ((rebuilt[b] - batch.image[b]) ** 2).sum() / (2 * SMALL_OCLOC.sigma_x**2)
        length = length + normal_kl(posterior.mu_bck[b], posterior.log_sigma_bck[b])
        length = length + sum(normal_kl(posterior.mu_view[b, m], posterior.log_sigma_view[b, m]) for m in range(2))
        length = length + sum(normal_kl(posterior.mu_attr[b, k], posterior.log_sigma_attr[b, k]) for k in objects)
        torch.testing.assert_close(found[b], length)


def test_a_careful_answer_is_the_shortest_and_has_no_surplus(model: Ocloc) -> None:
    """Against single careful starts from the same generator, put together here."""
    batch, annealing, state = some_batch(), model.annealed(), generator(3)
    found = []
    for _ in range(5):
        noise = model.draw_latent_noise(batch, state)
        posterior = model.infer(batch, noise)
        present = posterior.kappa >= 0.5
        latents = replace(model.sample(posterior, noise, annealing), logit_prs=binary_logit(present))
        kept = model.without_surplus(batch, posterior, latents, annealing)
        latents = replace(latents, logit_prs=binary_logit(kept.kappa >= 0.5))
        found.append((model.fault(batch, kept, latents, annealing), kept, latents))
    model.take_care(5)
    answer = model.decompose(batch, generator(3))
    for b, start in enumerate(torch.stack([fault for fault, *_ in found]).argmin(0).tolist()):
        _, kept, latents = found[start]
        assert torch.equal(answer.presence_probability[b], kept.kappa[b])  # type: ignore[index]
        assert torch.equal(answer.presence[b], latents.z_prs[b])  # type: ignore[index]
    assert not torch.equal(answer.presence_probability, found[0][1].kappa)  # type: ignore[arg-type]


@pytest.mark.parametrize("thrifty", [True, False])
def test_several_starts_with_thrift_and_without(model: Ocloc, thrifty: bool) -> None:
    """Scene by scene the start of the shortest description; without thrift, presences are samples."""
    batch, annealing, state = some_batch(), model.annealed(), generator(3)
    model.care = Care(1, thrifty)
    ends = [model.settle(batch, state, None, annealing) for _ in range(4)]
    answers = [(end, model.answer(end, noise, annealing)) for end, noise in ends]
    best = torch.stack([model.fault(batch, *given, annealing) for given in answers]).argmin(0).tolist()
    model.care = Care(4, thrifty)
    answer = model.decompose(batch, generator(3))
    expected = torch.stack([answers[start][1].z_prs[b] for b, start in enumerate(best)])
    assert torch.equal(answer.presence, expected)  # type: ignore[arg-type]
    assert bool(((expected == 0) | (expected == 1)).all()) == thrifty


def test_padded_views_have_no_say(model: Ocloc) -> None:
    """Whatever stands in them: the same objects stay, and the description is as long."""
    mask, annealing = torch.tensor([[True, True], [True, False]]), model.annealed()
    quiet = SceneBatch(torch.where(mask[:, :, None, None, None], some_batch().image, 0.0), mask)
    loud = SceneBatch(torch.where(mask[:, :, None, None, None], quiet.image, 9.0), mask)
    noise = model.draw_noise(quiet, generator())
    posterior = model.infer(quiet, noise)
    latents = replace(model.sample(posterior, noise, annealing), logit_prs=torch.full((2, 3), torch.inf))
    kept = [model.without_surplus(batch, posterior, latents, annealing).logit_kappa for batch in (quiet, loud)]
    assert torch.equal(*kept)
    torch.testing.assert_close(*(model.fault(batch, posterior, latents, annealing) for batch in (quiet, loud)))


def test_new_views_show_the_objects_that_stayed(model: Ocloc) -> None:
    model.take_care(2)
    given, new = some_batch(), some_batch()
    answer, turned = model.decompose(given, generator(3)), model.decompose_new_views(given, new, generator(3))
    assert torch.equal(answer.presence, turned.presence)  # type: ignore[arg-type]
    assert set(answer.presence.flatten().tolist()) == {0.0, 1.0}  # type: ignore[union-attr]


def test_the_paper_takes_no_care(model: Ocloc) -> None:
    """One start and sampled presences, whatever other models have been told."""
    other = Ocloc(SMALL_OCLOC)
    other.take_care(3)
    assert other.care == Care(3, thrifty=True)
    assert model.care == Care() == Care(1, thrifty=False)
    batch = some_batch()
    noise = model.draw_latent_noise(batch, generator(3))
    posterior = model.infer(batch, noise)
    latents: Latents = model.sample(posterior, noise, model.annealed())
    assert torch.equal(model.decompose(batch, generator(3)).presence, latents.z_prs)  # type: ignore[arg-type]


def test_care_that_cannot_be_taken(model: Ocloc) -> None:
    with pytest.raises(UserError, match="at least one start is needed, not 0"):
        model.take_care(0)
    with pytest.raises(UserError, match="every view alone"):
        PerViewOcloc(SMALL_OCLOC).take_care(2)
