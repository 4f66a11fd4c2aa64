"""Count, order and scores, on a scene small enough to be answered by hand; and one real scene, beside the metrics."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from viewslots.data.import_data import Import, import_data
from viewslots.data.sources.source import Options
from viewslots.data.store import Store
from viewslots.errors import UserError
from viewslots.explorer.controls import FIRST_SCENE, PICTURES
from viewslots.explorer.opened import (
    MOST_NUMBER,
    Opened,
    PairFact,
    SceneFacts,
    distinct,
    facts_of,
    fresh_scene,
    held_out,
    open_numbered,
    world_for,
)
from viewslots.explorer.panels import facts_panel
from viewslots.methods.contract import Search
from viewslots.methods.umbra.model import Umbra
from viewslots.metrics.score import METRICS
from viewslots.types import SceneTruth
from viewslots.viewpoints.scene import InferredScene, Reader, View, load

SEGMENTS = ["0011..", "0.1.2."]
"""Two views of a row of six pixels: who is seen. Object 2 shows in the second alone; object 3 never does."""
NEAR = [[3.0, 5.0, 1.0, 0.0], [5.0, 3.0, 4.0, 0.0]]
FOUND = ["bbaa..", "b.a..."]
"""What the model says: slot a is 0, slot b is 1; slot 2 is present as well, and sees nothing."""
ORDER = [[1.0, 2.0, 0.5], [1.0, 2.0, 3.0]]


def row(text: str, signs: str) -> torch.Tensor:
    """[len(signs), 1, W]: where each sign stands."""
    return torch.tensor([[[float(sign == wanted) for sign in text]] for wanted in signs])


@pytest.fixture
def by_hand(reader: Reader) -> Opened:
    views = [
        View(
            image=torch.zeros(3, 1, 6),
            masks=row(found, ".ab?"),
            complete=row(found, "ab?"),
            appearance=torch.zeros(3, 3, 1, 6),
            background=torch.zeros(3, 1, 6),
            bare=torch.zeros(3, 1, 6),
            order=torch.tensor(order),
            shown=(0, 1, 2),
        )
        for found, order in zip(FOUND, ORDER, strict=True)
    ]
    scene = InferredScene(
        reader,
        torch.zeros(2, 3, 1, 6),
        torch.zeros(2, 3),
        torch.zeros(1),
        torch.zeros(3, 1),
        torch.tensor([0.9, 1, 0.6]),
    )
    segment = torch.tensor([[[255 if sign == "." else int(sign) for sign in text]] for text in SEGMENTS]).byte()
    shapes = (segment[:, None] == torch.arange(4).byte()[:, None, None]).byte() * 255
    truth = SceneTruth(
        segment=segment[None],
        overlap=(segment != 255).byte()[None],
        shapes=shapes[None],
        num_objects=torch.tensor([4]).byte(),
        view_mask=torch.ones(1, 2, dtype=torch.bool),
        shadows=None,
        depth_order=torch.tensor([NEAR]),
        camera=None,
    )
    return Opened("by hand", scene, tuple(views), ("cube", "ball", "cone", "ghost"), truth)


def meeting(by_hand: Opened, order: list[float]) -> Opened:
    """Complete shapes of a (the ball) and b (the cube) share a pixel in the first view, and the true ones do, too."""
    shared = by_hand.rebuilt[0].complete.clone()
    shared[:2, 0, 2] = 1
    view = replace(by_hand.rebuilt[0], complete=shared, order=torch.tensor(order))
    assert by_hand.truth is not None
    assert by_hand.truth.shapes is not None
    shapes = by_hand.truth.shapes.clone()
    shapes[0, 0, :2, 0, 2] = 255
    return replace(by_hand, rebuilt=(view, by_hand.rebuilt[1]), truth=replace(by_hand.truth, shapes=shapes))


def test_facts_by_hand(by_hand: Opened) -> None:
    facts = facts_of(by_hand, 0)
    assert (facts.found, facts.true_count) == (3, 3)  # the ghost is never seen, the cone in one picture
    assert [(fact.index, fact.name) for fact in facts.objects] == [(0, "ball"), (1, "cube"), (2, None)]
    assert facts.pairs == ()  # nothing meets, so there is no order to tell
    assert facts.missed == ("cone",)
    assert [round(fact.sure, 2) for fact in facts.objects] == [0.9, 1, 0.6]


def test_only_pairs_that_meet_are_told_and_compared(by_hand: Opened) -> None:
    """In truth the ball (a) stands before the cube (b); an order among objects that do not meet is not shown."""
    right, wrong = (facts_of(meeting(by_hand, order), 0).pairs for order in ([2.0, 1.0, 9.0], [1.0, 2.0, 9.0]))
    assert right == (PairFact(0, 1, True),)
    assert wrong == (PairFact(1, 0, False),)
    found_alone = replace(meeting(by_hand, [2.0, 1.0, 9.0]), truth=by_hand.truth)
    assert facts_of(found_alone, 0).pairs == (PairFact(0, 1, None),)
    unknown = replace(meeting(by_hand, [2.0, 1.0, 9.0]), truth=None)
    assert facts_of(unknown, 0).pairs == (PairFact(0, 1, None),)


def test_saved_numbers_are_those_of_the_page(by_hand: Opened) -> None:
    """From 1, pictures and objects alike."""
    told = facts_of(meeting(by_hand, [2.0, 1.0, 9.0]), 0).to_json()
    assert told["picture"] == 1
    assert told["pairs"] == [{"near": 1, "far": 2, "right": True}]
    assert [(fact["index"], fact["name"]) for fact in told["objects"]] == [(1, "ball"), (2, "cube"), (3, None)]


def test_pairs_in_words(by_hand: Opened) -> None:
    for order, word in (([2.0, 1.0, 9.0], "right"), ([1.0, 2.0, 9.0], "the other way")):
        shown = facts_panel(facts_of(meeting(by_hand, order), 0), edited=False)
        assert f"<td>{word}</td>" in shown
    assert "no two objects overlap in picture 1" in facts_panel(facts_of(by_hand, 0), edited=False)


def test_beside_a_warning_nothing_is_sure(by_hand: Opened) -> None:
    known, warned = (
        facts_panel(facts_of(replace(by_hand, warning=text), 0), edited=False) for text in (None, "these are odd")
    )
    assert "100%" in known
    assert "%" not in warned
    assert "sure" not in warned


def test_scores_by_hand(by_hand: Opened) -> None:
    """Objects are told apart without a mistake; a third of the objects is missed; the count is right."""
    scores = facts_of(by_hand, 0).scores
    assert scores is not None
    assert list(scores) == list(METRICS)
    assert scores["OCA"] == 1
    assert scores["IoU"] == pytest.approx(2 / 3)
    assert scores["F1"] == pytest.approx(2 / 3)
    assert scores["OOA"] is None  # nothing overlaps


def test_without_truth_nothing_is_compared(opened: Opened) -> None:
    facts = facts_of(opened, 0)
    assert (facts.found, facts.true_count, facts.scores, facts.missed) == (2, None, None, ())
    assert all(fact.name is None for fact in facts.objects)
    json.dumps(facts.to_json())


def test_the_panel_says_it_in_words(by_hand: Opened) -> None:
    shown = facts_panel(facts_of(by_hand, 0), edited=False)
    assert "It counts <b>3</b> objects, which is right. It missed: cone." in shown
    assert "nothing true" in shown
    assert "before your changes" not in shown
    wrong = SceneFacts(0, 1, 2, (), (), (), dict.fromkeys(METRICS, 0.5))
    assert "It counts <b>1</b> object, but <b>2</b> can be seen." in facts_panel(wrong, edited=True)
    assert "before your changes" in facts_panel(wrong, edited=True)


def test_a_fresh_scene_is_decided_by_its_number() -> None:
    world = world_for("compact", 64)
    assert world is not None
    first, again, third = (fresh_scene(world, number, 1) for number in (4, 4, 5))
    np.testing.assert_array_equal(first.pictures.image, again.pictures.image)
    assert first.pictures.image.shape == (1, 1, 64, 64, 3)
    assert (first.pictures.image != third.pictures.image).any()
    assert len(first.names) == first.pictures.num_objects[0]
    assert all(len(name.split()) == 4 for name in first.names)


@pytest.mark.parametrize("number", [-1, MOST_NUMBER + 1])
def test_numbers_of_scenes_are_bounded(number: int, reader: Reader) -> None:
    for world in (world_for("clevr-m1", 64), None):
        with pytest.raises(UserError, match="whole number"):
            open_numbered(reader, world, number, 2)
    with pytest.raises(UserError, match="at least one picture"):
        open_numbered(reader, None, 1, 0)


def test_worlds_for_models() -> None:
    assert world_for("dsprites", 64) is not None
    assert world_for("clevr", 128) is not None
    assert world_for("clevr", 64) is None
    assert world_for("tiny", 32) is None


def test_scenes_of_a_data_set_by_name(reader: Reader, tmp_path: Path) -> None:
    """Truth is compared only where its indices last over views."""
    mask = np.zeros((40, 40), np.uint8)
    mask[5:20, 5:20], mask[20:35, 20:35] = 1, 2
    for view in range(2):
        (tmp_path / "own" / "desk").mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(view).integers(0, 256, (40, 40, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "own" / "desk" / f"{view}.png")
        Image.fromarray(mask).save(tmp_path / "own" / "desk" / f"{view}_segment.png")
    for per_view in (False, True):
        asked = Import(options=Options(per_view_masks=per_view))
        path, _ = import_data("pictures", tmp_path / "own", tmp_path / str(per_view), asked)
        found = open_numbered(reader, held_out(Store.open(path)), 3, 2)
        assert found.title == "Scene 0 of valid: desk"
        assert (found.truth is None) == per_view
        assert facts_of(found, 0).true_count == (None if per_view else 2)
        assert len(open_numbered(replace(reader, single=True), held_out(Store.open(path)), 3, 2).images) == 1


def test_twins_are_told_apart() -> None:
    assert distinct(["red cube", "ball", "red cube"]) == ("red cube (1)", "ball", "red cube (2)")


def test_a_model_without_a_world_imagines_its_scenes(reader: Reader) -> None:
    one, same = (open_numbered(reader, None, 7, 2) for _ in range(2))
    assert one.title == "Imagined scene 7"
    assert one.truth is None
    assert one.images.shape == (2, 3, 32, 32)
    assert torch.equal(one.images, same.images)
    assert len(open_numbered(replace(reader, single=True), None, 7, 2).images) == 1


def test_the_shipped_model_understands_its_first_scene(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance is 0 for ARI: far above it, the whole chain from number to score fits together.

    With a shorter search than the default, to save time.
    """
    monkeypatch.setattr(Umbra, "default_search", Search(2, 1, 3))
    umbra = load("umbra")
    facts = facts_of(open_numbered(umbra, world_for("umbra", umbra.size), FIRST_SCENE, PICTURES), 0)
    assert facts.scores is not None
    assert facts.scores["ARI-O"] is not None
    assert facts.scores["ARI-O"] > 0.5
    assert sum(fact.name is not None for fact in facts.objects) >= 2
