"""A broadcast decoder without its widest convolution.

A code that is the same at every place, seen through a kernel, is the same everywhere but near the border, where some
taps fall outside. So the first convolution is a matrix product with one answer for each kind of place (kernel^2 of
them), and a map of the positional embedding that all codes share.
"""

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from viewslots.methods.distributions import full_precision
from viewslots.methods.fast.folding import fold_stages
from viewslots.methods.fast.half import view_of
from viewslots.methods.layers import BroadcastDecoder


class FoldedBroadcastDecoder(BroadcastDecoder):
    """Its first convolution and ReLU are `first`; the others are folded."""

    first: nn.Conv2d
    inside: Tensor
    """Of `inside_taps`. Like rows and columns, made with the twin, not in every pass."""
    rows: Tensor
    columns: Tensor
    """Of `one_hot`."""

    def forward(self, code: Float[Tensor, "I D"]) -> Float[Tensor, "I outputs H W"]:
        kinds = seen_codes(code, self.first.weight, self.inside)
        place = seen_places(self.position.places(), self.first)
        maps = SpreadRelu.apply(kinds, place, self.rows, self.columns, compute_dtype(kinds))  # type: ignore[no-untyped-call]
        return self.convolutions(maps.permute(0, 3, 1, 2))


class ChannelsLastBroadcastDecoder(BroadcastDecoder):
    """Broadcasts with the channels last in memory, where its convolutions want them."""

    def forward(self, code: Float[Tensor, "I D"]) -> Float[Tensor, "I outputs H W"]:
        place = self.position.places().permute(0, 2, 3, 1)
        return self.convolutions((code[:, None, None] + place).permute(0, 3, 1, 2))


def fold_broadcast(decoder: BroadcastDecoder) -> BroadcastDecoder:
    first, activation, *rest = decoder.convolutions
    if not isinstance(first, nn.Conv2d):
        folded: BroadcastDecoder = view_of(decoder, ChannelsLastBroadcastDecoder)
        folded.convolutions = fold_stages([first, activation, *rest])
        return folded
    view = view_of(decoder, FoldedBroadcastDecoder)
    view.first, view.convolutions = first, fold_stages(rest)
    view.inside = inside_taps(first.kernel_size[0], first.weight)
    view.rows, view.columns = (
        one_hot(size, first.kernel_size[0], first.weight) for size in decoder.position.grid.shape[2:]
    )
    return view


@full_precision
def seen_codes(
    code: Float[Tensor, "I D"], weight: Float[Tensor, "O D k k"], inside: Float[Tensor, "k k"]
) -> Float[Tensor, "I k k O"]:
    """A code through the taps that fall inside, for each of k kinds of rows and of columns: the first ones are the
    first of the map, the last ones its last, and the middle one is all between, where every tap falls inside."""
    sums = torch.einsum("odyx,ay,bx->dabo", weight, inside, inside)
    return (code @ sums.flatten(1)).view(len(code), *sums.shape[1:])


@full_precision
def seen_places(places: Float[Tensor, "1 D H W"], first: nn.Conv2d) -> Float[Tensor, "H W O"]:
    """The positional embedding through the same kernel, with the bias."""
    return F.conv2d(places, first.weight, first.bias, padding=first.kernel_size[0] // 2)[0].permute(1, 2, 0)


def inside_taps(kernel: int, like: Tensor) -> Float[Tensor, "k k"]:
    """1 where a tap (second axis) falls inside the map for this kind of row."""
    half = kernel // 2
    place = torch.arange(kernel, device=like.device)[:, None] - half
    tap = torch.arange(kernel, device=like.device)[None] - half
    # Kind `place` < 0 is row half + place, so taps below -(half + place) are outside; kinds > 0 mirror that.
    outside = ((place < 0) & (tap < -(half + place))) | ((place > 0) & (tap > half - place))
    return (~outside).to(like.dtype)


def kinds_of_places(size: int, kernel: int) -> list[tuple[int, int]]:
    """(place, kind) near the two borders; all other places are of the middle kind."""
    half = kernel // 2
    return [(place, place) for place in range(half)] + [(size - half + i, half + 1 + i) for i in range(half)]


def compute_dtype(like: Tensor) -> torch.dtype:
    """Of convolutions: half precision under autocast."""
    kind = like.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else like.dtype


class SpreadRelu(torch.autograd.Function):
    """relu(kinds at the places where they belong + place), rounded once, to `dtype`.

    `rows` and `columns` say which of them are of which kind (`one_hot`).
    """

    @staticmethod
    def forward(
        ctx: Any,
        kinds: Float[Tensor, "I k k O"],
        place: Float[Tensor, "H W O"],
        rows: Float[Tensor, "k H"],
        columns: Float[Tensor, "k W"],
        dtype: torch.dtype,
    ) -> Float[Tensor, "I H W O"]:
        kernel, (height, width, _) = kinds.shape[1], place.shape
        middle = kernel // 2
        answer = kinds.new_empty(len(kinds), *place.shape, dtype=dtype)
        torch.add(kinds[:, middle, middle, None, None], place, out=answer)
        for row, kind in kinds_of_places(height, kernel):
            torch.add(kinds[:, kind, middle, None], place[row], out=answer[:, row])
        for column, kind in kinds_of_places(width, kernel):
            torch.add(kinds[:, middle, kind, None], place[:, column], out=answer[:, :, column])
            for row, other in kinds_of_places(height, kernel):
                torch.add(kinds[:, other, kind], place[row, column], out=answer[:, row, column])
        answer.relu_()
        ctx.save_for_backward(answer, rows.to(dtype), columns.to(dtype))
        ctx.given = kinds.dtype
        return answer

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        answer, rows, columns = ctx.saved_tensors
        passed = torch.ops.aten.threshold_backward(gradients[0].contiguous(), answer, 0)
        count, height, width, channels = passed.shape
        over_rows = rows @ passed.view(count, height, width * channels)
        kinds = columns @ over_rows.view(-1, width, channels)
        place = passed.new_ones(1, count) @ passed.view(count, -1)
        kinds, place = kinds.view(count, len(rows), len(columns), channels), place.view(height, width, channels)
        return kinds.to(ctx.given), place.to(ctx.given), None, None, None


def one_hot(size: int, kernel: int, like: Tensor) -> Float[Tensor, "k size"]:
    """Which places are of which kind."""
    place = torch.arange(size, device=like.device)
    kinds = place.clamp(max=kernel // 2) + (place - (size - kernel // 2 - 1)).clamp(min=0)
    return (kinds == torch.arange(kernel, device=like.device)[:, None]).to(like.dtype)
