"""How often one tab may ask: enough for quick hands, too little to keep everybody else waiting."""

import time
from collections import OrderedDict
from collections.abc import Callable

MOST_TABS = 4096


class Pace:
    """A bucket of permits for each tab: `burst` at first, and `rate` new ones a second."""

    def __init__(
        self, burst: int, rate: float, most: int = MOST_TABS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._burst, self._rate, self._most, self._clock = burst, rate, most, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, tab: str) -> bool:
        """Takes a permit if there is one."""
        now = self._clock()
        left, since = self._left.pop(tab, (float(self._burst), now))
        left = min(self._burst, left + (now - since) * self._rate)
        allowed = left >= 1
        self._left[tab] = (left - allowed, now)
        while len(self._left) > self._most:
            self._left.popitem(last=False)
        return allowed
