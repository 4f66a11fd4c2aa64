"""Anybody's pictures, of any height and width and without truth: trained on, validated, resumed, scored, shown."""

import json
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from importing import imported
from PIL import Image
from shape_world import Discs, ShapeWorld, make_shapes
from trainings import DIES_AFTER_SAVING, SMALL, assert_same_run, refused, resume, rows, start, train

from viewslots.commands.decompose import decompose
from viewslots.commands.evaluation import evaluate
from viewslots.commands.figures import figures
from viewslots.data.generate import DatasetRecipe, make_dataset
from viewslots.data.store import Store
from viewslots.errors import UserError
from viewslots.explorer.opened import facts_of, held_out, open_numbered
from viewslots.explorer.paint import MODES, SIDE, painted
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.presets import COMPACT
from viewslots.runs import load_run
from viewslots.scenes.tabletop.family import TABLETOP
from viewslots.training.notes import notes
from viewslots.training.start import new_settings
from viewslots.viewpoints.scene import load

SIZES = {"wide": (48, 64), "high": (96, 72)}
TAKEN = {"wide": (48, 64), "high": (64, 48)}
"""By `tiny`, whose own pictures are 32x32: at most twice the sides."""


def draw(folder: Path, size: tuple[int, int], scenes: int = 8, masks: bool = False) -> Path:
    """Two squares on grey, in three views."""
    dice = np.random.default_rng(0)
    for scene in range(scenes):
        (folder / f"scene{scene}").mkdir(parents=True)
        for view in range(3):
            image, mask = np.full((*size, 3), 120, np.uint8), np.zeros(size, np.uint8)
            for index, colour in enumerate(([220, 30, 30], [30, 40, 210]), 1):
                top, left = (int(dice.integers(0, side - 12)) for side in size)
                image[top : top + 12, left : left + 12] = colour
                mask[top : top + 12, left : left + 12] = index
            Image.fromarray(image).save(folder / f"scene{scene}" / f"{view}.png")
            if masks:
                Image.fromarray(mask).save(folder / f"scene{scene}" / f"{view}_segment.png")
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("others")
    return {
        name: imported("pictures", draw(root / name, size), root / f"{name}-data").path for name, size in SIZES.items()
    }


