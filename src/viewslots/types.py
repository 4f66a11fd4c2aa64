"""The vocabulary: the typed values that the stages exchange, with their shapes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, UInt8
from torch import Tensor

OnProgress = Callable[[int, int], None]
"""Called with how much is done and how much there is in all."""

BACKGROUND = 255
"""Value of `segment` where no object is seen."""

PRESENT = 0.5
"""From this presence on an object counts as there."""

COVERED = 128
"""A complete shape covers a pixel where its alpha is at least this."""

Extent = int | tuple[int, int]
"""Of pictures and maps: the side of a square, or height and width."""


def sides(extent: Extent) -> tuple[int, int]:
    """Height and width."""
    return (extent, extent) if isinstance(extent, int) else extent


def how_resized(stored: Sequence[int], taken: Sequence[int]) -> str:
    """What happens to pictures on their way from a height and width to others, in words: nothing is stretched.

    >>> how_resized((64, 64), (32, 32)), how_resized((48, 64), (32, 32))
    ('resized', 'cut in the middle and resized')
    """
    same_shape = stored[0] * taken[1] == stored[1] * taken[0]
    return "resized" if same_shape else "cut in the middle and resized"


def extent_of(height: int, width: int) -> Extent:
    """One number for a square, as JSON has had it from the beginning."""
    return height if height == width else (height, width)


@dataclass(frozen=True, repr=False)
class Pictures:
    """Pictures of S scenes with M views and room for K objects: what worlds answer and data sets store.

    The pictures alone are required. None stands for what is not known of these scenes.
    """

    image: UInt8[np.ndarray, "S M H W 3"]
    """sRGB."""
    segment: UInt8[np.ndarray, "S M H W"] | None = None
    """Index of the visible object, 255 = background."""
    overlap: UInt8[np.ndarray, "S M H W"] | None = None
    """Number of complete shapes with alpha >= 128."""
    shapes: UInt8[np.ndarray, "S M K H W"] | None = None
    """Complete (amodal) alpha of each object; 0 for unused slots."""
    shadows: UInt8[np.ndarray, "S M K H W"] | None = None
    """Share of direct light that object k alone takes from the ground point behind the pixel, x 255."""
    depth_order: Float32[np.ndarray, "S M K"] | None = None
    """Larger is nearer; -inf for unused slots."""
    camera: Float32[np.ndarray, "S M 3"] | None = None
    """Camera position in metres, looking at the origin; zeros where there is no camera."""
    num_objects: UInt8[np.ndarray, "S"] | None = None
    pose: Float32[np.ndarray, "S M 4 4"] | None = None
    """Camera to world. Axes as in OpenGL: x right, y up, and the camera looks along -z."""
    intrinsics: Float32[np.ndarray, "S M 4"] | None = None
    """fx, fy, cx, cy in pixels; (0, 0) is the outer corner of the upper left pixel."""
    num_views: UInt8[np.ndarray, "S"] | None = None
    """Where scenes have fewer than M views: everything about the others is 0. None: all have M."""

    def __repr__(self) -> str:
        return shapes_only(self)

    def keys(self) -> tuple[str, ...]:
        """What is known."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name) is not None)

    def first_views(self, count: int) -> "Pictures":
        """The same scenes with fewer views."""
        cut = {key: getattr(self, key)[:, :count] for key in self.keys() if key not in SCENE_KEYS}
        if self.num_views is not None:
            cut["num_views"] = np.minimum(self.num_views, count, dtype=np.uint8)
        return replace(self, **cut)

    def padded(self, slots: int) -> "Pictures":
        """The same with room for `slots` objects."""

        def grown(key: str) -> np.ndarray:
            values, fill = getattr(self, key), SLOT_KEYS[key]
            room = [(0, 0)] * values.ndim
            room[2] = (0, slots - values.shape[2])
            return np.pad(values, room, constant_values=fill)

        return replace(self, **{key: grown(key) for key in self.keys() if key in SLOT_KEYS})

    @classmethod
    def concatenate(cls, parts: "list[Pictures]") -> "Pictures":
        """Join along the scene axis. Of all parts the same must be known."""
        keys = parts[0].keys()
        if any(part.keys() != keys for part in parts):
            raise ValueError("pictures of which different things are known cannot be joined")
        return cls(**{key: np.concatenate([getattr(part, key) for part in parts]) for key in keys})


