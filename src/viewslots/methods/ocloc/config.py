"""Sizes and hyperparameters of OCLOC as frozen values, and their JSON."""

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

from viewslots.errors import UserError
from viewslots.methods.config import Amount, Count, Positive, Proper, Sides, Whole, check_fields, from_values
from viewslots.types import extent_of, sides

DECODER_KINDS = ("dense", "broadcast", "compact")

MOST_GROWTH = 2
"""How far a model follows larger pictures: sides over those it was made for. A step costs the square of that."""

MOST_BOX = 256
"""Pixels of a side of the box in which an object is drawn."""

Stage = tuple[int, int, int]
"""One convolution of a decoder: (factor of upsampling, kernel size, channels)."""


def check_kernel(size: int) -> None:
    if size % 2 == 0:
        raise UserError(f"convolutions need a kernel of odd size, not {size}, to keep the size of a picture")


@dataclass(frozen=True)
class DecoderConfig:
    """A network that turns a code into a picture; `kind` names an entry of networks.DECODERS."""

    kind: str
    grid: Sides
    """Of the map on which the convolutions start."""
    stages: tuple[Stage, ...]
    hidden: tuple[int, ...] = ()
    """Widths of the fully connected layers before the map (dense, compact)."""
    grid_channels: Whole = 0
    """Channels of the map (dense, compact); a broadcast map has those of the code."""
    final_scale: int = 1
    """Factor by which the last, linear layer enlarges (compact only)."""

    section = "model.*_decoder"

    def __post_init__(self) -> None:
        check_fields(self)
        if self.kind not in DECODER_KINDS:
            raise UserError(f"unknown decoder {self.kind!r}; known are {', '.join(DECODER_KINDS)}")
        if self.kind != "broadcast" and self.grid_channels == 0:
            raise UserError(f"a {self.kind} decoder needs grid_channels")
        if self.kind != "compact" and self.final_scale != 1:
            raise UserError(f"final_scale is for compact decoders, not for {self.kind}")
        for _, kernel, _ in self.stages:
            check_kernel(kernel)

    @property
    def scale(self) -> int:
        """Pixels of the picture for one place of the map, along a side."""
        return self.final_scale * math.prod(scale for scale, _, _ in self.stages)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the picture."""
        height, width = sides(self.grid)
        return height * self.scale, width * self.scale

    def sized(self, height: int, width: int) -> "DecoderConfig":
        """The same convolutions on another map. Both sides are multiples of `scale`."""
        return replace(self, grid=extent_of(height // self.scale, width // self.scale))


PAPER_OBJECTS = DecoderConfig(
    kind="dense",
    hidden=(4096, 4096),
    grid=8,
    grid_channels=128,
    stages=((2, 5, 128), (1, 5, 64), (2, 5, 64), (1, 5, 32), (2, 5, 32)),
)
PAPER_BACKGROUND = DecoderConfig(
    kind="dense", hidden=(512, 512), grid=4, grid_channels=16, stages=((4, 5, 16), (1, 5, 16), (4, 5, 16))
)


@dataclass(frozen=True)
class NvilConfig:
    """The learned baseline b(x) and the running statistics of NVIL."""

    channels: tuple[int, ...] = (16, 32, 64)
    """Each entry is two 3x3 convolutions, the second with stride 2."""
    hidden: int = 256
    momentum: Proper = 0.8
    normalise: bool = True
    """Divide the centred signal by max(running standard deviation, 1)."""
    correct_start: bool = True
    """Divide the running statistics by the weight they have gathered so far, since they start at zero."""

    section = "model.nvil"

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class StartConfig:
    """Where weights start. Defaults as in the published runs (Xavier-uniform, zero biases); others help short runs."""

    shape_logit: float = 0.0
    """Bias of the shape channel of f_shp; negative values start with small objects."""
    presence_logit: float = 0.0
    """Bias of the log-odds of kappa; positive values start with all objects present."""
    log_sigma: float = 0.0
    """Bias of the log deviations of q; negative values let codes through from the first step."""
    selection_gain: float = 1.0
    """Factor on the weights of the last layer of g_sel. Large values start with a decided background: while the choice
    is a lottery, any slot may be lost to the background, and all of them learn to say the same."""
    query_gain: float = 1.0
    """Factor on the weights of g_qry; larger values start with slots that look at different places."""

    section = "model.start"

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class OclocConfig:
    """Everything that fixes the networks and the distributions. The defaults are the paper's multi-view model."""

    image_size: Sides = 64
    slots: Count = 7
    """K while training; any call may use another."""
    view_dim: int = 4
    """z_view."""
    background_dim: int = 8
    """z_attr of k = 0."""
    attr_dim: int = 64
    """z_attr of k = 1..K."""
    alpha: Positive = 4.5
    """rho_k ~ Beta(alpha / K, 1)."""
    sigma_x: Positive = 0.2
    """Standard deviation of the likelihood."""
    slot_view_dim: int = 8
    """D_vw of y_view."""
    slot_attr_dim: int = 128
    """D_at of y_attr."""
    key_dim: int = 64
    value_dim: int = 136
    rounds: Count = 3
    """T of Algorithm 1."""
    feature_channels: int = 64
    feature_layers: Count = 4
    feature_kernel: int = 5
    feature_stride: int = 1
    """Stride of the first feature convolution; the paper keeps full resolution."""
    update_hidden: int = 128
    """Width of the residual layer of g_upd."""
    hidden: int = 512
    """Width of f_ord, g_sel, g_bck, g_obj and g_view."""
    object_decoder: DecoderConfig = PAPER_OBJECTS
    """f_shp and f_apc, one network."""
    background_decoder: DecoderConfig = PAPER_BACKGROUND
    """f_bck."""
    box_fit: Amount = 0.0
    """Ours: what a box costs that is not around the shape in it, in nats for the square of half the picture's side. 0,
    as in the paper: objects are drawn on the whole picture. Else `object_decoder` draws in boxes, of a size its own."""
    temperature: Positive = 0.5
    """Of the presence samples at test."""
    softness: Positive = 0.5
    """lambda at test."""
    nvil: NvilConfig = field(default_factory=NvilConfig)
    start: StartConfig = field(default_factory=StartConfig)

    later = frozenset({"box_fit"})

    section = "model"

    def __post_init__(self) -> None:
        check_fields(self)
        check_kernel(self.feature_kernel)
        if self.box_fit and not self.object_decoder.size[0] == self.object_decoder.size[1] <= MOST_BOX:
            made = "x".join(map(str, self.object_decoder.size))
            raise UserError(f"object_decoder makes boxes of {made}; they must be square, of at most {MOST_BOX} pixels")
        for name, decoder in self.whole_picture_decoders().items():
            if decoder.size != sides(self.image_size):
                made, wanted = ("x".join(map(str, size)) for size in (decoder.size, sides(self.image_size)))
                raise UserError(f"{name} makes pictures of {made}, but image_size is {wanted}")

    @property
    def detail_dim(self) -> int:
        """Numbers of an object's code that inference does not tell: in a model of ours, details."""
        return 0

    @property
    def code_dim(self) -> int:
        """Numbers of an object's code."""
        return self.attr_dim + self.detail_dim

    def whole_picture_decoders(self) -> dict[str, DecoderConfig]:
        """By name. An object decoder that draws in boxes is none."""
        objects = {} if self.box_fit else {"object_decoder": self.object_decoder}
        return {**objects, "background_decoder": self.background_decoder}

    def sized(self, height: int, width: int) -> Self:
        """The same networks for other pictures, at most MOST_GROWTH times as large: shrunk to that, and cut to what the
        decoders can make.

        With more pixels features stand further apart, so that there are no more of them than need be, and their kernels
        grow until no pixel is left out.
        """
        own_height, own_width = sides(self.image_size)
        step = math.lcm(*(decoder.scale for decoder in self.whole_picture_decoders().values()))
        largest, longer = MOST_GROWTH * max(own_height, own_width), max(height, width)
        height, width = (side * min(largest, longer) // longer for side in (height, width))
        height, width = (max(side // step, 1) * step for side in (height, width))
        stride = self.feature_stride * max(math.isqrt(height * width // (own_height * own_width)), 1)
        return replace(
            self,
            image_size=extent_of(height, width),
            feature_stride=stride,
            feature_kernel=max(self.feature_kernel, stride + 1 - stride % 2),
            **{name: decoder.sized(height, width) for name, decoder in self.whole_picture_decoders().items()},  # type: ignore[arg-type]
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "OclocConfig":
        """Rebuild from `to_json`."""
        kinds: dict[str, type[Any]] = {"object_decoder": DecoderConfig, "background_decoder": DecoderConfig}
        kinds |= {"nvil": NvilConfig, "start": StartConfig}
        nested = {name: from_values(kind, values[name]) for name, kind in kinds.items() if name in values}
        return from_values(cls, values | nested)
