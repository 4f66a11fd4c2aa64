"""The foreground: which cells hold an object, where it is, and what it looks like."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from viewslots.methods.distributions import relaxed_bernoulli_logit, widen
from viewslots.methods.schedules import Scalar
from viewslots.methods.space.config import Convolution
from viewslots.methods.space.layers import ShuffleDecoder, convolutions, normalised, precisely
from viewslots.methods.space.variables import CellPosterior, Cells, Gaussian, SpaceNoise
from viewslots.methods.spatial import crop

PRESENCE_BOUND = 8.8
"""Log-odds of presence stay within this: probabilities within 0.00015 and 0.99985."""
LEAST_STD = 1e-15


class CellEncoder(nn.Module):
    """Features of every cell, exchanged with the cells beside it, and what they say of its object."""

    def __init__(self, stages: Sequence[Convolution], lateral_layers: int) -> None:
        super().__init__()
        *_, channels, groups = stages[-1]
        self.features = convolutions(3, stages)
        self.lateral = convolutions(channels, ((3, 1, channels, groups),) * lateral_layers)
        self.joined = convolutions(2 * channels, ((3, 1, channels, groups),))
        self.heads = nn.Conv2d(channels, 1 + 2 * 1 + 2 * 2 + 2 * 2, 1)

    def forward(self, images: Float[Tensor, "N 3 H W"]) -> CellPosterior:
        features = self.features(images)
        return self.posterior(self.joined(torch.cat([features, self.lateral(features)], 1)))

    def posterior(self, features: Float[Tensor, "N C G G"]) -> CellPosterior:
        """In full precision: half precision would move objects by a visible part of a pixel."""
        heads = precisely(features, self.heads).flatten(2).mT
        presence, depth, scale, shift = torch.split(heads, [1, 2, 4, 4], -1)
        return CellPosterior(
            presence_logit=PRESENCE_BOUND * presence.squeeze(-1).tanh(),
            depth=Gaussian.of(depth, LEAST_STD),
            scale=Gaussian.of(scale, LEAST_STD),
            shift=Gaussian.of(shift, LEAST_STD),
        )


def located(posterior: CellPosterior, noise: SpaceNoise, temperature: Scalar) -> Cells:
    """Samples, in the coordinates of the picture."""
    shift = posterior.shift.sample(noise.shift.flatten(0, 1))
    return Cells(
        presence=relaxed_bernoulli_logit(posterior.presence_logit, noise.presence.flatten(0, 1), temperature).sigmoid(),
        depth=posterior.depth.sample(noise.depth.flatten(0, 1)).squeeze(-1),
        scale=posterior.scale.sample(noise.scale.flatten(0, 1)).sigmoid(),
        centre=centres(shift),
    )


def centres(shift: Float[Tensor, "N K 2"]) -> Float[Tensor, "N K 2"]:
    """An object lies up to one cell from the middle of its own: 2 / G (index + 0.5 + tanh(shift)) - 1."""
    grid = round(shift.shape[1] ** 0.5)
    line = torch.arange(grid, device=shift.device, dtype=shift.dtype) + 0.5
    middles = torch.stack(torch.meshgrid(line, line, indexing="xy"), -1).flatten(0, 1)
    return 2 / grid * (middles + shift.tanh()) - 1


class GlimpseEncoder(nn.Module):
    """From what a cell sees to what its object looks like."""

    def __init__(self, stages: Sequence[Convolution], last_map: int, channels: int, groups: int, what_dim: int) -> None:
        super().__init__()
        self.convolutions = convolutions(3, stages)
        whole = nn.Conv2d(stages[-1][2], channels, last_map)
        self.whole = nn.Sequential(*normalised(whole, channels, groups))
        self.what = nn.Linear(channels, 2 * what_dim)

    def forward(self, glimpses: Float[Tensor, "NK 3 g g"]) -> Gaussian:
        features = self.whole(self.convolutions(glimpses)).flatten(1)
        return Gaussian.of(precisely(features, self.what), LEAST_STD)


class Foreground(nn.Module):
    """All of it but the rendering."""

    def __init__(self, cells: CellEncoder, encoder: GlimpseEncoder, decoder: ShuffleDecoder, glimpse_size: int) -> None:
        super().__init__()
        self.cells, self.encoder, self.decoder, self.glimpse_size = cells, encoder, decoder, glimpse_size

    def look(self, images: Float[Tensor, "N 3 H W"], cells: Cells) -> Gaussian:
        """Posterior of `what` [N, K, D], from the glimpses of all cells."""
        K = cells.presence.shape[1]
        glimpses = crop(
            images.repeat_interleave(K, 0), cells.scale.flatten(0, 1), cells.centre.flatten(0, 1), self.glimpse_size
        )
        what = self.encoder(glimpses)
        return Gaussian(what.mean.unflatten(0, (-1, K)), what.std.unflatten(0, (-1, K)))

    def paint(self, what: Float[Tensor, "N K D"]) -> Float[Tensor, "N K 4 g g"]:
        """Colours and alpha of every object, in its glimpse."""
        painted = widen(self.decoder(what.flatten(0, 1))).sigmoid()
        return painted.view(*what.shape[:2], *painted.shape[1:])
