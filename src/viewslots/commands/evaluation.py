"""evaluate, estimate-viewpoints, report."""

import ctypes
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from viewslots.errors import UserError
from viewslots.terminal import Device, Progress, pick_device, print_json, say

if TYPE_CHECKING:
    from viewslots.methods.contract import Method, Search

PAPER_VIEWS = 4
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
Slots = Annotated[int | None, arg(metavar="K", help_behavior_hint="(default: as trained; the preset's own on test2)")]
Views = Annotated[int | None, arg(metavar="M", help_behavior_hint="(default: 4, or all where fewer are stored)")]
Which = Literal["best", "last"]
AS_METHOD = "(default: as the method does; ocloc: one plain answer, as in the paper)"
Starts = Annotated[int | None, arg(metavar="N", aliases=["--careful"], help_behavior_hint=AS_METHOD)]
Looks = Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: as the method does, else 0)")]
Refine = Annotated[int | None, arg(metavar="STEPS", help_behavior_hint="(default: as the method does, else 0)")]


def evaluate(
    run: Positional[str],
    /,
    data: Path,
    out: Path,
    split: str = "test1",
    views: Views = None,
    slots: Slots = None,
    repeats: int = 5,
    seed: int = 0,
    device: Device = "auto",
    batch: int = 20,
    extras: bool = True,
    which: Which = "best",
    starts: Starts = None,
    looks: Looks = None,
    refine: Refine = None,
) -> None:
    """Score a model on a data set by the paper's protocol: eight metrics in two conventions, with their uncertainty.

    Args:
        run: A run folder, a saved model, the name of a shipped one, or kmeans (the floor, which learns nothing).
        data: The data set.
        out: JSON file to write.
        split: test1, test2 (more objects), or the -large ones.
        views: How many of a scene's pictures the model sees: the first M.
        slots: How many objects it may find.
        repeats: Stochastic answers for every scene.
        seed: Of the random numbers of the answers.
        device: Where to compute; auto takes a GPU if there is one.
        batch: Scenes at once. Random numbers are drawn batch by batch, so another size is another draw.
        extras: Also shadows, identity over views, pictures, cameras and held-out views, which take more time.
        which: The model of a run folder with the lowest validation loss, or the last one.
        starts: Search for the answer with the shortest description: the best of N starts, with objects pruned that cost
            more nats than they save. 0: the plain answer, one pass.
        looks: The same search with N further looks for missed objects.
        refine: The same search with gradient steps on the codes, after the starts and after each look.
    """
    asked = {"split": split, "views": views, "slots": slots, "repeats": repeats, "seed": seed, "batch": batch}
    search = {"starts": starts, "looks": looks, "refinement": refine}
    _evaluated(run, data, out, which, device, search, asked | {"extras": extras})


def estimate_viewpoints(
    run: Positional[str],
    /,
    data: Path,
    out: Path,
    split: str = "test1",
    given: int = PAPER_VIEWS,
    new: int = PAPER_VIEWS,
    slots: Slots = None,
    repeats: int = 5,
    seed: int = 0,
    device: Device = "auto",
    batch: int = 20,
    extras: bool = True,
    which: Which = "best",
    starts: Starts = None,
    looks: Looks = None,
    refine: Refine = None,
) -> None:
    """Infer scenes from some pictures and only the viewpoints of others, and score what is then seen in those.

    Args:
        run: A run folder, a saved model, or the name of a shipped one.
        data: The data set.
        out: JSON file to write.
        split: test1, test2 (more objects), or the -large ones.
        given: Pictures of a scene from which its objects are inferred: the first M1.
        new: Pictures of which only the viewpoints are inferred, and which are scored: the last M2.
        slots: How many objects the model may find.
        repeats: Stochastic answers for every scene.
        seed: Of the random numbers of the answers.
        device: Where to compute; auto takes a GPU if there is one.
        batch: Scenes at once. Random numbers are drawn batch by batch, so another size is another draw.
        extras: Also shadows, identity over views and the error of the pictures.
        which: The model of a run folder with the lowest validation loss, or the last one.
        starts: Search for the answer with the shortest description: the best of N starts, with objects pruned that cost
            more nats than they save. 0: the plain answer, one pass.
        looks: The same search with N further looks for missed objects.
        refine: The same search with gradient steps on the codes, after the starts and after each look.
    """
    asked = {"split": split, "views": given, "new_views": new, "slots": slots, "repeats": repeats, "seed": seed}
    search = {"starts": starts, "looks": looks, "refinement": refine}
    _evaluated(run, data, out, which, device, search, asked | {"batch": batch, "extras": extras})


def report(sources: Positional[tuple[Path, ...]], /, out: Path) -> None:
    """Our results beside the paper's tables, as report.md and report.html.

    Args:
        sources: Results of evaluate and estimate-viewpoints, or folders with some (there, in results/, results*.json).
        out: Folder to write to.
    """
    from viewslots.files import plain_errors
    from viewslots.report.report import write_report

    if not sources:
        raise UserError("name at least one result file or run folder")
    with plain_errors("writing", out):
        for path in write_report(sources, out):
            print(path)


