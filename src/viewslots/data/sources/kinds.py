"""The registry: every kind of source by name, where its class is, and what it reads.

Light, so that the command line can list it at once.
"""

from typing import NamedTuple


class Kind(NamedTuple):
    place: str
    """MODULE:CLASS."""
    about: str


KINDS = {
    "pictures": Kind(
        "viewslots.data.sources.pictures:PictureFolders", "a folder of scene folders with pictures, or of videos"
    ),
}
