"""Shadows, identity, pictures and groups: toy scenes by hand, and random ones by loops over pixels."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score

from viewslots.errors import UserError
from viewslots.metrics.extras import (
    MASK_SCORES,
    ORDER_SCORES,
    SHADOW,
    Ratio,
    SceneRatios,
    hidden_share,
    scene_extras,
    shadow_pixels,
)
from viewslots.metrics.score import METRICS, SceneScores
from viewslots.protocol.repeats import Repeats, by_objects, by_occlusion
from viewslots.types import Decomposition, SceneBatch, SceneTruth

BACK = 255


def truth_of(segment: torch.Tensor, shapes: torch.Tensor, shadows: torch.Tensor | None) -> SceneTruth:
    scenes, views = segment.shape[:2]
    return SceneTruth(
        segment=segment.to(torch.uint8),
        overlap=(shapes >= 128).sum(2).to(torch.uint8),
        shapes=shapes.to(torch.uint8),
        num_objects=torch.full((scenes,), shapes.shape[2], dtype=torch.uint8),
        view_mask=torch.ones(scenes, views, dtype=torch.bool),
        shadows=None if shadows is None else shadows.to(torch.uint8),
        depth_order=None,
        camera=None,
    )


def answer_of(layer: torch.Tensor, layers: int, *, has_background: bool = True) -> Decomposition:
    """A method that claims every pixel for one layer."""
    masks = torch.nn.functional.one_hot(layer, layers).movedim(-1, 2).float()
    picture = torch.zeros(*layer.shape[:2], 3, *layer.shape[2:])
    return Decomposition(picture, masks, has_background, None, None, None, None)


def pictures(layer: torch.Tensor) -> SceneBatch:
    image = torch.zeros(*layer.shape[:2], 3, *layer.shape[2:])
    return SceneBatch(image, torch.ones(layer.shape[:2], dtype=torch.bool))


def extras(prediction: Decomposition, truth: SceneTruth) -> dict[str, float | None]:
    batch = pictures(truth.segment)
    return scene_extras(prediction, truth, replace(batch, view_mask=truth.view_mask)).values()


@pytest.fixture
def toy() -> SceneTruth:
    """One scene, two views of 2x3 pixels, two objects; object 1 throws a shadow on one pixel of each view."""
    segment = torch.tensor([[[[0, 0, BACK], [1, BACK, BACK]], [[1, 1, BACK], [0, BACK, BACK]]]])
    shapes = torch.stack([segment == 0, segment == 1], 2) * 255
    shadows = torch.zeros_like(shapes)
    shadows[0, 0, 1, 1, 1] = SHADOW
    shadows[0, 1, 1, 0, 2] = 255
    shadows[0, 0, 0, 0, 2] = SHADOW - 1  # too faint
    shadows[0, 0, 0, 1, 0] = 255  # on an object, not on the ground
    return truth_of(segment, shapes, shadows)


def test_shadow_pixels_by_hand(toy: SceneTruth) -> None:
    assert shadow_pixels(toy).nonzero().tolist() == [[0, 0, 1, 1], [0, 1, 0, 2]]


def test_toy_scores_by_hand(toy: SceneTruth) -> None:
    """Slots 1 and 2 hold the objects in view 0; in view 1 slot 1 takes the two pixels of object 1 as well.

    Matching: object 0 has 3 pixels in slot 1; object 1 has 1 in slot 2 and 2 in slot 1, so it gets slot 2.
    """
    layer = torch.tensor([[[[1, 1, 0], [2, 2, 0]], [[1, 1, 0], [1, 0, 0]]]])
    found = extras(answer_of(layer, 3), toy)
    assert found["identity"] == 3 / 4
    assert found["shadow_claimed"] == 1 / 2
    kept = [(0, 1), (0, 1), (9, 0), (1, 2), (9, 0), (1, 1), (1, 1), (0, 1), (9, 0), (9, 0)]
    assert found["ari_a_without_shadows"] == pytest.approx(adjusted_rand_score(*zip(*kept, strict=True)))


def test_a_perfect_answer(toy: SceneTruth) -> None:
    layer = torch.where(toy.segment == BACK, 0, toy.segment.long() + 1)
    found = extras(answer_of(layer, 3), toy)
    assert (found["ari_a_without_shadows"], found["shadow_claimed"], found["identity"]) == (1.0, 0.0, 1.0)


def test_shadows_given_to_objects_do_not_harm_the_shadow_free_score(toy: SceneTruth) -> None:
    layer = torch.where(toy.segment == BACK, 0, toy.segment.long() + 1)
    layer[shadow_pixels(toy)] = 2
    found = extras(answer_of(layer, 3), toy)
    assert (found["ari_a_without_shadows"], found["shadow_claimed"]) == (1.0, 1.0)


def test_an_object_lost_to_the_background_has_not_kept_its_slot(toy: SceneTruth) -> None:
    layer = torch.where(toy.segment == BACK, 0, toy.segment.long() + 1)
    layer[0, 1] = 0
    assert extras(answer_of(layer, 3), toy)["identity"] == 1 / 2


def test_swapped_slots_in_one_view(toy: SceneTruth) -> None:
    """View 1 exchanges the slots: of each object's 3 pixels at least as many lie in a wrong slot in one view."""
    layer = torch.where(toy.segment == BACK, 0, toy.segment.long() + 1)
    layer[0, 1] = torch.tensor([0, 2, 1])[layer[0, 1]]
    assert extras(answer_of(layer, 3), toy)["identity"] == 1 / 2


