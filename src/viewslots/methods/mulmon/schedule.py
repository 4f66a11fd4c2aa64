"""How the learning rate falls: along a line, not by halves."""

from dataclasses import dataclass

from viewslots.methods.schedules import Optimisation, linear


@dataclass(frozen=True)
class LinearDecay(Optimisation):
    """lr(step) = lr0 * (1 - (1 - factor) * min(step / decay_steps, 1)) * min(step / warmup_steps, 1)."""

    def decay_at(self, step: int) -> float:
        return linear(1.0, self.decay_factor, step / self.decay_steps)
