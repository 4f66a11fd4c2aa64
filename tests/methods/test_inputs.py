"""Pictures and sizes that a method cannot take get one clear error."""

from dataclasses import replace

import pytest
import torch

from viewslots.errors import UserError
from viewslots.methods.contract import Search
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.presets import TINY
from viewslots.methods.per_view.model import PerView
from viewslots.types import SceneBatch

METHODS = [Ocloc, PerView]
Kind = type[Ocloc] | type[PerView]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def scenes(B: int = 2, M: int = 2, size: int = 32) -> SceneBatch:
    return SceneBatch(torch.rand(B, M, 3, size, size, generator=generator()), torch.ones(B, M, dtype=torch.bool))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("image", "message"),
    [
        (torch.zeros(2, 3, 32, 32), r"shape \[B, M, 3, H, W\]"),
        (torch.zeros(2, 2, 1, 32, 32), r"shape \[B, M, 3, H, W\]"),
        (torch.zeros(2, 2, 3, 32, 31), "takes 32x32 pictures, not 32x31"),
        (torch.zeros(2, 0, 3, 32, 32), "at least one view"),
        (torch.zeros(0, 2, 3, 32, 32), "at least one scene, not B = 0"),
        (torch.full((2, 2, 3, 32, 32), torch.nan), "finite"),
        (torch.full((2, 2, 3, 32, 32), torch.inf), "finite"),
        (torch.zeros(2, 2, 3, 32, 32, dtype=torch.float64), "torch.float32, not torch.float64"),
        (torch.zeros(2, 2, 3, 32, 32, dtype=torch.float16), "torch.float32, not torch.float16"),
        (torch.zeros(2, 2, 3, 32, 32, dtype=torch.uint8), "floating-point"),
        (torch.full((2, 2, 3, 32, 32), 255.0), r"lie in \[0, 1\], not \[255, 255\]"),
        (torch.full((2, 2, 3, 32, 32), -0.5), r"lie in \[0, 1\]"),
    ],
)
def test_bad_pictures(method: Kind, image: torch.Tensor, message: str) -> None:
    with pytest.raises(UserError, match=message):
        method(TINY).infer(SceneBatch(image, torch.ones(image.shape[:2], dtype=torch.bool)), generator())


@pytest.mark.parametrize("method", METHODS)
def test_bad_sizes(method: Kind) -> None:
    model = method(TINY)
    with pytest.raises(UserError, match="K must be at least 1, not 0"):
        model.infer(scenes(), generator(), slots=0)
    with pytest.raises(UserError, match="M = 0"):
        model.draw_noise(scenes(M=0), generator())
    with pytest.raises(UserError, match="at least one view"):
        model.infer(replace(scenes(), view_mask=torch.zeros(2, 2, dtype=torch.bool)), generator())
    with pytest.raises(UserError, match=r"view_mask must be boolean, not torch\.float32"):
        model.infer(replace(scenes(), view_mask=torch.ones(2, 2)), generator())


def test_sizes_without_end() -> None:
    """Refused before they fill the memory, or keep a machine busy for years."""
    with pytest.raises(UserError, match="K must be at most 1000, not 1000000"):
        Ocloc(TINY).infer(scenes(), generator(), slots=10**6)
    for name, most in (("starts", 1000), ("looks", 1000), ("refinement", 10_000)):
        with pytest.raises(UserError, match=f"search.{name} cannot be 1000000: it must be at most {most}"):
            Search(**{name: 10**6})


def test_bad_sizes_of_a_scene_from_the_prior() -> None:
    with pytest.raises(UserError, match="K must be at least 1"):
        Ocloc(TINY).sample_codes(1, 0, generator())
    with pytest.raises(UserError, match="M = 0"):
        Ocloc(TINY).sample_codes(0, 1, generator())
