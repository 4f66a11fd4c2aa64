"""Every example is run, and shows what it says."""

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
RUN_HERE = {"decompose_pictures.py", "take_an_object.py", "turn_the_camera.py"}


def run(name: str, *words: object) -> str:
    command = [sys.executable, str(ROOT / "examples" / name), *map(str, words)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_is_a_test_for_each() -> None:
    assert {path.name for path in EXAMPLES} == RUN_HERE


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_are_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 40


def test_decompose_pictures(tmp_path: Path) -> None:
    with h5py.File(ROOT / "tests/data/clevr_m1_blender_2scenes.h5") as file:
        images = file["valid/image"][0]
    for number, pixels in enumerate(images):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    said = run("decompose_pictures.py", tmp_path / "out", *sorted(tmp_path.glob("*.png")))
    record = json.loads((tmp_path / "out/scene.json").read_text())
    assert said.startswith(f"{record['count']} objects")
    assert said.count("nearest first") == 4
    assert len(list((tmp_path / "out/layers").glob("view-4-*.png"))) == record["count"] + 1


def test_turn_the_camera(tmp_path: Path) -> None:
    run("turn_the_camera.py", tmp_path / "turn.gif")
    with Image.open(tmp_path / "turn.gif") as turn:
        assert turn.size == (512, 256)
        frames = []
        for place in range(0, turn.n_frames, 8):  # type: ignore[attr-defined]
            turn.seek(place)
            frames.append(np.asarray(turn.convert("RGB"), np.float64)[:, :256])
        assert turn.n_frames == 48  # type: ignore[attr-defined]
    steps = [np.abs(after - before).mean() for before, after in itertools.pairwise(frames)]
    assert max(steps) > 3  # the camera moves
    assert min(frame.std() for frame in frames) > 5  # and always sees something


def test_take_an_object(tmp_path: Path) -> None:
    run("take_an_object.py", tmp_path / "strip.png")
    strip = np.asarray(Image.open(tmp_path / "strip.png"), np.float64)
    assert strip.shape == (768, 768, 3)
    first, second, both, aside = (strip[:, left : left + 192] for left in range(0, 768, 192))
    changed = np.abs(both - second).max(-1) > 24
    assert 0.001 < changed.mean() < 0.4  # an object more, the rest as it was
    assert np.abs(first - second).mean() > 3
    assert np.abs(aside - both).mean() > 0.3  # it stands elsewhere
