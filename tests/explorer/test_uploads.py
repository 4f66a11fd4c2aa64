"""Pictures from strangers: each bad one gets one plain line, no file stays behind, no name is ever a path."""

import asyncio
import io
import os
import struct
import zlib
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from starlette.datastructures import FormData, Headers

import looped
from viewslots.errors import UserError
from viewslots.explorer.uploads import MOST_FILES, SMALLEST, Waiting, read_uploads, stored
from viewslots.figures.video import save_mp4
from viewslots.viewpoints.photos import FRAMES, MOST_BYTES

SIZE = 32


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "uploads"
    made.mkdir()
    return made


def encoded(kind: str = "PNG", side: int = 48) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (side, side, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def put(folder: Path, content: bytes, name: str = "picture.png", place: str = "hash") -> str:
    path = folder / f"{place}-{name}"
    path.write_bytes(content)
    return str(path)


def refused(files: list[str], folder: Path) -> str:
    """One line for the user, and nothing left on the disk."""
    with pytest.raises(UserError) as error:
        read_uploads(files, folder, SIZE)
    assert not list(folder.rglob("*"))
    text = str(error.value)
    assert len(text.splitlines()) == 1
    return text


def bomb(side: int = 30_000) -> bytes:
    """A PNG of a few kilobytes that says it holds 900 million pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 10**6))
        + chunk(b"IEND", b"")
    )


def test_pictures_are_read_in_order_and_removed(folder: Path) -> None:
    colours = [(250, 10, 10), (10, 250, 10)]
    files = []
    for number, colour in enumerate(colours):
        file = io.BytesIO()
        Image.new("RGB", (90, 60), colour).save(file, "PNG")
        files.append(put(folder, file.getvalue(), place=str(number)))
    photos = read_uploads(files, folder, SIZE)
    assert [photo.size for photo in photos] == [(60, 90)] * 2
    for image, colour in zip([photo.seen() for photo in photos], colours, strict=True):
        torch.testing.assert_close(image.mean((1, 2)) * 255, torch.tensor(colour).float(), atol=0.01, rtol=0)
    assert not list(folder.rglob("*"))


BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "empty"),
    "text": (lambda: b"#!/bin/sh\nrm -rf /\n", "not a picture"),
    "page": (lambda: b"<html><script>alert(1)</script></html>", "not a picture"),
    "svg": (lambda: b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", "SVG"),
    "pdf": (lambda: b"%PDF-1.7 ...", "PDF"),
    "cut off video": (lambda: b"\0\0\0\x18ftypisom" + b"\0" * 64, "not a picture"),
    "heic": (lambda: b"\0\0\0\x18ftypheic" + b"\0" * 64, "HEIC"),
    "cut off PNG": (lambda: encoded()[:900], "damaged or cut off"),
    "cut off JPEG": (lambda: encoded("JPEG", 200)[:3000], "damaged or cut off"),
    "garbled": (lambda: encoded()[:60] + os.urandom(2000), "damaged or cut off"),
    "bomb": (bomb, "megapixels"),
    "too many bytes": (lambda: encoded() + b"\0" * MOST_BYTES, "MB"),
    "archive": (lambda: b"PK\x03\x04" + os.urandom(200), "not a picture"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_pictures_are_named_by_their_place(folder: Path, kind: str) -> None:
    content, hint = BAD[kind]
    text = refused([put(folder, encoded(), place="good"), put(folder, content(), place="bad")], folder)
    assert text.startswith("file 2" if kind == "too many bytes" else "picture 2")
    assert hint in text


@pytest.mark.parametrize(
    "name", ["..%2f..%2fetc%2fpasswd.png", "<img src=x onerror=alert(1)>.png", "a\nb.png", "x" * 200 + ".png"]
)
def test_names_are_never_shown(folder: Path, name: str) -> None:
    assert name not in refused([put(folder, b"no picture", name)], folder)
    assert len(read_uploads([put(folder, encoded(), name)], folder, SIZE)) == 1


def test_files_from_elsewhere_are_neither_read_nor_removed(folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(encoded())
    link = folder / "link.png"
    link.symlink_to(secret)
    for path in (secret, folder / ".." / "secret.png", link, folder, folder / "hash" / ".." / ".." / "secret.png"):
        with pytest.raises(UserError, match="file 1 was not uploaded here"):
            read_uploads([str(path)], folder, SIZE)
        assert secret.exists()
        assert folder.exists()


def test_a_file_that_is_gone_or_no_file(folder: Path) -> None:
    assert "did not arrive whole" in refused([str(folder / "gone.png")], folder)
    (folder / "hash").mkdir()
    with pytest.raises(UserError, match="did not arrive whole"):
        read_uploads([str(folder / "hash")], folder, SIZE)
    (folder / "hash").rmdir()
    os.mkfifo(folder / "pipe")
    assert "did not arrive whole" in refused([str(folder / "pipe")], folder)


def test_no_picture_and_too_many(folder: Path) -> None:
    assert "no picture" in refused([], folder)
    with pytest.raises(UserError, match="no picture"):
        read_uploads(None, folder, SIZE)
    files = [put(folder, encoded(), place=str(number)) for number in range(MOST_FILES + 1)]
    assert f"{MOST_FILES} at most" in refused(files, folder)


@pytest.mark.parametrize("name", ["\udc80", "a\0b", "../outside.png"])
def test_names_that_no_upload_can_have_are_refused_and_the_rest_removed(tmp_path: Path, name: str) -> None:
    real = tmp_path / "hash" / "b.png"
    real.parent.mkdir()
    real.write_bytes(b"x")
    with pytest.raises(UserError):
        read_uploads([name, str(real)], tmp_path, 32)
    assert not real.exists()


HEADERS = Headers({"content-type": "multipart/form-data; boundary=edge"})


def form_of(*files: bytes) -> bytes:
    head = b'--edge\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\n'
    return b"".join(head + file + b"\r\n" for file in files) + b"--edge--\r\n"


async def streamed(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body


def test_what_is_written_goes_if_time_runs_out_at_the_very_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary files of the form are being closed, and all threads that could do it are busy."""

    async def cut_off() -> None:
        closing = asyncio.Event()

        async def close(form: FormData) -> None:
            closing.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(FormData, "close", close)
        task = asyncio.create_task(stored(HEADERS, streamed(form_of(b"x", b"y")), folder, "me"))
        await asyncio.wait_for(closing.wait(), 30)
        assert sorted(path.read_bytes() for path in folder.iterdir()) == [b"x", b"y"]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    looped.run(cut_off())
    assert not list(folder.iterdir())


def film(path: Path, frames: int = 12) -> bytes:
    """A square that grows redder."""
    save_mp4(np.stack([np.full((48, 64, 3), (20 * n, 30, 60), np.uint8) for n in range(frames)]), path)
    return path.read_bytes()


def test_a_video_stands_for_its_frames(folder: Path, tmp_path: Path) -> None:
    photos = read_uploads([put(folder, film(tmp_path / "film.mp4"), "film.txt")], folder, SIZE)
    assert len(photos) == FRAMES
    assert not list(folder.rglob("*"))
    reds = [float(photo.seen()[0].mean()) for photo in photos]
    assert reds == sorted(reds)
    assert reds[-1] - reds[0] > 0.5


def test_a_part_of_a_video_is_not_taken_for_the_whole(folder: Path, tmp_path: Path) -> None:
    """What lies behind the end of an MP4 does not matter to who reads it."""
    large = film(tmp_path / "film.mp4") + b"\0" * MOST_BYTES
    assert refused([put(folder, large)], folder) == "file 1: larger than 20 MB; save it shorter"
    body = form_of(b"x", large)
    with pytest.raises(UserError, match="file 2: larger than 20 MB; save it shorter"):
        looped.run(stored(HEADERS, streamed(body), folder, "me"))
    assert not list(folder.iterdir())


def test_a_video_that_is_none_is_not_named_by_its_place(folder: Path, tmp_path: Path) -> None:
    text = refused([put(folder, film(tmp_path / "film.mp4")[:300])], folder)
    assert text.startswith("the video")
    assert str(folder) not in text


def test_room_for_uploads_is_bounded_in_all_and_for_each(folder: Path) -> None:
    waiting = Waiting(folder, most=10 * SMALLEST, each=6 * SMALLEST)
    for number in range(5):
        (folder / f"a-{number}").write_bytes(b"x")  # tiny ones count, too
    assert waiting.taken("a") == (5 * SMALLEST, 5 * SMALLEST)
    with pytest.raises(UserError, match="waiting"), waiting.room("a", 2 * SMALLEST):
        pass
    with waiting.room("b", 4 * SMALLEST), pytest.raises(UserError, match="waiting"), waiting.room("c", 2 * SMALLEST):
        pass  # what is on its way counts
    with waiting.room("c", 2 * SMALLEST):
        pass
