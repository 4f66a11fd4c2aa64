"""The protocol: what a method sees, with which random numbers, and that results are what the steps by hand give."""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from disc_world import COUNTS, SIZE, VIEWS, disc_store

from viewslots.cli import main
from viewslots.commands.evaluation import estimate_viewpoints
from viewslots.commands.evaluation import evaluate as evaluate_command
from viewslots.data.dataset import SceneDataset
from viewslots.data.store import SplitArrays, Store
from viewslots.data.views import FirstViews, LastViews
from viewslots.errors import UserError
from viewslots.experiments import experiment
from viewslots.files import sha256
from viewslots.methods.contract import Search
from viewslots.methods.kmeans.model import KMeansMethod
from viewslots.metrics.extras import MASK_SCORES, ORDER_SCORES
from viewslots.metrics.probes import CAMERA_SCORES
from viewslots.metrics.score import METRICS, score_scenes
from viewslots.protocol import evaluate as protocol
from viewslots.protocol import plan as plans
from viewslots.protocol.evaluate import Seen, evaluate, evaluate_together
from viewslots.protocol.plan import BATCH, Plan, answer_generator, fewest_views
from viewslots.protocol.repeats import resampled_scenes
from viewslots.protocol.results import result, summary
from viewslots.protocol.subject import default_slots
from viewslots.ranks import ALONE
from viewslots.run_record import changed_settings, scored_step, taken_before, training_seconds
from viewslots.runs import load_run
from viewslots.training.plan import Asked, plan_run
from viewslots.types import BACKGROUND, Decomposition, SceneBatch, SceneTruth, concatenated
from viewslots.viewpoints.statistics import picture_statistics

PLAN = Plan("test1", views=2, slots=2, repeats=2, batch=3)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return disc_store(tmp_path_factory.mktemp("protocol") / "discs")


@dataclass(frozen=True)
class KnowingAnswer:
    """The truth of the scenes that were seen; what is asked of it is written down."""

    method: "Knowing"
    batch: SceneBatch
    seed: int
    slots: int
    drawn: float

    def decomposition(self) -> Decomposition:
        return self.method.truth_of(self.batch, self.slots)

    @property
    def view_codes(self) -> torch.Tensor:
        name, scenes, views = self.method.find(self.batch)
        self.method.asked.append(("codes", name, scenes, views, self.seed))
        return torch.from_numpy(np.asarray(self.method.splits[name]["camera"])[np.ix_(scenes, views)])

    def new_views(self, batch: SceneBatch, generator: torch.Generator) -> "KnowingAnswer":
        drawn = float(torch.rand((), generator=generator))
        name, scenes, views = self.method.find(batch)
        self.method.asked.append(("new", name, scenes, views, generator.initial_seed(), drawn))
        return KnowingAnswer(self.method, batch, self.seed, self.slots, drawn)


class Knowing:
    """Sees through everything: answers with the truth, view codes are the cameras, new views are shown as they are."""

    name: ClassVar[str] = "knowing"
    needs_camera: ClassVar[bool] = False
    shows_new_views: ClassVar[bool] = True
    has_viewpoints: ClassVar[bool] = True
    default_search: ClassVar[Search | None] = Search(starts=2)
    searches: ClassVar[bool] = True
    image_size: None = None
    slots: None = None

    def __init__(self, store: Store, split: str = "test1") -> None:
        self.splits = {name: store.split(name) for name in (split, "valid")}
        self.asked: list[tuple[Any, ...]] = []

    def find(self, batch: SceneBatch) -> tuple[str, list[int], list[int]]:
        """Which scenes and views these pictures are: their first pixels say so."""
        corner = (batch.image[:, :, :, 0, 0] * 255).round().long()
        assert (corner[..., 0] == corner[:1, :, 0]).all()
        assert (corner[..., 1] == corner[:, :1, 1]).all()
        return list(COUNTS)[int(corner[0, 0, 2])], corner[:, 0, 1].tolist(), corner[0, :, 0].tolist()

    def truth_of(self, batch: SceneBatch, slots: int) -> Decomposition:
        name, scenes, views = self.find(batch)
        split = self.splits[name]
        segment = torch.from_numpy(np.asarray(split["segment"])[np.ix_(scenes, views)]).long()
        layer = torch.where(segment == BACKGROUND, 0, segment + 1)
        shapes = torch.from_numpy(np.asarray(split["shapes"])[np.ix_(scenes, views)]).float() / 255
        order = torch.from_numpy(np.asarray(split["depth_order"])[np.ix_(scenes, views)])
        visible = torch.stack([(segment == k).flatten(1).any(1) for k in range(slots)], 1)
        masks = torch.nn.functional.one_hot(layer, slots + 1).movedim(-1, 2).float()
        return Decomposition(batch.image, masks, True, shapes, visible.float(), None, order)

    def infer(
        self, batch: SceneBatch, generator: torch.Generator, slots: int | None = None, search: Search | None = None
    ) -> KnowingAnswer:
        seed, drawn = generator.initial_seed(), float(torch.rand((), generator=generator))
        self.asked.append(("infer", *self.find(batch), seed, slots, search))
        assert slots is not None
        return KnowingAnswer(self, batch, seed, slots, drawn)


class GuessingAnswer:
    """Layers drawn at random: another draw for new views, from where the generator stands."""

    def __init__(self, batch: SceneBatch, generator: torch.Generator, slots: int) -> None:
        B, M, _, H, W = batch.image.shape
        self.slots, self.image = slots, batch.image
        self.masks = torch.rand(B, M, slots + 1, H, W, generator=generator).softmax(2)
        self.view_codes = torch.rand(B, M, 3, generator=generator)

    def decomposition(self) -> Decomposition:
        objects = self.masks[:, :, 1:]
        presence, order = objects.amax((1, 3, 4)), objects.amax((3, 4))
        return Decomposition(self.image * 0.9, self.masks, True, objects, presence, presence, order)

    def new_views(self, batch: SceneBatch, generator: torch.Generator) -> "GuessingAnswer":
        return GuessingAnswer(batch, generator, self.slots)


