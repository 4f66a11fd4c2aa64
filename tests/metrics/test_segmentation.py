"""ARI and AMI against scikit-learn, against exact arithmetic, and in the corners."""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Float64
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score
from slow_metrics import slow_ami, slow_ari, slow_expected
from torch import Tensor

from viewslots.metrics import segmentation
from viewslots.metrics.segmentation import (
    adjusted_mutual_information,
    adjusted_rand,
    contingency,
    expected_mutual_information,
    partition,
)

SCORES = [adjusted_rand, adjusted_mutual_information]
Score = Callable[[Float64[Tensor, "S R C"]], Float64[Tensor, "S"]]
labels = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=40)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def table_of(truth: np.ndarray, predicted: np.ndarray) -> Float64[Tensor, "1 R C"]:
    pair = torch.tensor(truth)[None], torch.tensor(predicted)[None]
    return contingency(*pair, int(truth.max()) + 1, int(predicted.max()) + 1)


def both(table: Float64[Tensor, "1 R C"]) -> list[float]:
    return [adjusted_rand(table).item(), adjusted_mutual_information(table).item()]


def sklearn_both(truth: np.ndarray, predicted: np.ndarray) -> list[float]:
    return [adjusted_rand_score(truth, predicted), adjusted_mutual_info_score(truth, predicted)]


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.3, 1.0])
@pytest.mark.parametrize("pixels", [2, 37, 16_384, 300_000])
def test_same_as_sklearn_at_any_size(pixels: int, noise: float) -> None:
    rng = np.random.default_rng(pixels)
    truth = np.minimum(rng.geometric(0.6, pixels) - 1, 6)
    predicted = np.where(rng.random(pixels) < noise, rng.integers(0, 8, pixels), (truth + 3) % 7)
    assert both(table_of(truth, predicted)) == pytest.approx(sklearn_both(truth, predicted), abs=1e-9)


def test_same_as_sklearn_for_nearly_constant_partitions() -> None:
    """The divisor is then a difference of nearly equal numbers."""
    for place in (0, 1):
        truth, predicted = np.zeros(150_000, int), np.zeros(150_000, int)
        truth[0], predicted[place] = 1, 1
        predicted[5] = 2
        assert both(table_of(truth, predicted)) == pytest.approx(sklearn_both(truth, predicted), abs=1e-9)


@pytest.mark.parametrize("counts", [[[700_000_001, 3], [5, 299_999_991]], [[999_999_990, 3], [5, 2]]])
def test_pair_counts_beyond_every_float(counts: list[list[int]]) -> None:
    """A billion pixels: their pairs do not fit a float64, nor the products of their pairs an int64."""

    def pairs(sizes: Iterable[int]) -> Fraction:
        return Fraction(sum(math.comb(size, 2) for size in sizes))

    (a, b), (c, d) = counts
    rows, columns = pairs([a + b, c + d]), pairs([a + c, b + d])
    chance = rows * columns / pairs([a + b + c + d])
    expected = (pairs([a, b, c, d]) - chance) / ((rows + columns) / 2 - chance)
    assert adjusted_rand(torch.tensor([counts]).double()).item() == pytest.approx(float(expected), abs=1e-12)


@settings(max_examples=150, deadline=None)
@given(labels)
def test_same_as_exact_arithmetic(pairs: list[tuple[int, int]]) -> None:
    truth, predicted = zip(*pairs, strict=True)
    expected = [slow_ari(truth, predicted), slow_ami(truth, predicted)]
    assert both(table_of(np.array(truth), np.array(predicted))) == pytest.approx(expected, abs=1e-9)


@settings(max_examples=80, deadline=None)
@given(labels, st.permutations(range(5)), st.permutations(range(4)))
def test_names_and_sides_do_not_matter(pairs: list[tuple[int, int]], rows: list[int], columns: list[int]) -> None:
    truth, predicted = (torch.tensor(side)[None] for side in zip(*pairs, strict=True))
    table = contingency(truth, predicted, 5, 4)
    expected = pytest.approx(both(table), abs=1e-12)
    assert both(table[:, rows][:, :, columns]) == expected
    assert both(table.mT) == expected
    assert both(torch.nn.functional.pad(table, (0, 2, 1, 0))) == expected
    assert max(both(table)) <= 1 + 1e-12
    assert both(contingency(truth, truth, 5, 5)) == [1, 1]


