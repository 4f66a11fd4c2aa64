"""What benches keep of runs whose machine may be lost."""

import json
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file


@pytest.fixture
def side_by_side(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    import side_by_side

    return side_by_side


def bench(side_by_side: Any, work: Path) -> Any:
    class Bench(side_by_side.SideBySide):  # type: ignore[misc, name-defined]
        def all(self) -> None: ...

    return Bench(work, "cpu", small=True, seconds=1.0)


def save_best(run: Path, step: int) -> None:
    best = run / f"best-{step}"
    best.mkdir(parents=True)
    wide, narrow = torch.tensor([1e9 * step]), torch.tensor([1 / 3 + step])
    save_file({"statistic": wide, "weight": narrow, "count": torch.tensor([step])}, best / "model.safetensors")
    for name in ("config.json", "run.json"):
        (best / name).write_text(json.dumps({"step": step}))
    (run / "best.json").write_text(json.dumps({"folder": best.name, "step": step}))
    with open(run / "metrics.jsonl", "a") as curve:
        print(json.dumps({"kind": "valid", "step": step}), file=curve)


def kept_step(kept: Path) -> int:
    """Of all files, which must agree."""
    weights = load_file(kept / "model.safetensors")
    steps = {json.loads((kept / name).read_text())["step"] for name in ("best.json", "config.json", "run.json")}
    (step,) = steps | {int(weights["count"])}
    return step


def test_the_best_model_of_each_stage_is_kept_in_half_precision(side_by_side: Any, tmp_path: Path) -> None:
    made = bench(side_by_side, tmp_path)
    made.keep("run")  # nothing is there yet
    assert not (tmp_path / "kept").exists()
    for step, stage in enumerate(("run/first/first", "run/first", "run"), 1):
        save_best(tmp_path / "runs" / stage, step)
    made.keep("run")
    for step, stage in enumerate(("run/first/first", "run/first", "run"), 1):
        kept = tmp_path / "kept" / stage
        weights = load_file(kept / "model.safetensors")
        assert kept_step(kept) == step
        assert weights["weight"].dtype == torch.half
        assert float(weights["weight"]) == pytest.approx(1 / 3 + step, rel=1e-3)
        assert weights["statistic"] == torch.tensor([1e9 * step]), "too large for half precision"
        assert (kept / "metrics.jsonl").read_text() == (tmp_path / "runs" / stage / "metrics.jsonl").read_text()
    save_best(tmp_path / "runs" / "run", 4)
    made.keep("run")
    assert kept_step(tmp_path / "kept" / "run") == 4
    assert (tmp_path / "kept" / "run" / "metrics.jsonl").read_text().count("\n") == 2


def test_a_better_model_in_the_middle_of_a_copy(
    side_by_side: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept is of one step, and the better one is kept the next time."""
    made, run, kept = bench(side_by_side, tmp_path), tmp_path / "runs" / "run", tmp_path / "kept" / "run"
    save_best(run, 1)
    copy = side_by_side.copy

    def overtaken(file: Path, folder: Path) -> None:
        copy(file, folder)
        if file.name == "run.json" and not (run / "best-2").exists():
            save_best(run, 2)

    monkeypatch.setattr(side_by_side, "copy", overtaken)
    made.keep("run")
    assert kept_step(kept) == 1
    made.keep("run")
    assert kept_step(kept) == 2


def test_a_part_that_fails_ends_those_that_wait_for_it(side_by_side: Any, tmp_path: Path) -> None:
    class Bench(side_by_side.SideBySide):  # type: ignore[misc, name-defined]
        def all(self) -> None:
            with ThreadPoolExecutor() as pool:
                jobs = [pool.submit(self.part, job) for job in (self.waits, self.fails)]
                for job in jobs:
                    job.result()

        def waits(self) -> None:
            self.processes.append(sleeper := subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]))
            began.set()
            self.wait_for(never.is_set)
            sleeper.wait()

        def fails(self) -> None:
            began.wait()
            raise OSError("no space")

    began, never = threading.Event(), threading.Event()
    made = Bench(tmp_path, "cpu", small=True, seconds=1.0)
    with pytest.raises(RuntimeError, match="what this waited for has failed"):
        made.run()
    assert made.processes[0].wait(60) == -signal.SIGTERM
    (tmp_path / "logs").mkdir()
    with pytest.raises(RuntimeError, match="another part has failed"):
        made.start("later", ["-c", "import time; time.sleep(600)"], later=False)
    assert made.processes[1].wait(60) == -signal.SIGTERM