class Guessing(torch.nn.Module):
    """Like a trained model, with noise in all that it says; a search draws more."""

    name: ClassVar[str] = "guessing"
    needs_camera: ClassVar[bool] = False
    shows_new_views: ClassVar[bool] = True
    has_viewpoints: ClassVar[bool] = True
    default_search: ClassVar[Search | None] = None
    slots, image_size = 2, (SIZE, SIZE)

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(7))

    def infer(
        self, batch: SceneBatch, generator: torch.Generator, slots: int | None = None, search: Search | None = None
    ) -> GuessingAnswer:
        for _ in range(0 if search is None else search.starts + search.looks):
            torch.rand(1, generator=generator)
        return GuessingAnswer(batch, generator, slots or self.slots)


class Searching(Guessing):
    name = "searching"
    default_search = Search(starts=4, looks=1, refinement=30)


@pytest.fixture
def model() -> Guessing:
    return Guessing()


def seed_of(*words: object) -> int:
    return answer_generator(*words).initial_seed()


def test_the_truth_scores_one(store: Store) -> None:
    found = evaluate(Knowing(store), store, PLAN)
    for kind in ("paper", "pooled"):
        assert found.one(0)[kind] == pytest.approx(dict.fromkeys(METRICS, 1.0))
    extras = found.one(1)["extras"]
    assert extras["ari_a_without_shadows"] == extras["identity"] == 1.0
    assert extras["shadow_claimed"] == 0.0
    assert extras["psnr"] == extras["novel_view_psnr"] == pytest.approx(100.0)
    assert extras["ssim"] == extras["novel_view_ssim"] == pytest.approx(1.0)
    assert {extras[name] for name in (*MASK_SCORES, "novel_view_ari", "novel_view_fg_ari")} == {1.0}
    assert extras["camera_linear_position"] > 0.9999
    assert extras["camera_kernel_azimuth"] > 0.98
    assert extras["camera_linear_elevation"] is None  # constant in this world
    np.testing.assert_array_equal(found.num_objects, store.split("test1")["num_objects"])


def test_what_a_method_is_shown(store: Store) -> None:
    """First M views of every scene in batches of three, the last ones held out, cameras fitted on valid."""
    method, search = Knowing(store), Search(starts=3)
    evaluate(method, store, replace(PLAN, seed=9, search=search))
    expected = [
        ("infer", "test1", scenes, [0, 1], seed_of(9, repeat, scenes[0]), 2, search)
        for scenes in ([0, 1, 2], [3, 4, 5], [6])
        for repeat in range(2)
    ]
    expected += [
        ("infer", "valid", scenes, [0, 1], seed_of(9, "valid", scenes[0]), 2, search)
        for scenes in ([0, 1, 2], [3, 4, 5], [6, 7])
    ]
    assert [asked for asked in method.asked if asked[0] == "infer"] == expected


def test_each_scene_is_inferred_once_a_repeat(store: Store) -> None:
    """Scores, held-out views and camera probes are asked of the same answer."""
    for plan in (PLAN, replace(PLAN, repeats=3, views=3), replace(PLAN, new_views=2), replace(PLAN, extras=False)):
        method = Knowing(store)
        evaluate(method, store, plan)
        inferred = Counter((asked[1], scene) for asked in method.asked if asked[0] == "infer" for scene in asked[2])
        expected = {("test1", scene): plan.repeats for scene in range(COUNTS["test1"])}
        if plan.extras and plan.new_views is None:
            expected |= {("valid", scene): 1 for scene in range(COUNTS["valid"])}  # where the probes are fitted
        assert inferred == expected


def test_new_views_go_on_with_the_generator_of_the_inference(store: Store) -> None:
    """The second number of the batch's own generator: the first was drawn by the inference."""
    for plan, views in ((PLAN, [2, 3, 4, 5]), (replace(PLAN, new_views=2), [4, 5])):
        method = Knowing(store)
        evaluate(method, store, plan)
        expected = []
        for scenes in ([0, 1, 2], [3, 4, 5], [6]):
            for repeat in range(2):
                generator = answer_generator(0, repeat, scenes[0])
                drawn = torch.rand(2, generator=generator)
                second = float(drawn[1])
                expected.append(("new", "test1", scenes, views, generator.initial_seed(), second))
        assert [asked for asked in method.asked if asked[0] == "new"] == expected


def test_codes_are_those_of_the_scored_answers(store: Store) -> None:
    method = Knowing(store)
    evaluate(method, store, PLAN)
    behind = [asked[1:5] for asked in method.asked if asked[0] == "infer"]
    assert [asked[1:5] for asked in method.asked if asked[0] == "codes"] == behind


def test_viewpoint_estimation_scores_the_last_views(store: Store) -> None:
    method = Knowing(store)
    found = evaluate(method, store, replace(PLAN, views=3, new_views=2))
    assert {(asked[0], tuple(asked[3])) for asked in method.asked} == {("infer", (0, 1, 2)), ("new", (4, 5))}
    assert found.one(0)["paper"]["ARI-A"] == found.one(0)["extras"]["identity"] == 1.0
    shadows = {"ari_a_without_shadows", "shadow_claimed"}
    assert set(found.one(0)["extras"]) == {*MASK_SCORES, *ORDER_SCORES, *shadows, "identity", "mse", "psnr", "ssim"}


