"""Infer once, render many: against the model's own pass, and on real pictures with the shipped model."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch
from torch import Tensor

import viewslots
from viewslots.errors import UserError
from viewslots.methods.contract import Search, changed_search
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.presets import TINY
from viewslots.methods.ocloc.search import pruned, refined, searched
from viewslots.methods.ocloc.variables import Latents, Rendering
from viewslots.methods.per_view.model import PerView
from viewslots.protocol.subject import search_asked_for
from viewslots.types import SceneBatch
from viewslots.viewpoints.scene import InferredScene, Reader, View, decomposition_of, search_words


def batch_of(pictures: Tensor) -> SceneBatch:
    return SceneBatch(pictures[None], torch.ones(1, len(pictures), dtype=torch.bool))


@torch.no_grad()
def whole_rendering(scene: InferredScene, views: Tensor, shown: Sequence[int]) -> Rendering:
    """Ocloc.render of all objects, those that are not shown with presence logits of minus infinity."""
    logits = torch.full((1, len(scene.objects)), -torch.inf)
    logits[0, list(shown)] = torch.inf
    latents = Latents(views[None], scene.background[None], scene.objects[None], logits)
    model = scene.reader.model
    return model.render(latents, model.annealed())


def assert_shows(view: View, whole: Rendering, v: int, shown: Sequence[int]) -> None:
    torch.testing.assert_close(view.image, whole.reconstruction[0, v], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(view.masks, whole.perceived[0, v], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(view.background, whole.background[0, v], atol=1e-6, rtol=1e-5)
    for k in range(len(view.order)):
        if k in shown:
            torch.testing.assert_close(view.complete[k], whole.logit_shp[0, v, k].sigmoid(), atol=1e-6, rtol=1e-5)
            torch.testing.assert_close(view.appearance[k], whole.appearance[0, v, k], atol=1e-6, rtol=1e-5)
            torch.testing.assert_close(view.order[k], whole.order[0, v, k], atol=1e-6, rtol=1e-5)
        else:
            assert not view.complete[k].any()
            assert not view.appearance[k].any()
            assert view.order[k] == -torch.inf


@torch.no_grad()
def test_the_plain_answer_is_algorithm_1_and_a_sample(reader: Reader, pictures: Tensor) -> None:
    """As the paper is scored: OCLOC does not search unless it is told to."""
    model, batch = reader.model, batch_of(pictures)
    noise = model.draw_latent_noise(batch, torch.Generator().manual_seed(5), 6)
    latents = model.sample(model.infer_posterior(batch, noise), noise, model.annealed())
    assert reader.search is None
    for scene in (reader.decompose(pictures, seed=5, slots=6), reader.decompose(pictures, seed=5, slots=6, starts=0)):
        assert torch.equal(scene.views, latents.z_view[0])
        assert torch.equal(scene.background, latents.z_bck[0])
        assert torch.equal(scene.objects, latents.z_attr[0])
        assert torch.equal(scene.presence, latents.z_prs[0])
        assert scene.objects.shape == (6, TINY.attr_dim)
        assert scene.images is not None
        assert torch.equal(scene.images, pictures)


@torch.no_grad()
def test_one_start_takes_the_likeliest_background_and_prunes(
    reader: Reader, pictures: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: the model's own inference, told which slot is the background by the arg max of its pi. All is seen,
    though the untrained model draws faintly."""
    everything = torch.ones(1, 1, dtype=torch.bool)
    monkeypatch.setattr("viewslots.methods.ocloc.choice.seen_objects", lambda perceived, mask: everything)
    model, batch = reader.model, batch_of(pictures)
    noise = model.draw_latent_noise(batch, torch.Generator().manual_seed(5), 6)
    best = model.infer_posterior(batch, noise).log_pi.argmax(-1)
    expected = model.infer_posterior(batch, noise, background_index=best)
    scene = reader.decompose(pictures, seed=5, slots=6, starts=1)
    assert torch.equal(scene.views, expected.mu_view[0])
    assert torch.equal(scene.background, expected.mu_bck[0])
    kept = pruned(model, batch, expected, model.annealed())
    assert 0 < scene.count < int((expected.logit_kappa >= 0).sum())
    present, likeliest = kept.logit_kappa[0] >= 0, kept.kappa[0].argsort(descending=True, stable=True)
    assert torch.equal(scene.presence, kept.kappa[0, likeliest])
    assert torch.equal(scene.objects[: scene.count], expected.mu_attr[0, likeliest][: int(present.sum())])


