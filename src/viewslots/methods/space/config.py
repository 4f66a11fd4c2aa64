"""Sizes and priors of SPACE as one frozen value, and its JSON. The defaults are those for 64x64 pictures."""

import math
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from viewslots.errors import UserError
from viewslots.methods.config import Bound, Count, Glimpse, Positive, Side, check_fields, from_values

Chance = Annotated[float, Bound("above 0 and below 1", lambda value: 0 < value < 1)]
Convolution = tuple[int, int, int, int]
"""A convolution of an encoder: (kernel size, stride, channels, groups of its normalisation)."""
Shuffle = tuple[int, int, int]
"""A stage of a decoder that enlarges maps by pixel shuffle: (factor, channels, groups of its normalisations)."""
GlimpseConvolution = tuple[Glimpse, Glimpse, Glimpse, Glimpse]
GlimpseShuffle = tuple[Glimpse, Glimpse, Glimpse]
"""The same of a glimpse, of which a scene has as many as cells."""


@dataclass(frozen=True)
class SpaceConfig:
    """Everything that fixes the networks and the generative model."""

    image_size: Side = 64
    grid: Side = 8
    """G: a picture has G x G cells, and each may hold one object."""

    encoder: tuple[Convolution, ...] = (
        (4, 2, 16, 4),
        (4, 2, 32, 8),
        (4, 2, 64, 8),
        (3, 1, 128, 16),
        (3, 1, 256, 32),
        (1, 1, 128, 16),
    )
    """From the picture to one feature vector a cell."""
    lateral_layers: Count = 2
    """3x3 convolutions between neighbouring cells."""
    glimpse_size: Glimpse = 32
    """Side of a glimpse: what a cell sees of the picture, and what it paints."""
    glimpse_encoder: tuple[GlimpseConvolution, ...] = (
        (3, 1, 16, 4),
        (4, 2, 32, 8),
        (3, 1, 32, 4),
        (4, 2, 64, 8),
        (4, 2, 128, 8),
    )
    """Before a last convolution that takes the whole map at once."""
    glimpse_channels: Glimpse = 256
    """Of that last convolution, and of the first map of the glimpse decoder."""
    glimpse_groups: Glimpse = 16
    glimpse_decoder: tuple[GlimpseShuffle, ...] = ((2, 128, 16), (2, 128, 16), (2, 64, 8), (2, 32, 8), (2, 16, 4))
    what_dim: int = 32

    components: Count = 1
    """Of the background."""
    background_channels: tuple[int, ...] = (64, 64, 64, 64)
    """Of the background's picture encoder; every convolution halves the map."""
    background_hidden: int = 64
    """Of its features, recurrent networks and perceptron."""
    mask_dim: int = 32
    mask_channels: int = 256
    mask_groups: int = 16
    mask_decoder: tuple[Shuffle, ...] = ((4, 256, 16), (2, 128, 16), (4, 64, 8), (2, 16, 4))
    """Of backgrounds with more than one component."""
    component_dim: int = 32
    component_channels: tuple[int, ...] = (32, 32, 64, 64)
    """Of the component encoder; every convolution halves the map."""
    painter_channels: tuple[int, ...] = (32, 32, 32, 32)
    """Of the spatial broadcast decoder of components."""

    foreground_sigma: Positive = 0.15
    background_sigma: Positive = 0.15
    presence_prior_start: Chance = 0.1
    """Probability that a cell holds an object, before it is annealed ..."""
    presence_prior_end: Chance = 0.01
    """... and after."""
    scale_prior_start: float = 0.0
    """Mean of the logit of an object's size, before it is annealed ..."""
    scale_prior_end: float = -0.5
    """... and after."""
    scale_prior_std: Positive = 0.5
    temperature: Positive = 0.5
    """Of the presence samples at test."""

    later = frozenset({"temperature"})

    section = "model"

    def __post_init__(self) -> None:
        check_fields(self)
        if empty := [name for name, value in vars(self).items() if value == ()]:
            raise UserError(f"{empty[0]}: at least one layer")
        strides = math.prod(stride for _, stride, _, _ in self.encoder)
        if self.image_size != self.grid * strides:
            raise UserError(f"strides of {strides} make {self.image_size} pixels no grid of {self.grid} cells")
        if self.glimpse_size % math.prod(stride for _, stride, _, _ in self.glimpse_encoder):
            raise UserError(f"the strides of the glimpse encoder do not divide a glimpse of {self.glimpse_size}")
        for name, stages, size in (
            ("glimpse", self.glimpse_decoder, self.glimpse_size),
            ("mask", self.mask_decoder, self.image_size),
        ):
            if (made := math.prod(factor for factor, _, _ in stages)) != size:
                raise UserError(f"the {name} decoder makes maps of side {made}, not {size}")
        for name in ("background_channels", "component_channels"):
            if self.image_size % 2 ** len(getattr(self, name)):
                raise UserError(f"{name}: {self.image_size} pixels cannot be halved {len(getattr(self, name))} times")
        normalised = [stage[-2:] for stage in (*self.encoder, *self.glimpse_encoder)]
        normalised += [stage[-2:] for stage in (*self.glimpse_decoder, *self.mask_decoder)]
        normalised += [(self.glimpse_channels, self.glimpse_groups), (self.mask_channels, self.mask_groups)]
        for channels, groups in normalised:
            if channels % groups:
                raise UserError(f"{channels} channels cannot be normalised in {groups} groups")

    @property
    def slots(self) -> int:
        """K: the cells. More objects than those cannot be found, and nobody has to say how many there may be."""
        return self.grid**2

    @property
    def glimpse_map(self) -> int:
        """Side of the map that the last convolution of the glimpse encoder takes at once."""
        return self.glimpse_size // math.prod(stride for _, stride, _, _ in self.glimpse_encoder)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "SpaceConfig":
        return from_values(cls, values)