def test_more_objects_than_slots(toy: SceneTruth) -> None:
    layer = torch.where(toy.segment == BACK, 0, 1)
    assert extras(answer_of(layer, 2), toy)["identity"] == 1 / 2


def test_without_a_background_layer_nobody_claims_shadow(toy: SceneTruth) -> None:
    layer = torch.where(toy.segment == BACK, 2, toy.segment.long())
    found = extras(answer_of(layer, 3, has_background=False), toy)
    assert found["shadow_claimed"] is None
    assert (found["ari_a_without_shadows"], found["identity"]) == (1.0, 1.0)


def test_without_stored_shadows(toy: SceneTruth) -> None:
    found = extras(answer_of(torch.zeros(1, 2, 2, 3, dtype=torch.int64), 3), replace(toy, shadows=None))
    assert found["ari_a_without_shadows"] is None
    assert found["shadow_claimed"] is None


def test_padded_views_do_not_count(toy: SceneTruth) -> None:
    layer = torch.where(toy.segment == BACK, 0, toy.segment.long() + 1)
    layer[0, 1] = 0
    one_view = replace(toy, view_mask=torch.tensor([[True, False]]))
    found = extras(answer_of(layer, 3), one_view)
    assert (found["ari_a_without_shadows"], found["shadow_claimed"], found["identity"]) == (1.0, 0.0, 1.0)


def slow_extras(layer: np.ndarray, masks_have_background: bool, truth: SceneTruth) -> dict[str, float]:
    """Loops over scenes, views and pixels."""
    segment, shadows = truth.segment.numpy(), truth.shadows.numpy()
    scores, claimed, dark, kept, pairs = [], 0, 0, 0, 0
    first = int(masks_have_background)
    for s in range(len(segment)):
        labels, table = [], np.zeros((segment.shape[1], truth.shapes.shape[2], 4))
        for place in np.ndindex(*segment.shape[1:]):
            shadow = segment[s][place] == BACK and (shadows[s, place[0], :, place[1], place[2]] >= SHADOW).any()
            dark += shadow
            claimed += shadow and layer[s][place] > 0
            if not shadow:
                labels.append((segment[s][place], layer[s][place]))
            if segment[s][place] != BACK:
                table[place[0], segment[s][place], layer[s][place]] += 1
        scores.append(adjusted_rand_score(*zip(*labels, strict=True)))
        rows, columns = linear_sum_assignment(-table.sum(0)[:, first:])
        for view, row in np.ndindex(*table.shape[:2]):
            if table[view, row].sum():
                pairs += 1
                slot = dict(zip(rows, columns, strict=True)).get(row)
                counts = table[view, row]
                kept += slot is not None and counts[slot + first] == counts.max()
    return {"ari_a_without_shadows": np.mean(scores), "shadow_claimed": claimed / dark, "identity": kept / pairs}


