"""Probes through the whole protocol: discs whose descriptions tell colour and size, and methods that know them."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from disc_world import DiscScene, DiscWorld, disc_store

from viewslots.commands.evaluation import evaluate as evaluate_command
from viewslots.commands.evaluation import report
from viewslots.data.generate import DatasetRecipe, make_dataset
from viewslots.data.store import Store
from viewslots.errors import UserError
from viewslots.experiments import EXPERIMENTS
from viewslots.methods.contract import ObjectCodesAnswer, Search
from viewslots.methods.kmeans.model import KMeansMethod
from viewslots.methods.names import METHODS
from viewslots.methods.registry import trainable_class
from viewslots.metrics.property_probes import FOUND, PROBES, PROPERTIES
from viewslots.protocol.evaluate import evaluate
from viewslots.protocol.plan import Plan
from viewslots.protocol.probing import properties_of
from viewslots.protocol.results import summary
from viewslots.types import BACKGROUND, Decomposition, SceneBatch

COLOURS = {"red": (230, 30, 30), "green": (30, 220, 40), "blue": (20, 30, 240)}


@dataclass(frozen=True)
class ToldScene(DiscScene):
    """Says its colours in words, and its sizes in pixels."""

    def to_dict(self) -> dict[str, Any]:
        names = {value: name for name, value in COLOURS.items()}
        told = [
            {"color": names[colour], "r": radius, "material": "paper"}
            for colour, (_, _, radius) in zip(self.colours, self.discs, strict=True)
        ]
        return {"objects": told}


class ToldWorld(DiscWorld):
    def sample(self, seed: int, split: str, index: int) -> ToldScene:
        scene = super().sample(seed, split, index)
        draw = np.random.default_rng([*split.encode(), index, seed, 1])
        chosen = [list(COLOURS.values())[k] for k in draw.permutation(3)[: len(scene.discs)]]
        return ToldScene(scene.discs, tuple(chosen), scene.azimuths, scene.place)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    counts = {"train": 40, "valid": 24, "test1": 20}
    return Store.open(
        make_dataset(
            DatasetRecipe(ToldWorld(), counts, preset="told", seed=2), tmp_path_factory.mktemp("probing") / "told"
        )
    )


@dataclass(frozen=True)
class Told:
    answer: Decomposition
    object_codes: torch.Tensor

    def decomposition(self) -> Decomposition:
        return self.answer


class ByColour:
    """Object k is what has the k-th colour; its code is that colour, mixed, or noise."""

    name: ClassVar[str] = "by-colour"
    needs_camera = shows_new_views = has_viewpoints = searches = False
    default_search: ClassVar[Search | None] = None
    image_size = slots = None
    knows = True

    def infer(self, batch: SceneBatch, generator: torch.Generator, slots: Any = None, search: Any = None) -> Told:
        colours = torch.tensor(list(COLOURS.values())) / 255
        near = (batch.image[:, :, None] - colours[:, :, None, None]).abs().amax(3) < 0.01
        masks = torch.cat([~near.any(2, keepdim=True), near], 2).float()
        codes = colours @ torch.tensor([[1.0, 2, 0, 1], [0, 1, 1, 1], [3, 0, 1, 1]]) + 4
        codes = codes.expand(len(batch.image), 3, 4)
        if not self.knows:
            codes = torch.rand(codes.shape, generator=generator)
        return Told(Decomposition(batch.image, masks, True, None, None, None, None), codes)


PLAN = Plan("test1", views=2, slots=3, repeats=2, batch=7, extras=False, probes="valid")


def test_codes_that_are_the_colour_tell_it_and_not_the_size(store: Store) -> None:
    found = evaluate(ByColour(), store, PLAN)
    scores = found.one(0)["extras"]
    assert set(scores) == {FOUND} | {f"probe_{kind}_{name}" for kind in PROBES for name in PROPERTIES}
    assert scores[FOUND] == scores["probe_linear_color"] == scores["probe_mlp_color"] == 1
    assert scores["probe_baseline_color"] < 0.6
    assert scores["probe_linear_size"] < 0.2
    assert scores["probe_baseline_size"] <= 0
    assert scores["probe_linear_shape"] is None  # never told
    assert scores["probe_linear_material"] is None  # constant
    estimate = summary(found, seed=0)["extras"]["probe_baseline_color"]
    assert estimate["low"] < estimate["mean"] < estimate["high"]
    again = evaluate(ByColour(), store, PLAN)
    assert again.one(1) == found.one(1)
    on_train = evaluate(ByColour(), store, replace(PLAN, probes="train")).one(0)["extras"]
    assert on_train["probe_linear_color"] == 1


def test_baseline_is_the_most_frequent_word_of_the_fitted_split(store: Store) -> None:
    def visible(split: str) -> list[str]:
        segment = np.asarray(store.split(split)["segment"])[:, :2]
        told = properties_of(store, split)
        return [told[s][g]["color"] for s in range(len(segment)) for g in np.unique(segment[s]) if g != BACKGROUND]

    fitted, scored = visible("valid"), visible("test1")
    most = max(sorted(set(fitted)), key=fitted.count)
    expected = scored.count(most) / len(scored)
    assert evaluate(ByColour(), store, PLAN).one(0)["extras"]["probe_baseline_color"] == pytest.approx(expected)


def test_the_first_scenes_alone_are_probed(store: Store) -> None:
    whole, first = (evaluate(ByColour(), store, plan).per_scene() for plan in (PLAN, replace(PLAN, scenes=6)))
    for name in ("probe_linear_color", "probe_mlp_color"):
        assert first["extras"][name] == whole["extras"][name][:6]


def test_noise_tells_nothing(store: Store) -> None:
    class Guessing(ByColour):
        knows = False

    scores = evaluate(Guessing(), store, PLAN).one(0)["extras"]
    assert scores["probe_linear_color"] < 0.75
    assert scores["probe_mlp_color"] < 0.75


def test_through_the_command_and_the_report(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """k-means has codes as well: mean colours of clusters."""
    out = tmp_path / "x.json"
    evaluate_command(
        "kmeans", data=store.path, out=out, views=2, repeats=1, probes="valid", per_scene=True, device="cpu"
    )
    written = json.loads(out.read_text())
    assert written["probes"] == "valid"
    assert written["slots"] == 2  # as the data set tells
    assert written["extras"]["probe_linear_color"]["mean"] > 0.8 > written["extras"]["probe_baseline_color"]["mean"]
    scenes = written["per_scene"]
    assert "names" not in scenes  # made here, so nobody named them
    mean = np.mean([value for value in scenes["paper"]["ARI-O"] if value is not None])
    assert mean == pytest.approx(written["paper"]["ARI-O"]["mean"], abs=1e-9)
    assert len(scenes["extras"]["probe_linear_color"]) == 20
    report((out,), out=tmp_path / "report")
    assert "colour from object codes, linear probe" in (tmp_path / "report" / "report.md").read_text()


def test_refusals(store: Store, tmp_path: Path) -> None:
    class Mute(ByColour):
        def infer(self, *given: Any, **named: Any) -> Any:
            found = super().infer(*given, **named)
            return type("Plain", (), {"decomposition": lambda self: found.answer})()

    with pytest.raises(UserError, match=r"by-colour answers without codes of objects \(object_codes\), so --probes"):
        evaluate(Mute(), store, PLAN)
    with pytest.raises(UserError, match="the split that is scored; fit on another"):
        evaluate(ByColour(), store, replace(PLAN, probes="test1"))
    with pytest.raises(UserError, match="no split 'nowhere'"):
        evaluate(ByColour(), store, replace(PLAN, probes="nowhere"))
    untold = disc_store(tmp_path / "untold")
    with pytest.raises(UserError, match="split valid does not tell color, shape, size or material of its objects"):
        evaluate(KMeansMethod(), untold, PLAN)


LEARNING = [name for name, entry in METHODS.items() if entry.learns]


@pytest.mark.parametrize("name", LEARNING)
def test_every_method_of_the_registry_has_codes_of_objects(name: str) -> None:
    """One for each object layer; views have an axis where they stand alone."""
    made = min((one for one in EXPERIMENTS.values() if one.method == name), key=lambda one: one.model.slots)
    model = trainable_class(name)(made.model, torch.Generator().manual_seed(0)).eval()
    views = 2
    image = torch.rand(1, views, 3, *model.image_size, generator=torch.Generator().manual_seed(1))
    camera = torch.rand(1, views, 5) if model.needs_camera else None
    batch = SceneBatch(image, torch.ones(1, views, dtype=torch.bool), camera)
    with torch.no_grad():
        answer = model.infer(batch, torch.Generator().manual_seed(2), slots=2)
        found = answer.decomposition()
        assert isinstance(answer, ObjectCodesAnswer)
        codes = answer.object_codes
    objects = found.layer_masks.shape[2] - found.has_background
    assert codes.shape[:-1] in ((1, objects), (1, views, objects))
    assert (codes.dim() == 4) == (name in ("per-view", "slot-attention", "gmioo", "space"))
    assert codes.isfinite().all()
