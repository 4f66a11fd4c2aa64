"""From what the decoders say straight to the squared error: occlusion, composition and noise in one go."""

import torch
from torch import Tensor

from viewslots.kernels import has_triton
from viewslots.methods.ocloc.image_model import Cost, WeightedSum
from viewslots.methods.ocloc.objective import sum_over_views
from viewslots.methods.ocloc.schedule import Annealing
from viewslots.methods.ocloc.variables import Decoded, Latents, Noise
from viewslots.methods.schedules import Scalar
from viewslots.types import SceneBatch


class FusedSum(WeightedSum):
    """The paper's image model, whose training cost is one kernel a direction. Elsewhere than on a GPU, and in other
    precision than float32, it is the plain one."""

    def training_cost(
        self, decoded: Decoded, latents: Latents, batch: SceneBatch, annealing: Annealing, noise: Noise
    ) -> Cost:
        if not has_kernel(batch.image):
            return super().training_cost(decoded, latents, batch, annealing, noise)
        from viewslots.methods.ocloc.fast.likelihood_cuda import SquaredError

        scalars = (annealing.temperature_shp, annealing.softness, annealing.compactness_rate)
        numbers = torch.stack([on_device(value, batch.image) for value in (*scalars, annealing.compactness_scale)])
        parts = (decoded.objects, decoded.background, decoded.order, decoded.centre, latents.logit_prs)
        with torch.autocast(batch.image.device.type, enabled=False):
            error = SquaredError.apply(*parts, batch.image, noise.z_shp, noise.appearance, numbers)  # type: ignore[no-untyped-call]
        nll = sum_over_views(error, batch.view_mask) / (2 * self.sigma_x**2)
        return Cost(nll, torch.zeros_like(nll))


def has_kernel(image: Tensor) -> bool:
    return has_triton(image.device) and image.dtype == torch.float32


def on_device(value: Scalar, like: Tensor) -> Tensor:
    """A number is filled in there: a step that is a graph copies nothing from the host."""
    return value.float() if isinstance(value, Tensor) else like.new_full((), value, dtype=torch.float32)
