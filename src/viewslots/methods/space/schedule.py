"""What SPACE anneals, when, and its two learning rates."""

from dataclasses import dataclass

from viewslots.methods.config import Amount, Batch, Positive, Steps, StepsOr0
from viewslots.methods.schedules import Optimisation, Scalar, Schedule, Scheduled, linear


@dataclass(frozen=True)
class SpaceAnnealing(Scheduled):
    """The values of one step; the defaults are those after training."""

    temperature: Scalar = 0.5
    """Of presence."""
    presence_share: Scalar = 1.0
    """How far the prior of presence has come, from its start (0) to its end (1)."""
    scale_share: Scalar = 1.0
    """The same for the prior of scales."""
    weight_boundary: Scalar = 0.0


@dataclass(frozen=True)
class SpaceSchedule(Schedule):
    """step -> SpaceAnnealing: linear from a first to a last step, constant before and after."""

    steps: Steps = 200_000
    temperature_start: Positive = 2.5
    temperature_end: Positive = 0.5
    temperature_steps: Steps = 20_000
    presence_first_step: StepsOr0 = 4_000
    presence_last_step: Steps = 10_000
    scale_first_step: StepsOr0 = 10_000
    scale_last_step: Steps = 20_000
    boundary_steps: StepsOr0 = 100_000
    """So long objects must not touch the edges of their glimpses."""

    def at(self, step: int) -> SpaceAnnealing:
        return SpaceAnnealing(
            temperature=linear(self.temperature_start, self.temperature_end, step / self.temperature_steps),
            presence_share=share(step, self.presence_first_step, self.presence_last_step),
            scale_share=share(step, self.scale_first_step, self.scale_last_step),
            weight_boundary=float(step < self.boundary_steps),
        )


def share(step: int, first: int, last: int) -> float:
    """How far a step has come from `first` to `last`."""
    return linear(0.0, 1.0, (step - first) / max(last - first, 1))


@dataclass(frozen=True)
class SpaceOptimisation(Optimisation):
    """RMSprop for the foreground, at `learning_rate`, and Adam for the background; both are constant by default.

    Paper: no warm-up. Ours is of the foreground alone. In short runs its rate is far larger than the paper's, and a
    foreground that learns before the background takes dark grounds for objects.
    """

    batch_size: Batch = 12
    learning_rate: Positive = 1e-5
    background_rate: Positive = 1e-3
    """Decays as the other one does."""
    decay_factor: Positive = 1.0
    warmup_steps: StepsOr0 = 0
    single_view_steps: StepsOr0 = 0
    clip_norm: Amount = 1.0

    def learning_rates_at(self, step: int) -> tuple[float, ...]:
        return self.learning_rate_at(step), self.background_rate * self.decay_at(step)
