"""What one browser tab can do, without a browser; many tabs at once, none of which sees another's scene."""

import json
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import numpy as np
import pytest
import torch
from noise_scenes import opened_by

from viewslots.errors import UserError
from viewslots.explorer import session as session_module
from viewslots.explorer.app import Explorer, Page
from viewslots.explorer.opened import Opened
from viewslots.explorer.paint import SIDE
from viewslots.explorer.session import (
    LEAST_SPREAD,
    MOST_EXTRA,
    MOST_UNDO,
    REACH,
    Session,
    Sessions,
    Turns,
    compass_of,
)
from viewslots.methods.ocloc.model import Ocloc
from viewslots.viewpoints.edits import move
from viewslots.viewpoints.familiarity import RATE, Limits, Region, Typical
from viewslots.viewpoints.scene import InferredScene, Reader
from viewslots.viewpoints.statistics import STATISTICS


def unchanged(session: Session, *operation: object) -> str:
    """The operation is refused and nothing has moved; answers with what the user reads."""
    name, *values = operation
    before, earlier = session.table, list(session.earlier)
    with pytest.raises(UserError) as error:
        getattr(session, str(name))(*values)
    assert session.table is before
    assert session.earlier == earlier
    return str(error.value)


def test_a_scene_is_first_seen_from_its_first_picture(opened: Opened) -> None:
    session = Session(opened)
    torch.testing.assert_close(session.table.rendered.image, opened.rebuilt[0].image)
    assert session.table.shown == {0, 1}
    assert session.picture().shape == (SIDE, SIDE, 3)
    assert session.picture().dtype == np.uint8


def test_coordinates_are_standard_deviations(opened: Opened) -> None:
    """By numpy's covariance instead of a singular value decomposition."""
    views = opened.scene.views.double().numpy()
    values, axes = np.linalg.eigh(np.cov(views.T))
    compass = compass_of(opened.scene)
    told = np.array([compass.coordinates(view) for view in opened.scene.views])
    for axis in range(views.shape[1]):
        spread = math.sqrt(max(values[-1 - axis], 0))
        expected = (views - views.mean(0)) @ axes[:, -1 - axis] / max(spread, LEAST_SPREAD)
        if spread > 1e-3:  # below, an axis may point anywhere
            np.testing.assert_allclose(np.abs(told[:, axis]), np.abs(expected), atol=1e-3)


def test_a_slider_moves_one_coordinate(opened: Opened) -> None:
    session = Session(opened)
    for axis in range(len(session.table.view)):
        before = session.coordinates()
        session.go_along(axis, -1.3)
        before[axis] = -1.3
        assert session.coordinates() == pytest.approx(before, abs=1e-4)


def test_the_pad_moves_the_first_two(opened: Opened) -> None:
    session = Session(opened)
    rest = session.coordinates()[2:]
    session.go_to(0.75, -2)
    assert session.coordinates() == pytest.approx([0.75, -2, *rest], abs=1e-4)
    session.go_to(99, -99)
    assert session.coordinates()[:2] == pytest.approx([REACH, -REACH], abs=1e-4)


def test_a_model_with_one_direction_has_a_pad_of_one(reader: Reader) -> None:
    flat = Reader(Ocloc(replace(reader.model.config, view_dim=1)), "flat")
    session = Session(opened_by(flat, 1))
    session.go_to(0.5, 2)
    assert session.coordinates() == pytest.approx([0.5], abs=1e-4)


def test_a_single_picture_is_a_place_to_start_from(reader: Reader) -> None:
    """There are no directions in which the pictures differ: then those of the prior, with its spread of one."""
    session = Session(opened_by(reader, 4, pictures=1))
    assert session.coordinates() == pytest.approx([0, 0, 0], abs=1e-6)
    before = session.table.view
    session.go_along(1, 2.0)
    torch.testing.assert_close(session.table.view, before + torch.tensor([0, 2.0, 0]))


def test_back_at_a_picture_everything_is_as_it_was(opened: Opened) -> None:
    session = Session(opened)
    session.go_to(1, 1)
    session.go_to_picture(2)
    assert torch.equal(session.table.view, opened.scene.views[2])
    assert session.table.facts.picture == 2
    torch.testing.assert_close(session.table.rendered.image, opened.rebuilt[2].image)


