"""How far a reproduction is, and how long it still takes: rates are measured, chains of tasks are played through."""

import json
import shutil
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from viewslots.reproduce.plan import Task
from viewslots.run_format import FIRST, METRICS_FILE
from viewslots.terminal import say

TAIL = 2**16
"""Bytes at the end of metrics.jsonl that surely hold a whole row."""
OVERDUE = 0.1
"""Share of the time it has taken that a task surely still takes."""
PIPED_SECONDS = 60.0
"""Between two lines of status where nobody watches a terminal."""


def steps_done(folder: Path, task: Task) -> int:
    """Of a training, as its run folder tells; the stage before it has a folder inside, and so on back."""
    places = [(folder / task.output).parent]
    while (before := places[-1] / FIRST).is_dir():
        places.append(before)
    return min(sum(newest_step(place / METRICS_FILE) for place in places), task.steps)


def newest_step(file: Path) -> int:
    try:
        with open(file, "rb") as opened:
            opened.seek(max(0, file.stat().st_size - TAIL))
            lines = opened.read().splitlines()
    except OSError:
        return 0
    for line in reversed(lines):
        with suppress(ValueError, KeyError, TypeError):
            return int(json.loads(line)["step"])
    return 0


def next_ready(waiting: Iterable[Task], unfinished: Collection[str]) -> Task | None:
    """The first that waits for nothing more."""
    return next((task for task in waiting if not any(name in unfinished for name in (*task.needs, *task.after))), None)


def time_left(tasks: Sequence[Task], seconds: Mapping[str, float], running: Collection[str], workers: int) -> float:
    """Until the last of `tasks` has ended, if each still takes its `seconds` and they start as the runner does it."""
    clock = 0.0
    ends = {task.name: seconds[task.name] for task in tasks if task.name in running}
    waiting = [task for task in tasks if task.name not in running]
    while waiting or ends:
        unfinished = {*ends, *(task.name for task in waiting)}
        while len(ends) < workers and (task := next_ready(waiting, unfinished)):
            waiting.remove(task)
            ends[task.name] = clock + seconds[task.name]
        if not ends:
            break  # what is left waits for something that will not come
        first = min(ends, key=ends.__getitem__)
        clock = ends.pop(first)
    return clock


class Meter:
    """Seconds that tasks still take, from those that were watched."""

    def __init__(self, folder: Path, tasks: Sequence[Task]) -> None:
        self.folder = folder
        self.steps = {task.name: steps_done(folder, task) for task in tasks if task.kind == "train"}
        self._begun: dict[str, tuple[float, int]] = {}
        """Time and step at which tasks were started."""
        self._rows: dict[str, list[tuple[float, int]]] = {}
        """Of trainings: time and step of the first and of the newest row of figures since then."""
        self._rates: dict[str, list[float]] = {}
        """Steps a second of trainings that have ended, by experiment."""
        self._took: dict[tuple[str, str], list[float]] = {}
        """Seconds that others took, by kind and likeness."""

    def started(self, task: Task, now: float) -> None:
        self._begun[task.name] = now, self.steps.get(task.name, 0)

    def look(self, task: Task, now: float) -> None:
        """At a task that runs."""
        if task.kind == "train" and (step := steps_done(self.folder, task)) != self.steps[task.name]:
            self.steps[task.name] = step
            self._rows[task.name] = [*self._rows.get(task.name, ())[:1], (now, step)]

    def ended(self, task: Task, now: float) -> None:
        """Well. A task that was stopped tells nothing."""
        if task.kind == "train":
            if rate := self._rate(task):
                self._rates.setdefault(task.like, []).append(rate)
            self.steps[task.name] = task.steps
        else:
            self._took.setdefault((task.kind, task.like), []).append(now - self._begun[task.name][0])

    def _rate(self, task: Task) -> float | None:
        """Steps a second since its first row. As long as that is all, since it was started: loading counts too."""
        rows = [self._begun[task.name], *self._rows.get(task.name, ())][-2:]
        (then, first), (now, step) = rows[0], rows[-1]
        return (step - first) / (now - then) if step > first and now > then else None

    def seconds(self, tasks: Sequence[Task], running: Collection[str], now: float) -> dict[str, float] | None:
        """What each still takes; None as long as no training tells its rate although some are left. What was never
        seen counts as nothing. A training of which there is no news yet takes at least as long again."""
        rates = {name: list(values) for name, values in self._rates.items()}
        for task in tasks:
            if task.name in running and (rate := self._rate(task)):
                rates.setdefault(task.like, []).append(rate)
        every = [rate for values in rates.values() for rate in values]
        if not every and any(task.kind == "train" for task in tasks):
            return None
        left = {}
        for task in tasks:
            past = now - self._begun[task.name][0] if task.name in running else 0.0
            if task.kind == "train":
                usual = max(0, task.steps - self.steps[task.name]) / mean(rates.get(task.like, every))
                silent = task.name in running and self._rate(task) is None
                left[task.name] = max(usual, past) if silent else usual
            else:
                left[task.name] = max(self._usual(task) - past, OVERDUE * past)
        return left

    def _usual(self, task: Task) -> float:
        """Seconds that tasks of its kind took, if possible of the same row."""
        alike = self._took.get((task.kind, task.like))
        return mean(
            alike or [took for (kind, _), all_took in self._took.items() if kind == task.kind for took in all_took]
        )


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def clock_words(seconds: float) -> str:
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


class StatusLine:
    """One line that is written over on a terminal; else a line now and then."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._width = 0
        self._since = time.monotonic()

    def show(self, text: str) -> None:
        if self._live:
            self._write(text)
        elif time.monotonic() - self._since >= PIPED_SECONDS:
            self._since = time.monotonic()
            say(text)

    def say(self, line: str) -> None:
        """A line that stays."""
        self.clear()
        say(line)

    def clear(self) -> None:
        if self._live and self._width:
            self._write("")

    def _write(self, text: str) -> None:
        text = text[: shutil.get_terminal_size().columns - 1]
        print("\r" + text.ljust(self._width) + ("\r" if not text else ""), end="", file=sys.stderr, flush=True)
        self._width = len(text)
