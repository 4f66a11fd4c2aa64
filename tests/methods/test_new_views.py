"""Viewpoint estimation as an evaluation asks for it: the steps assembled by hand give the same bits."""

from dataclasses import replace

import pytest
import torch
from paper_cases import SMALL, K, generator, scenes

from viewslots.errors import UserError
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.per_view.model import PerView, fold
from viewslots.types import Decomposition, SceneBatch


def turned(model: Ocloc, given: SceneBatch, new: SceneBatch, seed: int, slots: int | None = K) -> Decomposition:
    """The scene of the given views in the new ones."""
    state = generator(seed)
    return model.infer(given, state, slots).new_views(new, state).decomposition()


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
    answer = turned(model, given, new, 7)
    for name, expected in assembled(model, given, new, 7).items():
        assert torch.equal(getattr(answer, name), expected), name
    assert answer.has_background
    assert answer.reconstruction.shape == new.image.shape


def test_the_given_views_themselves_can_be_estimated_again(model: Ocloc) -> None:
    """Same pictures on both sides: still the appendix's steps, and the scene is the one that `infer` finds."""
    given = scenes(2, 3, seed=1)
    again, answer = turned(model, given, given, 7), model.infer(given, generator(7), K).decomposition()
    for name, expected in assembled(model, given, given, 7).items():
        assert torch.equal(getattr(again, name), expected), name
    assert torch.equal(again.presence, answer.presence)
    assert torch.equal(again.presence_probability, answer.presence_probability)
    assert not torch.equal(again.reconstruction, answer.reconstruction)


def test_new_views_do_not_change_the_scene(model: Ocloc) -> None:
    given = scenes(2, 3, seed=1)
    one, two = (turned(model, given, scenes(2, 2, seed=seed), 7) for seed in (2, 3))
    assert torch.equal(one.presence, two.presence)
    assert not torch.equal(one.layer_masks, two.layer_masks)


def test_one_answer_is_asked_many_times(model: Ocloc) -> None:
    """Nothing that is asked changes it."""
    given, state = scenes(2, 3, seed=1), generator(7)
    answer = model.infer(given, state, K)
    first, state = answer.decomposition(), state.clone_state()
    once = answer.new_views(scenes(2, 2, seed=2), state.clone_state()).decomposition()
    answer.new_views(scenes(2, 4, seed=3), generator(8)).scene_codes(1)
    again = answer.new_views(scenes(2, 2, seed=2), state.clone_state()).decomposition()
    assert torch.equal(once.layer_masks, again.layer_masks)
    assert torch.equal(first.layer_masks, answer.decomposition().layer_masks)


def test_slots_and_the_end_of_annealing_are_heard(model: Ocloc) -> None:
    """Temperature and softness at test are those of the config."""
    given, new = scenes(1, 2, seed=1), scenes(1, 2, seed=2)
    assert turned(model, given, new, 7, None).presence.shape == (1, SMALL.slots)
    soft = Ocloc(replace(SMALL, temperature=2.0, softness=3.0)).eval()
    soft.load_state_dict(model.state_dict())
    left, right = (turned(one, given, new, 7) for one in (model, soft))
    assert not torch.equal(left.presence, right.presence)
    assert not torch.equal(left.layer_masks, right.layer_masks)


def test_view_codes_are_those_behind_the_answer(model: Ocloc) -> None:
    batch = scenes(2, 3, seed=1)
    codes = model.infer(batch, generator(7), K).view_codes
    with torch.no_grad():
        expected = model.infer_posterior(batch, model.draw_noise(batch, generator(7), K)).mu_view
    assert torch.equal(codes, expected)
    assert codes.shape == (2, 3, SMALL.view_dim)
    assert not codes.requires_grad


def test_latent_noise_is_the_beginning_of_all_noise() -> None:
    """So an answer is the same with either, and nothing is drawn for pixels."""
    batch = scenes(2, 3)
    for made, seen in ((Ocloc(SMALL), batch), (PerView(SMALL).single, fold(batch))):
        short, full = made.draw_latent_noise(seen, generator(7), K), made.draw_noise(seen, generator(7), K)
        for name in ("y_view", "y_attr", "background", "z_view", "z_bck", "z_attr", "z_prs"):
            assert torch.equal(getattr(short, name), getattr(full, name)), name
        assert short.z_shp.numel() == short.appearance.numel() == 0


def test_bad_pictures_are_refused(model: Ocloc) -> None:
    good, bad = scenes(2, 2), replace(scenes(2, 2), image=scenes(2, 2).image * torch.nan)
    for given, new in ((good, bad), (bad, good)):
        with pytest.raises(UserError, match="finite"):
            turned(model, given, new, 0)
    with pytest.raises(UserError, match="pictures of 3 scenes, but 2 scenes are given"):
        turned(model, good, scenes(3, 2), 0)
