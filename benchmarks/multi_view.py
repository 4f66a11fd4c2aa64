"""Rows of the paper's multi-view tables on one GPU: every cell of clevr-m1 to m4, and figures.

    python3 benchmarks/multi_view.py WORK [--rows mulmon per-view] [--seconds 1400] [--device cpu --small]

OCLOC has the paper's networks and its curriculum, like the baseline at compact's size: m3 goes on from m1, and m4 from
m2, at two thirds of their steps. m1 is trained as far as m3 needs it, m2 with the start of umbra's first stage: as
published two seeds came to nothing (docs/results/multi-view). MulMON is told the cameras, and learns each set alone.
All trainings run side by side by NVIDIA's multi-process service; the baseline and umbra-quick take what the others
leave. After --seconds trainings stop, and what they have is scored. WORK/results has one JSON a cell, WORK/figures the
pictures.
"""

import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from side_by_side import SLOTS, SideBySide

ROWS, NUMBERS = ("ocloc", "per-view", "mulmon", "umbra-quick", "kmeans"), (1, 2, 3, 4)
PAIRS = (1, 2), (3, 4)
"""Half a circle of viewpoints, and all of it."""
STEPS = {"ocloc": 40_000, "per-view": 15_000, "mulmon": 40_000}
"""Of what is trained; OCLOC and the baseline take two thirds of them for m3 and m4."""
CURRICULUM, LATER_ROWS = ("ocloc", "per-view"), ("per-view", "umbra-quick", "kmeans")
EXPERIMENTS = {"ocloc": "ocloc", "per-view": "per-view-compact", "mulmon": "mulmon"}
MULMON = ["--batch", "8", "--learning-rate", "3e-4"]
"""Twice the published batch, so that a squeezed run sees more (docs/results/multi-view)."""
START = {"log_sigma": "-3", "shape_logit": "-2", "selection_gain": "30"}
"""Of clevr-m2: objects that hardly show at first leave the ground to the background."""


