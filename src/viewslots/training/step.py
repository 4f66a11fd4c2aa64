"""One training step: weights moved, terms of the loss answered on the device, without waiting for it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn

from viewslots.methods.contract import Losses, Precision, TrainableMethod, WeightTwins, leaves_of
from viewslots.methods.schedules import Scheduled
from viewslots.types import SceneBatch

Model = TrainableMethod[Any]


@dataclass(frozen=True)
class StepTerms:
    """What a step says of its batch: means over the scenes, on the device. Reading waits for it: read rarely."""

    minimised: Float[Tensor, ""]
    comparable: Float[Tensor, ""]
    terms: Float[Tensor, "terms"]
    """In the order of the method's own list."""

    def stacked(self) -> Float[Tensor, "2+terms"]:
        return torch.cat([self.minimised[None], self.comparable[None], self.terms])


class Step(Protocol):
    def __call__(
        self, batch: SceneBatch, noise: Any, scheduled: Scheduled, learning_rates: Sequence[float]
    ) -> StepTerms: ...


def set_learning_rate(optimiser: torch.optim.Optimizer, value: float) -> None:
    for group in optimiser.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(value)
        else:
            group["lr"] = value


def trained_parameters(optimisers: Sequence[torch.optim.Optimizer]) -> list[nn.Parameter]:
    return [parameter for one in optimisers for group in one.param_groups for parameter in group["params"]]


class EagerStep:
    """Forward, backward, clip, move. `module` answers Losses: a method, its fast twin, or one wrapped for ranks.

    `names`: the order of the terms that are answered.
    """

    def __init__(
        self,
        module: nn.Module,
        optimisers: Sequence[torch.optim.Optimizer],
        precision: Precision,
        clip_norm: float = 0.0,
        twins: WeightTwins | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        self.module, self.optimisers, self.precision, self.clip_norm = module, optimisers, precision, clip_norm
        self.twins, self.names = twins, names

    def __call__(
        self, batch: SceneBatch, noise: Any, scheduled: Scheduled, learning_rates: Sequence[float]
    ) -> StepTerms:
        self.set_learning_rates(learning_rates)
        return self.run(batch, noise, scheduled)

    def set_learning_rates(self, values: Sequence[float]) -> None:
        for optimiser, value in zip(self.optimisers, values, strict=True):
            set_learning_rate(optimiser, value)

    def run(self, batch: SceneBatch, noise: Any, scheduled: Scheduled) -> StepTerms:
        for optimiser in self.optimisers:
            optimiser.zero_grad(set_to_none=True)
        if self.twins is not None:
            self.twins.refresh()
        device = batch.image.device.type
        with torch.autocast(device, torch.bfloat16, enabled=self.precision == "bf16"):
            losses: Losses = self.module(batch, scheduled, noise)
            loss = losses.minimised.mean()
        loss.backward()  # type: ignore[no-untyped-call]
        if self.twins is not None:
            self.twins.collect()
        if self.clip_norm:
            nn.utils.clip_grad_norm_(trained_parameters(self.optimisers), self.clip_norm)
        for optimiser in self.optimisers:
            optimiser.step()
        names = losses.terms if self.names is None else self.names
        terms = [losses.terms[name].detach().mean() for name in names]
        stacked = torch.stack(terms) if terms else loss.new_zeros(0)
        return StepTerms(loss.detach(), losses.comparable.detach().mean(), stacked)


class GraphStep:
    """An EagerStep recorded once for every kind of input and replayed as one CUDA graph: one launch a step.

    A graph reads fixed addresses, so inputs are copied into buffers. Recording needs a few real steps to warm up; what
    they change is put back.
    """

    WARM_UP = 3

    def __init__(self, step: EagerStep) -> None:
        self.step = step
        self._recordings: dict[tuple[Any, ...], Recording] = {}
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def __call__(
        self, batch: SceneBatch, noise: Any, scheduled: Scheduled, learning_rates: Sequence[float]
    ) -> StepTerms:
        self.step.set_learning_rates(learning_rates)
        given = (batch, noise, scheduled.tensors(batch.image.device))
        leaves = list(leaves_of(given))
        kind = tuple(leaf.shape if isinstance(leaf, Tensor) else leaf for leaf in leaves)
        if kind not in self._recordings:
            self._recordings[kind] = self.record(given)
        recording = self._recordings[kind]
        for buffer, value in zip(leaves_of(recording.inputs), leaves, strict=True):
            if isinstance(buffer, Tensor):
                buffer.copy_(value)
        recording.graph.replay()
        answered = recording.terms
        return StepTerms(answered.minimised.clone(), answered.comparable.clone(), answered.terms.clone())

    def record(self, given: "Inputs") -> "Recording":
        optimisers = self.step.optimisers
        before = [(tensor, tensor.detach().clone()) for tensor in self.state()]
        known = [set(optimiser.state) for optimiser in optimisers]
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(self.WARM_UP):
                self.step.run(*given)
        torch.cuda.current_stream().wait_stream(self._stream)
        graph = torch.cuda.CUDAGraph()
        for optimiser in optimisers:
            optimiser.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph, stream=self._stream):
            terms = self.step.run(*given)
        with torch.no_grad():
            for tensor, value in before:
                tensor.copy_(value)
            for optimiser, old in zip(optimisers, known, strict=True):
                for parameter in set(optimiser.state) - old:
                    for value in optimiser.state[parameter].values():
                        value.zero_()
        return Recording(graph, given, terms)

    def state(self) -> Iterator[Tensor]:
        """All that a step changes: weights, buffers, and what optimisers keep of them where there is some already.

        Half-precision twins are not among them: every step begins by casting them anew.
        """
        yield from self.step.module.buffers()
        yield from trained_parameters(self.step.optimisers)
        for optimiser in self.step.optimisers:
            for entries in optimiser.state.values():
                yield from entries.values()


def fast_step(
    model: Model, optimisers: Sequence[torch.optim.Optimizer], precision: Precision, clip_norm: float = 0.0
) -> Step:
    """The fastest step for the device the model is on, in one process."""
    on_gpu = model.device.type == "cuda"
    if on_gpu:
        torch.backends.cudnn.benchmark = True
    twin = model.fast(precision)
    step = EagerStep(twin.module, optimisers, precision, clip_norm, twin.weights, model.terms)
    return GraphStep(step) if on_gpu and model.capturable else step


Inputs = tuple[SceneBatch, Any, Scheduled]


@dataclass(frozen=True)
class Recording:
    graph: torch.cuda.CUDAGraph
    inputs: Inputs
    terms: StepTerms
