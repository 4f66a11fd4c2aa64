"""Probes of codes: fitted on the answers for one split, scored on those for another.

View codes to cameras, fitted on the validation scenes; object codes to properties, on the split that the plan names.
A split is inferred once, whatever is fitted on it.
"""

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from jaxtyping import Float

from viewslots.data.dataset import SceneDataset
from viewslots.data.sources.source import Properties, all_told
from viewslots.data.store import SplitArrays, Store
from viewslots.data.views import FirstViews
from viewslots.errors import UserError
from viewslots.methods.contract import Answer, Method, ObjectCodesAnswer, ViewpointAnswer
from viewslots.metrics.extras import Ratio, SceneRatios
from viewslots.metrics.probes import CAMERA_SCORES, FIT_SCENES, CameraProbes
from viewslots.metrics.property_probes import PROPERTIES, ObjectRows, PropertyProbes, matched_rows
from viewslots.protocol.plan import Plan, answer_generator, batches, fewest_views, shown_to
from viewslots.protocol.work import Work
from viewslots.ranks import Team
from viewslots.types import Decomposition, SceneTruth

FIT_SPLIT = "valid"
"""Where the probes of the view codes are fitted."""
LISTS = ("objects", "sprites", "pieces")
"""What descriptions call their objects."""
NAMES = {
    "color": ("color", "rgb"),
    "shape": ("shape", "kind"),
    "size": ("size", "scale", "r"),
    "material": ("material",),
}
"""Properties, and what descriptions call them."""


class Fitting:
    """The codes of the first scenes of a split, in as many views as the plan asks for."""

    def __init__(self, method: Method, store: Store, plan: Plan, device: str, work: Work, team: Team) -> None:
        self._method, self._store, self._plan, self._device = method, store, plan, device
        self._work, self._team = work, team
        self._found: dict[str, tuple[Float[np.ndarray, "S M D"] | None, ObjectRows | None]] = {}

    def dataset(self, split: str) -> SceneDataset:
        return shown_to(self._method, self._store, split, self._device)

    def codes(self, split: str) -> tuple[Float[np.ndarray, "S M D"] | None, ObjectRows | None]:
        """Of views and of objects, as far as they are asked for."""
        if split not in self._found:
            self._found[split] = self._infer(split)
        return self._found[split]

    def scenes(self, splits: Sequence[str]) -> int:
        """How many of them are answered."""
        return sum(min(len(self._store.split(split)), FIT_SCENES) for split in splits)

    def infer(self, splits: Sequence[str]) -> None:
        """All ranks of a team together; rank 0 has the codes then."""
        for split in splits:
            self.codes(split)

    def _infer(self, split: str) -> tuple[Float[np.ndarray, "S M D"] | None, ObjectRows | None]:
        dataset, plan, method = self.dataset(split), self._plan, self._method
        views, objects, asked = [], [], FirstViews(plan.views)

        def codes(scenes: list[int]) -> tuple[Float[np.ndarray, "S M D"] | None, ObjectRows | None]:
            batch, generator = dataset.batch(scenes, asked, plan.views), answer_generator(plan.seed, split, scenes[0])
            with self._work.of(len(scenes)):
                answer = method.infer(batch, generator, plan.slots, plan.search)
            seen = split == FIT_SPLIT and method.has_viewpoints
            truth = dataset.truth(scenes, asked, plan.views) if split == plan.probes else None
            return (
                view_codes_of(cast(ViewpointAnswer, answer)) if seen else None,
                None if truth is None else object_rows(answer, answer.decomposition(), truth, scenes, method),
            )

        parts = list(batches(min(len(dataset), FIT_SCENES), plan.batch))
        for view, rows in self._team.spread(parts, codes):
            views += [] if view is None else [view]
            objects += [] if rows is None else [rows]
        return np.concatenate(views) if views else None, ObjectRows.concatenate(objects) if objects else None


def view_codes_of(answer: ViewpointAnswer) -> Float[np.ndarray, "B M D"]:
    return answer.view_codes.double().cpu().numpy()


def object_rows(
    answer: Answer, found: Decomposition, truth: SceneTruth, scenes: Sequence[int], method: Method
) -> ObjectRows:
    """The codes of an answer for the objects that are seen."""
    if not isinstance(answer, ObjectCodesAnswer):
        raise UserError(
            f"{method.name} answers without codes of objects (object_codes), so --probes has nothing to read"
        )
    return matched_rows(answer.object_codes, found, truth, scenes)


