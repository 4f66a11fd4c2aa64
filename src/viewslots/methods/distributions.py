"""Closed-form Kullback-Leibler divergences and relaxed Bernoulli samples, always in full precision."""

import functools
import math
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from viewslots.methods.schedules import Scalar

P = ParamSpec("P")
R = TypeVar("R")


def widen(value: Tensor) -> Tensor:
    """A half-precision tensor as float32; anything else as it is (float64 stays, which the tests use)."""
    return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value


def widen_any(value: object) -> object:
    return widen(value) if isinstance(value, Tensor) else value


def full_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Run `function` outside autocast, on tensors of at least float32. The first positional argument must be one."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        tensor = args[0]
        assert isinstance(tensor, Tensor)
        with torch.autocast(device_type=tensor.device.type, enabled=False):
            wide = [widen_any(argument) for argument in args]
            return function(*wide, **{key: widen_any(argument) for key, argument in kwargs.items()})  # type: ignore[arg-type]

    return wrapped


@full_precision
def normal_kl(mu: Float[Tensor, "*shape D"], log_sigma: Float[Tensor, "*shape D"]) -> Float[Tensor, "*shape"]:
    """KL(N(mu, sigma^2) || N(0, 1)), summed over the last axis: the summand of L_view and L_attr."""
    return 0.5 * (mu.square() + (2 * log_sigma).exp() - 2 * log_sigma - 1).sum(-1)


@full_precision
def beta_kl(tau: Float[Tensor, "*shape 2"], concentration: float) -> Float[Tensor, "*shape"]:
    """KL(Beta(tau_1, tau_2) || Beta(concentration, 1)), the summand of L_rho with concentration = alpha / K.

    In float64, since for large tau the terms are thousands of times their sum; there are only K of them a scene.
    """
    tau_1, tau_2 = tau.double().unbind(-1)
    total = tau_1 + tau_2
    normalisers = total.lgamma() - tau_1.lgamma() - tau_2.lgamma() - math.log(concentration)
    # The paper's three digamma terms, in two groups.
    first = (tau_1 - concentration) * (tau_1.digamma() - total.digamma())
    second = (tau_2 - 1) * (tau_2.digamma() - total.digamma())
    return (normalisers + first + second).to(tau.dtype)


@full_precision
def presence_kl(logit_kappa: Float[Tensor, "*shape"], tau: Float[Tensor, "*shape 2"]) -> Float[Tensor, "*shape"]:
    """E over rho ~ Beta(tau) of KL(Ber(kappa) || Ber(rho)), the summand of L_prs; in float64 as `beta_kl`."""
    tau_1, tau_2 = tau.double().unbind(-1)
    total = (tau_1 + tau_2).digamma()
    return bernoulli_kl(logit_kappa.double(), tau_1.digamma() - total, tau_2.digamma() - total).to(logit_kappa.dtype)


@full_precision
def bernoulli_kl(
    logit: Float[Tensor, "*shape"], log_present: Tensor | float, log_absent: Tensor | float
) -> Float[Tensor, "*shape"]:
    """KL(Ber(sigmoid(logit)) || p), of which the logarithms of both probabilities are given, or their expectations."""
    present, absent = F.logsigmoid(logit) - log_present, F.logsigmoid(-logit) - log_absent
    return logit.sigmoid() * present + (-logit).sigmoid() * absent


TAU_FLOOR = 1e-6
"""Paper: none. Softplus reaches 0 in float32, where lgamma and digamma have no value."""


def beta_parameters(raw: Float[Tensor, "*shape 2"]) -> Float[Tensor, "*shape 2"]:
    """tau, from what a network says."""
    return F.softplus(raw) + TAU_FLOOR


@full_precision
def reparameterised_normal(
    mu: Float[Tensor, "*shape"], log_sigma: Float[Tensor, "*shape"], noise: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """mu + sigma * noise, with standard normal noise."""
    return mu + log_sigma.exp() * noise


@full_precision
def relaxed_bernoulli_logit(
    logit: Float[Tensor, "*shape"], noise: Float[Tensor, "*shape"], temperature: Scalar
) -> Float[Tensor, "*shape"]:
    """Log-odds of a relaxed Bernoulli (binary concrete) sample, with standard logistic noise.

    The sigmoid of the answer is the sample; as the temperature falls it becomes 1 with probability sigmoid(logit).
    Log-odds are kept because compositing needs the logarithm of the sample, which the sample itself has rounded away.
    """
    return (logit + noise) / temperature
