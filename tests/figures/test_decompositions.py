"""What is in which panel, sorted by presence, absent slots grey."""

import colorsys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from figure_scenes import PRESENCE, SIZE, SLOTS, as_bytes, cut, flat_view, pictures, rows_of, scene, words
from PIL import Image

from viewslots.figures.decompositions import (
    ABSENT,
    Kind,
    answer_figure,
    background_cell,
    column_names,
    decomposition_figure,
    object_cells,
    sorted_objects,
    tinted,
    warning_of,
)
from viewslots.types import Decomposition
from viewslots.viewpoints.export import pixels_of
from viewslots.viewpoints.scene import InferredScene

NONE = 255
ORDER = [2, 0, 3, 1]
"""PRESENCE sorted by hand."""


def test_pixels_are_rounded_and_cut() -> None:
    picture = torch.tensor([-0.5, 0.0, 0.4999 / 255, 0.5001 / 255, 1.0, 1.7]).expand(3, 1, 6)
    np.testing.assert_array_equal(pixels_of(picture)[0, :, 0], [0, 0, 0, 1, 255, 255])


def test_objects_are_sorted_by_presence() -> None:
    assert sorted_objects(scene()) == ORDER
    assert sorted_objects(scene(presence=(0.3, 0.9, 0.3, 0.3))) == [1, 0, 2, 3]


@pytest.mark.parametrize(("kind", "end"), [("complete", SIZE), ("perceived", None)])
def test_layers_on_white_absent_ones_grey(kind: Kind, end: int | None) -> None:
    cells = object_cells(scene(), flat_view(), kind)
    colours = {0: (255, 51, 51), 2: (51, 255, 102), 3: (51, 102, 255)}
    assert len(cells) == SLOTS
    for cell, k in zip(cells, ORDER, strict=True):
        if k == 1:
            assert (cell == ABSENT).all()
            continue
        last = 8 * k + 4 if end is None else end
        assert (cell[8 * k : last] == colours[k]).all()
        assert (cell[: 8 * k] == 255).all()
        assert (cell[last:] == 255).all()


def test_half_covered_pixels_are_half_white() -> None:
    view = flat_view()
    view.complete[0] *= 0.5
    (cell,) = [object_cells(scene(), view, "complete")[ORDER.index(0)]]
    np.testing.assert_array_equal(cell[0, 0], [255, 153, 153])


def test_backgrounds() -> None:
    view = flat_view()
    assert (background_cell(view, "complete") == 204).all()
    seen = background_cell(view, "perceived")
    assert (seen[0:4] == 255).all()
    assert (seen[4:8] == 153).all()


def test_tints_follow_the_order() -> None:
    found = tinted(torch.full((3, SIZE, SIZE), 100 / 255), flat_view(), ORDER)
    for place, k in ((0, 2), (1, 0), (2, 3)):
        colour = 0.35 * 100 + 0.65 * np.array(colorsys.hsv_to_rgb(place * 0.618034 % 1, 0.75, 1)) * 255
        np.testing.assert_allclose(found[8 * k], np.tile(colour, (SIZE, 1)), atol=1)
    assert (found[8:16] == 100).all()


@pytest.mark.parametrize("kind", ["complete", "perceived"])
def test_a_figure_shows_every_view_of_every_scene(kind: Kind, tmp_path: Path) -> None:
    scenes = [scene(0, 3), scene(1, 2, (0.1, 0.2, 0.3, 0.95))]
    sheet = decomposition_figure(scenes, kind)
    rows = rows_of(sheet)
    assert [len(row) for row in rows] == [SLOTS + 3] * 5
    png, _ = sheet.save(tmp_path / "figure")
    with Image.open(png) as image:
        pixels = np.asarray(image.convert("RGB"))
    places = [(one, view) for one in (0, 1) for view in range(len(scenes[one].views))]
    for row, (one, m) in zip(rows, places, strict=True):
        cells = [cut(pixels, panel) for panel in row]
        view = scenes[one].render(scenes[one].views[m])
        np.testing.assert_array_equal(cells[0], as_bytes(pictures(one, 3 if one == 0 else 2)[m]))
        np.testing.assert_array_equal(cells[1], as_bytes(view.image))
        absent = [bool((cell == ABSENT).all()) for cell in cells]
        assert absent == ([False] * 5 + [True, False] if one == 0 else [False] * 3 + [True] * 3 + [False])
        first = ORDER[0] if one == 0 else 3
        alpha = view.complete[first] if kind == "complete" else view.masks[first + 1]
        expected = 1 - alpha + view.appearance[first].clamp(0, 1) * alpha
        np.testing.assert_allclose(cells[2].astype(int), as_bytes(expected).astype(int), atol=1)


def test_words_around_the_panels() -> None:
    text = words(decomposition_figure([scene()], "complete"))
    assert text[: SLOTS + 3] == list(column_names(SLOTS))
    assert column_names(SLOTS) == (
        "observation",
        "reconstruction",
        "object 1",
        "object 2",
        "object 3",
        "object 4",
        "background",
    )
    assert [word for word in text if word.startswith("presence")] == [
        f"presence {value:.2f}" for value in sorted(PRESENCE, reverse=True)
    ]
    assert any("3 objects found" in word for word in text)
    one = words(decomposition_figure([scene(presence=(0.1, 0.9, 0.1, 0.1))], "perceived"))
    assert any("1 object found" in word for word in one)


