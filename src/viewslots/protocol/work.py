"""How far an evaluation is."""

from collections.abc import Iterator
from contextlib import contextmanager

from viewslots.pulse import heard
from viewslots.types import OnProgress


class Work:
    """Answers that are done of all, told while a batch is still being answered."""

    def __init__(self, progress: OnProgress, total: int, ranks: int = 1) -> None:
        """`ranks` answer as many at the same time."""
        self.progress, self.total, self.ranks, self.done = progress, total, ranks, 0

    @contextmanager
    def of(self, answers: int) -> Iterator[None]:
        """The next so many."""
        with heard(lambda share: self.tell(self.done + int(share * answers * self.ranks))):
            yield
        self.done += answers * self.ranks
        self.tell(self.done)

    def tell(self, done: int) -> None:
        self.progress(min(done, self.total), self.total)
