"""From what the decoders draw in boxes to pictures, in one go."""

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.kernels import has_triton
from viewslots.methods.ocloc.boxes import placed
from viewslots.methods.ocloc.generation import Generation

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MOST = 64
"""Pixels of a side of the largest box that a program of the kernel holds."""


class FusedPlacing(Generation):
    """The generative model, whose boxes go straight to their places."""

    def place(
        self, drawn: Float[Tensor, "I channels h w"], boxes: Float[Tensor, "I 4"], size: tuple[int, int]
    ) -> Float[Tensor, "I channels H W"]:
        return place(drawn, boxes, size)


def place(
    drawn: Float[Tensor, "I channels h w"], boxes: Float[Tensor, "I 4"], size: tuple[int, int]
) -> Float[Tensor, "I channels H W"]:
    """`boxes.placed`, which is the oracle of the kernel, and the code of every other device."""
    if has_kernel(drawn, boxes):
        from viewslots.methods.ocloc.fast.placing_cuda import Placed

        return Placed.apply(drawn, boxes, size)  # type: ignore[no-untyped-call]
    return placed(drawn, boxes, size)


def has_kernel(drawn: Tensor, boxes: Tensor) -> bool:
    exact = boxes.dtype == torch.float32 and drawn.dtype in DTYPES
    return has_triton(drawn.device) and exact and max(drawn.shape[-2:]) <= MOST