@pytest.mark.parametrize("has_background", [True, False])
def test_random_scenes_by_loops(has_background: bool) -> None:
    rng = torch.Generator().manual_seed(3)
    segment = torch.randint(0, 6, (3, 2, 5, 6), generator=rng)
    segment = torch.where(segment >= 4, BACK, segment)
    shapes = torch.stack([segment == k for k in range(4)], 2) * 255
    truth = truth_of(segment, shapes, torch.randint(0, 70, shapes.shape, generator=rng))
    mixed = torch.where(
        torch.rand(segment.shape, generator=rng) < 0.6, segment, torch.randint(0, 4, segment.shape, generator=rng)
    )
    layer = mixed.clamp(max=3)
    found = extras(answer_of(layer, 4, has_background=has_background), truth)
    expected = slow_extras(layer.numpy(), has_background, truth)
    assert found["ari_a_without_shadows"] == pytest.approx(expected["ari_a_without_shadows"], abs=1e-12)
    assert found["identity"] == pytest.approx(expected["identity"])
    assert found["shadow_claimed"] == (pytest.approx(expected["shadow_claimed"]) if has_background else None)


def slow_order_scores(prediction: Decomposition, truth: SceneTruth) -> dict[str, float]:
    """Loops over scenes, views and pairs, from the definition."""
    every = found = right = 0.0
    for s in range(len(truth.segment)):
        real = truth.view_mask[s].numpy()
        segment, shapes = truth.segment[s].numpy()[real], truth.shapes[s].numpy()[real].astype(int)
        masks, order = prediction.layer_masks[s].numpy()[real], prediction.depth_order[s].numpy()[real]
        objects, held, back = range(shapes.shape[1]), set(), int(prediction.has_background)
        slots = range(masks.shape[1] - back)
        overlap = [[masks[:, back + k][segment == g].sum() for k in slots] for g in objects]
        slot = dict(zip(*linear_sum_assignment(-np.array(overlap)), strict=True))
        for g in slot:
            own = masks.argmax(1)[segment == g] == slot[g] + back
            if len(own) and own.mean() >= 0.5 and prediction.presence[s, slot[g]] >= 0.5:
                held.add(g)
        for m, i, j in np.ndindex(len(segment), len(objects), len(objects)):
            if i < j:
                shared = np.minimum(shapes[m, i], shapes[m, j]).sum()
                mine = np.minimum((segment[m] == i) * shapes[m, i], shapes[m, j]).sum()
                theirs = np.minimum((segment[m] == j) * shapes[m, j], shapes[m, i]).sum()
                every += shared
                if {i, j} <= held:
                    found += shared
                    right += shared * bool((order[m, slot[i]] > order[m, slot[j]]) == (mine >= theirs))
    return {"pairs_found": found / every, "order_of_found": right / found}


