"""What OCLOC anneals: temperatures, softness of occlusion, weights of the KL terms."""

from dataclasses import dataclass

from viewslots.methods.config import Amount, Positive, Steps, StepsOr0
from viewslots.methods.schedules import (
    Scalar,
    Schedule,
    Scheduled,
    exponential,
    linear,
)


@dataclass(frozen=True)
class Annealing(Scheduled):
    """The values of one step."""

    temperature_prs: Scalar = 0.5
    temperature_shp: Scalar = 0.5
    softness: Scalar = 0.5
    """lambda of the depth order."""
    weight_view: Scalar = 1.0
    weight_attr: Scalar = 1.0
    """Of the objects' attributes."""
    weight_bck: Scalar = 1.0
    """Of the background's attributes."""
    weight_rho: Scalar = 1.0
    weight_prs: Scalar = 1.0
    compactness_rate: Scalar = 0.0
    """s1 of the compactness noise s2 (1 - exp(-s1 d^2)); 0 leaves the appearances as they are."""
    compactness_scale: Scalar = 1.0
    """s2."""
    weight_mixture: Scalar = 1.0
    """Of what an image model of ours has beyond the paper's: the mixture likelihood ..."""
    weight_costs: Scalar = 1.0
    """... and prices on pixels and objects."""


@dataclass(frozen=True)
class OclocSchedule(Schedule):
    """step -> Annealing. The defaults are the authors' multi-view runs; the paper's text has a constant
    lambda, KL weights of 1 and no compactness noise (docs/reproduction.md)."""

    steps: Steps = 150_000
    """Length of the run: temperatures and softness reach their end there."""
    temperature_start: Positive = 10.0
    temperature_end: Positive = 0.5
    softness_start: Positive = 10.0
    softness_end: Positive = 0.5
    kl_ramp_steps: StepsOr0 = 100_000
    """Every KL weight grows linearly from 0 to 1 over these steps; 0 means 1 from the start."""
    background_kl_factor: Amount = 10.0
    """Extra factor of the background's attribute KL."""
    compactness_start: Amount = 0.01
    compactness_end: Amount = 0.05
    """s1 grows linearly over the run."""
    compactness_scale: Amount = 1.0

    def at(self, step: int) -> Annealing:
        share = step / self.steps
        temperature = exponential(self.temperature_start, self.temperature_end, share)
        weight = linear(0.0, 1.0, step / self.kl_ramp_steps) if self.kl_ramp_steps else 1.0
        return Annealing(
            temperature_prs=temperature,
            temperature_shp=temperature,
            softness=exponential(self.softness_start, self.softness_end, share),
            weight_view=weight,
            weight_attr=weight,
            weight_bck=weight * self.background_kl_factor,
            weight_rho=weight,
            weight_prs=weight,
            compactness_rate=linear(self.compactness_start, self.compactness_end, share),
            compactness_scale=self.compactness_scale,
        )
