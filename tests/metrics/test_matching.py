"""Which slot stands for which object."""

import itertools

import numpy as np
import pytest
import torch
from slow_metrics import slow_match
from toy_scenes import random_prediction, random_truth, slow_scenes

from viewslots.errors import UserError
from viewslots.metrics.comparison import comparisons
from viewslots.metrics.matching import assign, match, soft_overlap


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
