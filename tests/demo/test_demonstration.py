"""The demonstration from end to end, and the page it leaves: everything inside, nothing loaded, numbers that agree."""

import base64
import io
import json
import os
import re
import shlex
import shutil
import socket
import sys
from dataclasses import dataclass, field
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import adjusted_rand_score

from viewslots.commands.demo import demo
from viewslots.data.checks import check_dataset
from viewslots.data.store import Store
from viewslots.demo import demonstration
from viewslots.demo import page as demo_page
from viewslots.demo.demonstration import MODEL
from viewslots.demo.page import MEANINGS, ModelFacts, Story, model_facts, number_of
from viewslots.errors import UserError
from viewslots.figures.sheets import contact_sheet
from viewslots.methods.contract import Search
from viewslots.methods.registry import method_class
from viewslots.methods.umbra.model import Umbra
from viewslots.metrics.score import METRICS
from viewslots.protocol.evaluate import evaluate
from viewslots.protocol.plan import Plan
from viewslots.viewpoints.scene import load

SCENES, FRAMES, REPEATS, SEED = 2, 6, 2, 5
SEARCH = Search(2, 1, 3)
"""Shorter than the model's own, to save time."""
VOID = {"meta", "img", "br", "link", "input", "source", "hr"}


@dataclass
class Page(HTMLParser):
    """Tags with their attributes, and the text of table rows."""

    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    headings: list[str] = field(default_factory=list)
    open_tags: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open_tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag in ("h1", "h2"):
            self.headings.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags.pop() == tag, "tags close in order"

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open_tags):
            self.rows[-1][-1] += data
        if self.open_tags and self.open_tags[-1] in ("h1", "h2"):
            self.headings[-1] += data

    def pictures(self) -> dict[str, bytes]:
        """By what they show."""
        images = [attributes for tag, attributes in self.tags if tag == "img"]
        return {str(one["alt"]): content_of(str(one["src"])) for one in images}


def content_of(uri: str) -> bytes:
    return base64.b64decode(uri.partition(";base64,")[2], validate=True)


def pixels_of(content: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image.convert("RGB"))


