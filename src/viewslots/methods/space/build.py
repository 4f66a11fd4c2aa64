"""The networks from their sizes, and where their weights start."""

from torch import nn

from viewslots.methods.space.background import Background, ComponentDecoder, MapEncoder, MaskPosterior, MaskPrior
from viewslots.methods.space.config import SpaceConfig
from viewslots.methods.space.foreground import CellEncoder, Foreground, GlimpseEncoder
from viewslots.methods.space.layers import ShuffleDecoder


def build_foreground(config: SpaceConfig) -> Foreground:
    channels, groups, D = config.glimpse_channels, config.glimpse_groups, config.what_dim
    return Foreground(
        cells=CellEncoder(config.encoder, config.lateral_layers),
        encoder=GlimpseEncoder(config.glimpse_encoder, config.glimpse_map, channels, groups, D),
        decoder=ShuffleDecoder(D, channels, groups, config.glimpse_decoder, outputs=4),
        glimpse_size=config.glimpse_size,
    )


def build_background(config: SpaceConfig) -> Background:
    size, hidden, D = config.image_size, config.background_hidden, config.mask_dim
    decoder = ShuffleDecoder(D, config.mask_channels, config.mask_groups, config.mask_decoder, outputs=1)
    return Background(
        encoder=MapEncoder(3, size, config.background_channels, hidden),
        mask_posterior=MaskPosterior(hidden, D, hidden),
        mask_prior=MaskPrior(D, hidden, config.components),
        mask_decoder=decoder if config.components > 1 else None,
        component_encoder=MapEncoder(4, size, config.component_channels, 2 * config.component_dim),
        component_prior=nn.Sequential(
            nn.Linear(D, hidden),
            nn.ELU(),
            nn.Linear(hidden, hidden),
            nn.ELU(),
            nn.Linear(hidden, 2 * config.component_dim),
        ),
        painter=ComponentDecoder(config.component_dim, size, config.painter_channels),
    )
