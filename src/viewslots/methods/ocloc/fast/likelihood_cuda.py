"""The squared error of `WeightedSum.training_cost`, view by view, as one Triton kernel a direction; a program holds all
K layers of some pixels.

With v_k = sigmoid(l_k) sigmoid(p_k), s_0 = prod(1 - v_k) and shares softmax(log v_k + order_k / lambda):
1 - v = sigmoid(-l) + sigmoid(l) sigmoid(-p) is kept as it is, since 1 - v from v would round to 0.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 128
"""Pixels of one program."""
SUMS = 4
"""Gradients that a layer gathers over pixels: order, presence, and the centre's x and y."""


class SquaredError(torch.autograd.Function):
    """(objects, background, order, centre, logit_prs, image, z_shp, appearance, numbers) -> [B, M]."""

    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> Tensor:
        maps = [value.contiguous(memory_format=torch.channels_last) for value in given[:2]]
        inputs = [*maps, *(value.contiguous() for value in given[2:])]
        image = inputs[5]
        (B, M), K, size = image.shape[:2], inputs[2].shape[2], image.shape[-2:]
        blocks = triton.cdiv(size[0] * size[1], BLOCK)
        errors = torch.empty(B, M, blocks, device=image.device)
        _error_forward[(B * M, blocks)](*inputs, errors, *shape_arguments(M, K, size))
        ctx.save_for_backward(*inputs)
        return errors.sum(2)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        inputs = ctx.saved_tensors
        objects, background, image = inputs[0], inputs[1], inputs[5]
        (B, M), K, size = image.shape[:2], inputs[2].shape[2], image.shape[-2:]
        blocks = triton.cdiv(size[0] * size[1], BLOCK)
        to_objects, to_background = torch.empty_like(objects), torch.empty_like(background)
        sums = torch.empty(B, M, blocks, K, SUMS, device=image.device)
        weight = gradients[0].contiguous()
        _error_backward[(B * M, blocks)](*inputs, weight, to_objects, to_background, sums, *shape_arguments(M, K, size))
        to_order, to_presence, *to_centre = sums.sum(2).unbind(-1)
        return to_objects, to_background, to_order, torch.stack(to_centre, -1), to_presence.sum(1), *[None] * 4


def shape_arguments(M: int, K: int, size: tuple[int, ...]) -> tuple[int, ...]:
    return M, K, triton.next_power_of_2(K), size[0] * size[1], size[0], size[1], BLOCK


@triton.jit
def _log_sigmoid(x):
    return tl.minimum(x, 0.0) - tl.log(1.0 + tl.exp(-tl.abs(x)))


@triton.jit
def sigmoid(x):
    small = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, small) / (1.0 + small)


