"""The report, read back by parsers: the paper's numbers, ours, the differences between them, and no false claims."""

import copy
import json
import os
import re
import sys
import time
from dataclasses import fields
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from viewslots.cli import main
from viewslots.commands.evaluation import report as report_command
from viewslots.errors import UserError
from viewslots.methods.contract import Search
from viewslots.metrics.score import METRICS
from viewslots.protocol.results import find_results
from viewslots.report.pages import Cell, Heading, Row, Table, Text, markdown, page
from viewslots.report.report import distinguished, report_blocks, write_report
from viewslots.report.rows import (
    PaperRow,
    Published,
    difference_cell,
    difference_row,
    find_table,
    group_rows,
    our_cell,
    title,
    verdict,
)

DEEP: list[Any] = []
for _ in range(900):
    DEEP = [DEEP]


def estimate(mean: float, reach: float = 0.01) -> dict[str, float]:
    return {"mean": mean, "std": 0.002, "low": mean - reach, "high": mean + reach}


def made(**changes: Any) -> dict[str, Any]:
    """A result of a made-up run; `scores` sets pooled metrics."""
    scores = {name: estimate(0.5) for name in METRICS} | changes.pop("scores", {})
    group = {"scenes": 40, "paper": {}, "pooled": {name: 0.25 for name in METRICS}, "extras": {}}
    result = {
        "format": "viewslots results",
        "format_version": 1,
        "task": "decomposition",
        "run": "first",
        "method": "ocloc",
        "preset": "compact",
        "parameters": 3_900_000,
        "training": {"steps": 15_000, "preset_steps": 150_000, "seed": 4, "data": "clevr-m1", "live": True},
        "split": "test1",
        "scenes": 100,
        "views": 4,
        "new_views": None,
        "slots": 7,
        "data": {"preset": "clevr-m1", "source": None, "name": "data", "sha256": "abcdef0123456789"},
        "paper": {name: estimate(0.6) for name in METRICS},
        "pooled": scores,
        "extras": {"identity": estimate(0.9), "psnr": estimate(30.0), "shadow_claimed": None},
        "repeats": [{}, {}, {}],
        "by_objects": {"3": copy.deepcopy(group)},
        "by_occlusion": {"least": {**copy.deepcopy(group), "hidden": [0.0, 0.125]}},
        "provenance": {"commit": "0123456789ab"},
    }
    return result | changes


class Reader(HTMLParser):
    """Headings and tables of a page, as text; all tags and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.sections: dict[str, list[list[list[str]]]] = {}
        self.heading = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)
        if tag in ("h1", "h2", "h3"):
            self.heading = ""
        elif tag == "table":
            self.sections.setdefault(self.heading, []).append([])
        elif tag == "tr":
            self.sections[self.heading][-1].append([])
        elif tag in ("th", "td"):
            self.sections[self.heading][-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("h1", "h2", "h3"):
            self.heading += data
        elif "td" in self.open or "th" in self.open:
            cells = self.sections[self.heading][-1][-1]
            cells[-1] = f"{cells[-1]} {data}".strip()


def written(tmp_path: Path, *results: dict[str, Any]) -> tuple[str, str]:
    for index, result in enumerate(results):
        (tmp_path / f"results-{index}.json").write_text(json.dumps(result))
    paths = write_report([tmp_path], tmp_path / "report")
    assert [path.name for path in paths] == ["report.md", "report.html"]
    return paths[0].read_text(), paths[1].read_text()


def rows_of(table: list[list[str]]) -> dict[str, dict[str, str]]:
    return {row[0]: dict(zip(table[0][1:], row[1:], strict=True)) for row in table[1:]}


def test_our_row_stands_beside_the_papers(tmp_path: Path) -> None:
    """CLEVR-M1, M = 4: the paper's Proposed has ARI-O .948 +- .003, ARI-A .507 +- .002, OOA .970 +- .01."""
    scores = {"ARI-O": estimate(0.980), "ARI-A": estimate(0.4), "OOA": estimate(0.96, 0.03), "IoU": None}
    _, html = written(tmp_path, made(scores=scores))
    table = rows_of(Reader(html).sections["CLEVR-M1, Test 1, M = 4"][0])
    assert table["paper: Proposed"]["ARI-O"] == "0.948 ± 0.003"
    assert table["paper: Baseline"]["ARI-O"] == "0.269 ± 0.01"
    assert table["paper: MulMON"]["IoU"] == "N/A"
    ours = table["ours: OCLOC, compact (first, plain answers)"]
    assert ours["ARI-O"] == "0.980 ± 0.002 (0.970 to 0.990)"
    assert ours["IoU"] == "N/A"
    difference = table["difference to the paper's Proposed"]
    assert difference["ARI-O"] == "▲ +0.032"
    assert difference["ARI-A"] == "▼ -0.107"
    assert difference["OOA"] == "-0.010"
    assert difference["IoU"] == "N/A"


