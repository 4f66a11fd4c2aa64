"""Objects that are drawn in boxes: where boxes lie, what is pasted where, and that they shrink around what is drawn."""

from dataclasses import replace

import pytest
import torch
from small_model import SMALL_OCLOC, generator
from torch import Tensor
from torch.nn import functional as F

from viewslots.errors import UserError
from viewslots.methods.noise import Sampler
from viewslots.methods.ocloc.boxes import LEAST_HALF, OUTSIDE, WIDER, box_distance, boxes_around, placed, told_boxes
from viewslots.methods.ocloc.config import DecoderConfig, OclocConfig
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.variables import Decoded
from viewslots.methods.umbra.config import UmbraConfig
from viewslots.methods.umbra.model import Umbra
from viewslots.types import SceneBatch

BOXED = replace(
    SMALL_OCLOC,
    box_fit=50.0,
    object_decoder=DecoderConfig(
        kind="compact", hidden=(16,), grid=6, grid_channels=6, stages=((1, 3, 6),), final_scale=2
    ),
)


def test_numbers_of_zero_are_a_box_that_is_nearly_the_picture() -> None:
    boxes = told_boxes(torch.zeros(2, 3), (16, 16))
    assert boxes[:, :2].unique().item() == pytest.approx(LEAST_HALF + (1 - LEAST_HALF) / (1 + 2.718281828**-2))
    assert not boxes[:, 2:].any()


def test_boxes_are_bounded_and_square_in_pixels() -> None:
    boxes = told_boxes(torch.tensor([[-99.0, 99.0, -99.0], [99.0, 0.0, 0.0]]), (16, 64))
    pixels = boxes[:, :2] * torch.tensor([64.0, 16.0]) / 2
    assert torch.allclose(pixels[:, 0], pixels[:, 1])
    assert pixels[0, 0] == pytest.approx(LEAST_HALF * 16)  # of the side of a square of as many pixels
    assert pixels[1, 0] == pytest.approx(32)  # the longer side
    assert boxes[0, 2:].tolist() == [1.0, -1.0]


def sampled(maps: Tensor, half: Tensor, centre: Tensor, size: tuple[int, int]) -> Tensor:
    """By torch's own spatial transformer, with zeros outside."""
    theta = torch.zeros(len(maps), 2, 3, dtype=maps.dtype)
    theta[:, [0, 1], [0, 1]] = 1 / half
    theta[:, :, 2] = -centre / half
    grid = F.affine_grid(theta, [len(maps), maps.shape[1], *size], align_corners=False)
    return F.grid_sample(maps, grid, align_corners=False)


@pytest.mark.parametrize("channels", [4, 5])
@pytest.mark.parametrize("size", [(16, 16), (10, 22)])
def test_what_is_drawn_comes_to_its_place(channels: int, size: tuple[int, int]) -> None:
    drawn = torch.randn(6, channels, 8, 8, generator=generator()).double()
    boxes = told_boxes(torch.randn(6, 3, generator=generator(1)).double(), size)
    half, centre = boxes[:, :2], boxes[:, 2:]
    found = placed(drawn, boxes, size)
    assert torch.allclose(found[:, :1], sampled(drawn[:, :1] - OUTSIDE, half, centre, size) + OUTSIDE)
    assert torch.allclose(found[:, 1:4], sampled(drawn[:, 1:4], half, centre, size))
    assert found.shape[1] == channels
    if channels > 4:
        assert torch.allclose(found[:, 4:], sampled(drawn[:, 4:] - OUTSIDE, WIDER * half, centre, size) + OUTSIDE)


