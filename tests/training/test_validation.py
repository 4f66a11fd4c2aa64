"""Validation: the same noise and the final temperatures whenever it is asked, on the first views of held-out scenes."""

import math
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from shape_world import ShapeWorld, make_shapes
from torch import Tensor

from viewslots.data.dataset import SceneDataset
from viewslots.data.store import SplitArrays, Store
from viewslots.data.views import FirstViews
from viewslots.errors import UserError
from viewslots.experiments import experiment
from viewslots.figures.sheets import CAPTION, GAP, decomposition_sheet
from viewslots.methods.contract import Search
from viewslots.methods.ocloc.model import Ocloc, OclocAnswer
from viewslots.methods.ocloc.schedule import Annealing
from viewslots.methods.per_view.model import PerView, PerViewAnswer
from viewslots.metrics.score import METRICS, score_scenes
from viewslots.training import feed, validation
from viewslots.training.feed import training_generator
from viewslots.training.validation import (
    Diagnostics,
    Validation,
    diagnose,
    live_split,
    plain,
    warnings,
    weighted_means,
)
from viewslots.types import Decomposition

CPU = torch.device("cpu")
TINY = experiment("tiny").model
SMALLER = replace(
    TINY,
    image_size=16,
    object_decoder=replace(TINY.object_decoder, final_scale=2),
    background_decoder=replace(TINY.background_decoder, final_scale=2),
)


@pytest.fixture
def model() -> Ocloc:
    return Ocloc(experiment("tiny").model, torch.Generator().manual_seed(1)).train()


@pytest.fixture(scope="module")
def split() -> SplitArrays:
    world = ShapeWorld()
    pictures = world.render([world.sample(0, "valid", index) for index in range(5)], 2)
    return SplitArrays.from_pictures("valid", pictures)


def make(split: SplitArrays, views: int = 2) -> Validation:
    return Validation(split, views=views, size=(32, 32), device=CPU)


def test_it_changes_nothing_and_answers_the_same(model: Ocloc, split: SplitArrays) -> None:
    before = {name: value.clone() for name, value in model.state_dict().items()}
    check = make(split)
    first = check(model)
    second = check(model)
    assert first.to_json() == second.to_json()
    assert model.training
    assert model.nvil.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_the_loss_is_that_of_the_end_of_training(model: Ocloc, split: SplitArrays) -> None:
    batch = SceneDataset(split, views=FirstViews(2)).batch(range(5))
    end = Annealing(temperature_prs=0.5, temperature_shp=0.5, softness=0.5, compactness_rate=0.0)
    noise = model.draw_noise(batch, training_generator(CPU, "validation loss", 0))
    with torch.no_grad():
        terms = model.eval().elbo(batch, end, noise)
    found = make(split)(model)
    for field in fields(terms):
        assert found.terms[field.name] == pytest.approx(getattr(terms, field.name).mean().item(), rel=1e-5), field.name
    parts = (terms.constant, terms.nll, terms.view, terms.attr, terms.rho, terms.prs)
    assert found.loss == pytest.approx(sum(part.mean().item() for part in parts), rel=1e-5)


