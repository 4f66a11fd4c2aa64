"""The paper's baseline without object constancy (appendix 'Baseline Method'): every view has latents of its own.

It wraps an OCLOC, for which each view is a scene with a single view, so that lines 4, 12, 18 and 19 of Algorithm 1, as
well as 15, 16 and NVIL, act for each view alone; what is left to replace is that every slot has a view code of its own
(lines 3, 7, 11 and 20).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from viewslots.methods.contract import Answer, FastTwin, Gather, Losses, Precision, Search, TrainableMethod
from viewslots.methods.fast.half import view_of
from viewslots.methods.inputs import check_views
from viewslots.methods.ocloc.config import OclocConfig
from viewslots.methods.ocloc.inference import SharedViewCodes, take_slots
from viewslots.methods.ocloc.model import Ocloc, OclocAnswer, background_choices
from viewslots.methods.ocloc.objective import sum_over_views
from viewslots.methods.ocloc.schedule import Annealing, OclocSchedule
from viewslots.methods.ocloc.variables import Noise
from viewslots.methods.single_view import PicturesOfScenes
from viewslots.types import Decomposition, SceneBatch


class OwnViewCodes(SharedViewCodes):
    """View codes y_view_{m,k}: one for each slot."""

    def axes(self, layers: int) -> tuple[int, ...]:
        """Line 3: a view code for each of the L layers."""
        return (layers,)

    def merge(self, v_view: Float[Tensor, "B M L Dvw"]) -> Float[Tensor, "B M L Dvw"]:
        """Line 11: no mean over the slots."""
        return v_view

    def arrange(self, y_view: Float[Tensor, "B 1 L Dvw"], indices: Int[Tensor, "B L"]) -> Float[Tensor, "B 1 L Dvw"]:
        """Line 16: a view code moves with its slot, and the background reads that of its own."""
        return take_slots(y_view[:, 0], indices)[:, None]


def fold(batch: SceneBatch) -> SceneBatch:
    """Every view as a scene with a single view (such scenes stay as they are)."""
    return SceneBatch(batch.image.flatten(0, 1)[:, None], batch.view_mask.flatten(0, 1)[:, None])


class PerView(TrainableMethod[OclocConfig], library_name="viewslots", tags=["object-centric-learning"]):
    """The baseline, with the networks of OCLOC, which are parts of this module under the names they have there."""

    name = "per-view"
    config_class = OclocConfig
    schedule_class = OclocSchedule
    terms = Ocloc.terms
    headline = Ocloc.headline
    single: Ocloc
    """Sees B M scenes of one view."""

    def __init__(self, config: OclocConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        single = Ocloc(config, generator, sharing=OwnViewCodes())
        self.config, self.inference, self.generation, self.nvil = (
            single.config,
            single.inference,
            single.generation,
            single.nvil,
        )
        self.wrap(single)

    @classmethod
    def sized(cls, config: OclocConfig, height: int, width: int) -> OclocConfig:
        return config.sized(height, width)

    def wrap(self, single: Ocloc) -> None:
        """Not as a part, so that saved weights keep the names of OCLOC's."""
        self.__dict__["single"] = single

    def draw_noise(self, batch: SceneBatch, generator: torch.Generator, slots: int | None = None) -> Noise:
        check_views(batch.image.shape[1])
        return self.single.draw_noise(fold(batch), generator, slots)

    def forward(self, batch: SceneBatch, scheduled: Annealing, noise: Noise) -> Losses:
        """The losses of all real views of a scene, summed."""
        losses, mask = self.single(fold(batch), scheduled, noise), batch.view_mask

        def over_views(values: Float[Tensor, "BM"]) -> Float[Tensor, "B"]:
            return sum_over_views(values.view(mask.shape), mask)

        terms = {name: over_views(value) for name, value in losses.terms.items()}
        return Losses(over_views(losses.minimised), over_views(losses.comparable), terms)

    def annealed(self) -> Annealing:
        return self.single.annealed()

    def infer(
        self,
        batch: SceneBatch,
        generator: torch.Generator,
        slots: int | None = None,
        search: Search | None = None,
    ) -> "PerViewAnswer":
        self.check_search(search)
        self.check(batch)
        # Padded views are scenes here, and a scene without views would be refused.
        every = replace(batch, view_mask=torch.ones_like(batch.view_mask))
        return PerViewAnswer(batch.view_mask, self.single.infer(fold(every), generator, slots))

    def diagnostics(self, answer: Answer) -> dict[str, float]:
        assert isinstance(answer, PerViewAnswer)
        return background_choices(answer.folded.posterior.log_pi[answer.view_mask.flatten()])

    def weights_from(self, other: nn.Module) -> Mapping[str, Tensor] | None:
        given = super().weights_from(other)
        return None if given is None else self.single.with_own_baseline(given)

    def restart_statistics(self) -> None:
        self.single.restart_statistics()

    def share_statistics(self, gather: Gather) -> None:
        self.single.share_statistics(gather)

    def fast(self, precision: Precision) -> FastTwin:
        inner = self.single.fast(precision)
        assert isinstance(inner.module, Ocloc)
        twin = view_of(self, PerView)
        twin.inference, twin.generation = inner.module.inference, inner.module.generation
        twin.nvil = inner.module.nvil
        twin.wrap(inner.module)
        return FastTwin(twin, inner.weights)

    def parameter_counts(self) -> dict[str, int]:
        return self.single.parameter_counts()


@dataclass(frozen=True, eq=False)
class PerViewAnswer(PicturesOfScenes):
    """Slots of different views have nothing to do with each other."""

    folded: OclocAnswer
    """Of B M scenes of one view."""

    def decomposition(self) -> Decomposition:
        """Views back in their scenes; presence is the maximum over views."""
        answer = self.folded.decomposition()
        assert answer.complete_shapes is not None
        assert answer.presence is not None
        assert answer.presence_probability is not None
        assert answer.depth_order is not None
        return replace(
            answer,
            reconstruction=self.views(answer.reconstruction.squeeze(1)),
            layer_masks=self.views(answer.layer_masks.squeeze(1)),
            complete_shapes=self.views(answer.complete_shapes.squeeze(1)),
            presence=self.most(answer.presence),
            presence_probability=self.most(answer.presence_probability),
            depth_order=self.views(answer.depth_order.squeeze(1)),
        )

    @property
    def object_codes(self) -> Float[Tensor, "B M K Dattr"]:
        return self.codes(self.folded.object_codes)
