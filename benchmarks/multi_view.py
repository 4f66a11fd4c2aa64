"""OCLOC with the paper's networks on clevr-m1 to m4, the per-view baseline at compact's size, k-means and umbra-quick:
every cell of the multi-view tables, and figures, on one GPU.

    python3 benchmarks/multi_view.py WORK [--seconds 1400] [--device cpu --small]

The paper's curriculum: m3 goes on from m1, and m4 from m2, at two thirds of their steps. All trainings run side by side
by NVIDIA's multi-process service; the baseline and umbra-quick take what OCLOC leaves. m1 is trained as far as m3 needs
it, m2 with the start of umbra's first stage: as published two seeds came to nothing (docs/results/multi-view). After
--seconds trainings stop, and what they have is scored. WORK/results has one JSON a cell, WORK/figures the pictures,
WORK/logs/progress.log what was done when, with exit codes. --small: a rehearsal of minutes on a CPU.
"""

import argparse
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

KINDS, NUMBERS = ("ocloc", "per-view"), (1, 2, 3, 4)
SLOTS = {"test1": 7, "test2": 11}
LATER = {"CUDA_MPS_CLIENT_PRIORITY": "1"}
"""Of processes that give way to the others on the GPU."""
START = {"log_sigma": "-3", "shape_logit": "-2", "selection_gain": "30"}
"""Of clevr-m2: objects that hardly show at first leave the ground to the background."""
ENDS = {0, 128 + signal.SIGTERM, -signal.SIGTERM}
"""Exit codes of what ended well, or was stopped by the clock."""


