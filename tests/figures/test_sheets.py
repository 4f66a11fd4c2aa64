"""Contact sheets: every overlay on pictures small enough to work out by hand."""

import colorsys
from dataclasses import replace

import numpy as np
import pytest

from viewslots.figures import sheets as figures
from viewslots.figures.sheets import (
    CAPTION,
    GAP,
    SCENE_GAP,
    contact_sheet,
    depth_overlay,
    outline_overlay,
    segment_overlay,
    shadow_overlay,
    truth_rows,
)
from viewslots.types import Pictures

NONE = 255
"""Background in a segment."""


def color(k: int) -> np.ndarray:
    """The colour of object k, 0..255."""
    return np.array(colorsys.hsv_to_rgb(k * 0.618034 % 1, 0.75, 1)) * 255


def test_colours_differ_and_begin_with_red() -> None:
    colors = figures.object_colors(10)
    np.testing.assert_allclose(colors[0], [255, 63.75, 63.75])
    apart = np.linalg.norm(colors[:, None] - colors[None], axis=-1)[~np.eye(10, dtype=bool)]
    assert apart.min() > 30
    np.testing.assert_allclose(colors, [color(k) for k in range(10)])


def test_grey_weighs_colours_by_luminance() -> None:
    image = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255], [100, 100, 100]]], np.uint8)
    np.testing.assert_allclose(figures.grey(image)[0, :, 0], [54.213, 182.376, 18.411, 100])
    np.testing.assert_allclose(np.ptp(figures.grey(image), axis=-1), 0)


def test_segment_overlay_tints_objects_and_leaves_the_ground_grey() -> None:
    image = np.full((2, 2, 3), 100, np.uint8)
    segment = np.array([[NONE, 0], [1, NONE]], np.uint8)
    found = segment_overlay(image, segment, slots=2)
    np.testing.assert_array_equal(found[0, 0], [100, 100, 100])
    np.testing.assert_array_equal(found[1, 1], [100, 100, 100])
    np.testing.assert_array_equal(found[0, 1], np.floor(35 + 0.65 * color(0) + 1e-9))
    np.testing.assert_array_equal(found[1, 0], np.floor(35 + 0.65 * color(1) + 1e-9))


def test_outlines_are_the_border_pixels_of_complete_shapes() -> None:
    shapes = np.zeros((2, 5, 6), np.uint8)
    shapes[0, 1:4, 1:4] = 200  # its middle is (2, 2)
    shapes[0, 0, 1] = 127  # not covered
    shapes[1, 2:5, 3:6] = 128  # reaches the picture's border, over a corner of the first
    found = outline_overlay(np.full((5, 6, 3), 100, np.uint8), shapes)
    first = {(1, 1), (1, 2), (1, 3), (2, 1), (2, 3), (3, 1), (3, 2), (3, 3)}
    second = {(2, 3), (2, 4), (2, 5), (3, 3), (3, 5), (4, 3), (4, 4), (4, 5)}
    for row in range(5):
        for column in range(6):
            here = (row, column)
            expected = color(1) if here in second else color(0) if here in first else np.full(3, 60.0)
            np.testing.assert_array_equal(found[row, column], expected.astype(np.uint8), err_msg=str(here))


def test_shadows_in_the_colours_of_their_objects() -> None:
    shadows = np.zeros((2, 1, 5), np.uint8)
    shadows[:, 0] = [[0, 255, 51, 0, 255], [0, 0, 0, 102, 255]]
    segment = np.array([[NONE, NONE, NONE, NONE, 1]], np.uint8)
    found = shadow_overlay(shadows, segment)[0]
    np.testing.assert_array_equal(found[0], [0, 0, 0])
    # Twice the share of light taken, at most all of the colour.
    np.testing.assert_allclose(found[1], color(0), atol=1)
    np.testing.assert_allclose(found[2], 0.4 * color(0), atol=1)
    np.testing.assert_allclose(found[3], 0.8 * color(1), atol=1)
    np.testing.assert_array_equal(found[4], [0, 0, 0], err_msg="an object hides the ground")
    both = shadow_overlay(np.array([[[128]], [[128]]], np.uint8), segment[:, :1])[0, 0]
    np.testing.assert_allclose(both, (color(0) + color(1)) / 2, atol=1.5)


def test_depth_runs_from_dark_to_light() -> None:
    order = np.array([-9.0, -12.0, -np.inf, -10.0], np.float32)
    segment = np.array([[0, 1, 3, NONE]], np.uint8)
    np.testing.assert_array_equal(depth_overlay(order, segment)[0, :, 0], [255, 70, 162, 0])
    assert np.ptp(depth_overlay(order, segment), axis=-1).max() == 0
    alone = depth_overlay(np.array([-3.0, -np.inf], np.float32), np.array([[0, NONE]], np.uint8))
    np.testing.assert_array_equal(alone[0, :, 0], [70, 0])


