"""`viewslots figures`: what it makes of which run, and what it refuses."""

import base64
import io
import json
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from block_world import make_blocks
from figure_scenes import cut, reader
from PIL import Image

from viewslots.commands.figures import figures
from viewslots.data.import_data import import_data
from viewslots.data.store import Store
from viewslots.errors import UserError
from viewslots.figures.decompositions import decomposition_figure
from viewslots.methods.contract import Search
from viewslots.methods.ocloc.model import Ocloc
from viewslots.methods.ocloc.presets import COMPACT, TINY
from viewslots.methods.per_view.model import PerView
from viewslots.methods.registry import method_class
from viewslots.protocol.evaluate import evaluate
from viewslots.protocol.plan import Plan
from viewslots.protocol.results import result
from viewslots.training.run import RunFolder

SCENES = ["decomposition-perceived", "decomposition-complete", "viewpoints-sampled", "viewpoints-axes"]
TURNING = ["viewpoints-interpolated", "camera-path"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_blocks(tmp_path_factory.mktemp("data") / "blocks")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    Ocloc(TINY).save_pretrained(folder)
    return folder


@pytest.fixture
def run(tmp_path: Path, data: Path) -> Path:
    """A run folder with a model, rows of metrics and results, and a file of somebody else's."""
    with RunFolder.create(tmp_path / "run", {"preset": "tiny", "seed": 0}) as folder:
        folder.log({"step": 1, "kind": "train", "loss": 3.0})
        folder.log({"step": 1, "kind": "valid", "loss": 2.0, "ARI-O": 0.5})
        folder.keep_best(Ocloc(TINY), 1, {"loss": 2.0})
    store, plan = Store.open(data), Plan("test1", views=2, slots=2, repeats=1, extras=False)
    about = {"method": "kmeans", "run": "kmeans", "preset": None, "training": None, "provenance": None}
    content = result(evaluate(method_class("kmeans")(), store, plan), store, plan, about)
    (folder.path / "results.json").write_text(json.dumps(content))
    (folder.path / "notes.json").write_text("[]")
    return folder.path


def made(capsys: pytest.CaptureFixture[str], *words: Any, **options: Any) -> dict[str, list[str]]:
    figures(*words, **{"device": "cpu", "frames": 4} | options)
    return json.loads(capsys.readouterr().out)


def test_a_saved_model(saved: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = made(capsys, str(saved), data=data, out=tmp_path / "deep" / "out", scenes=2)
    assert list(found) == [*SCENES, *TURNING, "viewpoints-estimated"]
    endings = {name: [Path(file).suffix for file in files] for name, files in found.items()}
    assert endings.pop("camera-path") == [".mp4", ".gif"]
    assert set(map(tuple, endings.values())) == {(".png", ".svg")}
    for files in found.values():
        assert all(Path(file).stat().st_size > 1000 for file in files)


def test_the_figure_shows_the_first_views_as_the_model_sees_them(
    saved: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The data set has 64 x 64 pixels, the model 32 x 32: means of squares."""
    found = made(capsys, str(saved), data=data, out=tmp_path / "out", scenes=2, views=2, seed=5)
    stored = Store.open(data).split("test1")["image"][:2, :2].astype(float)
    small = stored.reshape(2, 2, 32, 2, 32, 2, 3).mean((3, 5)) / 255
    image = torch.tensor(small).float().permute(0, 1, 4, 2, 3)
    untrained = replace(reader(), model=Ocloc(TINY))
    sheet = decomposition_figure([untrained.decompose(views, seed=5) for views in image], "complete", "a note")
    with Image.open(found["decomposition-complete"][0]) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    assert pixels.shape[:2] == (sheet.height, sheet.width)
    for panel in sheet.panels:
        np.testing.assert_allclose(cut(pixels, panel).astype(int), panel.pixels, atol=1)
    observed = [panel for panel in sheet.panels if panel.title.endswith("observation")]
    assert len(observed) == 4
    for panel, expected in zip(observed, small.reshape(4, 32, 32, 3), strict=True):
        np.testing.assert_allclose(cut(pixels, panel), expected * 255, atol=0.51)


def test_the_last_views_are_held_out(
    saved: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = made(capsys, str(saved), data=data, out=tmp_path / "out", scenes=1, views=2)
    namespace = "{http://www.w3.org/2000/svg}"
    images = ElementTree.parse(found["viewpoints-estimated"][1]).iter(f"{namespace}image")
    shown = {str(image.findtext(f"{namespace}title")): str(image.get("href")) for image in images}
    stored = Store.open(data).split("test1")["image"][0].astype(float)
    small = stored.reshape(5, 32, 2, 32, 2, 3).mean((2, 4))
    names = [f"Scene 1, held-out picture, new view {place}" for place in (1, 2, 3)]
    assert list(shown)[:3] == names
    for name, expected in zip(names, small[2:], strict=True):
        with Image.open(io.BytesIO(base64.b64decode(shown[name].partition(",")[2]))) as image:
            np.testing.assert_allclose(np.asarray(image), expected, atol=0.51)


def test_a_run_folder_also_has_curves_and_tables(
    run: Path, saved: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = made(capsys, str(run), data=data, out=tmp_path / "out", scenes=1, compare=(str(saved), "kmeans"))
    names = ["comparison", "comparison-layers", "training", "scores-pooled", "scores-paper"]
    assert list(found) == [*SCENES, *TURNING, "viewpoints-estimated", *names]
    text = Path(found["comparison"][1]).read_text()
    assert all(f">{name}<" in text for name in ("run, plain (one pass)", "model, plain (one pass)", "kmeans"))
    assert "Training of run" in Path(found["training"][1]).read_text()
    table = Path(found["scores-pooled"][1]).read_text()
    assert "floor: k-means" in table
    assert "M = 2, K = 2" in table
    mean = json.loads((run / "results.json").read_text())["pooled"]["ARI-A"]["mean"]
    assert f">{mean:.3f}<" in table, "one answer, so no spread"


def test_a_data_set_alone_is_one_sheet(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = made(capsys, data=data, out=tmp_path / "out", scenes=2, views=2)
    assert list(found) == ["scenes-test1"]
    with Image.open(found["scenes-test1"][0]) as sheet:
        pixels = np.asarray(sheet)
    stored = Store.open(data).split("test1")["image"]
    zoom = 128 // stored.shape[3]
    side = stored.shape[3] * zoom
    for scene, view in ((0, 0), (0, 1), (1, 0)):
        left = 3 + scene * (2 * (side + 3) + 16) + view * (side + 3)
        shown = pixels[17 : 17 + stored.shape[2] * zoom : zoom, left : left + side : zoom]
        np.testing.assert_array_equal(shown, stored[scene, view])
    with pytest.raises(UserError, match="ask for 1 to 3"):
        figures(data=data, out=tmp_path / "more", scenes=10**6)
    assert not (tmp_path / "more").exists()


def test_without_ffmpeg_all_but_the_mp4_is_written(
    run: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    figures(str(run), data=data, out=tmp_path / "out", scenes=1, device="cpu", frames=4)
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert list(found) == [*SCENES, *TURNING, "viewpoints-estimated", "training", "scores-pooled", "scores-paper"]
    assert found["camera-path"] == [str(tmp_path / "out" / "camera-path.gif")]
    assert all(Path(file).stat().st_size > 1000 for files in found.values() for file in files)
    assert printed.err.splitlines() == [
        "camera-path: MP4 left out, because imageio-ffmpeg is missing; the GIF is there"
    ]


def panel_titles(svg: str) -> list[str]:
    namespace = "{http://www.w3.org/2000/svg}"
    images = ElementTree.parse(svg).iter(f"{namespace}image")
    return [str(image.findtext(f"{namespace}title")) for image in images]


def test_a_method_that_cannot_turn_the_camera_is_drawn_all_the_same(
    saved: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunFolder.create(tmp_path / "baseline", {"preset": "tiny", "seed": 0}) as folder:
        folder.log({"step": 1, "kind": "train", "loss": 3.0})
        folder.keep_best(PerView(TINY), 1, {"loss": 2.0})
    found = made(capsys, str(folder.path), data=data, out=tmp_path / "out", scenes=2, views=2, compare=(str(saved),))
    assert list(found) == ["decomposition-perceived", "comparison", "comparison-layers", "training"]
    titles = panel_titles(found["decomposition-perceived"][1])
    assert len(titles) == 2 * 2 * (TINY.slots + 3)
    assert titles[-1].endswith("view 2, background")
    text = Path(found["comparison"][1]).read_text()
    assert ">baseline<" in text
    assert ">model, plain (one pass)<" in text


def test_a_method_that_learns_nothing(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the data set's own size, since it has none of its own."""
    found = made(capsys, "kmeans", data=data, out=tmp_path / "out", scenes=1, slots=3)
    assert list(found) == ["decomposition-perceived"]
    with Image.open(found["decomposition-perceived"][0]) as picture:
        assert picture.width > 6 * 256  # panels of 64 x 64 pixels, four times as large
    columns = panel_titles(found["decomposition-perceived"][1])
    assert any("object 3" in column for column in columns)
    asked = made(capsys, "kmeans", data=data, out=tmp_path / "told", scenes=1)  # as many as the data set tells
    told = panel_titles(asked["decomposition-perceived"][1])
    assert any("object 2" in column for column in told)
    assert not any("object 3" in column for column in told)


def test_methods_of_different_sizes_in_one_figure(
    saved: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """32 x 32 and 64 x 64: each sees its own size, all are shown in the larger. Nothing else is drawn."""
    large = tmp_path / "large"
    Ocloc(COMPACT).save_pretrained(large)
    options: dict[str, Any] = {"data": data, "out": tmp_path / "out", "scenes": 2, "views": 1, "comparison_only": True}
    found = made(capsys, str(saved), **options, compare=(str(large), "kmeans"))
    assert list(found) == ["comparison", "comparison-layers"]
    titles = panel_titles(found["comparison"][1])
    assert titles[:2] == ["Truth, observation, scene 1", "Truth, observation, scene 2"]
    assert len(titles) == 2 * (4 + 4 + 4 + 3)
    images = ElementTree.parse(found["comparison"][1]).iter("{http://www.w3.org/2000/svg}image")
    for image in images:
        with Image.open(io.BytesIO(base64.b64decode(str(image.get("href")).partition(",")[2]))) as panel:
            assert panel.size == (64, 64)
    alone = made(capsys, "kmeans", **options, slots=3)
    assert list(alone) == ["comparison", "comparison-layers"]


def test_figures_say_how_their_answers_were_found(
    saved: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Plain answers and searched ones differ, in words and in pixels."""
    pictures = {}
    for starts, words in ((0, "plain (one pass)"), (None, "plain (one pass)"), (3, "searched with 3 starts")):
        found = made(capsys, str(saved), data=data, out=tmp_path / "out", scenes=1, starts=starts)
        for name in ("decomposition-perceived", "decomposition-complete", "viewpoints-estimated"):
            text = Path(found[name][1]).read_text()
            assert f"Answers of model: {words}. Scenes of blocks, test1." in text
        pictures[starts] = Path(found["decomposition-complete"][0]).read_bytes()
    assert pictures[0] == pictures[None]
    assert pictures[3] != pictures[0]


@pytest.mark.parametrize(
    ("options", "words", "beside"),
    [
        ({}, "searched with 2 starts and 1 further look", "searched with 2 starts and 1 further look"),
        ({"starts": 0}, "plain (one pass)", "plain (one pass)"),
        (
            {"starts": 3, "looks": 0, "refine": 2, "spare": 1},
            "searched with 3 starts, 1 spare slot and 2 gradient steps",
            "searched with 2 starts and 1 further look",
        ),
    ],
)
def test_a_method_that_searches_is_asked_as_the_user_says(
    options: dict[str, Any],
    words: str,
    beside: str,
    saved: Path,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Methods beside it are asked as they are scored, but plainly where it is."""
    monkeypatch.setattr(Ocloc, "default_search", Search(2, looks=1))
    found = made(capsys, str(saved), data=data, out=tmp_path / "out", scenes=1, compare=(str(saved),), **options)
    assert f"Answers of model: {words}." in Path(found["decomposition-perceived"][1]).read_text()
    text = Path(found["comparison"][1]).read_text()
    assert f">model, {words}<" in text
    assert f">model&#x27;, {beside}<" in text


def test_scenes_of_one_view_have_no_path(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    single = make_blocks(tmp_path / "single", views=1)
    found = made(capsys, str(saved), data=single, out=tmp_path / "out", scenes=2)
    assert list(found) == SCENES
    assert list(made(capsys, str(saved), data=single, out=tmp_path / "out", scenes=1)) == SCENES[:3]


def test_a_model_of_single_pictures_has_no_viewpoints(
    data: Path, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (saved / "run.json").write_text(json.dumps({"config": {"views": 1}}))
    found = made(capsys, str(saved), data=data, out=tmp_path / "out", scenes=2, views=1)
    assert list(found) == SCENES[:2]
    with pytest.raises(UserError, match="trained on single pictures, so it cannot take 2 for views"):
        made(capsys, str(saved), data=data, out=tmp_path / "out", views=2)


def test_a_model_of_single_pictures_beside_it_changes_the_comparison_alone(
    data: Path, saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    single = tmp_path / "single"
    shutil.copytree(saved, single)
    (single / "run.json").write_text(json.dumps({"config": {"views": 1}}))
    alone = made(capsys, str(saved), data=data, out=tmp_path / "alone", scenes=2)
    found = made(capsys, str(saved), data=data, out=tmp_path / "out", scenes=2, compare=(str(single),))
    assert [name for name in found if not name.startswith("comparison")] == list(alone)
    assert Image.open(found[SCENES[0]][0]).size == Image.open(alone[SCENES[0]][0]).size
    several = made(capsys, str(saved), data=data, out=tmp_path / "both", scenes=2, compare=(str(saved),))
    assert Image.open(found["comparison"][0]).size < Image.open(several["comparison"][0]).size


def test_a_set_of_ones_own_with_few_scenes_and_fewer_views(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two scenes where three are usual, one of them with no picture to hold out; no truth, wide pictures."""
    for scene, views in {"desk": 6, "shelf": 3}.items():
        (tmp_path / "own" / "valid" / scene).mkdir(parents=True)
        for view in range(views):
            pixels = np.random.default_rng(view).integers(0, 256, (36, 48, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "own" / "valid" / scene / f"{view}.png")
    path, _ = import_data("pictures", tmp_path / "own", tmp_path / "set")
    found = made(capsys, str(saved), data=path, out=tmp_path / "out", split="valid")
    assert list(found) == [*SCENES, *TURNING, "viewpoints-estimated"]
    svg = (tmp_path / "out" / "decomposition-perceived.svg").read_text()
    assert "Scenes of set, valid: 1 valid/desk, 2 valid/shelf." in svg
    held_out = (tmp_path / "out" / "viewpoints-estimated.svg").read_text()
    assert "Scene 1" in held_out
    assert "Scene 2" not in held_out
    with pytest.raises(UserError, match="--slots: say how many"):
        figures("kmeans", data=path, out=tmp_path / "floor", split="valid", device="cpu")


def test_all_views_seen_leaves_none_to_hold_out(
    saved: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = made(capsys, str(saved), data=data, out=tmp_path / "out", scenes=1, views=5)
    assert list(found) == [*SCENES, *TURNING]


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"scenes": 4}, r"--scenes: 4 asked for, but test1 of .* has 3"),
        ({"scenes": 0}, "at least 1"),
        ({"frames": 0}, "at least 1"),
        ({"starts": -1}, "search.starts cannot be"),
        ({"starts": 0, "looks": 1}, "--starts 0 is the plain answer, without a search"),
        ({"slots": 0}, "at least 1"),
        ({"views": 0}, "views"),
        ({"views": 6}, "6 views asked for"),
        ({"split": "test9"}, "no split 'test9'"),
        ({"compare": ("nothing-here",)}, "nothing-here: no such folder"),
        ({"results": (Path("/nonexistent/results.json"),)}, "no such file"),
    ],
)
def test_bad_options(options: dict[str, Any], hint: str, saved: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=hint):
        figures(str(saved), data=data, out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"slots": 3, "starts": 2}, "--slots, --starts: name the RUN that this is about"),
        ({"compare": ("compact",)}, "--compare: name the RUN"),
        ({"views": 6}, "6 views asked for, but scenes have 5"),
    ],
)
def test_bad_options_of_a_data_set_alone(options: dict[str, Any], hint: str, data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=hint):
        figures(data=data, out=tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_file_in_the_way(saved: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(UserError, match="out"):
        figures(str(saved), data=data, out=tmp_path / "out", scenes=1)
    assert (tmp_path / "out").read_text() == "mine"
