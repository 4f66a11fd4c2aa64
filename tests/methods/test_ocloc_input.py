"""Bad pictures get one clear error; types, shapes and compilation hold for every method."""

import copy
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch

from viewslots.errors import UserError
from viewslots.experiments import EXPERIMENTS, experiment
from viewslots.methods.ocloc.presets import TINY
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.objective import weighted_loss
from viewslots.methods.ocloc.schedule import Annealing, OclocSchedule
from viewslots.methods.per_view.model import PerView
from viewslots.methods.schedules import Optimisation
from viewslots.types import SceneBatch

METHODS = [Ocloc, PerView]


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
def test_bad_pictures(method: type[Ocloc], image: torch.Tensor, message: str) -> None:
    with pytest.raises(UserError, match=message):
        method(TINY).decompose(SceneBatch(image, torch.ones(image.shape[:2], dtype=torch.bool)), generator())


@pytest.mark.parametrize("method", METHODS)
def test_bad_sizes(method: type[Ocloc]) -> None:
    model = method(TINY)
    with pytest.raises(UserError, match="K must be at least 1, not 0"):
        model.decompose(scenes(), generator(), slots=0)
    with pytest.raises(UserError, match="M = 0"):
        model.draw_noise(scenes(M=0), generator())
    with pytest.raises(UserError, match="at least one view"):
        model.decompose(replace(scenes(), view_mask=torch.zeros(2, 2, dtype=torch.bool)), generator())
    with pytest.raises(UserError, match=r"view_mask must be boolean, not torch\.float32"):
        model.decompose(replace(scenes(), view_mask=torch.ones(2, 2)), generator())
    with pytest.raises(UserError, match="K must be at least 1"):
        model.sample_prior(1, 1, 0, generator())
    with pytest.raises(UserError, match="M = 0"):
        model.sample_prior(1, 0, 1, generator())
    with pytest.raises(UserError, match="B = 0"):
        model.sample_prior(0, 1, 1, generator())


def test_bad_pictures_of_a_known_scene() -> None:
    model, batch = Ocloc(TINY), scenes(2)
    noise = model.draw_noise(batch, generator())
    given = model.infer_posterior(batch, noise)
    with pytest.raises(UserError, match="finite"):
        model.estimate_views(replace(batch, image=batch.image * torch.nan), given, noise)
    with pytest.raises(UserError, match="pictures of 3 scenes, but 2 scenes are given"):
        model.estimate_views(scenes(3), given, noise)


@pytest.mark.parametrize("method", METHODS)
def test_decomposition_is_what_the_contract_says(method: type[Ocloc]) -> None:
    model = method(TINY).eval()
    answer = model.decompose(scenes(2, 3), generator(), slots=5)
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
    again = model.decompose(scenes(2, 3), generator(), slots=5)
    assert torch.equal(answer.layer_masks, again.layer_masks)


def test_baseline_estimates_no_viewpoints() -> None:
    model, batch = PerView(TINY), scenes()
    noise = model.draw_noise(batch, generator())
    with pytest.raises(UserError, match="no viewpoints to estimate"):
        model.estimate_views(batch, model.infer_posterior(batch, noise), noise)


def test_baseline_presence_ignores_padded_views() -> None:
    model = PerView(TINY, generator(4)).eval()
    batch = scenes(2, 3)
    masked = replace(batch, view_mask=torch.tensor([[True, False, False]] * 2))
    plain, padded = model.decompose(batch, generator()), model.decompose(masked, generator())
    assert plain.presence is not None
    assert padded.presence is not None
    assert bool((padded.presence <= plain.presence).all())
    assert bool((padded.presence < plain.presence).any())


