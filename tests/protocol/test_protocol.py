"""The protocol: what a method sees, with which random numbers, and that results are what the steps by hand give."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from disc_world import COUNTS, VIEWS, disc_store

from viewslots.cli import main
from viewslots.commands.evaluation import estimate_viewpoints
from viewslots.commands.evaluation import evaluate as evaluate_command
from viewslots.data.dataset import SceneDataset
from viewslots.data.store import Store
from viewslots.data.views import FirstViews, LastViews
from viewslots.errors import UserError
from viewslots.experiments import model_preset
from viewslots.files import sha256
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.search import Care
from viewslots.methods.per_view.model import PerViewOcloc
from viewslots.methods.umbra.config import UmbraConfig
from viewslots.methods.umbra.model import Umbra
from viewslots.metrics.score import METRICS, SceneScores, score_scenes
from viewslots.protocol.evaluate import BATCH, Plan, evaluate, keyed_generator
from viewslots.protocol.results import result, summary
from viewslots.types import BACKGROUND, Decomposition, SceneBatch

PLAN = Plan("test1", views=2, slots=2, repeats=2, batch=3)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return disc_store(tmp_path_factory.mktemp("protocol") / "discs")


@pytest.fixture(scope="module")
def model() -> Ocloc:
    """Untrained, but off its start, so that noise and pictures both matter."""
    made, rng = Ocloc(model_preset("tiny").model).eval(), torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.15 * torch.randn(parameter.shape, generator=rng)
    return made


class Knowing:
    """Sees through everything: answers with the truth, view codes are the cameras, new views are shown as they are."""

    knows_viewpoints = True

    def __init__(self, store: Store, split: str = "test1") -> None:
        self.splits = {name: store.split(name) for name in (split, "valid")}
        self.asked: list[tuple[Any, ...]] = []

    def find(self, batch: SceneBatch) -> tuple[str, list[int], list[int]]:
        """Which scenes and views these pictures are: their first pixels say so."""
        corner = (batch.image[:, :, :, 0, 0] * 255).round().long()
        assert (corner[..., 0] == corner[:1, :, 0]).all()
        assert (corner[..., 1] == corner[:, :1, 1]).all()
        return list(COUNTS)[int(corner[0, 0, 2])], corner[:, 0, 1].tolist(), corner[0, :, 0].tolist()

    def answer(self, batch: SceneBatch, slots: int) -> Decomposition:
        name, scenes, views = self.find(batch)
        split = self.splits[name]
        segment = torch.from_numpy(np.asarray(split["segment"])[np.ix_(scenes, views)]).long()
        layer = torch.where(segment == BACKGROUND, 0, segment + 1)
        shapes = torch.from_numpy(np.asarray(split["shapes"])[np.ix_(scenes, views)]).float() / 255
        order = torch.from_numpy(np.asarray(split["depth_order"])[np.ix_(scenes, views)])
        visible = torch.stack([(segment == k).flatten(1).any(1) for k in range(slots)], 1)
        masks = torch.nn.functional.one_hot(layer, slots + 1).movedim(-1, 2).float()
        return Decomposition(batch.image, masks, True, shapes, visible.float(), None, order)

    def decompose(self, batch: SceneBatch, generator: torch.Generator, slots: int | None) -> Decomposition:
        self.asked.append(("decompose", *self.find(batch), generator.initial_seed(), slots))
        return self.answer(batch, slots)

    def decompose_new_views(
        self, given: SceneBatch, new: SceneBatch, generator: torch.Generator, slots: int | None
    ) -> Decomposition:
        self.asked.append(("new", *self.find(given), self.find(new)[2], generator.initial_seed(), slots))
        return self.answer(new, slots)

    def view_codes(self, batch: SceneBatch, generator: torch.Generator, slots: int | None) -> torch.Tensor:
        name, scenes, views = self.find(batch)
        self.asked.append(("codes", name, scenes, views, generator.initial_seed(), slots))
        return torch.from_numpy(np.asarray(self.splits[name]["camera"])[np.ix_(scenes, views)])


def seed_of(*words: object) -> int:
    return keyed_generator(*words).initial_seed()


def test_the_truth_scores_one(store: Store) -> None:
    found = evaluate(Knowing(store), store, PLAN)
    for kind in ("paper", "pooled"):
        assert found.one(0)[kind] == pytest.approx(dict.fromkeys(METRICS, 1.0))
    extras = found.one(1)["extras"]
    assert extras["ari_a_without_shadows"] == extras["identity"] == 1.0
    assert extras["shadow_claimed"] == 0.0
    assert extras["psnr"] == extras["novel_view_psnr"] == pytest.approx(100.0)
    assert extras["camera_linear_position"] > 0.9999
    assert extras["camera_kernel_azimuth"] > 0.98
    assert extras["camera_linear_elevation"] is None  # constant in this world
    np.testing.assert_array_equal(found.num_objects, store.split("test1")["num_objects"])


def test_what_a_method_is_shown(store: Store) -> None:
    """First M views of every scene in batches of three, the last ones held out, cameras fitted on valid."""
    method = Knowing(store)
    evaluate(method, store, replace(PLAN, repeats=2, seed=9))
    decompose = [asked for asked in method.asked if asked[0] == "decompose"]
    expected = [
        ("decompose", "test1", scenes, [0, 1], seed_of(9, repeat, scenes[0]), 2)
        for scenes in ([0, 1, 2], [3, 4, 5], [6])
        for repeat in range(2)
    ]
    assert decompose == expected
    new = [asked for asked in method.asked if asked[0] == "new"]
    assert [(asked[3], asked[4]) for asked in new] == [([0, 1], [2, 3, 4, 5])] * 6
    assert [asked[5] for asked in new] == [asked[4] for asked in decompose]
    codes = [asked for asked in method.asked if asked[0] == "codes"]
    assert {(asked[1], tuple(asked[3])) for asked in codes} == {("valid", (0, 1)), ("test1", (0, 1))}
    fitted = [scene for asked in codes if asked[1] == "valid" for scene in asked[2]]
    assert fitted == list(range(COUNTS["valid"]))
    behind = {(asked[4], tuple(asked[2])) for asked in codes if asked[1] == "test1"}
    assert behind == {(asked[4], tuple(asked[2])) for asked in decompose}


def test_viewpoint_estimation_scores_the_last_views(store: Store) -> None:
    method = Knowing(store)
    found = evaluate(method, store, replace(PLAN, views=3, new_views=2))
    assert {asked[0] for asked in method.asked} == {"new"}
    assert {(tuple(asked[3]), tuple(asked[4])) for asked in method.asked} == {((0, 1, 2), (4, 5))}
    assert found.one(0)["paper"]["ARI-A"] == found.one(0)["extras"]["identity"] == 1.0
    assert set(found.one(0)["extras"]) == {"ari_a_without_shadows", "shadow_claimed", "identity", "mse", "psnr"}


def test_without_extras_only_decompose_is_asked(store: Store) -> None:
    method = Knowing(store)
    found = evaluate(method, store, replace(PLAN, extras=False))
    assert {asked[0] for asked in method.asked} == {"decompose"}
    assert found.one(0)["extras"] == {}


def test_with_all_views_seen_none_are_held_out(store: Store) -> None:
    assert evaluate(Knowing(store), store, replace(PLAN, views=VIEWS)).one(0)["extras"]["novel_view_psnr"] is None


def test_a_model_by_hand(store: Store, model: Ocloc) -> None:
    """Batch by batch with the documented generators, then the library's own scores."""
    dataset = SceneDataset(store.split("test1"))
    found = evaluate(model, store, PLAN)
    for repeat in range(2):
        parts = []
        for scenes in ([0, 1, 2], [3, 4, 5], [6]):
            batch = dataset.batch(scenes, FirstViews(2))
            answer = model.decompose(batch, keyed_generator(0, repeat, scenes[0]), 2)
            parts.append(score_scenes(answer, dataset.truth(scenes, FirstViews(2))))
        assert found.one(repeat)["paper"] == SceneScores.concatenate(parts).paper()
        assert found.one(repeat)["pooled"] == SceneScores.concatenate(parts).pooled()
    assert found.one(0)["pooled"] != found.one(1)["pooled"]


