"""Results of ours and the paper's numbers as rows of tables, and which of them belong side by side."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from viewslots.methods.contract import searched_in_words
from viewslots.methods.names import entry
from viewslots.metrics.score import METRICS
from viewslots.report.pages import Cell, Row

Result = Mapping[str, Any]
MISSING = Cell("N/A")

DATASETS = {
    "clevr-m1": "CLEVR-M1",
    "clevr-m2": "CLEVR-M2",
    "clevr-m3": "CLEVR-M3",
    "clevr-m4": "CLEVR-M4",
    "dsprites": "dSprites",
    "abstract": "Abstract",
    "clevr": "CLEVR",
}
"""Data presets by the paper's names, in its order."""
SPLITS = {"test1": "Test 1", "test2": "Test 2", "test1-large": "Test 1", "test2-large": "Test 2"}
NUMBERED = {"tab:multi": "Table 1", "tab:single": "Table 2"}

EXTRAS = {
    "fg_ari": ("FG-ARI, all views of a scene as one", 3),
    "mbo": ("mBO of instances, all views as one", 3),
    "miou": ("mIoU by Hungarian matching, all views as one", 3),
    "picture_fg_ari": ("FG-ARI, each picture alone", 3),
    "picture_mbo": ("mBO of instances, each picture alone", 3),
    "picture_miou": ("mIoU by Hungarian matching, each picture alone", 3),
    "ari_a_without_shadows": ("ARI-A without the shadow pixels", 3),
    "shadow_claimed": ("share of the true shadow that objects claim", 3),
    "identity": ("identity over views: objects that keep their slot", 3),
    "pairs_found": ("overlapping pairs of which both objects were found", 3),
    "order_of_found": ("order of the pairs of which both were found", 3),
    "mse": ("reconstruction, mean squared error", 5),
    "psnr": ("reconstruction, PSNR in dB", 2),
    "ssim": ("reconstruction, SSIM", 3),
    "lpips": ("reconstruction, LPIPS", 3),
    "novel_view_psnr": ("held-out views, PSNR in dB", 2),
    "novel_view_ssim": ("held-out views, SSIM", 3),
    "novel_view_lpips": ("held-out views, LPIPS", 3),
    "novel_view_ari": ("held-out views, ARI of all pixels (NV-ARI)", 3),
    "novel_view_fg_ari": ("held-out views, FG-ARI (NV-FG-ARI)", 3),
    "camera_linear_position": ("camera position from view codes, R2, linear probe", 3),
    "camera_linear_azimuth": ("azimuth, R2, linear probe", 3),
    "camera_linear_distance": ("distance, R2, linear probe", 3),
    "camera_linear_elevation": ("elevation, R2, linear probe", 3),
    "camera_kernel_position": ("camera position, R2, kernel probe", 3),
    "camera_kernel_azimuth": ("azimuth, R2, kernel probe", 3),
    "camera_kernel_distance": ("distance, R2, kernel probe", 3),
    "camera_kernel_elevation": ("elevation, R2, kernel probe", 3),
    "probe_found": ("share of the seen objects that have a slot", 3),
    "probe_baseline_color": ("colour from object codes, without codes (the most frequent, or the mean)", 3),
    "probe_linear_color": ("colour from object codes, linear probe", 3),
    "probe_mlp_color": ("colour from object codes, MLP probe", 3),
    "probe_baseline_shape": ("shape from object codes, without codes (the most frequent, or the mean)", 3),
    "probe_linear_shape": ("shape from object codes, linear probe", 3),
    "probe_mlp_shape": ("shape from object codes, MLP probe", 3),
    "probe_baseline_size": ("size from object codes, without codes (the most frequent, or the mean)", 3),
    "probe_linear_size": ("size from object codes, linear probe", 3),
    "probe_mlp_size": ("size from object codes, MLP probe", 3),
    "probe_baseline_material": ("material from object codes, without codes (the most frequent, or the mean)", 3),
    "probe_linear_material": ("material from object codes, linear probe", 3),
    "probe_mlp_material": ("material from object codes, MLP probe", 3),
}
"""What a reader is told of each extra, and its digits."""


@dataclass(frozen=True)
class Published:
    """A number of the paper."""

    mean: float
    std: float


@dataclass(frozen=True)
class PaperRow:
    method: str
    scores: Mapping[str, Published | None]


