"""The eight metrics a second time: one scene, one pixel, one pair at a time, straight from the appendix's formulas.

Only the assignment itself is shared with the real code: the contract names scipy's, because it settles ties.
"""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

METRICS = ("ARI-A", "AMI-A", "ARI-O", "AMI-O", "IoU", "F1", "OCA", "OOA")
BACKGROUND = 255
Array = NDArray[Any]


@dataclass(frozen=True)
class SlowScene:
    """One scene: [M,L,H,W], [M,K,H,W], [K], [M,K]; [M,H,W], [M,G,H,W], [M,G]."""

    masks: Array
    has_background: bool
    complete: Array | None
    presence: Array | None
    order: Array | None
    segment: Array
    shapes: Array
    true_order: Array | None

    def pixels(self) -> list[tuple[int, int, int]]:
        views, height, width = self.segment.shape
        return list(itertools.product(range(views), range(height), range(width)))

    @property
    def slots(self) -> int:
        return self.masks.shape[1] - self.has_background

    def layer(self, m: int, y: int, x: int) -> int:
        """Arg-max over all layers."""
        return int(np.argmax(self.masks[m, :, y, x]))

    def best_object(self, m: int, y: int, x: int) -> int:
        """Arg-max over the object layers."""
        return int(np.argmax(self.masks[m, int(self.has_background) :, y, x]))


def slow_ari(truth: Sequence[int], predicted: Sequence[int]) -> float | None:
    """b_all, b_row, b_col and c of the appendix, in exact fractions."""
    if not truth:
        return None
    b_all = sum(math.comb(n, 2) for n in Counter(zip(truth, predicted, strict=True)).values())
    b_row = sum(math.comb(n, 2) for n in Counter(truth).values())
    b_col = sum(math.comb(n, 2) for n in Counter(predicted).values())
    c = math.comb(len(truth), 2)
    chance = Fraction(b_row * b_col, c) if c else Fraction(0)
    most = Fraction(b_row + b_col, 2)
    return 1.0 if most == chance else float((b_all - chance) / (most - chance))


def slow_ami(truth: Sequence[int], predicted: Sequence[int]) -> float | None:
    """Expected mutual information by the hypergeometric distribution in exact integers."""
    if not truth:
        return None
    n, rows, columns = len(truth), Counter(truth), Counter(predicted)
    cells = Counter(zip(truth, predicted, strict=True))
    if len(cells) == len(rows) == len(columns):
        return 1.0
    if len(rows) == 1 or len(columns) == 1:
        return 0.0
    information = sum(k / n * math.log(n * k / (rows[i] * columns[j])) for (i, j), k in cells.items())
    expected = sum(slow_expected(a, b, n) for a in rows.values() for b in columns.values())
    entropies = [-sum(k / n * math.log(k / n) for k in side.values()) for side in (rows, columns)]
    return (information - expected) / (sum(entropies) / 2 - expected)


def slow_expected(a: int, b: int, n: int) -> float:
    terms = []
    for k in range(max(1, a + b - n), min(a, b) + 1):
        probability = Fraction(math.comb(a, k) * math.comb(n - a, b - k), math.comb(n, b))
        terms.append(float(probability) * k / n * math.log(n * k / (a * b)))
    return math.fsum(terms)


def slow_match(scene: SlowScene, soft: bool) -> dict[int, int]:
    """Slot of every matched object."""
    overlap = np.zeros((scene.shapes.shape[1], scene.slots))
    for m, y, x in scene.pixels():
        true = int(scene.segment[m, y, x])
        if true == BACKGROUND:
            continue
        for k in range(scene.slots):
            layer = k + scene.has_background
            overlap[true, k] += scene.masks[m, layer, y, x] if soft else scene.layer(m, y, x) == layer
    rows, columns = linear_sum_assignment(-overlap)
    return dict(zip(rows.tolist(), columns.tolist(), strict=True))


