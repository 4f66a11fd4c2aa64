"""Viewpoints nobody took: ends, middles and orders of the strips."""

import itertools

import numpy as np
import torch
from figure_scenes import as_bytes, pictures, rows_of, scene, words

from viewslots.figures.grid import Sheet
from viewslots.figures.strips import (
    axes_figure,
    furthest_views,
    interpolation_figure,
    novel_views_figure,
    sampling_figure,
)


def cells(sheet: Sheet) -> list[list[np.ndarray]]:
    return [[panel.pixels for panel in row] for row in rows_of(sheet)]


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    """But for rounding: views are rendered in batches of another size."""
    return bool((np.abs(found.astype(int) - expected) <= 1).all())


def test_views_can_be_told_apart() -> None:
    """Else the tests below could not fail."""
    views = scene().render_many(scene().views)
    for one, two in itertools.combinations(views, 2):
        assert not same(as_bytes(one.image), as_bytes(two.image))


def test_furthest_views() -> None:
    for seed in range(5):
        one = scene(seed, 5)
        apart = {(a, b): float((one.views[a] - one.views[b]).norm()) for a, b in itertools.combinations(range(5), 2)}
        assert furthest_views(one) == max(apart, key=lambda pair: apart[pair])
    assert furthest_views(scene(0, 1)) == (0, 0)


def test_interpolation_goes_from_one_observation_to_another() -> None:
    scenes = [scene(0), scene(1, 4)]
    sheet = interpolation_figure(scenes, steps=5)
    for one, row in zip(scenes, cells(sheet), strict=True):
        start, end = furthest_views(one)
        assert len(row) == 7
        assert one.images is not None
        assert same(row[0], as_bytes(one.images[start]))
        assert same(row[-1], as_bytes(one.images[end]))
        for step in range(5):
            view = one.views[start] + step / 4 * (one.views[end] - one.views[start])
            assert same(row[1 + step], as_bytes(one.render(view).image)), step
    assert words(sheet)[:7] == ["from", "0%", "25%", "50%", "75%", "100%", "to"]


def test_samples_are_new_viewpoints_shared_by_the_scenes() -> None:
    scenes = [scene(0), scene(1)]
    rows = cells(sampling_figure(scenes, seed=3, count=4))
    views = torch.randn(4, 3, generator=torch.Generator().manual_seed(3))
    for one, row in zip(scenes, rows, strict=True):
        assert one.images is not None
        assert same(row[0], as_bytes(one.images[0]))
        for found, view in zip(row[1:], views, strict=True):
            assert same(found, as_bytes(one.render(view).image))
    other = cells(sampling_figure(scenes, seed=4, count=4))
    assert not same(other[0][1], rows[0][1])


def test_axes_pass_the_middle_and_the_widest_comes_first() -> None:
    scenes = [scene(0, 4), scene(1, 4), scene(2, 4)]
    sheet = axes_figure(scenes, steps=3, shown=2)
    rows = cells(sheet)
    every = torch.cat([one.views for one in scenes]).double().numpy()
    values, vectors = np.linalg.eigh(np.cov(every.T))
    assert len(rows) == 2 * 3
    for index, row in enumerate(rows):
        one, axis = scenes[index // 3], 2 - index % 3
        assert same(row[1], as_bytes(one.render(torch.tensor(every.mean(0)).float()).image))
        step = 2 * np.sqrt(values[axis]) * vectors[:, axis]
        ends = [as_bytes(one.render(torch.tensor(every.mean(0) + sign * step).float()).image) for sign in (-1, 1)]
        forth = same(row[0], ends[0]) and same(row[2], ends[1])
        back = same(row[0], ends[1]) and same(row[2], ends[0])
        assert forth or back
    text = words(sheet)
    assert text[:3] == ["-2.0 sd", "middle", "+2.0 sd"]
    shares = [f"axis {place + 1} ({value / values.sum():.0%})" for place, value in enumerate(values[::-1])]
    assert [word for word in text if word.startswith("axis")] == shares * 2


def test_novel_views_stand_below_the_pictures() -> None:
    scenes, held_out = [scene(0), scene(1)], [pictures(7, 2), pictures(8, 2)]
    rows = cells(novel_views_figure(scenes, held_out))
    for index, (one, new) in enumerate(zip(scenes, held_out, strict=True)):
        views = one.estimate(new)
        for place in range(2):
            assert same(rows[2 * index][place], as_bytes(new[place]))
            assert same(rows[2 * index + 1][place], as_bytes(one.render(views[place]).image))
