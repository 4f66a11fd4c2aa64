"""The cost of one iteration, and what the refinement network is told of it.

Gradients of the reconstruction cost with respect to colours and masks have closed forms, and so has the way from the
latent to the posterior. Between them lie decoder and projector, which is the one place where a pass asks autograd.
Gradients and likelihoods are normalised, and training does not look through them: the network is told them as numbers.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.methods.distributions import full_precision

MASK_EPSILON = 1e-6
"""Added to every mask, so that no pixel is impossible."""
NORM_EPSILON = 1e-5
"""Added to what is divided by: spreads, and what other slots leave of a pixel."""


@full_precision
def sample(
    posterior: Float[Tensor, "*scenes L P"], noise: Float[Tensor, "*scenes L D"]
) -> Float[Tensor, "*scenes L D"]:
    """The posterior holds means and then logarithms of variances."""
    mean, log_variance = posterior.chunk(2, -1)
    return mean + (log_variance / 2).exp() * noise


@full_precision
def sampled_kl(
    posterior: Float[Tensor, "B L P"],
    prior: Float[Tensor, "B L P"],
    noise: Float[Tensor, "B L D"],
    latent: Float[Tensor, "B L D"],
) -> Float[Tensor, "B"]:
    """log q(z) - log p(z) at the one sample z that `noise` made of the posterior; over all slots and dimensions."""
    (_, log_variance), (mean_p, log_variance_p) = posterior.chunk(2, -1), prior.chunk(2, -1)
    own = log_variance + noise.square()
    given = log_variance_p + (latent - mean_p).square() * (-log_variance_p).exp()
    return (given - own).sum((1, 2)) / 2


@dataclass(frozen=True)
class Comparison:
    """What slots show of one view, beside the picture."""

    colour: Float[Tensor, "B L 3 H W"]
    logit: Float[Tensor, "B L 1 H W"]
    mask: Float[Tensor, "B L 1 H W"]
    log_density: Float[Tensor, "B L 3 H W"]
    """Of the picture's colour, channel by channel, if the slot were all there is."""
    log_mixture: Float[Tensor, "B 3 H W"]
    """The same with all slots, as far as their masks reach: a mixture in every channel by itself."""

    @property
    def nll(self) -> Float[Tensor, "B"]:
        return -self.log_mixture.sum((1, 2, 3))


@full_precision
def compare(layers: Float[Tensor, "B L 4 H W"], image: Float[Tensor, "B 3 H W"], sigma: float) -> Comparison:
    colour, logit = layers[:, :, :3], layers[:, :, 3:]
    mask = logit.softmax(1)
    constant = math.log(sigma) + math.log(2 * math.pi) / 2
    log_density = (image[:, None] - colour).square() * (-0.5 / sigma**2) - constant
    log_mixture = (log_density + (mask + MASK_EPSILON).log()).logsumexp(1)
    return Comparison(colour, logit, mask, log_density, log_mixture)


@dataclass(frozen=True)
class Gradients:
    """Of the reconstruction cost of a scene."""

    colour: Float[Tensor, "B L 3 H W"]
    mask: Float[Tensor, "B L 1 H W"]
    logit: Float[Tensor, "B L 1 H W"]

    @property
    def layers(self) -> Float[Tensor, "B L 4 H W"]:
        """With respect to what the decoder answers."""
        return torch.cat([self.colour, self.logit], 2)


@torch.no_grad()
def gradients(seen: Comparison, image: Float[Tensor, "B 3 H W"], sigma: float) -> Gradients:
    """With s = (m + eps) N / mixture, the share of a slot in a channel of a pixel: -s (x - colour) / sigma^2, and
    -s / (m + eps) summed over channels; through the softmax the latter becomes m (g - sum of m g)."""
    relative = (seen.log_density - seen.log_mixture[:, None]).exp()
    colour = relative * (seen.mask + MASK_EPSILON) * (seen.colour - image[:, None]) / sigma**2
    mask = -relative.sum(2, keepdim=True)
    logit = seen.mask * (mask - (seen.mask * mask).sum(1, keepdim=True))
    return Gradients(colour, mask, logit)


