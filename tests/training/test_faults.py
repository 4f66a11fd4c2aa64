"""Work is never lost: real processes, killed and stopped by real signals, go on as if nothing had been."""

import json
import signal
import time
from pathlib import Path

import pytest
from trainings import DIES_AFTER_SAVING, SMALL, assert_same_run, refused, saved_steps, start, train


@pytest.fixture(scope="module")
def straight(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty steps without a stop."""
    run = tmp_path_factory.mktemp("straight") / "run"
    train("tiny", "--data", shapes, "--run", run, *SMALL)
    return run


def test_killed_after_seven_steps(straight: Path, shapes: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ("tiny", "--data", shapes, "--run", run, *SMALL)
    process = start(*words, program=("-c", DIES_AFTER_SAVING, "7"))
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    assert saved_steps(run)[-1] == 7
    output, _ = train("--run", run, "--resume", "--device", "cpu")
    assert json.loads(output)["step"] == 20
    assert_same_run(straight, run, 20)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_stopped_by_a_signal(straight: Path, shapes: Path, tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Saves although no checkpoint is due, and says how to go on."""
    run = tmp_path / "run"
    rare = ("--checkpoint-every", 1000, "--steps", 20, "--batch", 2, "--validate-every", 10, "--device", "cpu")
    process = start("tiny", "--data", shapes, "--run", run, *rare)
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
    train("--run", run, "--resume", "--device", "cpu")
    assert_same_run(straight, run, 20)


def test_a_run_that_has_ended_says_so_again(straight: Path) -> None:
    output, _ = train("--run", straight, "--resume")
    answer = json.loads(output)
    assert answer["step"] == 20
    assert answer["best"]["step"] == json.loads((straight / "best.json").read_text())["step"]


def test_two_trainings_into_one_folder(shapes: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    long = ("--steps", 100_000, "--batch", 2, "--device", "cpu")
    process = start("tiny", "--data", shapes, "--run", run, *long)
    try:
        while not (run / "config.json").exists():
            time.sleep(0.05)
        assert "another process is writing" in refused("--run", run, "--resume")
    finally:
        process.kill()
        process.communicate()


def test_a_run_is_not_begun_over_another(straight: Path, shapes: Path) -> None:
    assert "--resume" in refused("tiny", "--data", shapes, "--run", straight, *SMALL)


def test_a_damaged_checkpoint_is_skipped(straight: Path, shapes: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start("tiny", "--data", shapes, "--run", run, *SMALL, program=("-c", DIES_AFTER_SAVING, "9"))
    process.communicate(timeout=300)
    newest = run / "checkpoints" / "step-00000009.safetensors"
    content = bytearray(newest.read_bytes())
    content[-100] ^= 1
    newest.write_bytes(content)
    _, said = train("--run", run, "--resume", "--device", "cpu")
    assert "step-00000009.safetensors: damaged" in said
    assert_same_run(straight, run, 20)