def test_the_formulas_convention_comes_second(tmp_path: Path) -> None:
    _, html = written(tmp_path, made())
    tables = Reader(html).sections["CLEVR-M1, Test 1, M = 4"]
    assert rows_of(tables[1]) == {
        "ours: OCLOC, compact (first, plain answers)": dict.fromkeys(METRICS, "0.600 ± 0.002 (0.590 to 0.610)")
    }


def test_extras_and_parts_of_the_test_set(tmp_path: Path) -> None:
    _, html = written(tmp_path, made(), made(run="second", extras={}))
    tables = Reader(html).sections["CLEVR-M1, Test 1, M = 4"]
    extras = rows_of(tables[2])
    assert set(extras) == {"identity over views: objects that keep their slot", "reconstruction, PSNR in dB"}
    psnr = extras["reconstruction, PSNR in dB"]
    assert psnr["ours: OCLOC, compact (first, plain answers)"] == "30.00 ± 0.00 (29.99 to 30.01)"
    assert psnr["ours: OCLOC, compact (second, plain answers)"] == "N/A"
    parts = rows_of(tables[3])
    assert parts["objects: 3 (40 scenes)"]["F1"] == "0.250"
    assert "occlusion: least, 0.0% to 12.5% hidden (40 scenes)" in parts


def test_the_baseline_and_the_floor(tmp_path: Path) -> None:
    floor = made(method="kmeans", run="kmeans", preset=None, training=None, parameters=None)
    _, html = written(tmp_path, floor, made(method="ocloc-per-view", run="views", scores={"ARI-O": estimate(0.298)}))
    table = rows_of(Reader(html).sections["CLEVR-M1, Test 1, M = 4"][0])
    assert list(table) == [
        "paper: Baseline",
        "ours: per-view baseline, compact (views, plain answers)",
        "difference to the paper's Baseline",
        "paper: MulMON",
        "paper: Proposed",
        "floor: k-means on colours and places",
    ]
    assert table["difference to the paper's Baseline"]["ARI-O"] == "+0.029"  # .288 is not above .269 + .02


def test_a_single_view_table_of_several_methods(tmp_path: Path) -> None:
    """dSprites, Test 2 (supplement, K = 9): ours below the paper's row of the same method, N/A for no answer."""
    common: dict[str, Any] = {"split": "test2", "views": 1, "slots": 9, "data": made()["data"] | {"preset": "dsprites"}}
    training = {"steps": 5_000, "preset_steps": 500_000, "seed": 0, "data": "dsprites", "live": False}
    training |= {"scored_step": 4_500, "seconds": 90.0}
    unable: dict[str, Any] = dict.fromkeys(("IoU", "F1", "OOA"))
    results = [
        made(method=method, preset=f"{method}/dsprites", run=f"{method}-0", training=training, **common)
        for method in ("ocloc", "umbra", "gmioo")
    ]
    first = {"init": "ocloc-compact-dsprites-0", "init_steps": 12_000, "init_seconds": 600}
    results[1] |= {"training": training | first}
    slots = made(method="slot-attention", preset="slot-attention/dsprites", run="sa-0", scores=unable, **common)
    floor = made(method="kmeans", run="kmeans", preset=None, training=None, **common)
    text, html = written(tmp_path, floor, *results, slots | {"paper": slots["paper"] | unable, "training": training})
    tables = Reader(html).sections["dSprites, Test 2, M = 1"]
    table = rows_of(tables[0])
    starts = ["paper: Slot", "ours: slot", "diff", "paper: GMIOO", "ours: GMIOO", "diff", "paper: SPACE"]
    starts += ["paper: Proposed", "ours: OCLOC", "difference", "ours: umbra", "diff", "floor"]
    names = [row[0] for row in tables[0][1:]]
    assert len(names) == len(starts)
    assert all(name.startswith(start) for name, start in zip(names, starts, strict=True))
    assert table["paper: Slot Attn"]["IoU"] == table["difference to the paper's Slot Attn"]["IoU"] == "N/A"
    assert table["paper: GMIOO"]["OCA"] == "0.558 ± 0.008"
    assert table["difference to the paper's GMIOO"]["OCA"] == "▼ -0.058"
    appendix = rows_of(tables[1])
    assert len(appendix) == 5
    assert appendix["ours: slot-attention, dsprites (sa-0, plain answers)"]["OOA"] == "N/A"
    runs = rows_of(Reader(html).sections["Trainings"][0])
    assert len(runs) == 4
    assert runs["OCLOC, dsprites (ocloc-0)"] == {
        "data": "dsprites",
        "seed": "0",
        "steps": "5,000",
        "of the preset's": "1.0%",
        "scored step": "4,500",
        "minutes": "1.5",
        "parameters": "3.9 M",
    }
    umbra = runs["umbra, dsprites (umbra-0)"]
    assert (umbra["steps"], umbra["minutes"]) == ("5,000 after 12,000", "1.5 after 10.0")
    assert "5,000 steps of the preset's 500,000 (1%) in 1.5 minutes on scenes of dsprites" in text
    assert "training seed 0, starting from ocloc-compact-dsprites-0 after 12,000 steps." in text


