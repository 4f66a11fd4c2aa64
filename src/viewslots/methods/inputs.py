"""One clear error for input that the model cannot take."""

import torch

from viewslots.errors import UserError
from viewslots.methods.config import MOST_COUNT
from viewslots.types import SceneBatch


def check_slots(slots: int) -> int:
    if slots < 1:
        raise UserError(f"the number of slots K must be at least 1, not {slots}")
    if slots > MOST_COUNT.number:
        raise UserError(f"the number of slots K must be at most {MOST_COUNT.number}, not {slots}")
    return slots


def check_views(views: int) -> int:
    if views < 1:
        raise UserError(f"a scene needs at least one view, not M = {views}")
    return views


def check_scenes(scenes: int) -> int:
    if scenes < 1:
        raise UserError(f"there must be at least one scene, not B = {scenes}")
    return scenes


def check_batch(batch: SceneBatch, image_size: tuple[int, int], dtype: torch.dtype) -> None:
    """One clear error for pictures that a model of `image_size` and `dtype` cannot take."""
    image, mask = batch.image, batch.view_mask
    if image.dim() != 5 or image.shape[2] != 3:
        raise UserError(f"pictures must have shape [B, M, 3, H, W], not {list(image.shape)}")
    if tuple(image.shape[-2:]) != image_size:
        height, width = image_size
        raise UserError(f"this model takes {height}x{width} pictures, not {image.shape[-2]}x{image.shape[-1]}")
    check_scenes(image.shape[0])
    if mask.dtype != torch.bool:
        raise UserError(f"view_mask must be boolean, not {mask.dtype}")
    if image.shape[1] == 0 or mask.shape != image.shape[:2] or not bool(mask.any(1).all()):
        raise UserError("every scene needs at least one view, and view_mask the shape [B, M] of the pictures")
    if image.dtype != dtype:
        raise UserError(f"this model takes pictures as floating-point numbers of type {dtype}, not {image.dtype}")
    if not bool(torch.isfinite(image).all()):
        raise UserError("pictures must be finite; these hold NaN or infinity")
    if float(image.min()) < 0 or float(image.max()) > 1:
        raise UserError(f"pictures must lie in [0, 1], not [{float(image.min()):g}, {float(image.max()):g}]")
