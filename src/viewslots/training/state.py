"""The state of a training between two steps: copied out of the model and its optimiser, and put back bit for bit."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from viewslots.errors import UserError

MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What Adam keeps of a parameter."""


@dataclass(frozen=True)
class TrainState:
    """All that a run needs to go on as if it had never stopped."""

    step: int
    """Steps done."""
    tensors: dict[str, Tensor]
    """On the CPU, contiguous: model.NAME, adam.exp_avg.NAME, adam.exp_avg_sq.NAME, adam.step.NAME."""
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


def gather_state(model: nn.Module, optimiser: torch.optim.Adam, step: int, facts: dict[str, Any]) -> TrainState:
    """A copy on the CPU, which later steps do not touch. `model` is the plain one, not one wrapped for ranks."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for name, parameter in _trained(model, optimiser).items():
        moments = optimiser.state.get(parameter, {})
        if moments and set(moments) != set(MOMENTS):
            raise ValueError(f"an Adam that keeps {sorted(moments)} is not known here")
        tensors |= {f"adam.{key}.{name}": value for key, value in moments.items()}
    copies = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}
    return TrainState(step, copies, finite_json(facts))


@torch.no_grad()
def restore_state(state: TrainState, model: nn.Module, optimiser: torch.optim.Adam) -> None:
    """Bit for bit, and in place where there is a place: a captured graph keeps the addresses it knows."""
    _check_fit(state, model, optimiser)
    for name, target in model.state_dict().items():
        target.copy_(state.tensors[f"model.{name}"])
    for name, parameter in _trained(model, optimiser).items():
        saved = {key: state.tensors[f"adam.{key}.{name}"] for key in MOMENTS if f"adam.{key}.{name}" in state.tensors}
        if saved and not optimiser.state.get(parameter):
            optimiser.state[parameter] = _fresh_moments(optimiser, parameter, saved["step"].dtype)
        for key, target in optimiser.state.get(parameter, {}).items():
            # Not saved: no step had reached it, which is the same as moments of zero.
            target.copy_(saved[key]) if saved else target.zero_()


def _trained(model: nn.Module, optimiser: torch.optim.Adam) -> dict[str, nn.Parameter]:
    """The optimiser's parameters by the names they have in the model."""
    held = {id(parameter) for group in optimiser.param_groups for parameter in group["params"]}
    named = {name: parameter for name, parameter in model.named_parameters() if id(parameter) in held}
    if len(named) != len(held):
        raise ValueError("the optimiser holds parameters that are not the model's")
    return named


def _fresh_moments(optimiser: torch.optim.Adam, parameter: Tensor, step_type: torch.dtype) -> dict[str, Tensor]:
    """Where Adam itself would put them: step counts beside the weights if fused or capturable, else on the CPU."""
    group = next(group for group in optimiser.param_groups if any(item is parameter for item in group["params"]))
    beside = group["fused"] or group["capturable"]
    step = torch.zeros((), dtype=torch.float32, device=parameter.device) if beside else torch.zeros((), dtype=step_type)
    return {"step": step, "exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}


def _check_fit(state: TrainState, model: nn.Module, optimiser: torch.optim.Adam) -> None:
    """One error for a checkpoint of another model, before anything is changed."""
    wanted: dict[str, Tensor] = {f"model.{name}": value for name, value in model.state_dict().items()}
    for name, parameter in _trained(model, optimiser).items():
        moments = {f"adam.{key}.{name}": parameter for key in MOMENTS}
        wanted |= moments if moments.keys() & state.tensors.keys() else {}
    if problem := _mismatch(state.tensors, wanted):
        raise UserError(
            f"the checkpoint of step {state.step} does not fit this model: {problem}; "
            "resume with the settings its run was started with"
        )


def _mismatch(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> str:
    if odd := sorted(found.keys() ^ wanted.keys()):
        return f"missing or unknown tensors {', '.join(odd[:4])}"
    for name, value in wanted.items():
        count = name.startswith("adam.step.")
        shape, dtype = ([], found[name].dtype) if count else (list(value.shape), value.dtype)
        if list(found[name].shape) != shape:
            return f"{name} has shape {list(found[name].shape)}, expected {shape}"
        if found[name].dtype != dtype:
            return f"{name} has type {found[name].dtype}, expected {dtype}"
    return ""
