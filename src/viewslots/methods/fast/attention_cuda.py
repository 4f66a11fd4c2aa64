"""`attention.plain_attended_mean` as one Triton kernel a direction: similarities never reach memory.

Weights of a slot are its shares a of the pixels (plus `floor`), divided by their sum, so one pass gathers sum(a x) and
sum(a).
Shares below e^-80 count as e^-80, which keeps a slot that is wanted nowhere finite.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

SPLITS, BLOCK = 8, 64
"""Programs a view, and pixels at a time."""


class AttendedMean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, core: Tensor, projected: Tensor, constant: Tensor, floor: float) -> Tensor:
        core, projected, constant = core.contiguous(), projected.contiguous(), constant.contiguous()
        images, sizes = core.shape[:-2].numel(), (core.shape[-2], projected.shape[-2], core.shape[-1])
        padded = padding(*sizes[1:])
        sums = torch.empty(images, SPLITS, *sizes[1:], device=core.device)
        shares = torch.empty(images, SPLITS, sizes[1], device=core.device)
        _attend_forward[(images, SPLITS)](
            core, projected, constant, sums, shares, floor, *sizes, SPLITS, *padded, BLOCK
        )
        total = shares.sum(1).view_as(constant)
        mean = sums.sum(1).view_as(projected) / total[..., None]
        ctx.save_for_backward(core, projected, constant, total, mean)
        ctx.floor = floor
        return mean

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        core, projected, constant, total, mean = ctx.saved_tensors
        asked_core, asked_projected, asked_constant, _ = ctx.needs_input_grad
        to_sum = (gradients[0] / total[..., None]).contiguous()
        to_share = -(to_sum * mean).sum(-1)
        images, sizes = core.shape[:-2].numel(), (core.shape[-2], projected.shape[-2], core.shape[-1])
        padded = padding(*sizes[1:])
        to_core = torch.empty_like(core)
        to_projected = torch.empty(images, SPLITS, *sizes[1:], device=core.device)
        to_constant = torch.empty(images, SPLITS, sizes[1], device=core.device)
        _attend_backward[(images, SPLITS)](
            *(core, projected, constant, to_sum, to_share),
            *(to_core, to_projected, to_constant, ctx.floor),
            *(*sizes, SPLITS, *padded, BLOCK),
            *(asked_core, asked_projected, asked_constant),
        )
        return (
            to_core if asked_core else None,
            to_projected.sum(1).view_as(projected) if asked_projected else None,
            to_constant.sum(1).view_as(constant) if asked_constant else None,
            None,
        )


def padding(slots: int, size: int) -> tuple[int, int]:
    """Matrix units want powers of two, 16 or more."""
    return max(triton.next_power_of_2(slots), 16), max(triton.next_power_of_2(size), 16)


@triton.jit
def _shares(core, pixel, slot, column, queries, shift, P, L: tl.constexpr, D: tl.constexpr):
    """x of a block of pixels, and each slot's share of them."""
    place = pixel[:, None] * D + column[None, :]
    x = tl.load(core + place, mask=(pixel < P)[:, None] & (column < D)[None, :], other=0.0).to(tl.float32)
    similarity = tl.dot(x, tl.trans(queries), input_precision="tf32") + shift[None, :]
    similarity = tl.where((slot < L)[None, :], similarity, float("-inf"))
    similarity = similarity - tl.max(similarity, 1)[:, None]
    shares = similarity - tl.log(tl.sum(tl.exp(similarity), 1))[:, None]
    shares = tl.exp(tl.maximum(shares, -80.0))
    return x, tl.where((slot < L)[None, :] & (pixel < P)[:, None], shares, 0.0)


