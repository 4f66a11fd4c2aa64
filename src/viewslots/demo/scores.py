"""The eight scores of a model and of the floor on a handful of scenes."""

from collections.abc import Sequence

import numpy as np

from viewslots.data.dataset import SceneDataset
from viewslots.data.store import Store
from viewslots.data.views import FirstViews
from viewslots.methods.contract import Method
from viewslots.methods.kmeans.model import KMeansMethod
from viewslots.metrics.score import SceneScores, score_scenes
from viewslots.protocol.evaluate import Plan, evaluate
from viewslots.protocol.repeats import Values
from viewslots.report.rows import FLOOR
from viewslots.viewpoints.answers import decomposition
from viewslots.viewpoints.scene import InferredScene

REPEATS = 5
"""Answers of the floor, which costs little."""
Scores = dict[str, dict[str, Values]]
"""By method, then by convention."""

MEANINGS = {
    "ARI-A": "are pixels grouped as in truth, background included (shadows count as mistakes)?",
    "AMI-A": "the same, measured by mutual information",
    "ARI-O": "are pixels of objects grouped into the right objects, and the same ones in all views?",
    "AMI-O": "the same, measured by mutual information",
    "IoU": "do complete shapes, hidden parts included, overlap with the true ones?",
    "F1": "the same, as the balance of precision and recall",
    "OCA": "share of scenes whose objects are counted exactly right",
    "OOA": "of two objects that overlap, is the nearer one known?",
}
"""In one line each; 1 is perfect, and chance is near 0 for the first four."""


def scores_of(method: Method, store: Store, plan: Plan) -> dict[str, Values]:
    """Over all repeats, in both conventions."""
    repeats = evaluate(method, store, plan)
    found = repeats.select(np.arange(repeats.scenes))
    return {kind: found[kind] for kind in ("paper", "pooled")}


def scores_of_answers(scenes: Sequence[InferredScene], store: Store, split: str, views: int) -> dict[str, Values]:
    """Of the very answers that are shown."""
    dataset, parts = SceneDataset(store.split(split)), []
    for index, scene in enumerate(scenes):
        truth = dataset.truth([index], FirstViews(views))
        parts.append(score_scenes(decomposition(scene, scene.render_many(scene.views)), truth))
    scores = SceneScores.concatenate(parts)
    return {"paper": scores.paper(), "pooled": scores.pooled()}


def all_scores(name: str, scenes: Sequence[InferredScene], store: Store, split: str, views: int, slots: int) -> Scores:
    plan = Plan(split=split, views=views, slots=slots, repeats=REPEATS, extras=False)
    return {name: scores_of_answers(scenes, store, split, views), FLOOR: scores_of(KMeansMethod(), store, plan)}