def test_sections_follow_the_paper(tmp_path: Path) -> None:
    results = [
        made(data=made()["data"] | {"preset": "dsprites"}, views=1, slots=6),
        made(split="test2", views=2, slots=11),
        made(task="viewpoint estimation", views=1, new_views=4),
        made(data=made()["data"] | {"preset": None, "source": "blender.h5"}),
        made(data=made()["data"] | {"preset": None, "source": "dsprites"}, views=1),
        made(),
        made(views=1),
        made(split="test1-large", scenes=1000, run="first"),
    ]
    text, html = written(tmp_path, *results)
    headings = [heading for heading in Reader(html).sections if "Test" in heading]
    assert headings == [
        "CLEVR-M1, Test 1, M = 1",
        "CLEVR-M1, Test 1, M = 4",
        "CLEVR-M1, Test 2, M = 2",
        "CLEVR-M1, Test 1, viewpoint estimation, 1 given and 4 new views",
        "dSprites, Test 1, M = 1",
        "blender.h5 (imported), Test 1, M = 4",
        "dsprites (imported), Test 1, M = 1",
    ]
    sections = Reader(html).sections
    assert "paper: SPACE" in rows_of(sections[headings[4]][0])
    assert rows_of(sections[headings[3]][0])["paper: Proposed"]["ARI-O"] == "0.916 ± 0.004"
    assert "ours: OCLOC, compact (first, plain answers, test1-large, 1000 scenes)" in rows_of(sections[headings[1]][0])
    for heading in headings[5:]:  # a folder may be called anything
        assert not any(name.startswith("paper") for name in rows_of(sections[heading][0]))
    assert "## blender.h5 (imported), Test 1, M = 4\n\nThe paper has no table for this." in text


def test_overview_over_views(tmp_path: Path) -> None:
    """Paper, ARI-O of Proposed at M = 1 and 4."""
    floor = made(method="kmeans", run="kmeans", preset=None, training=None)
    _, html = written(tmp_path, made(views=1), made(), floor)
    table = rows_of(Reader(html).sections["ARI-O by number of views (pooled)"][0])
    expected = {f"M = {m}": find_table("clevr-m1", "test1", m).row("Proposed").scores["ARI-O"] for m in (1, 4)}
    assert table["paper: Proposed"] == {name: f"{one.mean:.3f} ± {one.std:g}" for name, one in expected.items()}
    assert table["ours: OCLOC, compact (first, plain answers)"]["M = 1"].startswith("0.500")
    assert table["floor: k-means on colours and places"]["M = 1"] == "N/A"


def test_searched_answers_have_rows_of_their_own(tmp_path: Path) -> None:
    searched = made(search={"starts": 4, "looks": 0, "refinement": 0}, scores={"OCA": estimate(0.75)})
    text, html = written(tmp_path, made(search=None), searched)
    rows = [row for tables in Reader(html).sections.values() for table in tables for row in table]
    assert "Searched answers do not" in text
    ours = {row[0]: row for row in rows if row and row[0].startswith("ours: OCLOC, compact (first")}
    assert set(ours) == {
        "ours: OCLOC, compact (first, plain answers)",
        "ours: OCLOC, compact (first, searched with 4 starts)",
    }


SEARCHES = [
    ({"starts": 1, "looks": 0, "refinement": 0}, "searched with 1 start"),
    ({"starts": 4, "looks": 2, "refinement": 30}, "searched with 4 starts, 2 further looks and 30 gradient steps"),
    ({"starts": 2, "looks": 1, "refinement": 0}, "searched with 2 starts and 1 further look"),
    ({"starts": 2, "looks": 1, "spare": 4}, "searched with 2 starts, 4 spare slots and 1 further look"),
    ({"starts": 1, "looks": 0, "refinement": 1}, "searched with 1 start and 1 gradient step"),
    ({"starts": 4}, "searched with 4 starts"),
]