@pytest.mark.parametrize(("slots", "back"), [(3, True), (6, True), (4, False)])
def test_order_of_found_by_loops(slots: int, back: bool) -> None:
    """Objects that overlap, some wholly hidden; slots that are empty, or hold something else; more objects than slots;
    a padded view; with a layer for the background and without."""
    rng = torch.Generator().manual_seed(slots)
    shapes = torch.randint(0, 256, (6, 3, 4, 5, 6), generator=rng) * (torch.rand(6, 3, 4, 5, 6, generator=rng) < 0.7)
    nearest = torch.rand(shapes.shape, generator=rng).masked_fill(shapes < 128, -1)
    nearest[:2, :, 0] = -1  # seen nowhere, though its shape overlaps others
    segment = torch.where(nearest.amax(2) < 0, BACK, nearest.argmax(2))
    layers = slots + back
    truth = replace(truth_of(segment, shapes, None), view_mask=torch.tensor([[True, True, False]] + [[True] * 3] * 5))
    own = torch.nn.functional.one_hot((segment + back) % (BACK + 1) % layers, layers).movedim(-1, 2)
    prediction = replace(
        answer_of(segment.clamp(max=layers - 1), layers, has_background=back),
        layer_masks=(torch.rand(6, 3, layers, 5, 6, generator=rng) + 0.7 * own).softmax(2),
        presence=torch.rand(6, slots, generator=rng).pow(0.3),
        depth_order=torch.randn(6, 3, slots, generator=rng).masked_fill(
            torch.rand(6, 3, slots, generator=rng) < 0.1, -math.inf
        ),
    )
    found = extras(prediction, truth)
    for name, expected in slow_order_scores(prediction, truth).items():
        assert 0.05 < expected < 0.95
        assert found[name] == pytest.approx(expected), name
    nothing = dict.fromkeys(ORDER_SCORES)
    for lacking in ({"presence": None}, {"depth_order": None}):
        answered = extras(replace(prediction, **lacking), truth)
        assert {name: answered[name] for name in ORDER_SCORES} == nothing
    for lacking in ({"shapes": None}, {"identities": False}):
        known = extras(prediction, replace(truth, **lacking))
        assert {name: known[name] for name in ORDER_SCORES} == nothing


def test_picture_errors_by_hand(toy: SceneTruth) -> None:
    """Errors 0.1 and 0.2 in two pictures: mean square 0.025; PSNR 20 dB and 13.98 dB. 1.5 is shown as 1."""
    image = torch.ones(1, 3, 3, 2, 3)
    shown = image.clone()
    shown[0, 0] -= 0.1
    shown[0, 1] -= 0.2
    shown[0, 2] = 7.0
    batch = SceneBatch(image, torch.tensor([[True, True, False]]))
    truth = replace(toy, segment=toy.segment[:, [0, 1, 1]], shapes=toy.shapes[:, [0, 1, 1]], view_mask=batch.view_mask)
    truth = replace(truth, shadows=None)
    prediction = replace(answer_of(torch.zeros(1, 3, 2, 3, dtype=torch.int64), 3), reconstruction=shown)
    found = scene_extras(prediction, truth, batch).values()
    assert found["mse"] == pytest.approx(0.025, rel=1e-5)
    assert found["psnr"] == pytest.approx((20 - 20 * math.log10(0.2)) / 2, rel=1e-5)
    bright = scene_extras(replace(prediction, reconstruction=torch.full_like(image, 1.5)), truth, batch).values()
    assert (bright["mse"], bright["psnr"]) == (0.0, pytest.approx(100.0))


def test_pictures_that_are_no_numbers_are_refused(toy: SceneTruth) -> None:
    """But padded ones may hold anything."""
    answer = answer_of(torch.zeros(1, 2, 2, 3, dtype=torch.int64), 3)
    answer.reconstruction[0, 1] = torch.nan
    assert extras(answer, replace(toy, view_mask=torch.tensor([[True, False]])))["mse"] == 0
    with pytest.raises(UserError, match=r"reconstructions .*NaN"):
        extras(answer, toy)


def test_hidden_share_by_hand(toy: SceneTruth) -> None:
    """6 visible pixels; complete shapes of 6 + 2: a quarter is hidden."""
    shapes = toy.shapes.clone()
    shapes[0, 0, 1, 0, :2] = 128
    shapes[0, 0, 1, 0, 2] = 127  # not covered
    assert hidden_share(replace(toy, shapes=shapes)).tolist() == [0.25]
    assert hidden_share(toy).tolist() == [0.0]
    assert hidden_share(replace(toy, shapes=shapes, view_mask=torch.tensor([[False, True]]))).tolist() == [0.0]


