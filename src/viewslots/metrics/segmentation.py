"""How well two partitions of the same pixels agree: ARI and AMI from batched contingency tables.

Appendix 'Details of Evaluation Metrics', sections ARI and AMI. A table [R, C] counts the pixels with true label r and
predicted label c; rows and columns without pixels change nothing. Corner cases, as in scikit-learn: equal partitions
score 1, also when both are constant; one constant partition against another scores 0. No pixels at all: NaN.
"""

import math

import torch
from jaxtyping import Bool, Float, Float64, Int, Integer
from torch import Tensor

TERMS_AT_ONCE = {"cpu": 2**17, "cuda": 2**25}
"""Terms of the expected mutual information in memory at once: as much as a CPU's cache holds, or a GPU likes."""

LOG_TAIL = 50.0
"""The hypergeometric tails that are left out weigh less than exp(-50) = 2e-22 each, far below float64's rounding."""


def partition(
    layers: Float[Tensor, "V L H W"], has_background: bool
) -> tuple[Int[Tensor, "V H W"], Bool[Tensor, "V H W"]]:
    """The winning object of every pixel, and whether the background wins over it. The first of equals wins."""
    strength, winner = layers[:, int(has_background) :].max(1)  # the same answer as argmax, seven times as fast
    if not has_background:
        return winner, torch.zeros_like(winner, dtype=torch.bool)
    return winner, layers[:, 0] >= strength


def contingency(
    truth: Integer[Tensor, "S N"],
    predicted: Integer[Tensor, "S N"],
    rows: int,
    columns: int,
    mask: Bool[Tensor, "S N"] | None = None,
) -> Float64[Tensor, "S {rows} {columns}"]:
    """Pixels with true label r and predicted label c, for labels in 0..rows-1 and 0..columns-1, where the mask is true.

    >>> contingency(torch.tensor([[0, 0, 1]]), torch.tensor([[1, 0, 1]]), 2, 2).tolist()
    [[[1.0, 1.0], [0.0, 1.0]]]
    """
    scenes, cells = len(truth), rows * columns
    code = truth.to(torch.int32 if scenes * cells < 2**31 else torch.int64) * columns
    code += predicted
    code += torch.arange(0, scenes * cells, cells, device=code.device, dtype=code.dtype)[:, None]
    chosen = code.flatten() if mask is None else code[mask]
    return torch.bincount(chosen, minlength=scenes * cells).reshape(scenes, rows, columns).double()


def adjusted_rand(table: Float64[Tensor, "S R C"]) -> Float64[Tensor, "S"]:
    """Adjusted Rand index, 1 for equal partitions, 0 on average for random ones.

    The paper's (b_all - b_row b_col / c) / ((b_row + b_col) / 2 - b_row b_col / c), written with the four kinds of
    pairs, whose counts are exact integers up to three billion pixels: no difference of nearly equal numbers is left.

    >>> adjusted_rand(torch.tensor([[[2.0, 0.0], [0.0, 2.0]], [[1.0, 1.0], [1.0, 1.0]]]).double()).tolist()
    [1.0, -0.5]
    """
    counts = table.long()
    total = counts.sum((1, 2))
    both = _pairs(counts.flatten(1)).sum(1)
    row, column = _pairs(counts.sum(2)).sum(1), _pairs(counts.sum(1)).sum(1)
    only_row, only_column = (row - both).double(), (column - both).double()
    neither = (_pairs(total) - row - column + both).double()
    together = both.double()
    excess = 2 * (together * neither - only_row * only_column)
    most = (together + only_row) * (only_row + neither) + (together + only_column) * (only_column + neither)
    agreed = (only_row == 0) & (only_column == 0)
    score = torch.where(agreed, 1.0, excess / most.where(~agreed, 1.0))
    return score.where(total > 0, math.nan)


def _pairs(counts: Int[Tensor, "*axes"]) -> Int[Tensor, "*axes"]:
    return counts * (counts - 1) // 2


def adjusted_mutual_information(table: Float64[Tensor, "S R C"]) -> Float64[Tensor, "S"]:
    """Adjusted mutual information with the arithmetic mean of the entropies, 1 for equal partitions, 0 by chance.

    >>> tables = torch.tensor([[[2.0, 0.0], [0.0, 2.0]], [[2.0, 2.0], [0.0, 0.0]]]).double()
    >>> adjusted_mutual_information(tables).tolist()
    [1.0, 0.0]
    """
    row, column, total = table.sum(2), table.sum(1), table.sum((1, 2))
    filled = table > 0
    equal = (filled.sum(1) <= 1).all(1) & (filled.sum(2) <= 1).all(1)
    constant = ((row > 0).sum(1) == 1) | ((column > 0).sum(1) == 1)
    trivial = equal | constant | (total == 0)
    usual = (~trivial).nonzero()[:, 0]
    score = equal.double()
    score[usual] = _adjusted(table[usual], row[usual], column[usual], total[usual])
    return score.where(total > 0, math.nan)


