"""What the rest of the package may ask of a method and of its answers, for OCLOC, Umbra and the per-view baseline."""

import copy
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import pytest
import torch
from small_model import SMALL_OCLOC, generator

from viewslots.errors import UserError
from viewslots.experiments import experiment
from viewslots.methods.contract import (
    Answer,
    Losses,
    SceneAnswer,
    SceneMethod,
    Search,
    TrainableMethod,
    ViewpointAnswer,
    leaves_of,
)
from viewslots.methods.kmeans.model import KMeansMethod
from viewslots.methods.ocloc.model import Ocloc, OclocAnswer
from viewslots.methods.ocloc.presets import TINY
from viewslots.methods.per_view.model import PerView, PerViewAnswer
from viewslots.methods.registry import method_class, trainable_class
from viewslots.methods.umbra.config import UmbraConfig
from viewslots.methods.umbra.model import Umbra
from viewslots.types import SceneBatch

torch.set_num_threads(1)

SEARCH = Search(2, looks=1, refinement=2)


def some_batch(views: int = 2, size: int = 16, scenes: int = 2, seed: int = 7) -> SceneBatch:
    image = torch.rand(scenes, views, 3, size, size, generator=generator(seed))
    return SceneBatch(image, torch.ones(scenes, views, dtype=torch.bool))


def small(kind: type[TrainableMethod[Any]]) -> TrainableMethod[Any]:
    """Untrained; shapes, presences and orders vary."""
    config = UmbraConfig(**vars(SMALL_OCLOC)) if kind is Umbra else SMALL_OCLOC
    model = kind(config, generator(1)).eval()  # type: ignore[call-arg]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator(parameter.numel()))
    return model


def tiny(kind: type[TrainableMethod[Any]]) -> TrainableMethod[Any]:
    return kind(UmbraConfig(**vars(TINY)) if kind is Umbra else TINY)  # type: ignore[call-arg]


ALL = pytest.mark.parametrize("kind", [Ocloc, Umbra, PerView])
SCENES = pytest.mark.parametrize("kind", [Ocloc, Umbra])


# What is what.


@ALL
def test_whose_scenes_can_be_turned(kind: type[TrainableMethod[Any]]) -> None:
    """has_viewpoints, the classes of the answers and the method itself say the same."""
    model, turned = small(kind), kind is not PerView
    answer = model.infer(some_batch(), generator())
    assert type(answer) is (OclocAnswer if turned else PerViewAnswer)
    assert isinstance(answer, Answer)
    assert isinstance(answer, SceneAnswer) == turned
    assert isinstance(answer, ViewpointAnswer) == turned
    assert isinstance(model, SceneMethod) == turned
    assert kind.has_viewpoints == turned
    assert not kind.needs_camera


def test_methods_by_name() -> None:
    kinds = {"ocloc": Ocloc, "per-view": PerView, "umbra": Umbra}
    for name, kind in kinds.items():
        assert trainable_class(name) is method_class(name) is kind
        assert kind.name == name
    assert method_class("kmeans") is KMeansMethod
    with pytest.raises(UserError, match="kmeans learns nothing"):
        trainable_class("kmeans")
    with pytest.raises(UserError, match="unknown method 'magic'; known are ocloc, per-view, umbra"):
        method_class("magic")


def test_how_far_a_method_searches_unless_told_otherwise() -> None:
    """The paper's methods not at all; Umbra by all that there is, after glimpses without gradient steps."""
    assert Ocloc(SMALL_OCLOC).default_search is None
    assert PerView(SMALL_OCLOC).default_search is None
    own = Umbra(UmbraConfig(**vars(SMALL_OCLOC))).default_search
    assert own == Search(starts=4, looks=1, refinement=30)
    assert own.slots_of_draws(3) == [3] * 5
    assert replace(own, spare=2).slots_of_draws(3) == [5, 5, 5, 5, 3]
    assert Umbra(UmbraConfig(**vars(SMALL_OCLOC), glimpses=1)).default_search == Search(starts=4, looks=2)
    boxed = replace(SMALL_OCLOC, box_fit=1.0)
    with_details = Umbra(UmbraConfig(**vars(boxed), glimpses=1, details=2))
    assert with_details.default_search == Search(starts=4, looks=1, refinement=60)
    by_view = Umbra(replace(with_details.config, details_by_view=True))
    assert by_view.default_search == Search(starts=4, looks=2)
    assert Search().slots_of_draws(7) == [7]


