from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from shape_world import make_shapes


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve scenes to train on, three to validate, 32x32 pixels, three views."""
    return make_shapes(tmp_path_factory.mktemp("data") / "shapes")
