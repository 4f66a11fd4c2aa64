"""The page at work: what each control does, and which parts follow. All thinking is done in `session`."""

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from viewslots.errors import UserError
from viewslots.explorer import panels
from viewslots.explorer.controls import FIRST_SCENE, PICTURES, WAYS, laid_out
from viewslots.explorer.middleware import RateLimit
from viewslots.explorer.opened import NumberedScenes, Opened, open_numbered, open_photos
from viewslots.explorer.session import MOST_IN_LINE, REACH, Session, Sessions, Turns
from viewslots.explorer.uploads import forget_uploads, read_uploads
from viewslots.viewpoints.scene import Reader

BACKGROUND = -1
"""Among the switches."""
MOST_QUEUED = 64
"""Questions that wait for an answer; further ones are turned away."""
AT_ONCE = 2
QUICK: dict[str, Any] = {
    "show_progress": "hidden",
    "api_visibility": "private",
    "concurrency_id": "quick",
    "concurrency_limit": AT_ONCE,
}
"""Of everything that answers in a moment: two at once, of all users and controls together."""
MOST_SECONDS = 600
AT_HAND = 0.3
"""Seconds within which a scene was at hand already."""
MOST_GONE = 1024
"""Closed tabs that are remembered, since they may still stand in line."""
MOST_KEPT = 8
"""Scenes at hand for whoever asks for the same number."""
SCENES_IN_A_ROW, SCENES_PER_SECOND = 4, 2.0
"""Scenes that one tab may open in a row, and how many more each second."""

Update = dict[Any, Any]
"""Part of the page -> its new content. Parts that are not named stay as they are."""
Answer = Callable[..., Update]
"""From a session and the values of some controls."""


def nothing(*values: Any) -> Any:
    """The page stays as it is."""
    return gr.skip()


@dataclass(frozen=True)
class Explorer:
    """What the page is about."""

    reader: Reader
    world: NumberedScenes | None
    """Where its numbered scenes come from; None: the model imagines them."""
    uploads: Path
    """Where the framework puts uploads until they are read."""

    def opener(self) -> Callable[[int, int], Opened]:
        """Scenes by number and pictures. The last few are kept: they never change, and are nobody's own."""
        return lru_cache(MOST_KEPT)(partial(open_numbered, self.reader, self.world))


