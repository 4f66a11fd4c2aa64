"""Encoders, heads and decoders, and where their weights start.

Every hidden layer is linear or a 3x3 convolution, then a layer norm, then ReLU; the last one is linear alone.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from jaxtyping import Float
from torch import Tensor, nn

from viewslots.methods.distributions import full_precision
from viewslots.methods.fast.half import V, rebuilt, view_of
from viewslots.methods.fast.norm import channels_last
from viewslots.methods.gmioo.config import DecoderConfig, EncoderStage
from viewslots.methods.gmioo.variables import State
from viewslots.methods.layers import GroupNorm
from viewslots.methods.spatial import pixel_centres, tents


class Norm(GroupNorm):
    """A layer norm over channels and pixels together, with a scale and a shift of each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__(1, channels)


def connected(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, outputs), Norm(outputs), nn.ReLU(inplace=True))


def convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1), Norm(outputs), nn.ReLU(inplace=True))


def perceptron(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Sequential:
    widths = (inputs, *hidden)
    layers = [connected(*pair) for pair in pairwise(widths)]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))


class Encoder(nn.Module):
    """Pictures with values in [0, 1], of any channels, as one vector each."""

    def __init__(self, channels: int, size: int, stages: Sequence[EncoderStage], outputs: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for after, stride in stages:
            layers.append(convolution(channels, after, stride))
            channels, size = after, -(-size // stride)
        self.convolutions = nn.Sequential(*layers)
        self.connected = connected(channels * size**2, outputs)

    def forward(self, pictures: Float[Tensor, "N C H W"]) -> Float[Tensor, "N D"]:
        return self.connected(self.convolutions(2 * pictures - 1).flatten(1))


class Recurrent(nn.Module):
    """An encoder whose findings enter an LSTM; without a state it starts from zeros."""

    def __init__(self, encoder: nn.Module, hidden: int) -> None:
        super().__init__()
        self.encoder, self.cell = encoder, nn.LSTMCell(hidden, hidden)

    def forward(self, given: Float[Tensor, "N *size"], state: State | None = None) -> State:
        return self.cell(self.encoder(given), state)


class Enlarge(nn.Module):
    """Bilinear upsampling by matrix products, whose gradients are summed in one order on every device."""

    matrix: Tensor

    def __init__(self, size: int, scale: int) -> None:
        super().__init__()
        weights = tents(pixel_centres(size * scale, torch.zeros(())), size)
        # Beyond the border pixels repeat.
        self.register_buffer("matrix", weights / weights.sum(1, keepdim=True), persistent=False)

    def forward(self, maps: Float[Tensor, "N C h w"]) -> Float[Tensor, "N C H W"]:
        return self.matrix @ (maps @ self.matrix.mT)


class ChannelsLastEnlarge(Enlarge):
    """The same where channels are last in memory, which fast convolutions want: along rows, then along columns."""

    def forward(self, maps: Float[Tensor, "N C h w"]) -> Float[Tensor, "N C H W"]:
        rows = channels_last(maps).permute(0, 2, 3, 1)
        (N, h, w, C), size = rows.shape, len(self.matrix)
        matrix = self.matrix.to(rows.dtype)
        wide = torch.bmm(matrix.expand(N * h, -1, -1), rows.reshape(N * h, w, C))
        enlarged = torch.bmm(matrix.expand(N, -1, -1), wide.view(N, h, size * C))
        return enlarged.view(N, size, size, C).permute(0, 3, 1, 2)


def enlarge_channels_last(module: V) -> V:
    def exchange(part: nn.Module) -> nn.Module:
        return view_of(part, ChannelsLastEnlarge) if isinstance(part, Enlarge) else part

    return rebuilt(module, exchange)


class Decoder(nn.Module):
    """From codes to pictures."""

    def __init__(self, config: DecoderConfig, inputs: int, outputs: int) -> None:
        super().__init__()
        channels, size = config.grid_channels, config.grid
        widths = (inputs, *config.hidden, channels * size**2)
        self.connected = nn.Sequential(*[connected(*pair) for pair in pairwise(widths)])
        self.grid = (channels, size, size)
        layers: list[nn.Module] = []
        for scale, after in config.stages:
            layers += [*enlarging(size, scale), convolution(channels, after)]
            channels, size = after, size * scale
        last = nn.Conv2d(channels, outputs, 3, padding=1)
        self.convolutions = nn.Sequential(*layers, *enlarging(size, config.final_scale), last)

    def forward(self, codes: Float[Tensor, "N D"]) -> Float[Tensor, "N C H W"]:
        return self.convolutions(self.connected(codes).unflatten(1, self.grid))


def enlarging(size: int, scale: int) -> list[nn.Module]:
    return [Enlarge(size, scale)] if scale > 1 else []


class ColourDecoder(nn.Module):
    """A colour of the whole and how each pixel departs from it, on a scale of [-1, 1], as colours in [0, 1]."""

    def __init__(self, config: DecoderConfig, inputs: int, average: Sequence[int]) -> None:
        super().__init__()
        self.average = perceptron(inputs, average, 3)
        self.residual = Decoder(config, inputs, 3)

    def forward(self, codes: Float[Tensor, "N D"]) -> Float[Tensor, "N 3 H W"]:
        return colours(self.average(codes), self.residual(codes))


@full_precision
def colours(average: Float[Tensor, "N 3"], residual: Float[Tensor, "N 3 H W"]) -> Float[Tensor, "N 3 H W"]:
    return (average[:, :, None, None] + residual + 1) / 2


def initialise(network: nn.Module, generator: torch.Generator) -> None:
    """Kaiming-normal weights by the number of inputs, zero biases; norms start as they are."""
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d | nn.LSTMCell):
            for parameter in module.parameters(recurse=False):
                if parameter.dim() > 1:
                    nn.init.kaiming_normal_(parameter, generator=generator)
                else:
                    nn.init.zeros_(parameter)
