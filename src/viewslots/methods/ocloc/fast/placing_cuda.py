"""`boxes.placed` as one Triton kernel a direction: no matrix of tents reaches memory.

Between its cells a box is bilinear, so a pixel of the picture is a sum of four cells. Backward, with V and H the tents
of rows and columns and G the gradient of a picture: V^T G H goes to what was drawn, tile by tile over those pixels that
the box reaches. The slope of a tent at its kinks is that of torch: 0 at the top, and at the foot that of the flank. So
the slope of a picture is the next cell less the one before; these are two apart where a pixel lies on a cell.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from viewslots.methods.ocloc.boxes import DRAWN, OUTSIDE, WIDER

BLOCK = 512
"""Pixels of one program of the forward pass."""
ROWS, COLUMNS = 16, 32
"""Of pixels that a program of the backward pass holds at a time."""
LAUNCH = {"num_warps": 4, "num_stages": 1}
"""Tiles are small and few: no loads ahead, which would take shared memory."""


class Placed(torch.autograd.Function):
    """(drawn, boxes, size) -> pictures in float32. `drawn` may lie in memory in any order."""

    @staticmethod
    def forward(ctx: Any, drawn: Tensor, boxes: Tensor, size: tuple[int, int]) -> Tensor:
        boxes = boxes.contiguous()
        (items, channels), sizes = drawn.shape[:2], (*drawn.shape[2:], *size)
        shown = torch.empty(items, channels, *size, device=drawn.device)
        grid = (items, channels, triton.cdiv(size[0] * size[1], BLOCK))
        _place_forward[grid](drawn, boxes, shown, *drawn.stride(), *sizes, DRAWN, WIDER, OUTSIDE, BLOCK, **LAUNCH)
        ctx.save_for_backward(drawn, boxes)
        ctx.sizes = sizes
        return shown

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        drawn, boxes = ctx.saved_tensors
        asked_drawn, asked_boxes, _ = ctx.needs_input_grad
        items, channels, height, width = drawn.shape
        to_drawn = torch.empty_like(drawn) if asked_drawn else drawn
        sums = torch.empty(items, channels if asked_boxes else 0, 4, device=drawn.device)
        _place_backward[(items, channels)](
            *(drawn, boxes, gradients[0], to_drawn, sums),
            *(*drawn.stride(), *gradients[0].stride(), *to_drawn.stride()),
            *(*ctx.sizes, DRAWN, WIDER, OUTSIDE),
            *(padded(height), padded(width), asked_drawn, asked_boxes, ROWS, COLUMNS),
            **LAUNCH,
        )
        return to_drawn if asked_drawn else None, sums.sum(1) if asked_boxes else None, None


def padded(size: int) -> int:
    """Matrix products want powers of two, 16 or more."""
    return max(triton.next_power_of_2(size), 16)


@triton.jit
def _box(boxes, item, channel, DRAWN: tl.constexpr, WIDER: tl.constexpr, OUTSIDE: tl.constexpr):
    """Half the sides and the centre of a channel's box, how much wider it is, and what is outside."""
    wider = tl.where(channel >= DRAWN, WIDER, 1.0)
    outside = tl.where((channel == 0) | (channel >= DRAWN), OUTSIDE, 0.0)
    half_x, half_y = tl.load(boxes + item * 4) * wider, tl.load(boxes + item * 4 + 1) * wider
    return half_x, half_y, tl.load(boxes + item * 4 + 2), tl.load(boxes + item * 4 + 3), wider, outside


@triton.jit
def _index(pixel, centre, half, SIZE: tl.constexpr, CELLS: tl.constexpr):
    """Where pixels along a side of the picture are in the box: from -1 to 1, and in its cells."""
    middle = tl.div_rn(2.0 * pixel.to(tl.float32) + 1.0, SIZE * 1.0) - 1.0
    place = tl.div_rn(middle - centre, half)
    return place, ((place + 1.0) * CELLS - 1.0) * 0.5


@triton.jit
def _reach(centre, half, SIZE: tl.constexpr, CELLS: tl.constexpr):
    """The first pixel along a side of the picture that a box reaches, and where it ends; wider by one for rounding.

    A box that is no number reaches all of them, and makes them no numbers."""
    middle = (centre + 1.0) * (SIZE * 0.5) - 0.5
    reach = tl.abs(half) * (SIZE * 0.5 + SIZE * 0.5 / CELLS) + 1.0
    first, end = tl.floor(middle - reach), tl.floor(middle + reach) + 2.0
    first = tl.where(first > 0.0, tl.minimum(first, SIZE * 1.0), 0.0)
    end = tl.where(end < SIZE * 1.0, tl.maximum(end, 0.0), SIZE * 1.0)
    return first.to(tl.int32), end.to(tl.int32)


@triton.jit
def _tents(distance):
    """How much a cell counts at a distance; what is no number stays so."""
    return tl.where(tl.abs(distance) > 1.0, 0.0, 1.0 - tl.abs(distance))


@triton.jit
def _cell(drawn, row, column, row_step, column_step, outside, h: tl.constexpr, w: tl.constexpr):
    """Cells of a box, as more than what is outside it; 0 there."""
    inside = (row >= 0) & (row < h) & (column >= 0) & (column < w)
    value = tl.load(drawn + row * row_step + column * column_step, mask=inside, other=0.0).to(tl.float32)
    return tl.where(inside, value - outside, 0.0)


