"""The commands end to end, as a user or another program calls them."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from viewslots.commands.data import make_data, render
from viewslots.commands.info import info
from viewslots.data.store import Store
from viewslots.errors import UserError
from viewslots.runs import load_run, shipped_models
from viewslots.scenes.tabletop.family import TABLETOP

REFERENCES = Path(__file__).parent / "data" / "blender_refs"


def viewslots(*words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "viewslots", *map(str, words)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == code, done.stderr
    return done


def refused(*words: object) -> str:
    """Run with bad input: exit 1, one line on stderr, nothing on stdout, no traceback."""
    done = viewslots(*words, code=1)
    assert done.stdout == ""
    assert done.stderr.startswith("viewslots: ")
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


@pytest.fixture(scope="module")
def tiny_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of a few scenes, made by the command."""
    folder = tmp_path_factory.mktemp("made") / "dsprites"
    sizes = ("--train-scenes", 3, "--valid-scenes", 2, "--test-scenes", 2, "--large-scenes", 1)
    done = viewslots("make-data", "dsprites", "--out", folder, "--seed", 7, *sizes)
    assert done.stdout == f"{folder}\n"
    return folder


def test_version_and_help() -> None:
    assert viewslots("--version").stdout.startswith("viewslots 0.")
    assert viewslots("make-data", "--version").stdout.startswith("viewslots 0.")
    text = viewslots("--help").stdout
    for command in (
        "demo",
        "make-data",
        "import-data",
        "export-data",
        "check-data",
        "convert",
        "render",
        "info",
        "bench",
    ):
        assert command in text


def test_bad_usage_exits_2() -> None:
    assert "nonsense" in viewslots("nonsense", code=2).stderr
    viewslots("make-data", "clevr-m1", code=2)
    viewslots("make-data", "clevr-m9", "--out", "x", code=2)
    viewslots("import-data", "films", "x", "--out", "y", code=2)


def test_make_data_makes_what_was_asked(tiny_set: Path) -> None:
    store = Store.open(tiny_set)
    sizes = {split: len(store.split(split)) for split in store.splits}
    assert sizes == {"train": 3, "valid": 2, "test1": 2, "test2": 2, "test1-large": 1, "test2-large": 1}
    assert store.split("test2")["shapes"].shape[2] == 8
    assert (store.split("test2")["num_objects"][:] >= 6).all()
    assert (store.split("train")["num_objects"][:] <= 5).all()


def test_counts_do_not_change_scenes(tiny_set: Path, tmp_path: Path) -> None:
    """Scene i depends on (seed, split, i) alone: a smaller set is the beginning of a larger one."""
    viewslots(
        "make-data",
        "dsprites",
        "--out",
        tmp_path / "one",
        "--seed",
        7,
        "--train-scenes",
        1,
        "--valid-scenes",
        0,
        "--test-scenes",
        1,
        "--batch",
        1,
    )
    small, large = Store.open(tmp_path / "one"), Store.open(tiny_set)
    for split in ("train", "test1", "test2"):
        for key in ("image", "shapes", "depth_order"):
            np.testing.assert_array_equal(small.split(split)[key][0], large.split(split)[key][0])


def test_check_data(tiny_set: Path, tmp_path: Path) -> None:
    report = json.loads(viewslots("check-data", tiny_set).stdout)
    assert report["ok"] is True
    assert report["scenes"]["train"] == 3
    broken = tmp_path / "broken"
    subprocess.run(["cp", "-r", tiny_set, broken], check=True)
    segment = np.load(broken / "train" / "segment.npy")
    segment[1, 0, 5, 5] = 77
    np.save(broken / "train" / "segment.npy", segment)
    assert "train" in refused("check-data", broken)


def test_convert_there_and_back(tiny_set: Path, tmp_path: Path) -> None:
    viewslots("convert", tiny_set, tmp_path / "set.h5")
    with h5py.File(tmp_path / "set.h5") as file:
        assert {"train", "valid", "test", "general"} <= set(file)
    viewslots("convert", tmp_path / "set.h5", tmp_path / "back")
    first, again = Store.open(tiny_set), Store.open(tmp_path / "back")
    for split in ("train", "valid", "test1", "test2"):
        for key in ("image", "segment", "shapes", "overlap"):
            np.testing.assert_array_equal(first.split(split)[key], again.split(split)[key])
    viewslots("check-data", tmp_path / "back")


