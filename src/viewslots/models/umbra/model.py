"""Umbra: OCLOC whose shapes are probabilities, whose objects cast shadows and whose background is no lottery."""

from dataclasses import replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from viewslots.models.ocloc.build import build_generation, build_inference
from viewslots.models.ocloc.config import OclocConfig
from viewslots.models.ocloc.generation import Layers, binary_logit
from viewslots.models.ocloc.model import Ocloc, PriorScene, noisy_appearance
from viewslots.models.ocloc.noise import Noise, Source
from viewslots.models.ocloc.objective import Gather, divergences, likelihood_constant, negative_log_likelihood
from viewslots.models.ocloc.schedule import Annealing
from viewslots.models.umbra.config import UmbraAnnealing, UmbraConfig, UmbraSchedule
from viewslots.models.umbra.generation import SHADOW, ShadowedGeneration, ShadowedLayers, shaded
from viewslots.models.umbra.inference import OwnBackground
from viewslots.models.umbra.objective import covered_pixels, draw_pixels, mixture_nll
from viewslots.types import ElboTerms, Latents, Posterior, Rendering, SceneBatch


class Umbra(Ocloc):
    """The latents, priors and inference of OCLOC; what differs stands in the files beside this one."""

    method = "umbra"
    config: UmbraConfig
    config_class = UmbraConfig
    schedule_class = UmbraSchedule
    starts: ClassVar[int] = 4
    samples_shapes = False
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

    def bound(
        self,
        batch: SceneBatch,
        posterior: Posterior,
        latents: Latents,
        annealing: Annealing,
        noise: Noise | None = None,
    ) -> ElboTerms:
        """As in OCLOC, but that nothing teaches a choice, and that objects and their pixels have a price."""
        assert isinstance(annealing, UmbraAnnealing)
        rendering, appearance = self.drawn(latents, annealing, noise)
        nll = self.unlikeliness(batch, rendering, appearance, annealing)
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
        return self.unlikeliness(batch, *self.drawn(latents, annealing, noise), annealing)

    def unlikeliness(
        self, batch: SceneBatch, rendering: Rendering, appearance: Tensor, annealing: UmbraAnnealing
    ) -> Float[Tensor, "B"]:
        """L_nll, between the likelihood of the weighted sum and that of the mixture."""
        image, mask, sigma_x = batch.image, batch.view_mask, self.config.sigma_x
        plain = negative_log_likelihood(image, rendering.reconstruction, mask, sigma_x)
        mixed = mixture_nll(image, rendering.perceived, rendering.background, appearance, mask, sigma_x)
        return torch.lerp(plain, mixed, self.config.mixture * annealing.weight_mixture)

    def render(self, latents: Latents, annealing: Annealing, noise: Noise | None = None) -> Rendering:
        return self.drawn(latents, annealing, noise)[0]

    def drawn(
        self, latents: Latents, annealing: Annealing, noise: Noise | None
    ) -> tuple[Rendering, Float[Tensor, "B M K 3 H W"]]:
        """The pictures, and the appearances they are made of, noisy in training.

        Shapes are probabilities in training too: relaxed samples at temperatures above 1 hide what those say.
        """
        layers = self.generation(latents)
        appearance = layers.appearance if noise is None else noisy_appearance(layers, annealing, noise)
        return self.overlay(layers, latents, layers.logit_shp, appearance, annealing), appearance

    def overlay(
        self, layers: Layers, latents: Latents, logit_shp: Tensor, appearance: Tensor, annealing: Annealing
    ) -> Rendering:
        """The background, as it is answered, has the shadows of the objects on it."""
        assert isinstance(layers, ShadowedLayers)
        background = shaded(layers.background, layers.logit_shadow, latents.logit_prs, self.config.darkest)
        return super().overlay(replace(layers, background=background), latents, logit_shp, appearance, annealing)

    def answer(self, posterior: Posterior, noise: Noise, annealing: Annealing) -> Latents:
        """An object is there if that is at least as likely as not, instead of with that probability."""
        return replace(self.sample(posterior, noise, annealing), logit_prs=binary_logit(posterior.logit_kappa >= 0))

    def fault(
        self, batch: SceneBatch, posterior: Posterior, latents: Latents, annealing: Annealing
    ) -> Float[Tensor, "B"]:
        """The loss: a halo, or one object taken for two, may rebuild the pictures a little better."""
        return self.bound(batch, posterior, latents, annealing).loss

    def observe(self, latents: Latents, source: Source) -> PriorScene:
        """Each pixel from one layer, as the mixture has it."""
        rendering = self.render(latents, self.annealed())
        image = draw_pixels(rendering, source)
        return PriorScene(latents, rendering, image + self.config.sigma_x * source.normal(*image.shape))

    def annealed(self) -> UmbraAnnealing:
        temperature = self.config.temperature
        return UmbraAnnealing(temperature_prs=temperature, temperature_shp=temperature, softness=self.config.softness)
