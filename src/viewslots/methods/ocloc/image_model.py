"""Section 'Likelihood Function': from layers to pictures, and what pictures cost under them.

An OCLOC is given its image model. The paper's is `WeightedSum`; others keep the latents and exchange the pictures.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from viewslots.methods.distributions import relaxed_bernoulli_logit, widen
from viewslots.methods.ocloc.compositing import compactness_noise, composite, perceived_shapes
from viewslots.methods.ocloc.generation import Generation
from viewslots.methods.ocloc.objective import negative_log_likelihood
from viewslots.methods.ocloc.schedule import Annealing
from viewslots.methods.ocloc.variables import Decoded, Latents, Layers, Noise, Rendering
from viewslots.types import SceneBatch


@dataclass(frozen=True)
class Cost:
    """What pictures cost, in nats, scene by scene."""

    nll: Float[Tensor, "B"]
    """L_nll: minus the log-likelihood, without its constant."""
    prices: Float[Tensor, "B"]
    """What is minimised beyond the bound, before its weight in the schedule; zero in the paper's model."""

    def total(self, annealing: Annealing) -> Float[Tensor, "B"]:
        return self.nll + annealing.weight_costs * self.prices


class ImageModel(ABC):
    """p(x | latents), without parameters of its own."""

    channels: ClassVar[int]
    """Of the object decoder: log-odds of the shape, y of the colours, and what else this model reads."""
    samples_shapes: ClassVar[bool]
    """Whether training draws z_shp."""
    object_price: float = 0.0
    """Nats for each object present, beyond its code."""

    def __init__(self, sigma_x: float) -> None:
        self.sigma_x = sigma_x

    @abstractmethod
    def layers(self, decoded: Decoded) -> Layers:
        """Colours, shapes and order of every layer, before occlusion."""

    @abstractmethod
    def overlay(self, layers: Layers, latents: Latents, logit_shp: Tensor, annealing: Annealing) -> Rendering:
        """s and the mean of x, for shapes of these log-odds and the appearances of `layers`."""

    @abstractmethod
    def training_cost(
        self, decoded: Decoded, latents: Latents, batch: SceneBatch, annealing: Annealing, noise: Noise
    ) -> Cost:
        """Of one sample, with the noise of training."""

    @abstractmethod
    def cost(self, layers: Layers, latents: Latents, batch: SceneBatch, annealing: Annealing) -> Cost:
        """Of layers as they are shown: shape probabilities and plain appearances."""

    def show(self, layers: Layers, latents: Latents, annealing: Annealing) -> Rendering:
        return self.overlay(layers, latents, layers.logit_shp, annealing)

    def canvas(self, layers: Layers, latents: Latents, batch: SceneBatch, annealing: Annealing) -> "Canvas":
        """For many questions about the same layers."""
        return Canvas(self, layers, latents, batch, annealing)

    def start(self, generation: Generation) -> None:  # noqa: B027
        """Where decoder weights start other than as drawn; the paper's start nowhere else."""

    def fast(self) -> "ImageModel":
        """The same on fused kernels, where there are some."""
        return self


class Canvas:
    """Layers that are drawn, and what the pictures cost with some of their objects alone."""

    def __init__(
        self, image_model: ImageModel, layers: Layers, latents: Latents, batch: SceneBatch, annealing: Annealing
    ) -> None:
        self.image_model, self.layers, self.latents = image_model, layers, latents
        self.batch, self.annealing = batch, annealing
        self.cover: Float[Tensor, "B M K H W"] = layers.logit_shp.sigmoid()

    def show(self, scenes: Int[Tensor, "N"], slots: Int[Tensor, "N n"], present: Bool[Tensor, "N n"]) -> Rendering:
        """These scenes, any as often as it is named, each with those of these objects that are present."""
        latents = self.latents.of_slots(scenes, slots, present)
        return self.image_model.show(self.layers.of_slots(scenes, slots), latents, self.annealing)

    def cost(
        self, scenes: Int[Tensor, "N"], slots: Int[Tensor, "N n"], present: Bool[Tensor, "N n"]
    ) -> Float[Tensor, "N"]:
        """Reconstruction cost of the same."""
        layers, latents = self.layers.of_slots(scenes, slots), self.latents.of_slots(scenes, slots, present)
        batch = SceneBatch(self.batch.image[scenes], self.batch.view_mask[scenes])
        return self.image_model.cost(layers, latents, batch, self.annealing).total(self.annealing)


class WeightedSum(ImageModel):
    """The paper's: a normal distribution around the sum over layers of perceived shape times appearance."""

    channels = 4
    samples_shapes = True

    def layers(self, decoded: Decoded) -> Layers:
        return plain_layers(decoded)

    def overlay(self, layers: Layers, latents: Latents, logit_shp: Tensor, annealing: Annealing) -> Rendering:
        perceived = perceived_shapes(logit_shp, latents.logit_prs, layers.order, annealing.softness)
        return composed(layers, perceived)

    def training_cost(
        self, decoded: Decoded, latents: Latents, batch: SceneBatch, annealing: Annealing, noise: Noise
    ) -> Cost:
        """With relaxed samples z_shp and noisy appearances."""
        layers = noisy(self.layers(decoded), annealing, noise)
        logit_shp = relaxed_bernoulli_logit(layers.logit_shp, noise.z_shp, annealing.temperature_shp)
        return self.reconstruction_cost(self.overlay(layers, latents, logit_shp, annealing), batch)

    def cost(self, layers: Layers, latents: Latents, batch: SceneBatch, annealing: Annealing) -> Cost:
        return self.reconstruction_cost(self.show(layers, latents, annealing), batch)

    def reconstruction_cost(self, rendering: Rendering, batch: SceneBatch) -> Cost:
        nll = negative_log_likelihood(batch.image, rendering.reconstruction, batch.view_mask, self.sigma_x)
        return Cost(nll, torch.zeros_like(nll))

    def fast(self) -> ImageModel:
        from viewslots.methods.ocloc.fast.likelihood import FusedSum

        return FusedSum(self.sigma_x)


def plain_layers(decoded: Decoded) -> Layers:
    """Decoders emit y; a colour is (y + 1) / 2."""
    B, M, K = decoded.order.shape
    background = (widen(decoded.background) + 1) / 2
    logit_shp, colour = torch.split(widen(decoded.objects[:, :4]), [1, 3], 1)
    return Layers(
        background=background.view(B, M, *background.shape[1:]),
        appearance=((colour + 1) / 2).reshape(B, M, K, *colour.shape[1:]),
        logit_shp=logit_shp.reshape(B, M, K, *logit_shp.shape[2:]),
        order=decoded.order,
        centre=decoded.centre,
    )


def noisy(layers: Layers, annealing: Annealing, noise: Noise) -> Layers:
    """With the compactness noise on the appearances of objects."""
    rate, scale = annealing.compactness_rate, annealing.compactness_scale
    extra = compactness_noise(layers.centre, noise.appearance, rate, scale)
    return replace(layers, appearance=layers.appearance + extra)


def composed(layers: Layers, perceived: Float[Tensor, "B M L H W"]) -> Rendering:
    return Rendering(
        reconstruction=composite(perceived, layers.background, layers.appearance),
        perceived=perceived,
        logit_shp=layers.logit_shp,
        order=layers.order,
        appearance=layers.appearance,
        background=layers.background,
    )