@dataclass
class Bench(SideBySide):
    rows: list[str] = field(default_factory=list)
    trained: dict[str, threading.Event] = field(init=False)
    """Whether a run has ended, well or not."""
    made: dict[int, threading.Event] = field(default_factory=lambda: {number: threading.Event() for number in NUMBERS})
    """Whether a data set is there."""

    def __post_init__(self) -> None:
        names = [f"{row}-m{number}" for row in self.rows if row in STEPS for number in NUMBERS]
        self.trained = {name: threading.Event() for name in names}

    def learn(self, row: str, number: int, steps: int, init: str = "", until: int = 0) -> None:
        """`until`: a step that the run keeps, after which it may stop."""
        name = f"{row}-m{number}"
        experiment = "ocloc-compact" if self.small and row == "ocloc" else EXPERIMENTS[row]
        words = [f"{experiment}/clevr-m{number}", "--data", str(self.data_of(number))]
        words += ["--run", str(self.work / "runs" / name), "--steps", str(steps), "--checkpoint-every", str(steps)]
        words += ["--validate-every", str(max(steps // 20, 1))]
        words += ["--init", str(self.work / "runs" / init)] if init else []
        if self.small:
            words += ["--batch", "2"]
        elif row == "mulmon":
            words += MULMON
        if name == "ocloc-m2":
            words += [word for field, value in START.items() for word in ("--set", f"model.start.{field}={value}")]
        self.train(name, words, row in LATER_ROWS, lambda: bool(until) and self.kept(name, until))
        self.trained[name].set()

    def kept(self, name: str, step: int) -> bool:
        return (self.work / "runs" / name / "checkpoints" / f"step-{step:08d}.json").exists()

    def data_of(self, number: int) -> Path:
        return self.work / f"clevr-m{number}"

    def cells(self, row: str, number: int) -> None:
        """All of one row on one set, in one process. The paper estimates viewpoints with OCLOC alone."""
        source = str(self.work / "runs" / f"{row}-m{number}") if row in STEPS else row
        answers = 1 if row == "umbra-quick" else 5
        common = shlex.join([source, "--data", str(self.data_of(number)), "--device", self.device])
        common += f" --repeats {answers} --batch 50"
        lines = []
        for split, slots in SLOTS.items():
            out = shlex.quote(str(self.work / "results" / f"{row}-m{number}-{split}"))
            asked = f"{common} --split {split} --slots {slots} --out {out}"
            for views in (4, 1, 2, 8):
                lines.append(f"evaluate {asked}-m{views}.json --views {views}{'' if views == 4 else ' --no-extras'}")
            if row == "umbra-quick":
                lines.append(
                    f"evaluate {common} --split {split}-large --slots {slots} --out {out}-large.json --views 4"
                )
            for given in (4, 1, 2) if row in ("ocloc", "umbra-quick") else ():
                lines.append(f"estimate-viewpoints {asked}-given{given}.json --given {given} --new 4 --no-extras")
        self.questions(f"{row}-m{number}", lines, later=row in LATER_ROWS)

    def figures(self, number: int) -> None:
        """Of what is trained here, with umbra-quick beside it."""
        names = [name for name in self.trained if name.endswith(f"-m{number}")]
        for name in names:
            self.wait_for(self.trained[name].is_set)
        run, *others = (str(self.work / "runs" / name) for name in names)
        words = ["figures", run, "--data", str(self.data_of(number)), "--compare", *others, "umbra-quick"]
        words += ["--out", str(self.work / "figures" / f"m{number}"), *(["--frames", "2"] if self.small else [])]
        self.ended(f"figures of m{number}", self.viewslots(f"figures-m{number}", words))

    def curriculum(self, row: str, half: int, full: int) -> None:
        """Half a circle of viewpoints, then all of it. Of m1 there are results already."""
        steps = self.steps(row)
        first, kept = f"{row}-m{half}", round(steps * 2 / 3)

        def rest() -> None:
            self.wait_for(self.made[full].is_set)
            self.wait_for(lambda: self.kept(first, kept) or self.trained[first].is_set() or self.enough)
            self.learn(row, full, kept, init=first)  # fails if there is nothing to start from
            self.cells(row, full)

        with ThreadPoolExecutor() as pool:
            going_on = pool.submit(self.part, rest)
            self.wait_for(self.made[half].is_set)
            self.learn(row, half, steps, until=kept if half == 1 else 0)
            if half != 1:
                self.cells(row, half)
            going_on.result()

    def steps(self, row: str) -> int:
        return 6 if self.small else STEPS[row]

    def by_itself(self, row: str, number: int) -> None:
        self.wait_for(self.made[number].is_set)
        self.learn(row, number, self.steps(row))
        self.cells(row, number)

    def untrained(self, row: str, numbers: tuple[int, ...]) -> None:
        self.wait_for(self.made[4].is_set)
        for number in numbers:
            self.cells(row, number)

    def data_sets(self) -> None:
        for pair in PAIRS:
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda number: self.data(f"clevr-m{number}", ["--large-scenes", "400"]), pair))
            for number in pair:
                self.made[number].set()

    def jobs(self) -> Iterator[Callable[[], None]]:
        yield self.data_sets
        for row in self.rows:
            for half, full in zip(*PAIRS, strict=True):
                if row in CURRICULUM:
                    yield partial(self.curriculum, row, half, full)
                elif row in STEPS:
                    yield from (partial(self.by_itself, row, number) for number in (half, full))
                else:
                    yield partial(self.untrained, row, (half, full))
        if self.trained:
            yield from (partial(self.figures, number) for number in NUMBERS)

    def all(self) -> None:
        with ThreadPoolExecutor(40) as pool:
            for job in [pool.submit(self.part, job) for job in self.jobs()]:
                job.result()


if __name__ == "__main__":
    bench = Bench.from_command_line(__doc__, rows={"nargs": "+", "choices": ROWS, "default": [*ROWS]})
    sys.exit(bench.run())
