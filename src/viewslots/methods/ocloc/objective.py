"""The loss: appendix 'Details of Loss Function', and NVIL for the background index."""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from viewslots.methods.contract import Gather
from viewslots.methods.distributions import beta_kl, full_precision, normal_kl, presence_kl, widen
from viewslots.methods.ocloc.config import NvilConfig
from viewslots.methods.ocloc.networks import BaselineNetwork
from viewslots.methods.ocloc.schedule import Annealing
from viewslots.methods.ocloc.variables import ElboTerms, Posterior


def sum_over_views(values: Float[Tensor, "B M *rest"], view_mask: Bool[Tensor, "B M"]) -> Float[Tensor, "B"]:
    """Everything but the scenes summed, over the real views only."""
    return torch.where(view_mask, values.flatten(2).sum(2) if values.dim() > 2 else values, 0.0).sum(1)


@full_precision
def negative_log_likelihood(
    image: Float[Tensor, "B M 3 H W"],
    reconstruction: Float[Tensor, "B M 3 H W"],
    view_mask: Bool[Tensor, "B M"],
    sigma_x: float,
) -> Float[Tensor, "B"]:
    """L_nll, for one sample of the latents."""
    return sum_over_views((image - reconstruction).square(), view_mask) / (2 * sigma_x**2)


def likelihood_constant(image: Float[Tensor, "B M C H W"], view_mask: Bool[Tensor, "B M"], sigma_x: float) -> Tensor:
    """(M N C / 2) log(2 pi sigma_x^2)."""
    pixels = image[0, 0].numel()
    return view_mask.sum(1).float() * (pixels / 2 * math.log(2 * math.pi * sigma_x**2))


def divergences(posterior: Posterior, view_mask: Bool[Tensor, "B M"], alpha: float) -> dict[str, Float[Tensor, "B"]]:
    """L_view, L_attr (with its background part), L_rho and L_prs; alpha / K uses the K of this call."""
    K = posterior.logit_kappa.shape[1]
    attr_background = normal_kl(posterior.mu_bck, posterior.log_sigma_bck)
    return {
        "view": sum_over_views(normal_kl(posterior.mu_view, posterior.log_sigma_view), view_mask),
        "attr": attr_background + normal_kl(posterior.mu_attr, posterior.log_sigma_attr).sum(1),
        "attr_background": attr_background,
        "rho": beta_kl(posterior.tau, alpha / K).sum(1),
        "prs": presence_kl(posterior.logit_kappa, posterior.tau).sum(1),
    }


STATISTICS = ("mean", "variance", "weight")


class Nvil(nn.Module):
    """Neural variational inference and learning (Mnih and Gregor, 2014) for g_sel, which a sample cuts off from L.

    The learning signal is -L_nll - b(x), centred by a running mean and divided by max(running deviation, 1). The
    statistics are kept for one view and rescaled, so that M may change. They follow the data in training mode only.
    They start at zero; `correct_start` divides that start out, so that the first steps are centred as well.
    Paper: no details. L_attr, L_rho and L_prs depend on k* too; the authors' signal leaves them out, as does this one.
    """

    mean: Tensor
    variance: Tensor
    weight: Tensor
    gather: Gather | None = None
    """Joins a [B] of this process with those of all others that train the same model, whose statistics are shared."""

    def __init__(self, network: BaselineNetwork, config: NvilConfig) -> None:
        super().__init__()
        self.network, self.config = network, config
        for name in STATISTICS:
            self.register_buffer(name, torch.zeros(()))

    def restart(self) -> None:
        for name in STATISTICS:
            self.get_buffer(name).zero_()

    def forward(
        self,
        image: Float[Tensor, "B M 3 H W"],
        view_mask: Bool[Tensor, "B M"],
        posterior: Posterior,
        nll: Float[Tensor, "B"],
    ) -> dict[str, Float[Tensor, "B"]]:
        """-signal log pi(k*) for g_sel and -signal b(x) for the network b."""
        return self.terms(self.baseline(image, view_mask), view_mask, posterior, nll)

    def baseline(self, image: Float[Tensor, "B M 3 H W"], view_mask: Bool[Tensor, "B M"]) -> Float[Tensor, "B"]:
        """b(x), summed over the views."""
        b = widen(self.network(2 * image.flatten(0, 1) - 1)).view(view_mask.shape)
        return sum_over_views(b, view_mask)

    def terms(
        self, b: Float[Tensor, "B"], view_mask: Bool[Tensor, "B M"], posterior: Posterior, nll: Float[Tensor, "B"]
    ) -> dict[str, Float[Tensor, "B"]]:
        views = view_mask.sum(1)
        signal = (-nll - b).detach()
        if self.training:
            self.track(signal, views)
        signal = self.standardise(signal, views)
        log_pi = posterior.log_pi.gather(1, posterior.background_index[:, None]).squeeze(1)
        return {"policy": -signal * log_pi, "baseline": -signal * b}

    @torch.no_grad()
    def track(self, signal: Float[Tensor, "B"], views: Tensor) -> None:
        """Update the running mean and variance of the signal a view.

        Scenes without views (padding) do not count, nor do signals that are not finite: one bad step must not spoil the
        statistics for good.
        """
        if self.gather is not None:
            signal, views = self.gather(signal), self.gather(views)
        real = (views > 0) & signal.isfinite()
        count = real.sum().clamp(min=1)
        single = torch.where(real, signal / views.clamp(min=1), 0.0)
        mean = single.sum() / count
        variance = torch.where(real, (single - mean).square(), 0.0).sum() / count
        for running, value in ((self.mean, mean), (self.variance, variance), (self.weight, torch.ones_like(mean))):
            updated = torch.lerp(running, value, 1 - self.config.momentum)
            running.copy_(torch.where(real.any(), updated, running))

    def standardise(self, signal: Float[Tensor, "B"], views: Tensor) -> Float[Tensor, "B"]:
        """Centre and scale by the running statistics."""
        weight = torch.where(self.weight > 0, self.weight, 1.0) if self.config.correct_start else 1.0
        centred = signal - views * (self.mean / weight)
        if not self.config.normalise:
            return centred
        return centred / (views * (self.variance / weight).sqrt()).clamp(min=1.0)


def weighted_loss(terms: ElboTerms, annealing: Annealing) -> Float[Tensor, "B"]:
    """What is minimised: L with the weights of the schedule, the two NVIL terms, and a model's own costs."""
    return (
        terms.constant
        + terms.nll
        + annealing.weight_view * terms.view
        + annealing.weight_attr * (terms.attr - terms.attr_background)
        + annealing.weight_bck * terms.attr_background
        + annealing.weight_rho * terms.rho
        + annealing.weight_prs * terms.prs
        + terms.policy
        + terms.baseline
        + terms.costs
    )
