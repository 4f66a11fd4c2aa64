"""umbra from scratch for fresh seeds, side by side on one GPU: how many work, how well, and how soon.

    python3 benchmarks/seeds.py WORK [--on clevr-mixed] [--seeds 50 51 52] [--alone] [--seconds 1300]
    python3 benchmarks/seeds.py WORK --device cpu --small

Each seed has the stages of STAGES, one from the other; no seed is chosen or left out. On clevr-mixed one set of weights
is for all four sets, and is scored on each. --alone: before the others begin, the first seed learns clevr-m1 from
scratch by the one command of WHOLE, alone on the GPU, to its end; on clevr-mixed it goes on from there. After --seconds
trainings stop, and what they have is scored. WORK/results has one JSON a row, WORK/runs the run folders,
WORK/logs/progress.log the clock.
"""

import json
import shlex
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from side_by_side import SLOTS, SideBySide

HALF, MIXED, ELSEWHERE = "clevr-m1", "clevr-mixed", ("clevr-m2", "clevr-m3", "clevr-m4")
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


WHOLE = Stage("whole", "umbra-details/clevr-m1", HALF, 31_000, 1_500)
"""All stages in one command; those before the last are in WORK/runs/whole-SEED/first and first/first."""
FIRST = Stage("first", "ocloc-first/clevr-m1", HALF, 12_000, 1_500)
STAGES = {
    HALF: (
        FIRST,
        Stage("second", "umbra/clevr-m1", HALF, 14_000, 2_000),
        Stage("details", "umbra-details/clevr-m1", HALF, 5_000, 1_250),
    ),
    MIXED: (
        FIRST,
        Stage("second", "umbra/clevr-m1", HALF, 6_000, 1_500),
        Stage("wide", "umbra/clevr-mixed", MIXED, 38_000, 9_500),
        Stage("details", "umbra-details/clevr-mixed", MIXED, 9_000, 1_500),
    ),
}


@dataclass
class Seeds(SideBySide):
    on: str = MIXED
    seeds: list[int] = field(default_factory=list)
    alone: bool = False
    undisturbed: threading.Event = field(default_factory=threading.Event)
    """Nobody has the GPU for itself any more."""
    rendered: threading.Event = field(default_factory=threading.Event)
    """What is scored is there."""

    @property
    def scored_on(self) -> tuple[str, ...]:
        return (HALF, *ELSEWHERE) if self.on == MIXED else (HALF,)

    def all(self) -> None:
        if not self.alone:
            self.undisturbed.set()
        with ThreadPoolExecutor() as pool:
            large = {HALF: ["--large-scenes", "400"]}
            made = [partial(self.data, name, large.get(name, [])) for name in {HALF, self.on}]
            list(pool.map(self.part, made))
            parts = [self.others, *(partial(self.seed, seed) for seed in self.seeds)]
            for job in [pool.submit(self.part, part) for part in parts]:
                job.result()

    def others(self) -> None:
        """Test scenes, when they no longer disturb the clock."""
        self.wait_for(self.undisturbed.is_set)
        for name in self.scored_on[1:]:
            self.data(name, ["--train-scenes", "0", "--valid-scenes", "0", "--large-scenes", "400"], later=True)
        self.rendered.set()

    def seed(self, seed: int) -> None:
        before, stages, scored = "", STAGES[self.on], None
        with ThreadPoolExecutor() as pool:
            if self.alone and seed == self.seeds[0]:
                try:
                    whole = self.learn(seed, (WHOLE,))
                finally:
                    self.undisturbed.set()
                if not whole:
                    return
                scored = pool.submit(self.scores, whole, (HALF,), later=True)
                before, stages = f"{whole}/first", tuple(stage for stage in stages if stage.data == MIXED)
            self.wait_for(self.undisturbed.is_set)
            if stages and (run := self.learn(seed, stages, before)):
                self.wait_for(self.rendered.is_set)
                self.scores(run, self.scored_on, later=False)
            if scored:
                scored.result()

    def learn(self, seed: int, stages: tuple[Stage, ...], before: str = "") -> str:
        """One from the other; the name of the last run that there is."""
        begun, run, found = time.monotonic(), "", False

        def look() -> bool:
            nonlocal found
            if not found and (row := self.has_objects(run)):
                self.note(f"{run}: {row} after {time.monotonic() - begun:.0f} s")
                found = True
            return False

        for stage in stages:
            run, steps = f"{stage.name}-{seed}", 6 if self.small else stage.steps
            words = [stage.experiment, "--data", str(self.work / stage.data), "--seed", str(seed)]
            words += ["--run", str(self.work / "runs" / run), "--steps", str(steps), "--checkpoint-every", str(steps)]
            words += ["--validate-every", str(min(steps, stage.validate_every))]
            words += [*(["--batch", "2"] if self.small else []), *self.start_from(before)]
            code = self.train(run, words, False, look)
            if (self.work / "runs" / run / "best.json").exists():
                before = run
            if code:
                break
        return before

    def start_from(self, run: str) -> list[str]:
        return ["--init", str(self.work / "runs" / run)] if run else []

    def has_objects(self, run: str) -> str:
        """The first validation that has found the objects, in words; also of a stage inside the run."""
        for log in (self.work / "runs" / run).rglob("metrics.jsonl"):
            whole = log.read_text().rpartition("\n")[0]  # the last line may still be written
            for row in map(json.loads, whole.splitlines()):
                if row["kind"] == "valid" and (row.get("ARI-O") or 0) >= ENOUGH_OBJECTS:
                    return f"ARI-O {row['ARI-O']:.3f} at step {row['step']} of {log.parent.relative_to(self.work)}"
        return ""

    def scores(self, run: str, sets: tuple[str, ...], later: bool) -> None:
        """Each question in one of three processes."""
        lines = [*self.questions_about(run, sets)]
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda part: self.questions(f"{run}-{part}", lines[part::3], later), range(3)))

    def questions_about(self, run: str, sets: tuple[str, ...]) -> Iterator[str]:
        for name in sets:
            yield self.row(run, name, "test1-large", "" if name in (HALF, "clevr-m3") else "--no-extras")
        yield self.row(run, HALF, "test1-large", "--no-extras --starts 1 --spare 4 --looks 0", "-one-start")
        for name in sets:
            yield self.row(run, name, "test2-large", "--no-extras")

    def row(self, run: str, data: str, split: str, options: str, suffix: str = "") -> str:
        out = self.work / "results" / f"{run}-{data.removeprefix('clevr-')}-{split}{suffix}.json"
        words = ["evaluate", str(self.work / "runs" / run), "--data", str(self.work / data), "--split", split]
        words += ["--slots", str(SLOTS[split[:5]]), "--views", "4", "--repeats", "1", "--batch", "50"]
        return f"{shlex.join([*words, '--device', self.device, '--out', str(out)])} {options}"


if __name__ == "__main__":
    seeds = Seeds.from_command_line(
        __doc__,
        on={"choices": [*STAGES], "default": MIXED},
        seeds={"type": int, "nargs": "+", "default": [50, 51, 52]},
        alone={"action": "store_true"},
    )
    sys.exit(seeds.run())
