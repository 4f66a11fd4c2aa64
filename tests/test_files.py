"""Places that cannot be written to are refused before any work, and nothing there is destroyed."""

import os
import sys
from pathlib import Path

import pytest

from viewslots.cli import main
from viewslots.errors import UserError
from viewslots.files import replacing, require_file, require_folder, write_json

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
    before = os.lstat(out)
    for write in (lambda: write_json(out, {}), lambda: require_file(out), lambda: replacing(out).__enter__()):
        with pytest.raises(UserError, match="not a regular file"):
            write()
    assert os.lstat(out) == before
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
