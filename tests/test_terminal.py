"""What a person sees of long work: the first sign within a second, time left, no flood of lines."""

import io
import sys
import threading
import time

import pytest

from viewslots import pulse, terminal
from viewslots.terminal import Lines, Progress, clock_time, loading_sign, say


@pytest.fixture(autouse=True)
def speaking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TQDM_DISABLE", raising=False)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> tuple[Lines, Clock, list[str]]:
    said: list[str] = []
    monkeypatch.setattr(terminal, "say", said.append)
    clock = Clock()
    return Lines("scenes", "evaluating", clock), clock, said


def test_a_line_every_ten_seconds_with_the_time_left(lines: tuple[Lines, Clock, list[str]]) -> None:
    told, clock, said = lines
    for second in range(0, 61):
        clock.now = second
        told.tell(second, 100)
    assert said[0] == "evaluating: 10 of 100 scenes, 1:30 left"
    assert said[-1] == "evaluating: 60 of 100 scenes, 0:40 left"
    assert len(said) == 6


def test_lines_become_rare_in_a_long_job(lines: tuple[Lines, Clock, list[str]]) -> None:
    told, clock, said = lines
    for minute in range(0, 600):
        clock.now = 60.0 * minute
        told.tell(minute, 600)
    assert len(said) < 200
    assert said[-1].endswith("left")


def test_what_an_earlier_run_did_does_not_count_for_the_rate(lines: tuple[Lines, Clock, list[str]]) -> None:
    told, clock, said = lines
    told.tell(90, 100)
    clock.now = 20
    told.tell(92, 100)
    assert said == ["evaluating: 92 of 100 scenes, 1:20 left"]


def test_the_end_is_told_to_who_heard_of_the_beginning(lines: tuple[Lines, Clock, list[str]]) -> None:
    told, clock, said = lines
    told.tell(50, 100)
    told.end()
    clock.now = 50
    told.tell(100, 100)
    told.end()
    assert said == []
    told.tell(60, 100)
    told.end()
    told.tell(100, 100)
    clock.now = 70
    told.end()
    assert said == ["evaluating: 60 of 100 scenes, 3:20 left", "evaluating: 100 of 100 scenes, 1:10"]


def test_the_first_sign_comes_though_nothing_is_done_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    came, stream = threading.Event(), io.StringIO()
    monkeypatch.setattr(terminal, "FIRST_SIGN", 0.01)
    monkeypatch.setattr(sys, "stderr", stream)
    say = terminal.say
    monkeypatch.setattr(terminal, "say", lambda line: (say(line), came.set()))
    with Progress("%", "decomposing"):
        assert came.wait(30)
    assert stream.getvalue() == "decomposing ...\n"


def test_short_work_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(terminal, "FIRST_SIGN", 60.0)
    with Progress("%", "decomposing") as progress:
        progress.share(0.5)
        progress.share(1.0)
    assert stream.getvalue() == ""


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (61, "1:01"), (3725, "1:02:05"), (-3, "0:00")])
def test_times(seconds: float, text: str) -> None:
    assert clock_time(seconds) == text


def test_a_pulse_is_heard_within_and_not_after() -> None:
    heard: list[float] = []
    pulse.beat(1, 2)
    with pulse.heard(heard.append):
        pulse.beat(1, 2)
        pulse.beat(5, 4)
    pulse.beat(1, 2)
    assert heard == [0.5, 1.0]


@pytest.mark.parametrize(("terminal", "speaks"), [(True, False), (True, True), (False, False)])
def test_a_word_while_a_command_is_loaded(
    terminal: bool, speaks: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """To a person alone, and only where the command has not said anything itself."""
    monkeypatch.setattr("viewslots.terminal.FIRST_SIGN", 0.02)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    with loading_sign():
        if speaks:
            say("Reading.")
        time.sleep(0.3)
    expected = "Reading.\n" if speaks else "loading ...\n" if terminal else ""
    assert capsys.readouterr().err == expected
