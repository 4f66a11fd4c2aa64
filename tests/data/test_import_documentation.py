"""docs/your-own-data.md: its commands run as they are printed, on a tiny folder laid out as it says."""

import json
import re
import shlex
import sys
from dataclasses import replace
from inspect import signature
from pathlib import Path

import numpy as np
import pytest
from importing import noise, scenes_of
from PIL import Image

from viewslots import cli
from viewslots.bench import imports
from viewslots.commands.data import import_data
from viewslots.commands.decompose import decompose
from viewslots.commands.evaluation import evaluate
from viewslots.commands.explore import explore
from viewslots.commands.figures import figures
from viewslots.commands.training import train
from viewslots.data.sources.kinds import KINDS
from viewslots.data.store import Store
from viewslots.experiments import experiment
from viewslots.methods.umbra.model import Umbra

PAGE = (Path(__file__).parents[2] / "docs" / "your-own-data.md").read_text(encoding="utf-8")
COMMANDS = re.search(r"```sh\n(.*?)```", PAGE, re.DOTALL)[1].splitlines()
TRAINING = "## Train on it"
PUBLIC = [line for line in PAGE.splitlines() if line.startswith("viewslots import-data") and line not in COMMANDS]


def photos(root: Path) -> None:
    """Four scenes of two or three views, of four sizes, with masks."""
    for name, size in {"desk1": (60, 80), "desk2": (80, 60), "kitchen1": (64, 64), "kitchen2": (96, 128)}.items():
        (root / name).mkdir(parents=True)
        for view in "abc"[: 2 if name == "desk2" else 3]:
            Image.fromarray(noise(*size, 3)).save(root / name / f"{view}.jpg")
            Image.fromarray(noise(*size) % 3).save(root / name / f"{view}_segment.png")


def films(root: Path) -> None:
    imageio = pytest.importorskip("imageio.v3")
    root.mkdir()
    for name, seed in (("hall", 1), ("stairs", 2)):
        frames = np.repeat(np.repeat(noise(12, 6, 8, 3, seed=seed), 8, 1), 8, 2)
        imageio.imwrite(root / f"{name}.mp4", frames, fps=10, macro_block_size=8)


def run(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", shlex.split(line))
    cli.main()


def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    photos(Path("photos"))
    films(Path("films"))
    assert len(COMMANDS) == 7
    for line in COMMANDS:
        run(line, monkeypatch)
    assert scenes_of(Store.open("data/photos")) == {"train": 3, "valid": 1}
    assert Store.open("data/photos").meta.plan.keys == ("image", "segment", "num_views")
    wide = Store.open("data/wide")
    assert scenes_of(wide) == {"train": 1, "valid": 1, "test1": 2}
    assert (wide.meta.plan.height, wide.meta.plan.width, wide.meta.plan.keys) == (48, 64, ("image", "num_views"))
    assert Store.open("data/films").meta.plan.views == 3
    assert Path("look/scenes-train.png").exists()
    for split in ("train", "valid"):
        for key in ("image", "segment", "num_views"):
            first, again = (Store.open(f"data/{name}").split(split)[key] for name in ("photos", "again"))
            np.testing.assert_array_equal(first, again)


def test_the_page_names_every_kind_and_options_that_exist() -> None:
    assert [shlex.split(line)[2] for line in PUBLIC] == [kind for kind in KINDS if kind != "pictures"]
    assert set(re.findall(r"^\| `([a-z0-9-]+)` \|", PAGE, re.MULTILINE)) == set(KINDS) - {"pictures"}
    options = {f"--{name.replace('_', '-')}" for name in signature(import_data).parameters}
    options |= {"--no-masks", "--no-cameras", "--per-scene", "--data"}  # the last two are of evaluate and figures
    assert set(re.findall(r"--[a-z][a-z-]*", PAGE.partition(TRAINING)[0])) <= options


SHORTER = {"train": " --steps 2 --batch 2 --device cpu --set model.image_size=32", "figures": " --frames 2"}


def test_from_scenes_to_a_film(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As printed, with few steps; a tiny model stands in for the shipped one, whose name a folder here takes."""
    monkeypatch.chdir(tmp_path)
    photos(Path("photos"))
    run(COMMANDS[0], monkeypatch)
    model = replace(experiment("umbra-tiny/clevr-m1").model, box_fit=1.0)  # in boxes, as the shipped one
    Umbra(model).save_pretrained(Path("umbra-quick"))
    block = re.search(r"```\n(viewslots train umbra .*?)```", PAGE, re.DOTALL)[1].splitlines()
    assert [line.split()[1] for line in block] == ["train", "train", "figures", "decompose", "evaluate", "explore"]
    for line in block[:-1]:  # the last one serves until it is stopped
        run(line.partition("#")[0] + SHORTER.get(line.split()[1], ""), monkeypatch)
    assert json.loads(Path("runs/mine/config.json").read_text())["config"]["tunes"] is True
    assert json.loads(Path("runs/better/config.json").read_text())["config"]["model"]["details_by_view"] is True
    assert Path("figures/camera-path.mp4").stat().st_size > 0
    assert next(Path("answer").iterdir())
    assert json.loads(Path("mine.json").read_text())["pooled"]


def test_the_second_half_names_options_that_exist() -> None:
    """The rest runs in tests/training, with fewer steps."""
    known = {"train": train, "figures": figures, "explore": explore, "decompose": decompose, "evaluate": evaluate}
    lines = [line for line in PAGE.partition(TRAINING)[2].splitlines() if line.startswith("viewslots ")]
    assert {line.split()[1] for line in lines} == set(known)
    for line in lines:
        options = {f"--{name}" for name in signature(known[line.split()[1]]).parameters}
        assert set(re.findall(r"--[a-z][a-z-]*", line)) <= options, line


def test_bench_import_reads_what_it_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VIEWS", "SMALL_SCENES", "LARGE_SCENES", "RECORDS"):
        monkeypatch.setattr(imports, name, 2)
    rows = imports.bench_import("cpu", 0.0, seed=1)["rows"]
    assert [row["pictures"] for row in rows] == [4, 4, 2]
    assert all(row["pictures_per_second"] > 0 for row in rows)
