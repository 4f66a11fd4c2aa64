"""OCLOC: infer, sample, render, elbo."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from viewslots.errors import UserError
from viewslots.methods.distributions import normal_kl, relaxed_bernoulli_logit, reparameterised_normal
from viewslots.methods.inputs import check_batch, check_scenes, check_slots, check_views
from viewslots.methods.ocloc.build import build_generation, build_inference, start_at
from viewslots.methods.ocloc.compositing import compactness_noise, composite, perceived_shapes
from viewslots.methods.ocloc.config import OclocConfig
from viewslots.methods.ocloc.generation import Generation, Layers, binary_logit
from viewslots.methods.ocloc.inference import Inference
from viewslots.methods.ocloc.networks import BaselineNetwork, initialise
from viewslots.methods.ocloc.noise import Noise, Source
from viewslots.methods.ocloc.objective import (
    Gather,
    Nvil,
    divergences,
    likelihood_constant,
    negative_log_likelihood,
    sum_over_views,
)
from viewslots.methods.ocloc.schedule import Annealing, Schedule
from viewslots.methods.ocloc.search import Care, careful, careful_views, most_likely
from viewslots.methods.pretrained import Pretrained
from viewslots.types import Decomposition, ElboTerms, Latents, Posterior, Rendering, SceneBatch


@dataclass(frozen=True)
class PriorScene:
    """A whole scene drawn from the prior."""

    latents: Latents
    rendering: Rendering
    image: Float[Tensor, "B M 3 H W"]
    """Drawn from the likelihood around the rendering."""


class Ocloc(nn.Module, Pretrained[OclocConfig], library_name="viewslots", tags=["object-centric-learning"]):
    """The model of the paper. Weights are drawn from `generator`, or from seed 0."""

    method = "ocloc"
    knows_viewpoints: ClassVar[bool] = True
    """One code a view, apart from the objects: `decompose_new_views` and `view_codes` answer."""
    config_class = OclocConfig
    schedule_class: ClassVar[type[Schedule]] = Schedule
    care: Care | None = None
    """How answers are found; None: as in the paper. A model may be told to take more care than its method does."""
    samples_shapes: ClassVar[bool] = True
    """Whether training draws z_shp."""
    inference_class: ClassVar[type[Inference]] = Inference
    generation_class: ClassVar[type[Generation]] = Generation
    occlusion = staticmethod(perceived_shapes)

    def __init__(self, config: OclocConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        # In the order in which their weights are drawn.
        self.inference = build_inference(config, self.inference_class)
        self.generation = build_generation(config, self.generation_class)
        baseline = BaselineNetwork(config.nvil.channels, config.nvil.hidden, config.image_size)
        self.nvil = Nvil(baseline, config.nvil)
        initialise(self, generator or torch.Generator().manual_seed(0))
        self.start(config)

    def start(self, config: OclocConfig) -> None:
        """Where weights start other than as drawn."""
        start_at(self.inference, self.generation, config)

    def weights_from(self, other: "Ocloc") -> Mapping[str, Tensor] | None:
        """Another model's weights as this one takes them to start from; None where they mean something else."""
        return other.state_dict() if type(other) is type(self) else None

    def restart_statistics(self) -> None:
        """NVIL's begin anew: for pictures of another kind."""
        self.nvil.restart()

    def share_statistics(self, gather: Gather) -> None:
        """NVIL's are those of all processes that train this model."""
        self.nvil.gather = gather

    def exact_layers(self) -> set[nn.Linear]:
        """Linear layers that reckon in full precision also where the others do not."""
        return {self.inference.g_key.linear, self.inference.g_val.linear, self.nvil.network.connected.last}

    @property
    def device(self) -> torch.device:
        return self.inference.mu_hat.device

    def check(self, batch: SceneBatch) -> None:
        """One clear error for pictures that this model cannot take: shape, type, range, NaN, scenes without views."""
        check_batch(batch, (self.config.image_size, self.config.image_size), self.inference.mu_hat.dtype)

    def forward(self, batch: SceneBatch, annealing: Annealing, noise: Noise) -> ElboTerms:
        return self.elbo(batch, annealing, noise)

    def elbo(
        self,
        batch: SceneBatch,
        annealing: Annealing,
        noise: Noise,
        background_index: Int[Tensor, "B"] | None = None,
    ) -> ElboTerms:
        """L and the NVIL terms, scene by scene, for one sample of the latents.

        Nothing is checked here, since a check waits for the device. Whoever trains checks the data once by `check`, and
        the loss for NaN; a scene whose nll is not finite does not enter NVIL's running statistics.
        """
        posterior = self.infer(batch, noise, background_index)
        return self.bound(batch, posterior, self.sample(posterior, noise, annealing), annealing, noise)

    def bound(
        self, batch: SceneBatch, posterior: Posterior, latents: Latents, annealing: Annealing, noise: Noise
    ) -> ElboTerms:
        """The terms for given latents."""
        nll = self.likelihood(batch, latents, annealing, noise)
        return ElboTerms(
            constant=likelihood_constant(batch.image, batch.view_mask, self.config.sigma_x),
            nll=nll,
            **divergences(posterior, batch.view_mask, self.config.alpha),
            **self.nvil(batch.image, batch.view_mask, posterior, nll),
            costs=torch.zeros_like(nll),
        )

    def likelihood(self, batch: SceneBatch, latents: Latents, annealing: Annealing, noise: Noise) -> Float[Tensor, "B"]:
        """L_nll of one sample, with relaxed shapes and noisy appearances."""
        rendering = self.render(latents, annealing, noise)
        return negative_log_likelihood(batch.image, rendering.reconstruction, batch.view_mask, self.config.sigma_x)

    def infer(self, batch: SceneBatch, noise: Noise, background_index: Int[Tensor, "B"] | None = None) -> Posterior:
        """Algorithm 1. Nothing is checked here, as in `elbo`; `decompose` and `estimate_views` do."""
        return self.inference(batch.image, batch.view_mask, noise, background_index)

    def estimate_views(self, batch: SceneBatch, given: Posterior, noise: Noise) -> Posterior:
        """Viewpoints of further pictures of a known scene (appendix 'Viewpoint Estimation')."""
        self.check(batch)
        if len(batch.image) != len(given.y_attr):
            raise UserError(f"pictures of {len(batch.image)} scenes, but {len(given.y_attr)} scenes are given")
        return self.inference.estimate_views(batch.image, given, noise.y_view)

    def find_objects(self, batch: SceneBatch, given: Posterior, noise: Noise) -> Posterior:
        """Objects in further pictures from the viewpoints of a known scene."""
        return self.inference.find_objects(batch.image, batch.view_mask, given.y_view, noise)

    def sample(self, posterior: Posterior, noise: Noise, annealing: Annealing) -> Latents:
        """z_view, z_attr by reparameterisation, z_prs by its relaxation, from q(Omega | x)."""
        return Latents(
            z_view=reparameterised_normal(posterior.mu_view, posterior.log_sigma_view, noise.z_view),
            z_bck=reparameterised_normal(posterior.mu_bck, posterior.log_sigma_bck, noise.z_bck),
            z_attr=reparameterised_normal(posterior.mu_attr, posterior.log_sigma_attr, noise.z_attr),
            logit_prs=relaxed_bernoulli_logit(posterior.logit_kappa, noise.z_prs, annealing.temperature_prs),
        )

    def render(self, latents: Latents, annealing: Annealing, noise: Noise | None = None) -> Rendering:
        """From latents to pictures. With noise: relaxed samples z_shp and noisy appearances, as the training likelihood
        has them. Without: shape probabilities and plain appearances, as everything that is shown or scored has them.
        """
        layers: Layers = self.generation(latents)
        logit_shp, appearance = layers.logit_shp, layers.appearance
        if noise is not None:
            logit_shp = relaxed_bernoulli_logit(logit_shp, noise.z_shp, annealing.temperature_shp)
            appearance = noisy_appearance(layers, annealing, noise)
        return self.overlay(layers, latents, logit_shp, appearance, annealing)

    def overlay(
        self, layers: Layers, latents: Latents, logit_shp: Tensor, appearance: Tensor, annealing: Annealing
    ) -> Rendering:
        """s and the mean of x."""
        perceived = self.occlusion(logit_shp, latents.logit_prs, layers.order, annealing.softness)
        return Rendering(
            reconstruction=composite(perceived, layers.background, appearance),
            perceived=perceived,
            logit_shp=layers.logit_shp,
            order=layers.order,
            appearance=layers.appearance,
            background=layers.background,
        )

    def annealed(self) -> Annealing:
        """Where annealing ends: the values for use after training."""
        temperature = self.config.temperature
        return Annealing(temperature_prs=temperature, temperature_shp=temperature, softness=self.config.softness)

    @torch.no_grad()
    def decompose(
        self,
        batch: SceneBatch,
        generator: torch.Generator,
        slots: int | None = None,
        annealing: Annealing | None = None,
    ) -> Decomposition:
        """One answer for every scene, with shape probabilities: of sampled latents and presences, unless with care."""
        self.check(batch)
        annealing = annealing or self.annealed()
        posterior, noise = self.settle(batch, generator, slots, annealing)
        latents = self.answer(posterior, noise, annealing)
        return self.decomposition(self.render(latents, annealing), latents, posterior)

    def take_care(self, care: Care | None) -> None:
        """Careful answers from now on; with None, the paper's."""
        self.care = care

    def settle(
        self, batch: SceneBatch, generator: torch.Generator, slots: int | None, annealing: Annealing
    ) -> tuple[Posterior, Noise]:
        """Where inference ends for an answer, and the noise of its first start."""
        draws = 1 if self.care is None else self.care.draws
        noises = [self.draw_latent_noise(batch, generator, slots) for _ in range(draws)]
        if self.care is None:
            return self.infer(batch, noises[0]), noises[0]
        return careful(self, batch, noises, annealing, self.care), noises[0]

    def answer(self, posterior: Posterior, noise: Noise, annealing: Annealing) -> Latents:
        """The latents that an answer shows: a sample, or, of a careful one, the most likely ones."""
        return self.sample(posterior, noise, annealing) if self.care is None else most_likely(posterior)

    def fault(
        self, batch: SceneBatch, posterior: Posterior, latents: Latents, annealing: Annealing
    ) -> Float[Tensor, "B"]:
        """Length of an answer as a description of the pictures, in nats: the codes of all that is present, and what
        they leave unexplained. It needs no truth, and chooses between answers.
        """
        layers = self.generation(latents)
        objects = (latents.z_prs * self.prices(posterior, annealing)).sum(1)
        background = normal_kl(posterior.mu_bck, posterior.log_sigma_bck)
        views = sum_over_views(normal_kl(posterior.mu_view, posterior.log_sigma_view), batch.view_mask)
        return self.misfit(batch, layers, latents, annealing) + objects + background + views

    def misfit(self, batch: SceneBatch, layers: Layers, latents: Latents, annealing: Annealing) -> Float[Tensor, "B"]:
        """L_nll of layers as they are shown."""
        shown = self.overlay(layers, latents, layers.logit_shp, layers.appearance, annealing)
        return negative_log_likelihood(batch.image, shown.reconstruction, batch.view_mask, self.config.sigma_x)

    def prices(self, posterior: Posterior, annealing: Annealing) -> Float[Tensor, "B K"]:
        """Nats of each object's code: what would be saved if it were absent, and its code that of the prior.

        L_rho and L_prs, half a nat an object, are left out.
        """
        return normal_kl(posterior.mu_attr, posterior.log_sigma_attr)

    def decomposition(self, rendering: Rendering, latents: Latents, posterior: Posterior) -> Decomposition:
        return Decomposition(
            reconstruction=rendering.reconstruction,
            layer_masks=rendering.perceived,
            has_background=True,
            complete_shapes=rendering.logit_shp.sigmoid(),
            presence=latents.z_prs,
            presence_probability=posterior.kappa,
            depth_order=rendering.order,
        )

    @torch.no_grad()
    def decompose_new_views(
        self,
        given: SceneBatch,
        new: SceneBatch,
        generator: torch.Generator,
        slots: int | None = None,
        annealing: Annealing | None = None,
    ) -> Decomposition:
        """Appendix 'Viewpoint Estimation': the scene is inferred from the given views, and only the viewpoints of the
        new ones are; the answer shows the new views.
        """
        self.check(given)
        annealing = annealing or self.annealed()
        known, noise = self.settle(given, generator, slots, annealing)
        new_noise = self.draw_latent_noise(new, generator, slots)
        posterior = careful_views(self, new, known, new_noise, annealing, self.care or Care())
        latents = self.answer(posterior, replace(noise, z_view=new_noise.z_view), annealing)
        return self.decomposition(self.render(latents, annealing), latents, posterior)

    @torch.no_grad()
    def view_codes(
        self, batch: SceneBatch, generator: torch.Generator, slots: int | None = None
    ) -> Float[Tensor, "B M Dview"]:
        """mu_view: those behind the answer of `decompose` for the same generator state."""
        self.check(batch)
        return self.settle(batch, generator, slots, self.annealed())[0].mu_view

    @torch.no_grad()
    def sample_prior(self, scenes: int, views: int, slots: int, generator: torch.Generator) -> PriorScene:
        """Whole scenes from the prior: binary z_prs and z_shp, and pixels from the likelihood."""
        source = Source(generator, self.device)
        B, M, K = check_scenes(scenes), check_views(views), check_slots(slots)
        latents = self.generation.prior(B, M, K, self.config.alpha, source)
        return self.observe(latents, source)

    def observe(self, latents: Latents, source: Source) -> PriorScene:
        """z_shp ~ Ber(sigmoid(f_shp)) and x ~ N(sum of s a, sigma_x^2 I)."""
        layers: Layers = self.generation(latents)
        covers = source.uniform(*layers.logit_shp.shape) < layers.logit_shp.sigmoid()
        rendering = self.overlay(layers, latents, binary_logit(covers), layers.appearance, self.annealed())
        image = rendering.reconstruction + self.config.sigma_x * source.normal(*rendering.reconstruction.shape)
        return PriorScene(latents, rendering, image)

    def draw_noise(self, batch: SceneBatch, generator: torch.Generator, slots: int | None = None) -> Noise:
        """All the randomness of one pass over `batch` with K = `slots` (default: as trained)."""
        (B, M, _, H, W), K = batch.image.shape, check_slots(self.config.slots if slots is None else slots)
        return self.noise_for(B, check_views(M), K, (H, W), Source(generator, self.device))

    def draw_latent_noise(self, batch: SceneBatch, generator: torch.Generator, slots: int | None = None) -> Noise:
        """The beginning of `draw_noise`, without the noise of each pixel, which training alone asks for."""
        return self.draw_noise(replace(batch, image=batch.image[..., :0, :0]), generator, slots)

    def noise_for(self, B: int, M: int, K: int, size: tuple[int, int], source: Source) -> Noise:
        config, view_slots = self.config, self.view_slots(K)
        return Noise(
            y_view=source.normal(B, M, *view_slots, config.slot_view_dim),
            y_attr=source.normal(B, K + 1, config.slot_attr_dim),
            background=source.gumbel(B, K + 1),
            z_view=source.normal(B, M, *view_slots, config.view_dim),
            z_bck=source.normal(B, config.background_dim),
            z_attr=source.normal(B, K, config.attr_dim),
            z_prs=source.logistic(B, K),
            z_shp=source.logistic(B, M, K, *(size if self.samples_shapes else (0, 0))),
            appearance=source.normal(B, M, K, 3, *size),
        )

    def view_slots(self, K: int) -> tuple[int, ...]:
        """Axes of a view code between view and dimension: none, since all layers share it."""
        return ()


def noisy_appearance(layers: Layers, annealing: Annealing, noise: Noise) -> Float[Tensor, "B M K 3 H W"]:
    rate, scale = annealing.compactness_rate, annealing.compactness_scale
    return layers.appearance + compactness_noise(layers.centre, noise.appearance, rate, scale)


def parameter_counts(model: Ocloc) -> dict[str, int]:
    """Parameters by network, under the paper's names."""
    parts = (model.generation, model.inference)
    networks = {name: network for part in parts for name, network in part.named_children()}
    networks |= {name: network for name, network in model.named_children() if network not in parts}
    counts = {name: sum(item.numel() for item in network.parameters()) for name, network in networks.items()}
    counts["initial"] = sum(item.numel() for item in model.inference.parameters(recurse=False))
    return {"total": sum(item.numel() for item in model.parameters())} | counts