class Page:
    """One page for all tabs; every answer is given in the session of the tab that asks."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer
        self.opened, self.rate_limit = explorer.opener(), RateLimit(SCENES_IN_A_ROW, SCENES_PER_SECOND)
        self.sessions = Sessions(lambda: self.opened(FIRST_SCENE, PICTURES))
        self.turns, self.pace = Turns(), Pace()
        self.gone: deque[str] = deque(maxlen=MOST_GONE)
        controls = laid_out(explorer.reader.view_dim, explorer.reader.single)
        self.look, self.scene, self.camera = controls.look, controls.scene, controls.camera
        self.report, self.mix = controls.report, controls.mix
        self.everything = controls.everything()
        self._wire()

    # What follows on the page

    def after_look(self, session: Session) -> Update:
        picture = panels.main_picture(session, self.pace.seconds())
        return {self.look.picture: picture, self.report.layers: panels.layers(session)}

    def coordinates(self, session: Session) -> Update:
        values = [round(min(max(value, -REACH), REACH), 3) for value in session.coordinates()]
        on_pad = [*values, 0.0][:2]
        sliders = dict(zip(self.camera.sliders, values, strict=False))
        moves = None if session.new else session.pad_moves
        return {self.camera.pad: [*on_pad, moves, True, session.marks(), session.horizon()]} | sliders

    def after_move(self, session: Session, *untouched: Any) -> Update:
        """Sliders are left alone by their own moves: their user may already be further on. The pad knows by itself."""
        changed = self.after_look(session) | {self.camera.stand: None} | self.coordinates(session)
        return {part: value for part, value in changed.items() if part not in untouched}

    def facts(self, session: Session) -> Update:
        return {self.report.facts: panels.facts_panel(session.table.facts, bool(session.table.edits))}

    def after_edit(self, session: Session) -> Update:
        table = session.table
        objects = panels.object_choices(table.scene.present(), table.number)
        on = [*sorted(table.shown), *([BACKGROUND] if table.background else [])]
        switches = gr.CheckboxGroup(choices=[*objects, ("background", BACKGROUND)], value=on)
        changed = {self.look.switches: switches, self.mix.mine: chosen(objects)}
        changed |= {self.mix.moved: chosen(objects, session.moved)}
        return self.after_look(session) | self.facts(session) | changed

    def after_opening(self, session: Session) -> Update:
        opened = session.table.opened
        places = [(f"picture {m + 1}", m) for m in range(len(opened.images))]
        return {
            **self.after_edit(session),
            **self.coordinates(session),
            self.camera.stand: gr.Radio(choices=places, value=session.table.picture),
            self.camera.start: gr.Dropdown(choices=places, value=0),
            self.camera.end: gr.Dropdown(choices=places, value=min(1, len(places) - 1)),
            self.camera.share: 0,
            self.report.given: panels.given_and_rebuilt(opened),
            self.look.notice: panels.notice(session),
            self.scene.files: None,
            **self.after_second(session),
            **({self.look.mode: session.table.mode} if session.new else {}),
        }

    def after_second(self, session: Session) -> Update:
        second = session.table.second
        present = second.scene.present() if second else []
        theirs = chosen(panels.object_choices(present, session.table.number_of_second))
        shown = panels.second_scene(second, session.table.from_second)
        return {self.mix.second: shown, self.mix.theirs: theirs}

    # What controls do

    def load(self, session: Session) -> Update:
        return self.after_opening(session)

    def open_scene(self, session: Session, number: float, pictures: float) -> Update:
        session.open(self.opened(whole(number), whole(pictures)))
        return self.after_opening(session)

    def open_surprise(self, session: Session, pictures: float) -> Update:
        number = secrets.randbelow(100_000)
        return self.open_scene(session, number, pictures) | {self.scene.number: number}

    def open_files(self, session: Session, files: Any) -> Update:
        photos = read_uploads(file_paths(files), self.explorer.uploads, self.explorer.reader.size)
        session.open(open_photos(self.explorer.reader, photos))
        return self.after_opening(session)

    def forget_files(self, files: Any) -> Update:
        """They may never have been read."""
        forget_uploads(file_paths(files), self.explorer.uploads)
        return {self.scene.files: None}

    def open_second(self, session: Session, number: float) -> Update:
        """Begins no session: the page of a tab that was away may show a first scene."""
        session.open_second(self.opened(whole(number), PICTURES))
        return self.after_second(session)

    def go_to_picture(self, session: Session, picture: int) -> Update:
        session.go_to_picture(picture)
        return self.after_move(session, self.camera.stand) | self.facts(session)

    def go_to(self, session: Session, place: Any) -> Update:
        if not isinstance(place, list) or len(place) != 3:
            raise UserError("the pad holds two numbers and the count of its moves")
        session.go_to(place[0], place[1])
        session.pad_moves = whole(place[2])
        return self.after_move(session)

    def go_along(self, session: Session, axis: int, value: float) -> Update:
        session.go_along(axis, value)
        return self.after_move(session, *self.camera.sliders)

    def go_between(self, session: Session, start: int, end: int, share: float) -> Update:
        session.go_between(start, end, share)
        return self.after_move(session)

    def switch(self, session: Session, chosen: list[int]) -> Update:
        session.show([k for k in chosen if k != BACKGROUND], BACKGROUND in chosen)
        return self.after_look(session)

    def look_as(self, session: Session, mode: str) -> Update:
        session.look(mode)
        return self.after_look(session)

    def move(self, session: Session, way: str, k: int | None) -> Update:
        if k is None:
            raise UserError("there is no object to move")
        session.moved = k
        session.move_object(k, *WAYS[way])
        return self.after_edit(session)

    def edit(self, session: Session, operation: Callable[..., None], *chosen: int | None) -> Update:
        if None in chosen:
            raise UserError("open a second scene first, and choose an object of each")
        operation(session, *chosen)
        return self.after_edit(session)

    # Which control does what, and which parts may follow: the fewer, the less is painted anew under a user's hands

    def _wire(self) -> None:
        scene, camera, mix, look = self.scene, self.camera, self.mix, self.look
        opened = self.everything
        self._opens([scene.open.click, scene.number.submit], self.open_scene, [scene.number, scene.pictures], opened)
        self._opens([scene.surprise.click], self.open_surprise, [scene.pictures], opened)
        # As the browser names them: the framework's own reading leaves empty files behind.
        self._opens(
            [scene.files.upload], self.open_files, [scene.files], opened, refused=self.forget_files, preprocess=False
        )
        second = [mix.second, mix.theirs]
        others = [mix.open_other.click, mix.other_number.submit]
        self._opens(others, self.open_second, [mix.other_number], second, begins=False)
        seen = [look.picture, self.report.layers]
        self._follows(look.mode, self.look_as, [look.mode], seen)
        self._follows(look.switches, self.switch, [look.switches], seen)
        places = [camera.pad, *camera.sliders, camera.stand]
        self._follows(camera.stand, self.go_to_picture, [camera.stand], [*seen, *places, self.report.facts])
        self._follows(camera.pad, self.go_to, [camera.pad], [*seen, *places])
        for axis, slider in enumerate(camera.sliders):
            self._follows(slider, bound(self.go_along, axis), [slider], [*seen, *places])
        for part in (camera.start, camera.end, camera.share):
            self._follows(part, self.go_between, [camera.start, camera.end, camera.share], [*seen, *places])
        edited = [*seen, look.switches, mix.mine, mix.moved, self.report.facts]
        for way, button in zip(WAYS, mix.ways, strict=True):
            gr.on([button.click], self.answering(bound(self.move, way)), [mix.moved], edited, **QUICK)
        self._edits(mix.take_back, Session.undo, [], edited)
        self._edits(mix.exchange, Session.exchange_objects, [mix.mine, mix.theirs], edited)
        self._edits(mix.add, Session.take_object, [mix.theirs], edited)
        self._edits(mix.ground, Session.take_background, [], edited)
        self._edits(mix.undo, Session.undo, [], edited)

    def _opens(
        self,
        triggers: list[Any],
        answer: Answer,
        inputs: list[Any],
        outputs: list[Any],
        begins: bool = True,
        refused: Callable[..., Any] = nothing,
        preprocess: bool = True,
    ) -> None:
        """One at a time, of all users, and further clicks meanwhile do nothing."""
        asked = self.opening(answer, self.rate_limit, begins, refused)
        gr.on(triggers, asked, inputs, outputs, preprocess=preprocess, **self.slow())

    def slow(self) -> dict[str, Any]:
        """Of everything that takes seconds; meanwhile the picture says so."""
        shown = {"show_progress": "minimal", "show_progress_on": [self.look.picture]}
        return shown | {"concurrency_limit": MOST_IN_LINE + 1, "concurrency_id": "slow", "api_visibility": "private"}

    def _follows(self, part: Any, answer: Answer, inputs: list[Any], outputs: list[Any]) -> None:
        """Of many fast moves, only the last one waiting is answered."""
        gr.on([part.input], self.answering(answer), inputs, outputs, trigger_mode="always_last", **QUICK)

    def _edits(self, button: gr.Button, operation: Callable[..., None], inputs: list[Any], outputs: list[Any]) -> None:
        gr.on([button.click], self.answering(bound(self.edit, operation)), inputs, outputs, **QUICK)

    def opening(
        self,
        answer: Answer,
        rate_limit: RateLimit | None = None,
        begins: bool = True,
        refused: Callable[..., Any] = nothing,
    ) -> Callable[..., Any]:
        """`answering` for what takes seconds: one after another, and not for tabs that were closed meanwhile. A tab
        without a session gets one if `begins`. `refused`, of the same values, is the answer where there is none."""

        def opened(request: gr.Request, *values: Any) -> Any:
            tab, address = str(request.session_hash), str(request.client and request.client.host)
            closed = self.gone.count(tab)  # a tab that lost its connection for a while comes back
            held = self.sessions.begun if begins else self.sessions.session
            try:
                if rate_limit is not None and not rate_limit.allows(tab):
                    raise UserError("that was too fast; wait a second before you open another scene")
                turn = self.turns.turn(address, lambda: self.gone.count(tab) > closed)
                with turn, held(tab) as session, self.pace.measured():
                    return answer(session, *values)
            except UserError as error:
                gr.Warning(escape(str(error)), title="That did not work")
                return refused(*values)

        return opened

    def answering(self, answer: Answer) -> Callable[..., Any]:
        """What a user did wrong becomes a note on the page."""

        def answered(request: gr.Request, *values: Any) -> Any:
            try:
                with self.sessions.session(str(request.session_hash)) as session:
                    return answer(session, *values)
            except UserError as error:
                gr.Warning(escape(str(error)), title="That did not work")
                return gr.skip()

        return answered

    def closed(self, request: gr.Request) -> None:
        self.gone.append(str(request.session_hash))
        self.sessions.drop(str(request.session_hash))


class Pace:
    """How long a scene takes to open, by those before: scenes at hand do not count."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._seconds = clock, 5.0

    def seconds(self) -> int:
        return min(max(2, round(self._seconds)), MOST_SECONDS)

    @contextmanager
    def measured(self) -> Iterator[None]:
        start = self._clock()
        yield
        if (took := self._clock() - start) > AT_HAND:
            self._seconds += 0.5 * (took - self._seconds)


