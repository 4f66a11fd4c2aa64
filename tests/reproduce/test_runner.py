"""Running tasks: order, failures, signals, time left, what is said; with processes that are made up."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from viewslots.commands.reproduce import reproduce
from viewslots.errors import UserError
from viewslots.files import FolderLock
from viewslots.reproduce import runner, tables
from viewslots.reproduce.plan import Asked, Planner, Task
from viewslots.reproduce.progress import Meter, clock_words, steps_done, time_left
from viewslots.reproduce.runner import (
    Reporter,
    command_now,
    default_workers,
    is_done,
    ranks_for,
    record_done,
    run_tasks,
)
from viewslots.reproduce.tables import Score, Table
from viewslots.training.processes import start_viewslots


def task(name: str, *needs: str, kind: Any = "score", after: tuple[str, ...] = (), steps: int = 0) -> Task:
    return Task(name, kind, (name,), f"{name}/last.json", needs, after, steps, like=name[:1])


@dataclass
class Made:
    """Ends after so many looks."""

    looks: int
    code: int = 0
    signals: list[int] = field(default_factory=list)

    def poll(self) -> int | None:
        self.looks -= 1
        return None if self.looks > 0 else self.code

    def send_signal(self, number: int) -> None:
        self.signals.append(number)
        self.looks, self.code = 1, 128 + number


class Notes:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.most = 0

    def started(self, task: Task) -> None:
        self.lines.append(f"+{task.name}")

    def ended(self, task: Task, code: int) -> None:
        self.lines.append(f"-{task.name}" if code == 0 else f"!{task.name}")

    def left_out(self, task: Task, cause: str) -> None:
        self.lines.append(f"?{task.name} {cause}")

    def stopping(self, running: list[Task]) -> None:
        self.lines.append(f"stop {' '.join(task.name for task in running)}")

    def look(self, running: list[Task], waiting: list[Task]) -> None:
        self.most = max(self.most, len(running))


def run(tasks: list[Task], workers: int, processes: dict[str, Made] | None = None, pause: Any = lambda: None) -> Any:
    notes, made = Notes(), processes or {}
    outcome = run_tasks(tasks, workers, lambda one: made.get(one.name, Made(2)), notes, pause)
    return outcome, notes


CHAIN = [task("data"), task("first", "data"), task("second", "first"), task("other", "data")]


def test_one_after_the_other() -> None:
    outcome, notes = run(CHAIN, 1)
    assert notes.lines == ["+data", "-data", "+first", "-first", "+second", "-second", "+other", "-other"]
    assert outcome.done == ["data", "first", "second", "other"]
    assert (outcome.exit_code, notes.most) == (0, 1)


def test_side_by_side_as_far_as_they_depend() -> None:
    _, notes = run(CHAIN, 5, {"first": Made(9)})
    assert notes.lines == ["+data", "-data", "+first", "+other", "-other", "-first", "+second", "-second"]
    assert notes.most == 2


def test_a_failure_takes_along_what_needs_it() -> None:
    tasks = [*CHAIN, task("third", "second"), task("report", after=("second", "other", "third"))]
    outcome, notes = run(tasks, 2, {"first": Made(2, code=3)})
    assert outcome.failed == {"first": 3}
    assert outcome.left_out == {"second": "first", "third": "second"}
    assert outcome.done == ["data", "other", "report"]
    assert notes.lines.index("-other") < notes.lines.index("+report")
    assert outcome.exit_code == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on_and_nothing_more_is_started(number: int) -> None:
    first, other = Made(1000), Made(1000)
    pauses = iter(range(1000))

    def pause() -> None:
        if next(pauses) == 4:
            os.kill(os.getpid(), number)

    outcome, notes = run(CHAIN, 2, {"first": first, "other": other}, pause)
    assert first.signals == other.signals == [number]
    assert notes.lines[-3:] == ["stop first other", "!first", "!other"]
    assert outcome.failed == {}
    assert outcome.exit_code == 128 + number


def test_a_mistake_of_ours_leaves_no_process_behind() -> None:
    first = Made(1000)
    pauses = iter(range(1000))

    def pause() -> None:
        if next(pauses) == 5:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        run(CHAIN, 1, {"first": first}, pause)
    assert first.signals == [signal.SIGTERM]


def test_time_left_plays_the_tasks_through() -> None:
    seconds = {"data": 10.0, "first": 100.0, "second": 20.0, "other": 50.0}
    assert time_left(CHAIN, seconds, [], workers=1) == 180
    assert time_left(CHAIN, seconds, [], workers=2) == 130
    assert time_left(CHAIN[1:], seconds | {"first": 5.0}, ["first"], workers=2) == 50
    assert time_left(CHAIN[1:], seconds | {"first": 5.0}, ["first"], workers=1) == 75
    assert time_left([], {}, [], workers=3) == 0


def write_step(folder: Path, name: str, step: int) -> None:
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "metrics.jsonl").write_text(f'{{"step": 1}}\n{{"step": {step}}}\n{{"st')


def test_seconds_come_from_measured_rates(tmp_path: Path) -> None:
    """Two like trainings and another; the first has made 30 steps in 10 seconds after it was resumed at 20."""
    one, two, other = (task(name, kind="train", steps=steps) for name, steps in (("a1", 110), ("a2", 90), ("b", 60)))
    score = task("score")
    write_step(tmp_path, "a1", 20)
    meter = Meter(tmp_path, [one, two, other, score])
    assert meter.steps == {"a1": 20, "a2": 0, "b": 0}
    meter.started(one, 100.0)
    meter.look(one, 105.0)
    assert meter.seconds([one, two, score], ["a1"], 105.0) is None
    write_step(tmp_path, "a1", 50)
    meter.look(one, 110.0)
    assert meter.seconds([one, two, other, score], ["a1"], 111.0) == {"a1": 20.0, "a2": 30.0, "b": 20.0, "score": 0.0}
    meter.ended(one, 130.0)
    assert meter.steps["a1"] == 110
    meter.started(other, 130.0)
    write_step(tmp_path, "b", 10)
    meter.look(other, 140.0)  # 1 step a second, with the time to load it
    assert meter.seconds([two, other], ["b"], 140.0) == {"a2": 30.0, "b": 50.0}
    for step, now in ((20, 142.0), (40, 146.0)):
        write_step(tmp_path, "b", step)
        meter.look(other, now)  # 5 steps a second without it
    assert meter.seconds([two, other], ["b"], 150.0) == {"a2": 30.0, "b": 4.0}
    meter.started(two, 150.0)
    assert meter.seconds([two], ["a2"], 160.0) == {"a2": 30.0}
    assert meter.seconds([two], ["a2"], 250.0) == {"a2": 100.0}, "no news for so long"
    for begun, took in ((0.0, 8.0), (10.0, 4.0)):
        meter.started(score, begun)
        meter.ended(score, begun + took)
    meter.started(score, 200.0)
    waiting = Task("another", "score", (), "x", like="z")
    assert meter.seconds([score, waiting], ["score"], 204.0) == {"score": 2.0, "another": 6.0}
    assert meter.seconds([score], ["score"], 250.0) == {"score": 5.0}, "overdue"


def test_steps_that_a_run_folder_tells(tmp_path: Path) -> None:
    training = task("a", kind="train", steps=100)
    assert steps_done(tmp_path, training) == 0
    write_step(tmp_path, "a", 42)
    assert steps_done(tmp_path, training) == 42
    (tmp_path / "a" / "metrics.jsonl").write_text("nonsense")
    assert steps_done(tmp_path, training) == 0
    write_step(tmp_path, "a/first", 30)
    assert steps_done(tmp_path, training) == 30
    write_step(tmp_path, "a", 5)
    assert steps_done(tmp_path, training) == 35  # of both stages


def test_the_line_of_status(tmp_path: Path) -> None:
    training, score, done = task("a", kind="train", steps=1_100), task("b", "a"), task("d", kind="train", steps=900)
    write_step(tmp_path, "a", 100)
    reporter = Reporter(tmp_path, [done, training, score], [done], workers=1)
    reporter.meter.started(training, 0.0)
    assert reporter.line([training], [score], 1.0) == "1/3 tasks  1,000/2,000 steps  time left not known yet  now: a"
    write_step(tmp_path, "a", 200)
    reporter.meter.look(training, 10.0)
    assert reporter.line([training], [score], 10.0) == "1/3 tasks  1,100/2,000 steps  0:01:30 left  now: a"
    assert clock_words(3 * 3600 + 125.9) == "3:02:05"


def test_done_is_the_same_command_with_its_output(tmp_path: Path) -> None:
    one = task("a")
    (tmp_path / "done").mkdir()
    assert not is_done(tmp_path, one)
    record_done(tmp_path, one, 1.0)
    assert not is_done(tmp_path, one), "no output"
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "last.json").write_text("{}")
    assert is_done(tmp_path, one)
    assert not is_done(tmp_path, Task("a", "score", ("a", "b"), "a/last.json"))
    assert not is_done(tmp_path, Task("a", "report", ("a",), "a/last.json")), "reports are made anew"
    assert is_done(tmp_path, Task("d", "data", ("d",), "a/last.json")), "killed before it was on record"


def test_a_training_that_was_begun_goes_on(tmp_path: Path) -> None:
    words = ("train", "x/y", "--data", "data/y", "--run", "runs/r", "--seed", "0", "--steps", "5", "--init", "runs/f")
    training = Task("t", "train", words, "runs/r/last.json")
    assert command_now(tmp_path, training, "cpu") == [*words, "--device", "cpu"]
    (tmp_path / "runs" / "r").mkdir(parents=True)
    (tmp_path / "runs" / "r" / "config.json").write_text("{}")
    again = ["train", "--run", "runs/r", "--resume", "--data", "data/y", "--device", "cuda"]
    assert command_now(tmp_path, training, "cuda") == again
    assert command_now(tmp_path, Task("r", "report", ("report",), "x"), "cuda") == ["report"]


def test_how_many_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_workers("cpu") == 1
    for gigabytes, expected in ((8, 1), (40, 2), (80, 5), (141, 8)):
        properties = type("Properties", (), {"total_memory": gigabytes * 2**30})
        monkeypatch.setattr("torch.cuda.get_device_properties", lambda device, made=properties: made)
        assert default_workers("cuda") == expected


TINY = Table("for tests", ("slot-attention-tiny/dsprites", "kmeans/dsprites"), (Score("test1", 1),), figure_scenes=2)


def test_slow_drawing_has_several_processes_beside_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = {task.name: task for task in Planner(tables.TABLES["table2"], Asked()).tasks()}
    for count, expected in ((2, 2), (16, 8)):
        monkeypatch.setattr(runner, "cores", lambda count=count: count)
        assert {name for name, task in tasks.items() if ranks_for(task, "cuda") > 1} == {"data-clevr"}
        assert ranks_for(tasks["data-clevr"], "cuda") == expected
        assert ranks_for(tasks["data-clevr"], "cpu") == 1


def test_several_processes_make_the_bytes_of_one(tmp_path: Path) -> None:
    counts = ("--train-scenes", "5", "--valid-scenes", "2", "--test-scenes", "0", "--batch", "2", "--device", "cpu")
    for ranks, name in ((1, "one"), (2, "two")):
        words = ("make-data", "dsprites", "--out", name, *counts)
        with open(tmp_path / f"{name}.log", "wb") as log:
            process = start_viewslots(words, 1, ranks, cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT)
        assert process.wait(120) == 0, (tmp_path / f"{name}.log").read_text()
    folders = (tmp_path / name / "train" for name in ("one", "two"))
    one, two = ({file.name: file.read_bytes() for file in folder.iterdir()} for folder in folders)
    assert one == two
    assert "image.npy" in one


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Exit codes by the beginning of a task's name; tasks write their output and nothing else."""
    codes: dict[str, int] = {}
    program = "import pathlib, sys; p = pathlib.Path(sys.argv[1]); p.parent.mkdir(parents=True, exist_ok=True); "
    program += "p.write_text('{}'); sys.exit(int(sys.argv[2]))"

    def start(folder: Path, task: Task, device: str, workers: int) -> "subprocess.Popen[bytes]":
        code = next((code for name, code in codes.items() if task.name.startswith(name)), 0)
        return subprocess.Popen([sys.executable, "-S", "-c", program, str(folder / task.output), str(code)])

    monkeypatch.setattr(runner, "start_task", start)
    monkeypatch.setitem(tables.TABLES, "tiny", TINY)
    return codes