@pytest.mark.parametrize("method", METHODS)
def test_one_graph_without_python_branches(method: type[Ocloc]) -> None:
    """torch.compile takes the whole loss of a training step, NVIL's statistics and the way back as one graph each,
    with the schedule's values as tensors, and changes nothing.
    """
    model, batch, annealing = method(TINY), scenes(), OclocSchedule().at(500).tensors("cpu")
    noise, twin = model.draw_noise(batch, generator()), copy.deepcopy(model)
    compiled = torch.compile(twin.elbo, backend="aot_eager", fullgraph=True)
    expected = weighted_loss(model.elbo(batch, annealing, noise), annealing)
    found = weighted_loss(compiled(batch, annealing, noise), annealing)
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
    """jaxtyping and beartype check every annotated call of a pass, in a process of its own."""
    program = """
from jaxtyping import install_import_hook
modules = ["viewslots.methods." + name for name in ("ocloc", "umbra", "distributions")] + ["viewslots.types"]
with install_import_hook(modules, "beartype.beartype"):
    import torch
    from viewslots.methods.ocloc.presets import TINY
    from viewslots.methods.ocloc.search import Search
    from viewslots.methods.ocloc.model import Ocloc
    from viewslots.methods.per_view.model import PerView
    from viewslots.methods.ocloc.schedule import Annealing
    from viewslots.methods.umbra.config import Annealing, UmbraConfig
    from viewslots.methods.umbra.model import Umbra
    from viewslots.types import SceneBatch
for method in (Ocloc, PerView):
    model, rng = method(TINY), torch.Generator().manual_seed(0)
    batch = SceneBatch(torch.rand(2, 3, 3, 32, 32), torch.ones(2, 3, dtype=torch.bool))
    model.elbo(batch, Annealing(), model.draw_noise(batch, rng, 5))
    model.decompose(batch, rng)
    model.sample_prior(2, 2, 4, rng)
noise = Ocloc(TINY).draw_noise(batch, rng)
Ocloc(TINY).estimate_views(batch, Ocloc(TINY).infer(batch, noise), noise)
umbra = Umbra(UmbraConfig(**vars(TINY)))
umbra.elbo(batch, Annealing(), umbra.draw_noise(batch, rng, 5))
for careful in (Ocloc(TINY), umbra):
    careful.take_care(Search(2, looks=1, refinement=2))
    careful.decompose(batch, rng)
    careful.decompose_new_views(batch, batch, rng)
try:
    SceneBatch(torch.rand(2, 3, 32, 32), torch.ones(2, 3, dtype=torch.bool))
except Exception:
    print("checked")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "checked\n", done.stderr[-2000:]


def test_compact_is_fast_enough_for_a_page() -> None:
    """Four views in under a quarter of a second of one core: CPU time, the best of ten (the machine may be shared)."""
    model = Ocloc(experiment("compact").model).eval()
    batch, times, threads = scenes(1, 4, 64), [], torch.get_num_threads()
    torch.set_num_threads(1)
    for _ in range(10):
        start = time.process_time()
        model.decompose(batch, generator(), slots=7)
        times.append(time.process_time() - start)
    torch.set_num_threads(threads)
    assert min(times) < 0.25, times


@pytest.mark.parametrize("name", ["clevr-m1", "dsprites", "abstract", "clevr", "compact"])
def test_presets_train_two_steps(name: str) -> None:
    """Every decoder, with its own optimisation settings, on one scene."""
    preset = EXPERIMENTS[name]
    model = Ocloc(preset.model)
    optimiser = torch.optim.Adam(model.parameters(), lr=preset.optimisation.learning_rate)
    batch, rng = scenes(1, 1, preset.model.image_size), generator()
    for step in range(2):
        annealing = preset.schedule.at(step)
        loss = weighted_loss(model.elbo(batch, annealing, model.draw_noise(batch, rng, 2)), annealing).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        assert bool(loss.isfinite())
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_schedules_of_the_published_runs() -> None:
    multi, second, single = (EXPERIMENTS[name].schedule for name in ("clevr-m1", "clevr-m3", "dsprites"))
    assert multi.at(0).temperature_shp == 10
    assert multi.at(75_000).softness == pytest.approx((10 * 0.5) ** 0.5)
    assert multi.at(150_000).temperature_prs == pytest.approx(0.5)
    assert multi.at(50_000).weight_view == pytest.approx(0.5)
    assert multi.at(100_000).weight_bck == pytest.approx(10.0)
    assert multi.at(150_000).compactness_rate == pytest.approx(0.05)
    assert second.at(25_000).weight_rho == pytest.approx(0.5)
    assert single.at(400_000).weight_bck == pytest.approx(1.0)
    assert single.at(0).compactness_rate == 0
    values = multi.at(30_000)
    assert all(isinstance(value, torch.Tensor) for value in vars(values.tensors("cpu")).values())
    assert {name: float(value) for name, value in vars(values.tensors("cpu")).items()} == pytest.approx(vars(values))
    printed = multi.as_printed().at(0)
    assert printed == Annealing(temperature_prs=10, temperature_shp=10)


def test_learning_rates_of_the_published_runs() -> None:
    first, second = Optimisation(), experiment("clevr-m4").optimisation
    assert first.learning_rate_at(5_000) == pytest.approx(4e-4 * 0.5**0.1 * 0.5)
    assert first.learning_rate_at(50_000) == pytest.approx(2e-4)
    assert (first.views_at(9_999, 4), first.views_at(10_000, 4)) == (1, 4)
    assert second.learning_rate_at(0) == pytest.approx(1e-4)
    assert second.pretrained_preset == "clevr-m2"
