"""Encoder, Slot Attention module and spatial broadcast decoder, and where their weights start.

The published runs used Keras, whose defaults are part of the method: `initialise`, `NORM_EPSILON`, and the alignment of
`TransposedConvolution`. Keras's GRU applies the reset gate after the recurrent product, and so does torch's.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from viewslots.methods.distributions import full_precision, widen
from viewslots.methods.layers import BroadcastDecoder
from viewslots.methods.slot_attention.config import Stage

ATTENTION_EPSILON = 1e-8
"""Added to every attention weight, so that a slot that wins nothing still has a mean to take."""
NORM_EPSILON = 1e-3
"""Keras's; torch has 1e-5."""


def layer_norm(channels: int) -> nn.LayerNorm:
    return nn.LayerNorm(channels, eps=NORM_EPSILON)


@full_precision
def attention_weights(keys: Float[Tensor, "N P D"], queries: Float[Tensor, "N L D"]) -> Float[Tensor, "N P L"]:
    """Slots compete for every pixel; then the weights of every slot sum to one over the pixels."""
    logits = keys @ (queries * queries.shape[-1] ** -0.5).mT
    shares = logits.softmax(-1) + ATTENTION_EPSILON
    return shares / shares.sum(1, keepdim=True)


class SlotAttentionModule(nn.Module):
    """Algorithm 1 of the paper."""

    def __init__(self, inputs: int, slot_dim: int, hidden: int, iterations: int) -> None:
        super().__init__()
        self.iterations = iterations
        # One row: all slots start from the same distribution.
        self.mu = nn.Parameter(torch.zeros(1, slot_dim))
        self.log_sigma = nn.Parameter(torch.zeros(1, slot_dim))
        self.norm_inputs = layer_norm(inputs)
        self.norm_slots = layer_norm(slot_dim)
        self.query = nn.Linear(slot_dim, slot_dim, bias=False)
        self.key = nn.Linear(inputs, slot_dim, bias=False)
        self.value = nn.Linear(inputs, slot_dim, bias=False)
        self.recurrent = nn.GRUCell(slot_dim, slot_dim)
        self.residual = nn.Sequential(
            layer_norm(slot_dim), nn.Linear(slot_dim, hidden), nn.ReLU(), nn.Linear(hidden, slot_dim)
        )

    def forward(self, features: Float[Tensor, "N P C"], noise: Float[Tensor, "N L D"]) -> Float[Tensor, "N L D"]:
        inputs = self.norm_inputs(features)
        keys, values = self.key(inputs), self.value(inputs)
        slots = self.mu + self.log_sigma.exp() * noise
        for _ in range(self.iterations):
            slots = self.refine(slots, attention_weights(keys, self.query(self.norm_slots(slots))).mT @ values)
        return slots

    def refine(self, slots: Float[Tensor, "N L D"], updates: Float[Tensor, "N L D"]) -> Float[Tensor, "N L D"]:
        """Autocast runs matrix products in half precision; what the slots carry on stays in full."""
        state = widen(self.recurrent(updates.flatten(0, 1), slots.flatten(0, 1))).view_as(slots)
        return state + widen(self.residual(state))


class TransposedConvolution(nn.ConvTranspose2d):
    """Multiplies the size exactly by its stride.

    A kernel of k makes k - stride rows too many. Keras's "same" cuts half of them at the top, rounded down, and the
    rest at the bottom; torch's padding can only cut as many or more at the top, so the last row is cut here.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int) -> None:
        super().__init__(inputs, outputs, kernel, stride, padding=(kernel - stride) // 2)

    def forward(self, maps: Float[Tensor, "N C h w"], output_size: list[int] | None = None) -> Float[Tensor, "N E H W"]:
        height, width = (side * step for side, step in zip(maps.shape[-2:], self.stride, strict=True))
        return super().forward(maps, output_size)[..., :height, :width]


def enlarging(inputs: int, outputs: int, kernel: int, stride: int) -> nn.Module:
    """A transposed convolution; without stride a plain one, which is the same with its kernel turned around."""
    if stride == 1:
        return nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)
    return TransposedConvolution(inputs, outputs, kernel, stride)


def broadcast_decoder(slot_dim: int, grid: int, stages: Sequence[Stage]) -> BroadcastDecoder:
    """Every slot alone, enlarged to colours and a mask's logit.

    The decoder for 128x128 pictures starts from 8x8, the one for 64x64 from all pixels, with strides of 1.
    """
    layers: list[nn.Module] = []
    before = slot_dim
    for stride, kernel, channels in stages:
        layers += [enlarging(before, channels, kernel, stride), nn.ReLU()]
        before = channels
    return BroadcastDecoder(slot_dim, grid, nn.Sequential(*layers, enlarging(before, 4, 3, 1)))


@full_precision
def blended(layers: Float[Tensor, "N L 4 H W"]) -> tuple[Float[Tensor, "N 3 H W"], Float[Tensor, "N L H W"]]:
    """The picture, colours weighted by masks, and the masks: a softmax over the slots."""
    masks = layers[:, :, 3:].softmax(1)
    return (masks * layers[:, :, :3]).sum(1), masks.squeeze(2)


def initialise(network: nn.Module, generator: torch.Generator) -> None:
    """Glorot-uniform kernels, also for mu and log sigma, orthogonal recurrent ones, zero biases.

    Keras holds the three gates of a GRU in one kernel [D, 3D] and draws that one as a whole. So the limits of Glorot
    count 3D outputs, and the D columns of torch's [3D, D] are orthonormal, not the square of every gate.
    """
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d | nn.ConvTranspose2d | nn.GRUCell | SlotAttentionModule):
            for name, parameter in module.named_parameters(recurse=False):
                if name == "weight_hh":
                    nn.init.orthogonal_(parameter, generator=generator)
                elif parameter.dim() > 1:
                    nn.init.xavier_uniform_(parameter, generator=generator)
                else:
                    nn.init.zeros_(parameter)
