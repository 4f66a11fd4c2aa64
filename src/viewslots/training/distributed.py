"""Ranks: processes under torchrun that train one model together. One process alone is a rank as well."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from viewslots.errors import UserError
from viewslots.training.state import TrainState

PATIENCE = timedelta(days=30)
"""How long hosts wait for each other: a validation or a slow disk may take its time. The dead are torchrun's affair."""


@dataclass(frozen=True)
class Ranks:
    """This process among all. Rank 0 writes, validates and speaks."""

    rank: int = 0
    count: int = 1
    hosts: Any = None
    """The group in which the hosts talk, apart from their devices."""

    @property
    def first(self) -> bool:
        return self.rank == 0

    def part(self, total: int) -> slice:
        """The share of this rank in `total` scenes, or rows that belong to scenes."""
        if total % self.count:
            raise UserError(f"a batch of {total} cannot be divided among {self.count} processes; change --batch")
        size = total // self.count
        return slice(self.rank * size, (self.rank + 1) * size)

    def most(self, value: int) -> int:
        """The largest value of any rank; waits for the hosts, not for the devices."""
        if self.count == 1:
            return value
        shared = torch.tensor(value)
        dist.all_reduce(shared, dist.ReduceOp.MAX, group=self.hosts)
        return int(shared)

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

    def tell(self, text: str) -> str:
        """What rank 0 says."""
        if self.count == 1:
            return text
        said = [text]
        dist.broadcast_object_list(said, group=self.hosts)
        return said[0]

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


def was_restarted() -> bool:
    """Whether torchrun has started this worker anew after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def local_device(device: str) -> torch.device:
    """On a machine with several GPUs each rank has its own."""
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if device == "cuda" else torch.device(device)


@contextmanager
def joined_ranks(device: torch.device) -> Iterator[Ranks]:
    """All processes of torchrun, or this one alone."""
    if "RANK" not in os.environ or "MASTER_ADDR" not in os.environ:
        yield Ranks()
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    enter_group("nccl" if device.type == "cuda" else "gloo")
    try:
        hosts = dist.new_group(backend="gloo", timeout=PATIENCE)
        yield Ranks(dist.get_rank(), dist.get_world_size(), hosts)
    except RuntimeError as error:
        if not is_loss_of_contact(error):
            raise
        raise UserError(
            "lost contact with another process of this training; the last checkpoint is intact: "
            "the same command with --resume goes on from there"
        ) from error
    finally:
        dist.destroy_process_group()


def enter_group(backend: str) -> None:
    """A restarted worker must not find the addresses of the dead, which torchrun's store may still hold."""
    store, rank, count = next(rendezvous("env://"))
    attempt = "attempt-" + os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    dist.init_process_group(backend, store=dist.PrefixStore(attempt, store), rank=rank, world_size=count)  # type: ignore[attr-defined]


def is_loss_of_contact(error: RuntimeError) -> bool:
    """Gloo and NCCL have no exception of their own for it in every version."""
    words = ("gloo", "nccl", "connection closed", "connection reset", "broken pipe", "timed out waiting")
    return isinstance(error, dist.DistError) or any(word in str(error).lower() for word in words)
