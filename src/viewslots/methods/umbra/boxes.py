"""Objects are drawn twice: where they are, and then, in a box around that, how they look.

A decoder of whole pictures must learn the place of every edge anew for each place of the object. It learns discs first,
and corners hardly ever (docs/research-log.md, entries 24 and 27). In its box an object looks much the same wherever it
stands.
"""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from viewslots.methods.distributions import full_precision, widen
from viewslots.methods.ocloc.config import DecoderConfig
from viewslots.methods.ocloc.generation import Generation, last_convolution
from viewslots.methods.ocloc.networks import CompactDecoder
from viewslots.methods.ocloc.variables import Decoded, Latents
from viewslots.methods.spatial import paste, pixel_centres
from viewslots.methods.umbra.config import BOX_STEP

SHAPE, DRAWN = 0, 4
"""Channels of the object decoder: the shape; it and its colours are drawn again. Shadows reach beyond a box."""
ROOM = 3.0
"""Half the side of a box, in standard deviations of the shape in it: 1.5 radii of a disc."""
LEAST_HALF = 0.2
"""Half the side of the smallest box; the picture is [-1, 1]."""
EDGE = 0.2
"""Fainter parts of a shape do not count: spread over a picture they would weigh more than a small object."""
TRACE = 1e-7
"""Added to every pixel of a shape: where nothing is drawn, the box is the whole picture."""


class BoxedGeneration(Generation):
    """What the object decoder says, and what `f_box` adds to that in the box around the shape.

    An object's code has `box_dim` numbers more, its details, which `f_box` alone reads: an encoder that draws discs
    does not tell how an object is turned, and its posteriors leave no room to.
    """

    def __init__(self, *, box_size: int, box_dim: int, **sizes: Any) -> None:
        super().__init__(**sizes)
        self.box_dim = box_dim
        self.f_box: nn.Module = CompactDecoder(box_decoder(box_size), self.view_dim + self.code_dim + 4, DRAWN)

    @property
    def code_dim(self) -> int:
        return self.attr_dim + self.box_dim

    def start(self) -> None:
        """It adds nothing."""
        nn.init.zeros_(last_convolution(self.f_box).weight)

    def forward(self, latents: Latents) -> Decoded:
        first = super().forward(replace(latents, z_attr=latents.z_attr[..., : self.attr_dim]))
        drawn, (H, W) = widen(first.objects), first.objects.shape[-2:]
        boxes = boxes_of(drawn[:, SHAPE].sigmoid())
        views, objects = latents.z_view[:, :, None], latents.z_attr[:, None]
        B, M, K = first.order.shape
        code = torch.cat([views.expand(B, M, K, -1), objects.expand(B, M, K, -1)], -1).flatten(0, 2)
        added = paste(self.f_box(torch.cat([code, boxes], -1)), boxes[:, :2], boxes[:, 2:], (H, W))
        return replace(first, objects=torch.cat([drawn[:, :DRAWN] + added, drawn[:, DRAWN:]], 1))


def box_decoder(size: int) -> DecoderConfig:
    return DecoderConfig(
        kind="compact",
        hidden=(256, 256),
        grid=size // BOX_STEP,
        grid_channels=64,
        stages=((1, 3, 64), (1, 3, 64), (2, 3, 32), (1, 3, 32)),
        final_scale=2,
    )


@full_precision
def boxes_of(shapes: Float[Tensor, "*N H W"]) -> Float[Tensor, "*N 4"]:
    """Half the sides and the centre, (x, y), of a square box around each shape.

    Square in pixels: sides differ where those of the picture do, and the largest box has the picture's longer side.
    """
    H, W = shapes.shape[-2:]
    weights = (shapes - EDGE).clamp(min=0) + TRACE
    weights = weights / weights.sum((-2, -1), keepdim=True)
    across, down = pixel_centres(W, shapes), pixel_centres(H, shapes)
    rows, columns = weights.sum(-1), weights.sum(-2)
    x, y = (columns * across).sum(-1), (rows * down).sum(-1)
    wide = (columns * (across - x[..., None]).square()).sum(-1) * (W / H)
    high = (rows * (down - y[..., None]).square()).sum(-1) * (H / W)
    half = (ROOM * torch.maximum(wide, high).sqrt()).clamp(LEAST_HALF, max(W / H, H / W) ** 0.5)
    return torch.stack([half * (H / W) ** 0.5, half * (W / H) ** 0.5, x, y], -1)
