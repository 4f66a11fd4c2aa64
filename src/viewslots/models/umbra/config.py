"""What Umbra has beyond OCLOC: sizes, costs, and how they fade in."""

import math
from dataclasses import dataclass

from viewslots.errors import UserError
from viewslots.models.distributions import Scalar
from viewslots.models.ocloc.config import NvilConfig, OclocConfig, StartConfig
from viewslots.models.ocloc.schedule import Annealing, Schedule, linear


@dataclass(frozen=True)
class UmbraConfig(OclocConfig):
    """OCLOC's sizes and these."""

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
        if self.nvil != NvilConfig() or self.start.selection_gain != StartConfig().selection_gain:
            raise UserError(
                "no background is chosen in umbra: model.nvil and model.start.selection_gain mean nothing there"
            )
        for name, most in {"darkest": 1.0, "mixture": 1.0, "pixel_cost": math.inf, "object_cost": math.inf}.items():
            if not 0 <= getattr(self, name) <= most:
                raise UserError(f"UmbraConfig.{name} must lie between 0 and {most:g}, not {getattr(self, name)}")


@dataclass(frozen=True)
class UmbraAnnealing(Annealing):
    """The values of one step."""

    weight_mixture: Scalar = 1.0
    weight_costs: Scalar = 1.0


FADED = ("mixture", "costs")


@dataclass(frozen=True)
class UmbraSchedule(Schedule):
    """step -> UmbraAnnealing. Shares of the run, so that they need no squeezing."""

    mixture_from: float = 0.5
    mixture_until: float = 0.8
    """The mixture sharpens objects that are there; from the start, it settles on blobs that share the ground."""
    costs_from: float = 0.5
    costs_until: float = 0.8
    """While shapes still form, a price on them would empty them; an object without a colour yet becomes a shadow."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in FADED:
            begin, end = self.span(name)
            if end < begin:
                raise UserError(f"schedule.{name}_until is {end}, but schedule.{name}_from is {begin}")

    def at(self, step: int) -> UmbraAnnealing:
        known = super().at(step)
        weights = {f"weight_{name}": faded_in(step / self.steps, *self.span(name)) for name in FADED}
        return UmbraAnnealing(**vars(known), **weights)

    def span(self, name: str) -> tuple[float, float]:
        return getattr(self, f"{name}_from"), getattr(self, f"{name}_until")


def faded_in(share: float, begin: float, end: float) -> float:
    """0 before the beginning, 1 from the end on, straight in between."""
    return linear(0.0, 1.0, (share - begin) / (end - begin)) if end > begin else float(share >= end)
