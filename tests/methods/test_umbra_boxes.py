"""Umbra draws an object a second time in its box: boxes by hand, what is added where, and that it starts as nothing."""

from dataclasses import replace

import pytest
import torch
from small_model import SMALL_OCLOC, generator
from torch import Tensor, nn

from viewslots.errors import UserError
from viewslots.methods.contract import Search
from viewslots.methods.ocloc.config import StartConfig
from viewslots.methods.ocloc.generation import last_convolution
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.variables import Latents
from viewslots.methods.umbra.boxes import BoxedGeneration, boxes_of
from viewslots.methods.umbra.config import UmbraConfig, UmbraSchedule
from viewslots.methods.umbra.glimpses import with_picture
from viewslots.methods.umbra.model import Umbra
from viewslots.types import SceneBatch

torch.set_num_threads(1)

START = StartConfig(shape_logit=-2.0, presence_logit=2.0, log_sigma=-3.0, query_gain=4.0)
BEFORE = UmbraConfig(**vars(SMALL_OCLOC) | {"start": START})
SMALL = replace(BEFORE, box_size=8)
DETAILED = replace(SMALL, box_dim=3, glimpses=2, glimpse_size=8, glimpse_channels=(6, 6))


def awake(config: UmbraConfig = SMALL) -> Umbra:
    """It adds something: the last layer of its boxes does not start at zero."""
    model = Umbra(config, generator(1))
    with torch.no_grad():
        last_convolution(boxed(model).f_box).weight.normal_(0, 0.3, generator=generator(5))
    return model


def boxed(model: Umbra) -> BoxedGeneration:
    assert isinstance(model.generation, BoxedGeneration)
    return model.generation


def some_latents(model: Umbra, K: int = 3) -> Latents:
    drawn, config = generator(3), model.config
    sizes = ((2, 2, config.view_dim), (2, config.background_dim), (2, K, config.attr_dim + config.box_dim), (2, K))
    return Latents(*(torch.randn(size, generator=drawn) for size in sizes))


def some_batch() -> SceneBatch:
    return SceneBatch(torch.rand(2, 2, 3, 16, 16, generator=generator(3)), torch.ones(2, 2, dtype=torch.bool))


# Boxes.


def test_the_box_of_a_rectangle_by_hand() -> None:
    """Columns 2 to 9 and rows 8 to 11 of 16: eight wide, so a standard deviation of sqrt((64 - 1) / 12) pixels."""
    shape = torch.zeros(1, 1, 1, 16, 16)
    shape[..., 8:12, 2:10] = 1.0
    whole, box = with_picture(boxes_of(shape))[0, 0].unbind(0)
    assert whole.tolist() == [1, 1, 0, 0]
    half, across, down = 3 * ((64 - 1) / 12) ** 0.5 / 8, (6 - 8) / 8, (10 - 8) / 8
    torch.testing.assert_close(box, torch.tensor([half, half, across, down]), atol=1e-3, rtol=0)


def test_the_faint_surroundings_of_a_small_object_do_not_widen_its_box() -> None:
    """Four pixels among 4,096 that are there by a tenth: a standard deviation of half a pixel."""
    shape = torch.full((1, 1, 1, 64, 64), 0.1)
    shape[..., 20:22, 40:42] = 0.9
    half, _, across, down = boxes_of(shape)[0, 0, 0].tolist()
    assert half == pytest.approx(0.2)
    assert (across, down) == (pytest.approx((41 - 32) / 32, abs=0.01), pytest.approx((21 - 32) / 32, abs=0.01))


@pytest.mark.parametrize("size", [(16, 32), (72, 96)])
def test_where_nothing_is_drawn_in_an_oblong_picture(size: tuple[int, int]) -> None:
    """A square that holds the picture; nothing of it is left out."""
    wide, high, across, down = boxes_of(torch.zeros(1, 1, 1, *size))[0, 0, 0].tolist()
    assert min(wide, high) == pytest.approx(1.0)
    assert wide * size[1] == pytest.approx(high * size[0])
    assert (across, down) == (pytest.approx(0, abs=1e-5), pytest.approx(0, abs=1e-5))


