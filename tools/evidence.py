"""docs/results/evidence.md: every table of the paper, each of its rows above ours; with links to the JSON of each.

python tools/evidence.py
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from viewslots.files import read_json
from viewslots.metrics.score import METRICS
from viewslots.report.rows import DATASETS, NUMBERED, all_tables, search_of

RESULTS = Path(__file__).parents[1] / "docs" / "results"
PAGE = RESULTS / "evidence.md"

SEVERAL, GIVEN = "{split}-m{views}.json", "{split}-given{views}.json"
LATER_SETS = ("clevr-m2", "clevr-m3", "clevr-m4")
UMBRA_QUICK = {
    "umbra-quick": f"multi-view/results/umbra-quick-{{short}}-{SEVERAL}",
    "umbra-quick, 400 scenes": "multi-view/results/umbra-quick-{short}-{split}-large.json",
}
OURS: dict[str, dict[str, str]] = {
    "clevr-m1": {
        "Baseline": f"clevr-m1/results/per-view-{SEVERAL}",
        "MulMON": f"multi-view/results/mulmon-{SEVERAL}",
        "Proposed": f"clevr-m1/results/clevr-m1-{SEVERAL}",
        "k-means": f"clevr-m1/results/kmeans-{SEVERAL}",
        **UMBRA_QUICK,
    },
    **{
        data: {
            "Baseline": f"multi-view/results/per-view-{{short}}-{SEVERAL}",
            "Proposed": f"multi-view/results/ocloc-{{short}}-{SEVERAL}",
            "k-means": f"multi-view/results/kmeans-{{short}}-{SEVERAL}",
            **UMBRA_QUICK,
        }
        for data in LATER_SETS
    },
    **{
        data: {
            "Slot Attn": "single-view/results/slot-attention-{data}-{split}.json",
            "GMIOO": "single-view/results/gmioo-{data}-{split}.json",
            "SPACE": "single-view/results/space-{data}-{split}.json",
            "Proposed": "single-view/results/ocloc-{data}-{split}.json",
            "k-means": "single-view/results/kmeans-{data}-{split}.json",
            "umbra": f"single-view/results/{umbra}-{{data}}-{{split}}{more}.json",
            "umbra, plain": f"single-view/results/{umbra}-{{data}}-{{split}}-plain.json",
        }
        for data, umbra, more in (
            ("dsprites", "umbra-details-lower-kl", ""),
            ("abstract", "umbra-glimpses", "-30-steps"),
            ("clevr", "umbra-glimpses", ""),
        )
    },
}
"""The file of each row by the method's name in the paper, or by ours where the paper has no such row."""
BEFORE = {"dsprites": "15,000 + 8,000 + ", "abstract": "15,000 + 8,000 + ", "clevr": "13,000 + 8,000 + "}
BEFORE_QUICK = "12,000 + 6,000 + 76,000 + 4,000 + 7,000 + "
"""Steps of the stages before the last, of our own methods."""
OCLOC = {"clevr-m1": "clevr-m1/results/clevr-m1", **dict.fromkeys(LATER_SETS, "multi-view/results/ocloc-{short}")}
NEW_VIEWS = {
    data: {"Proposed": f"{ocloc}-{GIVEN}", "umbra-quick": f"multi-view/results/umbra-quick-{{short}}-{GIVEN}"}
    for data, ocloc in OCLOC.items()
}
"""Where the viewpoints of further pictures are estimated; the paper has OCLOC alone there."""
OF_PAPER = "ours"
"""Our row of a method of the paper."""
NAMES = {"Proposed": "OCLOC", "Baseline": "per-view baseline", "Slot Attn": "Slot Attention"}

