"""Results and the paper's rows as rows of tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from viewslots.metrics.score import METRICS
from viewslots.report.pages import Cell, Row
from viewslots.report.paper_tables import COMPARED_WITH, PaperRow, PaperTable, Published, verdict

Result = Mapping[str, Any]
MISSING = Cell("N/A")
FLOOR = "kmeans"

EXTRAS = {
    "ari_a_without_shadows": ("ARI-A without the shadow pixels", 3),
    "shadow_claimed": ("share of the true shadow that objects claim", 3),
    "identity": ("identity over views: objects that keep their slot", 3),
    "mse": ("reconstruction, mean squared error", 5),
    "psnr": ("reconstruction, PSNR in dB", 2),
    "novel_view_psnr": ("held-out views, PSNR in dB", 2),
    "camera_linear_position": ("camera position from view codes, R2, linear probe", 3),
    "camera_linear_azimuth": ("azimuth, R2, linear probe", 3),
    "camera_linear_distance": ("distance, R2, linear probe", 3),
    "camera_linear_elevation": ("elevation, R2, linear probe", 3),
    "camera_kernel_position": ("camera position, R2, kernel probe", 3),
    "camera_kernel_azimuth": ("azimuth, R2, kernel probe", 3),
    "camera_kernel_distance": ("distance, R2, kernel probe", 3),
    "camera_kernel_elevation": ("elevation, R2, kernel probe", 3),
}
"""What a reader is told of each extra, and its digits."""


def title(result: Result) -> str:
    """What tells one row of ours from another."""
    kind = {"ocloc": "OCLOC", "ocloc-per-view": "per-view baseline"}.get(result["method"], result["method"])
    preset = result.get("preset") or "unknown preset"
    name = f"ours: {kind}" if preset == kind else f"ours: {kind}, {preset}"
    details = [str(result.get("run"))]
    if result["method"] == FLOOR:
        name, details = "floor: k-means on colours and places", details if result.get("run") != FLOOR else []
    if care := care_of(result):
        details.append(", ".join(["careful", *care]))
    if result["split"].endswith("-large"):
        details.append(f"{result['split']}, {result['scenes']} scenes")
    return f"{name} ({', '.join(details)})" if details else name


def care_of(result: Result) -> list[str]:
    """How much care was taken, in words; none for the paper's answers, which older results call not thrifty."""
    care = result.get("care") or {"thrifty": False}
    if not care.get("thrifty", True):
        return []
    names = {"starts": "start", "looks": "further look", "refinement": "gradient step"}
    counts = {name: care.get(key, 0) for key, name in names.items()}
    return [f"{count} {name}{'s' * (count != 1)}" for name, count in counts.items() if count]


def our_row(result: Result, kind: str) -> Row:
    cells = tuple(our_cell(result[kind].get(name)) for name in METRICS)
    return Row(title(result), cells, "floor" if result["method"] == FLOOR else "ours")


def our_cell(estimate: Mapping[str, float] | None, digits: int = 3) -> Cell:
    if estimate is None:
        return MISSING
    mean, std, low, high = (f"{estimate[name]:.{digits}f}" for name in ("mean", "std", "low", "high"))
    return Cell(mean, (f"± {std}", f"({low} to {high})"))


def paper_row(row: PaperRow) -> Row:
    return Row(f"paper: {row.method}", tuple(paper_cell(row.scores.get(name)) for name in METRICS), "paper")


def paper_cell(published: Published | None) -> Cell:
    return MISSING if published is None else Cell(f"{published.mean:.3f}", (f"± {published.std:g}",))


def difference_row(result: Result, table: PaperTable) -> Row | None:
    """Ours minus the paper's row of the same method, in the convention of the published numbers."""
    row = table.row(COMPARED_WITH.get(result["method"], ""))
    if row is None:
        return None
    cells = tuple(difference_cell(result["pooled"].get(name), row.scores.get(name)) for name in METRICS)
    return Row(f"difference to the paper's {row.method}", cells, "difference")


def difference_cell(ours: Mapping[str, float] | None, paper: Published | None) -> Cell:
    if ours is None or paper is None:
        return MISSING
    return Cell(f"{ours['mean'] - paper.mean:+.3f}", mark=verdict(ours, paper))


def extra_rows(results: Sequence[Result]) -> tuple[Row, ...]:
    """One row an extra that any of the results has, one column a result."""
    known = [name for name in EXTRAS if any(result["extras"].get(name) for result in results)]
    return tuple(
        Row(EXTRAS[name][0], tuple(our_cell(result["extras"].get(name), EXTRAS[name][1]) for result in results))
        for name in known
    )


def group_rows(result: Result, groups: Mapping[str, Any], label: str) -> tuple[Row, ...]:
    """Means of parts of the test set, in the convention of the published numbers."""
    rows = []
    for name, group in groups.items():
        shares = group.get("hidden")
        hidden = "" if shares is None else f", {shares[0]:.1%} to {shares[1]:.1%} hidden"
        values = (group["pooled"].get(metric) for metric in METRICS)
        cells = tuple(MISSING if value is None else Cell(f"{value:.3f}") for value in values)
        rows.append(Row(f"{label} {name}{hidden} ({group['scenes']} scenes)", cells))
    return tuple(rows)
