"""Sizes and constants of GMIOO as frozen values, and their JSON. The defaults are those of the dSprites runs."""

from dataclasses import asdict, dataclass
from typing import Any

from viewslots.errors import UserError
from viewslots.methods.config import Count, Glimpse, Positive, Side, check_fields, from_values

EncoderStage = tuple[int, int]
"""One 3x3 convolution: (channels, stride)."""
DecoderStage = tuple[int, int]
"""One 3x3 convolution: (factor of upsampling before it, channels)."""


@dataclass(frozen=True)
class DecoderConfig:
    """From a code by fully connected layers to a small map, and by convolutions to a picture."""

    grid: Side
    """Side of the first map."""
    grid_channels: int
    stages: tuple[DecoderStage, ...]
    """Hidden convolutions."""
    final_scale: int = 1
    """Factor of upsampling before the last, linear convolution."""
    hidden: tuple[int, ...] = ()
    """Widths of the fully connected layers before the map."""

    section = "model.*_decoder"

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def size(self) -> int:
        """Side of the picture."""
        size = self.grid * self.final_scale
        for scale, _ in self.stages:
            size *= scale
        return size


@dataclass(frozen=True)
class GmiooConfig:
    """Everything that fixes the model."""

    image_size: Side = 64
    slots: Count = 6
    """K while training."""
    background_dim: int = 4
    code_dim: int = 64
    """Of the code of an object's appearance and shape."""
    glimpse_size: Glimpse = 32
    """Side of what is seen and painted inside a box."""
    hidden: int = 256
    """Width of LSTMs, of the layers before them and of the heads after them."""
    refinements: Count = 2
    """Passes over all objects after the first."""
    background_encoder: tuple[EncoderStage, ...] = ((8, 1), (8, 2), (16, 1), (16, 2))
    object_encoder: tuple[EncoderStage, ...] = ((16, 1), (16, 2), (32, 1), (32, 2))
    """Of whole pictures and of glimpses."""
    background_average: tuple[int, ...] = (32, 32)
    """Hidden widths of the constant colour of the background."""
    appearance_average: tuple[int, ...] = (64, 64)
    """... and of an object."""
    background_decoder: DecoderConfig = DecoderConfig(4, 8, ((2, 8), (2, 8), (2, 8)), 2)
    appearance_decoder: DecoderConfig = DecoderConfig(4, 8, ((2, 8), (2, 8)), 2)
    shape_decoder: DecoderConfig = DecoderConfig(8, 32, ((2, 32), (1, 16), (2, 16)), hidden=(256,))
    sigma_x: Positive = 0.3
    """Standard deviation of a pixel's colour."""
    alpha: Positive = 3.5
    """nu_k ~ Beta(alpha, 1): more means more objects."""
    scale_mean: float = -0.5
    """Prior of a box's log-odds of its side, as a share of the picture's."""
    scale_std: Positive = 0.5
    shift_std: Positive = 0.5
    """Prior of a box's place, before tanh; its mean is the middle of the picture."""
    temperature: Positive = 0.5
    """Of the presence samples in validation losses; answers have none."""

    later = frozenset({"temperature"})

    section = "model"

    def __post_init__(self) -> None:
        check_fields(self)
        sides = {
            "background_decoder": self.image_size,
            "appearance_decoder": self.glimpse_size,
            "shape_decoder": self.glimpse_size,
        }
        for name, side in sides.items():
            if (made := getattr(self, name).size) != side:
                raise UserError(f"{name} makes pictures of side {made}, not {side}")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "GmiooConfig":
        names = ("background_decoder", "appearance_decoder", "shape_decoder")
        nested = {name: from_values(DecoderConfig, values[name]) for name in names if name in values}
        return from_values(cls, values | nested)