@triton.jit
def _place_forward(
    drawn,
    boxes,
    shown,
    item_step,
    channel_step,
    row_step,
    column_step,
    h: tl.constexpr,
    w: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    DRAWN: tl.constexpr,
    WIDER: tl.constexpr,
    OUTSIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    item, channel = tl.program_id(0).to(tl.int64), tl.program_id(1)
    pixel = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    half_x, half_y, x, y, wider, outside = _box(boxes, item, channel, DRAWN, WIDER, OUTSIDE)
    across, column = _index(pixel % W, x, half_x, W, w)
    down, row = _index(pixel // W, y, half_y, H, h)
    left, above = tl.floor(column), tl.floor(row)
    right_share, below_share = column - left, row - above
    j, i = left.to(tl.int32), above.to(tl.int32)
    cells = drawn + item * item_step + channel * channel_step
    upper = (1.0 - right_share) * _cell(cells, i, j, row_step, column_step, outside, h, w)
    upper += right_share * _cell(cells, i, j + 1, row_step, column_step, outside, h, w)
    lower = (1.0 - right_share) * _cell(cells, i + 1, j, row_step, column_step, outside, h, w)
    lower += right_share * _cell(cells, i + 1, j + 1, row_step, column_step, outside, h, w)
    value = (1.0 - below_share) * upper + below_share * lower + outside
    where = (item * tl.num_programs(1) + channel) * (H * W) + pixel
    tl.store(shown + where, value, mask=pixel < H * W)


@triton.jit
def _place_backward(
    drawn,
    boxes,
    gradient,
    to_drawn,
    sums,
    item_step,
    channel_step,
    row_step,
    column_step,
    gradient_item_step,
    gradient_channel_step,
    gradient_row_step,
    gradient_column_step,
    to_item_step,
    to_channel_step,
    to_row_step,
    to_column_step,
    h: tl.constexpr,
    w: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    DRAWN: tl.constexpr,
    WIDER: tl.constexpr,
    OUTSIDE: tl.constexpr,
    HP: tl.constexpr,
    WP: tl.constexpr,
    TO_DRAWN: tl.constexpr,
    TO_BOXES: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    item, channel = tl.program_id(0).to(tl.int64), tl.program_id(1)
    half_x, half_y, x, y, wider, outside = _box(boxes, item, channel, DRAWN, WIDER, OUTSIDE)
    first_x, end_x = _reach(x, half_x, W, w)
    first_y, end_y = _reach(y, half_y, H, h)
    cells = drawn + item * item_step + channel * channel_step
    given = gradient + item * gradient_item_step + channel * gradient_channel_step
    cell_row, cell_column = tl.arange(0, HP), tl.arange(0, WP)
    gathered = tl.zeros((HP, WP), tl.float32)
    to_x, to_half_x = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    to_y, to_half_y = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for tile_y in range(first_y, end_y, ROWS):
        pixel_y = tile_y + tl.arange(0, ROWS)
        down, row = _index(pixel_y, y, half_y, H, h)
        along = tl.zeros((ROWS, WP), tl.float32)
        for tile_x in range(first_x, end_x, COLUMNS):
            pixel_x = tile_x + tl.arange(0, COLUMNS)
            across, column = _index(pixel_x, x, half_x, W, w)
            place = pixel_y[:, None] * gradient_row_step + pixel_x[None, :] * gradient_column_step
            real = (pixel_y < H)[:, None] & (pixel_x < W)[None, :]
            into = tl.load(given + place, mask=real, other=0.0).to(tl.float32)
            if TO_DRAWN:
                horizontal = _tents(column[:, None] - cell_column[None, :].to(tl.float32))
                along += tl.dot(into, horizontal, input_precision="ieee")
            if TO_BOXES:
                left, above = tl.floor(column)[None, :], tl.floor(row)[:, None]
                right_share, below_share = column[None, :] - left, row[:, None] - above
                j, i = left.to(tl.int32), above.to(tl.int32)
                before_j, before_i = tl.where(right_share > 0.0, j, j - 1), tl.where(below_share > 0.0, i, i - 1)
                corner = _cell(cells, i + 1, j + 1, row_step, column_step, outside, h, w)
                slope = _cell(cells, i, j + 1, row_step, column_step, outside, h, w)
                slope -= _cell(cells, i, before_j, row_step, column_step, outside, h, w)
                lower = corner - _cell(cells, i + 1, before_j, row_step, column_step, outside, h, w)
                slope_x = into * ((1.0 - below_share) * slope + below_share * lower)
                slope = _cell(cells, i + 1, j, row_step, column_step, outside, h, w)
                slope -= _cell(cells, before_i, j, row_step, column_step, outside, h, w)
                right = corner - _cell(cells, before_i, j + 1, row_step, column_step, outside, h, w)
                slope_y = into * ((1.0 - right_share) * slope + right_share * right)
                to_x += slope_x
                to_half_x += slope_x * across[None, :]
                to_y += slope_y
                to_half_y += slope_y * down[:, None]
        if TO_DRAWN:
            vertical = _tents(row[None, :] - cell_row[:, None].to(tl.float32))
            gathered += tl.dot(vertical, along, input_precision="ieee")
    if TO_DRAWN:
        out = to_drawn + item * to_item_step + channel * to_channel_step
        place = cell_row[:, None] * to_row_step + cell_column[None, :] * to_column_step
        real = (cell_row < h)[:, None] & (cell_column < w)[None, :]
        tl.store(out + place, gathered.to(to_drawn.dtype.element_ty), mask=real)
    if TO_BOXES:
        out = sums + (item * tl.num_programs(1) + channel) * 4
        scale_x, scale_y = -0.5 * w / half_x, -0.5 * h / half_y
        tl.store(out, tl.sum(tl.sum(to_half_x, 1), 0) * scale_x * wider)
        tl.store(out + 1, tl.sum(tl.sum(to_half_y, 1), 0) * scale_y * wider)
        tl.store(out + 2, tl.sum(tl.sum(to_x, 1), 0) * scale_x)
        tl.store(out + 3, tl.sum(tl.sum(to_y, 1), 0) * scale_y)