@dataclass
class Bench:
    work: Path
    device: str
    small: bool
    seconds: float
    """When trainings stop."""
    codes: list[int] = field(default_factory=list)
    """Of all processes that have ended."""
    started: float = field(default_factory=time.monotonic)
    trained: dict[str, threading.Event] = field(
        default_factory=lambda: {f"{kind}-m{number}": threading.Event() for kind in KINDS for number in NUMBERS}
    )
    """Whether a run has ended, well or not."""

    def note(self, what: str) -> None:
        line = f"{time.monotonic() - self.started:.0f} s: {what}"
        print(line, flush=True)
        with open(self.work / "logs" / "progress.log", "a") as log:
            print(line, file=log)

    @property
    def enough(self) -> bool:
        return time.monotonic() - self.started > self.seconds

    def ended(self, what: str, process: subprocess.Popen[bytes]) -> int:
        code = process.wait()
        self.codes.append(code)
        self.note(f"{what}: {code}")
        return code

    def start(self, name: str, program: list[str], later: bool, stdin: str | None = None) -> subprocess.Popen[bytes]:
        env = {**os.environ, "OMP_NUM_THREADS": "2", "PYTHONUNBUFFERED": "1", **(LATER if later else {})}
        with (
            open(self.work / "logs" / f"{name}.log", "wb") as log,
            open(self.work / stdin if stdin else os.devnull) as given,
        ):
            return subprocess.Popen([sys.executable, *program], stdin=given, stdout=log, stderr=log, env=env)

    def viewslots(self, name: str, words: list[str], later: bool = False) -> subprocess.Popen[bytes]:
        return self.start(name, ["-m", "viewslots", *words, "--device", self.device], later)

    def data(self, number: int) -> None:
        sizes = ["--train-scenes", "8", "--valid-scenes", "2", "--test-scenes", "2"] if self.small else []
        words = ["make-data", f"clevr-m{number}", "--out", str(self.work / f"m{number}"), *sizes]
        words += ["--large-scenes", "2" if self.small else "400"]
        if self.ended(f"data m{number}", self.viewslots(f"data-m{number}", words)):
            os._exit(1)  # nothing else can be done, and threads wait for it

    def train(self, name: str, experiment: str, steps: int, later: bool, init: str = "", until: int = 0) -> None:
        """`until`: a step that the run keeps, after which it may stop."""
        words = ["train", f"{experiment}/clevr-{name[-2:]}", "--data", str(self.work / name[-2:])]
        words += ["--run", str(self.work / "runs" / name), "--steps", str(steps), "--checkpoint-every", str(steps)]
        words += ["--validate-every", str(max(steps // 20, 1)), *(["--batch", "2"] if self.small else [])]
        words += ["--init", str(self.work / "runs" / init)] if init else []
        if name == "ocloc-m2":
            words += [word for field, value in START.items() for word in ("--set", f"model.start.{field}={value}")]
        running = self.viewslots(name, words, later)
        while running.poll() is None:
            if self.enough or (until and self.kept(name, until)):
                running.send_signal(signal.SIGTERM)
                break
            time.sleep(1)
        self.ended(f"trained {name}", running)
        self.trained[name].set()

    def kept(self, name: str, step: int) -> bool:
        return (self.work / "runs" / name / "checkpoints" / f"step-{step:08d}.json").exists()

    def cells(self, source: str, name: str, later: bool = False, answers: int = 5, new_views: bool = False) -> None:
        """All of one row, in one process."""
        common = shlex.join([source, "--data", str(self.work / name[-2:]), "--device", self.device])
        common += f" --repeats {answers} --batch 50"
        lines = []
        for split, slots in SLOTS.items():
            out = shlex.quote(str(self.work / "results" / f"{name}-{split}"))
            asked = f"{common} --split {split} --slots {slots} --out {out}"
            for views in (4, 1, 2, 8):
                lines.append(f"evaluate {asked}-m{views}.json --views {views}{'' if views == 4 else ' --no-extras'}")
            if source == "umbra-quick":
                lines.append(
                    f"evaluate {common} --split {split}-large --slots {slots} --out {out}-large.json --views 4"
                )
            for given in (4, 1, 2) if new_views else ():
                lines.append(f"estimate-viewpoints {asked}-given{given}.json --given {given} --new 4 --no-extras")
        asked_for = f"logs/{name}-cells.txt"
        (self.work / asked_for).write_text("\n".join(lines) + "\n")
        self.ended(f"scores of {name}", self.start(f"{name}-cells", [__file__, "-"], later, stdin=asked_for))

    def figures(self, number: int) -> None:
        names = f"ocloc-m{number}", f"per-view-m{number}"
        for name in names:
            self.trained[name].wait()
        run, baseline = (str(self.work / "runs" / name) for name in names)
        words = ["figures", run, "--data", str(self.work / f"m{number}"), "--compare", baseline, "umbra-quick"]
        words += ["--out", str(self.work / "figures" / f"m{number}"), *(["--frames", "2"] if self.small else [])]
        self.ended(f"figures of m{number}", self.viewslots(f"figures-m{number}", words))

    def curriculum(
        self, kind: str, experiment: str, steps: int, half: int, full: int, made: threading.Event, later: bool
    ) -> None:
        """Half a circle of viewpoints, then all of it, once its data are `made`. Of m1 there are results already."""
        first, second, kept = f"{kind}-m{half}", f"{kind}-m{full}", round(steps * 2 / 3)
        new_views = kind == "ocloc"

        def rest() -> None:
            made.wait()
            while not (self.kept(first, kept) or self.trained[first].is_set() or self.enough):
                time.sleep(1)
            self.train(second, experiment, kept, later, init=first)  # fails if there is nothing to start from
            self.cells(str(self.work / "runs" / second), second, later, new_views=new_views)

        with ThreadPoolExecutor() as pool:
            going_on = pool.submit(rest)
            self.train(first, experiment, steps, later, until=kept if half == 1 else 0)
            if half != 1:
                self.cells(str(self.work / "runs" / first), first, later, new_views=new_views)
            going_on.result()

    def all(self) -> None:
        steps, baseline_steps = (6, 6) if self.small else (40_000, 15_000)
        ocloc = "ocloc-compact" if self.small else "ocloc"
        made = {number: threading.Event() for number in NUMBERS}

        def data() -> None:
            for pair in ((1, 2), (3, 4)):
                with ThreadPoolExecutor() as pool:
                    list(pool.map(self.data, pair))
                for number in pair:
                    made[number].set()

        def chain(kind: str, experiment: str, length: int, half: int, full: int, later: bool) -> None:
            made[half].wait()
            self.curriculum(kind, experiment, length, half, full, made[full], later)

        def scores(source: str, numbers: tuple[int, ...], answers: int, new_views: bool) -> None:
            made[4].wait()
            for number in numbers:
                self.cells(source, f"{source}-m{number}", later=True, answers=answers, new_views=new_views)

        with ThreadPoolExecutor(20) as pool:
            jobs = [pool.submit(data)]
            for half, full in ((1, 3), (2, 4)):
                jobs.append(pool.submit(chain, "ocloc", ocloc, steps, half, full, False))
                jobs.append(pool.submit(chain, "per-view", "per-view-compact", baseline_steps, half, full, True))
                jobs.append(pool.submit(scores, "umbra-quick", (half, full), 1, True))
                jobs.append(pool.submit(scores, "kmeans", (full,) if half == 1 else (half, full), 5, False))
            jobs += [pool.submit(self.figures, number) for number in (2, 3, 4)]
            for job in jobs:
                job.result()


def commands_of_stdin() -> None:
    """viewslots commands, one a line, in one process: torch is loaded once."""
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
    sys.exit(failed > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("work", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--small", action="store_true")
    asked = parser.parse_args()
    if str(asked.work) == "-":
        commands_of_stdin()
    (asked.work / "logs").mkdir(parents=True, exist_ok=True)
    (asked.work / "results").mkdir(exist_ok=True)
    if asked.device == "cuda" and shutil.which("nvidia-cuda-mps-control"):
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=False)
    bench = Bench(asked.work, asked.device, asked.small, asked.seconds)
    bench.all()
    sys.exit(not ENDS.issuperset(bench.codes))
