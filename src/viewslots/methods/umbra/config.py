"""What Umbra has beyond OCLOC: sizes, costs, and how they fade in."""

from dataclasses import dataclass, replace

from viewslots.errors import UserError
from viewslots.methods.config import Amount, Count, CountOr0, Glimpse, Share, Whole
from viewslots.methods.ocloc.config import OclocConfig
from viewslots.methods.ocloc.schedule import Annealing, OclocSchedule
from viewslots.methods.schedules import linear


@dataclass(frozen=True)
class UmbraConfig(OclocConfig):
    """OCLOC's sizes and these."""

    darkest: Share = 0.8
    """Share of the background's light that the shadow of one object can take."""
    shadow_logit: float = -5.0
    """Bias of the shadow channel at the start: objects begin with hardly any shadow."""
    mixture: Share = 1.0
    """Share of the mixture likelihood; the rest is the paper's likelihood of the weighted sum."""
    pixel_cost: Amount = 0.3
    """Nats for every pixel that objects take from the background: ground that it explains as well is left to it."""
    shadow_cost: Amount = 0.15
    """Nats for every pixel of full shadow: else a shadow takes the edge of an object, which has a price."""
    object_cost: Amount = 20.0
    """Nats for every object present: a second copy of one explains less."""
    weighed_views: Count = 1
    """Pictures of a scene against which codes and prices were weighed, in training. A search that is given fewer counts
    each, with its viewpoint, as often as makes up for it."""
    glimpses: CountOr0 = 0
    """Rounds after Algorithm 1 in which every layer looks at the box where it is drawn, and changes its code."""
    glimpse_slopes: bool = True
    """Whether it is also told which way the description of the pictures grows shorter: one gradient a round."""
    glimpse_size: Glimpse = 24
    """Pixels of a side of what is seen of a box."""
    glimpse_channels: tuple[Glimpse, ...] = (32, 64, 64)
    """Of the convolutions that see it; each halves its sides."""

    details: Whole = 0
    """Further numbers of an object's code, which glimpses alone tell. They change its shape and colours in its box."""
    details_by_view: bool = False
    """Whether what tells them knows the viewpoint of each glimpse: how a cube is turned, no glimpse says by itself. A
    search then chooses among objects without details, and makes no gradient steps by default."""

    of_details = frozenset({"details", "details_by_view"})
    of_glimpses = frozenset({"glimpses", "glimpse_slopes", "glimpse_size", "glimpse_channels"}) | of_details
    later = OclocConfig.later | of_glimpses | {"weighed_views"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.details and not (self.glimpses and self.box_fit):
            raise UserError(
                f"details is {self.details}, but glimpses is {self.glimpses} and box_fit is {self.box_fit:g}: only "
                "glimpses tell details, and only boxes show them; set details to 0, or both of these above 0"
            )

    @property
    def detail_dim(self) -> int:
        return self.details


FADED = ("mixture", "costs")


@dataclass(frozen=True)
class UmbraSchedule(OclocSchedule):
    """step -> Annealing. Shares of the run, so that they need no squeezing."""

    mixture_from: Share = 0.0
    mixture_until: Share = 0.3
    """The mixture sharpens objects that are there already; where there are none yet, slots settle on shared blobs."""
    costs_from: Share = 0.0
    costs_until: Share = 0.3
    """A price on shapes that still form would empty them; an object without a colour yet would become a shadow."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in FADED:
            begin, end = self.span(name)
            if end < begin:
                raise UserError(f"schedule.{name}_until is {end}, but schedule.{name}_from is {begin}")

    def at(self, step: int) -> Annealing:
        weights = {f"weight_{name}": faded_in(step / self.steps, *self.span(name)) for name in FADED}
        return replace(super().at(step), **weights)

    def span(self, name: str) -> tuple[float, float]:
        return getattr(self, f"{name}_from"), getattr(self, f"{name}_until")


def faded_in(share: float, begin: float, end: float) -> float:
    """0 before the beginning, 1 from the end on, straight in between."""
    return linear(0.0, 1.0, (share - begin) / (end - begin)) if end > begin else float(share >= end)
