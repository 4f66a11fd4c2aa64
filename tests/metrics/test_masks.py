"""FG-ARI, mBO and mIoU against loops over pixels and masks, scikit-learn, all permutations, and by hand."""

import itertools
import math

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score, jaccard_score
from toy_scenes import padded, perfect_prediction, random_prediction, random_truth

from viewslots.metrics.extras import MASK_SCORES, Ratio, mask_scores, winning_layer
from viewslots.metrics.masks import best_overlaps, fg_ari, matched_overlap_of_all, matched_overlaps, pixel_tables
from viewslots.metrics.score import score_scenes
from viewslots.types import Decomposition, SceneTruth

BACK = 255


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def case(seed: int, slots: int = 4, has_background: bool = True) -> tuple[Decomposition, SceneTruth]:
    rng = np.random.default_rng(seed)
    truth = random_truth(rng, scenes=4)
    return random_prediction(rng, truth, slots, has_background), truth


def scores(prediction: Decomposition, truth: SceneTruth) -> dict[str, float | None]:
    return mask_scores(winning_layer(prediction), prediction.layer_masks.shape[2], truth).values()


def slow_iou(one: np.ndarray, other: np.ndarray) -> float:
    """Of two masks, by scikit-learn."""
    return float(jaccard_score(one.ravel(), other.ravel(), zero_division=0))


def slow_unit(segment: np.ndarray, layer: np.ndarray, layers: int) -> dict[str, float] | None:
    """Of one picture, or of all pictures of a scene as one."""
    seen = segment != BACK
    objects = np.unique(segment[seen])
    if not len(objects):
        return None
    iou = np.array([[slow_iou(segment == g, layer == k) for k in range(layers)] for g in objects])
    wide = np.pad(iou, ((0, 0), (0, max(0, len(objects) - layers))))  # objects may be left without a layer
    choices = itertools.permutations(range(wide.shape[1]), len(objects))
    return {
        "fg_ari": adjusted_rand_score(segment[seen], layer[seen]),
        "mbo": iou.max(1).mean(),
        "miou": max(wide[range(len(objects)), list(choice)].mean() for choice in choices),
    }


def slow_scores(prediction: Decomposition, truth: SceneTruth) -> dict[str, float]:
    layer, layers = prediction.layer_masks.numpy().argmax(2), prediction.layer_masks.shape[2]
    segment = truth.segment.numpy()
    whole = [slow_unit(*pair, layers) for pair in zip(segment, layer, strict=True)]
    single = [slow_unit(segment[place], layer[place], layers) for place in np.ndindex(*segment.shape[:2])]
    means = {}
    for prefix, units in (("", whole), ("picture_", single)):
        known = [unit for unit in units if unit is not None]
        means |= {f"{prefix}{name}": np.mean([unit[name] for unit in known]) for name in known[0]}
    return means


@pytest.mark.parametrize("has_background", [True, False])
@pytest.mark.parametrize("slots", [1, 3, 5])
@pytest.mark.parametrize("seed", range(2))
def test_same_as_the_slow_twins(seed: int, slots: int, has_background: bool) -> None:
    prediction, truth = case(seed, slots, has_background)
    assert scores(prediction, truth) == pytest.approx(slow_scores(prediction, truth), abs=1e-12)


def test_segments_alone_are_enough_and_padded_views_do_not_count() -> None:
    prediction, truth = case(5)
    expected = scores(prediction, truth)
    bare = SceneTruth(segment=truth.segment, view_mask=truth.view_mask)
    assert scores(prediction, bare) == expected
    assert scores(*padded(prediction, truth, 2)) == expected


def test_the_truth_itself_scores_one() -> None:
    truth = random_truth(np.random.default_rng(1), scenes=5)
    assert scores(perfect_prediction(truth, 2), truth) == dict.fromkeys(MASK_SCORES, 1.0)


@pytest.mark.parametrize("has_background", [True, False])
def test_fg_ari_is_ari_o_but_for_the_background_layer(has_background: bool) -> None:
    prediction, truth = case(3, has_background=has_background)
    equal = scores(prediction, truth)["fg_ari"] == pytest.approx(score_scenes(prediction, truth).paper()["ARI-O"])
    assert equal is not has_background


def table(segment: list[list[int]], layer: list[list[int]], layers: int) -> torch.Tensor:
    """Of single pictures of one row."""
    truth = SceneTruth(
        segment=torch.tensor(segment, dtype=torch.uint8)[:, None, None],
        view_mask=torch.ones(len(segment), 1, dtype=torch.bool),
    )
    return pixel_tables(torch.tensor(layer)[:, None, None], layers, truth)[:, 0]