def test_where_nothing_is_drawn_the_box_is_the_picture_and_no_box_is_tiny() -> None:
    shapes = torch.zeros(1, 1, 2, 16, 16)
    shapes[0, 0, 1, 5, 5] = 1.0
    nothing, dot = boxes_of(shapes)[0, 0].unbind(0)
    torch.testing.assert_close(nothing, torch.tensor([1.0, 1.0, 0.0, 0.0]))
    assert dot[:2].min() >= 0.2
    torch.testing.assert_close(dot[2:], torch.full((2,), (5.5 - 8) / 8), atol=0.03, rtol=0)


def test_boxes_are_square_in_pixels() -> None:
    """A square of 6 x 6 pixels in a picture of 16 x 32."""
    shape = torch.zeros(1, 1, 1, 16, 32)
    shape[..., 4:10, 10:16] = 1.0
    wide, high = boxes_of(shape)[0, 0, 0, :2].tolist()
    assert wide * 32 == pytest.approx(high * 16)
    assert high * 8 == pytest.approx(3 * (35 / 12) ** 0.5, rel=0.03)


# What is drawn in them.


class Says(nn.Module):
    """A network that says the same of everything."""

    def __init__(self, answer: Tensor) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, code: Tensor) -> Tensor:
        return self.answer.expand(len(code), *self.answer.shape)


def drawn_with(shape: Tensor, added: Tensor) -> Tensor:
    """Of an object decoder that says `shape` and nothing else, and boxes in which `added` is drawn."""
    generation = boxed(Umbra(SMALL, generator(1)))
    said = torch.stack([shape, *torch.zeros(4, *shape.shape)])
    generation.f_shp_apc, generation.f_box = Says(said), Says(added)
    nothing = Latents(torch.zeros(1, 1, 4), torch.zeros(1, 8), torch.zeros(1, 1, 5), torch.zeros(1, 1))
    return generation(nothing).objects[0] - said


def test_what_is_added_lies_in_the_box_and_shadows_are_left_alone() -> None:
    """A square of 4x4 pixels: a standard deviation of sqrt(15 / 12), so a box from 3.35 pixels before its middle."""
    shape = torch.full((16, 16), -20.0)
    shape[6:10, 2:6] = 20.0
    added = drawn_with(shape, torch.arange(1.0, 5.0)[:, None, None].expand(4, 8, 8))
    for channel in range(4):
        torch.testing.assert_close(added[channel, 5:11, 1:7], torch.full((6, 6), channel + 1.0))
    assert not added[:, :4].any()
    assert not added[:, 12:].any()
    assert not added[:, :, 8:].any()
    assert not added[4].any()


