"""All methods by name, in one dictionary. Their code is imported when it is asked for."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from viewslots.errors import UserError, did_you_mean
from viewslots.methods.contract import Method, TrainableMethod
from viewslots.methods.names import METHODS
from viewslots.methods.pretrained import CONFIG_FILE, find_file, read_settings


def method_class(name: str) -> type[Method]:
    require_known(name, list(METHODS))
    module, _, kind = METHODS[name].place.partition(":")
    return cast(type[Method], getattr(importlib.import_module(module), kind))


def require_known(name: str, offered: Sequence[str]) -> None:
    """`offered`: what could be meant instead."""
    if name not in METHODS:
        raise UserError(f"unknown method {name!r}; {did_you_mean(name, offered)}known are {', '.join(offered)}")


def trainable_class(name: str) -> type[TrainableMethod[Any]]:
    require_known(name, [known for known, method in METHODS.items() if method.learns])
    kind = method_class(name)
    if not issubclass(kind, TrainableMethod):
        raise UserError(f"{name} learns nothing, so there is nothing to train or load")
    return kind


def untrained_method(name: str) -> Method | None:
    """A method that learns nothing, by its name; None for every other word."""
    if name not in METHODS or issubclass(kind := method_class(name), TrainableMethod):
        return None
    return kind()


def load_model(source: str | Path, **hub: Any) -> TrainableMethod[Any]:
    """A trained model of any method, from a folder or the Hugging Face Hub."""
    method, _ = read_settings(find_file(source, CONFIG_FILE, hub))
    if method not in METHODS:
        raise UserError(f"{source} holds a model of method {method!r}; known are {', '.join(METHODS)}")
    return trainable_class(method).from_pretrained(source, **hub)
