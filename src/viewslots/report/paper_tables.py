"""The paper's tables, and which of their rows belong beside a result of ours."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

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
PROPOSED = "Proposed"
COMPARED_WITH = {"ocloc": PROPOSED, "ocloc-per-view": "Baseline", "umbra": PROPOSED}
"""Our methods, and the rows of the paper that they are measured by."""
NUMBERED = {"tab:multi": "Table 1", "tab:single": "Table 2"}


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
    return PaperRow(row.get("method", PROPOSED), scores)


def verdict(ours: Mapping[str, float] | None, paper: Published | None) -> str:
    """`better` or `worse` where our whole interval lies beyond twice the paper's uncertainty; else empty."""
    if ours is None or paper is None:
        return ""
    if ours["low"] > paper.mean + 2 * paper.std:
        return "better"
    return "worse" if ours["high"] < paper.mean - 2 * paper.std else ""
