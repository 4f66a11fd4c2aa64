"""What follows a convolution: bias, ReLU, and the phases of a folded upsampling put in their places."""

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.kernels import has_triton


def bias_relu_shuffle(
    phases: Float[Tensor, "I (scale scale C) h w"], bias: Float[Tensor, "(scale scale C)"], scale: int
) -> Float[Tensor, "I C H W"]:
    """relu(phases + bias), with channel (p, q, c) of place (i, j) at place (i scale + p, j scale + q) of channel c."""
    if has_kernel(phases):
        from viewslots.methods.fast.epilogue_cuda import BiasReluShuffle

        return BiasReluShuffle.apply(phases, bias, scale)  # type: ignore[no-untyped-call]
    return plain_bias_relu_shuffle(phases, bias, scale)


def has_kernel(phases: Tensor) -> bool:
    return has_triton(phases.device) and phases.dtype == torch.bfloat16


def plain_bias_relu_shuffle(phases: Tensor, bias: Tensor, scale: int) -> Tensor:
    """The oracle of the kernel, and the code of every other device. The answer lies channels-last in memory."""
    images, _, height, width = phases.shape
    shown = (phases + bias.to(phases.dtype)[:, None, None]).relu()
    split = shown.reshape(images, scale, scale, -1, height, width)
    return split.permute(0, 4, 1, 5, 2, 3).flatten(3, 4).flatten(1, 2).permute(0, 3, 1, 2)
