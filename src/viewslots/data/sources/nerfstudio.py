"""Cameras of one scene in transforms.json, as nerfstudio, instant-ngp and the NeRF data sets write it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from viewslots.data.picture_files import one_line
from viewslots.data.sources.source import Tree
from viewslots.errors import UserError
from viewslots.files import read_json, shown

NAME = "transforms.json"
PERSPECTIVE = ("OPENCV", "FULL_OPENCV", "PINHOLE", "SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL", "PERSPECTIVE")
DISTORTION = ("k1", "k2", "k3", "k4", "p1", "p2")
ENDINGS = ("", ".png", ".jpg", ".jpeg")
"""Some programs leave the ending out."""
SHAPE_TOLERANCE = 0.01
"""Pictures may be smaller than w and h say, but must have their shape."""


@dataclass(frozen=True)
class Frame:
    """One picture and its camera."""

    picture: Path
    pose: Float64[np.ndarray, "4 4"] | None
    lens: Mapping[str, float]
    where: str

    def intrinsics(self, height: int, width: int) -> Float64[np.ndarray, "4"]:
        """fx, fy, cx, cy of the picture in the size that it has."""
        w, h = self.lens.get("w", width), self.lens.get("h", height)
        if not (w > 0 and h > 0 and abs(w * height / (h * width) - 1) <= SHAPE_TOLERANCE):
            raise UserError(f"{one_line(self.picture)}: {height}x{width} pixels, but {self.where} says {h:g}x{w:g}")
        fx = self._focal("x", w)
        fy = self._focal("y", h) if "fl_y" in self.lens or "camera_angle_y" in self.lens else fx
        cx, cy = self.lens.get("cx", w / 2), self.lens.get("cy", h / 2)
        return np.array([fx * width / w, fy * height / h, cx * width / w, cy * height / h])

    def _focal(self, axis: str, side: float) -> float:
        if f"fl_{axis}" in self.lens:
            return self.lens[f"fl_{axis}"]
        angle = self.lens[f"camera_angle_{axis}"]
        if not 0 < angle < math.pi:
            raise UserError(f"{self.where}: camera_angle_{axis} must be between 0 and pi, but is {angle:g}")
        return 0.5 * side / math.tan(0.5 * angle)

    @property
    def has_intrinsics(self) -> bool:
        return "fl_x" in self.lens or "camera_angle_x" in self.lens

    @property
    def distorted(self) -> bool:
        return any(self.lens.get(name) for name in DISTORTION)


def read_transforms(tree: Tree, path: Path) -> list[Frame]:
    """The frames, sorted by the names of their pictures."""
    raw = read_json(path)
    where, frames = one_line(path), raw.get("frames")
    if not isinstance(frames, list) or not frames or not all(isinstance(frame, dict) for frame in frames):
        raise UserError(f"{where}: frames must be a list of objects")
    model = raw.get("camera_model", "OPENCV")
    if model not in PERSPECTIVE:
        raise UserError(f"{where}: cameras of the model {shown(model)} are not read; leave them out with --no-cameras")
    found = sorted((_frame(tree, path, raw, frame) for frame in frames), key=lambda frame: str(frame.picture))
    names = [frame.picture for frame in found]
    if len(set(names)) < len(names):
        raise UserError(f"{where}: names the same picture twice")
    return found


def _frame(tree: Tree, path: Path, raw: Mapping[str, Any], frame: Mapping[str, Any]) -> Frame:
    where, name = one_line(path), frame.get("file_path")
    if not isinstance(name, str) or not name or "\0" in name:
        raise UserError(f"{where}: a frame without file_path")
    tried = [path.parent / (name + ending) for ending in ENDINGS]
    picture = next((file for file in tried if tree.require_inside(file).is_file()), None)
    if picture is None:
        raise UserError(f"{where}: names {shown(name)}, which is not there")
    lens = {}
    for key in ("fl_x", "fl_y", "cx", "cy", "w", "h", "camera_angle_x", "camera_angle_y", *DISTORTION):
        value = frame.get(key, raw.get(key))
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise UserError(f"{where}: {key} must be a number, but is {shown(value)}")
            lens[key] = float(value)
    return Frame(picture, _pose(frame.get("transform_matrix"), where), lens, where)


def _pose(value: Any, where: str) -> Float64[np.ndarray, "4 4"] | None:
    if value is None:
        return None
    try:
        matrix = np.array(value, np.float64)
    except (ValueError, TypeError, OverflowError):
        matrix = np.empty(0)
    if matrix.shape == (3, 4):
        matrix = np.concatenate([matrix, [[0, 0, 0, 1]]])
    if matrix.shape != (4, 4):
        raise UserError(f"{where}: transform_matrix must have 4x4 numbers")
    return matrix
