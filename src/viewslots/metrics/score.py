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

Paper: in one point "paper" is not the appendix to the letter. For ARI-O and AMI-O the appendix changes the set of
pixels alone: the estimated partition still has K + 1 parts, and a pixel of an object may be labelled background. Here
the arg-max runs over the object layers alone, in both conventions, so an object pixel that the background claims goes
to the next best object. For a method without a background layer the two are the same.

Scenes without the pixels, objects or overlapping pairs that a metric is about are left out of it. A metric that a
method cannot answer is None; so is one that needs truth which the data set lacks (without complete shapes: IoU, F1, OOA
and pooled ARI-O, AMI-O; without a segment: all). Padded views never enter.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64, Int, UInt8
from torch import Tensor

from viewslots.errors import UserError
from viewslots.metrics.objects import (
    PairOverlaps,
    assign,
    counted_objects,
    in_front,
    iou_and_f1,
    pair_overlaps,
    require_numbers,
    rightly_ordered,
    shape_sums,
    soft_overlap,
    true_objects,
    visible_objects,
)
from viewslots.metrics.segmentation import adjusted_mutual_information, adjusted_rand, contingency, partition
from viewslots.types import BACKGROUND, COVERED, Decomposition, SceneTruth

METRICS = ("ARI-A", "AMI-A", "ARI-O", "AMI-O", "IoU", "F1", "OCA", "OOA")

Column = tuple[Float64[Tensor, "_"], Float64[Tensor, "_"]]
"""Of one metric: sum and weight of every scene, whose quotient over any set of scenes is the score of that set."""
NUMBERS_AT_ONCE = {"cpu": 2**22, "cuda": 2**27}
"""Values of masks and shapes compared at once: near a CPU's cache but worth its threads, or enough to fill a GPU."""


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

    def select(self, scenes: Sequence[int] | Int[Tensor, "chosen"]) -> "SceneScores":
        """These scenes, in this order, repeated where they are named again."""
        rows = torch.as_tensor(scenes, dtype=torch.int64)
        return SceneScores(self.values[rows], self.pooled_sum[rows], self.pooled_weight[rows])


def _named(total: Float64[Tensor, "8"], weight: Float64[Tensor, "8"]) -> dict[str, float | None]:
    columns = zip(METRICS, total.tolist(), weight.tolist(), strict=True)
    return {name: part / whole if whole > 0 else None for name, part, whole in columns}


@dataclass(frozen=True)
class Comparison:
    """V real views of S scenes; padded views never enter, whatever they hold."""

    mask: Bool[Tensor, "S M"]
    """Which views are real: V of them."""
    scene: Int[Tensor, "V"]
    """The scene of each."""
    objects: int
    """G, the room for objects in the truth."""
    segment: UInt8[Tensor, "V H W"]
    shapes: UInt8[Tensor, "V G H W"] | None
    true_order: Float[Tensor, "V G"] | None
    layers: Float[Tensor, "V L H W"]
    has_background: bool
    complete: Float[Tensor, "V K H W"] | None
    order: Float[Tensor, "V K"] | None
    presence: Float[Tensor, "S K"] | None

    @property
    def object_layers(self) -> Float[Tensor, "V K H W"]:
        return self.layers[:, int(self.has_background) :]

    def visible(self) -> Bool[Tensor, "V G H W"]:
        """Where each true object is seen."""
        index = torch.arange(self.objects, device=self.segment.device, dtype=torch.uint8)
        return self.segment[:, None] == index[:, None, None]

    def by_scene(self, values: Float64[Tensor, "V *rest"]) -> Float64[Tensor, "S *rest"]:
        """Sums over the views of each scene."""
        if len(values) == self.mask.numel():
            return values.reshape(*self.mask.shape, *values.shape[1:]).sum(1)
        everywhere = torch.zeros(*self.mask.shape, *values.shape[1:], device=values.device, dtype=values.dtype)
        everywhere[self.mask] = values
        return everywhere.sum(1)


