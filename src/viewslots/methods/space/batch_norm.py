"""Batch normalisation that knows padding and ranks. Paper: that of the batch of one process."""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from viewslots.methods.contract import Gather
from viewslots.methods.distributions import widen


class SharedSum(torch.autograd.Function):
    """A sum over all processes. Each of them has a loss that depends on it, so gradients are summed as well."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, gather: Gather) -> Tensor:
        ctx.gather = gather
        return gather(values[None]).sum(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.gather(gradients[0].contiguous()[None]).sum(0), None


class BatchNorm(nn.BatchNorm2d):
    """The statistics of a batch are those of its real pictures, in all processes that train the model together."""

    gather: Gather | None = None

    def forward(  # type: ignore[override]
        self, maps: Float[Tensor, "N C h w"], real: Bool[Tensor, "N"] | None
    ) -> Float[Tensor, "N C h w"]:
        """`real` None: no picture is padding."""
        if not self.training or (real is None and self.gather is None):
            return super().forward(maps)
        mean, variance = self.statistics(widen(maps), real)
        scale = self.weight[:, None, None] * (variance + self.eps).rsqrt()
        return (maps - mean) * scale + self.bias[:, None, None]

    def statistics(
        self, maps: Float[Tensor, "N C h w"], real: Bool[Tensor, "N"] | None
    ) -> tuple[Float[Tensor, "C 1 1"], Float[Tensor, "C 1 1"]]:
        """Mean and variance of the batch; the running ones follow them, as torch has it."""
        counted = torch.ones_like(maps[:, :1, :1, :1])
        if real is not None:
            counted *= real[:, None, None, None]
        count = self.total(counted.sum((0, 2, 3), keepdim=True)[0]) * maps[0, 0].numel()
        mean = self.total((maps * counted).sum((0, 2, 3))[:, None, None]) / count
        variance = self.total(((maps - mean).square() * counted).sum((0, 2, 3))[:, None, None]) / count
        with torch.no_grad():
            if self.num_batches_tracked is not None:
                self.num_batches_tracked.add_(1)
            for running, value in (
                (self.running_mean, mean),
                (self.running_var, variance * count / (count - 1).clamp(min=1)),
            ):
                assert running is not None
                running.lerp_(value.flatten().to(running.dtype), self.momentum or 0.0)
        return mean, variance

    def total(self, values: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """Over all processes."""
        if self.gather is None:
            return values
        shared: Tensor = SharedSum.apply(values, self.gather)  # type: ignore[no-untyped-call]
        return shared
