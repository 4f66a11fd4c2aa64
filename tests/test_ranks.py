"""Processes under torchrun make the same bytes as one: make-data, import-data, evaluate; and a death is mended."""

import filecmp
import io
import json
import os
import socket
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
import tyro
from PIL import Image
from shape_world import make_shapes

from viewslots.cli import COMMANDS
from viewslots.errors import UserError
from viewslots.ranks import ALONE, joined_team, local_device
from viewslots.scenes.devices import most_at_once

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "TQDM_DISABLE": "1"}
COUNTS = ("--train-scenes", "5", "--valid-scenes", "2", "--test-scenes", "0", "--batch", "2")
DIES_ONCE = """
import os, signal, sys
import viewslots.data.generate as generate
from viewslots.scenes.flat.clipart import ClipartWorld
render = ClipartWorld.render
def dying(self, scenes, *rest):
    if os.environ["RANK"] == "1" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and scenes[0].to_dict() == LAST:
        os.kill(os.getpid(), signal.SIGKILL)
    return render(self, scenes, *rest)
LAST = ClipartWorld(None).sample(0, "valid", 0).to_dict()
ClipartWorld.render = dying
from viewslots.cli import main
main()
"""
"""The command; rank 1 is killed by the system before the last scenes, once."""


NO_GATHERING = """
import viewslots.data.writer as writer
writer.StoreWriter.append = None
"""


IN_TURN = """
import json, sys
from viewslots.cli import main
commands = json.loads(sys.argv[1])
for words in commands:
    sys.argv[1:] = words
    main()
"""
"""Several commands in the same processes."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def torchrun(ranks: int, *words: object, restarts: int = 0, program: str | None = None) -> subprocess.Popen[str]:
    called = ["-m", "--", "viewslots"] if program is None else ["--no-python", "--", sys.executable, "-c", program]
    place = ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command = [*launcher, "--max-restarts", str(restarts), *place, *called, *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)


def alone(*words: object) -> None:
    """In this process, which has all its imports."""
    main(list(map(str, words)))


def main(words: list[str]) -> None:
    with mock.patch.object(sys, "argv", ["viewslots", *words]), redirect_stdout(io.StringIO()):
        tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="viewslots")


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    output, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    return output, said


def assert_same_files(one: Path, other: Path) -> None:
    names = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(other) for path in other.rglob("*") if path.is_file())
    assert filecmp.cmpfiles(one, other, list(map(str, names)), shallow=False)[1:] == ([], [])


@pytest.mark.parametrize("shards", [pytest.param(1, marks=pytest.mark.soak), 3])
def test_a_rank_that_dies_is_started_again(shards: int, tmp_path: Path) -> None:
    """Of three shards, rank 1 writes train/00001, valid/00000 (where it dies) and nothing passes through rank 0."""
    alone("make-data", "abstract", "--out", tmp_path / "one", *COUNTS, "--shards", shards)
    words = ("make-data", "abstract", "--out", tmp_path / "set", *COUNTS, "--shards", shards)
    program = DIES_ONCE if shards == 1 else NO_GATHERING + DIES_ONCE
    _, said = ended(torchrun(2, *words, restarts=1, program=program))
    assert "SIGKILL" in said or "-9" in said, said
    assert_same_files(tmp_path / "one", tmp_path / "set")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    for scene in range(5):
        folder = tmp_path / "photos" / f"scene-{scene}"
        folder.mkdir(parents=True)
        for view in range(1 + scene % 3):
            Image.fromarray(random.integers(0, 256, (20, 24, 3), np.uint8)).save(folder / f"{view}.png")
    return tmp_path / "photos"


def test_bad_input_that_another_rank_meets_is_told_once(tmp_path: Path, photos: Path) -> None:
    """Scene 1 is the second rank's: its picture is cut off behind its header."""
    broken = photos / "scene-1" / "0.png"
    broken.write_bytes(broken.read_bytes()[:200])
    process = torchrun(2, "import-data", "pictures", photos, "--out", tmp_path / "set", "--size", "16")
    _, said = process.communicate(timeout=300)
    assert process.returncode != 0
    assert len([line for line in said.splitlines() if line.startswith("viewslots: ")]) == 1, said
    assert "scene-1" in said
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.soak), 3])
def test_the_bytes_of_one_process(ranks: int, tmp_path: Path, photos: Path) -> None:
    """All commands, one after the other in the same processes. Batches of two leave some ranks without work.

    Of three shards, two ranks write one or two each; there are more ranks than shards where three share two."""

    def commands(folder: Path) -> list[list[str]]:
        scored = ["--split", "valid", "--batch", "2", "--repeats", "2", "--slots", "2", "--device", "cpu"]
        return [
            ["make-data", "abstract", "--out", f"{folder}/made", *COUNTS],
            ["make-data", "abstract", "--out", f"{folder}/made3", *COUNTS, "--shards", "3"],
            ["import-data", "pictures", str(photos), "--out", f"{folder}/imported", "--size", "16"],
            ["import-data", "pictures", str(photos), "--out", f"{folder}/imported2", "--shards", "2"],
            ["evaluate", "kmeans", "--data", str(shapes), "--out", f"{folder}/results.json", *scored],
            ["evaluate", "kmeans", "--data", str(cut), "--out", f"{folder}/cut.json", *scored],
        ]

    shapes = make_shapes(tmp_path / "shapes", train=2, valid=5)
    cut = make_shapes(tmp_path / "cut", train=2, valid=5, shards=2)
    output, _ = ended(torchrun(ranks, json.dumps(commands(tmp_path / "many")), program=IN_TURN))
    assert output.count(f"{tmp_path / 'many' / 'made'}\n") == 1  # one of them prints
    for words in commands(tmp_path / "one"):
        alone(*words)
    scores = []
    for path in (tmp_path / folder / name for folder in ("one", "many") for name in ("results.json", "cut.json")):
        result = json.loads(path.read_text()) | {"provenance": None}  # it has the command
        path.write_text(json.dumps(result))
        scores.append({name: value for name, value in result.items() if "data" not in name})
    assert scores == [scores[0]] * 4  # shards change nothing
    assert_same_files(tmp_path / "one", tmp_path / "many")


