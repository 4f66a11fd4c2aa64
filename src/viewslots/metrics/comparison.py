"""A prediction beside the truth, view by view: padding left out, a bounded number of scenes at a time."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Float64, Int, UInt8
from torch import Tensor

from viewslots.data.dataset import SceneTruth
from viewslots.errors import UserError
from viewslots.metrics.segmentation import contingency, partition
from viewslots.types import BACKGROUND, COVERED, Decomposition

NUMBERS_AT_ONCE = {"cpu": 2**22, "cuda": 2**27}
"""Values of masks and shapes compared at once: near a CPU's cache but worth its threads, or enough to fill a GPU."""


@dataclass(frozen=True)
class Comparison:
    """V real views of S scenes; padded views never enter, whatever they hold."""

    mask: Bool[Tensor, "S M"]
    """Which views are real: V of them."""
    scene: Int[Tensor, "V"]
    """The scene of each."""
    segment: UInt8[Tensor, "V H W"]
    shapes: UInt8[Tensor, "V G H W"]
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
        index = torch.arange(self.shapes.shape[1], device=self.segment.device, dtype=torch.uint8)
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
    assert truth.shapes is not None
    objects = truth.shapes.shape[2]
    per_view = max((layers + objects) * height * width, 4 * layers * (objects + 1))
    block = max(1, NUMBERS_AT_ONCE[prediction.layer_masks.device.type] // max(1, views * per_view))
    for first in range(0, len(prediction.layer_masks), block):
        yield _compared(prediction, truth, slice(first, first + block))


def _compared(prediction: Decomposition, truth: SceneTruth, scenes: slice) -> Comparison:
    assert truth.segment is not None
    assert truth.shapes is not None
    mask = truth.view_mask[scenes]
    whole = bool(mask.all())

    def real(values: Tensor) -> Tensor:
        return values[scenes].flatten(0, 1) if whole else values[scenes][mask]

    def real_if(values: Tensor | None) -> Tensor | None:
        return None if values is None else real(values)

    return Comparison(
        mask=mask,
        scene=mask.nonzero()[:, 0],
        segment=real(truth.segment),
        shapes=real(truth.shapes),
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
    covered: Float64[Tensor, "S R K"]
    """Pixels that a complete shape covers; columns as before."""

    @property
    def objects(self) -> Float64[Tensor, "S G K"]:
        """The part of `every` that lies in objects on both sides."""
        return self.every[:, 1:, self.every.shape[2] - self.seen.shape[2] :]

    @classmethod
    def concatenate(cls, parts: "list[Tables]") -> "Tables":
        """Join along the scene axis."""
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in ("every", "seen", "covered")))


def tables_of(views: Comparison) -> Tables:
    """All from one count of (true label, covered or not, best object, background better or not)."""
    rows, columns = views.shapes.shape[1] + 1, views.object_layers.shape[1]
    label = (views.segment + 1).to(torch.int32)  # bytes wrap: the background, 255, becomes 0
    covered = views.shapes.amax(1) >= COVERED if rows > 1 else torch.zeros_like(views.segment, dtype=torch.bool)
    winner, background = partition(views.layers, views.has_background)
    joint = contingency((2 * label + covered).flatten(1), (2 * winner + background).flatten(1), 2 * rows, 2 * columns)
    counts = views.by_scene(joint).reshape(-1, rows, 2, columns, 2)
    every = counts[..., 0].sum(2)
    if views.has_background:
        every = torch.cat([counts[..., 1].sum((2, 3))[..., None], every], 2)
    return Tables(every, counts[:, 1:].sum((2, 4)), counts[:, :, 1].sum(3))


def check_comparable(prediction: Decomposition, truth: SceneTruth) -> None:
    """One clear line where the sizes of a prediction and its truth disagree."""
    assert truth.segment is not None
    assert truth.shapes is not None
    scenes, views, layers, height, width = prediction.layer_masks.shape
    slots, objects = layers - prediction.has_background, truth.shapes.shape[2]
    if slots < 1 or not scenes:
        raise UserError(f"layer_masks {_size(prediction.layer_masks)}: at least one scene and one object layer needed")
    expected = {
        "segment": (truth.segment, (scenes, views, height, width)),
        "shapes": (truth.shapes, (scenes, views, objects, height, width)),
        "view_mask": (truth.view_mask, (scenes, views)),
        "depth_order of the truth": (truth.depth_order, (scenes, views, objects)),
        "complete_shapes": (prediction.complete_shapes, (scenes, views, slots, height, width)),
        "presence": (prediction.presence, (scenes, slots)),
        "depth_order": (prediction.depth_order, (scenes, views, slots)),
    }
    for name, (tensor, shape) in expected.items():
        if tensor is not None and tuple(tensor.shape) != shape:
            wanted = ", ".join(map(str, shape))
            raise UserError(
                f"{name} {_size(tensor)} does not fit layer_masks {_size(prediction.layer_masks)}: [{wanted}]"
            )
    labels = truth.segment[truth.view_mask]
    if ((labels >= objects) & (labels != BACKGROUND)).any():
        raise UserError(f"segment names an object beyond the {objects} of shapes; {BACKGROUND} is the background")


def _size(tensor: Tensor) -> str:
    return f"[{', '.join(map(str, tensor.shape))}]"