@triton.jit
def noise_fall(centre, rate, pixel, K: tl.constexpr, KP: tl.constexpr, H: tl.constexpr, W: tl.constexpr):
    """How far the pixels lie from the layers' centres, and 1 less the noise that they have from that."""
    k = tl.arange(0, KP)
    across = 2.0 / (W - 1) if W > 1 else 0.0
    down = 2.0 / (H - 1) if H > 1 else 0.0
    x = (pixel % W).to(tl.float32) * across - 1.0
    y = (pixel // W).to(tl.float32) * down - 1.0
    dx = x[None, :] - tl.load(centre + k * 2, mask=k < K, other=0.0)[:, None]
    dy = y[None, :] - tl.load(centre + k * 2 + 1, mask=k < K, other=0.0)[:, None]
    return dx, dy, tl.exp(-rate * (dx * dx * (W / H) + dy * dy * (H / W)))


@triton.jit
def _layers(
    objects,
    order,
    centre,
    logit_prs,
    z_shp,
    numbers,
    view,
    pixel,
    M: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    N: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
):
    """Everything of the K layers of a block of pixels but their colours; rows are layers."""
    k = tl.arange(0, KP)
    layer = view * K + k
    real = (k < K)[:, None] & (pixel < N)[None, :]
    place = layer[:, None] * N + pixel[None, :]
    temperature, softness = tl.load(numbers), tl.load(numbers + 1)
    rate, scale = tl.load(numbers + 2), tl.load(numbers + 3)
    logit = tl.load(objects + place * 4, mask=real, other=0.0).to(tl.float32)
    logit = (logit + tl.load(z_shp + place, mask=real, other=0.0)) / temperature
    presence = tl.load(logit_prs + (view // M) * K + k, mask=k < K, other=0.0)
    depth = tl.load(order + layer, mask=k < K, other=0.0) / softness
    uncovered = sigmoid(-logit) + sigmoid(logit) * sigmoid(-presence)[:, None]
    uncovered = tl.where((k < K)[:, None], tl.maximum(uncovered, 1e-30), 1.0)
    log_uncovered = tl.log(uncovered)
    total = tl.sum(log_uncovered, 0)
    cover = _log_sigmoid(logit) + _log_sigmoid(presence)[:, None]
    score = tl.where((k < K)[:, None], cover + depth[:, None], float("-inf"))
    share = tl.exp(score - tl.max(score, 0)[None, :])
    share = share / tl.sum(share, 0)[None, :]
    others = tl.exp(total[None, :] - log_uncovered)
    dx, dy, fall = noise_fall(centre + view * K * 2, rate, pixel, K, KP, H, W)
    return logit, presence, cover, share, tl.exp(total), others, dx, dy, fall, real, place, layer


@triton.jit
def _colour(
    objects,
    background,
    image,
    appearance,
    channel: tl.constexpr,
    view,
    pixel,
    layer,
    place,
    real,
    amplitude,
    share,
    open_share,
    N: tl.constexpr,
):
    """One channel: the noise, the layers' colours, the objects' mean, the background, and the error."""
    noise = tl.load(appearance + (layer[:, None] * 3 + channel) * N + pixel[None, :], mask=real, other=0.0)
    colour = tl.load(objects + place * 4 + channel + 1, mask=real, other=0.0).to(tl.float32)
    colour = (colour + 1.0) * 0.5 + amplitude * noise
    mean = tl.sum(share * colour, 0)
    behind = tl.load(background + (view * N + pixel) * 3 + channel, mask=pixel < N, other=0.0).to(tl.float32)
    behind = (behind + 1.0) * 0.5
    target = tl.load(image + (view * 3 + channel) * N + pixel, mask=pixel < N, other=0.0)
    error = open_share * behind + (1.0 - open_share) * mean - target
    return noise, colour, mean, behind, tl.where(pixel < N, error, 0.0)


@triton.jit
def _error_forward(
    objects,
    background,
    order,
    centre,
    logit_prs,
    image,
    z_shp,
    appearance,
    numbers,
    errors,
    M: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    N: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    BLOCK: tl.constexpr,
):
    view = tl.program_id(0).to(tl.int64)
    pixel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    logit, presence, cover, share, open_share, others, dx, dy, fall, real, place, layer = _layers(
        objects, order, centre, logit_prs, z_shp, numbers, view, pixel, M, K, KP, N, H, W
    )
    amplitude = tl.load(numbers + 3) * (1.0 - fall)
    total = tl.zeros((BLOCK,), tl.float32)
    for channel in tl.static_range(3):
        noise, colour, mean, behind, error = _colour(
            objects,
            background,
            image,
            appearance,
            channel,
            view,
            pixel,
            layer,
            place,
            real,
            amplitude,
            share,
            open_share,
            N,
        )
        total += error * error
    tl.store(errors + view * tl.num_programs(1) + tl.program_id(1), tl.sum(total, 0))


@triton.jit
def _error_backward(
    objects,
    background,
    order,
    centre,
    logit_prs,
    image,
    z_shp,
    appearance,
    numbers,
    weight,
    to_objects,
    to_background,
    sums,
    M: tl.constexpr,
    K: tl.constexpr,
    KP: tl.constexpr,
    N: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    BLOCK: tl.constexpr,
):
    view = tl.program_id(0).to(tl.int64)
    pixel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    logit, presence, cover, share, open_share, others, dx, dy, fall, real, place, layer = _layers(
        objects, order, centre, logit_prs, z_shp, numbers, view, pixel, M, K, KP, N, H, W
    )
    temperature, softness = tl.load(numbers), tl.load(numbers + 1)
    rate, scale = tl.load(numbers + 2), tl.load(numbers + 3)
    amplitude = scale * (1.0 - fall)
    factor = 2.0 * tl.load(weight + view)
    to_open = tl.zeros((BLOCK,), tl.float32)
    to_score = tl.zeros((KP, BLOCK), tl.float32)
    to_amplitude = tl.zeros((KP, BLOCK), tl.float32)
    for channel in tl.static_range(3):
        noise, colour, mean, behind, error = _colour(
            objects,
            background,
            image,
            appearance,
            channel,
            view,
            pixel,
            layer,
            place,
            real,
            amplitude,
            share,
            open_share,
            N,
        )
        to_picture = factor * error
        to_behind = 0.5 * open_share * to_picture
        where = (view * N + pixel) * 3 + channel
        tl.store(to_background + where, to_behind.to(to_background.dtype.element_ty), mask=pixel < N)
        to_open += to_picture * (behind - mean)
        to_mean = (1.0 - open_share) * to_picture
        to_colour = share * to_mean[None, :]
        tl.store(to_objects + place * 4 + channel + 1, (0.5 * to_colour).to(to_objects.dtype.element_ty), mask=real)
        to_amplitude += to_colour * noise
        to_score += to_colour * (colour - mean[None, :])
    to_cover = to_score - to_open[None, :] * tl.exp(cover) * others
    to_cover = tl.where(real, to_cover, 0.0)
    to_logit = to_cover * sigmoid(-logit) / temperature
    tl.store(to_objects + place * 4, to_logit.to(to_objects.dtype.element_ty), mask=real)
    to_square = tl.where(real, to_amplitude * scale * rate * fall, 0.0)
    k = tl.arange(0, KP)
    out = sums + ((view * tl.num_programs(1) + tl.program_id(1)) * K + k) * 4
    to_score = tl.where(real, to_score, 0.0)
    tl.store(out, tl.sum(to_score, 1) / softness, mask=k < K)
    tl.store(out + 1, tl.sum(to_cover, 1) * sigmoid(-presence), mask=k < K)
    tl.store(out + 2, tl.sum(-2.0 * (W / H) * dx * to_square, 1), mask=k < K)
    tl.store(out + 3, tl.sum(-2.0 * (H / W) * dy * to_square, 1), mask=k < K)
