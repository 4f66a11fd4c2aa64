"""Umbra: a trained OCLOC that learns what shadows are, sharper shapes, and not to count an object twice."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from viewslots.errors import UserError
from viewslots.methods.contract import Search, TrainableMethod
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.search import CODES, OF_OBJECTS, differentiable, without
from viewslots.methods.ocloc.variables import Latents, Noise, Posterior
from viewslots.methods.umbra.config import UmbraConfig, UmbraSchedule
from viewslots.methods.umbra.glimpses import Drawing, Glimpses, slope
from viewslots.methods.umbra.image_model import SHADOW, ShadowedMixture
from viewslots.types import SceneBatch

NO_DETAILS: dict[str, Any] = {"details": 0, "details_by_view": False}
F_DET = "generation.f_det."
GLIMPSES, OF_DETAILS = ("glimpses.", F_DET), ("glimpses.to_details.", F_DET)
"""How the names of weights begin that come with glimpses, and of those that come with details."""
OF_OBJECT = "glimpses.of_object.weight"
"""That reads the codes of objects, details among them."""
BY_GRADIENTS, BY_LOOKS = Search(starts=4, looks=1, refinement=30), Search(starts=4, looks=2)
FOR_DETAILS = Search(starts=4, looks=1, refinement=60)
"""Chosen in entries 15, 33 and 36 of docs/research-log.md."""
OF_VIEWS = ("mu_view", "log_sigma_view")
OF_BACKGROUND = ("mu_bck", "log_sigma_bck")


class Umbra(Ocloc):
    """The latents, priors and inference of OCLOC with another image model; it starts from a trained OCLOC."""

    name = "umbra"
    config_class = UmbraConfig
    schedule_class = UmbraSchedule
    config: UmbraConfig

    def __init__(self, config: UmbraConfig, generator: torch.Generator | None = None) -> None:
        generator = generator or torch.Generator().manual_seed(0)
        super().__init__(config, generator, image_model=ShadowedMixture(config))
        self.glimpses = Glimpses(config, generator) if config.glimpses else None

    @property
    def default_search(self) -> Search:
        """Glimpses do most of what gradient steps do, in a fraction of their time; details that one picture tells gain
        from both."""
        if self.config.details and not self.config.details_by_view:
            return FOR_DETAILS
        return BY_LOOKS if self.config.glimpses else BY_GRADIENTS

    def estimate_views(self, batch: SceneBatch, given: Posterior, noise: Noise) -> Posterior:
        found = super().estimate_views(batch, given, noise)
        return self.looked_at(batch, found, keep=(*OF_BACKGROUND, *OF_OBJECTS))

    def find_objects(self, batch: SceneBatch, given: Posterior, noise: Noise) -> Posterior:
        """Glimpses see them on the background and from the viewpoints that are given."""
        found, known = super().find_objects(batch, given, noise), (*OF_BACKGROUND, *OF_VIEWS)
        if not self.config.glimpses:
            return found
        return self.looked_at(batch, replace(found, **{name: getattr(given, name) for name in known}), keep=known)

    def code_weight(self, views: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
        """Beside fewer pictures than in training a code, which is told as sharply as ever, would weigh too much."""
        return (views / self.config.weighed_views).clamp(max=1)

    def for_choices(self, posterior: Posterior) -> Posterior:
        """Without details that several views tell: with them one slot draws two neighbours, and only some of what is
        compared has been looked at. Details that one picture tells stay: without them sprites are discs."""
        if not self.config.details_by_view:
            return posterior
        told = {name: getattr(posterior, name)[..., : self.config.attr_dim] for name in ("mu_attr", "log_sigma_attr")}
        return replace(posterior, **told)

    def looked_at(
        self,
        batch: SceneBatch,
        posterior: Posterior,
        absent: Bool[Tensor, "B K"] | None = None,
        keep: Sequence[str] = (),
    ) -> Posterior:
        """After the glimpses. `absent`: objects that stay so in every drawing, whatever a glimpse says of them.
        `keep`: variables that they may not change."""
        kept = {name: getattr(posterior, name) for name in keep}
        for _ in range(self.config.glimpses):
            assert self.glimpses is not None
            posterior = posterior if absent is None else without(posterior, absent)
            changed = self.glimpses(batch, posterior, self.drawing(batch, posterior), self.config.sigma_x)
            posterior = replace(changed, **kept)
        return posterior

    def drawing(self, batch: SceneBatch, posterior: Posterior) -> Drawing:
        """Of the means, each object as present as it is likely.

        Where there are gradients they stay on: autocast keeps the weights that it rounds, and without gradients those
        would learn nothing where they are used again.
        """
        slopes, annealing, image_model = self.config.glimpse_slopes, self.annealed(), self.image_model
        assert isinstance(image_model, ShadowedMixture)
        with torch.inference_mode(False), torch.set_grad_enabled(slopes or torch.is_grad_enabled()):
            batch, posterior = differentiable(batch), differentiable(posterior)
            codes = [getattr(posterior, name).detach().requires_grad_(slopes) for name in CODES]
            means = Latents(codes[0], codes[1], codes[2], posterior.logit_kappa.detach())
            if slopes:
                shown, cost = image_model.drawn(self.generation(means), means, batch, annealing)
                # Under autocast the gradient of what is computed in full precision would not be.
                with torch.autocast(batch.image.device.type, enabled=False):
                    gradients = torch.autograd.grad(cost.total(annealing).sum(), codes)
                # A code is itself the gradient of the means' part of the divergences, half its square.
                told = [slope(gradient + code.detach()) for gradient, code in zip(gradients, codes, strict=True)]
            else:
                shown = self.render(means, annealing)
                told = [code[..., :0] for code in codes]
        seen = replace(shown, **{name: value.detach() for name, value in vars(shown).items()})
        return Drawing(seen, *told)

    @classmethod
    def config_from(cls, config: UmbraConfig, other: TrainableMethod[Any]) -> UmbraConfig:  # type: ignore[override]
        """All of another Umbra's, but glimpses where only one of the two has them: all other weights may learn again
        without them, and they are taught last. Details, where they are asked for, may come later still, if objects are
        drawn in boxes. From an OCLOC its sizes, but how sharply pictures are compared is its own."""
        if not isinstance(other, Ocloc):
            return config
        if isinstance(other.config, UmbraConfig):
            if config.details_by_view and not other.config.box_fit:  # umbra-details asks for nothing else
                raise UserError(
                    "--init: this umbra does not draw objects in boxes, so it can have no details; teach it glimpses "
                    "alone (umbra-glimpses), or take another model (umbra-quick)"
                )
            if bool(other.config.glimpses) == bool(config.glimpses):
                if not (config.details and other.config.box_fit):
                    return replace(other.config, **NO_DETAILS)
                wish = {name: getattr(config, name) for name in UmbraConfig.of_details}
                return other.config if other.config.details else replace(other.config, **wish)
            own = {name: getattr(config, name) for name in (*UmbraConfig.of_glimpses, "rounds")}
            return replace(other.config, **own if other.config.box_fit else own | NO_DETAILS)
        return UmbraConfig(**vars(config) | vars(other.config) | {"sigma_x": config.sigma_x})

    def weights_from(self, other: nn.Module) -> Mapping[str, Tensor] | None:
        """An OCLOC's weights too: its object decoder gets one more channel, the shadow as it starts. Glimpses that only
        one of the two has are left out, or begin anew; so do details that are others."""
        if type(other) not in (Ocloc, Umbra):
            return None
        own, given = self.state_dict(), dict(other.state_dict())
        if type(other) is Ocloc and given.keys() >= own.keys() - self.glimpse_names():
            for name in self.last_layer_names():
                shadow = own[name].chunk(self.image_model.channels)[SHADOW]
                given[name] = torch.cat([given[name], shadow.to(given[name])])
        if self.glimpses is None or not any(name in given for name in self.glimpse_names()):
            given = {name: value for name, value in given.items() if not name.startswith(GLIMPSES)}
            given |= {name: own[name] for name in self.glimpse_names()}
        elif isinstance(other, Umbra) and any(
            getattr(self.config, name) != getattr(other.config, name) for name in UmbraConfig.of_details
        ):
            given = {name: value for name, value in given.items() if not name.startswith(OF_DETAILS)}
            given |= {name: value for name, value in own.items() if name.startswith(OF_DETAILS)}
            given[OF_OBJECT] = self.glimpses.knowing_other_details(given[OF_OBJECT], other.config.details)
        return self.with_own_baseline(given) if given.keys() == own.keys() else None

    def glimpse_names(self) -> set[str]:
        """In the state of the whole model."""
        return {name for name in self.state_dict() if name.startswith(GLIMPSES)}

    def last_layer_names(self) -> list[str]:
        """Of the parameters of the object decoder's last layer, in the state of the whole model."""
        last = {id(parameter) for parameter in self.generation.last_layer().parameters()}
        return [name for name, parameter in self.named_parameters() if id(parameter) in last]
