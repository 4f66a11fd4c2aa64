"""What programs share that run many viewslots commands side by side on one GPU."""

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from safetensors.torch import load_file, save_file
from torch import Tensor

from viewslots.files import replacing

SLOTS = {"test1": 7, "test2": 11}
LATER = {"CUDA_MPS_CLIENT_PRIORITY": "1"}
"""Of processes that give way to the others on the GPU."""
ENDS = {0, 128 + signal.SIGTERM, -signal.SIGTERM}
"""Exit codes of what ended well, or was stopped by the clock."""


@dataclass
class SideBySide(ABC):
    """WORK/logs/progress.log says what was done when, with exit codes; WORK/logs has what each command said.

    WORK/kept has of each run, and of the stages inside it, what is worth taking along from a machine that may be lost:
    settings, curves, and the best model so far in half precision, from its first validation on.
    """

    work: Path
    device: str
    small: bool
    """A rehearsal of minutes on a CPU."""
    seconds: float
    """When trainings stop."""
    codes: list[int] = field(default_factory=list)
    """Of all processes that have ended."""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    broken: threading.Event = field(default_factory=threading.Event)
    """A part has failed for good, so nobody needs to wait for it."""

    @classmethod
    def from_command_line(cls, about: str | None, **more: dict[str, Any]) -> Self:
        """`more`: further options by name, as argparse takes them."""
        parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("work", type=Path)
        parser.add_argument("--device", default="cuda")
        parser.add_argument("--seconds", type=float, default=float("inf"))
        parser.add_argument("--small", action="store_true")
        for name, options in more.items():
            parser.add_argument(f"--{name}", **options)
        asked = cls(**vars(parser.parse_args()))
        for name in ("logs", "results", "runs"):
            (asked.work / name).mkdir(parents=True, exist_ok=True)
        return asked

    @abstractmethod
    def all(self) -> None:
        """Everything, to its end."""

    def run(self) -> int:
        """The exit code."""
        service = shutil.which("nvidia-cuda-mps-control") if self.device == "cuda" else None
        if service:
            subprocess.run([service, "-d"], check=False)
        try:
            self.all()
        finally:
            if service:
                subprocess.run([service], input=b"quit", check=False)
        return int(not ENDS.issuperset(self.codes))

    def part(self, job: Callable[[], None]) -> None:
        """In a thread. Its failure ends all others, which may wait for it."""
        try:
            job()
        except BaseException:
            self.broken.set()
            for process in self.processes:
                process.terminate()
            raise

    def wait_for(self, there: Callable[[], bool]) -> None:
        while not there():
            if self.broken.wait(0.2):
                raise RuntimeError("what this waited for has failed")

    def note(self, what: str) -> None:
        line = f"{time.monotonic() - self.started:.0f} s: {what}"
        print(line, flush=True)
        with open(self.work / "logs" / "progress.log", "a") as log:
            print(line, file=log)

    @property
    def enough(self) -> bool:
        return time.monotonic() - self.started > self.seconds

    def start(self, name: str, program: list[str], later: bool, stdin: str | None = None) -> subprocess.Popen[bytes]:
        env = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONUNBUFFERED": "1", **(LATER if later else {})}
        with (
            open(self.work / "logs" / f"{name}.log", "wb") as log,
            open(self.work / stdin if stdin else os.devnull) as given,
        ):
            process = subprocess.Popen([sys.executable, *program], stdin=given, stdout=log, stderr=log, env=env)
        self.processes.append(process)
        if self.broken.is_set():  # nothing new is begun
            process.terminate()
            raise RuntimeError("another part has failed")
        return process

    def viewslots(self, name: str, words: list[str], later: bool = False) -> subprocess.Popen[bytes]:
        return self.start(name, ["-m", "viewslots", *words, "--device", self.device], later)

    def ended(self, what: str, process: subprocess.Popen[bytes]) -> int:
        code = process.wait()
        self.codes.append(code)
        self.note(f"{what}: {code}")
        return code

    def train(self, name: str, words: list[str], later: bool, far_enough: Callable[[], bool]) -> int:
        """To its end, or until the clock or `far_enough`, which is asked again and again, stops it."""
        process = self.viewslots(name, ["train", *words], later)
        while process.poll() is None:
            if far_enough() or self.enough:
                process.send_signal(signal.SIGTERM)
                break
            self.keep(name)
            time.sleep(0.5)
        code = self.ended(f"trained {name}", process)
        self.keep(name)
        return code

    def keep(self, name: str) -> None:
        """Of a run and the earlier stages inside it."""
        for stage in (name, f"{name}/first", f"{name}/first/first"):
            run, copies = self.work / "runs" / stage, self.work / "kept" / stage
            with suppress(FileNotFoundError):  # no such stage or model yet, or a better one has just taken its place
                copy_longer(run / "metrics.jsonl", copies)
                self.keep_best(run, copies)

    def keep_best(self, run: Path, copies: Path) -> None:
        """Unless it is there already. best.json goes last: it says which model the others are of."""
        told = (run / "best.json").read_text()
        if (copies / "best.json").exists() and (copies / "best.json").read_text() == told:
            return
        best = run / json.loads(told)["folder"]
        weights = load_file(best / "model.safetensors")
        with replacing(copies / "model.safetensors") as draft:
            save_file({key: halved(value) for key, value in weights.items()}, draft)
        for file in (best / "config.json", best / "run.json"):
            copy(file, copies)
        with replacing(copies / "best.json") as draft:  # as it was told: by now it may name another
            draft.write_text(told)

    def data(self, name: str, more: list[str], later: bool = False) -> None:
        """Into WORK/NAME, with the splits test1-large and test2-large; `--small` has a few scenes of each split."""
        few = ["--train-scenes", "8", "--valid-scenes", "2", "--test-scenes", "2", "--large-scenes", "2"]
        words = ["make-data", name, "--out", str(self.work / name), *(few if self.small else more)]
        if code := self.ended(f"data {name}", self.viewslots(f"data-{name}", words, later)):
            raise RuntimeError(f"no data {name} (exit code {code}); see logs/data-{name}.log")

    def questions(self, name: str, lines: list[str], later: bool) -> None:
        """Commands of viewslots, one a line, in one process: torch is loaded once."""
        file = f"logs/{name}-questions.txt"
        (self.work / file).write_text("\n".join(lines) + "\n")
        self.ended(f"scores of {name}", self.start(f"{name}-questions", [__file__], later, stdin=file))


def halved(value: Tensor) -> Tensor:
    """In half precision, unless that is too narrow for it, as for some running statistics."""
    half = value.half() if value.is_floating_point() else value
    return value if half.isinf().any() else half


def copy_longer(file: Path, folder: Path) -> None:
    """A file that only grows, if it has grown since."""
    held, size = folder / file.name, file.stat().st_size
    if not held.exists() or held.stat().st_size < size:
        folder.mkdir(parents=True, exist_ok=True)
        copy(file, folder)


def copy(file: Path, folder: Path) -> None:
    """Whole, or not at all."""
    with replacing(folder / file.name) as draft:
        shutil.copyfile(file, draft)


def commands_of_stdin() -> int:
    """How many of them failed."""
    from viewslots.cli import main

    failed = 0
    for line in sys.stdin:
        sys.argv = ["viewslots", *shlex.split(line)]
        try:
            main()
        except SystemExit as end:
            failed += bool(end.code)
        except Exception:
            traceback.print_exc()
            failed += 1
    return failed


if __name__ == "__main__":
    sys.exit(commands_of_stdin() > 0)
