"""Plots and tables: training curves of a run, scores of evaluations. Matplotlib without a window or shared state."""

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from viewslots.errors import UserError
from viewslots.figures.grid import DPI, INK, LINE, SOFT
from viewslots.files import read_bounded
from viewslots.metrics.score import METRICS
from viewslots.run_format import METRICS_LIMIT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]
Result = Mapping[str, Any]

STYLE: Any = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.grid": True,
    "grid.color": LINE,
    "grid.linewidth": 0.5,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "svg.fonttype": "none",  # words stay words
    "svg.hashsalt": "viewslots",  # the same figure is the same file
}
WIDTH, HEIGHT = 4.4, 2.5
"""Inches of one plot with its legend."""

TERM_NAMES = {
    "view": "KL viewpoints",
    "attr": "KL attributes",
    "attr_background": "KL background alone",
    "rho": "KL rho",
    "prs": "KL presence",
    "costs": "prices",
    "policy": "NVIL policy",
    "baseline": "NVIL baseline",
    "mse": "squared error",
}
"""What a reader is told of terms whose names say little. A term that is missing here goes by its name."""
SHARES = {"background_share": "background pixels", "absent": "absent slots"}
STILL = 1e-5
"""A term that moves by less than this share of its size is a constant, which no curve needs."""
LARGEST = 1e30
"""What is larger, infinite or no number at all is not drawn."""
LONGEST = 160
"""Letters of a name."""
MISSING = "N/A"
LETTER, COLUMN = 0.068, 1.05
"""Inches of a table: one letter of a row's name, and one column."""


def style() -> AbstractContextManager[None]:
    """Inside it, everything that is drawn has our style."""
    import matplotlib

    return matplotlib.rc_context(STYLE)


def figure(rows: int, columns: int, title: str, size: tuple[float, float] = (WIDTH, HEIGHT)) -> tuple["Figure", Any]:
    """A figure of its own and its axes [rows, columns], without touching anybody's pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with style():
        made = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
        FigureCanvasAgg(made)
        axes = made.subplots(rows, columns, squeeze=False)
        made.suptitle(plain(title), fontsize=10)
    return made, axes


def plain(text: str) -> str:
    """Foreign text as it is: no formula, nothing that cannot be printed, and not longer than a line."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return (shown if len(shown) <= LONGEST else shown[:LONGEST] + "...").replace("$", r"\$")


def save_figure(made: "Figure", stem: Path) -> list[Path]:
    """STEM.png at 300 dpi and STEM.svg."""
    png, svg = stem.with_suffix(".png"), stem.with_suffix(".svg")
    with style():
        made.savefig(png, dpi=DPI)
        made.savefig(svg, metadata={"Date": None})
    return [png, svg]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """All whole rows; a kill may have cut the last one off."""
    lines = read_bounded(path, METRICS_LIMIT).splitlines()
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            if number == len(lines):
                break
            raise UserError(f"{path}: line {number} is no JSON; the file is damaged") from None
        if not isinstance(row, dict) or type(row.get("step")) is not int or not _is_number(row["step"]):
            raise UserError(f"{path}: line {number} has no step; not the metrics of a run")
        rows.append(row)
    return rows


def series(rows: Rows, kind: str, name: str) -> tuple[list[int], list[float]]:
    """Steps and values of one figure, in the order of steps; rows without it, or with null, are left out."""
    pairs = [(row["step"], row[name]) for row in rows if row.get("kind") == kind and _is_number(row.get(name))]
    pairs.sort(key=lambda pair: pair[0])
    return [step for step, _ in pairs], [float(value) for _, value in pairs]


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and -LARGEST < value < LARGEST  # type: ignore[operator]


def loss_terms(rows: Rows) -> list[str]:
    """The terms of a method's loss, in its order: what rows of training and of validation both record."""
    trained, *_ = [row for row in rows if row.get("kind") == "train"][-1:] or [{}]
    validated, *_ = [row for row in rows if row.get("kind") == "valid"][-1:] or [{}]
    names = [name for name in validated if name in trained and name not in ("step", "kind", "loss")]
    return [name for name in names if _moves(series(rows, "valid", name)[1])]


def _moves(values: Sequence[float]) -> bool:
    size = np.abs(values).max(initial=0)
    return bool(size > 0 and (len(values) < 2 or np.ptp(values) > STILL * size))


