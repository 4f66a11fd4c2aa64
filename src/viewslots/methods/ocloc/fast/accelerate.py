"""A view of a model that shares its parameters and computes faster."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from viewslots.methods.ocloc.fast.attention import FastPerViewInference, ProjectedAttention
from viewslots.methods.ocloc.fast.beside import Beside
from viewslots.methods.ocloc.fast.features import FastFeatures
from viewslots.methods.ocloc.fast.folding import fold_stages
from viewslots.methods.ocloc.fast.half import view_of
from viewslots.methods.ocloc.fast.likelihood import squared_error
from viewslots.methods.ocloc.inference import Inference
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.networks import CompactDecoder, DenseDecoder, FeatureNetwork
from viewslots.methods.ocloc.noise import Noise
from viewslots.methods.ocloc.objective import divergences, likelihood_constant, sum_over_views
from viewslots.methods.ocloc.schedule import Annealing
from viewslots.methods.per_view.model import PerViewOcloc
from viewslots.methods.umbra.model import Umbra
from viewslots.types import ElboTerms, Latents, SceneBatch


class FusedLikelihood(Ocloc):
    """An Ocloc whose training likelihood goes straight from the decoders to the squared error.

    The divergences and NVIL's network, many small kernels that nothing waits for, run beside the decoders.
    """

    def elbo(
        self,
        batch: SceneBatch,
        annealing: Annealing,
        noise: Noise,
        background_index: Int[Tensor, "B"] | None = None,
    ) -> ElboTerms:
        beside = Beside(batch.image.device)
        with beside:
            baseline = self.nvil.baseline(batch.image, batch.view_mask)
        posterior = self.infer(batch, noise, background_index)
        beside.lend(*vars(posterior).values())
        with beside:
            kls = divergences(posterior, batch.view_mask, self.config.alpha)
        nll = self.likelihood(batch, self.sample(posterior, noise, annealing), annealing, noise)
        beside.join()
        return ElboTerms(
            constant=likelihood_constant(batch.image, batch.view_mask, self.config.sigma_x),
            nll=nll,
            **kls,
            **self.nvil.terms(baseline, batch.view_mask, posterior, nll),
            costs=torch.zeros_like(nll),
        )

    def likelihood(self, batch: SceneBatch, latents: Latents, annealing: Annealing, noise: Noise) -> Float[Tensor, "B"]:
        decoded = self.generation.decode(latents)
        with torch.autocast(batch.image.device.type, enabled=False):
            error = squared_error(decoded, latents.logit_prs, batch.image, annealing, noise)
        return sum_over_views(error, batch.view_mask) / (2 * self.config.sigma_x**2)


class FastPerViewOcloc(PerViewOcloc, FusedLikelihood):
    """The baseline first: it turns views into scenes before anything else."""


MODELS: dict[type[Ocloc], type[Ocloc]] = {Ocloc: FusedLikelihood, PerViewOcloc: FastPerViewOcloc, Umbra: Umbra}
INFERENCES: dict[type[Ocloc], type[Inference]] = {
    Ocloc: ProjectedAttention,
    PerViewOcloc: FastPerViewInference,
    Umbra: ProjectedAttention,
}


def accelerated(model: Ocloc) -> Ocloc:
    """The fast twin of a model on its present device: the same parameters and buffers, other ways to compute.

    Make it after the model has gone to its device; a model of another kind comes back as it is.
    """
    kind = type(model)
    if kind not in MODELS:
        return model
    fast = view_of(model, MODELS[kind])
    fast.inference = view_of(model.inference, INFERENCES[kind])
    fast.inference.g_feat = fold_features(model.inference.g_feat)
    fast.generation = view_of(model.generation, type(model.generation))
    for name in ("f_shp_apc", "f_bck"):
        setattr(fast.generation, name, fold_decoder(model.generation.get_submodule(name)))
    return fast


def fold_features(features: FeatureNetwork) -> FeatureNetwork:
    folded = view_of(features, FastFeatures)
    folded.convolutions = fold_stages(list(features.convolutions))
    return folded


class ChannelsLastCompactDecoder(CompactDecoder):
    """Broadcasts with the channels last in memory, where its convolutions want them."""

    def forward(self, code: Float[Tensor, "I D"]) -> Float[Tensor, "I outputs H W"]:
        place = self.position.project(self.position.grid).permute(0, 2, 3, 1)
        return self.convolutions((self.connected(code)[:, None, None] + place).permute(0, 3, 1, 2))


def fold_decoder(decoder: nn.Module) -> nn.Module:
    """Transposed convolutions have nothing to fold."""
    if not isinstance(decoder, DenseDecoder | CompactDecoder):
        return decoder
    kind = ChannelsLastCompactDecoder if isinstance(decoder, CompactDecoder) else DenseDecoder
    folded = view_of(decoder, kind)
    folded.convolutions = fold_stages(list(decoder.convolutions))
    return folded
