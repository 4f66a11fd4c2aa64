"""One training step: weights moved, terms of the loss answered on the device, without waiting for it."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Literal, Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn

from viewslots.methods.ocloc.fast.accelerate import accelerated
from viewslots.methods.ocloc.fast.half import HalfWeights, with_half_weights
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.noise import Noise
from viewslots.methods.ocloc.objective import weighted_loss
from viewslots.methods.ocloc.schedule import Annealing
from viewslots.types import ElboTerms, SceneBatch

Precision = Literal["bf16", "fp32"]
TERMS = tuple(field.name for field in fields(ElboTerms))


@dataclass(frozen=True)
class StepTerms:
    """What a step says of its batch: means over the scenes, on the device. Reading waits for it: read rarely."""

    weighted: Float[Tensor, ""]
    """What was minimised."""
    terms: Float[Tensor, "terms"]
    """In the order of TERMS, without the weights of the KL terms."""


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
    """Forward, backward, Adam. `model` answers ElboTerms: an Ocloc, its accelerated view, or one wrapped for ranks.

    Where that view holds half-precision twins of weights, `half` is what joins them.
    """

    def __init__(
        self,
        model: nn.Module,
        optimiser: torch.optim.Adam,
        precision: Precision,
        half: HalfWeights | None = None,
    ) -> None:
        self.model, self.optimiser, self.precision, self.half = model, optimiser, precision, half

    def __call__(self, batch: SceneBatch, noise: Noise, annealing: Annealing, learning_rate: float) -> StepTerms:
        set_learning_rate(self.optimiser, learning_rate)
        return self.run(batch, noise, annealing)

    def run(self, batch: SceneBatch, noise: Noise, annealing: Annealing) -> StepTerms:
        self.optimiser.zero_grad(set_to_none=True)
        if self.half is not None:
            self.half.refresh()
        device = batch.image.device.type
        with torch.autocast(device, torch.bfloat16, enabled=self.precision == "bf16"):
            terms: ElboTerms = self.model(batch, annealing, noise)
            loss = weighted_loss(terms, annealing).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        if self.half is not None:
            self.half.collect()
        self.optimiser.step()
        return StepTerms(loss.detach(), torch.stack([getattr(terms, name).detach().mean() for name in TERMS]))


class GraphStep:
    """An EagerStep recorded once for every shape of batch and replayed as one CUDA graph: one launch a step.

    A graph reads fixed addresses, so inputs are copied into buffers. Recording needs a few real steps to warm up; what
    they change is put back.
    """

    WARM_UP = 3

    def __init__(self, step: EagerStep) -> None:
        self.step = step
        self._recordings: dict[torch.Size, Recording] = {}
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def __call__(self, batch: SceneBatch, noise: Noise, annealing: Annealing, learning_rate: float) -> StepTerms:
        set_learning_rate(self.step.optimiser, learning_rate)
        given = (batch, noise, annealing.tensors(batch.image.device))
        shape = batch.image.shape
        if shape not in self._recordings:
            self._recordings[shape] = self.record(given)
        recording = self._recordings[shape]
        for buffer, value in zip(tensors(recording.inputs), tensors(given), strict=True):
            buffer.copy_(value)
        recording.graph.replay()
        return StepTerms(recording.terms.weighted.clone(), recording.terms.terms.clone())

    def record(self, given: "Inputs") -> "Recording":
        optimiser = self.step.optimiser
        before = [(tensor, tensor.detach().clone()) for tensor in self.state()]
        known = set(optimiser.state)
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(self.WARM_UP):
                self.step.run(*given)
        torch.cuda.current_stream().wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        optimiser.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph, stream=self._stream):
            terms = self.step.run(*given)
        with torch.no_grad():
            for tensor, value in before:
                tensor.copy_(value)
            for parameter in set(optimiser.state) - known:
                for value in optimiser.state[parameter].values():
                    value.zero_()
        return Recording(graph, given, terms)

    def state(self) -> Iterator[Tensor]:
        """All that a step changes: weights, buffers, and Adam's moments where there are some already.

        Half-precision twins are not among them: every step begins by casting them anew.
        """
        yield from self.step.model.buffers()
        for group in self.step.optimiser.param_groups:
            yield from group["params"]
        for entries in self.step.optimiser.state.values():
            yield from entries.values()


def fast_step(model: Ocloc, optimiser: torch.optim.Adam, precision: Precision) -> Step:
    """The fastest step for the device the model is on, in one process."""
    if model.device.type != "cuda":
        return EagerStep(accelerated(model), optimiser, precision)
    torch.backends.cudnn.benchmark = True
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    view, half = with_half_weights(model) if precision == "bf16" else (model, None)
    return GraphStep(EagerStep(accelerated(view), optimiser, precision, half))


Inputs = tuple[SceneBatch, Noise, Annealing]


@dataclass(frozen=True)
class Recording:
    graph: torch.cuda.CUDAGraph
    inputs: Inputs
    terms: StepTerms


def tensors(value: Any) -> Iterator[Tensor]:
    """The tensors of nested tuples and dataclasses, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from tensors(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from tensors(getattr(value, field.name))
