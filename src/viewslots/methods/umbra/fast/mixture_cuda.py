"""The cost of `ShadowedMixture` as one Triton kernel a direction; a program holds all K layers of some pixels.

With c = sigmoid(l) sigmoid(p), object k is seen by c_k H_k: H_k = prod_j T_jk, T_jk = 1 - c_j P(j nearer than k). That
is u_j + c_j P(k nearer than j), and 1 for j = k. u = 1 - c = sigmoid(-l) + sigmoid(l) sigmoid(-p) is kept as it is,
since 1 - c from c would round to 0. No single row can be taken out of a tile of layers, so row j is loaded again.

Backward, H_k / T_jk is the product without j, and a T_jk below 1e-30 counts as 1e-30. What is lost is smaller than
that: every gradient that passes c_j ends with a factor below T_jk. The same holds for 1 - c and for the light.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from viewslots.methods.ocloc.fast.likelihood_cuda import noise_fall, sigmoid
from viewslots.methods.umbra import image_model

BLOCK, WARPS = 32, 1
"""Pixels and warps of one program. Sums over layers then stay in a warp, and none waits for another."""
SUMS = tl.constexpr(4)
"""Gradients that a layer gathers over pixels: order, presence, and the centre's x and y."""
LEAST_COVER, LEAST_SHARE = tl.constexpr(image_model.LEAST_COVER), tl.constexpr(image_model.LEAST_SHARE)
TINY = tl.constexpr(1e-30)


class ShadowedCost(torch.autograd.Function):
    """(constants, drawn, objects, background, order, centre, logit_prs, image, noise, numbers) -> sums [2, B, M].

    Sums over pixels of L_nll and of prices. If `drawn`, also reconstruction, perceived shapes, appearances and the
    shaded background, which pass no gradient on. Constants: darkest, 1 / (2 sigma_x^2), pixel_cost, shadow_cost.
    Numbers: softness, share of the mixture, rate and scale of the noise. Without noise, `centre` has no gradient.
    """

    @staticmethod
    def forward(ctx: Any, constants: tuple[float, ...], drawn: bool, *given: Any) -> tuple[Tensor, ...]:
        maps = [as_it_lies(value) for value in given[:2]]
        rest: list[Any] = [None if value is None else value.contiguous() for value in given[2:]]
        order, image = rest[0], rest[3]
        (B, M), K, size = image.shape[:2], order.shape[2], image.shape[-2:]
        blocks = triton.cdiv(size[0] * size[1], BLOCK)
        sums = torch.empty(2, B, M, blocks, device=image.device)
        pictures = []
        if drawn:
            shapes = ((3,), (K + 1,), (K, 3), (3,))
            pictures = [torch.empty(B, M, *shape, *size, device=image.device) for shape in shapes]
        ctx.constants, ctx.size = [float(value) for value in constants], size
        _cost_forward[(B * M, blocks)](
            *kernel_inputs(maps, rest),
            sums,
            *(pictures or [sums] * 4),
            *ctx.constants,
            *kernel_sizes(maps, rest),
            DRAWN=drawn,
            num_warps=WARPS,
        )
        ctx.save_for_backward(*maps, *rest)
        ctx.mark_non_differentiable(*pictures)
        ctx.set_materialize_grads(False)
        return sums.sum(3), *pictures

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        objects, background, *rest = ctx.saved_tensors
        maps, image, noise = [objects, background], rest[3], rest[4]
        (B, M), K = image.shape[:2], rest[0].shape[2]
        blocks = triton.cdiv(objects.shape[2], BLOCK)
        to_maps = [torch.empty_like(value) for value in maps]
        sums = torch.empty(B, M, blocks, K, SUMS.value, device=image.device)
        _cost_backward[(B * M, blocks)](
            *kernel_inputs(maps, rest),
            gradients[0].contiguous(),
            *to_maps,
            sums,
            *ctx.constants,
            *kernel_sizes(maps, rest),
            num_warps=WARPS,
        )
        to_objects, to_background = (value.unflatten(2, ctx.size) for value in to_maps)
        to_order, to_presence, *to_centre = sums.sum(2).unbind(-1)
        centre = None if noise is None else torch.stack(to_centre, -1)
        return None, None, to_objects, to_background, to_order, centre, to_presence.sum(1), *[None] * 3


