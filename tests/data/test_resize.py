"""Other sizes: against what training did before, against loops over pixels, and against Pillow."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from fake_world import FakeWorld
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.nn.functional import avg_pool2d

from viewslots.data.dataset import SceneDataset
from viewslots.data.resize import Resize
from viewslots.data.store import SplitArrays
from viewslots.errors import UserError
from viewslots.types import Pictures


def random_pictures(size: tuple[int, int], lead: tuple[int, ...] = (2, 3), seed: int = 0) -> torch.Tensor:
    return torch.rand(*lead, *size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("factor", [1, 2, 3, 4])
def test_whole_multiples_are_means_to_the_bit(factor: int) -> None:
    """The formula that models were trained with."""
    values = random_pictures((12, 12))
    before = avg_pool2d(values.flatten(0, -3)[:, None], factor).view(2, 3, 12 // factor, 12 // factor)
    assert torch.equal(Resize.between((12, 12), (12 // factor, 12 // factor)).pictures(values), before)


@pytest.mark.parametrize("factor", [1, 2, 3, 4])
def test_labels_of_whole_multiples_are_those_in_the_middle(factor: int) -> None:
    labels = torch.arange(144, dtype=torch.uint8).view(12, 12)
    middle = slice(factor // 2, None, factor)
    small = Resize.between((12, 12), (12 // factor, 12 // factor)).labels(labels)
    assert torch.equal(small, labels[middle, middle])


SIDES = st.integers(1, 40)


@settings(max_examples=200, deadline=None)
@given(SIDES, SIDES, SIDES, SIDES)
def test_the_window_is_the_largest_of_its_shape_in_the_middle(height: int, width: int, h: int, w: int) -> None:
    resize = Resize.between((height, width), (h, w))
    ch, cw = resize.crop_height, resize.crop_width
    assert 1 <= ch <= height
    assert 1 <= cw <= width
    assert height in (ch, 0) or width == cw, "one side is kept whole"
    scale = min(height / h, width / w)
    assert abs(ch - max(1, scale * h)) <= 0.5 + 1e-9
    assert abs(cw - max(1, scale * w)) <= 0.5 + 1e-9
    assert abs(2 * resize.top + ch - height) <= 1
    assert abs(2 * resize.left + cw - width) <= 1


@settings(max_examples=100, deadline=None)
@given(SIDES, SIDES, SIDES, SIDES)
def test_labels_are_what_lies_in_the_middle_of_a_pixel(height: int, width: int, h: int, w: int) -> None:
    labels = torch.randint(0, 256, (height, width), generator=torch.Generator().manual_seed(height), dtype=torch.uint8)
    resize = Resize.between((height, width), (h, w))
    small = resize.labels(labels)
    assert small.shape == (h, w)
    for i in range(h):
        for j in range(w):
            row = resize.top + int(Fraction(2 * i + 1, 2 * h) * resize.crop_height)
            column = resize.left + int(Fraction(2 * j + 1, 2 * w) * resize.crop_width)
            assert small[i, j] == labels[row, column]


@pytest.mark.parametrize(("stored", "wanted"), [((48, 64), (20, 20)), ((50, 30), (16, 24)), ((30, 30), (13, 13))])
def test_smaller_pictures_are_those_of_pillow(stored: tuple[int, int], wanted: tuple[int, int]) -> None:
    values = random_pictures(stored, ())
    resize = Resize.between(stored, wanted)
    box = (resize.left, resize.top, resize.left + resize.crop_width, resize.top + resize.crop_height)
    expected = Image.fromarray(values.numpy()).crop(box).resize(wanted[::-1], Image.Resampling.BILINEAR)
    np.testing.assert_allclose(resize.pictures(values), np.asarray(expected), atol=2e-6)


@pytest.mark.parametrize(("stored", "wanted"), [((9, 12), (18, 18)), ((8, 8), (11, 11))])
def test_larger_pictures_are_those_of_pillow(stored: tuple[int, int], wanted: tuple[int, int]) -> None:
    values = random_pictures(stored, ())
    side = min(stored)
    left = (stored[1] - side) // 2
    square = Image.fromarray(values.numpy()).crop((left, 0, left + side, side))
    expected = square.resize(wanted, Image.Resampling.BILINEAR)
    np.testing.assert_allclose(Resize.between(stored, wanted).pictures(values), np.asarray(expected), atol=2e-6)


def test_a_crop_alone_keeps_the_values() -> None:
    values = 255 * random_pictures((6, 10))
    small = Resize.between((6, 10), (6, 6)).pictures(values)
    assert torch.equal(small, values[..., 2:8])
    assert small.is_contiguous()
    assert torch.equal(Resize.between((4, 5), (4, 4)).alpha(values.byte()[..., :4, :5]), values.byte()[..., :4, :4])


@pytest.mark.parametrize(("stored", "wanted"), [((24, 32), (8, 8)), ((24, 32), (11, 11)), ((20, 20), (33, 33))])
def test_a_circle_stays_a_circle(stored: tuple[int, int], wanted: tuple[int, int]) -> None:
    height, width = stored
    row, column = np.mgrid[:height, :width] + 0.5
    radius = 0.35 * height
    disc = torch.from_numpy((np.hypot(row - height / 2, column - width / 2) < radius).astype(np.float32))
    small = Resize.between(stored, wanted).pictures(disc)
    across, down = small.sum(1).max(), small.sum(0).max()
    assert abs(across - down) < 1
    assert small.sum() == pytest.approx(np.pi * (0.35 * wanted[0]) ** 2, rel=0.08)


@pytest.mark.parametrize("wanted", [(0, 4), (4, -1), (5000, 4)])
def test_senseless_sizes_are_refused(wanted: tuple[int, int]) -> None:
    with pytest.raises(UserError, match=f"pictures of {wanted[0]}x{wanted[1]} pixels asked for"):
        Resize.between((8, 8), wanted)


def split() -> SplitArrays:
    class Square(FakeWorld):
        height = width = 12

    world = Square()
    scenes = [world.sample(1, "train", index) for index in range(3)]
    return SplitArrays.from_pictures("train", world.render(scenes, 3))


@pytest.mark.parametrize("resident", [False, True])
def test_a_data_set_gives_pictures_and_truth_in_its_size(resident: bool) -> None:
    whole, small = SceneDataset(split()), SceneDataset(split(), size=(4, 4), resident=resident)
    assert torch.equal(
        small.batch([2, 0]).image, avg_pool2d(whole.batch([2, 0]).image.flatten(0, 1), 3).view(2, 3, 3, 4, 4)
    )
    truth, before = small.truth([2, 0]), whole.truth([2, 0])
    assert torch.equal(truth.segment, before.segment[..., 1::3, 1::3])
    assert torch.equal(truth.overlap, before.overlap[..., 1::3, 1::3])
    for name in ("shapes", "shadows"):
        stored, made = getattr(before, name).numpy().astype(float), getattr(truth, name).numpy()
        for place in np.ndindex(made.shape):
            *lead, i, j = place
            square = stored[(*lead, slice(3 * i, 3 * i + 3), slice(3 * j, 3 * j + 3))]
            assert abs(made[place] - square.mean()) <= 0.5 + 1e-4
    assert torch.equal(truth.depth_order, before.depth_order)


def test_padded_views_stay_empty_and_missing_truth_missing() -> None:
    class Fewer:
        most = None

        def choose(self, scene: int, stored: int) -> list[int]:
            return list(range(1 + scene))

    arrays = {key: array for key, array in split().arrays.items() if key in ("image", "segment")}
    data = SceneDataset(SplitArrays("train", split().size, arrays), views=Fewer(), size=(5, 7))
    batch, truth = data.batch([0, 2]), data.truth([0, 2])
    assert batch.view_mask.tolist() == [[True, False, False], [True, True, True]]
    assert not batch.image[0, 1:].any()
    assert batch.image.shape == (2, 3, 3, 5, 7)
    assert (truth.segment[0, 1:] == 255).all()
    assert truth.shapes is truth.overlap is truth.shadows is truth.num_objects is None


def test_a_grey_picture_stays_grey() -> None:
    grey = Pictures(np.full((1, 1, 9, 14, 3), 100, np.uint8))
    for size in ((9, 14), (3, 3), (5, 4), (20, 30)):
        image = SceneDataset(SplitArrays.from_pictures("x", replace(grey)), size=size).batch([0]).image
        torch.testing.assert_close(image, torch.full((1, 1, 3, *size), 100 / 255))
