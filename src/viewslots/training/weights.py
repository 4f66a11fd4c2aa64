"""Weights of another model to start from: whether they fit, what of them is taken, which parts then learn."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import torch
from torch import Tensor

from viewslots.errors import UserError
from viewslots.methods.registry import trainable_class
from viewslots.training.plan import IMAGE_SIZE
from viewslots.training.settings import RunSettings
from viewslots.training.step import Model


def require_fit(settings: RunSettings, weights: Model) -> None:
    """Whether a run can start from these weights: the networks count, not what is made of them."""
    model = trainable_class(settings.method)(settings.model)
    given, own = weights_for(model, weights), shapes(model.state_dict())
    if settings.optimisation.parts and type(weights) is not type(model):
        raise UserError(
            f"--init {settings.init}: holds a model of another method; only {', '.join(settings.optimisation.parts)} "
            f"is to learn, so give a trained {settings.method}"
        )
    if given is not None and shapes(given) == own:
        return
    if given is not None and given.keys() == own.keys() and weights.image_size != model.image_size:
        odd = next(name for name, shape in own.items() if given[name].shape != shape)
        theirs, ours = ("x".join(map(str, size)) for size in (weights.image_size, model.image_size))
        raise UserError(
            f"--init {settings.init}: holds a model for pictures of {theirs}, and one for {ours} has another {odd}; "
            "give one that was trained on pictures of the same size, or add "
            f"--set {IMAGE_SIZE}={as_option(weights)}, to which pictures are then resized"
        )
    raise UserError(
        f"--init {settings.init}: holds a model of another experiment or method; give one of the same sizes"
    )


def require_hand_over(before: RunSettings, stage: RunSettings) -> None:
    """That a stage can start from the one before it. Else that would be known only when the one before is done."""
    with torch.device("meta"):
        theirs, model = (trainable_class(one.method)(one.model) for one in (before, stage))
        given = weights_for(model, theirs)
    if given is None or shapes(given) != shapes(model.state_dict()):
        raise UserError(
            f"{stage.preset} cannot start from {before.preset} with these sizes of networks; "
            "change both stages: --set model.NAME without `first.`"
        )


def weights_for(model: Model, other: Model) -> Mapping[str, Tensor] | None:
    """Those that a model takes from another to start from; None where they mean something else, or where layers of
    other sizes cannot be put together."""
    with suppress(RuntimeError):
        return model.weights_from(other)
    return None


def as_option(model: Model) -> str:
    """Its size of pictures, as --set takes it."""
    height, width = model.image_size
    return str(height) if height == width else f"[{height},{width}]"


def begun_anew(settings: RunSettings, weights: Model) -> list[str]:
    """Parts of the model that do not start from the given weights, by their names."""
    model = trainable_class(settings.method)(settings.model)
    given, own = model.weights_from(weights), model.state_dict()
    assert given is not None, "require_fit comes first"
    fresh = {name for name, value in own.items() if given[name].data_ptr() == value.data_ptr()}
    mixed = {beginning(name, 1) for name in own.keys() - fresh}
    return sorted({beginning(name, 2 if beginning(name, 1) in mixed else 1) for name in fresh})


def beginning(name: str, depth: int) -> str:
    return ".".join(name.split(".")[:depth])


def shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def start_from(model: Model, weights: Model) -> None:
    """Another model's weights; running statistics start anew, since the pictures are others."""
    given = model.weights_from(weights)
    assert given is not None, "require_fit comes first"
    model.load_state_dict(given)
    model.restart_statistics()


def train_parts(model: Model, parts: Sequence[str]) -> None:
    """All other parameters stay as they are; running statistics follow the pictures all the same."""
    if parts:
        model.requires_grad_(False)
    for part in parts:
        model.get_submodule(part).requires_grad_(True)
