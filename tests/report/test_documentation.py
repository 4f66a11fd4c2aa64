"""The programs in docs/evaluation.md run as they are printed, and its tables name what there is."""

import json
import re
import sys
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from disc_world import COUNTS, disc_store
from sklearn.metrics import adjusted_rand_score

from viewslots import cli
from viewslots.commands.evaluation import estimate_viewpoints, evaluate, report
from viewslots.commands.score import score
from viewslots.data.store import Store
from viewslots.metrics.layouts import FLAG, IMAGE, PREDICTION, RECONSTRUCTION, TRUTH
from viewslots.metrics.probes import PROBES, TARGETS
from viewslots.protocol.evaluate import NEEDED_FOR
from viewslots.report.rows import EXTRAS

PAGE = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")
ARRAYS, METHOD = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.chdir(tmp_path)
    return disc_store(tmp_path / "data")


def test_arrays_of_ones_own_method(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(ARRAYS.splitlines()) <= 23
    exec(compile(ARRAYS, "docs/evaluation.md", "exec"), {})
    monkeypatch.setattr(sys, "argv", ["viewslots", "score", "prediction.npz", "truth.npz", "--out", "scores.json"])
    cli.main()
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(Path("scores.json").read_text())
    segment = np.asarray(store.split("test1")["segment"])[:, :4]
    layer = np.load("prediction.npz")["layer_masks"].argmax(2)
    expected = [adjusted_rand_score(one.ravel(), other.ravel()) for one, other in zip(segment, layer, strict=True)]
    assert found["per_scene"]["ARI-A"] == pytest.approx(expected, abs=1e-9)
    assert [name for name, value in found["pooled"].items() if value is None] == ["OOA"]
    assert found["scenes"] == COUNTS["test1"]


def test_a_method_in_python(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(METHOD, "docs/evaluation.md", "exec"), {"__name__": "example"})
    segment = np.asarray(store.split("test1")["segment"])[:, :4]
    stripe = np.broadcast_to(np.arange(32) * 5 // 32, segment.shape)
    expected = [adjusted_rand_score(one.ravel(), other.ravel()) for one, other in zip(segment, stripe, strict=True)]
    mean = float(re.search(r"'mean': ([-\d.e]+)", capsys.readouterr().out)[1])
    assert mean == pytest.approx(np.mean(expected), abs=1e-9)


def test_the_page_names_every_array_and_every_extra() -> None:
    named = set(re.findall(r"`(\w+\*?)`", PAGE))
    assert {*PREDICTION, *TRUTH, *RECONSTRUCTION, *IMAGE, FLAG} <= named
    cameras = {f"camera_{probe}_{target}" for probe in PROBES for target in TARGETS}
    assert set(NEEDED_FOR) <= named  # truth that a data set may lack
    assert set(EXTRAS) - cameras | {f"camera_{probe}_*" for probe in PROBES} | set(TARGETS) <= named


def test_the_page_names_options_that_exist() -> None:
    """`--careful` is an alias; `--extras` has a negative."""
    parameters = {
        name for command in (evaluate, estimate_viewpoints, report, score) for name in signature(command).parameters
    }
    options = {f"--{name.replace('_', '-')}" for name in parameters} | {"--careful", "--no-extras"}
    other = {"--train-scenes", "--per-view-masks", "--init", "--compare"}  # of make-data, import-data, train, figures
    assert set(re.findall(r"--[a-z][a-z-]*", PAGE)) <= options | other
