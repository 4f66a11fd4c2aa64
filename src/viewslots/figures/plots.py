"""How plots and tables look, and how they are saved: matplotlib's Agg, never a window, no state shared."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from viewslots.figures.layout import DPI, INK, LINE, SOFT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOOK: Any = {
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


def look() -> AbstractContextManager[None]:
    """Inside it, everything that is drawn looks like ours."""
    import matplotlib

    return matplotlib.rc_context(LOOK)


def figure(rows: int, columns: int, title: str, size: tuple[float, float] = (WIDTH, HEIGHT)) -> tuple["Figure", Any]:
    """A figure of its own and its axes [rows, columns], without touching anybody's pyplot."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with look():
        made = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
        FigureCanvasAgg(made)
        axes = made.subplots(rows, columns, squeeze=False)
        made.suptitle(title, fontsize=10)
    return made, axes


def save_figure(made: "Figure", stem: Path) -> list[Path]:
    """STEM.png at 300 dpi and STEM.svg."""
    png, svg = stem.with_suffix(".png"), stem.with_suffix(".svg")
    with look():
        made.savefig(png, dpi=DPI)
        made.savefig(svg, metadata={"Date": None})
    return [png, svg]
