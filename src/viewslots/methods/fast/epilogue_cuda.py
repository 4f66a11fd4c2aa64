"""`epilogue.plain_bias_relu_shuffle` as one Triton kernel, and its backward as another: each tensor is passed once."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ELEMENTS = 8192
"""At a time: some coarse pixels with all their phases and channels."""
PROGRAMS = 1056
"""At most, in the backward pass: each gathers one sum for the bias."""


class BiasReluShuffle(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, phases: Tensor, bias: Tensor, scale: int) -> Tensor:
        phases = phases.contiguous(memory_format=torch.channels_last)
        images, columns, height, width = phases.shape
        shape = (images, columns // scale**2, height * scale, width * scale)
        shown = torch.empty(shape, dtype=phases.dtype, device=phases.device, memory_format=torch.channels_last)
        rows, padded, block = tiling(phases)
        _shuffle_forward[(triton.cdiv(rows, block),)](phases, bias, shown, rows, width, scale, columns, padded, block)
        ctx.save_for_backward(shown, bias)
        ctx.scale = scale
        return shown

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        shown, bias = ctx.saved_tensors
        asked_phases, asked_bias, _ = ctx.needs_input_grad
        scale = ctx.scale
        gradient = gradients[0].contiguous(memory_format=torch.channels_last)
        images, channels, height, width = shown.shape
        shape = (images, channels * scale**2, height // scale, width // scale)
        moved = torch.empty(shape, dtype=shown.dtype, device=shown.device, memory_format=torch.channels_last)
        rows, padded, block = tiling(moved)
        programs = min(triton.cdiv(rows, block), PROGRAMS)
        partial = torch.empty(programs if asked_bias else 0, shape[1], device=shown.device)
        _shuffle_backward[(programs,)](
            *(gradient, shown, moved, partial, rows, width // scale, scale, shape[1], padded, block),
            *(asked_phases, asked_bias),
        )
        to_bias = (partial.new_ones(programs) @ partial).to(bias.dtype) if asked_bias else None
        return moved if asked_phases else None, to_bias, None


def tiling(phases: Tensor) -> tuple[int, int, int]:
    """Coarse pixels, columns padded to a power of two, and coarse pixels of one program."""
    columns = phases.shape[1]
    padded = triton.next_power_of_2(columns)
    return phases.numel() // columns, padded, max(ELEMENTS // padded, 1)


@triton.jit
def _places(
    tile,
    rows,
    WIDTH: tl.constexpr,
    SCALE: tl.constexpr,
    COLUMNS: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Offsets of a block of coarse pixels in the phased and in the fine tensor, and which are real."""
    C: tl.constexpr = COLUMNS // (SCALE * SCALE)
    row = tile * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, PADDED)
    phase, channel = column // C, column % C
    # Lines count the images too, since all have the same height.
    first = (row // WIDTH).to(tl.int64) * (WIDTH * SCALE * SCALE * C) + (row % WIDTH) * (SCALE * C)
    inner = (phase // SCALE) * (WIDTH * SCALE * C) + (phase % SCALE) * C + channel
    real = (row < rows)[:, None] & (column < COLUMNS)[None, :]
    return row.to(tl.int64)[:, None] * COLUMNS + column[None, :], first[:, None] + inner[None, :], column, real


@triton.jit
def _shuffle_forward(
    phases,
    bias,
    shown,
    rows,
    WIDTH: tl.constexpr,
    SCALE: tl.constexpr,
    COLUMNS: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    phased, fine, column, real = _places(tl.program_id(0), rows, WIDTH, SCALE, COLUMNS, PADDED, BLOCK)
    shift = tl.load(bias + column, mask=column < COLUMNS, other=0.0).to(tl.float32)
    value = tl.load(phases + phased, mask=real, other=0.0).to(tl.float32) + shift[None, :]
    tl.store(shown + fine, tl.maximum(value, 0.0).to(shown.dtype.element_ty), mask=real)


@triton.jit
def _shuffle_backward(
    gradient,
    shown,
    moved,
    partial,
    rows,
    WIDTH: tl.constexpr,
    SCALE: tl.constexpr,
    COLUMNS: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
    TO_PHASES: tl.constexpr,
    TO_BIAS: tl.constexpr,
):
    column = tl.arange(0, PADDED)
    total = tl.zeros((PADDED,), tl.float32)
    for tile in range(tl.program_id(0), tl.cdiv(rows, BLOCK), tl.num_programs(0)):
        phased, fine, column, real = _places(tile, rows, WIDTH, SCALE, COLUMNS, PADDED, BLOCK)
        value = tl.load(gradient + fine, mask=real, other=0.0).to(tl.float32)
        value = tl.where(tl.load(shown + fine, mask=real, other=0.0).to(tl.float32) > 0, value, 0.0)
        if TO_PHASES:
            tl.store(moved + phased, value.to(moved.dtype.element_ty), mask=real)
        if TO_BIAS:
            total += tl.sum(value, 0)
    if TO_BIAS:
        tl.store(partial + tl.program_id(0) * COLUMNS + column, total, mask=column < COLUMNS)