def camera_scores(
    fitting: Fitting, store: Store, plan: Plan, split: SplitArrays, codes: Sequence[Float[np.ndarray, "S M D"] | None]
) -> list[SceneRatios]:
    """R2 of the probes, a repeat each; without values where codes or cameras are not known."""
    nothing = [SceneRatios({name: Ratio.nothing(plan.scored(split)) for name in CAMERA_SCORES})] * plan.repeats
    if any(one is None for one in codes) or not fits_cameras(store, plan, split):
        return nothing
    fit = store.split(FIT_SPLIT)
    fitted, _ = fitting.codes(FIT_SPLIT)
    assert fitted is not None
    probes, true = CameraProbes(fitted, cameras(fit, plan)[: len(fitted)]), cameras(split, plan)[: plan.scored(split)]
    return [SceneRatios(probes.score(one, true)) for one in codes if one is not None]


def fits_cameras(store: Store, plan: Plan, split: SplitArrays) -> bool:
    """Whether there are cameras to fit on, in other scenes than those that are scored, and to compare with."""
    if split.name == FIT_SPLIT or not knows_cameras(split) or FIT_SPLIT not in store.splits:
        return False
    fit = store.split(FIT_SPLIT)
    # Padded views have no code worth a probe.
    return (
        min(fewest_views(split, plan.scenes), fewest_views(fit)) >= plan.views and len(fit) >= 2 and knows_cameras(fit)
    )


def fit_splits(method: Method, store: Store, plan: Plan, split: SplitArrays, known: bool = True) -> list[str]:
    """Splits whose codes probes are fitted on. `known`: the truth of the scored scenes tells cameras."""
    asked = plan.extras and plan.new_views is None and method.has_viewpoints
    cameras = known and asked and fits_cameras(store, plan, split)
    return list(dict.fromkeys(([FIT_SPLIT] if cameras else []) + ([plan.probes] if plan.probes is not None else [])))


def knows_cameras(arrays: SplitArrays) -> bool:
    return "camera" in arrays or "pose" in arrays


def cameras(split: SplitArrays, plan: Plan) -> Float[np.ndarray, "S M 3"]:
    """True positions behind the pictures that are shown; the last column of a pose is one."""
    if "camera" in split:
        return np.asarray(split["camera"])[:, : plan.views]
    return np.asarray(split["pose"])[:, : plan.views, :3, 3]


def require_properties(store: Store, plan: Plan) -> None:
    """Before anything is inferred: something to probe, on another split than the scored one."""
    if plan.probes is None:
        return
    if plan.probes == plan.split:
        raise UserError(f"--probes {plan.probes}: the split that is scored; fit on another, such as train or valid")
    for split in (plan.probes, plan.split):
        if "segment" not in store.split(split):
            raise UserError(
                f"{store.path}: split {split} has no masks, so codes and objects cannot be matched: no --probes"
            )
        if not any(any(one) for one in properties_of(store, split)):
            raise UserError(
                f"{store.path}: split {split} does not tell {', '.join(PROPERTIES[:-1])} or {PROPERTIES[-1]} of its "
                "objects, so --probes has nothing to compare with"
            )


def properties_of(store: Store, split: str) -> list[Sequence[Properties]]:
    """What the descriptions of a split tell of the objects of every scene."""
    if not store.meta.plan.has_descriptions:
        return [()] * store.meta.plan.splits[split].scenes
    return [_objects(one) or () for one in store.descriptions(split)]


def _objects(description: Mapping[str, object]) -> Sequence[Properties] | None:
    return all_told(next((description[key] for key in LISTS if key in description), None), NAMES)


def property_scores(
    fitting: Fitting, store: Store, plan: Plan, rows: Sequence[ObjectRows], scenes: int
) -> list[SceneRatios]:
    """Accuracy or R2 of the probes, a repeat each."""
    assert plan.probes is not None
    _, fitted = fitting.codes(plan.probes)
    assert fitted is not None
    probes = PropertyProbes(fitted, told(fitted, properties_of(store, plan.probes)))
    known = properties_of(store, plan.split)
    return [SceneRatios(probes.score(one, told(one, known), scenes)) for one in rows]


def told(rows: ObjectRows, known: Sequence[Sequence[Properties]]) -> dict[str, list[str | float | list[float] | None]]:
    """The properties of every row, by name."""
    places = list(zip(rows.scene.tolist(), rows.index.tolist(), strict=True))

    def one(scene: int, index: int, name: str) -> str | float | list[float] | None:
        return known[scene][index].get(name) if index < len(known[scene]) else None

    return {name: [one(*place, name) for place in places] for name in PROPERTIES}
