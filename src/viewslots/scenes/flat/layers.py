"""Flat layers: placed so that each stays visible, and painted in order into Pictures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float, UInt8

from viewslots.errors import UserError
from viewslots.types import BACKGROUND, COVERED, Pictures

T = TypeVar("T")

MIN_VISIBLE = 0.25
"""Least share of its covered pixels that an object shows."""
TRIES = 10
"""Places tried for one object before the whole picture starts again."""
RESTARTS = 1000
"""Far more than any rule of ours needs: reached only by art that can never be placed."""


@dataclass(frozen=True)
class Layer:
    """One object of a picture."""

    color: Float[np.ndarray, "*#HW 3"]
    """sRGB, 0 to 255, one colour or one a pixel."""
    alpha: UInt8[np.ndarray, "H W"]
    nearness: float
    """Larger is nearer; no two layers of a picture share it."""


@dataclass(frozen=True)
class Painting:
    """A picture before it is painted."""

    ground: Float[np.ndarray, "*#HW 3"]
    layers: Sequence[Layer]


def place(
    count: int,
    propose: Callable[[list[T]], T],
    mask_of: Callable[[T], Bool[np.ndarray, "H W"]],
    nearness_of: Callable[[list[T]], list[float]],
) -> tuple[T, ...]:
    """`count` items, one after another, each tried anew until it and all before it stay visible.

    `propose` draws one more item for a picture that holds those given; `nearness_of` orders a whole picture.
    """

    def one_more(items: list[T], masks: list[np.ndarray]) -> bool:
        for _ in range(TRIES):
            item = propose(items)
            mask = mask_of(item)
            if all_visible([*masks, mask], nearness_of([*items, item])):
                items.append(item)
                masks.append(mask)
                return True
        return False

    for _ in range(RESTARTS):
        items: list[T] = []
        masks: list[np.ndarray] = []
        while len(items) < count and one_more(items, masks):
            pass
        if len(items) == count:
            return tuple(items)
    raise UserError(f"{count} objects find no place where each keeps {MIN_VISIBLE:.0%} visible; use smaller art")


def all_visible(masks: Sequence[Bool[np.ndarray, "H W"]], nearness: Sequence[float]) -> bool:
    """Whether each mask keeps its least share outside the nearer ones."""
    taken = np.zeros_like(masks[0])
    for k in near_first(nearness):
        area = np.count_nonzero(masks[k])
        if np.count_nonzero(masks[k] & ~taken) < MIN_VISIBLE * area:
            return False
        taken |= masks[k]
    return True


def near_first(nearness: Sequence[float]) -> list[int]:
    return sorted(range(len(nearness)), key=lambda k: -nearness[k])


def paint(
    ground: Float[np.ndarray, "*#HW 3"], layers: Sequence[Layer], height: int, width: int
) -> tuple[UInt8[np.ndarray, "H W 3"], UInt8[np.ndarray, "H W"]]:
    """Image and segment: each layer takes its alpha of what the nearer ones left, the ground takes the rest.

    A pixel belongs to the layer with the largest share, where the layers together take at least half.
    """
    left = np.ones((height, width), np.float32)
    image = np.zeros((height, width, 3), np.float32)
    largest = np.zeros((height, width), np.float32)
    segment = np.full((height, width), BACKGROUND, np.uint8)
    for k in near_first([layer.nearness for layer in layers]):
        share = left * (layers[k].alpha / np.float32(255))
        image += share[..., None] * layers[k].color.astype(np.float32)
        segment[share > largest] = k
        np.maximum(largest, share, out=largest)
        left -= share
    image += left[..., None] * ground.astype(np.float32)
    segment[left > 0.5] = BACKGROUND
    return np.rint(image).astype(np.uint8), segment


def paint_all(paintings: Sequence[Painting], slots: int, height: int, width: int) -> Pictures:
    """Pictures with one view each; flat worlds have neither shadows nor a camera."""
    scenes = len(paintings)
    image = np.zeros((scenes, 1, height, width, 3), np.uint8)
    segment = np.zeros((scenes, 1, height, width), np.uint8)
    shapes = np.zeros((scenes, 1, slots, height, width), np.uint8)
    order = np.full((scenes, 1, slots), -np.inf, np.float32)
    for s, painting in enumerate(paintings):
        if len(painting.layers) > slots:
            raise UserError(f"scene {s} has {len(painting.layers)} objects, more than the {slots} slots asked for")
        image[s, 0], segment[s, 0] = paint(painting.ground, painting.layers, height, width)
        for k, layer in enumerate(painting.layers):
            shapes[s, 0, k] = layer.alpha
            order[s, 0, k] = layer.nearness
    return Pictures(
        image=image,
        segment=segment,
        overlap=(shapes >= COVERED).sum(2).astype(np.uint8),
        shapes=shapes,
        shadows=np.zeros_like(shapes),
        depth_order=order,
        camera=np.zeros((scenes, 1, 3), np.float32),
        num_objects=np.array([len(painting.layers) for painting in paintings], np.uint8),
    )
