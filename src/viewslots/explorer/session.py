"""What one browser tab looks at: a scene, a second one to take from, edits, a viewpoint, what is switched on. And all
tabs that are open.

No web code: every method answers with values and arrays. Wrong input raises UserError and leaves everything as it was.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Condition, Lock, RLock
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.errors import UserError
from viewslots.explorer.opened import Opened, SceneFacts
from viewslots.explorer.paint import MODES, Rgb, painted
from viewslots.viewpoints.edits import exchange_backgrounds, move, put_in_place, take
from viewslots.viewpoints.familiarity import Region, known_viewpoints
from viewslots.viewpoints.paths import axes_of
from viewslots.viewpoints.scene import InferredScene, View

REACH = 3.0
"""How far a slider goes either way."""
CORNERS = 48
"""Of the line on the pad beyond which the model guesses."""
LEAST_SPREAD = 0.15
"""Of an axis along which the pictures hardly differ: a full slider must still move the camera."""
MOST_UNDO = 20
MOST_EDITS = 100
"""Words about edits that are kept."""
MOST_EXTRA = 8
"""Objects that may be added to a scene: every one makes pictures slower."""
MOST_SESSIONS = 64
IDLE_SECONDS = 2 * 3600.0
AWAY = "this page was away for too long, or has no scene yet; open one"
MOST_IN_LINE, MOST_OF_ONE = 8, 4
"""Openings of scenes that wait, in all and of one address."""
LOOK_UP = 0.5
"""Seconds after which somebody in line is asked whether they are still there."""


@dataclass(frozen=True, eq=False)
class Compass:
    """Viewpoint <-> a few numbers that sliders can hold: standard deviations along the principal axes of a scene's own
    viewpoints, from their middle."""

    centre: Float[Tensor, "D"]
    axes: Float[Tensor, "D D"]
    scale: Float[Tensor, "D"]

    def coordinates(self, view: Float[Tensor, "D"]) -> list[float]:
        return ((self.axes @ (view - self.centre)) / self.scale).tolist()

    def moved(self, view: Float[Tensor, "D"], axis: int, value: float) -> Float[Tensor, "D"]:
        """The viewpoint with one coordinate set and the others as they were."""
        step = min(max(value, -REACH), REACH) - self.coordinates(view)[axis]
        return view + step * self.scale[axis] * self.axes[axis]


def compass_of(scene: InferredScene) -> Compass:
    found = axes_of(scene)
    return Compass(found.mean, found.axes, found.spreads.clamp(min=LEAST_SPREAD))


def ellipse(compass: Compass, view: Float[Tensor, "D"], region: Region) -> list[list[float]]:
    """Where the plane of the first two coordinates through a viewpoint leaves a region.

    In the region's own units a place (x, y) of the plane is b + A (x, y), and the line is where that has the length of
    the limit.
    """
    start, axes, scale = (each.detach().cpu().double() for each in (view, compass.axes[:2], compass.scale[:2]))
    x, y = compass.coordinates(view)[:2]
    A = ((scale[:, None] * axes) @ region.whitening).T
    b = (start - region.mean) @ region.whitening - A @ torch.tensor([x, y], dtype=torch.float64)
    inverse = torch.linalg.inv(A.T @ A)
    middle = -inverse @ A.T @ b
    left = region.limit**2 - float((b + A @ middle).square().sum())
    if left <= 0:
        return []
    angle = torch.arange(CORNERS, dtype=torch.float64) * (2 * torch.pi / CORNERS)
    circle = torch.stack([angle.cos(), angle.sin()])
    line = middle[:, None] + left**0.5 * torch.linalg.cholesky(inverse) @ circle
    return [[round(value, 3) for value in corner] for corner in line.T.tolist()]


def between(a: Float[Tensor, "D"], b: Float[Tensor, "D"], share: float) -> Float[Tensor, "D"]:
    """On the straight way from one viewpoint (0) to another (1)."""
    return torch.lerp(a, b, min(max(share, 0.0), 1.0))


@dataclass(frozen=True, eq=False)
class Table:
    """Everything on show. Frozen: an operation answers with a new one."""

    opened: Opened
    scene: InferredScene
    """`opened.scene`, edited."""
    view: Float[Tensor, "D"]
    picture: int
    """Whose viewpoint was chosen last."""
    shown: frozenset[int]
    background: bool = True
    mode: str = MODES[0]
    second: Opened | None = None
    edits: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    """How people call the objects of the scene."""
    from_second: int = 0
    """Object k of the second scene is called k + 1 more than this: numbers go on where those of the first end."""

    def number(self, k: int) -> int:
        return self.numbers[k]

    def in_use(self) -> set[int]:
        return {self.numbers[k] for k in self.scene.present()}

    def number_of_second(self, k: int) -> int:
        return self.from_second + k + 1

    def new_number(self, k: int) -> int:
        """For object k of the second scene: its own, or where that is taken the next that is free."""
        wanted, taken = self.number_of_second(k), self.in_use()
        return wanted if wanted not in taken else max(taken) + 1

    @cached_property
    def compass(self) -> Compass:
        return compass_of(self.opened.scene)

    @property
    def region(self) -> Region:
        return known_viewpoints(self.scene.reader)

    @cached_property
    def rendered(self) -> View:
        return self.scene.render(self.view, shown=sorted(self.shown))

    @property
    def facts(self) -> SceneFacts:
        """Of the scene as it was inferred: a move of the camera does not change them."""
        return self.opened.facts(self.picture)


class Session:
    """The table of one browser tab, and the tables before its last edits."""

    def __init__(self, opened: Opened) -> None:
        self.table = laid(opened)
        self.earlier: list[Table] = []
        self.pad_moves = 0
        """Of the pad, by its own count: the last one heard of."""
        self.moved: int | None = None
        """The object that was moved last."""
        self.new = True
        """Nothing of it is on the page yet."""

    def open(self, opened: Opened) -> None:
        """Look at another scene; the second one stays at hand."""
        before = self.table
        self.table, self.earlier = replace(laid(opened), mode=before.mode), []
        if before.second is not None:
            self.open_second(before.second)

    def open_second(self, opened: Opened) -> None:
        last = max(self.table.in_use(), default=0)
        self.table = replace(self.table, second=opened, from_second=last)

    # The camera

    def go_to_picture(self, picture: int) -> None:
        """To the viewpoint that the model inferred for one of the pictures."""
        views = self.table.opened.scene.views
        self.table = replace(self.table, view=views[self._picture(picture)], picture=picture)

    def go_between(self, start: int, end: int, share: float) -> None:
        views = self.table.opened.scene.views
        view = between(views[self._picture(start)], views[self._picture(end)], finite(share))
        self.table = replace(self.table, view=view)

    def go_along(self, axis: int, value: float) -> None:
        """Set one coordinate of the viewpoint, in standard deviations."""
        if not 0 <= axis < len(self.table.view):
            raise UserError(f"there is no direction {axis + 1}; this model knows {len(self.table.view)}")
        self.table = replace(self.table, view=self.table.compass.moved(self.table.view, axis, finite(value)))

    def go_to(self, x: float, y: float) -> None:
        """Set the two coordinates of the pad, or the only one there is."""
        table, view = self.table, self.table.view
        for axis, value in enumerate([finite(x), finite(y)][: len(view)]):
            view = table.compass.moved(view, axis, value)
        self.table = replace(table, view=view)

    def coordinates(self) -> list[float]:
        return self.table.compass.coordinates(self.table.view)

    def marks(self) -> list[list[float]]:
        """Where the pictures were taken, on the pad."""
        places = [self.table.compass.coordinates(view) for view in self.table.opened.scene.views]
        return [[round(value, 3) for value in [*place, 0.0][:2]] for place in places]

    def guesses(self) -> bool:
        """Whether the camera stands where 99 % of the viewpoints that the model knows do not."""
        return self.table.region.distance(self.table.view) > self.table.region.limit

    def horizon(self) -> list[list[float]]:
        """Corners of the line on the pad beyond which the model guesses, the other directions as they are; none where
        it guesses everywhere."""
        if len(self.table.view) < 2:
            return []
        return ellipse(self.table.compass, self.table.view, self.table.region)

    def _picture(self, picture: int) -> int:
        count = len(self.table.opened.images)
        if not 0 <= picture < count:
            raise UserError(f"there is no picture {picture + 1}; this scene has {count}")
        return picture

    # What is shown

    def show(self, objects: Collection[int], background: bool) -> None:
        """Switch layers on and off. Objects that the scene does not have are left out."""
        known = frozenset(objects) & frozenset(self.table.scene.present())
        self.table = replace(self.table, shown=known, background=background)

    def look(self, mode: str) -> None:
        if mode not in MODES:
            raise UserError(f"no way to look at it is called {mode!r:.40}; choose one of {', '.join(MODES)}")
        self.table = replace(self.table, mode=mode)

    # Edits

    def move_object(self, k: int, right: float, down: float) -> None:
        """Put object k elsewhere, by shares of the picture as it is seen now."""
        table = self.table
        self._require(table.scene, k, "first")
        shift = tuple(min(max(finite(each), -1.0), 1.0) for each in (right, down))
        scene = move(table.scene, k, (shift[0], shift[1]), table.view)
        self._edit(f"object {table.number(k)} moved", scene, table.shown)

    def take_object(self, k: int) -> None:
        """Add object k of the second scene."""
        table, second = self.table, self._second()
        extra = len(table.scene.objects) - len(table.opened.scene.objects)
        if extra >= MOST_EXTRA:
            raise UserError(f"{MOST_EXTRA} objects have been added, which is all there is room for; undo some")
        self._require(second.scene, k, "second")
        scene, number = take(table.scene, second.scene, k), table.new_number(k)
        what, shown = f"object {number} of {second.title}", table.shown | {len(scene.objects) - 1}
        self._edit(what, scene, shown, (*table.numbers, number))

    def exchange_objects(self, mine: int, theirs: int) -> None:
        """Object `theirs` of the second scene comes in the place of `mine`."""
        table, second = self.table, self._second()
        self._require(table.scene, mine, "first")
        self._require(second.scene, theirs, "second")
        scene, number = put_in_place(table.scene, mine, second.scene, theirs), table.new_number(theirs)
        what = f"object {number} of {second.title} for object {table.number(mine)}"
        self._edit(what, scene, table.shown, (*table.numbers[:mine], number, *table.numbers[mine + 1 :]))

    @staticmethod
    def _require(scene: InferredScene, k: int, which: str) -> None:
        if k not in scene.present():
            raise UserError(f"the {which} scene has no such object; choose one of its list")

    def take_background(self) -> None:
        table, second = self.table, self._second()
        scene = exchange_backgrounds(table.scene, second.scene)[0]
        self._edit(f"background of {second.title}", scene, table.shown)

    def undo(self) -> None:
        """Take back the last edit; the camera and the switches stay."""
        if not self.earlier:
            raise UserError("nothing has been changed yet")
        last, now = self.earlier.pop(), self.table
        kept = now.shown & frozenset(last.scene.present()) | (last.shown - frozenset(now.scene.present()))
        self.table = replace(now, scene=last.scene, edits=last.edits, shown=kept, numbers=last.numbers)

    def _second(self) -> Opened:
        if self.table.second is None:
            raise UserError("open a second scene first")
        return self.table.second

    def _edit(
        self, what: str, scene: InferredScene, shown: frozenset[int], numbers: tuple[int, ...] | None = None
    ) -> None:
        # A copy leaves behind what was rendered: twenty pictures with their layers are a lot to remember.
        self.earlier = [*self.earlier, replace(self.table)][-MOST_UNDO:]
        edits = (*self.table.edits, what)[-MOST_EDITS:]
        self.table = replace(self.table, scene=scene, shown=shown, edits=edits, numbers=numbers or self.table.numbers)

    # Answers

    def picture(self) -> Rgb:
        """The large picture: the present scene from the present viewpoint."""
        return painted(self.table.rendered, self.table.mode, self.table.background)

    def to_json(self) -> dict[str, Any]:
        """What is shown, as numbers."""
        table = self.table
        return {
            "scene": table.opened.title,
            "edits": list(table.edits),
            "viewpoint": [round(value, 6) for value in table.view.tolist()],
            "coordinates": [round(value, 4) for value in self.coordinates()],
            "beyond_the_pictures": self.guesses(),
            "shown_objects": [table.number(k) for k in sorted(table.shown)],
            "background_shown": table.background,
            "in_front": [[table.number(near), table.number(far)] for near, far in table.rendered.overlapping()],
            "warning": table.opened.warning,
            "presence": [round(value, 4) for value in table.scene.presence.tolist()],
            "unedited": table.facts.to_json(),
        }


def laid(opened: Opened) -> Table:
    """A scene as it is first shown: from its first picture, with all the objects it was found to have."""
    scene = opened.scene
    numbers = tuple(range(1, len(scene.objects) + 1))
    return Table(opened, scene, scene.views[0], 0, frozenset(scene.present()), numbers=numbers)


def finite(value: float) -> float:
    if not isinstance(value, int | float) or not -1e6 < value < 1e6:
        raise UserError("a place of the camera is a plain number")
    return float(value)


class Turns:
    """Whose scene is opened next: one at a time, since it takes all of the machine. The line is short, so that nobody
    waits for minutes: whoever finds it full is told at once. Who has left is not waited for."""

    def __init__(self, most: int = MOST_IN_LINE, each: int = MOST_OF_ONE) -> None:
        self._most, self._each = most, each
        self._line: list[tuple[str, object]] = []
        self._moved = Condition()

    @contextmanager
    def turn(self, who: str, gone: Callable[[], bool] = lambda: False) -> Iterator[None]:
        mine = (who, object())
        with self._moved:
            if len(self._line) >= self._most or sum(other == who for other, _ in self._line) >= self._each:
                raise UserError("other scenes are being opened; try again in some seconds")
            self._line.append(mine)
        try:
            with self._moved:
                while self._line[0] is not mine:
                    self._moved.wait(LOOK_UP)
                    if gone():
                        raise UserError("nobody waits for this any more")
            yield
        finally:
            with self._moved:
                self._line.remove(mine)
                self._moved.notify_all()


@dataclass
class Seat:
    """One tab: its session, once it has one, and a lock, since a browser may ask twice at a time."""

    used: float
    lock: RLock = field(default_factory=RLock)
    session: Session | None = None


class Sessions:
    """Sessions by the key of a browser tab. The longest unused one goes when there is no more room."""

    def __init__(
        self,
        first: Callable[[], Opened],
        most: int = MOST_SESSIONS,
        idle: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._first, self._most, self._idle, self._clock = first, most, idle, clock
        self._seats: OrderedDict[str, Seat] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._seats)

    @contextmanager
    def session(self, key: str) -> Iterator[Session]:
        """The session of a tab, held for one operation."""
        seat = self._seat(key, make=False)
        with seat.lock:
            if seat.session is None:
                raise UserError(AWAY)
            yield seat.session

    @contextmanager
    def begun(self, key: str) -> Iterator[Session]:
        """The same, but a tab that has none yet, or no longer, begins afresh. If the operation fails, the page still
        shows what it did, so the new session is not kept."""
        seat = self._seat(key, make=True)
        with seat.lock:
            session = seat.session or Session(self._first())
            yield session
            session.new, seat.session = False, session

    def drop(self, key: str) -> None:
        """The tab was closed."""
        with self._lock:
            self._seats.pop(key, None)

    def _seat(self, key: str, make: bool) -> Seat:
        with self._lock:
            now = self._clock()
            for old in [name for name, seat in self._seats.items() if now - seat.used > self._idle]:
                del self._seats[old]
            if key not in self._seats and not make:
                raise UserError(AWAY)
            seat = self._seats.pop(key, None) or Seat(now)
            seat.used = now
            self._seats[key] = seat
            while len(self._seats) > self._most:
                self._seats.popitem(last=False)
            return seat
