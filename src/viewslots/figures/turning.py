"""The camera turns through a scene: frames of a film."""

from collections.abc import Sequence

import numpy as np

from viewslots.figures.decompositions import pixels_of, sorted_objects, tinted
from viewslots.figures.film import Frames
from viewslots.figures.layout import Pixels, whole_zoom
from viewslots.figures.strips import tour
from viewslots.viewpoints.paths import loop
from viewslots.viewpoints.scene import InferredScene

GAP = 4
FRAMES = 72
SIDE = 192
"""Largest side of one picture in the film."""


def turning_frames(scenes: Sequence[InferredScene], count: int = FRAMES) -> Frames:
    """Columns: scenes. Above: the scene as the camera passes all its viewpoints and comes back, without a seam. Below:
    the same with every object in a colour of its own, which it keeps.
    """
    columns = [scene_frames(scene, count) for scene in scenes]
    white = np.full((count, columns[0].shape[1], GAP, 3), 255, np.uint8)
    parts = [part for column in columns for part in (white, column)][1:]
    return np.concatenate(parts, axis=2)


def scene_frames(scene: InferredScene, count: int) -> Frames:
    path = loop(scene.views[tour(scene.views)], count)
    order = sorted_objects(scene)
    zoom = whole_zoom(scene.render().image.shape[1:], SIDE)
    frames = []
    for view in scene.render_many(path):
        above, below = grown(pixels_of(view.image), zoom), grown(tinted(view.image, view, order), zoom)
        frames.append(np.concatenate([above, np.full((GAP, above.shape[1], 3), 255, np.uint8), below]))
    return np.stack(frames)


def grown(pixels: Pixels, zoom: int) -> Pixels:
    return pixels.repeat(zoom, 0).repeat(zoom, 1)
