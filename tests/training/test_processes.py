"""Several seeds side by side: real processes, one of which may fail or all of which may be stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from trainings import SMALL, saved_steps, start

from viewslots.errors import UserError
from viewslots.training import processes
from viewslots.training.processes import ECHO_SECONDS, SeedResults, StopSignals, exit_code, parse_seeds


def test_seeds_as_written() -> None:
    assert parse_seeds("0,1,2") == [0, 1, 2]
    for bad in ("", "0,,1", "a", "1;2"):
        with pytest.raises(UserError, match="commas"):
            parse_seeds(bad)
    with pytest.raises(UserError, match="twice"):
        parse_seeds("1,2,1")


def test_the_best_of_all() -> None:
    seeds = {
        seed: {"best": None if loss is None else {"loss": loss}} for seed, loss in [(0, 3.0), (4, -1.0), (5, None)]
    }
    results = SeedResults(seeds, {7: 1}, 0)
    assert results.best == 4
    assert results.to_json()["failed"] == {7: 1}
    assert SeedResults({5: {"best": None}}, {}, 0).best is None
    assert [
        exit_code(SeedResults({}, failed, number)) for failed, number in [({}, 0), ({7: 1}, 0), ({7: 143}, 15)]
    ] == [
        0,
        1,
        143,
    ]


def test_a_failing_seed_does_not_stop_the_others(shapes: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "seed-1").mkdir(parents=True)
    (run / "seed-1" / "best.json").write_text("mine")
    process = start("tiny", data=shapes, run=run, seeds="0,1", **SMALL)
    output, said = process.communicate(timeout=300)
    assert process.returncode == 1, said
    answer = json.loads(output)
    assert answer["best_seed"] == 0
    assert answer["seeds"]["0"]["step"] == 20
    assert answer["failed"] == {"1": 1}
    assert "seed 0: step 20/20" in said
    assert "seed 1: viewslots: " in said
    assert said.splitlines()[-1] == "viewslots: seeds 1 failed; see their lines above"
    config = json.loads((run / "seed-0" / "config.json").read_text())["config"]
    assert (config["seed"], config["optimisation"]["batch_size"]) == (0, 2)


def two_seeds(shapes: Path, run: Path) -> tuple["subprocess.Popen[str]", list[Path]]:
    """A long training of each, and their folders, once both have saved something."""
    folders = [run / name for name in ("seed-3", "seed-4")]
    process = start("tiny", data=shapes, run=run, seeds="3,4", **SMALL | {"steps": 100_000})
    while not all(saved_steps(folder) for folder in folders):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    return process, folders


def test_a_signal_reaches_all(shapes: Path, tmp_path: Path) -> None:
    """That --resume goes on with each of them is in test_settings.py."""
    run = tmp_path / "run"
    process, _ = two_seeds(shapes, run)
    os.kill(process.pid, signal.SIGINT)
    output, said = process.communicate(timeout=300)
    assert process.returncode == 130, said
    assert json.loads(output)["failed"] == {"3": 130, "4": 130}
    assert said.splitlines()[-1].endswith(f"viewslots train --run {run} --seeds 3,4 --resume")
    stops = [line for line in said.splitlines() if "stopped by SIGINT" in line]
    assert len(stops) == 2
    assert all("all saved" in line for line in stops)


def test_a_second_signal_acts_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """But not an echo of SIGTERM."""
    now = [10.0]
    monkeypatch.setattr(processes.time, "monotonic", lambda: now[0])
    with StopSignals() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.number == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    acted = list[int]()
    before = signal.signal(signal.SIGTERM, lambda number, frame: acted.append(number))
    try:
        with StopSignals() as stop:
            for later, expected in ((0.0, []), (ECHO_SECONDS, []), (ECHO_SECONDS + 0.1, [signal.SIGTERM])):
                now[0] = 10.0 + later
                signal.raise_signal(signal.SIGTERM)
                assert (stop.number, acted) == (signal.SIGTERM, expected)
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.skipif(sys.platform != "linux", reason="the system tells children of a killed process on Linux alone")
def test_seeds_end_with_a_parent_that_is_killed(shapes: Path, tmp_path: Path) -> None:
    process, folders = two_seeds(shapes, tmp_path / "run")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 2
    process.kill()
    process.wait()
    deadline = time.monotonic() + 120
    while any(alive(child) for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for folder in folders:
        assert json.loads((folder / "last.json").read_text())["step"] == saved_steps(folder)[-1]


def alive(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_lines_of_two_seeds_are_never_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line is written in two parts, with time for others in between."""
    written: list[str] = []

    def talkative(words: Sequence[str], siblings: int, **options: Any) -> "subprocess.Popen[str]":
        script = f"import sys; [print({words[0]!r} * 9, file=sys.stderr) for _ in range(100)]; print('{{}}')"
        return subprocess.Popen([sys.executable, "-c", script], **options)

    def say(line: str) -> None:
        written.append(line)
        time.sleep(0.0002)
        written.append("\n")

    monkeypatch.setattr(processes, "start_viewslots", talkative)
    processes.run_seeds({3: ["a"], 4: ["b"]}, say)
    lines = "".join(written).splitlines()
    assert sorted(lines) == ["seed 3: " + "a" * 9] * 100 + ["seed 4: " + "b" * 9] * 100
