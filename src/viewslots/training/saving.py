"""Writing checkpoints behind the loop's back: a step never waits for the disk, only for the write before."""

import time
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor

from viewslots.training.run import RunFolder
from viewslots.training.state import TrainState


class Saver:
    """One write at a time. A write that failed is raised by the next call; on leaving, writes are finished."""

    def __init__(self) -> None:
        self.last: int | None = None
        """Step of the last checkpoint that is on disk."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None
        self._since = time.monotonic()

    def __enter__(self) -> "Saver":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            self._pool.shutdown(wait=True)

    def age(self) -> float:
        """Seconds since the last save began."""
        return time.monotonic() - self._since

    def save(self, folder: RunFolder, state: TrainState, pinned: Collection[int]) -> None:
        self.finish()
        self._since = time.monotonic()
        self._pending = self._pool.submit(self._write, folder, state, pinned)

    def finish(self) -> None:
        """Wait for the write; raises what it raised."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def _write(self, folder: RunFolder, state: TrainState, pinned: Collection[int]) -> None:
        folder.save(state, pinned=pinned)
        self.last = state.step
