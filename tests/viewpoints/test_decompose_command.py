"""`viewslots decompose`, as a user calls it."""

import io
import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from viewslots.cli import main
from viewslots.figures.video import save_mp4
from viewslots.methods.contract import Search
from viewslots.viewpoints.export import from_run_lengths
from viewslots.viewpoints.familiarity import picture_errors
from viewslots.viewpoints.scene import Reader


class Call:
    """What one call of the command line wrote, and how it ended."""

    def __init__(self, *words: object, code: int = 0) -> None:
        out, err = io.StringIO(), io.StringIO()
        ended: int | str | None = 0
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
            patch.setattr(sys, "argv", ["viewslots", *map(str, words), "--device", "cpu"])
            try:
                main()
            except SystemExit as end:
                ended = end.code
        self.stdout, self.stderr = out.getvalue(), err.getvalue()
        assert ended == code, self.stderr


@pytest.fixture(scope="module")
def photos(clevr: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four views of a scene as a user might have them: larger, wider, one turned by EXIF."""
    folder = tmp_path_factory.mktemp("photos")
    files = []
    for number, pixels in enumerate(clevr[0]):
        large = Image.fromarray(pixels).resize((256, 256), Image.Resampling.BICUBIC)
        wide = Image.new("RGB", (400, 256), "black")
        wide.paste(large, (72, 0))
        exif = Image.Exif()
        if number == 1:
            wide = wide.transpose(Image.Transpose.ROTATE_90)
            exif[0x0112] = 6
        files.append(folder / f"photo {number}.jpg")
        wide.save(files[-1], quality=95, exif=exif)
    return files


@pytest.fixture(scope="module")
def answer(photos: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object], str]:
    out = tmp_path_factory.mktemp("answer") / "out"
    command = [sys.executable, "-m", "viewslots", "decompose", "compact", *map(str, photos), "--out", str(out)]
    done = subprocess.run([*command, "--device", "cpu"], capture_output=True, text=True, timeout=300, check=True)
    return out, json.loads(done.stdout), done.stderr


def test_the_summary_names_what_was_written(answer: tuple[Path, dict[str, object], str]) -> None:
    out, printed, said = answer
    assert isinstance(printed["files"], list)
    assert all(Path(name).is_file() for name in printed["files"])
    record = json.loads(Path(str(printed["scene"])).read_text())
    assert printed["count"] == record["count"] == len(record["objects"])
    assert 1 <= record["count"] <= 7
    assert record["provenance"]["command"].startswith("viewslots decompose compact")
    assert str(out / "sheet.png") in said
    assert printed["warning"] is None
    assert f"Found {printed['count']} object" in said


def test_pictures_were_cropped_and_turned(answer: tuple[Path, dict[str, object], str], clevr: np.ndarray) -> None:
    for number, pixels in enumerate(clevr[0], 1):
        seen = np.asarray(Image.open(answer[0] / f"observation/view-{number}.png"), np.float64)
        assert seen.shape == (64, 64, 3)
        assert np.abs(seen - pixels).mean() < 4


def test_masks_and_sheet_have_content(answer: tuple[Path, dict[str, object], str]) -> None:
    record = json.loads((answer[0] / "scene.json").read_text())
    for view in record["views"]:
        covered = sum(from_run_lengths(mask).sum() for mask in view["masks"].values())
        assert 0 < covered < 64 * 64
        assert covered + from_run_lengths(view["background"]).sum() == 64 * 64
    for name in ("sheet.png", "sheet-complete.png"):
        sheet = np.asarray(Image.open(answer[0] / name))
        assert sheet.shape[1] > 600
        assert sheet.std() > 5


def test_the_same_call_gives_the_same_answer(
    answer: tuple[Path, dict[str, object], str], photos: list[Path], tmp_path: Path
) -> None:
    Call("decompose", "compact", *photos, "--out", tmp_path / "again")
    for path in answer[0].rglob("*.png"):
        first, again = (
            np.asarray(Image.open(file), int) for file in (path, tmp_path / "again" / path.relative_to(answer[0]))
        )
        assert np.abs(first - again).max() <= 1  # the other process may sum in another order
    Call("decompose", "compact", photos[0], "--out", tmp_path / "again", "--slots", 3, "--seed", 5)
    record = json.loads((tmp_path / "again/scene.json").read_text())
    assert len(record["presence"]) == 3
    assert len(list((tmp_path / "again/observation").iterdir())) == 1


def test_the_record_says_how_the_answer_was_found(
    answer: tuple[Path, dict[str, object], str], photos: list[Path], compact: Reader, tmp_path: Path
) -> None:
    """By default as the method is scored: OCLOC plainly. A search is what `decompose` of the library finds."""
    record = json.loads((answer[0] / "scene.json").read_text())
    assert (record["search"], record["seed"]) == (None, 0)
    errors = picture_errors(compact.decompose(photos))
    np.testing.assert_allclose(record["errors"], errors, rtol=1e-3)
    Call("decompose", "compact", *photos, "--out", tmp_path / "two", "--starts", 2, "--spare", 1, "--seed", 3)
    record = json.loads((tmp_path / "two/scene.json").read_text())
    assert record["search"] == asdict(Search(2, spare=1))
    assert record["seed"] == 3
    expected = compact.decompose(photos, seed=3, search=Search(2, spare=1))
    np.testing.assert_allclose(record["errors"], picture_errors(expected), rtol=1e-3)
    Call("decompose", "compact", *photos, "--out", tmp_path / "plain", "--starts", 0)
    record = json.loads((tmp_path / "plain/scene.json").read_text())
    assert record["search"] is None
    np.testing.assert_allclose(record["errors"], errors, rtol=1e-3)


def test_a_warning_comes_first_and_nothing_is_sure_beside_it(tmp_path: Path) -> None:
    Image.new("RGB", (80, 80), (128, 128, 128)).save(tmp_path / "grey.png")
    done = Call("decompose", "compact", tmp_path / "grey.png", "--out", tmp_path / "out")
    printed = json.loads(done.stdout)
    assert next(iter(printed)) == "warning"
    assert printed["warning"].startswith("this picture is unlike what this model was trained on")
    assert f"Warning: {printed['warning']}." in done.stderr
    assert "Found" not in done.stderr
    assert not any("presence" in item for item in printed["objects"])
    record = json.loads((tmp_path / "out/scene.json").read_text())
    assert record["familiarity"]["unfamiliar_pictures"] == [1]
    assert record["familiarity"]["scores"][0] > 1


def test_answers_in_the_pixels_of_the_photos(answer: tuple[Path, dict[str, object], str]) -> None:
    """Photos of 400x256 pixels, of which the model saw the middle square; the second lies on its side."""
    record = json.loads((answer[0] / "scene.json").read_text())
    for place, view in enumerate(record["views"], 1):
        photo = view["photo"]
        assert photo["size"] == [256, 400]
        assert photo["crop"] == {"top": 0, "left": 72, "height": 256, "width": 256}
        segment = np.asarray(Image.open(answer[0] / f"original/view-{place}-segment.png"))
        assert segment.shape == (256, 400)
        assert (segment[:, :72] == 255).all()
        assert (segment[:, 328:] == 255).all()
        small = np.zeros((64, 64), int)
        for number, mask in view["masks"].items():
            small[from_run_lengths(mask)] = int(number)
        middles = segment[2::4, 74:328:4]
        assert (middles == small).mean() > 0.97
        overlay = np.asarray(Image.open(answer[0] / f"original/view-{place}-overlay.png"))
        assert overlay.shape == (256, 400, 3)
        for number, lines in photo["outlines"].items():
            inside = segment == int(number)
            drawn = Image.new("1", (400, 256))
            for line in lines:
                ImageDraw.Draw(drawn).polygon([tuple(point) for point in np.reshape(line, (-1, 2)).tolist()], fill=1)
            both, either = (np.asarray(drawn) & inside).sum(), (np.asarray(drawn) | inside).sum()
            assert either < 100 or both / either > 0.7


def test_a_video_is_a_scene(clevr: np.ndarray, tmp_path: Path) -> None:
    film = np.concatenate([np.repeat(picture[None], 6, 0) for picture in clevr[0]])
    save_mp4(np.kron(film, np.ones((1, 2, 2, 1), np.uint8)), tmp_path / "film.mp4")
    Call("decompose", "compact", tmp_path / "film.mp4", "--frames", 4, "--out", tmp_path / "out")
    for place, picture in enumerate(clevr[0], 1):
        seen = np.asarray(Image.open(tmp_path / f"out/observation/view-{place}.png"), np.float64)
        assert np.abs(seen - picture).mean() < 6


def test_names_of_pictures_are_never_paths_of_answers(clevr: np.ndarray, tmp_path: Path) -> None:
    tricky = tmp_path / "in" / "..%2f..%2fview-1.png"
    tricky.parent.mkdir()
    Image.fromarray(clevr[0, 0]).save(tricky)
    Call("decompose", "compact", tricky, "--out", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]
    assert not [path for path in (tmp_path / "out").rglob("*") if "%2f" in path.name]


def test_bad_input_gets_one_clear_line(photos: list[Path], tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("x")
    (tmp_path / "words.jpg").write_text("no picture")
    (tmp_path / "words.mp4").write_text("no video")
    for words, hint in (
        (("compact", tmp_path / "missing.jpg", "--out", tmp_path / "o"), "missing.jpg: no such file"),
        (("compact", photos[0], tmp_path / "words.jpg", "--out", tmp_path / "o"), "words.jpg: not a picture"),
        (("compact", photos[0], "--out", tmp_path / "full"), "something else"),
        (("nobody", photos[0], "--out", tmp_path / "o"), "nobody"),
        (("compact", "--out", tmp_path / "o"), "at least one picture"),
        (("compact", photos[0], tmp_path / "film.mp4", "--out", tmp_path / "o"), "name it alone"),
        (("compact", tmp_path / "film.mp4", "--out", tmp_path / "o"), "no such file"),
        (("compact", tmp_path / "words.mp4", "--out", tmp_path / "o"), "not a video"),
        (("compact", tmp_path / "words.mp4", "--frames", 0, "--out", tmp_path / "o"), "0 frames"),
    ):
        done = Call("decompose", *words, code=1)
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1
        assert hint in done.stderr
    for words, hint in (
        (("compact", photos[0], "--out", tmp_path / "o", "--slots", 0), "at least 1"),
        (("compact", photos[0], "--out", tmp_path / "o", "--starts", -1), "search.starts cannot be"),
    ):
        assert hint in Call("decompose", *words, code=1).stderr.splitlines()[-1]
    assert not (tmp_path / "o").exists()
