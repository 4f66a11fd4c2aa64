"""One clear error for input that the model cannot take."""

import torch

from viewslots.errors import UserError
from viewslots.types import SceneBatch


def check_slots(slots: int) -> int:
    if slots < 1:
        raise UserError(f"the number of slots K must be at least 1, not {slots}")
    return slots


def check_views(views: int) -> int:
    if views < 1:
        raise UserError(f"a scene needs at least one view, but the batch has M = {views}")
    return views


def check_batch(batch: SceneBatch, image_size: int) -> None:
    """One clear error for pictures that the model cannot take."""
    image, mask = batch.image, batch.view_mask
    if image.dim() != 5 or image.shape[2] != 3:
        raise UserError(f"pictures must have shape [B, M, 3, H, W], not {list(image.shape)}")
    if image.shape[-2:] != (image_size, image_size):
        raise UserError(f"this model takes {image_size}x{image_size} pictures, not {image.shape[-2]}x{image.shape[-1]}")
    if image.shape[1] == 0 or mask.shape != image.shape[:2] or not bool(mask.any(1).all()):
        raise UserError("every scene needs at least one view, and view_mask the shape [B, M] of the pictures")
    if not image.is_floating_point() or not bool(torch.isfinite(image).all()):
        raise UserError("pictures must be finite floating-point numbers; these hold NaN, infinity or integers")
    if float(image.min()) < 0 or float(image.max()) > 1:
        raise UserError(f"pictures must lie in [0, 1], not [{float(image.min()):g}, {float(image.max()):g}]")
