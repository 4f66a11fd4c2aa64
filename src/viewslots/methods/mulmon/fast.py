"""The decoder in other words: the same sums of the same parameters, laid out so that the hardware has less to do.

* A code that is the same at every place, seen through a kernel that never leaves the map, is the same everywhere: the
  first convolution is one product a code, and one map of the coordinates for all codes.
* Two neighbours in a row are one pixel of twice the channels: a third more arithmetic, but a GPU's matrix units, which
  idle on 32 channels, are full. Channels-last, pairs of pixels cost nothing to form.
* What does not depend on the code is made once a pass, not once an iteration.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from viewslots.methods.distributions import full_precision
from viewslots.methods.fast.broadcast import SpreadRelu, compute_dtype
from viewslots.methods.fast.epilogue import bias_relu_shuffle
from viewslots.methods.fast.folding import derived_weight, plane_taps
from viewslots.methods.fast.half import view_of
from viewslots.methods.mulmon.networks import Decode, Decoder


class FoldedDecoder(Decoder):
    """The same parameters; `neighbours` in a row are one pixel while it works."""

    neighbours: int
    taps: dict[int, Tensor]
    """By size of a kernel: how its taps lie between such pixels."""

    def ready(self) -> Decode:
        first, _, *others = self.convolutions
        assert isinstance(first, nn.Conv2d)
        assert first.bias is not None
        dtype = compute_dtype(first.weight)
        summed, place = first_layer(first.weight, first.bias, self.grid)
        one_kind = place.new_ones(1, len(place), dtype=dtype)
        kernels = [self.joined(layer, dtype) for layer in others if isinstance(layer, nn.Conv2d)]

        def decode(code: Float[Tensor, "I D"]) -> Float[Tensor, "I 4 H W"]:
            seen = constant_maps(code, summed)
            maps = SpreadRelu.apply(seen[:, None, None], place, one_kind, one_kind, dtype)  # type: ignore[no-untyped-call]
            maps = neighbours_as_channels(maps, self.neighbours).permute(0, 3, 1, 2)
            *inner, (weight, bias) = kernels
            for kernel, shift in inner:
                maps = bias_relu_shuffle(F.conv2d(maps, kernel), shift, 1)
            shown = F.conv2d(maps, weight, bias).permute(0, 2, 3, 1).contiguous()
            return shown.view(*shown.shape[:2], -1, 4).permute(0, 3, 1, 2)

        return decode

    def joined(self, layer: nn.Conv2d, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Weight and bias of a convolution between pixels of several neighbours."""
        assert layer.bias is not None
        if self.neighbours == 1:
            return layer.weight.to(dtype), layer.bias.to(dtype)
        weight = derived_weight(layer.weight, self.taps[layer.kernel_size[0]])
        return weight.to(dtype), layer.bias.repeat(self.neighbours).to(dtype)

    def forward(self, code: Float[Tensor, "I D"]) -> Float[Tensor, "I 4 H W"]:
        return self.ready()(code)


def fold_decoder(decoder: Decoder) -> FoldedDecoder:
    """On a GPU in pairs, where the width of pictures allows it."""
    view = view_of(decoder, FoldedDecoder)
    view.neighbours = 2 if decoder.grid.is_cuda and decoder.grid.shape[-1] % 2 == 0 else 1
    return with_taps(view)


def with_taps(decoder: FoldedDecoder) -> FoldedDecoder:
    device = decoder.grid.device
    decoder.taps = {
        kernel: plane_taps(cell_taps(kernel, 1), cell_taps(kernel, decoder.neighbours)).to(device) for kernel in (1, 3)
    }
    return decoder


@full_precision
def first_layer(
    weight: Float[Tensor, "O I k k"], bias: Float[Tensor, "O"], grid: Float[Tensor, "2 S S"]
) -> tuple[Float[Tensor, "D O"], Float[Tensor, "s s O"]]:
    """What a code is multiplied by, and what the coordinates add at every place."""
    place = F.conv2d(grid[None].to(weight.dtype), weight[:, -2:], bias)
    return weight[:, :-2].sum((2, 3)).t(), place[0].permute(1, 2, 0).contiguous()


@full_precision
def constant_maps(code: Float[Tensor, "I D"], summed: Float[Tensor, "D O"]) -> Float[Tensor, "I O"]:
    return code @ summed


def neighbours_as_channels(maps: Float[Tensor, "I H W C"], count: int) -> Float[Tensor, "I H w c"]:
    images, height, width, channels = maps.shape
    return maps.view(images, height, width // count, count * channels)


def cell_taps(kernel: int, cell: int) -> Float[Tensor, "kernel cell cell reach"]:
    """Along one axis, in cells of so many pixels: 1 where a tap, seen from pixel p of an output cell, falls on pixel q
    of the input cell r further on."""
    taps = torch.zeros(kernel, cell, cell, (cell + kernel - 2) // cell + 1)
    for tap in range(kernel):
        for pixel in range(cell):
            taps[tap, pixel, (pixel + tap) % cell, (pixel + tap) // cell] = 1
    return taps
