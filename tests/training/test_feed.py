"""What a step sees is a function of (seed, step), and every rank's part is its part of the whole."""

from pathlib import Path

import numpy as np
import pytest
import torch
from shape_world import ShapeWorld, make_shapes

from viewslots.data.store import SplitArrays, Store
from viewslots.errors import UserError
from viewslots.experiments import experiment, pinned_steps
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.per_view.model import PerView
from viewslots.scenes.clevr.family import CLEVR_M
from viewslots.training.distributed import Ranks
from viewslots.training.feed import LiveFeed, NoiseSource, StoredFeed, training_generator
from viewslots.types import SceneBatch

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def split(shapes: Path) -> SplitArrays:
    return Store.open(shapes).split("train")


def stored(
    split: SplitArrays, *, seed: int = 1, batch: int = 4, size: int = 32, ranks: Ranks | None = None
) -> StoredFeed:
    chosen = {"size": (size, size), "camera": False, "device": CPU, "ranks": ranks or Ranks()}
    return StoredFeed(split, seed=seed, batch=batch, **chosen)


def origins(batch: SceneBatch, split: SplitArrays) -> list[list[tuple[int, int]]]:
    """By search through the whole split: (scene, view) of every picture."""
    pictures = torch.from_numpy(np.array(split["image"])).permute(0, 1, 4, 2, 3) / 255
    found = []
    for scene in batch.image:
        matches = [(pictures == view).flatten(2).all(2).nonzero().tolist() for view in scene]
        found.append([tuple(match[0]) for match in matches])
    return found


def test_every_scene_once_an_epoch_in_distinct_views(split: SplitArrays) -> None:
    feed = stored(split)
    orders = []
    for epoch in range(2):
        seen = [entry for step in range(3) for entry in origins(feed(3 * epoch + step, 2), split)]
        for views in seen:
            assert views[0][0] == views[1][0]
            assert views[0][1] != views[1][1]
        orders.append([views[0][0] for views in seen])
        assert sorted(orders[-1]) == list(range(12))
    assert orders[0] != orders[1]


def test_views_come_in_random_choice_and_order(split: SplitArrays) -> None:
    feed = stored(split)
    chosen = {tuple(view for _, view in views) for step in range(12) for views in origins(feed(step, 2), split)}
    assert chosen == {(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)}


def test_a_step_needs_no_steps_before_it(split: SplitArrays) -> None:
    first, second = stored(split), stored(split)
    for step in range(7):
        first(step, 2)
    assert torch.equal(first(7, 2).image, second(7, 2).image)
    assert not torch.equal(first(7, 2).image, stored(split, seed=2)(7, 2).image)


@pytest.mark.parametrize("count", [2, 4])
def test_ranks_share_a_batch(split: SplitArrays, count: int) -> None:
    whole = stored(split)(5, 2)
    parts = [stored(split, ranks=Ranks(rank, count))(5, 2) for rank in range(count)]
    assert torch.equal(whole.image, torch.cat([part.image for part in parts]))
    assert whole.view_mask.all()
    assert whole.view_mask.shape == (4, 2)


