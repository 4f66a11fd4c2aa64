"""Many scenes at once: batches in, masks, codes and counts out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from viewslots.errors import UserError
from viewslots.methods.contract import Answer, SceneAnswer
from viewslots.types import PRESENT, Decomposition, SceneBatch, shapes_only
from viewslots.viewpoints.photos import Pictured, read_pictures

Scenes = SceneBatch | Mapping[str, Any] | Tensor | np.ndarray | Sequence[Pictured]
"""A SceneBatch; what a DataLoader makes of `viewslots.Scenes`; pictures [B,M,3,H,W] in [0, 1] or bytes [B,M,H,W,3]; or
a list of scenes, each as `decompose` takes it."""


@dataclass(frozen=True, eq=False, repr=False)
class Answers:
    """What a model makes of B scenes. None stands for what its method does not know."""

    masks: Float[Tensor, "B M L H W"]
    """Perceived shapes; they sum to one. With `has_background`, layer 0 is the background."""
    has_background: bool
    reconstruction: Float[Tensor, "B M 3 H W"]
    counts: Int[Tensor, "B"]
    """Objects that are present; of a method without presence, layers that are seen most somewhere, the background, or
    one that stands for it, not counted."""
    view_mask: Bool[Tensor, "B M"]
    """False for padded views, which carry no meaning."""
    presence: Float[Tensor, "B K"] | None = None
    """An object is counted from one half on: a probability, or in plain answers a sample, as the paper has it."""
    complete: Float[Tensor, "B M K H W"] | None = None
    """Complete shapes, hidden parts included."""
    order: Float[Tensor, "B M K"] | None = None
    """Larger is nearer."""
    objects: Float[Tensor, "B K Dattr"] | None = None
    """Codes of the objects."""
    background: Float[Tensor, "B Dbck"] | None = None
    views: Float[Tensor, "B M Dview"] | None = None
    """Codes of the viewpoints."""

    __repr__ = shapes_only

    def __len__(self) -> int:
        return len(self.masks)

    def segment(self) -> Int[Tensor, "B M H W"]:
        """The layer that is seen most at each pixel."""
        return self.masks.argmax(2)

    def to(self, device: torch.device | str) -> "Answers":
        moved: dict[str, Any] = {
            name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)
        }
        return replace(self, **moved)

    @classmethod
    def of(cls, answer: Answer, batch: SceneBatch) -> "Answers":
        found = answer.decomposition()
        codes: dict[str, Any] = {}
        if isinstance(answer, SceneAnswer):
            each = [answer.scene_codes(scene) for scene in range(len(batch))]
            codes = {
                name: torch.stack([getattr(one, name) for one in each])
                for name in ("objects", "background", "views", "presence")
            }
        return cls(
            masks=found.layer_masks,
            has_background=found.has_background,
            reconstruction=found.reconstruction,
            counts=counted(found, batch.view_mask),
            view_mask=batch.view_mask,
            complete=found.complete_shapes,
            order=found.depth_order,
            **({"presence": found.presence} | codes),
        )


def counted(found: Decomposition, view_mask: Bool[Tensor, "B M"]) -> Int[Tensor, "B"]:
    if found.presence is not None:
        return (found.presence >= PRESENT).sum(1)
    winner = found.layer_masks.argmax(2)
    seen = [((winner == layer) & view_mask[..., None, None]).flatten(1).any(1) for layer in layers_of(found)]
    counts = torch.stack(seen, 1).sum(1)
    return counts if found.has_background else (counts - 1).clamp(min=0)


def layers_of(found: Decomposition) -> range:
    """The layers of objects; all where none is known to be the background."""
    return range(int(found.has_background), found.layer_masks.shape[2])


def scene_batch(scenes: Scenes, size: tuple[int, int]) -> SceneBatch:
    """Whatever holds scenes, as a model sees them; pictures of a list are cut and resized, those of arrays are not."""
    if isinstance(scenes, SceneBatch):
        batch = scenes
    elif isinstance(scenes, Mapping):
        if "image" not in scenes:
            raise UserError(f"scenes as a mapping need 'image'; these have {', '.join(map(str, scenes))}")
        whole = array_batch(scenes["image"])
        mask, camera = torch.as_tensor(scenes.get("view_mask", whole.view_mask)), scenes.get("camera")
        camera = None if camera is None else torch.as_tensor(camera)
        if camera is not None and camera.shape[-1:] == (3,):  # positions, which are truth and not told
            camera = None
        batch = SceneBatch(whole.image, mask, camera)
    elif isinstance(scenes, Tensor | np.ndarray):
        batch = array_batch(scenes)
    else:
        batch = padded([read_pictures(pictures, size) for pictures in scenes])
    if tuple(batch.image.shape[-2:]) != size:
        raise UserError(
            f"pictures are {'x'.join(map(str, batch.image.shape[-2:]))}, but this model sees {size[0]}x{size[1]}; "
            "give `size=model.size` to viewslots.Scenes, or a list of scenes, which are resized"
        )
    return batch


def array_batch(pictures: Tensor | np.ndarray) -> SceneBatch:
    """[B,M,3,H,W] as floats in [0, 1], or [B,M,H,W,3] as bytes."""
    image = torch.as_tensor(pictures)
    if image.dim() == 5 and image.dtype == torch.uint8 and image.shape[-1] == 3:
        image = image.permute(0, 1, 4, 2, 3).contiguous().float().div_(255)
    if image.dim() != 5 or image.shape[2] != 3 or not image.is_floating_point():
        raise UserError(
            f"scenes are floats [B,M,3,H,W] or bytes [B,M,H,W,3], not {str(image.dtype).removeprefix('torch.')}"
            f"{list(image.shape)}"
        )
    return SceneBatch(image.float(), torch.ones(image.shape[:2], dtype=torch.bool, device=image.device))


def padded(scenes: Sequence[Float[Tensor, "_ 3 H W"]]) -> SceneBatch:
    """Scenes with fewer views than others get black ones that do not count."""
    if not scenes:
        raise UserError("no scenes are given; give at least one")
    most = max(map(len, scenes))
    image = torch.stack([torch.cat([one, one.new_zeros(most - len(one), *one.shape[1:])]) for one in scenes])
    counts = torch.tensor([len(one) for one in scenes])
    return SceneBatch(image, torch.arange(most) < counts[:, None])


def parts_of(batch: SceneBatch, scenes: int) -> Iterator[SceneBatch]:
    """So many scenes at once."""
    for first in range(0, len(batch), scenes):
        chosen = slice(first, first + scenes)
        yield SceneBatch(
            batch.image[chosen], batch.view_mask[chosen], None if batch.camera is None else batch.camera[chosen]
        )
