"""Pictures whose objects cast shadows: a mixture over layers, expected occlusion, prices on pixels and objects."""

import functools
from dataclasses import replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from viewslots.methods.distributions import full_precision, widen
from viewslots.methods.ocloc.generation import Generation
from viewslots.methods.ocloc.image_model import Canvas, Cost, ImageModel, composed, noisy
from viewslots.methods.ocloc.objective import negative_log_likelihood, sum_over_views
from viewslots.methods.ocloc.schedule import Annealing
from viewslots.methods.ocloc.variables import Decoded, Latents, Layers, Noise, Rendering
from viewslots.methods.schedules import Scalar
from viewslots.methods.umbra.config import UmbraConfig
from viewslots.types import SceneBatch

SHADOW = 4
"""Channel of the object decoder: log-odds of the shadow."""


class ShadowedMixture(ImageModel):
    """f_shp, f_apc and the shadow are one network."""

    channels = 5
    samples_shapes = False
    """Shapes are probabilities in training too: relaxed samples at temperatures above 1 hide what those say."""

    def __init__(self, config: UmbraConfig) -> None:
        super().__init__(config.sigma_x)
        self.config, self.object_price = config, config.object_cost

    def layers(self, decoded: Decoded) -> Layers:
        """An object's colour is sigmoid(2y), which has the slope of (y + 1) / 2 in the middle and stays a colour.

        Else a faint shape of an impossible colour paints as well as a whole one and costs less.
        """
        B, M, K = decoded.order.shape
        background, objects = (widen(decoded.background) + 1) / 2, widen(decoded.objects)
        logit_shp, colour, logit_shadow = torch.split(objects.view(B, M, K, *objects.shape[1:]), [1, 3, 1], 3)
        return Layers(
            background=background.view(B, M, *background.shape[1:]),
            appearance=(2 * colour).sigmoid(),
            logit_shp=logit_shp.squeeze(3),
            order=decoded.order,
            centre=decoded.centre,
            logit_shadow=logit_shadow.squeeze(3),
        )

    def overlay(self, layers: Layers, latents: Latents, logit_shp: Tensor, annealing: Annealing) -> Rendering:
        """The background, as it is answered, has the shadows of the objects on it."""
        background = shaded(layers.background, shadows_of(layers), latents.logit_prs, self.config.darkest)
        perceived = expected_shapes(logit_shp, latents.logit_prs, layers.order, annealing.softness)
        return composed(replace(layers, background=background), perceived)

    def training_cost(
        self, decoded: Decoded, latents: Latents, batch: SceneBatch, annealing: Annealing, noise: Noise
    ) -> Cost:
        return self.cost(noisy(self.layers(decoded), annealing, noise), latents, batch, annealing)

    def drawn(
        self, decoded: Decoded, latents: Latents, batch: SceneBatch, annealing: Annealing
    ) -> tuple[Rendering, Cost]:
        """What the decoders say as it is shown, and its cost. Gradients pass through the cost alone: a fast twin's
        rendering has none."""
        layers = self.layers(decoded)
        shown = self.show(layers, latents, annealing)
        return shown, self.cost_of(shown, layers, latents, batch, annealing)

    def cost(self, layers: Layers, latents: Latents, batch: SceneBatch, annealing: Annealing) -> Cost:
        return self.cost_of(self.show(layers, latents, annealing), layers, latents, batch, annealing)

    def cost_of(
        self, shown: Rendering, layers: Layers, latents: Latents, batch: SceneBatch, annealing: Annealing
    ) -> Cost:
        """The same, of layers that are shown already."""
        return Cost(self.nll(shown, batch, annealing), self.covering(shown, layers, latents, batch))

    def nll(self, shown: Rendering, batch: SceneBatch, annealing: Annealing) -> Float[Tensor, "B"]:
        """L_nll, between the likelihood of the weighted sum and that of the mixture."""
        image, mask, share = batch.image, batch.view_mask, self.config.mixture * annealing.weight_mixture
        mixed = mixture_nll(image, shown.perceived, shown.background, shown.appearance, mask, self.sigma_x)
        if not isinstance(share, Tensor) and share == 1:
            return mixed
        return torch.lerp(negative_log_likelihood(image, shown.reconstruction, mask, self.sigma_x), mixed, share)

    def covering(self, shown: Rendering, layers: Layers, latents: Latents, batch: SceneBatch) -> Float[Tensor, "B"]:
        """Nats for all pixels that objects take from the background, and for their shadows.

        What other objects hide of a shape costs nothing: else it would be cut off, and no order be needed. A shadow
        costs wherever it lies.
        """
        shadows = shadows_of(layers).sigmoid() * latents.z_prs[:, None, :, None, None]
        prices = self.config.pixel_cost * (1 - shown.perceived[:, :, 0]) + self.config.shadow_cost * shadows.sum(2)
        return sum_over_views(prices, batch.view_mask)

    def canvas(self, layers: Layers, latents: Latents, batch: SceneBatch, annealing: Annealing) -> Canvas:
        if self.config.mixture * annealing.weight_mixture < 1:
            return super().canvas(layers, latents, batch, annealing)
        from viewslots.methods.umbra.canvas import ShadowedCanvas

        return ShadowedCanvas(self, layers, latents, batch, annealing)

    def fast(self) -> ImageModel:
        from viewslots.methods.umbra.fast.mixture import FusedMixture

        return FusedMixture(self.config)

    def start(self, generation: Generation) -> None:
        """Objects begin with hardly any shadow, even all over the picture, until there is something to learn."""
        generation.start_channel(SHADOW, self.config.shadow_logit)
        with torch.no_grad():
            generation.last_layer().weight.chunk(self.channels)[SHADOW].zero_()