def test_a_note_says_how_answers_were_found() -> None:
    sheet = decomposition_figure([scene()], "complete", "Answers of x: plain (one pass).")
    bare = decomposition_figure([scene()], "complete")
    assert words(sheet)[-1] == "Answers of x: plain (one pass)."
    assert sheet.title.endswith("Answers of x: plain (one pass).")
    assert words(sheet)[:-1] == words(bare)
    assert sheet.labels[-1].y < sheet.height
    assert sheet.labels[-1].y > max(panel.top + panel.size[1] for panel in sheet.panels)


def halves(presence: tuple[float, ...] | None, has_background: bool) -> Decomposition:
    """One view of 4 x 4 pixels: layer l has row l, the last layer also what is left."""
    masks = torch.zeros(1, 1, 3, 4, 4)
    for layer in range(3):
        masks[0, 0, layer, layer] = 1
    masks[0, 0, 2, 3] = 1
    shown = torch.full((1, 1, 3, 4, 4), 0.4)
    sure = None if presence is None else torch.tensor([presence])
    return Decomposition(shown, masks, has_background, None, sure, sure, None)


def test_a_figure_of_a_mere_decomposition() -> None:
    image = torch.full((1, 3, 4, 4), 0.2)
    sheet = answer_figure([image, image], [halves((0.2, 0.9), True), halves((0.6, 0.5), True)], "a note")
    first, second = ([panel.pixels for panel in row] for row in rows_of(sheet))
    assert words(sheet)[:5] == ["observation", "reconstruction", "object 1", "object 2", "background"]
    assert (first[0] == 51).all()
    assert (first[1] == 102).all()
    assert (first[2][2:] == 102).all(), "the surest first, which is the second"
    assert (first[2][:2] == 255).all()
    assert (first[3] == ABSENT).all()
    assert (first[4][0] == 102).all()
    assert (first[4][1:] == 255).all()
    assert (second[2][1] == 102).all()
    text = words(sheet)
    assert [word for word in text if word.startswith("presence")] == [
        "presence 0.90",
        "presence 0.20",
        "presence 0.60",
        "presence 0.50",
    ]
    assert any("1 object found" in word for word in text)
    assert any("2 objects found" in word for word in text)
    assert text[-1] == "a note"


@pytest.mark.parametrize(("slots", "present", "columns"), [(5, 0, 5), (64, 3, 12), (64, 20, 20)])
def test_absent_slots_do_not_fill_a_figure(slots: int, present: int, columns: int) -> None:
    """A method with a grid of slots shows those that are present, the surest first."""
    presence = torch.rand(slots, generator=torch.Generator().manual_seed(0)) * 0.4
    presence[:present] += 0.5
    masks = torch.zeros(1, 1, slots + 1, 4, 4)
    shown = Decomposition(torch.zeros(1, 1, 3, 4, 4), masks, True, None, presence[None], None, None)
    sheet = answer_figure([torch.zeros(1, 3, 4, 4)], [shown])
    text = words(sheet)
    assert [word for word in text if word.startswith("object ")] == [f"object {k + 1}" for k in range(columns)]
    sure = sorted(presence.tolist(), reverse=True)[:columns]
    assert [word for word in text if word.startswith("presence")] == [f"presence {value:.2f}" for value in sure]
    assert len(rows_of(sheet)[0]) == columns + 3


def test_a_figure_of_slots_without_background_or_presence() -> None:
    sheet = answer_figure([torch.zeros(1, 3, 4, 4)], [halves(None, False)])
    (row,) = rows_of(sheet)
    assert words(sheet)[:5] == ["observation", "reconstruction", "slot 1", "slot 2", "slot 3"]
    assert len(row) == 5
    for layer, panel in enumerate(row[2:]):
        assert (panel.pixels[layer] == 102).all()
    assert not any("presence" in word or "found" in word for word in words(sheet))


def unfamiliar(scene: InferredScene, warning: str) -> InferredScene:
    vars(scene)["familiarity"] = SimpleNamespace(warning=warning)
    return scene


def test_of_several_scenes_each_has_its_own_warning() -> None:
    scenes = [unfamiliar(scene(), "too dark"), scene(), unfamiliar(scene(), "too bright")]
    assert warning_of(scenes) == "scene 1: too dark; scene 3: too bright"
    assert warning_of(scenes[1:2]) is None
    assert warning_of(scenes[:1]) == "too dark"
    text = words(decomposition_figure(scenes, "perceived"))
    assert text[0] == "Warning: scene 1: too dark; scene 3: too bright."
    assert len([word for word in text if word.startswith("presence")]) == SLOTS  # those of scene 2


def test_a_warning_stands_above_all_and_nothing_is_sure_beside_it() -> None:
    odd = unfamiliar(scene(), "these pictures are unlike what it knows " * 12)
    plain, warned = (decomposition_figure([one], "complete", "a note") for one in (scene(), odd))
    assert any("presence" in text for text in words(plain))
    assert not any("presence" in text for text in words(warned))
    above = [label for label in warned.labels if label.y < min(panel.top for panel in warned.panels)]
    assert above[0].text.startswith("Warning: these pictures")
    assert len([label for label in warned.labels if "unlike what it knows" in label.text]) > 1  # over several lines
    assert warned.width == plain.width
    assert [panel.pixels.tobytes() for panel in warned.panels] == [panel.pixels.tobytes() for panel in plain.panels]
