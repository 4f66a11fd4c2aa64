"""evaluate, estimate-viewpoints, report."""

import ctypes
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from viewslots.errors import UserError
from viewslots.terminal import Device, Progress, pick_device, print_json

FLOOR = "kmeans"
PAPER_VIEWS = 4
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
Slots = Annotated[int | None, arg(metavar="K", help_behavior_hint="(default: as trained; the preset's own on test2)")]
Views = Annotated[int | None, arg(metavar="M", help_behavior_hint="(default: 4, or all where fewer are stored)")]
Which = Literal["best", "last"]
AS_METHOD = "(default: as the method does; ocloc: one sampled answer, as in the paper)"
Careful = Annotated[int | None, arg(metavar="N", help_behavior_hint=AS_METHOD)]
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
    careful: Careful = None,
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
        careful: Not the paper's answers, but the best of N starts, without objects that are not worth their
            description; 0 gives the paper's.
        looks: Makes answers careful: look N times again for objects that were missed.
        refine: Makes answers careful: gradient steps on the codes of each scene, after the starts and after each look.
    """
    asked = {"split": split, "views": views, "slots": slots, "repeats": repeats, "seed": seed, "batch": batch}
    care = {"starts": careful, "looks": looks, "refinement": refine}
    _evaluated(run, data, out, which, device, care, asked | {"extras": extras})


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
    careful: Careful = None,
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
        careful: Not the paper's answers, but the best of N starts, without objects that are not worth their
            description; 0 gives the paper's.
        looks: Makes answers careful: look N times again for objects that were missed.
        refine: Makes answers careful: gradient steps on the codes of each scene, after the starts and after each look.
    """
    asked = {"split": split, "views": given, "new_views": new, "slots": slots, "repeats": repeats, "seed": seed}
    care = {"starts": careful, "looks": looks, "refinement": refine}
    _evaluated(run, data, out, which, device, care, asked | {"batch": batch, "extras": extras})


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
    run: str, data: Path, out: Path, which: Which, device: str, care: dict[str, int | None], asked: dict[str, Any]
) -> None:
    from viewslots.data.store import Store
    from viewslots.files import plain_errors, write_json
    from viewslots.protocol.evaluate import Plan
    from viewslots.protocol.evaluate import evaluate as evaluated
    from viewslots.protocol.results import require_file, result
    from viewslots.provenance import provenance

    require_file(out)
    store = Store.open(data)
    size = store.split(asked["split"]).size
    where = pick_device(device)
    if where == "cpu":
        _keep_memory()
    method, about = _method(run, which, where, care)
    views = asked["views"] if asked["views"] is not None else min(PAPER_VIEWS, size.views)
    slots = asked["slots"] if asked["slots"] is not None else _default_slots(about, store.meta.plan.preset, asked)
    plan = Plan(**asked | {"views": views, "slots": slots})
    with Progress("scenes") as progress:
        repeats = evaluated(method, store, plan, where, progress)
    written = result(repeats, store, plan, about | {"device": where, "provenance": provenance()})
    with plain_errors("writing", out):
        write_json(out, written)
    means = {kind: _means(written[kind]) for kind in ("pooled", "paper", "extras")}
    print_json({"results": str(out)} | means)


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


def _method(run: str, which: Which, device: str, care: dict[str, int | None]) -> tuple[Any, dict[str, Any]]:
    """The method, and what the results tell of it."""
    from viewslots.methods.kmeans.model import KMeansMethod
    from viewslots.methods.ocloc.search import Care
    from viewslots.runs import load_run, run_preset

    wanted = {name: value for name, value in care.items() if value is not None}
    if run == FLOOR:
        if wanted:
            raise UserError("--careful, --looks, --refine: kmeans always answers alike; leave them out")
        return KMeansMethod(), {"run": FLOOR, "method": FLOOR, "preset": None, "training": None}
    model, config = load_run(run, which=which).to(device), run_preset(run)
    if wanted:
        try:
            model.take_care(None if wanted == {"starts": 0} else replace(model.care or Care(), **wanted))
        except UserError as error:
            raise UserError(f"--careful, --looks or --refine: {error}") from None
    about = {"run": Path(run).resolve().name if Path(run).exists() else run, "method": model.method, "which": which}
    return model, about | {
        "preset": config.get("preset"),
        "parameters": sum(part.numel() for part in model.parameters()),
        "trained_slots": model.config.slots,
        "care": model.care and asdict(model.care),
        "training": _training(config),
    }


def _training(config: dict[str, Any]) -> dict[str, Any] | None:
    """How long and on what a run was trained, beside the length of its preset in the paper."""
    from viewslots.experiments import MODEL_PRESETS

    if not config:
        return None
    preset, schedule = MODEL_PRESETS.get(str(config.get("preset"))), config.get("schedule")
    return {
        "steps": schedule.get("steps") if isinstance(schedule, dict) else None,
        "preset_steps": None if preset is None else preset.schedule.steps,
        "seed": config.get("seed"),
        "data": config.get("world") if config.get("data") == "live" else Path(str(config.get("data"))).name,
        "data_sha256": config.get("data_sha256"),
        "live": config.get("data") == "live",
    }


def _default_slots(about: dict[str, Any], data_preset: str | None, asked: dict[str, Any]) -> int:
    """As trained, or as the paper tests with more objects; the floor takes the paper's numbers for the data set."""
    from viewslots.experiments import MODEL_PRESETS

    preset = MODEL_PRESETS.get(about["preset"] or data_preset or "")
    if asked["split"].startswith("test2"):
        if preset is None:
            raise UserError("--slots: this model's preset is not known, so say how many objects it may find on test2")
        return preset.test_slots
    if "trained_slots" in about:
        return int(about["trained_slots"])
    if preset is None:
        raise UserError("--slots: say how many objects may be found, since the data set names no preset")
    return preset.model.slots
