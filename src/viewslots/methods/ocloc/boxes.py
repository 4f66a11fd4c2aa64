"""Ours: an object is drawn in a box that its code tells, and the box is put in its place.

A decoder that draws on the whole picture spends its codes and its pixels on where an object is, and draws discs. Boxes
begin as the picture. While a model learns, they are drawn to the shapes in them (`box_distance`), so they shrink around
objects once there are some.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.methods.distributions import full_precision
from viewslots.methods.ocloc.variables import Decoded
from viewslots.methods.spatial import paste, pixel_centres

ROOM = 3.0
"""Half the side of a box, in standard deviations of the shape in it: 1.5 radii of a disc."""
LEAST_HALF = 0.2
"""Half the side of the smallest box, where a square of as many pixels as the picture is [-1, 1]."""
EDGE = 0.2
"""Fainter parts of a shape do not count: spread over a picture they would weigh more than a small object."""
TRACE = 1e-7
"""Added to every pixel of a shape: where nothing is drawn, the box is the whole picture."""
NUMBERS = 3
"""That tell a box: its size, and its centre across and down."""
START_SIZE = 2.0
"""Log-odds of the size at the start: boxes are nearly the picture."""
OUTSIDE = -30.0
"""Log-odds of shapes and shadows outside their boxes: low enough also for the warm samples of a first stage."""
DRAWN = 4
"""Channels that are drawn in the box: shape and colours."""
WIDER = 2.0
"""How much larger the box of the other channels is, such as shadows."""


@full_precision
def told_boxes(numbers: Float[Tensor, "*I 3"], size: tuple[int, int]) -> Float[Tensor, "*I 4"]:
    """Half the sides and the centre, (x, y), of boxes in pictures of `size` (height, width)."""
    largest = most_half(size)
    half = LEAST_HALF + (largest - LEAST_HALF) * (numbers[..., 0] + START_SIZE).sigmoid()
    return square(half, numbers[..., 1].tanh(), numbers[..., 2].tanh(), size)


def most_half(size: tuple[int, int]) -> float:
    """The largest box has the picture's longer side."""
    height, width = size
    return max(width / height, height / width) ** 0.5


def square(half: Tensor, x: Tensor, y: Tensor, size: tuple[int, int]) -> Float[Tensor, "*I 4"]:
    """Half the sides and the centre, (x, y), of boxes of half side `half` that are square in pixels.

    The picture is [-1, 1] each way, so half the sides differ where the sides of the picture do.
    """
    height, width = size
    return torch.stack([half * (height / width) ** 0.5, half * (width / height) ** 0.5, x, y], -1)


@full_precision
def boxes_around(shapes: Float[Tensor, "*I H W"]) -> Float[Tensor, "*I 4"]:
    """Half the sides and the centre, (x, y), of a box around each shape."""
    H, W = shapes.shape[-2:]
    weights = (shapes - EDGE).clamp(min=0) + TRACE
    weights = weights / weights.sum((-2, -1), keepdim=True)
    across, down = pixel_centres(W, shapes), pixel_centres(H, shapes)
    rows, columns = weights.sum(-1), weights.sum(-2)
    x, y = (columns * across).sum(-1), (rows * down).sum(-1)
    wide = (columns * (across - x[..., None]).square()).sum(-1) * (W / H)
    high = (rows * (down - y[..., None]).square()).sum(-1) * (H / W)
    half = (ROOM * torch.maximum(wide, high).sqrt()).clamp(LEAST_HALF, most_half((H, W)))
    return square(half, x, y, (H, W))


@full_precision
def placed(
    drawn: Float[Tensor, "I channels h w"], boxes: Float[Tensor, "I 4"], size: tuple[int, int]
) -> Float[Tensor, "I channels H W"]:
    """What is drawn in boxes, in pictures of `size`: log-odds of the shape, colours, then what reaches further."""
    half, centre = boxes[:, :2], boxes[:, 2:]
    shape, colour, more = torch.split(drawn, [1, DRAWN - 1, drawn.shape[1] - DRAWN], 1)
    inside = paste(torch.cat([shape - OUTSIDE, colour], 1), half, centre, size)
    parts = [inside[:, :1] + OUTSIDE, inside[:, 1:]]
    if more.shape[1]:
        parts.append(paste(more - OUTSIDE, WIDER * half, centre, size) + OUTSIDE)
    return torch.cat(parts, 1)


def box_distance(decoded: Decoded) -> Float[Tensor, "B M K"]:
    """Squared distance of every box from that which the shape in it should have. Gradients reach the boxes, and codes
    through them, but not the shapes."""
    assert decoded.boxes is not None
    shapes = decoded.objects[:, 0].detach()
    logit_shp = shapes.reshape(*decoded.order.shape, *shapes.shape[1:])
    return (decoded.boxes - boxes_around(logit_shp.sigmoid())).square().sum(-1)
