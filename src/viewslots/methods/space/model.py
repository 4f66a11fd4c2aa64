"""SPACE as a method: look for objects in all cells, paint them, and explain the rest by the background."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.methods.contract import (
    Answer,
    FastTwin,
    Gather,
    Losses,
    Precision,
    Search,
    TrainableMethod,
    adam_options,
)
from viewslots.methods.fast.norm import fuse_norms
from viewslots.methods.layers import start_as_torch
from viewslots.methods.noise import Sampler
from viewslots.methods.schedules import Optimisation
from viewslots.methods.single_view import PicturesOfScenes, mean_of_pictures
from viewslots.methods.space.background import Components
from viewslots.methods.space.build import build_background, build_foreground
from viewslots.methods.space.config import SpaceConfig
from viewslots.methods.space.foreground import located
from viewslots.methods.space.objective import Priors, boundary_loss, foreground_kl, negative_log_likelihood
from viewslots.methods.space.rendering import Layers, composed, frames
from viewslots.methods.space.schedule import SpaceAnnealing, SpaceOptimisation, SpaceSchedule
from viewslots.methods.space.variables import CellPosterior, Cells, Gaussian, SpaceNoise
from viewslots.types import PRESENT, Decomposition, SceneBatch


@dataclass(frozen=True)
class Explanation:
    """One pass over N pictures."""

    posterior: CellPosterior
    cells: Cells
    what: Gaussian
    layers: Layers
    background: Components


class Space(TrainableMethod[SpaceConfig], library_name="viewslots", tags=["object-centric-learning", "space"]):
    """For single pictures: every view of a scene stands alone. Weights are drawn from `generator`, or from seed 0.

    Its slots are the cells of the grid, so it needs not be told how many objects to look for.
    """

    name = "space"
    config_class = SpaceConfig
    schedule_class = SpaceSchedule
    optimisation_class = SpaceOptimisation
    terms = ("nll", "presence", "depth", "scale", "shift", "what", "mask", "component", "boundary")
    headline = ("nll", "presence", "what", "boundary")

    def __init__(self, config: SpaceConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.foreground = build_foreground(config)
        self.background = build_background(config)
        start_as_torch(self, generator or torch.Generator().manual_seed(0))

    def draw_noise(self, batch: SceneBatch, generator: torch.Generator, slots: int | None = None) -> SpaceNoise:
        """For all cells, however many `slots` are asked for."""
        self.chosen_slots(slots)
        source, config = Sampler(generator, self.device), self.config
        B, M, K, J = *batch.image.shape[:2], config.slots, config.components
        return SpaceNoise(
            presence=source.logistic(B, M, K),
            depth=source.normal(B, M, K, 1),
            scale=source.normal(B, M, K, 2),
            shift=source.normal(B, M, K, 2),
            what=source.normal(B, M, K, config.what_dim),
            mask=source.normal(B, M, J, config.mask_dim),
            component=source.normal(B, M, J, config.component_dim),
        )

    def forward(self, batch: SceneBatch, scheduled: SpaceAnnealing, noise: SpaceNoise) -> Losses:
        """`comparable` and all terms have the priors as they are after training, and no boundary loss."""
        seen, config = self.explain(batch, scheduled, noise), self.config
        sigmas = config.foreground_sigma, config.background_sigma
        nll = negative_log_likelihood(batch.image.flatten(0, 1), seen.layers, seen.background, sigmas)
        background = {"mask": seen.background.mask_kl, "component": seen.background.component_kl}
        now, after = (
            foreground_kl(seen.posterior, seen.what, Priors.at(values, config)) | background
            for values in (scheduled, self.annealed())
        )
        boundary = boundary_loss(frames(seen.cells, self.image_size), seen.layers.alpha)
        terms = {"nll": nll, **after, "boundary": boundary}
        return Losses(
            minimised=mean_of_pictures(nll + sum(now.values()) + scheduled.weight_boundary * boundary, batch.view_mask),
            comparable=mean_of_pictures(nll + sum(after.values()), batch.view_mask),
            terms={name: mean_of_pictures(value, batch.view_mask) for name, value in terms.items()},
        )

    def explain(self, batch: SceneBatch, scheduled: SpaceAnnealing, noise: SpaceNoise) -> Explanation:
        """One pass over all views, each a picture of its own."""
        images = batch.image.flatten(0, 1)
        # A scene has at least one real view: where it has one alone, nothing is padding.
        real = batch.view_mask.flatten() if batch.image.shape[1] > 1 else None
        posterior = self.foreground.cells(images)
        cells = located(posterior, noise, scheduled.temperature)
        what = self.foreground.look(images, cells)
        glimpses = self.foreground.paint(what.sample(noise.what.flatten(0, 1)))
        layers = composed(glimpses, cells, self.image_size)
        return Explanation(posterior, cells, what, layers, self.background(images, noise, real))

    def annealed(self) -> SpaceAnnealing:
        return SpaceAnnealing(temperature=self.config.temperature)

    def optimisers(self, optimisation: Optimisation) -> list[torch.optim.Optimizer]:
        """Each with a learning rate of its own."""
        rate, on_gpu = adam_options(self.device)["lr"], self.device.type == "cuda"
        return [
            torch.optim.RMSprop(self.foreground.parameters(), lr=rate, capturable=on_gpu, foreach=True),
            torch.optim.Adam(self.background.parameters(), **adam_options(self.device)),
        ]

    def fast(self, precision: Precision) -> FastTwin:
        """On a GPU most of a step are norms, and maps that are copied because of them."""
        if self.device.type != "cuda" or precision != "bf16":
            return FastTwin(self)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return FastTwin(fuse_norms(self))

    def share_statistics(self, gather: Gather) -> None:
        self.background.share_statistics(gather)

    @torch.no_grad()
    def infer(
        self, batch: SceneBatch, generator: torch.Generator, slots: int | None = None, search: Search | None = None
    ) -> "SpaceAnswer":
        """A sample. `slots` changes nothing: all cells are looked at."""
        self.check(batch)
        self.check_search(search)
        return SpaceAnswer(
            batch.view_mask, self.explain(batch, self.annealed(), self.draw_noise(batch, generator, slots))
        )

    def diagnostics(self, answer: Answer) -> dict[str, float]:
        """Objects a picture, and their share of its pixels: a run that finds none, or nothing else, has failed."""
        assert isinstance(answer, SpaceAnswer)
        real = answer.view_mask.flatten()
        present = (answer.seen.cells.presence[real] >= PRESENT).sum(1).float()
        return {"objects": float(present.mean()), "foreground": float(answer.seen.layers.alpha[real].mean())}


@dataclass(frozen=True, eq=False)
class SpaceAnswer(PicturesOfScenes):
    """What one pass found. Cells of different views have nothing to do with one another but their place."""

    seen: Explanation

    @property
    def object_codes(self) -> Float[Tensor, "B M K D"]:
        """What an object looks like in its box, and the box."""
        return self.codes(self.seen.what.mean, self.seen.cells.scale, self.seen.cells.centre)

    def decomposition(self) -> Decomposition:
        """One layer a cell. Presence is the maximum over views.

        Paper: complete shapes are multiplied by presence. Here those of absent objects are empty, and others whole.
        """
        layers, cells = self.seen.layers, self.seen.cells
        ground = 1 - layers.alpha
        present = cells.presence >= PRESENT
        return Decomposition(
            reconstruction=self.views(layers.image + ground[:, None] * self.seen.background.image()),
            layer_masks=self.views(torch.cat([ground[:, None], layers.perceived], 1)),
            has_background=True,
            complete_shapes=self.views(layers.shapes.where(present[..., None, None], 0)),
            presence=self.most(cells.presence),
            presence_probability=self.most(self.seen.posterior.presence_logit.sigmoid()),
            depth_order=self.views(-cells.depth),
        )
