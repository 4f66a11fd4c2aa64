"""The place of the camera as a few numbers that sliders can hold: standard deviations along the principal axes."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.viewpoints.paths import axes_of
from viewslots.viewpoints.scene import InferredScene

REACH = 3.0
"""How far a slider goes either way. Beyond, the model was never asked."""
LEAST_SPREAD = 0.15
"""Of an axis along which the pictures hardly differ: a full slider must still move the camera."""


@dataclass(frozen=True, eq=False)
class Compass:
    """Viewpoint <-> coordinates, around the middle of a scene's own viewpoints."""

    centre: Float[Tensor, "D"]
    axes: Float[Tensor, "D D"]
    scale: Float[Tensor, "D"]

    def coordinates(self, view: Float[Tensor, "D"]) -> list[float]:
        return ((self.axes @ (view - self.centre)) / self.scale).tolist()

    def moved(self, view: Float[Tensor, "D"], axis: int, value: float) -> Float[Tensor, "D"]:
        """The viewpoint with one coordinate set and the others as they were."""
        step = min(max(value, -REACH), REACH) - self.coordinates(view)[axis]
        return view + step * self.scale[axis] * self.axes[axis]


def compass_of(scene: InferredScene) -> Compass:
    found = axes_of(scene)
    return Compass(found.mean, found.axes, found.spreads.clamp(min=LEAST_SPREAD))


def between(a: Float[Tensor, "D"], b: Float[Tensor, "D"], share: float) -> Float[Tensor, "D"]:
    """On the straight way from one viewpoint (0) to another (1)."""
    return torch.lerp(a, b, min(max(share, 0.0), 1.0))
