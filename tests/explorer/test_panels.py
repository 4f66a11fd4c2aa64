"""Arrays to pieces of the page: the pixels arrive, and in the right places."""

import base64
import io
import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

from viewslots.explorer import panels
from viewslots.explorer.opened import Opened, open_photos
from viewslots.explorer.paint import (
    SIDE,
    background_pictures,
    depth_legend,
    depth_shaded,
    enlarged,
    painted,
    tinted,
    x_ray_lines,
)
from viewslots.explorer.session import Session
from viewslots.figures.sheets import object_colors
from viewslots.viewpoints.scene import Reader, View


def pictures_in(page: str) -> list[np.ndarray]:
    """All pictures of a piece of the page, decoded."""
    found = re.findall(r'<img src="data:image/png;base64,([^"]+)"', page)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(text)))) for text in found]


def two_squares() -> View:
    """Object 1, near and red, hides the right half of object 0, far and green."""
    far, near = torch.zeros(32, 32), torch.zeros(32, 32)
    far[8:24, 4:20], near[8:24, 12:28] = 1, 1
    seen = far * (1 - near)
    green, red = torch.tensor([0.0, 1, 0]), torch.tensor([1.0, 0, 0])
    appearance = torch.stack([green, red])[:, :, None, None].expand(2, 3, 32, 32)
    ground = torch.full((3, 32, 32), 0.25)
    masks = torch.stack([1 - seen - near, seen, near])
    image = masks[0] * ground + masks[1] * appearance[0] + masks[2] * appearance[1]
    return View(
        image, masks, torch.stack([far, near]), appearance, ground, ground + 0.5, torch.tensor([0.0, 1.0]), (0, 1)
    )


def at(pixels: np.ndarray, row: int, column: int) -> np.ndarray:
    """The enlarged pixel in the middle of one of the 32 x 32."""
    step = SIDE // 32
    return pixels[row * step + step // 2, column * step + step // 2]


def spanned(path: str) -> tuple[float, float, float, float]:
    """Left, top, right and bottom of a path."""
    points = np.array([[float(value) for value in pair.split()] for pair in re.findall(r"[\d.]+ [\d.]+", path)])
    return (*points.min(0), *points.max(0))


def test_an_x_ray_draws_every_outline_and_fills_what_is_hidden() -> None:
    (far, outline, hidden), (near, other, nothing) = x_ray_lines(two_squares(), SIDE, SIDE)
    assert (far, near) == (0, 1)  # far ones first, so that near ones lie over them
    assert spanned(outline) == pytest.approx((40, 80, 200, 240), abs=2)
    assert spanned(other) == pytest.approx((120, 80, 280, 240), abs=2)
    assert spanned(hidden) == pytest.approx((120, 80, 200, 240), abs=2)
    assert nothing == ""


def test_an_x_ray_is_a_drawing_as_sharp_as_the_screen(opened: Opened) -> None:
    session = Session(opened)
    session.look("X-ray")
    page = panels.main_picture(session)
    drawing = base64.b64decode(re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', page)[0])
    root = ElementTree.fromstring(drawing)
    assert len(root.findall("{*}path")) == 2 * len(session.table.shown)
    base = root.findall("{*}image")[0].attrib["href"].split(",")[1]
    np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(base64.b64decode(base)))), session.picture())
    assert 'download="viewslots-noise-1.svg"' in page


def test_a_legend_for_near_and_far(opened: Opened) -> None:
    session = Session(opened)
    assert "vs-legend" not in panels.main_picture(session)
    session.look("Near and far")
    assert all(colour in panels.main_picture(session) for colour in depth_legend())
    near, _, ground = (tuple(map(int, re.findall(r"\d+", colour))) for colour in depth_legend())
    depth = depth_shaded(two_squares()) * 255
    np.testing.assert_allclose(at(depth, 16, 24), near, atol=3)
    np.testing.assert_allclose(at(depth, 2, 2), ground, atol=3)


def test_where_the_model_guesses_it_says_so(opened: Opened) -> None:
    session = Session(opened)
    session.go_to(0, 0)
    assert "guesses" not in panels.main_picture(session)
    session.table = replace(session.table, view=torch.full_like(session.table.view, 4.0))
    assert "here the model guesses" in panels.main_picture(session)


def test_a_warning_is_a_piece_of_its_own(opened: Opened) -> None:
    assert panels.notice(Session(opened)) == ""
    warned = panels.notice(Session(replace(opened, warning="picture 1 is <odd>")))
    assert "Do not trust this answer" in warned
    assert "Picture 1 is &lt;odd&gt;." in warned


