"""A scene as the metrics want it."""

from collections.abc import Sequence

import torch
from torch import Tensor

from viewslots.types import Decomposition
from viewslots.viewpoints.scene import InferredScene, View


def decomposition(scene: InferredScene, views: Sequence[View]) -> Decomposition:
    """What is shown of one scene: `views` are what it shows from the viewpoints of its pictures."""

    def stacked(name: str) -> Tensor:
        return torch.stack([getattr(view, name) for view in views])[None]

    return Decomposition(
        reconstruction=stacked("image"),
        layer_masks=stacked("masks"),
        has_background=True,
        complete_shapes=stacked("complete"),
        presence=scene.presence[None],
        presence_probability=scene.presence[None],
        depth_order=stacked("order"),
    )
