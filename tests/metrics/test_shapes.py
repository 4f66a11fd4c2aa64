"""IoU and F1 of complete shapes."""

import numpy as np
import pytest
import torch
from slow_metrics import slow_shapes
from toy_scenes import random_prediction, random_truth, slow_scenes

from viewslots.metrics.shapes import iou_and_f1, shape_sums


def scored(shapes: list[list[int]], complete: list[list[float]], slot: list[int]) -> list[list[float]]:
    """Objects and slots as rows of pixels."""
    true = torch.tensor(shapes, dtype=torch.uint8)[None, :, None]
    mine = torch.tensor(complete)[None, :, None]
    return iou_and_f1(shape_sums(true, mine, torch.tensor([slot])))[0].tolist()


def test_soft_minimum_and_maximum_by_hand() -> None:
    """min = .5 + .4 + 0, max = 1 + .6 + .25: 0.9 / 1.85 and 1.8 / 2.75."""
    found = scored([[255, 102, 0]], [[9.0, 9.0, 9.0], [0.5, 0.6, 0.25]], [1])
    assert found == [pytest.approx([0.9 / 1.85, 1.8 / 2.75], abs=1e-7)]


def test_a_perfect_shape_scores_one() -> None:
    true = torch.randint(0, 256, (3, 2, 5, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    found = iou_and_f1(shape_sums(true, true.double() / 255, torch.arange(2).repeat(3, 1)))
    assert found.flatten().tolist() == pytest.approx([1] * 12, abs=1e-12)


def test_unmatched_and_empty_objects_score_zero() -> None:
    assert scored([[255, 255], [0, 0], [255, 0]], [[0.5, 1.0], [0.0, 0.0]], [-1, 0, 1]) == [[0, 0], [0, 0], [0, 0]]


@pytest.mark.parametrize("seed", range(3))
def test_same_as_the_slow_twin(seed: int) -> None:
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
