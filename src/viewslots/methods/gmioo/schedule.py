"""What GMIOO anneals: the temperature of presence, and how much the background is drawn to the picture."""

from dataclasses import dataclass

from viewslots.methods.config import Amount, Positive, Steps, StepsOr0
from viewslots.methods.schedules import Scalar, Schedule, Scheduled, exponential, linear


@dataclass(frozen=True)
class Annealing(Scheduled):
    """The values of one step; the defaults are the last ones."""

    temperature_prs: Scalar = 0.5
    weight_guide: Scalar = 0.0
    """Of the background's own error, which is no part of the bound."""


@dataclass(frozen=True)
class GmiooSchedule(Schedule):
    """step -> Annealing."""

    steps: Steps = 200_000
    temperature_start: Positive = 2.0
    temperature_end: Positive = 0.5
    """Reached exponentially at the end of the run."""
    guide_weight: Amount = 0.2
    guide_steps: StepsOr0 = 25_000
    """The weight falls linearly to 0 over the first of these steps."""

    def at(self, step: int) -> Annealing:
        guide = linear(self.guide_weight, 0.0, step / self.guide_steps) if self.guide_steps else 0.0
        return Annealing(
            temperature_prs=exponential(self.temperature_start, self.temperature_end, step / self.steps),
            weight_guide=guide,
        )