def test_answers_in_words() -> None:
    """Files of today say `search`; older ones say `care`, or nothing where answers were plain."""
    for result in (made(), made(search=None), made(care=None)):
        assert title(result) == "ours: OCLOC, compact (first, plain answers)"
    for search, words in SEARCHES:
        for key in ("search", "care"):
            assert title(made(**{key: search})) == f"ours: OCLOC, compact (first, {words})"


@pytest.mark.parametrize("key", ["search", "care"])
@pytest.mark.parametrize("search", [search for search, _ in SEARCHES])
def test_searched_rows_are_explained(tmp_path: Path, search: dict[str, Any], key: str) -> None:
    text, _ = written(tmp_path, made(**{key: search}), made(run="other"))
    assert "Searched answers do not" in text


def test_where_nothing_was_searched_no_search_is_explained(tmp_path: Path) -> None:
    text, _ = written(tmp_path, made(run="a"), made(run="b", search=None), made(run="c", care=None))
    assert "earched" not in text


@pytest.mark.parametrize(
    ("method", "preset", "name"),
    [
        ("ocloc", "compact", "OCLOC, compact"),
        ("ocloc", "clevr-m1", "OCLOC, clevr-m1"),
        ("ocloc", "ocloc/clevr-m1", "OCLOC, clevr-m1"),
        ("ocloc", "ocloc-compact/clevr-m1", "OCLOC, compact, clevr-m1"),
        ("umbra", "umbra", "umbra"),
        ("umbra", "umbra/clevr-m1", "umbra, clevr-m1"),
        ("per-view", "per-view-compact/clevr-m1", "per-view baseline, compact, clevr-m1"),
        ("ocloc-per-view", "compact", "per-view baseline, compact"),
        ("slot-attention", "slot-attention/clevr", "slot-attention, clevr"),
        ("anything-new", "anything-new/toys", "anything-new, toys"),
        ("ocloc", None, "OCLOC, unknown preset"),
        ("ocloc", "someone/else", "OCLOC, someone/else"),
    ],
)
def test_names_of_old_and_new_presets(method: str, preset: str | None, name: str) -> None:
    assert title(made(method=method, preset=preset)) == f"ours: {name} (first, plain answers)"


@pytest.mark.parametrize(
    ("method", "beside"),
    [
        ("ocloc", "Proposed"),
        ("umbra", "Proposed"),
        ("per-view", "Baseline"),
        ("ocloc-per-view", "Baseline"),
        ("mulmon", "MulMON"),
        ("kmeans", None),
        ("slot-attention", None),  # has no row among the multi-view tables
    ],
)
def test_which_row_of_the_paper_a_method_stands_beside(method: str, beside: str | None) -> None:
    row = find_table("clevr-m1", "test1", 4).row_beside(method)
    assert (row and row.method) == beside


def test_single_view_methods_stand_beside_theirs() -> None:
    table = find_table("clevr", "test1", 1)
    found = [table.row_beside(method).method for method in ("slot-attention", "gmioo", "space", "ocloc")]
    assert found == ["Slot Attn", "GMIOO", "SPACE", "Proposed"]


@pytest.mark.parametrize(
    ("method", "preset", "words"),
    [
        ("ocloc", "clevr-m1", None),
        ("ocloc", "ocloc/clevr-m1", None),
        ("per-view", "per-view/clevr-m1", None),
        ("ocloc", "ocloc-compact/clevr-m1", "not the paper's network (3.9 M parameters)"),
        ("umbra", "umbra/clevr-m1", "not the paper's network (3.9 M parameters)"),
        ("slot-attention", "slot-attention/clevr", "our own code of this method (3.9 M parameters)"),
    ],
)
def test_whose_network_it_is(tmp_path: Path, method: str, preset: str, words: str | None) -> None:
    text, _ = written(tmp_path, made(method=method, preset=preset))
    assert ("M parameters" in text) == (words is not None)
    assert words is None or words in text


def test_the_scored_step_is_told_where_it_is_not_the_last(tmp_path: Path) -> None:
    training = {"steps": 16_000, "preset_steps": 16_000, "seed": 0, "data": "clevr-m1", "live": False}
    text, _ = written(tmp_path, made(training=training | {"scored_step": 12_000}))
    assert "the model that is scored is that of step 12,000 of 16,000" in text
    for step in (16_000, None):
        text, _ = written(tmp_path, made(training=training | {"scored_step": step}))
        assert "model that is scored" not in text


