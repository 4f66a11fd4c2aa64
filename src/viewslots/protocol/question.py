"""What somebody asks to have scored, made whole before anything is computed: a method, a data set, a plan, and what
must be told of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from viewslots.data.store import Store
from viewslots.data.views import views_shown
from viewslots.errors import UserError
from viewslots.methods.contract import Method
from viewslots.metrics.lpips import Lpips, find_lpips
from viewslots.protocol.plan import Plan, require_scenes
from viewslots.protocol.subject import default_slots, find_subject, search_asked_for
from viewslots.runs import Which, knows_one_view
from viewslots.types import how_resized


@dataclass(frozen=True)
class Question:
    method: Method
    about: dict[str, Any]
    """What the results tell of the method."""
    store: Store
    plan: Plan
    distance: Lpips | None
    notes: list[str]
    """For the person who asks, a line each."""

    @classmethod
    def of(
        cls,
        run: str,
        data: Path,
        which: Which,
        device: str,
        search: Mapping[str, int | None],
        asked: Mapping[str, Any],
        lpips: Path | None = None,
    ) -> "Question":
        """`asked`: fields of `Plan`; None where views, slots and scenes are left to us."""
        store = Store.open(data)
        arrays, split = store.split(asked["split"]), asked["split"]
        require_scenes(asked["scenes"], len(arrays), f"{split} of {data}")
        method, about = find_subject(run, which, device)
        notes = scored_step_note(run, about)
        size, taken = (store.meta.plan.height, store.meta.plan.width), tuple(about.get("image_size") or ())
        if taken and taken != size:
            old, new = ("x".join(map(str, pair)) for pair in (size, taken))
            notes.append(f"pictures and truth of {old} are {how_resized(size, taken)} to {new}, the size of this model")
        if "new_views" not in asked:
            views = views_for(method, run, asked["views"], arrays.size.views, notes.append)
        elif knows_one_view(method, run):
            raise UserError(
                f"{run}: trained on single pictures, so it knows no viewpoints; `evaluate --views 1` scores it"
            )
        else:
            views = asked["views"]
        if lpips is not None and not asked["extras"]:
            notes.append("--lpips: LPIPS is one of the extras, so there is none with --no-extras")
        distance = find_lpips(lpips, device, taken or size, notes.append) if asked["extras"] else None
        whole = {
            "views": views,
            "slots": default_slots(about, store.meta.plan, split) if asked["slots"] is None else asked["slots"],
            "search": search_asked_for(method.default_search, **search),
        }
        plan = Plan(**{**asked, **whole})
        plan.require(arrays)
        return cls(method, about, store, plan, distance, notes)


def views_for(method: Method, run: str, asked: int | None, stored: int, note: Callable[[str], None]) -> int:
    """As asked, or as usual; one for a model of single pictures, to which several are not views of one scene."""
    if not knows_one_view(method, run):
        return views_shown(asked, stored)
    if asked not in (None, 1):
        raise UserError(
            f"{run}: trained on single pictures, so it cannot take {asked} for views of one scene; ask for --views 1"
        )
    if asked is None and stored > 1:
        note(f"{run} was trained on single pictures, so it is shown the first one of each scene (--views 1)")
    return 1


def scored_step_note(run: str, about: dict[str, Any]) -> list[str]:
    """Which state of a training is scored, where that is on record: what lies in a run folder changes while it
    trains."""
    training = about.get("training") or {}
    step, steps = training.get("scored_step"), training.get("steps")
    if step is None:
        return []
    return [f"scoring step {step:,}{f' of {steps:,}' if type(steps) is int else ''} of {run}"]
