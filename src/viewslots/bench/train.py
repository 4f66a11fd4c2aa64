"""Training steps a second of any experiments: the plain step beside the fast one."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from viewslots.bench.timing import rate
from viewslots.data.dataset import whole_batch
from viewslots.experiments import EXPERIMENTS, experiment
from viewslots.methods.contract import Precision
from viewslots.methods.registry import trainable_class
from viewslots.provenance import provenance
from viewslots.terminal import say
from viewslots.training.step import EagerStep, fast_step
from viewslots.training.weights import train_parts

CPU_BATCH = 2
"""Scenes in a batch; on a CPU a whole one would take a minute a step."""
SCENES, STORED_VIEWS = 512, 10

KERNELS = 40

PLAIN, FAST = "plain", "fast"


def bench_train(device: str, seconds: float, seed: int, names: Sequence[str] = ()) -> dict[str, Any]:
    """Whole steps, choice of pictures and noise included, of random pictures that lie on the device."""
    ways: dict[str, tuple[tuple[str, Precision], ...]] = {
        "cpu": ((PLAIN, "fp32"), (FAST, "fp32")),
        "cuda": ((PLAIN, "fp32"), (PLAIN, "bf16"), (FAST, "bf16")),
    }
    names = names or one_of_each_method()
    for name in names:
        experiment(name)  # refuses unknown ones before the first is measured
    rows, ratios = [], {}
    for name in names:
        here = [_row(name, way, kind, device, seconds, seed) for way, kind in ways[device]]
        plain, *_, fast = (row["steps_per_second"] for row in here)
        ratios[name] = {PLAIN: plain, FAST: fast, "fast_over_plain": fast / plain}
        say(f"{name}: plain {plain:.2f}, fast {fast:.2f} steps a second, {fast / plain:.1f} times")
        rows += here
    return {
        "provenance": provenance(),
        "device": device,
        "threads": torch.get_num_threads(),
        "seed": seed,
        "experiments": ratios,
        "rows": rows,
    }


def one_of_each_method() -> tuple[str, ...]:
    """The first experiment of every method in its published size."""
    found: dict[str, str] = {}
    for name, made in EXPERIMENTS.items():
        if name == f"{made.method}/{made.data}":
            found.setdefault(made.method, name)
    return tuple(found.values())


def _row(name: str, way: str, precision: Precision, device: str, seconds: float, seed: int) -> dict[str, Any]:
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    take_step = _steps(name, way, precision, device, seed)
    take_step()
    _wait(device)
    first = time.perf_counter() - begin
    several = 10 if device == "cuda" else 1

    def work() -> None:
        for _ in range(several):
            take_step()

    row: dict[str, Any] = {
        "experiment": name,
        "batch": _batch(name, device),
        "views": experiment(name).views,
        "way": way,
        "precision": precision,
        "steps_per_second": rate(work, several, device, seconds),
        "first_step_seconds": first,
    }
    if device == "cuda":
        row["peak_memory_gb"] = torch.cuda.max_memory_allocated() / 1e9
        row["kernels"] = _kernels(work, several) if way == FAST else []
    return row


def _kernels(work: Callable[[], object], steps: int) -> list[dict[str, Any]]:
    """Where the time of a step goes: the GPU's kernels, the longest first, and one row for all the rest."""
    work()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
        torch.cuda.synchronize()
    found = [(event.key, event.self_device_time_total, event.count) for event in profile.key_averages()]
    found.sort(key=lambda kernel: -kernel[1])
    rest = found[KERNELS:]
    rows = [*found[:KERNELS], ("all others", sum(time for _, time, _ in rest), sum(count for *_, count in rest))]
    return [
        {"kernel": name[:400], "milliseconds": time / 1e3 / steps, "launches": count / steps}
        for name, time, count in rows
        if time > 0
    ]


def _steps(name: str, way: str, precision: Precision, device: str, seed: int) -> Callable[[], object]:
    preset = experiment(name)
    model = trainable_class(preset.method)(preset.model, torch.Generator().manual_seed(seed)).to(device).train()
    train_parts(model, preset.optimisation.parts)
    optimisers, clip_norm = model.optimisers(preset.optimisation), preset.optimisation.clip_norm
    step = (fast_step if way == FAST else EagerStep)(model, optimisers, precision, clip_norm)
    rates = [1e-5] * len(optimisers)
    generator = torch.Generator(device).manual_seed(seed)
    batch, size = _batch(name, device), model.image_size
    shape = (SCENES, STORED_VIEWS, *size, 3)
    stored = torch.randint(0, 256, shape, dtype=torch.uint8, device=device, generator=generator)
    scheduled = preset.schedule.at(preset.schedule.steps // 2)

    def take_step() -> object:
        scenes = torch.randint(0, SCENES, (batch, 1), device=device, generator=generator)
        views = torch.randint(0, STORED_VIEWS, (batch, preset.views), device=device, generator=generator)
        pictures = whole_batch(stored[scenes, views])
        if model.needs_camera:
            pictures = replace(pictures, camera=torch.rand(*views.shape, 5, device=device, generator=generator))
        return step(pictures, model.draw_noise(pictures, generator), scheduled, rates)

    return take_step


def _batch(name: str, device: str) -> int:
    return CPU_BATCH if device == "cpu" else experiment(name).optimisation.batch_size


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