def test_overlaps_by_hand() -> None:
    """Objects 0 and 1 share layer 1: with a layer for each alone, one of them is left with the pixel in layer 0."""
    found = table([[BACK, BACK, 0, 0, 0, 1], [BACK] * 6], [[0, 0, 1, 1, 0, 1], [0] * 6], 2)
    assert best_overlaps(found)[0].tolist() == [2 / 4, 1 / 3]
    assert matched_overlaps(found)[0].tolist() == [1 / 5, 1 / 3]  # beats 2/4 + 0
    assert best_overlaps(found)[1].isnan().all()
    assert matched_overlaps(found)[1].isnan().all()
    assert fg_ari(found).isnan().tolist() == [False, True]


def test_an_object_that_is_not_seen_is_no_object() -> None:
    found = table([[BACK, 1, 1, 2]], [[0, 1, 1, 1]], 2)
    assert best_overlaps(found)[0].tolist() == pytest.approx([math.nan, 2 / 3, 1 / 3], nan_ok=True)


def test_a_world_without_objects() -> None:
    found = table([[BACK, BACK]], [[0, 1]], 2)
    assert fg_ari(found).isnan().all()
    assert best_overlaps(found).shape == matched_overlaps(found).shape == (1, 0)
    assert matched_overlap_of_all(found).tolist() == [0.25]  # background 1/2; the other layer is superfluous


def test_overlap_of_all_by_hand() -> None:
    """Background 2/3, object 2/3, a layer that nobody needs: divided by three. Empty layers change nothing."""
    segment, layer = [[BACK, BACK, BACK, 0, 0, 0]], [[0, 0, 2, 1, 1, 2]]
    for layers in (3, 7):
        assert matched_overlap_of_all(table(segment, layer, layers)).tolist() == pytest.approx([4 / 9])
    assert matched_overlap_of_all(table([[BACK, 0, 1, 2]], [[0, 1, 1, 0]], 2)).tolist() == pytest.approx([1 / 4])


def slow_overlap_of_all(segment: np.ndarray, layer: np.ndarray, layers: int) -> set[float]:
    """The best one-to-one matching by trying all; where several are best, no score is wrong."""
    truth = [segment == g for g in (BACK, *range(4))]
    mine = [layer == k for k in range(layers)]
    empty = np.zeros_like(truth[0])
    size = max(len(truth), len(mine))
    truth, mine = (masks + [empty] * (size - len(masks)) for masks in (truth, mine))
    iou = np.array([[slow_iou(one, other) for other in mine] for one in truth])
    sums = {}
    for choice in itertools.permutations(range(size)):
        pairs = sum(bool(truth[row].any() or mine[column].any()) for row, column in enumerate(choice))
        sums.setdefault(round(sum(iou[row, column] for row, column in enumerate(choice)), 12), set()).add(pairs)
    best = max(sums)
    return {best / pairs for pairs in sums[best]}


@pytest.mark.parametrize("slots", [1, 3, 5])
def test_overlap_of_all_by_all_permutations(slots: int) -> None:
    prediction, truth = case(7, slots)
    layer, layers = winning_layer(prediction), prediction.layer_masks.shape[2]
    found = matched_overlap_of_all(pixel_tables(layer, layers, truth).flatten(0, 1))
    for value, segment, mine in zip(found, truth.segment.flatten(0, 1), layer.flatten(0, 1), strict=True):
        allowed = slow_overlap_of_all(segment.numpy(), mine.numpy(), layers)
        assert any(float(value) == pytest.approx(one, abs=1e-12) for one in allowed)


def test_a_scene_without_objects_is_left_out() -> None:
    ratio = Ratio.mean(torch.tensor([[0.5, math.nan], [math.nan, math.nan], [0.25, 0.75]]).double())
    assert (ratio.numerator.tolist(), ratio.denominator.tolist()) == ([0.5, 0.0, 1.0], [1.0, 0.0, 2.0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_scores_as_a_cpu_does() -> None:
    prediction, truth = case(9)
    tables = pixel_tables(winning_layer(prediction), prediction.layer_masks.shape[2], truth).flatten(0, 1)
    for score in (fg_ari, best_overlaps, matched_overlaps, matched_overlap_of_all):
        torch.testing.assert_close(score(tables.cuda()).cpu(), score(tables), equal_nan=True)
