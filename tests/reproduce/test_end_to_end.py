"""A small table from nothing to its report on a CPU, killed in the middle."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from viewslots.errors import UserError
from viewslots.reproduce.plan import Asked
from viewslots.reproduce.runner import reproduce_table
from viewslots.reproduce.tables import Score, Short, Table

EXPERIMENT, RUN = "slot-attention-tiny/dsprites", "slot-attention-tiny-dsprites-0"
STEPS = 200
TABLE = Table(
    "for tests",
    (EXPERIMENT, "kmeans/dsprites"),
    (Score("test1", views=1),),
    figure_scenes=2,
    short={EXPERIMENT: Short(STEPS * 10**5, {"optimisation.batch_size": 2})},
)
ASKED = Asked(scale=1e-5, short=True)


def last_step(run: Path) -> int:
    file = run / "metrics.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return max((json.loads(line)["step"] for line in lines[:-1]), default=0)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a training outlives whoever is killed")
def test_killed_and_finished(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = out / "runs" / RUN
    words = "from pathlib import Path; from test_end_to_end import *; reproduce_table(TABLE, ASKED, Path(sys.argv[1]))"
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen([sys.executable, "-c", words, str(out)], env=os.environ | {"PYTHONPATH": paths})
    while last_step(run) < STEPS // 10:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    # At once, while the training may still be saving.
    outcome = reproduce_table(TABLE, ASKED, out, workers=2)
    assert outcome.failed == outcome.left_out == {}
    assert len(outcome.done) == 6
    assert "--resume" in (out / "logs" / f"train-{RUN}.log").read_text()
    assert "make-data" in (out / "logs" / "data-dsprites.log").read_text()
    config = json.loads((run / "config.json").read_text())["config"]
    assert (config["schedule"]["steps"], config["optimisation"]["batch_size"]) == (STEPS, 2)
    assert last_step(run) == STEPS
    result = json.loads((out / "results" / f"{RUN}-test1-m1.json").read_text())
    assert (len(result["repeats"]), result["scenes"], result["views"]) == (5, 4, 1)
    assert result["training"]["seconds"] > 0
    report = (out / "report" / "report.md").read_text()
    assert "paper: SPACE" in report
    assert "ours: slot-attention, tiny, dsprites" in report
    assert "floor: k-means" in report
    assert "4 test scenes; the paper has 1000" in report
    assert (out / "figures" / "dsprites" / "comparison.png").stat().st_size > 10_000

    before = {path: path.stat().st_mtime_ns for path in (out / "results").iterdir()}
    moved = tmp_path / "moved"
    out.rename(moved)
    assert reproduce_table(TABLE, ASKED, moved).exit_code == 0
    assert {moved / path.relative_to(out): stamp for path, stamp in before.items()} == {
        path: path.stat().st_mtime_ns for path in (moved / "results").iterdir()
    }
    with pytest.raises(UserError, match="was begun with --scale 1e-05, not --scale 0"):
        reproduce_table(TABLE, Asked(scale=0.5, short=True), moved)
