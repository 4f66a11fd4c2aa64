"""Places that cannot be written to are refused before any work, and nothing there is destroyed."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from viewslots.cli import main
from viewslots.errors import UserError
from viewslots.figures.plots import read_rows
from viewslots.files import (
    drafting,
    make_folder,
    read_bounded,
    read_json,
    replacing,
    require_file,
    require_folder,
    write_json,
)
from viewslots.run_record import training_seconds
from viewslots.terminal import print_json, say
from viewslots.training.log import Metrics

RESULT = Path(__file__).parents[1] / "docs" / "results"
FILES = [
    ("score", "none.npz", "none.npz"),
    ("evaluate", "kmeans", "--data", "none"),
    ("estimate-viewpoints", "umbra", "--data", "none"),
    ("bench", "metrics"),
]
FOLDERS = [
    ("report", str(RESULT)),
    ("figures", "kmeans", "--data", "none"),
    ("decompose", "umbra", "none.png"),
    ("demo",),
    ("make-data", "dsprites"),
    ("reproduce", "table1"),
]


def one_line(words: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "argv", ["viewslots", *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    said = capsys.readouterr()
    assert (stopped.value.code, said.out, said.err.count("\n")) == (1, "", 1), said.err
    return said.err


def identity(path: Path) -> tuple[int, ...]:
    """What a replaced file does not keep; when a link was last followed is no part of it."""
    about = os.lstat(path)
    return about.st_ino, about.st_mode, about.st_size, about.st_mtime_ns


@pytest.mark.parametrize("kind", ["pipe", "link", "link to nothing"])
def test_only_regular_files_are_replaced(tmp_path: Path, kind: str) -> None:
    """A link as well: /dev/stdout is one."""
    out, other = tmp_path / "out.json", tmp_path / "other"
    if kind == "pipe":
        os.mkfifo(out)
    else:
        out.symlink_to(other)
    if kind == "link":
        other.write_text("precious")
    before = identity(out)
    for write in (lambda: write_json(out, {}), lambda: require_file(out), lambda: replacing(out).__enter__()):
        with pytest.raises(UserError, match="not a regular file"):
            write()
    assert identity(out) == before
    assert sorted(tmp_path.iterdir()) == sorted([out, *([other] if kind == "link" else [])])


def test_a_draft_is_no_way_around(tmp_path: Path) -> None:
    (tmp_path / "out.json.tmp").symlink_to(tmp_path / "other")
    with pytest.raises(UserError, match=r"out\.json\.tmp: not a regular file"):
        write_json(tmp_path / "out.json", {})


def test_a_folder_may_be_a_link_to_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    require_folder(tmp_path / "link")
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UserError, match="is a file; name a folder"):
        require_folder(tmp_path / "lost")


def test_links_of_others_in_shared_folders_are_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may write to a folder can plant one there. All others are for other disks."""
    shared = tmp_path / "shared"
    (shared / "precious").mkdir(parents=True)
    (shared / "link").symlink_to(shared / "precious", target_is_directory=True)
    (shared / "far").symlink_to(shared / "link", target_is_directory=True)
    places = [shared / place for place in ("link", "far", "link/deep", "far/deep/deeper", "link/../x")]
    checks = (require_folder, require_file, make_folder)
    shared.chmod(0o1777)
    require_folder(shared / "far" / "deep")  # our own links
    make_folder(shared / "far" / "deep")

    real_lstat, real_stat = os.lstat, os.stat

    def owned_by(uid: int, answer: os.stat_result) -> os.stat_result:
        return os.stat_result((*answer[:4], uid, *answer[5:10]))

    def somebodys(path: Any) -> os.stat_result:
        answer = real_lstat(path)
        return owned_by(54321, answer) if stat.S_ISLNK(answer.st_mode) else answer

    monkeypatch.setattr(os, "lstat", somebodys)
    for place in places:
        for check in checks:
            with pytest.raises(UserError, match="is a link of another user in a folder where everybody may write"):
                check(place)
    assert [path.name for path in (shared / "precious").iterdir()] == ["deep"]
    require_folder(shared / "precious")

    shared.chmod(0o755)  # whoever made these links was allowed to
    for place in places[:3]:
        require_folder(place)
    shared.chmod(0o1777)
    monkeypatch.setattr(os, "stat", lambda path, **how: owned_by(54321, real_stat(path, **how)))
    require_folder(places[0])  # the folder is theirs as well


