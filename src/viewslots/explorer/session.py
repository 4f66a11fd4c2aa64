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
from threading import Lock, RLock
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.errors import UserError
from viewslots.explorer.opened import Facts, Opened
from viewslots.explorer.paint import MODES, Rgb, painted
from viewslots.viewpoints.edits import exchange_backgrounds, put_in_place, take
from viewslots.viewpoints.paths import axes_of
from viewslots.viewpoints.scene import InferredScene, View

REACH = 3.0
"""How far a slider goes either way. Beyond, the model was never asked."""
LEAST_SPREAD = 0.15
"""Of an axis along which the pictures hardly differ: a full slider must still move the camera."""
MOST_UNDO = 20
MOST_EDITS = 100
"""Words about edits that are kept."""
MOST_EXTRA = 8
"""Objects that may be added to a scene: every one makes pictures slower."""
MOST_SESSIONS = 64
IDLE_SECONDS = 2 * 3600.0


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

    @cached_property
    def compass(self) -> Compass:
        return compass_of(self.opened.scene)

    @cached_property
    def rendered(self) -> View:
        return self.scene.render(self.view, shown=sorted(self.shown))

    @property
    def facts(self) -> Facts:
        """Of the scene as it was inferred: a move of the camera does not change them."""
        return self.opened.facts(self.picture)


class Session:
    """The table of one browser tab, and the tables before its last edits."""

    def __init__(self, opened: Opened) -> None:
        self.table = laid(opened)
        self.earlier: list[Table] = []
        self.pad_moves = 0
        """Of the pad, by its own count: the last one heard of."""

    def open(self, opened: Opened) -> None:
        """Look at another scene; the second one stays at hand."""
        before = self.table
        self.table, self.earlier = replace(laid(opened), second=before.second, mode=before.mode), []

    def open_second(self, opened: Opened) -> None:
        self.table = replace(self.table, second=opened)

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

    def take_object(self, k: int) -> None:
        """Add object k of the second scene."""
        table, second = self.table, self._second()
        extra = len(table.scene.objects) - len(table.opened.scene.objects)
        if extra >= MOST_EXTRA:
            raise UserError(f"{MOST_EXTRA} objects have been added, which is all there is room for; undo some")
        self._require(second.scene, k, "second")
        scene = take(table.scene, second.scene, k)
        self._edit(f"object {k + 1} of {second.title}", scene, table.shown | {len(scene.objects) - 1})

    def exchange_objects(self, mine: int, theirs: int) -> None:
        """Object `theirs` of the second scene comes in the place of `mine`."""
        table, second = self.table, self._second()
        self._require(table.scene, mine, "first")
        self._require(second.scene, theirs, "second")
        scene = put_in_place(table.scene, mine, second.scene, theirs)
        what = f"object {theirs + 1} of {second.title} for object {mine + 1}"
        self._edit(what, scene, table.shown)

    @staticmethod
    def _require(scene: InferredScene, k: int, which: str) -> None:
        if k not in scene.present():
            raise UserError(f"the {which} scene has no object {k + 1}")

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
        self.table = replace(now, scene=last.scene, edits=last.edits, shown=kept)

    def _second(self) -> Opened:
        if self.table.second is None:
            raise UserError("open a second scene first")
        return self.table.second

    def _edit(self, what: str, scene: InferredScene, shown: frozenset[int]) -> None:
        # A copy leaves behind what was rendered: twenty pictures with their layers are a lot to remember.
        self.earlier = [*self.earlier, replace(self.table)][-MOST_UNDO:]
        self.table = replace(self.table, scene=scene, shown=shown, edits=(*self.table.edits, what)[-MOST_EDITS:])

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
            "shown_objects": [k + 1 for k in sorted(table.shown)],
            "background_shown": table.background,
            "nearest_first": [k + 1 for k in table.rendered.nearest_first()],
            "presence": [round(value, 4) for value in table.scene.presence.tolist()],
            "unedited": table.facts.to_json(),
        }


def laid(opened: Opened) -> Table:
    """A scene as it is first shown: from its first picture, with all the objects it was found to have."""
    scene = opened.scene
    return Table(opened, scene, scene.views[0], 0, frozenset(scene.present()))


def finite(value: float) -> float:
    if not isinstance(value, int | float) or not -1e6 < value < 1e6:
        raise UserError("a place of the camera is a plain number")
    return float(value)


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
        """The session of a tab, held for one operation. A tab that has none yet, or no longer, begins afresh."""
        seat = self._seat(key)
        with seat.lock:
            if seat.session is None:
                seat.session = Session(self._first())
            yield seat.session

    def drop(self, key: str) -> None:
        """The tab was closed."""
        with self._lock:
            self._seats.pop(key, None)

    def _seat(self, key: str) -> Seat:
        with self._lock:
            now = self._clock()
            for old in [name for name, seat in self._seats.items() if now - seat.used > self._idle]:
                del self._seats[old]
            seat = self._seats.pop(key, None) or Seat(now)
            seat.used = now
            self._seats[key] = seat
            while len(self._seats) > self._most:
                self._seats.popitem(last=False)
            return seat
