"""Where and how scenes are rendered: on the cores or the GPU, so much at once, and apart from what the caller chose."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import TypeVar

import torch

from viewslots.ranks import ranks_of_a_gpu
from viewslots.types import OnProgress


def most_at_once(device: torch.device, on_cpu: int, on_gpu: int, bytes_each: int) -> int:
    """What bounds the memory of a call: on a GPU as many as fit, but no fewer than on a CPU."""
    if device.type != "cuda":
        return on_cpu
    free, _ = torch.cuda.mem_get_info(device)
    reusable = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return min(on_gpu, max(on_cpu, (free + reusable) // bytes_each // ranks_of_a_gpu()))


def resolved(device: torch.device | str) -> torch.device:
    """With its index: "cuda" alone is the current one."""
    where = torch.device(device)
    return torch.device("cuda", torch.cuda.current_device()) if where == torch.device("cuda") else where


@contextmanager
def on_its_own(device: torch.device) -> Iterator[None]:
    """Render alike whatever the caller has chosen.

    Inference mode holds for one thread, and what was made in it cannot be written by another. A training loop may have
    chosen lower precision for its own products. Triton launches on the current device, wherever the tensors are.
    """
    current = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
    with current, torch.inference_mode(False), torch.no_grad(), torch.autocast(device.type, enabled=False):
        yield


T = TypeVar("T")
R = TypeVar("R")


def on_all_cores(work: Callable[[T], R], parts: Sequence[T], device: torch.device, progress: OnProgress) -> list[R]:
    """Work on parts side by side, a core each: threads within small operations would mostly wait for each other."""

    def counted(results: Iterable[R]) -> list[R]:
        done: list[R] = []
        for result in results:
            done.append(result)
            progress(len(done), len(parts))
        return done

    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1 or len(parts) == 1:
        return counted(map(work, parts))
    try:
        with ThreadPoolExecutor(threads, initializer=lambda: torch.set_num_threads(1)) as pool:
            return counted(pool.map(work, parts))
    finally:
        torch.set_num_threads(threads)  # threads that start later inherit the last word on it
