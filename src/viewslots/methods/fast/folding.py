"""Convolutions in other words: the same sums, laid out so that the hardware has less to do.

* Nearest-neighbour upsampling and the convolution after it are one convolution at the low resolution: each of the
  scale^2 phases of the fine picture sees the coarse one through its own small kernel. 25 taps become 9 for scale 2.
* Two neighbours in a row are one pixel of twice the channels: a fifth more arithmetic, but a GPU's matrix units, which
  idle half of the time on 64 channels, are full. Channels-last, pairs of pixels cost nothing to form.
* A transposed convolution is a plain one on the small map that makes all phases of the large one.

Weights are derived from the model's own in every pass by one small matrix product. Exact, borders included.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from viewslots.methods.distributions import full_precision
from viewslots.methods.fast.epilogue import bias_relu_shuffle


def axis_taps(kernel: int, *, out: int, inside: int) -> Float[Tensor, "kernel out inside reach"]:
    """Along one axis: 1 where a tap, seen from phase p of an output cell, falls on phase q of the input cell r.

    A cell has `out` phases in the output and stands for as many fine pixels; `inside` is the number of those that the
    input tells apart: all of them, or 1 when they are copies of each other.
    """
    half = kernel // 2
    reach = -(-half // out)
    taps = torch.zeros(kernel, out, inside, 2 * reach + 1)
    for tap in range(kernel):
        for phase in range(out):
            place = phase + tap - half
            taps[tap, phase, place % out if inside > 1 else 0, place // out + reach] = 1
    return taps


def plane_taps(
    rows: Float[Tensor, "k p1 q1 a"], columns: Float[Tensor, "k p2 q2 b"]
) -> Float[Tensor, "k k p1 p2 q1 q2 a b"]:
    return torch.einsum("ypqa,xstb->yxpsqtab", rows, columns)


def transposed_taps(kernel: int, stride: int, padding: int) -> Float[Tensor, "kernel out 1 reach"]:
    """The same for a transposed convolution that makes exactly `stride` pixels of one, `padding` cut in front.

    Input i reaches the pixels stride * i + tap - padding; so a tap serves one phase only.
    """
    reach = max(-(-(stride - 1 + padding) // stride), (kernel - 1 - padding) // stride)
    taps = torch.zeros(kernel, stride, 1, 2 * reach + 1)
    for tap in range(kernel):
        phase = (tap - padding) % stride
        taps[tap, phase, 0, (phase + padding - tap) // stride + reach] = 1
    return taps


@full_precision
def derived_weight(
    weight: Float[Tensor, "O I k k"], taps: Float[Tensor, "k k p1 p2 q1 q2 a b"]
) -> Float[Tensor, "(p1 p2 O) (q1 q2 I) a b"]:
    """The kernels between cells: phases first, then channels, on both sides."""
    O, I = weight.shape[:2]
    p1, p2, q1, q2, a, b = taps.shape[2:]
    cells = weight.reshape(O * I, -1) @ taps.reshape(weight[0, 0].numel(), -1).to(weight.dtype)
    ordered = cells.view(O, I, p1 * p2, q1 * q2, a, b).permute(2, 0, 4, 5, 3, 1)
    return ordered.reshape(p1 * p2 * O, a, b, q1 * q2 * I).permute(0, 3, 1, 2)


class DerivedConvolution(nn.Module):
    """A convolution through derived weights; its parameters are those of `convolution`."""

    taps: Tensor

    def __init__(self, convolution: nn.Conv2d, taps: Tensor) -> None:
        super().__init__()
        assert convolution.bias is not None
        self.convolution = convolution
        self.register_buffer("taps", taps.to(convolution.weight.device), persistent=False)

    def derived(self) -> tuple[Tensor, Tensor]:
        phases = self.taps.shape[2] * self.taps.shape[3]
        assert self.convolution.bias is not None
        return derived_weight(self.convolution.weight, self.taps), self.convolution.bias.repeat(phases)


class FoldedConvolution(DerivedConvolution):
    """Upsampling by `scale`, `convolution`, ReLU."""

    def __init__(self, convolution: nn.Conv2d, scale: int) -> None:
        axis = axis_taps(convolution.kernel_size[0], out=scale, inside=1)
        super().__init__(convolution, plane_taps(axis, axis))
        self.scale = scale

    def forward(self, maps: Float[Tensor, "I C h w"]) -> Float[Tensor, "I O H W"]:
        weight, bias = self.derived()
        maps = maps.contiguous(memory_format=torch.channels_last)
        return bias_relu_shuffle(F.conv2d(maps, weight, padding=weight.shape[-1] // 2), bias, self.scale)


class FoldedTransposed(nn.Module):
    """A transposed `convolution` that enlarges exactly by its stride, and ReLU."""

    taps: Tensor

    def __init__(self, convolution: nn.ConvTranspose2d) -> None:
        super().__init__()
        axis = transposed_taps(convolution.kernel_size[0], convolution.stride[0], int(convolution.padding[0]))
        self.convolution, self.scale = convolution, convolution.stride[0]
        self.register_buffer("taps", plane_taps(axis, axis).to(convolution.weight.device), persistent=False)

    def forward(self, maps: Float[Tensor, "I C h w"]) -> Float[Tensor, "I O H W"]:
        own = self.convolution
        assert own.bias is not None
        weight = derived_weight(own.weight.transpose(0, 1), self.taps)
        maps = maps.contiguous(memory_format=torch.channels_last)
        phases = F.conv2d(maps, weight, padding=weight.shape[-1] // 2)
        return bias_relu_shuffle(phases, own.bias.repeat(self.scale**2), self.scale)


class PairedConvolution(DerivedConvolution):
    """`convolution` on pairs of pixels, and ReLU where asked for. Maps of an odd width have no pairs."""

    def __init__(self, convolution: nn.Conv2d, relu: bool) -> None:
        kernel = convolution.kernel_size[0]
        rows, columns = axis_taps(kernel, out=1, inside=1), axis_taps(kernel, out=2, inside=2)
        super().__init__(convolution, plane_taps(rows, columns))
        self.relu = relu

    def forward(self, maps: Float[Tensor, "I C H W"]) -> Float[Tensor, "I O H W"]:
        images, channels, height, width = maps.shape
        if width % 2:
            return PlainConvolution(self.convolution)(maps) if self.relu else self.convolution(maps)
        rows = maps.permute(0, 2, 3, 1).contiguous()
        pairs = rows.view(images, height, width // 2, 2 * channels).permute(0, 3, 1, 2)
        weight, bias = self.derived()
        padding = (weight.shape[2] // 2, weight.shape[3] // 2)
        answer = F.conv2d(pairs, weight, None if self.relu else bias, padding=padding)
        answer = bias_relu_shuffle(answer, bias, 1) if self.relu else answer
        cells = answer.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1)
        return cells.view(images, height, width, -1).permute(0, 3, 1, 2)


class PlainConvolution(nn.Module):
    """`convolution` and ReLU, which share one pass over the answer."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.convolution = convolution

    def forward(self, maps: Float[Tensor, "I C h w"]) -> Float[Tensor, "I O H W"]:
        own = self.convolution
        assert own.bias is not None
        maps = maps.contiguous(memory_format=torch.channels_last)
        answer = F.conv2d(maps, own.weight, stride=own.stride, padding=own.kernel_size[0] // 2)
        return bias_relu_shuffle(answer, own.bias, 1)


def phases_first(convolution: nn.Conv2d, scale: int) -> tuple[Tensor, Tensor]:
    """Weight and bias of a convolution before a pixel shuffle by `scale`; channels go from (c, p, q), as PyTorch has
    them, to (p, q, c)."""
    weight, bias = convolution.weight, convolution.bias
    assert bias is not None
    weight = weight.view(-1, scale**2, *weight.shape[1:]).transpose(0, 1).flatten(0, 1)
    return weight, bias.view(-1, scale**2).t().flatten()


class ShuffledConvolution(nn.Module):
    """`convolution`, pixel shuffle by `scale`, ReLU."""

    def __init__(self, convolution: nn.Conv2d, scale: int) -> None:
        super().__init__()
        self.convolution, self.scale = convolution, scale

    def forward(self, maps: Float[Tensor, "I C h w"]) -> Float[Tensor, "I O H W"]:
        weight, bias = phases_first(self.convolution, self.scale)
        maps = maps.contiguous(memory_format=torch.channels_last)
        return bias_relu_shuffle(F.conv2d(maps, weight, padding=weight.shape[-1] // 2), bias, self.scale)


def pays_in_pairs(convolution: nn.Conv2d) -> bool:
    """On a GPU, for narrow layers: cuDNN pads fewer than 8 channels by copying, and is slow on fewer than 128."""
    narrow = convolution.out_channels == 4 or 32 <= convolution.out_channels <= 64
    return convolution.weight.is_cuda and narrow and convolution.in_channels >= 32 and convolution.stride == (1, 1)


def fold_stages(stages: Sequence[nn.Module]) -> nn.Sequential:
    """The twin of [Upsample,] Conv2d, [PixelShuffle,] [ReLU,] ... or ConvTranspose2d, ReLU; what is none of these stays
    as it is."""
    folded: list[nn.Module] = []
    scale, waiting = 1, list(stages)
    while waiting:
        match waiting:
            case [nn.Upsample() as grow, *waiting]:
                scale = int(grow.scale_factor)  # type: ignore[arg-type]
            case [nn.Conv2d() as convolution, nn.ReLU(), *waiting]:
                folded, scale = [*folded, twin(convolution, scale)], 1
            case [nn.ConvTranspose2d() as transposed, nn.ReLU(), *waiting]:
                folded.append(FoldedTransposed(transposed))
            case [nn.Conv2d() as convolution, nn.PixelShuffle() as shuffle, nn.ReLU(), *waiting]:
                folded.append(ShuffledConvolution(convolution, shuffle.upscale_factor))
            case [nn.Conv2d() as convolution, *waiting] if not waiting and pays_in_pairs(convolution):
                folded.append(PairedConvolution(convolution, relu=False))
            case [other, *waiting]:
                folded.append(other)
    return nn.Sequential(*folded)


def twin(convolution: nn.Conv2d, scale: int) -> nn.Module:
    """Of a convolution followed by ReLU."""
    if scale > 1:
        return FoldedConvolution(convolution, scale)
    return PairedConvolution(convolution, relu=True) if pays_in_pairs(convolution) else PlainConvolution(convolution)
