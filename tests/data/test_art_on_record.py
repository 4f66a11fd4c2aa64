"""A data set says which foreign art it was made from."""

import hashlib
from pathlib import Path

from viewslots.data.generate import art_record


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "sprites.npz"
    path.write_bytes(b"sprites")
    record = art_record(path)
    assert (record.name, record.bytes) == ("sprites.npz", 7)
    assert record.sha256 == hashlib.sha256(b"sprites").hexdigest()


def test_a_folder_changes_with_any_picture_in_it(tmp_path: Path) -> None:
    for name in ("a.png", "b.png", "notes.txt"):
        (tmp_path / name).write_bytes(name.encode())
    first = art_record(tmp_path)
    assert first.bytes == len("a.png") + len("b.png")
    (tmp_path / "notes.txt").write_bytes(b"other")
    assert art_record(tmp_path) == first
    (tmp_path / "b.png").write_bytes(b"c.png")
    assert art_record(tmp_path).sha256 != first.sha256