@SCENES
def test_a_default_is_taken_by_those_who_ask_for_it_alone(kind: type[Ocloc]) -> None:
    """Without a search, every method gives its plain answer: one start, and a sample."""
    model, batch, state = small(kind), some_batch(), generator(3)
    answer = model.infer(batch, state)
    assert answer.search is None
    after = generator(3)
    noise = model.draw_latent_noise(batch, after)
    assert torch.equal(state.get_state(), after.get_state())
    expected = model.sample(model.infer_posterior(batch, noise), noise, model.annealed())
    assert torch.equal(answer.decomposition().presence, expected.z_prs)  # type: ignore[arg-type]


# Learning.


@ALL
def test_losses(kind: type[TrainableMethod[Any]]) -> None:
    """Named parts in the order of the method; what compares has no weights; noise decides, and nothing else."""
    model, batch = small(kind), some_batch()
    noise = model.draw_noise(batch, generator(3))
    first, again = (model(batch, kind.schedule_class().at(50_000), noise) for _ in range(2))
    assert isinstance(first, Losses)
    assert tuple(first.terms) == kind.terms
    assert set(kind.headline) <= set(kind.terms)
    everything = [[one.minimised, one.comparable, *one.terms.values()] for one in (first, again)]
    for left, right in zip(*everything, strict=True):
        assert left.shape == (2,)
        assert torch.equal(left, right)
    assert all(len(value) in (2, 4) for value in leaves_of(noise))  # scenes, or views of the baseline
    bound = sum(first.terms[name] for name in ("constant", "nll", "view", "attr", "rho", "prs", "costs"))
    torch.testing.assert_close(first.comparable, bound)
    assert not torch.allclose(first.minimised, first.comparable)


@ALL
def test_after_training_nothing_is_weighted(kind: type[TrainableMethod[Any]]) -> None:
    model, batch = small(kind), some_batch()
    losses = model(batch, model.annealed(), model.draw_noise(batch, generator(3)))
    taught = losses.comparable + losses.terms["policy"] + losses.terms["baseline"]
    torch.testing.assert_close(losses.minimised, taught)


@ALL
def test_statistics_restart_and_are_shared(kind: type[TrainableMethod[Any]]) -> None:
    model, batch, gathered = small(kind).train(), some_batch(), []
    model.share_statistics(lambda value: gathered.append(value) or value)
    model(batch, model.annealed(), model.draw_noise(batch, generator(3)))
    assert len(gathered) == 2
    assert float(model.nvil.weight) > 0
    model.restart_statistics()
    assert not any(float(value) for value in (model.nvil.mean, model.nvil.variance, model.nvil.weight))


@ALL
def test_diagnostics_are_the_shares_of_the_slots(kind: type[TrainableMethod[Any]]) -> None:
    model = small(kind)
    found = model.diagnostics(model.infer(some_batch(), generator(), slots=4))
    assert list(found) == [f"background_choice_{slot}" for slot in range(5)]
    assert sum(found.values()) == pytest.approx(1)


@ALL
def test_one_graph_without_python_branches(kind: type[TrainableMethod[Any]]) -> None:
    """torch.compile takes the whole loss of a training step, NVIL's statistics and the way back as one graph each,
    with the schedule's values as tensors, and changes nothing.
    """
    model, batch, annealing = tiny(kind), some_batch(size=32, seed=0), kind.schedule_class().at(500).tensors("cpu")
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
        # Rewards are normalised, so the gradient of NVIL's last bias is 0 but for rounding.
        assert torch.allclose(left.grad, right.grad, rtol=1e-3, atol=1e-4), name
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


