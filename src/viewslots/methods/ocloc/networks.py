"""The networks of appendix 'Choices of Hyperparameters', as small modules that take only their sizes."""

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from viewslots.methods.distributions import full_precision, widen
from viewslots.methods.layers import BroadcastDecoder, MultiLayerPerceptron, PositionEmbedding
from viewslots.methods.ocloc.config import DecoderConfig, Stage
from viewslots.types import Extent, sides


class NormalisedLinear(nn.Module):
    """Layer normalisation and a linear map without bias: g_key, g_qry, g_val."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(inputs)
        self.linear = nn.Linear(inputs, outputs, bias=False)

    def forward(self, values: Float[Tensor, "*I D"]) -> Float[Tensor, "*I E"]:
        return self.linear(self.norm(values))


class SlotUpdate(nn.Module):
    """g_upd: a gated recurrent unit and a residual perceptron, for each view and slot alone."""

    def __init__(self, value_dim: int, slot_dim: int, hidden: int) -> None:
        super().__init__()
        self.recurrent = nn.GRUCell(value_dim, slot_dim)
        self.residual = nn.Sequential(
            nn.LayerNorm(slot_dim), nn.Linear(slot_dim, hidden), nn.ReLU(), nn.Linear(hidden, slot_dim)
        )

    def forward(self, y_full: Float[Tensor, "*I D"], u: Float[Tensor, "*I Dval"]) -> Float[Tensor, "*I D"]:
        # Autocast on CUDA runs the recurrent unit in half precision; what the slots carry on stays in full.
        state = widen(self.recurrent(u.flatten(0, -2), y_full.flatten(0, -2))).view(y_full.shape)
        return state + widen(self.residual(state))


def upsampling_stages(inputs: int, stages: Sequence[Stage], outputs: int) -> nn.Sequential:
    """Nearest-neighbour upsampling and convolution, stage by stage; a linear 3x3 convolution at the end."""
    layers: list[nn.Module] = []
    for scale, kernel, channels in stages:
        layers += [nn.Upsample(scale_factor=scale)] if scale > 1 else []
        layers += [nn.Conv2d(inputs, channels, kernel, padding=kernel // 2), nn.ReLU()]
        inputs = channels
    return nn.Sequential(*layers, nn.Conv2d(inputs, outputs, 3, padding=1))


def transposed_stages(inputs: int, stages: Sequence[Stage], outputs: int) -> nn.Sequential:
    """Transposed convolutions that multiply the size exactly by their stride; a linear 3x3 convolution at the end."""
    layers: list[nn.Module] = []
    for scale, kernel, channels in stages:
        half = kernel // 2
        grow = nn.ConvTranspose2d(inputs, channels, kernel, scale, half, output_padding=scale - 1)
        layers += [grow if scale > 1 else nn.Conv2d(inputs, channels, kernel, padding=half), nn.ReLU()]
        inputs = channels
    return nn.Sequential(*layers, nn.Conv2d(inputs, outputs, 3, padding=1))


class DenseDecoder(nn.Module):
    """The paper's multi-view decoder: wide fully connected layers make a map, which convolutions enlarge."""

    def __init__(self, config: DecoderConfig, inputs: int, outputs: int) -> None:
        super().__init__()
        self.shape = (config.grid_channels, *sides(config.grid))
        self.connected = nn.Sequential(MultiLayerPerceptron(inputs, config.hidden, math.prod(self.shape)), nn.ReLU())
        self.convolutions = upsampling_stages(config.grid_channels, config.stages, outputs)

    def forward(self, code: Float[Tensor, "I D"]) -> Float[Tensor, "I outputs H W"]:
        return self.convolutions(self.connected(code).unflatten(1, self.shape))


def subpixel_stages(inputs: int, stages: Sequence[Stage], outputs: int, final_scale: int) -> nn.Sequential:
    """Convolutions that act before they enlarge: each makes scale^2 times the channels, then shuffled to pixels."""
    layers: list[nn.Module] = []
    for scale, kernel, channels in (*stages, (final_scale, 3, outputs)):
        layers += [nn.Conv2d(inputs, channels * scale**2, kernel, padding=kernel // 2)]
        layers += [nn.PixelShuffle(scale)] if scale > 1 else []
        layers += [nn.ReLU()]
        inputs = channels
    return nn.Sequential(*layers[:-1])


class CompactDecoder(nn.Module):
    """Ours: the output of a perceptron at every place of a map, with positional embedding; sub-pixel convolutions."""

    def __init__(self, config: DecoderConfig, inputs: int, outputs: int) -> None:
        super().__init__()
        self.connected = MultiLayerPerceptron(inputs, config.hidden, config.grid_channels)
        self.position = PositionEmbedding(config.grid_channels, config.grid)
        self.convolutions = nn.Sequential(
            nn.ReLU(), *subpixel_stages(config.grid_channels, config.stages, outputs, config.final_scale)
        )

    def forward(self, code: Float[Tensor, "I D"]) -> Float[Tensor, "I outputs H W"]:
        return self.convolutions(self.position(self.connected(code)[:, :, None, None]))


def broadcast_decoder(config: DecoderConfig, inputs: int, outputs: int) -> BroadcastDecoder:
    """The paper's single-view decoder."""
    return BroadcastDecoder(inputs, config.grid, transposed_stages(inputs, config.stages, outputs))


DECODERS: dict[str, Callable[[DecoderConfig, int, int], nn.Module]] = {
    "dense": DenseDecoder,
    "broadcast": broadcast_decoder,
    "compact": CompactDecoder,
}


@full_precision
def full_linear(values: Float[Tensor, "*I D"], layer: nn.Linear) -> Float[Tensor, "*I E"]:
    """A linear layer outside autocast, for numbers that half precision would round away."""
    return F.linear(values, layer.weight, layer.bias)


class BaselineNetwork(nn.Module):
    """b(x) of NVIL, one number an image. It may reach thousands, where half precision has steps of 8 and more."""

    def __init__(self, channels: Sequence[int], hidden: int, image_size: Extent) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before, (height, width) = 3, sides(image_size)
        for channel in channels:
            layers += [nn.Conv2d(before, channel, 3, padding=1), nn.ReLU()]
            layers += [nn.Conv2d(channel, channel, 3, stride=2, padding=1), nn.ReLU()]
            before, height, width = channel, -(-height // 2), -(-width // 2)
        self.convolutions = nn.Sequential(*layers, nn.Flatten())
        self.connected = MultiLayerPerceptron(before * height * width, (hidden,), 1)

    def forward(self, images: Float[Tensor, "I 3 H W"]) -> Float[Tensor, "I"]:
        values = self.convolutions(images)
        for layer in list(self.connected)[:-1]:
            values = layer(values)
        return full_linear(values, self.connected.last).squeeze(1)


def initialise(network: nn.Module, generator: torch.Generator) -> None:
    """Xavier-uniform weights and zero biases; layer normalisations keep their ones and zeros."""
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d | nn.ConvTranspose2d | nn.GRUCell):
            for parameter in module.parameters(recurse=False):
                if parameter.dim() > 1:
                    nn.init.xavier_uniform_(parameter, generator=generator)
                else:
                    nn.init.zeros_(parameter)
