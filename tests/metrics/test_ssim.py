"""SSIM against a loop over windows, and numbers of scikit-image."""

import math

import numpy as np
import pytest
import torch

from viewslots.metrics.extras import similarity
from viewslots.metrics.ssim import structural_similarity
from viewslots.types import SceneBatch


def pictures(size: tuple[int, int] = (14, 17), noise: float = 0.2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    one = rng.random((2, 3, *size))
    return one, (one + noise * rng.normal(size=one.shape)).clip(0, 1)


def slow_similarity(one: np.ndarray, other: np.ndarray) -> float:
    """Of one picture [C,H,W]: window by window, means, variances and covariances by their definitions."""
    window = np.array([[math.exp(-((y - 5) ** 2 + (x - 5) ** 2) / 4.5) for x in range(11)] for y in range(11)])
    window /= window.sum()
    values = []
    for c, top, left in np.ndindex(one.shape[0], one.shape[1] - 10, one.shape[2] - 10):
        x, y = (picture[c, top : top + 11, left : left + 11] for picture in (one, other))
        mx, my = (window * x).sum(), (window * y).sum()
        vx, vy = (window * (x - mx) ** 2).sum(), (window * (y - my) ** 2).sum()
        cov = (window * (x - mx) * (y - my)).sum()
        values.append(
            (2 * mx * my + 1e-4) * (2 * cov + 9e-4) / ((mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4)),
        )
    return float(np.mean(values))


def test_same_as_a_loop_over_windows() -> None:
    one, other = pictures()
    found = structural_similarity(torch.from_numpy(one), torch.from_numpy(other))
    assert found.dtype == torch.float64
    assert found.tolist() == pytest.approx([slow_similarity(*pair) for pair in zip(one, other, strict=True)], abs=1e-12)


def test_same_as_scikit_image() -> None:
    """By scikit-image 0.26: structural_similarity(gaussian_weights=True, sigma=1.5, use_sample_covariance=False,
    data_range=1.0, channel_axis=0)."""
    one, other = pictures((40, 33))
    found = structural_similarity(torch.from_numpy(one), torch.from_numpy(other))
    assert found.tolist() == pytest.approx([0.8120212280094914, 0.8198326848211588], abs=1e-9)


def test_equal_and_opposite_pictures() -> None:
    one = torch.from_numpy(pictures()[0])
    assert structural_similarity(one, one).tolist() == pytest.approx([1, 1])
    assert (structural_similarity(one, 1 - one) < 0).all()
    dark, bright = torch.zeros(1, 3, 11, 11), torch.ones(1, 3, 11, 11)
    assert structural_similarity(dark, bright).tolist() == pytest.approx([1e-4 / (1 + 1e-4)])


def test_mean_over_real_pictures_as_they_are_shown() -> None:
    one, other = (torch.from_numpy(values)[None] for values in pictures())
    rubbish = torch.full_like(one[:, :1], torch.nan)
    batch = SceneBatch(torch.cat([one, rubbish], 1), torch.tensor([[True, True, False]]))
    ratio = similarity(torch.cat([other, rubbish], 1), batch)
    assert ratio.value == pytest.approx(float(structural_similarity(one, other).mean()))
    white = SceneBatch(torch.ones_like(one), torch.ones(1, 2, dtype=torch.bool))
    assert similarity(torch.full_like(one, 1.5), white).value == pytest.approx(1)


def test_pictures_smaller_than_the_window_have_none() -> None:
    small = torch.zeros(2, 1, 3, 10, 30)
    assert structural_similarity(small, small).isnan().all()
    assert similarity(small, SceneBatch(small, torch.ones(2, 1, dtype=torch.bool))).value is None
