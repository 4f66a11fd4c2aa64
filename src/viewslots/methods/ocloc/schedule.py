"""What OCLOC anneals: temperatures, softness of occlusion, weights of the KL terms."""

from dataclasses import dataclass, replace
from typing import Self

from viewslots.methods.schedules import (
    Scalar,
    Schedule,
    Scheduled,
    exponential,
    linear,
    require_above_zero,
    scaled,
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

    steps: int = 150_000
    """Length of the run: temperatures and softness reach their end there."""
    temperature_start: float = 10.0
    temperature_end: float = 0.5
    softness_start: float = 10.0
    softness_end: float = 0.5
    kl_ramp_steps: int = 100_000
    """Every KL weight grows linearly from 0 to 1 over these steps; 0 means 1 from the start."""
    background_kl_factor: float = 10.0
    """Extra factor of the background's attribute KL."""
    compactness_start: float = 0.01
    compactness_end: float = 0.05
    """s1 grows linearly over the run."""
    compactness_scale: float = 1.0

    def __post_init__(self) -> None:
        ends = ("temperature_start", "temperature_end", "softness_start", "softness_end")
        super().__post_init__()
        require_above_zero("schedule", self, *ends)

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

    def squeezed(self, steps: int) -> Self:
        """The same schedule over a run of `steps`."""
        return replace(self, steps=steps, kl_ramp_steps=scaled(self.kl_ramp_steps, steps / self.steps))