def test_outside_its_box_nothing_is_there() -> None:
    box = torch.tensor([[0.25, 0.25, 0.5, -0.5]])
    found = placed(torch.full((1, 5, 8, 8), 3.0), box, (32, 32))
    inside = found[0, 0] > 0
    rows, columns = inside.nonzero().unbind(1)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (4, 11, 20, 27)  # 8 pixels around (24, 8)
    assert (found[0, 0, 20:] == OUTSIDE).all()
    rows, columns = (found[0, 4] > 0).nonzero().unbind(1)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (
        1,
        14,
        17,
        30,
    )  # of the shadow's 16 pixels, but the edge
    assert found[0, 4, 17:].max() == OUTSIDE


def decoded(shapes: Tensor, boxes: Tensor) -> Decoded:
    """Of one scene in one view."""
    K, H, W = shapes.shape
    objects = torch.cat([shapes[:, None], torch.zeros(K, 3, H, W)], 1)
    return Decoded(torch.zeros(1, 3, H, W), objects, torch.zeros(1, 1, K), torch.zeros(1, 1, K, 2), boxes[None, None])


def test_box_distance_by_hand() -> None:
    """A square of 8x8 pixels of 32x32, around column 8 and row 20: standard deviation sqrt(63 / 12) pixels."""
    logit = torch.full((1, 32, 32), -50.0)
    logit[0, 16:24, 4:12] = 50.0
    right = torch.tensor([[3 * (63 / 12) ** 0.5 / 16] * 2 + [8 / 16 - 1, 20 / 16 - 1]])
    assert box_distance(decoded(logit, right)).item() == pytest.approx(0, abs=1e-6)
    off = right + torch.tensor([[0.1, 0.2, -0.3, 0.0]])
    assert box_distance(decoded(logit, off)).item() == pytest.approx(0.01 + 0.04 + 0.09, rel=1e-3)


def test_only_boxes_are_drawn_to_shapes() -> None:
    logit = torch.randn(2, 16, 16, generator=generator()).requires_grad_()
    boxes = torch.rand(2, 4, generator=generator(1)).requires_grad_()
    box_distance(decoded(logit, boxes)).sum().backward()
    assert boxes.grad is not None
    assert boxes.grad.abs().min() > 0
    assert logit.grad is None or not logit.grad.any()


def some_batch() -> SceneBatch:
    mask = torch.tensor([[True, True], [True, False]])
    return SceneBatch(torch.rand(2, 2, 3, 16, 16, generator=generator(5)) * mask[:, :, None, None, None], mask)


@pytest.mark.parametrize("kind", [Ocloc, Umbra])
def test_box_distance_is_part_of_the_loss_over_real_views(kind: type[Ocloc]) -> None:
    config = BOXED if kind is Ocloc else UmbraConfig(**vars(BOXED))
    batch, prices = some_batch(), []
    for fit in (50.0, 80.0):
        model = kind(replace(config, box_fit=fit), generator()).eval()
        noise = model.draw_noise(batch, generator(2))
        prices.append(model.elbo(batch, model.annealed(), noise).costs)
    latents = model.sample(model.infer_posterior(batch, noise), noise, model.annealed())
    found = box_distance(model.generation(latents))
    assert torch.allclose(prices[1] - prices[0], 30 * torch.stack([found[0].sum(), found[1, 0].sum()]), rtol=1e-4)


def test_the_paper_has_no_boxes() -> None:
    model = Ocloc(SMALL_OCLOC)
    assert model.generation.f_box is None
    assert not [name for name in model.state_dict() if "f_box" in name]
    assert OclocConfig().box_fit == 0
    assert OclocConfig.from_json({k: v for k, v in SMALL_OCLOC.to_json().items() if k != "box_fit"}) == SMALL_OCLOC


def test_a_box_has_pixels_of_its_own_whatever_the_picture() -> None:
    larger = BOXED.sized(24, 32)
    assert larger.object_decoder == BOXED.object_decoder
    assert larger.background_decoder.size == (24, 32)
    model = Ocloc(larger)
    batch = SceneBatch(torch.rand(1, 2, 3, 24, 32, generator=generator()), torch.ones(1, 2, dtype=torch.bool))
    assert model.infer(batch, generator()).decomposition().complete_shapes.shape == (1, 2, 3, 24, 32)
    given = Umbra(UmbraConfig(**vars(larger))).weights_from(Ocloc(BOXED))
    assert given is not None  # also from a model of other pictures


