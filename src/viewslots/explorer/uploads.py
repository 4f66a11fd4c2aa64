"""Pictures that a browser has sent: read once, checked, and removed from the disk at once.

The name that a user gave a file is never used by us: not as a path, not in a message, not on the page. (The framework
puts files into folders of its own, under names cleaned of everything that could lead elsewhere.)
"""

import io
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from viewslots.errors import UserError
from viewslots.files import open_regular
from viewslots.types import Extent
from viewslots.viewpoints.photos import MOST_BYTES, read_pictures

MOST_FILES = 8
"""Pictures of one scene."""
MOST_UPLOAD = 64 * 2**20
"""Bytes of one upload, all its files together."""
MOST_WAITING = 4 * MOST_UPLOAD
"""Bytes of all uploads that have not been read yet, of all users."""


def read_uploads(files: Sequence[str] | None, folder: Path, size: Extent) -> Float[Tensor, "M 3 H W"]:
    """The pictures as the model sees them. The files are gone afterwards, whatever happens."""
    paths = [Path(file) for file in files or ()]
    try:
        if not paths:
            raise UserError("no picture has come; choose one to eight pictures of the same scene")
        if len(paths) > MOST_FILES:
            raise UserError(f"{len(paths)} pictures are too many; choose {MOST_FILES} at most")
        contents = [content(path, folder, place) for place, path in enumerate(paths, 1)]
        return read_pictures([io.BytesIO(each) for each in contents], size)
    finally:
        forget_uploads(paths, folder)


def forget_uploads(files: Sequence[str | Path], folder: Path) -> None:
    """Remove what was uploaded, read or not."""
    for file in files:
        remove(Path(file), folder)


def content(path: Path, folder: Path, place: int) -> bytes:
    """Bytes of a file in the upload folder; no link out of it is followed."""
    if not within(path, folder):
        raise UserError(f"picture {place} was not uploaded here")
    try:
        with open_regular(path) as file:
            found = file.read(MOST_BYTES + 1)
    except (OSError, UserError) as error:
        raise UserError(f"picture {place} did not arrive whole; choose it again") from error
    return found


def within(path: Path, folder: Path) -> bool:
    try:
        place = path.resolve()
    except (OSError, ValueError, RuntimeError):  # names that no file can have, circles of links
        return False
    return place.is_relative_to(folder.resolve()) and place != folder.resolve()


def remove(path: Path, folder: Path) -> None:
    """The file, and the folder of its own that it was put into."""
    if not within(path, folder):
        return
    with suppress(OSError):
        path.unlink()
    with suppress(OSError):
        if path.parent.resolve() != folder.resolve():
            path.parent.rmdir()