def test_photos_are_shown_in_their_own_pixels(reader: Reader) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (200, 300, 3), dtype=np.uint8)
    opened = open_photos(reader, [pixels, pixels[:, ::-1]])
    assert opened.scene.as_read is not None
    assert not opened.scene.as_read.photos  # a tab keeps nothing larger than it shows
    page = panels.given_and_rebuilt(opened)
    sizes = re.findall(r'width="(\d+)" height="(\d+)"', page)
    small = (str(reader.size[1]), str(reader.size[0]))
    assert sizes == [("300", "200"), small, ("300", "200")] * 2
    assert page.count("data:image/jpeg") == 4


def test_colours_and_depth_pixel_by_pixel() -> None:
    view = two_squares()
    coloured = tinted(enlarged(view.image), enlarged(view.masks[1:]), object_colors(2) / 255)
    np.testing.assert_allclose(at(coloured, 16, 24), 0.3 * 0.2126 + 0.7 * object_colors(2)[1] / 255, atol=0.01)
    np.testing.assert_allclose(at(coloured, 2, 2), [0.25] * 3, atol=0.01)
    depth = depth_shaded(view)
    assert at(depth, 16, 24)[0] > at(depth, 16, 8)[0] > at(depth, 2, 2)[0]


def test_without_its_background() -> None:
    np.testing.assert_allclose(at(painted(two_squares(), "Picture", False), 2, 2), [128] * 3, atol=1)
    np.testing.assert_allclose(at(painted(two_squares(), "Picture", False), 16, 24), [255, 0, 0], atol=1)


def test_what_is_saved_is_what_is_shown(opened: Opened) -> None:
    session = Session(opened)
    session.look("Objects in colour")
    page = panels.main_picture(session)
    np.testing.assert_array_equal(pictures_in(page)[0], session.picture())
    links = dict(re.findall(r'download="([^"]+)" href="data:[a-z/]+;base64,([^"]+)"', page))
    saved = Image.open(io.BytesIO(base64.b64decode(links["viewslots-noise-1.png"])))
    np.testing.assert_array_equal(np.asarray(saved), session.picture())
    assert json.loads(base64.b64decode(links["viewslots-noise-1.json"])) == json.loads(json.dumps(session.to_json()))


def test_words_for_those_who_cannot_see(opened: Opened) -> None:
    session = Session(opened)
    session.show([1], background=False)
    assert 'alt="Picture of Noise 1, without background; objects: 2"' in panels.main_picture(session)


def test_given_and_rebuilt_side_by_side(opened: Opened) -> None:
    shown = pictures_in(panels.given_and_rebuilt(opened))
    assert len(shown) == 6
    for m in range(3):
        for pixels, values in ((shown[2 * m], opened.images[m]), (shown[2 * m + 1], opened.rebuilt[m].image)):
            expected = (values.clamp(0, 1) * 255).round().permute(1, 2, 0).numpy()
            np.testing.assert_array_equal(pixels, expected)


def test_a_card_for_every_layer(opened: Opened) -> None:
    session = Session(opened)
    session.show([1], background=True)
    page, view = panels.layers(session), session.table.rendered
    assert re.findall(r'data-object="(\d)"', page) == ["1", "2"]
    assert "object 1: switched off" in page
    seen, whole, around, ground = pictures_in(page)
    for pixels, alpha in ((seen, view.masks[2]), (whole, view.complete[1])):
        np.testing.assert_array_equal(pixels[..., 3], (alpha * 255).round().numpy())
    np.testing.assert_array_equal(around[..., 3], (view.masks[0] * 255).round().numpy())
    for pixels, values in ((around[..., :3], view.background), (ground, view.bare)):
        np.testing.assert_allclose(pixels / 255, values.clamp(0, 1).permute(1, 2, 0).numpy(), atol=0.002)


def test_shadows_are_on_what_is_seen_of_the_background_alone() -> None:
    around, ground = background_pictures(two_squares())
    assert (around[..., :3] == 64).all()
    assert (ground == 191).all()


def test_there_are_words_until_there_is_a_picture() -> None:
    assert "takes some seconds" in panels.waiting()


def test_the_second_scene_shows_its_objects_by_number(other: Opened) -> None:
    assert "No second scene yet" in panels.second_scene(None)
    page = panels.second_scene(other)
    assert len(pictures_in(page)) == 3 + 2
    assert "<span>1</span>" in page
    assert "<span>2</span>" in page
    assert "<span>7</span>" in panels.second_scene(other, before=5)


def test_titles_are_escaped(opened: Opened) -> None:
    session = Session(replace(opened, title='<script>alert("x")</script>'))
    page = panels.main_picture(session)
    assert "<script" not in page
    assert 'download="viewslots--script-alert--x----script-.png"' in page
