from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from torch import Tensor

from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.presets import TINY
from viewslots.viewpoints.scene import InferredScene, Reader, load

BLENDER = Path(__file__).parent.parent / "data" / "clevr_m1_blender_2scenes.h5"
SMALL = replace(TINY, slots=4, view_dim=3, sigma_x=0.2)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def reader() -> Reader:
    """A small untrained model: what it answers means nothing, but must follow from its networks."""
    model = Ocloc(SMALL, torch.Generator().manual_seed(3))
    with torch.no_grad():  # shapes and orders that differ from object to object
        for network in (model.generation.f_shp_apc, model.generation.f_ord, model.inference.g_obj):
            for parameter in network.parameters():
                parameter.mul_(1.7)
    return Reader(model, "small")


@pytest.fixture(scope="session")
def pictures() -> Tensor:
    return torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def scene(reader: Reader, pictures: Tensor) -> InferredScene:
    """Four objects, of which the second is absent."""
    return replace(reader.decompose(pictures), presence=torch.tensor([1.0, 0.2, 0.5, 0.9]))


@pytest.fixture(scope="session")
def compact() -> Reader:
    return load("compact")


@pytest.fixture(scope="session")
def clevr() -> np.ndarray:
    """[2, 4, 64, 64, 3] u8: two scenes by Blender, four views each, of three and six objects."""
    with h5py.File(BLENDER) as file:
        return file["valid/image"][:]


@pytest.fixture(scope="session")
def clevr_scenes(compact: Reader, clevr: np.ndarray) -> list[InferredScene]:
    """By a search of one start: the most likely codes, not a sample."""
    return [compact.decompose(pictures, starts=1) for pictures in clevr]
