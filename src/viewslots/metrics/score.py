"""All eight metrics of the paper, in two conventions, for scenes by any method.

"paper" follows the appendix's formulas: one value a scene, then the mean over the scenes that have one. "pooled"
averages as the published numbers were:

|              | paper                                        | pooled                                                |
|--------------|----------------------------------------------|-------------------------------------------------------|
| ARI-A, AMI-A | all pixels of all views; arg-max over layers | the same                                              |
| ARI-O, AMI-O | pixels whose segment is an object            | pixels where a complete shape has alpha >= 128; truth |
|              |                                              | is the segment there, which may be background         |
|              | arg-max over object layers (all slots, if    | the same                                              |
|              | the method has no background)                |                                                       |
| matching     | pixel counts of the hard partitions          | sums of the soft perceived shapes                     |
| IoU, F1      | mean over a scene's objects with a non-empty | mean over all such objects of all scenes              |
|              | complete shape in the views used             |                                                       |
| OOA          | weights alpha_i alpha_j within a scene       | weights min(alpha_i, alpha_j), over all scenes        |
| OOA's truth  | depth_order; if missing, as in "pooled"      | who owns more of the shared region in the segment     |
| OCA          | share of scenes with the right count         | the same                                              |

Scenes without the pixels, objects or overlapping pairs that a metric is about are left out of it; a metric that a
method cannot answer is None. Padded views never enter.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float64, Int
from torch import Tensor

from viewslots.data.dataset import SceneTruth
from viewslots.metrics.comparison import Comparison, Tables, check_comparable, comparisons, tables_of
from viewslots.metrics.counting import counted_objects, visible_objects
from viewslots.metrics.matching import assign, require_numbers, soft_overlap
from viewslots.metrics.ordering import PairOverlaps, in_front, pair_overlaps, rightly_ordered
from viewslots.metrics.segmentation import adjusted_mutual_information, adjusted_rand
from viewslots.metrics.shapes import iou_and_f1, shape_sums
from viewslots.types import Decomposition

METRICS = ("ARI-A", "AMI-A", "ARI-O", "AMI-O", "IoU", "F1", "OCA", "OOA")

Column = tuple[Float64[Tensor, "_"], Float64[Tensor, "_"]]
"""Of one metric: sum and weight of every scene, whose quotient over any set of scenes is the score of that set."""


@dataclass(frozen=True)
class SceneScores:
    """Scores of S scenes, on the CPU, and what both conventions need to average over any choice of them."""

    values: Float64[Tensor, "S 8"]
    """By METRICS, in the convention "paper"; NaN where a scene has none."""
    pooled_sum: Float64[Tensor, "S 8"]
    pooled_weight: Float64[Tensor, "S 8"]

    def paper(self) -> dict[str, float | None]:
        """Means over the scenes that have a value."""
        known = ~self.values.isnan()
        return _named(self.values.nansum(0), known.sum(0).double())

    def pooled(self) -> dict[str, float | None]:
        """One weighted mean over all scenes."""
        return _named(self.pooled_sum.sum(0), self.pooled_weight.sum(0))

    def per_scene(self) -> dict[str, list[float | None]]:
        """By metric, in the convention "paper"."""
        columns = zip(METRICS, self.values.T.tolist(), strict=True)
        return {name: [None if math.isnan(value) else value for value in column] for name, column in columns}

    @classmethod
    def concatenate(cls, parts: Sequence["SceneScores"]) -> "SceneScores":
        names = ("values", "pooled_sum", "pooled_weight")
        return cls(**{name: torch.cat([getattr(part, name) for part in parts]) for name in names})

    def select(self, scenes: Sequence[int] | Int[Tensor, "chosen"]) -> "SceneScores":
        """These scenes, in this order, repeated where they are named again."""
        rows = torch.as_tensor(scenes, dtype=torch.int64)
        return SceneScores(self.values[rows], self.pooled_sum[rows], self.pooled_weight[rows])


def _named(total: Float64[Tensor, "8"], weight: Float64[Tensor, "8"]) -> dict[str, float | None]:
    columns = zip(METRICS, total.tolist(), weight.tolist(), strict=True)
    return {name: part / whole if whole > 0 else None for name, part, whole in columns}


def score_scenes(prediction: Decomposition, truth: SceneTruth) -> SceneScores:
    """All metrics of every scene, on the device of the arguments.

    Pixels are counted a bounded number of scenes at a time, and the counts of all scenes are scored together.
    """
    check_comparable(prediction, truth)
    blocks = [_counted(views) for views in comparisons(prediction, truth)]
    tables = Tables.concatenate([block.tables for block in blocks])
    every = _partition("A", tables.every)
    paper = {**every, **_partition("O", tables.seen), **_joined([block.paper for block in blocks])}
    pooled = {**every, **_partition("O", tables.covered), **_joined([block.pooled for block in blocks])}
    total, weight = _stacked(paper)
    return SceneScores((total / weight).cpu(), *(part.cpu() for part in _stacked(pooled)))


@dataclass(frozen=True)
class _Counted:
    """A block of scenes: the tables of its partitions, and the other metrics in both conventions."""

    tables: Tables
    paper: dict[str, Column]
    pooled: dict[str, Column]


def _counted(views: Comparison) -> _Counted:
    tables = tables_of(views)
    hard = assign(tables.objects)
    soft = assign(views.by_scene(soft_overlap(views.visible(), views.object_layers)))
    overlaps = None if views.order is None else pair_overlaps(views.segment, views.shapes)
    count, shapes = _count(views, tables.every), _shapes(views, hard)
    paper = {**shapes, "OCA": count, "OOA": _order(views, hard, overlaps, pooled=False)}
    shapes = shapes if torch.equal(hard, soft) else _shapes(views, soft)
    return _Counted(tables, paper, {**shapes, "OCA": count, "OOA": _order(views, soft, overlaps, pooled=True)})


def _joined(blocks: list[dict[str, Column]]) -> dict[str, Column]:
    parts = {name: zip(*(block[name] for block in blocks), strict=True) for name in blocks[0]}
    return {name: (torch.cat(total), torch.cat(weight)) for name, (total, weight) in parts.items()}


def _stacked(columns: dict[str, Column]) -> tuple[Float64[Tensor, "S 8"], Float64[Tensor, "S 8"]]:
    total, weight = zip(*(columns[name] for name in METRICS), strict=True)
    return torch.stack(total, 1), torch.stack(weight, 1)


def _partition(kind: str, table: Float64[Tensor, "S R C"]) -> dict[str, Column]:
    return {f"ARI-{kind}": _known(adjusted_rand(table)), f"AMI-{kind}": _known(adjusted_mutual_information(table))}


def _known(values: Float64[Tensor, "S"]) -> Column:
    """Every scene that has a value counts once."""
    known = ~values.isnan()
    return values.where(known, 0), known.double()


def _unanswered(views: Comparison) -> Column:
    nothing = torch.zeros(len(views.mask), device=views.mask.device, dtype=torch.float64)
    return nothing, nothing


def _count(views: Comparison, table: Float64[Tensor, "S R L"]) -> Column:
    counted = counted_objects(table, views.presence, views.has_background)
    if counted is None:
        return _unanswered(views)
    return _known((counted == visible_objects(table[:, 1:])).double())


def _shapes(views: Comparison, slot: Int[Tensor, "S G"]) -> dict[str, Column]:
    """Sums over the objects whose complete shape is not empty in the views used, and their number."""
    if views.complete is None:
        return dict.fromkeys(("IoU", "F1"), _unanswered(views))
    sums = views.by_scene(shape_sums(views.shapes, views.complete, slot[views.scene]))
    require_numbers("complete_shapes", sums)
    iou, f1 = iou_and_f1(sums).sum(1).unbind(1)
    number = (sums[..., 1] > 0).sum(1).double()
    return {"IoU": (iou, number), "F1": (f1, number)}


def _order(views: Comparison, slot: Int[Tensor, "S G"], overlaps: PairOverlaps | None, pooled: bool) -> Column:
    """Weight of the rightly ordered pairs, and of all."""
    if views.order is None or overlaps is None:
        return _unanswered(views)
    front = overlaps.front if pooled or views.true_order is None else in_front(views.true_order)
    weight = overlaps.region if pooled else overlaps.product
    require_numbers("depth_order", views.order, infinite=True)
    right = rightly_ordered(front, views.order, slot[views.scene])
    return views.by_scene((weight * right).sum(1)), views.by_scene(weight.sum(1))