# Answers.


@ALL
def test_a_decomposition_has_the_sizes_it_should_have(kind: type[TrainableMethod[Any]]) -> None:
    model = small(kind)
    answer = model.infer(some_batch(3), generator(), slots=5).decomposition()
    assert answer.has_background
    assert answer.reconstruction.shape == (2, 3, 3, 16, 16)
    assert answer.layer_masks.shape == (2, 3, 6, 16, 16)
    assert answer.complete_shapes is not None
    assert answer.complete_shapes.shape == (2, 3, 5, 16, 16)
    assert answer.presence is not None
    assert answer.presence.shape == (2, 5)
    assert answer.presence_probability is not None
    assert answer.presence_probability.shape == (2, 5)
    assert answer.depth_order is not None
    assert answer.depth_order.shape == (2, 3, 5)
    assert float((answer.layer_masks.sum(2) - 1).abs().max()) < 1e-5
    again = model.infer(some_batch(3), generator(), slots=5).decomposition()
    assert torch.equal(answer.layer_masks, again.layer_masks)


def test_compact_is_fast_enough_for_a_page() -> None:
    """Four views in under a quarter of a second of one core: CPU time, the best of ten (the machine may be shared)."""
    model = Ocloc(experiment("compact").model).eval()
    batch, times = some_batch(4, 64, scenes=1), []
    for _ in range(10):
        start = time.process_time()
        model.infer(batch, generator(), slots=7).decomposition()
        times.append(time.process_time() - start)
    assert min(times) < 0.25, times


# Scenes as codes.


@SCENES
def test_codes_of_a_searched_answer_show_what_it_shows(kind: type[Ocloc]) -> None:
    model, batch = small(kind), some_batch()
    state = generator(3)
    answer = model.infer(batch, state, search=SEARCH)
    for asked in (answer, answer.new_views(some_batch(3), state)):
        whole = asked.decomposition()
        for scene in range(2):
            codes = asked.scene_codes(scene)
            with torch.no_grad():
                shown = model.render_codes(codes)
            assert torch.equal(codes.views, asked.view_codes[scene])
            torch.testing.assert_close(shown.image, whole.reconstruction[scene])
            torch.testing.assert_close(shown.masks, whole.layer_masks[scene])
            torch.testing.assert_close(shown.complete, whole.complete_shapes[scene])  # type: ignore[index]
            torch.testing.assert_close(shown.order, whole.depth_order[scene])  # type: ignore[index]
            assert torch.equal((codes.presence >= 0.5).float(), whole.presence[scene])  # type: ignore[index]


@SCENES
def test_codes_of_a_plain_answer_are_its_sample(kind: type[Ocloc]) -> None:
    answer = small(kind).infer(some_batch(), generator(3))
    for scene in range(2):
        codes = answer.scene_codes(scene)
        assert torch.equal(codes.views, answer.latents.z_view[scene])
        assert torch.equal(codes.background, answer.latents.z_bck[scene])
        assert torch.equal(codes.objects, answer.latents.z_attr[scene])
        assert torch.equal(codes.presence, answer.latents.z_prs[scene])


@SCENES
def test_layers_of_codes_make_the_picture(kind: type[Ocloc]) -> None:
    """And without objects the bare background is all there is; only Umbra's objects change it."""
    model = small(kind)
    codes = model.sample_codes(2, 4, generator(5))
    with torch.no_grad():
        shown = model.render_codes(codes)
        alone = model.render_codes(type(codes)(codes.views, codes.background, codes.objects, torch.zeros(4)))
        there = model.render_codes(type(codes)(codes.views, codes.background, codes.objects, torch.ones(4)))
    layers = torch.cat([shown.background[:, None], shown.appearance], 1)
    torch.testing.assert_close((shown.masks[:, :, None] * layers).sum(1), shown.image)
    torch.testing.assert_close(alone.image, shown.bare)
    assert torch.equal(alone.background, alone.bare)
    assert torch.equal(there.background, there.bare) == (kind is Ocloc)
