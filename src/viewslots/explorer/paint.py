"""What one viewpoint shows, as pictures for people: bytes, large enough to look at."""

from collections.abc import Collection

import numpy as np
import torch
from jaxtyping import Float, UInt8
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from viewslots.figures.sheets import object_colors
from viewslots.viewpoints.outlines import hidden, outlines, svg_path
from viewslots.viewpoints.scene import View

SIDE = 320
"""Pixels of the longer side of the large picture."""
MODES = ("Picture", "X-ray", "Objects in colour", "Near and far")
LIGHT, DARKEST, GROUND = (1.0, 0.93, 0.75), 0.25, (0.10, 0.16, 0.30)
"""Of "Near and far": the nearest object, how much of that is left of the farthest one, what lies behind all."""
NEUTRAL = 0.5
"""Grey of what is switched off."""
Rgb = UInt8[np.ndarray, "H W 3"]
Rgba = UInt8[np.ndarray, "H W 4"]
Layer = Float[np.ndarray, "H W"]


def painted(view: View, mode: str, background: bool) -> Rgb:
    """The large picture in one of MODES, without the background layer if that is switched off."""
    scene = enlarged(plain(view, background))
    if mode == "X-ray":
        return as_bytes((scene + greyed(scene)) / 2)  # outlines lie over it, as lines
    if mode == "Objects in colour":
        return as_bytes(tinted(scene, enlarged(view.masks[1:]), palette(view)))
    if mode == "Near and far":
        return as_bytes(depth_shaded(view))
    return as_bytes(scene)


def plain(view: View, background: bool) -> Float[Tensor, "3 H W"]:
    """The picture; without the background, grey stands where it was seen."""
    return view.image if background else view.image + view.masks[0] * (NEUTRAL - view.background)


def palette(view: View) -> NDArray[np.float64]:
    """[K, 3] in [0, 1]: one colour an object, the same in every panel."""
    return object_colors(len(view.complete)) / 255


def enlarged(values: Float[Tensor, "C H W"], side: int = SIDE) -> NDArray[np.float32]:
    """Smoothly until the longer side has `side` pixels, in [0, 1]; the C axis last."""
    size = [round(side * each / max(values.shape[1:])) for each in values.shape[1:]]
    if not len(values):
        return np.zeros((*size, 0), np.float32)
    larger = functional.interpolate(values[None], size=size, mode="bicubic", align_corners=False)
    return larger[0].clamp(0, 1).permute(1, 2, 0).cpu().numpy()


def x_ray_lines(view: View, height: int, width: int) -> list[tuple[int, str, str]]:
    """Of every shown object, far ones first: its index, and as SVG paths its complete outline and what is hidden."""
    drawn = []
    for k in reversed(view.nearest_first()):
        behind = hidden(view.complete[k], view.masks[k + 1])
        whole, covered = (svg_path(outlines(shape, height, width)) for shape in (view.complete[k], behind))
        drawn.append((k, whole, covered))
    return drawn


def tinted(
    scene: NDArray[np.float32], seen: NDArray[np.float32], colors: NDArray[np.float64], strength: float = 0.7
) -> NDArray[np.float64]:
    """Every object in its colour where it is seen, over the greyed picture."""
    share = strength * seen
    return greyed(scene) * (1 - share.sum(-1, keepdims=True)).clip(0) + share @ colors


def depth_shaded(view: View) -> NDArray[np.float64]:
    """Objects from light (nearest) to dark on a blue ground."""
    order = view.nearest_first()
    shades = np.zeros(len(view.complete))
    for place, k in enumerate(order):
        shades[k] = 1 - (1 - DARKEST) * place / max(len(order) - 1, 1)
    seen = enlarged(view.masks[1:])
    ground = (1 - seen.sum(-1, keepdims=True)).clip(0, 1) * np.array(GROUND)
    return ground + (seen @ shades)[..., None] * np.array(LIGHT)


def depth_legend() -> tuple[str, str, str]:
    """Colours of the nearest object, the farthest one and the ground, for CSS."""
    near, far = np.array(LIGHT), DARKEST * np.array(LIGHT)
    first, last, ground = (f"rgb({','.join(map(str, as_bytes(one)))})" for one in (near, far, np.array(GROUND)))
    return first, last, ground


def greyed(scene: NDArray[np.float32]) -> NDArray[np.float64]:
    return np.repeat((scene @ np.array([0.2126, 0.7152, 0.0722]))[..., None], 3, axis=-1)


def as_bytes(values: NDArray[np.floating]) -> UInt8[np.ndarray, "H W C"]:
    return (values.clip(0, 1) * 255).round().astype(np.uint8)


def small(image: Float[Tensor, "3 H W"]) -> Rgb:
    """A picture at the model's own size."""
    return as_bytes(image.permute(1, 2, 0).cpu().numpy())


def cut_out(colors: Float[Tensor, "3 H W"], shape: Float[Tensor, "H W"]) -> Rgba:
    """A layer with its shape as transparency."""
    return as_bytes(torch.cat([colors, shape[None]]).permute(1, 2, 0).cpu().numpy())


def layer_pictures(view: View, shown: Collection[int]) -> dict[int, tuple[Rgba, Rgba]]:
    """Of every shown object: what is seen of it, and the whole of it."""
    return {
        k: (cut_out(view.appearance[k], view.masks[k + 1]), cut_out(view.appearance[k], view.complete[k]))
        for k in sorted(shown)
    }


def background_pictures(view: View) -> tuple[Rgba, Rgb]:
    """What is seen of the background, shadows on it, and the whole of it, bare."""
    return cut_out(view.background, view.masks[0]), small(view.bare)
