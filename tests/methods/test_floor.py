"""k-means against scikit-learn's and on pictures it must get right: a foreign method, end to end."""

import numpy as np
import pytest
import torch
from disc_world import disc_store
from sklearn.cluster import KMeans

from viewslots.errors import UserError
from viewslots.methods.contract import Search
from viewslots.methods.kmeans.model import (
    RESTARTS,
    KMeansMethod,
    best_centres,
    drawn_points,
    first_centres,
    refined,
    scene_points,
    squared_distances,
)
from viewslots.protocol.evaluate import evaluate
from viewslots.protocol.plan import Plan
from viewslots.types import SceneBatch


def draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def patches(scenes: int = 1) -> tuple[SceneBatch, torch.Tensor]:
    """Two views of a grey ground with two squares, red and blue, in other places in the second view."""
    image = torch.full((scenes, 2, 3, 16, 16), 0.5)
    label = torch.zeros(scenes, 2, 16, 16, dtype=torch.int64)
    for view, (red, blue) in enumerate(((3, 9), (5, 10))):
        for index, (start, colour) in enumerate(((red, [1.0, 0.0, 0.0]), (blue, [0.0, 0.0, 1.0]))):
            image[:, view, :, start : start + 4, start : start + 4] = torch.tensor(colour)[:, None, None]
            label[:, view, start : start + 4, start : start + 4] = index + 1
    return SceneBatch(image, torch.ones(scenes, 2, dtype=torch.bool)), label


def test_flat_patches_are_found_with_the_ground_as_background() -> None:
    batch, label = patches()
    answer = KMeansMethod().infer(batch, draws(), 2).decomposition()
    found = answer.layer_masks.argmax(2)
    assert torch.equal(found == 0, label == 0)
    pairs = {(int(a), int(b)) for a, b in zip(found.flatten(), label.flatten(), strict=True)}
    assert len(pairs) == 3
    torch.testing.assert_close(answer.reconstruction, batch.image)
    assert answer.has_background
    assert answer.depth_order is None
    assert answer.presence.tolist() == [[1.0, 1.0]]


def test_the_answer_keeps_the_contract() -> None:
    image = torch.rand(2, 3, 3, 16, 16, generator=draws(4))
    batch = SceneBatch(image, torch.tensor([[True, True, True], [True, False, False]]))
    answer = KMeansMethod().infer(batch, draws(), 4).decomposition()
    assert answer.layer_masks.shape == (2, 3, 5, 16, 16)
    assert answer.complete_shapes.shape == (2, 3, 4, 16, 16)
    torch.testing.assert_close(answer.layer_masks.sum(2), torch.ones(2, 3, 16, 16))
    winner = answer.layer_masks.argmax(2)
    for k in range(4):
        assert torch.equal(answer.complete_shapes[:, :, k] == 1, winner == k + 1)


def test_pixels_of_the_background_still_have_a_nearest_object() -> None:
    """No two object layers are equal there, which would hand all such pixels to the first."""
    batch, _ = patches()
    objects = KMeansMethod().infer(batch, draws(), 2).decomposition().layer_masks[:, :, 1:]
    assert (objects[:, :, 0] != objects[:, :, 1]).all()
    assert (objects > 0).all()


def test_more_clusters_than_colours_and_places_leave_slots_empty() -> None:
    """One view of 2x2 equal pixels has four distinct points: of seven clusters three stay empty and absent."""
    batch = SceneBatch(torch.full((1, 1, 3, 2, 2), 0.5), torch.ones(1, 1, dtype=torch.bool))
    answer = KMeansMethod().infer(batch, draws(), 6).decomposition()
    assert answer.presence.sum() == 3
    winners = answer.layer_masks.argmax(2).unique()
    assert len(winners) == 4
    assert torch.isfinite(answer.layer_masks).all()


def test_padded_views_change_nothing() -> None:
    batch, _ = patches()
    odd = torch.cat([batch.image, torch.rand(1, 1, 3, 16, 16)], 1)
    padded = SceneBatch(odd, torch.tensor([[True, True, False]]))
    answer = KMeansMethod().infer(padded, draws(), 2).decomposition()
    bare = KMeansMethod().infer(batch, draws(), 2).decomposition()
    torch.testing.assert_close(answer.layer_masks[:, :2], bare.layer_masks)


