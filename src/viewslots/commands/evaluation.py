"""evaluate, estimate-viewpoints, report."""

import ctypes
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from viewslots.data.names import PAPER_VIEWS
from viewslots.errors import UserError, require_counts
from viewslots.terminal import Device, Progress, pick_device, print_json, say

if TYPE_CHECKING:
    from viewslots.data.store import Store
    from viewslots.methods.contract import Method
    from viewslots.protocol.plan import Plan

LOOKED_AT = 20
"""Scenes whose pictures tell whether they are of the kind that a model knows."""
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
Slots = Annotated[
    int | None, arg(metavar="K", help_behavior_hint="(default: as trained; on test2 the paper's, if that is more)")
]
Scenes = Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: all)")]
AS_STORED = "(default: 4, or all where fewer are stored; 1 for a model of single pictures)"
Views = Annotated[int | None, arg(metavar="M", help_behavior_hint=AS_STORED)]
Which = Literal["best", "last"]
Weights = Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="(default: $VIEWSLOTS_LPIPS, else none)")]


def searched(metavar: str, about: str, default: str) -> Any:
    """Help for an option of the search, the same in all commands that have it."""
    return arg(metavar=metavar, help=about, help_behavior_hint=f"(default: as the method does, else {default})")


STARTS = (
    "Search for the answer with the shortest description: the best of N random starts, with objects pruned that cost "
    "more nats than they save. 0: the plain answer, one pass, as in the method's paper."
)
LOOKS = "The same search with N further looks for missed objects."
REFINE = "The same search with gradient steps on the codes, after the starts and after each look."
SPARE = "Slots of each start beyond K, so that fewer objects are missed; K are kept at most."
Starts = Annotated[int | None, searched("N", STARTS, "the plain answer")]
Looks = Annotated[int | None, searched("N", LOOKS, "0")]
Refine = Annotated[int | None, searched("STEPS", REFINE, "0")]
Spare = Annotated[int | None, searched("N", SPARE, "0")]


def evaluate(
    run: Positional[Annotated[str, arg(metavar="RUN")]],
    /,
    data: Path,
    out: Path,
    split: str = "test1",
    scenes: Scenes = None,
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
    spare: Spare = None,
    probes: Annotated[str | None, arg(metavar="SPLIT", help_behavior_hint="(default: none)")] = None,
    lpips: Weights = None,
    per_scene: FlagCreatePairsOff[bool] = False,
) -> None:
    """Score a model on a data set by the paper's protocol: eight metrics with their uncertainty.

    In two conventions: `pooled` averages as the published numbers do, `paper` follows the formulas of the paper's
    appendix.

    Args:
        run: A run folder, a saved model, the name of a shipped one, or kmeans (the floor, which learns nothing).
        data: The data set.
        out: JSON file to write.
        split: test1, test2 (more objects), or the -large ones.
        scenes: How many of them: the first N.
        views: How many of a scene's pictures the model sees: the first M.
        slots: How many objects it may find.
        repeats: Stochastic answers for every scene.
        seed: Of the random numbers of the answers.
        device: Where to compute; auto takes a GPU if there is one.
        batch: Scenes at once. Random numbers are drawn batch by batch, so another size is another draw.
        extras: Also shadows, identity over views, pictures, cameras and held-out views, which take more time.
        which: Of a run folder: best is the model with the lowest validation loss, last the newest saved one.
        probes: Also how well colour, shape, size and material of objects can be read from their codes, by probes that
            are fitted on this split: train or valid.
        lpips: Also LPIPS, with the weights in this file or folder; docs/evaluation.md says where to get them.
        per_scene: Also the scores of every scene, with its name.
    """
    require_counts({"--views": views, "--slots": slots, "--repeats": repeats, "--batch": batch})
    asked = {"split": split, "views": views, "slots": slots, "repeats": repeats, "seed": seed, "batch": batch}
    search = {"starts": starts, "looks": looks, "refinement": refine, "spare": spare}
    asked |= {"scenes": scenes, "extras": extras, "probes": probes}
    _evaluated(run, data, out, which, device, search, asked, lpips=lpips, per_scene=per_scene)


def estimate_viewpoints(
    run: Positional[Annotated[str, arg(metavar="RUN")]],
    /,
    data: Path,
    out: Path,
    split: str = "test1",
    scenes: Scenes = None,
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
    spare: Spare = None,
) -> None:
    """Infer each scene from its first M1 pictures, then only the viewpoints of its last M2, and score those.

    Args:
        run: A run folder, a saved model, or the name of a shipped one.
        data: The data set.
        out: JSON file to write.
        split: test1, test2 (more objects), or the -large ones.
        scenes: How many of them: the first N.
        given: Pictures of a scene from which its objects are inferred: the first M1.
        new: Pictures of which only the viewpoints are inferred, and which are scored: the last M2.
        slots: How many objects the model may find.
        repeats: Stochastic answers for every scene.
        seed: Of the random numbers of the answers.
        device: Where to compute; auto takes a GPU if there is one.
        batch: Scenes at once. Random numbers are drawn batch by batch, so another size is another draw.
        extras: Also shadows, identity over views and the error of the pictures.
        which: Of a run folder: best is the model with the lowest validation loss, last the newest saved one.
    """
    require_counts({"--given": given, "--new": new, "--slots": slots, "--repeats": repeats, "--batch": batch})
    asked = {"split": split, "scenes": scenes, "views": given, "new_views": new, "slots": slots, "repeats": repeats}
    search = {"starts": starts, "looks": looks, "refinement": refine, "spare": spare}
    _evaluated(run, data, out, which, device, search, asked | {"seed": seed, "batch": batch, "extras": extras})