def test_what_failed_is_told_and_tried_again(
    pretended: dict[str, int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "out"
    pretended["train"] = 7

    def ask(code: int) -> tuple[str, str]:
        with pytest.raises(SystemExit) as stop:
            reproduce("tiny", out=out, scale=1e-6, device="cpu", workers=2)
        assert stop.value.code == code
        printed = capsys.readouterr()
        return printed.out, printed.err

    printed, said = ask(1)
    name = "train-slot-attention-tiny-dsprites-0"
    assert f'"{name}": 7' in printed
    assert said.splitlines()[-1] == f"viewslots: {name} failed with exit code 7; see {out / 'logs' / name}.log"
    assert f"left   figures-dsprites: needs {name}, which failed" in said
    assert "end    score-kmeans-dsprites-test1-m1: done" in said
    pretended.clear()
    printed, said = ask(0)
    assert "data-dsprites" not in said
    assert "kmeans-dsprites-test1" not in said
    assert said.count("start ") == 4  # the training, its score, the figures, the report
    assert str(out / "report" / "report.html") in printed
    assert ask(0)[1].count("start ") == 1


def test_what_is_refused(pretended: dict[str, int], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no table 'table7'; choose one of table1, table2"):
        reproduce("table7", out=tmp_path / "out")
    with pytest.raises(UserError, match="--workers: must be at least 1, not 0"):
        reproduce("tiny", out=tmp_path / "out", device="cpu", workers=0)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(UserError, match=r"holds thesis.tex and is no reproduction"):
        reproduce("tiny", out=tmp_path / "mine", device="cpu")
    with pytest.raises(UserError, match="is a file"):
        reproduce("tiny", out=tmp_path / "mine" / "thesis.tex", device="cpu")
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    lock = FolderLock(tmp_path / "out" / "reproduce.lock")
    with pytest.raises(UserError, match="another process is writing this folder"):
        runner.reproduce_table(TINY, Asked(1e-6), tmp_path / "out")
    lock.release()
