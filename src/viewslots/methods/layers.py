"""Networks that several methods share."""

import itertools
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from viewslots.types import Extent, sides


class MultiLayerPerceptron(nn.Sequential):
    """Fully connected ReLU layers and a linear one."""

    def __init__(self, inputs: int, hidden: Sequence[int], outputs: int) -> None:
        widths = [inputs, *hidden]
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            layers += [nn.Linear(before, after), nn.ReLU()]
        super().__init__(*layers, nn.Linear(widths[-1], outputs))

    @property
    def last(self) -> nn.Linear:
        layer = self[-1]
        assert isinstance(layer, nn.Linear)
        return layer


class PositionEmbedding(nn.Module):
    """Adds a learned linear map of (1+x)/2, (1+y)/2, (1-x)/2, (1-y)/2, with x and y in [-1, 1]."""

    grid: Tensor

    def __init__(self, channels: int, size: Extent) -> None:
        super().__init__()
        self.project = nn.Conv2d(4, channels, 1)
        y, x = torch.meshgrid(*[torch.linspace(-1, 1, side) for side in sides(size)], indexing="ij")
        grid = torch.stack([1 + x, 1 + y, 1 - x, 1 - y]) / 2
        self.register_buffer("grid", grid[None], persistent=False)

    def places(self) -> Float[Tensor, "1 D H W"]:
        """What is added, in full precision: rounded to half, some neighbours would be one place."""
        with torch.autocast(self.grid.device.type, enabled=False):
            return self.project(self.grid)

    def forward(self, maps: Float[Tensor, "I D h w"]) -> Float[Tensor, "I D H W"]:
        return maps + self.places()


class FeatureNetwork(nn.Module):
    """Convolutions, positional embedding, and two layers that act on each pixel: one feature vector a place.

    OCLOC's g_feat and the encoder of Slot Attention.
    """

    def __init__(
        self, channels: int, layers: int, kernel: int, stride: int, image_size: Extent, epsilon: float = 1e-5
    ) -> None:
        super().__init__()
        convolutions: list[nn.Module] = []
        for layer in range(layers):
            before, step = (3, stride) if layer == 0 else (channels, 1)
            convolutions += [nn.Conv2d(before, channels, kernel, step, kernel // 2), nn.ReLU()]
        self.convolutions = nn.Sequential(*convolutions)
        height, width = (-(-side // stride) for side in sides(image_size))
        self.position = PositionEmbedding(channels, (height, width))
        self.pixelwise = nn.Sequential(
            nn.LayerNorm(channels, epsilon), nn.Linear(channels, channels), nn.ReLU(), nn.Linear(channels, channels)
        )

    def forward(self, images: Float[Tensor, "I 3 H W"]) -> Float[Tensor, "I P D"]:
        maps = self.position(self.convolutions(images))
        return self.pixelwise(maps.flatten(2).transpose(1, 2))


class BroadcastDecoder(nn.Module):
    """The code at every place of a map, with the positional embedding, and then convolutions that may enlarge it."""

    def __init__(self, inputs: int, grid: Extent, convolutions: nn.Sequential) -> None:
        super().__init__()
        self.position = PositionEmbedding(inputs, grid)
        self.convolutions = convolutions

    def forward(self, code: Float[Tensor, "I D"]) -> Float[Tensor, "I outputs H W"]:
        return self.convolutions(self.position(code[:, :, None, None]))


class GroupNorm(nn.GroupNorm):
    """Maps in half precision stay so, which the next convolution reads anyway; statistics are of full precision.

    Autocast would widen the maps and copy them back.
    """

    def forward(self, values: Float[Tensor, "N C *size"]) -> Float[Tensor, "N C *size"]:
        with torch.autocast(values.device.type, enabled=False):
            weight, bias = self.weight.to(values.dtype), self.bias.to(values.dtype)
            return F.group_norm(values, self.num_groups, weight, bias, self.eps)


def start_as_torch(network: nn.Module, generator: torch.Generator, gain: float = 1.0) -> None:
    """PyTorch's own start, drawn from `generator`: uniform within one over the root of a unit's inputs; in an LSTM, of
    its state. Weights, not biases, are `gain` times as large."""
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            bound = 1 / math.sqrt(module.weight[0].numel())
        elif isinstance(module, nn.LSTMCell):
            bound = 1 / math.sqrt(module.hidden_size)
        else:
            continue
        for parameter in module.parameters(recurse=False):
            size = bound * gain if parameter.dim() > 1 else bound
            nn.init.uniform_(parameter, -size, size, generator=generator)
