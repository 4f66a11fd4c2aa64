"""Half-precision twins of weights: cast all at once, not one by one as autocast does.

A step then runs forward and backward on the twins, hands their gradients to the weights (`collect`), moves the weights
in full precision, and casts them anew (`refresh`): two launches instead of two hundred.
"""

from collections.abc import Callable, Collection
from typing import Any, TypeVar, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

V = TypeVar("V", bound=nn.Module)


def view_of(module: nn.Module, kind: type[V]) -> V:
    """The same parameters, buffers and parts as an object of another class; parts may be exchanged in it."""
    view = kind.__new__(kind)
    view.__dict__ = module.__dict__ | {"_modules": dict(module._modules)}
    return view


def rebuilt(module: V, exchange: Callable[[nn.Module], nn.Module]) -> V:
    """The module with `exchange(part)` in place of every part, the innermost first. A part that stays as it is stays
    the same object, with whatever state it has; what holds another one is a view."""
    parts = {name: None if part is None else rebuilt(part, exchange) for name, part in module._modules.items()}
    view = module
    if any(part is not module._modules[name] for name, part in parts.items()):
        view = view_of(module, type(module))
        view._modules.update(parts)
    return cast(V, exchange(view))


class HalfWeights:
    """Pairs of a weight and its bf16 twin."""

    def __init__(self) -> None:
        self.masters: list[Tensor] = []
        self.twins: list[Tensor] = []

    def add(self, master: nn.Parameter) -> nn.Parameter:
        twin = nn.Parameter(master.detach().to(torch.bfloat16), requires_grad=master.requires_grad)
        self.masters.append(master)
        self.twins.append(twin)
        return twin

    @torch.no_grad()
    def refresh(self) -> None:
        """After the weights have moved."""
        torch._foreach_copy_(self.twins, self.masters)

    @torch.no_grad()
    def collect(self) -> None:
        """After the backward pass: the twins' gradients become those of the weights."""
        pairs = zip(self.masters, self.twins, strict=True)
        reached = [(master, twin.grad) for master, twin in pairs if twin.grad is not None]
        gradients = [torch.empty_like(master) for master, _ in reached]
        torch._foreach_copy_(gradients, [given for _, given in reached])
        for (master, _), gradient in zip(reached, gradients, strict=True):
            master.grad = gradient
        for twin in self.twins:
            twin.grad = None


class SumByProduct(torch.autograd.Function):
    """A linear layer whose bias gradient is a product with ones: a third of the time of a sum over many rows."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(values, weight)
        return F.linear(values, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        values, weight = ctx.saved_tensors
        asked_values, asked_weight, asked_bias = ctx.needs_input_grad
        rows = gradients[0].reshape(-1, weight.shape[0])
        to_values = gradients[0] @ weight if asked_values else None
        to_weight = rows.t() @ values.reshape(-1, weight.shape[1]) if asked_weight else None
        return to_values, to_weight, rows.new_ones(len(rows)) @ rows if asked_bias else None


class HalfLinear(nn.Linear):
    def forward(self, values: Float[Tensor, "*I D"]) -> Float[Tensor, "*I E"]:
        values = values.to(self.weight.dtype)
        if self.bias is None:
            return F.linear(values, self.weight)
        return SumByProduct.apply(values, self.weight, self.bias)  # type: ignore[no-untyped-call]


PRODUCTS = (nn.Linear, nn.GRUCell)
"""Layers that are matrix products of many rows."""


def with_half_weights(
    model: V, exact: Collection[nn.Module], kinds: tuple[type[nn.Module], ...] = PRODUCTS
) -> tuple[V, HalfWeights]:
    """A view of the model whose layers of these kinds hold twins, but for the `exact` ones."""
    half = HalfWeights()
    return cast(V, tree_with_twins(model, half, exact, kinds)), half


def tree_with_twins(
    module: nn.Module, half: HalfWeights, exact: Collection[nn.Module], kinds: tuple[type[nn.Module], ...]
) -> nn.Module:
    twinned = isinstance(module, kinds) and module not in exact
    view = view_of(module, HalfLinear if twinned and isinstance(module, nn.Linear) else type(module))
    if twinned:
        own = {name: value if value is None else half.add(value) for name, value in module._parameters.items()}
        view.__dict__["_parameters"] = own
    for name, part in view._modules.items():
        view._modules[name] = None if part is None else tree_with_twins(part, half, exact, kinds)
    return view
