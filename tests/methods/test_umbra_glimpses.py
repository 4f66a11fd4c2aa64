"""Umbra's second look: boxes and what is seen in them by hand, where gradients go, and that it starts as nothing."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from small_model import SMALL_OCLOC, UNFELT, generator, see_everything
from torch import Tensor

from viewslots.errors import UserError
from viewslots.methods.contract import Search
from viewslots.methods.distributions import normal_kl
from viewslots.methods.noise import Sampler
from viewslots.methods.ocloc.boxes import placed
from viewslots.methods.ocloc.choice import Drawn, most_likely
from viewslots.methods.ocloc.config import StartConfig
from viewslots.methods.ocloc.fast.accelerate import accelerated
from viewslots.methods.ocloc.generation import binary_logit, last_convolution
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.networks import initialise
from viewslots.methods.ocloc.search import (
    PRUNED,
    joined,
    looked_at,
    of_present,
    parted,
    pruned,
    searched,
    shortest,
    still,
    with_objects,
)
from viewslots.methods.ocloc.variables import Latents, Noise, Posterior, Rendering
from viewslots.methods.umbra.config import UmbraConfig, UmbraSchedule
from viewslots.methods.umbra.glimpses import (
    DETAIL_LOG_SIGMA,
    SEEN,
    DetailHead,
    boxes_of,
    glimpses_of,
    layer_maps,
    over_layers,
)
from viewslots.methods.umbra.model import Umbra
from viewslots.types import SceneBatch

torch.set_num_threads(1)

START = StartConfig(shape_logit=-2.0, presence_logit=2.0, log_sigma=-3.0, query_gain=4.0)
BEFORE = UmbraConfig(**vars(SMALL_OCLOC) | {"start": START})
SMALL = replace(BEFORE, glimpses=2, glimpse_size=8, glimpse_channels=(6, 6))
DETAILED = replace(SMALL, box_fit=100.0, details=3)
BY_VIEW = replace(DETAILED, details_by_view=True)
BOTH = pytest.mark.parametrize("config", [SMALL, DETAILED, BY_VIEW], ids=["glimpses", "details", "by view"])
DETAILS = pytest.mark.parametrize("config", [DETAILED, BY_VIEW], ids=["seen", "by view"])
CHANGED = ("mu_view", "log_sigma_view", "mu_bck", "log_sigma_bck", "mu_attr", "log_sigma_attr", "tau", "logit_kappa")


def some_batch(scenes: int = 2) -> SceneBatch:
    mask = torch.ones(scenes, 2, dtype=torch.bool)
    mask[-1, -1] = False
    image = torch.rand(scenes, 2, 3, 16, 16, generator=generator(7))
    return SceneBatch(torch.where(mask[:, :, None, None, None], image, 0.0), mask)


def awake(config: UmbraConfig = SMALL) -> Umbra:
    """Its glimpses change something, and details are drawn: no last layer starts at zero."""
    model, drawn = Umbra(config, generator(1)), generator(5)
    assert model.glimpses is not None
    with torch.no_grad():
        for head in (model.glimpses.to_view, model.glimpses.to_background, model.glimpses.to_object):
            head.last.weight.normal_(0, 0.3, generator=drawn)
        if model.generation.f_det is not None:
            last_convolution(model.generation.f_det).weight.normal_(0, 0.3, generator=drawn)
    return model


def in_double(model: Umbra, batch: SceneBatch) -> tuple[Umbra, SceneBatch, Noise]:
    batch = replace(batch, image=batch.image.double())
    noise = model.draw_noise(batch, generator())
    return model.double(), batch, replace(noise, **{name: value.double() for name, value in vars(noise).items()})


def means_of(posterior: Posterior) -> Latents:
    return Latents(posterior.mu_view, posterior.mu_bck, posterior.mu_attr, posterior.logit_kappa)


def looked(model: Umbra, batch: SceneBatch, noise: Noise) -> Posterior:
    """Algorithm 1 and the glimpses, as in training."""
    return model.looked_at(batch, model.infer_posterior(batch, noise))


def drawn(model: Umbra, posterior: Posterior) -> Rendering:
    return model.render(means_of(posterior), model.annealed())


# Boxes.


def test_the_box_of_a_rectangle_by_hand() -> None:
    """Columns 2 to 9 and rows 8 to 11 of 16: eight wide, so a standard deviation of sqrt((64 - 1) / 12) pixels."""
    shape = torch.zeros(1, 1, 1, 16, 16)
    shape[..., 8:12, 2:10] = 1.0
    whole, box = boxes_of(shape)[0, 0].unbind(0)
    assert whole.tolist() == [1, 1, 0, 0]
    half, across, down = 3 * ((64 - 1) / 12) ** 0.5 / 8, (6 - 8) / 8, (10 - 8) / 8
    torch.testing.assert_close(box, torch.tensor([half, half, across, down]), atol=1e-3, rtol=0)


def test_the_faint_surroundings_of_a_small_object_do_not_widen_its_box() -> None:
    """Four pixels among 4,096 that are there by a tenth: a standard deviation of half a pixel."""
    shape = torch.full((1, 1, 1, 64, 64), 0.1)
    shape[..., 20:22, 40:42] = 0.9
    half, _, across, down = boxes_of(shape)[0, 0, 1].tolist()
    assert half == pytest.approx(0.2)
    assert (across, down) == (pytest.approx((41 - 32) / 32, abs=0.01), pytest.approx((21 - 32) / 32, abs=0.01))


@pytest.mark.parametrize("size", [(16, 32), (72, 96)])
def test_where_nothing_is_drawn_in_an_oblong_picture(size: tuple[int, int]) -> None:
    """A square that holds the picture; nothing of it is left out."""
    wide, high, across, down = boxes_of(torch.zeros(1, 1, 1, *size))[0, 0, 1].tolist()
    assert min(wide, high) == pytest.approx(1.0)
    assert wide * size[1] == pytest.approx(high * size[0])
    assert (across, down) == (pytest.approx(0, abs=1e-5), pytest.approx(0, abs=1e-5))


def test_where_nothing_is_drawn_the_box_is_the_picture_and_no_box_is_tiny() -> None:
    shapes = torch.zeros(1, 1, 2, 16, 16)
    shapes[0, 0, 1, 5, 5] = 1.0
    nothing, dot = boxes_of(shapes)[0, 0, 1:].unbind(0)
    torch.testing.assert_close(nothing, torch.tensor([1.0, 1.0, 0.0, 0.0]))
    assert dot[:2].min() >= 0.2
    torch.testing.assert_close(dot[2:], torch.full((2,), (5.5 - 8) / 8), atol=0.03, rtol=0)


def test_boxes_are_square_in_pixels() -> None:
    """A square of 6 x 6 pixels in a picture of 16 x 32."""
    shape = torch.zeros(1, 1, 1, 16, 32)
    shape[..., 4:10, 10:16] = 1.0
    wide, high = boxes_of(shape)[0, 0, 1, :2].tolist()
    assert wide * 32 == pytest.approx(high * 16)
    assert high * 8 == pytest.approx(3 * (35 / 12) ** 0.5, rel=0.03)


def test_what_is_seen_of_a_layer() -> None:
    """Channel by channel, in the box of the second object: as torch samples a picture there."""
    model, batch = awake(), some_batch()
    posterior = looked(model, batch, model.draw_noise(batch, generator()))
    shown = drawn(model, posterior)
    boxes = boxes_of(shown.logit_shp.sigmoid())
    seen = glimpses_of(layer_maps(batch.image, shown, 0.1), boxes, 8)
    assert seen.shape == (2, 2, 4, SEEN, 8, 8)
    b, m, k = 0, 1, 1
    maps = torch.cat(
        [
            2 * batch.image[b, m] - 1,
            (batch.image[b, m] - shown.reconstruction[b, m]) / 0.2,
            2 * shown.appearance[b, m, k] - 1,
            shown.logit_shp[b, m, k].sigmoid()[None],
            shown.perceived[b, m, k + 1][None],
        ]
    )
    half_x, half_y, x, y = boxes[b, m, k + 1].tolist()
    grid = F.affine_grid(torch.tensor([[[half_x, 0, x], [0, half_y, y]]]), [1, SEEN, 8, 8], align_corners=False)
    expected = F.grid_sample(maps[None], grid, align_corners=False)[0]
    torch.testing.assert_close(seen[b, m, k + 1], expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(seen[b, m, 0, 9], torch.ones(8, 8))  # the background is everywhere
    torch.testing.assert_close(layer_maps(batch.image, shown, 0.1)[:, :, 0, 6:9], 2 * shown.background - 1)


def test_empty_slots_have_no_say_about_the_viewpoint() -> None:
    noticed, kappa = torch.rand(2, 3, 3, 5, generator=generator()), torch.tensor([[0.5, 0.0], [1.0, 1.0]])
    found = over_layers(noticed, kappa)
    torch.testing.assert_close(found[0], (noticed[0, :, 0] + 0.5 * noticed[0, :, 1]) / 1.5)
    torch.testing.assert_close(found[1], noticed[1].mean(1))


# Rounds.


def test_it_starts_as_if_there_were_no_glimpses() -> None:
    before, model, batch = Umbra(BEFORE, generator(1)), Umbra(SMALL, generator(1)), some_batch()
    noise = model.draw_noise(batch, generator())
    known, found = looked(before, batch, noise), looked(model, batch, noise)
    assert all(torch.equal(getattr(known, name), getattr(found, name)) for name in vars(known))


@BOTH
def test_rounds_follow_each_other(config: UmbraConfig) -> None:
    """Two rounds are one, drawn anew, and another; slots and the choice of the background stay as they are."""
    model, batch = awake(config), some_batch()
    noise = model.draw_noise(batch, generator())
    assert model.glimpses is not None
    posterior = first = model.infer_posterior(batch, noise)
    for _ in range(2):
        posterior = model.glimpses(batch, posterior, model.drawing(batch, posterior), SMALL.sigma_x)
    found = looked(model, batch, noise)
    for name, value in vars(posterior).items():
        torch.testing.assert_close(getattr(found, name), value)
        assert torch.equal(value, getattr(first, name)) != (name in CHANGED), name


@BOTH
def test_padded_views_and_other_scenes_change_nothing(config: UmbraConfig) -> None:
    model, batch, noise = in_double(awake(config), some_batch(3))
    together = looked(model, batch, noise)
    last = SceneBatch(batch.image[2:, :1], batch.view_mask[2:, :1])
    own = replace(noise, **{name: value[2:] for name, value in vars(noise).items()})
    own = replace(own, y_view=own.y_view[:, :1])
    alone = looked(model, last, own)
    torch.testing.assert_close(alone.mu_attr, together.mu_attr[2:])
    torch.testing.assert_close(alone.mu_view, together.mu_view[2:, :1])


@BOTH
def test_slots_may_come_in_any_order(config: UmbraConfig) -> None:
    model, batch, noise = in_double(awake(config), some_batch())
    posterior = model.infer_posterior(batch, noise)
    order = [2, 0, 1]
    objects = {name: getattr(posterior, name)[:, order] for name in ("mu_attr", "log_sigma_attr", "tau", "logit_kappa")}
    found, turned = model.looked_at(batch, posterior), model.looked_at(batch, replace(posterior, **objects))
    torch.testing.assert_close(turned.mu_attr, found.mu_attr[:, order])
    torch.testing.assert_close(turned.mu_view, found.mu_view)


@BOTH
@pytest.mark.parametrize("name", ["mu_view", "mu_bck", "mu_attr"])
def test_slopes_are_those_of_the_loss(name: str, config: UmbraConfig) -> None:
    """By finite differences, in float64: what the pictures miss, the prices, and the means' part of the divergences."""
    model, batch, noise = in_double(awake(config), some_batch())
    posterior = looked(model, batch, noise)
    found = getattr(model.drawing(batch, posterior), name.replace("mu", "slope"))
    value, way = getattr(posterior, name), torch.randn(2, generator=generator(4)).double()  # of mu_attr, details

    def length(step: float) -> Tensor:
        moved = replace(posterior, **{name: torch.cat([value[..., :-2], value[..., -2:] + step * way], -1)})
        latents, annealing = means_of(moved), model.annealed()
        cost = model.reconstruction_cost(batch, model.layers(latents), latents, annealing)
        divergence = normal_kl(getattr(moved, name), getattr(moved, name.replace("mu", "log_sigma")))
        return cost.sum() + divergence.sum()

    expected = (length(1e-5) - length(-1e-5)) / 2e-5
    gradient = (4 * found).sinh()[..., -2:]
    torch.testing.assert_close((gradient * way).sum(), expected, rtol=1e-4, atol=1e-6)


