"""Count, depth order and scores of a scene: what the model says beside the truth."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import UInt8
from torch import Tensor

from viewslots.data.dataset import SceneTruth
from viewslots.explorer.opened import Opened
from viewslots.metrics.score import METRICS, match, score_scenes
from viewslots.types import BACKGROUND, Decomposition
from viewslots.viewpoints.answers import decomposition


@dataclass(frozen=True)
class ObjectFact:
    """One object that the model found."""

    index: int
    sure: float
    """Probability that it is there."""
    name: str | None
    """The true object that it stands for; None where there is no truth, or none fits."""
    place: int
    """1 is the nearest, in the picture that is asked about."""
    true_place: int | None
    """Among the true objects seen in that picture; None if it is not one of them."""


@dataclass(frozen=True)
class Facts:
    picture: int
    found: int
    true_count: int | None
    """True objects of which a pixel is seen in at least one picture."""
    objects: tuple[ObjectFact, ...]
    """Nearest first."""
    missed: tuple[str, ...]
    """True objects seen somewhere that no found object stands for."""
    true_order: tuple[str, ...]
    """Names of the true objects seen in the picture, nearest first."""
    scores: dict[str, float | None] | None
    """The eight metrics by name; None where there is no truth."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def facts_of(opened: Opened, picture: int) -> Facts:
    """Of the scene as it was inferred, seen from the viewpoint of one of its pictures."""
    scene, view, truth = opened.scene, opened.rebuilt[picture], opened.truth
    answer = decomposition(scene, opened.rebuilt)
    stands_for = {} if truth is None else matched(answer, truth)
    true_order = [] if truth is None else true_nearest_first(truth, picture)
    objects = []
    for place, k in enumerate(view.nearest_first(), 1):
        g = stands_for.get(k)
        true_place = true_order.index(g) + 1 if g in true_order else None
        name = None if g is None else opened.names[g]
        objects.append(ObjectFact(k, float(scene.presence[k]), name, place, true_place))
    visible = [] if truth is None else visible_objects(truth)
    return Facts(
        picture=picture,
        found=scene.count,
        true_count=None if truth is None else len(visible),
        objects=tuple(objects),
        missed=tuple(opened.names[g] for g in visible if g not in stands_for.values()),
        true_order=tuple(opened.names[g] for g in true_order),
        scores=None if truth is None else scores_of(answer, truth),
    )


def scores_of(answer: Decomposition, truth: SceneTruth) -> dict[str, float | None]:
    """In the convention "paper", for this one scene."""
    scores = score_scenes(answer, truth).paper()
    return {name: scores[name] for name in METRICS}


def visible_objects(truth: SceneTruth) -> list[int]:
    """True objects with at least one pixel in sight."""
    assert truth.segment is not None
    return objects_in(truth.segment)


def true_nearest_first(truth: SceneTruth, picture: int) -> list[int]:
    """True objects seen in one picture, from near to far."""
    if truth.depth_order is None or truth.segment is None:
        return []
    order = truth.depth_order[0, picture].tolist()
    return sorted(objects_in(truth.segment[0, picture]), key=lambda g: -order[g])


def objects_in(segment: UInt8[Tensor, "*views H W"]) -> list[int]:
    return sorted(set(segment.flatten().tolist()) - {BACKGROUND})


def matched(answer: Decomposition, truth: SceneTruth) -> dict[int, int]:
    """Found object -> true object, by the matching of the metrics, where the two share at least one pixel."""
    assert truth.segment is not None
    strongest = answer.layer_masks[0].argmax(1) - 1
    pairs = enumerate(match(answer, truth)[0].tolist())
    return {k: g for g, k in pairs if k >= 0 and bool(torch.any((truth.segment[0] == g) & (strongest == k)))}