def shadows_of(layers: Layers) -> Float[Tensor, "B M K H W"]:
    assert layers.logit_shadow is not None, "layers of another image model"
    return layers.logit_shadow


@full_precision
def shaded(
    background: Float[Tensor, "B M 3 H W"],
    logit_shadow: Float[Tensor, "B M K H W"],
    logit_prs: Float[Tensor, "B K"],
    darkest: float,
) -> Float[Tensor, "B M 3 H W"]:
    """The background times prod_k (1 - darkest z_prs shadow): shadows fall on it alone, in no order."""
    dark = darkest * logit_shadow.sigmoid() * logit_prs.sigmoid()[:, None, :, None, None]
    light = functools.reduce(torch.mul, (1 - dark).unbind(2))  # as in perceived_shapes, no torch.prod
    return background * light[:, :, None]


LEAST_COVER = 1e-3
"""Of a pixel. Below it, objects overlap so little that their shares add up to what they cover."""


@full_precision
def expected_shapes(
    logit_shp: Float[Tensor, "B M K H W"],
    logit_prs: Float[Tensor, "B K"],
    order: Float[Tensor, "B M K"],
    softness: Scalar,
) -> Float[Tensor, "B M L H W"]:
    """What the paper's perceived shapes s are on average, if z_shp are drawn: background first.

    s_0 = prod_k (1 - c_k) with c = z_prs sigmoid(logit_shp). An object is seen where it is and nothing nearer is: s_k
    is c_k prod_j (1 - c_j P(j nearer than k)), where the paper's softmax of two orders is P = sigmoid of their
    difference / lambda. Exact for two objects at a pixel, whose presence is drawn too. Of more, shares are scaled to
    sum to 1 - s_0: near the truth where their order is clear, else too much goes to the nearest. Probabilities in the
    paper's own formula would let the faint edge of a near object take a whole pixel of one behind it, and order would
    have to be vague to avoid that.
    """
    cover = logit_shp.sigmoid() * logit_prs.sigmoid()[:, None, :, None, None]
    covers = cover.unbind(2)
    nearer = ((order[:, :, :, None] - order[:, :, None, :]) / softness).sigmoid()  # [..., j, k]
    nearer = nearer.masked_fill(torch.eye(len(covers), dtype=torch.bool, device=order.device), 0.0)
    # Plain products over K, since the gradient of torch.prod asks on the host whether there are zeros.
    hidden = (1 - one[:, :, None] * nearer[:, :, j, :, None, None] for j, one in enumerate(covers))
    seen = cover * functools.reduce(torch.mul, hidden)
    background = functools.reduce(torch.mul, (1 - cover).unbind(2))
    covered = 1 - background
    overlaps = covered > LEAST_COVER
    scale = torch.where(overlaps, covered / torch.where(overlaps, seen.sum(2), 1.0), 1.0)
    return torch.cat([background[:, :, None], seen * scale[:, :, None]], 2)


LEAST_SHARE = 1e-8
"""A layer with less of a pixel takes no part in it: it is not seen there, and must not explain it."""


@full_precision
def mixture_nll(
    image: Float[Tensor, "B M 3 H W"],
    perceived: Float[Tensor, "B M L H W"],
    background: Float[Tensor, "B M 3 H W"],
    appearance: Float[Tensor, "B M K 3 H W"],
    view_mask: Bool[Tensor, "B M"],
    sigma_x: float,
) -> Float[Tensor, "B"]:
    """-log sum_k s_k N(x; a_k, sigma_x^2), pixel by pixel, without the constant of the normal distribution.

    A layer that shares a pixel must paint it right by itself. Under the weighted sum, two wrong ones may add up to the
    right colour, and their edge may lie anywhere.
    """
    errors = (image[:, :, None] - torch.cat([background[:, :, None], appearance], 2)).square().sum(3)
    seen = perceived > LEAST_SHARE
    log_share = torch.where(seen, perceived, 1.0).log()
    scores = torch.where(seen, log_share - errors / (2 * sigma_x**2), -torch.inf)
    return sum_over_views(-scores.logsumexp(2), view_mask)
