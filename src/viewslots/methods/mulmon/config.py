"""Sizes and constants of MulMON as one frozen value, and its JSON. The defaults are those of the published runs."""

from dataclasses import asdict, dataclass
from typing import Any

from viewslots.errors import UserError
from viewslots.methods.config import Amount, Count, Positive, Side, check_fields, from_values


@dataclass(frozen=True)
class MulmonConfig:
    """Everything that fixes the networks and the pass."""

    image_size: Side = 64
    slots: Count = 7
    """K, the objects of a scene. The method has K + 1 slots: any of them may take the background."""
    latent_dim: int = 16
    """D: of a slot, and of what a slot is from one viewpoint."""
    view_hidden: int = 128
    """Width of the layer between a camera and its code."""
    projector_hidden: int = 512
    decoder_channels: tuple[int, ...] = (32, 32, 32, 32)
    """Of 3x3 convolutions without padding; before them the code lies on a map that is larger by two pixels for each."""
    refinement_channels: tuple[int, ...] = (32, 32, 64, 64)
    """Of 3x3 convolutions of stride 2 without padding."""
    refinement_hidden: int = 256
    refinement_features: int = 128
    state_dim: int = 128
    """Of the LSTM."""
    iterations: Count = 5
    """Samples of the posterior a view; between two of them it is refined."""
    sigma_x: Positive = 0.1
    """Standard deviation of a colour."""
    camera_noise: Amount = 0.015
    """Standard deviation of what is added to every number of a camera, in training and after it."""
    kl_weight: Amount = 1.0
    """Of the KL between the posteriors after and before a view, in what is minimised."""
    start_gain: Positive = 1.0
    """Factor on the first weights. With 1, PyTorch's own start, a layer with a ReLU leaves 0.4 of a signal; with 2.4 it
    leaves all."""
    start_log_variance: float = 0.0
    """Added to the first logarithms of variances, which are drawn from a normal distribution around -0.5."""
    most_observed: int = 3
    """In training between one and this many views of a scene are observed; the others are predicted."""

    section = "model"

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.decoder_channels or not self.refinement_channels:
            raise UserError("decoder_channels and refinement_channels need one convolution at least")
        if self.refined_size < 1:
            raise UserError(
                f"pictures of side {self.image_size} are too small for {len(self.refinement_channels)} convolutions "
                "of stride 2"
            )

    @property
    def refined_size(self) -> int:
        """Side of the last map of the refinement network."""
        size = self.image_size
        for _ in self.refinement_channels:
            size = (size - 1) // 2
        return size

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "MulmonConfig":
        return from_values(cls, values)
