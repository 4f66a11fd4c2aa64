"""What a model made of scenes: observation, reconstruction, objects sorted by presence, background."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float
from torch import Tensor

from viewslots.figures.grid import Block, Row, grid
from viewslots.figures.layout import Pixels, Sheet
from viewslots.figures.sheets import segment_overlay
from viewslots.types import BACKGROUND
from viewslots.viewpoints.export import pixels_of
from viewslots.viewpoints.scene import InferredScene, View

Kind = Literal["perceived", "complete"]
"""What is seen of each layer, or the whole of it, as if nothing stood before it."""
ABSENT = 216
"""The grey of a slot that is not used. Layers lie on white."""


def on_white(colour: Float[Tensor, "3 H W"], alpha: Float[Tensor, "H W"]) -> Pixels:
    return pixels_of(1 - alpha + colour.clamp(0, 1) * alpha)


def sorted_objects(scene: InferredScene) -> list[int]:
    """Slots by presence, the surest first; equals in their order."""
    presence = scene.presence.tolist()
    return sorted(range(len(presence)), key=lambda k: -presence[k])


def object_cells(scene: InferredScene, view: View, kind: Kind) -> list[Pixels]:
    """Every slot, sorted; absent ones are plain grey."""
    alpha = view.complete if kind == "complete" else view.masks[1:]
    absent = np.full((*view.image.shape[1:], 3), ABSENT, np.uint8)
    return [on_white(view.appearance[k], alpha[k]) if k in view.shown else absent for k in sorted_objects(scene)]


def background_cell(view: View, kind: Kind) -> Pixels:
    """What is seen has shadows on it; the whole of it, as behind no objects, has none."""
    return pixels_of(view.bare) if kind == "complete" else on_white(view.background, view.masks[0])


def tinted(image: Float[Tensor, "3 H W"], view: View, order: Sequence[int]) -> Pixels:
    """The picture with each object in its colour: the first of `order` in the first colour."""
    place = np.full(len(order) + 1, BACKGROUND, np.uint8)
    place[np.asarray(order, int) + 1] = np.arange(len(order))
    return segment_overlay(pixels_of(image), place[view.segment().cpu().numpy()], len(order))


def cells_of(scene: InferredScene, index: int, view: View, kind: Kind) -> tuple[Pixels, ...]:
    """A row of the decomposition, in the order of `column_names`."""
    if scene.images is None:
        raise ValueError("a scene from the prior was never observed")
    first = (pixels_of(scene.images[index]), pixels_of(view.image))
    return (*first, *object_cells(scene, view, kind), background_cell(view, kind))


def column_names(slots: int) -> tuple[str, ...]:
    return ("observation", "reconstruction", *(f"object {place + 1}" for place in range(slots)), "background")


def presences(scene: InferredScene) -> tuple[str, ...]:
    """Captions below `column_names`."""
    sure = [f"presence {float(scene.presence[k]):.2f}" for k in sorted_objects(scene)]
    return ("", "", *sure, "")


def decomposition_figure(scenes: Sequence[InferredScene], kind: Kind) -> Sheet:
    """Rows: the views of several scenes. Columns as in `column_names`."""
    what = {"perceived": "what is seen of each layer", "complete": "complete layers, hidden parts included"}[kind]
    blocks = []
    for number, scene in enumerate(scenes, 1):
        views = scene.render_many(scene.views)
        rows = tuple(Row(f"view {m + 1}", cells_of(scene, m, view, kind)) for m, view in enumerate(views))
        count = scene.count
        found = f"{count} object{'s' * (count != 1)} found"
        blocks.append(Block(f"Scene {number}: {found}; {what}", rows, presences(scene)))
    return grid(f"Decomposition of scenes, {what}", column_names(len(scenes[0].objects)), blocks)
