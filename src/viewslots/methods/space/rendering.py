"""From objects and background components to a picture."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.methods.distributions import full_precision
from viewslots.methods.space.variables import Cells
from viewslots.methods.spatial import paste, pixel_centres, tents

SHARPNESS = 100.0
"""Of the softmax that decides which object is in front."""
LEAST_SCALE = 1e-9
"""Added to scales that are divided by."""
FRAME_SIZE, FRAME_WIDTH = 32, 6
"""Of the frame at the edges of every glimpse, where no object should be, in pixels of a glimpse."""
FRAME_GAIN = 1000 / FRAME_SIZE**2
"""Its height."""


@dataclass(frozen=True)
class Layers:
    """What the foreground shows of N pictures."""

    image: Float[Tensor, "N 3 H W"]
    """Colours, already weighted by alpha."""
    alpha: Float[Tensor, "N H W"]
    """How much of a pixel the objects take; the background has the rest."""
    weights: Float[Tensor, "N K H W"]
    """Presence of every object times its importance."""
    shapes: Float[Tensor, "N K H W"]
    """Complete shapes, as if all objects were there and nothing stood before them."""

    @property
    def perceived(self) -> Float[Tensor, "N K H W"]:
        """What is seen of each object: importance * presence * alpha."""
        return self.weights * self.shapes


@full_precision
def composed(glimpses: Float[Tensor, "N K 4 g g"], cells: Cells, size: tuple[int, int]) -> Layers:
    """Paste every object at its place; the nearer one wins where several meet.

    Importance is a softmax over cells of 100 * alpha * presence * sigmoid(-depth), also of those that have nothing
    there. Presence and depth are numbers a cell, so they may be multiplied after pasting: four channels are enough.
    """
    alpha = glimpses[:, :, 3:]
    painted = torch.cat([glimpses[:, :, :3] * alpha, alpha], 2).flatten(0, 1)
    scale = cells.scale.flatten(0, 1) + LEAST_SCALE
    pasted = paste(painted, scale, cells.centre.flatten(0, 1), size).view(*glimpses.shape[:3], *size)
    shapes = pasted[:, :, 3]
    logits = (SHARPNESS * cells.presence * (-cells.depth).sigmoid())[..., None, None] * shapes
    weights = logits.softmax(1) * cells.presence[..., None, None]
    shown = (weights[:, :, None] * pasted).sum(1)
    return Layers(image=shown[:, :3], alpha=shown[:, 3], weights=weights, shapes=shapes)


def frames(cells: Cells, size: tuple[int, int]) -> Float[Tensor, "N H W"]:
    """The frames of all present objects, pasted and summed.

    A frame is a full square minus an inner one, and a pasted square is a column times a row. So the sum over cells is
    one matrix product, and no cell's frame is ever made.
    """
    (height, width), x, y = size, 0, 1
    rows = profiles(cells.scale[..., y], cells.centre[..., y], height)
    columns = profiles(cells.scale[..., x], cells.centre[..., x], width)
    return FRAME_GAIN * framed(rows, columns, cells.presence)


@full_precision
def profiles(scale: Float[Tensor, "N K"], centre: Float[Tensor, "N K"], length: int) -> Float[Tensor, "N K length 2"]:
    """Along one axis of the picture: how much of the full and of the inner square lies at every pixel."""
    place = torch.arange(FRAME_SIZE, device=scale.device)
    inside = (place >= FRAME_WIDTH) & (place < FRAME_SIZE - FRAME_WIDTH)
    squares = torch.stack([torch.ones_like(inside), inside], 1).to(scale.dtype)
    places = (pixel_centres(length, scale) - centre[..., None]) / (scale[..., None] + LEAST_SCALE)
    return tents(places, FRAME_SIZE) @ squares


@full_precision
def framed(
    rows: Float[Tensor, "N K H 2"], columns: Float[Tensor, "N K W 2"], presence: Float[Tensor, "N K"]
) -> Float[Tensor, "N H W"]:
    """Full squares minus inner ones, of all cells at once."""
    signed = rows * torch.stack([presence, -presence], -1)[:, :, None]
    return signed.transpose(1, 2).flatten(2) @ columns.transpose(1, 2).flatten(2).mT
