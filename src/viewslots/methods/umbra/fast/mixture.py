"""From what the decoders say straight to the cost: occlusion, shadows, noise, likelihood and prices in one go."""

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.methods.distributions import widen
from viewslots.methods.ocloc.fast.likelihood import has_kernel, on_device
from viewslots.methods.ocloc.image_model import Cost
from viewslots.methods.ocloc.objective import sum_over_views
from viewslots.methods.ocloc.schedule import Annealing
from viewslots.methods.ocloc.variables import Decoded, Latents, Noise, Rendering
from viewslots.methods.umbra.image_model import ShadowedMixture
from viewslots.types import SceneBatch


class FusedMixture(ShadowedMixture):
    """Umbra's image model, whose training cost and looks are one kernel a direction. Elsewhere than on a GPU, and in
    other precision than float32, it is the plain one."""

    def training_cost(
        self, decoded: Decoded, latents: Latents, batch: SceneBatch, annealing: Annealing, noise: Noise
    ) -> Cost:
        if not has_kernel(batch.image):
            return super().training_cost(decoded, latents, batch, annealing, noise)
        (sums,) = self.by_kernel(decoded, latents, batch.image, annealing, noise.appearance, drawn=False)
        return cost_of_views(sums, batch)

    def drawn(
        self, decoded: Decoded, latents: Latents, batch: SceneBatch, annealing: Annealing
    ) -> tuple[Rendering, Cost]:
        if not has_kernel(batch.image):
            return super().drawn(decoded, latents, batch, annealing)
        sums, reconstruction, perceived, appearance, background = self.by_kernel(
            decoded, latents, batch.image, annealing, None, drawn=True
        )
        logit_shp = widen(decoded.objects[:, 0]).view(*decoded.order.shape, *batch.image.shape[-2:])
        shown = Rendering(reconstruction, perceived, logit_shp, decoded.order, appearance, background)
        return shown, cost_of_views(sums, batch)

    def by_kernel(
        self,
        decoded: Decoded,
        latents: Latents,
        image: Float[Tensor, "B M 3 H W"],
        annealing: Annealing,
        noise: Float[Tensor, "B M K 3 H W"] | None,
        drawn: bool,
    ) -> tuple[Tensor, ...]:
        """L_nll and prices of every view [2, B, M]; if `drawn`, what is shown as well."""
        from viewslots.methods.umbra.fast.mixture_cuda import ShadowedCost

        config = self.config
        constants = (config.darkest, 1 / (2 * self.sigma_x**2), config.pixel_cost, config.shadow_cost)
        share = config.mixture * annealing.weight_mixture
        scalars = (annealing.softness, share, annealing.compactness_rate, annealing.compactness_scale)
        numbers = torch.stack([on_device(value, image) for value in scalars])
        small = (widen(value) for value in (decoded.order, decoded.centre, latents.logit_prs))
        with torch.autocast(image.device.type, enabled=False):
            return ShadowedCost.apply(  # type: ignore[no-untyped-call]
                constants, drawn, decoded.objects, decoded.background, *small, image, noise, numbers
            )


def cost_of_views(sums: Float[Tensor, "2 B M"], batch: SceneBatch) -> Cost:
    nll, prices = (sum_over_views(of_views, batch.view_mask) for of_views in sums.unbind())
    return Cost(nll, prices)
