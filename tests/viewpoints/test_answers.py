"""Many scenes at once from Python: the same answers as one by one, from tensors, files, or the plain DataLoader."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from shape_world import make_shapes
from torch.utils.data import DataLoader

import viewslots
from viewslots.data.dataset import SceneDataset
from viewslots.data.generate import DatasetRecipe, make_dataset
from viewslots.data.store import Store
from viewslots.errors import UserError
from viewslots.experiments import experiment
from viewslots.methods.contract import Search
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.per_view.model import PerView
from viewslots.methods.slot_attention.model import SlotAttention
from viewslots.scenes.clevr.family import TinyClevrWorld
from viewslots.types import SceneBatch
from viewslots.viewpoints.answers import scene_batch
from viewslots.viewpoints.scene import Reader


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(Ocloc(experiment("tiny").model, torch.Generator().manual_seed(0)).requires_grad_(False), "tiny")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shapes(tmp_path_factory.mktemp("shapes") / "set", train=5, valid=2)


def pictures(scenes: int = 3, views: int = 2) -> torch.Tensor:
    return torch.rand(scenes, views, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("search", [None, Search(2, looks=1, refinement=2)])
def test_one_scene_of_a_batch_is_the_scene_alone(reader: Reader, search: Search | None) -> None:
    image = pictures(1)
    many = reader.infer(image, seed=3, search=search)
    one = reader.decompose(image[0], seed=3, search=search)
    assert torch.equal(many.objects[0], one.objects)
    assert torch.equal(many.views[0], one.views)
    assert torch.equal(many.presence[0], one.presence)
    assert many.counts.tolist() == [one.count]
    assert one.answer is not None
    assert torch.equal(many.masks, one.answer.decomposition().layer_masks)


def test_masks_are_shares_and_latents_have_their_axes(reader: Reader) -> None:
    found = reader.infer(pictures(), slots=4)
    config = reader.model.config
    assert found.masks.shape == (3, 2, 5, 32, 32)
    torch.testing.assert_close(found.masks.sum(2), torch.ones(3, 2, 32, 32))
    assert found.objects.shape == (3, 4, config.attr_dim)
    assert found.background.shape == (3, config.background_dim)
    assert found.views.shape == (3, 2, config.view_dim)
    assert found.segment().shape == (3, 2, 32, 32)
    assert found.has_background
    assert len(found) == 3


def test_a_search_changes_the_answer_and_no_starts_is_the_plain_one(reader: Reader) -> None:
    plain, searched = reader.infer(pictures()), reader.infer(pictures(), starts=3)
    assert not torch.equal(plain.views, searched.views)
    assert torch.equal(reader.infer(pictures(), starts=0).views, plain.views)
    assert torch.equal(reader.infer(pictures()).views, plain.views)


def test_scenes_in_every_form(reader: Reader) -> None:
    bytes_ = (pictures() * 255).round().to(torch.uint8).permute(0, 1, 3, 4, 2).numpy()
    wanted = reader.infer(bytes_)
    image = torch.from_numpy(bytes_).permute(0, 1, 4, 2, 3).float() / 255
    same = [image, SceneBatch(image, torch.ones(3, 2, dtype=torch.bool)), {"image": image}, list(bytes_)]
    for scenes in same:
        torch.testing.assert_close(reader.infer(scenes).masks, wanted.masks)


def test_a_list_may_have_scenes_with_fewer_views(reader: Reader) -> None:
    several = [np.zeros((views, 40, 48, 3), np.uint8) for views in (3, 1)]
    found = reader.infer(several)
    assert found.view_mask.tolist() == [[True] * 3, [True, False, False]]


def test_parts_follow_one_another(reader: Reader) -> None:
    """The first part is what it would be alone."""
    whole, alone = reader.infer(pictures(5), at_once=2), reader.infer(pictures(5)[:2])
    assert torch.equal(whole.masks[:2], alone.masks)
    assert len(whole) == 5


def test_methods_that_know_less(reader: Reader) -> None:
    for kind, name in ((PerView, "tiny"), (SlotAttention, "slot-attention-tiny/dsprites")):
        model = kind(experiment(name).model, torch.Generator().manual_seed(0))
        found = Reader(model, name).infer(pictures(2, 1))
        assert found.objects is None
        assert found.counts.shape == (2,)
        winners = [len(set(layers.flatten().tolist())) for layers in found.segment()]
        if not found.has_background:
            assert found.counts.tolist() == [count - 1 for count in winners]
        with pytest.raises(UserError, match="plain answers alone"):
            Reader(model, name).infer(pictures(2, 1), starts=2)


def test_one_line_for_what_cannot_be(reader: Reader) -> None:
    for wrong, words in (
        (torch.rand(1, 2, 3, 16, 16), "pictures are 16x16, but this model sees 32x32"),
        (torch.rand(2, 3, 32, 32), r"\[B,M,3,H,W\]"),
        ({"pictures": 1}, "need 'image'"),
        ([], "no scenes"),
    ):
        with pytest.raises(UserError, match=words):
            reader.infer(wrong)
    with pytest.raises(UserError, match="at_once"):
        reader.infer(pictures(), at_once=0)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_plain_loader_collates_scenes(folder: Path, reader: Reader, workers: int) -> None:
    scenes = viewslots.Scenes(folder, views=2, truth=True)
    batches = list(DataLoader(scenes, batch_size=3, num_workers=workers))
    assert [len(batch["image"]) for batch in batches] == [3, 2]
    data = SceneDataset(Store.open(folder).split("train"))
    own = data.batch([3, 4])
    assert torch.equal(batches[1]["image"], own.image[:, :2])
    truth = data.truth([3, 4])
    assert truth.segment is not None
    assert torch.equal(batches[1]["segment"], truth.segment[:, :2])
    assert torch.equal(batches[1]["num_objects"], truth.num_objects)
    assert len(reader.infer(batches[0])) == 3


def test_scenes_know_their_cameras(reader: Reader, tmp_path: Path) -> None:
    """In pictures of half the size; where a model sees the scenes, cameras are not among what it sees."""
    world = TinyClevrWorld(views=2)
    folder = make_dataset(DatasetRecipe(world, {"train": 2}, preset="tiny-clevr", seed=0), tmp_path / "set")
    drawn = [world.sample(0, "train", index) for index in range(2)]
    (batch,) = DataLoader(viewslots.Scenes(folder, size=16, truth=True), batch_size=2)
    position = np.array([scene.cameras for scene in drawn], np.float32)
    np.testing.assert_array_equal(batch["camera"], position)
    np.testing.assert_array_equal(batch["pose"][..., :3, 3], position)
    halves = np.array([np.array(scene.picture.intrinsics) / 2 for scene in drawn], np.float32)
    np.testing.assert_array_equal(batch["intrinsics"][:, 1], halves)
    told = viewslots.Scenes(folder, truth=True, camera=True)[0]
    assert told["camera"].shape == (2, 5)
    assert told["camera"][0, 4] == pytest.approx(np.linalg.norm(position[0, 0]))
    assert scene_batch(batch, (16, 16)).camera is None
    assert scene_batch(dict(told, image=told["image"][None], camera=told["camera"][None]), (32, 32)).camera is not None
    assert "pose" not in viewslots.Scenes(folder)[0]


def test_scenes_travel_to_workers_by_name(folder: Path) -> None:
    scenes = viewslots.Scenes(folder, "valid", size=16)
    sent = pickle.dumps(scenes)
    assert len(sent) < 2000
    again = pickle.loads(sent)
    assert torch.equal(again[1]["image"], scenes[-1]["image"])
    assert again[0]["image"].shape == (3, 3, 16, 16)
    with pytest.raises(IndexError):
        scenes[2]
    with pytest.raises(UserError, match="4 views asked for"):
        viewslots.Scenes(folder, views=4)


def test_reprs_fit_a_line(folder: Path, reader: Reader) -> None:
    batch = SceneBatch(pictures(), torch.ones(3, 2, dtype=torch.bool))
    assert repr(batch) == "SceneBatch(image=float32[3, 2, 3, 32, 32] on cpu, view_mask=bool[3, 2] on cpu)"
    assert repr(reader) == "Reader('tiny': ocloc, 32x32, 2 slots, on cpu)"
    assert repr(viewslots.Scenes(folder)).endswith("'train': 5 scenes, 3 views, 32x32)")
    scene = reader.decompose(pictures()[0])
    assert repr(scene).startswith("InferredScene(")
    for value in (scene, scene.render(), reader.infer(batch), Store.open(folder), Store.open(folder).split("valid")):
        assert len(repr(value)) < 600, repr(value)
        assert "tensor(" not in repr(value)
        assert "object at 0x" not in repr(value)


def test_a_batch_moves_to_a_device() -> None:
    batch = SceneBatch(pictures(), torch.ones(3, 2, dtype=torch.bool), torch.zeros(3, 2, 5))
    moved = batch.to("meta")
    assert {value.device.type for value in vars(moved).values()} == {"meta"}
    assert batch.image.device.type == "cpu"
    assert len(moved) == 3
