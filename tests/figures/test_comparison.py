"""Several methods in one figure: what stands where, in the colours of the truth, in one size."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from figure_scenes import as_bytes, pictures, rows_of, words

from viewslots.figures.comparison import comparison_figure, enlarged, layers_figure, numbers_of, renamed
from viewslots.figures.decompositions import ABSENT
from viewslots.figures.sheets import depth_overlay, outline_overlay, segment_overlay
from viewslots.types import Decomposition, SceneTruth

NONE = 255


def best_agreement(truth: np.ndarray, layer: np.ndarray, free: list[int]) -> int:
    """By trying everything: how many object pixels can agree if layers are named one to one."""
    objects = [value for value in np.unique(truth).tolist() if value != NONE]
    names = [*objects, *[None] * len(free)]
    return max(
        sum(int(((layer == one) & (truth == name)).sum()) for one, name in zip(free, chosen, strict=True))
        for chosen in itertools.permutations(names, len(free))
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("has_background", [True, False])
def test_names_agree_with_the_truth_as_far_as_they_can(seed: int, has_background: bool) -> None:
    random = np.random.default_rng(seed)
    truth = random.choice(np.array([0, 1, 2, NONE], np.uint8), (2, 6, 6))
    layer = np.where(random.random(truth.shape) < 0.5, (truth + 2) % 5, random.integers(0, 5, truth.shape))
    found = renamed(layer, numbers_of(truth, layer, has_background, free=0))
    layers = np.unique(layer).tolist()
    named = {one: set(found[layer == one].tolist()) for one in layers}
    assert all(len(names) == 1 for names in named.values())
    assert len(set.union(*named.values())) == len(layers), "one name for each"
    share = {one: int(((layer == one) & (truth == NONE)).sum()) for one in layers}
    ground = 0 if has_background else max(share, key=lambda one: share[one])
    assert named[ground] == {NONE}
    free = [one for one in layers if one != ground]
    assert int(((found == truth) & (truth != NONE)).sum()) == best_agreement(truth, layer, free)
    assert sorted(named[one].pop() for one in free) == list(range(len(free)))


def test_a_method_that_finds_nothing() -> None:
    truth = np.full((1, 4, 4), NONE, np.uint8)
    truth[0, 0] = 1
    assert numbers_of(truth, np.zeros((1, 4, 4), int), True, free=2) == {0: NONE}
    nothing = np.full((1, 4, 4), NONE, np.uint8)
    layer = np.zeros((1, 4, 4), int)
    layer[0, 1] = 2
    assert numbers_of(nothing, layer, True, free=0) == {0: NONE, 2: 0}
    assert numbers_of(nothing, layer, True, free=5) == {0: NONE, 2: 5}


def answer(segment: torch.Tensor, grey: float) -> Decomposition:
    masks = torch.nn.functional.one_hot(segment, 3).movedim(-1, 2).float()
    shown = torch.full((*segment.shape[:2], 3, *segment.shape[2:]), grey)
    return Decomposition(shown, masks, True, None, None, None, None)


def truth_of(segment: torch.Tensor, **known: torch.Tensor) -> SceneTruth:
    return SceneTruth(view_mask=torch.ones(segment.shape[:2], dtype=torch.bool), segment=segment, **known)


def unknown(views: int) -> SceneTruth:
    return SceneTruth(view_mask=torch.ones(1, views, dtype=torch.bool))


def test_rows_of_a_comparison() -> None:
    image = torch.stack([pictures(0, 2), pictures(1, 2)])
    truth = torch.full((2, 2, 32, 32), NONE, dtype=torch.uint8)
    truth[:, :, :8], truth[:, :, 8:16] = 0, 1
    layer = torch.zeros(2, 2, 32, 32, dtype=torch.long)
    layer[:, :, :8], layer[:, :, 8:16] = 2, 1  # right, but in another order
    answers = {
        "first": [answer(one[None], 0.2) for one in layer],
        "second": [answer(torch.zeros_like(one[None]), 0.4) for one in layer],
    }
    sheet = comparison_figure(image, [truth_of(one[None]) for one in truth], answers)
    rows = [[panel.pixels for panel in row] for row in rows_of(sheet)]
    labels = ["Truth", "observation", "first", "second", "reconstruction", "objects", "2 objects", "0 objects"]
    expected = ["Truth", *["2 objects"] * 2, "observation", "objects", "first", *["2 objects"] * 2]
    expected += ["reconstruction", "objects", "second", *["0 objects"] * 2, "reconstruction", "objects"]
    assert [word for word in words(sheet) if word in labels] == expected
    assert words(sheet)[:4] == ["scene 1, view 1", "scene 1, view 2", "scene 2, view 1", "scene 2, view 2"]
    assert len(rows) == 6
    for column, (place, view) in enumerate(itertools.product(range(2), range(2))):
        observed, true, *others = (row[column] for row in rows)
        np.testing.assert_array_equal(observed, as_bytes(image[place, view]))
        tinted = segment_overlay(observed, truth[place, view].numpy(), NONE)
        np.testing.assert_array_equal(true, tinted)
        assert (others[0] == 51).all()
        np.testing.assert_array_equal(others[1], tinted)
        assert (others[2] == 102).all()
        assert np.ptp(others[3], axis=-1).max() == 0, "no object, no colour"


def test_complete_shapes_and_order_where_they_are_told() -> None:
    """In the colours of the truth too; a method that does not tell them has no such rows."""
    image = pictures(0, 1)
    shapes = torch.zeros(1, 1, 2, 32, 32, dtype=torch.uint8)
    shapes[:, :, 0, :12], shapes[:, :, 1, 8:16] = 255, 255  # object 0 is behind
    segment = torch.full((1, 1, 32, 32), NONE, dtype=torch.uint8)
    segment[:, :, :8], segment[:, :, 8:16] = 0, 1
    order = torch.tensor([[[1.0, 2.0]]])
    layer = torch.zeros(1, 1, 32, 32, dtype=torch.long)
    layer[:, :, :8], layer[:, :, 8:16] = 2, 1
    plain = answer(layer, 0.2)
    whole = replace(
        plain, complete_shapes=shapes.flip(2) / 255, depth_order=order.flip(2), presence=torch.tensor([[1.0, 0.0]])
    )
    truth = truth_of(segment, shapes=shapes, depth_order=order)
    sheet = comparison_figure([image], [truth], {"plain": [plain], "whole": [whole]})
    rows = [row[0].pixels for row in rows_of(sheet)]
    assert len(rows) == 4 + 2 + 4
    outlines = outline_overlay(as_bytes(image[0]), shapes[0, 0].numpy())
    depths = depth_overlay(order[0, 0].numpy(), segment[0, 0].numpy())
    for place in (2, 8):
        np.testing.assert_array_equal(rows[place], outlines)
        np.testing.assert_array_equal(rows[place + 1], depths)
    assert words(sheet)[0] == "scene 1"
    assert [word for word in words(sheet) if word.endswith(("object", "objects")) and word[0].isdigit()] == [
        "2 objects",
        "2 objects",
        "1 object",  # what it says itself
    ]


@pytest.mark.parametrize("has_background", [True, False])
def test_without_truth_colours_follow_the_first_method(has_background: bool) -> None:
    layer = torch.zeros(1, 2, 8, 8, dtype=torch.long)
    layer[:, :, :2], layer[:, :, 2:4] = 1, 2
    other = torch.tensor([0, 2, 1])[layer]
    answers = {
        name: [replace(answer(one, 0.2), has_background=has_background)]
        for name, one in (("first", layer), ("second", other))
    }
    sheet = comparison_figure([torch.full((2, 3, 8, 8), 0.5)], [unknown(2)], answers)
    rows = [[panel.pixels for panel in row] for row in rows_of(sheet)]
    assert "Truth" not in words(sheet)
    assert len(rows) == 5
    for mine, theirs in zip(rows[2], rows[4], strict=True):
        np.testing.assert_array_equal(mine, theirs)
        assert np.ptp(mine[:4], axis=-1).min() > 20, "objects have colours"
        assert not (mine[0, 0] == mine[2, 0]).all()


def test_layers_stand_in_the_rows_of_their_true_objects() -> None:
    """A layer too many has a row of its own; a scene without such a layer is grey there."""
    image = torch.stack([pictures(0, 1), pictures(1, 1)])
    segment = torch.full((2, 1, 32, 32), NONE, dtype=torch.uint8)
    segment[:, :, :8], segment[0, :, 8:16] = 0, 1  # one object in the second scene
    layer = torch.zeros(2, 1, 32, 32, dtype=torch.long)
    layer[:, :, :8], layer[:, :, 8:16] = 2, 1
    sheet = layers_figure(
        image, [truth_of(one[None]) for one in segment], {"it": [answer(one[None], 0.2) for one in layer]}
    )
    rows = [[panel.pixels for panel in row] for row in rows_of(sheet)]
    true, found = rows[:4], rows[4:]
    assert [word for word in words(sheet) if word.startswith(("object", "background"))] == [
        *("object 1", "object 2", "background"),
        *("object 1", "object 2", "object 3", "background"),
    ]
    np.testing.assert_array_equal(true[1][0][:8], as_bytes(image[0, 0])[:8])
    assert (true[1][0][8:] == 255).all()
    assert (true[2][1] == ABSENT).all()
    assert (found[1][0][:8] == 51).all()
    assert (found[1][0][8:] == 255).all()
    assert (found[2][0][8:16] == 51).all()
    assert (found[2][1] == ABSENT).all(), "the second scene has no second object to be matched"
    assert (found[3][0] == ABSENT).all()
    assert (found[3][1][8:16] == 51).all()
    assert (found[4][0][16:] == 51).all()


def test_answers_grow_pixel_by_pixel() -> None:
    layer = torch.arange(16).reshape(1, 1, 4, 4) % 3
    small = replace(answer(layer, 0.2), complete_shapes=torch.rand(1, 1, 2, 4, 4))
    grown = enlarged(small, (8, 12))
    for name in ("reconstruction", "layer_masks", "complete_shapes"):
        value = getattr(small, name).repeat_interleave(2, -2).repeat_interleave(3, -1)
        assert torch.equal(getattr(grown, name), value)
    assert enlarged(small, (4, 4)).layer_masks is small.layer_masks
