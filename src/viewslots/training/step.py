"""One training step: weights moved, terms of the loss answered on the device, without waiting for it."""

from dataclasses import dataclass, fields
from typing import Literal, Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn

from viewslots.models.ocloc.noise import Noise
from viewslots.models.ocloc.objective import weighted_loss
from viewslots.models.ocloc.schedule import Annealing
from viewslots.types import ElboTerms, SceneBatch

Precision = Literal["bf16", "fp32"]
TERMS = tuple(field.name for field in fields(ElboTerms))


@dataclass(frozen=True)
class StepTerms:
    """What a step says of its batch: means over the scenes, on the device. Reading waits for it: read rarely."""

    weighted: Float[Tensor, ""]
    """What was minimised."""
    terms: Float[Tensor, "terms"]
    """In the order of TERMS, unweighted."""

    def read(self) -> dict[str, float]:
        """Numbers by name; `loss` is L, the negative evidence lower bound."""
        values = dict(zip(TERMS, self.terms.tolist(), strict=True))
        loss = sum(values[name] for name in ("constant", "nll", "view", "attr", "rho", "prs"))
        return {"weighted": self.weighted.item(), "loss": loss} | values


class Step(Protocol):
    def __call__(self, batch: SceneBatch, noise: Noise, annealing: Annealing, learning_rate: float) -> StepTerms: ...


def make_optimiser(model: nn.Module, device: torch.device) -> torch.optim.Adam:
    """Adam as in the paper. On a GPU its step counts and learning rate live there, so that a graph can hold a step."""
    on_gpu = device.type == "cuda"
    rate: float | Tensor = torch.zeros((), device=device) if on_gpu else 0.0
    return torch.optim.Adam(model.parameters(), lr=rate, fused=True, capturable=on_gpu)


def set_learning_rate(optimiser: torch.optim.Adam, value: float) -> None:
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(value)
        else:
            group["lr"] = value


class EagerStep:
    """Forward, backward, Adam. `model` answers ElboTerms: an Ocloc, its accelerated view, or one wrapped for ranks."""

    def __init__(self, model: nn.Module, optimiser: torch.optim.Adam, precision: Precision) -> None:
        self.model, self.optimiser, self.precision = model, optimiser, precision

    def __call__(self, batch: SceneBatch, noise: Noise, annealing: Annealing, learning_rate: float) -> StepTerms:
        set_learning_rate(self.optimiser, learning_rate)
        return self.run(batch, noise, annealing)

    def run(self, batch: SceneBatch, noise: Noise, annealing: Annealing) -> StepTerms:
        self.optimiser.zero_grad(set_to_none=True)
        device = batch.image.device.type
        with torch.autocast(device, torch.bfloat16, enabled=self.precision == "bf16"):
            terms: ElboTerms = self.model(batch, annealing, noise)
            loss = weighted_loss(terms, annealing).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        return StepTerms(loss.detach(), torch.stack([getattr(terms, name).detach().mean() for name in TERMS]))
