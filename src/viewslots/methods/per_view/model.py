"""The paper's baseline without object constancy (appendix 'Baseline Method'): every view has latents of its own.

Each view becomes a scene with a single view, so that lines 4, 12, 18 and 19 of Algorithm 1, as well as 15, 16 and NVIL,
act for each view alone; what is left to replace is that every slot has a view code of its own (lines 3, 7, 11 and 20).
"""

from dataclasses import fields, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from viewslots.errors import UserError
from viewslots.methods.inputs import check_scenes, check_slots, check_views
from viewslots.methods.ocloc.inference import Inference, take_slots
from viewslots.methods.ocloc.model import Ocloc, PriorScene
from viewslots.methods.ocloc.noise import Noise, Source
from viewslots.methods.ocloc.schedule import Annealing
from viewslots.methods.ocloc.search import Care
from viewslots.types import Decomposition, ElboTerms, Posterior, Rendering, SceneBatch

NO_VIEWPOINTS = "the per-view baseline knows no scene apart from a view, so there are no viewpoints to estimate"
TERMS = tuple(field.name for field in fields(ElboTerms))


class PerViewInference(Inference):
    """Algorithm 1 with view codes y_view_{m,k}."""

    def merge_slots(self, v_view: Float[Tensor, "B M L Dvw"]) -> Float[Tensor, "B M L Dvw"]:
        """Line 11 of the baseline: no mean over the slots."""
        return v_view

    def arrange_views(
        self, y_view: Float[Tensor, "B 1 L Dvw"], indices: Int[Tensor, "B L"]
    ) -> Float[Tensor, "B 1 L Dvw"]:
        """Line 16: a view code moves with its slot, and the background reads that of its own."""
        return take_slots(y_view[:, 0], indices)[:, None]


def fold(batch: SceneBatch) -> SceneBatch:
    """Every view as a scene with a single view (such scenes stay as they are)."""
    return SceneBatch(batch.image.flatten(0, 1)[:, None], batch.view_mask.flatten(0, 1)[:, None])


class PerViewOcloc(Ocloc):
    """The baseline, with the networks of OCLOC. Between `fold` and the answers it sees B M scenes of one view."""

    method = "ocloc-per-view"
    knows_viewpoints = False
    inference_class = PerViewInference

    def view_slots(self, K: int) -> tuple[int, ...]:
        """Line 3: a view code for each of the L layers."""
        return (K + 1,)

    def draw_noise(self, batch: SceneBatch, generator: torch.Generator, slots: int | None = None) -> Noise:
        check_views(batch.image.shape[1])
        return super().draw_noise(fold(batch), generator, slots)

    def infer(self, batch: SceneBatch, noise: Noise, background_index: Int[Tensor, "BM"] | None = None) -> Posterior:
        """Algorithm 1 with the lines of the baseline, for every view alone."""
        return super().infer(fold(batch), noise, background_index)

    def take_care(self, care: Care | None) -> None:
        if care is None:
            return
        raise UserError("the per-view baseline answers as the paper's does: every view alone, from one start")

    def estimate_views(self, batch: SceneBatch, given: Posterior, noise: Noise) -> Posterior:
        raise UserError(NO_VIEWPOINTS)

    def decompose_new_views(
        self,
        given: SceneBatch,
        new: SceneBatch,
        generator: torch.Generator,
        slots: int | None = None,
        annealing: Annealing | None = None,
    ) -> Decomposition:
        raise UserError(NO_VIEWPOINTS)

    def view_codes(
        self, batch: SceneBatch, generator: torch.Generator, slots: int | None = None
    ) -> Float[Tensor, "B M Dview"]:
        raise UserError(NO_VIEWPOINTS)

    def elbo(
        self,
        batch: SceneBatch,
        annealing: Annealing,
        noise: Noise,
        background_index: Int[Tensor, "BM"] | None = None,
    ) -> ElboTerms:
        """The terms of all real views of a scene, summed."""
        terms = super().elbo(fold(batch), annealing, noise, background_index)
        shape = batch.view_mask.shape
        values = {name: getattr(terms, name).view(shape) for name in TERMS}
        return ElboTerms(**{name: torch.where(batch.view_mask, value, 0.0).sum(1) for name, value in values.items()})

    @torch.no_grad()
    def decompose(
        self,
        batch: SceneBatch,
        generator: torch.Generator,
        slots: int | None = None,
        annealing: Annealing | None = None,
    ) -> Decomposition:
        """Slots of different views have nothing to do with each other; presence is the maximum over views."""
        return unfold(super().decompose(batch, generator, slots, annealing), batch.view_mask)

    @torch.no_grad()
    def sample_prior(self, scenes: int, views: int, slots: int, generator: torch.Generator) -> PriorScene:
        """Every view stands alone here as well: the latents are those of B M scenes of one view."""
        source, config = Source(generator, self.device), self.config
        B, M, K = check_scenes(scenes), check_views(views), check_slots(slots)
        latents = self.generation.prior(B * M, 1, K, config.alpha, source)
        z_view = source.normal(B * M, 1, K + 1, config.view_dim)
        scene = self.observe(replace(latents, z_view=z_view), source)
        shown = {field.name: getattr(scene.rendering, field.name) for field in fields(Rendering)}
        rendering = Rendering(**{name: unfold_views(value, B, M) for name, value in shown.items()})
        return PriorScene(latents=scene.latents, rendering=rendering, image=unfold_views(scene.image, B, M))


def unfold_views(values: Float[Tensor, "BM 1 *rest"], B: int, M: int) -> Float[Tensor, "B M *rest"]:
    return values.view(B, M, *values.shape[2:])


def unfold(folded: Decomposition, mask: Bool[Tensor, "B M"]) -> Decomposition:
    """Views back to their scenes."""
    assert folded.complete_shapes is not None
    assert folded.presence is not None
    assert folded.presence_probability is not None
    assert folded.depth_order is not None

    def views(value: Tensor) -> Tensor:
        return unfold_views(value, *mask.shape)

    def most(value: Tensor) -> Tensor:
        return torch.where(mask[:, :, None], value.view(*mask.shape, -1), 0.0).amax(1)

    return Decomposition(
        reconstruction=views(folded.reconstruction),
        layer_masks=views(folded.layer_masks),
        has_background=True,
        complete_shapes=views(folded.complete_shapes),
        presence=most(folded.presence),
        presence_probability=most(folded.presence_probability),
        depth_order=views(folded.depth_order),
    )
