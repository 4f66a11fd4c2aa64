"""From a table to tasks: each is one viewslots command, with what it writes and what must be there before.

Commands run inside the folder of the reproduction, so that it can be moved once all
is scored. They are the same whatever the device.
"""

import itertools
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from viewslots.data.presets import data_preset
from viewslots.errors import UserError, did_you_mean, require_counts
from viewslots.experiments import all_steps, experiment, first_stage, known_experiment
from viewslots.files import read_json, write_json
from viewslots.methods.names import METHODS
from viewslots.methods.registry import method_class
from viewslots.methods.schedules import scaled
from viewslots.provenance import provenance
from viewslots.reproduce.tables import SINGLE_VIEW, Score, Short, Table

PLAN = "plan.json"
LEAST_STEPS = 4
LEAST_SCENES = {"train": 64, "valid": 4, "test": 4}
"""A batch of training scenes, and a few to look at."""
REHEARSAL = 0.01
"""Below this scale a run only tries the way out: scenes become fewer too."""

Kind = Literal["data", "train", "score", "figures", "report"]
NUMBERS = ("data", "train", "score")
"""Kinds that decide numbers."""


@dataclass(frozen=True)
class Task:
    name: str
    kind: Kind
    words: tuple[str, ...]
    """The command, without its device."""
    output: str
    """A file that is there when it is done."""
    needs: tuple[str, ...] = ()
    """Tasks that must be done before."""
    after: tuple[str, ...] = ()
    """Tasks that must have ended before, whatever came of them."""
    steps: int = 0
    """Of a training."""
    like: str = ""
    """Tasks of one kind with the same words here take equally long: the experiment, and of scores what is asked."""
    drawn_slowly: bool = False
    """Of data: as `DataPreset` says."""

    @property
    def command(self) -> str:
        return shlex.join(["viewslots", *self.words])


@dataclass(frozen=True)
class Asked:
    """What decides the numbers of a reproduction, whatever the table: several may share a folder and its trainings."""

    scale: float = 1.0
    short: bool = False
    seeds: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.scale <= 1:
            raise UserError(f"--scale {self.scale:g}: give a share of the published length, above 0 and at most 1")
        require_counts({"--seeds": self.seeds})


@dataclass(frozen=True)
class Training:
    """A run of a row, or one that a row starts from."""

    experiment: str
    seed: int
    steps: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def run(self) -> str:
        return f"{self.experiment.replace('/', '-')}-{self.seed}"

    @property
    def data(self) -> str:
        return experiment(self.experiment).data

    @property
    def first(self) -> str | None:
        """The experiment whose weights it starts from; None where its own command trains that too."""
        return start_of(self.experiment)


