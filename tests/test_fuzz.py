"""A fuzz target for every parser of foreign files: whatever a file holds, an answer or one clear line, no traceback.

A few mutations here; `make soak` goes on for VIEWSLOTS_FUZZ_SECONDS a target (11 unless told, three minutes in all).
Mutations are drawn from a seed that a failure names, so that it can be seen again (VIEWSLOTS_FUZZ_SEED).
"""

import io
import json
import os
import random
import shutil
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import h5py
import numpy as np
import pytest
from PIL import Image
from shape_world import make_shapes

from viewslots.data.checks import check_dataset
from viewslots.data.import_data import import_data
from viewslots.data.sources.tfrecord import bytes_list, example
from viewslots.data.store import Store
from viewslots.errors import UserError
from viewslots.experiments import experiment
from viewslots.methods.ocloc.model import Ocloc
from viewslots.metrics.arrays import MASKS_ALONE, ScorePair
from viewslots.protocol.results import find_results
from viewslots.runs import load_run
from viewslots.scenes.clevr.family import CLEVR_M
from viewslots.scenes.clevr.spec import Scene
from viewslots.training.run import read_run_config
from viewslots.viewpoints.photos import read_pictures

PATIENCE = 60
"""Seconds after which a parser is said to hang."""
INTERESTING = [b"", b"\0", b"\xff" * 8, b"9" * 40, b"-1", b"1e999", b"NaN", b"[" * 300, b"\x7f\xff\xff\xff", b"../../x"]
ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Target:
    """A good file, and what reads it from a folder of its own."""

    name: str
    good: bytes
    read: Callable[[Path], object]