def test_links_that_lead_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    require_folder(tmp_path / "a" / "x")  # comes to an end; making it fails in one line
    with pytest.raises(UserError, match="error while writing"):
        require_file(tmp_path / "a" / "x")


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    """Not what one that lives is writing, nor drafts of other names."""
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    left = tmp_path / f".out.{int(gone.stdout)}.partial"
    left.mkdir()
    (left / "half.png").write_text("half")
    others = [tmp_path / f".out.{os.getppid()}.partial", tmp_path / f".outer.{int(gone.stdout)}.partial"]
    others.append(tmp_path / ".out.mine.partial")
    for other in others:
        other.write_text("")
    failing = drafting(tmp_path / "out")
    failing.__enter__().write_text("half")
    assert not failing.__exit__(RuntimeError, RuntimeError(), None)
    assert sorted(tmp_path.iterdir()) == sorted(others)
    with drafting(tmp_path / "out") as draft:
        draft.write_text("whole")
    assert sorted(tmp_path.iterdir()) == sorted([*others, tmp_path / "out"])


@pytest.mark.parametrize("name", ["score", "report", "train"])
def test_names_that_are_no_text(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused before the work, not after it."""
    words = {"score": ("none.npz", "none.npz", "--out"), "report": (str(RESULT), "--out")}
    words["train"] = ("tiny", "--data", "live", "--run")
    monkeypatch.chdir(tmp_path)
    said = one_line((name, *words[name], "x\udcff"), capsys, monkeypatch)
    assert r"x\udcff' is no text in UTF-8; choose another name" in said


def test_endless_files_are_not_read(tmp_path: Path) -> None:
    """Pipes block, /dev/zero has no end."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    for name in ("pipe", "zeros"):
        for read in (read_json, read_rows, lambda path: read_bounded(path, 10)):
            with pytest.raises(UserError, match="not a regular file"):
                read(tmp_path / name)
        assert training_seconds(tmp_path / name) is None
    (tmp_path / "large").write_bytes(b"x" * 11)
    with pytest.raises(UserError, match="larger than 10 bytes"):
        read_bounded(tmp_path / "large", 10)


def test_metrics_that_are_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.jsonl")
    for action in (lambda: Metrics(tmp_path).rewind(3), lambda: Metrics(tmp_path).log({"step": 1, "kind": "event"})):
        with pytest.raises(UserError, match="not a regular file"):
            action()


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say("no such group: \x1b[2J\x07\r\u202e é")
    assert capsys.readouterr().err == r"no such group: \x1b[2J\x07\r\u202e é" + "\n"


@pytest.mark.parametrize("words", FILES, ids=lambda words: words[0])
def test_devices_stay_devices(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe stands for /dev/null, which root could really replace."""
    os.mkfifo(tmp_path / "null")
    assert "null: not a regular file" in one_line((*words, "--out", str(tmp_path / "null")), capsys, monkeypatch)
    assert (tmp_path / "null").is_fifo()


@pytest.mark.parametrize("words", FOLDERS, ids=lambda words: words[0])
def test_folders_are_no_devices(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "null")
    said = one_line((*words, "--out", str(tmp_path / "null")), capsys, monkeypatch)
    assert "null is a file; name a folder" in said


def test_no_negative_zeros_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    value = {"mean": -0.0, "rows": [(-0.0, -0.5, True, "-0.0", None)]}
    write_json(tmp_path / "x.json", value)
    print_json(value)
    for text in ((tmp_path / "x.json").read_text(), capsys.readouterr().out):
        assert json.loads(text) == {"mean": 0.0, "rows": [[0.0, -0.5, True, "-0.0", None]]}
        assert "-0.0," not in text.replace('"-0.0"', "")
