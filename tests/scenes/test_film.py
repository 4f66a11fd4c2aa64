"""The film: pixel filter, sRGB, alphas and the hash behind pixel noise, each against its formula."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.signal.windows import blackmanharris

from viewslots.scenes import film
from viewslots.scenes.film import cells, develop, filter_weights, sub_pixels

COUNTS = (4, 8, 16, 32, 64, 256)


STEPS = 3 * 1024
WINDOW = blackmanharris(STEPS + 1).tolist()
"""Blackman-Harris from end to end, by scipy; every position below falls on a step."""


def window(x: float) -> float:
    """At x pixels from the middle of 3."""
    return WINDOW[round((x / 3 + 0.5) * STEPS)]


@pytest.mark.parametrize("positions", [sub_pixels(16), sub_pixels(64), cells(4), cells(1), cells(64)])
def test_filter_weights_are_the_window_at_each_sample(positions: film.SubPixels) -> None:
    weights = filter_weights(positions)
    assert weights.sum().item() == 1
    expected = np.array(
        [
            [window(column - 1 + x - 0.5) * window(row - 1 + y - 0.5) for x, y in positions]
            for row in range(3)
            for column in range(3)
        ]
    )
    # Weights are whole steps, and one sample takes what rounding leaves over.
    tolerance = 9 * len(positions) * 2.0**-20
    np.testing.assert_allclose(weights.numpy(), expected / expected.sum(), atol=tolerance)
    assert np.count_nonzero(np.abs(weights.numpy() - expected / expected.sum()) > 2.0**-20) <= 1


def test_window_ends_at_a_pixel_and_a_half() -> None:
    assert film.blackman_harris(0) == pytest.approx(1)
    assert film.blackman_harris(1.5) == pytest.approx(6e-5)
    assert film.blackman_harris(-1.5) == pytest.approx(6e-5)
    for x in np.linspace(-1.5, 1.5, 33):
        assert film.blackman_harris(x) == pytest.approx(window(x), abs=1e-9)


@pytest.mark.parametrize("positions", [sub_pixels(16), cells(4)])
def test_develop_is_a_weighted_sum_a_pixel(positions: film.SubPixels) -> None:
    random = torch.Generator().manual_seed(1)
    samples = torch.rand(2, len(positions), 4 + 2, 5 + 2, generator=random)
    found = develop(samples, positions)
    assert found.shape == (2, 4, 5)
    values = samples.tolist()
    total = sum(window(c + x - 1.5) * window(r + y - 1.5) for r in range(3) for c in range(3) for x, y in positions)
    for picture in range(2):
        for row in range(4):
            for column in range(5):
                light = 0.0
                # The sample at (x, y) of the pixel r rows and c columns on, seen from the middle of this pixel.
                for r in (-1, 0, 1):
                    for c in (-1, 0, 1):
                        for n, (x, y) in enumerate(positions):
                            weight = window(c + x - 0.5) * window(r + y - 0.5) / total
                            light += weight * values[picture][n][row + 1 + r][column + 1 + c]
                assert found[picture, row, column].item() == pytest.approx(light, abs=2e-5)


def test_masks_sum_exactly() -> None:
    """A mask and its complement make up one, to the last bit."""
    mask = torch.rand(16, 12, 12, generator=torch.Generator().manual_seed(2)) < 0.4
    positions = sub_pixels(16)
    part, rest = (develop(values, positions) for values in (mask, ~mask))
    assert torch.equal(part + rest, torch.ones_like(part))
    # Every sum is a whole number of steps, which float32 holds.
    assert torch.equal(part, torch.round(part * 2**20) / 2**20)
    assert torch.equal(part, part.to(torch.float32).to(part.dtype))


def srgb(linear: float) -> float:
    """IEC 61966-2-1."""
    linear = min(max(linear, 0.0), 1.0)
    return 12.92 * linear if linear <= 0.0031308 else 1.055 * linear ** (1 / 2.4) - 0.055


def linear_of(code: float) -> float:
    value = code / 255
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def test_srgb_at_every_edge_between_codes() -> None:
    for code in range(255):
        edge = linear_of(code + 0.5)
        below, above = film.to_srgb8(torch.tensor([edge * (1 - 1e-6), edge * (1 + 1e-6)])).tolist()
        assert (below, above) == (code, code + 1)


def test_srgb_follows_the_curve_and_clips() -> None:
    values = np.random.default_rng(0).uniform(-0.2, 1.3, 5000)
    values = np.concatenate([values, np.geomspace(1e-6, 1, 500), [0.0, 1.0, 1e9, -1e9]])
    expected = np.array([255 * srgb(value) for value in values])
    sure = np.abs(expected - np.floor(expected) - 0.5) > 1e-3
    found = film.to_srgb8(torch.from_numpy(values.astype(np.float32))).numpy()
    np.testing.assert_array_equal(found[sure], np.round(expected[sure]).astype(np.uint8))
    assert sure.mean() > 0.99


def test_every_code_survives_the_curve() -> None:
    codes = torch.tensor([linear_of(code) for code in range(256)])
    assert film.to_srgb8(codes).tolist() == list(range(256))


def test_alpha_rounds_to_the_nearest_level() -> None:
    shares = torch.tensor([-0.5, 0, 0.4 / 255, 0.6 / 255, 0.5, 127.4 / 255, 254.6 / 255, 1.0, 1.5])
    assert film.to_alpha8(shares).tolist() == [0, 0, 0, 1, 128, 127, 255, 255, 255]


@pytest.mark.parametrize("count", COUNTS)
def test_sub_pixels_share_no_row_or_column(count: int) -> None:
    positions = sub_pixels(count)
    assert len(positions) == count
    for axis in (0, 1):
        assert sorted(math.floor(point[axis] * count) for point in positions) == list(range(count))


@pytest.mark.parametrize("count", COUNTS)
def test_every_four_sub_pixels_lie_in_one_cell(count: int) -> None:
    """Sample 4n .. 4n+3 shares the ground point of cell n: it must lie in that cell."""
    centers = cells(count // 4)
    assert len(set(centers)) == count // 4
    rows, columns = (len({point[axis] for point in centers}) for axis in (1, 0))
    assert rows * columns == count // 4
    assert columns in (rows, 2 * rows)
    for n, (x, y) in enumerate(sub_pixels(count)):
        across, down = centers[n // 4]
        assert abs(x - across) < 0.5 / columns
        assert abs(y - down) < 0.5 / rows


def hashed(key: int, word: int) -> int:
    """The same fold in Python's unbounded integers."""
    x = (key + word * 0x9E3779B9) % 2**32
    x = (x ^ (x // 2**16)) * 0x7FEB352D % 2**32
    x = (x ^ (x // 2**15)) * 0x846CA68B % 2**32
    return x ^ (x // 2**16)


def test_mix_equals_integer_arithmetic() -> None:
    random = np.random.default_rng(4)
    keys = [0, 1, 2**31, 2**32 - 1, *random.integers(2**32, size=300).tolist()]
    words = [0, 1, 2**32 - 1, *random.integers(2**32, size=5).tolist()]
    for word in words:
        expected = [hashed(key, word) for key in keys]
        assert film.mix(torch.tensor(keys), word).tolist() == expected
        assert film.mix(torch.tensor(keys), torch.full((len(keys),), word)).tolist() == expected


def chi_square(observed: np.ndarray) -> float:
    """The probability of counts at least as uneven, if all were equally likely."""
    return float(stats.chisquare(observed.ravel()).pvalue)


def test_mix_is_uniform_over_neighbouring_keys_and_words() -> None:
    """Pixels and dimensions are small consecutive numbers; both their hashes and pairs of hashes spread evenly."""
    pixels = film.mix(torch.tensor(123), torch.arange(2**15))
    streams = [film.fraction(film.mix(pixels, word)).numpy() for word in range(1, 7)]
    for values in streams:
        assert values.min() >= 0
        assert values.max() < 1
        assert 1e-5 < chi_square(np.histogram(values, 256, (0, 1))[0]) < 1 - 1e-5
    cells_2d = [[0, 1], [0, 1]]
    for first, second in itertools.pairwise(streams):
        assert 1e-5 < chi_square(np.histogram2d(first, second, 32, cells_2d)[0]) < 1 - 1e-5
    neighbours = np.histogram2d(streams[0][:-1], streams[0][1:], 32, cells_2d)[0]
    assert 1e-5 < chi_square(neighbours) < 1 - 1e-5


def test_mix_spreads_every_bit() -> None:
    """Flipping one bit of the key flips each bit of the hash about every other time."""
    keys = torch.from_numpy(np.random.default_rng(5).integers(2**32, size=4000))
    base = film.mix(keys, 7)
    for bit in range(32):
        changed = base ^ film.mix(keys ^ (1 << bit), 7)
        rates = np.array([((changed >> place) & 1).float().mean().item() for place in range(32)])
        assert np.abs(rates - 0.5).max() < 0.1


def test_fraction_is_the_upper_24_bits() -> None:
    keys = [0, 255, 256, 2**31, 2**32 - 1]
    assert film.fraction(torch.tensor(keys)).tolist() == [(key >> 8) / 2**24 for key in keys]


def test_turn_goes_once_around() -> None:
    share = torch.rand(2000, generator=torch.Generator().manual_seed(6))
    cos, sin = film.turn(share, film.circle())
    angle = 2 * math.pi * share.double()
    # To half a step of the table.
    assert (cos - torch.cos(angle)).abs().max() < 1.01 * math.pi / film.TURN_STEPS
    assert (sin - torch.sin(angle)).abs().max() < 1.01 * math.pi / film.TURN_STEPS
    last = film.turn(torch.tensor([1 - 2.0**-24]), film.circle())
    assert last[0].item() == pytest.approx(1, abs=1e-5)
