"""OCLOC with the paper's networks on clevr-m1 to m4, the per-view baseline at compact's size, k-means and umbra-quick:
every cell of the multi-view tables, and figures, on one GPU.

    python3 benchmarks/multi_view.py WORK [--seconds 1400] [--device cpu --small]

The paper's curriculum: m3 goes on from m1, and m4 from m2, at two thirds of their steps. All trainings run side by side
by NVIDIA's multi-process service; the baseline and umbra-quick take what OCLOC leaves. m1 is trained as far as m3 needs
it, m2 with the start of umbra's first stage: as published two seeds came to nothing (docs/results/multi-view). After
--seconds trainings stop, and what they have is scored. WORK/results has one JSON a cell, WORK/figures the pictures,
WORK/logs/progress.log what was done when, with exit codes. --small: a rehearsal of minutes on a CPU.
"""

import shlex
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from side_by_side import SideBySide

KINDS, NUMBERS = ("ocloc", "per-view"), (1, 2, 3, 4)
SLOTS = {"test1": 7, "test2": 11}
START = {"log_sigma": "-3", "shape_logit": "-2", "selection_gain": "30"}
"""Of clevr-m2: objects that hardly show at first leave the ground to the background."""


@dataclass
class Bench(SideBySide):
    trained: dict[str, threading.Event] = field(
        default_factory=lambda: {f"{kind}-m{number}": threading.Event() for kind in KINDS for number in NUMBERS}
    )
    """Whether a run has ended, well or not."""

    def train(self, name: str, experiment: str, steps: int, later: bool, init: str = "", until: int = 0) -> None:
        """`until`: a step that the run keeps, after which it may stop."""
        words = ["train", f"{experiment}/clevr-{name[-2:]}", "--data", str(self.data_of(name))]
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
        common = shlex.join([source, "--data", str(self.data_of(name)), "--device", self.device])
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
        self.questions(name, lines, later)

    def data_of(self, name: str) -> Path:
        return self.work / f"clevr-{name[-2:]}"

    def figures(self, number: int) -> None:
        names = f"ocloc-m{number}", f"per-view-m{number}"
        for name in names:
            self.trained[name].wait()
        run, baseline = (str(self.work / "runs" / name) for name in names)
        words = ["figures", run, "--data", str(self.work / f"clevr-m{number}"), "--compare", baseline, "umbra-quick"]
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
                    list(pool.map(lambda n: self.data(f"clevr-m{n}", ["--large-scenes", "400"]), pair))
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


if __name__ == "__main__":
    bench = Bench.from_command_line(__doc__)
    bench.all()
    sys.exit(bench.exit_code)