@pytest.fixture(scope="module")
def runs(data: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root, said = tmp_path_factory.mktemp("runs"), {}
    for name, folder in data.items():
        _, said[name] = train("tiny", data=folder, run=root / name, slots=3, **SMALL)
    assert "training a model for pictures of 48x64 instead of 32x32, as in this data set\n" in said["wide"]
    expected = "training a model for pictures of 64x48 instead of 32x32: those of this data set, 96x72, are resized"
    assert expected in said["high"]
    assert "objects" not in said["wide"].split("step 1/")[0]  # nothing is known of them
    return {name: root / name for name in data}


@pytest.mark.parametrize("name", SIZES)
def test_a_run_has_losses_and_pictures_without_truth(runs: dict[str, Path], name: str) -> None:
    model = load_run(runs[name])
    assert model.image_size == TAKEN[name]
    assert model.slots == 3
    validations = [row for row in rows(runs[name]) if row["kind"] == "valid"]
    assert [row["step"] for row in validations] == [10, 20]
    assert all(np.isfinite(row["loss"]) and "ARI-O" not in row for row in validations)
    assert len(list((runs[name] / "pictures").glob("*.png"))) == 2


@pytest.mark.parametrize("name", SIZES)
def test_a_run_goes_on_bit_for_bit(runs: dict[str, Path], data: dict[str, Path], tmp_path: Path, name: str) -> None:
    run, program = tmp_path / "run", ("-c", DIES_AFTER_SAVING, "7")
    process = start("tiny", data=data[name], run=run, slots=3, **SMALL, program=program)
    process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    resume(run)
    assert_same_run(runs[name], run, 20)


def test_other_slots_are_another_run(runs: dict[str, Path]) -> None:
    with pytest.raises(UserError, match="was begun with --slots 3, not 4"):
        train(run=runs["wide"], slots=4, device="cpu", resume=True)


@pytest.mark.parametrize("name", SIZES)
def test_it_is_scored_and_shown(
    runs: dict[str, Path], data: dict[str, Path], tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(runs[name])
    evaluate(run, data=data[name], split="valid", views=3, out=tmp_path / "result.json", device="cpu")
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["image_size"] == list(TAKEN[name])
    assert result["data"]["image_size"] == list(SIZES[name])
    figures(run, data=data[name], out=tmp_path / "figures", split="valid", scenes=1, frames=3, device="cpu")
    assert (tmp_path / "figures" / "decomposition-perceived.svg").exists()
    photo = tmp_path / "photo.png"
    Image.fromarray(np.zeros((90, 100, 3), np.uint8)).save(photo)
    decompose(run, (photo,), out=tmp_path / "taken-apart", device="cpu")
    with Image.open(next((tmp_path / "taken-apart" / "observation").iterdir())) as seen:
        assert seen.size == TAKEN[name][::-1]
    capsys.readouterr()


@pytest.mark.parametrize("name", SIZES)
def test_the_explorer_opens_its_scenes(runs: dict[str, Path], data: dict[str, Path], name: str) -> None:
    reader, split = load(str(runs[name])), held_out(Store.open(data[name]))
    assert (split.name, len(split)) == ("valid", 1)
    opened = open_numbered(reader, split, 7, 2)
    assert opened.title.startswith("Scene 0 of valid: ")  # and what the folder is called
    assert opened.images.shape == (2, 3, *TAKEN[name])
    assert opened.truth is None
    assert facts_of(opened, 0).scores is None
    for mode in MODES:
        shown = painted(opened.rebuilt[0], mode, background=True)
        assert shown.shape[:2] == tuple(SIDE * side // max(TAKEN[name]) for side in TAKEN[name])


def test_scenes_with_masks_are_compared(runs: dict[str, Path], tmp_path: Path) -> None:
    store = imported("pictures", draw(tmp_path / "masked", (48, 64), 2, masks=True))
    opened = open_numbered(load(str(runs["wide"])), held_out(store), 0, 3)
    facts = facts_of(opened, 1)
    assert facts.true_count == 2
    assert facts.scores is not None
    assert facts.scores["IoU"] is None


def test_what_a_person_is_told_before_a_run(data: dict[str, Path], tmp_path: Path) -> None:
    masked = imported("pictures", draw(tmp_path / "masked", (32, 32), masks=True), tmp_path / "masked-data").path
    short = {"steps": 1, "batch": 2, "device": "cpu"}
    _, said = train("tiny", data=masked, run=tmp_path / "few", slots=1, **short)
    assert "warning: scenes here have up to 2 objects, but the model finds at most 1; try --slots 2\n" in said
    assert "instead of 32x32" not in said
    assert "fewer than" not in said
    lone = draw(tmp_path / "lone", (32, 32))
    for picture in sorted(sorted(folder for folder in lone.iterdir() if folder.is_dir())[0].glob("*.png"))[1:]:
        picture.unlink()
    own = imported("pictures", lone, tmp_path / "lone-data")
    _, said = train("tiny", data=own.path, run=tmp_path / "lone-run", **short)
    assert (
        f"1 of {len(own.split('train'))} scenes have fewer than 2 views; they are used with those they have\n" in said
    )
    _, said = train("tiny", data=masked, run=tmp_path / "enough", **short)
    assert "try --slots" not in said
    _, said = train("slot-attention-tiny/dsprites", data=data["wide"], run=tmp_path / "square", **short)
    assert (
        "pictures of 48x64 are cut in the middle and resized to 32x32, the size of this model of slot-attention\n"
    ) in said
    _, said = train("tiny", data=data["wide"], run=tmp_path / "kept", set_=("model.image_size=32",), **short)
    assert "pictures of 48x64 are cut in the middle and resized to 32x32, the size of this model of ocloc\n" in said
    assert load_run(tmp_path / "kept", which="last").image_size == (32, 32)


def test_the_size_of_an_experiment_counts_for_its_own_data_alone(tmp_path: Path) -> None:
    """`tiny` is made for the 64x64 of clevr-m1, at 32x32; other sets of 64x64 are taken as they are. Either is told."""
    short = {"steps": 1, "batch": 2, "device": "cpu"}
    expected = {
        "clevr-m1": ("pictures of 64x64 are resized to 32x32, the size of this model of ocloc\n", (32, 32)),
        "tabletop": ("a model for pictures of 64x64 instead of 32x32, as in this data set\n", (64, 64)),
    }
    for preset, (line, size) in expected.items():
        data = make_shapes(tmp_path / preset, train=2, valid=1, size=64, preset=preset)
        _, said = train("tiny", data=data, run=tmp_path / f"{preset}-run", **short)
        assert line in said
        assert load_run(tmp_path / f"{preset}-run", which="last").image_size == size
    live = new_settings({"preset": "tiny", "data": "live"}, "fp32", fast=True)
    assert expected["clevr-m1"][0].strip() in list(notes(live, ()))


def test_umbra_trains_on_tabletop(tmp_path: Path) -> None:
    """As docs/training.md has it, with few scenes, pixels and steps; both stages."""
    world = replace(TABLETOP["tabletop"], height=16, width=16, views=2)
    data = make_dataset(DatasetRecipe(world, {"train": 2, "valid": 1}, preset="tabletop", seed=0), tmp_path / "set")
    _, said = train("umbra", data=data, run=tmp_path / "run", steps=2, batch=2, device="cpu")
    assert "a model for pictures of 16x16 instead of 64x64, as in this data set\n" in said
    assert load_run(tmp_path / "run").image_size == (16, 16)


def test_objects_are_counted_not_slots(tmp_path: Path) -> None:
    """Two slots, which the preset has; scenes of one object each."""

    class Lonely(ShapeWorld):
        def sample(self, seed: int, split: str, index: int) -> Discs:
            scene = super().sample(seed, split, index)
            return replace(scene, discs=scene.discs[:1])

    data = make_dataset(DatasetRecipe(Lonely(), {"train": 2, "valid": 1}, preset="shapes", seed=0), tmp_path / "set")
    settings = new_settings({"preset": "tiny", "data": str(data), "slots": 1}, "fp32", fast=True)
    assert not any("objects" in line for line in notes(settings, ()))
    both = new_settings({"preset": "tiny", "data": str(make_shapes(tmp_path / "two")), "slots": 1}, "fp32", fast=True)
    assert any("scenes here have up to 2 objects" in line for line in notes(both, ()))


def test_slots_that_networks_fix(data: dict[str, Path], tmp_path: Path) -> None:
    words = {"data": data["wide"], "run": tmp_path / "run", "batch": 2, "device": "cpu"}
    said = refused("space-tiny/dsprites", slots=2, **words)
    assert "--slots 2: the networks of space fix how many objects it can find, 16" in said
    assert not (tmp_path / "run").exists()


def test_first_stages_of_another_size(data: dict[str, Path], tmp_path: Path) -> None:
    """All networks but NVIL's start from `compact`, or from a model for larger pictures."""
    short = {"steps": 1, "batch": 2, "device": "cpu", "init": "compact"}
    _, said = train("umbra", data=data["wide"], run=tmp_path / "second", **short)
    assert "starting from the best model of compact, step 40000, which had another image_size" in said
    Ocloc(COMPACT.sized(128, 128)).save_pretrained(tmp_path / "large")
    train("umbra", data=data["wide"], run=tmp_path / "third", **short | {"init": str(tmp_path / "large")})
    assert load_run(tmp_path / "third").image_size == (48, 64)
