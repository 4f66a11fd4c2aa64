"""The vocabulary: the typed values that the stages exchange, with their shapes."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
from jaxtyping import Bool, Float, Float32, UInt8
from torch import Tensor

Progress = Callable[[int, int], None]
"""Called with how much is done and how much there is in all."""

BACKGROUND = 255
"""Value of `segment` where no object is seen."""

COVERED = 128
"""A complete shape covers a pixel where its alpha is at least this."""


@dataclass(frozen=True)
class Pictures:
    """The whole truth of S scenes with M views and room for K objects: what worlds answer and data sets store."""

    image: UInt8[np.ndarray, "S M H W 3"]
    """sRGB."""
    segment: UInt8[np.ndarray, "S M H W"]
    """Index of the visible object, 255 = background."""
    overlap: UInt8[np.ndarray, "S M H W"]
    """Number of complete shapes with alpha >= 128."""
    shapes: UInt8[np.ndarray, "S M K H W"]
    """Complete (amodal) alpha of each object; 0 for unused slots."""
    shadows: UInt8[np.ndarray, "S M K H W"]
    """Share of direct light that object k alone takes from the ground point behind the pixel, x 255."""
    depth_order: Float32[np.ndarray, "S M K"]
    """Larger is nearer; -inf for unused slots."""
    camera: Float32[np.ndarray, "S M 3"]
    """Camera position in metres, looking at the origin; zeros where there is no camera."""
    num_objects: UInt8[np.ndarray, "S"]

    @classmethod
    def keys(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cls))

    def first_views(self, count: int) -> "Pictures":
        """The same scenes with fewer views."""
        cut = {key: getattr(self, key)[:, :count] for key in self.keys() if key != "num_objects"}
        return replace(self, **cut)

    def padded(self, slots: int) -> "Pictures":
        """The same with room for `slots` objects."""
        extra = slots - self.shapes.shape[2]

        def grown(values: np.ndarray, fill: float) -> np.ndarray:
            return np.pad(values, [(0, 0), (0, 0), (0, extra)] + [(0, 0)] * (values.ndim - 3), constant_values=fill)

        return replace(
            self,
            shapes=grown(self.shapes, 0),
            shadows=grown(self.shadows, 0),
            depth_order=grown(self.depth_order, -np.inf),
        )

    @classmethod
    def concatenate(cls, parts: "list[Pictures]") -> "Pictures":
        """Join along the scene axis."""
        return cls(**{key: np.concatenate([getattr(part, key) for part in parts]) for key in cls.keys()})  # noqa: SIM118


@dataclass(frozen=True)
class SceneBatch:
    """What a model sees: pictures of B scenes, padded to M views."""

    image: Float[Tensor, "B M 3 H W"]
    """sRGB in [0, 1]; zeros in padded views."""
    view_mask: Bool[Tensor, "B M"]
    """True for real views; scenes with fewer views share a batch."""
    camera: Float[Tensor, "B M 5"] | None = None
    """Only for methods that ask for it: cosine and sine of azimuth and of elevation, distance."""


@dataclass(frozen=True)
class Decomposition:
    """The contract every method answers with. Padded views carry no meaning."""

    reconstruction: Float[Tensor, "B M 3 H W"]
    layer_masks: Float[Tensor, "B M L H W"]
    """Perceived shapes; they sum to one."""
    has_background: bool
    """Then layer 0 is the background and K = L - 1."""
    complete_shapes: Float[Tensor, "B M K H W"] | None
    """Shape probabilities, not multiplied by presence."""
    presence: Float[Tensor, "B K"] | None
    """What is counted (present if >= 0.5): in the paper a sample; the maximum over views in the per-view baseline."""
    presence_probability: Float[Tensor, "B K"] | None
    depth_order: Float[Tensor, "B M K"] | None
    """Larger is nearer."""
