"""From a config to networks: which part takes which size, and where its weights start."""

import torch

from viewslots.methods.layers import FeatureNetwork
from viewslots.methods.ocloc.boxes import DRAWN
from viewslots.methods.ocloc.config import OclocConfig
from viewslots.methods.ocloc.generation import Generation, last_convolution
from viewslots.methods.ocloc.inference import Inference, SharedViewCodes
from viewslots.methods.ocloc.networks import DECODERS


def build_inference(config: OclocConfig, sharing: SharedViewCodes) -> Inference:
    features = FeatureNetwork(
        config.feature_channels,
        config.feature_layers,
        config.feature_kernel,
        config.feature_stride,
        config.image_size,
    )
    return Inference(
        features=features,
        feature_dim=config.feature_channels,
        key_dim=config.key_dim,
        value_dim=config.value_dim,
        slot_view_dim=config.slot_view_dim,
        slot_attr_dim=config.slot_attr_dim,
        update_hidden=config.update_hidden,
        hidden=config.hidden,
        view_dim=config.view_dim,
        background_dim=config.background_dim,
        attr_dim=config.attr_dim,
        details=config.detail_dim,
        rounds=config.rounds,
        sharing=sharing,
    )


def build_generation(config: OclocConfig, channels: int) -> Generation:
    objects, background = config.object_decoder, config.background_decoder
    details = config.detail_dim
    detail_decoder = DECODERS[objects.kind](objects, config.view_dim + details, DRAWN) if details else None
    return Generation(
        object_decoder=DECODERS[objects.kind](objects, config.view_dim + config.attr_dim, channels),
        background_decoder=DECODERS[background.kind](background, config.view_dim + config.background_dim, 3),
        detail_decoder=detail_decoder,
        view_dim=config.view_dim,
        background_dim=config.background_dim,
        attr_dim=config.attr_dim,
        details=details,
        hidden=config.hidden,
        channels=channels,
        boxes=config.box_fit > 0,
    )


@torch.no_grad()
def start_at(inference: Inference, generation: Generation, config: OclocConfig) -> None:
    """The departures of `config.start` from Xavier-uniform weights and zero biases."""
    start = config.start
    heads = {
        inference.g_bck: config.background_dim,
        inference.g_obj: config.attr_dim,
        inference.g_view: config.view_dim,
    }
    for head, size in heads.items():
        head.last.bias[size : 2 * size] = start.log_sigma
    inference.g_obj.last.bias[-1] = start.presence_logit
    inference.g_sel.last.weight.mul_(start.selection_gain)
    inference.g_qry.linear.weight.mul_(start.query_gain)
    generation.start_channel(0, start.shape_logit)
    if generation.f_box is not None:
        generation.f_box.last.weight.zero_()
    if generation.f_det is not None:
        last_convolution(generation.f_det).weight.zero_()
