"""What changes while training: a schedule answers the values of a step, an optimisation its learning rates.

Pure functions of the step; the loop asks and passes the values on. A method may have a schedule and an optimisation of
its own.
"""

from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.errors import UserError
from viewslots.methods.config import Amount, Batch, CountOr0, Positive, Share, Steps, StepsOr0, check_fields

Scalar = float | Float[Tensor, ""]
"""A number that a schedule sets: a float, or a tensor without dimensions where a step is captured as a graph."""


@dataclass(frozen=True)
class Scheduled:
    """The values of one step; a method that schedules more has a subclass."""

    def tensors(self, device: torch.device | str) -> Self:
        """The same values as tensors without dimensions, for a step that is compiled or captured as a graph."""
        names = [field.name for field in fields(self)]
        if not names:
            return self
        # One copy to the device, not one a value, and without waiting for it.
        numbers = torch.tensor([float(getattr(self, name)) for name in names])
        pinned = numbers.pin_memory() if torch.device(device).type == "cuda" else numbers
        values = pinned.to(device, non_blocking=True).unbind()
        return replace(self, **dict(zip(names, values, strict=True)))


def exponential(start: float, end: float, share: float) -> float:
    return float(start * (end / start) ** min(max(share, 0.0), 1.0))


def linear(start: float, end: float, share: float) -> float:
    return start + (end - start) * min(max(share, 0.0), 1.0)


def scaled(steps: int, factor: float) -> int:
    """A number of steps in a run that is `factor` times as long. What exists does not vanish."""
    return max(1, round(steps * factor)) if steps else 0


def counted_steps(settings: Any, factor: float) -> dict[str, Any]:
    """Of settings: all fields NAME_steps and NAME_step, in a run that is `factor` times as long."""
    names = [field.name for field in fields(settings) if field.name.endswith(("_steps", "_step"))]
    return {name: scaled(getattr(settings, name), factor) for name in names}


@dataclass(frozen=True)
class Schedule:
    """step -> Scheduled. This one schedules nothing but the length of a run."""

    steps: Steps = 150_000

    section = "schedule"

    def __post_init__(self) -> None:
        check_fields(self)

    def at(self, step: int) -> Any:
        return Scheduled()

    def squeezed(self, steps: Steps) -> Self:
        """The same schedule over a run of `steps`: fields NAME_steps shrink or grow with it."""
        return replace(self, steps=steps, **counted_steps(self, steps / self.steps))


@dataclass(frozen=True)
class Optimisation:
    """Batches, views and learning rate: lr(step) = lr0 * factor^(step / decay_steps) * min(step / warmup_steps, 1)."""

    batch_size: Batch = 32
    learning_rate: Positive = 4e-4
    decay_factor: Positive = 0.5
    decay_steps: Steps = 50_000
    warmup_steps: StepsOr0 = 10_000
    single_view_steps: StepsOr0 = 10_000
    """During the first steps only one view of each scene is used."""
    fewest_views: CountOr0 = 0
    """Later steps take so many views of each scene, one more at each step up to all of the run, and begin again; 0:
    always all."""
    neighbours: Share = 1.0
    """The views of a scene come from a run of neighbouring ones: at first this share of all that are stored ..."""
    neighbour_steps: StepsOr0 = 0
    """... and all of them, growing evenly, from this step on."""
    pretrained_preset: str | None = None
    """Start from the weights of this experiment ..."""
    pretrained_step: StepsOr0 = 0
    """... at this step; 0 means its best."""
    clip_norm: Amount = 0.0
    """Gradients of all parameters together are cut to this norm; 0 means never."""
    parts: tuple[str, ...] = ()
    """Train these parts of the model alone, such as `glimpses`; none trains all of it."""

    section, later = "optimisation", frozenset({"clip_norm", "fewest_views", "neighbours", "neighbour_steps", "parts"})

    def __post_init__(self) -> None:
        check_fields(self)
        if self.neighbours < 1 and not self.neighbour_steps:
            raise UserError(f"optimisation.neighbours={self.neighbours:g} lasts for 0 steps: set neighbour_steps too")

    def squeezed(self, factor: float) -> Self:
        """The same settings in a run that is `factor` times as long: all that count steps, by their names."""
        return replace(self, **counted_steps(self, factor))

    def learning_rate_at(self, step: int) -> float:
        warmup = min(step / self.warmup_steps, 1.0) if self.warmup_steps else 1.0
        return float(self.learning_rate * self.decay_at(step) * warmup)

    def decay_at(self, step: int) -> float:
        """What is left of the learning rate."""
        return float(self.decay_factor ** (step / self.decay_steps))

    def learning_rates_at(self, step: int) -> tuple[float, ...]:
        """One for each of the method's optimisers."""
        return (self.learning_rate_at(step),)

    def views_at(self, step: int, views: int) -> int:
        if step < self.single_view_steps:
            return 1
        fewest = min(self.fewest_views or views, views)
        return fewest + step % (views - fewest + 1)

    def within_at(self, step: int) -> float:
        """The share of neighbouring views among which those of a step are drawn."""
        return linear(self.neighbours, 1.0, step / self.neighbour_steps) if self.neighbour_steps else 1.0
