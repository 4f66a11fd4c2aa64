"""Many tabs at once: none sees another's scene, and their number is bounded."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from viewslots.errors import UserError
from viewslots.explorer.opened import Opened
from viewslots.explorer.sessions import Sessions


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_every_tab_has_its_own_table(opened: Opened, other: Opened) -> None:
    sessions = Sessions(lambda: opened)
    with sessions.session("a") as mine:
        mine.open(other)
    with sessions.session("b") as theirs:
        assert theirs.table.opened is opened
    with sessions.session("a") as again:
        assert again is mine
        assert again.table.opened is other


def test_the_longest_unused_goes_first(opened: Opened) -> None:
    sessions = Sessions(lambda: opened, most=2)
    kept = {}
    for key in ("a", "b", "a", "c"):
        with sessions.session(key) as session:
            kept[key] = session
    assert len(sessions) == 2
    for key, lives in (("a", True), ("c", True), ("b", False)):
        with sessions.session(key) as session:
            assert (session is kept[key]) == lives


def test_idle_tabs_are_dropped(opened: Opened) -> None:
    clock = Clock()
    sessions = Sessions(lambda: opened, idle=10, clock=clock)
    with sessions.session("a"):
        pass
    clock.now = 9
    with sessions.session("b"):
        assert len(sessions) == 2
    clock.now = 11
    with sessions.session("b"):
        assert len(sessions) == 1


def test_a_closed_tab_is_forgotten(opened: Opened) -> None:
    sessions = Sessions(lambda: opened)
    with sessions.session("a"):
        pass
    sessions.drop("a")
    sessions.drop("never there")
    assert len(sessions) == 0


def test_two_questions_of_a_tab_wait_for_each_other(opened: Opened, other: Opened) -> None:
    """Added objects and their number are read and written: without the lock some would be lost."""
    made = []
    sessions = Sessions(lambda: made.append(1) or opened)
    with sessions.session("a") as session:
        session.open_second(other)

    def add(turn: int) -> None:
        with sessions.session("a") as session:
            before = len(session.table.edits)
            session.table.rendered.image.sum()
            session.take_background()
            assert len(session.table.edits) == before + 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(100)))
    assert len(session.table.edits) == 100
    assert made == [1]


def test_a_first_scene_that_fails_leaves_room_for_another_try(opened: Opened) -> None:
    answers = iter([UserError("no disk"), opened])

    def first() -> Opened:
        answer = next(answers)
        if isinstance(answer, UserError):
            raise answer
        return answer

    sessions = Sessions(first)
    with pytest.raises(UserError), sessions.session("a"):
        pass
    with sessions.session("a") as session:
        assert session.table.opened is opened