def test_half_way_between_two_pictures(opened: Opened) -> None:
    session, views = Session(opened), opened.scene.views
    for share, expected in ((0, views[0]), (0.5, (views[0] + views[2]) / 2), (1, views[2]), (7, views[2])):
        session.go_between(0, 2, share)
        torch.testing.assert_close(session.table.view, expected)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e9, "1", None, [1]])
def test_no_camera_outside_the_world(opened: Opened, value: object) -> None:
    session = Session(opened)
    for operation in (("go_along", 0, value), ("go_to", 0, value), ("go_between", 0, 1, value)):
        assert "number" in unchanged(session, *operation)


def test_what_does_not_exist_is_refused(opened: Opened) -> None:
    session = Session(opened)
    assert "3" in unchanged(session, "go_to_picture", 3)
    assert "picture 0" in unchanged(session, "go_between", -1, 0, 0.5)
    assert "direction 99" in unchanged(session, "go_along", 98, 0)
    assert "X-ray" in unchanged(session, "look", "Upside down")
    assert "second scene first" in unchanged(session, "take_background")
    assert "second scene first" in unchanged(session, "take_object", 0)
    assert "nothing" in unchanged(session, "undo")


def layers_by_hand(session: Session, shown: list[int], ground: torch.Tensor | float) -> torch.Tensor:
    """The sum over layers of perceived shape times appearance, an object at a time."""
    view = session.table.scene.render(session.table.view, shown=shown)
    result = view.masks[0] * ground
    for k in shown:
        result = result + view.masks[k + 1] * view.appearance[k]
    return result


