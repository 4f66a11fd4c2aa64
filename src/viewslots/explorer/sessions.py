"""All browser tabs that are open: each its own session, a bounded number of them, idle ones dropped."""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock, RLock

from viewslots.explorer.opened import Opened
from viewslots.explorer.session import Session

MOST_SESSIONS = 64
IDLE_SECONDS = 2 * 3600.0


@dataclass
class Seat:
    """One tab: its session, once it has one, and a lock, since a browser may ask twice at a time."""

    used: float
    lock: RLock = field(default_factory=RLock)
    session: Session | None = None


class Sessions:
    """Sessions by the key of a browser tab. The longest unused one goes when there is no more room."""

    def __init__(
        self,
        first: Callable[[], Opened],
        most: int = MOST_SESSIONS,
        idle: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._first, self._most, self._idle, self._clock = first, most, idle, clock
        self._seats: OrderedDict[str, Seat] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._seats)

    @contextmanager
    def session(self, key: str) -> Iterator[Session]:
        """The session of a tab, held for one operation. A tab that has none yet, or no longer, begins afresh."""
        seat = self._seat(key)
        with seat.lock:
            if seat.session is None:
                seat.session = Session(self._first())
            yield seat.session

    def drop(self, key: str) -> None:
        """The tab was closed."""
        with self._lock:
            self._seats.pop(key, None)

    def _seat(self, key: str) -> Seat:
        with self._lock:
            now = self._clock()
            for old in [name for name, seat in self._seats.items() if now - seat.used > self._idle]:
                del self._seats[old]
            seat = self._seats.pop(key, None) or Seat(now)
            seat.used = now
            self._seats[key] = seat
            while len(self._seats) > self._most:
                self._seats.popitem(last=False)
            return seat
