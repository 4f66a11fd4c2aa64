"""Speed, measured within one run: every figure stands beside another of the same machine and minute."""

import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

from viewslots.model_presets import model_preset
from viewslots.models import load_model
from viewslots.models.ocloc.model import Ocloc
from viewslots.provenance import provenance
from viewslots.scenes.clevr import CLEVR_M
from viewslots.types import SceneBatch

BATCHES = {"cpu": (1, 4), "cuda": (16, 64)}
"""Scenes a call."""


def bench_scenes(device: str, seconds: float, seed: int) -> dict[str, Any]:
    """Pictures a second of the ray tracer, by quality and batch size, on clevr-m1 (10 views, 3-6 objects, 64x64)."""
    world = CLEVR_M["clevr-m1"]
    scenes = [world.sample(seed, "train", index) for index in range(max(BATCHES[device]))]

    def rate(quality: str, batch: int, where: str = device) -> float:
        return _rate(lambda: world.render(scenes[:batch], 6, where, quality), batch * world.views, where, seconds)

    few, many = BATCHES[device]
    rates = {way: rate(*way) for way in (("fast", few), ("fast", many), ("reference", few))}
    fast, reference = max(rates["fast", few], rates["fast", many]), rates["reference", few]
    result = {
        "provenance": provenance(),
        "device": device,
        "threads": torch.get_num_threads(),
        "seed": seed,
        "rows": [
            {"quality": quality, "scenes_at_once": batch, "pictures_per_second": value}
            for (quality, batch), value in rates.items()
        ],
        "pictures_per_second": fast,
        "fast_over_reference": fast / reference,
    }
    if device == "cuda":
        plain = rate("fast", 4, "cpu")
        result |= {"cpu_pictures_per_second": plain, "cuda_over_cpu": fast / plain}
        result["peak_memory_gb"] = torch.cuda.max_memory_allocated() / 1e9
    return result


INFER_PRESETS = ("compact", "clevr-m1")
INFER_VIEWS, INFER_SLOTS = 4, 7


def bench_infer(device: str, seconds: float, seed: int) -> dict[str, Any]:
    """Seconds to load a model and to decompose one scene of four views into seven objects, ours beside the paper's."""
    generator = torch.Generator().manual_seed(seed)
    size = model_preset(INFER_PRESETS[0]).model.image_size
    image = torch.rand(1, INFER_VIEWS, 3, size, size, generator=generator).to(device)
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
        Ocloc(model_preset(name).model).save_pretrained(folder)
        start = time.perf_counter()
        model = load_model(folder).to(device).eval()
        loaded = time.perf_counter() - start
    draws = torch.Generator(device).manual_seed(0)
    rate = _rate(lambda: model.decompose(batch, draws, slots=INFER_SLOTS), 1, device, seconds)
    return {
        "parameters": sum(part.numel() for part in model.parameters()),
        "load_seconds": loaded,
        "decompose_seconds": 1 / rate,
    }


def _rate(work: Callable[[], object], pictures: int, device: str, seconds: float) -> float:
    """Median rate over repeats that fill `seconds`, after one call to warm up."""
    work()
    rates: list[float] = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds or len(rates) < 2:
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        rates.append(pictures / (time.perf_counter() - start))
    return statistics.median(rates)
