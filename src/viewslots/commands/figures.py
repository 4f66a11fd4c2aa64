"""figures."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import numpy as np
from tyro.conf import Positional, arg

from viewslots.commands.evaluation import Looks, Refine, Slots, Spare, Starts, Views
from viewslots.errors import UserError, require_counts
from viewslots.terminal import Device, Progress, pick_device, print_json, say

if TYPE_CHECKING:
    from viewslots.data.store import Store
    from viewslots.figures.figure_set import Part
    from viewslots.methods.contract import Method, Search
    from viewslots.protocol.work import Work
    from viewslots.runs import Model
    from viewslots.types import Decomposition, SceneBatch, SceneTruth

SCENES = 3
SHEET_PIXELS = 128
"""Width of a picture on the sheet of a data set, at least."""
NAMES, NAME = 6, 40
"""Scenes whose names are told below a figure, and letters of each."""
Which = Literal["best", "last"]


@dataclass(frozen=True)
class Shown:
    """One scene: what a method sees, what is held out, the truth as far as it is known."""

    given: "SceneBatch"
    held_out: "SceneBatch | None"
    truth: "SceneTruth"


@dataclass(frozen=True)
class Asked:
    """A method, and what is asked of it."""

    method: "Method"
    slots: int
    seed: int
    search: "Search | None"

    @property
    def pixels(self) -> int:
        height, width = self.method.image_size or (0, 0)
        return height * width


def figures(
    run: Positional[
        Annotated[str | None, arg(metavar="RUN", help_behavior_hint="(default: none, the data set alone)")]
    ] = None,
    /,
    *,
    data: Path,
    out: Path,
    split: str = "test1",
    scenes: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: 3, or all where fewer)")] = None,
    views: Views = None,
    slots: Slots = None,
    compare: Annotated[tuple[str, ...], arg(metavar="RUN...")] = (),
    comparison_only: bool = False,
    results: Annotated[tuple[Path, ...], arg(metavar="PATH...")] = (),
    frames: int = 72,
    starts: Starts = None,
    looks: Looks = None,
    refine: Refine = None,
    spare: Spare = None,
    seed: int = 0,
    device: Device = "auto",
    which: Which = "best",
) -> None:
    """Pictures of what a method makes of scenes, as PNG (300 dpi) and SVG: layers, viewpoints, training curves, scores.

    The camera's path through the scenes comes as MP4 and GIF. A method that cannot show a scene from elsewhere, or was
    trained on single pictures, gets no figures of viewpoints. With --compare, two figures more have several methods on
    the same scenes, as in the paper's supplement; an object has the colour of the true one in all of them. Options of
    the search are RUN's alone, but --starts 0 shows the plain answers of all. With a model of single pictures among
    them the comparison is of one picture a scene.

    Args:
        run: A run folder, a saved model, the name of a shipped one, or of a method that learns nothing (kmeans). A run
            folder also gives its training curves, and tables of the results in it. Without RUN, one sheet shows the
            scenes of the data set with their truth.
        data: The data set.
        out: Folder to write to.
        split: Which scenes.
        scenes: How many of them: the first N.
        views: How many pictures of a scene the method sees: the first M. Of those left the last four are held out.
        slots: How many objects it may find.
        compare: Further runs or methods to put beside it on the same scenes.
        comparison_only: Draw the comparison and nothing else.
        results: Further results of evaluate, or folders of such, for the tables.
        frames: Length of the video; 12 make a second.
        seed: Decides where slots start and which new viewpoints are drawn.
        device: Where to compute; auto takes a GPU if there is one.
        which: Of a run folder: best is the model with the lowest validation loss, last the newest saved one.
    """
    from torch.nn import Module

    from viewslots.data.store import Store
    from viewslots.figures.figure_set import curve_parts, save_parts, table_parts
    from viewslots.files import plain_errors, require_folder
    from viewslots.protocol.question import views_for
    from viewslots.protocol.subject import default_slots, find_subject, search_asked_for
    from viewslots.protocol.work import Work

    require_counts({"--scenes": scenes, "--views": views, "--frames": frames})
    require_folder(out)
    store = Store.open(data)
    if run is None:
        options = {"--slots": slots, "--starts": starts, "--looks": looks, "--refine": refine, "--spare": spare}
        given = [name for name, value in options.items() if value is not None]
        listed = {"--compare": compare, "--comparison-only": comparison_only, "--results": results}
        if given := given + [name for name, value in listed.items() if value]:
            raise UserError(f"{', '.join(given)}: name the RUN that this is about")
        print_json(_data_sheet(store, split, scenes, views, out))
        return
    stored = store.split(split).size.views
    tables = [(_row_name(result), result) for result in _results(run, results)]
    where = pick_device(device)
    asked: dict[str, Asked] = {}
    shown_views: list[int] = []
    of_run = {"starts": starts, "looks": looks, "refinement": refine, "spare": spare}
    for source in (run, *compare):
        method, about = find_subject(source, which, where)
        shown_views.append(views_for(method, source, views, stored, say))
        if isinstance(method, Module):
            method.requires_grad_(False)  # a search follows codes; gradients of weights would be in its way
        search = search_asked_for(method.default_search, **(of_run if not asked or starts == 0 else {}))
        others = next((one.slots for one in asked.values()), None)
        found = default_slots(about, store.meta.plan, split, others) if slots is None else slots
        asked[_new_name(source, asked)] = Asked(method, found, seed, search)

    own = shown_views[0]
    compared = 1 if 1 in shown_views else own  # all see the same pictures
    if compared != own and stored > 1:
        say("the comparison shows the first picture of each scene to all")

    def shown_to(method: "Method", views: int, size: tuple[int, int] | None = None) -> list[Shown]:
        return _shown_scenes(store, split, scenes, views, method, where, size)

    parts: list[Part] = []
    first = asked[_name(run)]
    rounds = (0 if comparison_only else 1) + (len(asked) if compare or comparison_only else 0)
    with Progress("scenes", "answering") as progress:
        work = Work(progress, rounds * (SCENES if scenes is None else scenes))
        if not comparison_only:
            names = _names(store, split, scenes)
            parts += _own_parts(run, shown_to(first.method, own), first, frames, names, work)
        if compare or comparison_only:
            parts += _comparison(asked, partial(shown_to, views=compared), work)
    if not comparison_only:
        parts += [*curve_parts(Path(run)), *table_parts(tables)]
    with plain_errors("writing", out), Progress("figures", "drawing") as progress:
        out.mkdir(parents=True, exist_ok=True)
        saved = save_parts(parts, out, progress)
    if [Path(file).suffix for file in saved.get("camera-path", [])] == [".gif"]:
        say("camera-path: MP4 left out, because imageio-ffmpeg is missing; the GIF is there")
    print_json(saved)


def _data_sheet(store: "Store", split: str, scenes: int | None, views: int | None, out: Path) -> dict[str, list[str]]:
    """The first scenes of a data set, each view above what is known of it."""
    from viewslots.data.views import views_shown
    from viewslots.figures.sheets import contact_sheet
    from viewslots.files import plain_errors, replacing
    from viewslots.types import Pictures

    stored = store.split(split)
    seen = views_shown(views, stored.size.views)
    shown = _scene_count(scenes, len(stored), f"{split} of {store.path}")
    pictures = Pictures(**{key: np.asarray(stored[key][:shown]) for key in stored.arrays})
    file = out / f"scenes-{split}.png"
    with plain_errors("writing", out):
        out.mkdir(parents=True, exist_ok=True)
        with replacing(file) as draft:
            sheet = contact_sheet(pictures.first_views(seen), max(SHEET_PIXELS // stored.size.width, 1))
            sheet.save(draft, "PNG")
    return {file.stem: [str(file)]}


def _scene_count(asked: int | None, stored: int, where: str) -> int:
    from viewslots.protocol.plan import require_scenes

    require_scenes(asked, stored, where)
    return min(SCENES, stored) if asked is None else asked


def _names(store: "Store", split: str, scenes: int | None) -> str:
    """Which scenes are shown, and what an import calls them."""
    names = (store.names(split) or [])[: min(scenes or SCENES, NAMES)]
    called = ": " + ", ".join(f"{number} {name[:NAME]}" for number, name in enumerate(names, 1)) if names else ""
    return f" Scenes of {store.path.resolve().name}, {split}{called}."


def _name(source: str) -> str:
    return Path(source).resolve().name if Path(source).is_dir() else source


def _new_name(source: str, taken: Collection[str]) -> str:
    name = _name(source)
    while name in taken:
        name += "'"
    return name


def _shown_scenes(
    store: "Store",
    split: str,
    scenes: int | None,
    views: int,
    method: "Method",
    device: str,
    size: tuple[int, int] | None = None,
) -> "list[Shown]":
    """In the size that the method takes, or in `size` if it takes any; the last views of those that it does not see
    are held out."""
    from viewslots.data.views import FirstViews, HeldOutViews
    from viewslots.protocol.evaluate import HELD_OUT_VIEWS
    from viewslots.protocol.plan import shown_to

    dataset = shown_to(method, store, split, device, size)
    scenes = _scene_count(scenes, len(dataset), f"{split} of {store.path}")

    def shown(scene: int) -> Shown:
        left = int(dataset.split.view_counts[scene]) - views
        new = dataset.batch([scene], HeldOutViews(views, min(HELD_OUT_VIEWS, left))) if left > 0 else None
        seen = FirstViews(views)
        return Shown(dataset.batch([scene], seen), new, dataset.truth([scene], seen))

    return [shown(scene) for scene in range(scenes)]


def _own_parts(
    run: str, shown: Sequence[Shown], asked: Asked, frames: int, names: str, work: "Work"
) -> "Iterator[Part]":
    """What is drawn of the method alone."""
    from viewslots.figures.decompositions import warning_of
    from viewslots.figures.figure_set import answer_parts, scene_parts
    from viewslots.methods.contract import SceneMethod
    from viewslots.viewpoints.scene import reader_of, search_words

    note = f"Answers of {_name(run)}: {search_words(asked.search)}.{names}"
    images = [one.given.image[0] for one in shown]
    if not isinstance(asked.method, SceneMethod):
        return answer_parts(images, _answers(asked, shown, work), note)
    reader, scenes = reader_of(cast("Model", asked.method), run), []
    for image in images:
        with work.of(1):
            scenes.append(reader.inferred(image, asked.seed, asked.slots, asked.search))
    held_out = [None if one.held_out is None else one.held_out.image[0] for one in shown]
    if warning := warning_of(scenes):
        say(f"Warning: {warning}.")
    return scene_parts(scenes, held_out, asked.seed, frames, note)


def _answers(asked: Asked, shown: Sequence[Shown], work: "Work") -> "list[Decomposition]":
    from viewslots.viewpoints.scene import seeded

    questions, answers = (asked.slots, asked.search), []
    for one in shown:
        with work.of(1):
            answers.append(asked.method.infer(one.given, seeded(asked.seed), *questions).decomposition())
    return answers


def _comparison(asked: Mapping[str, Asked], shown_to: "Callable[..., list[Shown]]", work: "Work") -> "Iterator[Part]":
    """In the size of the method that sees most; each sees the pictures in its own."""
    from viewslots.figures.comparison import enlarged
    from viewslots.figures.figure_set import comparison_parts
    from viewslots.viewpoints.scene import search_words

    largest = max(asked.values(), key=lambda one: one.pixels).method
    scenes = shown_to(largest)
    height, width = scenes[0].given.image.shape[-2:]
    answers = {}
    for name, one in asked.items():
        found = _answers(one, shown_to(one.method, size=(height, width)), work)
        words = f", {search_words(one.search)}" if one.method.searches else ""
        answers[name + words] = [enlarged(answer, (height, width)) for answer in found]
    return comparison_parts([one.given.image[0] for one in scenes], [one.truth for one in scenes], answers)


def _results(run: str, named: Sequence[Path]) -> list[dict[str, Any]]:
    """Results inside the run folder, if it has any, and those that were named."""
    from viewslots.protocol.results import find_results

    own = find_results([Path(run)], needed=False) if Path(run).is_dir() else []
    return list(dict([*own, *find_results(named)]).values())


def _row_name(result: dict[str, Any]) -> str:
    from viewslots.report.rows import title

    new = result.get("new_views")
    views = f"M = {result['views']}" if new is None else f"{result['views']} given, {new} new views"
    return f"{title(result)}, {result['split']}, {views}, K = {result['slots']}"
