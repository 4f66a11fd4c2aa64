"""A table of scores as a figure, from the results of evaluate."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from viewslots.figures.layout import INK, SOFT
from viewslots.figures.plots import figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Result = Mapping[str, Any]
MISSING = "N/A"
LETTER, COLUMN = 0.068, 1.05
"""Inches: one letter of a row's name, and one column."""


def score_table(results: Sequence[tuple[str, Result]], kind: str, title: str) -> "Figure":
    """One row a result, one column a metric: mean and standard deviation over repeats; the best mean is bold."""
    metrics = list(results[0][1][kind])
    names = LETTER * max(len(name) for name, _ in results)
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
        cells = [(cell_text(result[kind].get(metric)), _is_best(result, kind, metric, best)) for metric in metrics]
        write_row(plot, index + 0.75, name, names, cells)
    return made


def cell_text(estimate: Mapping[str, float] | None) -> str:
    return MISSING if estimate is None else f"{estimate['mean']:.3f} ± {estimate['std']:.3f}"


def write_row(plot: "Axes", height: float, name: str, start: float, cells: Sequence[tuple[str, bool]]) -> None:
    """Cells end at the right of their columns, the first of which begins at `start`."""
    plot.text(0, height, name, ha="left", color=INK, fontsize=8)
    for index, (text, bold) in enumerate(cells):
        colour, weight = SOFT if text == MISSING else INK, "bold" if bold else "normal"
        plot.text(start + (index + 1) * COLUMN, height, text, ha="right", color=colour, fontweight=weight, fontsize=8)


def _means(results: Sequence[tuple[str, Result]], kind: str, metrics: Sequence[str]) -> dict[str, list[float]]:
    parts = {name: [result[kind].get(name) for _, result in results] for name in metrics}
    return {name: [part["mean"] for part in found if part is not None] for name, found in parts.items()}


def _is_best(result: Result, kind: str, metric: str, best: Mapping[str, float | None]) -> bool:
    part = result[kind].get(metric)
    return part is not None and part["mean"] == best[metric]
