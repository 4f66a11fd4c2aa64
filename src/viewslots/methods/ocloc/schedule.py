"""What changes while training: temperatures, softness of occlusion, weights of the KL terms, learning rate.

Pure functions of the step; a training loop asks and passes the values on.
"""

import math
from dataclasses import dataclass, fields, replace

import torch

from viewslots.errors import UserError
from viewslots.methods.distributions import Scalar


@dataclass(frozen=True)
class Annealing:
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

    def tensors(self, device: torch.device | str) -> "Annealing":
        """The same values as tensors without dimensions, for a step that is compiled or captured as a graph."""
        names = [field.name for field in fields(self)]
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


def require_above_zero(section: str, config: object, *names: str) -> None:
    for name in names:
        value = getattr(config, name)
        if not (math.isfinite(value) and value > 0):
            raise UserError(f"{section}.{name} is {value}, but must be above 0")


def require_at_least_zero(section: str, config: object) -> None:
    """All numbers of a config."""
    for name, value in vars(config).items():
        if isinstance(value, int | float) and not (math.isfinite(value) and value >= 0):
            raise UserError(f"{section}.{name} is {value}, but must be 0 or above")


@dataclass(frozen=True)
class Schedule:
    """step -> Annealing. The defaults are the authors' multi-view runs; `as_printed` is the paper's text."""

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
        require_above_zero("schedule", self, "steps", *ends)
        require_at_least_zero("schedule", self)

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

    def squeezed(self, steps: int) -> "Schedule":
        """The same schedule over a run of `steps`."""
        return replace(self, steps=steps, kl_ramp_steps=scaled(self.kl_ramp_steps, steps / self.steps))

    def as_printed(self) -> "Schedule":
        """The paper's text: constant lambda, KL weights of 1, no compactness noise (temperatures: not given)."""
        return replace(
            self,
            softness_start=self.softness_end,
            kl_ramp_steps=0,
            background_kl_factor=1.0,
            compactness_start=0.0,
            compactness_end=0.0,
        )


@dataclass(frozen=True)
class Optimisation:
    """Adam's settings: lr(step) = lr0 * factor^(step / decay_steps) * min(step / warmup_steps, 1)."""

    batch_size: int = 32
    learning_rate: float = 4e-4
    decay_factor: float = 0.5
    decay_steps: int = 50_000
    warmup_steps: int = 10_000
    single_view_steps: int = 10_000
    """During the first steps only one view of each scene is used."""
    pretrained_preset: str | None = None
    """Start from the weights of this preset ..."""
    pretrained_step: int = 0
    """... at this step; 0 means its best."""

    def __post_init__(self) -> None:
        require_above_zero("optimisation", self, "batch_size", "learning_rate", "decay_factor", "decay_steps")
        require_at_least_zero("optimisation", self)

    def squeezed(self, factor: float) -> "Optimisation":
        """The same settings in a run that is `factor` times as long."""
        return replace(
            self,
            decay_steps=scaled(self.decay_steps, factor),
            warmup_steps=scaled(self.warmup_steps, factor),
            single_view_steps=scaled(self.single_view_steps, factor),
            pretrained_step=scaled(self.pretrained_step, factor),
        )

    def learning_rate_at(self, step: int) -> float:
        warmup = min(step / self.warmup_steps, 1.0) if self.warmup_steps else 1.0
        return float(self.learning_rate * self.decay_factor ** (step / self.decay_steps) * warmup)

    def views_at(self, step: int, views: int) -> int:
        return 1 if step < self.single_view_steps else views
