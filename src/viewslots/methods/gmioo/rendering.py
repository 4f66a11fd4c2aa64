"""From codes and boxes to layers."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from viewslots.methods.distributions import full_precision
from viewslots.methods.gmioo.networks import ColourDecoder, Decoder
from viewslots.methods.gmioo.variables import Layers, parted
from viewslots.methods.spatial import paste

SMALLEST = 1e-3
"""Paper: none. Side of a box as a share of the picture's, which must not vanish since pasting divides by it."""


@full_precision
def scale_and_shift(z_box: Float[Tensor, "N 4"]) -> tuple[Float[Tensor, "N 2"], Float[Tensor, "N 2"]]:
    """Half of a box's sides and its centre, (x, y) each, where the picture is [-1, 1]."""
    return z_box[:, :2].sigmoid().clamp(min=SMALLEST), z_box[:, 2:].tanh()


class Rendering(nn.Module):
    def __init__(
        self, background: ColourDecoder, appearance: ColourDecoder, shape: Decoder, image_size: int, sigma_x: float
    ) -> None:
        super().__init__()
        self.background, self.appearance, self.shape = background, appearance, shape
        self.image_size, self.sigma_x = image_size, sigma_x

    def objects(
        self, image: Float[Tensor, "N 3 H W"], z_box: Float[Tensor, "N K 4"], z_code: Float[Tensor, "N K D"]
    ) -> Layers:
        """All objects decoded in their boxes, and pasted into the picture: colours and shape in one."""
        sizes, codes, side = (z_box.shape[0], z_box.shape[1]), z_code.flatten(0, 1), self.image_size
        glimpse = torch.cat([self.appearance(codes), probabilities(self.shape(codes))], 1)
        pasted = parted(paste(glimpse, *scale_and_shift(z_box.flatten(0, 1)), (side, side)), sizes)
        appearance, shape = pasted[:, :, :3], pasted[:, :, 3]
        return Layers(
            glimpse=parted(glimpse, sizes),
            appearance=appearance,
            shape=shape,
            scaled_error=scaled_error(image[:, None], appearance, self.sigma_x),
        )


@full_precision
def probabilities(logits: Float[Tensor, "*size"]) -> Float[Tensor, "*size"]:
    return logits.sigmoid()


@full_precision
def scaled_error(
    image: Float[Tensor, "*#N 3 H W"], shown: Float[Tensor, "*N 3 H W"], sigma_x: float
) -> Float[Tensor, "*N H W"]:
    """-log N(x; shown, sigma_x^2 I) of every pixel, but for a constant."""
    return (image - shown).square().sum(-3) / (2 * sigma_x**2)