def test_what_is_added_moves_with_the_object() -> None:
    shape = torch.full((16, 16), -20.0)
    shape[3:7, 4:9] = 20.0
    looks = torch.randn(4, 8, 8, generator=generator(2))
    here, there = drawn_with(shape, looks), drawn_with(shape.roll((5, 3), (0, 1)), looks)
    assert here.any()
    torch.testing.assert_close(there, here.roll((5, 3), (1, 2)), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("config", [SMALL, DETAILED], ids=["boxes", "details"])
def test_the_second_drawing_knows_the_code_and_the_box(config: UmbraConfig) -> None:
    """The first one knows nothing of details."""
    model, known = awake(config), []
    boxed(model).f_box.register_forward_hook(lambda network, given, answer: known.append((given[0], answer)))
    latents = some_latents(model)
    drawn = model.generation(latents).objects
    ((given, added),) = known
    first = Ocloc.build_generation(model)
    first.load_state_dict(model.generation.state_dict(), strict=False)
    before = first(replace(latents, z_attr=latents.z_attr[..., : config.attr_dim])).objects
    codes = torch.cat(
        [latents.z_view[:, :, None].expand(-1, -1, 3, -1), latents.z_attr[:, None].expand(-1, 2, -1, -1)], -1
    )
    boxes = boxes_of(before[:, 0].sigmoid())
    torch.testing.assert_close(given, torch.cat([codes.flatten(0, 2), boxes], -1))
    one, (half_x, half_y, x, y) = 7, boxes[7].tolist()
    turned = torch.tensor([[[1 / half_x, 0, -x / half_x], [0, 1 / half_y, -y / half_y]]])
    grid = nn.functional.affine_grid(turned, [1, 4, 16, 16], align_corners=False)
    expected = nn.functional.grid_sample(added[one : one + 1], grid, align_corners=False)[0]
    torch.testing.assert_close(drawn[one, :4] - before[one, :4], expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(drawn[:, 4], before[:, 4])


@pytest.mark.parametrize("config", [SMALL, DETAILED], ids=["boxes", "details"])
def test_it_starts_as_if_there_were_no_boxes(config: UmbraConfig) -> None:
    before, model = Umbra(BEFORE, generator(1)), Umbra(config, generator(1))
    model.load_state_dict(before.state_dict(), strict=False)
    latents = some_latents(model)
    with_boxes = model.generation(latents)
    without = before.generation(replace(latents, z_attr=latents.z_attr[..., : config.attr_dim]))
    assert all(torch.equal(value, getattr(without, name)) for name, value in vars(with_boxes).items())


@pytest.mark.parametrize("name", ["z_view", "z_attr"])
def test_slopes_follow_the_box(name: str) -> None:
    """Where a code moves the box, its gradient says so: by finite differences in float64."""
    model = awake().double()
    latents = some_latents(model)
    latents = replace(latents, **{key: value.double() for key, value in vars(latents).items()})
    value = getattr(latents, name).requires_grad_()
    way = torch.randn(value.shape, generator=generator(4)).double()
    weights = torch.randn(12, 5, 16, 16, generator=generator(6)).double()

    def weighed(step: float) -> Tensor:
        return (model.generation(replace(latents, **{name: value + step * way})).objects * weights).sum()

    (gradient,) = torch.autograd.grad(weighed(0.0), value)
    with torch.no_grad():
        expected = (weighed(1e-6) - weighed(-1e-6)) / 2e-6
    torch.testing.assert_close((gradient * way).sum(), expected, rtol=1e-4, atol=1e-6)


# Details.


def test_algorithm_1_knows_no_details_and_glimpses_tell_them_anew_each_round() -> None:
    """Means and deviations of the prior at first; then means add up over rounds, and deviations are the last told."""
    model, D = Umbra(DETAILED, generator(1)), DETAILED.attr_dim
    before, batch = (
        Umbra(BEFORE, generator(1)),
        SceneBatch(torch.rand(2, 2, 3, 16, 16), torch.ones(2, 2, dtype=torch.bool)),
    )
    model.load_state_dict(before.state_dict(), strict=False)
    noise = model.draw_noise(batch, generator(2))
    first = model.infer_posterior(batch, noise)
    known = before.infer_posterior(batch, replace(noise, z_attr=noise.z_attr[..., :D]))
    assert torch.equal(first.mu_attr[..., :D], known.mu_attr)
    assert torch.equal(first.log_sigma_attr[..., :D], known.log_sigma_attr)
    assert not first.mu_attr[..., D:].any()
    assert not first.log_sigma_attr[..., D:].any()
    [again] = model.infer_posteriors(batch, [noise])
    assert torch.equal(again.mu_attr, first.mu_attr)
    assert model.find_objects(batch, first, noise).mu_attr.shape == first.mu_attr.shape
    assert model.glimpses is not None
    one = model.glimpses(batch, first, model.drawing(batch, first), DETAILED.sigma_x)
    two = model.looked_at(batch, first)
    for told in (one, two):
        assert torch.equal(told.mu_attr[..., :D], known.mu_attr)
        torch.testing.assert_close(told.log_sigma_attr[..., D:], torch.full((2, 3, 3), -2.0))
    assert one.mu_attr[..., D:].abs().min() > 0
    torch.testing.assert_close(two.mu_attr[..., D:] - one.mu_attr[..., D:], one.mu_attr[..., D:], rtol=1, atol=0.2)


def test_a_model_with_details_learns_answers_and_dreams() -> None:
    """Who draws and who tells them learn; a plain and a searched answer, and scenes from the prior, have them."""
    model, batch = awake(DETAILED), some_batch()
    losses = model(batch, UmbraSchedule().at(100_000), model.draw_noise(batch, generator()))
    torch.autograd.backward(losses.minimised.mean())
    assert model.glimpses is not None
    for part in (boxed(model).f_box, model.glimpses.features, model.glimpses.to_object):
        assert all(parameter.grad is not None and parameter.grad.any() for parameter in part.parameters())
    for search in (None, Search(2, looks=1, refinement=2)):
        answer = model.infer(batch, generator(), search=search)
        assert answer.object_codes.shape == (2, 3, DETAILED.attr_dim + 3)
        assert answer.decomposition().reconstruction.isfinite().all()
    assert model.sample_codes(2, 3, generator()).objects.shape == (3, DETAILED.attr_dim + 3)


# Weights.


def test_trained_models_without_boxes_go_on_with_them() -> None:
    """From an OCLOC or an Umbra; boxes begin as their own. A model without boxes leaves another's out."""
    model = awake()
    own = {name: value for name, value in model.state_dict().items() if name.startswith("generation.f_box.")}
    for other in (Ocloc(replace(SMALL_OCLOC, start=START), generator(9)), Umbra(BEFORE, generator(9))):
        given = model.weights_from(other)
        assert given is not None
        assert given.keys() == model.state_dict().keys()
        assert all(torch.equal(given[name], value) for name, value in own.items())
        assert torch.equal(given["inference.mu_hat"], other.inference.mu_hat)
    without = Umbra(BEFORE, generator(2)).weights_from(model)
    assert without is not None
    assert without.keys() == Umbra(BEFORE).state_dict().keys()
    both = Umbra(replace(SMALL, glimpses=1), generator(2)).weights_from(model)
    assert both is not None
    assert all(torch.equal(both[name], value) for name, value in own.items())


def test_whose_boxes_a_model_has_that_starts_from_another() -> None:
    """Its own where the other has none, else the other's; glimpses likewise, each for itself."""
    glimpses = replace(BEFORE, glimpses=2)
    assert Umbra.config_from(SMALL, Umbra(glimpses)) == replace(SMALL, glimpses=2)
    assert Umbra.config_from(glimpses, Umbra(SMALL)) == replace(SMALL, glimpses=2)
    assert Umbra.config_from(BEFORE, Umbra(SMALL)) == SMALL
    assert Umbra.config_from(replace(SMALL, box_size=16), Umbra(SMALL)) == SMALL


def test_older_settings_have_no_boxes_and_odd_sizes_are_refused() -> None:
    values = BEFORE.to_json()
    del values["box_size"], values["box_dim"]
    assert UmbraConfig.from_json(values) == BEFORE
    assert UmbraConfig.from_json(SMALL.to_json()) == SMALL
    with pytest.raises(UserError, match="multiple of 4"):
        replace(SMALL, box_size=10)
    with pytest.raises(UserError, match="details need boxes and glimpses"):
        replace(SMALL, box_dim=3)


def test_boxes_learn_corners() -> None:
    """A turned square somewhere in a picture, from codes that tell where: the object decoder of pictures draws a disc.

    With it fixed as it is then, the boxes alone bring the overlap up, on squares that neither was trained on."""
    centres = (torch.arange(32) + 0.5) / 16 - 1

    def squares(count: int, seed: int) -> tuple[Latents, Tensor]:
        """Codes (angle, place, nothing more), and what they mean."""
        x, y, turn = torch.rand(3, count, 1, 1, generator=generator(seed)) * 2 - 1
        across, down, turn = centres - 0.6 * x, centres[:, None] - 0.6 * y, turn * torch.pi / 4
        u, v = across * turn.cos() + down * turn.sin(), down * turn.cos() - across * turn.sin()
        codes = torch.cat([(4 * turn).cos(), (4 * turn).sin(), x, y, torch.zeros_like(x)], -1)
        nothing = torch.zeros(count, 1, 8)
        return Latents(nothing[..., :4], nothing[:, 0], codes, nothing[..., 0]), torch.maximum(u.abs(), v.abs()) < 0.3

    class Disc(nn.Module):
        """Of the area of the square."""

        def forward(self, code: Tensor) -> Tensor:
            x, y = code[:, 4 + 2, None, None], code[:, 4 + 3, None, None]
            distance = ((centres - 0.6 * x).square() + (centres[:, None] - 0.6 * y).square()).sqrt()
            return nn.functional.pad((20 * (0.34 - distance))[:, None], (0, 0, 0, 0, 0, 4))

    model = Umbra(replace(BEFORE.sized(32, 32), box_size=16), generator(1))
    generation = boxed(model)
    generation.f_shp_apc = Disc()

    def overlap() -> float:
        codes, truth = squares(64, 1)
        with torch.no_grad():
            found = generation(codes).objects[:, 0] > 0
        return float(((found & truth).sum((1, 2)) / (found | truth).sum((1, 2))).mean())

    before = overlap()
    optimiser = torch.optim.Adam(generation.f_box.parameters(), 3e-3)
    for step in range(80):
        codes, truth = squares(16, 100 + step)
        loss = nn.functional.binary_cross_entropy_with_logits(generation(codes).objects[:, 0], truth.float())
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        optimiser.step()
    assert before < 0.86
    assert overlap() > 0.93
