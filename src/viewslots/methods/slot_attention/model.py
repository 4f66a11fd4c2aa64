"""Slot Attention as a method: encode, attend, decode, compare."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from viewslots.methods.contract import FastTwin, Losses, Precision, Search, TrainableMethod
from viewslots.methods.distributions import full_precision
from viewslots.methods.layers import FeatureNetwork
from viewslots.methods.noise import Sampler
from viewslots.methods.schedules import Scheduled
from viewslots.methods.single_view import mean_of_pictures
from viewslots.methods.slot_attention.config import SlotAttentionConfig
from viewslots.methods.slot_attention.networks import (
    NORM_EPSILON,
    SlotAttentionModule,
    blended,
    broadcast_decoder,
    initialise,
)
from viewslots.types import Decomposition, SceneBatch


@dataclass(frozen=True)
class SlotNoise:
    """All randomness of one pass."""

    slots: Float[Tensor, "B M L D"]
    """Normal: where every slot of every view starts."""


@dataclass(frozen=True)
class SlotAnswer:
    """What one pass found. Slots of different views have nothing to do with one another."""

    slots: Float[Tensor, "B M L D"]
    masks: Float[Tensor, "B M L H W"]
    reconstruction: Float[Tensor, "B M 3 H W"]
    """In [0, 1], not clamped."""

    @property
    def object_codes(self) -> Float[Tensor, "B M L D"]:
        return self.slots

    def decomposition(self) -> Decomposition:
        return Decomposition(self.reconstruction, self.masks, has_background=False)


class SlotAttention(
    TrainableMethod[SlotAttentionConfig], library_name="viewslots", tags=["object-centric-learning", "slot-attention"]
):
    """For single pictures: every view of a scene stands alone. Weights are drawn from `generator`, or from seed 0."""

    name = "slot-attention"
    config_class = SlotAttentionConfig
    terms = ("mse",)

    def __init__(self, config: SlotAttentionConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.encoder = FeatureNetwork(
            config.encoder_channels,
            config.encoder_layers,
            config.encoder_kernel,
            config.encoder_stride,
            config.image_size,
            NORM_EPSILON,
        )
        self.attention = SlotAttentionModule(
            config.encoder_channels, config.slot_dim, config.mlp_hidden, config.iterations
        )
        self.decoder = broadcast_decoder(config.slot_dim, config.decoder_grid, config.decoder_stages)
        initialise(self, generator or torch.Generator().manual_seed(0))

    def draw_noise(self, batch: SceneBatch, generator: torch.Generator, slots: int | None = None) -> SlotNoise:
        """For K = `slots` objects, hence K + 1 slots."""
        (B, M), K = batch.image.shape[:2], self.chosen_slots(slots)
        size = (B, M, K + 1, self.config.slot_dim)
        return SlotNoise(Sampler(generator, self.device).normal(*size))

    def forward(self, batch: SceneBatch, scheduled: Scheduled, noise: SlotNoise) -> Losses:
        mse = squared_error(self.explain(batch, noise).reconstruction, batch.image, batch.view_mask)
        return Losses(minimised=mse, comparable=mse, terms={"mse": mse})

    def explain(self, batch: SceneBatch, noise: SlotNoise) -> SlotAnswer:
        """One pass over all views, each a picture of its own. The networks see and make colours in [-1, 1]."""
        B, M, L, _ = noise.slots.shape
        slots = self.attention(self.encoder(2 * batch.image.flatten(0, 1) - 1), noise.slots.flatten(0, 1))
        picture, masks = blended(self.decoder(slots.flatten(0, 1)).unflatten(0, (B * M, L)))
        return SlotAnswer(
            slots=slots.view_as(noise.slots),
            masks=masks.reshape(B, M, *masks.shape[1:]),
            reconstruction=(picture.reshape(batch.image.shape) + 1) / 2,
        )

    def fast(self, precision: Precision) -> FastTwin:
        from viewslots.methods.slot_attention.fast import accelerated

        return accelerated(self, precision)

    @torch.no_grad()
    def infer(
        self, batch: SceneBatch, generator: torch.Generator, slots: int | None = None, search: Search | None = None
    ) -> SlotAnswer:
        self.check(batch)
        self.check_search(search)
        return self.explain(batch, self.draw_noise(batch, generator, slots))


@full_precision
def squared_error(
    reconstruction: Float[Tensor, "B M 3 H W"], image: Float[Tensor, "B M 3 H W"], view_mask: Bool[Tensor, "B M"]
) -> Float[Tensor, "B"]:
    """Mean over a scene's real views, pixels and channels, on the scale of [-1, 1]: four times that of [0, 1]."""
    return mean_of_pictures(4 * (reconstruction - image).square().mean((2, 3, 4)).flatten(), view_mask)
