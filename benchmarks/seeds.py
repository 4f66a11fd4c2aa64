"""umbra from scratch for three fresh seeds on one GPU: how many work, how well one set of weights knows clevr-m1 to m4,
and how soon.

    python3 benchmarks/seeds.py WORK [--seconds 1300] [--device cpu --small]

Each seed: `umbra` on clevr-m1, both stages, 18,000 steps; from it `umbra/clevr-mixed`; from that `umbra-details`,
glimpses and details at once. No seed is chosen or left out. The first one is alone on the GPU until a validation has
ARI-O .90, and goes before all others to its end: WORK/logs/progress.log is its clock. One more run asks whether both
first stages can do without the half circle: `umbra` on clevr-mixed from scratch. After --seconds trainings stop, and
what they have is scored. WORK/results has one JSON a row, WORK/runs the run folders.
"""

import json
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from side_by_side import SideBySide

SEEDS, SCRATCH = (30, 31, 32), 33
HALF, MIXED, ELSEWHERE = "clevr-m1", "clevr-mixed", ("clevr-m2", "clevr-m3", "clevr-m4")
SETS = (HALF, *ELSEWHERE)
SLOTS = {"test1": 7, "test2": 11}
ENOUGH_OBJECTS = 0.90
"""Validation ARI-O of the clock, on 64 scenes, by the appendix's formula."""


@dataclass(frozen=True)
class Stage:
    """`experiment` on `data`, from the stage before."""

    name: str
    experiment: str
    data: str
    steps: int
    validate_every: int


STAGES = (
    Stage("half", "umbra", HALF, 18_000, 1_500),
    Stage("wide", "umbra/clevr-mixed", MIXED, 14_000, 2_000),
    Stage("details", "umbra-details/clevr-mixed", MIXED, 4_500, 900),
)
FROM_SCRATCH = (Stage("scratch", "umbra", MIXED, 18_000, 3_000),)


@dataclass
class Seeds(SideBySide):
    found: threading.Event = field(default_factory=threading.Event)
    """The first seed has its objects, or has ended."""
    first_done: threading.Event = field(default_factory=threading.Event)
    rendered: threading.Event = field(default_factory=threading.Event)
    """What is scored is there."""

    def all(self) -> None:
        with ThreadPoolExecutor() as pool:
            large = ["--large-scenes", "400"]
            list(pool.map(lambda name: self.data(name, large if name == HALF else []), (HALF, MIXED)))
            jobs = [pool.submit(self.seed, seed) for seed in SEEDS]
            jobs += [pool.submit(self.others), pool.submit(self.from_scratch)]
            for job in jobs:
                job.result()

    def others(self) -> None:
        """Test scenes, when they no longer disturb the clock."""
        self.found.wait()
        for name in ELSEWHERE:
            self.data(name, ["--train-scenes", "0", "--valid-scenes", "0", "--large-scenes", "400"], later=True)
        self.rendered.set()

    def seed(self, seed: int) -> None:
        first = seed == SEEDS[0]
        if not first:
            self.found.wait()
        run = self.train(seed, STAGES, first)
        if first:
            self.found.set()
            self.first_done.set()
        self.rendered.wait()
        with ThreadPoolExecutor() as pool:
            halves = pool.map(
                lambda part: self.questions(f"{run}-{part}", [*self.asked(run)][part::2], later=False), range(2)
            )
            list(halves)

    def from_scratch(self) -> None:
        self.found.wait()
        run = self.train(SCRATCH, FROM_SCRATCH, first=False)
        self.rendered.wait()
        rows = [self.row(run, name, "test1", "--no-extras") for name in (HALF, "clevr-m3")]
        self.questions(run, rows, later=True)

    def train(self, seed: int, stages: tuple[Stage, ...], first: bool) -> str:
        """The name of the last run that there is."""
        before = ""
        for stage in stages:
            run = f"{stage.name}-{seed}"
            steps = 4 if self.small else stage.steps
            words = ["train", stage.experiment, "--data", str(self.work / stage.data), "--seed", str(seed)]
            words += ["--run", str(self.work / "runs" / run), "--steps", str(steps), "--checkpoint-every", str(steps)]
            words += ["--validate-every", str(min(steps, stage.validate_every))]
            words += [*(["--batch", "2"] if self.small else []), *self.start_from(before)]
            process = self.viewslots(run, words, later=not first and not self.first_done.is_set())
            begun = time.monotonic()
            while process.poll() is None:
                if first and not self.found.is_set() and (row := self.has_objects(run)):
                    self.note(f"{run}: {row} after {time.monotonic() - begun:.0f} s")
                    self.found.set()
                if self.enough:
                    process.send_signal(signal.SIGTERM)
                    break
                time.sleep(0.5)
            code = self.ended(f"trained {run}", process)
            if not (self.work / "runs" / run / "best.json").exists():
                return before or run
            before = run
            if code:
                break
        return before

    def start_from(self, run: str) -> list[str]:
        return ["--init", str(self.work / "runs" / run)] if run else []

    def has_objects(self, run: str) -> str:
        """The first validation of a run, or of its first stage, that has found the objects, in words."""
        for stage in ("first", "."):
            log = self.work / "runs" / run / stage / "metrics.jsonl"
            whole = log.read_text().rpartition("\n")[0] if log.exists() else ""  # the last line may still be written
            for line in whole.splitlines():
                row = json.loads(line)
                if row["kind"] == "valid" and row["ARI-O"] >= ENOUGH_OBJECTS:
                    return f"ARI-O {row['ARI-O']:.3f} at step {row['step']} of stage {1 + (stage == '.')}"
        return ""

    def asked(self, run: str) -> Iterator[str]:
        """Every other line goes to another process."""
        for name in SETS:
            yield self.row(run, name, "test1-large", "" if name in (HALF, "clevr-m3") else "--no-extras")
        yield self.row(run, HALF, "test2-large", "--no-extras")
        yield self.row(run, HALF, "test1-large", "--no-extras --starts 1 --spare 4 --looks 0", "-one-start")
        for name in ("clevr-m4", "clevr-m3", "clevr-m2"):
            yield self.row(run, name, "test2-large", "--no-extras")

    def row(self, run: str, data: str, split: str, options: str, suffix: str = "") -> str:
        out = self.work / "results" / f"{run}-{data.removeprefix('clevr-')}-{split}{suffix}.json"
        words = ["evaluate", str(self.work / "runs" / run), "--data", str(self.work / data), "--split", split]
        words += ["--slots", str(SLOTS[split[:5]]), "--views", "4", "--repeats", "1", "--batch", "50"]
        return f"{shlex.join([*words, '--device', self.device, '--out', str(out)])} {options}"


if __name__ == "__main__":
    seeds = Seeds.from_command_line(__doc__)
    seeds.all()
    sys.exit(seeds.exit_code)