def test_boxes_shrink_around_what_is_drawn() -> None:
    """A decoder that is told where a disc lies learns to draw it, and its box goes along: 250 steps."""
    torch.manual_seed(0)
    generation = Ocloc(replace(BOXED, attr_dim=2, view_dim=1), generator()).generation
    optimiser = torch.optim.Adam(generation.parameters(), 5e-3)
    row, column = torch.meshgrid(*[torch.linspace(-1, 1, 16)] * 2, indexing="ij")
    draws = generator(3)

    def drawn(place: Tensor) -> tuple[Decoded, Tensor]:
        code = torch.cat([torch.zeros(len(place), 1), place], 1)
        boxes = told_boxes(generation.f_box(code), (16, 16))
        objects = placed(generation.f_shp_apc(code), boxes, (16, 16))
        count, empty = len(place), torch.zeros(len(place), 1, 1, 2)
        made = Decoded(torch.zeros(count, 3, 16, 16), objects, torch.zeros(count, 1, 1), empty, boxes[:, None, None])
        distance = ((column - place[:, :1, None]) ** 2 + (row - place[:, 1:, None]) ** 2).sqrt()
        return made, (distance < 0.3).float()

    for _ in range(250):
        made, disc = drawn(1.2 * torch.rand(32, 2, generator=draws) - 0.6)
        error = F.binary_cross_entropy_with_logits(made.objects[:, 0], disc, reduction="none").sum((1, 2))
        optimiser.zero_grad()
        (error + 50 * box_distance(made).flatten()).mean().backward()
        optimiser.step()
    place = torch.tensor([[-0.5, 0.3], [0.4, -0.4]])
    made, disc = drawn(place)
    boxes, on = made.boxes[:, 0, 0], made.objects[:, 0] > 0  # type: ignore[index]
    assert ((on & (disc > 0)).sum((1, 2)) / (on | (disc > 0)).sum((1, 2))).min() > 0.7
    assert (boxes[:, 2:] - place).abs().max() < 0.15
    assert boxes[:, :2].max() < 0.65  # nine tenths of the picture at first
    assert (boxes - boxes_around(disc)).abs().max() < 0.2


def test_boxes_begin_as_nearly_the_picture_whatever_the_code() -> None:
    model = Ocloc(BOXED, generator())
    latents = model.generation.prior(2, 3, 4, 1.0, Sampler(generator(1), torch.device("cpu")))
    found = model.generation(latents).boxes
    assert found is not None
    assert torch.equal(found, told_boxes(torch.zeros(2, 3, 4, 3), (16, 16)))


@pytest.mark.parametrize("grid", [(6, 4), 4096])
def test_boxes_are_square_and_no_larger_than_need_be(grid: tuple[int, int] | int) -> None:
    with pytest.raises(UserError, match="they must be square, of at most 256 pixels"):
        replace(BOXED, object_decoder=replace(BOXED.object_decoder, grid=grid))


def test_half_precision_keeps_boxes_exact() -> None:
    """Patches are rounded, places are not; gradients are numbers."""
    model, batch = Ocloc(replace(BOXED, slots=1), generator()), some_batch()
    noise = model.draw_noise(batch, generator(2))
    with torch.autocast("cpu", torch.bfloat16):
        losses = model(batch, model.annealed(), noise)
        decoded_now = model.generation(model.sample(model.infer_posterior(batch, noise), noise, model.annealed()))
    assert decoded_now.boxes is not None
    assert decoded_now.boxes.dtype == decoded_now.objects.dtype == torch.float32
    losses.minimised.sum().backward()
    assert all(value.grad.isfinite().all() for value in model.generation.parameters() if value.grad is not None)