def _evaluated(
    run: str, data: Path, out: Path, which: Which, device: str, search: dict[str, int | None], asked: dict[str, Any]
) -> None:
    from viewslots.data.store import Store
    from viewslots.files import plain_errors, write_json
    from viewslots.protocol.evaluate import Plan
    from viewslots.protocol.evaluate import evaluate as evaluated
    from viewslots.protocol.results import require_file, result
    from viewslots.provenance import provenance

    require_file(out)
    store = Store.open(data)
    stored = store.split(asked["split"]).size.views
    where = pick_device(device)
    if where == "cpu":
        _keep_memory()
    method, about = _method(run, which, where)
    views = asked["views"] if asked["views"] is not None else min(PAPER_VIEWS, stored)
    slots = asked["slots"] if asked["slots"] is not None else _default_slots(about, store.meta.plan.preset, asked)
    plan = Plan(**asked | {"views": views, "slots": slots, "search": search_asked_for(method.default_search, search)})
    with Progress("scenes") as progress:
        repeats = evaluated(method, store, plan, where, progress)
    written = result(repeats, store, plan, about | {"device": where, "provenance": provenance()})
    with plain_errors("writing", out):
        write_json(out, written)
    if lost := [f"{truth} ({', '.join(scores)})" for truth, scores in written["missing"].items()]:
        say(f"{data} does not tell everything, so some scores are null; missing: {', '.join(lost)}")
    means = {kind: _means(written[kind]) for kind in ("pooled", "paper", "extras")}
    print_json({"results": str(out)} | means)


def search_asked_for(default: "Search | None", asked: Mapping[str, int | None]) -> "Search | None":
    """The method's own search with what the user changes in it; `starts` 0 alone asks for the plain answer."""
    from viewslots.methods.contract import Search

    given = {name: value for name, value in asked.items() if value is not None}
    if not given:
        return default
    if given == {"starts": 0}:
        return None
    try:
        return replace(default or Search(), **given)
    except UserError as error:
        raise UserError(f"--starts, --looks or --refine: {error}") from None


def _keep_memory() -> None:
    """Keep freed memory for the next array: giving pages back and clearing new ones takes a third of the time on a CPU.

    glibc maps every large array anew (M_MMAP_MAX) and returns the end of its heap (M_TRIM_THRESHOLD). Other systems
    have no such call.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def _means(estimates: dict[str, Any]) -> dict[str, float | None]:
    return {name: None if part is None else round(part["mean"], 4) for name, part in estimates.items()}


def _method(run: str, which: Which, device: str) -> "tuple[Method, dict[str, Any]]":
    """The method, and what the results tell of it."""
    from viewslots.methods.registry import untrained_method
    from viewslots.runs import load_run, run_preset

    untrained = None if Path(run).is_dir() else untrained_method(run)
    if untrained is not None:
        return untrained, {"run": run, "method": untrained.name, "preset": None, "training": None}
    while True:
        step = scored_step(run, which)
        model: Any = load_run(run, which=which)
        if scored_step(run, which) == step:  # else training kept a better model while we read
            break
    config = run_preset(run)
    about = {"run": Path(run).resolve().name if Path(run).exists() else run, "method": model.name, "which": which}
    return model.to(device), about | {
        "preset": config.get("preset"),
        "parameters": sum(part.numel() for part in model.parameters()),
        "trained_slots": model.slots,
        "image_size": list(model.image_size),
        "training": _training(config, step),
    }


def scored_step(source: str, which: Which) -> int | None:
    """The training step of the model that is scored, as its folder tells it; None where nothing tells."""
    from viewslots.files import read_json
    from viewslots.runs import CONFIG, HUB, ORIGIN, RUN_KIND, find_run

    if source.startswith(HUB):
        return None
    folder = find_run(source)
    is_run = read_json(folder / CONFIG).get("kind") == RUN_KIND
    file = folder / (f"{which}.json" if is_run else ORIGIN)
    step = read_json(file).get("step") if file.is_file() else None
    return step if type(step) is int else None


def _training(config: dict[str, Any], step: int | None) -> dict[str, Any] | None:
    """How long and on what a run was trained, beside the length of its preset, and the step that is scored."""
    from viewslots.experiments import known_experiment

    if not config:
        return None
    preset, schedule = known_experiment(config.get("preset")), config.get("schedule")
    return {
        "steps": schedule.get("steps") if isinstance(schedule, dict) else None,
        "scored_step": step,
        "preset_steps": None if preset is None else preset.schedule.steps,
        "seed": config.get("seed"),
        "data": config.get("world") if config.get("data") == "live" else Path(str(config.get("data"))).name,
        "data_sha256": config.get("data_sha256"),
        "live": config.get("data") == "live",
    }


def _default_slots(about: dict[str, Any], data_preset: str | None, asked: dict[str, Any]) -> int:
    """As trained, or as the paper tests with more objects; what learns nothing takes the data set's numbers."""
    from viewslots.experiments import known_experiment, slots_for

    split, trained = asked["split"], known_experiment(about["preset"])
    if not split.startswith("test2") and "trained_slots" in about:
        return int(about["trained_slots"])
    if trained is not None and split.startswith("test2"):
        return trained.test_slots
    slots = slots_for(data_preset, split)
    if slots is None:
        known = data_preset or "this data set"
        raise UserError(f"--slots: say how many objects may be found in {known}; nothing tells")
    return slots