@triton.jit
def _attend_forward(
    core,
    projected,
    constant,
    sums,
    share_sums,
    floor,
    P,
    L: tl.constexpr,
    D: tl.constexpr,
    SPLITS: tl.constexpr,
    LP: tl.constexpr,
    DP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    image, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot, column = tl.arange(0, LP), tl.arange(0, DP)
    small = slot[:, None] * D + column[None, :]
    inside = (slot < L)[:, None] & (column < D)[None, :]
    queries = tl.load(projected + image * L * D + small, mask=inside, other=0.0)
    shift = tl.load(constant + image * L + slot, mask=slot < L, other=0.0)
    gathered = tl.zeros((LP, DP), tl.float32)
    count = tl.zeros((LP,), tl.float32)
    each = tl.cdiv(tl.cdiv(P, SPLITS), BLOCK) * BLOCK
    for first in range(split * each, split * each + each, BLOCK):
        pixel = first + tl.arange(0, BLOCK)
        x, shares = _shares(core + image * P * D, pixel, slot, column, queries, shift, P, L, D)
        weights = tl.where((slot < L)[None, :] & (pixel < P)[:, None], shares + floor, 0.0)
        gathered += tl.dot(tl.trans(weights), x, input_precision="tf32")
        count += tl.sum(weights, 0)
    part = image * SPLITS + split
    tl.store(sums + part * L * D + small, gathered, mask=inside)
    tl.store(share_sums + part * L + slot, count, mask=slot < L)


@triton.jit
def _attend_backward(
    core,
    projected,
    constant,
    to_sum,
    to_share,
    to_core,
    to_projected,
    to_constant,
    floor,
    P,
    L: tl.constexpr,
    D: tl.constexpr,
    SPLITS: tl.constexpr,
    LP: tl.constexpr,
    DP: tl.constexpr,
    BLOCK: tl.constexpr,
    TO_CORE: tl.constexpr,
    TO_PROJECTED: tl.constexpr,
    TO_CONSTANT: tl.constexpr,
):
    image, split = tl.program_id(0).to(tl.int64), tl.program_id(1)
    slot, column = tl.arange(0, LP), tl.arange(0, DP)
    small = slot[:, None] * D + column[None, :]
    inside = (slot < L)[:, None] & (column < D)[None, :]
    queries = tl.load(projected + image * L * D + small, mask=inside, other=0.0)
    shift = tl.load(constant + image * L + slot, mask=slot < L, other=0.0)
    into_sum = tl.load(to_sum + image * L * D + small, mask=inside, other=0.0)
    into_share = tl.load(to_share + image * L + slot, mask=slot < L, other=0.0)
    gathered = tl.zeros((LP, DP), tl.float32)
    count = tl.zeros((LP,), tl.float32)
    each = tl.cdiv(tl.cdiv(P, SPLITS), BLOCK) * BLOCK
    for first in range(split * each, split * each + each, BLOCK):
        pixel = first + tl.arange(0, BLOCK)
        x, shares = _shares(core + image * P * D, pixel, slot, column, queries, shift, P, L, D)
        into_shares = tl.dot(x, tl.trans(into_sum), input_precision="tf32") + into_share[None, :]
        into_similarity = shares * (into_shares - tl.sum(shares * into_shares, 1)[:, None])
        if TO_CORE:
            weights = tl.where((slot < L)[None, :] & (pixel < P)[:, None], shares + floor, 0.0)
            into_x = tl.dot(weights, into_sum, input_precision="tf32")
            into_x += tl.dot(into_similarity, queries, input_precision="tf32")
            place = image * P * D + pixel[:, None] * D + column[None, :]
            real = (pixel < P)[:, None] & (column < D)[None, :]
            tl.store(to_core + place, into_x.to(to_core.dtype.element_ty), mask=real)
        if TO_PROJECTED:
            gathered += tl.dot(tl.trans(into_similarity), x, input_precision="tf32")
        if TO_CONSTANT:
            count += tl.sum(into_similarity, 0)
    part = image * SPLITS + split
    if TO_PROJECTED:
        tl.store(to_projected + part * L * D + small, gathered, mask=inside)
    if TO_CONSTANT:
        tl.store(to_constant + part * L + slot, count, mask=slot < L)
