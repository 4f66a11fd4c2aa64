"""Training curves from the rows of a run's metrics.jsonl."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from viewslots.errors import UserError
from viewslots.figures.plots import figure, look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]

TERMS = {
    "nll": "nll",
    "view": "KL viewpoints",
    "attr": "KL attributes",
    "rho": "KL rho",
    "prs": "KL presence",
    "costs": "prices",
}
"""What the loss is the sum of, but for a constant, and how a reader is told. The paper's model has no prices."""
SCORES = ("ARI-A", "AMI-A", "ARI-O", "AMI-O", "IoU", "F1", "OCA", "OOA")
SHARES = {"background_share": "background pixels", "absent": "absent slots"}


def read_rows(path: Path) -> list[dict[str, Any]]:
    """All whole rows; a kill may have cut the last one off."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from error
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError:
            if number == len(lines):
                break
            raise UserError(f"{path}: line {number} is no JSON; the file is damaged") from None
        if not isinstance(row, dict) or type(row.get("step")) is not int:
            raise UserError(f"{path}: line {number} has no step; not the metrics of a run")
        rows.append(row)
    return rows


def series(rows: Rows, kind: str, name: str) -> tuple[list[int], list[float]]:
    """Steps and values of one figure, in the order of steps; rows without it, or with null, are left out."""
    pairs = [(row["step"], row[name]) for row in rows if row.get("kind") == kind and _is_number(row.get(name))]
    pairs.sort(key=lambda pair: pair[0])
    return [step for step, _ in pairs], [float(value) for _, value in pairs]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def training_curves(rows: Rows, title: str) -> "Figure":
    """Four plots over the steps: the loss, its terms, the scores on held-out scenes, whether slots are used."""
    made, axes = figure(2, 2, title)
    with look():
        loss, terms, scores, slots = axes.flat
        draw(loss, rows, "loss", {("train", "loss"): "training", ("valid", "loss"): "held-out"})
        cut_start(loss)
        known = {name: text for name, text in TERMS.items() if any(series(rows, "valid", name)[1])}
        draw(terms, rows, "terms of the held-out loss", {("valid", name): text for name, text in known.items()})
        terms.set_yscale("symlog", linthresh=1)
        draw(scores, rows, "scores on held-out scenes", {("valid", name): name for name in SCORES})
        scores.set_ylim(min(-0.02, scores.get_ylim()[0]), 1.02)
        draw(slots, rows, "shares on held-out scenes", {("valid", name): text for name, text in SHARES.items()})
        slots.set_ylim(-0.02, 1.02)
    return made


def draw(axes: "Axes", rows: Rows, title: str, names: Mapping[tuple[str, str], str]) -> None:
    """One line a figure, with dots where there are few rows."""
    for index, ((kind, name), text) in enumerate(names.items()):
        steps, values = series(rows, kind, name)
        marker = "o" if len(steps) < 40 else None
        dashed = "--" if len(names) > 5 and index % 2 else "-"
        if steps:
            axes.plot(steps, values, label=text, marker=marker, markersize=2.5, linewidth=1.2, linestyle=dashed)
    axes.set_title(title)
    axes.set_xlabel("step")
    if axes.lines:
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    else:
        axes.text(0.5, 0.5, "not recorded", ha="center", va="center", transform=axes.transAxes)


def cut_start(axes: "Axes") -> None:
    """The first steps are off the scale of all that follow: the height shows what is left after a twentieth."""
    points = np.concatenate([np.asarray(line.get_xydata()) for line in axes.lines]) if axes.lines else np.zeros((0, 2))
    late = points[points[:, 0] >= points[:, 0].max(initial=0) / 20, 1]
    if len(late) > 1 and np.ptp(late) > 0:
        spare = 0.05 * float(np.ptp(late))
        axes.set_ylim(float(late.min()) - spare, float(late.max()) + spare)
