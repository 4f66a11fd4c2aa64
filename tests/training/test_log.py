"""What a person is told while a training runs."""

from typing import Any

import pytest

from viewslots.terminal import say
from viewslots.training.log import Console


def test_the_console_says_rate_and_remaining_time(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    clock = iter([100.0, 102.0, 104.0])
    monkeypatch.setattr("viewslots.training.log.time.monotonic", lambda: next(clock))
    console = Console(7205, ("nll", "view", "attr", "rho", "prs"), speaks=True, say=say)
    console.step(1)
    terms = dict.fromkeys(("loss", "nll", "view", "attr", "rho", "prs"), 1.5)
    console.scores(4, {"ARI-O": 0.91, "OCA": None})
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


def test_pictures_without_truth_have_no_scores_to_tell(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(10, (), speaks=True, say=say)
    for scores, told in (({"OCA": 0.5}, "loss 2  at 4: OCA 0.500"), ({}, "loss 2"), ({"OCA": None}, "loss 2")):
        console.scores(4, scores)
        console.figures(5, {"loss": 2.0, "other": 3.0})
        assert capsys.readouterr().err.endswith(told + "\n")


def test_a_stage_knows_the_time_of_all(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """Stage 1 of 100 steps, before one of 300: at two steps a second, 396 steps are left after the fourth."""
    clock = iter([10.0, 11.5, 11.5])
    monkeypatch.setattr("viewslots.training.log.time.monotonic", lambda: next(clock))
    console = Console(100, (), speaks=True, say=say)
    console.stage(1, 2, before=0, total=400)
    console.step(1)
    console.figures(4, {"loss": 2.0})
    assert "stage 1/2  step 4/100  2.0 steps/s  0:03:18 left  loss 2" in capsys.readouterr().err
