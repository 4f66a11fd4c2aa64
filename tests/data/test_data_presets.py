"""The seven data sets: numbers of the paper's tables and of its appendix."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from viewslots.data.names import DATA_SETS
from viewslots.data.presets import DATA_PRESETS, data_preset
from viewslots.errors import UserError
from viewslots.scenes.clevr.family import CLEVR_M
from viewslots.scenes.tabletop.family import TABLETOP

MULTI = ("clevr-m1", "clevr-m2", "clevr-m3", "clevr-m4")
SINGLE = ("clevr", "dsprites", "abstract")
FEW, MANY = ("train", "valid", "test1", "test1-large", "live"), ("test2", "test2-large")
PAPER = {
    # views, height and width, objects in train, valid and test 1, objects in test 2
    **{name: SimpleNamespace(views=10, size=64, few=(3, 6), many=(7, 10)) for name in MULTI},
    "clevr": SimpleNamespace(views=1, size=128, few=(3, 6), many=(7, 10)),
    "dsprites": SimpleNamespace(views=1, size=64, few=(2, 5), many=(6, 8)),
    "abstract": SimpleNamespace(views=1, size=64, few=(2, 4), many=(5, 6)),
}


def test_names() -> None:
    assert set(DATA_PRESETS) == set(PAPER) | {"clevr-mixed", "tiny-clevr"} | set(TABLETOP)
    assert set(DATA_SETS) == set(DATA_PRESETS)
    assert len(set(DATA_SETS.values())) == 12


def test_tiny_scenes_have_three_objects_in_sight() -> None:
    """Of every view at least a corner of each; never a highlight; the stream of live scenes is one of its own."""
    world = data_preset("tiny-clevr").world(None)
    scenes = [world.sample(0, "train", index) for index in range(6)]
    pictures = world.render(scenes, world.slots("train"))
    assert pictures.image.shape == (6, 4, 32, 32, 3)
    assert {len({body.color for body in scene.objects}) for scene in scenes} == {3}
    assert {body.material for scene in scenes for body in scene.objects} == {"rubber"}
    assert all((pictures.shapes[:, :, k] > 127).any((2, 3)).all() for k in range(3))
    assert world.sample(0, "live", 0) != world.sample(0, "train", 0)
    assert world.slots("test2") == len(world.sample(0, "test2", 0).objects) == 4


@pytest.mark.parametrize("name", sorted(DATA_PRESETS))
def test_worlds_know_what_they_say(name: str) -> None:
    preset = data_preset(name)
    world = preset.world(None) if preset.sized is None else preset.sized(16, 20)
    pictures = world.render([world.sample(0, "train", 0)], world.slots("train"))
    assert pictures.keys() == world.keys
    assert pictures.image.shape[2:4] == (world.height, world.width)


@pytest.mark.parametrize("name", MULTI)
def test_counts_of_the_multi_view_sets(name: str) -> None:
    assert data_preset(name).counts(None, None, None, 0) == {"train": 5000, "valid": 100, "test1": 100, "test2": 100}


@pytest.mark.parametrize("name", SINGLE)
def test_counts_of_the_single_view_sets(name: str) -> None:
    counts = data_preset(name).counts(None, None, None, 0)
    assert counts == {"train": 50_000, "valid": 1000, "test1": 1000, "test2": 1000}


def test_chosen_counts_take_the_place_of_the_papers() -> None:
    preset = data_preset("clevr-m1")
    assert preset.counts(7, None, None, 0) == {"train": 7, "valid": 100, "test1": 100, "test2": 100}
    assert preset.counts(0, 3, 5, 0) == {"train": 0, "valid": 3, "test1": 5, "test2": 5}
    large = preset.counts(None, None, None, 1000)
    assert large == preset.counts(None, None, None, 0) | {"test1-large": 1000, "test2-large": 1000}


@pytest.mark.parametrize("name", PAPER)
def test_pictures_and_objects(name: str) -> None:
    world, paper = data_preset(name).world(None), PAPER[name]
    assert (world.views, world.height, world.width) == (paper.views, paper.size, paper.size)
    for split in FEW:
        assert world.slots(split) == paper.few[1]
    for split in MANY:
        assert world.slots(split) == paper.many[1]


def number_of_objects(scene: object) -> int:
    return len(next(getattr(scene, key) for key in ("objects", "sprites", "pieces") if hasattr(scene, key)))


@pytest.mark.parametrize("name", [*MULTI, "dsprites", "abstract"])
def test_splits_hold_as_many_objects_as_the_paper_says(name: str) -> None:
    """Single-view CLEVR shares its counts with the others and is slow to draw; test_sampling.py looks at it."""
    world, paper = data_preset(name).world(None), PAPER[name]
    for split, (low, high) in (("train", paper.few), ("test1", paper.few), ("test2", paper.many)):
        found = {number_of_objects(world.sample(0, split, index)) for index in range(60)}
        assert found == set(range(low, high + 1)), split


def test_multi_view_presets_are_their_worlds() -> None:
    for name in MULTI:
        assert data_preset(name).world(None) is CLEVR_M[name]


def test_only_the_tabletop_sets_have_other_sizes() -> None:
    assert {name for name, preset in DATA_PRESETS.items() if preset.sized} == set(TABLETOP)
    for name in TABLETOP:
        world = data_preset(name).world(None)
        assert (world.views, world.height, world.width) == (10, 128, 128)
        assert [world.slots(split) for split in ("train", "valid", "test1", "test2-large")] == [6, 6, 6, 9]


def test_only_two_sets_take_outside_art(tmp_path: Path) -> None:
    assert {name for name, preset in DATA_PRESETS.items() if preset.takes_art} == {"dsprites", "abstract"}
    for name in ("dsprites", "abstract"):
        with pytest.raises(UserError, match="nowhere"):
            data_preset(name).world(tmp_path / "nowhere")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UserError) as caught:
        data_preset("clevr-m5")
    assert "clevr-m5" in str(caught.value)
    assert all(name in str(caught.value) for name in PAPER)
