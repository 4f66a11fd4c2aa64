"""Processes that fill one data set: who makes and who writes which scenes.

With as many shards as processes each of them writes its own, and only news of them travel. Else rank 0 writes what all
of them make. The bytes are the same.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from viewslots.data.format import DatasetPlan, Part
from viewslots.data.writer import Done, News, PartsWriter, StoreWriter
from viewslots.ranks import Team
from viewslots.types import OnProgress


class Job(NamedTuple):
    """Scenes of a part that are made together; their numbers are those of the split."""

    part: Part
    first: int
    last: int


Made = tuple[Mapping[str, NDArray[Any]], Sequence[Mapping[str, Any]]]
"""Arrays and descriptions of the scenes of a job."""


def fill(
    out: Path,
    plan: DatasetPlan,
    begun: Mapping[str, Done],
    jobs: Sequence[Job],
    make: Callable[[Job], Made],
    writer: StoreWriter | None,
    progress: OnProgress,
    team: Team,
) -> None:
    """Do all jobs. `begun`: what is done of each part; `writer`: on rank 0."""
    total = sum(split.scenes for split in plan.splits.values())
    done = total - sum(job.last - job.first for job in jobs)
    if team.count == 1 or max(split.shards for split in plan.splits.values()) < team.count:
        for job, made in zip(jobs, team.spread(jobs, make), strict=False):  # the others hear of no results
            assert writer is not None
            writer.append(job.part, *made)
            progress(done := done + job.last - job.first, total)
        return
    with PartsWriter(out, plan, begun) as mine:

        def written(job: Job | None) -> tuple[int, list[News]]:
            if job is None:
                return 0, []
            if job.first == job.last:
                return 0, [mine.record_of(job.part)]
            return job.last - job.first, mine.append(job.part, *make(job))

        for scenes, news in team.spread(dealt(plan, jobs, team.count), written):
            assert writer is not None
            writer.record(news)
            progress(done := done + scenes, total)


def dealt(plan: DatasetPlan, jobs: Sequence[Job], ranks: int) -> list[Job | None]:
    """A job for each rank in turn, each with its own parts; a part that was complete before is summed up there."""
    left: dict[str, list[Job]] = {part.folder: [] for part in plan.parts()}
    owner = {folder: number % ranks for number, folder in enumerate(left)}
    for job in jobs:
        left[job.part.folder].append(job)
    complete = [Job(part, part.last, part.last) for part in plan.parts() if not left[part.folder]]
    hands: list[list[Job]] = [[] for _ in range(ranks)]
    for job in [*complete, *jobs]:
        hands[owner[job.part.folder]].append(job)
    return [job for turn in zip_longest(*hands) for job in turn]
