"""A scene on the table: what the model was shown, what it made of it, and the truth where there is one."""

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.data.dataset import SceneTruth
from viewslots.explorer.fresh import MOST_PICTURES, check_number, fresh_scene, picture_count
from viewslots.scenes.world import World
from viewslots.types import Pictures
from viewslots.viewpoints.edits import surest_first
from viewslots.viewpoints.likeness import unlikeness
from viewslots.viewpoints.scene import InferredScene, Reader, View


@dataclass(frozen=True, eq=False)
class Opened:
    """One inferred scene, never edited."""

    title: str
    scene: InferredScene
    rebuilt: tuple[View, ...]
    """What the model sees from the viewpoint of each picture."""
    names: tuple[str, ...] = ()
    """The true objects in words."""
    truth: SceneTruth | None = None
    warning: str | None = None
    known: dict[int, Any] = field(default_factory=dict, init=False, repr=False)
    """What `session` has found out about each picture, which never changes."""

    @property
    def images(self) -> Float[Tensor, "M 3 H W"]:
        assert self.scene.images is not None  # nothing is opened that was not seen
        return self.scene.images


def open_numbered(reader: Reader, world: World | None, number: int, pictures: int) -> Opened:
    """Render scene `number` and let the model read its pictures; without a world, one the model imagines."""
    if world is None:
        return open_imagined(reader, number, pictures)
    fresh = fresh_scene(world, number, pictures, reader.device.type)
    scene = surest_first(reader.decompose(list(fresh.pictures.image[0])))
    truth = scene_truth(fresh.pictures, reader.device)
    return Opened(f"Scene {number}", scene, rebuilt_views(scene), fresh.names, truth)


def open_imagined(reader: Reader, number: int, pictures: int) -> Opened:
    """A scene from the prior. Its pictures are read like any others, so nothing is known to be true of it."""
    check_number(number)
    dreamt = reader.prior(number, picture_count(pictures, MOST_PICTURES))
    images = torch.stack([view.image.clamp(0, 1) for view in rebuilt_views(dreamt)])
    scene = surest_first(reader.decompose(images))
    return Opened(f"Imagined scene {number}", scene, rebuilt_views(scene))


def open_photos(reader: Reader, images: Float[Tensor, "M 3 H W"]) -> Opened:
    """Let the model read a user's own pictures, already checked and cut to its size."""
    scene = surest_first(reader.decompose(images))
    return Opened("Your pictures", scene, rebuilt_views(scene), warning=unlikeness(scene))


def rebuilt_views(scene: InferredScene) -> tuple[View, ...]:
    return tuple(scene.render_many(scene.views))


def scene_truth(pictures: Pictures, device: torch.device) -> SceneTruth:
    names = ("segment", "overlap", "shapes", "shadows", "depth_order", "camera", "num_objects")
    arrays = {name: torch.from_numpy(getattr(pictures, name)).to(device) for name in names}
    mask = torch.ones(pictures.image.shape[:2], dtype=torch.bool, device=device)
    return SceneTruth(**arrays, view_mask=mask)
