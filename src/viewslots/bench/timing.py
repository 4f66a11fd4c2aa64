"""How often a piece of work can be done in a second."""

import statistics
import time
from collections.abc import Callable

import torch


def rate(work: Callable[[], object], pictures: int, device: str, seconds: float) -> float:
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