def test_without_extras_nothing_else_is_asked(store: Store) -> None:
    method = Knowing(store)
    found = evaluate(method, store, replace(PLAN, extras=False))
    assert {asked[0] for asked in method.asked} == {"infer"}
    assert found.one(0)["extras"] == {}
    method.asked.clear()
    pictures = Changed(store, lambda arrays: {"image": arrays["image"]})
    with pytest.raises(UserError, match="test1 has no masks, so nothing is left to score; without --no-extras the pic"):
        evaluate(method, pictures, replace(PLAN, extras=False))
    assert method.asked == []
    assert evaluate(KMeansMethod(), pictures, PLAN).one(0)["extras"]["mse"] is not None


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Data sets whose truth lacks these kinds."""
    told = SceneDataset.truth

    def truth(self: SceneDataset, *arguments: Any, **options: Any) -> SceneTruth:
        return replace(told(self, *arguments, **options), **dict.fromkeys(names))

    monkeypatch.setattr(SceneDataset, "truth", truth)


def test_without_complete_shapes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not need them is as before."""
    whole = evaluate(Guessing(), store, PLAN)
    without(monkeypatch, "shapes", "overlap")
    found = evaluate(Guessing(), store, PLAN)
    lost = {"paper": {"IoU", "F1", "OOA"}, "pooled": {"IoU", "F1", "OOA", "ARI-O", "AMI-O"}, "extras": {*ORDER_SCORES}}
    for kind, names in lost.items():
        expected = {name: None if name in names else value for name, value in whole.one(1)[kind].items()}
        assert found.one(1)[kind] == pytest.approx(expected, abs=1e-12)
    without_shapes = ["IoU", "F1", "OOA", *ORDER_SCORES, "pooled ARI-O", "pooled AMI-O", "by_occlusion"]
    assert found.missing == {"shapes": without_shapes}
    written = summary(found, seed=0)
    assert written["by_occlusion"] == {}
    assert written["by_objects"]
    assert written["paper"]["ARI-O"] is not None
    assert whole.missing == {}