def picture(kind: str) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def arrays(**values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.savez(file, **values)
    return file.getvalue()


def hdf5() -> bytes:
    """Of the published layout, as small as it can be."""
    with h5py.File(ROOT / "tests/data/clevr_m1_blender_2scenes.h5") as whole:
        file = io.BytesIO()
        with h5py.File(file, "w") as small:
            for name in whole:
                for key, values in whole[name].items():
                    small.create_dataset(f"{name}/{key}", data=values[:1])
        return file.getvalue()


def score(file: Path) -> object:
    truth = file.with_name("truth.npz")
    truth.write_bytes(arrays(segment=np.zeros((1, 1, 8, 8), np.uint8)))
    with ScorePair(file, truth, None, MASKS_ALONE) as pair:
        return list(pair.mask_blocks("cpu"))


def into(kind: str) -> Callable[[Path], object]:
    def read(file: Path) -> object:
        return import_data(kind, file, file.parent / "out")

    return read


def saved(part: str, folder: Path) -> Callable[[Path], object]:
    def read(file: Path) -> object:
        shutil.copytree(folder, file.parent / "model", dirs_exist_ok=True)
        (file.parent / "model" / part).write_bytes(file.read_bytes())
        return load_run(file.parent / "model")

    return read


def stored(part: str, folder: Path) -> Callable[[Path], object]:
    def read(file: Path) -> object:
        shutil.copytree(folder, file.parent / "set", dirs_exist_ok=True)
        (file.parent / "set" / part).write_bytes(file.read_bytes())
        Store.open(file.parent / "set")
        return check_dataset(file.parent / "set")

    return read


def run_config(file: Path) -> object:
    shutil.copy(file, file.with_name("config.json"))
    return read_run_config(file.parent)


def feature(name: bytes, content: bytes) -> bytes:
    """An entry of tf.Example with a list of bytes, in protobuf's own words."""

    def part(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    return part(1, part(1, part(1, name) + part(2, part(1, part(1, content)))))


def message(file: Path) -> object:
    """What the source of TFRecords does with a record whose checksum is right."""
    try:
        return {name: bytes_list(content) for name, (kind, content) in example(file.read_bytes()).items() if kind == 1}
    except ValueError as error:
        raise UserError(str(error)) from error


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    folder = tmp_path_factory.mktemp("good")
    data = make_shapes(folder / "set", train=1, valid=1, size=16, views=1)
    cut = make_shapes(folder / "cut", train=3, valid=2, size=16, views=1, shards=2)
    model = folder / "model"
    Ocloc(experiment("tiny").model).save_pretrained(model)
    results = next((ROOT / "docs/results/umbra/results").glob("*.json")).read_bytes()
    scene = json.dumps(CLEVR_M["clevr-m1"].sample(0, "test1", 0).to_dict()).encode()
    run = next((ROOT / "docs/results/umbra/runs").glob("*/config.json")).read_bytes()
    masks = arrays(layer_masks=np.full((1, 1, 2, 8, 8), 0.5, np.float16), has_background=np.array(True))

    def pictures(file: Path) -> object:
        return read_pictures([file], 16)

    made = [
        *(Target(kind.lower(), picture(kind), pictures) for kind in ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP")),
        Target("npz", masks, score),
        Target("h5", hdf5(), into("ocloc")),
        Target("tfrecord", feature(b"image", bytes(range(48))), message),
        Target("npy", (data / "train/image.npy").read_bytes(), stored("train/image.npy", data)),
        Target("meta", (data / "meta.json").read_bytes(), stored("meta.json", data)),
        Target("shards", (cut / "meta.json").read_bytes(), stored("meta.json", cut)),
        Target("config", (folder / "model/config.json").read_bytes(), saved("config.json", folder / "model")),
        Target(
            "weights", (folder / "model/model.safetensors").read_bytes(), saved("model.safetensors", folder / "model")
        ),
        Target("run", run, run_config),
        Target("results", results, lambda file: find_results([file])),
        Target("scene", scene, Scene.load),
    ]
    return {target.name: target for target in made}


NAMES = [
    "png",
    "jpeg",
    "gif",
    "webp",
    "tiff",
    "bmp",
    "npz",
    "h5",
    "tfrecord",
    "npy",
    "meta",
    "shards",
    "config",
    "weights",
    "run",
]
NAMES += ["results", "scene"]


def mutated(good: bytes, draw: random.Random) -> bytes:
    """Bits flipped, parts cut, doubled or replaced by what parsers stumble over; near the head more often."""
    data = bytearray(good)
    for _ in range(draw.randint(1, 4)):
        reach = len(data) if draw.random() < 0.5 else min(len(data), 512)
        place = draw.randrange(reach + 1)
        what = draw.randrange(5)
        if what == 0 and place < len(data):
            data[place] ^= 1 << draw.randrange(8)
        elif what == 1:
            del data[place:]
        elif what == 2:
            del data[place : place + draw.randint(1, 64)]
        elif what == 3:
            data[place:place] = data[place : place + draw.randint(1, 64)]
        else:
            word = draw.choice(INTERESTING)
            data[place : place + len(word)] = word
    return bytes(data)


@contextmanager
def not_for_ever() -> Iterator[None]:
    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"still reading after {PATIENCE} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def attempt(target: Target, data: bytes, folder: Path, words: str) -> bool:
    """Whether it was taken; an error of another kind fails the test."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    file = folder / {"h5": "file.h5", "npz": "file.npz"}.get(target.name, "file.json")
    file.write_bytes(data)
    with warnings.catch_warnings(), not_for_ever():
        warnings.simplefilter("ignore")
        try:
            target.read(file)
        except UserError as error:
            lines = str(error).splitlines()
        except Exception as error:
            raise AssertionError(f"{target.name}, {words}: {type(error).__name__}: {error}") from error
        else:
            return True
    assert len(lines) == 1, words
    return False


def fuzz(target: Target, folder: Path, seed: int, goes_on: Callable[[int], bool]) -> tuple[int, int]:
    """How many were read, and how many of them taken."""
    assert attempt(target, target.good, folder, "as it is"), "the good file is refused"
    count = taken = 0
    while goes_on(count):
        data = mutated(target.good, random.Random(seed * 1_000_003 + count))
        taken += attempt(target, data, folder, f"seed {seed}, mutation {count}")
        count += 1
    return count, taken


@pytest.mark.parametrize("name", NAMES)
def test_a_few_mutations(name: str, targets: dict[str, Target], tmp_path: Path) -> None:
    count, taken = fuzz(targets[name], tmp_path / "one", 0, lambda done: done < 10)
    assert taken < count, "nothing was refused: the mutations do not reach the parser"


def test_every_target_is_named(targets: dict[str, Target]) -> None:
    assert sorted(targets) == sorted(NAMES)


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_mutations_for_a_while(name: str, targets: dict[str, Target], tmp_path: Path) -> None:
    seconds, begun = float(os.environ.get("VIEWSLOTS_FUZZ_SECONDS", "11")), time.monotonic()
    seed = int(os.environ.get("VIEWSLOTS_FUZZ_SEED", time.time_ns() % 2**31))
    count, taken = fuzz(targets[name], tmp_path / "one", seed, lambda _: time.monotonic() - begun < seconds)
    print(f"{name}: {count} files, {taken} taken, seed {seed}")