def as_it_lies(maps: Tensor) -> Tensor:
    """[I, channels, pixels], channels first or last in memory as they come. Other views are copied."""
    flat = maps.flatten(2)
    return flat if flat.stride() == torch.empty_like(flat, device="meta").stride() else flat.clone()


def kernel_inputs(maps: list[Tensor], rest: list[Any]) -> list[Tensor]:
    """Without noise its place is taken by what nobody reads."""
    return [*maps, *(rest[3] if value is None else value for value in rest)]


def kernel_sizes(maps: list[Tensor], rest: list[Any]) -> tuple[int | bool, ...]:
    """Strides of both maps, then views, layers, pixels, and whether there is noise."""
    (H, W), M, K = rest[3].shape[-2:], rest[3].shape[1], rest[0].shape[2]
    strides = [stride for value in maps for stride in value.stride()]
    return *strides, M, K, triton.next_power_of_2(K), H * W, H, W, BLOCK, rest[4] is not None


@triton.jit
def _layer(
    objects,
    order,
    logit_prs,
    softness,
    depth,
    j,
    pixel,
    item,
    step,
    KP: tl.constexpr,
    N: tl.constexpr,
):
    """Layer j: what it covers of the pixels and leaves open; how likely each layer is nearer, and farther."""
    k = tl.arange(0, KP)
    logit = tl.load(objects + j * item + pixel * step, mask=pixel < N, other=0.0).to(tl.float32)
    presence = tl.load(logit_prs + j)
    shape = sigmoid(logit)
    cover = shape * sigmoid(presence)
    uncovered = sigmoid(-logit) + shape * sigmoid(-presence)
    distance = (depth - tl.load(order + j)) / softness
    nearer = tl.where(k == j, 1.0, sigmoid(distance))
    farther = tl.where(k == j, 0.0, sigmoid(-distance))
    return cover, uncovered, nearer, farther


