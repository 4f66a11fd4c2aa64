"""Ranks: processes under torchrun that train one model together."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from viewslots.errors import UserError
from viewslots.ranks import Team, joined
from viewslots.training.state import TrainState


class Ranks(Team):
    """A team whose rank 0 also validates."""

    def part(self, total: int) -> slice:
        """The share of this rank in `total` scenes, or rows that belong to scenes."""
        if total % self.count:
            raise UserError(f"a batch of {total} cannot be divided among {self.count} processes; change --batch")
        size = total // self.count
        return slice(self.rank * size, (self.rank + 1) * size)

    def mean(self, values: Tensor) -> Tensor:
        if self.count == 1:
            return values
        total = values.clone()
        dist.all_reduce(total)
        return total / self.count

    def gather(self, values: Tensor) -> Tensor:
        """The values of all ranks, one after the other."""
        parts = [torch.empty_like(values) for _ in range(self.count)]
        dist.all_gather(parts, values.contiguous())
        return torch.cat(parts)

    def wrap(self, model: nn.Module) -> nn.Module:
        """The same model, with gradients averaged over the ranks."""
        if self.count == 1:
            return model
        with warnings.catch_warnings():
            # Methods see to it that running statistics are equal on all ranks (share_statistics).
            # Torch 2.13 has another name for the option.
            warnings.simplefilter("ignore", FutureWarning)
            return DistributedDataParallel(model, broadcast_buffers=False)

    def share(self, state: TrainState | None) -> TrainState | None:
        """What rank 0 has read, on every rank; the tensors travel one by one, never as pickles."""
        if self.count == 1:
            return state
        layout = None
        if state is not None:
            shapes = {name: (value.dtype, tuple(value.shape)) for name, value in state.tensors.items()}
            layout = (state.step, shapes, state.facts)
        head: list[Any] = [layout]
        dist.broadcast_object_list(head, group=self.hosts)
        if head[0] is None:
            return None
        step, shapes, facts = head[0]
        tensors = {}
        for name, (dtype, shape) in shapes.items():
            value = torch.empty(shape, dtype=dtype) if state is None else state.tensors[name].contiguous().cpu()
            dist.broadcast(value, 0, group=self.hosts)
            tensors[name] = value
        return TrainState(step, tensors, facts)


@contextmanager
def joined_ranks(device: torch.device) -> Iterator[Ranks]:
    """All processes of torchrun, or this one alone."""
    advice = "the last checkpoint is intact: the same command with --resume goes on from there"
    with joined(Ranks, device, advice, "nccl" if device.type == "cuda" else "gloo") as ranks:
        yield ranks
