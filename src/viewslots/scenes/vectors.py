"""Vectors, and where cameras that look at the origin stand.

Vectors are three separate tensors, so every sum has a fixed order: the same ray gives the same bits in any batch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor


@dataclass(frozen=True)
class Vec:
    """A field of 3-vectors."""

    x: Tensor
    y: Tensor
    z: Tensor

    def __add__(self, other: "Vec") -> "Vec":
        return Vec(self.x + other.x, self.y + other.y, self.z + other.z)

    def __sub__(self, other: "Vec") -> "Vec":
        return Vec(self.x - other.x, self.y - other.y, self.z - other.z)

    def __mul__(self, other: "Vec") -> "Vec":
        return Vec(self.x * other.x, self.y * other.y, self.z * other.z)

    def scaled(self, scale: Tensor) -> "Vec":
        return Vec(self.x * scale, self.y * scale, self.z * scale)

    def __neg__(self) -> "Vec":
        return Vec(-self.x, -self.y, -self.z)

    def __getitem__(self, index: Any) -> "Vec":
        return Vec(self.x[index], self.y[index], self.z[index])

    @property
    def device(self) -> torch.device:
        return self.x.device

    def dot(self, other: "Vec") -> Tensor:
        return self.x * other.x + self.y * other.y + self.z * other.z

    def cross(self, other: "Vec") -> "Vec":
        return Vec(
            self.y * other.z - self.z * other.y,
            self.z * other.x - self.x * other.z,
            self.x * other.y - self.y * other.x,
        )

    def unit(self) -> "Vec":
        return self.scaled(1 / torch.sqrt(self.dot(self).clamp_min(1e-20)))

    def where(self, condition: Tensor, other: "Vec") -> "Vec":
        """This where the condition holds, else the other."""
        return Vec(
            torch.where(condition, self.x, other.x),
            torch.where(condition, self.y, other.y),
            torch.where(condition, self.z, other.z),
        )

    def map(self, function: Callable[[Tensor], Tensor]) -> "Vec":
        return Vec(function(self.x), function(self.y), function(self.z))

    def put(self, index: Any, values: "Vec") -> None:
        self.x[index], self.y[index], self.z[index] = values.x, values.y, values.z

    @staticmethod
    def of(rows: Any, device: torch.device | str) -> "Vec":
        """From nested lists with a last axis of 3."""
        return Vec(*torch.tensor(rows, dtype=torch.float32, device=device).unbind(-1))


def camera_poses(position: Float64[np.ndarray, "S M 3"]) -> Float64[np.ndarray, "S M 4 4"]:
    """Camera to world of cameras that look at the origin: `look_at_origin` in double precision.

    Plain arithmetic without trigonometry, so that every machine agrees on the bits.
    """
    x, y, z = np.moveaxis(position, -1, 0)
    flat, distance = np.sqrt(x * x + y * y), np.sqrt(x * x + y * y + z * z)
    above, divisor = flat == 0, np.where(flat == 0, 1, flat)
    along, across = np.where(above, 0, x / divisor), np.where(above, -1, y / divisor)
    zero, one = np.zeros_like(x), np.ones_like(x)
    right = (-across, along, zero, zero)
    up = (-along * z / distance, -across * z / distance, flat / distance, zero)
    back = (x / distance, y / distance, z / distance, zero)
    return np.stack([np.stack(column, -1) for column in (right, up, back, (x, y, z, one))], -1)
