"""The paper's protocol: which scenes, views and slots a method sees, how often, with which random numbers.

A scene is inferred once a repeat; scores, held-out views and view codes are all asked of that one answer.

Random numbers come from a generator on the CPU, keyed by (seed, repeat, first scene of the batch): an answer depends
neither on the device's generator nor on the order of work. It does depend on how scenes are put into batches, which is
why the batch size is part of the protocol and is written into the results.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from viewslots.data.dataset import SceneDataset
from viewslots.data.store import Store
from viewslots.data.views import FirstViews, HeldOutViews, LastViews
from viewslots.errors import UserError
from viewslots.methods.contract import Method, NewViewsAnswer, ViewpointAnswer
from viewslots.metrics.extras import (
    MASK_SCORES,
    NOVEL_SCORES,
    ORDER_SCORES,
    Ratio,
    SceneRatios,
    hidden_share,
    novel_view_extras,
    scene_extras,
)
from viewslots.metrics.lpips import Lpips
from viewslots.metrics.probes import CAMERA_SCORES
from viewslots.metrics.property_probes import ObjectRows
from viewslots.metrics.score import METRICS, SceneScores, score_scenes
from viewslots.protocol.plan import Plan, answer_generator, batches, shown_to
from viewslots.protocol.probing import (
    Fitting,
    camera_scores,
    fit_splits,
    object_rows,
    property_scores,
    require_properties,
    view_codes_of,
)
from viewslots.protocol.repeats import Repeats
from viewslots.protocol.work import Work
from viewslots.ranks import ALONE, Team
from viewslots.types import OnProgress, SceneBatch, SceneTruth, concatenated

HELD_OUT_VIEWS = 4
"""Last pictures of a scene, whose viewpoints are estimated for the novel-view error; fewer where M leaves fewer."""
NOVEL_MASKS = ("novel_view_ari", "novel_view_fg_ari")
NEEDED_FOR = {
    "segment": (
        *METRICS,
        *MASK_SCORES,
        "ari_a_without_shadows",
        "shadow_claimed",
        "identity",
        *ORDER_SCORES,
        *NOVEL_MASKS,
        "by_occlusion",
    ),
    "shapes": ("IoU", "F1", "OOA", *ORDER_SCORES, "pooled ARI-O", "pooled AMI-O", "by_occlusion"),
    "shadows": ("ari_a_without_shadows", "shadow_claimed"),
    "camera": CAMERA_SCORES,
    "num_objects": ("by_objects",),
    "identities": (*METRICS, "fg_ari", "mbo", "miou", "ari_a_without_shadows", "identity", *ORDER_SCORES),
}
"""Kinds of truth, and the scores that a data set without them cannot have."""
FEWEST_FITTED = 50
"""Scenes below which probes that are fitted on them are not to be trusted."""


def evaluate(
    method: Method,
    store: Store,
    plan: Plan,
    device: str = "cpu",
    progress: OnProgress = lambda done, total: None,
    lpips: Lpips | None = None,
) -> Repeats:
    """All repeats of the scenes that the plan asks for, scored."""
    found = evaluate_together(method, store, plan, device, progress, ALONE, lpips)
    assert found is not None  # there is no other rank
    return found


@torch.no_grad()
def evaluate_together(
    method: Method,
    store: Store,
    plan: Plan,
    device: str,
    progress: OnProgress,
    team: Team,
    lpips: Lpips | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Repeats | None:
    """`evaluate` with batches shared among the ranks of a team. Rank 0 gets the answer of one process, others None.

    `say` is told what is counted by `progress`, where that is more than the answers that are scored.
    """
    require_properties(store, plan)
    dataset = shown_to(method, store, plan.split, device)
    plan.require(dataset.split)
    scored = plan.scored(dataset.split)
    if plan.new_views is not None and not method.shows_new_views:
        raise UserError("this method does not tell viewpoints from objects, so it has no new views to show")
    if not plan.extras and plan.probes is None and "segment" not in dataset.split:
        raise UserError(
            f"{store.path}: split {plan.split} has no masks, so nothing is left to score; without --no-extras the "
            "pictures are scored"
        )
    work = Work(progress, scored * plan.repeats, team.count)
    fitting = Fitting(method, store, plan, device, work, team)
    if splits := fit_splits(method, store, plan, dataset.split):
        fitted, places = fitting.scenes(splits), " and ".join(splits)
        if team.first:
            say(f"{work.total} answers to score, and {fitted} more, of scenes of {places}, to fit probes on")
            if min(fitting.scenes([name]) for name in splits) < FEWEST_FITTED:
                say(f"that is too few for probes to tell much; {FEWEST_FITTED} are better")
        work.total += fitted

    def answers(scenes: list[int]) -> tuple[Facts, list[Scored]]:
        seen, found = Seen.of(dataset, scenes, plan), []
        for repeat in range(plan.repeats):
            with work.of(len(scenes)):
                found.append(answered(method, seen, plan, repeat, lpips))
        return Facts.of(seen.truth), found

    everything = list(team.spread(list(batches(scored, plan.batch)), answers))
    facts = Facts.concatenate([part for part, _ in everything])
    if "pose" in dataset.split:
        facts = replace(facts, unknown=facts.unknown - {"camera"})
    known = team.tell("camera" not in facts.unknown)
    fitting.infer(fit_splits(method, store, plan, dataset.split, known))
    if not team.first:
        return None
    repeats = [[found[repeat] for _, found in everything] for repeat in range(plan.repeats)]
    extras = [SceneRatios.concatenate([part.extras for part in parts]) for parts in repeats]
    if plan.extras and plan.new_views is None:
        codes = [joined([part.view_codes for part in parts]) if known else None for parts in repeats]
        cameras = camera_scores(fitting, store, plan, dataset.split, codes)
        extras = [one.merge(two) for one, two in zip(extras, cameras, strict=True)]
    if plan.probes is not None:
        rows = [ObjectRows.concatenate([part.objects for part in parts if part.objects]) for parts in repeats]
        probed = property_scores(fitting, store, plan, rows, scored)
        extras = [one.merge(two) for one, two in zip(extras, probed, strict=True)]
    return Repeats(
        [concatenated([part.scores for part in parts]) for parts in repeats],
        extras,
        facts.num_objects,
        facts.hidden,
        missing_scores(facts.unknown, method, plan),
    )


@dataclass(frozen=True)
class Seen:
    """A batch of scenes as a method sees it, and the truth of the views that are scored."""

    first: int
    given: SceneBatch
    new: SceneBatch | None
    """Last views: those scored in viewpoint estimation, held-out pictures otherwise."""
    held_out: Bool[Tensor, "B"]
    """Scenes with pictures that were not given; of the others `new` shows one that was, which does not count."""
    truth: SceneTruth
    new_truth: SceneTruth | None = None
    """Of held-out pictures."""

    @classmethod
    def of(cls, dataset: SceneDataset, scenes: list[int], plan: Plan) -> "Seen":
        """Scenes with fewer views than are asked for show all they have, padded."""
        M, split = plan.views, dataset.split
        given = dataset.batch(scenes, FirstViews(M), padded_to=M)
        held_out = torch.from_numpy(split.view_counts[scenes] > M).to(given.image.device)
        if plan.new_views is not None:
            last = LastViews(plan.new_views)
            return cls(scenes[0], given, dataset.batch(scenes, last), held_out, dataset.truth(scenes, last))
        room = min(HELD_OUT_VIEWS, split.size.views - M) if plan.extras and held_out.any() else 0
        truth = dataset.truth(scenes, FirstViews(M), padded_to=M)
        if not room:
            return cls(scenes[0], given, None, held_out, truth)
        rest = HeldOutViews(M, room)
        return cls(scenes[0], given, dataset.batch(scenes, rest), held_out, truth, dataset.truth(scenes, rest))


def joined(columns: Sequence[Any]) -> Any:
    """Along the scenes; None where it is not known of all."""
    return None if not columns or any(column is None for column in columns) else np.concatenate(columns)


@dataclass(frozen=True)
class Facts:
    """What scenes are grouped by, where the data set tells it, and the kinds of truth that it does not tell."""

    num_objects: Integer[np.ndarray, "S"] | None
    hidden: Float[np.ndarray, "S"] | None
    unknown: frozenset[str]

    @classmethod
    def of(cls, truth: SceneTruth) -> "Facts":
        def plain(values: Tensor | None) -> Any:
            return None if values is None else values.cpu().numpy()

        told = {name: getattr(truth, name) for name in NEEDED_FOR}
        unknown = frozenset(name for name, value in told.items() if value is None or value is False)
        return cls(plain(truth.num_objects), plain(hidden_share(truth)), unknown)

    @classmethod
    def concatenate(cls, parts: "Sequence[Facts]") -> "Facts":
        return cls(
            joined([part.num_objects for part in parts]),
            joined([part.hidden for part in parts]),
            frozenset().union(*(part.unknown for part in parts)),
        )


def missing_scores(unknown: frozenset[str], method: Method, plan: Plan) -> dict[str, list[str]]:
    """By kind of truth that is not known: the scores that this plan would have had with it, each named once."""
    asked = {*METRICS, "pooled ARI-O", "pooled AMI-O", "by_objects", "by_occlusion"}
    if plan.extras:
        asked |= {*MASK_SCORES, *ORDER_SCORES, "ari_a_without_shadows", "shadow_claimed", "identity"}
        if method.shows_new_views and plan.new_views is None:
            asked |= set(NOVEL_MASKS)
        if method.has_viewpoints and plan.new_views is None:
            asked |= set(CAMERA_SCORES)
    found: dict[str, list[str]] = {}
    for name, scores in NEEDED_FOR.items():
        if name in unknown and (lost := [score for score in scores if score in asked]):
            found[name] = lost
            asked -= {*lost, *(f"pooled {score}" for score in lost)}
    return found


@dataclass(frozen=True)
class Scored:
    """One answer for a batch: its scores, and its codes where cameras or properties may be read from them."""

    scores: SceneScores
    extras: SceneRatios
    view_codes: Float[np.ndarray, "B M D"] | None = None
    objects: ObjectRows | None = None


def answered(method: Method, seen: Seen, plan: Plan, repeat: int, lpips: Lpips | None) -> Scored:
    """Infer once; then ask for everything that the plan wants.

    New views go on with the generator as the inference left it.
    """
    generator = answer_generator(plan.seed, repeat, seen.first)
    answer = method.infer(seen.given, generator, plan.slots, plan.search)
    viewing = cast(NewViewsAnswer, answer) if method.shows_new_views else None
    if plan.new_views is not None:
        assert viewing is not None
        assert seen.new is not None
        decomposition, shown = viewing.new_views(seen.new, generator).decomposition(), seen.new
    else:
        decomposition, shown = answer.decomposition(), seen.given
    scores, objects, codes = score_scenes(decomposition, seen.truth), None, None
    if plan.probes is not None:
        scenes = range(seen.first, seen.first + len(shown.image))
        objects = object_rows(answer, decomposition, seen.truth, scenes, method)
    if not plan.extras:
        return Scored(scores, SceneRatios({}), None, objects)
    extras = scene_extras(decomposition, seen.truth, shown, lpips)
    if plan.new_views is None:
        extras = extras.merge(novel_views(viewing, seen, generator, lpips))
        codes = view_codes_of(cast(ViewpointAnswer, answer)) if method.has_viewpoints else None
    return Scored(scores, extras, codes, objects)


def novel_views(
    viewing: NewViewsAnswer | None, seen: Seen, generator: torch.Generator, lpips: Lpips | None
) -> SceneRatios:
    """Held-out pictures, of which the viewpoints alone were estimated: can the scene be seen from there?"""
    if viewing is None or seen.new is None or seen.new_truth is None:
        names = NOVEL_SCORES if lpips is None else (*NOVEL_SCORES, "novel_view_lpips")
        return SceneRatios(dict.fromkeys(names, Ratio.nothing(len(seen.given.image))))
    shown = viewing.new_views(seen.new, generator).decomposition()
    counted = seen.new.view_mask & seen.held_out[:, None]
    truth = replace(seen.new_truth, view_mask=counted)
    return novel_view_extras(shown, truth, replace(seen.new, view_mask=counted), lpips)
