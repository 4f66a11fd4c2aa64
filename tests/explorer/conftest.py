"""Scenes by an untrained model, which is all that most tests here need."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from noise_scenes import opened_by

from viewslots.experiments import experiment
from viewslots.explorer.opened import Opened
from viewslots.methods.ocloc.model import Ocloc
from viewslots.viewpoints.scene import Reader


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def reader() -> Reader:
    """Four slots, so that some can be empty, and three directions, one more than the pad has."""
    config = replace(experiment("tiny").model, slots=4, view_dim=3)
    return Reader(Ocloc(config, torch.Generator().manual_seed(3)), "tiny")


@pytest.fixture(scope="session")
def opened(reader: Reader) -> Opened:
    return opened_by(reader, 1)


@pytest.fixture(scope="session")
def other(reader: Reader) -> Opened:
    return opened_by(reader, 2)
