"""What a data set promises: its keys with shape, dtype and unit, its names and its limits."""

import math
import re
from dataclasses import dataclass

FORMAT = "viewslots-data"
FORMAT_VERSION = 1

SPLIT_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
"""Split names are folder names: nothing here can climb out of the data set."""

# A file that claims more than this is damaged or hostile; the largest real set known to us stays a hundred times below.
MAX_SCENES = 100_000_000
MAX_VIEWS = 1024
MAX_SIDE = 4096
MAX_SLOTS = 255
"""Object indices are u8 and 255 is the background."""
MAX_SCENE_BYTES = 2**30
"""The largest array of one scene: whatever reads scene by scene needs no more memory than this."""


@dataclass(frozen=True)
class Size:
    """How many scenes, views, object slots and pixels one split has."""

    scenes: int
    views: int
    slots: int
    height: int
    width: int

    def problem(self) -> str | None:
        """Why no data set can have this size, or None."""
        limits = {"scenes": MAX_SCENES, "views": MAX_VIEWS, "slots": MAX_SLOTS, "height": MAX_SIDE, "width": MAX_SIDE}
        for name, limit in limits.items():
            value = getattr(self, name)
            if not 1 <= value <= limit:
                return f"{name} is {value}, but must be in 1..{limit}"
        largest = max(KEYS[key].scene_bytes(self) for key in KEYS)
        if largest > MAX_SCENE_BYTES:
            return f"one scene would take {largest} bytes, more than the limit of {MAX_SCENE_BYTES}"
        return None


@dataclass(frozen=True)
class Key:
    """One array of a split: `axes` names its dimensions, letters as in ARCHITECTURE.md, digits as they are."""

    axes: str
    dtype: str
    unit: str
    required: bool = True

    def shape(self, size: Size) -> tuple[int, ...]:
        letters = {"S": size.scenes, "M": size.views, "K": size.slots, "H": size.height, "W": size.width}
        return tuple(letters[axis] if axis in letters else int(axis) for axis in self.axes.split())

    @property
    def itemsize(self) -> int:
        return {"uint8": 1, "float32": 4}[self.dtype]

    def scene_bytes(self, size: Size) -> int:
        """Bytes of one scene; in Python's integers, so absurd sizes do not overflow."""
        return math.prod(self.shape(size)[1:]) * self.itemsize


KEYS: dict[str, Key] = {
    "image": Key("S M H W 3", "uint8", "sRGB, 0..255"),
    "segment": Key("S M H W", "uint8", "index of the visible object, 255 = background"),
    "overlap": Key("S M H W", "uint8", "number of complete shapes with alpha >= 128"),
    "shapes": Key("S M K H W", "uint8", "complete (amodal) alpha of each object, 0..255; 0 for unused slots"),
    "shadows": Key(
        "S M K H W", "uint8", "share of direct light object k alone takes from the ground, 0..255; 0 if unused", False
    ),
    "depth_order": Key("S M K", "float32", "larger is nearer; -inf for unused slots", False),
    "camera": Key("S M 3", "float32", "camera position in metres, looking at the origin; 0 if there is none", False),
    "num_objects": Key("S", "uint8", "number of objects; slots from this index on are unused"),
}
"""In the order of `Pictures`. Imported data sets may lack keys that are not required; meta.json lists what is there."""


def bytes_per_scene(keys: tuple[str, ...], size: Size) -> int:
    return sum(KEYS[key].scene_bytes(size) for key in keys)
