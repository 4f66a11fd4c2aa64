"""A model of a few thousand weights on 16x16 pixels, untrained."""

import pytest
import torch
from torch import Tensor

from viewslots.methods.ocloc import choice
from viewslots.methods.ocloc.config import DecoderConfig, OclocConfig, StartConfig

SMALL_OCLOC = OclocConfig(
    image_size=16,
    slots=3,
    hidden=16,
    feature_channels=8,
    feature_kernel=3,
    slot_attr_dim=12,
    key_dim=10,
    value_dim=20,
    attr_dim=5,
    object_decoder=DecoderConfig(
        kind="compact", hidden=(16,), grid=8, grid_channels=6, stages=((1, 3, 6),), final_scale=2
    ),
    background_decoder=DecoderConfig(kind="compact", hidden=(8,), grid=8, grid_channels=4, stages=(), final_scale=2),
    start=StartConfig(presence_logit=2.0, query_gain=4.0),
)

UNFELT = {"inference.g_sel.4.bias", "inference.g_qry.norm.bias"}
"""They move all logits of a softmax alike, so their gradients are 0 but for rounding."""


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def see_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """An untrained model draws so faintly that no object has a pixel of its own; a search would prune all of them."""

    def everything(perceived: Tensor, view_mask: Tensor) -> Tensor:
        return torch.ones(len(perceived), perceived.shape[2] - 1, dtype=torch.bool)

    monkeypatch.setattr(choice, "seen_objects", everything)
