"""A photo in its own pixels, with what was found in it drawn on it."""

import numpy as np
from PIL import Image, ImageDraw

from viewslots.figures.decompositions import sorted_objects
from viewslots.figures.sheets import object_colors
from viewslots.viewpoints.outlines import outlines
from viewslots.viewpoints.photos import Photo
from viewslots.viewpoints.scene import InferredScene, View

TINT = 0.3
PER_LINE = 250
"""Pixels of the shorter side for each pixel of the width of a line."""
BEYOND = 0.45
"""Brightness of what the model did not see."""


def photo_overlay(scene: InferredScene, photo: Photo, view: View) -> Image.Image:
    """Objects tinted and outlined, in the colours of the sheets; what lies outside the window is dark."""
    order = [k for k in sorted_objects(scene) if k in view.shown]
    colors = object_colors(len(scene.objects))
    # The background, the objects in order; what the model did not see comes last.
    tints = np.vstack([np.zeros((1, 3)), colors[: len(order)], np.zeros((255 - len(order), 3))])
    share = np.array([0.0, *([TINT] * len(order)), *([0.0] * (254 - len(order))), 1 - BEYOND])
    segment = photo.segment(view.masks[[0, *(k + 1 for k in order)]])
    mixed = photo.pixels * (1 - share)[segment][..., None] + (share[:, None] * tints)[segment]
    image = Image.fromarray(mixed.round().clip(0, 255).astype(np.uint8))
    pen, cut, width = ImageDraw.Draw(image), photo.window, max(2, min(photo.size) // PER_LINE)
    for place, k in enumerate(order):
        for line in outlines(view.masks[k + 1], cut.crop_height, cut.crop_width):
            points = [(float(x) + cut.left, float(y) + cut.top) for x, y in line]
            pen.line(points, tuple(int(value) for value in colors[place]), width, joint="curve")
    return image


def photo_overlays(scene: InferredScene) -> list[Image.Image]:
    """One for each picture of which the own pixels are known."""
    views = scene.render_many(scene.views) if scene.photos else []
    return [photo_overlay(scene, photo, view) for photo, view in zip(scene.photos, views, strict=True)]
