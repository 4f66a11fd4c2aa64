"""`norm.plain_normed` as Triton kernels: a sample that fits into one program is passed once in each direction, a larger
one twice, by a program for each chunk of its places. Sums are taken in one order, so the kernels repeat bit for bit.
What is no number stays none: comparisons are written so that NaN passes.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

ELEMENTS, PER_WARP = 8192, 1024
"""Of a program at most, and of each of its warps, of which there are four at least."""
ROWS: tl.constexpr = tl.constexpr(16)
"""Chunks whose sums are added at a time."""


class Normed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        values: Tensor,
        bias: Tensor | None,
        weight: Tensor,
        shift: Tensor,
        groups: int,
        eps: float,
        celu: bool,
        relu: bool,
    ) -> Tensor:
        values = laid(values)
        samples, channels = values.shape[:2]
        places = values.shape[2:].numel()
        padded, block, chunks, number = tiling(channels, places)
        sizes = (places, chunks, channels, padded, block, groups, bias is not None, celu, relu, chunks == 1)
        warps = {"num_warps": number}
        shown = torch.empty_like(values)
        partial = torch.empty(samples * chunks if chunks > 1 else 0, 2, channels, device=values.device)
        statistics = torch.empty(samples, 2, channels, device=values.device)
        given = (values, weight if bias is None else bias, weight, shift)
        grid = (samples * chunks,)
        if chunks > 1:
            _moments[grid](*given[:2], partial, *sizes, **warps)
        _norm_forward[grid](*given, partial, shown, statistics, eps, *sizes, **warps)
        ctx.save_for_backward(*given, statistics)
        ctx.sizes, ctx.grid, ctx.warps = sizes, grid, warps
        return shown

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        values, bias, weight, shift, statistics = ctx.saved_tensors
        asked_values, asked_bias, asked_weight, asked_shift, *_ = ctx.needs_input_grad
        gradient, moved, kinds = laid(gradients[0].to(values.dtype)), torch.empty_like(values), 3 if ctx.sizes[6] else 2
        partial = torch.empty(*ctx.grid, kinds, values.shape[1], device=values.device)
        given = (gradient, values, bias, weight, shift, statistics, partial)
        if not ctx.sizes[-1]:
            _gradient_sums[ctx.grid](*given, *ctx.sizes, **ctx.warps)
        _norm_backward[ctx.grid](*given, moved, *ctx.sizes, **ctx.warps)
        to_shift, to_weight, *to_bias = partial.sum(0)
        return (
            moved if asked_values else None,
            to_bias[0].to(bias.dtype) if asked_bias else None,
            to_weight.to(weight.dtype) if asked_weight else None,
            to_shift.to(shift.dtype) if asked_shift else None,
            *[None] * 4,
        )


def tiling(channels: int, places: int) -> tuple[int, int, int, int]:
    """Channels padded to a power of two, places of a chunk, chunks of a sample, and warps of a program."""
    padded = triton.next_power_of_2(channels)
    block = min(max(ELEMENTS // padded, 1), triton.next_power_of_2(places))
    return padded, block, triton.cdiv(places, block), min(max(4, block * padded // PER_WARP), ELEMENTS // PER_WARP)


def laid(values: Tensor) -> Tensor:
    """Channels last."""
    return values.contiguous(memory_format=torch.channels_last) if values.dim() == 4 else values.contiguous()


@triton.jit
def _places(P, chunks, C: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr):
    """Of this program: the sample, the chunk, offsets of its places and channels, the channels, which are real."""
    sample, chunk = tl.program_id(0) // chunks, tl.program_id(0) % chunks
    place, channel = chunk * BLOCK + tl.arange(0, BLOCK), tl.arange(0, PADDED)
    real = (place < P)[:, None] & (channel < C)[None, :]
    offset = (sample.to(tl.int64) * P + place)[:, None] * C + channel[None, :]
    return sample, chunk, offset, channel, real


@triton.jit
def _activated(values, bias, offset, channel, real, C: tl.constexpr, BIASED: tl.constexpr, CELU: tl.constexpr):
    value = tl.load(values + offset, mask=real, other=0.0).to(tl.float32)
    if BIASED:
        value += tl.load(bias + channel, mask=channel < C, other=0.0).to(tl.float32)[None, :]
    if CELU:
        value = tl.where(value > 0, value, tl.exp(value) - 1)
    return tl.where(real, value, 0.0)


@triton.jit
def _group_means(sums, P, C: tl.constexpr, PADDED: tl.constexpr, GROUPS: tl.constexpr):
    """Of each channel: the mean over all places of its group, from sums over the places of each channel."""
    count = 1.0 * P * (C // GROUPS)  # a P of 1 is known when this is compiled, and no tensor
    if GROUPS == 1:
        return tl.zeros_like(sums) + tl.sum(sums, 0) / count
    SIZE: tl.constexpr = PADDED // GROUPS
    means = tl.sum(tl.reshape(sums, [GROUPS, SIZE]), 1) / count
    return tl.reshape(tl.broadcast_to(means[:, None], [GROUPS, SIZE]), [PADDED])


@triton.jit
def _rows(partial, sample, chunks, start, channel, C: tl.constexpr, KINDS: tl.constexpr):
    """Where the first two of the sums of some chunks of a sample lie, which chunks they are, and which are real."""
    row = start + tl.arange(0, ROWS)
    first = partial + (sample * chunks + row).to(tl.int64)[:, None] * (KINDS * C) + channel[None, :]
    return first, first + C, row, (row < chunks)[:, None] & (channel < C)[None, :]


@triton.jit
def _moments(
    values,
    bias,
    partial,
    P,
    chunks,
    C: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUPS: tl.constexpr,
    BIASED: tl.constexpr,
    CELU: tl.constexpr,
    RELU: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Of each channel in each chunk: the sum, and the sum of squared distances from its own mean."""
    sample, chunk, offset, channel, real = _places(P, chunks, C, PADDED, BLOCK)
    value = _activated(values, bias, offset, channel, real, C, BIASED, CELU)
    total = tl.sum(value, 0)
    apart = tl.where(real, value - (total / tl.minimum(BLOCK, P - chunk * BLOCK))[None, :], 0.0)
    target = partial + tl.program_id(0).to(tl.int64) * (2 * C) + channel
    tl.store(target, total, mask=channel < C)
    tl.store(target + C, tl.sum(apart * apart, 0), mask=channel < C)


