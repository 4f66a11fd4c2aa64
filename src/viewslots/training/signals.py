"""SIGTERM and Ctrl-C during training: finish the step, save, then leave."""

import signal
import threading
from types import FrameType
from typing import Any


class Interrupted(Exception):
    """Training has stopped at `step` because of a signal, and everything is saved."""

    def __init__(self, number: int, step: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name} at step {step}")
        self.number, self.step = number, step


class StopSignals:
    """While entered, the first signal is only noted; a second one acts as ever, unless `insist` (torchrun repeats)."""

    def __init__(self, insist: bool = False) -> None:
        self.number = 0
        """The signal that came, 0 for none."""
        self._insist = insist
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = self.number or number
        if not self._insist:
            self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}
