"""Batches against the world's own pictures, one scene at a time; choices against their promises."""

from collections import Counter

import numpy as np
import pytest
import torch
from fake_world import COUNTS, FakeWorld

from viewslots.data.dataset import SceneDataset
from viewslots.data.generate import DatasetRecipe, make_dataset
from viewslots.data.store import SplitArrays, Store
from viewslots.data.views import FirstViews, LastViews, RandomViews
from viewslots.errors import UserError
from viewslots.types import Pictures


def rendered(split: str, index: int) -> Pictures:
    world = FakeWorld()
    return world.render([world.sample(5, split, index)], world.slots(split))


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> SplitArrays:
    folder = make_dataset(
        DatasetRecipe(FakeWorld(), COUNTS, preset="fake", seed=5), tmp_path_factory.mktemp("made") / "set"
    )
    return Store.open(folder).split("train")


class Mixed:
    """Scene s in views s%3, ..., with 1 + s%3 of them: every scene of a batch another number."""

    most = None

    def choose(self, scene: int, stored: int) -> list[int]:
        return [(scene + step) % stored for step in range(1 + scene % 3)]


@pytest.mark.parametrize("resident", [False, True])
@pytest.mark.parametrize("scenes", [[4, 0, 2], [1], [3, 3, 0], [0, 1, 2, 3, 4]])
def test_pictures_and_padding_are_those_of_the_world(train: SplitArrays, scenes: list[int], resident: bool) -> None:
    batch = SceneDataset(train, views=Mixed(), resident=resident).__getitems__(scenes)
    longest = max(1 + scene % 3 for scene in scenes)
    assert batch.image.shape == (len(scenes), longest, 3, FakeWorld.height, FakeWorld.width)
    assert batch.image.is_contiguous()
    for place, scene in enumerate(scenes):
        truth = rendered("train", scene).image[0]
        for slot in range(longest):
            real = slot < 1 + scene % 3
            assert bool(batch.view_mask[place, slot]) == real
            expected = truth[(scene + slot) % 3].transpose(2, 0, 1) / 255 if real else np.zeros(1)
            np.testing.assert_allclose(batch.image[place, slot], np.broadcast_to(expected, (3, 6, 8)), atol=1e-7)


def test_truth_goes_with_its_batch(train: SplitArrays) -> None:
    scenes = [4, 1, 0]
    truth = SceneDataset(train).truth(scenes, Mixed())
    padding = {"segment": 255, "overlap": 0, "shapes": 0, "shadows": 0, "depth_order": -np.inf, "camera": 0}
    for place, scene in enumerate(scenes):
        pictures = rendered("train", scene)
        assert truth.num_objects[place] == pictures.num_objects[0]
        for slot in range(2):
            real = slot < 1 + scene % 3
            assert bool(truth.view_mask[place, slot]) == real
            for key, value in padding.items():
                stored = getattr(pictures, key)[0, (scene + slot) % 3]
                expected = stored if real else np.full_like(stored, value)
                np.testing.assert_array_equal(getattr(truth, key)[place, slot], expected)


def test_truth_of_an_import_has_none_for_what_is_missing(train: SplitArrays) -> None:
    arrays = {key: train[key] for key in train.arrays if key not in ("shadows", "camera")}
    truth = SceneDataset(SplitArrays("train", train.size, arrays)).truth([0])
    assert truth.shadows is None
    assert truth.camera is None
    np.testing.assert_array_equal(truth.depth_order, rendered("train", 0).depth_order)


def test_first_and_last_views(train: SplitArrays) -> None:
    every = SceneDataset(train).batch([2]).image[0]
    dataset = SceneDataset(train, views=FirstViews(2))
    assert torch.equal(dataset.batch([2]).image[0], every[:2])
    assert torch.equal(dataset[2].image[0], every[:2])
    assert torch.equal(dataset.batch([2], LastViews(2)).image[0], every[1:])
    with pytest.raises(UserError, match=r"4 views asked for, but scenes have 3 views; ask for 1\.\.3"):
        dataset.batch([2], FirstViews(4))
    with pytest.raises(UserError, match="0 views asked for"):
        dataset.batch([2], LastViews(0))
    with pytest.raises(UserError, match="give 1 <= fewest <= most"):
        dataset.batch([2], RandomViews(3, 2, seed=0))
    for scenes in ([5], [-1], [0, 5]):
        with pytest.raises(IndexError):
            dataset.batch(scenes)


def test_random_views_depend_on_seed_epoch_and_scene_alone() -> None:
    choice = RandomViews(2, 4, seed=1, epoch=0)
    chosen = [tuple(choice.choose(scene, 10)) for scene in range(3000)]
    assert chosen == [tuple(choice.choose(scene, 10)) for scene in range(3000)]
    for other in (RandomViews(2, 4, seed=2), RandomViews(2, 4, seed=1, epoch=1)):
        same = sum(tuple(other.choose(scene, 10)) == views for scene, views in enumerate(chosen))
        assert same < 30  # by chance 1 in 270 or fewer
    assert all(len(set(views)) == len(views) for views in chosen)
    sizes = Counter(map(len, chosen))
    assert all(900 < sizes[size] < 1100 for size in (2, 3, 4))
    firsts = Counter(views[0] for views in chosen)
    assert all(230 < firsts[view] < 370 for view in range(10))


def test_neighbouring_views_come_from_one_run_of_them() -> None:
    """A scene with 10 views, of which 4 are neighbours: first and last differ by 3 at most, and all places occur."""
    chosen = [tuple(RandomViews(3, 3, seed=1, within=0.4).choose(scene, 10)) for scene in range(3000)]
    assert all(max(views) - min(views) <= 3 and len(set(views)) == 3 for views in chosen)
    seen = Counter(view for views in chosen for view in views)
    # View v lies in min(v, 3) + 1 of the seven runs (mirrored at the end), and is taken from each with chance 3/4.
    for view in range(10):
        expected = 3000 * min(view + 1, 4, 10 - view) / 7 * 3 / 4
        assert abs(seen[view] - expected) < 5 * expected**0.5
    # Never fewer than are asked for; all of them where the share is 1, as if nothing had been said.
    assert sorted(RandomViews(5, 5, seed=1, within=0.1).choose(0, 5)) == [0, 1, 2, 3, 4]
    assert len(RandomViews(4, 4, seed=1, within=0.1).choose(0, 10)) == 4
    assert RandomViews(3, 3, seed=1, within=1.0).choose(7, 10) == RandomViews(3, 3, seed=1).choose(7, 10)


def test_the_same_on_disk_in_memory_and_resident(train: SplitArrays) -> None:
    scenes = [3, 1, 4]
    pictures = Pictures.concatenate([rendered("train", scene) for scene in range(5)])
    views = RandomViews(1, 3, seed=9)
    batches = [
        SceneDataset(train, views=views).batch(scenes),
        SceneDataset(train, views=views, resident=True).batch(scenes),
        SceneDataset(SplitArrays.from_pictures("train", pictures), views=views).batch(scenes),
    ]
    for batch in batches[1:]:
        assert torch.equal(batch.image, batches[0].image)
        assert torch.equal(batch.view_mask, batches[0].view_mask)


def test_a_data_loader_takes_whole_batches(train: SplitArrays) -> None:
    batches = [[3, 0], [1, 4]]
    loader = torch.utils.data.DataLoader(SceneDataset(train), batch_sampler=batches, collate_fn=lambda batch: batch)
    expected = [SceneDataset(train).batch(scenes).image for scenes in batches]
    for batch, image in zip(loader, expected, strict=True):
        assert torch.equal(batch.image, image)
