"""Running tasks side by side: each a process with a log of its own; what is done is on record and not done again."""

import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from viewslots.errors import UserError, require_counts
from viewslots.files import FolderLock, make_folder, plain_errors, read_json, write_json
from viewslots.provenance import commit, cores
from viewslots.reproduce.plan import PLAN, Asked, Planner, Task, record_plan
from viewslots.reproduce.progress import Meter, StatusLine, clock_words, next_ready, time_left
from viewslots.reproduce.tables import Table
from viewslots.run_format import CONFIG
from viewslots.training.processes import StopSignals, start_viewslots
from viewslots.training.run import LOCK as RUN_LOCK

DONE, LOGS, LOCK = "done", "logs", "reproduce.lock"
POLL_SECONDS = 0.2
LOOK_SECONDS = 1.0
"""Between two looks into run folders."""
SAVING_SECONDS = 60.0
GIGABYTES_EACH = 16
"""Of GPU memory for one training: the largest published one takes less."""
MOST_WORKERS = 8
"""More share one GPU badly, and wait for the host."""
MOST_RANKS = 8
"""Processes that make one data set; each has some of the GPU's memory."""


class Process(Protocol):
    """As of subprocess."""

    def poll(self) -> int | None: ...

    def send_signal(self, number: int, /) -> None: ...


@dataclass
class Outcome:
    done: list[str] = field(default_factory=list)
    failed: dict[str, int] = field(default_factory=dict)
    """Exit codes."""
    left_out: dict[str, str] = field(default_factory=dict)
    """What needs a task that failed, and which."""
    signal: int = 0
    """The one that stopped us, 0 for none."""

    @property
    def exit_code(self) -> int:
        return 128 + self.signal if self.signal else int(bool(self.failed))


class Watcher(Protocol):
    """Whoever is told what happens."""

    def started(self, task: Task) -> None: ...

    def ended(self, task: Task, code: int) -> None: ...

    def left_out(self, task: Task, cause: str) -> None: ...

    def stopping(self, running: Sequence[Task]) -> None: ...

    def look(self, running: Sequence[Task], waiting: Sequence[Task]) -> None: ...


def run_tasks(
    tasks: Sequence[Task],
    workers: int,
    start: Callable[[Task], Process],
    watcher: Watcher,
    pause: Callable[[], None] = lambda: time.sleep(POLL_SECONDS),
) -> Outcome:
    """All of them, each when what it waits for has ended; a failed one takes along what needs it. After a signal
    those at work are told, and nothing more is started; a second signal acts as ever."""
    outcome, waiting, running = Outcome(), list(tasks), dict[str, tuple[Task, Process]]()
    with StopSignals() as stop:
        try:
            while waiting or running:
                if stop.number and not outcome.signal:
                    outcome.signal = stop.number
                    waiting.clear()
                    _tell(running, stop.number)
                    watcher.stopping([task for task, _ in running.values()])
                for task, code in [(task, process.poll()) for task, process in running.values()]:
                    if code is not None:
                        del running[task.name]
                        _note_end(task, code, outcome, watcher)
                _leave_out(waiting, outcome, watcher)
                unfinished = {*running, *(task.name for task in waiting)}
                while len(running) < workers and (ready := next_ready(waiting, unfinished)):
                    waiting.remove(ready)
                    running[ready.name] = ready, start(ready)
                    watcher.started(ready)
                watcher.look([task for task, _ in running.values()], waiting)
                if running:
                    pause()
        except BaseException:
            _tell(running, signal.SIGTERM)
            raise
    return outcome


def _tell(running: Mapping[str, tuple[Task, Process]], number: int) -> None:
    for _, process in running.values():
        process.send_signal(number)


def _leave_out(waiting: list[Task], outcome: Outcome, watcher: Watcher) -> None:
    """What needs a task that failed, and what needs that."""
    for task in list(waiting):
        if cause := next((name for name in task.needs if name in outcome.failed or name in outcome.left_out), None):
            waiting.remove(task)
            outcome.left_out[task.name] = cause
            watcher.left_out(task, cause)


def _note_end(task: Task, code: int, outcome: Outcome, watcher: Watcher) -> None:
    if code == 0:
        outcome.done.append(task.name)
    elif not outcome.signal:
        outcome.failed[task.name] = code
    watcher.ended(task, code)


class Reporter:
    """Tells a person, and writes down what is done."""

    def __init__(self, folder: Path, tasks: Sequence[Task], done: Sequence[Task], workers: int) -> None:
        self.folder, self.tasks, self.workers = folder, tasks, workers
        self.finished = {task.name for task in done}
        self.meter = Meter(folder, tasks)
        for task in done:
            if task.kind == "train":
                self.meter.steps[task.name] = task.steps
        self.status = StatusLine()
        self._begun: dict[str, float] = {}
        self._looked = 0.0

    def started(self, task: Task) -> None:
        self._begun[task.name] = time.monotonic()
        self.meter.started(task, time.monotonic())
        self.status.say(f"start  {task.name}: {task.command}")

    def ended(self, task: Task, code: int) -> None:
        took = time.monotonic() - self._begun[task.name]
        if code == 0:
            self.finished.add(task.name)
            self.meter.ended(task, time.monotonic())
            record_done(self.folder, task, took)
        words = "done" if code == 0 else f"ended with exit code {code}, see {log_file(self.folder, task)}"
        self.status.say(f"end    {task.name}: {words} ({clock_words(took)})")

    def left_out(self, task: Task, cause: str) -> None:
        self.status.say(f"left   {task.name}: needs {cause}, which failed")

    def stopping(self, running: Sequence[Task]) -> None:
        names = ", ".join(task.name for task in running)
        self.status.say(f"stopping; waiting for {names or 'nothing'} (once more to stop at once)")

    def look(self, running: Sequence[Task], waiting: Sequence[Task]) -> None:
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return
        self._looked = now
        for task in running:
            self.meter.look(task, now)
        self.status.show(self.line(running, waiting, now))

    def line(self, running: Sequence[Task], waiting: Sequence[Task], now: float) -> str:
        names, left = [task.name for task in running], [*running, *waiting]
        steps, total = sum(self.meter.steps.values()), sum(task.steps for task in self.tasks)
        seconds = self.meter.seconds(left, names, now)
        rest = (
            "time left not known yet"
            if seconds is None
            else f"{clock_words(time_left(left, seconds, names, self.workers))} left"
        )
        return (
            f"{len(self.finished)}/{len(self.tasks)} tasks  {steps:,}/{total:,} steps  {rest}  now: {', '.join(names)}"
        )


