"""Real trainings, in processes of their own or in this one, and what they leave on disk."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from viewslots.commands import training

SMALL = {"steps": 20, "batch": 2, "checkpoint_every": 1, "validate_every": 10, "device": "cpu"}
"""Twenty steps of `tiny`, which any machine does the same way, saved after every one."""

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}

DIES_AFTER_SAVING = """
import os, signal, sys
from viewslots.training.run import RunFolder
keep_last, last = RunFolder.keep_last, int(sys.argv.pop(1))
def keep_and_die(self, model, step):
    keep_last(self, model, step)
    if step == last:
        os.kill(os.getpid(), signal.SIGKILL)
RunFolder.keep_last = keep_and_die
from viewslots.cli import main
main()
"""
"""The command, killed by the system at the moment after a given checkpoint and its model."""

SLOWLY = """
import time
from viewslots.training.loop import Training
take_step = Training.take_step
def take_a_breath_first(self, step):
    time.sleep(0.05)
    take_step(self, step)
Training.take_step = take_a_breath_first
from viewslots.cli import main
main()
"""
"""The command with time between its steps, so that a signal surely meets it amid them."""


def written(options: dict[str, object]) -> list[str]:
    """As one writes them in a command."""
    return [word for name, value in options.items() for word in ("--" + name.replace("_", "-"), str(value))]


def start(*words: object, program: tuple[str, ...] = ("-m", "viewslots"), **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, *program, "train", *map(str, words), *written(options)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=ENVIRONMENT)


def train(*preset: Any, **options: Any) -> tuple[str, str]:
    """In this process, which has all its imports, to its end: what it printed and what it said."""
    output, said, threads = io.StringIO(), io.StringIO(), torch.get_num_threads()
    torch.set_num_threads(1)  # as processes of their own have
    try:
        with redirect_stdout(output), redirect_stderr(said):
            training.train(
                *preset, **{name: str(value) if name == "data" else value for name, value in options.items()}
            )
    finally:
        torch.set_num_threads(threads)
    return output.getvalue(), said.getvalue()


def resume(run: Path) -> tuple[str, str]:
    return train(run=run, resume=True, device="cpu")


def refused(*words: object, **options: object) -> str:
    """With bad input: exit 1, one line, nothing on stdout."""
    process = start(*words, **options)
    output, said = process.communicate(timeout=300)
    assert process.returncode == 1, said
    assert output == ""
    assert said.startswith("viewslots: ")
    assert len(said.splitlines()) == 1
    return said


def saved_steps(run: Path) -> list[int]:
    return sorted(int(path.stem.removeprefix("step-")) for path in (run / "checkpoints").glob("step-*.json"))


def tensors(run: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / f"step-{step:08d}.safetensors")


def facts(run: Path, step: int) -> dict[str, Any]:
    """Without the digest of config.json, which an older version may have written in other words."""
    saved = json.loads((run / "checkpoints" / f"step-{step:08d}.json").read_text())["facts"]
    return {name: value for name, value in saved.items() if name != "settings"}


def rows(run: Path) -> list[dict[str, Any]]:
    """All whole lines of figures, without those of the clock."""
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    read = [json.loads(line) for line in lines if line.endswith("\n")]
    return [{key: value for key, value in row.items() if key != "steps_per_second"} for row in read]


def assert_same_run(one: Path, other: Path, step: int) -> None:
    """Bit for bit: weights, moments, statistics, figures, best model."""
    first, second = tensors(one, step), tensors(other, step)
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name
    assert facts(one, step) == facts(other, step)
    assert rows(one) == rows(other)
    for name in ("best.json", "last.json"):
        kept, again = (json.loads((run / name).read_text()) for run in (one, other))
        assert kept["step"] == again["step"]
        weights = [
            load_file(run / answer["folder"] / "model.safetensors") for run, answer in ((one, kept), (other, again))
        ]
        assert all(torch.equal(value, weights[1][key]) for key, value in weights[0].items())
