"""`features.plain_add_norm` as one Triton kernel a direction. Rows are short (64 numbers), which the stock kernels,
made for long ones, handle at a tenth of the speed of memory.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK, SPLITS = 64, 16
"""Places of one program, and parts into which the backward pass divides the images."""


class AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, values: Tensor, table: Tensor, scale: Tensor | None, shift: Tensor | None, eps: float
    ) -> Tensor:
        values, table = values.contiguous(), table.contiguous()
        (images, places, size), affine = values.shape, scale is not None
        answer = torch.empty_like(values)
        weights = (scale, shift) if affine else (table, table)
        sizes = (places, size, triton.next_power_of_2(size), len(table) > 1, affine, BLOCK)
        _norm_forward[(triton.cdiv(places, BLOCK), images)](values, table, *weights, answer, eps, *sizes)
        ctx.save_for_backward(values, table, *weights)
        ctx.eps, ctx.sizes = eps, sizes
        return answer

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        values, table, scale, shift = ctx.saved_tensors
        asked_values, asked_table, asked_scale, asked_shift, _ = ctx.needs_input_grad
        asked_weights = asked_scale or asked_shift
        (images, places, size), device = values.shape, values.device
        blocks, parts = triton.cdiv(places, BLOCK), min(SPLITS, images)
        to_values = torch.empty_like(values)
        to_table = torch.empty(parts, places if len(table) > 1 else blocks, size, device=device)
        to_weights = torch.empty(2, parts, blocks, size, device=device)
        _norm_backward[(blocks, parts)](
            gradients[0].contiguous(),
            values,
            table,
            scale,
            to_values,
            to_table,
            *to_weights,
            ctx.eps,
            images,
            *ctx.sizes,
            *(asked_values, asked_table, asked_weights),
        )
        summed = to_scale = to_shift = None
        if asked_table:
            summed = (to_table.sum(0) if len(table) > 1 else to_table.sum((0, 1))[None]).to(table.dtype)
        if asked_weights:
            to_scale, to_shift = to_weights.sum((1, 2)).to(scale.dtype)
        return (
            to_values if asked_values else None,
            summed,
            to_scale if asked_scale else None,
            to_shift if asked_shift else None,
            None,
        )


@triton.jit
def _normalised(values, table, image, place, eps, P, D: tl.constexpr, DP: tl.constexpr, FULL: tl.constexpr):
    """The rows of some places of an image, normalised, with the factor that did it."""
    column = tl.arange(0, DP)
    real = (place < P)[:, None] & (column < D)[None, :]
    where = (place + image * P)[:, None] * D + column[None, :]
    row = place if FULL else place * 0
    x = tl.load(values + where, mask=real, other=0.0).to(tl.float32)
    x += tl.load(table + row[:, None] * D + column[None, :], mask=real, other=0.0).to(tl.float32)
    centred = tl.where(real, x - tl.sum(x, 1)[:, None] / D, 0.0)
    factor = 1.0 / tl.sqrt(tl.sum(centred * centred, 1) / D + eps)
    return centred * factor[:, None], factor, where, real, column


@triton.jit
def _norm_forward(
    values,
    table,
    scale,
    shift,
    answer,
    eps,
    P,
    D: tl.constexpr,
    DP: tl.constexpr,
    FULL: tl.constexpr,
    AFFINE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    image = tl.program_id(1)
    x, factor, where, real, column = _normalised(values, table, image, place, eps, P, D, DP, FULL)
    if AFFINE:
        x = x * tl.load(scale + column, mask=column < D, other=0.0).to(tl.float32)[None, :]
        x = x + tl.load(shift + column, mask=column < D, other=0.0).to(tl.float32)[None, :]
    tl.store(answer + where, x.to(answer.dtype.element_ty), mask=real)


@triton.jit
def _norm_backward(
    gradient,
    values,
    table,
    scale,
    to_values,
    to_table,
    to_scale,
    to_shift,
    eps,
    images,
    P,
    D: tl.constexpr,
    DP: tl.constexpr,
    FULL: tl.constexpr,
    AFFINE: tl.constexpr,
    BLOCK: tl.constexpr,
    TO_VALUES: tl.constexpr,
    TO_TABLE: tl.constexpr,
    TO_WEIGHTS: tl.constexpr,
):
    block, part = tl.program_id(0), tl.program_id(1)
    place = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    column = tl.arange(0, DP)
    weight = tl.full((DP,), 1.0, tl.float32)
    if AFFINE:
        weight = tl.load(scale + column, mask=column < D, other=0.0).to(tl.float32)
    table_sum = tl.zeros((BLOCK, DP), tl.float32)
    scale_sum, shift_sum = tl.zeros((DP,), tl.float32), tl.zeros((DP,), tl.float32)
    for image in range(part, images, tl.num_programs(1)):
        x, factor, where, real, column = _normalised(values, table, image, place, eps, P, D, DP, FULL)
        into = tl.load(gradient + where, mask=real, other=0.0).to(tl.float32)
        if TO_WEIGHTS:
            scale_sum += tl.sum(into * x, 0)
            shift_sum += tl.sum(into, 0)
        into = into * weight[None, :]
        along = tl.sum(into * x, 1)[:, None] / D
        into = tl.where(real, (into - tl.sum(into, 1)[:, None] / D - x * along) * factor[:, None], 0.0)
        if TO_VALUES:
            tl.store(to_values + where, into.to(to_values.dtype.element_ty), mask=real)
        if TO_TABLE:
            table_sum += into
    line = (part * tl.num_programs(0) + block) * D + column
    if TO_TABLE:
        if FULL:
            row = (part * P + place)[:, None] * D + column[None, :]
            tl.store(to_table + row, table_sum, mask=(place < P)[:, None] & (column < D)[None, :])
        else:
            tl.store(to_table + line, tl.sum(table_sum, 0), mask=column < D)
    if TO_WEIGHTS:
        tl.store(to_scale + line, scale_sum, mask=column < D)
        tl.store(to_shift + line, shift_sum, mask=column < D)