def _adjusted(
    table: Float64[Tensor, "S R C"],
    row: Float64[Tensor, "S R"],
    column: Float64[Tensor, "S C"],
    total: Float64[Tensor, "S"],
) -> Float64[Tensor, "S"]:
    """(MI - E[MI]) / (mean entropy - E[MI]); the divisor is zero only for equal partitions into single pixels."""
    chance = row[:, :, None] * column[:, None, :] / total[:, None, None]
    information = torch.xlogy(table, table / chance.clamp(min=1 / total[:, None, None])).sum((1, 2)) / total
    entropy = (_entropy(row, total) + _entropy(column, total)) / 2
    expected = expected_mutual_information(row, column)
    return (information - expected) / (entropy - expected)


def _entropy(counts: Float64[Tensor, "S R"], total: Float64[Tensor, "S"]) -> Float64[Tensor, "S"]:
    share = counts / total[:, None]
    return -torch.xlogy(share, share).sum(1)


def expected_mutual_information(row: Float64[Tensor, "S R"], column: Float64[Tensor, "S C"]) -> Float64[Tensor, "S"]:
    """Mean mutual information of two random partitions with these marginals.

    A cell then has a hypergeometric count n with mean mu = a b / N and adds E[n log(n / mu)] / N.
    """
    total = row.sum(1)
    shape = (*row.shape, column.shape[1])
    a, b, size = row[:, :, None].expand(shape), column[:, None].expand(shape), total[:, None, None].expand(shape)
    used = (a > 0) & (b > 0)
    shares = torch.zeros_like(size)
    shares[used] = _expected_shares(torch.stack([a[used], b[used], size[used]], 1))
    return shares.sum((1, 2)) / total


def _expected_shares(cells: Float64[Tensor, "cells 3"]) -> Float64[Tensor, "cells"]:
    """E[n log(n / mu)] of every cell (a, b, N), in blocks of cells whose sums are about equally long."""
    low, high = _support(*cells.unbind(1))
    order = (high - low).argsort(descending=True)
    widths = (high - low)[order].long().add(1).tolist()
    answer = torch.empty_like(low)
    budget, start = TERMS_AT_ONCE[cells.device.type], 0
    while start < len(widths):
        chosen = order[start : start + max(1, budget // widths[start])]
        answer[chosen] = _hypergeometric_mean(cells[chosen], low[chosen], high[chosen], widths[start])
        start += len(chosen)
    return answer


def _support(
    a: Float64[Tensor, "cells"], b: Float64[Tensor, "cells"], total: Float64[Tensor, "cells"]
) -> tuple[Float64[Tensor, "cells"], Float64[Tensor, "cells"]]:
    """The counts that matter: all possible ones but tails of less than exp(-LOG_TAIL).

    Sampling without replacement is no more spread out than with (Hoeffding 1963), so Bernstein's bound for the binomial
    holds: P(|n - mu| >= d) <= 2 exp(-d^2 / (2 (variance + d / 3))). By symmetry the smaller variance may be taken.
    """
    mean = a * b / total
    drawn_a = torch.minimum(a, total - a) * (b / total) * (1 - b / total)
    drawn_b = torch.minimum(b, total - b) * (a / total) * (1 - a / total)
    variance = torch.minimum(drawn_a, drawn_b)
    reach = LOG_TAIL / 3 + ((LOG_TAIL / 3) ** 2 + 2 * LOG_TAIL * variance).sqrt()
    low = torch.maximum((a + b - total).clamp(min=0), (mean - reach).floor())
    high = torch.minimum(torch.minimum(a, b), (mean + reach).ceil())
    return low, high


def _hypergeometric_mean(
    cells: Float64[Tensor, "cells 3"], low: Float64[Tensor, "cells"], high: Float64[Tensor, "cells"], width: int
) -> Float64[Tensor, "cells"]:
    """E[n log(n / mu)] with probabilities from the ratios of neighbours, normalised: no factorials of large numbers."""
    a, b, total = (column[:, None] for column in cells.unbind(1))
    count = low[:, None] + torch.arange(width, device=low.device, dtype=low.dtype)
    ratio = (a - count + 1) * (b - count + 1) / (count * (total - a - b + count))
    ratio[:, 0] = 1
    inside = count <= high[:, None]
    log_weight = ratio.where(inside, 1).log().cumsum(1)
    weight = (log_weight - log_weight.amax(1, keepdim=True)).exp() * inside
    information = count * (count.clamp(min=1) * total / (a * b)).log()
    return (weight * information).sum(1) / weight.sum(1)
