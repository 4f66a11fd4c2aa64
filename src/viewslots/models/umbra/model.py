"""Umbra: OCLOC whose shapes are probabilities, whose objects cast shadows and whose background is no lottery."""

from dataclasses import fields, replace
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from viewslots.models.ocloc.build import build_generation, build_inference
from viewslots.models.ocloc.config import OclocConfig
from viewslots.models.ocloc.generation import Layers
from viewslots.models.ocloc.model import Ocloc, PriorScene, noisy_appearance
from viewslots.models.ocloc.noise import Noise, Source
from viewslots.models.ocloc.objective import Gather, divergences, likelihood_constant, negative_log_likelihood
from viewslots.models.ocloc.schedule import Annealing
from viewslots.models.umbra.config import UmbraAnnealing, UmbraConfig, UmbraSchedule
from viewslots.models.umbra.generation import SHADOW, ShadowedGeneration, ShadowedLayers, shaded
from viewslots.models.umbra.inference import OwnBackground
from viewslots.models.umbra.objective import blend, covered_pixels, mixture_nll
from viewslots.types import ElboTerms, Latents, Posterior, Rendering, SceneBatch


class Umbra(Ocloc):
    """The latents, priors and inference of OCLOC; what differs stands in the files beside this one."""

    method = "umbra"
    config: UmbraConfig
    config_class = UmbraConfig
    schedule_class = UmbraSchedule
    inference_class = OwnBackground
    generation_class = ShadowedGeneration

    def build(self, config: OclocConfig) -> None:
        """No NVIL: nothing is chosen."""
        self.inference = build_inference(config, self.inference_class)
        self.generation = build_generation(config, self.generation_class)

    def start(self, config: OclocConfig) -> None:
        super().start(config)
        self.generation.start_channel(SHADOW, self.config.shadow_logit)
        with torch.no_grad():  # even all over the picture, until there is something to learn
            self.generation.last_layer().weight.chunk(self.generation.channels)[SHADOW].zero_()

    def restart_statistics(self) -> None:
        """There are none."""

    def share_statistics(self, gather: Gather) -> None:
        """There are none."""

    def exact_layers(self) -> set[nn.Linear]:
        return {self.inference.g_key.linear, self.inference.g_val.linear}

    def elbo(
        self,
        batch: SceneBatch,
        annealing: Annealing,
        noise: Noise,
        background_index: Int[Tensor, "B"] | None = None,
    ) -> ElboTerms:
        """As in OCLOC, but that nothing teaches a choice, and that objects and their pixels have a price."""
        assert isinstance(annealing, UmbraAnnealing)
        posterior = self.infer(batch, noise)
        return self.bound(batch, posterior, self.sample(posterior, noise, annealing), annealing, noise)

    def bound(
        self,
        batch: SceneBatch,
        posterior: Posterior,
        latents: Latents,
        annealing: UmbraAnnealing,
        noise: Noise | None = None,
    ) -> ElboTerms:
        nll, rendering = self.explained(batch, latents, annealing, noise)
        pixels = covered_pixels(rendering.logit_shp, latents.logit_prs, batch.view_mask)
        price = self.config.pixel_cost * pixels + self.config.object_cost * posterior.kappa.sum(1)
        return ElboTerms(
            constant=likelihood_constant(batch.image, batch.view_mask, self.config.sigma_x),
            nll=nll,
            **divergences(posterior, batch.view_mask, self.config.alpha),
            policy=torch.zeros_like(nll),
            baseline=torch.zeros_like(nll),
            costs=annealing.weight_costs * price,
        )

    def likelihood(self, batch: SceneBatch, latents: Latents, annealing: Annealing, noise: Noise) -> Float[Tensor, "B"]:
        assert isinstance(annealing, UmbraAnnealing)
        return self.explained(batch, latents, annealing, noise)[0]

    def explained(
        self, batch: SceneBatch, latents: Latents, annealing: UmbraAnnealing, noise: Noise | None
    ) -> tuple[Float[Tensor, "B"], Rendering]:
        """L_nll, between the likelihood of the weighted sum and that of the mixture; and what it was computed from."""
        image, mask, sigma_x = batch.image, batch.view_mask, self.config.sigma_x
        layers = self.generation(latents)
        appearance = layers.appearance if noise is None else noisy_appearance(layers, annealing, noise)
        rendering = self.overlay(layers, latents, layers.logit_shp, appearance, annealing)
        plain = negative_log_likelihood(image, rendering.reconstruction, mask, sigma_x)
        mixed = mixture_nll(image, rendering, appearance, mask, sigma_x)
        return blend(plain, mixed, self.config.mixture * annealing.weight_mixture), rendering

    def render(self, latents: Latents, annealing: Annealing, noise: Noise | None = None) -> Rendering:
        """Shape probabilities in training too: relaxed samples at temperatures above 1 hide what those say."""
        layers = self.generation(latents)
        appearance = layers.appearance if noise is None else noisy_appearance(layers, annealing, noise)
        return self.overlay(layers, latents, layers.logit_shp, appearance, annealing)

    def overlay(
        self, layers: Layers, latents: Latents, logit_shp: Tensor, appearance: Tensor, annealing: Annealing
    ) -> Rendering:
        """The background, as it is answered, has its shadows on."""
        assert isinstance(layers, ShadowedLayers)
        assert isinstance(annealing, UmbraAnnealing)
        darkest = self.config.darkest * annealing.weight_shadows
        background = shaded(layers.background, layers.logit_shadow, latents.logit_prs, darkest)
        return super().overlay(replace(layers, background=background), latents, logit_shp, appearance, annealing)

    def settle(
        self, batch: SceneBatch, generator: torch.Generator, slots: int | None = None
    ) -> tuple[Posterior, Noise]:
        """The best of several random starts, scene by scene, by the loss of the answer that each would give.

        Which slots find which objects, and whether two share one, depends on the start.
        """
        ends = [super(Umbra, self).settle(batch, generator, slots) for _ in range(self.config.starts)]
        annealing = self.annealed()
        losses = [self.bound(batch, end, self.answer(end, noise, annealing), annealing).loss for end, noise in ends]
        best = torch.stack(losses).argmin(0)
        return taken([end for end, _ in ends], best), taken([noise for _, noise in ends], best)

    def answer(self, posterior: Posterior, noise: Noise, annealing: Annealing) -> Latents:
        """An object is there if that is more likely than not, instead of with that probability."""
        return replace(self.sample(posterior, noise, annealing), logit_prs=posterior.logit_kappa)

    def observe(self, latents: Latents, source: Source) -> PriorScene:
        rendering = self.render(latents, self.annealed())
        image = rendering.reconstruction + self.config.sigma_x * source.normal(*rendering.reconstruction.shape)
        return PriorScene(latents, rendering, image)

    def annealed(self) -> UmbraAnnealing:
        temperature = self.config.temperature
        return UmbraAnnealing(temperature_prs=temperature, temperature_shp=temperature, softness=self.config.softness)


T = TypeVar("T", Posterior, Noise)


def taken(several: list[T], best: Int[Tensor, "B"]) -> T:
    """Scene b of the value that best[b] names."""
    scenes = torch.arange(len(best), device=best.device)
    names = [field.name for field in fields(several[0])]
    return replace(
        several[0], **{name: torch.stack([getattr(x, name) for x in several])[best, scenes] for name in names}
    )
