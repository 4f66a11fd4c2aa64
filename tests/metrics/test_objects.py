"""True objects and their slots: matching, IoU and F1, order, count."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from slow_metrics import slow_count, slow_match, slow_order, slow_shapes
from toy_scenes import random_prediction, random_truth, slow_scenes

from viewslots.errors import UserError
from viewslots.metrics.objects import (
    PairOverlaps,
    assign,
    counted_objects,
    in_front,
    iou_and_f1,
    pair_overlaps,
    rightly_ordered,
    shape_sums,
    soft_overlap,
    visible_objects,
)
from viewslots.metrics.score import comparisons, match, tables_of


@pytest.mark.parametrize(("objects", "slots"), [(3, 3), (2, 5), (5, 2), (4, 1), (1, 4)])
def test_no_permutation_overlaps_more(objects: int, slots: int) -> None:
    overlap = torch.tensor(np.random.default_rng(objects).random((6, objects, slots)) * 100)
    for table, found in zip(overlap, assign(overlap), strict=True):
        pairs = [(g, int(k)) for g, k in enumerate(found) if k >= 0]
        assert len(pairs) == len({k for _, k in pairs}) == min(objects, slots)
        chosen = sum(float(table[pair]) for pair in pairs)
        wide = table if objects <= slots else table.mT
        ways = itertools.permutations(range(wide.shape[1]), wide.shape[0])
        assert chosen == pytest.approx(max(sum(float(wide[g, k]) for g, k in enumerate(way)) for way in ways))


def test_more_objects_than_slots_leave_some_unmatched() -> None:
    assert assign(torch.tensor([[[1.0], [7.0], [3.0]]]).double()).tolist() == [[-1, 0, -1]]


def test_ties_go_by_the_order_of_rows() -> None:
    assert assign(torch.zeros(1, 3, 4).double()).tolist() == [[0, 1, 2]]
    assert assign(torch.tensor([[[5.0, 5.0], [5.0, 5.0]]]).double()).tolist() == [[0, 1]]


def test_rounding_does_not_decide_between_equals() -> None:
    """Sums of the same numbers in another order."""
    overlap = torch.tensor([[[3.0, 3.0], [3.0, 3.0]]]).double()
    other = overlap + torch.tensor([[0.0, 1e-9], [1e-9, 0.0]]).double()
    assert assign(other).tolist() == assign(overlap).tolist()


def test_rubbish_is_refused() -> None:
    with pytest.raises(UserError, match="NaN"):
        assign(torch.tensor([[[1.0, torch.nan]]]).double())


@pytest.mark.parametrize("has_background", [True, False])
@pytest.mark.parametrize("slots", [2, 4, 6])
def test_hard_and_soft_matching_as_the_slow_twin(slots: int, has_background: bool) -> None:
    rng = np.random.default_rng(slots)
    truth = random_truth(rng, scenes=5)
    prediction = random_prediction(rng, truth, slots, has_background)
    (views,) = comparisons(prediction, truth)
    soft = assign(views.by_scene(soft_overlap(views.visible(), views.object_layers)))
    for found, is_soft in ((match(prediction, truth), False), (soft, True)):
        for row, scene in zip(found.tolist(), slow_scenes(prediction, truth), strict=True):
            assert {g: k for g, k in enumerate(row) if k >= 0} == slow_match(scene, soft=is_soft)


def shapes_scored(shapes: list[list[int]], complete: list[list[float]], slot: list[int]) -> list[list[float]]:
    """Objects and slots as rows of pixels."""
    true = torch.tensor(shapes, dtype=torch.uint8)[None, :, None]
    mine = torch.tensor(complete)[None, :, None]
    return iou_and_f1(shape_sums(true, mine, torch.tensor([slot])))[0].tolist()


def test_soft_minimum_and_maximum_by_hand() -> None:
    """min = .5 + .4 + 0, max = 1 + .6 + .25: 0.9 / 1.85 and 1.8 / 2.75."""
    found = shapes_scored([[255, 102, 0]], [[9.0, 9.0, 9.0], [0.5, 0.6, 0.25]], [1])
    assert found == [pytest.approx([0.9 / 1.85, 1.8 / 2.75], abs=1e-7)]


def test_a_perfect_shape_scores_one() -> None:
    true = torch.randint(0, 256, (3, 2, 5, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    found = iou_and_f1(shape_sums(true, true.double() / 255, torch.arange(2).repeat(3, 1)))
    assert found.flatten().tolist() == pytest.approx([1] * 12, abs=1e-12)


def test_unmatched_and_empty_objects_score_zero() -> None:
    assert shapes_scored([[255, 255], [0, 0], [255, 0]], [[0.5, 1.0], [0.0, 0.0]], [-1, 0, 1]) == [
        [0, 0],
        [0, 0],
        [0, 0],
    ]


@pytest.mark.parametrize("seed", range(3))
def test_shapes_as_the_slow_twin(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = random_truth(rng, scenes=3)
    prediction = random_prediction(rng, truth, slots=3)
    assert prediction.complete_shapes is not None
    for s, scene in enumerate(slow_scenes(prediction, truth)):
        slot = torch.tensor(rng.permutation([-1, 0, 1, 2]))
        matched = {g: k for g, k in enumerate(slot.tolist()) if k >= 0}
        sums = shape_sums(truth.shapes[s], prediction.complete_shapes[s], slot.expand(2, -1)).sum(0)
        there = sums[:, 1] > 0
        found = [tuple(row) for row in iou_and_f1(sums)[there].tolist()]
        assert np.array(found).flatten().tolist() == pytest.approx(
            np.array(slow_shapes(scene, matched)).flatten().tolist(), abs=1e-12
        )


def one_view(segment: list[int], shapes: list[list[int]]) -> PairOverlaps:
    return pair_overlaps(
        torch.tensor([[segment]], dtype=torch.uint8), torch.tensor(shapes, dtype=torch.uint8)[None, :, None]
    )


def test_weights_and_owners_by_hand() -> None:
    """Objects 0 and 1 share two pixels, 1 and 2 one, 0 and 2 none."""
    found = one_view([1, 0, 1, 255], [[51, 255, 0, 0], [255, 102, 204, 0], [0, 0, 51, 255]])
    assert found.product[0].tolist() == pytest.approx([0.2 * 1 + 1 * 0.4, 0, 0.8 * 0.2])
    assert found.region[0].tolist() == pytest.approx([0.2 + 0.4, 0, 0.2])
    assert found.front[0].tolist() == [True, True, True]  # 0.4 against 0.2; nothing against nothing; 0.2 against 0


def test_equal_shares_put_the_first_in_front() -> None:
    assert one_view([0, 1], [[255, 255], [255, 255]]).front.tolist() == [[True]]
    assert one_view([1, 1], [[255, 255], [255, 255]]).front.tolist() == [[False]]


def test_larger_is_nearer_and_equals_are_not() -> None:
    assert in_front(torch.tensor([[3.0, 1.0, 3.0]])).tolist() == [[True, False, False]]


def test_pairs_with_an_unmatched_object_are_wrong() -> None:
    front = torch.tensor([[False, False, False]])
    order, slot = torch.tensor([[1.0, 2.0]]), torch.tensor([[0, -1, 1]])
    assert rightly_ordered(front, order, slot).tolist() == [[False, True, False]]


def test_no_pair_and_no_object() -> None:
    for objects in (0, 1):
        found = pair_overlaps(
            torch.full((2, 3, 3), 255, dtype=torch.uint8), torch.zeros(2, objects, 3, 3, dtype=torch.uint8)
        )
        assert found.product.shape == found.front.shape == (2, 0)


@pytest.mark.parametrize("with_order", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_order_as_the_slow_twin(seed: int, with_order: bool) -> None:
    rng = np.random.default_rng(seed)
    truth = random_truth(rng, scenes=5, objects=5)
    truth = truth if with_order else replace(truth, depth_order=None)
    prediction = random_prediction(rng, truth, slots=4)
    assert prediction.depth_order is not None
    for s, scene in enumerate(slow_scenes(prediction, truth)):
        slot = torch.tensor(rng.permutation([-1, 0, 1, 2, 3])).expand(2, -1)
        matched = {g: k for g, k in enumerate(slot[0].tolist()) if k >= 0}
        found = pair_overlaps(truth.segment[s], truth.shapes[s])
        by_depth = found.front if truth.depth_order is None else in_front(truth.depth_order[s])
        for front, weight, pooled in ((by_depth, found.product, False), (found.front, found.region, True)):
            right = rightly_ordered(front, prediction.depth_order[s], slot)
            expected = slow_order(scene, matched, pooled)
            assert [float((weight * right).sum()), float(weight.sum())] == pytest.approx(expected, abs=1e-9)


TABLE = torch.tensor([[[50.0, 0.0, 2.0], [0.0, 0.0, 0.0], [3.0, 0.0, 4.0]]]).double()
"""Background, a hidden object and a visible one, against three layers, one of them empty."""


def test_only_objects_with_a_visible_pixel_count() -> None:
    assert visible_objects(TABLE[:, 1:]).tolist() == [1]


def test_presence_is_counted_from_a_half_on() -> None:
    found = counted_objects(TABLE, torch.tensor([[0.5, 0.4999]]), has_background=True)
    assert found is not None
    assert found.tolist() == [1]


def test_without_a_background_winning_slots_but_one_are_counted() -> None:
    for presence in (None, torch.ones(1, 3)):
        found = counted_objects(TABLE, presence, has_background=False)
        assert found is not None
        assert found.tolist() == [1]


def test_a_method_with_background_cannot_count_without_presence() -> None:
    assert counted_objects(TABLE, None, has_background=True) is None


@pytest.mark.parametrize("has_background", [True, False])
def test_count_as_the_slow_twin(has_background: bool) -> None:
    rng = np.random.default_rng(5)
    truth = random_truth(rng, scenes=40, views=1, objects=3, size=5)
    prediction = random_prediction(rng, truth, 3, has_background, noise=0.4)
    (views,) = comparisons(prediction, truth)
    table = tables_of(views).every
    counted = counted_objects(table, prediction.presence, has_background)
    right = (counted == visible_objects(table[:, 1:])).double().tolist()
    assert right == [slow_count(scene) for scene in slow_scenes(prediction, truth)]
    assert 0 < sum(right) < 40
