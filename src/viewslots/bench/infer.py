"""Seconds to load a model and to decompose a scene."""

import tempfile
import time
from typing import Any

import torch

from viewslots.bench.timing import rate
from viewslots.experiments import experiment
from viewslots.methods.registry import load_model, trainable_class
from viewslots.provenance import provenance
from viewslots.types import SceneBatch, sides

INFER_PRESETS = ("compact", "clevr-m1")
INFER_VIEWS, INFER_SLOTS = 4, 7


def bench_infer(device: str, seconds: float, seed: int) -> dict[str, Any]:
    """Seconds to load a model and to decompose one scene of four views into seven objects, ours beside the paper's."""
    generator = torch.Generator().manual_seed(seed)
    size = experiment(INFER_PRESETS[0]).model.image_size
    image = torch.rand(1, INFER_VIEWS, 3, *sides(size), generator=generator).to(device)
    batch = SceneBatch(image, torch.ones(1, INFER_VIEWS, dtype=torch.bool, device=device))
    rows = {name: _infer_row(name, batch, device, seconds) for name in INFER_PRESETS}
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
