"""For tests of kernels against the plain code that they stand in for."""

from dataclasses import fields, is_dataclass
from typing import Any

import torch


def moved(value: Any, device: str) -> Any:
    """Dataclasses of tensors to another device."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(*(moved(getattr(value, field.name), device) for field in fields(value)))
    return value
