"""A layer, its group norm and its activation: all that follows the layer's sums in one pass, channels last.

The stock norm is several kernels and wants channels first, so that every convolution beside it copies its maps twice.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from viewslots.kernels import has_triton
from viewslots.methods.fast.broadcast import compute_dtype
from viewslots.methods.fast.folding import phases_first
from viewslots.methods.fast.half import V, rebuilt

MOST_CHANNELS = 4096
"""More do not fit into the registers of a program."""


def normed(
    values: Float[Tensor, "N C *size"], bias: Float[Tensor, "C"] | None, norm: nn.GroupNorm, celu: bool, relu: bool
) -> Float[Tensor, "N C *size"]:
    """values + bias, CELU where asked for, `norm`, ReLU where asked for."""
    given = (values, bias, norm.weight, norm.bias, norm.num_groups, norm.eps, celu, relu)
    if has_kernel(values, norm.num_groups):
        from viewslots.methods.fast.norm_cuda import Normed

        return Normed.apply(*given)  # type: ignore[no-untyped-call]
    return plain_normed(*given)


def has_kernel(values: Tensor, groups: int) -> bool:
    """A program holds all channels of a place. Several groups must be powers of two, as blocks of channels are."""
    channels = values.shape[1]
    fits = channels <= MOST_CHANNELS and (groups == 1 or channels.bit_count() == 1) and values.dim() in (2, 4)
    return has_triton(values.device) and values.dtype == torch.bfloat16 and fits


def plain_normed(
    values: Tensor,
    bias: Tensor | None,
    weight: Tensor,
    shift: Tensor,
    groups: int,
    eps: float,
    celu: bool,
    relu: bool,
) -> Tensor:
    """The oracle of the kernel, and the code of every other device."""
    if bias is not None:
        values = values + bias.to(values.dtype).view(-1, *[1] * (values.dim() - 2))
    with torch.autocast(values.device.type, enabled=False):
        values = F.celu(values) if celu else values
        values = F.group_norm(values, groups, weight.to(values.dtype), shift.to(values.dtype), eps)
    return values.relu() if relu else values


class NormedLayer(nn.Module):
    """`layer`, CELU, `norm`, or `layer`, `norm`, ReLU. Parameters are those of the two."""

    def __init__(self, layer: nn.Module, norm: nn.GroupNorm, celu: bool, relu: bool) -> None:
        super().__init__()
        self.layer, self.norm, self.celu, self.relu = layer, norm, celu, relu

    def forward(self, values: Float[Tensor, "N D *size"]) -> Float[Tensor, "N C *size"]:
        return normed(*without_bias(self.layer, values), self.norm, self.celu, self.relu)


def without_bias(layer: nn.Module, values: Tensor) -> tuple[Tensor, Tensor | None]:
    """What a layer makes of `values`, channels last, and the bias that is still to be added."""
    match layer:
        case nn.Linear():
            return F.linear(values, layer.weight), layer.bias
        case nn.Conv2d():
            return layer._conv_forward(channels_last(values), layer.weight, None), layer.bias
        case nn.Sequential():
            match [*layer]:
                case [nn.Conv2d() as convolution, nn.PixelShuffle() as shuffle]:
                    return shuffled(convolution, values, shuffle.upscale_factor), None
    return layer(values), None


def channels_last(maps: Float[Tensor, "N C h w"]) -> Float[Tensor, "N C h w"]:
    """In the type that convolutions compute in."""
    return maps.to(compute_dtype(maps), memory_format=torch.channels_last)


def shuffled(convolution: nn.Conv2d, maps: Tensor, scale: int) -> Float[Tensor, "N C H W"]:
    """`convolution` and pixel shuffle."""
    phases = F.conv2d(channels_last(maps), *phases_first(convolution, scale), padding=convolution.padding)
    images, _, height, width = phases.shape
    cells = phases.permute(0, 2, 3, 1).reshape(images, height, width, scale, scale, -1)
    return cells.transpose(2, 3).reshape(images, height * scale, width * scale, -1).permute(0, 3, 1, 2)


def fuse_norms(module: V) -> V:
    """The same parameters, but each layer is computed with its norm."""
    return rebuilt(module, fused)


def fused(module: nn.Module) -> nn.Module:
    if not isinstance(module, nn.Sequential):
        return module
    stages = fused_stages([*module])
    return module if len(stages) == len(module) else nn.Sequential(*stages)


def fused_stages(waiting: Sequence[nn.Module]) -> list[nn.Module]:
    match waiting:
        case [layer, nn.CELU(), nn.GroupNorm() as norm, *rest]:
            return [NormedLayer(layer, norm, celu=True, relu=False), *fused_stages(rest)]
        case [layer, nn.GroupNorm() as norm, nn.ReLU(), *rest]:
            return [NormedLayer(layer, norm, celu=False, relu=True), *fused_stages(rest)]
        case [other, *rest]:
            return [other, *fused_stages(rest)]
    return []
