"""Methods of the paper's Table 2 side by side on one GPU, for as long as there is time.

    python3 benchmarks/single_view.py WORK [--rows ocloc/dsprites] [--times 2] [--seconds 1400]
    python3 benchmarks/single_view.py WORK --device cpu --small

Without --rows: the comparison methods on dSprites. RECIPES are longer than those of `reproduce table2 --short`, and
shorter than published; --times 2 makes them, and all that they schedule, twice as long, for a row that has the GPU for
itself. After --seconds trainings stop, and the best model of each is scored as in the paper: five answers of each
picture of test1 and test2. WORK/results has one JSON a row and split, WORK/runs the run folders,
WORK/logs/progress.log the clock.
"""

import json
import shlex
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial

from side_by_side import SideBySide

from viewslots.reproduce.tables import OCLOC_START, Short, gmioo, space


def slot_attention(steps: int) -> Short:
    """The rate falls to a tenth, not down to a thirtieth as by the squeezed schedule."""
    return Short(steps, {"optimisation.warmup_steps": steps // 26, "optimisation.decay_steps": steps * 4 // 13})


def longer_space(steps: int) -> Short:
    """The rate falls to the published one."""
    made = space(steps)
    rate = {"optimisation.decay_factor": 0.1, "optimisation.decay_steps": steps}
    return replace(made, settings={**made.settings, **rate})


def ocloc(steps: int, batch_size: int = 64) -> Short:
    """The published schedule, squeezed."""
    return Short(steps, {"optimisation.batch_size": batch_size, **OCLOC_START})


RECIPES: dict[str, tuple[int, Callable[[int], Short]]] = {
    "slot-attention/dsprites": (130_000, slot_attention),
    "gmioo/dsprites": (20_000, partial(gmioo, learning_rate=5e-4)),
    "space/dsprites": (80_000, longer_space),
    "ocloc/dsprites": (90_000, ocloc),
    "ocloc/abstract": (90_000, ocloc),
    "ocloc/clevr": (25_000, partial(ocloc, batch_size=32)),
}
"""Steps, and the recipe of so many."""
VALIDATIONS = 40


@dataclass
class Bench(SideBySide):
    rows: list[str] = field(default_factory=list)
    times: float = 1.0

    def all(self) -> None:
        for data in sorted({row.partition("/")[2] for row in self.rows}):
            self.data(data, [])
        with ThreadPoolExecutor() as pool:
            list(pool.map(self.row, self.rows))

    def row(self, row: str) -> None:
        name, data, (planned, recipe_of) = row.replace("/", "-"), str(self.work / row.partition("/")[2]), RECIPES[row]
        recipe = recipe_of(round(planned * self.times))
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
    rows = {"nargs": "+", "choices": RECIPES, "default": [row for row in RECIPES if not row.startswith("ocloc/")]}
    sys.exit(Bench.from_command_line(__doc__, rows=rows, times={"type": float, "default": 1.0}).run())
