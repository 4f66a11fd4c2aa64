"""Sheets of panels: exact pixels in both forms, words where they belong and readable."""

import base64
import io
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from figure_scenes import cut, rows_of
from PIL import Image

from viewslots.figures.grid import (
    INK,
    Block,
    Label,
    Panel,
    Row,
    Sheet,
    fitting,
    grid,
    text_width,
    whole_zoom,
)

SVG = "{http://www.w3.org/2000/svg}"


def noise(seed: int, height: int = 5, width: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.fixture
def sheet() -> Sheet:
    first, second = Panel(10, 20, noise(0), 4, "one"), Panel(50, 20, noise(1), 4, "two & <three>")
    return Sheet(90, 60, (first, second), (Label(10, 15, "a < b"), Label(60, 55, "mid", 12, middle=True)), "A figure")


def test_the_png_holds_the_pixels_that_were_given(sheet: Sheet, tmp_path: Path) -> None:
    png, svg = sheet.save(tmp_path / "figure")
    assert (png.name, svg.name) == ("figure.png", "figure.svg")
    with Image.open(png) as image:
        assert image.size == (90, 60)
        assert image.info["dpi"] == pytest.approx((300, 300), abs=0.01)
        pixels = np.asarray(image.convert("RGB"))
    for panel in sheet.panels:
        np.testing.assert_array_equal(cut(pixels, panel), panel.pixels)
    assert (pixels[19, 9:39] == [0xC3, 0xC8, 0xD0]).all(), "a frame around the panel"
    assert (pixels[45:50, :40] == 255).all()


def test_labels_stand_on_their_line(sheet: Sheet) -> None:
    pixels = np.asarray(sheet.image())
    dark = np.argwhere(pixels.sum(-1) < 300)
    above = dark[(dark[:, 0] < 18) & (dark[:, 1] < 88)]
    assert len(above) > 20
    assert above[:, 1].min() >= 10
    assert above[:, 0].max() <= 16
    below = dark[dark[:, 0] > 43]
    assert abs((below[:, 1].min() + below[:, 1].max()) / 2 - 60) <= 1.5


def test_the_svg_holds_the_same(sheet: Sheet) -> None:
    root = ElementTree.fromstring(sheet.svg())
    assert root.get("viewBox") == "0 0 90 60"
    assert float(root.get("width", "").removesuffix("mm")) == pytest.approx(90 / 300 * 25.4, abs=0.01)
    images = root.findall(f"{SVG}image")
    assert len(images) == 2
    for image, panel in zip(images, sheet.panels, strict=True):
        kind, _, content = image.get("href", "").partition(",")
        assert kind == "data:image/png;base64"
        found = np.asarray(Image.open(io.BytesIO(base64.b64decode(content))))
        np.testing.assert_array_equal(found, panel.pixels)
        place = [int(image.get(name, "")) for name in ("x", "y", "width", "height")]
        assert place == [panel.left, panel.top, *panel.size]
        assert "pixelated" in image.get("style", "")
        title = image.find(f"{SVG}title")
        assert title is not None
        assert title.text == panel.title
    texts = root.findall(f"{SVG}text")
    assert [text.text for text in texts] == ["a < b", "mid"]
    assert texts[1].get("text-anchor") == "middle"
    assert texts[0].get("fill") == INK


def test_words_shrink_until_they_fit() -> None:
    assert fitting("short", 400) == 30
    small = fitting("a rather long heading", 200)
    assert 12 <= small < 30
    assert text_width("a rather long heading", small) <= 200 < text_width("a rather long heading", small + 1)
    assert fitting("x" * 500, 100) == 12


@pytest.mark.parametrize(
    ("sides", "zoom"), [((64, 64), 4), ((32, 32), 8), ((128, 128), 2), ((300, 20), 1), ((90, 85), 2)]
)
def test_pictures_grow_by_whole_factors(sides: tuple[int, int], zoom: int) -> None:
    assert whole_zoom(sides) == zoom


def test_a_grid_has_its_panels_in_rows_and_columns() -> None:
    blocks = [
        Block("first", (Row("r1", (noise(0), noise(1), noise(2))), Row("r2", (noise(3), None, noise(4))))),
        Block("second", (Row("r3", (noise(5), noise(6), noise(7))),), ("", "p 1", "p 2")),
    ]
    sheet = grid("title", ["a", "b", "c"], blocks, zoom=6)
    rows = rows_of(sheet)
    assert [len(row) for row in rows] == [3, 2, 3]
    expected = iter([noise(index) for index in range(8)])
    pixels = np.asarray(sheet.image())
    for row in rows:
        for panel in row:
            np.testing.assert_array_equal(cut(pixels, panel), next(expected))
    lefts = [panel.left for panel in rows[0]]
    assert [panel.left for panel in rows[1]] == [lefts[0], lefts[2]]
    assert [panel.left for panel in rows[2]] == lefts
    assert lefts[1] - lefts[0] > 7 * 6
    assert rows[1][0].top - rows[0][0].top < rows[2][0].top - rows[1][0].top, "blocks stand apart"
    assert rows[1][1].title == "first, r2, c"


def test_words_of_a_grid_lie_inside_and_clear_of_panels() -> None:
    long = Block("a title much wider than the panels under it", (Row("a long row label", (noise(0), noise(1))),))
    sheet = grid("title", ["heading far too long", "b"], [long], zoom=8)
    pixels = np.asarray(sheet.image())
    for edge in (pixels[:6], pixels[-6:], pixels[:, :6], pixels[:, -6:]):
        assert (edge == 255).all()
    for panel in sheet.panels:
        np.testing.assert_array_equal(cut(pixels, panel), panel.pixels)
    label = next(label for label in sheet.labels if label.text == "a long row label")
    assert label.x + text_width(label.text, label.size) < sheet.panels[0].left


def test_panels_of_one_size() -> None:
    with pytest.raises(ValueError, match="one size"):
        grid("title", ["a"], [Block("", (Row("", (noise(0), noise(0, 3, 3))),))])
