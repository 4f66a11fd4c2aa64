"""Processes under torchrun that do one job together. One process alone is a team as well."""

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from viewslots.errors import UserError

PATIENCE = timedelta(days=30)
"""How long hosts wait for each other: a validation or a slow disk may take its time. The dead are torchrun's affair."""

Job = TypeVar("Job")
Result = TypeVar("Result")
Told = TypeVar("Told")


@dataclass(frozen=True)
class Team:
    """This process among all. Rank 0 writes and speaks."""

    rank: int = 0
    count: int = 1
    hosts: Any = None
    """The group in which the hosts talk, apart from their devices."""

    @property
    def first(self) -> bool:
        return self.rank == 0

    def most(self, value: int) -> int:
        """The largest value of any rank; waits for the hosts, not for the devices."""
        if self.count == 1:
            return value
        shared = torch.tensor(value)
        dist.all_reduce(shared, dist.ReduceOp.MAX, group=self.hosts)
        return int(shared)

    def tell(self, value: Told) -> Told:
        """What rank 0 says."""
        if self.count == 1:
            return value
        said = [value]
        dist.broadcast_object_list(said, group=self.hosts)
        return said[0]

    def collect(self, value: Result) -> list[Result]:
        """The values of all ranks in their order, on rank 0; nothing on the others."""
        if self.count == 1:
            return [value]
        gathered: list[Any] | None = [None] * self.count if self.first else None
        dist.gather_object(value, gathered, group=self.hosts)
        return gathered or []

    def spread(self, jobs: Sequence[Job], work: Callable[[Job], Result]) -> Iterator[Result]:
        """`map(work, jobs)`, a job for each rank at a time: rank 0 gets the results in their order, the others none.

        Bad input that any rank comes upon is raised on rank 0 at its place; the others then leave without a word.
        """
        for start in range(0, len(jobs), self.count):
            turn = jobs[start : start + self.count]
            mine = self._done(turn[self.rank], work) if self.rank < len(turn) else None
            results = self.collect(mine)[: len(turn)]
            bad = self.most(any(isinstance(result, UserError) for result in results))
            if bad and not self.first:
                raise SystemExit(1)
            for result in results:
                if isinstance(result, UserError):
                    raise result
                assert result is not None
                yield result

    def _done(self, job: Job, work: Callable[[Job], Result]) -> Result | UserError:
        if self.count == 1:
            return work(job)
        try:
            return work(job)
        except UserError as error:
            return error

    def told(self, begin: Callable[[], Told]) -> Told:
        """What `begin` answers on rank 0, on all ranks. Where it fails, rank 0 alone says why."""
        value: Told | None = None
        try:
            if self.first:
                value = begin()
        finally:
            value = self.tell(value)
        if value is None:
            raise SystemExit(1)
        return value


ALONE = Team()


def local_device(device: str) -> torch.device:
    """Each rank of a machine has a GPU of its own; where there are fewer GPUs than ranks, some share one."""
    if device != "cuda":
        return torch.device(device)
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % max(torch.cuda.device_count(), 1))


def ranks_of_a_gpu() -> int:
    """How many ranks of this machine share a GPU, at most."""
    ranks, gpus = int(os.environ.get("LOCAL_WORLD_SIZE", "1")), max(torch.cuda.device_count(), 1)
    return -(-ranks // gpus)


def was_restarted() -> bool:
    """Whether torchrun has started this worker anew after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


Kind = TypeVar("Kind", bound=Team)


@contextmanager
def joined(kind: Callable[..., Kind], device: torch.device, advice: str, backend: str = "gloo") -> Iterator[Kind]:
    """All processes of torchrun, or this one alone. `advice`: what to do when another one is lost.

    `backend`: how their devices talk, if they do; the hosts talk by gloo.
    """
    if "RANK" not in os.environ or "MASTER_ADDR" not in os.environ:
        yield kind()
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    enter_group(backend)
    try:
        hosts = dist.new_group(backend="gloo", timeout=PATIENCE)
        yield kind(dist.get_rank(), dist.get_world_size(), hosts)
    except RuntimeError as error:
        if "duplicate gpu" in str(error).lower():
            raise UserError(
                "processes of one training cannot share a GPU; start no more than there are GPUs"
            ) from error
        if not is_loss_of_contact(error):
            raise
        raise UserError(f"lost contact with another process; {advice}") from error
    finally:
        dist.destroy_process_group()


def joined_team(device: torch.device) -> Any:
    """For jobs that go on where they stopped, or begin anew."""
    return joined(Team, device, "run the same command again")


_GROUPS = itertools.count()


def enter_group(backend: str) -> None:
    """Who joins again, after a failure or for a second job, must not find old addresses in the store of torchrun."""
    store, rank, count = next(rendezvous("env://"))
    attempt = f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}-{next(_GROUPS)}"
    dist.init_process_group(backend, store=dist.PrefixStore(attempt, store), rank=rank, world_size=count)  # type: ignore[attr-defined]


def is_loss_of_contact(error: RuntimeError) -> bool:
    """Gloo and NCCL have no exception of their own for it in every version."""
    words = ("gloo", "nccl", "connection closed", "connection reset", "broken pipe", "timed out waiting")
    return isinstance(error, dist.DistError) or any(word in str(error).lower() for word in words)
