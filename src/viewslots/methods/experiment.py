"""What an experiment is. The presets of every method name theirs; viewslots.experiments gathers them."""

from dataclasses import dataclass, replace
from typing import Any

from viewslots.methods.schedules import Optimisation, Schedule


@dataclass(frozen=True)
class Experiment:
    """A method on a data set, and the sizes it is trained with."""

    method: str
    data: str
    """The data preset whose scenes it is trained on."""
    model: Any
    """The method's config."""
    schedule: Schedule
    optimisation: Optimisation
    views: int = 4
    """M while training, after the single-view phase."""
    test_slots: int = 11
    """K on the split with more objects."""

    def squeezed(self, steps: int) -> "Experiment":
        """The same training in a run of `steps`: every constant that counts steps shrinks or grows with it."""
        factor = steps / self.schedule.steps
        return replace(self, schedule=self.schedule.squeezed(steps), optimisation=self.optimisation.squeezed(factor))