def bound(answer: Answer, *first: Any) -> Answer:
    return lambda session, *values: answer(session, *first, *values)


def chosen(choices: list[tuple[str, int]], before: int | None = None) -> gr.Dropdown:
    """A list with the same choice as before, or its first one."""
    values = [value for _, value in choices]
    return gr.Dropdown(choices=choices, value=before if before in values else values[0] if values else None)


def whole(number: Any) -> int:
    if not isinstance(number, int | float) or number != number // 1:
        raise UserError(f"{number:g} is no whole number" if isinstance(number, float) else "type a whole number")
    return int(number)


def file_paths(files: Any) -> list[str]:
    """Where the framework has put uploads; whatever else a request holds there is none."""
    items = files if isinstance(files, list) else [files]
    paths = [item.get("path") for item in items if isinstance(item, dict)]
    return [path for path in paths if isinstance(path, str)]


def build(explorer: Explorer) -> gr.Blocks:
    with gr.Blocks(title="viewslots explorer", analytics_enabled=False, delete_cache=(60, 600)) as blocks:
        page = Page(explorer)
        blocks.load(page.opening(page.load), None, page.everything, **page.slow())
        blocks.unload(page.closed)
    return blocks.queue(max_size=MOST_QUEUED, default_concurrency_limit=AT_ONCE, api_open=False)
