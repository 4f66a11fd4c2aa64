"""From what the decoders say straight to the squared error: occlusion, composition and noise in one go."""

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.methods.distributions import relaxed_bernoulli_logit, widen
from viewslots.methods.ocloc.compositing import compactness_noise, composite, perceived_shapes
from viewslots.methods.ocloc.image_model import Cost, WeightedSum
from viewslots.methods.ocloc.objective import sum_over_views
from viewslots.methods.ocloc.schedule import Annealing
from viewslots.methods.ocloc.variables import Decoded, Latents, Noise
from viewslots.methods.schedules import Scalar
from viewslots.types import SceneBatch


class FusedSum(WeightedSum):
    """The paper's image model, whose training cost goes straight from the decoders to the squared error."""

    def training_cost(
        self, decoded: Decoded, latents: Latents, batch: SceneBatch, annealing: Annealing, noise: Noise
    ) -> Cost:
        with torch.autocast(batch.image.device.type, enabled=False):
            error = squared_error(decoded, latents.logit_prs, batch.image, annealing, noise)
        nll = sum_over_views(error, batch.view_mask) / (2 * self.sigma_x**2)
        return Cost(nll, torch.zeros_like(nll))


def squared_error(
    decoded: Decoded,
    logit_prs: Float[Tensor, "B K"],
    image: Float[Tensor, "B M 3 H W"],
    annealing: Annealing,
    noise: Noise,
) -> Float[Tensor, "B M"]:
    """Sum over pixels and channels of (x - mean)^2, as WeightedSum and negative_log_likelihood have it."""
    if image.is_cuda and image.dtype == torch.float32:
        from viewslots.methods.ocloc.fast.likelihood_cuda import SquaredError

        scalars = (annealing.temperature_shp, annealing.softness, annealing.compactness_rate)
        numbers = torch.stack([on_device(value, image) for value in (*scalars, annealing.compactness_scale)])
        parts = (decoded.objects, decoded.background, decoded.order, decoded.centre, logit_prs)
        return SquaredError.apply(*parts, image, noise.z_shp, noise.appearance, numbers)  # type: ignore[no-untyped-call]
    return plain_squared_error(decoded, logit_prs, image, annealing, noise)


def on_device(value: Scalar, like: Tensor) -> Tensor:
    """A number is filled in there: a step that is a graph copies nothing from the host."""
    return value.float() if isinstance(value, Tensor) else like.new_full((), value, dtype=torch.float32)


def plain_squared_error(
    decoded: Decoded, logit_prs: Tensor, image: Tensor, annealing: Annealing, noise: Noise
) -> Tensor:
    """The oracle of the kernel, and the code of every other device: the steps of WeightedSum."""
    shape = noise.z_shp.shape
    logit, colour = torch.split(widen(decoded.objects), [1, 3], 1)
    background = (widen(decoded.background).view_as(image) + 1) / 2
    relaxed = relaxed_bernoulli_logit(logit.reshape(shape), noise.z_shp, annealing.temperature_shp)
    appearance = (colour.reshape(noise.appearance.shape) + 1) / 2 + compactness_noise(
        decoded.centre, noise.appearance, annealing.compactness_rate, annealing.compactness_scale
    )
    perceived = perceived_shapes(relaxed, logit_prs, decoded.order, annealing.softness)
    return (image - composite(perceived, background, appearance)).square().flatten(2).sum(2)