def test_export_and_import_again(tiny_set: Path, tmp_path: Path) -> None:
    assert viewslots("export-data", tiny_set, "--out", tmp_path / "folders").stdout == f"{tmp_path / 'folders'}\n"
    done = viewslots("import-data", "pictures", tmp_path / "folders", "--out", tmp_path / "again")
    assert done.stdout == f"{tmp_path / 'again'}\n"
    first, again = Store.open(tiny_set), Store.open(tmp_path / "again")
    assert set(again.splits) == set(first.splits)
    for split in again.splits:
        for key in ("image", "segment"):
            np.testing.assert_array_equal(first.split(split)[key], again.split(split)[key])


def test_render_reads_a_reference_as_it_is(tmp_path: Path) -> None:
    out = tmp_path / "picture.npz"
    assert viewslots("render", REFERENCES / "ref_12.json", "--out", out, "--seed", 3).stdout == f"{out}\n"
    with np.load(out) as made, np.load(REFERENCES / "ref_12.npz") as truth:
        assert made["image"].shape == (1, 64, 64, 3)
        assert made["image"].dtype == np.uint8
        assert made["linear"].dtype == np.float32
        assert made["shapes"].shape == (1, 5, 64, 64)
        assert (made["segment"][0] == truth["segment"]).mean() > 0.99
        assert abs(made["linear"].mean() / truth["linear"].mean() - 1) < 0.02


def test_a_tabletop_set_of_another_size_holds_and_renders_again(tmp_path: Path) -> None:
    counts = ("--train-scenes", 1, "--valid-scenes", 0, "--test-scenes", 0)
    viewslots("make-data", "tabletop", "--out", tmp_path / "set", "--size", "12x16", *counts)
    report = json.loads(viewslots("check-data", tmp_path / "set").stdout)
    assert report["pictures"] == 10
    viewslots("render", tmp_path / "set" / "train" / "scenes.jsonl", "--out", tmp_path / "again.npz")
    with np.load(tmp_path / "again.npz") as again:
        for key in ("image", "segment", "pose", "intrinsics"):
            assert np.array_equal(again[key], np.load(tmp_path / "set" / "train" / f"{key}.npy")[0]), key