def comparisons(prediction: Decomposition, truth: SceneTruth) -> Iterator[Comparison]:
    """All scenes, in order, in blocks of bounded memory."""
    _, views, layers, height, width = prediction.layer_masks.shape
    objects = true_objects(truth)
    per_view = max((layers + objects) * height * width, 4 * layers * (objects + 1))
    block = max(1, NUMBERS_AT_ONCE[prediction.layer_masks.device.type] // max(1, views * per_view))
    for first in range(0, len(prediction.layer_masks), block):
        yield _compared(prediction, truth, slice(first, first + block), objects)


def _compared(prediction: Decomposition, truth: SceneTruth, scenes: slice, objects: int) -> Comparison:
    assert truth.segment is not None
    mask = truth.view_mask[scenes]
    whole = bool(mask.all())

    def real(values: Tensor) -> Tensor:
        return values[scenes].flatten(0, 1) if whole else values[scenes][mask]

    def real_if(values: Tensor | None) -> Tensor | None:
        return None if values is None else real(values)

    return Comparison(
        mask=mask,
        scene=mask.nonzero()[:, 0],
        objects=objects,
        segment=real(truth.segment),
        shapes=real_if(truth.shapes),
        true_order=real_if(truth.depth_order),
        layers=real(prediction.layer_masks),
        has_background=prediction.has_background,
        complete=real_if(prediction.complete_shapes),
        order=real_if(prediction.depth_order),
        presence=None if prediction.presence is None else prediction.presence[scenes],
    )


@dataclass(frozen=True)
class Tables:
    """Contingency tables of R = G + 1 true labels (background, then objects) and predicted ones."""

    every: Float64[Tensor, "S R L"]
    """All pixels; columns are layers."""
    seen: Float64[Tensor, "S G K"]
    """Pixels where an object is seen; the columns are the best objects, whether or not the background is better."""
    covered: Float64[Tensor, "S R K"] | None
    """Pixels that a complete shape covers; columns as before. None if complete shapes are not known."""

    @property
    def objects(self) -> Float64[Tensor, "S G K"]:
        """The part of `every` that lies in objects on both sides."""
        return self.every[:, 1:, self.every.shape[2] - self.seen.shape[2] :]

    @classmethod
    def concatenate(cls, parts: "list[Tables]") -> "Tables":
        """Join along the scene axis."""
        covered = [part.covered for part in parts if part.covered is not None]
        every, seen = (torch.cat([getattr(part, name) for part in parts]) for name in ("every", "seen"))
        return cls(every, seen, torch.cat(covered) if covered else None)


def tables_of(views: Comparison) -> Tables:
    """All from one count of (true label, covered or not, best object, background better or not)."""
    rows, columns = views.objects + 1, views.object_layers.shape[1]
    label = (views.segment + 1).to(torch.int32)  # bytes wrap: the background, 255, becomes 0
    covered = torch.zeros_like(views.segment, dtype=torch.bool)
    if views.shapes is not None and rows > 1:
        covered = views.shapes.amax(1) >= COVERED
    winner, background = partition(views.layers, views.has_background)
    joint = contingency((2 * label + covered).flatten(1), (2 * winner + background).flatten(1), 2 * rows, 2 * columns)
    counts = views.by_scene(joint).reshape(-1, rows, 2, columns, 2)
    every = counts[..., 0].sum(2)
    if views.has_background:
        every = torch.cat([counts[..., 1].sum((2, 3))[..., None], every], 2)
    return Tables(every, counts[:, 1:].sum((2, 4)), None if views.shapes is None else counts[:, :, 1].sum(3))


def match(prediction: Decomposition, truth: SceneTruth) -> Int[Tensor, "S G"]:
    """The matching of "paper": the slot of each true object, counted without the background layer, or -1."""
    return torch.cat([assign(tables_of(views).objects) for views in comparisons(prediction, truth)])


def soft_match(views: Comparison) -> Int[Tensor, "S G"]:
    """The matching of "pooled"."""
    return assign(views.by_scene(soft_overlap(views.visible(), views.object_layers)))


def score_scenes(prediction: Decomposition, truth: SceneTruth) -> SceneScores:
    """All metrics of every scene, on the device of the arguments.

    Pixels are counted a bounded number of scenes at a time, and the counts of all scenes are scored together.
    """
    check_comparable(prediction, truth)
    if truth.scene_segment is None:
        nothing = torch.zeros(len(prediction.layer_masks), len(METRICS), dtype=torch.float64)
        return SceneScores(nothing / 0, nothing, nothing)
    blocks = [_counted(views) for views in comparisons(prediction, truth)]
    tables = Tables.concatenate([block.tables for block in blocks])
    every = _partition("A", tables.every)
    paper = {**every, **_partition("O", tables.seen), **_joined([block.paper for block in blocks])}
    covered = torch.zeros_like(tables.seen) if tables.covered is None else tables.covered  # no pixels: no score
    pooled = {**every, **_partition("O", covered), **_joined([block.pooled for block in blocks])}
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
    hard, soft = assign(tables.objects), soft_match(views)
    ordered = None if views.order is None else views.shapes
    overlaps = None if ordered is None else pair_overlaps(views.segment, ordered)
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
    if views.complete is None or views.shapes is None:
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


def check_comparable(prediction: Decomposition, truth: SceneTruth) -> None:
    """One clear line where the sizes of a prediction and its truth disagree."""
    scenes, views, layers, height, width = prediction.layer_masks.shape
    slots = layers - prediction.has_background
    if slots < 1 or not scenes:
        raise UserError(f"layer_masks {_size(prediction.layer_masks)}: at least one scene and one object layer needed")
    _check_sizes(
        prediction,
        {
            "segment": (truth.segment, (scenes, views, height, width)),
            "view_mask": (truth.view_mask, (scenes, views)),
            "complete_shapes": (prediction.complete_shapes, (scenes, views, slots, height, width)),
            "presence": (prediction.presence, (scenes, slots)),
            "depth_order": (prediction.depth_order, (scenes, views, slots)),
        },
    )
    if truth.segment is None or truth.shapes is None:
        return
    objects = true_objects(truth)
    _check_sizes(
        prediction,
        {
            "shapes": (truth.shapes, (scenes, views, objects, height, width)),
            "depth_order of the truth": (truth.depth_order, (scenes, views, objects)),
        },
    )
    labels = truth.segment[truth.view_mask]
    if ((labels >= objects) & (labels != BACKGROUND)).any():
        raise UserError(f"segment names an object beyond the {objects} of shapes; {BACKGROUND} is the background")


def _check_sizes(prediction: Decomposition, expected: dict[str, tuple[Tensor | None, tuple[int, ...]]]) -> None:
    for name, (tensor, shape) in expected.items():
        if tensor is not None and tuple(tensor.shape) != shape:
            wanted = ", ".join(map(str, shape))
            raise UserError(
                f"{name} {_size(tensor)} does not fit layer_masks {_size(prediction.layer_masks)}: [{wanted}]"
            )


def _size(tensor: Tensor) -> str:
    return f"[{', '.join(map(str, tensor.shape))}]"