def test_without_a_segment_pictures_alone_are_scored(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = evaluate(Guessing(), store, PLAN)
    without(monkeypatch, "segment", "shapes", "overlap", "shadows", "depth_order", "num_objects")
    found = evaluate(Guessing(), store, PLAN)
    for kind in ("paper", "pooled"):
        assert found.one(0)[kind] == dict.fromkeys(METRICS)
    pictures = {"mse", "psnr", "ssim", "novel_view_psnr", "novel_view_ssim", *CAMERA_SCORES}
    assert found.one(0)["extras"] == {
        name: value if name in pictures else None for name, value in whole.one(0)["extras"].items()
    }
    assert set(found.missing) == {"segment", "num_objects"}
    lost = {*METRICS, *MASK_SCORES, "identity", "shadow_claimed", "novel_view_ari", "by_occlusion"}
    assert set(found.missing["segment"]) >= lost
    written = result(found, store, PLAN, {"method": "guessing", "run": "none"})
    assert written["by_objects"] == written["by_occlusion"] == {}
    assert written["missing"] == found.missing
    assert found.scenes == written["scenes"] == COUNTS["test1"]
    json.dumps(written, allow_nan=False)


def test_without_cameras_or_shadows(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "camera", "shadows")
    found = evaluate(Guessing(), store, PLAN)
    assert {name for name, value in found.one(0)["extras"].items() if value is None} == {
        "ari_a_without_shadows",
        "shadow_claimed",
        "order_of_found",  # a guess finds no object
        *CAMERA_SCORES,
    }
    assert set(found.missing) == {"shadows", "camera"}
    assert evaluate(Guessing(), store, replace(PLAN, extras=False)).missing == {}
    assert set(evaluate(KMeansMethod(), store, PLAN).missing) == {"shadows"}


class Changed(Store):
    """A store whose arrays are changed on the way."""

    def __init__(self, store: Store, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        super().__init__(store.path, store.meta)
        self.change = change

    def split(self, name: str) -> SplitArrays:
        arrays = super().split(name)
        return replace(arrays, arrays=self.change(dict(arrays.arrays)))


def test_poses_tell_where_cameras_stand(store: Store) -> None:
    """The same positions, in the last column of a matrix; without either there are no camera scores."""

    def posed(arrays: dict[str, Any]) -> dict[str, Any]:
        position = arrays.pop("camera")
        pose = np.zeros((*position.shape[:2], 4, 4), np.float32)
        pose[..., :3, 3] = position
        return arrays | {"pose": pose}

    def blind(arrays: dict[str, Any]) -> dict[str, Any]:
        return {name: values for name, values in arrays.items() if name != "camera"}

    whole, found, none = (
        evaluate(Guessing(), one, PLAN) for one in (store, Changed(store, posed), Changed(store, blind))
    )
    assert found.one(1) == whole.one(1)
    assert found.missing == {}
    assert none.missing == {"camera": list(CAMERA_SCORES)}
    assert all(none.one(0)["extras"][name] is None for name in CAMERA_SCORES)


def test_scenes_with_fewer_views(store: Store) -> None:
    """They show all they have; what is held out of a scene was never given; of one that has no more, nothing counts."""

    def ragged(arrays: dict[str, Any]) -> dict[str, Any]:
        counts = np.full(len(arrays["image"]), VIEWS, np.uint8)
        counts[1] = 3
        return arrays | {"num_views": counts}

    few = Changed(store, ragged)
    dataset = SceneDataset(few.split("test1"))
    stored = SceneDataset(store.split("test1")).batch([1]).image[0]
    seen = Seen.of(dataset, [0, 1, 2], replace(PLAN, views=2))
    assert torch.equal(seen.given.image[1], stored[:2])
    assert torch.equal(seen.new.image[1][seen.new.view_mask[1]], stored[2:3])
    assert seen.held_out.all()
    seen = Seen.of(dataset, [0, 1, 2], replace(PLAN, views=4))
    assert seen.given.view_mask.tolist() == [[True] * 4, [True, True, True, False], [True] * 4]
    assert seen.truth.view_mask.equal(seen.given.view_mask)
    assert seen.held_out.tolist() == [True, False, True]

    found = evaluate(Guessing(), few, replace(PLAN, views=4)).one(0)
    held_out = SceneDataset(store.split("test1")).batch([0, *range(2, COUNTS["test1"])], LastViews(VIEWS - 4)).image
    error = (0.1 * held_out).double().square().mean((2, 3, 4))
    assert found["extras"]["novel_view_psnr"] == pytest.approx(float((-10 * error.log10()).mean()))
    assert all(found["extras"][name] is None for name in CAMERA_SCORES)
    assert found["pooled"]["ARI-A"] is not None
    assert fewest_views(few.split("test1")) == 3
    counts = few.split("test1").view_counts
    assert [fewest_views(few.split("test1"), n) for n in (1, len(counts))] == [counts[0], counts.min()]
    with pytest.raises(UserError, match="2 views and 2 new ones asked for, but scenes have 3"):
        evaluate(Guessing(), few, replace(PLAN, views=2, new_views=2))


def test_a_method_that_is_told_the_cameras_has_new_views_but_no_codes(store: Store) -> None:
    """Probes would read what it was given."""

    class Told(Guessing):
        name, has_viewpoints = "told", False

    extras = evaluate(Told(), store, PLAN).one(0)["extras"]
    assert extras["novel_view_psnr"] is not None
    assert all(extras[name] is None for name in CAMERA_SCORES)
    shown = evaluate(Told(), store, replace(PLAN, new_views=1)).one(0)
    assert shown["pooled"]["ARI-A"] is not None


def test_pictures_come_in_the_size_that_a_method_takes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    class Small(Guessing):
        image_size = (16, 16)

    asked = []
    monkeypatch.setattr(plans, "SceneDataset", lambda split, **options: asked.append(options))
    for method in (Small(), Guessing(), KMeansMethod()):
        protocol.shown_to(method, store, "test1", "cpu")
    assert asked == [{"device": "cpu", "size": (16, 16)}, {"device": "cpu"}, {"device": "cpu"}]


def test_cameras_are_shown_to_methods_that_need_them(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    class Needing(Guessing):
        needs_camera = True

    asked = []
    monkeypatch.setattr(plans, "SceneDataset", lambda split, **options: asked.append(options) or SceneDataset(split))
    evaluate(Needing(), store, PLAN)
    assert asked == [{"device": "cpu", "camera": True}] * 2  # test1, and valid for the probes
    evaluate(Guessing(), store, replace(PLAN, extras=False))
    assert asked[2:] == [{"device": "cpu"}]


def test_with_all_views_seen_none_are_held_out(store: Store) -> None:
    assert evaluate(Knowing(store), store, replace(PLAN, views=VIEWS)).one(0)["extras"]["novel_view_psnr"] is None


@pytest.mark.parametrize("method", [KMeansMethod(), Guessing()], ids=lambda method: method.name)
def test_a_method_by_hand(store: Store, method: Any) -> None:
    """Batch by batch with the documented generators, then the library's own scores."""
    dataset = SceneDataset(store.split("test1"))
    found = evaluate(method, store, PLAN)
    for repeat in range(2):
        parts = []
        for scenes in ([0, 1, 2], [3, 4, 5], [6]):
            batch = dataset.batch(scenes, FirstViews(2))
            answer = method.infer(batch, answer_generator(0, repeat, scenes[0]), 2).decomposition()
            parts.append(score_scenes(answer, dataset.truth(scenes, FirstViews(2))))
        assert found.one(repeat)["paper"] == concatenated(parts).paper()
        assert found.one(repeat)["pooled"] == concatenated(parts).pooled()
    assert found.one(0)["pooled"] != found.one(1)["pooled"]


def test_new_views_by_hand(store: Store, model: Guessing) -> None:
    dataset, plan = SceneDataset(store.split("test1")), replace(PLAN, views=3, new_views=2, repeats=1, batch=10)
    scenes, generator = list(range(COUNTS["test1"])), answer_generator(0, 0, 0)
    answer = model.infer(dataset.batch(scenes, FirstViews(3)), generator, 2)
    shown = answer.new_views(dataset.batch(scenes, LastViews(2)), generator).decomposition()
    expected = score_scenes(shown, dataset.truth(scenes, LastViews(2)))
    assert evaluate(model, store, plan).one(0)["paper"] == expected.paper()


def test_repeats_do_not_depend_on_their_number_nor_seeds_on_each_other(store: Store, model: Guessing) -> None:
    plan = replace(PLAN, extras=False)
    one, two, other = (
        evaluate(model, store, p).one(0)["paper"] for p in (replace(plan, repeats=1), plan, replace(plan, seed=1))
    )
    assert one == two
    assert one != other


def test_the_first_scenes(store: Store, model: Guessing, saved: Path, tmp_path: Path) -> None:
    """The batches are those of the whole split, so the answers are the same ones."""
    plan = replace(PLAN, batch=2)
    whole, first = (evaluate(model, store, one).per_scene() for one in (plan, replace(plan, scenes=4)))
    for kind, scores in whole.items():
        for name, values in scores.items():
            if name not in CAMERA_SCORES:  # R2, of the spread of all that are scored
                assert first[kind][name] == values[:4], name
    assert all(len(first["extras"][name]) == 4 for name in CAMERA_SCORES)
    out = tmp_path / "first.json"
    given: dict[str, Any] = {"data": store.path, "out": out, "scenes": 4, "repeats": 1, "batch": 2, "device": "cpu"}
    evaluate_command(str(saved), views=3, per_scene=True, **given)
    written = json.loads(out.read_text())
    assert (written["scenes"], len(written["per_scene"]["paper"]["ARI-A"])) == (4, 4)
    estimate_viewpoints(str(saved), new=2, **given)
    expected = evaluate(model, store, Plan("test1", views=4, new_views=2, slots=2, repeats=1, batch=2, scenes=4))
    assert json.loads(out.read_text())["repeats"] == [expected.one(0)]


def test_progress_counts_every_answer_and_says_which_are_for_probes(store: Store) -> None:
    method, seen, said = Knowing(store), list[tuple[int, int]](), list[str]()
    evaluate_together(method, store, PLAN, "cpu", lambda *how_far: seen.append(how_far), ALONE, say=said.append)
    answers = {name: sum(len(asked[2]) for asked in method.asked if asked[:2] == ("infer", name)) for name in COUNTS}
    total = sum(answers.values())
    assert [done for done, _ in seen[:6]] == [3, 6, 9, 12, 13, 14]
    assert {of for _, of in seen} == {total}
    assert seen[-1] == (total, total)
    own, valid = answers["test1"], answers["valid"]
    assert said[0] == f"{own} answers to score, and {valid} more, of scenes of valid, to fit probes on"
    assert said[1:] == ["that is too few for probes to tell much; 50 are better"]
    evaluate_together(method, store, replace(PLAN, extras=False), "cpu", lambda *_: None, ALONE, say=said.append)
    assert len(said) == 2, "nothing but scores"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"repeats": 0}, "repeats: must be at least 1"),
        ({"batch": 0}, "batch: must be at least 1"),
        ({"slots": 0}, "slots: must be at least 1"),
        ({"slots": 10**6}, "K must be at most 1000"),
        ({"views": 0}, "views: must be at least 1"),
        ({"scenes": 0}, "--scenes: 0 asked for, but test1 has 7; ask for 1 to 7"),
        ({"scenes": 8}, "--scenes: 8 asked for, but test1 has 7; ask for 1 to 7"),
        ({"views": 7}, "7 views asked for, but scenes have 6"),
        ({"views": 4, "new_views": 3}, "4 views and 3 new ones asked for, but scenes have 6"),
        ({"new_views": 0}, "new views: must be at least 1"),
        ({"split": "test9"}, "no split 'test9'"),
    ],
)
def test_impossible_plans_are_refused(store: Store, change: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        evaluate(Knowing(store), store, replace(PLAN, **change))


def test_methods_without_viewpoints(store: Store) -> None:
    """They are scored, without what they cannot answer, and refuse viewpoint estimation."""
    extras = evaluate(KMeansMethod(), store, replace(PLAN, repeats=1)).one(0)["extras"]
    assert extras["psnr"] is not None
    assert extras["novel_view_psnr"] is None
    assert extras["camera_linear_position"] is None
    with pytest.raises(UserError, match="has no new views to show"):
        evaluate(KMeansMethod(), store, replace(PLAN, new_views=2))


def test_cameras_are_not_scored_on_the_scenes_that_probes_are_fitted_on(store: Store) -> None:
    extras = evaluate(Knowing(store), store, replace(PLAN, split="valid", repeats=1)).one(0)["extras"]
    assert extras["camera_linear_position"] is None
    assert extras["novel_view_psnr"] is not None


def test_a_store_without_a_validation_split_has_no_probes(store: Store) -> None:
    bare = Store(
        store.path,
        replace(store.meta, plan=replace(store.meta.plan, splits={"test1": store.meta.plan.splits["test1"]})),
    )
    extras = evaluate(Knowing(store), bare, replace(PLAN, repeats=1)).one(0)["extras"]
    assert extras["camera_linear_position"] is None
    assert extras["novel_view_psnr"] is not None


def test_summary_by_hand(store: Store, model: Guessing) -> None:
    """Means and deviations over repeats; intervals contain the mean of all scenes and shrink to it for one scene."""
    repeats = evaluate(model, store, replace(PLAN, repeats=3))
    found = summary(repeats, seed=0)
    values = [repeats.one(index)["pooled"]["ARI-A"] for index in range(3)]
    assert found["pooled"]["ARI-A"]["mean"] == pytest.approx(np.mean(values))
    assert found["pooled"]["ARI-A"]["std"] == pytest.approx(np.std(values))
    for kind in ("paper", "pooled", "extras"):
        for part in filter(None, found[kind].values()):
            assert part["low"] - 1e-9 <= part["mean"] <= part["high"] + 1e-9
    assert len(found["repeats"]) == 3
    means = [np.mean([group["scenes"] for group in found[by].values()]) for by in ("by_objects", "by_occlusion")]
    assert means == [COUNTS["test1"] / len(found["by_objects"]), COUNTS["test1"] / 3]


def test_bootstrap_of_a_score_by_hand(store: Store, model: Guessing) -> None:
    """For the mean over scenes, each scene's value is its mean over repeats; resample those."""
    repeats = evaluate(model, store, replace(PLAN, extras=False))
    scene_means = np.mean([part.per_scene()["IoU"] for part in repeats.scores], 0)
    drawn = [scene_means[scenes].mean() for scenes in resampled_scenes(len(scene_means), 4)]
    found = summary(repeats, seed=4)["paper"]["IoU"]
    assert (found["low"], found["high"]) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])))


