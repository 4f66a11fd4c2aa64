"""Where Triton kernels run. Plain code is their twin, and serves every other device."""

import functools
import importlib.util

import torch

OLDEST_GPU = (7, 0)
"""Least compute capability for which Triton compiles."""


@functools.cache
def has_triton(device: torch.device) -> bool:
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= OLDEST_GPU
