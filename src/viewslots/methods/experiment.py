"""What an experiment is. The presets of every method name theirs; viewslots.experiments gathers them."""

from dataclasses import dataclass, replace
from typing import Any

from viewslots.methods.schedules import Optimisation, Schedule


@dataclass(frozen=True)
class Recipe:
    """How a training is scheduled."""

    schedule: Schedule
    optimisation: Optimisation


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
    tuning: Recipe | None = None
    """For runs that start from a trained model of the same method: short, at a low rate, nothing annealed anew. None:
    as any other run."""

    def tuned(self) -> "Experiment":
        """Fine-tuning, where there is a recipe for it."""
        return self if self.tuning is None else replace(self, **vars(self.tuning), tuning=None)

    def squeezed(self, steps: int) -> "Experiment":
        """The same training in a run of `steps`: every constant that counts steps shrinks or grows with it."""
        factor = steps / self.schedule.steps
        return replace(self, schedule=self.schedule.squeezed(steps), optimisation=self.optimisation.squeezed(factor))