def latent_gradient(
    latent: Float[Tensor, "B L D"],
    layers: Float[Tensor, "B L 4 H W"],
    to_layers: Float[Tensor, "B L 4 H W"],
    keep: bool,
) -> Float[Tensor, "B L D"]:
    """Of the reconstruction cost. `keep`: training will go back from the layers to the latent once more."""
    with torch.autocast(layers.device.type, enabled=False):
        (found,) = torch.autograd.grad(layers, latent, to_layers.to(layers.dtype), retain_graph=keep)
    return found


@torch.no_grad()
@full_precision
def posterior_gradient(
    posterior: Float[Tensor, "B L P"],
    prior: Float[Tensor, "B L P"],
    latent: Float[Tensor, "B L D"],
    to_latent: Float[Tensor, "B L D"],
    kl_weight: float,
) -> Float[Tensor, "B L P"]:
    """Of cost and KL, from that of the cost with respect to the sample z. With g = the latter + w (z - mean_p) /
    variance_p: g for the mean, and (g (z - mean) - w) / 2 for the logarithm of the variance."""
    # Paper: the prior is held fixed, also before the first refinement, where it equals the posterior.
    (mean, _), (mean_p, log_variance_p) = posterior.chunk(2, -1), prior.chunk(2, -1)
    to_mean = torch.addcmul(to_latent, latent - mean_p, (-log_variance_p).exp(), value=kl_weight)
    return torch.cat([to_mean, (to_mean * (latent - mean) - kl_weight) / 2], -1)


def normalised(values: Float[Tensor, "B L *rest"], first: int = 2) -> Float[Tensor, "B L *rest"]:
    """Over all axes from the `first` on: of every scene and slot by itself."""
    axes = tuple(range(first, values.dim()))
    # Paper: silent about n or n - 1.
    variance, mean = torch.var_mean(values, axes, correction=0, keepdim=True)
    return (values - mean) / (variance.sqrt() + NORM_EPSILON)


@torch.no_grad()
def likelihoods(seen: Comparison) -> tuple[Float[Tensor, "B 1 1 H W"], Float[Tensor, "B L 1 H W"]]:
    """Of a pixel by all slots, and by all but one."""
    # Paper: silent about what a slot contributes; the mixture is one a channel, the contribution here of all three.
    whole = seen.log_mixture.sum(1, keepdim=True).exp()[:, None]
    own = seen.mask * seen.log_density.sum(2, keepdim=True).exp()
    return whole, (whole - own) / (1 - seen.mask + NORM_EPSILON)


def image_inputs(
    seen: Comparison, gradient: Gradients, image: Float[Tensor, "B 3 H W"], grid: Float[Tensor, "2 H W"]
) -> Float[Tensor, "B L 17 H W"]:
    """Of every slot: picture, own colours, mask and its logit; gradients of colours and of the mask; share of a pixel
    by colour alone; likelihood with all slots, and without this one; coordinates."""
    whole, others = likelihoods(seen)
    everywhere = (len(image), seen.mask.shape[1], -1, -1, -1)
    alone = normalised(torch.cat([gradient.mask, whole.expand(everywhere), others], 2), 3)  # each channel by itself
    parts = [
        image[:, None].expand(everywhere),
        seen.colour,
        seen.mask,
        seen.logit,
        normalised(gradient.colour),
        alone[:, :, :1],
        seen.log_density.sum(2, keepdim=True).softmax(1),
        alone[:, :, 1:],
        grid.to(image.dtype).expand(everywhere),
    ]
    return torch.cat(parts, 2)


def vector_inputs(posterior: Float[Tensor, "B L P"], gradient: Float[Tensor, "B L P"]) -> Float[Tensor, "B L V"]:
    """Means and logarithms of variances, and their normalised gradients."""
    return torch.cat([posterior, normalised(gradient)], -1)