@triton.jit
def _merged(
    partial,
    sample,
    P,
    chunks,
    channel,
    C: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUPS: tl.constexpr,
):
    """Mean and variance of each channel's group, from the moments of all chunks."""
    total = tl.zeros((PADDED,), tl.float32)
    for start in range(0, chunks, ROWS):
        sums, squares, row, real = _rows(partial, sample, chunks, start, channel, C, 2)
        total += tl.sum(tl.load(sums, mask=real, other=0.0), 0)
    mean = _group_means(total, P, C, PADDED, GROUPS)
    square = tl.zeros((PADDED,), tl.float32)
    for start in range(0, chunks, ROWS):
        sums, squares, row, real = _rows(partial, sample, chunks, start, channel, C, 2)
        count = tl.maximum(tl.minimum(BLOCK, P - row * BLOCK), 1).to(tl.float32)[:, None]
        apart = tl.load(sums, mask=real, other=0.0) / count - mean[None, :]
        moved = tl.load(squares, mask=real, other=0.0) + count * apart * apart
        square += tl.sum(tl.where(real, moved, 0.0), 0)
    return mean, _group_means(square, P, C, PADDED, GROUPS)


@triton.jit
def _norm_forward(
    values,
    bias,
    weight,
    shift,
    partial,
    shown,
    statistics,
    eps,
    P,
    chunks,
    C: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUPS: tl.constexpr,
    BIASED: tl.constexpr,
    CELU: tl.constexpr,
    RELU: tl.constexpr,
    WHOLE: tl.constexpr,
):
    sample, chunk, offset, channel, real = _places(P, chunks, C, PADDED, BLOCK)
    value = _activated(values, bias, offset, channel, real, C, BIASED, CELU)
    if WHOLE:
        mean = _group_means(tl.sum(value, 0), P, C, PADDED, GROUPS)
        apart = tl.where(real, value - mean[None, :], 0.0)
        variance = _group_means(tl.sum(apart * apart, 0), P, C, PADDED, GROUPS)
    else:
        mean, variance = _merged(partial, sample, P, chunks, channel, C, PADDED, BLOCK, GROUPS)
    inverse = 1 / tl.sqrt(variance + eps)
    if chunk == 0:
        target = statistics + sample.to(tl.int64) * (2 * C) + channel
        tl.store(target, mean, mask=channel < C)
        tl.store(target + C, inverse, mask=channel < C)
    scale = tl.load(weight + channel, mask=channel < C, other=0.0).to(tl.float32)
    moved = tl.load(shift + channel, mask=channel < C, other=0.0).to(tl.float32)
    answer = (value - mean[None, :]) * inverse[None, :] * scale[None, :] + moved[None, :]
    if RELU:
        answer = tl.where(answer < 0, 0.0, answer)
    tl.store(shown + offset, answer.to(shown.dtype.element_ty), mask=real)


