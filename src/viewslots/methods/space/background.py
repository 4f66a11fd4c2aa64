"""The background: components that share the picture by stick-breaking, each a mask and a picture of its own.

With a single component, as in the comparison of the OCLOC paper, its mask is the whole picture. Paper: networks for
masks are then made and never used; here they are not made.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from viewslots.methods.contract import Gather
from viewslots.methods.distributions import full_precision, widen
from viewslots.methods.space.batch_norm import BatchNorm
from viewslots.methods.space.layers import ShuffleDecoder, precisely
from viewslots.methods.space.variables import Gaussian, SpaceNoise, gaussian_kl

LEAST_STD = 1e-4
LEAST_MASK = 1e-5
"""Added to masks before their logarithm."""


@dataclass(frozen=True)
class Components:
    """The background of N pictures, and the KL of its latents."""

    masks: Float[Tensor, "N J H W"]
    """They sum to one."""
    images: Float[Tensor, "N J 3 H W"]
    mask_kl: Float[Tensor, "N"]
    component_kl: Float[Tensor, "N"]

    def image(self) -> Float[Tensor, "N 3 H W"]:
        return (self.masks[:, :, None] * self.images).sum(1)


class BatchNormedConvolutions(nn.Module):
    """3x3 convolutions, each with batch normalisation and ELU."""

    def __init__(self, inputs: int, channels: Sequence[int], stride: int, padding: int) -> None:
        super().__init__()
        sizes = zip((inputs, *channels), channels, strict=False)
        self.layers = nn.ModuleList(nn.Conv2d(before, after, 3, stride, padding) for before, after in sizes)
        self.norms = nn.ModuleList(map(BatchNorm, channels))

    def forward(self, maps: Float[Tensor, "N C H W"], real: Bool[Tensor, "N"] | None) -> Float[Tensor, "N E h w"]:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            maps = F.elu(norm(layer(maps), real))
        return maps


class MapEncoder(nn.Module):
    """Convolutions that halve a map, and a linear layer over all that is left of it."""

    def __init__(self, inputs: int, size: int, channels: Sequence[int], outputs: int) -> None:
        super().__init__()
        self.convolutions = BatchNormedConvolutions(inputs, channels, stride=2, padding=1)
        self.linear = nn.Linear(channels[-1] * (size // 2 ** len(channels)) ** 2, outputs)

    def forward(self, maps: Float[Tensor, "N C H W"], real: Bool[Tensor, "N"] | None) -> Float[Tensor, "N D"]:
        return precisely(self.convolutions(maps, real).flatten(1), self.linear)


class ComponentDecoder(nn.Module):
    """A code at every place of a map with coordinates, and 3x3 convolutions that use up its margin."""

    places: Tensor

    def __init__(self, inputs: int, size: int, channels: Sequence[int]) -> None:
        super().__init__()
        self.convolutions = BatchNormedConvolutions(inputs + 2, channels, stride=1, padding=0)
        self.colours = nn.Conv2d(channels[-1], 3, 1)
        line = torch.linspace(-1, 1, size + 2 * len(channels))
        places = torch.stack(torch.meshgrid(line, line, indexing="xy"))
        self.register_buffer("places", places, persistent=False)

    def forward(self, codes: Float[Tensor, "N D"], real: Bool[Tensor, "N"] | None) -> Float[Tensor, "N 3 H W"]:
        everywhere = codes[:, :, None, None].expand(-1, -1, *self.places.shape[1:])
        maps = torch.cat([everywhere, self.places.expand(len(codes), -1, -1, -1)], 1)
        return precisely(self.convolutions(maps, real), self.colours).sigmoid()


class MaskPosterior(nn.Module):
    """q(z_mask_j | picture, z_mask_1 ... z_mask_j-1), by an LSTM whose first state and first input are learned."""

    def __init__(self, features: int, mask_dim: int, hidden: int) -> None:
        super().__init__()
        self.recurrent = nn.LSTMCell(mask_dim + features, hidden)
        self.predict = nn.Linear(hidden, 2 * mask_dim)
        self.first_mask = nn.Parameter(torch.zeros(mask_dim))
        self.first_hidden = nn.Parameter(torch.zeros(hidden))
        self.first_cell = nn.Parameter(torch.zeros(hidden))

    @property
    def start(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.first_mask, self.first_hidden, self.first_cell

    def forward(
        self, features: Float[Tensor, "N E"], noise: Float[Tensor, "N J D"]
    ) -> tuple[Gaussian, Float[Tensor, "N J D"]]:
        """Posteriors and samples of all components."""
        mask, hidden, cell = (value.expand(len(features), -1) for value in self.start)
        posteriors, samples = [], []
        for component in range(noise.shape[1]):
            hidden, cell = self.recurrent(torch.cat([mask, features], 1), (hidden, cell))
            posterior = Gaussian.of(precisely(hidden, self.predict), LEAST_STD)
            mask = posterior.sample(noise[:, component])
            posteriors.append(posterior)
            samples.append(mask)
        return stacked(posteriors), torch.stack(samples, 1)


class MaskPrior(nn.Module):
    """p(z_mask_j | z_mask_1 ... z_mask_j-1), by a second LSTM, which a single component has no use for."""

    def __init__(self, mask_dim: int, hidden: int, components: int) -> None:
        super().__init__()
        self.predict = nn.Linear(hidden, 2 * mask_dim)
        self.first_hidden = nn.Parameter(torch.zeros(hidden))
        if components > 1:
            self.recurrent = nn.LSTMCell(mask_dim, hidden)
            self.first_cell = nn.Parameter(torch.zeros(hidden))

    def forward(self, samples: Float[Tensor, "N J D"]) -> Gaussian:
        hidden, priors = self.first_hidden.expand(len(samples), -1), []
        cell = self.first_cell.expand_as(hidden) if samples.shape[1] > 1 else None
        for component in range(samples.shape[1]):
            if component > 0:
                hidden, cell = self.recurrent(samples[:, component - 1], (hidden, cell))
            priors.append(Gaussian.of(precisely(hidden, self.predict), LEAST_STD))
        return stacked(priors)


def stacked(parts: Sequence[Gaussian]) -> Gaussian:
    return Gaussian(torch.stack([part.mean for part in parts], 1), torch.stack([part.std for part in parts], 1))


@full_precision
def broken_stick(shares: Float[Tensor, "N I H W"]) -> Float[Tensor, "N J H W"]:
    """Every component takes its share of what those before it have left, and the last one all the rest: J = I + 1."""
    taken, left = [], torch.ones_like(shares[:, 0])
    for share in shares.unbind(1):  # no torch.cumprod, whose gradient asks on the host whether there are zeros
        taken.append(left * share)
        left = left * (1 - share)
    return torch.stack([*taken, left], 1)


class Background(nn.Module):
    """All of it. Only several components need a `mask_decoder`."""

    def __init__(
        self,
        encoder: MapEncoder,
        mask_posterior: MaskPosterior,
        mask_prior: MaskPrior,
        mask_decoder: ShuffleDecoder | None,
        component_encoder: MapEncoder,
        component_prior: nn.Module,
        painter: ComponentDecoder,
    ) -> None:
        super().__init__()
        self.encoder, self.mask_posterior, self.mask_prior = encoder, mask_posterior, mask_prior
        self.mask_decoder, self.component_encoder = mask_decoder, component_encoder
        self.component_prior, self.painter = component_prior, painter

    def forward(
        self, images: Float[Tensor, "N 3 H W"], noise: SpaceNoise, real: Bool[Tensor, "N"] | None
    ) -> Components:
        posterior, z_mask = self.mask_posterior(F.elu(self.encoder(images, real)), noise.mask.flatten(0, 1))
        prior, J = self.mask_prior(z_mask), z_mask.shape[1]
        masks = self.masks(z_mask[:, :-1], (images.shape[-2], images.shape[-1]))
        # From here on every component is a picture of its own.
        z_mask, every = z_mask.flatten(0, 1), None if real is None else real.repeat_interleave(J)
        seen = torch.cat([log_mask(masks.flatten(0, 1)[:, None]), images.repeat_interleave(J, 0)], 1)
        component = Gaussian.of(self.component_encoder(seen, every), LEAST_STD)
        expected = Gaussian.of(precisely(z_mask, self.component_prior), LEAST_STD)
        painted = self.painter(component.sample(noise.component.flatten(0, 2)), every)
        component_kl = gaussian_kl(component.mean, component.std, expected.mean, expected.std)
        return Components(
            masks=masks,
            images=painted.unflatten(0, (-1, J)),
            mask_kl=gaussian_kl(posterior.mean, posterior.std, prior.mean, prior.std).sum(1),
            component_kl=component_kl.view(-1, J).sum(1),
        )

    def masks(self, z_mask: Float[Tensor, "N I D"], size: tuple[int, int]) -> Float[Tensor, "N J H W"]:
        """Of all components, from the codes of all but the last."""
        N, others, _ = z_mask.shape
        if self.mask_decoder is None:
            return z_mask.new_ones(N, 1, *size)
        shares = widen(self.mask_decoder(z_mask.flatten(0, 1))).sigmoid()
        return broken_stick(shares.view(N, others, *size))

    def share_statistics(self, gather: Gather) -> None:
        for module in self.modules():
            if isinstance(module, BatchNorm):
                module.gather = gather


@full_precision
def log_mask(masks: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    return (masks + LEAST_MASK).log()
