"""What Umbra has beyond OCLOC: sizes, costs, and how they fade in."""

import math
from dataclasses import dataclass, fields

from viewslots.errors import UserError
from viewslots.models.distributions import Scalar
from viewslots.models.ocloc.config import OclocConfig
from viewslots.models.ocloc.schedule import Annealing, Schedule, linear


@dataclass(frozen=True)
class UmbraConfig(OclocConfig):
    """OCLOC's sizes and these. `nvil` and `start.selection_gain` belong to the choice of a background: unused here."""

    darkest: float = 0.8
    """Share of the background's light that the shadow of one object can take."""
    shadow_logit: float = -3.0
    """Bias of the shadow channel at the start: objects begin with hardly any shadow."""
    mixture: float = 1.0
    """Share of the mixture likelihood; the rest is the paper's likelihood of the weighted sum."""
    pixel_cost: float = 0.3
    """Nats for every pixel of an object's complete shape: ground that the background explains as well is left to it."""
    object_cost: float = 3.0
    """Nats for every object present."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, most in {"darkest": 1.0, "mixture": 1.0, "pixel_cost": math.inf, "object_cost": math.inf}.items():
            if not 0 <= getattr(self, name) <= most:
                raise UserError(f"UmbraConfig.{name} must lie between 0 and {most:g}, not {getattr(self, name)}")


@dataclass(frozen=True)
class UmbraAnnealing(Annealing):
    """The values of one step."""

    weight_mixture: Scalar = 1.0
    weight_costs: Scalar = 1.0


@dataclass(frozen=True)
class UmbraSchedule(Schedule):
    """step -> UmbraAnnealing. Shares of the run, so that they need no squeezing."""

    mixture_until: float = 0.5
    """The mixture fades in from the start to here."""
    costs_from: float = 0.2
    costs_until: float = 0.5
    """While shapes still form, a cost on them would empty them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.costs_until < self.costs_from:
            raise UserError(f"schedule.costs_until is {self.costs_until}, but costs begin at {self.costs_from}")

    def at(self, step: int) -> UmbraAnnealing:
        known = super().at(step)
        share = step / self.steps
        return UmbraAnnealing(
            **{field.name: getattr(known, field.name) for field in fields(known)},
            weight_mixture=faded_in(share, 0.0, self.mixture_until),
            weight_costs=faded_in(share, self.costs_from, self.costs_until),
        )


def faded_in(share: float, begin: float, end: float) -> float:
    """0 before the beginning, 1 from the end on, straight in between."""
    return linear(0.0, 1.0, (share - begin) / (end - begin)) if end > begin else float(share >= end)
