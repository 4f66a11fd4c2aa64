"""Pictures for people: contact sheets of scenes with their truth, and of what a method makes of them."""

import colorsys

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from torch import Tensor

from viewslots.types import BACKGROUND, COVERED, Decomposition, Pictures

GAP, CAPTION, SCENE_GAP = 3, 14, 16
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
    for shape, color in zip(shapes, object_colors(len(shapes))[: len(shapes)], strict=True):
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


def truth_rows(pictures: Pictures, scene: int, view: int) -> dict[str, Rgb]:
    """A picture and its truth, by caption: no rows for what is not known, and none for shadows that nothing casts."""
    image = pictures.image[scene, view]
    rows = {"picture": image}
    if pictures.segment is None:
        return rows
    segment = pictures.segment[scene, view]
    rows["visible objects"] = segment_overlay(image, segment, BACKGROUND)
    if pictures.shapes is not None:
        rows["complete shapes"] = outline_overlay(image, pictures.shapes[scene, view])
    if pictures.shadows is not None and pictures.shadows.any():
        rows["shadow of each object"] = shadow_overlay(pictures.shadows[scene, view], segment)
    if pictures.depth_order is not None:
        rows["near (light) to far"] = depth_overlay(pictures.depth_order[scene, view], segment)
    return rows


def contact_sheet(pictures: Pictures, zoom: int) -> Image.Image:
    """Columns: the views of every scene, scene by scene; rows: the picture and its truth."""
    scenes, views, pixel_rows, pixel_columns, _ = pictures.image.shape
    height, width = pixel_rows * zoom, pixel_columns * zoom
    captions = list(truth_rows(pictures, 0, 0))
    across = scenes * (views * (width + GAP) + SCENE_GAP) - SCENE_GAP + GAP
    sheet = Image.new("RGB", (across, len(captions) * (height + GAP + CAPTION) + GAP), "white")
    draw = ImageDraw.Draw(sheet)
    for scene in range(scenes):
        left = GAP + scene * (views * (width + GAP) + SCENE_GAP)
        for row, caption in enumerate(captions):
            label = f"scene {scene + 1}: {caption}" if views > 1 else caption if scene == 0 else ""
            draw.text((left, GAP + row * (height + GAP + CAPTION)), label, fill="black")
        for view in range(views):
            for row, cell in enumerate(truth_rows(pictures, scene, view).values()):
                picture = Image.fromarray(cell).resize((width, height), Image.Resampling.NEAREST)
                place = (left + view * (width + GAP), GAP + row * (height + GAP + CAPTION) + CAPTION)
                sheet.paste(picture, place)
    return sheet


def layer_columns(observed: Float[Tensor, "3 H W"], answer: Decomposition, scene: int, view: int) -> dict[str, Tensor]:
    """A picture and what a method makes of it, by caption; layers show what is seen of them, on grey."""
    shown, masks = answer.reconstruction[scene, view], answer.layer_masks[scene, view]
    layers = [0.5 + (shown - 0.5) * mask for mask in masks]
    columns = {"observed": observed, "rebuilt": shown}
    first = int(answer.has_background)
    columns |= {f"object {k + 1}": layer for k, layer in enumerate(layers[first:])}
    return columns | ({"background": layers[0]} if answer.has_background else {})


def decomposition_sheet(image: Float[Tensor, "S M 3 H W"], answer: Decomposition, zoom: int = 1) -> Image.Image:
    """Rows: the views of the first S scenes of an answer; columns: the picture, its reconstruction, every layer."""
    scenes, views, _, pixel_rows, pixel_columns = image.shape
    height, width = pixel_rows * zoom, max(pixel_columns * zoom, 64)  # room for the captions
    captions = list(layer_columns(image[0, 0], answer, 0, 0))
    down = CAPTION + scenes * (views * (height + GAP) + SCENE_GAP) - SCENE_GAP + GAP
    sheet = Image.new("RGB", (len(captions) * (width + GAP) + GAP, down), "white")
    draw = ImageDraw.Draw(sheet)
    for column, caption in enumerate(captions):
        draw.text((GAP + column * (width + GAP), 0), caption, fill="black")
    for scene in range(scenes):
        top = CAPTION + GAP + scene * (views * (height + GAP) + SCENE_GAP)
        for view in range(views):
            cells = layer_columns(image[scene, view], answer, scene, view).values()
            for column, cell in enumerate(cells):
                pixels = (cell.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).cpu().numpy()
                picture = Image.fromarray(pixels).resize((pixel_columns * zoom, height), Image.Resampling.NEAREST)
                sheet.paste(picture, (GAP + column * (width + GAP), top + view * (height + GAP)))
    return sheet
