"""MulMON as a method: observe views one after another, refine what is known of every slot, predict the other views."""

import hashlib
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from viewslots.methods.contract import Answer, FastTwin, Losses, Precision, Search, TrainableMethod
from viewslots.methods.fast.half import view_of
from viewslots.methods.layers import start_as_torch
from viewslots.methods.mulmon.config import MulmonConfig
from viewslots.methods.mulmon.fast import fold_decoder
from viewslots.methods.mulmon.networks import (
    CAMERA,
    Decode,
    Decoder,
    Projector,
    RefinementNetwork,
    pixel_grid,
)
from viewslots.methods.mulmon.refinement import (
    compare,
    gradients,
    image_inputs,
    latent_gradient,
    posterior_gradient,
    sample,
    sampled_kl,
    vector_inputs,
)
from viewslots.methods.mulmon.schedule import LinearDecay
from viewslots.methods.noise import Sampler
from viewslots.methods.schedules import Scheduled
from viewslots.types import Decomposition, SceneBatch


@dataclass(frozen=True)
class MulmonNoise:
    """All randomness of one pass."""

    order: Float[Tensor, "B M"]
    """Views are taken in its rising order."""
    camera: Float[Tensor, "B M 5"]
    """Normal: how cameras are told otherwise than they are."""
    query: Float[Tensor, "B M L D"]
    """Normal: of the sample by which a view is predicted."""
    latent: Float[Tensor, "B N T L D"]
    """Normal: of the samples while the first, second, ... view is observed."""
    observed: int
    """N, how many views of every scene are observed. On the host, since another N is another amount of work."""


@dataclass(frozen=True)
class Views:
    """Pictures in the order in which they are taken, real ones first."""

    image: Float[Tensor, "B M 3 H W"]
    viewpoint: Float[Tensor, "B M 5"]
    """The code of the camera as the method is told it."""
    query: Float[Tensor, "B M L D"]
    real: Bool[Tensor, "B M"]


@dataclass(frozen=True)
class Observed:
    """What is known of scenes after some views, and what it has cost."""

    posterior: Float[Tensor, "B L P"]
    """Of every slot: means, then logarithms of variances."""
    nll: Float[Tensor, "B"]
    kl: Float[Tensor, "B"]


