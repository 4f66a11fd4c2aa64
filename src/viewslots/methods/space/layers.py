"""Layers that foreground and background share."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from viewslots.methods.distributions import full_precision
from viewslots.methods.layers import GroupNorm
from viewslots.methods.space.config import Convolution, Shuffle


@full_precision
def precisely(inputs: Float[Tensor, "*axes"], layer: nn.Module) -> Tensor:
    """A layer whose outputs must not be rounded to half precision."""
    outputs: Tensor = layer(inputs)
    return outputs


def normalised(layer: nn.Module, channels: int, groups: int) -> list[nn.Module]:
    return [layer, nn.CELU(), GroupNorm(groups, channels)]


def convolutions(inputs: int, stages: Sequence[Convolution]) -> nn.Sequential:
    """Strides divide the size of a map; other layers keep it."""
    layers: list[nn.Module] = []
    for kernel, stride, channels, groups in stages:
        layers += normalised(nn.Conv2d(inputs, channels, kernel, stride, (kernel - 1) // 2), channels, groups)
        inputs = channels
    return nn.Sequential(*layers)


class ShuffleDecoder(nn.Module):
    """From a code to a map: each stage is a 1x1 convolution, a pixel shuffle and a 3x3 convolution."""

    def __init__(self, inputs: int, channels: int, groups: int, stages: Sequence[Shuffle], outputs: int) -> None:
        super().__init__()
        layers = normalised(nn.Conv2d(inputs, channels, 1), channels, groups)
        before = channels
        for factor, after, parts in stages:
            enlarge = nn.Sequential(nn.Conv2d(before, after * factor**2, 1), nn.PixelShuffle(factor))
            layers += normalised(enlarge, after, parts)
            layers += normalised(nn.Conv2d(after, after, 3, padding=1), after, parts)
            before = after
        self.layers = nn.Sequential(*layers, nn.Conv2d(before, outputs, 3, padding=1))

    def forward(self, codes: Float[Tensor, "N D"]) -> Float[Tensor, "N C H W"]:
        return self.layers(codes[:, :, None, None])