def test_resized_pictures_are_told(tmp_path: Path) -> None:
    data = made()["data"] | {"image_size": [128, 128]}
    text, _ = written(tmp_path, made(data=data, image_size=[64, 64]))
    assert "pictures and truth of 128 x 128 pixels were resized to the 64 x 64" in text
    text, _ = written(tmp_path, made(data=data, image_size=[64, 96]))
    assert "pictures and truth of 128 x 128 pixels were cut in the middle and resized to the 64 x 96" in text
    text, _ = written(tmp_path, made(data=data, image_size=[128, 128]))
    assert "resized" not in text


def test_missing_truth_is_told(tmp_path: Path) -> None:
    scores = dict.fromkeys(("IoU", "F1", "OOA", "ARI-O", "AMI-O"))
    bare = made(missing={"shapes": ["IoU", "F1"]}, scores=scores, by_occlusion={}, by_objects={})
    text, html = written(tmp_path, bare)
    assert "the data set does not tell shapes, so there is no IoU, F1." in text
    assert "Parts of the test set" not in text
    table = rows_of(Reader(html).sections["CLEVR-M1, Test 1, M = 4"][0])
    assert table["ours: OCLOC, compact (first, plain answers)"]["IoU"] == "N/A"


def test_settings_that_are_not_the_presets_are_told(tmp_path: Path) -> None:
    for changed, told, network in (
        ({}, None, True),
        ({"optimisation.batch_size": [2, 64]}, "optimisation.batch_size 2 (not 64).", True),
        ({"model.start.log_sigma": [-3.0, 0.0]}, "model.start.log_sigma -3.0 (not 0.0).", True),
        ({"model.slots": [9, 7]}, "model.slots 9 (not 7).", True),
        ({"model.hidden": [8, 512], "schedule.x": [1, 2]}, "model.hidden 8 (not 512), schedule.x 1 (not 2).", False),
        ({f"schedule.x{i}": [1, 2] for i in range(10)}, "schedule.x7 1 (not 2) and 2 more.", True),
    ):
        text, _ = written(tmp_path, made(preset="clevr-m1", training=made()["training"] | {"changed": changed}))
        assert ("not as in the preset" in text) is (told is not None)
        assert told is None or told in text.replace("\\_", "_")
        assert ("not the paper's network" in text) is not network


def test_an_order_of_what_was_not_found_is_told(tmp_path: Path) -> None:
    for share, told in ((0.49, True), (0.51, False)):
        extras = made()["extras"] | {"pairs_found": {"mean": share, "std": 0.0, "low": share, "high": share}}
        text, _ = written(tmp_path, made(extras=extras))
        assert ("of the pairs of overlapping objects 49% have both found" in text) is told


def test_committed_results_can_be_reported(tmp_path: Path) -> None:
    """Those of all times; none keeps a key that nobody reads."""
    results = Path(__file__).parents[2] / "docs" / "results"
    found = find_results([folder for folder in sorted(results.rglob("*")) if any(folder.glob("*-m4.json"))])
    assert len(found) > 50
    assert len(list(report_blocks([result for _, result in found]))) > 10
    for _, result in found:
        assert set(result.get("search", result.get("care")) or {}) <= {field.name for field in fields(Search)}


def test_results_of_one_run_stay_apart(tmp_path: Path) -> None:
    """One run with other slots, or evaluated again: every result has a row of its own, in the overview too."""
    results = [made(), made(slots=5), made(views=1), made(run="twin"), made(run="twin")]
    _, html = written(tmp_path, *results, made(method="kmeans", run="kmeans", preset=None, slots=3))
    sections = Reader(html).sections
    four, one = (list(rows_of(sections[f"CLEVR-M1, Test 1, M = {count}"][1])) for count in (4, 1))
    assert four == [
        "ours: OCLOC, compact (first, K = 5, plain answers)",
        "ours: OCLOC, compact (first, K = 7, plain answers)",
        "ours: OCLOC, compact (twin, no. 1, plain answers)",
        "ours: OCLOC, compact (twin, no. 2, plain answers)",
        "floor: k-means on colours and places",
    ]
    assert one == ["ours: OCLOC, compact (first, K = 7, plain answers)"]
    overview = [name for name in rows_of(sections["ARI-O by number of views (pooled)"][0]) if "paper" not in name]
    assert sorted(overview) == sorted(four)


