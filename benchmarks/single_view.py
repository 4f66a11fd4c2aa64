"""Comparison methods of the paper's Table 2 side by side on one GPU, for as long as there is time.

    python3 benchmarks/single_view.py WORK [--rows space/dsprites] [--seconds 1400]
    python3 benchmarks/single_view.py WORK --device cpu --small

RECIPES are longer than those of `reproduce table2 --short`, and shorter than published. After --seconds trainings stop,
and the best model of each is scored as in the paper: five answers of each picture of test1 and test2. WORK/results has
one JSON a row and split, WORK/runs the run folders, WORK/logs/progress.log the clock.
"""

import json
import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from side_by_side import SideBySide

from viewslots.reproduce.tables import Short, gmioo, space

SPACE = space(80_000)
RECIPES = {
    # Not down to a thirtieth, as by the squeezed schedule.
    "slot-attention/dsprites": Short(130_000, {"optimisation.warmup_steps": 5_000, "optimisation.decay_steps": 40_000}),
    "gmioo/dsprites": gmioo(20_000, 5e-4),
    # Down to the published rate.
    "space/dsprites": replace(
        SPACE, settings={**SPACE.settings, "optimisation.decay_factor": 0.1, "optimisation.decay_steps": SPACE.steps}
    ),
}
VALIDATIONS = 40


@dataclass
class Bench(SideBySide):
    rows: list[str] = field(default_factory=list)

    def all(self) -> None:
        for data in sorted({row.partition("/")[2] for row in self.rows}):
            self.data(data, [])
        with ThreadPoolExecutor() as pool:
            list(pool.map(self.row, self.rows))

    def row(self, row: str) -> None:
        name, data, recipe = row.replace("/", "-"), str(self.work / row.partition("/")[2]), RECIPES[row]
        run, steps = str(self.work / "runs" / name), 6 if self.small else recipe.steps
        words = [row, "--data", data, "--run", run, "--steps", str(steps), "--checkpoint-every", str(steps)]
        words += ["--validate-every", str(max(steps // VALIDATIONS, 1)), *(["--batch", "2"] if self.small else [])]
        settings = {} if self.small else recipe.settings
        words += [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]
        self.train(name, words, False, lambda: False)
        asked = shlex.join([run, "--data", data, "--views", "1", "--repeats", "5", "--device", self.device])
        out = shlex.quote(str(self.work / "results" / name))
        lines = [f"evaluate {asked} --split {split} --out {out}-{split}.json" for split in ("test1", "test2")]
        self.questions(name, lines, later=False)


if __name__ == "__main__":
    sys.exit(Bench.from_command_line(__doc__, rows={"nargs": "+", "choices": RECIPES, "default": [*RECIPES]}).run())