def test_one_process_is_a_team() -> None:
    assert list(ALONE.spread([1, 2, 3], lambda job: 10 * job)) == [10, 20, 30]
    assert ALONE.told(lambda: 5) == 5
    with pytest.raises(UserError, match="no"):
        list(ALONE.spread([1], lambda job: (_ for _ in ()).throw(UserError("no"))))


@pytest.mark.parametrize(("rank", "gpus", "index"), [("0", 1, 0), ("3", 8, 3), ("3", 2, 1), ("5", 1, 0)])
def test_ranks_share_gpus_where_there_are_fewer(
    rank: str, gpus: int, index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", rank)
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    assert (local_device("cuda").index, str(local_device("cpu"))) == (index, "cpu")


def test_ranks_that_share_a_gpu_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda", 0)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (1200, 2000))
    monkeypatch.setattr("torch.cuda.memory_reserved", lambda device: 500)
    monkeypatch.setattr("torch.cuda.memory_allocated", lambda device: 100)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    for ranks, each in (("1", 160), ("2", 160), ("3", 80), ("4", 80), ("5", 53)):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
        assert most_at_once(device, on_cpu=1, on_gpu=1000, bytes_each=10) == each


def test_a_training_whose_processes_share_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("viewslots.ranks.enter_group", lambda backend: None)
    monkeypatch.setattr("torch.distributed.destroy_process_group", lambda: None)
    told = "ncclInvalidUsage: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000"
    lost = mock.patch("torch.distributed.new_group", side_effect=RuntimeError(told))
    with lost, pytest.raises(UserError, match="cannot share a GPU"), joined_team(torch.device("cpu")):
        raise AssertionError("never reached")
