"""Pictures a second of the renderer."""

from typing import Any

import torch

from viewslots.bench.timing import rate
from viewslots.provenance import provenance
from viewslots.scenes.clevr.family import CLEVR_M
from viewslots.scenes.tabletop.family import TABLETOP

BATCHES = {"cpu": (1, 4), "cuda": (16, 64)}
"""Scenes a call."""


def bench_scenes(device: str, seconds: float, seed: int) -> dict[str, Any]:
    """Pictures a second of the ray tracers, by quality and batch size.

    On clevr-m1 (10 views, 3-6 objects, 64x64) and, at `fast`, on tabletop (10 views, 2-6 objects, 128x128).
    """
    world = CLEVR_M["clevr-m1"]
    scenes = [world.sample(seed, "train", index) for index in range(max(BATCHES[device]))]

    def pictures_per_second(quality: str, batch: int, where: str = device) -> float:
        return rate(lambda: world.render(scenes[:batch], 6, where, quality), batch * world.views, where, seconds)

    few, many = BATCHES[device]
    rates = {way: pictures_per_second(*way) for way in (("fast", few), ("fast", many), ("reference", few))}
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
        "tabletop": bench_tabletop(device, seconds, seed),
    }
    if device == "cuda":
        plain = pictures_per_second("fast", 4, "cpu")
        result |= {"cpu_pictures_per_second": plain, "cuda_over_cpu": fast / plain}
        result["peak_memory_gb"] = torch.cuda.max_memory_allocated() / 1e9
    return result


def bench_tabletop(device: str, seconds: float, seed: int) -> dict[str, Any]:
    """Pictures a second of tabletop scenes at `fast`."""
    world = TABLETOP["tabletop"]
    scenes = [world.sample(seed, "train", index) for index in range(max(BATCHES[device]))]

    def pictures_per_second(batch: int) -> float:
        return rate(lambda: world.render(scenes[:batch], 6, device), batch * world.views, device, seconds)

    rates = {batch: pictures_per_second(batch) for batch in BATCHES[device]}
    rows = [
        {"quality": "fast", "scenes_at_once": batch, "pictures_per_second": value} for batch, value in rates.items()
    ]
    return {"rows": rows, "pictures_per_second": max(rates.values())}