HEAD = """# The paper's evidence, and ours beside it

Every table of the paper and its supplement. The paper's rows are in italics. Ours are below them, with a link to their
JSON: command, commit, seed, hardware, intervals, both conventions. All scores are pooled, as the published numbers are
([metrics](../evaluation.md#eight-metrics-two-conventions)). Made by `python tools/evidence.py`.

* **Steps** are those of the model that is scored; in brackets how many of a hundred published ones that is. The
  baseline is of compact's size. OCLOC on CLEVR-M3 and M4 goes on from M1 and M2, whose steps are not counted here
  ([several views](multi-view/README.md)).
* **Answers**: plain ones are one pass, five a scene, as in the paper. Searched ones use more computation, and are one a
  scene; how far, the JSON says.
* **umbra** is ours: `umbra-quick`, one set of weights for CLEVR-M1 to M4; one set for each of dSprites, Abstract, CLEVR
  (`umbra-dsprites` and `umbra-clevr` ship). k-means is the floor.
* **Pictures** are our renderer's. The paper's are Blender's, its sprites and its clip art the original ones. Rows are
  of as many scenes as the paper's; with M = 4 `umbra-quick` is also scored on 400 others.
"""


def page() -> str:
    return "\n".join([HEAD, *(line for name, table in all_tables().items() for line in section(name, table))])


def section(name: str, table: Mapping[str, Any]) -> Iterator[str]:
    split = str(table["split"]).lower().replace(" ", "")
    new = table.get("views_new")
    what = f"{new} new views" if new else f"M = {table['views']}"
    yield f"## {NUMBERED.get(name, 'Supplement')}: {table['setting']}, {split}, {what}\n"
    first = "given views" if new else "method"
    yield f"| data | {first} | steps | answers | {' | '.join(METRICS)} |"
    yield "|" + "---|" * (4 + len(METRICS))
    missing: dict[str, list[str]] = {}
    for data, label in DATASETS.items():
        published = [row for row in table["rows"] if row["dataset"] == label]
        for number, row in enumerate(published):
            method, views = row.get("method", "Proposed"), row.get("views_given", table.get("views"))
            shown = str(views) if new else NAMES.get(method, method)
            yield line("" if number else label, f"*{shown}*", "", "", row["scores"])
            row_of_ours = ours(OF_PAPER, (NEW_VIEWS if new else OURS).get(data, {}).get(method), data, split, views)
            if row_of_ours is None:
                missing.setdefault(label, []).append(f"OCLOC from {shown}" if new else shown)
            else:
                yield row_of_ours
            if new:
                yield from beside(NEW_VIEWS[data], [row.get("method", "Proposed")], data, split, views)
        if published and not new:
            yield from beside(OURS[data], [row.get("method") for row in published], data, split, table["views"])
    if missing:
        named = "; ".join(f"{label} ({', '.join(methods)})" for label, methods in missing.items())
        yield f"\nNot trained or not measured here: {named}."
    yield ""


def beside(rows: Mapping[str, str], of_paper: Sequence[str], data: str, split: str, views: int) -> Iterator[str]:
    """Those of our own methods, where they were measured."""
    for method in sorted(rows.keys() - set(of_paper)):
        row = ours(method, rows[method], data, split, views, BEFORE.get(data, BEFORE_QUICK))
        if row is not None:
            yield row


def ours(label: str, pattern: str | None, data: str, split: str, views: int, before: str = "") -> str | None:
    """None if it was not measured. `before`: steps of earlier stages, of a method that the paper does not have."""
    if pattern is None:
        return None
    file = RESULTS / pattern.format(data=data, short=data.removeprefix("clevr-"), split=split, views=views)
    result = read_json(file) if file.is_file() else {}
    if result.get("views") != views:
        return None
    answers = "plain" if search_of(result) is None else "searched"
    link = f"[{label}]({os.path.relpath(file, RESULTS)})"
    return line("", link, steps(result.get("training"), before), answers, result["pooled"])


def steps(training: Mapping[str, Any] | None, before: str) -> str:
    if training is None:
        return "none"
    scored = training.get("scored_step") or training["steps"]
    return f"{before}{scored:,}" if before else f"{scored:,} ({100 * scored / training['preset_steps']:.2g})"


def line(data: str, method: str, steps: str, answers: str, scores: Mapping[str, Any]) -> str:
    return f"| {' | '.join([data, method, steps, answers, *(three_digits(scores.get(name)) for name in METRICS)])} |"


def three_digits(score: Mapping[str, float | None] | None) -> str:
    mean = None if score is None else score["mean"]
    return "–" if mean is None else f"{mean:.3f}".replace("0.", ".", 1)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