class Planner:
    """All tasks of a table. `only` chooses among its rows; the others may follow later in the same folder."""

    def __init__(self, table: Table, asked: Asked, only: Sequence[str] = ()) -> None:
        self.table, self.asked = table, asked
        self.rows = chosen_rows(table.rows, only)

    def tasks(self) -> list[Task]:
        """In the order in which they start: data, then trainings, those first on which most work waits. No training
        begins before all data are made: beside ten of them, rendering took 994 s of a GPU (research log, entry 34)."""
        trainings = self.trainings(self.rows)
        scores = [task for row in self.rows for task in self.score_tasks(row)]
        figures = [*self.figure_tasks()] if self.table.figure_scenes else []
        names = tuple(task.name for task in (*scores, *figures))
        report = Task("report", "report", ("report", "results", "--out", "report"), "report/report.md", after=names)
        own = dict.fromkeys(map(data_of, self.rows))
        more = self.scored(self.rows) | {one.data for one in trainings}
        data = [self.data_task(name) for name in (*own, *sorted(more - own.keys()))]
        waiting = {one.run: self._steps_behind(one, trainings) for one in trainings}
        trainings.sort(key=lambda one: -waiting[one.run])
        made = tuple(task.name for task in data)
        runs = [self.train_task(one, after=made) for one in trainings]
        return [*data, *runs, *scores, *figures, *([report] if scores else [])]

    def trainings(self, rows: Sequence[str]) -> list[Training]:
        """Of these rows, first stages included, each once."""
        found: dict[str, Training] = {}

        def add(name: str | None, seed: int) -> None:
            if name is not None:
                one = self.training(name, seed)
                add(one.first, seed)
                found[one.run] = one

        for row in filter(_learns, rows):
            for seed in range(self.asked.seeds):
                add(row, seed)
        return list(found.values())

    def training(self, name: str, seed: int) -> Training:
        recipe = Short(all_steps(name) if start_of(name) is None else experiment(name).schedule.steps)
        if self.asked.short:
            if name not in self.table.short:
                raise UserError(f"--short: there is no short recipe for {name}; leave --short or this row out")
            recipe = self.table.short[name]
        steps = max(LEAST_STEPS, round(self.asked.scale * recipe.steps))
        return Training(name, seed, steps, squeezed(recipe.settings, steps / recipe.steps))

    def _steps_behind(self, one: Training, trainings: Sequence[Training]) -> int:
        """Its own steps and those that can only be made after it."""
        later = [other for other in trainings if (other.first, other.seed) == (one.experiment, one.seed)]
        return one.steps + max((self._steps_behind(other, trainings) for other in later), default=0)

    def data_task(self, data: str) -> Task:
        words = ["make-data", data, "--out", f"data/{data}"]
        for split, count in self.scene_counts(data).items():
            words += [f"--{split}-scenes", str(count)]
        # Whatever rows are chosen: others may follow in the same folder.
        if self.table.large_scenes and data in self.scored(self.table.rows):
            words += ["--large-scenes", str(max(LEAST_SCENES["test"], round(self.share * self.table.large_scenes)))]
        slowly = data_preset(data).drawn_slowly
        return Task(f"data-{data}", "data", tuple(words), f"data/{data}/meta.json", drawn_slowly=slowly)

    def scene_counts(self, data: str) -> dict[str, int]:
        """As in the paper; a rehearsal has fewer."""
        paper = data_preset(data)
        return {name: max(least, round(self.share * getattr(paper, name))) for name, least in LEAST_SCENES.items()}

    def scored(self, rows: Sequence[str]) -> set[str]:
        """Data sets on which some of these rows are scored."""
        return {name for row in rows for name in self.table.scored_on(data_of(row))}

    @property
    def share(self) -> float:
        """Of all scenes."""
        return min(1.0, self.asked.scale / REHEARSAL)

    def train_task(self, one: Training, after: tuple[str, ...] = ()) -> Task:
        words = ["train", one.experiment, "--data", f"data/{one.data}", "--run", f"runs/{one.run}"]
        words += ["--seed", str(one.seed), "--steps", str(one.steps)]
        needs = [f"data-{one.data}"]
        if one.first is not None:
            first = self.training(one.first, one.seed)
            words += ["--init", f"runs/{first.run}"]
            needs.append(f"train-{first.run}")
        for name, value in one.settings.items():
            words += ["--set", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]
        output = f"runs/{one.run}/last.json"
        return Task(f"train-{one.run}", "train", tuple(words), output, tuple(needs), after, one.steps, one.experiment)

    def score_tasks(self, row: str) -> Iterator[Task]:
        method, own = method_of(row), data_of(row)
        for name, source, needs in self.sources(row):
            for data, score in itertools.product(self.table.scored_on(own), self.table.scores):
                if score.new_views and not method_class(method).shows_new_views:
                    continue
                title = f"{name}-{score.name}" if data == own else f"{name}-on-{data}-{score.name}"
                file = f"results/{title}.json"
                words = (*_question(score, source), "--data", f"data/{data}", "--repeats", str(score.answers))
                words += (*(("--starts", "0") if score.plain else ()), "--out", file)
                like = f"{row} {score.name}"
                yield Task(f"score-{title}", "score", words, file, (f"data-{data}", *needs), like=like)

    def sources(self, row: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """What is evaluated of a row: its name, what `evaluate` calls it, the tasks that make it."""
        if not _learns(row):
            yield row.replace("/", "-"), method_of(row), ()
            return
        for seed in range(self.asked.seeds):
            run = self.training(row, seed).run
            yield run, f"runs/{run}", (f"train-{run}",)

    def figure_tasks(self) -> Iterator[Task]:
        """The rows of a data set on the same scenes, with the first seed."""
        for data in dict.fromkeys(map(data_of, self.rows)):
            sources = [next(self.sources(row)) for row in self.rows if data_of(row) == data]
            first, *others = (source for _, source, _ in sources)
            scenes = min(self.table.figure_scenes, self.scene_counts(data)["test"])
            words = ["figures", first, "--data", f"data/{data}", "--out", f"figures/{data}"]
            views = min(self.table.figure_views, data_preset(data).world(None).views)
            words += ["--views", str(views), "--scenes", str(scenes)]
            words += ["--comparison-only", *(["--compare", *others] if others else [])]
            needs = (f"data-{data}", *(name for _, _, tasks in sources for name in tasks))
            yield Task(f"figures-{data}", "figures", tuple(words), f"figures/{data}/comparison.png", needs)
        if self.table.own_figures:
            yield from map(self.own_figure_task, filter(_has_viewpoints, self.rows))

    def own_figure_task(self, row: str) -> Task:
        """Of the first seed: layers, viewpoints, the camera's path."""
        (name, source, tasks), data = next(self.sources(row)), data_of(row)
        scenes = min(self.table.figure_scenes, self.scene_counts(data)["test"])
        words = ("figures", source, "--data", f"data/{data}", "--out", f"figures/{name}", "--scenes", str(scenes))
        return Task(
            f"figures-{name}", "figures", words, f"figures/{name}/viewpoints-sampled.png", (f"data-{data}", *tasks)
        )


def start_of(name: str) -> str | None:
    """The experiment of the run that a training starts from. None where it starts from nothing, or from a stage that
    does: its own command then trains both. Any other run may be a row, or serve several."""
    before = experiment(name).optimisation.pretrained_preset
    inside = first_stage(name) is not None and before is not None and first_stage(before) is None
    return None if inside else before


def squeezed(settings: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """What counts steps shrinks with the run, as in `train --steps`."""
    counts = {name for name in settings if name.endswith(("_step", "_steps"))}
    return {name: scaled(value, factor) if name in counts else value for name, value in settings.items()}


def _question(score: Score, source: str) -> tuple[str, ...]:
    if score.new_views:
        asked = ("--given", str(score.views), "--new", str(score.new_views))
        return ("estimate-viewpoints", source, "--split", score.split, *asked)
    return ("evaluate", source, "--split", score.split, "--views", str(score.views))


def method_of(row: str) -> str:
    made = known_experiment(row)
    return row.partition("/")[0] if made is None else made.method


def data_of(row: str) -> str:
    made = known_experiment(row)
    return row.partition("/")[2] if made is None else made.data


def _learns(row: str) -> bool:
    method = row.partition("/")[0]
    return method not in METHODS or METHODS[method].learns


def _has_viewpoints(row: str) -> bool:
    return data_of(row) not in SINGLE_VIEW and method_class(method_of(row)).has_viewpoints


def chosen_rows(rows: Sequence[str], only: Sequence[str]) -> list[str]:
    """Those that are named: in full, by method or by data set."""
    for word in only:
        if not any(word in (row, *row.split("/")) for row in rows):
            meant = did_you_mean(word, {name for row in rows for name in (row, *row.split("/"))})
            raise UserError(
                f"--only {word}: no such row; {meant}give METHOD, DATA or METHOD/DATA; rows are {', '.join(rows)}"
            )
    return [row for row in rows if not only or any(word in (row, *row.split("/")) for word in only)]


def record_plan(folder: Path, asked: Asked, tasks: Sequence[Task]) -> None:
    """Into plan.json; refuses a folder that was begun otherwise. Rows that were not asked for before are added."""
    file = folder / PLAN
    before = read_json(file) if file.is_file() else {}
    begun = before.get("asked", asdict(asked))
    for name, value in asdict(asked).items():
        if begun.get(name) != value:
            raise UserError(
                f"{folder} was begun with {_in_words(name, begun.get(name))}, not {_in_words(name, value)}; go on as "
                "it was begun, or choose another --out"
            )
    commands, old = {task.name: task.command for task in tasks}, before.get("commands", {})
    for task in tasks:
        if task.kind in NUMBERS and old.get(task.name, commands[task.name]) != commands[task.name]:
            raise UserError(
                f"{folder} was begun when {task.name} was another command, by another table or another version of "
                "viewslots; choose another --out, or what began it"
            )
    facts = {"asked": asdict(asked), "commands": old | commands}
    if before == before | facts:
        return
    write_json(file, facts | {"environment": before.get("environment", provenance())})


def _in_words(name: str, value: Any) -> str:
    return f"--{name} {value}" if not isinstance(value, bool) else f"--{'' if value else 'no-'}{name}"