@dataclass(frozen=True)
class PaperTable:
    """The part of a table that is about one data set (and, in viewpoint estimation, one number of given views)."""

    name: str
    slots: int
    rows: tuple[PaperRow, ...]

    def row(self, method: str) -> PaperRow | None:
        return next((row for row in self.rows if row.method == method), None)

    def row_beside(self, method: str) -> PaperRow | None:
        """What a method of ours is measured by: the row that the registry says, or that of the same name."""
        wanted = (entry(method).paper_row or method).lower()
        return next((row for row in self.rows if row.method.lower() == wanted), None)


@cache
def all_tables() -> dict[str, Any]:
    tables: dict[str, Any] = json.loads((files("viewslots") / "paper" / "tables.json").read_text(encoding="utf-8"))
    return tables


def find_table(dataset: str | None, split: str, views: int, new_views: int | None = None) -> PaperTable | None:
    """The paper's rows for a data preset, a split and a number of views, if it has any."""
    name = DATASETS.get(dataset or "")
    for key, table in all_tables().items():
        if table["split"] == SPLITS.get(split) and table.get("views_new") == new_views:
            found = [row for row in table["rows"] if row["dataset"] == name]
            found = [row for row in found if row.get("views_given", table.get("views")) == views]
            if found:
                slots = table["K"] if isinstance(table["K"], int) else table["K"][name]
                return PaperTable(NUMBERED.get(key, "supplement"), slots, tuple(map(_row, found)))
    return None


def _row(row: Mapping[str, Any]) -> PaperRow:
    scores = {name: None if value is None else Published(**value) for name, value in row["scores"].items()}
    return PaperRow(row.get("method", "Proposed"), scores)  # tables of one method do not name it


FEWEST_SCENES = 20
"""Of a result whose differences are marked: the bootstrap of three scenes that agree has no width."""


def verdict(ours: Mapping[str, Any] | None, paper: Published | None) -> str:
    """`better` or `worse` where our whole interval lies beyond twice the paper's uncertainty; else empty."""
    if ours is None or paper is None or ours["low"] is None:
        return ""
    if ours["low"] > paper.mean + 2 * paper.std:
        return "better"
    return "worse" if ours["high"] < paper.mean - 2 * paper.std else ""


def title(result: Result) -> str:
    """What tells one row of ours from another."""
    if not entry(result["method"]).learns:
        name, details = "floor: k-means on colours and places", []
        if result.get("run") != result["method"]:
            details.append(str(result.get("run")))
    else:
        run = [] if is_tuned(result) else [str(result.get("run"))]
        name, details = f"ours: {', '.join(kind(result))}", [*run, answers_in_words(result)]
    if sizes := resized(result):
        details.append(f"resized to {'x'.join(map(str, sizes[1]))}")
    if result["split"].endswith("-large"):
        details.append(f"{result['split']}, {scenes_in_words(result['scenes'])}")
    return f"{name} ({', '.join(details)})" if details else name


def resized(result: Result) -> tuple[Sequence[int], Sequence[int]] | None:
    """Height and width of the pictures as stored and as the model took them, where the two differ."""
    stored, taken = result["data"].get("image_size"), result.get("image_size")
    return (stored, taken) if stored and taken and stored != taken else None


def is_tuned(result: Result) -> bool:
    """Whether a trained model was fine-tuned: its experiment then says little of it, and its run has the name."""
    return (result.get("training") or {}).get("tuned") is True


def kind(result: Result) -> list[str]:
    """Method and preset. Presets are short names (`compact`) or METHOD/DATA (`ocloc-compact/clevr-m1`). Of a fine-tuned
    model the run, and where it comes from."""
    method, preset = result["method"], result.get("preset") or "unknown preset"
    words = [entry(method).title or method]
    if is_tuned(result):
        return [str(result.get("run")), f"{words[0]} fine-tuned from {result['training'].get('init')}"]
    variant, _, data = preset.rpartition("/")
    if variant == method or variant.startswith(f"{method}-"):
        words += [variant.removeprefix(method).removeprefix("-"), data]
    elif preset != method:
        words.append(preset)
    return [word for word in words if word]


def search_of(result: Result) -> Mapping[str, Any] | None:
    """How far answers were searched for, under its present or its older name; None: plain answers."""
    found: Mapping[str, Any] | None = result.get("search", result.get("care"))
    return found


