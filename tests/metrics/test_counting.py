"""How many objects there are."""

import numpy as np
import pytest
import torch
from slow_metrics import slow_count
from toy_scenes import random_prediction, random_truth, slow_scenes

from viewslots.metrics.comparison import comparisons, tables_of
from viewslots.metrics.counting import counted_objects, visible_objects

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
def test_same_as_the_slow_twin(has_background: bool) -> None:
    rng = np.random.default_rng(5)
    truth = random_truth(rng, scenes=40, views=1, objects=3, size=5)
    prediction = random_prediction(rng, truth, 3, has_background, noise=0.4)
    (views,) = comparisons(prediction, truth)
    table = tables_of(views).every
    counted = counted_objects(table, prediction.presence, has_background)
    right = (counted == visible_objects(table[:, 1:])).double().tolist()
    assert right == [slow_count(scene) for scene in slow_scenes(prediction, truth)]
    assert 0 < sum(right) < 40
