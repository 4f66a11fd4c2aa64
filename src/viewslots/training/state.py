"""The state of a training between two steps: copied out of the model and its optimisers, and put back bit for bit."""

import copy
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from viewslots.errors import UserError

Optimisers = Sequence[torch.optim.Optimizer]
MODEL = "model."
COUNT = "step"
"""What an optimiser keeps of a parameter has its shape, but for the count of its steps."""


@dataclass(frozen=True)
class TrainState:
    """All that a run needs to go on as if it had never stopped."""

    step: int
    """Steps done."""
    tensors: dict[str, Tensor]
    """On the CPU, contiguous: model.NAME, and what an optimiser keeps of a parameter, such as adam.exp_avg.NAME."""
    facts: dict[str, Any]
    """JSON, as `finite_json` leaves it: whatever else the loop has to remember."""

    @property
    def weights(self) -> dict[str, Tensor]:
        """What the model has of these, by its own names."""
        own = {name: value for name, value in self.tensors.items() if name.startswith(MODEL)}
        return {name.removeprefix(MODEL): value for name, value in own.items()}


def finite_json(value: Any) -> Any:
    """The same as plain JSON: NaN and infinities, which it lacks, as null; scalars of numpy and torch as numbers."""
    if isinstance(value, dict):
        return {str(key): finite_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_json(item) for item in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item"):
        return finite_json(value.item())
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def gather_state(model: nn.Module, optimisers: Optimisers, step: int, facts: dict[str, Any]) -> TrainState:
    """A copy on the CPU, which later steps do not touch. `model` is the plain one, not one wrapped for ranks."""
    tensors = {f"{MODEL}{name}": value for name, value in model.state_dict().items()}
    for owner in _owned(model, optimisers):
        owner.require_known_shapes()
        tensors |= {owner.key(entry): value for entry, value in owner.entries.items()}
    copies = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}
    return TrainState(step, copies, finite_json(facts))


@torch.no_grad()
def restore_state(state: TrainState, model: nn.Module, optimisers: Optimisers) -> None:
    """Bit for bit, and in place where there is a place: a captured graph keeps the addresses it knows."""
    _check_fit(state, model, optimisers)
    for name, target in model.state_dict().items():
        target.copy_(state.tensors[f"{MODEL}{name}"])
    kept = _kept(state)
    for owner in _owned(model, optimisers):
        saved = kept.get((owner.prefix, owner.name), {})
        if saved and not owner.entries:
            owner.optimiser.state[owner.parameter] = {
                entry: owner.fresh(entry, value) for entry, value in saved.items()
            }
        for entry, target in owner.entries.items():
            # Not saved: no step had reached it, which is the same as moments of zero.
            target.copy_(saved[entry]) if saved else target.zero_()


@dataclass(frozen=True)
class _Owned:
    """A parameter, by the name it has in the model, and the optimiser that moves it."""

    name: str
    parameter: nn.Parameter
    optimiser: torch.optim.Optimizer
    group: dict[str, Any]

    @property
    def entries(self) -> dict[str, Tensor]:
        """What the optimiser keeps of it by now."""
        return self.optimiser.state.get(self.parameter, {})

    @property
    def prefix(self) -> str:
        return type(self.optimiser).__name__.lower()

    def key(self, entry: str) -> str:
        return f"{self.prefix}.{entry}.{self.name}"

    def require_known_shapes(self) -> None:
        """At the first save already: what could not be put back would be missed only when a run is to go on."""
        for entry, value in self.entries.items():
            if not isinstance(value, Tensor) or value.shape != self.shape(entry):
                raise ValueError(f"{self.prefix} keeps {entry} of {self.name}, which no checkpoint can hold")

    def shape(self, entry: str) -> torch.Size:
        return torch.Size(()) if entry == COUNT else self.parameter.shape

    def fresh(self, entry: str, saved: Tensor) -> Tensor:
        """Where the optimiser would put it: counts beside the weights if fused or capturable, else on the CPU."""
        if entry != COUNT:
            return torch.zeros_like(self.parameter)
        beside = self.group.get("fused") or self.group.get("capturable")
        if beside:
            return torch.zeros((), dtype=torch.float32, device=self.parameter.device)
        return torch.zeros((), dtype=saved.dtype)


def _owned(model: nn.Module, optimisers: Optimisers) -> list[_Owned]:
    groups = [(one, group) for one in optimisers for group in one.param_groups]
    owners = {id(parameter): (one, group) for one, group in groups for parameter in group["params"]}
    named = {name: parameter for name, parameter in model.named_parameters() if id(parameter) in owners}
    if len(named) != sum(len(group["params"]) for _, group in groups):
        raise ValueError("optimisers hold parameters that are not the model's, or one parameter twice")
    return [_Owned(name, parameter, *owners[id(parameter)]) for name, parameter in named.items()]


def _kept(state: TrainState) -> dict[tuple[str, str], dict[str, Tensor]]:
    """What optimisers kept, by their kind and the name of the parameter."""
    kept: dict[tuple[str, str], dict[str, Tensor]] = {}
    for key, value in state.tensors.items():
        prefix, *rest = key.split(".", 2)
        if prefix != "model" and len(rest) == 2:
            kept.setdefault((prefix, rest[1]), {})[rest[0]] = value
    return kept


def _check_fit(state: TrainState, model: nn.Module, optimisers: Optimisers) -> None:
    """One error for a checkpoint of another model, before anything is changed."""
    wanted = {f"{MODEL}{name}": (value.shape, value.dtype) for name, value in model.state_dict().items()}
    kept = _kept(state)
    entries = {id(group): _entries(one, group) for one in optimisers for group in one.param_groups}
    for owner in _owned(model, optimisers):
        saved = kept.get((owner.prefix, owner.name), {})
        for entry in entries[id(owner.group)] if saved else ():
            dtype = saved[entry].dtype if entry == COUNT and entry in saved else owner.parameter.dtype
            wanted[owner.key(entry)] = (owner.shape(entry), dtype)
    if problem := _mismatch(state.tensors, wanted):
        raise UserError(
            f"the checkpoint of step {state.step} does not fit this model: {problem}; "
            "resume with the settings its run was started with"
        )


def _entries(optimiser: torch.optim.Optimizer, group: dict[str, Any]) -> list[str]:
    """Names of what an optimiser keeps of a parameter: a copy of it moves a copy of one, and is looked at."""
    probe = nn.Parameter(torch.zeros_like(group["params"][0]))
    probe.grad = torch.zeros_like(probe)
    twin = copy.copy(optimiser)
    twin.state, twin.param_groups = defaultdict(dict), [group | {"params": [probe]}]
    with torch.enable_grad():
        twin.step()
    return list(twin.state[probe])


def _mismatch(found: dict[str, Tensor], wanted: dict[str, tuple[torch.Size, torch.dtype]]) -> str:
    if odd := sorted(found.keys() ^ wanted.keys()):
        return f"missing or unknown tensors {', '.join(odd[:4])}"
    for name, (shape, dtype) in wanted.items():
        if found[name].shape != shape:
            return f"{name} has shape {list(found[name].shape)}, expected {list(shape)}"
        if found[name].dtype != dtype:
            return f"{name} has type {found[name].dtype}, expected {dtype}"
    return ""
