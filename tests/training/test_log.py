"""What a person is told while a training runs."""

from dataclasses import dataclass

import pytest

from viewslots.pulse import LINE_SECONDS
from viewslots.terminal import say
from viewslots.training.log import RECENT, Console


@dataclass
class Clock:
    now: float = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("viewslots.training.log.time.monotonic", lambda: clock.now)
    return clock


def test_the_console_says_rate_and_remaining_time(capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
    console = Console(7205, ("nll", "view", "attr", "rho", "prs"), speaks=True, say=say)
    console.step(1)
    terms = dict.fromkeys(("loss", "nll", "view", "attr", "rho", "prs"), 1.5)
    console.scores(4, {"ARI-O": 0.91, "OCA": None})
    clock.now += 2
    console.step(5)
    console.figures(5, terms)  # four steps in two seconds
    said = capsys.readouterr().err
    assert "step 5/7205  2.0 steps/s  1:00:00 left  loss 1.5 nll 1.5" in said
    assert "at 4: ARI-O 0.910" in said
    assert "OCA" not in said
    silent = Console(7205, ("nll",), speaks=False, say=say)
    silent.step(1)
    silent.figures(1, terms)
    silent.say("nothing")
    assert capsys.readouterr().err == ""


def test_a_slow_run_tells_of_steps_between_its_figures(capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
    console = Console(101, ("nll",), speaks=True, say=say)
    for step, passed in ((1, 3.0), (2, LINE_SECONDS / 2), (3, LINE_SECONDS / 2), (4, 1.0)):
        clock.now += passed
        console.step(step)
    assert capsys.readouterr().err == "step 3/101  0.20 steps/s  0:08:10 left\n"
    clock.now += LINE_SECONDS
    console.step(5)
    console.figures(5, {"loss": 2.0})
    line, figures = capsys.readouterr().err.splitlines()
    assert line.startswith("step 5/101  0.")
    assert figures == "step 5/101  loss 2"


def test_the_rate_is_that_of_the_last_lines(capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
    """Ten steps a second, then one: of fifty that are left each takes a second."""
    console = Console(100 + RECENT, (), speaks=True, say=say)
    console.step(1)
    for step in range(2, 61 + RECENT):
        clock.now += 0.1 if step <= 50 else 1.0
        console.step(step)
        console.figures(step, {"loss": 2.0})
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith(f"step {60 + RECENT}/{100 + RECENT}  1.0 steps/s  0:00:40 left")


def test_pictures_without_truth_have_no_scores_to_tell(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(10, (), speaks=True, say=say)
    for scores, told in (({"OCA": 0.5}, "loss 2  at 4: OCA 0.500"), ({}, "loss 2"), ({"OCA": None}, "loss 2")):
        console.scores(4, scores)
        console.figures(5, {"loss": 2.0, "other": 3.0})
        assert capsys.readouterr().err.endswith(told + "\n")


def test_a_stage_knows_the_time_of_all(capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
    """Stage 1 of 100 steps, before one of 300: at two steps a second, 396 steps are left after the fourth."""
    console = Console(100, (), speaks=True, say=say)
    console.stage(1, 2, before=0, total=400)
    console.step(1)
    clock.now += 1.5
    console.figures(4, {"loss": 2.0})
    assert "stage 1/2  step 4/100  2.0 steps/s  0:03:18 left  loss 2" in capsys.readouterr().err