def test_a_floor_on_the_large_split_says_so(tmp_path: Path) -> None:
    floor = made(method="kmeans", run="kmeans", preset=None)
    text, _ = written(tmp_path, floor, floor | {"split": "test1-large", "scenes": 1000})
    assert "| floor: k-means on colours and places |" in text
    assert "| floor: k-means on colours and places (test1-large, 1000 scenes) |" in text


def test_a_missing_floor_is_not_described_but_asked_for(tmp_path: Path) -> None:
    text, _ = written(tmp_path, made())
    assert "The floor is" not in text
    assert "There is no floor in these tables" in text


def test_the_report_is_honest(tmp_path: Path) -> None:
    lost = made(training=None, run="lost", seed=3)
    lost["provenance"] = {"commit": "0123456789ab", "command": "viewslots evaluate lost", "gpu": None, "cpu": "a chip"}
    text, html = written(tmp_path, made(slots=5, scenes=20), lost)
    for words in (
        "our ray tracer, not Blender",
        "trained for 15,000 steps of the preset's 150,000 (10%) on scenes of clevr-m1 rendered while training, "
        "training seed 4",
        "not the paper's network (3.9 M parameters)",
        "evaluated with K = 5; the paper's K is 7",
        "20 test scenes; the paper has 100",
        "how long it was trained is not on record",
        "over 3 stochastic answers",
        "one training run",
        "made by viewslots evaluate lost (commit 0123456789ab, seed 3, a chip)",
        "not in the marks",
    ):
        assert words in html.replace("&#39;", "'")
        assert words in text


def test_the_page_needs_nothing_and_fits_a_phone(tmp_path: Path) -> None:
    _, html = written(tmp_path, made())
    reader = Reader(html)
    assert not {tag for tag, _ in reader.tags} & {"script", "link", "img", "iframe"}
    assert not any({"src", "href", "onclick"} & set(attributes) for _, attributes in reader.tags)
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in reader.tags
    assert "prefers-color-scheme: dark" in html
    assert "overflow-x: auto" in html
    assert "http" not in html


def test_foreign_names_stay_names(tmp_path: Path) -> None:
    odd = "<script>alert(1)</script> | *x* [a](b) \n# y"
    text, html = written(tmp_path, made(run=odd, preset=odd))
    assert not {tag for tag, _ in Reader(html).tags} & {"script"}
    assert "<script" not in text
    tables = [block for block in text.split("\n\n") if block.startswith("| ")]
    for table in tables:
        widths = {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}
        assert len(widths) == 1


def test_markdown_and_page_say_the_same(tmp_path: Path) -> None:
    blocks = [
        Heading("A"),
        Text("b < c"),
        Table(("", "x"), (Row("r", (Cell("1", ("± 2", "(3)"), "better"),)),), "caption"),
    ]
    text, html = markdown("T", blocks), page("T", blocks)
    assert text == "# T\n\n## A\n\nb &lt; c\n\ncaption\n\n|  | x |\n|---|---|\n| r | ▲ 1 ± 2 (3) |\n"
    assert '<td class="better">▲ 1<small>± 2</small><small>(3)</small></td>' in html
    assert "b &lt; c" in html
    assert len(list(report_blocks([made()]))) > 5


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.531, 0.6, "better"), (0.529, 0.6, ""), (0.3, 0.469, "worse"), (0.3, 0.471, ""), (0.4, 0.6, "")],
)
def test_marks_need_both_uncertainties(low: float, high: float, expected: str) -> None:
    """The paper's .50 +- .015: beyond .53 or below .47."""
    ours = {"mean": (low + high) / 2, "std": 0.0, "low": low, "high": high}
    assert verdict(ours, Published(0.5, 0.015)) == expected
    assert verdict(None, Published(0.5, 0.015)) == verdict(ours, None) == ""


def test_every_table_of_the_paper_is_found() -> None:
    multi, single = ("clevr-m1", "clevr-m2", "clevr-m3", "clevr-m4"), ("dsprites", "abstract", "clevr")
    for split, slots in (("test1", 7), ("test2", 11)):
        for dataset in multi:
            for views in (1, 2, 4, 8):
                table = find_table(dataset, split, views)
                assert ([row.method for row in table.rows], table.slots) == (["Baseline", "MulMON", "Proposed"], slots)
            for views in (1, 2, 4):
                assert [row.method for row in find_table(dataset, split, views, 4).rows] == ["Proposed"]
        for dataset in single:
            assert len(find_table(dataset, split, 1).rows) == 4
    assert find_table("dsprites", "test1", 1).slots == 6
    assert find_table("abstract", "test2-large", 1).slots == 7
    assert find_table("clevr-m1", "test1", 4).name == "Table 1"
    assert find_table("clevr-m1", "test1", 3) is None
    assert find_table("clevr-m1", "valid", 4) is None
    assert find_table(None, "test1", 4) is None
    assert find_table("clevr-m1", "test1", 4, 2) is None


