"""Training curves hold the rows of metrics.jsonl, whatever state the file is in."""

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
from viewslots.figures.curves import SCORES, TERMS, read_rows, series, training_curves
from viewslots.figures.plots import save_figure


def rows() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for step in range(100, 1001, 100):
        made.append({"step": step, "kind": "train", "loss": 1e6 / step, "nll": 2.0 * step})
        if step % 500 == 0:
            values = {name: 0.1 * index + step / 1e4 for index, name in enumerate((*SCORES, *TERMS))}
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
    assert list(found) == list(SCORES)
    for index, name in enumerate(SCORES):
        np.testing.assert_allclose(found[name], [(500, 0.1 * index + 0.05), (1000, 0.1 * index + 0.1)])
    assert list(lines(terms)) == list(TERMS.values())
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
    assert [[text.get_text() for text in axes.texts] for axes in made.axes] == [[]] + [["not recorded"]] * 3


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
    with pytest.raises(UserError, match=r"missing\.jsonl: cannot be read"):
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
    assert {"Training of a run", *SCORES, "held-out", "step"} <= set(texts)
    again = save_figure(training_curves(rows(), "Training of a run"), tmp_path / "again")
    assert again[1].read_bytes() == svg.read_bytes()


def test_matplotlib_is_imported_late_and_without_pyplot() -> None:
    program = (
        "import sys, viewslots.cli, viewslots.figures.curves, viewslots.figures.tables, viewslots.figures.layout\n"
        "assert 'matplotlib' not in sys.modules\n"
        "viewslots.figures.curves.training_curves([], 'run')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
