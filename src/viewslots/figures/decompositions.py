"""What methods made of scenes: observation, reconstruction, objects sorted by presence, background.

Of an InferredScene all layers are known, hidden parts included; of a mere Decomposition, what is seen of them.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float
from torch import Tensor

from viewslots.figures.grid import Block, Pixels, Row, Sheet, grid, headed
from viewslots.figures.sheets import segment_overlay
from viewslots.types import BACKGROUND, PRESENT, Decomposition
from viewslots.viewpoints.export import pixels_of
from viewslots.viewpoints.scene import InferredScene, View

Kind = Literal["perceived", "complete"]
"""What is seen of each layer, or the whole of it, as if nothing stood before it."""
ABSENT = 216
"""The grey of a slot that is not used. Layers lie on white."""
SEEN = "what is seen of each layer"
ROOM = 12
"""Slots that have a column each. Methods with more show all that are present, but no more of the absent ones."""


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


def warning_of(scenes: Sequence[InferredScene]) -> str | None:
    """Of all scenes whose pictures are unlike what their model knows, if there are any."""
    told = {number: scene.warning for number, scene in enumerate(scenes, 1) if scene.warning is not None}
    if len(scenes) == 1:
        return told.get(1)
    return "; ".join(f"scene {number}: {warning}" for number, warning in told.items()) or None


def decomposition_figure(scenes: Sequence[InferredScene], kind: Kind, note: str = "") -> Sheet:
    """Rows: the views of several scenes. Columns as in `column_names`. Warnings stand above everything, and nothing
    says how sure the model is of the objects of an unfamiliar scene."""
    what = {"perceived": SEEN, "complete": "complete layers, hidden parts included"}[kind]
    blocks = []
    for number, scene in enumerate(scenes, 1):
        views = scene.render_many(scene.views)
        rows = tuple(Row(f"view {m + 1}", cells_of(scene, m, view, kind)) for m, view in enumerate(views))
        sure = () if scene.warning else presences(scene)
        blocks.append(Block(f"Scene {number}: {objects_found(scene.count)}; {what}", rows, sure))
    sheet = grid(f"Decomposition of scenes, {what}", column_names(len(scenes[0].objects)), blocks, note=note)
    return headed(sheet, f"Warning: {warning}.") if (warning := warning_of(scenes)) else sheet


def objects_found(count: int) -> str:
    return f"{count} object{'s' * (count != 1)} found"


def answer_figure(
    images: Sequence[Float[Tensor, "M 3 H W"]], answers: Sequence[Decomposition], note: str = ""
) -> Sheet:
    """The same from Decompositions alone, each of one scene. A method without background has slots; they are sorted by
    presence where it tells that."""
    first = answers[0].has_background
    K, noun = answers[0].layer_masks.shape[2] - first, "object" if first else "slot"
    shown = columns_for(answers, K)
    columns = ["observation", "reconstruction", *(f"{noun} {place + 1}" for place in range(shown))]
    columns += ["background"] if first else []
    blocks = []
    for number, (pictures, answer) in enumerate(zip(images, answers, strict=True), 1):
        sure = [1.0] * K if answer.presence is None else answer.presence[0].tolist()
        order = sorted(range(K), key=lambda k: -sure[k])[:shown]
        rows = tuple(
            Row(f"view {m + 1}", (pixels_of(picture), *answer_cells(answer, m, order, sure)))
            for m, picture in enumerate(pictures)
        )
        told = answer.presence is not None
        found = f"{objects_found(sum(value >= PRESENT for value in sure))}; " if told else ""
        captions = ("", "", *(f"presence {sure[k]:.2f}" for k in order)) if told else ()
        blocks.append(Block(f"Scene {number}: {found}{SEEN}", rows, captions))
    return grid(f"Decomposition of scenes, {SEEN}", columns, blocks, note=note)


def columns_for(answers: Sequence[Decomposition], slots: int) -> int:
    """All slots, or as many as fit and are present in some scene, where presence is told."""
    told = [answer.presence for answer in answers if answer.presence is not None]
    if not told:
        return slots
    return min(slots, max(ROOM, *(int((one[0] >= PRESENT).sum()) for one in told)))


def answer_cells(answer: Decomposition, view: int, order: Sequence[int], sure: Sequence[float]) -> list[Pixels]:
    """Reconstruction, slots in this order, background if there is one; absent slots are plain grey."""
    shown, masks, first = answer.reconstruction[0, view], answer.layer_masks[0, view], answer.has_background
    absent = np.full((*shown.shape[1:], 3), ABSENT, np.uint8)
    slots = [on_white(shown, masks[k + first]) if sure[k] >= PRESENT else absent for k in order]
    return [pixels_of(shown), *slots, *([on_white(shown, masks[0])] if first else [])]
