"""The fast twin of Slot Attention: folded convolutions, attention in the space of the features, half weights."""

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.methods.contract import FastTwin, Precision
from viewslots.methods.fast.attention import attended_mean, map_values, project_queries
from viewslots.methods.fast.broadcast import fold_broadcast
from viewslots.methods.fast.features import FastFeatures, fold_features
from viewslots.methods.fast.half import view_of, with_half_weights
from viewslots.methods.slot_attention.model import SlotAttention
from viewslots.methods.slot_attention.networks import ATTENTION_EPSILON, NORM_EPSILON, SlotAttentionModule


class NormalisedFeatures(FastFeatures):
    """Answers features as the attention module normalises them, but for its scale and shift."""

    def forward(self, images: Float[Tensor, "N 3 H W"]) -> Float[Tensor, "N P C"]:
        return self.core(images, NORM_EPSILON)


class ProjectedSlotAttention(SlotAttentionModule):
    """Takes normalised features."""

    def forward(self, features: Float[Tensor, "N P C"], noise: Float[Tensor, "N L D"]) -> Float[Tensor, "N L D"]:
        slots = self.mu + self.log_sigma.exp() * noise
        for _ in range(self.iterations):
            queries = project_queries(self.query(self.norm_slots(slots)), self.norm_inputs, self.key)
            mean = attended_mean(features, *queries, ATTENTION_EPSILON)
            slots = self.refine(slots, map_values(mean, self.norm_inputs, self.value))
        return slots


def accelerated(model: SlotAttention, precision: Precision) -> FastTwin:
    half = None
    view = model
    if model.device.type == "cuda":
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if precision == "bf16":
            exact = {model.attention.key, model.attention.value}
            view, half = with_half_weights(model, exact)
    twin = view_of(view, SlotAttention)
    twin.encoder = view_of(fold_features(view.encoder), NormalisedFeatures)
    twin.attention = view_of(view.attention, ProjectedSlotAttention)
    twin.decoder = fold_broadcast(view.decoder)
    return FastTwin(twin, half)