def test_parts_of_any_size_give_the_mean_over_scenes(
    model: Ocloc, split: SplitArrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise depends on the parts, so the constant, which needs none, is compared; and the scores' number of scenes."""
    monkeypatch.setattr(validation, "BATCH", 2)
    check = make(split)
    assert check.parts(256) == [range(0, 2), range(2, 4), range(4, 5)]
    assert check.parts(3) == [range(0, 2), range(2, 3)]
    small = check(model)
    monkeypatch.setattr(validation, "BATCH", 32)
    assert small.terms["constant"] == pytest.approx(make(split)(model).terms["constant"], rel=1e-6)


def test_the_first_views_alone_count(model: Ocloc, split: SplitArrays) -> None:
    def changed(view: int) -> SplitArrays:
        image = np.array(split["image"])
        image[:, view] = 255 - image[:, view]
        return replace(split, arrays={**split.arrays, "image": image})

    plain_figures = make(split)(model).to_json()
    assert make(changed(2))(model).to_json() == plain_figures
    assert make(changed(1))(model).to_json() != plain_figures


def test_scores_are_those_of_the_answers(model: Ocloc, split: SplitArrays) -> None:
    data = SceneDataset(split, views=FirstViews(2))
    answer = model.eval().infer(data.batch(range(5)), training_generator(CPU, "validation answer", 0)).decomposition()
    found = make(split)(model)
    assert found.scores == score_scenes(answer, data.truth(range(5))).paper()
    assert tuple(found.scores) == METRICS
    assert found.diagnostics.absent == pytest.approx((answer.presence < 0.5).float().mean().item())


def test_the_per_view_baseline_is_validated_too(split: SplitArrays) -> None:
    found = make(split)(PerView(experiment("tiny").model))
    assert np.isfinite(found.loss)
    choice = found.diagnostics.own
    assert list(choice) == [f"background_choice_{slot}" for slot in range(3)]
    assert sum(choice.values()) == pytest.approx(1)


def test_pictures_and_truth_are_shrunk_together(model: Ocloc, tmp_path: Path) -> None:
    split = Store.open(make_shapes(tmp_path / "large", train=2, valid=2, size=64)).split("valid")
    truth = SceneDataset(split, views=FirstViews(2)).truth(range(2))
    small = SceneDataset(split, views=FirstViews(2), size=(32, 32)).truth(range(2))
    assert small.segment.shape == small.overlap.shape == (2, 2, 32, 32)
    square = truth.shapes[0, 1, 0, 20:22, 30:32].float().mean().round()
    assert small.shapes[0, 1, 0, 10, 15] == square
    assert torch.equal(small.segment[..., 5, 7], truth.segment[..., 11, 15])
    assert np.isfinite(make(split)(model).loss)


def test_live_scenes_to_validate_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "LIVE_SCENES", 5)
    monkeypatch.setattr(feed, "RENDER_SCENES", 2)
    world = ShapeWorld()
    found = live_split(world, 2, CPU)
    whole = world.render([world.sample(0, "valid", index) for index in range(5)], 2)
    for key in world.keys:
        assert np.array_equal(found[key], getattr(whole.first_views(2), key)), key


@pytest.mark.parametrize("search", [None, Search(2, looks=3, refinement=4, spare=5)])
def test_a_method_s_search_without_looks_and_gradient_steps(
    model: Ocloc, split: SplitArrays, monkeypatch: pytest.MonkeyPatch, search: Search | None
) -> None:
    """The scores are those of the starts alone; the method's own search stays what it was."""
    monkeypatch.setattr(Ocloc, "default_search", search)
    found = make(split)(model)
    assert model.default_search == search
    assert model.training
    data, generator = SceneDataset(split, views=FirstViews(2)), training_generator(CPU, "validation answer", 0)
    answer = model.eval().infer(data.batch(range(5)), generator, search=search and Search(2)).decomposition()
    assert found.scores == score_scenes(answer, data.truth(range(5))).paper()
    assert found.diagnostics.absent == pytest.approx((answer.presence < 0.5).float().mean().item())
    sampled = not bool(((answer.presence == 0) | (answer.presence == 1)).all())
    assert sampled == (search is None)