def answers_in_words(result: Result) -> str:
    search = search_of(result)
    return "plain answers" if search is None else searched_in_words(search)


def our_row(result: Result, kind: str) -> Row:
    answers = len(result["repeats"])
    cells = tuple(our_cell(result[kind].get(name), answers) for name in METRICS)
    return Row(title(result), cells, "ours" if entry(result["method"]).learns else "floor")


def our_cell(estimate: Mapping[str, Any] | None, answers: int, digits: int = 3) -> Cell:
    """A single answer has no spread."""
    if estimate is None:
        return MISSING
    mean, std, low, high = (
        "N/A" if estimate[name] is None else f"{estimate[name]:z.{digits}f}" for name in ("mean", "std", "low", "high")
    )
    spread = (f"± {std}",) if answers > 1 else ()
    return Cell(mean, (*spread, f"({low} to {high})" if low != "N/A" else "(interval N/A)"))


def paper_row(row: PaperRow) -> Row:
    return Row(f"paper: {row.method}", tuple(paper_cell(row.scores.get(name)) for name in METRICS), "paper")


def paper_cell(published: Published | None) -> Cell:
    return MISSING if published is None else Cell(f"{published.mean:.3f}", (f"± {published.std:g}",))


def difference_row(result: Result, row: PaperRow) -> Row:
    """Ours minus the paper's row of the same method, in the convention of the published numbers."""
    marks = result["scenes"] >= FEWEST_SCENES
    cells = tuple(difference_cell(result["pooled"].get(name), row.scores.get(name), marks) for name in METRICS)
    return Row(f"difference to the paper's {row.method}", cells, "difference")


def difference_cell(ours: Mapping[str, float] | None, paper: Published | None, marks: bool = True) -> Cell:
    if ours is None or paper is None:
        return MISSING
    return Cell(f"{ours['mean'] - paper.mean:+z.3f}", mark=verdict(ours, paper) if marks else "")


TRAINING = ("data", "seed", "steps", "of the preset's", "scored step", "minutes", "parameters")


def training_row(result: Result) -> Row | None:
    """What its training took, under the names of TRAINING; None where there is none on record."""
    training = result.get("training") or {}
    steps, published, seconds = (training.get(key) for key in ("steps", "preset_steps", "seconds"))
    if steps is None:
        return None
    words = (
        training.get("data"),
        training.get("seed"),
        f"{steps:,}" + (f" after {training['init_steps']:,}" if training.get("init_steps") else ""),
        f"{steps / published:.1%}" if published else None,
        f"{training['scored_step']:,}" if training.get("scored_step") is not None else None,
        _minutes(seconds, training.get("init_seconds")),
        f"{result['parameters'] / 1e6:.1f} M" if result.get("parameters") else None,
    )
    cells = tuple(MISSING if word is None else Cell(str(word)) for word in words)
    name = ", ".join(kind(result))
    return Row(name if is_tuned(result) else f"{name} ({result.get('run')})", cells, "ours")


def _minutes(seconds: float | None, before: float | None) -> str | None:
    """Of a training, and of the stages before it."""
    if seconds is None:
        return None
    return f"{seconds / 60:.1f}" + (f" after {before / 60:.1f}" if before else "")


def extra_rows(results: Sequence[Result]) -> tuple[Row, ...]:
    """One row an extra that any of the results has, one column a result."""
    known = {name: words for name, words in EXTRAS.items() if any(result["extras"].get(name) for result in results)}
    return tuple(
        Row(words, tuple(our_cell(result["extras"].get(name), len(result["repeats"]), digits) for result in results))
        for name, (words, digits) in known.items()
    )


def scenes_in_words(count: int) -> str:
    return f"{count} scene{'s' * (count != 1)}"


def group_rows(groups: Mapping[str, Any], label: str) -> tuple[Row, ...]:
    """Means of parts of the test set, in the convention of the published numbers."""
    rows = []
    for name, group in groups.items():
        shares = group.get("hidden")
        hidden = "" if shares is None else f", {shares[0]:.1%} to {shares[1]:.1%} hidden"
        values = (group["pooled"].get(metric) for metric in METRICS)
        cells = tuple(MISSING if value is None else Cell(f"{value:z.3f}") for value in values)
        rows.append(Row(f"{label} {name}{hidden} ({scenes_in_words(group['scenes'])})", cells))
    return tuple(rows)
