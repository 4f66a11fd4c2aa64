"""Several methods on the same scenes, as the supplement compares them: a column a picture, a block a method.

An object has the same colour everywhere: that of the true object that it shares most pixels with; without truth, of
the first method's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Float32, Int, UInt8
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from viewslots.figures.decompositions import ABSENT, on_white
from viewslots.figures.grid import Block, Pixels, Row, Sheet, grid, whole_zoom
from viewslots.figures.sheets import depth_overlay, outline_overlay, segment_overlay
from viewslots.types import BACKGROUND, PRESENT, Decomposition, SceneTruth
from viewslots.viewpoints.export import pixels_of

PANEL = 128
"""Pixels of a panel at most, if pictures are not larger: a comparison has many."""
Segment = UInt8[np.ndarray, "M H W"]
Pictures = Float[Tensor, "M 3 H W"]


@dataclass(frozen=True)
class Seen:
    """What somebody sees in the pictures of a scene. Objects are numbers, which give them their colours."""

    segment: Segment
    count: int
    shapes: UInt8[np.ndarray, "M N H W"] | None
    order: Float32[np.ndarray, "M N"] | None
    """Larger is nearer; -inf: no such object."""
    layers: tuple[tuple[int, Float[Tensor, "M 3 H W"], Float[Tensor, "M H W"]], ...]
    """Number (BACKGROUND too), colour and mask of each layer that has a pixel."""


def comparison_figure(
    images: Sequence[Pictures], truths: Sequence[SceneTruth], answers: Mapping[str, Sequence[Decomposition]]
) -> Sheet:
    """Rows: the picture and its truth; of each method what it rebuilds, whose pixels it takes each for, and if it tells
    them, complete shapes and order."""
    blocks = []
    for name, seen in everyone(images, truths, answers):
        rows = (shown_row(name, images, answers), *(seen_rows(images, seen) if seen else ()))
        blocks.append(Block(name or ("Truth" if seen else ""), rows, _counts(seen)))
    return _sheet("Several methods on the same scenes", images, blocks)


def layers_figure(
    images: Sequence[Pictures], truths: Sequence[SceneTruth], answers: Mapping[str, Sequence[Decomposition]]
) -> Sheet:
    """The same, layer by layer: what is seen of every object, a row a number, and of the background."""
    blocks = []
    for name, seen in everyone(images, truths, answers):
        rows = (shown_row(name, images, answers), *layer_rows(seen))
        blocks.append(Block(name or ("Truth" if seen else ""), rows))
    return _sheet("Several methods on the same scenes, layer by layer", images, blocks)


def _sheet(title: str, images: Sequence[Pictures], blocks: Sequence[Block]) -> Sheet:
    columns = [
        f"scene {scene}" + (f", view {view}" if len(pictures) > 1 else "")
        for scene, pictures in enumerate(images, 1)
        for view in range(1, len(pictures) + 1)
    ]
    return grid(title, columns, blocks, whole_zoom(images[0].shape[-2:], PANEL))


def shown_row(name: str, images: Sequence[Pictures], answers: Mapping[str, Sequence[Decomposition]]) -> Row:
    """The pictures themselves, or what a method rebuilds of them."""
    pictures = [answer.reconstruction[0] for answer in answers[name]] if name else images
    return Row(
        "reconstruction" if name else "observation", tuple(pixels_of(one) for scene in pictures for one in scene)
    )


def _counts(seen: Sequence[Seen]) -> tuple[str, ...]:
    """A caption for the first view of every scene."""
    words = []
    for scene in seen:
        drawn = len(set(np.unique(scene.segment).tolist()) - {BACKGROUND})
        words.append(f"{scene.count} object{'s' * (scene.count != 1)}" + f", {drawn} in sight" * (drawn < scene.count))
    return tuple(
        word if view == 0 else "" for word, scene in zip(words, seen, strict=True) for view in range(len(scene.segment))
    )


def everyone(
    images: Sequence[Pictures], truths: Sequence[SceneTruth], answers: Mapping[str, Sequence[Decomposition]]
) -> Iterator[tuple[str, list[Seen]]]:
    """The truth, under the name "" (nothing where it is not known), then the methods."""
    known = [true_view(pictures, truth) for pictures, truth in zip(images, truths, strict=True)]
    references = [None if seen is None else seen.segment for seen in known]
    yield "", [seen for seen in known if seen is not None] if None not in known else []
    free = 1 + max((_largest(segment) for segment in references if segment is not None), default=-1)
    for name, found in answers.items():
        seen = [answer_view(answer, segment, free) for answer, segment in zip(found, references, strict=True)]
        references = [
            one.segment if segment is None else segment for one, segment in zip(seen, references, strict=True)
        ]
        free = max(free, *(1 + _largest(one.segment) for one in seen)) if None in known else free
        yield name, seen


def _largest(segment: Segment) -> int:
    return max((int(number) for number in np.unique(segment) if number != BACKGROUND), default=-1)


def true_view(pictures: Pictures, truth: SceneTruth) -> Seen | None:
    if truth.segment is None:
        return None
    segment = truth.segment[0].cpu().numpy()
    numbers = [int(number) for number in np.unique(segment)]
    shapes = None if truth.shapes is None else truth.shapes[0].cpu().numpy()
    order = None if truth.depth_order is None else truth.depth_order[0].cpu().numpy()
    layers = tuple((number, pictures, (truth.segment[0] == number).float()) for number in numbers)
    return Seen(segment, sum(number != BACKGROUND for number in numbers), shapes, order, layers)


def answer_view(answer: Decomposition, truth: Segment | None, free: int) -> Seen:
    masks, first = answer.layer_masks[0], int(answer.has_background)
    layer = masks.argmax(1).cpu().numpy()
    if truth is None:
        truth = np.where(layer == 0, BACKGROUND, layer - 1).astype(np.uint8) if first else layer.astype(np.uint8)
    numbers = numbers_of(truth, layer, answer.has_background, free)
    objects = {one: number for one, number in numbers.items() if number != BACKGROUND and one >= first}
    room = 1 + max(objects.values(), default=0)
    shapes = order = None
    if answer.complete_shapes is not None:
        shapes = np.zeros((len(masks), room, *masks.shape[-2:]), np.uint8)
        for one, number in objects.items():
            shapes[:, number] = (answer.complete_shapes[0, :, one - first] * 255).round().byte().cpu().numpy()
    if answer.depth_order is not None:
        order = np.full((len(masks), room), -np.inf, np.float32)
        for one, number in objects.items():
            order[:, number] = answer.depth_order[0, :, one - first].float().cpu().numpy()
    layers = tuple((number, answer.reconstruction[0], masks[:, one]) for one, number in numbers.items())
    return Seen(renamed(layer, numbers), count_of(answer, len(numbers)), shapes, order, layers)


def count_of(answer: Decomposition, winners: int) -> int:
    """As it is scored: presences, or without a background the layers that win a pixel, less one."""
    if answer.has_background and answer.presence is not None:
        return int((answer.presence[0] >= PRESENT).sum())
    return winners - 1


def numbers_of(truth: Segment, layer: Int[np.ndarray, "M H W"], has_background: bool, free: int) -> dict[int, int]:
    """Layers that win a pixel, and the true objects that they overlap most, one to one; the others count from `free`.

    Where a method names no background, the layer that shares most with the true one counts as such.
    """
    objects = sorted(set(np.unique(truth).tolist()) - {BACKGROUND})
    layers = np.unique(layer).tolist()
    ground = 0 if has_background else max(layers, key=lambda one: int(((layer == one) & (truth == BACKGROUND)).sum()))
    others = [one for one in layers if one != ground]
    shared = np.array([[((layer == one) & (truth == g)).sum() for g in objects] for one in others])
    pairs = zip(*linear_sum_assignment(-shared), strict=True) if shared.size else ()
    found = {others[row]: objects[column] for row, column in pairs}
    left = [one for one in others if one not in found]
    found |= {one: number for number, one in enumerate(left, max(free, max(objects, default=-1) + 1))}
    return found | ({ground: BACKGROUND} if ground in layers else {})


def renamed(layer: Int[np.ndarray, "M H W"], numbers: Mapping[int, int]) -> Segment:
    result = np.full(layer.shape, BACKGROUND, np.uint8)
    for one, number in numbers.items():
        result[layer == one] = number
    return result


def seen_rows(images: Sequence[Pictures], seen: Sequence[Seen]) -> Iterator[Row]:
    """What somebody sees, over the pictures."""
    views = [
        (pixels_of(picture), one, view)
        for scene, one in zip(images, seen, strict=True)
        for view, picture in enumerate(scene)
    ]
    yield Row("objects", tuple(segment_overlay(picture, one.segment[view], BACKGROUND) for picture, one, view in views))
    if all(one.shapes is not None for one in seen):
        cells = [outline_overlay(picture, one.shapes[view]) for picture, one, view in views if one.shapes is not None]
        yield Row("complete shapes", tuple(cells))
    if all(one.order is not None for one in seen):
        cells = [depth_overlay(one.order[view], one.segment[view]) for _, one, view in views if one.order is not None]
        yield Row("near (light) to far", tuple(cells))


def layer_rows(seen: Sequence[Seen]) -> Iterator[Row]:
    """One a number that any of the scenes has, the background last; grey where a scene has no such layer."""
    numbers = sorted({number for scene in seen for number, _, _ in scene.layers})
    for number in numbers:
        cells: list[Pixels] = []
        for scene in seen:
            found = [(colour, mask) for one, colour, mask in scene.layers if one == number]
            empty = np.full((*scene.segment.shape[1:], 3), ABSENT, np.uint8)
            for view in range(len(scene.segment)):
                cells.append(on_white(found[0][0][view], found[0][1][view]) if found else empty)
        yield Row("background" if number == BACKGROUND else f"object {number + 1}", tuple(cells))


def enlarged(answer: Decomposition, size: tuple[int, int]) -> Decomposition:
    """In another size, pixel by pixel: nothing is made smoother than the method answers."""

    def grown(values: Tensor | None) -> Tensor | None:
        if values is None or values.shape[-2:] == size:
            return values
        flat = values.reshape(1, -1, *values.shape[-2:])
        return torch.nn.functional.interpolate(flat, size, mode="nearest").reshape(*values.shape[:-2], *size)

    reconstruction, masks = grown(answer.reconstruction), grown(answer.layer_masks)
    assert reconstruction is not None
    assert masks is not None
    return replace(
        answer, reconstruction=reconstruction, layer_masks=masks, complete_shapes=grown(answer.complete_shapes)
    )