def test_a_failure_leaves_the_model_in_training(
    model: Ocloc, split: SplitArrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def failing(*given: object, search: Search | None) -> None:
        seen.append(search)
        raise RuntimeError("no answer")

    monkeypatch.setattr(Ocloc, "default_search", Search(3, looks=1, refinement=1))
    monkeypatch.setattr(model, "infer", failing)
    with pytest.raises(RuntimeError, match="no answer"):
        make(split)(model)
    assert seen == [Search(3)]
    assert model.default_search == Search(3, looks=1, refinement=1)
    assert model.training


@pytest.mark.parametrize("left", [("image",), ("image", "num_objects", "shapes")])
@pytest.mark.parametrize("side", [32, 16])
def test_pictures_without_their_truth(model: Ocloc, split: SplitArrays, left: tuple[str, ...], side: int) -> None:
    """Loss, health and pictures as ever; nothing to score."""
    if side == 16:
        model = Ocloc(SMALLER, torch.Generator().manual_seed(1)).train()
    bare = replace(split, arrays={key: split[key] for key in left})
    known, found = (Validation(part, views=2, size=(side, side), device=CPU)(model) for part in (split, bare))
    assert found.scores == {}
    assert found.terms == known.terms
    assert found.diagnostics == known.diagnostics
    assert found.sheet.tobytes() == known.sheet.tobytes()
    assert known.to_json() == found.to_json() | known.scores


def test_pictures_with_a_part_of_their_truth(model: Ocloc, split: SplitArrays) -> None:
    """What is seen, without complete shapes: scored as far as that goes, as with the whole truth."""
    seen = replace(split, arrays={key: split[key] for key in ("image", "segment")})
    known, found = (make(part)(model) for part in (split, seen))
    assert found.loss == known.loss
    for name, value in known.scores.items():
        assert found.scores[name] == (None if name in ("IoU", "F1", "OOA") else value), name


def test_an_empty_split_is_refused(split: SplitArrays) -> None:
    arrays = {key: value[:0] for key, value in split.arrays.items()}
    with pytest.raises(UserError, match="no scenes"):
        make(SplitArrays("valid", replace(split.size, scenes=0), arrays))


def test_scores_without_a_value() -> None:
    assert plain({"IoU": float("nan"), "OCA": None, "F1": 0.5}) == {"IoU": None, "OCA": None, "F1": 0.5}


def test_the_sheet_shows_what_it_says(model: Ocloc, split: SplitArrays) -> None:
    batch = SceneDataset(split, views=FirstViews(2)).batch(range(2))
    answer = model.eval().infer(batch, torch.Generator().manual_seed(0)).decomposition()
    sheet = np.asarray(decomposition_sheet(batch.image, answer, zoom=2))
    top = CAPTION + GAP + 64 + GAP  # the second view of the first scene

    def cell(column: int) -> np.ndarray:
        left = GAP + column * (64 + GAP)
        return sheet[top : top + 64 : 2, left : left + 64 : 2].astype(int)

    def levels(picture: torch.Tensor) -> np.ndarray:
        return (picture.clamp(0, 1) * 255).round().permute(1, 2, 0).numpy().astype(int)

    masks, rebuilt = answer.layer_masks[0, 1], answer.reconstruction[0, 1]
    expected = [batch.image[0, 1], rebuilt]
    expected += [mask * rebuilt + (1 - mask) * 0.5 for mask in (masks[1], masks[2], masks[0])]
    assert sheet.shape[1] == len(expected) * (64 + GAP) + GAP
    for column, picture in enumerate(expected):
        assert abs(cell(column) - levels(picture)).max() <= 1, column


# Collapse is noticed: hand-made answers with known figures, and the words that follow from them.

B, M, L, SIDE = 2, 2, 4, 4


def decomposed(masks: Tensor, presence: Tensor | None = None) -> Decomposition:
    return Decomposition(
        reconstruction=torch.zeros(B, M, 3, SIDE, SIDE),
        layer_masks=masks,
        has_background=True,
        complete_shapes=None,
        presence=torch.ones(B, L - 1) if presence is None else presence,
        presence_probability=None,
        depth_order=None,
    )


def hard(winner: Tensor) -> Tensor:
    """One-hot masks for the winning layer of each pixel."""
    return torch.nn.functional.one_hot(winner, L).permute(0, 1, 4, 2, 3).float()


ALL = torch.ones(B, M, dtype=torch.bool)


def test_padded_views_do_not_count() -> None:
    winner = torch.zeros(B, M, SIDE, SIDE, dtype=torch.long)
    winner[0, 0, 0] = 1
    masks, real = hard(winner), ALL.clone()
    masks[1, 1:] = 1 / L
    masks[1, 1:, 2] += 0.1  # would win
    real[1, 1:] = False
    found = diagnose(decomposed(masks), real, {})
    assert found.slots_used == pytest.approx(1 / 2)
    assert found.background_share == pytest.approx(1 - SIDE / (int(real.sum()) * SIDE * SIDE))
    assert (found.mask_entropy, found.object_entropy) == (0, 0)


def test_figures_of_a_decided_answer() -> None:
    winner = torch.zeros(B, M, SIDE, SIDE, dtype=torch.long)
    winner[0, 1, 0, 0] = 1  # one pixel in one view is enough
    winner[0, 0, 1, :2] = 3
    winner[1, :, 2] = 2
    found = diagnose(decomposed(hard(winner), torch.tensor([[0.9, 0.4, 0.5], [0.1, 0.7, 0.2]])), ALL, {})
    assert found.slots_used == pytest.approx((2 + 1) / 2)
    assert found.background_share == pytest.approx(1 - (1 + 2 + 2 * SIDE) / (B * M * SIDE * SIDE))
    assert found.mask_entropy == pytest.approx(0)
    assert found.object_entropy == pytest.approx(0)
    assert found.absent == pytest.approx(3 / 6)
    assert warnings(found, 1000, 1000) == {}


def test_slots_that_share_everything() -> None:
    found = diagnose(decomposed(torch.full((B, M, L, SIDE, SIDE), 1 / L)), ALL, {})
    assert found.mask_entropy == pytest.approx(math.log(L))
    assert found.object_entropy == pytest.approx(math.log(L - 1))
    early, late = warnings(found, 300, 1000)["shared"], warnings(found, 500, 1000)["still shared"]  # told once each
    assert "share everything at step 300" in early
    assert "may still come" in early
    assert "may still come" not in late


def test_objects_that_share_everything_behind_a_decided_background() -> None:
    """The mean entropy is low, since most pixels are background; among the objects it is not."""
    masks = torch.zeros(B, M, L, SIDE, SIDE)
    masks[:, :, 0] = 1
    masks[:, :, :, 0] = torch.tensor([0.01, 0.33, 0.33, 0.33])[:, None]
    found = diagnose(decomposed(masks), ALL, {})
    assert found.mask_entropy < 0.5 * math.log(L)
    assert found.object_entropy == pytest.approx(math.log(3))
    assert set(warnings(found, 300, 1000)) == {"shared"}


def test_a_background_that_takes_all() -> None:
    found = diagnose(decomposed(hard(torch.zeros(B, M, SIDE, SIDE, dtype=torch.long))), ALL, {})
    assert found.slots_used == 0
    assert found.background_share == 1
    line = warnings(found, 300, 1000)["no objects"]
    assert "no objects by step 300" in line
    assert "--seed" in line
    assert set(warnings(found, 300, 1000)) == {"no objects"}


def test_nothing_is_said_too_early() -> None:
    found = Diagnostics(2, 0.0, 1.0, math.log(2), 0.0, 1.0, {})
    assert warnings(found, 199, 1000) == {}
    assert set(warnings(found, 200, 1000)) == {"no objects", "shared"}


def test_one_object_slot_has_nobody_to_share_with() -> None:
    found = Diagnostics(2, 1.0, 0.5, 0.0, 0.0, 0.0, {})
    assert warnings(found, 1000, 1000) == {}
    assert warnings(replace(found, object_entropy=0.1), 1000, 1000) == {}


def test_figures_as_json() -> None:
    found = Diagnostics(2, 1.5, 0.5, 0.1, 0.2, 0.3, {"background_choice_1": 0.25}).to_json()
    assert found["background_choice_1"] == 0.25
    assert found["slots_used"] == 1.5
    assert all(isinstance(value, float) for value in found.values())
    bare = Diagnostics(2, 1.5, None, 0.1, 0.2, None, {}).to_json()
    assert set(bare) == {"slots_used", "mask_entropy", "object_entropy"}


def test_how_often_each_slot_is_the_background(model: Ocloc) -> None:
    """The method's own figure, from hand-made chances."""
    chances = torch.nn.functional.one_hot(torch.tensor([3, 0]), L).float().log_softmax(1)
    answer = OclocAnswer(model, SimpleNamespace(log_pi=chances), None, None)  # type: ignore[arg-type]
    shares = {
        "background_choice_0": 0.5,
        "background_choice_1": 0,
        "background_choice_2": 0,
        "background_choice_3": 0.5,
    }
    assert model.diagnostics(answer) == pytest.approx(shares)


def test_padded_views_of_the_baseline_choose_no_background() -> None:
    chances = torch.nn.functional.one_hot(torch.tensor([3, 0, 1, 2]), L).float().log_softmax(1)
    baseline, real = PerView(TINY), torch.tensor([[True, True], [True, False]])
    folded = SimpleNamespace(posterior=SimpleNamespace(log_pi=chances))
    found = baseline.diagnostics(PerViewAnswer(real, folded))  # type: ignore[arg-type]
    assert found == pytest.approx(
        {f"background_choice_{slot}": share for slot, share in enumerate([1 / 3, 1 / 3, 0, 1 / 3])}
    )


def test_without_background_and_presence_every_layer_is_an_object() -> None:
    winner = torch.ones(B, M, SIDE, SIDE, dtype=torch.long)
    winner[0, 1, 0, 0] = 0  # the first layer is a slot like any other here
    bare = replace(decomposed(hard(winner)), has_background=False, presence=None)
    found = diagnose(bare, ALL, {})
    assert found.slots_used == pytest.approx((2 + 1) / 2)
    assert (found.background_share, found.absent) == (None, None)
    shared = diagnose(replace(bare, layer_masks=torch.full((B, M, L, SIDE, SIDE), 1 / L)), ALL, {})
    assert shared.object_entropy == pytest.approx(shared.mask_entropy) == pytest.approx(math.log(L))
    assert set(warnings(shared, 1000, 1000)) == {"still shared"}
    assert warnings(found, 1000, 1000) == {}


@pytest.mark.parametrize("sizes", [(2, 1), (3,)])
def test_figures_of_a_method_are_means_over_scenes(sizes: tuple[int, ...]) -> None:
    values = iter([3.0, 5.0, 10.0])
    parts = [(size, {"x": sum(next(values) for _ in range(size)) / size}) for size in sizes]
    assert weighted_means(parts) == pytest.approx({"x": 6.0})