def test_without_slopes_nothing_is_differentiated() -> None:
    model, batch = awake(replace(SMALL, glimpse_slopes=False)), some_batch()
    noise = model.draw_noise(batch, generator())
    drawing = model.drawing(batch, looked(model, batch, noise))
    assert drawing.slope_attr.shape[-1] == drawing.slope_view.shape[-1] == drawing.slope_bck.shape[-1] == 0


@pytest.mark.parametrize("slopes", [False, True])
def test_the_same_in_inference_mode(slopes: bool) -> None:
    model, batch = awake(replace(SMALL, glimpse_slopes=slopes)), some_batch()
    noise = model.draw_noise(batch, generator())
    known = looked(model, batch, noise)
    with torch.inference_mode():
        inside = SceneBatch(batch.image.clone(), batch.view_mask.clone())
        found = looked(model, inside, noise)
    torch.testing.assert_close(found.mu_attr, known.mu_attr)


@pytest.mark.parametrize("half", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("slopes", [False, True])
def test_gradients_pass_the_drawing_by(half: bool, slopes: bool) -> None:
    """What is seen is an input: a code's gradient is that of what it becomes. Decoders learn from the last drawing all
    the same, in half precision too, where autocast keeps rounded weights."""
    model, batch = awake(replace(SMALL, glimpses=1, glimpse_slopes=slopes)), some_batch()
    first = model.infer_posterior(batch, model.draw_noise(batch, generator()))
    leaf = first.mu_attr.detach().requires_grad_()
    changed = model.looked_at(batch, replace(first, mu_attr=leaf))
    weights = torch.randn(leaf.shape, generator=generator(3))
    (gradient,) = torch.autograd.grad((changed.mu_attr * weights).sum(), leaf)
    assert torch.equal(gradient, weights)
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        model(batch, UmbraSchedule().at(100_000), model.draw_noise(batch, generator())).minimised.mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert name in UNFELT or parameter.grad.any(), name


def test_every_head_changes_its_own_variable() -> None:
    """Heads that answer constants: what is added to means and log deviations, and times what tau is taken."""
    model, batch = Umbra(replace(SMALL, glimpses=1), generator(1)), some_batch()
    assert model.glimpses is not None
    for head in (model.glimpses.to_view, model.glimpses.to_background, model.glimpses.to_object):
        torch.nn.init.constant_(head.last.weight, 0.0)
        with torch.no_grad():
            head.last.bias.copy_(torch.arange(len(head.last.bias)) / 10)
    before = model.infer_posterior(batch, model.draw_noise(batch, generator()))
    after, D = model.looked_at(batch, before), SMALL.attr_dim
    for name, size in (("view", SMALL.view_dim), ("bck", SMALL.background_dim), ("attr", D)):
        numbers = torch.arange(2 * size) / 10
        for kind, added in (("mu_", numbers[:size]), ("log_sigma_", numbers[size:])):
            change = getattr(after, kind + name) - getattr(before, kind + name)
            torch.testing.assert_close(change, added.expand_as(change), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(after.tau / before.tau, (torch.tensor([2 * D, 2 * D + 1]) / 10).exp().expand(2, 3, 2))
    torch.testing.assert_close(after.logit_kappa - before.logit_kappa, torch.full((2, 3), (2 * D + 2) / 10))


def test_a_glimpse_knows_where_it_is() -> None:
    """The same things seen at another place, or of a code with another deviation, are not the same."""
    model, batch = awake(), some_batch()
    assert model.glimpses is not None
    posterior = model.infer_posterior(batch, model.draw_noise(batch, generator()))
    drawing = model.drawing(batch, posterior)
    seen, boxes = torch.zeros(2, 2, 4, SMALL.hidden), boxes_of(drawing.shown.logit_shp.sigmoid())
    known = model.glimpses.noticed(seen, boxes, posterior, drawing)
    assert not torch.allclose(model.glimpses.noticed(seen, boxes + 0.5, posterior, drawing)[:, :, 1:], known[:, :, 1:])
    wider = replace(posterior, log_sigma_attr=posterior.log_sigma_attr + 1)
    assert not torch.allclose(model.glimpses.noticed(seen, boxes, wider, drawing)[:, :, 1:], known[:, :, 1:])


def seen_in_turn(model: Umbra, batch: SceneBatch, posterior: Posterior, kept: tuple[str, ...]) -> Posterior:
    """The rounds one by one; after each, what is known is put back."""
    assert model.glimpses is not None
    known = {name: getattr(posterior, name) for name in kept}
    for _ in range(model.config.glimpses):
        changed = model.glimpses(batch, posterior, model.drawing(batch, posterior), model.config.sigma_x)
        posterior = replace(changed, **known)
    return posterior


@BOTH
def test_new_pictures_of_a_known_scene_change_its_viewpoints_alone(config: UmbraConfig) -> None:
    model, batch = awake(config), some_batch()
    noise = model.draw_noise(batch, generator())
    known = looked(model, batch, noise)
    found = model.estimate_views(batch, known, noise)
    plain = Ocloc.estimate_views(model, batch, known, noise)
    expected = seen_in_turn(model, batch, plain, CHANGED[2:])
    for name, value in vars(found).items():
        assert torch.equal(value, getattr(expected, name)), name
        assert torch.equal(value, getattr(plain, name)) != name.endswith("_view") or name == "y_view", name


@BOTH
def test_objects_found_in_what_is_left_are_looked_at_from_the_known_viewpoints(config: UmbraConfig) -> None:
    model, batch = awake(config), some_batch()
    noise = model.draw_noise(batch, generator())
    known = looked(model, batch, noise)
    plain = Ocloc.find_objects(model, batch, known, noise)
    fixed = CHANGED[:4]
    placed = replace(plain, **{name: getattr(known, name) for name in fixed})
    found, expected = model.find_objects(batch, known, noise), seen_in_turn(model, batch, placed, fixed)
    assert torch.equal(found.mu_attr, expected.mu_attr)
    assert torch.equal(found.mu_view, known.mu_view)
    assert not torch.equal(plain.mu_view, known.mu_view)
    answer = model.infer(batch, generator(), search=Search(starts=2, looks=1, refinement=2))
    assert most_likely(answer.posterior).z_attr.isfinite().all()


def test_a_search_prunes_before_it_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second copy would learn to explain what the first one misses, and stay."""
    see_everything(monkeypatch)
    model, batch = awake(replace(SMALL, object_cost=0.0)), some_batch()
    noise, annealing = still(model.draw_latent_noise(batch, generator())), model.annealed()
    first = pruned(model, batch, model.infer_posterior(batch, noise), annealing)
    assert (first.logit_kappa == PRUNED).any()
    shown, absent = parted(first)
    expected = pruned(model, batch, joined(looked_at(model, batch, shown), absent), annealing)
    found = searched(model, batch, [noise], annealing, Search(starts=1))
    order = [posterior.y_attr[:, 1:, 0].argsort(dim=1) for posterior in (found, expected)]  # of their slots
    for name, value in vars(with_objects(expected, order[1])).items():
        torch.testing.assert_close(getattr(with_objects(found, order[0]), name), value)
    assert ((found.logit_kappa > 0).sum(1) <= (first.logit_kappa > 0).sum(1)).all()


def test_a_search_looks_at_the_shortest_start_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch, annealing, state = awake(), some_batch(), awake().annealed(), generator(8)
    noises = [still(model.draw_latent_noise(batch, state)) for _ in range(3)]
    starts = [pruned(model, batch, model.infer_posterior(batch, noise), annealing) for noise in noises]
    best = shortest(model, batch, starts, annealing)
    assert not all(torch.equal(start.mu_bck, best.mu_bck) for start in starts)
    seen: list[Posterior] = []
    look = model.looked_at
    monkeypatch.setattr(model, "looked_at", lambda *given, **more: seen.append(given[1]) or look(*given, **more))
    searched(model, batch, noises, annealing, Search(starts=3))
    assert [one.mu_bck.tolist() for one in seen] == [best.mu_bck.tolist()]
    # With a further look: at what that found in all views and in each by itself, then at all that is there.
    seen.clear()
    further = searched(model, batch, [*noises, noises[0]], annealing, Search(starts=3, looks=1))
    assert [len(one.mu_bck) for one in seen] == [2, 2, 2 * batch.view_mask.shape[1], 2]
    assert not torch.equal(seen[3].mu_bck, best.mu_bck)
    assert not torch.equal(further.mu_bck, seen[3].mu_bck)


def test_a_searched_answer_does_not_depend_on_the_other_scenes() -> None:
    """Three scenes with other numbers of objects, and slots that are just not there: as each of them alone, though each
    glimpse says of every slot that it is there after all."""
    model, batch = awake(), some_batch(3)
    assert model.glimpses is not None
    assert model.config.glimpses > 1
    with torch.no_grad():
        model.glimpses.to_object.last.bias[-1] = 20.0
    noise = still(model.draw_latent_noise(batch, generator()))
    kappa = torch.tensor([[3.0, -0.2, -0.4], [2.0, 1.0, 0.5], [-0.1, 2.0, 1.0]])
    start = replace(model.infer_posterior(batch, noise), logit_kappa=kappa)
    together = of_present(lambda shown: looked_at(model, batch, shown), start)
    for b in range(3):
        alone = SceneBatch(batch.image[b : b + 1], batch.view_mask[b : b + 1])
        own = replace(start, **{name: value[b : b + 1] for name, value in vars(start).items()})
        found = of_present(lambda shown, alone=alone: looked_at(model, alone, shown), own)
        torch.testing.assert_close(found.mu_view[0], together.mu_view[b])
        present = int((kappa[b] >= 0).sum())
        torch.testing.assert_close(found.mu_attr[0, :present], together.mu_attr[b, :present])
        assert torch.equal(found.logit_kappa[0, present:].sort()[0], kappa[b][kappa[b] < 0].sort()[0])


def test_nor_does_one_with_a_further_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three scenes at once, two starts and a look for more: as each of them alone, from the same noise."""
    see_everything(monkeypatch)
    model, batch, state = awake(replace(SMALL, object_cost=120.0)), some_batch(3), generator(8)
    noises, annealing = [model.draw_latent_noise(batch, state) for _ in range(3)], model.annealed()
    search = Search(starts=2, looks=1)
    together = searched(model, batch, noises, annealing, search)
    assert len({*(together.logit_kappa >= 0).sum(1).tolist()}) > 1
    for b in range(3):
        own = [replace(noise, **{name: value[b : b + 1] for name, value in vars(noise).items()}) for noise in noises]
        alone = SceneBatch(batch.image[b : b + 1], batch.view_mask[b : b + 1])
        found = searched(model, alone, own, annealing, search)
        present = int((found.logit_kappa >= 0).sum())
        assert present == int((together.logit_kappa[b] >= 0).sum())
        torch.testing.assert_close(found.mu_attr[0, :present], together.mu_attr[b, :present], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(found.mu_view[0], together.mu_view[b], rtol=1e-4, atol=1e-4)


def test_plain_answers_are_looked_at() -> None:
    model, batch = awake(), some_batch()
    answer = model.infer(batch, generator())
    noise = model.draw_latent_noise(batch, generator())
    assert torch.equal(answer.posterior.mu_attr, looked(model, batch, noise).mu_attr)


# Details.


@DETAILS
def test_details_are_those_of_the_prior_until_something_is_seen(config: UmbraConfig) -> None:
    model, batch = awake(config), some_batch()
    noise = model.draw_noise(batch, generator())
    first, again = (
        model.infer_posterior(batch, noise),
        Ocloc.find_objects(model, batch, looked(model, batch, noise), noise),
    )
    for found in (first, again):
        assert not found.mu_attr[..., -3:].any()
        assert not found.log_sigma_attr[..., -3:].any()
        assert found.mu_attr[..., :-3].abs().min() > 0
    seen = looked(model, batch, noise)
    assert seen.mu_attr[..., -3:].abs().min() > 0
    assert (seen.log_sigma_attr[..., -3:] == DETAIL_LOG_SIGMA).all()


def test_what_is_drawn_without_details_and_with_them() -> None:
    """Without: what the same weights draw that know of none. With: more by what f_det draws of each, one by one;
    shadows, order, boxes and the background stay."""
    model = awake(DETAILED)
    plain = Umbra(replace(BEFORE, box_fit=DETAILED.box_fit), generator(1))
    given = plain.weights_from(model)
    assert given is not None
    plain.load_state_dict(given)
    latents = model.generation.prior(2, 2, 3, 4.5, Sampler(generator(4), torch.device("cpu")))
    assert latents.z_attr.shape == (2, 3, 8)
    codes = latents.z_attr[..., :5]
    known = plain.generation(replace(latents, z_attr=codes))
    without = model.generation(replace(latents, z_attr=F.pad(codes, (0, 3))))
    short = model.generation(replace(latents, z_attr=codes))
    for name, value in vars(known).items():
        torch.testing.assert_close(getattr(without, name), value)
        assert torch.equal(getattr(short, name), value)
    decoded, f_det = model.generation(latents), model.generation.f_det
    assert f_det is not None
    drawn = plain.generation.f_shp_apc(torch.cat([latents.z_view[1, 1], codes[1, 2]])[None])
    details = torch.stack([latents.z_attr[1, 2, 5:], torch.zeros(3)])
    some, none = f_det(torch.cat([latents.z_view[1, 1].expand(2, -1), details], 1))
    drawn[:, :4] += some - none
    assert decoded.boxes is not None
    expected = placed(drawn, decoded.boxes[1, 1, 2][None], (16, 16))[0]
    torch.testing.assert_close(decoded.objects.unflatten(0, (2, 2, 3))[1, 1, 2], expected)
    assert not torch.allclose(decoded.objects[:, :4], known.objects[:, :4])
    for name in ("background", "order", "centre", "boxes"):
        assert torch.equal(getattr(decoded, name), getattr(without, name))


@DETAILS
def test_details_come_from_what_is_seen_alone(config: UmbraConfig) -> None:
    """Not from the code that was there: that has place, size and colour in it."""
    model, batch = awake(config), some_batch()
    assert model.glimpses is not None
    posterior = model.infer_posterior(batch, model.draw_noise(batch, generator()))
    drawing = model.drawing(batch, posterior)
    other = replace(posterior, mu_attr=posterior.mu_attr + 1, log_sigma_attr=posterior.log_sigma_attr - 1)
    known, found = (model.glimpses(batch, one, drawing, config.sigma_x) for one in (posterior, other))
    assert torch.equal(known.mu_attr[..., 5:], found.mu_attr[..., 5:])
    assert not torch.allclose(known.mu_attr[..., :5] + 1, found.mu_attr[..., :5])


def seen_in(model: Umbra, batch: SceneBatch) -> tuple[torch.Tensor, Posterior, torch.Tensor]:
    """Features of the objects in each view, the posterior that was looked at, and the details that came of it."""
    assert model.glimpses is not None
    posterior = model.infer_posterior(batch, model.draw_noise(batch, generator()))
    drawing = model.drawing(batch, posterior)
    boxes = boxes_of(drawing.shown.logit_shp.sigmoid())
    seen = model.glimpses.seen(layer_maps(batch.image, drawing.shown, model.config.sigma_x), boxes)[:, :, 1:]
    return seen, posterior, model.glimpses(batch, posterior, drawing, model.config.sigma_x).mu_attr[..., 5:]


def test_details_of_several_views_are_those_of_their_mean() -> None:
    model, batch = awake(DETAILED), some_batch()
    assert model.glimpses is not None
    head = model.glimpses.to_details
    assert head is not None
    seen, _, found = seen_in(model, batch)
    torch.testing.assert_close(found[0], head.means(head.norm(seen[0].mean(0))))
    torch.testing.assert_close(found[1], head.means(head.norm(seen[1, 0])))  # its other view is padding


def test_details_by_view_are_read_with_the_viewpoint_of_each_glimpse() -> None:
    """Against a loop over views and objects."""
    model, batch = awake(BY_VIEW), some_batch()
    assert model.glimpses is not None
    head = model.glimpses.to_details
    assert head is not None
    assert head.of_view is not None
    seen, posterior, found = seen_in(model, batch)
    for b, views in ((0, (0, 1)), (1, (0,))):
        for k in range(3):
            read = [head.of_view(torch.cat([head.norm_of_each(seen[b, m, k]), posterior.mu_view[b, m]])) for m in views]
            torch.testing.assert_close(found[b, k], head.means(head.norm(torch.stack(read).mean(0))))


def test_how_a_thing_is_turned_needs_the_viewpoints() -> None:
    """The same two glimpses from exchanged viewpoints are another thing; in another order, the same thing."""
    seen, view = torch.randn(1, 2, 1, 12, generator=generator(3)), torch.randn(1, 2, 4, generator=generator(4))
    both = torch.ones(1, 2, dtype=torch.bool)
    for view_dim in (0, 4):
        head = DetailHead(12, view_dim, 3)
        initialise(head, generator(6))
        known, exchanged, reordered = (
            head(*given, both)[0] for given in ((seen, view), (seen, view.flip(1)), (seen.flip(1), view.flip(1)))
        )
        torch.testing.assert_close(reordered, known)
        assert torch.allclose(exchanged, known) == (view_dim == 0)


@DETAILS
def test_what_is_there_is_chosen_without_details_that_views_tell(config: UmbraConfig) -> None:
    """Choices cost the same whatever those details are; and what is chosen keeps them. Other details count."""
    model, batch, annealing = awake(config), some_batch(), awake(config).annealed()
    posterior = looked(model, batch, model.draw_noise(batch, generator()))
    other = replace(posterior, mu_attr=posterior.mu_attr + 3 * (torch.arange(8) >= 5))
    assert not torch.allclose(drawn(model, other).reconstruction, drawn(model, posterior).reconstruction)
    choice = torch.tensor([[True, False, True], [False, True, True]])
    lengths = [Drawn(model, batch, one, annealing).length(choice) for one in (posterior, other)]
    assert torch.equal(*lengths) == config.details_by_view
    known = slice(0, 5 if config.details_by_view else 8)
    bare = replace(
        posterior, mu_attr=posterior.mu_attr[..., known], log_sigma_attr=posterior.log_sigma_attr[..., known]
    )
    chosen = replace(most_likely(bare), logit_prs=binary_logit(choice))
    expected = model.description_length(batch, bare, chosen, annealing) - model.background_and_view_kl(batch, bare)
    torch.testing.assert_close(lengths[0], expected)
    assert torch.equal(pruned(model, batch, other, annealing).mu_attr, other.mu_attr)


@DETAILS
def test_the_fast_twin_draws_the_same_details(config: UmbraConfig) -> None:
    model, batch = awake(config), some_batch()
    noise = model.draw_noise(batch, generator())
    known, found = (looked(one, batch, noise) for one in (model, accelerated(model)))
    torch.testing.assert_close(found.mu_attr, known.mu_attr, rtol=1e-4, atol=1e-5)
    shown = (one.render(means_of(known), model.annealed()).reconstruction for one in (model, accelerated(model)))
    torch.testing.assert_close(*shown, rtol=1e-4, atol=1e-5)


def test_details_cost_as_any_other_numbers_of_a_code() -> None:
    model, batch = awake(DETAILED), some_batch()
    seen = looked(model, batch, model.draw_noise(batch, generator()))
    wide = torch.distributions.Normal(seen.mu_attr, seen.log_sigma_attr.exp())
    expected = torch.distributions.kl_divergence(wide, torch.distributions.Normal(0, 1)).sum(-1)
    torch.testing.assert_close(
        model.object_lengths(seen, model.annealed(), torch.full((len(seen.mu_attr),), 2)),
        expected + DETAILED.object_cost,
    )


@pytest.mark.parametrize("more", [{"glimpses": 0}, {"box_fit": 0.0}])
def test_details_need_glimpses_and_boxes(more: dict[str, float]) -> None:
    with pytest.raises(UserError, match="details is 3, but glimpses is"):
        replace(DETAILED, **more)  # type: ignore[arg-type]


@DETAILS
def test_a_trained_model_goes_on_with_details_as_what_it_was(config: UmbraConfig) -> None:
    """Until something is learned they are told, but not drawn."""
    before = Umbra(replace(BEFORE, box_fit=config.box_fit), generator(9))
    model, batch = Umbra(config, generator(1)), some_batch()
    given = model.weights_from(before)
    assert given is not None
    model.load_state_dict(given)
    noise = before.draw_noise(batch, generator())
    known, found = looked(before, batch, noise), looked(model, batch, noise)
    torch.testing.assert_close(found.mu_attr[..., :5], known.mu_attr)
    assert found.mu_attr[..., 5:].any()
    torch.testing.assert_close(drawn(model, found).reconstruction, drawn(before, known).reconstruction)
    back = before.weights_from(model)
    assert back is not None
    assert back.keys() == before.state_dict().keys()


@DETAILS
def test_all_that_has_to_do_with_details_learns(config: UmbraConfig) -> None:
    """Glimpses and f_det from the drawing; nothing else adds to the last bias of f_det, which cancels."""
    model, batch = awake(config), some_batch()
    model(batch, UmbraSchedule().at(100_000), model.draw_noise(batch, generator())).minimised.mean().backward()
    assert model.generation.f_det is not None
    for name, parameter in model.named_parameters():
        if name.startswith(("glimpses.features", "glimpses.to_details", "generation.f_det")):
            assert parameter.grad is not None, name
            cancels = parameter is last_convolution(model.generation.f_det).bias
            assert (parameter.grad.abs().max() > 1e-4) != cancels, name
    codes = torch.randn(2, 3, 8, generator=generator(6)).requires_grad_()
    latents = Latents(torch.randn(2, 2, 4), torch.randn(2, 8), codes, torch.zeros(2, 3))
    model.layers(latents).logit_shp.square().sum().backward()
    assert codes.grad is not None
    assert codes.grad[..., 5:].abs().min() > 0
    model.zero_grad()
    looked(model, batch, model.draw_noise(batch, generator())).mu_attr[..., 5:].square().sum().backward()
    assert model.glimpses is not None
    assert all(
        parameter.grad is not None and parameter.grad.any() for parameter in model.glimpses.features.parameters()
    )


@DETAILS
def test_details_do_not_depend_on_how_strong_features_are(config: UmbraConfig) -> None:
    model = awake(config)
    assert model.glimpses is not None
    head = model.glimpses.to_details
    assert head is not None
    seen = torch.randn(2, 1, 3, config.hidden, generator=generator(8))
    view = torch.randn(2, 1, config.view_dim, generator=generator(9))
    one = torch.ones(2, 1, dtype=torch.bool)
    torch.testing.assert_close(head(9 * seen, view, one)[0], head(seen, view, one)[0], atol=1e-4, rtol=0)


def test_whose_details_a_model_has_that_starts_from_another() -> None:
    """If it wants some, those that are there; of a model that draws on whole pictures, none, which is refused where
    several views would tell them: glimpses without details are another experiment there."""
    without, other = replace(DETAILED, details=0), replace(DETAILED, details=2)
    assert Umbra.config_from(DETAILED, Umbra(other)) == other
    assert Umbra.config_from(without, Umbra(BY_VIEW)) == without
    assert Umbra.config_from(BY_VIEW, Umbra(other)) == other
    assert Umbra.config_from(BY_VIEW, Umbra(without)) == BY_VIEW
    assert Umbra.config_from(BY_VIEW, Umbra(replace(BEFORE, box_fit=100.0))) == BY_VIEW
    for unboxed in (SMALL, BEFORE):
        with pytest.raises(UserError, match="does not draw objects in boxes, so it can have no details"):
            Umbra.config_from(BY_VIEW, Umbra(unboxed))
        assert Umbra.config_from(DETAILED, Umbra(unboxed)).details == 0
    assert Umbra.config_from(replace(without, glimpses=0), Umbra(DETAILED)).details == 0


@pytest.mark.parametrize("change", [{"glimpse_channels": (6,)}, {"glimpse_slopes": False}, {"hidden": 12}])
def test_glimpses_of_another_size_do_not_fit_those_with_details(change: dict[str, object]) -> None:
    given = Umbra(DETAILED).weights_from(Umbra(replace(DETAILED, details=0, **change)))  # type: ignore[arg-type]
    own = {name: value.shape for name, value in Umbra(DETAILED).state_dict().items()}
    assert given is None or {name: value.shape for name, value in given.items()} != own


@pytest.mark.parametrize("wish", [replace(BY_VIEW, details=0), replace(BY_VIEW, details=5), DETAILED, BY_VIEW])
def test_other_details_begin_anew_and_all_else_goes_on(wish: UmbraConfig) -> None:
    """Until they are learned, the model is the one before, without its details."""
    trained, model, batch = awake(BY_VIEW), Umbra(wish, generator(3)), some_batch()
    given = model.weights_from(trained)
    assert given is not None
    model.load_state_dict(given)
    posterior = trained.infer_posterior(batch, trained.draw_noise(batch, generator()))
    no_details = {name: getattr(posterior, name)[..., :5] for name in ("mu_attr", "log_sigma_attr")}
    own = {name: F.pad(value, (0, wish.details)) for name, value in no_details.items()}
    assert trained.glimpses is not None
    assert model.glimpses is not None
    drawing = trained.drawing(batch, posterior)
    slopes = replace(drawing, slope_attr=F.pad(drawing.slope_attr[..., :5], (0, wish.details)))
    known = trained.glimpses(
        batch, posterior, replace(drawing, slope_attr=F.pad(drawing.slope_attr[..., :5], (0, 3))), 0.1
    )
    found = model.glimpses(batch, replace(posterior, **own), slopes, 0.1)
    torch.testing.assert_close(found.mu_attr[..., :5], known.mu_attr[..., :5])
    torch.testing.assert_close(found.mu_view, known.mu_view)
    same = wish == BY_VIEW
    if wish.details:
        latents = means_of(
            replace(posterior, mu_attr=torch.cat([no_details["mu_attr"], torch.ones(2, 3, wish.details)], 2))
        )
        bare = model.generation(replace(latents, z_attr=latents.z_attr[..., :5])).objects
        assert torch.allclose(model.generation(latents).objects, bare) != same


def test_gradient_steps_count_details() -> None:
    """Unlike choices: of two posteriors that differ in details alone, the shorter description is taken."""
    model, batch, annealing = awake(BY_VIEW), some_batch(), awake(BY_VIEW).annealed()
    posterior = looked(model, batch, model.draw_noise(batch, generator()))
    far = replace(posterior, mu_attr=posterior.mu_attr + 9 * (torch.arange(8) >= 5))
    assert torch.equal(shortest(model, batch, [far, posterior], annealing).mu_attr, posterior.mu_attr)


def test_details_do_not_move_viewpoints() -> None:
    """What is seen, and from where, is an input."""
    model, batch = awake(BY_VIEW), some_batch()
    assert model.glimpses is not None
    posterior = model.infer_posterior(batch, model.draw_noise(batch, generator()))
    mu_view = posterior.mu_view.detach().requires_grad_()
    drawing = model.drawing(batch, posterior)
    found = model.glimpses(batch, replace(posterior, mu_view=mu_view), drawing, BY_VIEW.sigma_x)
    (slopes,) = torch.autograd.grad(found.mu_attr.sum(), mu_view, allow_unused=True)
    assert slopes is None


@pytest.mark.parametrize("slopes", [False, True])
def test_trained_glimpses_go_on_with_details_as_what_they_were(slopes: bool) -> None:
    before, wish = replace(DETAILED, details=0, glimpse_slopes=slopes), replace(DETAILED, glimpse_slopes=slopes)
    trained, batch = awake(before), some_batch()
    assert Umbra.config_from(wish, trained) == wish
    model = Umbra(Umbra.config_from(wish, trained), generator(3))
    given = model.weights_from(trained)
    assert given is not None
    model.load_state_dict(given)
    noise = trained.draw_noise(batch, generator())
    known, found = looked(trained, batch, noise), looked(model, batch, noise)
    torch.testing.assert_close(found.mu_view, known.mu_view)
    torch.testing.assert_close(found.mu_attr[..., :5], known.mu_attr)
    torch.testing.assert_close(drawn(model, found).reconstruction, drawn(trained, known).reconstruction)
    assert Umbra.config_from(before, model) == before  # who wants none leaves them


# Weights.


def test_trained_models_without_glimpses_go_on_with_them() -> None:
    """From an OCLOC or an Umbra; the glimpses begin as their own. Those of another size are refused."""
    model = awake()
    own = {name: value for name, value in model.state_dict().items() if name.startswith("glimpses.")}
    for other in (Ocloc(replace(SMALL_OCLOC, start=START), generator(9)), Umbra(BEFORE, generator(9))):
        given = model.weights_from(other)
        assert given is not None
        assert given.keys() == model.state_dict().keys()
        assert all(torch.equal(given[name], value) for name, value in own.items())
        assert torch.equal(given["inference.mu_hat"], other.inference.mu_hat)
    trained = awake()
    given = Umbra(SMALL, generator(2)).weights_from(trained)
    assert given is not None
    assert all(torch.equal(given[name], value) for name, value in trained.state_dict().items())
    without = Umbra(BEFORE, generator(2)).weights_from(trained)
    assert without is not None
    assert without.keys() == Umbra(BEFORE).state_dict().keys()
    sizes = {name: value.shape for name, value in Umbra(replace(SMALL, glimpse_size=16)).state_dict().items()}
    assert {name: value.shape for name, value in trained.state_dict().items()} != sizes


def test_whose_glimpses_a_model_has_that_starts_from_another() -> None:
    """The other's where both have some; else its own, or none, with the rounds that go with them."""
    wish, other = replace(SMALL, glimpses=1, rounds=5), replace(BEFORE, sigma_x=0.3)
    assert Umbra.config_from(wish, Umbra(other)) == replace(wish, sigma_x=0.3)
    assert Umbra.config_from(BEFORE, Umbra(replace(wish, sigma_x=0.3))) == replace(BEFORE, sigma_x=0.3)
    assert Umbra.config_from(replace(wish, glimpse_size=16), Umbra(wish)) == wish
    assert Umbra.config_from(BEFORE, Umbra(replace(other, rounds=5))) == replace(other, rounds=5)  # neither has any


def test_older_settings_have_no_glimpses() -> None:
    values = BEFORE.to_json()
    older = {name: value for name, value in values.items() if not name.startswith("glimpse")}
    assert UmbraConfig.from_json(older) == BEFORE
    assert UmbraConfig.from_json(SMALL.to_json()) == SMALL


def test_it_learns_what_drawings_miss() -> None:
    """With everything else fixed, glimpses alone shorten the description of pictures in 60 steps."""
    model, batch = Umbra(replace(SMALL, glimpses=1), generator(1)), some_batch(4)
    noise, annealing = model.draw_noise(batch, generator()), model.annealed()
    assert model.glimpses is not None

    def length() -> Tensor:
        posterior = looked(model, batch, noise)
        return model.description_length(batch, posterior, most_likely(posterior), annealing).mean()

    before = float(length().detach())
    optimiser = torch.optim.Adam(model.glimpses.parameters(), 3e-3)
    for _ in range(60):
        optimiser.zero_grad()
        torch.autograd.backward(length())
        optimiser.step()
    assert float(length().detach()) < 0.95 * before