def test_new_views_of_a_model_by_hand(store: Store, model: Ocloc) -> None:
    dataset, plan = SceneDataset(store.split("test1")), replace(PLAN, views=3, new_views=2, repeats=1, batch=10)
    scenes = list(range(COUNTS["test1"]))
    given, new = dataset.batch(scenes, FirstViews(3)), dataset.batch(scenes, LastViews(2))
    answer = model.decompose_new_views(given, new, keyed_generator(0, 0, 0), 2)
    expected = score_scenes(answer, dataset.truth(scenes, LastViews(2)))
    assert evaluate(model, store, plan).one(0)["paper"] == expected.paper()


def test_repeats_do_not_depend_on_their_number_nor_seeds_on_each_other(store: Store, model: Ocloc) -> None:
    plan = replace(PLAN, extras=False)
    one, two, other = (
        evaluate(model, store, p).one(0)["paper"] for p in (replace(plan, repeats=1), plan, replace(plan, seed=1))
    )
    assert one == two
    assert one != other


def test_progress_reaches_the_end(store: Store) -> None:
    seen: list[tuple[int, int]] = []
    evaluate(Knowing(store), store, PLAN, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(3, 14), (6, 14), (9, 14), (12, 14), (13, 14), (14, 14)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"repeats": 0}, "repeats: must be at least 1"),
        ({"batch": 0}, "batch: must be at least 1"),
        ({"slots": 0}, "slots: must be at least 1"),
        ({"views": 0}, "views: must be at least 1"),
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
    baseline = PerViewOcloc(model_preset("tiny").model).eval()
    extras = evaluate(baseline, store, replace(PLAN, repeats=1)).one(0)["extras"]
    assert extras["psnr"] is not None
    assert extras["novel_view_psnr"] is None
    assert extras["camera_linear_position"] is None
    with pytest.raises(UserError, match="no viewpoints to estimate"):
        evaluate(baseline, store, replace(PLAN, new_views=2))