SCENE_KEYS = ("num_objects", "num_views")
"""Of Pictures: one number a scene, without an axis of views."""

SLOT_KEYS = {"shapes": 0, "shadows": 0, "depth_order": -np.inf}
"""Of Pictures: what has an axis of objects, and how unused slots are filled."""


T = TypeVar("T")


def concatenated(parts: Sequence[T]) -> T:
    """Dataclasses of one kind as one: tensors one after another along the first axis, all else as the first has it."""
    first = parts[0]

    def whole(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        return torch.cat(values) if isinstance(values[0], Tensor) else values[0]

    return replace(first, **{field.name: whole(field.name) for field in fields(first)})  # type: ignore[type-var, arg-type]


def shapes_only(value: Any) -> str:
    """A dataclass of arrays in a line: what each holds, not its numbers."""

    def words(part: Any) -> str:
        if isinstance(part, Tensor | np.ndarray):
            kind = str(part.dtype).removeprefix("torch.")
            return f"{kind}{list(part.shape)}" + (f" on {part.device}" if isinstance(part, Tensor) else "")
        return repr(part)

    parts = ((field.name, getattr(value, field.name)) for field in fields(value) if field.repr)
    return f"{type(value).__name__}({', '.join(f'{name}={words(part)}' for name, part in parts if part is not None)})"


@dataclass(frozen=True, repr=False)
class SceneBatch:
    """What a model sees: pictures of B scenes, padded to M views."""

    image: Float[Tensor, "B M 3 H W"]
    """sRGB in [0, 1]; zeros in padded views."""
    view_mask: Bool[Tensor, "B M"]
    """True for real views; scenes with fewer views share a batch."""
    camera: Float[Tensor, "B M 5"] | None = None
    """Only for methods that ask for it: cosine and sine of azimuth and of elevation, distance."""

    __repr__ = shapes_only

    def __len__(self) -> int:
        return len(self.image)

    def to(self, device: torch.device | str) -> "SceneBatch":
        """The same on a device."""
        moved = {name: value.to(device) for name, value in vars(self).items() if value is not None}
        return replace(self, **moved)


@dataclass(frozen=True, kw_only=True, repr=False)
class SceneTruth:
    """What an answer is compared with: the truth of B scenes in the views that the model saw, padded as they are.

    None stands for what the data set does not know.
    """

    view_mask: Bool[Tensor, "B M"]
    segment: UInt8[Tensor, "B M H W"] | None = None
    """255 in padded views."""
    overlap: UInt8[Tensor, "B M H W"] | None = None
    shapes: UInt8[Tensor, "B M K H W"] | None = None
    num_objects: UInt8[Tensor, "B"] | None = None
    shadows: UInt8[Tensor, "B M K H W"] | None = None
    depth_order: Float32[Tensor, "B M K"] | None = None
    """-inf in padded views."""
    camera: Float32[Tensor, "B M 3"] | None = None
    identities: bool = True
    """Whether an index of `segment` is the same object in all views; else pictures are compared one by one alone."""

    @property
    def scene_segment(self) -> UInt8[Tensor, "B M H W"] | None:
        """For scores over all views of a scene: the segment, where its indices last over views."""
        return self.segment if self.identities else None

    __repr__ = shapes_only


@dataclass(frozen=True, repr=False)
class Decomposition:
    """The contract every method answers with. Padded views carry no meaning."""

    reconstruction: Float[Tensor, "B M 3 H W"]
    layer_masks: Float[Tensor, "B M L H W"]
    """Perceived shapes; they sum to one."""
    has_background: bool
    """Then layer 0 is the background and K = L - 1."""
    complete_shapes: Float[Tensor, "B M K H W"] | None = None
    """Shape probabilities. Of absent objects as the method's paper has them: whole, or none."""
    presence: Float[Tensor, "B K"] | None = None
    """What is counted (present if >= 0.5): in the paper a sample; the maximum over views in the per-view baseline."""
    presence_probability: Float[Tensor, "B K"] | None = None
    depth_order: Float[Tensor, "B M K"] | None = None
    """Larger is nearer. Of absent objects as the method's paper has it."""

    __repr__ = shapes_only