def training_curves(rows: Rows, title: str) -> "Figure":
    """Plots over the steps: the loss, its terms, the scores on held-out scenes and, where recorded, whether slots are
    used."""
    shares = {name: text for name, text in SHARES.items() if series(rows, "valid", name)[0]}
    made, axes = figure(2, 2, title)
    with style():
        loss, terms, scores, slots = axes.flat
        draw(loss, rows, "loss", {("train", "loss"): "training", ("valid", "loss"): "held-out"})
        cut_start(loss)
        names = {("valid", name): TERM_NAMES.get(name, name) for name in loss_terms(rows)}
        draw(terms, rows, "terms of the held-out loss", names)
        terms.set_yscale("symlog", linthresh=1)
        draw(scores, rows, "scores on held-out scenes", {("valid", name): name for name in METRICS})
        scores.set_ylim(min(-0.02, scores.get_ylim()[0]), 1.02)
        draw(slots, rows, "shares on held-out scenes", {("valid", name): text for name, text in shares.items()})
        slots.set_ylim(-0.02, 1.02)
        if not shares:
            slots.remove()
    return made


def draw(axes: "Axes", rows: Rows, title: str, names: Mapping[tuple[str, str], str]) -> None:
    """One line a figure, with dots where there are few rows."""
    for index, ((kind, name), text) in enumerate(names.items()):
        steps, values = series(rows, kind, name)
        marker = "o" if len(steps) < 40 else None
        dashed = "--" if len(names) > 5 and index % 2 else "-"
        if steps:
            axes.plot(steps, values, label=plain(text), marker=marker, markersize=2.5, linewidth=1.2, linestyle=dashed)
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


def score_table(results: Sequence[tuple[str, Result]], kind: str, title: str) -> "Figure":
    """One row a result, one column a metric: mean and standard deviation over repeats; the best mean is bold."""
    metrics = list(results[0][1][kind])
    names = LETTER * max(len(plain(name)) for name, _ in results)
    width = names + COLUMN * len(metrics)
    made, axes = figure(1, 1, title, size=(width + 0.3, 0.8 + 0.24 * len(results)))
    plot = axes[0, 0]
    plot.set_axis_off()
    plot.set(xlim=(0, width), ylim=(len(results) + 0.3, -1))
    for height, thickness in ((-1, 1.2), (0, 0.7), (len(results) + 0.2, 1.2)):
        plot.plot([0, width], [height, height], color=INK, linewidth=thickness, clip_on=False)
    write_row(plot, -0.35, "", names, [(name, False) for name in metrics])
    best = {name: max(known, default=None) for name, known in _means(results, kind, metrics).items()}
    for index, (name, result) in enumerate(results):
        texts = [cell_text(result[kind].get(metric), len(result["repeats"])) for metric in metrics]
        cells = [(text, _is_best(result, kind, metric, best)) for text, metric in zip(texts, metrics, strict=True)]
        write_row(plot, index + 0.75, name, names, cells)
    return made


def cell_text(estimate: Mapping[str, float] | None, answers: int) -> str:
    """A single answer has no spread."""
    spread = "" if estimate is None or answers == 1 else f" ± {estimate['std']:.3f}"
    return MISSING if estimate is None else f"{estimate['mean']:.3f}{spread}"


def write_row(plot: "Axes", height: float, name: str, start: float, cells: Sequence[tuple[str, bool]]) -> None:
    """Cells end at the right of their columns, the first of which begins at `start`."""
    plot.text(0, height, plain(name), ha="left", color=INK, fontsize=8)
    for index, (text, bold) in enumerate(cells):
        colour, weight = SOFT if text == MISSING else INK, "bold" if bold else "normal"
        plot.text(
            start + (index + 1) * COLUMN, height, plain(text), ha="right", color=colour, fontweight=weight, fontsize=8
        )


def _means(results: Sequence[tuple[str, Result]], kind: str, metrics: Sequence[str]) -> dict[str, list[float]]:
    parts = {name: [result[kind].get(name) for _, result in results] for name in metrics}
    return {name: [part["mean"] for part in found if part is not None] for name, found in parts.items()}


def _is_best(result: Result, kind: str, metric: str, best: Mapping[str, float | None]) -> bool:
    part = result[kind].get(metric)
    return part is not None and part["mean"] == best[metric]