def test_switching_objects_and_background_off(opened: Opened) -> None:
    session = Session(opened)
    session.show([1], background=True)
    view = session.table.rendered
    torch.testing.assert_close(view.image, layers_by_hand(session, [1], view.background))
    assert not view.masks[1].any()
    session.show([1], background=False)
    grey = torch.nn.functional.interpolate(
        layers_by_hand(session, [1], 0.5)[None], size=(SIDE, SIDE), mode="bicubic", align_corners=False
    )[0]
    expected = (grey.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
    assert np.abs(session.picture().astype(int) - expected).max() <= 1
    session.show([], background=False)
    assert np.abs(session.picture().astype(int) - 128).max() <= 1


def test_objects_that_are_not_there_cannot_be_switched_on(opened: Opened) -> None:
    session = Session(opened)
    session.show([0, 2, 77, -5], background=True)
    assert session.table.shown == {0}


def test_ways_to_look_differ_and_leave_the_scene_alone(opened: Opened) -> None:
    session = Session(opened)
    pictures = {}
    for mode in ("Picture", "X-ray", "Objects in colour", "Near and far"):
        session.look(mode)
        pictures[mode] = session.picture().tobytes()
    assert len(set(pictures.values())) == 4
    session.look("Picture")
    assert session.picture().tobytes() == pictures["Picture"]


def codes(scene: InferredScene) -> list[list[float]]:
    return [scene.objects[k].tolist() for k in scene.present()]


def test_an_object_of_another_scene(opened: Opened, other: Opened) -> None:
    session = Session(opened)
    session.open_second(other)
    session.take_object(1)
    assert codes(session.table.scene) == [*codes(opened.scene), other.scene.objects[1].tolist()]
    assert len(session.table.scene.objects) - 1 in session.table.shown
    assert len(session.table.rendered.nearest_first()) == 3
    assert "no such object" in unchanged(session, "take_object", 2)


def test_exchange_of_objects_is_one_edit(opened: Opened, other: Opened) -> None:
    session = Session(opened)
    session.open_second(other)
    session.exchange_objects(0, 1)
    assert codes(session.table.scene) == [other.scene.objects[1].tolist(), opened.scene.objects[1].tolist()]
    session.undo()
    assert codes(session.table.scene) == codes(opened.scene)
    assert session.table.shown == {0, 1}
    assert session.table.edits == ()
    assert not session.earlier


def test_exchanges_need_no_room(opened: Opened, other: Opened) -> None:
    session = Session(opened)
    session.open_second(other)
    for turn in range(2 * MOST_EXTRA):
        session.exchange_objects(turn % 2, (turn + 1) % 2)
    assert codes(session.table.scene) == [other.scene.objects[1].tolist(), other.scene.objects[0].tolist()]


def test_half_an_exchange_is_none(opened: Opened, other: Opened) -> None:
    session = Session(opened)
    session.open_second(other)
    assert "no such object" in unchanged(session, "exchange_objects", 0, 2)
    assert "no such object" in unchanged(session, "exchange_objects", 2, 0)


def test_the_background_of_another_scene(opened: Opened, other: Opened) -> None:
    session = Session(opened)
    session.open_second(other)
    session.take_background()
    assert torch.equal(session.table.scene.background, other.scene.background)
    assert codes(session.table.scene) == codes(opened.scene)
    session.undo()
    assert torch.equal(session.table.scene.background, opened.scene.background)


def test_undo_keeps_the_camera_and_the_switches(opened: Opened, other: Opened) -> None:
    session = Session(opened)
    session.open_second(other)
    session.take_object(0)
    session.go_to(0.5, 0.5)
    session.show(session.table.shown - {1}, background=False)
    view = session.table.view
    session.undo()
    assert torch.equal(session.table.view, view)
    assert session.table.shown == {0}
    assert not session.table.background


def test_memory_of_a_session_is_bounded(opened: Opened, other: Opened) -> None:
    session = Session(opened)
    session.open_second(other)
    for _ in range(MOST_EXTRA):
        session.take_object(0)
    assert "undo" in unchanged(session, "take_object", 0)
    for _ in range(3 * MOST_UNDO):
        session.take_background()
    assert len(session.earlier) == MOST_UNDO


def test_opening_another_scene_forgets_the_edits(opened: Opened, other: Opened) -> None:
    session = Session(opened)
    session.open_second(other)
    session.look("X-ray")
    session.take_background()
    session.open(other)
    assert session.table.scene is other.scene
    assert session.table.edits == ()
    assert session.table.second is other
    assert session.table.mode == "X-ray"
    assert "nothing" in unchanged(session, "undo")


def test_numbers_to_save(opened: Opened, other: Opened) -> None:
    session = Session(opened)
    session.open_second(other)
    session.take_object(0)
    session.show([1], background=True)
    told = json.loads(json.dumps(session.to_json()))
    assert told["shown_objects"] == [2]
    assert told["in_front"] == []
    assert told["beyond_the_pictures"] is False
    assert told["viewpoint"] == pytest.approx(session.table.view.tolist(), abs=1e-6)
    assert told["edits"] == ["object 3 of Noise 2"]
    assert told["unedited"]["found"] == 2
    assert told["unedited"]["scores"] is None


def test_numbers_go_on_in_the_second_scene(opened: Opened, other: Opened) -> None:
    """Two objects here, so those of the second scene are 3 and 4, and keep that name when they come over."""
    session = Session(opened)
    session.open_second(other)
    assert [session.table.number_of_second(k) for k in other.scene.present()] == [3, 4]
    session.take_object(1)
    assert session.table.in_use() == {1, 2, 4}
    session.exchange_objects(0, 0)
    assert session.table.in_use() == {3, 2, 4}
    session.take_object(1)  # a second copy of 4
    assert session.table.in_use() == {2, 3, 4, 5}
    for _ in range(3):
        session.undo()
    assert session.table.in_use() == {1, 2}


def test_an_object_is_moved_and_brought_back(opened: Opened) -> None:
    """Where it goes is tested with `move`; here that it goes by what is seen now, and is one edit."""
    session = Session(opened)
    session.go_to_picture(1)
    session.move_object(0, 0.1, 0.0)
    expected = move(opened.scene, 0, (0.1, 0.0), opened.scene.views[1])
    torch.testing.assert_close(session.table.scene.objects, expected.objects)
    assert session.table.edits == ("object 1 moved",)
    session.undo()
    assert torch.equal(session.table.scene.objects, opened.scene.objects)
    assert "no such object" in unchanged(session, "move_object", 2, 0.1, 0.0)
    assert "plain number" in unchanged(session, "move_object", 0, math.nan, 0.0)


def test_marks_are_the_places_of_the_pictures(opened: Opened) -> None:
    session = Session(opened)
    for place, mark in enumerate(session.marks()):
        session.go_to_picture(place)
        assert session.coordinates()[:2] == pytest.approx(mark, abs=1e-3)


def measured(opened: Opened, limit: float) -> Opened:
    """By a model whose known viewpoints lie in a slanted region around the pictures."""
    random = np.random.default_rng(0)
    slant = random.normal(size=(3, 3))
    region = Region(opened.scene.views.mean(0).double(), torch.from_numpy(slant @ slant.T + np.eye(3)), limit)
    flat = torch.eye(STATISTICS, dtype=torch.float64)
    typical = Typical("x", 1.0, flat[0], flat, {RATE: Limits(1.0, 1.0)}, region)
    return replace(opened, scene=replace(opened.scene, reader=replace(opened.scene.reader, typical=typical)))


def test_the_line_on_the_pad_is_where_guessing_begins(opened: Opened) -> None:
    """Its corners have exactly the limit's distance, by numpy; a step further out the model guesses, inside not."""
    session = Session(measured(opened, limit=0.2))
    session.go_along(2, 0.4)
    region, horizon = session.table.region, np.array(session.horizon())
    precision = np.linalg.inv(region.covariance.numpy())
    middle, tested = horizon.mean(0), 0
    for corner in horizon[np.abs(1.1 * horizon).max(1) < REACH]:
        session.go_to(*corner)
        apart = session.table.view.double().numpy() - region.mean.numpy()
        assert np.sqrt(apart @ precision @ apart) == pytest.approx(0.2, abs=0.002)
        assert session.coordinates()[2] == pytest.approx(0.4, abs=1e-3)
        for share, beyond in ((0.9, False), (1.1, True)):
            session.go_to(*(middle + share * (corner - middle)))
            assert session.guesses() == beyond
        tested += 1
    assert tested > 10
    session = Session(measured(opened, limit=1e-3))
    session.go_along(2, 1.0)
    assert session.horizon() == []


def test_without_measured_figures_the_prior_tells_where_guessing_begins(opened: Opened) -> None:
    """99 % of three standard normal numbers, by Monte Carlo."""
    session = Session(opened)
    lengths = np.linalg.norm(np.random.default_rng(0).normal(size=(200_000, 3)), axis=1)
    assert session.table.region.limit == pytest.approx(np.quantile(lengths, 0.99), abs=0.03)


def test_scenes_are_opened_one_after_another() -> None:
    turns, at_work, most = Turns(most=8, each=8), [], []

    def work(turn: int) -> None:
        with turns.turn("a"):
            at_work.append(turn)
            most.append(len(at_work))
            at_work.remove(turn)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(50)))
    assert most == [1] * 50