def test_results_tell_what_they_are(store: Store) -> None:
    written = result(evaluate(Knowing(store), store, PLAN), store, PLAN, {"method": "knowing", "run": "none"})
    assert {name: written[name] for name in ("method", "split", "views", "new_views", "slots", "seed", "batch")} == {
        "method": "knowing", "split": "test1", "views": 2, "new_views": None, "slots": 2, "seed": 0, "batch": 3
    }  # fmt: skip
    assert written["data"]["sha256"] == sha256(store.path / "meta.json")
    assert written["data"]["preset"] == "clevr-m1"
    assert (written["search"], written["missing"]) == (None, {})
    assert set(written["paper"]) == set(written["pooled"]) == set(METRICS)
    json.dumps(written, allow_nan=False)


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds a `Guessing`, as far as the commands can tell; kept at step 12,000 of 16,000."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    config = {"preset": "tiny", "schedule": {"steps": 16_000}, "seed": 4, "data": "live", "world": "clevr-m1"}
    (folder / "run.json").write_text(json.dumps({"step": 12_000, "config": config}))
    monkeypatch.setattr("viewslots.run_record.load_run", lambda source, which: Guessing())
    return folder


def test_evaluate_command(store: Store, saved: Path, model: Guessing, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "results" / "test1.json"
    evaluate_command(str(saved), data=store.path, out=out, views=3, repeats=2, device="cpu", seed=3)
    written = json.loads(out.read_text())
    expected = evaluate(model, store, Plan("test1", views=3, slots=2, repeats=2, seed=3, batch=BATCH))
    assert written["repeats"] == [expected.one(0), expected.one(1)]
    assert (written["slots"], written["trained_slots"], written["parameters"]) == (2, 2, 7)
    assert written["image_size"] == written["data"]["image_size"] == [SIZE, SIZE]
    assert (written["method"], written["run"], written["device"]) == ("guessing", "model", "cpu")
    assert written["provenance"]["torch"] == torch.__version__
    assert written["search"] is None
    assert (written["training"]["steps"], written["training"]["scored_step"]) == (16_000, 12_000)
    printed = capsys.readouterr()
    assert json.loads(printed.out)["results"] == str(out)
    assert json.loads(printed.out)["pooled"]["ARI-A"] == round(written["pooled"]["ARI-A"]["mean"], 4)
    assert json.loads(printed.out)["step"] == 12_000
    answers = "14 answers to score, and 8 more, of scenes of valid, to fit probes on"
    few = "that is too few for probes to tell much; 50 are better"
    assert printed.err == f"scoring step 12,000 of 16,000 of {saved}\n{answers}\n{few}\n"


@pytest.mark.parametrize(("size", "how"), [((16, 16), "resized"), ((16, 24), "cut in the middle and resized")])
def test_what_is_said_without_extras(
    store: Store, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, size: Any, how: str
) -> None:
    monkeypatch.setattr(Guessing, "image_size", size)
    given: dict[str, Any] = {"data": store.path, "out": tmp_path / "x.json", "repeats": 1, "device": "cpu"}
    evaluate_command(str(saved), extras=False, lpips=tmp_path / "nowhere", **given)
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [
        f"scoring step 12,000 of 16,000 of {saved}",
        f"pictures and truth of 32x32 are {how} to 16x{size[1]}, the size of this model",
        "--lpips: LPIPS is one of the extras, so there is none with --no-extras",
    ]
    assert list(json.loads(printed.out)) == ["results", "step", "split", "scenes", "pooled", "paper"]


def test_pictures_of_another_kind_are_told_before_they_are_scored(
    store: Store, saved: Path, tmp_path: Path, capsys: Any
) -> None:
    """The distance of statistics about the mean of the set's own pictures, and about a mean a little to the side."""
    split = store.split("test1")
    pictures = torch.tensor(split["image"][:, :3]).flatten(0, 1).movedim(-1, 1) / 255
    own = picture_statistics(pictures)
    spread = {"covariance": torch.eye(own.shape[1]).tolist()}
    limit = float((own - own.mean(0)).norm(dim=1).max()) * 1.01
    values = {
        "data": "pictures of fruit",
        "limits": {"0.01": {"distance": limit, "error": 1.0}},
        "errors": {"0.5": 0.1},
    }
    values["viewpoints"] = {"mean": [0.0], "covariance": [[1.0]], "limit": 1.0}
    asked = {"data": store.path, "out": tmp_path / "x.json", "repeats": 1, "device": "cpu", "extras": False, "views": 3}
    for aside, told in ((0.0, ""), (2 * limit, "7 of the first 7 scenes are unlike what")):
        (saved / "typical.json").write_text(
            json.dumps(values | {"statistics": {"mean": (own.mean(0) + aside).tolist()} | spread})
        )
        evaluate_command(str(saved), **asked)
        said = capsys.readouterr().err
        assert told in said
        assert ("was trained on (pictures of fruit)" in said) is bool(told)


def test_estimate_viewpoints_command(store: Store, saved: Path, model: Guessing, tmp_path: Path) -> None:
    out = tmp_path / "new.json"
    estimate_viewpoints(str(saved), data=store.path, out=out, given=2, new=3, repeats=1, device="cpu")
    written = json.loads(out.read_text())
    expected = evaluate(model, store, Plan("test1", views=2, new_views=3, slots=2, repeats=1))
    assert written["repeats"] == [expected.one(0)]
    assert (written["task"], written["views"], written["new_views"]) == ("viewpoint estimation", 2, 3)


def test_missing_truth_is_told_in_one_line(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without(monkeypatch, "shapes", "num_objects")
    evaluate_command("kmeans", data=store.path, out=tmp_path / "floor.json", repeats=1, device="cpu")
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert "null" not in printed.out, "what was not measured is not printed"
    assert {"ARI-A", "IoU"} & set(json.loads(printed.out)["paper"]) == {"ARI-A"}
    lost = "IoU, F1, OOA, pairs_found, order_of_found, pooled ARI-O, pooled AMI-O, by_occlusion"
    assert f"missing: shapes ({lost}), num_objects (by_objects)" in line
    assert set(json.loads((tmp_path / "floor.json").read_text())["missing"]) == {"shapes", "num_objects"}


def test_what_came_before_a_shipped_model_counts_too() -> None:
    """umbra-quick: 105,000 steps of earlier stages and 3,600 of its own (docs/model-card.md)."""
    found = taken_before({"init": "umbra-quick", "init_step": 3600}, Path())
    assert (found["init"], found["init_steps"]) == ("umbra-quick", 108_600)
    found = taken_before({"init": "compact", "init_step": 40_000}, Path())
    assert (found["init"], found["init_steps"]) == ("compact", 40_000)


def test_what_is_not_as_in_the_preset() -> None:
    """A squeezed run is as its preset, but for what was changed; counts of steps may be rounded."""
    preset = experiment("ocloc/dsprites")

    def config(**more: Any) -> dict[str, Any]:
        asked = Asked(preset="ocloc/dsprites", data="live", stored_views=1, data_sha256=None, steps=1234)
        return dict(json.loads(json.dumps(plan_run(replace(asked, **more)).to_json())))

    assert changed_settings(config(), preset) == {}
    shifted = config()
    shifted["schedule"]["kl_ramp_steps"] += 1
    assert changed_settings(shifted, preset) == {}
    shifted["schedule"]["kl_ramp_steps"] += 1
    assert list(changed_settings(shifted, preset)) == ["schedule.kl_ramp_steps"]
    own = config(batch=8, slots=9, changes={"model.hidden": 16, "model.start.log_sigma": -3.0})
    assert changed_settings(own, preset) == {
        "model.slots": [9, 6],
        "model.hidden": [16, 512],
        "model.start.log_sigma": [-3.0, 0.0],
        "optimisation.batch_size": [8, 64],
    }
    other = {**config(), "views": 4}
    assert changed_settings(other, preset) == {"views": [4, 1]}


def test_the_scored_step(tmp_path: Path) -> None:
    """best.json and last.json of a run, run.json of a saved model; None where nothing tells."""
    run, model = tmp_path / "run", tmp_path / "model"
    for folder, kind in ((run, "viewslots run"), (model, "a model")):
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"kind": kind}))
    assert scored_step(str(run), "best") is scored_step(str(model), "best") is None
    for file, step in ((run / "best.json", 30), (run / "last.json", 40), (model / "run.json", 50)):
        file.write_text(json.dumps({"step": step}))
    assert [scored_step(str(run), which) for which in ("best", "last")] == [30, 40]
    assert scored_step(str(model), "last") == 50
    (model / "run.json").write_text(json.dumps({"step": "many"}))
    assert scored_step(str(model), "best") is None
    assert scored_step("hf:someone/something", "best") is None
    assert scored_step("compact", "best") == 40_000


