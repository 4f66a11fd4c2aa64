"""What pictures cost with some objects alone, sooner: a search asks for hundreds of choices of the same objects.

How well an object explains each pixel by itself does not depend on the others, and is computed once. The rest is done
in place, since on a CPU most of the time of a sum over pixels is that of new memory. `Canvas` is the slow twin.
"""

import functools
import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from viewslots.methods.ocloc.image_model import Canvas
from viewslots.methods.ocloc.objective import sum_over_views
from viewslots.methods.ocloc.schedule import Annealing
from viewslots.methods.ocloc.variables import Latents, Layers, objects_of
from viewslots.methods.schedules import Scalar
from viewslots.methods.umbra.image_model import LEAST_COVER, LEAST_SHARE, ShadowedMixture, shadows_of
from viewslots.types import SceneBatch

MOST_MISSED = 80.0
"""Nats of a pixel beyond its best explanation, from where on it makes no difference: exp has an end in float32."""


class ShadowedCanvas(Canvas):
    """For the likelihood of the mixture alone, without gradients. What a pixel costs beyond its best explanation by any
    object that is likely there, or by the ground without shadows, has an end: MOST_MISSED."""

    @torch.no_grad()
    def __init__(
        self, image_model: ShadowedMixture, layers: Layers, latents: Latents, batch: SceneBatch, annealing: Annealing
    ) -> None:
        super().__init__(image_model, layers, latents, batch, annealing)
        self.config, shadow = image_model.config, shadows_of(layers).sigmoid()
        self.light = 1 - self.config.darkest * shadow
        in_views = shadow.sum((3, 4)) * batch.view_mask[:, :, None]
        self.shadow_prices: Float[Tensor, "B K"] = self.config.shadow_cost * in_views.sum(1)
        errors = self.errors_of(batch.image[:, :, None], layers.appearance)
        # What is absent must not count: how many such slots are drawn depends on the other scenes of a batch.
        absent = (latents.logit_prs <= 0)[:, None, :, None, None]
        self.least: Float[Tensor, "B M H W"] = torch.minimum(
            errors.masked_fill(absent, torch.inf).amin(2), self.errors_of(batch.image, layers.background)
        )
        self.likelihoods = self.likelihood_of(errors, self.least[:, :, None])

    def likelihood_of(self, errors: Tensor, least: Tensor) -> Tensor:
        return (least - errors).clamp_(-MOST_MISSED, MOST_MISSED).exp_()

    def errors_of(self, image: Tensor, colours: Float[Tensor, "*I 3 H W"]) -> Float[Tensor, "*I H W"]:
        return (image - colours).square_().sum(-3).div_(2 * self.image_model.sigma_x**2)

    @torch.no_grad()
    def cost(
        self, scenes: Int[Tensor, "N"], slots: Int[Tensor, "N n"], present: Bool[Tensor, "N n"]
    ) -> Float[Tensor, "N"]:
        there, mask = present[:, None, :, None, None], self.batch.view_mask[scenes]

        def of_objects(values: Float[Tensor, "B M K *HW"]) -> Float[Tensor, "N M n *HW"]:
            return objects_of(values, scenes, slots)

        light = functools.reduce(torch.mul, torch.where(there, of_objects(self.light), 1.0).unbind(2))
        least, shaded = self.least[scenes], self.layers.background[scenes] * light[:, :, None]
        ground = self.likelihood_of(self.errors_of(self.batch.image[scenes], shaded), least)
        order, softness = of_objects(self.layers.order), self.annealing.softness
        bare, seen = seen_shares(of_objects(self.cover) * there, order, softness)
        taken = self.config.pixel_cost * sum_over_views(1 - bare, mask)
        explained = F.threshold(seen, LEAST_SHARE, 0.0, inplace=True).mul_(of_objects(self.likelihoods)).sum(2)
        explained.add_(F.threshold(bare, LEAST_SHARE, 0.0, inplace=True).mul_(ground)).clamp_(
            min=math.exp(-MOST_MISSED)
        ).log_()
        shadows = (self.shadow_prices[scenes[:, None], slots] * present).sum(1)
        return self.annealing.weight_costs * (taken + shadows) + sum_over_views(least - explained, mask)


def seen_shares(
    cover: Float[Tensor, "N M n H W"], order: Float[Tensor, "N M n"], softness: Scalar
) -> tuple[Float[Tensor, "N M H W"], Float[Tensor, "N M n H W"]]:
    """As `expected_shapes` has them, of what objects cover: the background's, and theirs."""
    one = torch.ones((), dtype=cover.dtype, device=cover.device)
    nearer = ((order[:, :, :, None] - order[:, :, None, :]) / softness).sigmoid()
    nearer.diagonal(dim1=2, dim2=3).zero_()
    seen, free = cover.clone(), torch.empty_like(cover)
    for j in range(cover.shape[2]):
        seen.mul_(torch.addcmul(one, cover[:, :, j, None], nearer[:, :, j, :, None, None], value=-1, out=free))
    bare = functools.reduce(torch.mul, (1 - cover).unbind(2))
    covered = 1 - bare
    overlaps = covered > LEAST_COVER
    seen.mul_(torch.where(overlaps, covered / torch.where(overlaps, seen.sum(2), 1.0), 1.0)[:, :, None])
    return bare, seen