@dataclass(frozen=True)
class Made:
    out: Path
    printed: dict[str, Any]
    said: list[str]

    @property
    def text(self) -> str:
        return Path(self.printed["report"]).read_text(encoding="utf-8")

    def page(self) -> Page:
        page = Page()
        page.feed(self.text)
        page.close()
        assert page.open_tags == []
        return page


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The command, with fewer scenes and repeats and without a network; once a process, in whatever order tests run."""
    out, printed, said = tmp_path_factory.mktemp("demo") / "out", [], []
    (out.parent / MODEL).mkdir()  # a folder of the model's name must not take its place

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("went to the network")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", refuse)
        patch.setattr(socket, "getaddrinfo", refuse)
        patch.setattr(os, "fsync", lambda handle: None)
        patch.chdir(out.parent)
        patch.setattr(demonstration, "REPEATS", REPEATS)
        patch.setattr(Umbra, "default_search", SEARCH)
        patch.setattr(demonstration, "run_demo", partial(demonstration.run_demo, scenes=SCENES, frames=FRAMES))
        patch.setattr("viewslots.commands.demo.print_json", printed.append)
        patch.setattr("viewslots.commands.demo.say", said.append)
        demo(out, SEED)
    return Made(out, json.loads(json.dumps(printed[0])), said)


def test_what_is_printed(made: Made) -> None:
    assert list(made.printed) == ["report", "sheet", "video", "scores", "data", "seed"]
    assert made.printed["seed"] == SEED
    assert made.printed["report"] == str(made.out / "report.html")
    assert made.printed["report"] in made.said[-1]
    assert "explore" in made.said[-1]
    assert len(made.said) == 1


def test_the_data_set_is_whole(made: Made) -> None:
    assert check_dataset(Path(made.printed["data"])).scenes == {"test1": SCENES}


def test_scores_of_the_floor_are_those_of_the_protocol(made: Made) -> None:
    plan = Plan("test1", views=4, slots=7, repeats=REPEATS, extras=False)
    repeats = evaluate(method_class("kmeans")(), Store.open(made.printed["data"]), plan)
    for kind in ("paper", "pooled"):
        expected = [repeats.one(index)[kind] for index in range(REPEATS)]
        for metric in METRICS:
            values = [one[metric] for one in expected]
            found = made.printed["scores"]["kmeans"][kind][metric]
            if None in values:
                assert found is None
            else:
                assert found == pytest.approx(np.mean(values), abs=1e-6)


def test_scores_of_the_model_are_those_of_the_answers_shown(made: Made) -> None:
    """The share that is counted right by the headings, and the partition of the coloured pictures by scikit-learn."""
    found, arrays = made.printed["scores"][MODEL]["paper"], Store.open(made.printed["data"]).split("test1")
    right = [text.endswith("as many as there are") for text in made.page().headings if text.startswith("Scene ")]
    assert found["OCA"] == pytest.approx(np.mean(right))
    panels, scores = made.page().pictures(), []
    for scene in range(SCENES):
        true, guessed = [], []
        for view in range(4):
            name = f"Scene {scene + 1}, view {view + 1}"
            true.append(arrays["segment"][scene, view].ravel())
            guessed.append(tints(pixels_of(panels[f"{name}: objects"])).ravel())
        scores.append(adjusted_rand_score(np.concatenate(true), np.concatenate(guessed)))
    assert found["ARI-A"] == pytest.approx(np.mean(scores), abs=1e-6)


def tints(pixels: np.ndarray) -> np.ndarray:
    """Of a picture with objects in colours: 0 where it is grey, else one number for each hue."""
    spread = pixels.max(-1).astype(int) - pixels.min(-1)
    hues = np.asarray(Image.fromarray(pixels).convert("HSV"))[..., 0].astype(float)
    known = np.array([k * 0.618034 % 1 for k in range(7)]) * 255
    apart = np.abs(hues[..., None] - known)
    return np.where(spread < 60, 0, np.minimum(apart, 255 - apart).argmin(-1) + 1)


def test_scores_are_kept_on_disk(made: Made) -> None:
    assert json.loads((made.out / f"seed-{SEED}" / "scores.json").read_text()) == made.printed["scores"]


def test_the_page_needs_nothing_else(made: Made) -> None:
    page = made.page()
    used = {tag for tag, _ in page.tags}
    assert not used & {"script", "link", "iframe", "object", "embed", "base", "form"}
    for tag, attributes in page.tags:
        for name in ("src", "href", "poster", "srcset", "data", "action"):
            value = attributes.get(name)
            assert value is None or value.startswith("data:"), (tag, name)
        assert not any(name.startswith("on") for name in attributes)
        if tag == "img":
            assert attributes.get("alt")
    style = made.text.partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    assert "prefers-color-scheme: dark" in style
    assert re.search(r'<meta name="viewport" content="width=device-width', made.text)
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", made.text)


def test_scores_on_the_page_are_those_printed(made: Made) -> None:
    def row(name: str, kind: str) -> list[str]:
        values = made.printed["scores"][name][kind]
        return ["N/A" if values[metric] is None else f"{values[metric]:.3f}" for metric in METRICS]

    rows = {cells[0]: cells[1:] for cells in made.page().rows}
    assert rows["method"] == list(METRICS)
    assert rows[f"{MODEL}, these {SCENES} scenes"] == row(MODEL, "paper")
    assert rows["k-means on colours and places, the floor"] == row("kmeans", "paper")
    assert rows[MODEL] == row(MODEL, "pooled")
    assert rows["kmeans"] == row("kmeans", "pooled")
    validated = model_facts(MODEL, 0).validated
    assert rows[f"{MODEL}, validation scenes after training"] == [f"{validated[metric]:.3f}" for metric in METRICS]
    assert set(MEANINGS) == set(METRICS)


def test_panels_show_the_scenes(made: Made) -> None:
    page, images = made.page(), Store.open(made.printed["data"]).split("test1")["image"]
    panels = page.pictures()
    for scene in range(SCENES):
        for view in range(4):
            name = f"Scene {scene + 1}, view {view + 1}"
            np.testing.assert_array_equal(pixels_of(panels[f"{name}: observation"]), images[scene, view])
            rebuilt = pixels_of(panels[f"{name}: rebuilt"]).astype(float)
            assert np.abs(rebuilt - images[scene, view]).mean() < 15, "rebuilt resembles what was seen"
            held_out = pixels_of(panels[f"Scene {scene + 1}, new view {view + 1}: the picture"])
            np.testing.assert_array_equal(held_out, images[scene, 6 + view])
    absent = sum(cells.count("absent") for cells in page.rows)
    objects = {name for name in panels if re.search(r": object \d", name)}
    assert len(objects) + absent // 2 == SCENES * 4 * 7, "each slot is a picture or absent, in both tables"
    tables = [cells for cells in page.rows if "observation" in cells]
    assert len(tables) == 2 * SCENES
    for cells in tables:
        assert presences(cells) == sorted(presences(cells), reverse=True)
        assert [cells.index(name) for name in ("observation", "rebuilt", "objects", "background")] == [1, 2, 3, 11]
    assert absent == 4 * sum(value < 0.5 for cells in tables for value in presences(cells))


def presences(heads: list[str]) -> list[float]:
    """Of the seven slots, from the heads of a table."""
    found = [float(text) for text in re.findall(r"object \dpresence (\d\.\d\d)", "".join(heads))]
    assert len(found) == 7
    return found


def test_headings_tell_how_many_were_found(made: Made) -> None:
    segment = Store.open(made.printed["data"]).split("test1")["segment"][:, :4]
    headings = made.page().headings
    assert headings[0] == "Two scenes nobody has seen before"
    found = [text for text in headings if text.startswith("Scene ")]
    assert len(found) == SCENES
    order = [cells for cells in made.page().rows if "observation" in cells][::2]
    for scene, (text, cells) in enumerate(zip(found, order, strict=True)):
        there = len(set(np.unique(segment[scene]).tolist()) - {255})
        count = sum(value >= 0.5 for value in presences(cells))
        verdict = "as many as there are" if there == count else f"where there are {number_of(there)}"
        assert text == f"Scene {scene + 1}: {number_of(count, 'object')} found, {verdict}"


def test_video_and_sheet_are_inside(made: Made) -> None:
    page = made.page()
    (video,) = [attributes for tag, attributes in page.tags if tag == "video"]
    assert content_of(str(video["src"])) == Path(made.printed["video"]).read_bytes()
    assert {"controls", "muted", "loop", "playsinline"} <= set(video)
    assert imageio_ffmpeg.count_frames_and_secs(made.printed["video"])[0] == FRAMES
    reader = imageio_ffmpeg.read_frames(made.printed["video"])
    assert next(reader)["size"] == (SCENES * 192 + 4, 2 * 192 + 4)
    reader.close()
    sheet = page.pictures()["Contact sheet of all scenes with their truth"]
    assert sheet == Path(made.printed["sheet"]).read_bytes()
    truth = demonstration.stored_pictures(Store.open(made.printed["data"]))
    np.testing.assert_array_equal(pixels_of(sheet), np.asarray(contact_sheet(truth, zoom=2)))
    assert truth.image.shape[:2] == (SCENES, 4)


def test_the_page_says_what_model_this_is(made: Made) -> None:
    facts, text = model_facts(MODEL, 0), " ".join(made.text.split())
    assert facts.steps is not None
    assert facts.first_steps == 12_000 + 6_000 + 12_000 + 32_000 + 32_000 + 4_000 + 7_000  # docs/model-card.md
    assert f"first as umbra-glimpses/clevr-mixed for 105,000 steps in all, then for {facts.steps:,} steps" in text
    assert "Of two starts, the one" in text
    assert "then one more look at what no object explains yet" in text
    assert "(3 gradient steps a time)" in text
    assert "3.1 million parameters" in text
    assert "A handful of scenes tells little" in text
    assert f"means over {REPEATS} answers" in text
    assert made.text.startswith("<!doctype html>\n")
    assert made.text.endswith("</html>\n")


def test_again_into_the_same_folder(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scenes that are there are not made again; nothing else of the folder is touched."""
    before, text = sorted(made.out.rglob("*.npy")), made.text
    times = [file.stat().st_mtime_ns for file in before]
    (made.out / "notes.txt").write_text("mine")
    monkeypatch.chdir(made.out.parent)  # commands on the page are as they can be typed here
    monkeypatch.setattr(Umbra, "default_search", SEARCH)
    monkeypatch.setattr(demonstration, "REPEATS", REPEATS)
    monkeypatch.setattr(demonstration, "all_scores", lambda *words: made.printed["scores"])  # known
    again = demonstration.run_demo(made.out, SEED, scenes=SCENES, frames=FRAMES)
    assert [file.stat().st_mtime_ns for file in before] == times
    assert made.text == text
    assert json.loads(json.dumps(again.to_json())) == made.printed
    assert (made.out / "notes.txt").read_text() == "mine"
    with pytest.raises(UserError, match=r"seed-5.data: holds another data set"):
        demonstration.run_demo(made.out, SEED, scenes=SCENES + 1)
    assert made.text == text


