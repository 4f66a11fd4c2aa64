"""What every family of scenes answers: descriptions drawn from a key, and their pictures."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from viewslots.errors import UserError
from viewslots.types import Pictures

LIVE_SPLIT = "live"
"""A stream of its own: no scene of it is ever in a stored split."""

FLAT_KEYS = ("image", "segment", "overlap", "shapes", "shadows", "depth_order", "camera", "num_objects")
"""What every world of ours knows of its scenes."""
SOLID_KEYS = (*FLAT_KEYS, "pose", "intrinsics")
"""What those know that have cameras."""


class World(Protocol):
    """A family of scenes. `sample` depends on its three arguments alone, so any scene can be drawn again by itself."""

    @property
    def views(self) -> int: ...

    @property
    def height(self) -> int: ...

    @property
    def width(self) -> int: ...

    @property
    def keys(self) -> tuple[str, ...]:
        """Which fields of `Pictures` it answers with."""
        ...

    def slots(self, split: str) -> int:
        """K of the stored arrays: the largest number of objects in a scene of this split."""
        ...

    def sample(self, seed: int, split: str, index: int) -> Any:
        """Description of scene `index`, a frozen dataclass with `to_dict`."""
        ...

    def render(self, scenes: Sequence[Any], slots: int, device: str = "cpu", quality: str = "fast") -> Pictures:
        """Pictures and truth, padded to `slots` objects."""
        ...


def split_range(counts: Mapping[str, tuple[int, int]], split: str) -> tuple[int, int]:
    """Least and largest number of objects in a scene of `split`; the large test splits follow the small ones."""
    small = split.removesuffix("-large") if split.startswith("test") else split
    if small not in counts:
        raise UserError(f"split {split!r:.40} is none of {', '.join(counts)}")
    return counts[small]
