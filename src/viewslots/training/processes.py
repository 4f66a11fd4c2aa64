"""Processes: SIGTERM, Ctrl-C and a closed terminal finish the step, save, then leave; several runs go side by side, a
process a seed."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import IO, Any

from viewslots.errors import UserError
from viewslots.provenance import cores

POLL_SECONDS = 0.1
ECHO_SECONDS = 1.0
"""SIGTERM so soon after another one is the same one: the end of a parent is told once by each of its threads."""
ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))
"""Windows has no closed terminals."""
PR_SET_PDEATHSIG = 1


class Interrupted(Exception):
    """Training has stopped at `step`, of a `stage` if there are several, because of a signal; everything is saved."""

    def __init__(self, number: int, step: int, stage: str = "") -> None:
        super().__init__(f"stopped by {signal.Signals(number).name} at step {step}{stage}")
        self.number, self.step = number, step


class StopSignals:
    """While entered, the first signal is only noted; a second one acts as ever, unless it is an echo of the first, or
    `insist` (torchrun repeats)."""

    def __init__(self, insist: bool = False) -> None:
        self.number = 0
        """The signal that came, 0 for none."""
        self._insist = insist
        self._since = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            for number in ENDING:
                if number in (signal.SIGTERM, signal.SIGINT) or signal.getsignal(number) != signal.SIG_IGN:  # nohup
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if not self.number:
            self.number, self._since = number, time.monotonic()
            return
        echo = number == self.number == signal.SIGTERM and time.monotonic() - self._since <= ECHO_SECONDS
        if not (self._insist or echo):
            self._restore()
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}


def parse_seeds(text: str) -> list[int]:
    """Whole numbers with commas between them, none twice."""
    try:
        seeds = [int(word) for word in text.split(",")]
    except ValueError:
        raise UserError(f"--seeds {text!r}: give whole numbers with commas between them, such as 0,1,2") from None
    if len(set(seeds)) < len(seeds):
        raise UserError(f"--seeds {text!r}: names a seed twice")
    return seeds


def seed_folder(run: Path, seed: int) -> Path:
    return run / f"seed-{seed}"


@dataclass(frozen=True)
class SeedResults:
    """What `train` says of every seed that came to its end."""

    seeds: dict[int, dict[str, Any]]
    failed: dict[int, int]
    """Exit codes of the others."""
    signal: int
    """The one that stopped us, 0 for none."""

    @property
    def best(self) -> int | None:
        """The seed with the lowest validation loss."""
        losses = {seed: result["best"]["loss"] for seed, result in self.seeds.items() if result["best"]}
        return min(losses, key=losses.__getitem__, default=None)

    def to_json(self) -> dict[str, Any]:
        return {"best_seed": self.best, "seeds": self.seeds, "failed": self.failed}


def run_seeds(words: Mapping[int, Sequence[str]], say: Callable[[str], None]) -> SeedResults:
    """Run `viewslots WORDS` for every seed at once, and wait; a failing one does not stop the others."""
    one_at_a_time = threading.Lock()

    def said(line: str) -> None:
        with one_at_a_time:  # else two lines may end up as one
            say(line)

    with StopSignals(insist=True) as stop:
        children = {seed: Child(seed, words[seed], len(words), said) for seed in words}
        told = 0
        while any(child.process.poll() is None for child in children.values()):
            if stop.number and not told:
                told = stop.number
                for child in children.values():
                    child.process.send_signal(told)
            time.sleep(POLL_SECONDS)
    answers = {seed: child.answer() for seed, child in children.items()}
    codes = {seed: child.process.returncode for seed, child in children.items()}
    done = {seed: answer for seed, answer in answers.items() if answer is not None and codes[seed] == 0}
    return SeedResults(done, {seed: code for seed, code in codes.items() if seed not in done}, told)


def start_viewslots(words: Sequence[str], siblings: int, ranks: int = 1, **options: Any) -> "subprocess.Popen[Any]":
    """`viewslots WORDS` in a session of its own, so that Ctrl-C comes from us alone, once; `siblings` share the cores.
    On Linux it ends with us, however we end.

    `ranks`: processes among which torchrun shares the work. `options` are those of subprocess.Popen.
    """
    threads = {"OMP_NUM_THREADS": str(max(1, cores() // (siblings * ranks)))}
    several = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "-m", "--"] if ranks > 1 else []
    command = [sys.executable, "-m", *several, "viewslots", *words]
    ending = partial(end_with_parent, os.getpid()) if sys.platform == "linux" else None
    return subprocess.Popen(command, env=threads | os.environ, start_new_session=True, preexec_fn=ending, **options)


def end_with_parent(parent: int) -> None:
    """For the child of a process that may be killed: the system then tells the child to save and leave (Linux only)."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it is too late for the system to tell
        os.kill(os.getpid(), signal.SIGTERM)


class Child:
    """One seed."""

    def __init__(self, seed: int, words: Sequence[str], siblings: int, say: Callable[[str], None]) -> None:
        self.process = start_viewslots(words, siblings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._output: list[str] = []
        prefix = f"seed {seed}: "
        self._readers = [
            threading.Thread(target=self._read, args=(self.process.stdout, self._output.append)),
            threading.Thread(target=self._read, args=(self.process.stderr, lambda line: say(prefix + line.rstrip()))),
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: IO[str], take: Callable[[str], None]) -> None:
        for line in stream:
            take(line)

    def answer(self) -> dict[str, Any] | None:
        """The JSON on its standard output."""
        for reader in self._readers:
            reader.join()
        try:
            value = json.loads("".join(self._output))
        except ValueError:
            return None
        return value if isinstance(value, dict) else None


def exit_code(results: SeedResults) -> int:
    return 128 + results.signal if results.signal else int(bool(results.failed))