def log_file(folder: Path, task: Task) -> Path:
    return folder / LOGS / f"{task.name}.log"


def is_done(folder: Path, task: Task) -> bool:
    """By the same command, with its output still there. A data set is whole once it has its output; a report is written
    anew every time."""
    file = folder / DONE / f"{task.name}.json"
    if task.kind == "report" or not (folder / task.output).exists():
        return False
    return task.kind == "data" or (file.is_file() and read_json(file).get("command") == task.command)


def await_earlier(folder: Path, tasks: Sequence[Task]) -> None:
    """Trainings of a process that was killed may still be saving: wait, a minute at most, until they have left."""
    deadline = time.monotonic() + SAVING_SECONDS
    for task in tasks:
        lock = (folder / task.output).parent / RUN_LOCK
        while task.kind == "train" and is_locked(lock) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)


def is_locked(lock: Path) -> bool:
    if not lock.exists():
        return False
    try:
        FolderLock(lock).release()
    except UserError:
        return True
    return False


def finished(folder: Path, tasks: Sequence[Task]) -> list[Task]:
    """Those that are done, and all that they need too: what was made of a run that is gone is made anew."""
    done: dict[str, Task] = {}
    for task in tasks:  # in which whatever is needed comes first
        if is_done(folder, task) and all(name in done for name in task.needs):
            done[task.name] = task
    return list(done.values())


def record_done(folder: Path, task: Task, seconds: float) -> None:
    facts = {"command": task.command, "seconds": round(seconds, 1), "commit": commit()}
    write_json(folder / DONE / f"{task.name}.json", facts)


def command_now(folder: Path, task: Task, device: str) -> list[str]:
    """A training that was begun goes on."""
    words = list(task.words)
    run = (folder / task.output).parent
    if task.kind == "train" and (run / CONFIG).is_file():
        option = words.index("--data")
        words = ["train", "--run", words[words.index("--run") + 1], "--resume", *words[option : option + 2]]
    return words if task.kind == "report" else [*words, "--device", device]


def start_task(folder: Path, task: Task, device: str, workers: int) -> "subprocess.Popen[bytes]":
    words = command_now(folder, task, device)
    (folder / task.output).parent.parent.mkdir(parents=True, exist_ok=True)
    with open(log_file(folder, task), "ab") as log:
        log.write(f"$ {shlex.join(['viewslots', *words])}\n".encode())
        log.flush()
        streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
        return start_viewslots(words, workers, ranks_for(task, device), cwd=folder, **streams)


def ranks_for(task: Task, device: str) -> int:
    """Processes for a task: several beside a GPU, which would wait for one core that draws the scenes."""
    return min(cores(), MOST_RANKS) if task.drawn_slowly and device != "cpu" else 1


def reproduce_table(
    table: Table,
    asked: Asked,
    out: Path,
    only: Sequence[str] = (),
    device: str = "cpu",
    workers: int | None = None,
) -> Outcome:
    """Everything of a table that is not yet in the folder `out`."""
    tasks = Planner(table, asked, only).tasks()
    workers = default_workers(device) if workers is None else workers
    require_counts({"--workers": workers})
    with plain_errors("writing", out):
        require_ours(out)
        out.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(out / LOCK)
        try:
            record_plan(out, asked, tasks)
            for name in (DONE, LOGS):
                make_folder(out / name)
            await_earlier(out, tasks)
            done = finished(out, tasks)
            reporter = Reporter(out, tasks, done, workers)
            waiting = [task for task in tasks if task not in done]
            outcome = run_tasks(waiting, workers, lambda task: start_task(out, task, device, workers), reporter)
            reporter.status.clear()
        finally:
            lock.release()
    outcome.done[:0] = [task.name for task in done]
    return outcome


def require_ours(out: Path) -> None:
    """A new folder, an empty one, or one that a reproduction has begun."""
    if out.exists() and not out.is_dir():
        raise UserError(f"--out: {out} is a file; name a folder")
    others = [entry.name for entry in out.iterdir() if entry.name != LOCK] if out.is_dir() else []
    if others and not (out / PLAN).is_file():
        raise UserError(f"--out: {out} holds {min(others)} and is no reproduction; choose an empty or a new folder")


def default_workers(device: str) -> int:
    """One on a CPU, which a training fills; on a GPU as many as its memory holds."""
    if device == "cpu":
        return 1
    import torch

    memory = torch.cuda.get_device_properties(0).total_memory
    return max(1, min(MOST_WORKERS, memory // (GIGABYTES_EACH * 2**30)))
