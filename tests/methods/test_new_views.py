"""Viewpoint estimation as an evaluation asks for it: the steps assembled by hand give the same bits."""

from dataclasses import replace

import pytest
import torch
from paper_cases import SMALL, K, generator, scenes

from viewslots.errors import UserError
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.per_view.model import PerView
from viewslots.types import SceneBatch

SOFT = replace(Ocloc(SMALL).annealed(), temperature_prs=2.0, softness=3.0)


@pytest.fixture(scope="module")
def model() -> Ocloc:
    """Started off zero, so that noise, viewpoints and attributes all show."""
    made, rng = Ocloc(SMALL, generator(4)).eval(), generator(5)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=rng)
    return made


@torch.no_grad()
def assembled(model: Ocloc, given: SceneBatch, new: SceneBatch, seed: int) -> dict[str, torch.Tensor]:
    """Algorithm 1 on the given views; lines 3 and 7-11 alone on the new ones, with y_attr held."""
    draws, annealing, g = generator(seed), model.annealed(), model.inference
    noise, other = model.draw_latent_noise(given, draws, K), model.draw_latent_noise(new, draws, K)
    known = model.infer_posterior(given, noise)
    keys, values = g.encode(new.image)
    y_view = g.start_view(other.y_view)
    for _ in range(model.config.rounds):
        y_view = g.update(keys, values, y_view, known.y_attr)[0].mean(2)
    mu_view, log_sigma_view = g.g_view(y_view).chunk(2, -1)
    z_view = mu_view + log_sigma_view.exp() * other.z_view
    latents = replace(model.sample(known, noise, annealing), z_view=z_view)
    shown = model.render(latents, annealing)
    return {
        "reconstruction": shown.reconstruction,
        "layer_masks": shown.perceived,
        "complete_shapes": shown.logit_shp.sigmoid(),
        "presence": latents.z_prs,
        "presence_probability": known.kappa,
        "depth_order": shown.order,
    }


def test_new_views_are_the_steps_of_the_appendix(model: Ocloc) -> None:
    given, new = scenes(2, 3, seed=1), scenes(2, 2, seed=2)
    answer = model.decompose_new_views(given, new, generator(7), K)
    for name, expected in assembled(model, given, new, 7).items():
        assert torch.equal(getattr(answer, name), expected), name
    assert answer.has_background
    assert answer.reconstruction.shape == new.image.shape


def test_the_given_views_themselves_can_be_estimated_again(model: Ocloc) -> None:
    """Same pictures on both sides: still the appendix's steps, and the scene is the one that `decompose` finds."""
    given = scenes(2, 3, seed=1)
    again, answer = model.decompose_new_views(given, given, generator(7), K), model.decompose(given, generator(7), K)
    for name, expected in assembled(model, given, given, 7).items():
        assert torch.equal(getattr(again, name), expected), name
    assert torch.equal(again.presence, answer.presence)
    assert torch.equal(again.presence_probability, answer.presence_probability)
    assert not torch.equal(again.reconstruction, answer.reconstruction)


def test_new_views_do_not_change_the_scene(model: Ocloc) -> None:
    given = scenes(2, 3, seed=1)
    one, two = (model.decompose_new_views(given, scenes(2, 2, seed=seed), generator(7), K) for seed in (2, 3))
    assert torch.equal(one.presence, two.presence)
    assert not torch.equal(one.layer_masks, two.layer_masks)


def test_slots_and_annealing_are_heard(model: Ocloc) -> None:
    given, new = scenes(1, 2, seed=1), scenes(1, 2, seed=2)
    assert model.decompose_new_views(given, new, generator(7)).presence.shape == (1, SMALL.slots)
    plain, soft = (model.decompose_new_views(given, new, generator(7), K, annealing) for annealing in (None, SOFT))
    assert not torch.equal(plain.presence, soft.presence)
    assert not torch.equal(plain.layer_masks, soft.layer_masks)


def test_view_codes_are_those_behind_the_answer(model: Ocloc) -> None:
    batch = scenes(2, 3, seed=1)
    codes = model.view_codes(batch, generator(7), K)
    with torch.no_grad():
        expected = model.infer_posterior(batch, model.draw_noise(batch, generator(7), K)).mu_view
    assert torch.equal(codes, expected)
    assert codes.shape == (2, 3, SMALL.view_dim)
    assert not codes.requires_grad


@pytest.mark.parametrize("method", [Ocloc, PerView])
def test_latent_noise_is_the_beginning_of_all_noise(method: type[Ocloc]) -> None:
    """So an answer is the same with either, and nothing is drawn for pixels."""
    made, batch = method(SMALL), scenes(2, 3)
    short, full = made.draw_latent_noise(batch, generator(7), K), made.draw_noise(batch, generator(7), K)
    for name in ("y_view", "y_attr", "background", "z_view", "z_bck", "z_attr", "z_prs"):
        assert torch.equal(getattr(short, name), getattr(full, name)), name
    assert short.z_shp.numel() == short.appearance.numel() == 0


def test_bad_pictures_are_refused(model: Ocloc) -> None:
    good, bad = scenes(2, 2), replace(scenes(2, 2), image=scenes(2, 2).image * torch.nan)
    for given, new in ((good, bad), (bad, good)):
        with pytest.raises(UserError, match="finite"):
            model.decompose_new_views(given, new, generator(), K)
    with pytest.raises(UserError, match="pictures of 3 scenes, but 2 scenes are given"):
        model.decompose_new_views(good, scenes(3, 2), generator(), K)
    with pytest.raises(UserError, match="finite"):
        model.view_codes(bad, generator(), K)


def test_the_baseline_refuses() -> None:
    baseline, batch = PerView(SMALL), scenes(1, 2)
    assert Ocloc.knows_viewpoints
    assert not baseline.knows_viewpoints
    with pytest.raises(UserError, match="no viewpoints to estimate"):
        baseline.decompose_new_views(batch, batch, generator(), K)
    with pytest.raises(UserError, match="no viewpoints to estimate"):
        baseline.view_codes(batch, generator(), K)
