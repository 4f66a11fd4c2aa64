"""Work is never lost: real processes, killed and stopped by real signals, go on as if nothing had been."""

import json
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from trainings import (
    DIES_AFTER_SAVING,
    ENVIRONMENT,
    SLOWLY,
    SMALL,
    assert_same_run,
    facts,
    refused,
    resume,
    rows,
    saved_steps,
    start,
    tensors,
    train,
    written,
)

from viewslots.errors import UserError
from viewslots.run_record import scored_step
from viewslots.runs import load_run


@pytest.fixture(scope="module")
def straight(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty steps without a stop."""
    run = tmp_path_factory.mktemp("straight") / "run"
    train("tiny", data=shapes, run=run, **SMALL)
    return run


def test_killed_after_thirteen_steps(straight: Path, shapes: Path, tmp_path: Path) -> None:
    """Five after the single-view phase: the last model is the newest state, not one of that phase."""
    run = tmp_path / "run"
    process = start("tiny", data=shapes, run=run, **SMALL, program=("-c", DIES_AFTER_SAVING, "13"))
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    assert saved_steps(run)[-1] == 13
    assert_last_model(run, 13)
    output, _ = resume(run)
    assert json.loads(output)["step"] == 20
    assert_same_run(straight, run, 20)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)])
def test_stopped_by_a_signal(straight: Path, shapes: Path, tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Saves although no checkpoint is due, and says how to go on."""
    run = tmp_path / "run"
    rare = SMALL | {"checkpoint_every": 1000}
    process = start("tiny", data=shapes, run=run, **rare, program=("-c", SLOWLY))
    assert process.stderr is not None
    first = process.stderr.readline()
    assert first.startswith("step 1/20"), first
    process.send_signal(number)
    _, said = process.communicate(timeout=300)
    assert process.returncode == code
    assert said.splitlines()[-1].endswith(f"go on with: viewslots train --run {run} --resume")
    [stopped] = saved_steps(run)
    assert stopped < 20
    assert f"at step {stopped}, all saved" in said
    assert_last_model(run, stopped)
    resume(run)
    assert_same_run(straight, run, 20)


def assert_last_model(run: Path, step: int) -> None:
    """It holds the weights of the checkpoint of that step, and results tell the step."""
    assert scored_step(str(run), "last") == step
    saved = load_file(run / "checkpoints" / f"step-{step:08d}.safetensors")
    for name, value in load_run(run, which="last").state_dict().items():
        assert torch.equal(value, saved[f"model.{name}"]), name


def test_a_run_that_has_ended_says_so_again(straight: Path) -> None:
    output, _ = resume(straight)
    answer = json.loads(output)
    assert answer["step"] == 20
    assert answer["best"]["step"] == json.loads((straight / "best.json").read_text())["step"]


def test_two_trainings_into_one_folder(shapes: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start("tiny", data=shapes, run=run, **SMALL | {"steps": 100_000})
    try:
        while not (run / "config.json").exists():
            time.sleep(0.05)
        with pytest.raises(UserError, match="another process is writing"):
            resume(run)
    finally:
        process.kill()
        process.communicate()


def test_a_run_is_not_begun_over_another(straight: Path, shapes: Path) -> None:
    assert "--resume" in refused("tiny", data=shapes, run=straight, **SMALL)


def test_a_damaged_checkpoint_is_skipped(straight: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(straight, tmp_path / "run"))
    newest = run / "checkpoints" / "step-00000020.safetensors"
    content = bytearray(newest.read_bytes())
    content[-100] ^= 1
    newest.write_bytes(content)
    _, said = resume(run)
    assert "step-00000020.safetensors: damaged" in said
    assert_same_run(straight, run, 20)


@pytest.mark.parametrize(
    "log",
    ["2>&1 >/dev/null | head -1", *(pytest.param(log, marks=pytest.mark.soak) for log in ("2>/dev/full", "2>&-"))],
)
def test_a_log_that_breaks_off_stops_nothing(shapes: Path, tmp_path: Path, log: str) -> None:
    """A reader that leaves, a full disk, no stream at all."""
    run = tmp_path / "run"
    words = [sys.executable, "-m", "viewslots", "train", "tiny", *written({"data": shapes, "run": run, **SMALL})]
    shell = ["bash", "-c", f"set -o pipefail; {shlex.join(words)} {log}"]
    done = subprocess.run(shell, env=ENVIRONMENT, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done
    assert saved_steps(run)[-1] == 20
    assert rows(run)[-1]["step"] == 20


EDITS = [
    ("seed", 1),
    ("optimisation.learning_rate", 0.5),
    ("optimisation.batch_size", 3),
    ("method", "per-view"),
    ("data", "live"),
]


@pytest.mark.parametrize(("name", "value"), EDITS)
def test_an_edited_run_does_not_go_on(straight: Path, tmp_path: Path, name: str, value: object) -> None:
    """Its weights are of the settings it was begun with; how often to save may change."""
    run = Path(shutil.copytree(straight, tmp_path / "run"))
    edit(run, "checkpoint_every", 5)
    resume(run)
    edit(run, name, value)
    before = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(UserError, match=r"config.json was edited after step 20.*undo that"):
        resume(run)
    assert (run / "metrics.jsonl").read_bytes() == before


def edit(run: Path, name: str, value: object) -> None:
    content = json.loads((run / "config.json").read_text())
    *path, last = name.split(".")
    place = content["config"]
    for part in path:
        place = place[part]
    place[last] = value
    (run / "config.json").write_text(json.dumps(content))


def test_lost_checkpoints_are_not_begun_anew(straight: Path, tmp_path: Path) -> None:
    """A disk that is not mounted; when it is there again, so is the run."""
    run = Path(shutil.copytree(straight, tmp_path / "run"))
    before = (run / "metrics.jsonl").read_bytes()
    (run / "checkpoints").rename(tmp_path / "elsewhere")
    for mounted in (False, True):
        if mounted:
            (run / "checkpoints").mkdir()
        with pytest.raises(UserError, match="the checkpoints of this run are gone; bring them back"):
            resume(run)
        assert (run / "metrics.jsonl").read_bytes() == before
    (run / "checkpoints").rmdir()
    (tmp_path / "elsewhere").rename(run / "checkpoints")
    resume(run)
    assert_same_run(straight, run, 20)


def test_a_run_that_never_saved_begins_anew(straight: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(straight, tmp_path / "run"))
    shutil.rmtree(run / "checkpoints")
    (run / "saved.json").unlink()
    resume(run)
    assert_same_run(straight, run, 20)


KILLS, RUNS = 50, 2
LONG = SMALL | {"steps": 50_000, "validate_every": 40}


def killed_again_and_again(shapes: Path, run: Path, seed: int) -> int:
    """A run that is killed KILLS times: half of them at any moment from its first, half amid steps. Steps it made."""
    chance = random.Random(seed)
    for number in range(KILLS):
        before = saved_steps(run)[-1:]
        if (run / "config.json").exists():
            process = start("--resume", run=run, device="cpu")
        else:
            process = start("tiny", data=shapes, run=run, seed=seed, **LONG)
        if number % 2:
            while saved_steps(run)[-1:] == before:
                assert process.poll() is None, process.communicate()
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 0.5))
        else:
            time.sleep(chance.uniform(0, 4))
        process.kill()
        _, said = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL, said
        assert not saved_steps(run) or saved_steps(run)[-1:] >= before
    return saved_steps(run)[-1]


@pytest.mark.soak
def test_a_hundred_kills_at_random_moments(shapes: Path, tmp_path: Path) -> None:
    """Two runs side by side, each as if it had never been killed."""
    seeds, runs = range(RUNS), [tmp_path / f"killed-{seed}" for seed in range(RUNS)]
    with ThreadPoolExecutor(RUNS) as pool:
        made = list(pool.map(killed_again_and_again, [shapes] * RUNS, runs, seeds))
    for seed, run, step in zip(seeds, runs, made, strict=True):
        straight = tmp_path / f"straight-{seed}"
        options = LONG | {"data": shapes, "run": straight, "seed": seed}
        start("tiny", **options, program=("-c", DIES_AFTER_SAVING, str(step))).communicate(timeout=600)
        assert step > KILLS // 2
        first, second = tensors(run, step), tensors(straight, step)
        assert first.keys() == second.keys()
        assert all(torch.equal(value, second[name]) for name, value in first.items())
        assert facts(run, step) == facts(straight, step)
        kept, expected = ([row for row in rows(path) if row["step"] <= step] for path in (run, straight))
        assert kept == expected
