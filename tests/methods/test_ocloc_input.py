"""Bad pictures get one clear error; types, shapes and compilation hold for every method."""

import copy
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch

from viewslots.errors import UserError
from viewslots.experiments import experiment
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.presets import TINY
from viewslots.methods.ocloc.schedule import OclocSchedule
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


def test_bad_sizes_of_a_scene_from_the_prior() -> None:
    with pytest.raises(UserError, match="K must be at least 1"):
        Ocloc(TINY).sample_codes(1, 0, generator())
    with pytest.raises(UserError, match="M = 0"):
        Ocloc(TINY).sample_codes(0, 1, generator())


def test_bad_pictures_of_a_known_scene() -> None:
    model, batch = Ocloc(TINY), scenes(2)
    noise = model.draw_noise(batch, generator())
    given = model.infer_posterior(batch, noise)
    with pytest.raises(UserError, match="finite"):
        model.estimate_views(replace(batch, image=batch.image * torch.nan), given, noise)
    with pytest.raises(UserError, match="pictures of 3 scenes, but 2 scenes are given"):
        model.estimate_views(scenes(3), given, noise)


@pytest.mark.parametrize("method", METHODS)
def test_decomposition_is_what_the_contract_says(method: Kind) -> None:
    model = method(TINY).eval()
    answer = model.infer(scenes(2, 3), generator(), slots=5).decomposition()
    assert answer.has_background
    assert answer.reconstruction.shape == (2, 3, 3, 32, 32)
    assert answer.layer_masks.shape == (2, 3, 6, 32, 32)
    assert answer.complete_shapes is not None
    assert answer.complete_shapes.shape == (2, 3, 5, 32, 32)
    assert answer.presence is not None
    assert answer.presence.shape == (2, 5)
    assert answer.presence_probability is not None
    assert answer.presence_probability.shape == (2, 5)
    assert answer.depth_order is not None
    assert answer.depth_order.shape == (2, 3, 5)
    assert float((answer.layer_masks.sum(2) - 1).abs().max()) < 1e-5
    again = model.infer(scenes(2, 3), generator(), slots=5).decomposition()
    assert torch.equal(answer.layer_masks, again.layer_masks)


@pytest.mark.parametrize("method", METHODS)
def test_one_graph_without_python_branches(method: Kind) -> None:
    """torch.compile takes the whole loss of a training step, NVIL's statistics and the way back as one graph each,
    with the schedule's values as tensors, and changes nothing.
    """
    model, batch, annealing = method(TINY), scenes(), OclocSchedule().at(500).tensors("cpu")
    noise, twin = model.draw_noise(batch, generator()), copy.deepcopy(model)
    compiled = torch.compile(twin, backend="aot_eager", fullgraph=True)
    expected = model(batch, annealing, noise).minimised
    found = compiled(batch, annealing, noise).minimised
    assert torch.allclose(expected, found)
    expected.mean().backward()
    found.mean().backward()
    for (name, left), right in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert left.grad is not None
        assert right.grad is not None
        assert torch.allclose(left.grad, right.grad, rtol=1e-3, atol=1e-5), name
    assert float(model.nvil.weight) > 0
    for left, right in zip(model.buffers(), twin.buffers(), strict=True):
        assert torch.allclose(left, right, rtol=1e-5)


def test_shapes_of_signatures_hold_at_run_time() -> None:
    """jaxtyping and beartype check every annotated call of a pass, in a process of its own.

    All modules of methods but those that say Self, which beartype takes from decorated classes alone.
    """
    program = """
from pathlib import Path
from jaxtyping import install_import_hook
import viewslots
root = Path(viewslots.__file__).parent
files = [path for path in root.glob("methods/**/*.py") if path.name != "__init__.py" and "Self" not in path.read_text()]
modules = [".".join(("viewslots", *path.relative_to(root).with_suffix("").parts)) for path in files]
assert {"viewslots.methods." + name for name in ("contract", "ocloc.model", "umbra.image_model")} <= set(modules)
with install_import_hook([*modules, "viewslots.types"], "beartype.beartype"):
    import torch
    from viewslots.methods.contract import Losses, Search
    from viewslots.methods.ocloc.model import Ocloc
    from viewslots.methods.ocloc.presets import TINY
    from viewslots.methods.ocloc.schedule import Annealing
    from viewslots.methods.per_view.model import PerView
    from viewslots.methods.umbra.config import UmbraConfig
    from viewslots.methods.umbra.model import Umbra
    from viewslots.types import SceneBatch
rng = torch.Generator().manual_seed(0)
batch = SceneBatch(torch.rand(2, 3, 3, 32, 32), torch.ones(2, 3, dtype=torch.bool))
methods = (Ocloc(TINY), PerView(TINY), Umbra(UmbraConfig(**vars(TINY))))
for model in methods:
    for called in (model, model.fast("fp32").module):
        called(batch, Annealing(), model.draw_noise(batch, rng, 5)).minimised.sum().backward()
    answer = model.infer(batch, rng)
    answer.decomposition()
    model.diagnostics(answer)
    model.parameter_counts()
for model in (methods[0], methods[2]):
    for search in (None, Search(2, looks=1, refinement=2)):
        answer = model.infer(batch, rng, 4, search)
        turned = answer.new_views(batch, rng)
        turned.decomposition()
        turned.view_codes
        model.render_codes(turned.scene_codes(1))
    model.render_codes(model.sample_codes(2, 3, rng))
for make in (
    lambda: SceneBatch(torch.rand(2, 3, 32, 32), torch.ones(2, 3, dtype=torch.bool)),
    lambda: Losses(torch.zeros(2, 1), torch.zeros(2), {}),
):
    try:
        make()
    except Exception:
        print("checked")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == 2 * "checked\n", done.stderr[-2000:]


def test_compact_is_fast_enough_for_a_page() -> None:
    """Four views in under a quarter of a second of one core: CPU time, the best of ten (the machine may be shared)."""
    model = Ocloc(experiment("compact").model).eval()
    batch, times, threads = scenes(1, 4, 64), [], torch.get_num_threads()
    torch.set_num_threads(1)
    for _ in range(10):
        start = time.process_time()
        model.infer(batch, generator(), slots=7).decomposition()
        times.append(time.process_time() - start)
    torch.set_num_threads(threads)
    assert min(times) < 0.25, times