def test_larger_pictures_are_averaged_down(tmp_path: Path) -> None:
    split = Store.open(make_shapes(tmp_path / "large", train=4, valid=1, size=64)).split("train")
    small, large = stored(split, size=32)(0, 2).image, stored(split, size=64)(0, 2).image
    for row, column in [(0, 0), (13, 20), (31, 31)]:
        square = large[..., 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
        torch.testing.assert_close(small[..., row, column], square.mean((-2, -1)))
    assert small.shape == (4, 2, 3, 32, 32)


def test_too_few_scenes_for_a_batch(split: SplitArrays) -> None:
    with pytest.raises(UserError, match="12 scenes to train on do not fill one batch of 13"):
        stored(split, batch=13)


def live(ranks: Ranks, seed: int = 0) -> LiveFeed:
    return LiveFeed(ShapeWorld(), seed=seed, batch=4, size=(32, 32), camera=False, device=CPU, ranks=ranks)


def test_live_scenes_are_fresh_and_shared_by_ranks() -> None:
    whole = live(Ranks())
    parts = [live(Ranks(rank, 2))(3, 2).image for rank in range(2)]
    assert torch.equal(whole(3, 2).image, torch.cat(parts))
    pictures = torch.cat([whole(step, 1).image for step in range(4)])
    assert len(pictures.flatten(1).unique(dim=0)) == 16
    assert not torch.equal(whole(3, 2).image, live(Ranks(), seed=1)(3, 2).image)


def test_live_clevr_renders_the_chosen_views_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    world, rendered = CLEVR_M["clevr-m1"], []
    monkeypatch.setattr(
        "viewslots.scenes.clevr.family.render_views",
        lambda scenes, slots, *_: (
            rendered.extend(scenes)
            or [ShapeWorld(64, 2).render([ShapeWorld().sample(0, "live", index) for index in range(len(scenes))], 2)]
        ),
    )
    feed = LiveFeed(world, seed=0, batch=3, size=(64, 64), camera=False, device=CPU, ranks=Ranks())
    assert feed(1, 2).image.shape == (3, 2, 3, 64, 64)
    for number, scene in zip(range(3, 6), rendered, strict=True):
        full = world.sample(0, "live", number)
        assert scene.objects == full.objects
        assert len(set(scene.cameras)) == 2
        assert set(scene.cameras) < set(full.cameras)


@pytest.mark.parametrize("kind", [Ocloc, PerView])
def test_noise_is_a_function_of_seed_and_step(kind: type[Ocloc]) -> None:
    model = kind(experiment("tiny").model)
    first, again = (NoiseSource(model, seed=1, batch=4, ranks=Ranks())(9, 2) for _ in range(2))
    other = [NoiseSource(model, seed=seed, batch=4, ranks=Ranks())(step, 2) for seed, step in [(1, 10), (2, 9)]]
    parts = [NoiseSource(model, seed=1, batch=4, ranks=Ranks(rank, 2))(9, 2) for rank in range(2)]
    for name, value in vars(first).items():
        assert torch.equal(value, getattr(again, name))
        assert not any(torch.equal(value, getattr(noise, name)) for noise in other)
        assert torch.equal(value, torch.cat([getattr(part, name) for part in parts])), name
    assert len(first.y_attr) == (8 if kind is PerView else 4)


def test_keys_of_generators_are_apart() -> None:
    drawn = [
        torch.rand(2, generator=training_generator(CPU, *key)) for key in [("a", 1, 23), ("a", 12, 3), ("b", 1, 23)]
    ]
    assert len({tuple(values.tolist()) for values in drawn}) == 3


def test_every_constant_that_counts_steps_is_squeezed() -> None:
    paper, short = experiment("clevr-m1"), experiment("clevr-m1").squeezed(40_000)
    assert (short.schedule.steps, short.schedule.kl_ramp_steps) == (40_000, 26_667)
    settings = short.optimisation
    assert (settings.decay_steps, settings.warmup_steps, settings.single_view_steps) == (13_333, 2667, 2667)
    for share in (0.0, 0.1, 0.5, 1.0):
        there, here = paper.schedule.at(int(150_000 * share)), short.schedule.at(int(40_000 * share))
        assert vars(there) == pytest.approx(vars(here), rel=1e-4)
    rates = [preset.optimisation.learning_rate_at(preset.schedule.steps // 2) for preset in (paper, short)]
    assert rates[0] == pytest.approx(rates[1], rel=1e-4)
    assert experiment("clevr-m3").squeezed(40_000).optimisation.pretrained_step == 40_000
    assert experiment("clevr-m3").squeezed(10).optimisation.warmup_steps == 0
    assert paper.squeezed(150_000) == paper
    assert pinned_steps("clevr-m1") == (100_000,)
    assert pinned_steps("compact") == (100_000,)  # for the full circle of viewpoints
    assert pinned_steps("umbra") == pinned_steps("tiny") == ()