@triton.jit
def _layers(
    objects,
    order,
    logit_prs,
    numbers,
    darkest,
    pixel,
    place,
    real,
    item,
    channel_step,
    step,
    K: tl.constexpr,
    KP: tl.constexpr,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Everything of the K layers of a block of pixels but their colours; rows are layers."""
    k = tl.arange(0, KP)
    softness = tl.load(numbers)
    depth = tl.load(order + k, mask=k < K, other=0.0)
    unhidden = tl.full((KP, BLOCK), 1.0, tl.float32)
    open_share = tl.full((BLOCK,), 1.0, tl.float32)
    light = tl.full((BLOCK,), 1.0, tl.float32)
    covered = tl.zeros((BLOCK,), tl.float32)
    shadows = tl.zeros((BLOCK,), tl.float32)
    for j in range(K):
        cover_j, uncovered_j, nearer, farther = _layer(
            objects, order, logit_prs, softness, depth, j, pixel, item, step, KP, N
        )
        unhidden = unhidden * (uncovered_j[None, :] + cover_j[None, :] * nearer[:, None])
        covered = covered * uncovered_j + cover_j  # 1 - open_share, which would round small ones away
        open_share = open_share * uncovered_j
        row = objects + j * item + 4 * channel_step + pixel * step
        logit_shadow = tl.load(row, mask=pixel < N, other=0.0).to(tl.float32)
        presence_j = tl.load(logit_prs + j)
        shadow = sigmoid(logit_shadow)
        shadows += shadow * sigmoid(presence_j)
        light = light * ((1.0 - darkest) + darkest * (sigmoid(-logit_shadow) + shadow * sigmoid(-presence_j)))
    logit = tl.load(objects + place, mask=real, other=0.0).to(tl.float32)
    presence = tl.load(logit_prs + k, mask=k < K, other=0.0)
    seen = tl.where((k < K)[:, None], sigmoid(logit) * sigmoid(presence)[:, None], 0.0) * unhidden
    overlaps = covered > LEAST_COVER
    total = tl.where(overlaps, tl.sum(seen, 0), 1.0)
    scale = tl.where(overlaps, covered / total, 1.0)
    return logit, presence, depth, unhidden, seen, total, overlaps, scale, open_share, covered, light, shadows


@triton.jit
def _colour(
    objects,
    background,
    image,
    noise,
    channel,
    amplitude,
    share,
    open_share,
    light,
    pixel,
    place,
    real,
    channel_step,
    back_channel,
    back_step,
    KP: tl.constexpr,
    N: tl.constexpr,
    NOISE: tl.constexpr,
):
    """One channel: the layers' colours without noise and with it, the background bare and shaded, target and mean."""
    y = tl.load(objects + place + (channel + 1) * channel_step, mask=real, other=0.0).to(tl.float32)
    appearance = sigmoid(2.0 * y)
    colour = appearance
    if NOISE:
        where = (tl.arange(0, KP)[:, None] * 3 + channel) * N + pixel[None, :]
        colour = appearance + amplitude * tl.load(noise + where, mask=real, other=0.0)
    back = channel * back_channel + pixel * back_step
    bare = (tl.load(background + back, mask=pixel < N, other=0.0).to(tl.float32) + 1.0) * 0.5
    behind = bare * light
    target = tl.load(image + channel * N + pixel, mask=pixel < N, other=0.0)
    mean = open_share * behind + tl.sum(share * colour, 0)
    return appearance, colour, bare, behind, target, mean


@triton.jit
def _explained(share, open_share, error, error_behind):
    """log s N(x; a) of every layer and of the background, where they take part, and the logarithm of their sum."""
    part, part_behind = share > LEAST_SHARE, open_share > LEAST_SHARE
    score = tl.where(part, tl.log(tl.where(part, share, 1.0)) - error, float("-inf"))
    score_behind = tl.where(part_behind, tl.log(tl.where(part_behind, open_share, 1.0)) - error_behind, float("-inf"))
    top = tl.maximum(tl.max(score, 0), score_behind)
    total = top + tl.log(tl.sum(tl.exp(score - top[None, :]), 0) + tl.exp(score_behind - top))
    return part, part_behind, score, score_behind, total


@triton.jit
def _cost_forward(
    objects,
    background,
    order,
    centre,
    logit_prs,
    image,
    noise,
    numbers,
    sums,
    reconstruction,
    perceived,
    appearances,
    shaded,
    darkest,
    sharpness,
    pixel_cost,
    shadow_cost,
    item,
    channel_step,
    step,
    back_item,
    back_channel,
    back_step,
    M,
    K: tl.constexpr,
    KP: tl.constexpr,
    N: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    BLOCK: tl.constexpr,
    NOISE: tl.constexpr,
    DRAWN: tl.constexpr,
):
    view = tl.program_id(0).to(tl.int64)
    pixel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < N
    k = tl.arange(0, KP)
    real = (k < K)[:, None] & inside[None, :]
    place = k[:, None] * item + pixel[None, :] * step
    # From here on all pointers are those of the view: offsets within it are small, and need no 64 bits.
    objects += view * K * item
    background += view * back_item
    image += view * 3 * N
    order += view * K
    logit_prs += view // M * K
    logit, presence, depth, unhidden, seen, total, overlaps, scale, open_share, covered, light, shadows = _layers(
        objects, order, logit_prs, numbers, darkest, pixel, place, real, item, channel_step, step, K, KP, N, BLOCK
    )
    share = seen * scale[None, :]
    mixture = tl.load(numbers + 1)
    amplitude = share
    if NOISE:
        noise += view * K * 3 * N
        dx, dy, fall = noise_fall(centre + view * K * 2, tl.load(numbers + 2), pixel, K, KP, H, W)
        amplitude = tl.load(numbers + 3) * (1.0 - fall)
    error = tl.zeros((KP, BLOCK), tl.float32)
    error_behind = tl.zeros((BLOCK,), tl.float32)
    error_mean = tl.zeros((BLOCK,), tl.float32)
    for channel in range(3):
        appearance, colour, bare, behind, target, mean = _colour(
            objects,
            background,
            image,
            noise,
            channel,
            amplitude,
            share,
            open_share,
            light,
            pixel,
            place,
            real,
            channel_step,
            back_channel,
            back_step,
            KP,
            N,
            NOISE,
        )
        missed = colour - target[None, :]
        error += missed * missed
        error_behind += (behind - target) * (behind - target)
        error_mean += (mean - target) * (mean - target)
        if DRAWN:
            where = (view * 3 + channel) * N + pixel
            tl.store(reconstruction + where, mean, mask=inside)
            tl.store(shaded + where, behind, mask=inside)
            there = (k[:, None] * 3 + channel) * N + pixel[None, :]
            tl.store(appearances + view * K * 3 * N + there, appearance, mask=real)
    part, part_behind, score, score_behind, explained = _explained(
        share, open_share, sharpness * error, sharpness * error_behind
    )
    nll = (1.0 - mixture) * sharpness * error_mean - mixture * explained
    price = pixel_cost * covered + shadow_cost * shadows
    out = sums + view * tl.num_programs(1) + tl.program_id(1)
    tl.store(out, tl.sum(tl.where(inside, nll, 0.0), 0))
    tl.store(out + tl.num_programs(0) * tl.num_programs(1), tl.sum(tl.where(inside, price, 0.0), 0))
    if DRAWN:
        perceived += view * (K + 1) * N
        tl.store(perceived + pixel, open_share, mask=inside)
        tl.store(perceived + (k + 1)[:, None] * N + pixel[None, :], share, mask=real)


@triton.jit
def _cost_backward(
    objects,
    background,
    order,
    centre,
    logit_prs,
    image,
    noise,
    numbers,
    weight,
    to_objects,
    to_background,
    sums,
    darkest,
    sharpness,
    pixel_cost,
    shadow_cost,
    item,
    channel_step,
    step,
    back_item,
    back_channel,
    back_step,
    M,
    K: tl.constexpr,
    KP: tl.constexpr,
    N: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    BLOCK: tl.constexpr,
    NOISE: tl.constexpr,
):
    view = tl.program_id(0).to(tl.int64)
    pixel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < N
    k = tl.arange(0, KP)
    real = (k < K)[:, None] & inside[None, :]
    place = k[:, None] * item + pixel[None, :] * step
    # From here on all pointers are those of the view: offsets within it are small, and need no 64 bits.
    objects += view * K * item
    to_objects += view * K * item
    background += view * back_item
    to_background += view * back_item
    image += view * 3 * N
    order += view * K
    logit_prs += view // M * K
    logit, presence, depth, unhidden, seen, total, overlaps, scale, open_share, covered, light, shadows = _layers(
        objects, order, logit_prs, numbers, darkest, pixel, place, real, item, channel_step, step, K, KP, N, BLOCK
    )
    share = seen * scale[None, :]
    softness, mixture = tl.load(numbers), tl.load(numbers + 1)
    nll_weight, price_weight = tl.load(weight + view), tl.load(weight + tl.num_programs(0) + view)
    of_mixture = mixture * nll_weight
    of_mean = (1.0 - mixture) * nll_weight * 2.0 * sharpness
    amplitude = share
    if NOISE:
        noise += view * K * 3 * N
        dx, dy, fall = noise_fall(centre + view * K * 2, tl.load(numbers + 2), pixel, K, KP, H, W)
        amplitude = tl.load(numbers + 3) * (1.0 - fall)
    error = tl.zeros((KP, BLOCK), tl.float32)
    error_behind = tl.zeros((BLOCK,), tl.float32)
    to_share = tl.zeros((KP, BLOCK), tl.float32)
    to_open = tl.zeros((BLOCK,), tl.float32)
    for channel in range(3):
        appearance, colour, bare, behind, target, mean = _colour(
            objects,
            background,
            image,
            noise,
            channel,
            amplitude,
            share,
            open_share,
            light,
            pixel,
            place,
            real,
            channel_step,
            back_channel,
            back_step,
            KP,
            N,
            NOISE,
        )
        missed = colour - target[None, :]
        error += missed * missed
        error_behind += (behind - target) * (behind - target)
        to_mean = of_mean * (mean - target)
        to_share += to_mean[None, :] * colour
        to_open += to_mean * behind
    part, part_behind, score, score_behind, explained = _explained(
        share, open_share, sharpness * error, sharpness * error_behind
    )
    blame = of_mixture * tl.exp(score - explained[None, :])
    blame_behind = of_mixture * tl.exp(score_behind - explained)
    to_share -= tl.where(part, blame / tl.where(part, share, 1.0), 0.0)
    to_open -= tl.where(part_behind, blame_behind / tl.where(part_behind, open_share, 1.0), 0.0)
    to_open -= price_weight * pixel_cost
    to_light = tl.zeros((BLOCK,), tl.float32)
    to_amplitude = tl.zeros((KP, BLOCK), tl.float32)
    for channel in range(3):
        appearance, colour, bare, behind, target, mean = _colour(
            objects,
            background,
            image,
            noise,
            channel,
            amplitude,
            share,
            open_share,
            light,
            pixel,
            place,
            real,
            channel_step,
            back_channel,
            back_step,
            KP,
            N,
            NOISE,
        )
        to_mean = of_mean * (mean - target)
        to_colour = 2.0 * sharpness * blame * (colour - target[None, :]) + to_mean[None, :] * share
        to_y = to_colour * 2.0 * appearance * (1.0 - appearance)
        where = place + (channel + 1) * channel_step
        tl.store(to_objects + where, to_y.to(to_objects.dtype.element_ty), mask=real)
        if NOISE:
            there = (k[:, None] * 3 + channel) * N + pixel[None, :]
            to_amplitude += to_colour * tl.load(noise + there, mask=real, other=0.0)
        to_behind = 2.0 * sharpness * blame_behind * (behind - target) + to_mean * open_share
        to_light += to_behind * bare
        back = channel * back_channel + pixel * back_step
        tl.store(to_background + back, (0.5 * light * to_behind).to(to_background.dtype.element_ty), mask=inside)
    # Shares to what is seen of each layer, that to what it covers and to its order.
    along = tl.sum(to_share * seen, 0)
    to_open -= tl.where(overlaps, along / total, 0.0)
    to_seen = to_share * scale[None, :] - tl.where(overlaps, along * covered / (total * total), 0.0)[None, :]
    flow = to_seen * seen
    shape, present, absent = sigmoid(logit), sigmoid(presence), sigmoid(-presence)
    uncovered = tl.maximum(sigmoid(-logit) + shape * absent[:, None], TINY)
    to_cover = to_seen * unhidden - (to_open * open_share)[None, :] / uncovered
    to_order = tl.zeros((KP, BLOCK), tl.float32)
    for j in range(K):
        cover_j, uncovered_j, nearer, farther = _layer(
            objects, order, logit_prs, softness, depth, j, pixel, item, step, KP, N
        )
        unhidden_j = uncovered_j[None, :] + cover_j[None, :] * nearer[:, None]
        pull = flow / tl.maximum(unhidden_j, TINY)
        turn = pull * cover_j[None, :] * (nearer * farther / softness)[:, None]
        own = (k == j)[:, None]
        to_cover -= tl.where(own, tl.sum(pull * farther[:, None], 0)[None, :], 0.0)
        to_order += turn - tl.where(own, tl.sum(turn, 0)[None, :], 0.0)
    to_logit = to_cover * present[:, None] * shape * sigmoid(-logit)
    tl.store(to_objects + place, to_logit.to(to_objects.dtype.element_ty), mask=real)
    # Shadows, all at once: they fall in no order.
    logit_shadow = tl.load(objects + place + 4 * channel_step, mask=real, other=0.0).to(tl.float32)
    shadow, unshaded = sigmoid(logit_shadow), sigmoid(-logit_shadow)
    lit = (1.0 - darkest) + darkest * (unshaded + shadow * absent[:, None])
    to_shadow = price_weight * shadow_cost - darkest * (to_light * light)[None, :] / tl.maximum(lit, TINY)
    to_logit = to_shadow * present[:, None] * shadow * unshaded
    tl.store(to_objects + place + 4 * channel_step, to_logit.to(to_objects.dtype.element_ty), mask=real)
    out = sums + ((view * tl.num_programs(1) + tl.program_id(1)) * K + k) * SUMS
    to_presence = tl.where(real, to_cover * shape + to_shadow * shadow, 0.0)
    tl.store(out, tl.sum(tl.where(real, to_order, 0.0), 1), mask=k < K)
    tl.store(out + 1, tl.sum(to_presence, 1) * present * absent, mask=k < K)
    if NOISE:
        rate = tl.load(numbers + 2)
        to_square = tl.where(real, to_amplitude * tl.load(numbers + 3) * rate * fall, 0.0)
        tl.store(out + 2, tl.sum(-2.0 * (W / H) * dx * to_square, 1), mask=k < K)
        tl.store(out + 3, tl.sum(-2.0 * (H / W) * dy * to_square, 1), mask=k < K)