def test_decompose_depends_on_the_seed_alone(reader: Reader, pictures: Tensor) -> None:
    first, again, other = (reader.decompose(pictures, seed=seed).objects for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@torch.no_grad()
def test_of_several_starts_the_shortest_description_is_the_answer(reader: Reader, pictures: Tensor) -> None:
    """All starts come from one stream of noise; each is judged by itself."""
    model, batch, stream = reader.model, batch_of(pictures), torch.Generator().manual_seed(4)
    noises = [model.draw_latent_noise(batch, stream, 6) for _ in range(5)]
    singles = [searched(model, batch, [noise], model.annealed(), Search()) for noise in noises]
    lengths = []
    for one in singles:
        present = torch.where(one.logit_kappa >= 0, torch.inf, -torch.inf)
        latents = Latents(one.mu_view, one.mu_bck, one.mu_attr, present)
        lengths.append(float(model.description_length(batch, one, latents, model.annealed())))
    best = singles[lengths.index(min(lengths))]
    assert lengths.index(min(lengths)) > 0  # else the first start would do
    found = reader.decompose(pictures, seed=4, slots=6, starts=5)
    assert torch.equal(found.objects, best.mu_attr[0])
    assert torch.equal(reader.decompose(pictures, seed=4, slots=6, starts=1).objects, singles[0].mu_attr[0])


@torch.no_grad()
def test_what_is_shown_is_found_as_what_is_scored(
    reader: Reader, pictures: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same code, the same default; a search of one's own, or another number of starts, where they are asked for."""
    model, batch, own = reader.model, batch_of(pictures), Search(2, looks=1, refinement=2)
    monkeypatch.setattr(Ocloc, "default_search", own)
    assert reader.search == own
    cases: list[tuple[dict[str, object], Search | None]] = [
        ({}, own),
        ({"starts": 1}, replace(own, starts=1)),
        ({"starts": 0}, None),
        ({"search": Search(3)}, Search(3)),
        ({"search": Search(3), "starts": 2}, Search(2)),
    ]
    for asked, search in cases:
        expected = model.infer(batch, torch.Generator().manual_seed(5), 4, search)
        scene = reader.decompose(pictures, seed=5, **asked)  # type: ignore[arg-type]
        for name, value in vars(expected.scene_codes(0)).items():
            assert torch.equal(getattr(scene, name), value), (asked, name)


def test_searches_in_words() -> None:
    assert search_words(None) == "plain (one pass)"
    assert search_words(Search(4, 1, 30)) == "searched with 4 starts, 1 further look and 30 gradient steps"
    assert search_words(Search(spare=4)) == "searched with 1 start and 4 spare slots"
    assert search_words(Search()) == "searched with 1 start"
    assert changed_search(None, starts=3) == Search(3)
    assert changed_search(Search(4, 1, 30), starts=None) == Search(4, 1, 30)
    assert changed_search(Search(4, 1, 30), starts=0) is None
    assert changed_search(Search(4, 1, 30), starts=None, looks=0, refinement=5) == Search(4, 0, 5)
    with pytest.raises(UserError, match=r"^search\.starts cannot be 0"):
        changed_search(Search(4, 1, 30), starts=0, looks=1)
    with pytest.raises(UserError, match="--starts 0 is the plain answer, without a search"):
        search_asked_for(Search(4, 1, 30), starts=0, looks=1)


def test_a_scene_as_the_metrics_take_it(scene: InferredScene) -> None:
    views = scene.render_many(scene.views)
    found = decomposition_of(scene, views)
    assert found.has_background
    assert found.complete_shapes is not None
    assert found.depth_order is not None
    for m, view in enumerate(views):
        assert torch.equal(found.reconstruction[0, m], view.image)
        assert torch.equal(found.layer_masks[0, m], view.masks)
        assert torch.equal(found.complete_shapes[0, m], view.complete)
        assert torch.equal(found.depth_order[0, m], view.order)
    assert found.presence is not None
    assert torch.equal(found.presence[0], scene.presence)


@pytest.mark.parametrize("shown", [(0, 1, 2, 3), (2,), (3, 0), ()])
def test_render_is_the_models_rendering(scene: InferredScene, shown: tuple[int, ...]) -> None:
    views = torch.randn(11, 3, generator=torch.Generator().manual_seed(2))  # more than are rendered at once
    whole = whole_rendering(scene, views, shown)
    many = scene.render_many(views, shown=shown)
    assert len(many) == 11
    for v, view in enumerate(many):
        assert_shows(view, whole, v, shown)
        assert view.shown == tuple(sorted(shown))
    assert_shows(scene.render(views[4], shown=shown), whole, 4, shown)


def test_objects_hide_each_other_in_this_test(scene: InferredScene) -> None:
    """Else the comparison above would not see a wrong order or a wrong index."""
    view = scene.render(shown=range(4))
    assert (view.masks.amax((1, 2)) > 0.05).all()
    assert (view.complete - view.masks[1:] > 0.2).any()
    assert len(set(view.order.tolist())) == 4


def test_by_default_the_first_view_shows_the_present_objects(scene: InferredScene) -> None:
    assert scene.present() == [0, 2, 3]
    assert scene.count == 3
    assert_shows(scene.render(), whole_rendering(scene, scene.views, [0, 2, 3]), 0, [0, 2, 3])


def test_only_shown_objects_are_decoded(scene: InferredScene) -> None:
    decoded: list[int] = []
    decoder = scene.reader.model.generation.f_shp_apc
    hook = decoder.register_forward_hook(lambda module, given, made: decoded.append(len(given[0])))
    scene.render(shown=[1, 3])
    scene.render_many(scene.views[:2], shown=[2])
    hook.remove()
    assert decoded == [2, 2]


def test_masks_sum_to_one_and_segment_names_the_largest(scene: InferredScene) -> None:
    view = scene.render()
    torch.testing.assert_close(view.masks.sum(0), torch.ones(32, 32))
    assert torch.equal(view.segment(), torch.from_numpy(view.masks.numpy().argmax(0)))
    empty = scene.render(shown=[])
    assert torch.equal(empty.image, empty.background)
    assert not empty.segment().any()


def test_an_x_ray_shows_complete_shapes_alike(scene: InferredScene) -> None:
    """Slow twin at some pixels: shares of objects that overlap sum to one at most, the background has what is left."""
    view = scene.render()
    found = view.x_ray()
    for y, x in ((0, 0), (7, 20), (16, 16), (31, 5)):
        shapes = [float(view.complete[k, y, x]) for k in view.shown]
        most = max(1.0, sum(shapes))
        colour = max(0.0, 1 - sum(shapes)) * view.background[:, y, x]
        for k, shape in zip(view.shown, shapes, strict=True):
            colour = colour + shape / most * view.appearance[k, :, y, x]
        torch.testing.assert_close(found[:, y, x], colour)
    swapped = replace(view, order=-view.order)
    assert torch.equal(swapped.x_ray(), found)
    assert torch.equal(scene.render(shown=[]).x_ray(), view.background)


def test_nearest_first(scene: InferredScene) -> None:
    view = replace(scene.render(), order=torch.tensor([0.5, -torch.inf, 2.0, -1.0]))
    assert view.nearest_first() == [2, 0, 3]


@torch.no_grad()
def test_estimate_is_the_papers_viewpoint_estimation(scene: InferredScene, pictures: Tensor) -> None:
    model, more = scene.reader.model, pictures.flip(-1)[:2]
    assert scene.answer is not None
    noise = model.draw_latent_noise(batch_of(more), torch.Generator().manual_seed(9), 4)
    expected = model.estimate_views(batch_of(more), scene.answer.posterior, noise).mu_view[0]  # type: ignore[attr-defined]
    assert torch.equal(scene.estimate(more, seed=9), expected)
    assert not torch.equal(scene.estimate(more, seed=8), expected)


@torch.no_grad()
def test_viewpoints_are_refined_in_any_search(reader: Reader, pictures: Tensor) -> None:
    """As many steps as it says, on viewpoints alone, whatever is done to the scene, which stays as it is."""
    model, more = reader.model, pictures.flip(-1)[:2]
    scene = reader.decompose(pictures, search=Search(view_refinement=3))
    assert scene.answer is not None
    noise = model.draw_latent_noise(batch_of(more), torch.Generator().manual_seed(9), 4)
    found = model.estimate_views(batch_of(more), scene.answer.posterior, noise)  # type: ignore[attr-defined]
    expected = refined(model, batch_of(more), found, model.annealed(), 3, codes=["mu_view"]).mu_view[0]
    assert torch.equal(scene.estimate(more, seed=9), expected)
    assert not torch.equal(expected, found.mu_view[0])


def test_a_scene_from_the_prior(reader: Reader) -> None:
    scene, again, other = reader.prior(4, views=2), reader.prior(4, views=2), reader.prior(5, views=2)
    assert scene.images is None
    assert torch.equal(scene.objects, again.objects)
    assert torch.equal(scene.render().image, again.render().image)
    assert not torch.equal(scene.objects, other.objects)
    assert set(scene.presence.tolist()) <= {0.0, 1.0}
    drawn = [reader.prior(seed, slots=6) for seed in range(300)]
    views = torch.cat([item.views for item in drawn])
    assert views.shape == (1200, 3)
    assert abs(float(views.mean())) < 0.1
    assert abs(float(views.std()) - 1) < 0.1
    # The mean of Beta(alpha / K, 1) is alpha / (alpha + K), with alpha = 3 and K = 6.
    assert abs(np.mean([item.count / 6 for item in drawn]) - 3 / 9) < 0.05
    with pytest.raises(UserError, match="never seen"):
        scene.estimate(torch.rand(1, 3, 32, 32))


def test_scenes_are_frozen_and_cheap_to_change(scene: InferredScene) -> None:
    with pytest.raises(FrozenInstanceError):
        scene.presence = torch.ones(4)  # type: ignore[misc]
    changed = replace(scene, presence=torch.ones(4))
    assert changed.objects is scene.objects
    assert changed.answer is scene.answer
    assert scene.count == 3


def test_one_clear_line_for_what_cannot_be(reader: Reader, scene: InferredScene) -> None:
    with pytest.raises(UserError, match="per-view knows no scene apart from its views"):
        Reader(PerView(TINY)).decompose(torch.rand(2, 3, 32, 32))
    with pytest.raises(
        UserError, match="small: trained on single pictures, so it cannot take 2 for views of one scene"
    ):
        replace(reader, single=True).decompose(torch.rand(2, 3, 32, 32))
    with pytest.raises(UserError, match="trained on single pictures"):
        replace(reader, single=True).infer(torch.rand(3, 2, 3, 32, 32))
    assert len(replace(reader, single=True).decompose(torch.rand(1, 3, 32, 32)).views) == 1
    with pytest.raises(UserError, match="no object 4"):
        scene.render(shown=[4])
    with pytest.raises(UserError, match="no object -1"):
        scene.render(shown=[-1])
    with pytest.raises(UserError, match="3 numbers"):
        scene.render(torch.zeros(4))
    with pytest.raises(UserError, match=r"\[V, 3\]"):
        scene.render_many(torch.zeros(3))
    with pytest.raises(UserError, match="NaN"):
        scene.render(torch.tensor([0.0, torch.nan, 0.0]))
    with pytest.raises(UserError, match="32x32"):
        reader.decompose(torch.rand(2, 3, 64, 64))
    with pytest.raises(UserError, match="at least one view"):
        reader.decompose(torch.rand(0, 3, 32, 32))
    with pytest.raises(UserError, match="at least one view"):
        reader.prior(0, views=0)
    with pytest.raises(UserError, match="seed"):
        reader.prior(-1)
    with pytest.raises(UserError, match="K must be at least 1"):
        reader.decompose(torch.rand(1, 3, 32, 32), slots=0)
    with pytest.raises(UserError, match="K must be at least 1"):
        reader.prior(0, slots=0)
    with pytest.raises(UserError, match=r"search\.starts cannot be"):
        reader.decompose(torch.rand(1, 3, 32, 32), starts=-1)
    with pytest.raises(UserError, match="at most 64 objects"):
        reader.decompose(torch.rand(1, 3, 32, 32), slots=10**9)


def test_no_views_make_no_pictures(scene: InferredScene) -> None:
    assert scene.render_many(torch.zeros(0, 3)) == []


def test_the_reader_puts_its_model_into_evaluation_mode() -> None:
    model = Ocloc(TINY).train()
    assert not Reader(model).model.training


def test_the_shipped_model_rebuilds_what_it_sees(clevr_scenes: list[InferredScene]) -> None:
    for scene in clevr_scenes:
        assert scene.images is not None
        for seen, view in zip(scene.images, scene.render_many(scene.views), strict=True):
            flat = seen.mean((1, 2), keepdim=True)
            assert (view.image - seen).square().mean() < 0.5 * (flat - seen).square().mean()


def test_the_shipped_model_finds_the_place_of_its_own_pictures(clevr_scenes: list[InferredScene]) -> None:
    """Viewpoints that are estimated for pictures it has seen lie nearest to those that were inferred with the scene."""
    for scene in clevr_scenes:
        assert scene.images is not None
        apart = torch.cdist(scene.estimate(scene.images), scene.views)
        assert apart.argmin(1).tolist() == [0, 1, 2, 3]


def test_load_takes_names_and_folders(tmp_path: object) -> None:
    folder = f"{tmp_path}/saved"
    Ocloc(TINY).save_pretrained(folder)
    assert viewslots.load(folder).size == (32, 32)
    shipped = viewslots.load("compact")
    assert (shipped.size, shipped.slots, shipped.view_dim, shipped.device.type) == ((64, 64), 7, 4, "cpu")
    assert [viewslots.load(name).single for name in (folder, "compact", "umbra-clevr")] == [False, False, True]
    with pytest.raises(UserError, match="no such folder"):
        viewslots.load("no-such-model")
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        viewslots.lode  # noqa: B018


def test_importing_viewslots_is_light() -> None:
    code = "import sys, viewslots; viewslots.__version__; print('torch' in sys.modules, 'numpy' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False False\n"


def test_pairs_that_overlap(scene: InferredScene) -> None:
    """Of all pairs of shown objects, by a loop over pixels; the nearer one first."""
    for view in scene.render_many(scene.views):
        expected = set()
        for k in view.shown:
            for j in view.shown:
                meet = any(view.complete[k, y, x] >= 0.5 and view.complete[j, y, x] >= 0.5
                           for y in range(32) for x in range(32))  # fmt: skip
                if k != j and meet and view.order[k] > view.order[j]:
                    expected.add((k, j))
        assert set(view.overlapping()) == expected
