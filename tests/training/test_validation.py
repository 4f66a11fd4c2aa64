"""Validation: the same noise and the final temperatures whenever it is asked, on the first views of held-out scenes."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from shape_world import ShapeWorld, make_shapes

from viewslots.data.dataset import SceneDataset
from viewslots.data.store import SplitArrays, Store
from viewslots.data.views import FirstViews
from viewslots.errors import UserError
from viewslots.experiments import EXPERIMENTS
from viewslots.figures.sheets import CAPTION, GAP, decomposition_sheet
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.schedule import Annealing
from viewslots.methods.ocloc.search import Search
from viewslots.methods.per_view.model import PerView
from viewslots.metrics.score import METRICS, score_scenes
from viewslots.training import validation
from viewslots.training.feed import keyed_generator
from viewslots.training.validation import Validation, live_split, plain, shrunk_truth

CPU = torch.device("cpu")


@pytest.fixture
def model() -> Ocloc:
    return Ocloc(EXPERIMENTS["tiny"].model, torch.Generator().manual_seed(1)).train()


@pytest.fixture(scope="module")
def split() -> SplitArrays:
    world = ShapeWorld()
    pictures = world.render([world.sample(0, "valid", index) for index in range(5)], 2)
    return SplitArrays.from_pictures("valid", pictures)


def make(split: SplitArrays, views: int = 2) -> Validation:
    return Validation(split, views=views, size=32, device=CPU)


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
    noise = model.draw_noise(batch, keyed_generator(CPU, "validation loss", 0))
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
    answer = model.eval().decompose(data.batch(range(5)), keyed_generator(CPU, "validation answer", 0))
    found = make(split)(model)
    assert found.scores == score_scenes(answer, data.truth(range(5))).paper()
    assert tuple(found.scores) == METRICS
    assert found.diagnostics.absent == pytest.approx((answer.presence < 0.5).float().mean().item())


def test_the_per_view_baseline_is_validated_too(split: SplitArrays) -> None:
    found = make(split)(PerView(EXPERIMENTS["tiny"].model))
    assert np.isfinite(found.loss)
    assert sum(found.diagnostics.background_choice) == pytest.approx(1)


def test_pictures_and_truth_are_shrunk_together(model: Ocloc, tmp_path: Path) -> None:
    split = Store.open(make_shapes(tmp_path / "large", train=2, valid=2, size=64)).split("valid")
    truth = SceneDataset(split, views=FirstViews(2)).truth(range(2))
    small = shrunk_truth(truth, 2)
    assert small.segment.shape == small.overlap.shape == (2, 2, 32, 32)
    square = truth.shapes[0, 1, 0, 20:22, 30:32].float().mean().round()
    assert small.shapes[0, 1, 0, 10, 15] == square
    assert torch.equal(small.segment[..., 5, 7], truth.segment[..., 11, 15])
    assert shrunk_truth(truth, 1) is truth
    assert np.isfinite(make(split)(model).loss)


def test_live_scenes_to_validate_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "LIVE_SCENES", 5)
    monkeypatch.setattr(validation, "RENDER_SCENES", 2)
    world = ShapeWorld()
    found = live_split(world, 2, CPU)
    whole = world.render([world.sample(0, "valid", index) for index in range(5)], 2)
    for key in world.keys:
        assert np.array_equal(found[key], getattr(whole.first_views(2), key)), key


@pytest.mark.parametrize("care", [None, Search(2, looks=3, refinement=4)])
def test_a_model_s_care_without_looks_and_gradient_steps(model: Ocloc, split: SplitArrays, care: Care | None) -> None:
    """The scores are those of the starts alone; afterwards the model takes the care that it took."""
    model.care = care
    found = make(split)(model)
    assert model.care == care
    assert model.training
    model.care = care and Search(2)
    data = SceneDataset(split, views=FirstViews(2))
    answer = model.eval().decompose(data.batch(range(5)), keyed_generator(CPU, "validation answer", 0))
    assert found.scores == score_scenes(answer, data.truth(range(5))).paper()
    assert found.diagnostics.absent == pytest.approx((answer.presence < 0.5).float().mean().item())
    sampled = not bool(((answer.presence == 0) | (answer.presence == 1)).all())
    assert sampled == (care is None)


def test_a_model_s_care_comes_back_from_a_failure(
    model: Ocloc, split: SplitArrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def failing(*given: object) -> None:
        seen.append(model.care)
        raise RuntimeError("no answer")

    model.take_care(Search(3, looks=1, refinement=1))
    monkeypatch.setattr(model, "decompose", failing)
    with pytest.raises(RuntimeError, match="no answer"):
        make(split)(model)
    assert seen == [Search(3)]
    assert model.care == Search(3, looks=1, refinement=1)
    assert model.training


def test_an_empty_split_is_refused(split: SplitArrays) -> None:
    arrays = {key: value[:0] for key, value in split.arrays.items()}
    with pytest.raises(UserError, match="no scenes"):
        make(SplitArrays("valid", replace(split.size, scenes=0), arrays))


def test_scores_without_a_value() -> None:
    assert plain({"IoU": float("nan"), "OCA": None, "F1": 0.5}) == {"IoU": None, "OCA": None, "F1": 0.5}


def test_the_sheet_shows_what_it_says(model: Ocloc, split: SplitArrays) -> None:
    batch = SceneDataset(split, views=FirstViews(2)).batch(range(2))
    answer = model.eval().decompose(batch, torch.Generator().manual_seed(0))
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