@dataclass(frozen=True)
class MulmonAnswer:
    """What was found in scenes, and how it looks from some viewpoints."""

    method: "Mulmon"
    posterior: Float[Tensor, "B L P"]
    masks: Float[Tensor, "B M L H W"]
    reconstruction: Float[Tensor, "B M 3 H W"]
    """In [0, 1], not clamped."""

    @property
    def object_codes(self) -> Float[Tensor, "B L D"]:
        return self.posterior.chunk(2, -1)[0]

    def decomposition(self) -> Decomposition:
        return Decomposition(self.reconstruction, self.masks, has_background=False)

    @torch.no_grad()
    def new_views(self, batch: SceneBatch, generator: torch.Generator) -> "MulmonAnswer":
        """The scenes as the cameras of `batch` see them; its pictures are not looked at."""
        self.method.check(batch)
        (B, M), (_, L, P) = batch.image.shape[:2], self.posterior.shape
        source = Sampler(generator, self.method.device)
        return self.method.show(self.posterior, batch, source.normal(B, M, CAMERA), source.normal(B, M, L, P // 2))


class Mulmon(TrainableMethod[MulmonConfig], library_name="viewslots", tags=["object-centric-learning", "mulmon"]):
    """For scenes in several views whose cameras are known. Weights are drawn from `generator`, or from seed 0."""

    name = "mulmon"
    config_class = MulmonConfig
    optimisation_class = LinearDecay
    terms = ("nll", "kl", "query")
    needs_camera = shows_new_views = True
    grid: Tensor

    def __init__(self, config: MulmonConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.projector = Projector(config.latent_dim, config.view_hidden, config.projector_hidden)
        self.decoder = Decoder(config.latent_dim, config.decoder_channels, config.image_size)
        self.refinement = RefinementNetwork(
            config.latent_dim,
            config.refinement_channels,
            config.refined_size,
            config.refinement_hidden,
            config.refinement_features,
            config.state_dim,
        )
        # One for all slots of all scenes: samples tell slots apart.
        self.first_posterior = nn.Parameter(torch.zeros(2 * config.latent_dim))
        self.register_buffer("grid", pixel_grid(config.image_size), persistent=False)
        generator = generator or torch.Generator().manual_seed(0)
        start_as_torch(self, generator, config.start_gain)
        nn.init.normal_(self.first_posterior, -0.5, 1, generator=generator)
        with torch.no_grad():
            self.first_posterior[config.latent_dim :] += config.start_log_variance

    def draw_noise(self, batch: SceneBatch, generator: torch.Generator, slots: int | None = None) -> MulmonNoise:
        """For training: views in random order, some of them observed. For K = `slots` objects, hence K + 1 slots."""
        B, M = batch.image.shape[:2]
        observed = drawn_on_host(generator, max(min(self.config.most_observed, M - 1), 1))
        order = Sampler(generator, self.device).uniform(B, M)
        return self.noise(batch, generator, slots, order, observed)

    def noise(
        self,
        batch: SceneBatch,
        generator: torch.Generator,
        slots: int | None,
        order: Float[Tensor, "B M"],
        observed: int,
    ) -> MulmonNoise:
        """With views in a given order, `observed` of them observed."""
        (B, M), L = batch.image.shape[:2], self.chosen_slots(slots) + 1
        source, T, D = Sampler(generator, self.device), self.config.iterations, self.config.latent_dim
        return MulmonNoise(
            order=order,
            camera=source.normal(B, M, CAMERA),
            query=source.normal(B, M, L, D),
            latent=source.normal(B, observed, T, L, D),
            observed=observed,
        )

    def forward(self, batch: SceneBatch, scheduled: Scheduled, noise: MulmonNoise) -> Losses:
        views, decode = self.taken(batch, noise), self.decoder.ready()
        seen = self.observe(views, noise.latent, decode)
        query = self.predict(seen.posterior, views, noise.observed, decode)
        total = seen.nll + self.config.kl_weight * seen.kl + query
        return Losses(minimised=total, comparable=total, terms={"nll": seen.nll, "kl": seen.kl, "query": query})

    def taken(self, batch: SceneBatch, noise: MulmonNoise) -> Views:
        """Real views in the order that the noise decides, then padding."""
        order = torch.where(batch.view_mask, noise.order, torch.inf).argsort(dim=1, stable=True)

        def ordered(values: Tensor) -> Tensor:
            return values.take_along_dim(order.view(*order.shape, *[1] * (values.dim() - 2)), 1)

        viewpoint = self.projector.viewpoint(ordered(self.noisy_cameras(batch, noise.camera)))
        return Views(ordered(batch.image), viewpoint, ordered(noise.query), ordered(batch.view_mask))

    def noisy_cameras(self, batch: SceneBatch, noise: Float[Tensor, "B M 5"]) -> Float[Tensor, "B M 5"]:
        """Cameras, with noise, as in the published runs also after training."""
        assert batch.camera is not None, "check comes first"
        return batch.camera + self.config.camera_noise * noise

    def observe(self, views: Views, noise: Float[Tensor, "B N T L D"], decode: Decode) -> Observed:
        """One view after another: the posterior after a view is the prior of the next. Later views count more."""
        B, N, _, L, _ = noise.shape
        posterior = self.first_posterior.expand(B, L, -1)
        weights = rising_weights(views.real[:, :N]).to(posterior.dtype)
        nll = kl = weights.new_zeros(B)
        for view in range(N):
            real = views.real[:, view]
            seen = self.look(posterior, views.image[:, view], views.viewpoint[:, view], noise[:, view], decode)
            posterior = torch.where(real[:, None, None], seen.posterior, posterior)
            nll = nll + torch.where(real, weights[:, view] * seen.nll, 0)
            kl = kl + torch.where(real, weights[:, view] * seen.kl, 0)
        return Observed(posterior, nll, kl)

    def look(
        self,
        prior: Float[Tensor, "B L P"],
        image: Float[Tensor, "B 3 H W"],
        viewpoint: Float[Tensor, "B 5"],
        noise: Float[Tensor, "B T L D"],
        decode: Decode,
    ) -> Observed:
        """One view: sample, decode and compare; refine, and again. Later iterations count more; after the last one
        nothing is refined."""
        T, sigma, learning = noise.shape[1], self.config.sigma_x, torch.is_grad_enabled()
        posterior, state = prior, self.refinement.start(prior)
        nll = kl = prior.new_zeros(len(prior))
        for t, drawn in enumerate(noise.unbind(1)):
            refines = t < T - 1
            latent = sample(posterior, drawn).requires_grad_()
            with torch.set_grad_enabled(learning or refines):  # the network is told gradients, learning or not
                layers = self.decoded(latent, viewpoint, decode)
            divergence = sampled_kl(posterior, prior, drawn, latent)
            seen, weight = compare(layers, image, sigma), 2 * (t + 1) / (T * (T + 1))
            nll, kl = nll + weight * seen.nll, kl + weight * divergence
            if refines:
                to_layers = gradients(seen, image, sigma)
                to_latent = latent_gradient(latent, layers, to_layers.layers, learning)
                to_posterior = posterior_gradient(posterior, prior, latent, to_latent, self.config.kl_weight)
                inputs = image_inputs(seen, to_layers, image, self.grid)
                update, state = self.refinement(inputs, vector_inputs(posterior, to_posterior), state)
                posterior = posterior + update
        return Observed(posterior, nll, kl)

    def decoded(
        self, latent: Float[Tensor, "B L D"], viewpoint: Float[Tensor, "B 5"], decode: Decode
    ) -> Float[Tensor, "B L 4 H W"]:
        layers = decode(self.projector(latent, viewpoint).flatten(0, 1))
        return layers.view(*latent.shape[:2], *layers.shape[1:])

    def predict(
        self, posterior: Float[Tensor, "B L P"], views: Views, observed: int, decode: Decode
    ) -> Float[Tensor, "B"]:
        """Reconstruction cost of the views that were not observed, all at once: the mean of a scene's."""
        real, noise = views.real[:, observed:], views.query[:, observed:]
        B, Q = real.shape
        if Q == 0:
            return posterior.new_zeros(B)
        latent = sample(posterior[:, None].expand(-1, Q, -1, -1), noise).flatten(0, 1)
        layers = self.decoded(latent, views.viewpoint[:, observed:].flatten(0, 1), decode)
        nll = compare(layers, views.image[:, observed:].flatten(0, 1), self.config.sigma_x).nll.view(B, Q)
        return torch.where(real, nll, 0).sum(1) / real.sum(1).clamp(min=1)

    def fast(self, precision: Precision) -> FastTwin:
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        twin = view_of(self, type(self))
        twin.decoder = fold_decoder(self.decoder)
        return FastTwin(twin)

    def diagnostics(self, answer: Answer) -> dict[str, float]:
        """How sure it is of its slots, beside how sure it was before the first view."""
        assert isinstance(answer, MulmonAnswer)
        spreads = {"posterior_sigma": answer.posterior, "first_sigma": self.first_posterior.detach()}
        return {name: (value.chunk(2, -1)[1] / 2).exp().mean().item() for name, value in spreads.items()}

    @torch.no_grad()
    def infer(
        self, batch: SceneBatch, generator: torch.Generator, slots: int | None = None, search: Search | None = None
    ) -> MulmonAnswer:
        """All views are observed as they come; what all have taught is then shown from every one of them."""
        self.check(batch)
        self.check_search(search)
        B, M = batch.image.shape[:2]
        noise = self.noise(batch, generator, slots, torch.arange(M, device=self.device).expand(B, M) / M, M)
        posterior = self.observe(self.taken(batch, noise), noise.latent, self.decoder.ready()).posterior
        return self.show(posterior, batch, noise.camera, noise.query)

    def show(
        self,
        posterior: Float[Tensor, "B L P"],
        batch: SceneBatch,
        camera_noise: Float[Tensor, "B M 5"],
        noise: Float[Tensor, "B M L D"],
    ) -> MulmonAnswer:
        """The scenes from the cameras of `batch`, one view at a time."""
        viewpoint, decode = self.projector.viewpoint(self.noisy_cameras(batch, camera_noise)), self.decoder.ready()
        shown = [
            compare(
                self.decoded(sample(posterior, noise[:, view]), viewpoint[:, view], decode),
                batch.image[:, view],
                self.config.sigma_x,
            )
            for view in range(viewpoint.shape[1])
        ]
        masks = torch.stack([seen.mask.squeeze(2) for seen in shown], 1)
        picture = torch.stack([(seen.mask * seen.colour).sum(1) for seen in shown], 1)
        return MulmonAnswer(self, posterior, masks, picture)


def rising_weights(real: Bool[Tensor, "B N"]) -> Float[Tensor, "B N"]:
    """Of the v-th of n real ones: v / n * 2 / (n + 1), so that all sum to one. Real ones come first."""
    place = torch.arange(1, real.shape[1] + 1, device=real.device, dtype=torch.float64)
    count = real.sum(1, keepdim=True)
    return torch.where(real, 2 * place / (count * (count + 1)), 0)


def drawn_on_host(generator: torch.Generator, most: int) -> int:
    """A number from 1 to `most` by the state of the generator: a number that is drawn on a GPU must be waited for."""
    digest = hashlib.sha256(generator.get_state().numpy().tobytes()).digest()
    return 1 + int.from_bytes(digest[:8], "little") % most
