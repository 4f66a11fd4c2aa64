"""Scenes of equal-coloured shapes at 32x32, drawn by numpy, for the learning test.

Two shapes stand on a plane, both of the same colour. A view moves sideways by up to five pixels either way, so that
two pictures of a shape may lie as far apart as two shapes; the nearer shape (lower in the picture) hides the other.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SIZE = 32
BACKGROUND = 255
COLOUR, GROUND = np.array([1.0, 0.8, 0.2]), 0.1


@dataclass(frozen=True)
class ShapeScenes:
    image: NDArray[np.float32]
    """[S, M, 3, H, W] in [0, 1]."""
    segment: NDArray[np.uint8]
    """[S, M, H, W], 255 = background."""


def place(rng: np.random.Generator) -> NDArray[np.float64]:
    """Centres of two shapes on the plane, at least 8 pixels apart, by rejection."""
    while True:
        centres = rng.uniform(-8, 8, (2, 2))
        if np.linalg.norm(centres[0] - centres[1]) > 8:
            return centres


def covers(kind: int, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether (x, y) lies in a disc, a square or a cross."""
    if kind == 0:
        return x**2 + y**2 < 4.5**2
    if kind == 1:
        return np.maximum(abs(x), abs(y)) < 3.8
    return (np.minimum(abs(x), abs(y)) < 1.8) & (np.maximum(abs(x), abs(y)) < 5)


def draw_scene(rng: np.random.Generator, views: int) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    centres, kinds = place(rng), rng.integers(0, 3, 2)
    rows, columns = np.mgrid[0:SIZE, 0:SIZE] - (SIZE - 1) / 2
    segment = np.full((views, SIZE, SIZE), BACKGROUND, np.uint8)
    for view in range(views):
        moved = centres + np.array([rng.uniform(-5, 5), 0.0])
        for index in np.argsort(moved[:, 1]):
            segment[view][covers(kinds[index], columns - moved[index, 0], rows - moved[index, 1])] = index
    image = np.where((segment != BACKGROUND)[:, None], COLOUR[:, None, None], GROUND)
    return image.astype(np.float32), segment


def shape_scenes(seed: int, scenes: int, views: int) -> ShapeScenes:
    rng = np.random.default_rng(seed)
    drawn = [draw_scene(rng, views) for _ in range(scenes)]
    return ShapeScenes(np.stack([image for image, _ in drawn]), np.stack([segment for _, segment in drawn]))