def slow_shapes(scene: SlowScene, xi: dict[int, int]) -> list[tuple[float, float]]:
    """(IoU, F1) of every object whose complete shape is not empty."""
    assert scene.complete is not None
    scores = []
    for g in range(scene.shapes.shape[1]):
        if not scene.shapes[:, g].any():
            continue
        if g not in xi:
            scores.append((0.0, 0.0))
            continue
        inter = union = 0.0
        for m, y, x in scene.pixels():
            true, mine = float(scene.shapes[m, g, y, x]) / 255, float(scene.complete[m, xi[g], y, x])
            inter += min(true, mine)
            union += max(true, mine)
        scores.append((inter / union, 2 * inter / (inter + union)))
    return scores


def slow_order(scene: SlowScene, xi: dict[int, int], pooled: bool) -> tuple[float, float]:
    """Weight of the rightly ordered pairs, and of all pairs, over the views."""
    assert scene.order is not None
    right = total = 0.0
    views, objects = scene.shapes.shape[:2]
    for m, (i, j) in itertools.product(range(views), itertools.combinations(range(objects), 2)):
        alpha_i, alpha_j = scene.shapes[m, i] / 255, scene.shapes[m, j] / 255
        region = np.minimum(scene.shapes[m, i], scene.shapes[m, j]).astype(int)
        owned_i, owned_j = (region[scene.segment[m] == g].sum() for g in (i, j))
        front = bool(owned_i >= owned_j)
        if scene.true_order is not None and not pooled:
            front = bool(scene.true_order[m, i] > scene.true_order[m, j])
        weight = float(region.sum() / 255 if pooled else (alpha_i * alpha_j).sum())
        total += weight
        if i in xi and j in xi and bool(scene.order[m, xi[i]] > scene.order[m, xi[j]]) == front:
            right += weight
    return right, total


def slow_count(scene: SlowScene) -> float | None:
    visible = {int(label) for label in scene.segment.flatten()} - {BACKGROUND}
    if not scene.has_background:
        return float(len({scene.layer(*pixel) for pixel in scene.pixels()}) - 1 == len(visible))
    if scene.presence is None:
        return None
    return float(sum(bool(value >= 0.5) for value in scene.presence) == len(visible))


def slow_statistics(scene: SlowScene, pooled: bool) -> dict[str, tuple[float, float]]:
    """(sum, weight) of each metric; weight 0 where the scene has nothing to tell."""
    every = scene.pixels()
    if pooled:
        chosen = [(m, y, x) for m, y, x in every if (scene.shapes[m, :, y, x] / 255 >= 0.5).any()]
    else:
        chosen = [pixel for pixel in every if scene.segment[pixel] != BACKGROUND]
    single: dict[str, float | None] = {"OCA": slow_count(scene)}
    for name, pixels, label in (("A", every, scene.layer), ("O", chosen, scene.best_object)):
        truth, predicted = [int(scene.segment[p]) for p in pixels], [label(*p) for p in pixels]
        single |= {f"ARI-{name}": slow_ari(truth, predicted), f"AMI-{name}": slow_ami(truth, predicted)}
    found = {name: (0.0, 0.0) if value is None else (value, 1.0) for name, value in single.items()}
    xi = slow_match(scene, soft=pooled)
    shapes = [] if scene.complete is None else slow_shapes(scene, xi)
    found["IoU"] = (sum(iou for iou, _ in shapes), float(len(shapes)))
    found["F1"] = (sum(f1 for _, f1 in shapes), float(len(shapes)))
    found["OOA"] = (0.0, 0.0) if scene.order is None else slow_order(scene, xi, pooled)
    return found


def slow_per_scene(scenes: Sequence[SlowScene]) -> dict[str, list[float | None]]:
    rows = [slow_statistics(scene, pooled=False) for scene in scenes]
    return {name: [row[name][0] / row[name][1] if row[name][1] else None for row in rows] for name in METRICS}


def slow_paper(scenes: Sequence[SlowScene]) -> dict[str, float | None]:
    known = {name: [v for v in column if v is not None] for name, column in slow_per_scene(scenes).items()}
    return {name: sum(values) / len(values) if values else None for name, values in known.items()}


def slow_pooled(scenes: Sequence[SlowScene]) -> dict[str, float | None]:
    rows = [slow_statistics(scene, pooled=True) for scene in scenes]
    sums = {name: [math.fsum(row[name][part] for row in rows) for part in (0, 1)] for name in METRICS}
    return {name: total / weight if weight else None for name, (total, weight) in sums.items()}
