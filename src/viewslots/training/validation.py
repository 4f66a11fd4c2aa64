"""The loss, the scores and the health of a model on held-out scenes, so that steps compare: always the same noise, the
scheduled values for use after training, answers without the slow parts of a search."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from PIL import Image
from torch import Tensor

from viewslots.data.dataset import SceneDataset
from viewslots.data.store import SplitArrays
from viewslots.data.views import FirstViews
from viewslots.errors import UserError
from viewslots.figures.sheets import decomposition_sheet
from viewslots.methods.contract import Search
from viewslots.metrics.score import score_scenes
from viewslots.scenes.world import World
from viewslots.training.feed import rendered_split, training_generator
from viewslots.training.step import Model
from viewslots.types import Decomposition, SceneBatch, concatenated

LOSS_SCENES, SCORE_SCENES, SHEET_SCENES = 256, 64, 2
LIVE_SCENES = 64
BATCH = 8
SHARED = 0.9
"""Entropy of the masks, as a share of its largest value, above which no slot has anything of its own."""
PATIENCE = 0.2
"""Share of a run after which objects should have appeared."""
LATE = 0.5
"""Share of a run until which slots that share everything may still part."""
SOON = 50
"""Steps in which nothing is to be expected, however short the run."""
ABSENT = 0.02
"""Objects a scene below which there are none to speak of."""


@dataclass(frozen=True)
class Diagnostics:
    """Is it learning, or has it collapsed? What a method does not answer is None."""

    layers: int
    slots_used: float
    """Object slots that win a pixel in some view, a scene."""
    background_share: float | None
    """Share of pixels that the background wins."""
    mask_entropy: float
    """Mean over the pixels of the entropy of the L masks, in nats."""
    object_entropy: float
    """The same among the object masks, where and as far as objects are."""
    absent: float | None
    """Share of presences below 0.5."""
    own: dict[str, float]
    """Numbers of the method's own."""

    def to_json(self) -> dict[str, Any]:
        shared = {name: value for name, value in vars(self).items() if name not in ("own", "layers")}
        return {name: value for name, value in shared.items() if value is not None} | self.own


@dataclass(frozen=True)
class ValidationResult:
    terms: dict[str, float]
    """Means over the scenes; `loss` is the one that compares."""
    scores: dict[str, float | None]
    """Empty where the data set has no truth; None where it cannot tell a score."""
    diagnostics: Diagnostics
    sheet: Image.Image

    @property
    def loss(self) -> float:
        return self.terms["loss"]

    def to_json(self) -> dict[str, Any]:
        return self.terms | self.scores | self.diagnostics.to_json()


