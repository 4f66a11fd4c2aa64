"""The state of a training between two steps: copied out of the model and its optimiser, and put back bit for bit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from viewslots.errors import UserError

Optimisers = Sequence[torch.optim.Optimizer]


@dataclass(frozen=True)
class TrainState:
    """All that a run needs to go on as if it had never stopped."""

    step: int
    """Steps done."""
    tensors: dict[str, Tensor]
    """On the CPU, contiguous: model.NAME, and what an optimiser keeps of a parameter, such as adam.exp_avg.NAME."""
    facts: dict[str, Any]
    """JSON, as `finite_json` leaves it: whatever else the loop has to remember."""


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
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for owner in _owned(model, optimisers):
        tensors |= {owner.key(entry): value for entry, value in owner.entries.items()}
    copies = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}
    return TrainState(step, copies, finite_json(facts))


@torch.no_grad()
def restore_state(state: TrainState, model: nn.Module, optimisers: Optimisers) -> None:
    """Bit for bit, and in place where there is a place: a captured graph keeps the addresses it knows."""
    _check_fit(state, model, optimisers)
    for name, target in model.state_dict().items():
        target.copy_(state.tensors[f"model.{name}"])
    kept = _kept(state)
    for owner in _owned(model, optimisers):
        saved = kept.get((owner.prefix, owner.name), {})
        if saved and not owner.entries:
            owner.optimiser.state[owner.parameter] = {entry: owner.fresh(value) for entry, value in saved.items()}
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

    def fresh(self, saved: Tensor) -> Tensor:
        """Where the optimiser would put it: counts beside the weights if fused or capturable, else on the CPU."""
        if saved.dim() or not self.parameter.dim():
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
    wanted = {f"model.{name}": (value.shape, value.dtype) for name, value in model.state_dict().items()}
    kept = _kept(state)
    entries: dict[str, set[str]] = {}
    for (prefix, _), found in kept.items():
        entries.setdefault(prefix, set()).update(found)
    for owner in _owned(model, optimisers):
        saved = kept.get((owner.prefix, owner.name), {})
        for entry in entries[owner.prefix] if saved else ():
            count = entry == "step"
            dtype = saved[entry].dtype if count and entry in saved else owner.parameter.dtype
            wanted[owner.key(entry)] = (torch.Size(()) if count else owner.parameter.shape, dtype)
    if problem := _mismatch(state.tensors, wanted):
        raise UserError(
            f"the checkpoint of step {state.step} does not fit this model: {problem}; "
            "resume with the settings its run was started with"
        )


def _mismatch(found: dict[str, Tensor], wanted: dict[str, tuple[torch.Size, torch.dtype]]) -> str:
    if odd := sorted(found.keys() ^ wanted.keys()):
        return f"missing or unknown tensors {', '.join(odd[:4])}"
    for name, (shape, dtype) in wanted.items():
        if found[name].shape != shape:
            return f"{name} has shape {list(found[name].shape)}, expected {list(shape)}"
        if found[name].dtype != dtype:
            return f"{name} has type {found[name].dtype}, expected {dtype}"
    return ""
