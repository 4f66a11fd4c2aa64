"""Scenes of a model that knows shadows: looked at and edited as any others."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from viewslots.methods.contract import Search
from viewslots.methods.ocloc.choice import most_likely
from viewslots.methods.ocloc.config import DecoderConfig, StartConfig
from viewslots.methods.ocloc.variables import Latents
from viewslots.methods.umbra.config import UmbraConfig
from viewslots.methods.umbra.model import Umbra
from viewslots.viewpoints.edits import appearance_facts, duplicate, move, put_in_place
from viewslots.viewpoints.scene import InferredScene, Reader

SIDE = 16


@pytest.fixture(scope="module")
def reader() -> Reader:
    compact = {"kind": "compact", "grid": 8, "final_scale": 2}
    config = UmbraConfig(
        image_size=SIDE,
        slots=3,
        hidden=16,
        object_decoder=DecoderConfig(hidden=(16,), grid_channels=6, stages=((1, 3, 6),), **compact),  # type: ignore[arg-type]
        background_decoder=DecoderConfig(hidden=(8,), grid_channels=4, stages=(), **compact),  # type: ignore[arg-type]
        start=StartConfig(presence_logit=3.0),
        shadow_logit=0.0,
    )
    return Reader(Umbra(config, torch.Generator().manual_seed(4)))


@pytest.fixture(scope="module")
def pictures() -> torch.Tensor:
    return torch.rand(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def scene(reader: Reader, pictures: torch.Tensor) -> InferredScene:
    """All objects present, though nothing is trained and none is worth its description."""
    return replace(reader.decompose(pictures), presence=torch.ones(3))


def length(reader: Reader, pictures: torch.Tensor, search: Search) -> float:
    """Of the description of an answer, prices included."""
    found = reader.decompose(pictures, seed=5, search=search).answer.posterior  # type: ignore[union-attr]
    model = reader.model
    return float(model.description_length(reader.batch(pictures), found, most_likely(found), model.annealed()).detach())


def test_longer_searches_make_shorter_descriptions(reader: Reader, pictures: torch.Tensor) -> None:
    """All that the model does by default, against its starts alone, against one start."""
    assert reader.search == Search(4, looks=1, refinement=30)
    whole, starts, one = (length(reader, pictures, search) for search in (reader.search, Search(4), Search(1)))
    assert whole < starts - 1
    assert starts <= one


def test_a_shadow_goes_with_its_object(scene: InferredScene) -> None:
    bare, whole = scene.render(shown=[]).background, scene.render().background
    assert (whole < bare - 0.01).any()
    first = scene.render(shown=[0]).background
    assert ((whole <= first + 1e-6) & (first <= bare + 1e-6)).all()


def test_the_bare_background_has_no_shadows(scene: InferredScene) -> None:
    empty, view = scene.render(shown=[]), scene.render()
    assert torch.allclose(empty.background, empty.bare)
    assert torch.allclose(view.bare, empty.bare, atol=1e-6)
    rendered = scene.reader.model.render(
        Latents(scene.views[:1][None], scene.background[None], scene.objects[None], torch.full((1, 3), torch.inf)),
        scene.reader.model.annealed(),
    )
    assert torch.allclose(view.image, rendered.reconstruction[0, 0], atol=1e-6)
    assert torch.allclose(view.background, rendered.background[0, 0], atol=1e-6)


def test_facts_of_an_object_are_those_of_its_picture(scene: InferredScene) -> None:
    """Middle and mean colour, added up by hand from what the scene shows."""
    found = appearance_facts(scene.reader.scenes, scene.background, scene.objects[1], scene.views[0]).detach()
    view = scene.render(shown=[1])
    shape, colour = view.complete[1].numpy(), view.appearance[1].numpy()
    total, x, y, mean = 1e-3, 0.0, 0.0, np.zeros(3)
    for row in range(SIDE):
        for column in range(SIDE):
            total += shape[row, column]
            x += shape[row, column] * (column + 0.5) / SIDE
            y += shape[row, column] * (row + 0.5) / SIDE
            mean += shape[row, column] * colour[:, row, column]
    np.testing.assert_allclose(found, np.array([x, y, *mean]) / total, rtol=1e-4)


def test_objects_are_moved_and_copied(scene: InferredScene) -> None:
    """How far they come is tested with a trained model."""
    after = move(scene, 0, (0.01, 0.0))
    assert after.objects.isfinite().all()
    assert not torch.equal(after.objects[0], scene.objects[0])
    assert len(duplicate(scene, 0).objects) == len(scene.objects) + 1


def test_an_object_put_in_the_place_of_another(scene: InferredScene) -> None:
    changed = put_in_place(scene, 0, scene, 2)
    assert changed.objects.tolist() == [scene.objects[k].tolist() for k in (2, 1, 2)]
    assert torch.equal(changed.presence, scene.presence)
