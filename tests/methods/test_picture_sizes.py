"""Models of other picture sizes: the same networks on other grids."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from small_model import SMALL_OCLOC, generator

from viewslots.errors import UserError
from viewslots.experiments import EXPERIMENTS, experiment
from viewslots.methods.contract import Search, TrainableMethod
from viewslots.methods.ocloc.config import OclocConfig
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.presets import COMPACT, FIRST_CLEVR, TINY
from viewslots.methods.per_view.model import PerView
from viewslots.methods.registry import trainable_class
from viewslots.methods.umbra.config import UmbraConfig
from viewslots.methods.umbra.model import Umbra
from viewslots.types import SceneBatch, extent_of, sides

torch.set_num_threads(1)

FOLLOW = ("ocloc", "per-view", "umbra")
KINDS = pytest.mark.parametrize("kind", [Ocloc, PerView, Umbra])


def some_batch(model: TrainableMethod[Any]) -> SceneBatch:
    image = torch.rand(2, 2, 3, *model.image_size, generator=generator(7))
    return SceneBatch(image, torch.tensor([[True, True], [True, False]]))


def of_kind(kind: type[TrainableMethod[Any]], config: OclocConfig) -> Any:
    return kind(UmbraConfig(**vars(config)) if kind is Umbra else config, generator(1))  # type: ignore[call-arg]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_keeps_the_size_it_was_made_for(name: str) -> None:
    made = EXPERIMENTS[name]
    kind, (height, width) = trainable_class(made.method), sides(made.model.image_size)
    assert kind.sized(made.model, height, width) == made.model
    other = kind.sized(made.model, height, width // 2)
    assert (other == made.model) == (made.method not in FOLLOW)


@pytest.mark.parametrize(
    ("pictures", "taken", "stride", "kernel"),
    [
        ((96, 96), 96, 2, 3),
        ((48, 64), (48, 64), 2, 3),
        ((96, 72), (96, 72), 2, 3),
        ((128, 128), 128, 4, 5),  # as FIRST_CLEVR
        ((96, 128), (96, 128), 2, 3),
        ((50, 67), (48, 64), 2, 3),
        ((480, 640), (96, 128), 2, 3),  # at most twice the sides
        ((4096, 4096), 128, 4, 5),
        ((4096, 1), (128, 4), 2, 3),
        ((1, 1), 4, 2, 3),
    ],
)
def test_compact_follows_pictures(
    pictures: tuple[int, int], taken: int | tuple[int, int], stride: int, kernel: int
) -> None:
    made = Ocloc.sized(COMPACT, *pictures)
    assert made.image_size == taken
    assert (made.feature_stride, made.feature_kernel) == (stride, kernel)
    for decoder in (made.object_decoder, made.background_decoder):
        assert decoder.grid == extent_of(*(side // 4 for side in sides(taken)))
    same = {"image_size", "feature_stride", "feature_kernel", "object_decoder", "background_decoder"}
    assert {name: value for name, value in vars(made).items() if name not in same} == {
        name: value for name, value in vars(COMPACT).items() if name not in same
    }
    assert (FIRST_CLEVR.feature_stride, FIRST_CLEVR.feature_kernel) == (4, 5)


def test_configs_of_both_shapes_go_through_json() -> None:
    wide = COMPACT.sized(48, 64)
    assert OclocConfig.from_json(json.loads(json.dumps(wide.to_json()))) == wide
    assert COMPACT.to_json()["image_size"] == 64
    assert wide.to_json()["image_size"] == (48, 64)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ((64, 48), "object_decoder makes pictures of 64x64, but image_size is 64x48"),
        ((64, 64, 64), "model.image_size cannot be"),
        ((64, 0), "model.image_size cannot be"),
        ((64, 5000), "it must be at most 4096"),
        ("64", "model.image_size cannot be"),
    ],
)
def test_impossible_sizes(size: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        replace(COMPACT, image_size=size)


def test_methods_that_have_squares_alone_say_so() -> None:
    for name in ("slot-attention/clevr", "gmioo/clevr", "space/clevr", "mulmon/clevr-m1"):
        with pytest.raises(UserError, match=r"image_size cannot be .* it must be a whole number"):
            replace(experiment(name).model, image_size=(48, 64))


@KINDS
def test_a_pair_of_equal_sides_is_a_square(kind: type[TrainableMethod[Any]]) -> None:
    pair = replace(
        SMALL_OCLOC,
        image_size=(16, 16),
        object_decoder=replace(SMALL_OCLOC.object_decoder, grid=(8, 8)),
        background_decoder=replace(SMALL_OCLOC.background_decoder, grid=(8, 8)),
    )
    one, other = of_kind(kind, SMALL_OCLOC), of_kind(kind, pair)
    batch = some_batch(one)
    losses = [model(batch, model.annealed(), model.draw_noise(batch, generator(3))) for model in (one, other)]
    assert torch.equal(losses[0].minimised, losses[1].minimised)


@KINDS
@pytest.mark.parametrize("size", [(12, 26), (26, 12)])
def test_all_that_a_model_answers_has_the_size_of_its_pictures(
    kind: type[TrainableMethod[Any]], size: tuple[int, int]
) -> None:
    model = of_kind(kind, SMALL_OCLOC.sized(*size)).eval()
    assert model.image_size == size
    batch = some_batch(model)
    losses = model(batch, model.annealed(), model.draw_noise(batch, generator(3)))
    losses.minimised.sum().backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())
    found = model.infer(batch, generator(), search=Search(2, looks=1, refinement=1) if model.searches else None)
    answer = found.decomposition()
    assert answer.reconstruction.shape[-2:] == answer.layer_masks.shape[-2:] == size
    assert answer.complete_shapes.shape[-2:] == size
    with pytest.raises(UserError, match=f"takes {size[0]}x{size[1]} pictures, not {size[1]}x{size[0]}"):
        model.check(SceneBatch(batch.image.transpose(3, 4), batch.view_mask))


def test_places_lie_from_edge_to_edge_along_both_sides() -> None:
    grid = Ocloc(SMALL_OCLOC.sized(12, 26)).generation.f_bck.position.grid[0]
    assert grid.shape == (4, 6, 13)
    torch.testing.assert_close(grid[0, :, 1], torch.full((6,), 1 / 12))
    torch.testing.assert_close(grid[1, 1], torch.full((13,), 1 / 5))
    torch.testing.assert_close(grid[:2] + grid[2:], torch.ones(2, 6, 13))


@pytest.mark.parametrize(("first", "second"), [(Ocloc, Umbra), (Umbra, Umbra), (PerView, PerView)])
def test_weights_of_another_size_fit_but_for_the_network_of_nvil(first: Any, second: Any) -> None:
    given, model = of_kind(first, COMPACT), of_kind(second, COMPACT.sized(48, 64))
    own, taken = model.state_dict(), model.weights_from(given)
    assert taken is not None
    assert {name: value.shape for name, value in taken.items()} == {name: value.shape for name, value in own.items()}
    theirs = given.state_dict()
    for name, _ in model.named_parameters():
        value = taken[name]
        source = own if name.startswith("nvil.network.") else theirs
        assert torch.equal(value[: len(source[name])], source[name]), name
    same = of_kind(second, COMPACT).weights_from(given)
    assert same is not None
    assert torch.equal(same["nvil.network.connected.0.weight"], theirs["nvil.network.connected.0.weight"])


def test_tiny_follows_too() -> None:
    assert TINY.sized(32, 32) == TINY
    assert TINY.sized(96, 72).image_size == (64, 48)
