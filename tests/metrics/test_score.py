"""All eight metrics together, against the slow twins and by hand."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch
from slow_metrics import slow_paper, slow_per_scene, slow_pooled
from toy_scenes import padded, perfect_prediction, random_prediction, random_truth, slow_scenes

from viewslots.errors import UserError
from viewslots.metrics import score as score_module
from viewslots.metrics.arrays import scene_truth
from viewslots.metrics.objects import true_objects
from viewslots.metrics.score import METRICS, SceneScores, score_scenes
from viewslots.types import Decomposition, SceneTruth, concatenated


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def case(seed: int = 0, slots: int = 4, has_background: bool = True) -> tuple[Decomposition, SceneTruth]:
    rng = np.random.default_rng(seed)
    truth = random_truth(rng, scenes=4)
    return random_prediction(rng, truth, slots, has_background), truth


def close(found: SceneScores, expected: SceneScores) -> bool:
    """Equal up to rounding, left-out scenes included."""
    names = [field.name for field in fields(SceneScores)]
    pairs = [(getattr(found, name), getattr(expected, name)) for name in names]
    return all(torch.allclose(one, other, rtol=0, atol=1e-12, equal_nan=True) for one, other in pairs)


@pytest.mark.parametrize("has_background", [True, False])
@pytest.mark.parametrize("slots", [1, 2, 4, 6])
@pytest.mark.parametrize("seed", range(3))
def test_same_as_the_slow_twins(seed: int, slots: int, has_background: bool) -> None:
    prediction, truth = case(seed, slots, has_background)
    found, scenes = score_scenes(prediction, truth), slow_scenes(prediction, truth)
    assert found.per_scene() == {name: pytest.approx(v, abs=1e-9) for name, v in slow_per_scene(scenes).items()}
    assert found.paper() == pytest.approx(slow_paper(scenes), abs=1e-9)
    assert found.pooled() == pytest.approx(slow_pooled(scenes), abs=1e-9)
    assert found.paper() != found.pooled()


@pytest.mark.parametrize("has_background", [True, False])
def test_same_as_the_slow_twins_with_ten_objects_and_eleven_slots(has_background: bool) -> None:
    rng = np.random.default_rng(11)
    truth = random_truth(rng, scenes=10, objects=10)
    prediction = random_prediction(rng, truth, 11, has_background)
    found, scenes = score_scenes(prediction, truth), slow_scenes(prediction, truth)
    assert found.paper() == pytest.approx(slow_paper(scenes), abs=1e-9)
    assert found.pooled() == pytest.approx(slow_pooled(scenes), abs=1e-9)


def test_same_as_the_slow_twins_without_depth_order() -> None:
    prediction, truth = case(1)
    truth = replace(truth, depth_order=None)
    scenes = slow_scenes(prediction, truth)
    assert score_scenes(prediction, truth).paper() == pytest.approx(slow_paper(scenes), abs=1e-9)
    assert score_scenes(prediction, truth).pooled() == pytest.approx(slow_pooled(scenes), abs=1e-9)


@pytest.mark.parametrize("has_background", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_same_as_the_slow_twins_without_complete_shapes(seed: int, has_background: bool) -> None:
    """What needs them is missing; the rest is as if they were known."""
    prediction, truth = case(seed, 4, has_background)
    scenes = slow_scenes(prediction, truth)
    found = score_scenes(prediction, replace(truth, shapes=None, overlap=None, depth_order=None))
    lost = {"IoU", "F1", "OOA"}
    for values, expected, names in (
        (found.paper(), slow_paper(scenes), lost),
        (found.pooled(), slow_pooled(scenes), lost | {"ARI-O", "AMI-O"}),
    ):
        assert {name for name, value in values.items() if value is None} == names
        assert values == pytest.approx(expected | dict.fromkeys(names), abs=1e-9)


def test_without_a_segment_nothing_is_scored() -> None:
    prediction, truth = case()
    found = score_scenes(prediction, replace(truth, segment=None))
    assert found.paper() == found.pooled() == dict.fromkeys(METRICS)
    assert found.per_scene() == {name: [None] * 4 for name in METRICS}


def test_room_for_objects() -> None:
    _, truth = case()
    assert true_objects(truth) == truth.shapes.shape[2]
    segment = torch.tensor([[[[3, 255]], [[9, 255]]]], dtype=torch.uint8)
    bare = replace(truth, segment=segment, shapes=None, view_mask=torch.tensor([[True, False]]))
    assert true_objects(bare) == 4  # the padded view names nothing
    assert true_objects(replace(bare, segment=torch.full_like(segment, 255))) == 0


def toy() -> tuple[Decomposition, SceneTruth]:
    """Three scenes of one view of 1 x 4 pixels with slots a and b, small enough for a pencil.

    A: objects 0 and 1 share pixel 1. The background wins pixel 2, where object 1 is seen and slot a comes second: pixel
       counts give 0 - a, 1 - b, soft sums 1.02 + 0 < 0.98 + 0.45 give 0 - b, 1 - a. The depth order contradicts the
       segment.
    B: one object alone.
    C: pixel 1 is covered by object 0, but the segment calls it background. The objects share pixel 0.
    """
    segment = [[0, 0, 1, 255], [0, 0, 0, 255], [0, 255, 255, 255]]
    nothing = [0, 0, 0, 0]
    shapes = [
        [[255, 255, 0, 0], [0, 255, 255, 0]],
        [[255, 255, 255, 102], nothing],
        [[153, 255, 0, 0], [102, 0, 0, 0]],
    ]
    masks = [
        [[0, 0, 0.55, 1], [0.51, 0.51, 0.45, 0], [0.49, 0.49, 0, 0]],
        [[0, 0, 0, 1], [1, 1, 1, 0], nothing],
        [[0.3, 0.7, 1, 1], [0.6, 0.3, 0, 0], [0.1, 0, 0, 0]],
    ]
    complete = [
        [[1, 1, 0, 0], [0, 0.5, 0.5, 0]],
        [[1, 1, 0.5, 0.5], nothing],
        [[0, 1, 0, 0], [0.4, 0, 0, 0]],
    ]
    truth = scene_truth(
        torch.tensor(segment, dtype=torch.uint8)[:, None, None],
        torch.tensor(shapes, dtype=torch.uint8)[:, None, :, None],
        torch.tensor([[[0.0, 1.0]], [[0.0, -torch.inf]], [[1.0, 0.0]]]),
    )
    prediction = Decomposition(
        reconstruction=torch.zeros(3, 1, 3, 1, 4),
        layer_masks=torch.tensor(masks, dtype=torch.float64)[:, None, :, None],
        has_background=True,
        complete_shapes=torch.tensor(complete, dtype=torch.float64)[:, None, :, None],
        presence=torch.tensor([[0.9, 0.5], [0.9, 0.1], [0.9, 0.8]]),
        presence_probability=None,
        depth_order=torch.tensor([[[1.0, 2.0]], [[1.0, 2.0]], [[1.0, 2.0]]]),
    )
    return prediction, truth


def test_both_conventions_by_hand() -> None:
    """Table of A, all pixels: b_all = 1, b_row = 1, b_col = 2, c = 6: ARI = (1 - 1/3) / (3/2 - 1/3) = 4/7."""
    scores = score_scenes(*toy())
    same = {"ARI-A": (4 / 7 + 1 + 1) / 3, "OCA": 2 / 3}
    paper = {
        "ARI-O": (0 + 1 + 1) / 3,
        "AMI-O": (0 + 1 + 1) / 3,
        "IoU": ((1 + 0.5) / 2 + 2.9 / 3.5 + (1 / 1.6 + 1) / 2) / 3,
        "F1": ((1 + 2 / 3) / 2 + 5.8 / 6.4 + (2 / 2.6 + 1) / 2) / 3,
        "OOA": (1 + 0) / 2,  # A: weight 1, right by depth; B: no pair; C: weight 0.24, wrong
    }
    pooled = {
        "ARI-O": (0 + 1 + 0) / 3,
        "AMI-O": (0 + 1 + 0) / 3,
        "IoU": (0.5 / 2.5 + 1 / 3 + 2.9 / 3.5 + 1 / 1.6 + 1) / 5,
        "F1": (1 / 3 + 2 / 4 + 5.8 / 6.4 + 2 / 2.6 + 1) / 5,
        "OOA": 1 / 1.4,  # A: weight 1, right by the segment; C: weight 0.4, wrong
    }
    ami = scores.paper()["AMI-A"]
    assert scores.paper() == pytest.approx(same | paper | {"AMI-A": ami}, abs=1e-12)
    assert scores.pooled() == pytest.approx(same | pooled | {"AMI-A": ami}, abs=1e-12)
    assert scores.per_scene()["OOA"] == [1, None, 0]
    assert scores.per_scene()["OCA"] == [1, 1, 0]


@pytest.mark.parametrize("extra_slots", [0, 2])
def test_the_truth_itself_scores_one(extra_slots: int) -> None:
    truth = random_truth(np.random.default_rng(0), scenes=6)
    visible = truth.shapes * (truth.segment[:, :, None] == torch.arange(4, dtype=torch.uint8)[:, None, None])
    truth = replace(truth, shapes=truth.shapes * visible.flatten(3).any(3).any(1)[:, None, :, None, None])
    scores = score_scenes(perfect_prediction(truth, extra_slots), truth)
    assert scores.paper() == pytest.approx(dict.fromkeys(METRICS, 1), abs=1e-7)
    derived = score_scenes(perfect_prediction(truth, extra_slots), truth).pooled()
    assert {name: derived[name] for name in ("ARI-A", "IoU", "F1", "OCA")} == pytest.approx(
        {"ARI-A": 1, "IoU": 1, "F1": 1, "OCA": 1}, abs=1e-7
    )


@pytest.mark.parametrize(
    ("missing", "unknown"),
    [("complete_shapes", {"IoU", "F1"}), ("presence", {"OCA"}), ("depth_order", {"OOA"})],
)
def test_what_a_method_cannot_answer_is_none(missing: str, unknown: set[str]) -> None:
    prediction, truth = case()
    without: Any = {missing: None}
    scores, full = score_scenes(replace(prediction, **without), truth), score_scenes(prediction, truth)
    for found, expected in ((scores.paper(), full.paper()), (scores.pooled(), full.pooled())):
        assert found == {name: None if name in unknown else value for name, value in expected.items()}
    assert all(scores.per_scene()[name] == [None] * 4 for name in unknown)


def test_a_method_without_background_counts_without_presence() -> None:
    prediction, truth = case(has_background=False)
    counted = score_scenes(replace(prediction, presence=None), truth).per_scene()["OCA"]
    assert counted == score_scenes(prediction, truth).per_scene()["OCA"]
    assert None not in counted


def test_scenes_without_foreground_are_left_out() -> None:
    prediction, truth = toy()
    bare = replace(truth, segment=truth.segment.clone(), shapes=truth.shapes.clone())
    bare.segment[1], bare.shapes[1] = 255, 0
    scores = score_scenes(prediction, bare)
    for name in ("ARI-O", "AMI-O", "IoU", "F1", "OOA"):
        assert scores.per_scene()[name][1] is None
    assert scores.paper()["ARI-O"] == pytest.approx(1 / 2)
    assert scores.pooled()["ARI-O"] == 0
    assert scores.per_scene()["OCA"][1] == 0
    nothing = replace(bare, segment=torch.full_like(bare.segment, 255), shapes=torch.zeros_like(bare.shapes))
    assert score_scenes(prediction, nothing).paper()["ARI-O"] is None
    assert score_scenes(prediction, nothing).pooled()["IoU"] is None


def test_a_world_without_objects() -> None:
    prediction, truth = toy()
    empty = scene_truth(torch.full_like(truth.segment, 255), truth.shapes[:, :, :0], None)
    scores = score_scenes(replace(prediction, presence=torch.zeros(3, 2)), empty)
    assert {name: value for name, value in scores.paper().items() if value is not None} == {
        "ARI-A": 0,
        "AMI-A": 0,
        "OCA": 1,
    }


def test_an_object_that_is_never_visible_counts_for_shapes_alone() -> None:
    """It has a complete shape, so IoU asks for it; it has no pixel, so OCA does not."""
    prediction, truth = toy()
    hidden = replace(truth, segment=truth.segment.clone())
    hidden.segment[0, 0, 0, 2] = 255
    scores = score_scenes(prediction, hidden)
    assert scores.per_scene()["OCA"][0] == 0
    assert scores.per_scene()["IoU"][0] == pytest.approx(0.75)


@pytest.mark.parametrize("has_background", [True, False])
def test_padded_views_change_nothing(has_background: bool) -> None:
    prediction, truth = case(2, has_background=has_background)
    assert close(score_scenes(*padded(prediction, truth, 2)), score_scenes(prediction, truth))


def test_scenes_with_different_numbers_of_views() -> None:
    prediction, truth = case(3)
    mask = truth.view_mask.clone()
    mask[1, 0] = mask[2, 1] = False
    found = score_scenes(prediction, replace(truth, view_mask=mask))
    scenes = slow_scenes(prediction, replace(truth, view_mask=mask))
    assert found.paper() == pytest.approx(slow_paper(scenes), abs=1e-9)
    assert found.pooled() == pytest.approx(slow_pooled(scenes), abs=1e-9)


def test_blocks_of_scenes_score_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    prediction, truth = case(4)
    whole = score_scenes(prediction, truth)
    monkeypatch.setattr(score_module, "NUMBERS_AT_ONCE", {"cpu": 1})
    assert close(score_scenes(prediction, truth), whole)


def test_any_choice_of_scenes_averages_as_if_scored_alone() -> None:
    """With repetition, as a bootstrap draws them."""
    prediction, truth = case(5)
    chosen = [2, 0, 2, 3]
    again = [
        replace(value, **{f.name: v[chosen] for f in fields(value) if torch.is_tensor(v := getattr(value, f.name))})
        for value in (prediction, truth)
    ]
    direct = score_scenes(*again)
    picked = score_scenes(prediction, truth).select(chosen)
    assert close(picked, direct)
    assert picked.pooled() == pytest.approx(direct.pooled(), abs=1e-12)
    parts = [score_scenes(prediction, truth).select(torch.tensor([scene])) for scene in chosen]
    assert concatenated(parts).paper() == picked.paper()


def test_names_of_slots_do_not_matter() -> None:
    prediction, truth = case(6)
    order = torch.tensor([2, 0, 3, 1])
    assert prediction.complete_shapes is not None
    assert prediction.presence is not None
    assert prediction.depth_order is not None
    renamed = replace(
        prediction,
        layer_masks=prediction.layer_masks[:, :, [0, *(order + 1)]],
        complete_shapes=prediction.complete_shapes[:, :, order],
        presence=prediction.presence[:, order],
        depth_order=prediction.depth_order[:, :, order],
    )
    whole = score_scenes(prediction, truth).per_scene()
    found = score_scenes(renamed, truth).per_scene()
    for name in ("ARI-A", "AMI-A", "ARI-O", "AMI-O", "OCA"):
        assert found[name] == pytest.approx(whole[name], abs=1e-12)
    full = 3  # as many objects as slots: no slot is matched to an object of no pixels, where the order of slots decides
    for name in ("IoU", "F1", "OOA"):
        assert found[name][full] == pytest.approx(whole[name][full], abs=1e-12)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"presence": torch.zeros(4, 3)}, "presence"),
        ({"complete_shapes": torch.zeros(4, 2, 5, 7, 7)}, "complete_shapes"),
        ({"depth_order": torch.zeros(4, 1, 4)}, "depth_order"),
        ({"layer_masks": torch.zeros(4, 2, 5, 7, 6)}, "segment"),
        ({"layer_masks": torch.zeros(4, 2, 1, 7, 7)}, "object layer"),
        ({"layer_masks": torch.full((4, 2, 5, 7, 7), torch.nan)}, "layer_masks .*NaN"),
        ({"complete_shapes": torch.full((4, 2, 4, 7, 7), torch.nan)}, "complete_shapes .*NaN"),
        ({"depth_order": torch.full((4, 2, 4), torch.nan)}, "depth_order .*NaN"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], word: str) -> None:
    prediction, truth = case()
    with pytest.raises(UserError, match=word):
        score_scenes(replace(prediction, **change), truth)


def test_labels_beyond_the_shapes_are_refused() -> None:
    prediction, truth = case()
    wrong = truth.segment.clone()
    wrong[0, 0, 0, 0] = 4
    with pytest.raises(UserError, match="segment"):
        score_scenes(prediction, replace(truth, segment=wrong))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("has_background", [True, False])
def test_a_gpu_scores_as_a_cpu_does(has_background: bool) -> None:
    prediction, truth = padded(*case(7, has_background=has_background), 1)
    moved = [
        replace(value, **{f.name: v.cuda() for f in fields(value) if torch.is_tensor(v := getattr(value, f.name))})
        for value in (prediction, truth)
    ]
    found = score_scenes(*moved)
    assert found.values.device.type == "cpu"
    assert close(found, score_scenes(prediction, truth))
