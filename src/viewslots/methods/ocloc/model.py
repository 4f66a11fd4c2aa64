"""OCLOC: infer, sample, render, elbo."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from viewslots.errors import UserError
from viewslots.methods.contract import (
    Answer,
    FastTwin,
    Gather,
    LayeredViews,
    Losses,
    Precision,
    SceneCodes,
    Search,
    TrainableMethod,
)
from viewslots.methods.distributions import normal_kl, relaxed_bernoulli_logit, reparameterised_normal
from viewslots.methods.fast.half import with_half_weights
from viewslots.methods.fast.side_stream import SideStream
from viewslots.methods.inputs import check_slots, check_views
from viewslots.methods.noise import Sampler
from viewslots.methods.ocloc.boxes import box_distance
from viewslots.methods.ocloc.build import build_generation, build_inference, start_at
from viewslots.methods.ocloc.choice import most_likely, number_of_views
from viewslots.methods.ocloc.config import OclocConfig
from viewslots.methods.ocloc.generation import binary_logit
from viewslots.methods.ocloc.image_model import Canvas, ImageModel, WeightedSum
from viewslots.methods.ocloc.inference import SharedViewCodes
from viewslots.methods.ocloc.networks import BaselineNetwork, initialise
from viewslots.methods.ocloc.objective import Nvil, divergences, likelihood_constant, sum_over_views, weighted_loss
from viewslots.methods.ocloc.schedule import Annealing, OclocSchedule
from viewslots.methods.ocloc.search import searched, searched_views
from viewslots.methods.ocloc.variables import ElboTerms, Latents, Layers, Noise, Posterior, Rendering
from viewslots.types import Decomposition, SceneBatch


class Ocloc(TrainableMethod[OclocConfig], library_name="viewslots", tags=["object-centric-learning"]):
    """The model of the paper, with the paper's image model unless it is given another.

    Weights are drawn from `generator`, or from seed 0.
    """

    name = "ocloc"
    config_class = OclocConfig
    schedule_class = OclocSchedule
    terms = tuple(field.name for field in fields(ElboTerms))
    headline = ("nll", "view", "attr", "rho", "prs")
    shows_new_views = has_viewpoints = True
    searches = True

    def __init__(
        self,
        config: OclocConfig,
        generator: torch.Generator | None = None,
        *,
        image_model: ImageModel | None = None,
        sharing: SharedViewCodes | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.image_model = image_model or WeightedSum(config.sigma_x)
        # In the order in which their weights are drawn.
        self.inference = build_inference(config, sharing or SharedViewCodes())
        self.generation = build_generation(config, self.image_model.channels)
        baseline = BaselineNetwork(config.nvil.channels, config.nvil.hidden, config.image_size)
        self.nvil = Nvil(baseline, config.nvil)
        initialise(self, generator or torch.Generator().manual_seed(0))
        start_at(self.inference, self.generation, config)
        self.image_model.start(self.generation)

    @classmethod
    def sized(cls, config: OclocConfig, height: int, width: int) -> OclocConfig:
        return config.sized(height, width)

    # Learning

    def forward(self, batch: SceneBatch, scheduled: Annealing, noise: Noise) -> Losses:
        terms = self.elbo(batch, scheduled, noise)
        return Losses(weighted_loss(terms, scheduled), terms.loss, vars(terms))

    def elbo(
        self,
        batch: SceneBatch,
        annealing: Annealing,
        noise: Noise,
        background_index: Int[Tensor, "B"] | None = None,
    ) -> ElboTerms:
        """L and the NVIL terms, scene by scene, for one sample of the latents.

        The divergences and NVIL's network, many small kernels that nothing waits for, run beside the decoders. A scene
        whose nll is not finite does not enter NVIL's running statistics.
        """
        side, image_model = SideStream(batch.image.device), self.image_model
        baseline = side.beside(lambda: self.nvil.baseline(batch.image, batch.view_mask))
        posterior = self.looked_at(batch, self.infer_posterior(batch, noise, background_index))
        side.lend(*vars(posterior).values())
        kls = side.beside(lambda: divergences(posterior, batch.view_mask, self.config.alpha))
        latents = self.sample(posterior, noise, annealing)
        decoded = self.generation(latents)
        cost = image_model.training_cost(decoded, latents, batch, annealing, noise)
        side.join()
        objects = image_model.object_price * posterior.kappa.sum(1) if image_model.object_price else 0.0
        beyond = annealing.weight_costs * (objects + cost.prices)
        if decoded.boxes is not None:  # from the first step on, when there are no prices yet
            beyond = beyond + self.config.box_fit * sum_over_views(box_distance(decoded), batch.view_mask)
        return ElboTerms(
            constant=likelihood_constant(batch.image, batch.view_mask, image_model.sigma_x),
            nll=cost.nll,
            **kls(),
            **self.nvil.terms(baseline(), batch.view_mask, posterior, cost.nll),
            costs=beyond,
        )

    def sample(self, posterior: Posterior, noise: Noise, annealing: Annealing) -> Latents:
        """z_view, z_attr by reparameterisation, z_prs by its relaxation, from q(Omega | x)."""
        return Latents(
            z_view=reparameterised_normal(posterior.mu_view, posterior.log_sigma_view, noise.z_view),
            z_bck=reparameterised_normal(posterior.mu_bck, posterior.log_sigma_bck, noise.z_bck),
            z_attr=reparameterised_normal(posterior.mu_attr, posterior.log_sigma_attr, noise.z_attr),
            logit_prs=relaxed_bernoulli_logit(posterior.logit_kappa, noise.z_prs, annealing.temperature_prs),
        )

    def annealed(self) -> Annealing:
        temperature = self.config.temperature
        return Annealing(temperature_prs=temperature, temperature_shp=temperature, softness=self.config.softness)

    def draw_noise(self, batch: SceneBatch, generator: torch.Generator, slots: int | None = None) -> Noise:
        """All the randomness of one pass over `batch` with K = `slots` (default: as trained)."""
        (B, M, _, H, W), K = batch.image.shape, self.chosen_slots(slots)
        check_views(M)
        config, source, axes = self.config, Sampler(generator, self.device), self.inference.sharing.axes(K + 1)
        return Noise(
            y_view=source.normal(B, M, *axes, config.slot_view_dim),
            y_attr=source.normal(B, K + 1, config.slot_attr_dim),
            background=source.gumbel(B, K + 1),
            z_view=source.normal(B, M, *axes, config.view_dim),
            z_bck=source.normal(B, config.background_dim),
            z_attr=source.normal(B, K, config.code_dim),
            z_prs=source.logistic(B, K),
            z_shp=source.logistic(B, M, K, *((H, W) if self.image_model.samples_shapes else (0, 0))),
            appearance=source.normal(B, M, K, 3, H, W),
        )

    def draw_latent_noise(self, batch: SceneBatch, generator: torch.Generator, slots: int | None = None) -> Noise:
        """The beginning of `draw_noise`, without the noise of each pixel, which training alone asks for."""
        return self.draw_noise(replace(batch, image=batch.image[..., :0, :0]), generator, slots)

    def weights_from(self, other: nn.Module) -> Mapping[str, Tensor] | None:
        given = super().weights_from(other)
        return None if given is None else self.with_own_baseline(given)

    def with_own_baseline(self, given: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """NVIL's network is made for one size of pictures: where it does not fit, it begins anew. Nothing else may."""
        own = {name: value for name, value in self.state_dict().items() if name.startswith("nvil.network.")}
        fits = all(name in given and given[name].shape == value.shape for name, value in own.items())
        return given if fits else {**given, **own}

    def restart_statistics(self) -> None:
        self.nvil.restart()

    def share_statistics(self, gather: Gather) -> None:
        self.nvil.gather = gather

    def fast(self, precision: Precision) -> FastTwin:
        from viewslots.methods.ocloc.fast.accelerate import accelerated

        if self.device.type != "cuda":
            return FastTwin(accelerated(self))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        view, half = with_half_weights(self, self.exact_layers()) if precision == "bf16" else (self, None)
        return FastTwin(accelerated(view), half)

    def exact_layers(self) -> set[nn.Linear]:
        """Linear layers that compute in full precision also where the others do not."""
        return {self.inference.g_key.linear, self.inference.g_val.linear, self.nvil.network.connected.last}

    # Inference

    @torch.no_grad()
    def infer(
        self,
        batch: SceneBatch,
        generator: torch.Generator,
        slots: int | None = None,
        search: Search | None = None,
    ) -> "OclocAnswer":
        """Plain: Algorithm 1 and a sample of the latents, as in the paper. Searched: the shortest description found."""
        self.check(batch)
        K, annealing = self.chosen_slots(slots), self.annealed()
        draws = [K] if search is None else search.slots_of_draws(K)
        noises = [self.draw_latent_noise(batch, generator, number) for number in draws]
        if search is None:
            posterior = self.looked_at(batch, self.infer_posterior(batch, noises[0]))
        else:
            posterior = searched(self, batch, noises, annealing, search)
        return OclocAnswer(self, posterior, noises[0], search)

    def infer_posterior(
        self, batch: SceneBatch, noise: Noise, background_index: Int[Tensor, "B"] | None = None
    ) -> Posterior:
        """Algorithm 1. Nothing is checked here, since a check waits for the device."""
        return self.inference(batch.image, batch.view_mask, noise, background_index)

    def infer_posteriors(self, batch: SceneBatch, noises: Sequence[Noise]) -> list[Posterior]:
        """Algorithm 1 from several starts. What the slots look at is the same for all."""
        seen = self.inference.encode(batch.image)
        return [self.inference.rounds_from(seen, batch.view_mask, noise) for noise in noises]

    def looked_at(
        self, batch: SceneBatch, posterior: Posterior, absent: Bool[Tensor, "B K"] | None = None
    ) -> Posterior:
        """What a model makes of its own drawing, in which `absent` objects have no part. The paper's does not look."""
        return posterior

    def estimate_views(self, batch: SceneBatch, given: Posterior, noise: Noise) -> Posterior:
        """Viewpoints of further pictures of a known scene (appendix 'Viewpoint Estimation')."""
        self.check(batch)
        if len(batch.image) != len(given.y_attr):
            raise UserError(f"pictures of {len(batch.image)} scenes, but {len(given.y_attr)} scenes are given")
        return self.inference.estimate_views(batch.image, given, noise.y_view)

    def find_objects(self, batch: SceneBatch, given: Posterior, noise: Noise) -> Posterior:
        """Objects in further pictures from the viewpoints of a known scene."""
        return self.inference.find_objects(batch.image, batch.view_mask, given.y_view, noise)

    def diagnostics(self, answer: Answer) -> dict[str, float]:
        assert isinstance(answer, OclocAnswer)
        return background_choices(answer.posterior.log_pi)

    # Pictures

    def layers(self, latents: Latents) -> Layers:
        return self.image_model.layers(self.generation(latents))

    def render(self, latents: Latents, annealing: Annealing) -> Rendering:
        """From latents to pictures: shape probabilities and plain appearances, as all that is shown or scored."""
        return self.show(self.layers(latents), latents, annealing)

    def show(self, layers: Layers, latents: Latents, annealing: Annealing) -> Rendering:
        """The same, of layers that are decoded; `latents` say which objects are there."""
        return self.image_model.show(layers, latents, annealing)

    def description_length(
        self, batch: SceneBatch, posterior: Posterior, latents: Latents, annealing: Annealing
    ) -> Float[Tensor, "B"]:
        """Reconstruction cost plus the KL of the code of every present object, of the background and of the views.

        In nats. It needs no truth, and chooses between answers.
        """
        layers = self.layers(latents)
        objects = (latents.z_prs * self.object_lengths(posterior, annealing, number_of_views(batch))).sum(1)
        cost = self.reconstruction_cost(batch, layers, latents, annealing)
        return cost + objects + self.background_and_view_kl(batch, posterior)

    def background_and_view_kl(self, batch: SceneBatch, posterior: Posterior) -> Float[Tensor, "B"]:
        """Nats of the background and the views, whatever objects there are."""
        background = normal_kl(posterior.mu_bck, posterior.log_sigma_bck)
        views = sum_over_views(normal_kl(posterior.mu_view, posterior.log_sigma_view), batch.view_mask)
        return self.code_weight(number_of_views(batch)) * background + views

    def code_weight(self, views: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
        """How much codes that all pictures of a scene share count beside so many of them."""
        return torch.ones(len(views), device=views.device)

    def for_choices(self, posterior: Posterior) -> Posterior:
        """Objects as they are drawn and priced when a search chooses among them."""
        return posterior

    def missed(self, batch: SceneBatch, shown: Rendering) -> Float[Tensor, "B M H W"]:
        """Nats that the mean of x misses every pixel of a real view by."""
        missed = (batch.image - shown.reconstruction).square().sum(2) / (2 * self.image_model.sigma_x**2)
        return torch.where(batch.view_mask[:, :, None, None], missed, 0.0)

    def canvas(self, batch: SceneBatch, latents: Latents, annealing: Annealing) -> Canvas:
        """The layers of latents, to ask what some of their objects alone would cost."""
        return self.image_model.canvas(self.layers(latents), latents, batch, annealing)

    def reconstruction_cost(
        self, batch: SceneBatch, layers: Layers, latents: Latents, annealing: Annealing
    ) -> Float[Tensor, "B"]:
        return self.image_model.cost(layers, latents, batch, annealing).total(annealing)

    def object_lengths(
        self, posterior: Posterior, annealing: Annealing, views: Int[Tensor, "B"]
    ) -> Float[Tensor, "B K"]:
        """Nats of each object of scenes with so many pictures: what would be saved if it were absent, and its code that
        of the prior.

        L_rho and L_prs, half a nat an object, are left out.
        """
        codes = normal_kl(posterior.mu_attr, posterior.log_sigma_attr)
        price = self.image_model.object_price
        return self.code_weight(views)[:, None] * (codes + annealing.weight_costs * price if price else codes)

    # Scenes to edit and turn

    @property
    def view_dim(self) -> int:
        return self.config.view_dim

    def render_codes(self, codes: SceneCodes) -> LayeredViews:
        latents = Latents(
            z_view=codes.views[None],
            z_bck=codes.background[None],
            z_attr=codes.objects[None],
            logit_prs=binary_logit(codes.presence >= 0.5)[None],
        )
        layers = self.layers(latents)
        shown = self.show(layers, latents, self.annealed())
        return LayeredViews(
            image=shown.reconstruction[0],
            masks=shown.perceived[0],
            complete=shown.logit_shp[0].sigmoid(),
            appearance=shown.appearance[0],
            background=shown.background[0],
            bare=layers.background[0],
            order=shown.order[0],
        )

    @torch.no_grad()
    def sample_codes(self, views: int, slots: int, generator: torch.Generator) -> SceneCodes:
        M, K = check_views(views), check_slots(slots)
        drawn = self.generation.prior(1, M, K, self.config.alpha, Sampler(generator, self.device))
        return SceneCodes(drawn.z_view[0], drawn.z_bck[0], drawn.z_attr[0], drawn.z_prs[0])

    def parameter_counts(self) -> dict[str, int]:
        """By network, under the paper's names."""
        parts = (self.generation, self.inference)
        networks = {name: network for part in parts for name, network in part.named_children()}
        networks |= {name: network for name, network in self.named_children() if network not in parts}
        counts = {name: sum(item.numel() for item in network.parameters()) for name, network in networks.items()}
        counts["initial"] = sum(item.numel() for item in self.inference.parameters(recurse=False))
        return {"total": sum(item.numel() for item in self.parameters())} | counts


def background_choices(log_pi: Float[Tensor, "B L"]) -> dict[str, float]:
    """How often each of the L slots, before rearrangement, is the likeliest background."""
    share = torch.bincount(log_pi.argmax(1), minlength=log_pi.shape[1]) / len(log_pi)
    return {f"background_choice_{slot}": value for slot, value in enumerate(share.tolist())}


@dataclass(frozen=True, eq=False)
class OclocAnswer:
    """A posterior, and the latents that the answer shows: a sample of it, or, of a searched one, the most likely."""

    model: Ocloc
    posterior: Posterior
    noise: Noise
    """Of the first start."""
    search: Search | None

    @property
    def latents(self) -> Latents:
        if self.search is not None:
            return most_likely(self.posterior)
        return self.model.sample(self.posterior, self.noise, self.model.annealed())

    @property
    def view_codes(self) -> Float[Tensor, "B M Dview"]:
        return self.posterior.mu_view

    @property
    def object_codes(self) -> Float[Tensor, "B K Dattr"]:
        return self.posterior.mu_attr

    @torch.no_grad()
    def decomposition(self) -> Decomposition:
        latents = self.latents
        rendering = self.model.render(latents, self.model.annealed())
        return Decomposition(
            reconstruction=rendering.reconstruction,
            layer_masks=rendering.perceived,
            has_background=True,
            complete_shapes=rendering.logit_shp.sigmoid(),
            presence=latents.z_prs,
            presence_probability=self.posterior.kappa,
            depth_order=rendering.order,
        )

    @torch.no_grad()
    def new_views(self, batch: SceneBatch, generator: torch.Generator) -> "OclocAnswer":
        """Appendix 'Viewpoint Estimation'."""
        model, slots = self.model, self.posterior.logit_kappa.shape[1]
        noise = model.draw_latent_noise(batch, generator, slots)
        if self.search is None:
            posterior = model.estimate_views(batch, self.posterior, noise)
        else:
            posterior = searched_views(model, batch, self.posterior, noise, model.annealed(), self.search)
        return replace(self, posterior=posterior, noise=replace(self.noise, z_view=noise.z_view))

    def scene_codes(self, scene: int) -> SceneCodes:
        latents, searched = self.latents, self.search is not None
        presence = self.posterior.kappa if searched else latents.z_prs
        return SceneCodes(latents.z_view[scene], latents.z_bck[scene], latents.z_attr[scene], presence[scene])
