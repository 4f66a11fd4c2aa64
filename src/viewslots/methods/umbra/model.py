"""Umbra: a trained OCLOC that learns what shadows are, sharper shapes, and not to count an object twice."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.methods.ocloc.config import OclocConfig
from viewslots.methods.ocloc.generation import Layers
from viewslots.methods.ocloc.model import Ocloc, PriorScene, noisy_appearance
from viewslots.methods.ocloc.noise import Noise, Source
from viewslots.methods.ocloc.objective import divergences, likelihood_constant, negative_log_likelihood, sum_over_views
from viewslots.methods.ocloc.schedule import Annealing
from viewslots.methods.ocloc.search import Care
from viewslots.methods.umbra.compositing import expected_shapes
from viewslots.methods.umbra.config import UmbraAnnealing, UmbraConfig, UmbraSchedule
from viewslots.methods.umbra.generation import SHADOW, ShadowedGeneration, ShadowedLayers, shaded
from viewslots.methods.umbra.objective import draw_pixels, mixture_nll
from viewslots.types import ElboTerms, Latents, Posterior, Rendering, SceneBatch


class Umbra(Ocloc):
    """The latents, priors and inference of OCLOC; what differs stands in the files beside this one."""

    method = "umbra"
    config: UmbraConfig
    config_class = UmbraConfig
    schedule_class = UmbraSchedule
    care = Care(starts=4, looks=1, refinement=30)
    samples_shapes = False
    generation_class = ShadowedGeneration
    occlusion = staticmethod(expected_shapes)

    def start(self, config: OclocConfig) -> None:
        super().start(config)
        self.generation.start_channel(SHADOW, self.config.shadow_logit)
        with torch.no_grad():  # even all over the picture, until there is something to learn
            self.generation.last_layer().weight.chunk(self.generation.channels)[SHADOW].zero_()

    def weights_from(self, other: Ocloc) -> Mapping[str, Tensor] | None:
        """An OCLOC's weights too: its object decoder gets one more channel, the shadow as it starts."""
        if type(other) is not Ocloc:
            return super().weights_from(other)
        own, given = self.state_dict(), dict(other.state_dict())
        if not given.keys() >= own.keys():
            return None
        for name in self.last_layer_names():
            shadow = own[name].chunk(self.generation.channels)[SHADOW]
            given[name] = torch.cat([given[name], shadow.to(given[name])])
        return given

    def last_layer_names(self) -> list[str]:
        """Of the parameters of the object decoder's last layer, in the state of the whole model."""
        last = {id(parameter) for parameter in self.generation.last_layer().parameters()}
        return [name for name, parameter in self.named_parameters() if id(parameter) in last]

    def bound(
        self, batch: SceneBatch, posterior: Posterior, latents: Latents, annealing: Annealing, noise: Noise
    ) -> ElboTerms:
        """As in OCLOC, but that objects and what one sees of them have a price."""
        assert isinstance(annealing, UmbraAnnealing)
        rendering, layers = self.drawn(latents, annealing, noise)
        nll = self.unlikeliness(batch, rendering, layers, annealing)
        objects = self.config.object_cost * posterior.kappa.sum(1)
        return ElboTerms(
            constant=likelihood_constant(batch.image, batch.view_mask, self.config.sigma_x),
            nll=nll,
            **divergences(posterior, batch.view_mask, self.config.alpha),
            **self.nvil(batch.image, batch.view_mask, posterior, nll),
            costs=annealing.weight_costs * (objects + self.covering(batch, rendering, layers, latents)),
        )

    def covering(
        self, batch: SceneBatch, rendering: Rendering, layers: ShadowedLayers, latents: Latents
    ) -> Float[Tensor, "B"]:
        """Nats for all pixels that objects take from the background, and for their shadows.

        What other objects hide of a shape costs nothing: else it would be cut off, and no order be needed. A shadow
        costs wherever it lies.
        """
        shadows = layers.logit_shadow.sigmoid() * latents.z_prs[:, None, :, None, None]
        prices = self.config.pixel_cost * (1 - rendering.perceived[:, :, 0]) + self.config.shadow_cost * shadows.sum(2)
        return sum_over_views(prices, batch.view_mask)

    def prices(self, posterior: Posterior, annealing: Annealing) -> Float[Tensor, "B K"]:
        """Besides its code: itself. What it covers is part of the misfit."""
        assert isinstance(annealing, UmbraAnnealing)
        return super().prices(posterior, annealing) + annealing.weight_costs * self.config.object_cost

    def misfit(self, batch: SceneBatch, layers: Layers, latents: Latents, annealing: Annealing) -> Float[Tensor, "B"]:
        assert isinstance(layers, ShadowedLayers)
        assert isinstance(annealing, UmbraAnnealing)
        shown = self.overlay(layers, latents, layers.logit_shp, layers.appearance, annealing)
        covering = annealing.weight_costs * self.covering(batch, shown, layers, latents)
        return self.unlikeliness(batch, shown, layers, annealing) + covering

    def likelihood(self, batch: SceneBatch, latents: Latents, annealing: Annealing, noise: Noise) -> Float[Tensor, "B"]:
        assert isinstance(annealing, UmbraAnnealing)
        return self.unlikeliness(batch, *self.drawn(latents, annealing, noise), annealing)

    def unlikeliness(
        self, batch: SceneBatch, rendering: Rendering, layers: ShadowedLayers, annealing: UmbraAnnealing
    ) -> Float[Tensor, "B"]:
        """L_nll, between the likelihood of the weighted sum and that of the mixture."""
        image, mask, sigma_x = batch.image, batch.view_mask, self.config.sigma_x
        plain = negative_log_likelihood(image, rendering.reconstruction, mask, sigma_x)
        mixed = mixture_nll(image, rendering.perceived, rendering.background, layers.appearance, mask, sigma_x)
        return torch.lerp(plain, mixed, self.config.mixture * annealing.weight_mixture)

    def render(self, latents: Latents, annealing: Annealing, noise: Noise | None = None) -> Rendering:
        return self.drawn(latents, annealing, noise)[0]

    def drawn(self, latents: Latents, annealing: Annealing, noise: Noise | None) -> tuple[Rendering, ShadowedLayers]:
        """The pictures, and the layers they are made of, whose appearances are noisy in training.

        Shapes are probabilities in training too: relaxed samples at temperatures above 1 hide what those say.
        """
        layers = self.generation(latents)
        appearance = layers.appearance if noise is None else noisy_appearance(layers, annealing, noise)
        rendering = self.overlay(layers, latents, layers.logit_shp, appearance, annealing)
        return rendering, replace(layers, appearance=appearance)

    def overlay(
        self, layers: Layers, latents: Latents, logit_shp: Tensor, appearance: Tensor, annealing: Annealing
    ) -> Rendering:
        """The background, as it is answered, has the shadows of the objects on it."""
        assert isinstance(layers, ShadowedLayers)
        background = shaded(layers.background, layers.logit_shadow, latents.logit_prs, self.config.darkest)
        return super().overlay(replace(layers, background=background), latents, logit_shp, appearance, annealing)

    def observe(self, latents: Latents, source: Source) -> PriorScene:
        """Each pixel from one layer, as the mixture has it."""
        rendering = self.render(latents, self.annealed())
        image = draw_pixels(rendering, source)
        return PriorScene(latents, rendering, image + self.config.sigma_x * source.normal(*image.shape))

    def annealed(self) -> UmbraAnnealing:
        temperature = self.config.temperature
        return UmbraAnnealing(temperature_prs=temperature, temperature_shp=temperature, softness=self.config.softness)
