"""New scenes from old ones: each edit against the rendering that it stands for."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from viewslots.errors import UserError
from viewslots.methods.ocloc.model import Ocloc
from viewslots.viewpoints.edits import duplicate, exchange_backgrounds, keep, move, remove, surest_first, take
from viewslots.viewpoints.scene import InferredScene, Reader, View


@pytest.fixture
def other(reader: Reader) -> InferredScene:
    return reader.decompose(torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(8)), slots=3)


def same(a: View, b: View) -> bool:
    return torch.equal(a.image, b.image) and torch.equal(a.masks, b.masks)


def test_removed_objects_are_not_shown(scene: InferredScene) -> None:
    without = remove(scene, 2)
    assert without.present() == [0, 3]
    assert same(without.render(), scene.render(shown=[0, 3]))
    assert scene.present() == [0, 2, 3]
    assert without.presence[[0, 1, 3]].equal(scene.presence[[0, 1, 3]])
    assert without.presence[2] == 0
    assert remove(scene, 1).present() == scene.present()  # it was absent
    nothing = remove(remove(without, 0), 3)
    assert nothing.count == 0
    assert torch.equal(nothing.render().image, scene.render().background)


def test_kept_objects_alone_are_shown(scene: InferredScene) -> None:
    assert same(keep(scene, [3, 1]).render(), scene.render(shown=[1, 3]))
    assert keep(scene, []).count == 0


def test_a_taken_object_looks_as_in_its_own_scene(scene: InferredScene, other: InferredScene) -> None:
    both = take(scene, other, 1)
    assert len(both.objects) == 5
    assert both.present() == [0, 2, 3, 4]
    view = both.views[1]
    here, there = both.render(view), other.render(view, shown=[1])
    torch.testing.assert_close(here.complete[4], there.complete[1])
    torch.testing.assert_close(here.appearance[4], there.appearance[1])
    torch.testing.assert_close(here.order[4], there.order[1])
    torch.testing.assert_close(here.complete[:4], scene.render(view).complete)
    assert torch.equal(both.render(shown=[0, 2, 3]).image, scene.render().image)


def test_a_copy_can_lie_on_its_original(scene: InferredScene) -> None:
    """Two equal objects share their place: together they are seen as much as 1 - (1 - shape)^2."""
    view = duplicate(scene, 0, shift=(0.0, 0.0)).render(shown=[0, 4])
    shape = scene.render(shown=[0]).complete[0]
    torch.testing.assert_close(view.masks[1], view.masks[5])
    torch.testing.assert_close(view.masks[1] + view.masks[5], 1 - (1 - shape) ** 2)


def middle(shape: Tensor) -> np.ndarray:
    """Mean place (x, y) of a shape, in shares of the picture."""
    weights = shape.double().numpy()
    rows, columns = np.indices(weights.shape)
    return np.array([(weights * (columns + 0.5)).sum(), (weights * (rows + 0.5)).sum()]) / weights.sum() / len(weights)


def inner_object(scene: InferredScene) -> int:
    """A present object near the middle of the first view, so that it has room to move."""
    view = scene.render()
    return min(view.shown, key=lambda k: np.abs(middle(view.complete[k]) - 0.5).max())


@pytest.mark.parametrize("shift", [(0.15, 0.0), (-0.1, 0.05)])
def test_moved_objects_stand_elsewhere(clevr_scenes: list[InferredScene], shift: tuple[float, float]) -> None:
    for scene in clevr_scenes:
        k = inner_object(scene)
        changed = move(scene, k, shift)
        before, after = scene.render(), changed.render()
        np.testing.assert_allclose(middle(after.complete[k]) - middle(before.complete[k]), shift, atol=0.04)
        others = [j for j in scene.present() if j != k]
        assert torch.equal(after.complete[others], before.complete[others])
        seen_from_there = [item.render(scene.views[1]).complete[k] for item in (scene, changed)]
        assert np.abs(middle(seen_from_there[1]) - middle(seen_from_there[0])).max() > 0.01


def test_moved_objects_keep_their_colour(clevr_scenes: list[InferredScene]) -> None:
    def colour(view: View, k: int) -> Tensor:
        return (view.complete[k] * view.appearance[k]).sum((1, 2)) / view.complete[k].sum()

    for scene in clevr_scenes:
        k = inner_object(scene)
        torch.testing.assert_close(
            colour(move(scene, k, (0.1, 0.0)).render(), k), colour(scene.render(), k), atol=0.02, rtol=0
        )


def test_a_viewpoint_may_be_chosen_for_moving(clevr_scenes: list[InferredScene]) -> None:
    scene = clevr_scenes[0]
    k, there = inner_object(scene), scene.views[2]
    changed = move(scene, k, (0.0, -0.08), view=there)
    found = middle(changed.render(there).complete[k]) - middle(scene.render(there).complete[k])
    np.testing.assert_allclose(found, (0.0, -0.08), atol=0.04)


def test_a_copy_stands_aside(clevr_scenes: list[InferredScene]) -> None:
    scene = clevr_scenes[0]
    k = inner_object(scene)
    twice = duplicate(scene, k)
    assert twice.present() == [*scene.present(), 7]
    assert torch.equal(twice.objects[:7], scene.objects)
    view = twice.render()
    np.testing.assert_allclose(middle(view.complete[7]) - middle(view.complete[k]), (0.15, 0.0), atol=0.04)


def test_moving_needs_no_gradients_around_it(scene: InferredScene) -> None:
    with torch.no_grad():
        changed = move(scene, 0, (0.05, 0.0))
    assert not changed.objects.requires_grad
    assert torch.isfinite(changed.objects).all()
    assert torch.equal(changed.objects[1:], scene.objects[1:])


def test_exchanged_backgrounds(scene: InferredScene, other: InferredScene) -> None:
    first, second = exchange_backgrounds(scene, other)
    view = scene.views[0]
    torch.testing.assert_close(first.render(view).background, other.render(view).background)
    torch.testing.assert_close(second.render(view).background, scene.render(view).background)
    assert torch.equal(first.render(view).complete, scene.render(view).complete)
    assert torch.equal(exchange_backgrounds(first, second)[0].background, scene.background)


def test_viewpoints_of_further_pictures_survive_edits(scene: InferredScene, other: InferredScene) -> None:
    more = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(3))
    edited = exchange_backgrounds(take(remove(scene, 0), other, 2), other)[0]
    assert torch.equal(edited.estimate(more), scene.estimate(more))


def test_scenes_from_the_prior_can_be_edited(reader: Reader, scene: InferredScene) -> None:
    dream = replace(reader.prior(1), presence=torch.tensor([1.0, 1.0, 0.0, 0.0]))
    assert take(dream, scene, 0).present() == [0, 1, 4]
    assert take(scene, dream, 1).count == 4


def test_one_clear_line_for_impossible_edits(scene: InferredScene, reader: Reader) -> None:
    for edit in (remove, duplicate):
        with pytest.raises(UserError, match="no object 4"):
            edit(scene, 4)
    with pytest.raises(UserError, match="no object 9"):
        keep(scene, [0, 9])
    with pytest.raises(UserError, match="no object -1"):
        move(scene, -1, (0.1, 0.0))
    stranger = replace(scene, reader=Reader(Ocloc(reader.model.config)))
    with pytest.raises(UserError, match="different models"):
        take(scene, stranger, 0)
    with pytest.raises(UserError, match="different models"):
        exchange_backgrounds(stranger, scene)


def test_surest_first_keeps_the_picture(scene: InferredScene) -> None:
    presence = torch.linspace(0.1, 0.9, len(scene.presence))
    given = replace(scene, presence=presence)
    ordered = surest_first(given)
    assert ordered.presence.tolist() == sorted(presence.tolist(), reverse=True)
    torch.testing.assert_close(ordered.render().image, given.render().image)