@pytest.mark.parametrize("score", SCORES)
def test_chance_scores_zero_on_average(score: Score) -> None:
    generator = torch.Generator().manual_seed(0)
    truth, predicted = (torch.randint(0, 4, (4000, 30), generator=generator) for _ in range(2))
    values = score(contingency(truth, predicted, 4, 4))
    assert abs(values.mean()) < 4 * values.std() / math.sqrt(4000)
    assert values.std() > 0.02


@pytest.mark.parametrize("score", SCORES)
def test_corners(score: Score) -> None:
    def scored(table: list[list[int]]) -> float:
        return score(torch.tensor([table]).double()).item()

    assert math.isnan(scored([[0, 0], [0, 0]]))
    assert scored([[1, 0], [0, 0]]) == 1
    assert scored([[9, 0], [0, 0]]) == 1
    assert scored([[4, 5], [0, 0]]) == 0
    assert scored([[4, 0], [5, 0]]) == 0
    assert scored([[1, 0, 0], [0, 0, 1], [0, 1, 0]]) == 1
    assert scored([[1, 1, 1]]) == 0
    assert scored([[1, 0], [1, 0], [0, 1]]) == pytest.approx(0, abs=1e-9)


def test_no_scenes_at_all() -> None:
    assert [score(torch.zeros(0, 3, 2).double()).tolist() for score in SCORES] == [[], []]


@pytest.mark.parametrize("score", SCORES)
def test_a_batch_scores_as_its_scenes_do(score: Score, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    tables = torch.tensor(rng.integers(0, 400, (7, 5, 6)) * (rng.random((7, 5, 6)) < 0.6)).double()
    tables[4] = 0
    alone = [score(table[None]).item() for table in tables]
    monkeypatch.setattr(segmentation, "TERMS_AT_ONCE", {"cpu": 300})
    assert score(tables).tolist() == pytest.approx(alone, abs=1e-12, nan_ok=True)


def test_expected_information_leaves_out_nothing_that_counts() -> None:
    """Against exact sums over the whole range of counts, where most of it is left out."""
    for a, b, total in ((700, 650, 1500), (40, 1400, 1500), (1, 7, 1500), (1499, 1499, 1500), (500, 20, 1200)):
        sides = [torch.tensor([[side, total - side]]).double() for side in (a, b)]
        cells = [(x, y) for x in (a, total - a) for y in (b, total - b)]
        expected = math.fsum(slow_expected(x, y, total) for x, y in cells)
        assert expected_mutual_information(*sides).item() == pytest.approx(expected, rel=1e-9)


def test_contingency_counts_where_the_mask_is_true() -> None:
    rng = np.random.default_rng(0)
    truth, predicted, mask = rng.integers(0, 3, (4, 50)), rng.integers(0, 5, (4, 50)), rng.random((4, 50)) < 0.7
    found = contingency(torch.tensor(truth), torch.tensor(predicted), 3, 5, torch.tensor(mask))
    for scene in range(4):
        counts = Counter(zip(truth[scene][mask[scene]].tolist(), predicted[scene][mask[scene]].tolist(), strict=True))
        assert {(r, c): int(found[scene, r, c]) for r in range(3) for c in range(5) if found[scene, r, c]} == counts


@pytest.mark.parametrize("kind", [torch.uint8, torch.int16, torch.int64])
def test_contingency_takes_any_integers(kind: torch.dtype) -> None:
    """Bytes must not wrap within the count."""
    truth = torch.arange(200, dtype=kind)[None]
    found = contingency(truth, truth, 200, 200)
    assert found[0].equal(torch.eye(200).double())


def test_partition_is_argmax_and_the_first_of_equals_wins() -> None:
    layers = torch.randint(0, 3, (6, 4, 5, 5), generator=torch.Generator().manual_seed(1)).float()
    plain = layers.numpy().argmax(1)
    best, background = partition(layers, has_background=True)
    assert np.array_equal(best.numpy(), layers[:, 1:].numpy().argmax(1))
    assert np.array_equal(np.where(background.numpy(), 0, best.numpy() + 1), plain)
    best, background = partition(layers, has_background=False)
    assert np.array_equal(best.numpy(), plain)
    assert not background.any()
