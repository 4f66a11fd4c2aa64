"""Scenes that an untrained model finds in noise."""

from dataclasses import replace

import torch

from viewslots.explorer.opened import Opened, open_photos
from viewslots.viewpoints.scene import Reader


def opened_by(reader: Reader, seed: int, pictures: int = 3) -> Opened:
    """Noise as pictures; the first two objects are there, the others are not."""
    images = torch.rand(pictures, 3, *reader.size, generator=torch.Generator().manual_seed(seed))
    opened = open_photos(reader, images)
    presence = (torch.arange(reader.slots) < 2).float()
    scene = replace(opened.scene, presence=presence)
    return replace(opened, title=f"Noise {seed}", scene=scene, rebuilt=tuple(scene.render_many(scene.views)))
