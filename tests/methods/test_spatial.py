"""Spatial transformers: hand-computed boxes, and torch's own sampler as a second opinion, forward and backward."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from viewslots.methods.spatial import crop, paste


def boxes(*sides: tuple[float, float, float, float]) -> tuple[Tensor, Tensor]:
    values = torch.tensor(sides, dtype=torch.float64)
    return values[:, :2], values[:, 2:]


def test_the_whole_picture_is_its_own_glimpse():
    picture = torch.rand(1, 2, 6, 6, dtype=torch.float64)
    torch.testing.assert_close(crop(picture, *boxes((1, 1, 0, 0)), 6), picture)


def test_the_upper_right_quarter_of_a_picture_by_hand():
    picture = torch.arange(16.0).double().view(1, 1, 4, 4)
    expected = torch.tensor([[2.0, 3.0], [6.0, 7.0]], dtype=torch.float64)
    torch.testing.assert_close(crop(picture, *boxes((0.5, 0.5, 0.5, -0.5)), 2)[0, 0], expected)


def test_half_a_pixel_beyond_the_border_halves_the_light():
    picture = torch.ones(1, 1, 4, 4).double()
    # A quarter of the width to the right of the whole: its last column lies a whole pixel outside.
    glimpse = crop(picture, *boxes((1, 1, 0.25, 0)), 4)[0, 0]
    torch.testing.assert_close(glimpse[0], torch.tensor([1.0, 1.0, 1.0, 0.5], dtype=torch.float64))


def test_a_glimpse_is_pasted_where_its_box_is_by_hand():
    glimpse = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)[None, None]
    expected = torch.zeros(4, 4, dtype=torch.float64)
    expected[2:, :2] = glimpse[0, 0]
    # Pixels of glimpse and picture are of one size, so that only neighbours outside the box mix, and those are zeros.
    torch.testing.assert_close(paste(glimpse, *boxes((0.5, 0.5, -0.5, 0.5)), (4, 4))[0, 0], expected)


@pytest.mark.parametrize("what", ["crop", "paste"])
def test_forward_and_gradients_are_those_of_grid_sample(what):
    generator = torch.Generator().manual_seed(3)
    scale = (0.2 + torch.rand(5, 2, generator=generator, dtype=torch.float64)).requires_grad_()
    shift = (torch.rand(5, 2, generator=generator, dtype=torch.float64) - 0.5).requires_grad_()
    maps = torch.rand(5, 3, 8, 8, generator=generator, dtype=torch.float64, requires_grad=True)
    ours = crop(maps, scale, shift, 6) if what == "crop" else paste(maps, scale, shift, (12, 10))

    stretch, move = (scale, shift) if what == "crop" else (1 / scale, -shift / scale)
    matrix = torch.cat([torch.diag_embed(stretch), move[..., None]], -1)
    grid = F.affine_grid(matrix, [5, 3, *ours.shape[-2:]], align_corners=False)
    theirs = F.grid_sample(maps, grid, padding_mode="zeros", align_corners=False)

    torch.testing.assert_close(ours, theirs)
    weights = torch.rand(ours.shape, generator=generator, dtype=torch.float64)
    given = (maps, scale, shift)
    for mine, other in zip(
        torch.autograd.grad((ours * weights).sum(), given),
        torch.autograd.grad((theirs * weights).sum(), given),
        strict=True,
    ):
        torch.testing.assert_close(mine, other)


def test_half_precision_glimpses_are_pasted_in_full():
    glimpse = torch.rand(1, 1, 4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        inside = paste(glimpse, *(value.float() for value in boxes((0.6, 0.7, 0.1, 0.2))), (8, 8))
    outside = paste(glimpse, *(value.float() for value in boxes((0.6, 0.7, 0.1, 0.2))), (8, 8))
    assert inside.dtype == torch.float32
    assert torch.equal(inside, outside)
