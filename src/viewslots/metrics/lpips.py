"""LPIPS (Zhang et al., 2018), where its weights are at hand: nothing is downloaded.

Both pictures go through a network that was trained to classify pictures. At five places its features are brought to
unit length over the channels; their squared difference is weighted by channel, averaged over pixels, and summed.

The weights are files of others under their usual names: `features.N.weight` of torchvision's AlexNet or VGG-16 and
`linK.model.1.weight` of the package lpips, or all of them in one file as that package saves itself
(`net.sliceK.N.weight`). Which of the networks they are of is read from their sizes.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import conv2d, max_pool2d

from viewslots.errors import UserError
from viewslots.files import plain_errors, shown

ENVIRONMENT = "VIEWSLOTS_LPIPS"
ENDINGS = (".pth", ".pt", ".safetensors")
SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)
"""Of the colours in [-1, 1], before the network."""
TINY = 1e-10
MOST_BYTES = 2**31
WHERE = (
    "LPIPS needs two files: alexnet-owt-7be5be79.pth (or vgg16-397923af.pth) of torchvision, and alex.pth (or vgg.pth) "
    "from lpips/weights/v0.1 of the package lpips; put them into a folder and name it"
)


def find_lpips(
    path: Path | None, device: str, size: tuple[int, ...], say: Callable[[str], None] = lambda line: None
) -> "Lpips | None":
    """With the weights that a user names, or those where the environment says; None without either.

    Pictures of this height and width may be too small for it: an error where the user asks for LPIPS, a word where the
    environment does, which is there for all data sets.
    """
    found = path or (Path(named) if (named := os.environ.get(ENVIRONMENT)) else None)
    lpips = None if found is None else Lpips.load(found, device)
    if lpips is not None and (problem := lpips.too_small(size)):
        if path is not None:
            raise UserError(f"--lpips: {problem}")
        say(f"{ENVIRONMENT}: {problem}, so there is no LPIPS")
        return None
    return lpips


class Layer(NamedTuple):
    """A convolution with ReLU: its number in torchvision, channels in and out, and how it is computed."""

    number: int
    channels: tuple[int, int]
    kernel: int
    stride: int = 1
    padding: int = 1
    pooled: tuple[int, int] | None = None
    """Size and stride of the maximum that is taken before it."""
    tapped: bool = True
    """Whether its output is compared."""


ALEX = (
    Layer(0, (3, 64), 11, 4, 2),
    Layer(3, (64, 192), 5, 1, 2, (3, 2)),
    Layer(6, (192, 384), 3, pooled=(3, 2)),
    Layer(8, (384, 256), 3),
    Layer(10, (256, 256), 3),
)
VGG = tuple(
    Layer(number, channels, 3, pooled=(2, 2) if first else None, tapped=last)
    for number, channels, first, last in (
        (0, (3, 64), False, False),
        (2, (64, 64), False, True),
        (5, (64, 128), True, False),
        (7, (128, 128), False, True),
        (10, (128, 256), True, False),
        (12, (256, 256), False, False),
        (14, (256, 256), False, True),
        (17, (256, 512), True, False),
        (19, (512, 512), False, False),
        (21, (512, 512), False, True),
        (24, (512, 512), True, False),
        (26, (512, 512), False, False),
        (28, (512, 512), False, True),
    )
)
NETWORKS = {"alex": (ALEX, 31), "vgg": (VGG, 16)}
"""Layers, and the shortest side of a picture that they can take."""


class Lpips:
    """Distances of pictures: 0 for equal ones."""

    def __init__(self, network: str, weights: Mapping[str, Tensor], device: str = "cpu") -> None:
        self.network, (self._layers, self._least) = network, NETWORKS[network]
        self._weights = {name: weights[name].float().to(device) for name in wanted(network)}

    @classmethod
    def load(cls, path: Path, device: str = "cpu") -> "Lpips":
        """From a file, or from all files of a folder together."""
        weights = read_weights(path)
        for network in NETWORKS:
            if all(name in weights and tuple(weights[name].shape) == size for name, size in wanted(network).items()):
                return cls(network, weights, device)
        lacks = next(name for name in wanted("alex") if name not in weights or "lin" in name)
        raise UserError(f"{path}: no weights of LPIPS by AlexNet or VGG-16 (see {lacks}). {WHERE}")

    @torch.no_grad()
    def __call__(self, first: Float[Tensor, "N 3 H W"], second: Float[Tensor, "N 3 H W"]) -> Float[Tensor, "N"]:
        """Of pictures in [0, 1], of any floats."""
        if problem := self.too_small(tuple(first.shape[2:])):
            raise UserError(problem)
        first, second = first.float(), second.float()
        distance = first.new_zeros(len(first))
        for place, (one, other) in enumerate(zip(self.features(first), self.features(second), strict=True)):
            squares = (unit(one) - unit(other)).square()
            distance = distance + conv2d(squares, self._weights[f"lin{place}.model.1.weight"]).mean((1, 2, 3))
        return distance

    def too_small(self, size: tuple[int, ...]) -> str:
        """Why pictures of this height and width cannot be compared; empty where they can."""
        if min(size) >= self._least:
            return ""
        sides = "x".join(map(str, size))
        return f"LPIPS by {self.network} needs pictures of {self._least} pixels a side at least, not {sides}"

    def features(self, pictures: Float[Tensor, "N 3 H W"]) -> list[Float[Tensor, "N C h w"]]:
        """At the five places."""
        shift, scale = (pictures.new_tensor(values)[:, None, None] for values in (SHIFT, SCALE))
        values, found = (2 * pictures - 1 - shift) / scale, []
        for layer in self._layers:
            values = values if layer.pooled is None else max_pool2d(values, *layer.pooled)
            weight, bias = (self._weights[f"features.{layer.number}.{part}"] for part in ("weight", "bias"))
            values = conv2d(values, weight, bias, layer.stride, layer.padding).relu()
            found += [values] if layer.tapped else []
        return found


def unit(features: Float[Tensor, "N C h w"]) -> Float[Tensor, "N C h w"]:
    return features / (features.square().sum(1, keepdim=True).sqrt() + TINY)


def wanted(network: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all weights."""
    layers, _ = NETWORKS[network]
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in layers:
        into, out = layer.channels
        shapes[f"features.{layer.number}.weight"] = (out, into, layer.kernel, layer.kernel)
        shapes[f"features.{layer.number}.bias"] = (out,)
    tapped = [layer.channels[1] for layer in layers if layer.tapped]
    return shapes | {f"lin{place}.model.1.weight": (1, channels, 1, 1) for place, channels in enumerate(tapped)}


def read_weights(path: Path) -> dict[str, Tensor]:
    """By torchvision's names; tensors alone are read, never code."""
    with plain_errors("reading", path):
        files = sorted(one for one in path.iterdir() if one.suffix in ENDINGS) if path.is_dir() else [path]
        if not files or not all(one.is_file() and one.stat().st_size <= MOST_BYTES for one in files):
            raise UserError(f"{path}: no weights (a file or a folder of {', '.join(ENDINGS)}). {WHERE}")
    weights: dict[str, Tensor] = {}
    for file in files:
        for name, value in _tensors(file).items():
            weights[re.sub(r"^net\.slice\d+\.", "features.", name)] = value
    return weights


def _tensors(file: Path) -> dict[str, Tensor]:
    try:
        with plain_errors("reading", file):
            found = load_file(file) if file.suffix == ".safetensors" else torch.load(file, "cpu", weights_only=True)
    except UserError:
        raise
    except Exception as error:  # whatever a damaged file makes these readers raise
        raise UserError(f"{file}: not a file of weights ({shown(str(error))})") from error
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise UserError(f"{file}: not a dictionary of weights")
    return found
