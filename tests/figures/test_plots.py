"""Training curves hold the rows of metrics.jsonl, whatever state the file is in; tables have every number in place."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from viewslots.errors import UserError
from viewslots.figures.plots import loss_terms, plain, read_rows, save_figure, score_table, series, training_curves
from viewslots.metrics.score import METRICS

TERMS = ("nll", "view", "of my own")
"""Of some method: one that says enough by itself, one that has a longer name for people, one that nobody knows."""


def rows() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for step in range(100, 1001, 100):
        trained = {"loss": 1e6 / step, "nll": 2.0 * step, "view": 1.0, "of my own": 3, "constant": -9e4, "rate": 1e-4}
        made.append({"step": step, "kind": "train", **trained})
        if step % 500 == 0:
            values = {name: 0.1 * index + step / 1e4 for index, name in enumerate((*METRICS, *TERMS))}
            values["constant"] = -9e4 + 1e-3 * step / 1000
            shares = {"background_share": 0.9, "absent": None if step == 500 else 0.25}
            made.append({"step": step, "kind": "valid", "loss": -float(step), **values, **shares})
    return [*made, {"step": 1000, "kind": "event", "warning": "something"}]


def lines(axes: Any) -> dict[str, list[tuple[float, float]]]:
    return {line.get_label(): [tuple(point) for point in line.get_xydata().tolist()] for line in axes.lines}


def test_curves_hold_the_data() -> None:
    made = training_curves(rows(), "Training of a run")
    loss, terms, scores, shares = made.axes
    assert made.get_suptitle() == "Training of a run"
    assert lines(loss) == {
        "training": [(step, 1e6 / step) for step in range(100, 1001, 100)],
        "held-out": [(500, -500), (1000, -1000)],
    }
    found = lines(scores)
    assert list(found) == list(METRICS)
    for index, name in enumerate(METRICS):
        np.testing.assert_allclose(found[name], [(500, 0.1 * index + 0.05), (1000, 0.1 * index + 0.1)])
    assert list(lines(terms)) == ["nll", "KL viewpoints", "of my own"]
    np.testing.assert_allclose(lines(terms)["nll"], [(500, 0.85), (1000, 0.9)])
    assert lines(shares) == {"background pixels": [(500, 0.9), (1000, 0.9)], "absent slots": [(1000, 0.25)]}
    for axes in made.axes:
        assert axes.get_xlabel() == "step"
        assert [text.get_text() for text in axes.get_legend().get_texts()] == list(lines(axes))


def test_the_first_steps_do_not_set_the_scale() -> None:
    made = training_curves(
        [{"step": step, "kind": "train", "loss": 1e9 if step == 1 else step / 100} for step in (1, *range(100, 1001))],
        "run",
    )
    low, high = made.axes[0].get_ylim()
    assert low < 1 < 10 < high < 11


def test_a_run_that_has_not_validated_says_so() -> None:
    made = training_curves([{"step": 1, "kind": "train", "loss": 2.0}], "run")
    assert [[text.get_text() for text in axes.texts] for axes in made.axes] == [[]] + [["not recorded"]] * 2


def test_terms_are_those_that_both_kinds_of_rows_record() -> None:
    """Scores and diagnostics are in rows of validation alone, rates in those of training; what stands still is left
    out, unless there is but one row to tell."""
    assert loss_terms(rows()) == list(TERMS)
    assert loss_terms(rows()[:6]) == [*TERMS, "constant"]
    assert loss_terms([{"step": 1, "kind": "train", "loss": 2.0, "mse": 1.0}]) == []


def test_shares_are_drawn_where_they_are_recorded() -> None:
    without = [{name: value for name, value in row.items() if name != "background_share"} for row in rows()]
    assert lines(training_curves(without, "run").axes[3]) == {"absent slots": [(1000, 0.25)]}
    slots = [{name: value for name, value in row.items() if name != "absent"} for row in without]
    assert len(training_curves(slots, "run").axes) == 3


def test_series_are_sorted_and_skip_what_is_no_number() -> None:
    given = [
        {"step": 3, "kind": "train", "loss": 3},
        {"step": 1, "kind": "train", "loss": 1.0},
        {"step": 2, "kind": "train", "loss": None},
        {"step": 4, "kind": "train", "loss": True},
        {"step": 5, "kind": "train"},
        {"step": 6, "kind": "valid", "loss": 9.0},
    ]
    assert series(given, "train", "loss") == ([1, 3], [1.0, 3.0])


def test_reading_rows(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    text = "\n".join(map(json.dumps, rows())) + "\n"
    file.write_text(text + '{"step": 1100, "kind": "tr')  # cut off by a kill
    assert read_rows(file) == rows()
    file.write_text('{"step": 1}\n{"st\n{"step": 2}\n')
    with pytest.raises(UserError, match="line 2 is no JSON"):
        read_rows(file)
    file.write_text("[1, 2]\n")
    with pytest.raises(UserError, match="line 1 has no step"):
        read_rows(file)
    with pytest.raises(UserError, match=r"missing\.jsonl: no such file"):
        read_rows(tmp_path / "missing.jsonl")


def test_saved_at_print_quality_with_words_as_words(tmp_path: Path) -> None:
    made = training_curves(rows(), "Training of a run")
    png, svg = save_figure(made, tmp_path / "training")
    with Image.open(png) as image:
        assert image.info["dpi"] == pytest.approx((300, 300), abs=0.01)
        assert image.size == (2640, 1500)
        pixels = np.asarray(image.convert("RGB"))
    for half in (pixels[:, :1300], pixels[:, 1300:]):
        assert (half < 100).all(-1).mean() > 0.002
    texts = [
        "".join(node.itertext()).strip() for node in ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert {"Training of a run", *METRICS, "held-out", "step"} <= set(texts)
    again = save_figure(training_curves(rows(), "Training of a run"), tmp_path / "again")
    assert again[1].read_bytes() == svg.read_bytes()


def test_matplotlib_is_imported_late_and_without_pyplot() -> None:
    program = (
        "import sys, viewslots.cli, viewslots.figures.plots\n"
        "assert 'matplotlib' not in sys.modules\n"
        "viewslots.figures.plots.training_curves([], 'run')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def result(answers: int = 2, /, **means: float | None) -> dict[str, Any]:
    parts = {
        name.replace("_", "-"): None if mean is None else {"mean": mean, "std": mean / 100, "low": 0, "high": 1}
        for name, mean in means.items()
    }
    return {"pooled": parts, "repeats": [{}] * answers}


def table(results: list[tuple[str, dict[str, Any]]]) -> list[list[Any]]:
    """Texts by rows, from above, then from left to right."""
    (axes,) = score_table(results, "pooled", "Scores").axes
    heights = sorted({text.get_position()[1] for text in axes.texts})
    low, high = axes.get_ylim()
    assert low > high, "heights grow downwards"
    rows = [[text for text in axes.texts if text.get_position()[1] == height] for height in heights]
    return [sorted(row, key=lambda text: text.get_position()[0]) for row in rows]


def test_numbers_stand_in_their_places() -> None:
    rows = table([("ours", result(ARI_A=0.25, OOA=0.5)), ("floor", result(ARI_A=0.75, OOA=None))])
    assert [[text.get_text() for text in row] for row in rows] == [
        ["", "ARI-A", "OOA"],
        ["ours", "0.250 ± 0.003", "0.500 ± 0.005"],
        ["floor", "0.750 ± 0.007", "N/A"],
    ]
    columns = [[text.get_position()[0] for text in row] for row in rows]
    assert columns[0] == columns[1] == columns[2]
    bold = [[text.get_fontweight() == "bold" for text in row] for row in rows]
    assert bold == [[False] * 3, [False, False, True], [False, True, False]]


def test_a_single_answer_has_no_spread() -> None:
    rows = table([("ours", result(1, ARI_A=0.25, OOA=None))])
    assert [text.get_text() for text in rows[1]] == ["ours", "0.250", "N/A"]


def test_long_names_keep_clear_of_the_numbers() -> None:
    name = "ours: OCLOC, compact (a run with quite a name), test1, M = 4, K = 7"
    made = score_table([(name, result(ARI_A=0.5)), ("x", result(ARI_A=None))], "pooled", "Scores")
    made.canvas.draw()
    boxes = {text.get_text(): text.get_window_extent() for text in made.axes[0].texts}
    assert boxes[name].x1 < boxes["0.500 ± 0.005"].x0
    assert boxes["0.500 ± 0.005"].x1 <= made.bbox.x1
    assert boxes[name].x0 >= 0


def test_foreign_names_and_numbers_are_drawn_as_they_are(tmp_path: Path) -> None:
    """No formula of matplotlib, no number beyond its reach, no letter that cannot be drawn."""
    names = ["$x^$", r"\$x$", "a\nb\x1b", "x" * 10_000]
    assert plain(names[0]) == r"\$x^\$"
    save_figure(score_table([(name, result(ARI_A=0.5)) for name in names], "pooled", names[0]), tmp_path / "table")
    odd: list[Any] = [10**400, float("nan"), float("inf"), 1e308, True, None, "1", [1]]
    rows = [{"step": step, "kind": "train", "loss": value, "$x^$": 1.0} for step, value in enumerate([*odd, 2.0])]
    rows += [{"step": step, "kind": "valid", "loss": 1.0, "$x^$": float(step)} for step in range(3)]
    assert series(rows, "train", "loss") == ([8], [2.0])
    save_figure(training_curves(rows, names[0]), tmp_path / "curves")
    assert "$x^$" in (tmp_path / "curves.svg").read_text()


@pytest.mark.parametrize("line", ['{"step": 1' + "0" * 40 + "}", "[" * 100_000, '{"step": true}'])
def test_rows_that_are_none(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{line}\n{{"step": 1}}\n')
    with pytest.raises(UserError, match="line 1 "):
        read_rows(path)
