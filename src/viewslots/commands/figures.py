"""demo, figures and info."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from viewslots.errors import UserError
from viewslots.terminal import Device, Progress, pick_device, print_json, say

if TYPE_CHECKING:
    from viewslots.data.dataset import SceneDataset
    from viewslots.data.views import ViewChoice
    from viewslots.figures.album import Part
    from viewslots.types import Decomposition, SceneBatch

PAPER_VIEWS = 4
Which = Literal["best", "last"]


def demo(
    out: Path = Path("demo"),
    seed: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: new scenes at every call)")] = None,
) -> None:
    """New scenes, a trained model that never saw them, what it makes of them, scores, a film: one page to look at.

    Args:
        out: Folder for the page and everything in it.
        seed: Seed of the scenes.
    """
    from viewslots.demo.run import run_demo

    if seed is None:
        seed = time.time_ns() % 1_000_000
    with Progress("steps") as progress:
        made = run_demo(out, seed, progress=progress)
    print_json(made.to_json())
    say(f"Open {made.report} in a browser to see what the model understood. Next: {made.next_commands[0]}")


def figures(
    run: Positional[Annotated[str, arg(metavar="RUN")]],
    /,
    data: Path,
    out: Path,
    split: str = "test1",
    scenes: int = 3,
    views: Annotated[int | None, arg(metavar="M", help_behavior_hint="(default: 4, or all where fewer)")] = None,
    slots: Annotated[int | None, arg(metavar="K", help_behavior_hint="(default: as trained)")] = None,
    compare: Annotated[tuple[str, ...], arg(metavar="RUN...")] = (),
    results: Annotated[tuple[Path, ...], arg(metavar="PATH...")] = (),
    frames: int = 72,
    starts: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: as the method)")] = None,
    seed: int = 0,
    device: Device = "auto",
    which: Which = "best",
) -> None:
    """Pictures of what a model makes of scenes, as PNG (300 dpi) and SVG: layers, viewpoints, training curves, scores.

    The camera's path through the scenes comes as MP4 and GIF.

    Args:
        run: A run folder, a saved model, or the name of a shipped one. A run folder also gives its training curves, and
            tables of the results in it.
        data: The data set.
        out: Folder to write to.
        split: Which scenes.
        scenes: How many of them: the first N.
        views: How many pictures of a scene the model sees: the first M. Of those left the last four are held out.
        slots: How many objects it may find.
        compare: Further runs (or kmeans) to put beside it on the same scenes.
        results: Further results of evaluate, or folders of such, for the tables.
        frames: Length of the film; 12 make a second.
        starts: Random starts of a search for the best answer; 0 shows the plain answers of the method's paper.
        seed: Decides where slots start and which new viewpoints are drawn.
        device: Where to compute; auto takes a GPU if there is one.
        which: The model of a run folder with the lowest validation loss, or the last one.
    """
    from viewslots.data.disk import plain_errors
    from viewslots.figures.album import curve_parts, save_parts, scene_parts, table_parts
    from viewslots.viewpoints.scene import load

    if min(scenes, frames) < 1:
        raise UserError("--scenes and --frames: at least 1 of each")
    tables = [(_row_name(result), result) for result in _results(run, results)]
    dataset = _scenes(data, split, scenes, pick_device(device))
    count = min(PAPER_VIEWS, dataset.split.size.views) if views is None else views
    reader = load(run, device=pick_device(device), which=which)
    given, held_out = _pictures(dataset, scenes, count, reader.size)
    inferred = [reader.decompose(image, seed=seed, slots=slots, starts=starts) for image in given.image]

    parts: list[Part] = [
        *scene_parts(inferred, None if held_out is None else held_out.image, seed, frames),
        *_comparison(run, compare, dataset, given, slots or reader.slots, seed, which),
        *curve_parts(Path(run)),
        *table_parts(tables),
    ]
    with plain_errors("writing", out), Progress("figures") as progress:
        out.mkdir(parents=True, exist_ok=True)
        saved = save_parts(parts, out, progress)
    if [Path(file).suffix for file in saved.get("camera-path", [])] == [".gif"]:
        say("camera-path: MP4 left out, because imageio-ffmpeg is missing; the GIF is there")
    print_json(saved)


def _scenes(data: Path, split: str, scenes: int, device: str) -> "SceneDataset":
    from viewslots.data.dataset import SceneDataset
    from viewslots.data.store import Store

    dataset = SceneDataset(Store.open(data).split(split), device=device)
    if scenes > len(dataset):
        raise UserError(f"--scenes: {scenes} asked for, but {split} of {data} has {len(dataset)}; ask for fewer")
    return dataset


def _pictures(dataset: "SceneDataset", scenes: int, views: int, size: int) -> "tuple[SceneBatch, SceneBatch | None]":
    """What the model sees, and what is held out, both as small as it sees them."""
    from dataclasses import replace

    from viewslots.data.views import FirstViews, LastViews
    from viewslots.protocol.evaluate import HELD_OUT_VIEWS
    from viewslots.training.feed import shrink_factor, shrunk

    factor = shrink_factor(dataset.split.size.height, dataset.split.size.width, size)

    def small(chosen: "ViewChoice") -> "SceneBatch":
        batch = dataset.batch(range(scenes), chosen)
        return replace(batch, image=shrunk(batch.image, factor))

    left = min(HELD_OUT_VIEWS, dataset.split.size.views - views)
    return small(FirstViews(views)), small(LastViews(left)) if left > 0 else None


def _comparison(
    run: str, compare: Sequence[str], dataset: "SceneDataset", given: "SceneBatch", slots: int, seed: int, which: Which
) -> Iterator["Part"]:
    """Every method answers once, by the protocol: a sample."""
    from viewslots.data.views import FirstViews
    from viewslots.figures.album import comparison_parts
    from viewslots.methods.kmeans.model import KMeansMethod
    from viewslots.protocol.evaluate import keyed_generator
    from viewslots.report.rows import FLOOR
    from viewslots.runs import load_run
    from viewslots.training.validation import shrunk_truth

    if not compare:
        return
    answers: dict[str, Decomposition] = {}
    for source in (run, *compare):
        method: Any = KMeansMethod() if source == FLOOR else load_run(source, which=which).to(given.image.device)
        name = Path(source).resolve().name if Path(source).is_dir() else source
        while name in answers:
            name += "'"
        answers[name] = method.decompose(given, keyed_generator(seed, 0, 0), slots)
    truth = dataset.truth(range(len(given.image)), FirstViews(given.image.shape[1]))
    segment = shrunk_truth(truth, dataset.split.size.height // given.image.shape[-1]).segment
    yield from comparison_parts(given.image, segment.cpu().numpy(), answers)


def _results(run: str, named: Sequence[Path]) -> list[dict[str, Any]]:
    """Results inside the run folder, if it has any, and those that were named."""
    from viewslots.data.disk import read_json
    from viewslots.protocol.results import FORMAT, find_results

    below = sorted(Path(run).rglob("*.json")) if Path(run).is_dir() else []
    found = [path for path in below if path.name.startswith("results") or path.parent.name == "results"]
    own = [path for path in found if read_json(path).get("format") == FORMAT]
    return [result for _, result in find_results([*own, *named])]


def _row_name(result: dict[str, Any]) -> str:
    from viewslots.report.rows import title

    new = result.get("new_views")
    views = f"M = {result['views']}" if new is None else f"{result['views']} given, {new} new views"
    return f"{title(result)}, {result['split']}, {views}, K = {result['slots']}"


def info(experiment: Positional[Annotated[str, arg(metavar="EXPERIMENT")]], /) -> None:
    """Describe an experiment: parameters by network, sizes, schedule.

    Args:
        experiment: METHOD/DATA, such as ocloc/clevr-m1, or a short name; see `viewslots train --help`.
    """
    from viewslots.experiments import describe

    print_json(describe(experiment))
