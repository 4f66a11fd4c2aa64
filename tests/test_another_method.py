"""A method that shares nothing with OCLOC goes through every command; only its folder and a registry know it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from viewslots.methods.names import METHODS

SOURCE = Path(__file__).parents[1] / "src" / "viewslots"
STAGES = ("training", "protocol", "metrics")
"""What must know no method by name."""


def viewslots(*words: object) -> str:
    command = [sys.executable, "-m", "viewslots", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "dsprites"
    viewslots("make-data", "dsprites", "--out", folder, "--train-scenes", 8, "--valid-scenes", 2, "--test-scenes", 2)
    return folder


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve steps in one go."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    sizes = ("--steps", 12, "--batch", 4, "--checkpoint-every", 6, "--device", "cpu")
    told = json.loads(viewslots("train", "slot-attention-tiny/dsprites", "--data", data, "--run", folder, *sizes))
    assert told["step"] == 12
    return folder


def test_it_resumes_bit_for_bit(run: Path, data: Path, tmp_path: Path) -> None:
    """A run that lost all after its middle ends where the other one ended."""
    folder = tmp_path / "resumed"
    sizes = ("--steps", 12, "--batch", 4, "--checkpoint-every", 6, "--device", "cpu")
    viewslots("train", "slot-attention-tiny/dsprites", "--data", data, "--run", folder, *sizes)
    for ending in ("json", "safetensors"):
        (folder / "checkpoints" / f"step-00000012.{ending}").unlink()
    viewslots("train", "--run", folder, "--resume", "--device", "cpu")
    states = [load_file(path / "checkpoints" / "step-00000012.safetensors") for path in (run, folder)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_it_is_scored_and_reported(run: Path, data: Path, tmp_path: Path) -> None:
    """By the same protocol: what it has no answer for is null, what it has is a number."""
    out = tmp_path / "results.json"
    viewslots("evaluate", run, "--data", data, "--repeats", 2, "--device", "cpu", "--out", out)
    result = json.loads(out.read_text())
    assert result["method"] == "slot-attention"
    assert result["search"] is None
    assert result["training"]["scored_step"] in range(1, 13)
    for name in ("ARI-A", "AMI-A", "ARI-O", "AMI-O", "OCA"):
        assert -1 <= result["pooled"][name]["mean"] <= 1
    for name in ("IoU", "F1", "OOA"):
        assert result["pooled"][name] is None
    viewslots("report", out, "--out", tmp_path / "report")
    assert "slot-attention" in (tmp_path / "report" / "report.md").read_text()


def test_it_is_drawn(run: Path, data: Path, tmp_path: Path) -> None:
    """Beside a method that learns nothing. There is no camera to turn, so no film."""
    made = json.loads(
        viewslots(
            "figures", run, "--data", data, "--scenes", 2, "--compare", "kmeans", "--device", "cpu", "--out", tmp_path
        )
    )
    assert {"decomposition", "comparison", "training"} <= {name.split("-")[0] for name in made}
    assert "camera-path" not in made
    assert all(Path(file).stat().st_size > 1000 for files in made.values() for file in files)


@pytest.mark.parametrize("stage", STAGES)
def test_no_stage_names_a_method(stage: str) -> None:
    """Neither the keys of the registry nor the classes behind them."""
    classes = [one.place.partition(":")[2] for one in METHODS.values()]
    words = [*METHODS, *classes]
    pattern = re.compile("|".join(rf"\b{re.escape(word)}\b" for word in words), re.IGNORECASE)
    for path in sorted((SOURCE / stage).rglob("*.py")):
        assert not pattern.search(path.read_text()), f"{path.name}: {pattern.search(path.read_text())}"
