"""The loss of a stage: the likelihood of a mixture of layers, the KLs, and a guide for the background."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.methods.distributions import bernoulli_kl, beta_kl, full_precision, normal_kl
from viewslots.methods.gmioo.rendering import scaled_error
from viewslots.methods.gmioo.variables import Normal, Stage

MASK_EPSILON = 1e-5
"""Added to masks before their logarithm is taken."""


@full_precision
def mixture_nll(masks: Float[Tensor, "N L H W"], scaled_errors: Float[Tensor, "N L H W"]) -> Float[Tensor, "N"]:
    """-sum over pixels of log sum over layers of m exp(-error). The constant of the normal density is left out."""
    return -((masks + MASK_EPSILON).log() - scaled_errors).logsumexp(1).sum((1, 2))


@full_precision
def stick_breaking(
    tau: Float[Tensor, "N K 2"],
) -> tuple[Float[Tensor, "N K"], Float[Tensor, "N K"]]:
    """E log prod_{j<=k} nu_j, and a lower bound of E log(1 - prod_{j<=k} nu_j), where nu ~ Beta(tau).

    1 - prod nu is the sum over m <= k of (1 - nu_m) prod_{j<m} nu_j, the stick that is broken off at m. By Jensen's
    inequality, with the best multinomial over m, the expected logarithm of the sum is at least log sum_m exp E log of
    its terms (Doshi-Velez et al., 2009).
    """
    kept, broken = tau.digamma().unbind(-1)
    total = tau.sum(-1).digamma()
    present = (kept - total).cumsum(-1)
    pieces = present + broken - kept
    K = tau.shape[-2]
    earlier = torch.ones(K, K, dtype=torch.bool, device=tau.device).tril()
    return present, pieces[:, None].masked_fill(~earlier, -torch.inf).logsumexp(-1)


@full_precision
def presence_kl(logit_zeta: Float[Tensor, "N K"], tau: Float[Tensor, "N K 2"]) -> Float[Tensor, "N"]:
    """E KL(Ber(zeta_k) || Ber(prod_{j<=k} nu_j)), bounded from above, nearest object first; in float64 as `beta_kl`."""
    return bernoulli_kl(logit_zeta.double(), *stick_breaking(tau.double())).sum(1).to(tau.dtype)


@full_precision
def box_kl(
    mu: Float[Tensor, "N K 4"],
    log_sigma: Float[Tensor, "N K 4"],
    scale_mean: float,
    scale_std: float,
    shift_std: float,
) -> Float[Tensor, "N"]:
    """In units of the prior's deviations, from its mean, the prior is standard normal."""
    scale = normal_kl((mu[..., :2] - scale_mean) / scale_std, log_sigma[..., :2] - math.log(scale_std))
    shift = normal_kl(mu[..., 2:] / shift_std, log_sigma[..., 2:] - math.log(shift_std))
    return (scale + shift).sum(1)


def standard_kl(q: Normal) -> Float[Tensor, "*N"]:
    return normal_kl(q.mu, q.log_sigma)


def stage_terms(
    stage: Stage,
    image: Float[Tensor, "N 3 H W"],
    *,
    sigma_x: float,
    alpha: float,
    scale_mean: float,
    scale_std: float,
    shift_std: float,
) -> dict[str, Float[Tensor, "N"]]:
    """All parts of the loss, unweighted."""
    objects = stage.objects
    behind = scaled_error(image, stage.background.picture, sigma_x)
    return {
        "nll": mixture_nll(stage.masks, torch.cat([behind[:, None], stage.layers.scaled_error], 1)),
        "background": standard_kl(stage.background.code),
        "box": box_kl(objects.box.mu, objects.box.log_sigma, scale_mean, scale_std, shift_std),
        "code": standard_kl(objects.code).sum(1),
        "nu": beta_kl(objects.tau, alpha).sum(1),
        "presence": presence_kl(objects.logit_zeta, objects.tau),
        "guide": behind.sum((1, 2)),
    }