@pytest.fixture
def pictures() -> Pictures:
    """Two scenes of three views, 2 x 4 pixels; every picture has its own grey."""
    grey = 40 * np.arange(6, dtype=np.uint8).reshape(2, 3)
    shapes = np.zeros((2, 3, 2, 2, 4), np.uint8)
    shapes[:, :, 0, :, :2] = 255
    segment = np.full((2, 3, 2, 4), NONE, np.uint8)
    segment[..., :2] = 0
    shadows = np.zeros_like(shapes)
    shadows[0, 0, 0, :, 3] = 255
    order = np.tile(np.array([-5.0, -np.inf], np.float32), (2, 3, 1))
    return Pictures(
        image=np.broadcast_to(grey[:, :, None, None, None], (2, 3, 2, 4, 3)),
        segment=segment,
        overlap=(shapes >= 128).sum(2).astype(np.uint8),
        shapes=shapes,
        shadows=shadows,
        depth_order=order,
        camera=np.ones((2, 3, 3), np.float32),
        num_objects=np.ones(2, np.uint8),
    )


def cell(sheet: np.ndarray, row: int, scene: int, view: int, size: tuple[int, int], views: int) -> np.ndarray:
    """Of a sheet whose scenes stand apart and whose rows have captions above them."""
    height, width = size
    top = GAP + row * (height + GAP + CAPTION) + CAPTION
    left = GAP + scene * (views * (width + GAP) + SCENE_GAP) + view * (width + GAP)
    return sheet[top : top + height, left : left + width]


def test_sheet_has_a_column_a_view_and_a_row_a_truth(pictures: Pictures) -> None:
    zoom = 5
    height, width = 2 * zoom, 4 * zoom
    sheet = np.asarray(contact_sheet(pictures, zoom=zoom))
    assert sheet.shape == (5 * (height + GAP + CAPTION) + GAP, 6 * (width + GAP) + GAP + SCENE_GAP, 3)
    for scene, view in np.ndindex(2, 3):
        image, segment = pictures.image[scene, view], pictures.segment[scene, view]
        shapes, shadows = pictures.shapes[scene, view], pictures.shadows[scene, view]
        rows = [
            image,
            segment_overlay(image, segment, 2),
            outline_overlay(image, shapes),
            shadow_overlay(shadows, segment),
            depth_overlay(pictures.depth_order[scene, view], segment),
        ]
        for row, expected in enumerate(rows):
            zoomed = expected.repeat(zoom, 0).repeat(zoom, 1)
            np.testing.assert_array_equal(cell(sheet, row, scene, view, (height, width), 3), zoomed)


def test_rows_have_captions_on_white(pictures: Pictures) -> None:
    sheet = np.asarray(contact_sheet(pictures, zoom=8))
    height = 16
    for row in range(5):
        top = GAP + row * (height + GAP + CAPTION)
        strip = sheet[top : top + CAPTION]
        assert (strip == 255).all(-1).mean() > 0.5
        for half in np.split(strip[:, : strip.shape[1] // 2 * 2], 2, axis=1):
            assert (half < 128).any()


def test_sets_without_shadows_have_no_row_for_them(pictures: Pictures) -> None:
    bare = replace(pictures, shadows=np.zeros_like(pictures.shadows))
    sheet = np.asarray(contact_sheet(bare, zoom=4))
    assert len(sheet) == 4 * (8 + GAP + CAPTION) + GAP
    depth = depth_overlay(bare.depth_order[1, 2], bare.segment[1, 2])
    np.testing.assert_array_equal(cell(sheet, 3, 1, 2, (8, 16), 3), depth.repeat(4, 0).repeat(4, 1))


def test_rows_are_drawn_of_what_is_known(pictures: Pictures) -> None:
    """Pictures alone, then with more and more of their truth."""
    unknown = dict.fromkeys(("segment", "overlap", "shapes", "shadows", "depth_order", "num_objects"))
    bare = replace(pictures, **unknown)
    assert list(truth_rows(bare, 0, 0)) == ["picture"]
    seen = replace(bare, segment=pictures.segment)
    rows = truth_rows(seen, 0, 0)
    assert list(rows) == ["picture", "visible objects"]
    np.testing.assert_array_equal(rows["visible objects"], truth_rows(pictures, 0, 0)["visible objects"])
    ordered = replace(seen, depth_order=pictures.depth_order)
    assert list(truth_rows(ordered, 0, 0)) == ["picture", "visible objects", "near (light) to far"]
    sheet = np.asarray(contact_sheet(bare, zoom=4))
    np.testing.assert_array_equal(cell(sheet, 0, 1, 2, (8, 16), 3), pictures.image[1, 2].repeat(4, 0).repeat(4, 1))