def test_render_seed_changes_the_noise_alone(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        viewslots("render", REFERENCES / "ref_00.json", "--out", tmp_path / f"{name}.npz", "--seed", seed)
    a, b, c = (np.load(tmp_path / f"{name}.npz") for name in "abc")
    np.testing.assert_array_equal(a["image"], b["image"])
    np.testing.assert_array_equal(a["shapes"], c["shapes"])
    assert (a["image"] != c["image"]).mean() > 0.1


@pytest.mark.soak
def test_bench_scenes_tells_its_story(tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    words = ("bench", "scenes", "--device", "cpu", "--seconds", 0.01, "--out", out)
    printed = json.loads(viewslots(*words).stdout)
    assert printed == json.loads(out.read_text())
    assert printed["pictures_per_second"] > 0
    assert printed["fast_over_reference"] > 1
    assert printed["provenance"]["command"].startswith("viewslots bench scenes")


def test_bench_train_has_a_row_for_any_experiment() -> None:
    names = ("slot-attention-tiny/dsprites", "tiny")
    printed = json.loads(viewslots("bench", "train", *names, "--device", "cpu", "--seconds", 0.01).stdout)
    assert tuple(printed["experiments"]) == names
    for one in printed["experiments"].values():
        assert one["fast_over_plain"] == pytest.approx(one["fast"] / one["plain"])
    assert [(row["experiment"], row["way"]) for row in printed["rows"]] == [
        (name, way) for name in names for way in ("plain", "fast")
    ]
    assert "nonsense" in refused("bench", "train", "nonsense")
    assert "takes no experiments" in refused("bench", "infer", "tiny")
    assert "takes no --data" in refused("bench", "infer", "--data", "set")


@pytest.mark.soak
def test_bench_infer_puts_ours_beside_the_papers() -> None:
    printed = json.loads(viewslots("bench", "infer", "--device", "cpu", "--seconds", 0.01).stdout)
    assert printed["models"]["clevr-m1"]["parameters"] == 55_086_527
    assert printed["models"]["compact"]["parameters"] <= 4_000_000
    times = {name: row["decompose_seconds"] for name, row in printed["models"].items()}
    assert printed["paper_over_compact"] == pytest.approx(times["clevr-m1"] / times["compact"])
    searched = printed["searched"]
    assert set(searched) == {"umbra", "umbra-quick"}
    assert searched["umbra"]["search"]["refinement"] > searched["umbra-quick"]["search"]["refinement"] == 0
    ratio = searched["umbra"]["default_seconds"] / searched["umbra-quick"]["default_seconds"]
    assert printed["umbra_over_quick"] == pytest.approx(ratio)


def test_info_counts_the_papers_parameters() -> None:
    described = json.loads(viewslots("info", "clevr-m1").stdout)
    assert described["parameters"]["total"] == 55_086_527
    listed = json.loads(viewslots("info").stdout)
    assert listed["experiments"]["ocloc/clevr-m1"] == "150,000 steps of 32 scenes"
    assert listed["short_names"]["umbra"] == "umbra/clevr-m1"
    assert listed["shipped_models"]["umbra-quick"] == (
        "umbra, trained as umbra-glimpses/clevr-mixed, 3,600 steps after 105,000 of earlier stages"
    )
    assert set(listed["shipped_models"]) == set(shipped_models())


def test_info_describes_trained_models(capsys: pytest.CaptureFixture[str]) -> None:
    """By name where no experiment has it, beside the experiment where one has, and by folder."""
    info("umbra-quick")
    found = json.loads(capsys.readouterr().out)
    assert (found["method"], found["experiment"]) == ("umbra", "umbra-glimpses/clevr-mixed")
    assert found["parameters"]["total"] == sum(part.numel() for part in load_run("umbra-quick").parameters())
    assert found["training"]["scored_step"] == 3600
    experiment, place = found["training"]["init"].split(" of ")
    before = json.loads((Path(__file__).parent.parent / place / "run.json").read_text())
    assert before["config"]["preset"] == experiment == "umbra-glimpses/clevr-mixed"
    info(found["folder"])
    assert json.loads(capsys.readouterr().out) == found | {"model": found["folder"]}
    info("umbra")
    both = json.loads(capsys.readouterr().out)
    assert both["experiment"] == "umbra/clevr-m1"
    assert both["shipped_model"]["model"] == "umbra"
    assert "shipped_model" in both[next(iter(both))]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("make-data", "clevr", "--out", "/dev/null/deep/folder"), "/dev/null/deep"),
        (("make-data", "clevr-m1", "--out", "x", "--art", "y"), "--art"),
        (("make-data", "clevr-m1", "--out", "x", "--size", "64"), "--size: clevr-m1 has one size"),
        (("make-data", "tabletop", "--out", "x", "--size", "4x99999"), "8 to 1024 pixels"),
        (("make-data", "tabletop", "--out", "x", "--size", "big"), "HxW"),
        (("check-data", "/nonexistent"), "/nonexistent"),
        (("convert", "/nonexistent.h5", "/tmp/never-made"), "/nonexistent.h5"),
        (("import-data", "pictures", "/nonexistent", "--out", "x"), "/nonexistent"),
        (("import-data", "movi", "/tmp", "--out", "x", "--size", "wide"), "--size wide"),
        (("export-data", "/nonexistent", "--out", "x"), "/nonexistent"),
        (("render", "/nonexistent.json", "--out", "/tmp/never.npz"), "/nonexistent.json"),
        (("render", REFERENCES / "ref_00.json", "--out", "/nonexistent/x.npz"), "/nonexistent"),
        (("render", REFERENCES / "ref_00.npz", "--out", "/tmp/never.npz"), "ref_00.npz"),
        (("render", REFERENCES / "ref_00.json", "--out", "/tmp/never.jpg"), ".npz"),
        (("bench", "scenes", "--out", "/dev/null/x.json"), "/dev/null"),
        (("make-data", "abstract", "--out", "x", "--seed", 2**70), "seed"),
        (("info", "clevr-m9"), "clevr-m9"),
    ],
)
def test_bad_input_gets_one_clear_line(words: tuple[object, ...], hint: str) -> None:
    assert hint in refused(*words)


