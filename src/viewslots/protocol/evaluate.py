"""The paper's protocol: which scenes, views and slots a method sees, how often, with which random numbers.

A scene is inferred once a repeat; scores, held-out views and view codes are all asked of that one answer.

Random numbers come from a generator on the CPU, keyed by (seed, repeat, first scene of the batch): an answer depends
neither on the device's generator nor on the order of work. It does depend on how scenes are put into batches, which is
why the batch size is part of the protocol and is written into the results.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from viewslots.data.dataset import SceneDataset, SceneTruth
from viewslots.data.store import SplitArrays, Store
from viewslots.data.views import FirstViews, HeldOutViews, LastViews
from viewslots.errors import UserError
from viewslots.methods.contract import Method, NewViewsAnswer, Search, ViewpointAnswer
from viewslots.methods.inputs import check_slots
from viewslots.metrics.extras import (
    MASK_SCORES,
    NOVEL_SCORES,
    Ratio,
    SceneRatios,
    hidden_share,
    novel_view_extras,
    scene_extras,
)
from viewslots.metrics.probes import CAMERA_SCORES, FIT_SCENES, CameraProbes
from viewslots.metrics.score import METRICS, SceneScores, score_scenes
from viewslots.protocol.repeats import Repeats
from viewslots.pulse import heard
from viewslots.ranks import ALONE, Team
from viewslots.types import Progress, SceneBatch

BATCH = 20
"""Scenes at once: fits a small GPU with 8 views and 11 slots."""
HELD_OUT_VIEWS = 4
"""Last pictures of a scene, whose viewpoints are estimated for the novel-view error; fewer where M leaves fewer."""
FIT_SPLIT = "valid"
"""Where the probes of the view codes are fitted."""
NOVEL_MASKS = ("novel_view_ari", "novel_view_fg_ari")
NEEDED_FOR = {
    "segment": (
        *METRICS,
        *MASK_SCORES,
        "ari_a_without_shadows",
        "shadow_claimed",
        "identity",
        *NOVEL_MASKS,
        "by_occlusion",
    ),
    "shapes": ("IoU", "F1", "OOA", "pooled ARI-O", "pooled AMI-O", "by_occlusion"),
    "shadows": ("ari_a_without_shadows", "shadow_claimed"),
    "camera": CAMERA_SCORES,
    "num_objects": ("by_objects",),
}
"""Kinds of truth, and the scores that a data set without them cannot have."""


@dataclass(frozen=True)
class Plan:
    """What is asked."""

    split: str
    views: int
    """M, the first of the stored views; M1 in viewpoint estimation."""
    slots: int
    new_views: int | None = None
    """M2 of viewpoint estimation, the last of the stored views; None: plain decomposition."""
    repeats: int = 5
    seed: int = 0
    batch: int = BATCH
    extras: bool = True
    search: Search | None = None
    """How far answers are searched for; None: plain answers."""

    def require(self, stored: int) -> None:
        counts = {"repeats": self.repeats, "batch": self.batch, "views": self.views, "slots": self.slots}
        for name, value in counts.items():
            if value < 1:
                raise UserError(f"{name}: must be at least 1, not {value}")
        check_slots(self.slots)
        new = 0 if self.new_views is None else self.new_views
        if self.new_views is not None and new < 1:
            raise UserError(f"new views: must be at least 1, not {new}")
        if self.views + new > stored:
            asked = f"{self.views} views" + (f" and {new} new ones" if new else "")
            raise UserError(f"{asked} asked for, but scenes have {stored}; ask for fewer")


def evaluate(
    method: Method, store: Store, plan: Plan, device: str = "cpu", progress: Progress = lambda done, total: None
) -> Repeats:
    """All repeats of all scenes of a split, scored."""
    found = evaluate_together(method, store, plan, device, progress, ALONE)
    assert found is not None  # there is no other rank
    return found


@torch.no_grad()
def evaluate_together(
    method: Method, store: Store, plan: Plan, device: str, progress: Progress, team: Team
) -> Repeats | None:
    """`evaluate` with batches shared among the ranks of a team. Rank 0 gets the answer of one process, others None."""
    dataset = shown_to(method, store, plan.split, device)
    plan.require(dataset.split.size.views if plan.new_views is None else fewest_views(dataset.split))
    if plan.new_views is not None and not method.shows_new_views:
        raise UserError("this method does not tell viewpoints from objects, so it has no new views to show")
    fit = scenes_to_fit(method, store, dataset, plan)
    work = Work(progress, len(dataset) * plan.repeats + (0 if fit is None else fitted(fit)), team.count)

    def answers(scenes: list[int]) -> tuple[Facts, list[Scored]]:
        seen, found = Seen.of(dataset, scenes, plan), []
        for repeat in range(plan.repeats):
            with work.of(len(scenes)):
                found.append(answered(method, seen, plan, repeat))
        return Facts.of(seen.truth), found

    everything = list(team.spread(list(batches(len(dataset), plan.batch)), answers))
    facts = Facts.concatenate([part for part, _ in everything])
    if "pose" in dataset.split:
        facts = replace(facts, unknown=facts.unknown - {"camera"})
    fit = None if team.tell("camera" in facts.unknown) else fit
    codes = [] if fit is None else fitted_codes(method, fit, plan, work, team)
    if not team.first:
        return None
    scored = [[found[repeat] for _, found in everything] for repeat in range(plan.repeats)]
    extras = [SceneRatios.concatenate([part.extras for part in parts]) for parts in scored]
    if plan.extras and plan.new_views is None:
        cameras = camera_scores(fit, codes, dataset, plan, scored)
        extras = [one.merge(two) for one, two in zip(extras, cameras, strict=True)]
    return Repeats(
        [SceneScores.concatenate([part.scores for part in parts]) for parts in scored],
        extras,
        facts.num_objects,
        facts.hidden,
        missing_scores(facts.unknown, method, plan),
    )


class Work:
    """Answers that are done of all, told while a batch is still being answered."""

    def __init__(self, progress: Progress, total: int, ranks: int = 1) -> None:
        """`ranks` answer as many at the same time."""
        self.progress, self.total, self.ranks, self.done = progress, total, ranks, 0

    @contextmanager
    def of(self, answers: int) -> Iterator[None]:
        """The next so many."""
        with heard(lambda share: self.tell(self.done + int(share * answers * self.ranks))):
            yield
        self.done += answers * self.ranks
        self.tell(self.done)

    def tell(self, done: int) -> None:
        self.progress(min(done, self.total), self.total)


def shown_to(
    method: Method, store: Store, split: str, device: str, size: tuple[int, int] | None = None
) -> SceneDataset:
    """The scenes of a split as the method is shown them: in the size it takes, with their cameras if it asks for those.

    A method whose `image_size` is None takes any `size`; None: pictures as they are.
    """
    arrays, options = store.split(split), dict[str, Any]()
    if method.needs_camera:
        options["camera"] = True
    size = method.image_size or size
    if size not in (None, (arrays.size.height, arrays.size.width)):
        options["size"] = size
    return SceneDataset(arrays, device=device, **options)


def fewest_views(arrays: SplitArrays) -> int:
    """Of any scene: so many first and last views can be asked for without any being both."""
    return int(arrays["num_views"].min()) if "num_views" in arrays else arrays.size.views


def knows_cameras(arrays: SplitArrays) -> bool:
    return "camera" in arrays or "pose" in arrays


def keyed_generator(*words: object) -> torch.Generator:
    digest = hashlib.sha256(repr(words).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def batches(scenes: int, size: int) -> Iterator[list[int]]:
    return (list(range(first, min(first + size, scenes))) for first in range(0, scenes, size))


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
        counts = np.full(len(split), split.size.views) if split.view_counts is None else split.view_counts
        held_out = torch.from_numpy(counts[scenes] > M).to(given.image.device)
        if plan.new_views is not None:
            last = LastViews(plan.new_views)
            return cls(scenes[0], given, dataset.batch(scenes, last), held_out, dataset.truth(scenes, last))
        room = min(HELD_OUT_VIEWS, split.size.views - M) if plan.extras and held_out.any() else 0
        truth = dataset.truth(scenes, FirstViews(M), padded_to=M)
        if not room:
            return cls(scenes[0], given, None, held_out, truth)
        rest = HeldOutViews(M, room)
        return cls(scenes[0], given, dataset.batch(scenes, rest), held_out, truth, dataset.truth(scenes, rest))


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

        unknown = frozenset(name for name in NEEDED_FOR if getattr(truth, name) is None)
        return cls(plain(truth.num_objects), plain(hidden_share(truth)), unknown)

    @classmethod
    def concatenate(cls, parts: "Sequence[Facts]") -> "Facts":
        def joined(columns: Sequence[Any]) -> Any:
            return None if not columns or any(column is None for column in columns) else np.concatenate(columns)

        return cls(
            joined([part.num_objects for part in parts]),
            joined([part.hidden for part in parts]),
            frozenset().union(*(part.unknown for part in parts)),
        )


def missing_scores(unknown: frozenset[str], method: Method, plan: Plan) -> dict[str, list[str]]:
    """By kind of truth that is not known: the scores that this plan would have had with it, each named once."""
    asked = {*METRICS, "pooled ARI-O", "pooled AMI-O", "by_objects", "by_occlusion"}
    if plan.extras:
        asked |= {*MASK_SCORES, "ari_a_without_shadows", "shadow_claimed", "identity"}
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
    """One answer for a batch: its scores, and its view codes where cameras may be read from them."""

    scores: SceneScores
    extras: SceneRatios
    view_codes: Float[np.ndarray, "B M D"] | None


def answered(method: Method, seen: Seen, plan: Plan, repeat: int) -> Scored:
    """Infer once; then ask for everything that the plan wants.

    New views go on with the generator as the inference left it.
    """
    generator = keyed_generator(plan.seed, repeat, seen.first)
    answer = method.infer(seen.given, generator, plan.slots, plan.search)
    viewing = cast(NewViewsAnswer, answer) if method.shows_new_views else None
    if plan.new_views is not None:
        assert viewing is not None
        assert seen.new is not None
        decomposition = viewing.new_views(seen.new, generator).decomposition()
        extras = scene_extras(decomposition, seen.truth, seen.new) if plan.extras else SceneRatios({})
        return Scored(score_scenes(decomposition, seen.truth), extras, None)
    decomposition = answer.decomposition()
    scores = score_scenes(decomposition, seen.truth)
    if not plan.extras:
        return Scored(scores, SceneRatios({}), None)
    extras = scene_extras(decomposition, seen.truth, seen.given)
    novel = novel_views(viewing, seen, generator)
    codes = plain_codes(cast(ViewpointAnswer, answer)) if method.has_viewpoints else None
    return Scored(scores, extras.merge(novel), codes)


def novel_views(viewing: NewViewsAnswer | None, seen: Seen, generator: torch.Generator) -> SceneRatios:
    """Held-out pictures, of which the viewpoints alone were estimated: can the scene be seen from there?"""
    if viewing is None or seen.new is None or seen.new_truth is None:
        return SceneRatios(dict.fromkeys(NOVEL_SCORES, Ratio.nothing(len(seen.given.image))))
    shown = viewing.new_views(seen.new, generator).decomposition()
    counted = seen.new.view_mask & seen.held_out[:, None]
    truth = replace(seen.new_truth, view_mask=counted)
    return novel_view_extras(shown, truth, replace(seen.new, view_mask=counted))


def plain_codes(answer: ViewpointAnswer) -> Float[np.ndarray, "B M D"]:
    return answer.view_codes.double().cpu().numpy()


def camera_scores(
    fit: SceneDataset | None,
    codes: Sequence[Float[np.ndarray, "B M D"]],
    dataset: SceneDataset,
    plan: Plan,
    scored: Sequence[Sequence[Scored]],
) -> list[SceneRatios]:
    """R2 of the probes, a repeat each, fitted on the codes of the validation scenes in as many views."""
    if fit is None:
        return [SceneRatios({name: Ratio.nothing(len(dataset)) for name in CAMERA_SCORES})] * plan.repeats
    probes = CameraProbes(np.concatenate(codes), cameras(fit, plan)[: fitted(fit)])
    true = cameras(dataset, plan)
    return [SceneRatios(probes.score(repeat_codes(parts), true)) for parts in scored]


def scenes_to_fit(method: Method, store: Store, dataset: SceneDataset, plan: Plan) -> SceneDataset | None:
    """Where probes of the view codes are fitted; None where there is nothing to fit or to compare with."""
    if not plan.extras or plan.new_views is not None or not method.has_viewpoints or FIT_SPLIT not in store.splits:
        return None
    # Padded views have no code worth a probe.
    if not knows_cameras(dataset.split) or fewest_views(dataset.split) < plan.views:
        return None
    fit = shown_to(method, store, FIT_SPLIT, str(dataset.device))
    enough = fitted(fit) >= 2 and fewest_views(fit.split) >= plan.views
    return fit if enough and knows_cameras(fit.split) else None


def fitted(fit: SceneDataset) -> int:
    """How many scenes of it."""
    return min(len(fit), FIT_SCENES)


def fitted_codes(
    method: Method, fit: SceneDataset, plan: Plan, work: Work, team: Team
) -> list[Float[np.ndarray, "B M D"]]:
    """View codes of the first validation scenes, batch by batch."""

    def codes(scenes: list[int]) -> Float[np.ndarray, "B M D"]:
        batch, generator = fit.batch(scenes, FirstViews(plan.views)), keyed_generator(plan.seed, FIT_SPLIT, scenes[0])
        with work.of(len(scenes)):
            return plain_codes(cast(ViewpointAnswer, method.infer(batch, generator, plan.slots, plan.search)))

    return list(team.spread(list(batches(fitted(fit), plan.batch)), codes))


def repeat_codes(parts: Sequence[Scored]) -> Float[np.ndarray, "S M D"]:
    return np.concatenate([part.view_codes for part in parts if part.view_codes is not None])


def cameras(dataset: SceneDataset, plan: Plan) -> Float[np.ndarray, "S M 3"]:
    """True positions behind the pictures that are shown; the last column of a pose is one."""
    if "camera" in dataset.split:
        return np.asarray(dataset.split["camera"])[:, : plan.views]
    return np.asarray(dataset.split["pose"])[:, : plan.views, :3, 3]
