"""Sizes of Slot Attention as one frozen value, and its JSON. The defaults are the networks for 128x128 pictures."""

from dataclasses import asdict, dataclass
from typing import Any

from viewslots.errors import UserError
from viewslots.methods.config import Count, Side, check_fields, from_values

Stage = tuple[int, int, int]
"""One transposed convolution of the decoder: (stride, kernel size, channels)."""


@dataclass(frozen=True)
class SlotAttentionConfig:
    """Everything that fixes the networks."""

    image_size: Side = 128
    slots: Count = 7
    """K, the objects of a scene. The method has K + 1 slots: any of them may take the background."""
    encoder_channels: int = 64
    encoder_layers: Count = 4
    encoder_kernel: int = 5
    encoder_stride: int = 1
    """Stride of the first convolution; the paper keeps full resolution."""
    slot_dim: int = 64
    """D: of slots, queries, keys and values."""
    iterations: Count = 3
    """T."""
    mlp_hidden: int = 128
    """Width of the residual perceptron that follows the GRU."""
    decoder_grid: Side = 8
    """Side of the map on which every slot is broadcast."""
    decoder_stages: tuple[Stage, ...] = (*[(2, 5, 64)] * 4, (1, 5, 64))
    """Before the last transposed convolution, a 3x3 one to colours and mask."""

    section = "model"

    def __post_init__(self) -> None:
        check_fields(self)
        if self.decoded_size != self.image_size:
            raise UserError(f"the decoder makes pictures of side {self.decoded_size}, not {self.image_size}")
        for stride, kernel, _ in ((1, self.encoder_kernel, 0), *self.decoder_stages):
            if stride == 1 and kernel % 2 == 0:
                raise UserError(f"a kernel of {kernel} cannot keep the size of a map: without stride it must be odd")
            if kernel < stride:
                raise UserError(f"a kernel of {kernel} with stride {stride} leaves pixels that nothing reaches")

    @property
    def decoded_size(self) -> int:
        size = self.decoder_grid
        for stride, _, _ in self.decoder_stages:
            size *= stride
        return size

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "SlotAttentionConfig":
        return from_values(cls, values)