def test_pages_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text("<html>my thesis</html>")
    with pytest.raises(UserError, match=r"report\.html: not a page of this demo"):
        demonstration.run_demo(tmp_path, 1)
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file"):
        demonstration.run_demo(tmp_path / "file", 1)


def test_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    seen = []

    def failing() -> None:
        with demonstration.one_thread():
            seen.append(torch.get_num_threads())
            raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        failing()
    assert seen == [1]
    assert torch.get_num_threads() == before


def test_without_ffmpeg_the_video_is_a_gif(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise RuntimeError("No ffmpeg exe could be found")

    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", missing)
    frames = np.zeros((3, 8, 8, 3), np.uint8)
    frames[1] = 200
    video = demonstration.saved_video(frames, tmp_path / "video")
    assert video.name == "video.gif"
    scores: Any = {name: {"paper": {}, "pooled": {}} for name in ("m", "kmeans")}
    facts = ModelFacts("m", 1, None, None, None, None, {})
    scene: Any = demonstration.decomposed(
        load("compact"), demonstration.pictures_of(Store.open(made.printed["data"]))[0][:1], lambda *_: None
    )[0]
    story = Story(facts, [scene], demonstration.pictures_of(Store.open(made.printed["data"]))[1][:1], [2], scores, 0)
    page = Page()
    page.feed(demo_page.report_page(story, b"", video, [("run <this>", "a & b")], 5))
    (shown,) = [attributes for tag, attributes in page.tags if attributes.get("class") == "video"]
    assert content_of(str(shown["src"])) == video.read_bytes()
    assert str(shown["src"]).startswith("data:image/gif")
    assert shown["alt"]
    assert "this" not in {tag for tag, _ in page.tags}, "text is escaped"


@pytest.mark.parametrize(
    ("counts", "visible", "sentence"),
    [
        ((3, 4), (3, 4), "Here it counts the objects of every scene right."),
        ((3, 5), (3, 4), "the objects of one scene of two right, and finds too many in the others"),
        ((3, 3), (3, 4), "the objects of one scene of two right."),
        ((5, 3), (4, 4), "the objects of no scenes of two right."),
    ],
)
def test_counting_in_words(counts: tuple[int, ...], visible: tuple[int, ...], sentence: str) -> None:
    facts = ModelFacts("m", 1, None, None, None, None, {})
    scenes: Any = [SimpleNamespace(count=count) for count in counts]
    story = Story(facts, scenes, torch.zeros(2, 1, 3, 4, 4), visible, {}, 0)
    assert sentence in story.counting()


def test_numbers_in_words() -> None:
    assert number_of(1, "object") == "one object"
    assert number_of(0, "object") == "no objects"
    assert number_of(12, "object") == "12 objects"
    assert number_of(4) == "four"


def test_a_model_without_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("viewslots.demo.page.shipped_folder", lambda: tmp_path)
    facts = model_facts("compact", 7)
    assert facts == ModelFacts("compact", 7, None, None, None, None, {})
    assert facts.training() == "how it was trained is not on record"


def test_means_leave_out_what_is_missing(made: Made) -> None:
    plan = Plan("test1", views=2, slots=2, repeats=2, extras=False)
    found = demonstration.scores_of(method_class("kmeans")(), Store.open(made.printed["data"]), plan)
    assert found["paper"]["OOA"] is None
    assert list(found["pooled"]) == list(METRICS)


def test_commands_can_be_typed_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert demonstration.program() == "viewslots"
    monkeypatch.setattr(shutil, "which", lambda name: None)
    home = tmp_path / ".venv" / "bin"
    home.mkdir(parents=True)
    monkeypatch.setattr(sys, "executable", str(home / "python"))
    monkeypatch.chdir(tmp_path)
    assert demonstration.program() == f"{home / 'python'} -m viewslots"
    (home / "viewslots").touch()
    assert demonstration.program() == ".venv/bin/viewslots"
    monkeypatch.chdir(home.parent.parent.parent)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert demonstration.program() == str(home / "viewslots")
    commands = demonstration.next_commands(tmp_path / "with space")
    assert all(shlex.split(command)[0] == str(home / "viewslots") for command, _ in commands)
    assert [shlex.split(command)[4] for command, _ in commands if " figures " in command] == [f"{tmp_path}/with space"]