def report(sources: Positional[Annotated[tuple[Path, ...], arg(metavar="RESULT...")]], /, out: Path) -> None:
    """Our results beside the paper's tables, as report.md and report.html.

    Args:
        sources: Results of evaluate, estimate-viewpoints and score, or folders with some (there, in results/,
            results*.json).
        out: Folder to write to.
    """
    from viewslots.files import plain_errors, require_folder
    from viewslots.report.report import write_report

    if not sources:
        raise UserError("name at least one result file or run folder")
    require_folder(out)
    with plain_errors("writing", out):
        for path in write_report(sources, out):
            print(path)


def _evaluated(
    run: str,
    data: Path,
    out: Path,
    which: Which,
    device: str,
    search: dict[str, int | None],
    asked: dict[str, Any],
    *,
    lpips: Path | None = None,
    per_scene: bool = False,
) -> None:
    from viewslots.files import plain_errors, require_file, write_json
    from viewslots.protocol.evaluate import evaluate_together
    from viewslots.protocol.question import Question
    from viewslots.protocol.results import result
    from viewslots.provenance import provenance
    from viewslots.ranks import joined_team, local_device

    require_file(out)
    kind = pick_device(device)
    if kind == "cpu":
        _keep_memory()
    where = local_device(kind)
    question = Question.of(run, data, which, str(where), search, asked, lpips)
    method, about, store, plan = question.method, question.about, question.store, question.plan
    notes = [*question.notes, *(unfamiliar_note(method, run, store, plan) if "trained_slots" in about else ())]
    with joined_team(where) as team, Progress("answers", "evaluating", team.first) as progress:
        for note in notes if team.first else ():
            say(note)
        repeats = evaluate_together(method, store, plan, str(where), progress, team, question.distance, say)
    if repeats is None:  # rank 0 has it
        return
    distance = None if question.distance is None else question.distance.network
    written = result(repeats, store, plan, about | {"device": kind, "lpips": distance, "provenance": provenance()})
    if per_scene:
        written["per_scene"] = repeats.per_scene(store.names(plan.split))
    with plain_errors("writing", out):
        write_json(out, written)
    if lost := [f"{truth} ({_first(scores)})" for truth, scores in written["missing"].items()]:
        say(f"{data} does not tell everything, so some scores are left out; missing: {', '.join(lost)}")
    means = {kind: found for kind in ("pooled", "paper", "extras") if (found := _means(written[kind]))}
    step = {"step": about["training"]["scored_step"]} if about.get("training") else {}
    print_json({"results": str(out)} | step | {"split": plan.split, "scenes": written["scenes"]} | means)


def unfamiliar_note(method: "Method", run: str, store: "Store", plan: "Plan") -> list[str]:
    """By the pictures alone, before anything is inferred from them."""
    from viewslots.data.views import FirstViews
    from viewslots.protocol.plan import shown_to
    from viewslots.viewpoints.familiarity import typical_of

    if (typical := typical_of(run)) is None:
        return []
    dataset = shown_to(method, store, plan.split, "cpu")
    scenes = list(range(min(plan.scored(dataset.split), LOOKED_AT)))
    seen = dataset.batch(scenes, FirstViews(plan.views), padded_to=plan.views)
    odd = int(typical.unlike(seen.image, seen.view_mask).sum())
    if 2 * odd < len(scenes):
        return []
    first = f"{odd} of the first {len(scenes)} scenes are" if len(scenes) > 1 else "the scene is"
    return [
        f"{first} unlike what {run} was trained on ({typical.data}): light, colours or detail are unusual, so these "
        "scores tell how far it carries over, not how good it is"
    ]


def _first(names: Sequence[str], most: int = 8) -> str:
    """A list that a person reads; all names are in the results."""
    left = len(names) - most
    return ", ".join(names[:most]) + (f" and {left} more" if left > 0 else "")


def _keep_memory() -> None:
    """Keep freed memory for the next array: giving pages back and clearing new ones takes a third of the time on a CPU.

    glibc maps every large array anew (M_MMAP_MAX) and returns the end of its heap (M_TRIM_THRESHOLD). Other systems
    have no such call.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def _means(estimates: dict[str, Any]) -> dict[str, float]:
    """What was measured; the results file has a null for everything else."""
    return {name: round(part["mean"], 4) for name, part in estimates.items() if part is not None}
