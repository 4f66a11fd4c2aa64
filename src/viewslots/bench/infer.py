"""Seconds to load a model and to decompose a scene."""

import tempfile
import time
from dataclasses import replace
from typing import Any

import torch

from viewslots.bench.timing import rate
from viewslots.data.presets import data_preset
from viewslots.experiments import experiment
from viewslots.methods.contract import Search
from viewslots.methods.registry import load_model, trainable_class
from viewslots.provenance import provenance
from viewslots.runs import load_run
from viewslots.types import SceneBatch, sides

INFER_PRESETS = ("compact", "clevr-m1")
SEARCHING = ("umbra", "umbra-quick")
"""Shipped models, side by side by how long they search. That depends on the scene."""
INFER_VIEWS, INFER_SLOTS = 4, 7


def bench_infer(device: str, seconds: float, seed: int) -> dict[str, Any]:
    """Seconds to load a model and to decompose one scene of four views into seven objects, ours beside the paper's.

    Plain answers of noise; and of a scene of clevr-m1 what shipped models answer by default, and from one start.
    """
    generator = torch.Generator().manual_seed(seed)
    size = experiment(INFER_PRESETS[0]).model.image_size
    image = torch.rand(1, INFER_VIEWS, 3, *sides(size), generator=generator).to(device)
    batch = SceneBatch(image, torch.ones(1, INFER_VIEWS, dtype=torch.bool, device=device))
    rows = {name: _infer_row(name, batch, device, seconds) for name in INFER_PRESETS}
    scene = _first_scene(seed, device)
    searched = {name: _searched_row(name, scene, device, seconds) for name in SEARCHING}
    ours, paper = (rows[name]["decompose_seconds"] for name in INFER_PRESETS)
    return {
        "provenance": provenance(),
        "device": device,
        "threads": torch.get_num_threads(),
        "seed": seed,
        "views": INFER_VIEWS,
        "slots": INFER_SLOTS,
        "models": rows,
        "paper_over_compact": paper / ours,
        "searched": searched,
        "umbra_over_quick": searched["umbra"]["default_seconds"] / searched["umbra-quick"]["default_seconds"],
    }


def _first_scene(seed: int, device: str) -> SceneBatch:
    world = data_preset("clevr-m1").world(None)
    drawn = world.sample(seed, "test1", 0)
    pictures = world.render([replace(drawn, cameras=drawn.cameras[:INFER_VIEWS])], INFER_SLOTS, device)
    image = torch.from_numpy(pictures.image).to(device).permute(0, 1, 4, 2, 3) / 255
    return SceneBatch(image, torch.ones(1, INFER_VIEWS, dtype=torch.bool, device=device))


def _searched_row(name: str, batch: SceneBatch, device: str, seconds: float) -> dict[str, Any]:
    model, draws = load_run(name).to(device), torch.Generator(device).manual_seed(0)

    def answering(search: Search | None) -> float:
        return 1 / rate(lambda: model.infer(batch, draws, INFER_SLOTS, search).decomposition(), 1, device, seconds)

    own = model.default_search
    return {
        "search": own and vars(own),
        "default_seconds": answering(own),
        "one_start_seconds": answering(Search(starts=1)),
        "one_start_spare_seconds": answering(Search(starts=1, spare=4)),
    }


def _infer_row(name: str, batch: SceneBatch, device: str, seconds: float) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        preset = experiment(name)
        trainable_class(preset.method)(preset.model).save_pretrained(folder)
        start = time.perf_counter()
        model = load_model(folder).to(device).eval()
        loaded = time.perf_counter() - start
    draws = torch.Generator(device).manual_seed(0)
    per_second = rate(lambda: model.infer(batch, draws, slots=INFER_SLOTS).decomposition(), 1, device, seconds)
    return {
        "parameters": sum(part.numel() for part in model.parameters()),
        "load_seconds": loaded,
        "decompose_seconds": 1 / per_second,
    }