def stand_in_line(turns: Turns, count: int, *waiting: Future[object]) -> None:
    """Returns when so many do; raises what ended one of those that should wait."""
    end = time.monotonic() + 30
    while len(turns._line) < count:
        for future in waiting:
            assert not future.done(), future.result()
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_line_is_short_and_nobody_fills_it_alone() -> None:
    turns = Turns(most=3, each=2)
    with ThreadPoolExecutor(2) as pool:

        def wait(who: str) -> None:
            with turns.turn(who):
                pass

        with turns.turn("a"):
            first = pool.submit(wait, "a")
            stand_in_line(turns, 2, first)
            with pytest.raises(UserError, match="other scenes"), turns.turn("a"):
                pass
            second = pool.submit(wait, "b")
            stand_in_line(turns, 3, first, second)
            with pytest.raises(UserError, match="other scenes"), turns.turn("c"):
                pass
        first.result(30)
        second.result(30)
    with turns.turn("c"):
        pass


def test_who_has_left_is_not_waited_for() -> None:
    turns = Turns()
    with turns.turn("a"), pytest.raises(UserError, match="nobody waits"), turns.turn("b", lambda: True):
        pass
    with turns.turn("c"):
        pass


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_every_tab_has_its_own_table(opened: Opened, other: Opened) -> None:
    sessions = Sessions(lambda: opened)
    with sessions.begun("a") as mine:
        mine.open(other)
    with sessions.begun("b") as theirs:
        assert theirs.table.opened is opened
    with sessions.session("a") as again:
        assert again is mine
        assert again.table.opened is other


def test_the_longest_unused_goes_first(opened: Opened) -> None:
    sessions = Sessions(lambda: opened, most=2)
    kept = {}
    for key in ("a", "b", "a", "c"):
        with sessions.begun(key) as session:
            kept[key] = session
    assert len(sessions) == 2
    with pytest.raises(UserError, match="open one"), sessions.session("b"):
        pass
    assert len(sessions) == 2  # whoever has been away drives nobody else out
    for key, lives in (("a", True), ("c", True), ("b", False)):
        with sessions.begun(key) as session:
            assert (session is kept[key]) == lives


def test_idle_tabs_are_dropped(opened: Opened) -> None:
    clock = Clock()
    sessions = Sessions(lambda: opened, idle=10, clock=clock)
    with sessions.begun("a"):
        pass
    clock.now = 9
    with sessions.begun("b"):
        assert len(sessions) == 2
    clock.now = 11
    with sessions.session("b"):
        assert len(sessions) == 1
    with pytest.raises(UserError, match="away for too long"), sessions.session("a"):
        pass


