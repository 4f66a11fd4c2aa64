"""The loss and the scores on held-out scenes, so that steps compare: always the same noise, all weights 1, no
compactness noise, the final temperatures."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from viewslots.data.dataset import SceneDataset, SceneTruth
from viewslots.data.store import SplitArrays
from viewslots.data.views import FirstViews
from viewslots.errors import UserError
from viewslots.figures.sheets import decomposition_sheet
from viewslots.methods.ocloc.model import Ocloc
from viewslots.metrics.score import SceneScores, score_scenes
from viewslots.scenes.world import World
from viewslots.training.diagnostics import Diagnostics, diagnose
from viewslots.training.feed import keyed_generator, shrink_factor, shrunk
from viewslots.types import Decomposition, ElboTerms, Pictures, SceneBatch

LOSS_SCENES, SCORE_SCENES, SHEET_SCENES = 256, 64, 2
LIVE_SCENES, RENDER_SCENES = 64, 8
BATCH = 8


@dataclass(frozen=True)
class ValidationResult:
    terms: dict[str, float]
    """Means over the scenes; `loss` is L."""
    scores: dict[str, float | None]
    diagnostics: Diagnostics
    sheet: Image.Image

    @property
    def loss(self) -> float:
        return self.terms["loss"]

    def to_json(self) -> dict[str, Any]:
        return self.terms | self.scores | self.diagnostics.to_json()


class Validation:
    """A held-out split, its first M views; called with a model."""

    def __init__(self, split: SplitArrays, *, views: int, size: int, device: torch.device) -> None:
        self.device = device
        self.factor = shrink_factor(split.size.height, split.size.width, size)
        self.data = SceneDataset(split, views=FirstViews(views), device=str(device))
        if len(self.data) == 0:
            raise UserError("the split 'valid' has no scenes; make some with make-data --valid-scenes N")

    @torch.no_grad()
    def __call__(self, model: Ocloc) -> ValidationResult | None:
        """None where the loss is no longer a finite number: there is nothing to score then."""
        was_training = model.training
        care = model.care
        model.eval()  # NVIL's statistics stay as they are
        model.take_care(care and replace(care, looks=0, refinement=0))  # which take longest, and say little of training
        try:
            terms = self.terms(model)
            finite = all(math.isfinite(value) for value in terms.values())
            return ValidationResult(terms, *self.answers(model)) if finite else None
        finally:
            model.train(was_training)
            model.take_care(care)

    def parts(self, scenes: int) -> list[range]:
        count = min(scenes, len(self.data))
        return [range(first, min(first + BATCH, count)) for first in range(0, count, BATCH)]

    def batch(self, scenes: range) -> SceneBatch:
        batch = self.data.batch(scenes)
        return replace(batch, image=shrunk(batch.image, self.factor))

    def terms(self, model: Ocloc) -> dict[str, float]:
        """Sums over the scenes, then the mean: parts may differ in size."""
        annealing, totals = model.annealed(), dict.fromkeys((field.name for field in fields(ElboTerms)), 0.0)
        total, count = 0.0, 0
        for scenes in self.parts(LOSS_SCENES):
            batch = self.batch(scenes)
            noise = model.draw_noise(batch, keyed_generator(self.device, "validation loss", scenes.start))
            terms = model.elbo(batch, annealing, noise)
            for name in totals:
                totals[name] += getattr(terms, name).sum().item()
            total, count = total + terms.loss.sum().item(), count + len(scenes)
        return {"loss": total / count} | {name: value / count for name, value in totals.items()}

    def answers(self, model: Ocloc) -> tuple[dict[str, float | None], Diagnostics, Image.Image]:
        answers, chances, scores, images = [], [], [], []
        for scenes in self.parts(SCORE_SCENES):
            batch = self.batch(scenes)
            noise = model.draw_noise(batch, self.generator(scenes))
            chances.append(model.infer(batch, noise).log_pi)
            answers.append(model.decompose(batch, self.generator(scenes)))
            scores.append(score_scenes(answers[-1], shrunk_truth(self.data.truth(scenes), self.factor)))
            images.append(batch.image)
        answer, size = concatenate(answers), model.config.image_size
        sheet = decomposition_sheet(torch.cat(images)[:SHEET_SCENES], answer, zoom=max(1, 64 // size))
        return plain(SceneScores.concatenate(scores).paper()), diagnose(answer, torch.cat(chances)), sheet

    def generator(self, scenes: range) -> torch.Generator:
        return keyed_generator(self.device, "validation answer", scenes.start)


def plain(scores: Mapping[str, float | None]) -> dict[str, float | None]:
    """What has no value is None, as JSON knows no NaN."""
    return {name: None if value is None or math.isnan(value) else float(value) for name, value in scores.items()}


def concatenate(answers: list[Decomposition]) -> Decomposition:
    def joined(name: str) -> Any:
        values = [getattr(answer, name) for answer in answers]
        return torch.cat(values) if isinstance(values[0], Tensor) else values[0]

    return Decomposition(**{field.name: joined(field.name) for field in fields(Decomposition)})


def shrunk_truth(truth: SceneTruth, factor: int) -> SceneTruth:
    """The truth for pictures that were averaged down: complete shapes as means, what is seen at the squares' middle."""
    if factor == 1:
        return truth
    assert truth.segment is not None
    assert truth.overlap is not None
    assert truth.shapes is not None
    middle = slice(factor // 2, None, factor)

    def alpha(values: Tensor) -> Tensor:
        return shrunk(values.float(), factor).round().byte()

    return replace(
        truth,
        segment=truth.segment[..., middle, middle],
        overlap=truth.overlap[..., middle, middle],
        shapes=alpha(truth.shapes),
        shadows=None if truth.shadows is None else alpha(truth.shadows),
    )


def live_split(world: World, views: int, device: torch.device) -> SplitArrays:
    """Held-out scenes for a run on live ones: the same for every seed."""
    scenes = [world.sample(0, "valid", index) for index in range(LIVE_SCENES)]
    if all(hasattr(scene, "cameras") for scene in scenes):
        scenes = [replace(scene, cameras=scene.cameras[:views]) for scene in scenes]
    slots, parts = world.slots("valid"), range(0, len(scenes), RENDER_SCENES)
    pictures = [world.render(scenes[first : first + RENDER_SCENES], slots, str(device)) for first in parts]
    return SplitArrays.from_pictures("valid", Pictures.concatenate(pictures).first_views(views))