@triton.jit
def _gradient(
    gradient,
    values,
    bias,
    weight,
    shift,
    statistics,
    sample,
    offset,
    channel,
    real,
    C: tl.constexpr,
    BIASED: tl.constexpr,
    CELU: tl.constexpr,
    RELU: tl.constexpr,
):
    """Of the norm before its scale and shift: what it was given, what it answered, the gradient before its ReLU; its
    scale, and that of its statistics."""
    value = _activated(values, bias, offset, channel, real, C, BIASED, CELU)
    source = statistics + sample.to(tl.int64) * (2 * C) + channel
    mean = tl.load(source, mask=channel < C, other=0.0)
    inverse = tl.load(source + C, mask=channel < C, other=0.0)
    scale = tl.load(weight + channel, mask=channel < C, other=0.0).to(tl.float32)
    answer = tl.where(real, (value - mean[None, :]) * inverse[None, :], 0.0)
    slope = tl.load(gradient + offset, mask=real, other=0.0).to(tl.float32)
    if RELU:
        moved = tl.load(shift + channel, mask=channel < C, other=0.0).to(tl.float32)
        slope = tl.where(answer * scale[None, :] + moved[None, :] <= 0, 0.0, slope)
    return value, answer, slope, scale, inverse


@triton.jit
def _gradient_sums(
    gradient,
    values,
    bias,
    weight,
    shift,
    statistics,
    partial,
    P,
    chunks,
    C: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUPS: tl.constexpr,
    BIASED: tl.constexpr,
    CELU: tl.constexpr,
    RELU: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """Of each channel in each chunk: its part of the gradients of shift and scale."""
    KINDS: tl.constexpr = 3 if BIASED else 2
    sample, chunk, offset, channel, real = _places(P, chunks, C, PADDED, BLOCK)
    value, answer, slope, scale, inverse = _gradient(
        gradient, values, bias, weight, shift, statistics, sample, offset, channel, real, C, BIASED, CELU, RELU
    )
    target = partial + tl.program_id(0).to(tl.int64) * (KINDS * C) + channel
    tl.store(target, tl.sum(slope, 0), mask=channel < C)
    tl.store(target + C, tl.sum(slope * answer, 0), mask=channel < C)


@triton.jit
def _norm_backward(
    gradient,
    values,
    bias,
    weight,
    shift,
    statistics,
    partial,
    moved,
    P,
    chunks,
    C: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUPS: tl.constexpr,
    BIASED: tl.constexpr,
    CELU: tl.constexpr,
    RELU: tl.constexpr,
    WHOLE: tl.constexpr,
):
    """The gradient of the values, and of each channel in each chunk what is left of the gradients of parameters."""
    KINDS: tl.constexpr = 3 if BIASED else 2
    sample, chunk, offset, channel, real = _places(P, chunks, C, PADDED, BLOCK)
    value, answer, slope, scale, inverse = _gradient(
        gradient, values, bias, weight, shift, statistics, sample, offset, channel, real, C, BIASED, CELU, RELU
    )
    target = partial + tl.program_id(0).to(tl.int64) * (KINDS * C) + channel
    if WHOLE:
        to_shift, to_weight = tl.sum(slope, 0), tl.sum(slope * answer, 0)
        tl.store(target, to_shift, mask=channel < C)
        tl.store(target + C, to_weight, mask=channel < C)
    else:
        to_shift, to_weight = tl.zeros((PADDED,), tl.float32), tl.zeros((PADDED,), tl.float32)
        for start in range(0, chunks, ROWS):
            shifts, weights, row, there = _rows(partial, sample, chunks, start, channel, C, KINDS)
            to_shift += tl.sum(tl.load(shifts, mask=there, other=0.0), 0)
            to_weight += tl.sum(tl.load(weights, mask=there, other=0.0), 0)
    along = _group_means(scale * to_shift, P, C, PADDED, GROUPS)
    across = _group_means(scale * to_weight, P, C, PADDED, GROUPS)
    change = inverse[None, :] * (slope * scale[None, :] - along[None, :] - answer * across[None, :])
    if CELU:
        change = tl.where(value > 0, change, change * (value + 1))
    change = tl.where(real, change, 0.0)
    tl.store(moved + offset, change.to(moved.dtype.element_ty), mask=real)
    if BIASED:
        tl.store(target + 2 * C, tl.sum(change, 0), mask=channel < C)