def test_time_of_a_training_from_its_rows(tmp_path: Path) -> None:
    """100 steps at 10 a second, 50 at 5, whatever stands between them or was cut off at the end."""
    file = tmp_path / "metrics.jsonl"
    assert training_seconds(file) is None
    rows = [
        {"step": 100, "kind": "train", "steps_per_second": 10.0},
        {"step": 100, "kind": "valid", "loss": 1.0},
        {"step": 100, "kind": "event", "resumed_with": {}},
        {"step": 150, "kind": "train", "steps_per_second": 5.0},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"step": 200, "ki')
    assert training_seconds(file) == 20.0
    assert training_seconds(file, 0) == 0.0
    (tmp_path / "config.json").write_text(json.dumps({"kind": "viewslots run", "config": {"schedule": {"steps": 150}}}))
    begun = {"init": str(tmp_path)}
    assert taken_before(begun, tmp_path) == {"init": tmp_path.name, "init_steps": 150, "init_seconds": 20.0}
    on_the_way = taken_before(begun | {"init_step": 110}, tmp_path)
    assert (on_the_way["init_steps"], on_the_way["init_seconds"]) == (110, 12.0)
    for init, name in {"/not/here": "here", "umbra/clevr of docs/runs": "umbra/clevr of docs/runs"}.items():
        assert taken_before({"init": init}, tmp_path) == {"init": name, "init_steps": None, "init_seconds": None}
    gone = taken_before({"init": "/not/here", "init_step": 110}, tmp_path)  # which may have had stages before
    assert (gone["init_steps"], gone["init_seconds"]) == (None, None)
    assert set(taken_before({}, tmp_path).values()) == {None}
    file.write_text("")
    assert training_seconds(file) is None


def test_a_model_replaced_while_it_is_read_is_read_again(
    store: Store, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending = [13_000, 14_000]

    def overtaken(source: str, which: str) -> Guessing:
        if pending:
            told = json.loads((saved / "run.json").read_text())
            (saved / "run.json").write_text(json.dumps(told | {"step": pending.pop(0)}))
        return Guessing()

    monkeypatch.setattr("viewslots.run_record.load_run", overtaken)
    out = tmp_path / "x.json"
    evaluate_command(str(saved), data=store.path, out=out, repeats=1, device="cpu", extras=False)
    assert json.loads(out.read_text())["training"]["scored_step"] == 14_000


OWN = Searching.default_search


@pytest.mark.parametrize(
    ("kind", "asked", "search"),
    [
        (Guessing, {}, None),
        (Guessing, {"starts": 3}, Search(3)),
        (Guessing, {"refine": 2}, Search(refinement=2)),
        (Guessing, {"starts": 2, "looks": 1, "refine": 1}, Search(2, looks=1, refinement=1)),
        (Guessing, {"starts": 0}, None),
        (Searching, {}, OWN),
        (Searching, {"looks": 0, "refine": 0}, Search(starts=4)),
        (Searching, {"starts": 1, "refine": 1}, Search(1, looks=1, refinement=1)),
        (Searching, {"starts": 0}, None),
    ],
)
def test_a_search_as_it_is_asked_for(
    store: Store,
    saved: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[Guessing],
    asked: dict[str, int],
    search: Search | None,
) -> None:
    """What is not named stays as the method has it; the scores are those of the search, and say so."""
    monkeypatch.setattr("viewslots.run_record.load_run", lambda source, which: kind())
    for command, views, new in (
        (evaluate_command, {"views": 2}, None),
        (estimate_viewpoints, {"given": 2, "new": 2}, 2),
    ):
        out = tmp_path / "searched.json"
        command(str(saved), data=store.path, out=out, repeats=1, device="cpu", extras=False, **asked, **views)  # type: ignore[operator]
        written = json.loads(out.read_text())
        plan = Plan("test1", views=2, new_views=new, slots=2, repeats=1, extras=False, search=search)
        assert written["repeats"] == [evaluate(kind(), store, plan).one(0)]
        assert written["search"] == (search and asdict(search))


@pytest.mark.parametrize("option", ["--starts", "--careful"])
def test_careful_is_another_name_of_starts(
    store: Store, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    out = tmp_path / "x.json"
    words = ["--data", str(store.path), "--out", str(out), "--device", "cpu", "--repeats", "1", "--no-extras"]
    monkeypatch.setattr("sys.argv", ["viewslots", "evaluate", str(saved), *words, option, "3", "--spare", "1"])
    main()
    assert json.loads(out.read_text())["search"] == asdict(Search(3, spare=1))


SEARCHING = "--starts, --looks, --refine or --spare"


@pytest.mark.parametrize("command", ["evaluate", "estimate-viewpoints"])
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--starts", "-1"], f"{SEARCHING}: search.starts cannot be -1: it must be 1 or more"),
        (
            ["--careful", "0", "--refine", "3"],
            "--starts 0 is the plain answer, without a search: leave out --looks, --refine and --spare, or search from "
            "--starts 1 or more",
        ),
        (["--looks", "-1"], f"{SEARCHING}: search.looks cannot be -1: it must be 0 or above"),
        (["--refine", "-1"], f"{SEARCHING}: search.refinement cannot be -1: it must be 0 or above"),
        (["--spare", "65"], f"{SEARCHING}: search.spare cannot be 65: it must be at most 64"),
    ],
)
def test_a_search_that_cannot_be_is_refused_in_one_line(
    store: Store,
    saved: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    options: list[str],
    complaint: str,
) -> None:
    out = tmp_path / "x.json"
    given = [command, str(saved), "--data", str(store.path), "--out", str(out), "--device", "cpu", *options]
    monkeypatch.setattr("sys.argv", ["viewslots", *given])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code not in (0, None)
    printed = capsys.readouterr()
    assert [line for line in printed.err.splitlines() if line.strip()] == [f"viewslots: {complaint}"]
    assert printed.out == ""
    assert not out.exists()


@pytest.mark.parametrize("asked", [{"starts": 3}, {"looks": 0}, {"refine": 5}, {"spare": 2}])
def test_kmeans_has_nothing_to_search(store: Store, tmp_path: Path, asked: dict[str, int]) -> None:
    with pytest.raises(UserError, match="kmeans has no search of answers: leave out --starts, --spare, "):
        evaluate_command("kmeans", data=store.path, out=tmp_path / "x.json", device="cpu", **asked)  # type: ignore[arg-type]
    assert not (tmp_path / "x.json").exists()


def test_the_floor_takes_the_paper_s_slots(store: Store, tmp_path: Path) -> None:
    for split, slots in (("test1", 7), ("test2", 11)):
        evaluate_command("kmeans", data=store.path, out=tmp_path / "floor.json", split=split, repeats=1, device="cpu")
        written = json.loads((tmp_path / "floor.json").read_text())
        assert (written["slots"], written["views"], written["method"]) == (slots, 4, "kmeans")
        assert written["pooled"]["OOA"] is None


def test_a_place_nobody_may_write_to_is_refused_before_the_work(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(UserError, match="no permission to write"):
        evaluate_command("nothing-here", data=store.path, out=tmp_path / "x.json", device="cpu")


def test_commands_refuse_in_one_line(store: Store, saved: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.json"
    unknown = disc_store(tmp_path / "unknown", preset="of-our-own")
    told = unknown.meta.plan.splits["test1"]
    untold = replace(unknown.meta.plan, splits={"test1": replace(told, slots=0)})
    with pytest.raises(UserError, match="--slots: say how many objects may be found in of-our-own"):
        default_slots({"preset": None}, untold, "test1")
    assert default_slots({"preset": None}, unknown.meta.plan, "test2") == 3  # as many as the data set tells
    assert default_slots({"preset": None}, unknown.meta.plan, "test2", others=5) == 5
    assert default_slots({"preset": None}, replace(unknown.meta.plan, preset="clevr-m1"), "test2", others=5) == 11
    for trained, slots in {7: 11, 15: 15}.items():  # the paper's number, but never fewer than it was trained with
        about = {"preset": "clevr-m1", "trained_slots": trained}
        assert default_slots(about, unknown.meta.plan, "test2") == slots
    with pytest.raises(UserError, match="--scenes: 99 asked for, but test1 of "):  # before a model is looked for
        evaluate_command("nothing-here", data=store.path, out=out, scenes=99, device="cpu")
    with pytest.raises(UserError, match="no split"):
        evaluate_command(str(saved), data=store.path, out=out, split="nonsense", device="cpu")
    with pytest.raises(UserError, match="is a folder"):
        evaluate_command(str(saved), data=store.path, out=tmp_path, device="cpu")
    with pytest.raises(UserError, match="no such folder"):
        evaluate_command("nothing-here", data=store.path, out=out, device="cpu")
    with pytest.raises(UserError, match="has no new views to show"):
        estimate_viewpoints("kmeans", data=store.path, out=out, given=2, new=2, device="cpu")
    assert not out.exists()


@pytest.fixture
def ocloc(tmp_path: Path) -> Path:
    """A saved model: untrained, but off its start, so that noise and pictures both matter."""
    presets = pytest.importorskip("viewslots.methods.ocloc.presets")
    from viewslots.methods.registry import method_class

    made, rng = method_class("ocloc")(presets.TINY).eval(), torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.15 * torch.randn(parameter.shape, generator=rng)
    made.save_pretrained(tmp_path / "ocloc")
    return tmp_path / "ocloc"


@pytest.mark.parametrize("search", [None, Search(3), Search(2, looks=1, refinement=1)])
@pytest.mark.parametrize("new", [None, 2])
def test_ocloc_through_the_commands(
    store: Store, ocloc: Path, tmp_path: Path, search: Search | None, new: int | None
) -> None:
    """The file holds what the steps by hand give: one inference, all else asked of its answer."""
    out = tmp_path / "x.json"
    given: dict[str, Any] = {"data": store.path, "out": out, "repeats": 1, "device": "cpu", "extras": False}
    if search is not None:
        given |= {"starts": search.starts, "looks": search.looks, "refine": search.refinement}
    if new is None:
        evaluate_command(str(ocloc), views=3, **given)
    else:
        estimate_viewpoints(str(ocloc), given=3, new=new, **given)
    written, model = json.loads(out.read_text()), load_run(ocloc)
    dataset, scenes, generator = SceneDataset(store.split("test1")), list(range(7)), answer_generator(0, 0, 0)
    answer, chosen = model.infer(dataset.batch(scenes, FirstViews(3)), generator, 2, search), FirstViews(3)
    if new is not None:
        answer, chosen = answer.new_views(dataset.batch(scenes, LastViews(new)), generator), LastViews(new)
    expected = score_scenes(answer.decomposition(), dataset.truth(scenes, chosen))
    assert written["repeats"] == [{"paper": expected.paper(), "pooled": expected.pooled(), "extras": {}}]
    assert written["search"] == (search and asdict(search))
    assert (written["method"], written["trained_slots"]) == ("ocloc", 2)


def test_the_per_view_baseline_has_nothing_to_search(store: Store, tmp_path: Path) -> None:
    presets = pytest.importorskip("viewslots.methods.ocloc.presets")
    from viewslots.methods.registry import method_class

    method_class("per-view")(presets.TINY).save_pretrained(tmp_path / "baseline")
    given: dict[str, Any] = {"data": store.path, "out": tmp_path / "x.json", "device": "cpu", "repeats": 1}
    with pytest.raises(UserError):
        evaluate_command(str(tmp_path / "baseline"), refine=3, **given)
    evaluate_command(str(tmp_path / "baseline"), **given)
    extras = json.loads((tmp_path / "x.json").read_text())["extras"]
    assert extras["psnr"] is not None
    assert extras["novel_view_psnr"] is extras["camera_linear_position"] is None