def test_a_store_without_a_validation_split_has_no_probes(store: Store) -> None:
    bare = Store(
        store.path,
        replace(store.meta, plan=replace(store.meta.plan, splits={"test1": store.meta.plan.splits["test1"]})),
    )
    extras = evaluate(Knowing(store), bare, replace(PLAN, repeats=1)).one(0)["extras"]
    assert extras["camera_linear_position"] is None
    assert extras["novel_view_psnr"] is not None


def test_summary_by_hand(store: Store, model: Ocloc) -> None:
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


def test_bootstrap_of_a_score_by_hand(store: Store, model: Ocloc) -> None:
    """For the mean over scenes, each scene's value is its mean over repeats; resample those."""
    from viewslots.protocol.uncertainty import resampled_scenes

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
    assert set(written["paper"]) == set(written["pooled"]) == set(METRICS)
    json.dumps(written, allow_nan=False)


@pytest.fixture(scope="module")
def saved(model: Ocloc, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "model"
    model.save_pretrained(folder)
    return folder


def test_evaluate_command(store: Store, saved: Path, model: Ocloc, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "results" / "test1.json"
    evaluate_command(str(saved), data=store.path, out=out, views=3, repeats=2, device="cpu", seed=3)
    written = json.loads(out.read_text())
    expected = evaluate(model, store, Plan("test1", views=3, slots=2, repeats=2, seed=3, batch=BATCH))
    assert written["repeats"] == [expected.one(0), expected.one(1)]
    assert written["slots"] == model.config.slots
    assert (written["method"], written["run"], written["device"]) == ("ocloc", "model", "cpu")
    assert written["provenance"]["torch"] == torch.__version__
    assert written["care"] is None  # the paper's answers
    printed = json.loads(capsys.readouterr().out)
    assert printed["results"] == str(out)
    assert printed["pooled"]["ARI-A"] == round(written["pooled"]["ARI-A"]["mean"], 4)


def test_estimate_viewpoints_command(store: Store, saved: Path, model: Ocloc, tmp_path: Path) -> None:
    out = tmp_path / "new.json"
    estimate_viewpoints(str(saved), data=store.path, out=out, given=2, new=3, repeats=1, device="cpu")
    written = json.loads(out.read_text())
    expected = evaluate(model, store, Plan("test1", views=2, new_views=3, slots=2, repeats=1))
    assert written["repeats"] == [expected.one(0)]
    assert (written["task"], written["views"], written["new_views"]) == ("viewpoint estimation", 2, 3)


def test_careful_answers_are_scored_and_say_so(store: Store, saved: Path, tmp_path: Path) -> None:
    careful, plans = Ocloc.from_pretrained(saved).eval(), []
    careful.take_care(Care(3))
    for command, views, new in (
        (evaluate_command, {"views": 3}, None),
        (estimate_viewpoints, {"given": 3, "new": 2}, 2),
    ):
        out = tmp_path / "careful.json"
        command(str(saved), data=store.path, out=out, repeats=1, device="cpu", careful=3, extras=False, **views)  # type: ignore[operator]
        written = json.loads(out.read_text())
        plans.append(Plan("test1", views=3, new_views=new, slots=2, repeats=1, extras=False))
        assert written["repeats"] == [evaluate(careful, store, plans[-1]).one(0)]
        assert written["care"] == {"starts": 3, "looks": 0, "refinement": 0}
    plain = evaluate(Ocloc.from_pretrained(saved).eval(), store, plans[0])
    assert evaluate(careful, store, plans[0]).one(0) != plain.one(0)


@pytest.mark.parametrize(
    ("asked", "care"),
    [({"refine": 2}, Care(refinement=2)), ({"careful": 2, "looks": 1, "refine": 1}, Care(2, looks=1, refinement=1))],
)
def test_care_as_it_is_asked_for(store: Store, saved: Path, tmp_path: Path, asked: dict[str, int], care: Care) -> None:
    """Any of the three makes answers careful; those that are not named are as little as can be."""
    careful = Ocloc.from_pretrained(saved).eval()
    careful.take_care(care)
    for command, views, new in (
        (evaluate_command, {"views": 2}, None),
        (estimate_viewpoints, {"given": 2, "new": 2}, 2),
    ):
        out = tmp_path / "careful.json"
        command(str(saved), data=store.path, out=out, repeats=1, device="cpu", extras=False, **asked, **views)  # type: ignore[operator]
        written = json.loads(out.read_text())
        plan = Plan("test1", views=2, new_views=new, slots=2, repeats=1, extras=False)
        assert written["repeats"] == [evaluate(careful, store, plan).one(0)]
        assert written["care"] == asdict(care)


def test_a_method_of_its_own_care_takes_more_or_less(store: Store, tmp_path: Path) -> None:
    """What is not named stays as the method has it."""
    folder = tmp_path / "umbra"
    Umbra(UmbraConfig(**vars(model_preset("tiny").model))).save_pretrained(folder)
    out = tmp_path / "umbra.json"
    given = {"data": store.path, "out": out, "views": 1, "repeats": 1, "device": "cpu", "extras": False}
    for asked, care in (
        ({"looks": 0, "refine": 0}, replace(Umbra.care, looks=0, refinement=0)),
        ({"careful": 1, "refine": 1}, replace(Umbra.care, starts=1, refinement=1)),
        ({"careful": 1, "looks": 3}, replace(Umbra.care, starts=1, looks=3)),
        ({"careful": 0}, None),
    ):
        evaluate_command(str(folder), **given, **asked)  # type: ignore[arg-type]
        assert json.loads(out.read_text())["care"] == (care and asdict(care))


@pytest.mark.parametrize("command", ["evaluate", "estimate-viewpoints"])
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--careful", "-1"], "at least one start is needed, not -1"),
        (["--careful", "0", "--refine", "3"], "at least one start is needed, not 0"),
        (["--looks", "-1"], "looks must be 0 or more, not -1"),
        (["--refine", "-1"], "refinement must be 0 or more, not -1"),
    ],
)
def test_care_that_cannot_be_is_refused_in_one_line(
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
    assert [line for line in printed.err.splitlines() if line.strip()] == [
        f"viewslots: --careful, --looks or --refine: {complaint}"
    ]
    assert printed.out == ""
    assert not out.exists()


@pytest.mark.parametrize("asked", [{"careful": 3}, {"looks": 0}, {"refine": 5}])
def test_kmeans_has_nothing_to_take_care_of(store: Store, tmp_path: Path, asked: dict[str, int]) -> None:
    for command in (evaluate_command, estimate_viewpoints):
        with pytest.raises(UserError, match="--careful, --looks, --refine: kmeans always answers alike"):
            command("kmeans", data=store.path, out=tmp_path / "x.json", device="cpu", **asked)  # type: ignore[operator]
    assert not (tmp_path / "x.json").exists()


def test_the_per_view_baseline_takes_no_care(store: Store, tmp_path: Path) -> None:
    PerViewOcloc(model_preset("tiny").model).save_pretrained(tmp_path / "baseline")
    with pytest.raises(UserError, match="every view alone, from one start"):
        evaluate_command(str(tmp_path / "baseline"), data=store.path, out=tmp_path / "x.json", refine=3, device="cpu")


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
    for run, split in ((str(saved), "test2"), ("kmeans", "test1"), ("kmeans", "test2")):
        with pytest.raises(UserError, match="--slots"):  # neither model nor data name a preset
            evaluate_command(run, data=unknown.path, out=out, split=split, device="cpu")
    with pytest.raises(UserError, match="no split"):
        evaluate_command(str(saved), data=store.path, out=out, split="nonsense", device="cpu")
    with pytest.raises(UserError, match="is a folder"):
        evaluate_command(str(saved), data=store.path, out=tmp_path, device="cpu")
    with pytest.raises(UserError, match="no such folder"):
        evaluate_command("nothing-here", data=store.path, out=out, device="cpu")
    with pytest.raises(UserError, match="no viewpoints to estimate"):
        estimate_viewpoints("kmeans", data=store.path, out=out, given=2, new=2, device="cpu")
    assert not out.exists()
