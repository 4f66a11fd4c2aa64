"""Pictures that a browser sends: kept under names that nobody can guess, read once, checked, and removed at once.

The name that a user gave a file is never used: not as a path, not in a message, not on the page. The framework's own
way of taking uploads is not used either: it puts equal files of two users into one place.
"""

import hashlib
import io
import secrets
import stat
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from viewslots.data.picture_files import one_line, too_many_bytes
from viewslots.errors import UserError
from viewslots.files import open_regular
from viewslots.types import Extent
from viewslots.viewpoints.photos import FRAMES, MOST_BYTES, Photo, looks_like_video, read_photos, video_frames

MOST_FILES = 8
"""Pictures of one scene."""
MOST_UPLOAD = 64 * 2**20
"""Bytes of one upload, all its files together."""
MOST_WAITING, MOST_OF_ONE = 4 * MOST_UPLOAD, 2 * MOST_UPLOAD
"""Bytes of all uploads that have not been read yet, of all users and of one address."""
START = 400
"""Bytes at the beginning of a file that tell what it is."""
SMALLEST = 2**16
"""Bytes that the smallest file counts for."""
LEFT_OVER = 600.0
"""Seconds after which an upload that nobody has read is thrown away: longer than anybody stands in line."""
MOST_SENT, MOST_FIELD = 2 * MOST_FILES, 1024
"""Files and fields of one form; bytes of a field."""


class TooBusy(UserError):
    """Nothing is wrong with what was asked, and it may work later."""


def read_uploads(files: Sequence[str] | None, folder: Path, size: Extent) -> list[Photo]:
    """The pictures, or frames of a video. The files are gone afterwards, whatever happens."""
    paths = [Path(file) for file in files or ()]
    try:
        if not paths:
            raise UserError("no picture has come; choose one to eight pictures of the same scene")
        if len(paths) > MOST_FILES:
            raise UserError(f"{len(paths)} pictures are too many; choose {MOST_FILES} at most")
        contents = [content(path, folder, place) for place, path in enumerate(paths, 1)]
        if len(contents) == 1 and looks_like_video(contents[0]):
            return read_photos(frames_of(paths[0]), size)
        return read_photos([io.BytesIO(each) for each in contents], size)
    finally:
        forget_uploads(paths, folder)


def frames_of(path: Path) -> list[NDArray[np.uint8]]:
    try:
        return video_frames(path, FRAMES)
    except UserError as error:
        raise UserError(str(error).replace(one_line(path), "the video")) from error


def forget_uploads(files: Sequence[str | Path], folder: Path) -> None:
    """Remove what was uploaded, read or not."""
    for file in files:
        remove(Path(file), folder)


def content(path: Path, folder: Path, place: int) -> bytes:
    """Bytes of a file in the upload folder; no link out of it is followed."""
    if not within(path, folder):
        raise UserError(f"file {place} was not uploaded here")
    try:
        with open_regular(path) as file:
            found = file.read(MOST_BYTES + 1)
    except (OSError, UserError) as error:
        raise UserError(f"file {place} did not arrive whole; choose it again") from error
    check_size(len(found), found, place)
    return found


def check_size(length: int, start: bytes, place: int) -> None:
    """A part would not do: half a video looks like a whole one."""
    if length > MOST_BYTES:
        how = "shorter" if looks_like_video(start) else "smaller"
        raise UserError(too_many_bytes(f"file {place}", MOST_BYTES, how))


def within(path: Path, folder: Path) -> bool:
    try:
        place = path.resolve()
    except (OSError, ValueError, RuntimeError):  # names that no file can have, circles of links
        return False
    return place.is_relative_to(folder.resolve()) and place != folder.resolve()


def remove(path: Path, folder: Path) -> None:
    if within(path, folder):
        with suppress(OSError):
            path.unlink()


async def stored(headers: Any, stream: AsyncGenerator[bytes, None], folder: Path, owner: str) -> list[str]:
    """Files of a form, written under names of their own; `owner` marks them. Answers where they are."""
    from starlette.formparsers import MultiPartException, MultiPartParser

    parser = MultiPartParser(headers, stream, max_files=MOST_SENT, max_fields=MOST_SENT, max_part_size=MOST_FIELD)
    try:
        form = await parser.parse()
    except (MultiPartException, ValueError, KeyError) as error:
        raise UserError(f"not a form with at most {MOST_SENT} files") from error
    places: list[str] = []
    try:
        try:
            await write_files(form, folder, owner, places)
        finally:
            await form.close()
    except BaseException:  # nobody would hear of those that are written; time may run out as late as at the close
        forget_uploads(places, folder)
        raise
    return places


async def write_files(form: Any, folder: Path, owner: str, places: list[str]) -> None:
    """All of them or none. Each is told in `places` before it is there, so that it can be removed whatever happens."""
    files = [value for _, value in form.multi_items() if not isinstance(value, str)]
    for number, file in enumerate(files, 1):
        await file.seek(0)
        check_size(file.size or 0, await file.read(START), number)
    for file in files:
        await file.seek(0)
        place = folder / f"{owner}-{secrets.token_hex(16)}"
        places.append(str(place))
        place.write_bytes(await file.read())


def owner_of(address: str) -> str:
    """A short mark for who sends, which tells nothing about them."""
    return hashlib.sha256(address.encode()).hexdigest()[:12]


class Waiting:
    """Room for uploads that have not been read, in all and of each address, those still on their way included."""

    def __init__(self, folder: Path, most: int, each: int) -> None:
        self._folder, self._most, self._each = folder, most, each
        self._coming: dict[str, int] = {}

    @contextmanager
    def room(self, owner: str, length: int) -> Iterator[None]:
        total, own = self.taken(owner)
        if total + length > self._most or own + length > self._each:
            raise TooBusy("too many uploads are waiting; try again in a minute")
        self._coming[owner] = self._coming.get(owner, 0) + length
        try:
            yield
        finally:
            self._coming[owner] -= length
            if not self._coming[owner]:
                del self._coming[owner]

    def taken(self, owner: str) -> tuple[int, int]:
        """Bytes in all, and of one owner; a file counts for SMALLEST at least. Files may vanish meanwhile."""
        total, own = sum(self._coming.values()), self._coming.get(owner, 0)
        for path in self._folder.iterdir():
            with suppress(OSError):
                entry = path.lstat()
                if not stat.S_ISREG(entry.st_mode):
                    continue
                size = max(entry.st_size, SMALLEST)
                total, own = total + size, own + (size if path.name.startswith(f"{owner}-") else 0)
        return total, own
