"""Pictures and their truth in another size: the middle is cut to the wanted shape, nothing is stretched."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Shaped, UInt8
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

from viewslots.data.format import MAX_SIDE
from viewslots.errors import UserError
from viewslots.types import SceneTruth


@dataclass(frozen=True)
class Resize:
    """A window of the pictures, and the size that it gets."""

    top: int
    left: int
    crop_height: int
    crop_width: int
    height: int
    width: int

    @classmethod
    def between(cls, stored: tuple[int, int], wanted: tuple[int, int]) -> "Resize":
        """From height and width to height and width: the largest window of the wanted shape, in the middle.

        Sides of the window are whole pixels, so its shape is the wanted one to within half a pixel.
        """
        (height, width), (wanted_height, wanted_width) = stored, wanted
        for side in wanted:
            if not 1 <= side <= MAX_SIDE:
                raise UserError(
                    f"pictures of {wanted_height}x{wanted_width} pixels asked for; give 1..{MAX_SIDE} a side"
                )
        crop_height, crop_width = height, width
        if width * wanted_height > height * wanted_width:
            crop_width = max(1, _rounded(height * wanted_width, wanted_height))
        else:
            crop_height = max(1, _rounded(width * wanted_height, wanted_width))
        top, left = (height - crop_height) // 2, (width - crop_width) // 2
        return cls(top, left, crop_height, crop_width, wanted_height, wanted_width)

    @classmethod
    def of_middle(cls, stored: tuple[int, int], share: float, wanted: tuple[int, int] | None) -> "Resize":
        """The middle of the pictures, `share` of each side; in the wanted size, or as it is where that is None."""
        height, width = (max(1, round(side * share)) for side in stored)
        top, left = (stored[0] - height) // 2, (stored[1] - width) // 2
        inner = cls.between((height, width), wanted or (height, width))
        return replace(inner, top=top + inner.top, left=left + inner.left)

    @property
    def factor(self) -> int | None:
        """How many pixels of a side become one, if that is a whole number."""
        factor = self.crop_height // self.height
        whole = (self.crop_height, self.crop_width) == (factor * self.height, factor * self.width)
        return factor if whole else None

    def pictures(self, values: Float[Tensor, "*lead H W"]) -> Float[Tensor, "*lead h w"]:
        """Means over squares where they are whole pixels; else linear with a filter as wide as a new pixel, or, where
        pictures grow, linear between the old ones."""
        window = self._window(values)
        if self.factor == 1:
            return window.contiguous()
        planes = window.reshape(-1, 1, *window.shape[-2:])
        if self.factor is not None:
            small = avg_pool2d(planes, self.factor)
        else:
            small = interpolate(planes, (self.height, self.width), mode="bilinear", antialias=True)
        return small.reshape(*values.shape[:-2], self.height, self.width)

    def picture(self, image: UInt8[np.ndarray, "H W 3"]) -> UInt8[np.ndarray, "h w 3"]:
        """One picture, in bytes."""
        if self.factor == 1:
            return image[self.top : self.top + self.height, self.left : self.left + self.width]
        channels = torch.from_numpy(image.copy()).permute(2, 0, 1)
        return self.alpha(channels).permute(1, 2, 0).contiguous().numpy()

    def labels(self, values: Shaped[Tensor, "*lead H W"]) -> Shaped[Tensor, "*lead h w"]:
        """What is in the middle of every new pixel."""
        if self.factor == 1:
            return self._window(values).contiguous()
        rows = _middles(self.crop_height, self.height, values.device)
        columns = _middles(self.crop_width, self.width, values.device)
        return self._window(values)[..., rows[:, None], columns]

    def alpha(self, values: UInt8[Tensor, "*lead H W"]) -> UInt8[Tensor, "*lead h w"]:
        """Shares of 255, as pictures are."""
        return self.labels(values) if self.factor == 1 else self.pictures(values.float()).round().byte()

    def intrinsics(self, values: Float[np.ndarray, "*lead 4"]) -> Float[np.ndarray, "*lead 4"]:
        """fx, fy, cx, cy of the window in its new size."""
        wide, tall = self.width / self.crop_width, self.height / self.crop_height
        return (values - [0, 0, self.left, self.top]) * [wide, tall, wide, tall]

    def truth(self, truth: SceneTruth) -> SceneTruth:
        """What is seen, at the middle of every pixel; complete shapes and shadows, as pictures."""

        def changed(key: str) -> Tensor | None:
            values = getattr(truth, key)
            how = self.labels if key in ("segment", "overlap") else self.alpha
            return None if values is None else how(values)

        new: Any = {key: changed(key) for key in ("segment", "overlap", "shapes", "shadows")}
        return replace(truth, **new)

    def _window(self, values: Tensor) -> Tensor:
        rows = slice(self.top, self.top + self.crop_height)
        return values[..., rows, self.left : self.left + self.crop_width]


def _rounded(dividend: int, divisor: int) -> int:
    """The nearest whole number, in whole numbers."""
    return (2 * dividend + divisor) // (2 * divisor)


def _middles(stored: int, wanted: int, device: torch.device) -> Tensor:
    """The old pixel in which the middle of each new one lies."""
    return (2 * torch.arange(wanted, device=device) + 1) * stored // (2 * wanted)