def test_a_closed_tab_is_forgotten(opened: Opened) -> None:
    sessions = Sessions(lambda: opened)
    with sessions.begun("a"):
        pass
    sessions.drop("a")
    sessions.drop("never there")
    assert len(sessions) == 0


def test_two_questions_of_a_tab_wait_for_each_other(opened: Opened, other: Opened) -> None:
    """Added objects and their number are read and written: without the lock some would be lost."""
    made = []
    sessions = Sessions(lambda: made.append(1) or opened)
    with sessions.begun("a") as session:
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
    with pytest.raises(UserError), sessions.begun("a"):
        pass
    with sessions.begun("a") as session:
        assert session.table.opened is opened


def wired(blocks: gr.Blocks, part: gr.blocks.Block) -> Callable[..., object]:
    """What the page does when somebody uses this part of it."""
    (found,) = {one.fn for one in blocks.fns.values() for number, _ in one.targets if number == part._id}
    assert found is not None
    return found


def test_a_tab_that_was_away_is_told_so(reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing moves on its page until it opens a scene again, and that paints all of it anew."""
    notes: list[str] = []
    monkeypatch.setattr(gr, "Warning", lambda text, title: notes.append(text))
    with gr.Blocks() as blocks:
        page = Page(Explorer(reader, None, tmp_path))
    tab = SimpleNamespace(session_hash="a", client=None)
    first = page.opening(page.load)(tab)
    assert first[page.camera.pad][2] is None
    assert page.answering(page.go_to)(tab, [1.0, 1.0, 7])[page.camera.pad][2] == 7
    again = page.opening(page.open_scene)(tab, 5, 2)
    assert page.look.mode not in again  # its user may have chosen another meanwhile
    assert again[page.camera.pad][2] == 7
    page.sessions.drop("a")
    refused = [
        lambda: page.answering(page.go_to)(tab, [1.0, 1.0, 8]),
        lambda: page.answering(page.look_as)(tab, "X-ray"),
        lambda: wired(blocks, page.mix.open_other)(tab, 17),
        lambda: page.opening(page.open_scene)(tab, -1, 2),  # begins a session, and must not keep it
        lambda: page.answering(page.go_to_picture)(tab, 0),
    ]
    assert [ask() for ask in refused] == [gr.skip()] * 5
    assert ["away for too long" in note for note in notes] == [True, True, True, False, True]
    back = page.opening(page.open_scene)(tab, 5, 2)
    assert "Imagined scene 5" in back[page.look.picture]
    assert back[page.look.mode] == "Picture"
    assert back[page.camera.pad][2] is None  # the pad forgets the move that was refused
    assert page.answering(page.go_to_picture)(tab, 1)


def test_uploads_that_are_not_even_read_are_forgotten(
    reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tab that asks too fast, or whose address has too many in line."""
    notes: list[str] = []
    monkeypatch.setattr(gr, "Warning", lambda text, title: notes.append(text))
    with gr.Blocks() as blocks:
        page = Page(Explorer(reader, None, tmp_path))
    monkeypatch.setattr(page.rate_limit, "allows", lambda tab: False)
    tab, file = SimpleNamespace(session_hash="a", client=None), tmp_path / "file"
    file.write_bytes(b"x")
    assert wired(blocks, page.scene.files)(tab, [{"path": str(file)}]) == {page.scene.files: None}
    assert not file.exists()
    assert wired(blocks, page.scene.open)(tab, 5, 2) == gr.skip()
    assert ["too fast" in note for note in notes] == [True, True]


def test_a_tab_that_lost_its_connection_may_stand_in_line_again(
    reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "LOOK_UP", 0.01)
    notes: list[str] = []
    monkeypatch.setattr(gr, "Warning", lambda text, title: notes.append(text))
    with gr.Blocks():
        page = Page(Explorer(reader, None, tmp_path))
    tabs = [SimpleNamespace(session_hash=name, client=None) for name in ("a", "b")]
    page.closed(tabs[0])
    with ThreadPoolExecutor(2) as pool:
        with page.turns.turn("another"):
            answers = [pool.submit(page.opening(page.load), tab) for tab in tabs]
            stand_in_line(page.turns, 3, *answers)
            page.closed(tabs[1])
            assert answers[1].result(30) == gr.skip()
        assert page.look.picture in answers[0].result(30)
    assert notes == ["nobody waits for this any more"]