def test_a_finished_data_set_is_not_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, counts = tmp_path / "a" / "b", {"train_scenes": 2, "valid_scenes": 1, "device": "cpu"}
    make_data("abstract", out=out, test_scenes=0, **counts)
    made = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    capsys.readouterr()
    make_data("abstract", out=out, test_scenes=0, **counts)
    printed = capsys.readouterr()
    assert printed.out == f"{out}\n"
    assert "already complete" in printed.err
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == made
    with pytest.raises(UserError, match="already a complete data set"):
        make_data("abstract", out=out, test_scenes=1, **counts)


def test_render_takes_a_scene_a_view_and_a_size(tmp_path: Path) -> None:
    """Of a file with one scene a line; tabletop, whose focal length is a share of the side."""
    world = replace(TABLETOP["tabletop-plain"], height=16, width=16, views=3)
    scenes = [world.sample(0, "test1", index) for index in range(2)]
    lines = tmp_path / "scenes.jsonl"
    lines.write_text("".join(json.dumps(scene.to_dict()) + "\n" for scene in scenes))
    render(lines, out=tmp_path / "one.npz", scene_number=1, view="2,0", device="cpu")
    render(lines, out=tmp_path / "large.npz", scene_number=1, view="2", size="32x48", device="cpu")
    whole = world.render(scenes[1:], world.slots("test1"))
    with np.load(tmp_path / "one.npz") as one, np.load(tmp_path / "large.npz") as large:
        assert np.array_equal(one["pose"], whole.pose[0, [2, 0]])
        assert np.array_equal(one["segment"], whole.segment[0, [2, 0]])
        assert large["image"].shape == (1, 32, 48, 3)
        np.testing.assert_allclose(large["intrinsics"][0], [*2 * whole.intrinsics[0, 2, :2], 24, 16], rtol=1e-6)
        assert (large["segment"][0, ::2, 8:40:2] == one["segment"][0]).mean() > 0.9
    for words, said in (
        ({}, "more than one scene; .* choose one with --scene N"),
        ({"scene_number": 2}, "no scene 2; it has 2"),
        ({"scene_number": -1}, "no scene -1"),
        ({"scene_number": 0, "view": "3"}, "--view 3: give numbers from 0 to 2"),
        ({"scene_number": 0, "view": "all"}, "--view all: give numbers"),
        ({"scene_number": 0, "size": "2000"}, "--size 2000: pictures have 8 to 1024 pixels"),
    ):
        with pytest.raises(UserError, match=said):
            render(lines, out=tmp_path / "never.png", device="cpu", **words)
    assert not (tmp_path / "never.png").exists()


def test_fewer_scenes_than_shards_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = {"train_scenes": 3, "valid_scenes": 2, "test_scenes": 1, "device": "cpu"}
    make_data("abstract", out=tmp_path / "set", shards=3, **counts)
    said = capsys.readouterr().err
    assert "no more shards than scenes: valid 2, test1 1, test2 1 instead of 3\n" in said
    assert (tmp_path / "set" / "valid" / "00001").is_dir()
    make_data("abstract", out=tmp_path / "whole", **counts)
    assert "shards" not in capsys.readouterr().err


def test_the_tool_of_the_pictures_has_help() -> None:
    tool = Path(__file__).parent.parent / "tools" / "dataset_pictures.py"
    done = subprocess.run([sys.executable, tool, "--help"], capture_output=True, text=True, timeout=300, check=True)
    assert "docs/pictures" in done.stdout
    done = subprocess.run([sys.executable, tool, "clevr-m9"], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert "no data set 'clevr-m9'" in done.stderr
