"""Who stands in front of whom."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from slow_metrics import slow_order
from toy_scenes import random_prediction, random_truth, slow_scenes

from viewslots.metrics.ordering import PairOverlaps, in_front, pair_overlaps, rightly_ordered


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
def test_same_as_the_slow_twin(seed: int, with_order: bool) -> None:
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
