"""Pictures for people: contact sheets of scenes with their truth."""

import colorsys

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from viewslots.types import BACKGROUND, COVERED, Pictures

GAP, CAPTION = 3, 14
Rgb = NDArray[np.uint8]


def object_colors(count: int) -> NDArray[np.float64]:
    """[count, 3] well separated colours: hues a golden angle apart."""
    return np.array([colorsys.hsv_to_rgb(k * 0.618034 % 1, 0.75, 1) for k in range(max(count, 1))]) * 255


def grey(image: Rgb) -> NDArray[np.float64]:
    """The picture without its colours, as ground for an overlay."""
    return np.repeat(image @ np.array([0.2126, 0.7152, 0.0722]), 3).reshape(image.shape)


def segment_overlay(image: Rgb, segment: Rgb, slots: int) -> Rgb:
    """Each visible object tinted in its colour."""
    colors = np.vstack([object_colors(slots), np.zeros((1, 3))])
    index = np.where(segment == BACKGROUND, slots, segment)
    share = np.where(segment == BACKGROUND, 0.0, 0.65)[..., None]
    return ((1 - share) * grey(image) + share * colors[index]).astype(np.uint8)


def outline_overlay(image: Rgb, shapes: Rgb) -> Rgb:
    """Outlines of the complete shapes, hidden parts included."""
    result = 0.6 * grey(image)
    for shape, color in zip(shapes, object_colors(len(shapes)), strict=True):
        inside = np.pad(shape >= COVERED, 1)
        core = inside[:-2, 1:-1] & inside[2:, 1:-1] & inside[1:-1, :-2] & inside[1:-1, 2:]
        result[inside[1:-1, 1:-1] & ~core] = color
    return result.astype(np.uint8)


def shadow_overlay(shadows: Rgb, segment: Rgb) -> Rgb:
    """Each object's shadow on the ground in its colour, visible objects left dark."""
    share = shadows.astype(np.float64)[..., None] / 255
    tint = (share * object_colors(len(shadows))[:, None, None]).sum(0) / np.maximum(share.sum(0), 1e-6)
    strength = np.minimum(2 * share.max(0), 1) * (segment == BACKGROUND)[..., None]
    return (strength * tint).astype(np.uint8)


def depth_overlay(order: NDArray[np.float32], segment: Rgb) -> Rgb:
    """Visible objects from near (light) to far (dark)."""
    used = np.isfinite(order)
    level = np.zeros(len(order) + 1)
    level[:-1][used] = 70 + 185 * order[used].argsort().argsort() / max(used.sum() - 1, 1)
    index = np.where(segment == BACKGROUND, len(order), segment)
    return np.repeat(level[index].astype(np.uint8)[..., None], 3, -1)


def contact_sheet(pictures: Pictures, scenes: int, views: int, zoom: int) -> Image.Image:
    """Rows: picture, visible objects, complete shapes, shadows, order of depth; columns: views, scene by scene."""
    columns = [(scene, view) for scene in range(scenes) for view in range(views)]

    def cells(scene: int, view: int) -> list[Rgb]:
        image, segment = pictures.image[scene, view], pictures.segment[scene, view]
        shapes, shadows = pictures.shapes[scene, view], pictures.shadows[scene, view]
        rows = [image, segment_overlay(image, segment, len(shapes)), outline_overlay(image, shapes)]
        if pictures.shadows.any():
            rows.append(shadow_overlay(shadows, segment))
        return [*rows, depth_overlay(pictures.depth_order[scene, view], segment)]

    captions = ["picture", "visible objects", "complete shapes", "shadow of each object", "near (light) to far"]
    if not pictures.shadows.any():
        captions.remove("shadow of each object")
    grid = [cells(scene, view) for scene, view in columns]
    height, width = (size * zoom for size in pictures.image.shape[2:4])
    sheet = Image.new(
        "RGB", (len(columns) * (width + GAP) + GAP, len(captions) * (height + GAP + CAPTION) + GAP), "white"
    )
    draw = ImageDraw.Draw(sheet)
    for row, caption in enumerate(captions):
        top = GAP + row * (height + GAP + CAPTION)
        draw.text((GAP, top), caption, fill="black")
        for column, cell in enumerate(grid):
            picture = Image.fromarray(cell[row]).resize((width, height), Image.Resampling.NEAREST)
            sheet.paste(picture, (GAP + column * (width + GAP), top + CAPTION))
    return sheet