def test_results_are_found_below_run_folders(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for folder in ("results", "other"):
        (run / folder).mkdir(parents=True)
    for name in ("results.json", "mine.json", "results/a.json", "other/results-test2.json", "other/b.json"):
        (run / name).write_text(json.dumps(made(run=name)))
    for name in ("config.json", "results/other.json"):
        (run / name).write_text("{}")  # something else
    (run / "results" / "list.json").write_text("[1, 2]")
    os.symlink(run / "results.json", run / "results" / "again.json")
    found = [result["run"] for _, result in find_results([run, run / "results.json"])]
    assert sorted(found) == ["mine.json", "other/results-test2.json", "results.json", "results/a.json"]
    assert [result["run"] for _, result in find_results([run / "other" / "b.json"])] == ["other/b.json"]


def test_bad_sources_are_refused(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1, 2]")
    with pytest.raises(UserError, match="holds list where an object is expected"):
        find_results([tmp_path / "list.json"])
    with pytest.raises(UserError, match="no such file"):
        find_results([tmp_path / "none"])
    with pytest.raises(UserError, match="no results below it"):
        find_results([tmp_path])
    assert find_results([tmp_path], needed=False) == []
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(UserError, match="not the result of evaluate"):
        find_results([tmp_path / "x.json"])
    with pytest.raises(UserError, match="at least one"):
        report_command((), out=tmp_path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format_version": 2}, "newer format"),
        ({"views": "4"}, "views is '4'"),
        ({"data": None}, "data is None"),
        ({"data": {"preset": ["x"]}}, "preset of data"),
        ({"run": 3}, "run is 3"),
        ({"training": "long"}, "training is 'long'"),
        ({"training": {"steps": 10, "scored_step": "9"}}, "scored_step of training is '9'"),
        ({"training": {"steps": 10, "seconds": "9"}}, "seconds of training is '9'"),
        ({"search": 4}, "search is 4"),
        ({"image_size": [64]}, "image_size is [64]"),
        ({"data": made()["data"] | {"image_size": "64"}}, "image_size is '64'"),
        ({"search": {"starts": "4"}}, "search is {'starts': '4'}"),
        ({"care": [4]}, "care is [4]"),
        ({"missing": ["shapes"]}, "missing is ['shapes']"),
        ({"missing": {"shapes": 3}}, "missing is {'shapes': 3}"),
        ({"pooled": {"ARI-A": {"mean": "high"}}}, "no pooled AMI-A"),
        ({"pooled": {name: {"mean": 1} for name in METRICS}}, "pooled ARI-A is"),
        ({"by_objects": {"3": {"scenes": 1}}}, "a group of scenes"),
        ({"by_occlusion": {"least": {"scenes": 1, "pooled": {}, "hidden": [1]}}}, "a group of scenes"),
        ({"by_objects": {"3": {"scenes": 1, "pooled": {"F1": "x"}}}}, "a group of scenes"),
        ({"by_occlusion": {"least": {"scenes": 1, "pooled": {}, "hidden": 5}}}, "a group of scenes"),
        ({"by_occlusion": {"least": {"scenes": 1, "pooled": {}, "hidden": [None, 1]}}}, "a group of scenes"),
        ({"views": True}, "views is True"),
        ({"parameters": 10**400}, "parameters is 1000"),
        ({"training": {"steps": 10**400}}, "steps of training is 1000"),
        ({"training": {"steps": 10, "seconds": 10**400}}, "seconds of training is 1000"),
        ({"training": {"steps": 10, "data": DEEP}}, "data is "),
        ({"provenance": {"command": DEEP}}, "command is "),
        ({"missing": {"shapes": [DEEP]}}, "missing is "),
        ({"seed": {}}, "seed is {}"),
        ({"extras": {"psnr": estimate(0.5) | {"mean": 10**400}}}, "extras psnr is"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_damaged_results_are_refused_in_one_line(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(made(**change)))
    with pytest.raises(UserError, match=re.escape(words)) as caught:
        find_results([path])
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "1" * 5000])
def test_numbers_that_are_none_are_refused(tmp_path: Path, number: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(made()).replace("0.6", number, 1))
    with pytest.raises(UserError, match=r"damaged") as caught:
        find_results([path])
    assert "\n" not in str(caught.value)


def test_one_scene_has_no_interval(tmp_path: Path) -> None:
    text, _ = written(tmp_path, made(scores={"OCA": {"mean": 0.9, "std": 0.0, "low": None, "high": None}}))
    assert "0.900 ± 0.000 (interval N/A)" in text
    assert verdict({"mean": 0.9, "low": None, "high": None}, Published(0.1, 0.0)) == ""


@pytest.mark.parametrize(
    ("answers", "cell", "words"),
    [(1, "0.600 (0.590 to 0.610)", "the score of one stochastic answer"), (3, "0.600 ± 0.002", "over 3 stochastic")],
)
def test_a_single_answer_has_no_spread(tmp_path: Path, answers: int, cell: str, words: str) -> None:
    text, _ = written(tmp_path, made(repeats=[{}] * answers))
    assert cell in text
    assert words in text
    assert ("±" in text.split("ours: ")[1].split("\n")[0]) == (answers > 1)


def test_a_fine_tuned_run_is_called_by_its_own_name(tmp_path: Path) -> None:
    training = made()["training"] | {"tuned": True, "init": "umbra-quick", "data": "photos"}
    tuned = made(method="umbra", preset="umbra/clevr-m1", run="kitchen", training=training)
    assert title(tuned) == "ours: kitchen, umbra fine-tuned from umbra-quick (plain answers)"
    text, _ = written(tmp_path, tuned, made())
    assert "| kitchen, umbra fine-tuned from umbra-quick | photos |" in text


def test_rows_of_resized_pictures_have_a_mark() -> None:
    data = made()["data"]
    assert title(made(data=data | {"image_size": [64, 96]}, image_size=[32, 48])).endswith("resized to 32x48)")
    assert "resized" not in title(made(data=data | {"image_size": [64, 64]}, image_size=[64, 64]))
    assert "resized" not in title(made(image_size=[64, 64])), "older results tell no size"


def test_names_that_no_file_can_hold(tmp_path: Path) -> None:
    text, html = written(tmp_path, made(run="\udcff\x1b[2Jred"))
    assert "\x1b" not in text
    assert r"\udcff" in html


def test_many_results_take_no_long_time(tmp_path: Path) -> None:
    """One name for many, and many names: none is compared with all others."""
    results = [made(run=f"run-{index % 400}", seed=index // 400) for index in range(800)]
    begun = time.process_time()
    names = {title(result) for result in distinguished(results)}
    assert len(names) == 800
    assert len({title(result) for result in distinguished([made()] * 400)}) == 400
    assert time.process_time() - begun < 1


def test_report_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "results.json").write_text(json.dumps(made()))
    report_command((tmp_path / "results.json",), out=tmp_path / "deep" / "report")
    assert capsys.readouterr().out.split() == [
        str(tmp_path / "deep" / "report" / name) for name in ("report.md", "report.html")
    ]


def test_the_command_line_takes_several_sources(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.json").write_text(json.dumps(made(run=name)))
    sources = [str(tmp_path / f"{name}.json") for name in ("one", "two")]
    monkeypatch.setattr(sys, "argv", ["viewslots", "report", *sources, "--out", str(tmp_path / "out")])
    main()
    text = Path(capsys.readouterr().out.split()[0]).read_text()
    assert "compact (one, plain answers)" in text
    assert "compact (two, plain answers)" in text
    monkeypatch.setattr(sys, "argv", ["viewslots", "report", str(tmp_path / "none"), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 1
    assert capsys.readouterr().err.startswith("viewslots: ")


def test_a_small_negative_number_is_a_plain_zero_and_one_scene_is_one() -> None:
    assert our_cell({"mean": -4e-4, "std": 0.0, "low": -0.0, "high": 2e-4}, 1).text == "0.000"
    assert difference_cell(estimate(0.4996), Published(0.5, 0.01)).text == "+0.000"
    sure, paper = {"mean": 0.9, "std": 0.0, "low": 0.9, "high": 0.9}, Published(0.5, 0.01)
    marks = {
        count: difference_row({"scenes": count, "pooled": {"OCA": sure}}, PaperRow("Proposed", {"OCA": paper}))
        .cells[METRICS.index("OCA")]
        .mark
        for count in (19, 20)
    }
    assert marks == {19: "", 20: "better"}  # a few scenes that agree say little
    group = {"scenes": 1, "pooled": {name: -1e-9 for name in METRICS}}
    (row,) = group_rows({"3": group}, "objects:")
    assert row.name == "objects: 3 (1 scene)"
    assert {cell.text for cell in row.cells} == {"0.000"}