class Validation:
    """A held-out split, its first M views; called with a model."""

    def __init__(
        self, split: SplitArrays, *, views: int, size: tuple[int, int], camera: bool = False, device: torch.device
    ) -> None:
        self.device, self.views = device, views
        self.data = SceneDataset(split, views=FirstViews(views), device=str(device), size=size, camera=camera)
        if len(self.data) == 0:
            raise UserError("the split 'valid' has no scenes; make some with make-data --valid-scenes N")

    @torch.no_grad()
    def __call__(self, model: Model) -> ValidationResult | None:
        """None where the loss is no longer a finite number: there is nothing to score then."""
        was_training = model.training
        model.eval()  # running statistics stay as they are
        try:
            terms = self.terms(model)
            finite = all(math.isfinite(value) for value in terms.values())
            return ValidationResult(terms, *self.answers(model)) if finite else None
        finally:
            model.train(was_training)

    def parts(self, scenes: int) -> list[range]:
        count = min(scenes, len(self.data))
        return [range(first, min(first + BATCH, count)) for first in range(0, count, BATCH)]

    def batch(self, scenes: range) -> SceneBatch:
        return self.data.batch(scenes, padded_to=self.views)

    def terms(self, model: Model) -> dict[str, float]:
        """Sums over the scenes, then the mean: parts may differ in size."""
        scheduled, totals, count = model.annealed(), dict.fromkeys(("loss", *model.terms), 0.0), 0
        for scenes in self.parts(LOSS_SCENES):
            batch = self.batch(scenes)
            noise = model.draw_noise(batch, training_generator(self.device, "validation loss", scenes.start))
            losses = model(batch, scheduled, noise)
            for name, values in ({"loss": losses.comparable} | losses.terms).items():
                totals[name] += values.sum().item()
            count += len(scenes)
        return {name: value / count for name, value in totals.items()}

    def answers(self, model: Model) -> tuple[dict[str, float | None], Diagnostics, Image.Image]:
        found, own, scores, batches = [], [], [], []
        search = quick_search(model.default_search)
        for scenes in self.parts(SCORE_SCENES):
            batch, generator = self.batch(scenes), training_generator(self.device, "validation answer", scenes.start)
            answer = model.infer(batch, generator, search=search)
            found.append(answer.decomposition())
            own.append((len(scenes), model.diagnostics(answer)))
            if "segment" in self.data.split:
                scores.append(score_scenes(found[-1], self.data.truth(scenes, padded_to=self.views)))
            batches.append(batch)
        shown, zoom = concatenated(found), max(1, 64 // model.image_size[0])
        images, view_mask = (torch.cat([getattr(batch, name) for batch in batches]) for name in ("image", "view_mask"))
        sheet = decomposition_sheet(images[:SHEET_SCENES], shown, zoom=zoom)
        known = plain(concatenated(scores).paper()) if scores else {}
        return known, diagnose(shown, view_mask, weighted_means(own)), sheet


def quick_search(search: Search | None) -> Search | None:
    """Without further looks, refinement and spare slots, which take longest and say little of training."""
    return search and replace(search, looks=0, refinement=0, spare=0)


def weighted_means(parts: list[tuple[int, dict[str, float]]]) -> dict[str, float]:
    total = sum(count for count, _ in parts)
    return {name: sum(count * values[name] for count, values in parts) / total for name in parts[0][1]}


@torch.no_grad()
def diagnose(answer: Decomposition, view_mask: Bool[Tensor, "B M"], own: dict[str, float]) -> Diagnostics:
    """Of real views; padded ones carry no meaning."""
    first, layers = int(answer.has_background), answer.layer_masks.shape[2]
    every = answer.layer_masks.argmax(2).masked_fill(~view_mask[:, :, None, None], -1)
    won = torch.stack([(every == layer).flatten(1).any(1) for layer in range(first, layers)], 1)
    masks, winner = answer.layer_masks[view_mask], every[view_mask]
    return Diagnostics(
        layers=layers,
        slots_used=won.sum(1).float().mean().item(),
        background_share=(winner == 0).float().mean().item() if answer.has_background else None,
        mask_entropy=entropy(masks).mean().item(),
        object_entropy=object_entropy(masks[:, first:]),
        absent=None if answer.presence is None else (answer.presence < 0.5).float().mean().item(),
        own=own,
    )


def entropy(shares: Float[Tensor, "N L H W"]) -> Float[Tensor, "N H W"]:
    return torch.special.entr(shares).sum(1)


def object_entropy(objects: Float[Tensor, "N K H W"]) -> float:
    """Weighted by how much of a pixel belongs to objects at all."""
    mass = objects.sum(1)
    within = entropy(objects / mass.clamp(min=1e-6)[:, None])
    return float((mass * within).sum() / mass.sum().clamp(min=1e-6))


def warnings(found: Diagnostics, step: int, steps: int) -> dict[str, str]:
    """What a person should know, by kind, a sentence each; nothing before the share PATIENCE of the run."""
    if step < max(PATIENCE * steps, SOON):
        return {}
    L, said = found.layers, {}
    slots = L - (found.background_share is not None)
    if found.slots_used < ABSENT:
        said["no objects"] = (
            f"no objects by step {step}: the background takes every pixel; try another --seed or more --steps"
        )
    together = slots > 1 and found.object_entropy > SHARED * math.log(slots) and found.slots_used >= ABSENT
    if together or found.mask_entropy > SHARED * math.log(L):
        hope = "" if step >= LATE * steps else "that may still come; if it does not by half of the run, "
        said["shared" if hope else "still shared"] = (
            f"all slots share everything at step {step}: none has an object of its own; {hope}try another --seed or a "
            "lower --learning-rate"
        )
    return said


def plain(scores: Mapping[str, float | None]) -> dict[str, float | None]:
    """What has no value is None, as JSON knows no NaN."""
    return {name: None if value is None or math.isnan(value) else float(value) for name, value in scores.items()}


def live_split(world: World, views: int, device: torch.device) -> SplitArrays:
    """Held-out scenes for a run on live ones: the same for every seed."""
    return rendered_split(world, 0, "valid", LIVE_SCENES, views, device)
