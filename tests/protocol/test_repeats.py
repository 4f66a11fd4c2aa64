"""Spread over repeats and intervals over scenes, against cases with a known answer."""

import math

import numpy as np
import pytest
import torch

from viewslots.metrics.extras import Ratio, SceneRatios
from viewslots.metrics.score import METRICS, SceneScores
from viewslots.protocol.repeats import Estimate, Repeats, bootstrap, estimates, resampled_scenes
from viewslots.protocol.results import summary


def means(values: np.ndarray):
    return lambda scenes: {"score": float(values[scenes].mean())}


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution() -> None:
    """The mean of many scenes is nearly normal with deviation s / sqrt(S)."""
    values = np.random.default_rng(1).normal(3.0, 2.0, 400)
    low, high = bootstrap(means(values), 400, seed=0, resamples=4000)["score"]
    reach = 1.96 * values.std() / math.sqrt(400)
    assert low == pytest.approx(values.mean() - reach, abs=0.03)
    assert high == pytest.approx(values.mean() + reach, abs=0.03)


def test_two_scenes() -> None:
    """Means of two draws from {0, 1} are 0, 1/2, 1 with probabilities 1/4, 1/2, 1/4: both ends lie within 95 %."""
    drawn = [means(np.array([0.0, 1.0]))(scenes)["score"] for scenes in resampled_scenes(2, 0)]
    shares = [drawn.count(value) / len(drawn) for value in (0.0, 0.5, 1.0)]
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.05)
    assert bootstrap(means(np.array([0.0, 1.0])), 2, seed=0)["score"] == (0.0, 1.0)


def test_one_scene_has_no_interval() -> None:
    """Not one of width zero."""
    interval = bootstrap(means(np.array([0.5])), 1, seed=0)
    assert interval["score"] == (None, None)
    assert estimates([{"score": 0.5}], interval)["score"] == Estimate(0.5, 0.0, None, None)


def test_quantiles_of_a_known_list() -> None:
    """Resample i scores i: the interval is the 2.5 % and 97.5 % points of 0..1000."""
    numbers = iter(range(1001))
    low, high = bootstrap(lambda scenes: {"score": float(next(numbers))}, 3, seed=0, resamples=1001)["score"]
    assert (low, high) == pytest.approx((25.0, 975.0))


def test_resamples_draw_whole_scenes_with_replacement() -> None:
    drawn = resampled_scenes(7, seed=3, resamples=50)
    assert drawn.shape == (50, 7)
    assert set(drawn.ravel()) == set(range(7))
    assert any(len(set(row)) < 7 for row in drawn)


def test_the_seed_decides() -> None:
    assert np.array_equal(resampled_scenes(9, 1), resampled_scenes(9, 1))
    assert not np.array_equal(resampled_scenes(9, 1), resampled_scenes(9, 2))
    assert resampled_scenes(9, -1).shape == (1000, 9)


def test_an_interval_is_of_the_mean_over_repeats() -> None:
    """What a scene weighs may be its answer's: of 20 scenes one answer has 1 of 1 right, the other 4.5 of 9, so each
    mean over repeats is .75; a ratio of both sums would be .55."""
    nothing = SceneScores(*(torch.zeros(20, len(METRICS), dtype=torch.float64) for _ in range(3)))
    extras = [
        SceneRatios({"order_of_found": Ratio(np.full(20, right), np.full(20, whole))})
        for right, whole in ((1.0, 1.0), (4.5, 9.0))
    ]
    found = summary(Repeats([nothing, nothing], extras, np.full(20, 3), np.zeros(20)), seed=0)
    assert found["extras"]["order_of_found"] == {"mean": 0.75, "std": 0.25, "low": 0.75, "high": 0.75}
    assert found["by_objects"]["3"]["extras"]["order_of_found"] == 0.75
    assert found["by_occlusion"]["most"]["extras"]["order_of_found"] == 0.75


def test_resamples_without_a_value_are_left_out() -> None:
    """A score that only scene 0 has: 5 wherever that is drawn."""
    intervals = bootstrap(lambda scenes: {"some": 5.0 if 0 in scenes else None, "none": None}, 3, seed=0)
    assert intervals == {"some": (5.0, 5.0)}


def test_estimates_by_hand() -> None:
    """Mean 2 of 1, 2, 3; population deviation sqrt(2/3)."""
    repeats = [{"a": 1.0, "b": None}, {"a": 2.0, "b": None}, {"a": 3.0, "b": None}]
    found = estimates(repeats, {"a": (0.5, 3.5)})
    assert found["b"] is None
    assert (found["a"].mean, found["a"].low, found["a"].high) == (2.0, 0.5, 3.5)
    assert found["a"].std == pytest.approx(math.sqrt(2 / 3))
    assert estimates([{"a": 4.0}], {"a": (4.0, 4.0)})["a"].std == 0.0