def test_without_truth_pictures_alone_are_judged(toy: SceneTruth) -> None:
    layer = torch.where(toy.segment == BACK, 0, toy.segment.long() + 1)
    whole = extras(answer_of(layer, 3), toy)
    batch, bare = pictures(layer), replace(toy, segment=None, shapes=None, shadows=None)
    found = scene_extras(answer_of(layer, 3), bare, batch).values()
    assert found == whole | dict.fromkeys(("ari_a_without_shadows", "shadow_claimed", "identity", *MASK_SCORES))
    assert hidden_share(bare) is hidden_share(replace(toy, shapes=None)) is None
    assert extras(answer_of(layer, 3), replace(toy, shapes=None)) == whole  # the segment tells enough


def test_ratios_by_hand() -> None:
    ratios = SceneRatios({"a": Ratio(np.array([1.0, 3.0]), np.array([2.0, 4.0])), "b": Ratio.nothing(2)})
    assert ratios.values() == {"a": 4 / 6, "b": None}
    assert ratios.select(np.array([1, 1, 0])).values()["a"] == 7 / 10
    both = SceneRatios.concatenate([ratios, ratios.select(np.array([0]))])
    assert both.values()["a"] == 5 / 8
    assert ratios.merge(SceneRatios({"c": Ratio(np.ones(2), np.ones(2))})).values()["c"] == 1.0


@pytest.fixture
def repeats() -> Repeats:
    """Four scenes, two repeats: repeat r of scene s scores s + 10 r in all metrics, with pooled weights s + 1."""

    def scores(repeat: int) -> SceneScores:
        values = torch.arange(4, dtype=torch.float64)[:, None].expand(-1, len(METRICS)) + 10 * repeat
        weight = torch.arange(1, 5, dtype=torch.float64)[:, None].expand(-1, len(METRICS))
        return SceneScores(values, values * weight, weight)

    extra = [SceneRatios({"x": Ratio(np.arange(4.0) + repeat, np.ones(4))}) for repeat in range(2)]
    return Repeats([scores(0), scores(1)], extra, np.array([3, 5, 3, 4]), np.array([0.3, 0.1, 0.2, 0.0]))


def test_selected_scenes_over_repeats_by_hand(repeats: Repeats) -> None:
    found = repeats.select(np.array([0, 2, 2]))
    assert found["paper"]["ARI-A"] == pytest.approx((0 + 2 + 2) / 3 + 5)
    assert found["pooled"]["OOA"] == pytest.approx((0 * 1 + 2 * 3 * 2) / 7 + 5)
    assert found["extras"]["x"] == pytest.approx((0 + 2 + 2) / 3 + 0.5)
    assert repeats.one(1)["paper"]["F1"] == 11.5


def test_groups_by_number_of_objects(repeats: Repeats) -> None:
    found = by_objects(repeats)
    assert {name: group["scenes"] for name, group in found.items()} == {"3": 2, "4": 1, "5": 1}
    assert found["3"]["paper"]["IoU"] == pytest.approx(1 + 5)
    assert found["4"]["pooled"]["IoU"] == pytest.approx(3 + 5)


def test_groups_by_occlusion(repeats: Repeats) -> None:
    """Ranked by what is hidden: scenes 3, 1 | 2 | 0."""
    found = by_occlusion(repeats)
    assert [group["hidden"] for group in found.values()] == [[0.0, 0.1], [0.2, 0.2], [0.3, 0.3]]
    assert list(found) == ["least", "middle", "most"]
    assert found["least"]["paper"]["OCA"] == pytest.approx(2 + 5)
    assert found["most"]["extras"]["x"] == pytest.approx(0.5)
    few = replace(repeats, hidden=repeats.hidden[:1])
    assert list(by_occlusion(few)) == ["least"]
    assert by_occlusion(replace(repeats, hidden=None)) == by_objects(replace(repeats, num_objects=None)) == {}