def test_the_generator_decides() -> None:
    batch = SceneBatch(torch.rand(1, 1, 3, 16, 16, generator=draws(4)), torch.ones(1, 1, dtype=torch.bool))
    one, same, other = (KMeansMethod().infer(batch, draws(seed), 5).decomposition().layer_masks for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("slots", [None, 0])
def test_slots_must_be_said(slots: int | None) -> None:
    with pytest.raises(UserError, match="number of slots"):
        KMeansMethod().infer(patches()[0], draws(), slots)


def test_a_search_is_refused_by_the_names_of_its_options() -> None:
    with pytest.raises(UserError, match="leave out --starts, --spare, --looks and --refine"):
        KMeansMethod().infer(patches()[0], draws(), 2, Search(starts=3))


def test_lloyds_rounds_are_scikit_learns() -> None:
    """From the same start, 20 rounds give the same centres; a weight of 0 takes points out."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(300, 5))
    start = points[:4]
    expected = KMeans(4, init=start, n_init=1, max_iter=20, tol=0, algorithm="lloyd").fit(points[:250])
    weight = torch.ones(1, 300)
    weight[:, 250:] = 0
    found = refined(torch.tensor(points)[None], weight.double(), torch.tensor(start)[None])
    np.testing.assert_allclose(found[0], expected.cluster_centers_, atol=1e-9)


def test_restarts_come_near_the_best_that_scikit_learn_finds() -> None:
    rng = np.random.default_rng(1)
    points = np.concatenate([rng.normal(centre, 0.05, (60, 2)) for centre in rng.uniform(-3, 3, (6, 2))])
    found = best_centres(torch.tensor(points)[None], torch.ones(1, 360).double(), 6, draws())
    cost = squared_distances(torch.tensor(points)[None], found).amin(2).sum()
    assert float(cost) <= 1.05 * KMeans(6, n_init=20, random_state=0).fit(points).inertia_


def test_the_best_restart_wins_scene_by_scene() -> None:
    points, weight = torch.rand(6, 80, 2, generator=draws(2)).double(), torch.ones(6, 80).double()
    rng, costs = draws(3), []
    for _ in range(RESTARTS):
        centres = refined(points, weight, first_centres(points, weight, 5, rng))
        costs.append(squared_distances(points, centres).amin(2).sum(1))
    found = squared_distances(points, best_centres(points, weight, 5, draws(3))).amin(2).sum(1)
    torch.testing.assert_close(found, torch.stack(costs).amin(0))
    assert len(torch.stack(costs).argmin(0).unique()) > 1


def test_points_are_drawn_in_proportion_to_their_weight() -> None:
    points = torch.arange(4.0)[None, :, None].expand(20_000, 4, 1)
    drawn = drawn_points(points, torch.tensor([[1.0, 0.0, 3.0, 4.0]]).expand(20_000, 4), draws())
    shares = torch.bincount(drawn[:, 0].long(), minlength=4) / 20_000
    assert shares.tolist() == pytest.approx([1 / 8, 0, 3 / 8, 1 / 2], abs=0.02)


def test_first_centres_are_spread_out() -> None:
    """k-means++ never takes a point again while another is left, and prefers what is far."""
    points = torch.tensor([[[0.0], [0.0], [1.0], [100.0]]]).expand(500, 4, 1)
    centres = first_centres(points, torch.ones(500, 4), 3, draws())
    assert all(sorted(row) == [0.0, 1.0, 100.0] for row in centres[:, :, 0].tolist())


def test_points_hold_colour_and_place() -> None:
    image = torch.rand(1, 2, 3, 4, 6, generator=draws())
    points, weight = scene_points(SceneBatch(image, torch.tensor([[True, False]])))
    index = (1 * 4 + 3) * 6 + 5  # view 1, row 3, column 5
    assert torch.equal(points[0, index, :3], image[0, 1, :, 3, 5])
    assert points[0, index, 3:].tolist() == [0.5, 0.5]
    assert points[0, 7, 3:].tolist() == pytest.approx([0.5 / 3, 0.1])
    assert weight[0].tolist() == [1.0] * 24 + [0.0] * 24


def test_a_foreign_method_is_scored_end_to_end(tmp_path) -> None:
    """Nothing but `infer`: eight metrics where it has answers, N/A for order, viewpoints and cameras."""
    store = disc_store(tmp_path / "discs")
    found = evaluate(KMeansMethod(), store, Plan("test1", views=2, slots=3, repeats=1)).one(0)
    assert found["pooled"]["OOA"] is None
    assert all(found[kind][name] is not None for kind in ("paper", "pooled") for name in ("ARI-A", "IoU", "F1", "OCA"))
    assert 0.2 < found["pooled"]["ARI-O"] <= 1
    assert found["extras"]["psnr"] > 15
    assert found["extras"]["novel_view_psnr"] is None
    assert found["extras"]["camera_linear_position"] is None
