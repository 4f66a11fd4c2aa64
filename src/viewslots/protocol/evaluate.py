"""The paper's protocol: which scenes, views and slots a method sees, how often, with which random numbers.

Random numbers come from a generator on the CPU, keyed by (seed, repeat, first scene of the batch): an answer depends
neither on the device's generator nor on the order of work. It does depend on how scenes are put into batches, which is
why the batch size is part of the protocol and is written into the results.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.data.dataset import SceneDataset, SceneTruth
from viewslots.data.store import Store
from viewslots.data.views import FirstViews, LastViews
from viewslots.errors import UserError
from viewslots.metrics.extras import hidden_share, scene_extras, signal_to_noise
from viewslots.metrics.probes import CAMERA_SCORES, FIT_SCENES, CameraProbes
from viewslots.metrics.ratios import Ratio, SceneRatios
from viewslots.metrics.score import SceneScores, score_scenes
from viewslots.protocol.repeats import Repeats
from viewslots.types import Decomposition, Progress, SceneBatch

BATCH = 20
"""Scenes at once: fits a small GPU with 8 views and 11 slots."""
HELD_OUT_VIEWS = 4
"""Last pictures of a scene, whose viewpoints are estimated for the novel-view error; fewer where M leaves fewer."""
FIT_SPLIT = "valid"
"""Where the probes of the view codes are fitted."""
NOVEL = "novel_view_psnr"


class Method(Protocol):
    """Anything that decomposes scenes."""

    def decompose(self, batch: SceneBatch, generator: torch.Generator, slots: int | None) -> Decomposition: ...


class ViewpointMethod(Method, Protocol):
    """A method that has an attribute `knows_viewpoints`, which is true."""

    def decompose_new_views(
        self, given: SceneBatch, new: SceneBatch, generator: torch.Generator, slots: int | None
    ) -> Decomposition:
        """Objects from the given views, and of the new views the viewpoints alone; answered on the new views."""
        ...

    def view_codes(
        self, batch: SceneBatch, generator: torch.Generator, slots: int | None
    ) -> Float[Tensor, "B M D"]: ...


def viewpoint_method(method: Method) -> ViewpointMethod | None:
    return cast(ViewpointMethod, method) if getattr(method, "knows_viewpoints", False) else None


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

    def require(self, stored: int) -> None:
        counts = {"repeats": self.repeats, "batch": self.batch, "views": self.views, "slots": self.slots}
        for name, value in counts.items():
            if value < 1:
                raise UserError(f"{name}: must be at least 1, not {value}")
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
    dataset = SceneDataset(store.split(plan.split), device=device)
    plan.require(dataset.split.size.views)
    if plan.new_views is not None and viewpoint_method(method) is None:
        raise UserError("this method does not tell viewpoints from objects, so there are no viewpoints to estimate")
    scored: list[list[tuple[SceneScores, SceneRatios]]] = [[] for _ in range(plan.repeats)]
    facts = []
    for scenes in batches(len(dataset), plan.batch):
        seen = Seen.of(dataset, scenes, plan)
        assert seen.truth.num_objects is not None
        facts.append((seen.truth.num_objects.cpu().numpy(), hidden_share(seen.truth).cpu().numpy()))
        for repeat, parts in enumerate(scored):
            parts.append(answered(method, seen, plan, repeat))
            progress(scenes[0] * plan.repeats + (repeat + 1) * len(scenes), len(dataset) * plan.repeats)
    extras = [SceneRatios.concatenate([part for _, part in parts]) for parts in scored]
    if plan.extras and plan.new_views is None:
        extras = [one.merge(two) for one, two in zip(extras, camera_scores(method, store, dataset, plan), strict=True)]
    return Repeats(
        [SceneScores.concatenate([part for part, _ in parts]) for parts in scored],
        extras,
        *(np.concatenate(column) for column in zip(*facts, strict=True)),
    )


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
    truth: SceneTruth

    @classmethod
    def of(cls, dataset: SceneDataset, scenes: list[int], plan: Plan) -> "Seen":
        given, left = FirstViews(plan.views), dataset.split.size.views - plan.views
        count = plan.new_views or (min(HELD_OUT_VIEWS, left) if plan.extras else 0)
        new = dataset.batch(scenes, LastViews(count)) if count else None
        scored = given if plan.new_views is None else LastViews(count)
        return cls(scenes[0], dataset.batch(scenes, given), new, dataset.truth(scenes, scored))


def answered(method: Method, seen: Seen, plan: Plan, repeat: int) -> tuple[SceneScores, SceneRatios]:
    """One answer of a method for a batch, scored."""
    viewing = viewpoint_method(method)
    generator = keyed_generator(plan.seed, repeat, seen.first)
    if plan.new_views is not None:
        assert viewing is not None
        assert seen.new is not None
        shown, answer = seen.new, viewing.decompose_new_views(seen.given, seen.new, generator, plan.slots)
    else:
        shown, answer = seen.given, method.decompose(seen.given, generator, plan.slots)
    scores = score_scenes(answer, seen.truth)
    if not plan.extras:
        return scores, SceneRatios({})
    extras = scene_extras(answer, seen.truth, shown)
    if plan.new_views is None:
        extras = extras.merge(SceneRatios({NOVEL: novel_views(viewing, seen, plan, repeat)}))
    return scores, extras


def novel_views(viewing: ViewpointMethod | None, seen: Seen, plan: Plan, repeat: int) -> Ratio:
    """PSNR of held-out pictures, of which the viewpoints alone were estimated: can the scene be seen from there?"""
    if viewing is None or seen.new is None:
        return Ratio.nothing(len(seen.given.image))
    generator = keyed_generator(plan.seed, repeat, seen.first)
    answer = viewing.decompose_new_views(seen.given, seen.new, generator, plan.slots)
    return signal_to_noise(answer.reconstruction, seen.new)


def camera_scores(method: Method, store: Store, dataset: SceneDataset, plan: Plan) -> list[SceneRatios]:
    """R2 of the probes, a repeat each, fitted on the codes of the validation scenes in as many views."""
    viewing = viewpoint_method(method)
    known = viewing is not None and "camera" in dataset.split and FIT_SPLIT in store.splits
    fit = SceneDataset(store.split(FIT_SPLIT), device=str(dataset.device)) if known else None
    if viewing is None or fit is None or len(fit) < 2:
        return [SceneRatios({name: Ratio.nothing(len(dataset)) for name in CAMERA_SCORES})] * plan.repeats
    probes = CameraProbes(*codes_and_cameras(viewing, fit, plan, FIT_SPLIT, FIT_SCENES))
    return [
        SceneRatios(probes.score(*codes_and_cameras(viewing, dataset, plan, repeat))) for repeat in range(plan.repeats)
    ]


def codes_and_cameras(
    method: ViewpointMethod, dataset: SceneDataset, plan: Plan, word: object, most: int | None = None
) -> tuple[Float[np.ndarray, "S M D"], Float[np.ndarray, "S M 3"]]:
    """View codes of scenes; with the number of a repeat as `word`, those behind the answers of that repeat."""
    count, views = min(len(dataset), most or len(dataset)), FirstViews(plan.views)
    codes = [
        method.view_codes(dataset.batch(scenes, views), keyed_generator(plan.seed, word, scenes[0]), plan.slots)
        for scenes in batches(count, plan.batch)
    ]
    return torch.cat(codes).double().cpu().numpy(), np.asarray(dataset.split["camera"])[:count, : plan.views]
