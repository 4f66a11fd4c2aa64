"""Several methods beside each other, in the colours of the truth."""

import itertools

import numpy as np
import pytest
import torch
from figure_scenes import as_bytes, pictures, rows_of, words

from viewslots.figures.comparison import comparison_figure, in_colours_of
from viewslots.figures.sheets import segment_overlay
from viewslots.types import Decomposition

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
    found = in_colours_of(truth, layer, has_background)
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
    assert (in_colours_of(truth, np.zeros((1, 4, 4), int), True) == NONE).all()
    nothing = np.full((1, 4, 4), NONE, np.uint8)
    layer = np.zeros((1, 4, 4), int)
    layer[0, 1] = 2
    assert (in_colours_of(nothing, layer, True)[0, 1] == 0).all()


def answer(segment: torch.Tensor, grey: float) -> Decomposition:
    masks = torch.nn.functional.one_hot(segment, 3).movedim(-1, 2).float()
    shown = torch.full((*segment.shape[:2], 3, *segment.shape[2:]), grey)
    return Decomposition(shown, masks, True, None, None, None, None)


def test_rows_of_a_comparison() -> None:
    image = torch.stack([pictures(0, 2), pictures(1, 2)])
    truth = np.full((2, 2, 32, 32), NONE, np.uint8)
    truth[:, :, :8], truth[:, :, 8:16] = 0, 1
    layer = torch.zeros(2, 2, 32, 32, dtype=torch.long)
    layer[:, :, :8], layer[:, :, 8:16] = 2, 1  # right, but in another order
    answers = {"first": answer(layer, 0.2), "second": answer(torch.zeros_like(layer), 0.4)}
    sheet = comparison_figure(image, truth, answers)
    rows = [[panel.pixels for panel in row] for row in rows_of(sheet)]
    assert len(rows) == 2 * 6
    labels = ["observation", "truth", "first: reconstruction", "first: objects", "second: reconstruction"]
    labels += ["second: objects"]
    assert [word for word in words(sheet) if word in labels] == labels * 2
    assert words(sheet)[:2] == ["view 1", "view 2"]
    for scene, view in itertools.product(range(2), range(2)):
        observed, true, *others = (row[view] for row in rows[6 * scene : 6 * scene + 6])
        np.testing.assert_array_equal(observed, as_bytes(image[scene, view]))
        expected = segment_overlay(observed, truth[scene, view], 2)
        np.testing.assert_array_equal(true, expected)
        assert (others[0] == 51).all()
        np.testing.assert_array_equal(others[1], expected)
        assert (others[2] == 102).all()
        assert np.ptp(others[3], axis=-1).max() == 0, "no object, no colour"
