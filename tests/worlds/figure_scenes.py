"""Scenes for the tests of figures/: an untrained model, whose pictures still differ from view to view."""

from dataclasses import replace
from functools import cache

import numpy as np
import torch

from viewslots.figures.grid import Panel, Sheet
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.presets import TINY
from viewslots.viewpoints.scene import InferredScene, Reader, View

SIZE, SLOTS = 32, 4
PRESENCE = (0.7, 0.2, 0.9, 0.5)
"""Sorted: slots 2, 0, 3 and 1; the last is absent, and 0.5 is just present."""


@cache
def reader() -> Reader:
    model = Ocloc(replace(TINY, slots=SLOTS, view_dim=3), torch.Generator().manual_seed(0))
    for parameter in model.generation.parameters():
        parameter.data.mul_(1.5)  # untrained decoders hardly know one view from another
    return Reader(model, "untrained")


def pictures(seed: int, views: int) -> torch.Tensor:
    """Coarse random patterns, as exact bytes."""
    coarse = torch.randint(0, 256, (views, 3, 8, 8), generator=torch.Generator().manual_seed(seed))
    return coarse.repeat_interleave(4, 2).repeat_interleave(4, 3).float() / 255


def scene(seed: int = 0, views: int = 3, presence: tuple[float, ...] = PRESENCE) -> InferredScene:
    found = reader().decompose(pictures(seed, views))
    spread = 3 * torch.randn(found.views.shape, generator=torch.Generator().manual_seed(seed))
    return replace(found, presence=torch.tensor(presence), views=spread)


def flat_view(shown: tuple[int, ...] = (0, 2, 3)) -> View:
    """Made by hand: object k is of one colour; it covers rows from 8 k on completely, and half of it is seen."""
    complete = torch.zeros(SLOTS, SIZE, SIZE)
    for k in shown:
        complete[k, 8 * k :] = 1
    masks = torch.zeros(SLOTS + 1, SIZE, SIZE)
    for k in shown:
        masks[k + 1, 8 * k : 8 * k + 4] = 1
    masks[0] = 1 - masks[1:].sum(0)
    colours = torch.tensor([[1.0, 0.2, 0.2], [0, 0, 0], [0.2, 1.0, 0.4], [0.2, 0.4, 1.2]])
    appearance = colours[:, :, None, None].expand(SLOTS, 3, SIZE, SIZE)
    order = torch.arange(SLOTS).float()
    background = torch.full((3, SIZE, SIZE), 0.6)
    return View(background, masks, complete, appearance, background, background + 0.2, order, shown)


def as_bytes(picture: torch.Tensor) -> np.ndarray:
    """Twin of the figures' own conversion, pixel by pixel."""
    values = np.asarray(picture.tolist())
    return np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8).transpose(1, 2, 0)


def rows_of(sheet: Sheet) -> list[list[Panel]]:
    """Panels by their height on the sheet, then from left to right."""
    tops = sorted({panel.top for panel in sheet.panels})
    return [sorted((panel for panel in sheet.panels if panel.top == top), key=lambda one: one.left) for top in tops]


def cut(image: np.ndarray, panel: Panel) -> np.ndarray:
    """The panel's place in a picture of the sheet, brought back to its own size; fails if it grew unevenly."""
    width, height = panel.size
    grown = image[panel.top : panel.top + height, panel.left : panel.left + width]
    small = grown[:: panel.zoom, :: panel.zoom]
    assert (grown == small.repeat(panel.zoom, 0).repeat(panel.zoom, 1)).all()
    return small


def words(sheet: Sheet) -> list[str]:
    return [label.text for label in sheet.labels]
