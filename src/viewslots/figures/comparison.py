"""Several methods on the same scenes, in colours that follow the truth."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float, Int, UInt8
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from viewslots.figures.grid import Block, Row, grid
from viewslots.figures.layout import Sheet
from viewslots.figures.sheets import segment_overlay
from viewslots.types import BACKGROUND, Decomposition
from viewslots.viewpoints.export import pixels_of

Segment = UInt8[np.ndarray, "M H W"]


def comparison_figure(
    image: Float[Tensor, "S M 3 H W"], truth: UInt8[np.ndarray, "S M H W"], answers: Mapping[str, Decomposition]
) -> Sheet:
    """A block for each scene. Columns: views. Rows: the picture, the truth, and of each method what it rebuilds and
    whose pixels it takes each for. An object has the colour of the true one that it shares most pixels with.
    """
    blocks = []
    for scene, pictures in enumerate(image):
        rows = [Row("observation", tuple(map(pixels_of, pictures))), overlay_row("truth", pictures, truth[scene])]
        for name, answer in answers.items():
            rows.append(Row(f"{name}: reconstruction", tuple(map(pixels_of, answer.reconstruction[scene]))))
            found = in_colours_of(truth[scene], winning_layer(answer, scene), answer.has_background)
            rows.append(overlay_row(f"{name}: objects", pictures, found))
        blocks.append(Block(f"Scene {scene + 1}", tuple(rows)))
    columns = [f"view {view + 1}" for view in range(image.shape[1])]
    return grid("Several methods on the same scenes", columns, blocks)


def overlay_row(name: str, pictures: Float[Tensor, "M 3 H W"], segment: Segment) -> Row:
    slots = 1 + max((int(value) for value in np.unique(segment) if value != BACKGROUND), default=0)
    cells = [segment_overlay(pixels_of(one), part, slots) for one, part in zip(pictures, segment, strict=True)]
    return Row(name, tuple(cells))


def winning_layer(answer: Decomposition, scene: int) -> Int[np.ndarray, "M H W"]:
    return answer.layer_masks[scene].argmax(1).cpu().numpy()


def in_colours_of(truth: Segment, layer: Int[np.ndarray, "M H W"], has_background: bool) -> Segment:
    """Layers renamed to the true objects they overlap most, one to one; those left over get numbers beyond.

    Where a method names no background, the layer that shares most with the true one counts as such.
    """
    objects = sorted(set(np.unique(truth).tolist()) - {BACKGROUND})
    layers = np.unique(layer).tolist()
    ground = 0 if has_background else max(layers, key=lambda one: int(((layer == one) & (truth == BACKGROUND)).sum()))
    free = [one for one in layers if one != ground]
    shared = np.array([[((layer == one) & (truth == g)).sum() for g in objects] for one in free])
    pairs = zip(*linear_sum_assignment(-shared), strict=True) if shared.size else ()
    names = {free[row]: objects[column] for row, column in pairs}
    result = np.full(truth.shape, BACKGROUND, np.uint8)
    beyond = max(objects, default=-1) + 1
    for one in free:
        if one not in names:
            names[one], beyond = beyond, beyond + 1
        result[layer == one] = names[one]
    return result
