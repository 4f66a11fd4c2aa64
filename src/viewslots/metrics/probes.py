"""Do the view codes know the camera? Ridge and kernel ridge from mu_view to the true camera."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from viewslots.metrics.extras import Ratio

Array = NDArray[np.float64]
Predict = Callable[[Array], Array]

STRENGTHS = tuple(10.0**power for power in range(-4, 5))
"""Weights of the penalty, tried in turn."""
WIDTHS = (0.03, 0.1, 0.3, 1.0)
"""exp(-width / D |x - y|^2) on codes of unit variance: from nearly linear to a neighbourhood."""
HELD_OUT = 4
"""Every fourth scene of the fitting split chooses the penalty; then all of them fit."""
FIT_SCENES = 250
"""A small probe: no more scenes than this are fitted."""
CONSTANT = 1e-10
"""A target with less variance than this is a constant with rounding errors."""
TARGETS = ("position", "azimuth", "distance", "elevation")
PROBES = ("linear", "kernel")
CAMERA_SCORES = tuple(f"camera_{kind}_{target}" for kind in PROBES for target in TARGETS)
SETTINGS: Mapping[str, tuple[tuple[float, ...], ...]] = {
    "linear": tuple((strength,) for strength in STRENGTHS),
    "kernel": tuple((strength, width) for strength in STRENGTHS for width in WIDTHS),
}


def camera_targets(camera: Float[np.ndarray, "S M 3"]) -> dict[str, Float[np.ndarray, "S M T"]]:
    """The camera as position in metres, azimuth (cosine and sine), distance, and elevation in radians."""
    position = camera.astype(np.float64)
    distance = np.linalg.norm(position, axis=-1, keepdims=True)
    azimuth = np.arctan2(position[..., 1:2], position[..., :1])
    elevation = np.arcsin(np.clip(position[..., 2:] / np.maximum(distance, 1e-12), -1, 1))
    circle = np.concatenate([np.cos(azimuth), np.sin(azimuth)], -1)
    return {"position": position, "azimuth": circle, "distance": distance, "elevation": elevation}


def ridge(codes: Float[np.ndarray, "n D"], targets: Float[np.ndarray, "n T"], strength: float) -> Predict:
    """min |Y - X W - b|^2 + strength |W|^2 with a free b."""
    centre, middle = codes.mean(0), targets.mean(0)
    inner = (codes - centre).T @ (codes - centre) + strength * np.eye(codes.shape[1])
    weights = np.linalg.solve(inner, (codes - centre).T @ (targets - middle))
    return lambda new: (new - centre) @ weights + middle


def kernel_ridge(
    codes: Float[np.ndarray, "n D"], targets: Float[np.ndarray, "n T"], strength: float, width: float
) -> Predict:
    """Kernel ridge regression of the centred targets with a Gaussian kernel."""
    middle = targets.mean(0)
    inner = gaussian_kernel(codes, codes, width) + strength * np.eye(len(codes))
    weights = np.linalg.solve(inner, targets - middle)
    return lambda new: gaussian_kernel(new, codes, width) @ weights + middle


def gaussian_kernel(
    left: Float[np.ndarray, "n D"], right: Float[np.ndarray, "m D"], width: float
) -> Float[np.ndarray, "n m"]:
    squares = (left**2).sum(1)[:, None] + (right**2).sum(1) - 2 * left @ right.T
    return np.exp(-width / left.shape[1] * np.maximum(squares, 0))


@dataclass(frozen=True)
class Standard:
    """Codes shifted and scaled to unit variance over the fitted views; constant dimensions are only shifted."""

    mean: Float[np.ndarray, "D"]
    scale: Float[np.ndarray, "D"]

    @classmethod
    def of(cls, codes: Float[np.ndarray, "n D"]) -> "Standard":
        spread = codes.std(0)
        return cls(codes.mean(0), np.where(spread > 1e-12, spread, 1.0))

    def __call__(self, codes: Float[np.ndarray, "... D"]) -> Float[np.ndarray, "... D"]:
        return (codes - self.mean) / self.scale


def fit(kind: str, setting: tuple[float, ...], codes: Array, targets: Array) -> Predict:
    return ridge(codes, targets, *setting) if kind == "linear" else kernel_ridge(codes, targets, *setting)


def fit_probes(
    kind: str, codes: Float[np.ndarray, "S M D"], targets: Mapping[str, Float[np.ndarray, "S M T"]]
) -> dict[str, Predict]:
    """For each target the setting that errs least on the held-out scenes, fitted again on all."""
    held = np.arange(len(codes)) % HELD_OUT == min(HELD_OUT, len(codes)) - 1
    standard = Standard.of(flat(codes))
    scaled = standard(codes)
    errors = held_out_errors(kind, scaled, targets, held)

    def fitted(name: str) -> Predict:
        setting = SETTINGS[kind][int(np.argmin(errors[name]))]
        chosen = fit(kind, setting, flat(scaled), flat(targets[name]))
        return lambda new: chosen(standard(new))

    return {name: fitted(name) for name in targets}


def held_out_errors(
    kind: str,
    codes: Float[np.ndarray, "S M D"],
    targets: Mapping[str, Float[np.ndarray, "S M T"]],
    held: Bool[np.ndarray, "S"],
) -> dict[str, list[float]]:
    """Squared error of each target for every setting; one system of equations serves all targets."""
    together = np.concatenate(list(targets.values()), -1)
    ends = np.cumsum([values.shape[-1] for values in targets.values()])
    errors: dict[str, list[float]] = {name: [] for name in targets}
    for setting in SETTINGS[kind]:
        predict = fit(kind, setting, flat(codes[~held]), flat(together[~held]))
        squares = ((flat(together[held]) - predict(flat(codes[held]))) ** 2).sum(0)
        for name, part in zip(targets, np.split(squares, ends[:-1]), strict=True):
            errors[name].append(float(part.sum()))
    return errors


def flat(values: Float[np.ndarray, "S M D"]) -> Float[np.ndarray, "n D"]:
    return values.reshape(-1, values.shape[-1])


def explained(predict: Predict, codes: Float[np.ndarray, "S M D"], targets: Float[np.ndarray, "S M T"]) -> Ratio:
    """R2 = 1 - sum of squared errors / sum of squares around the mean of the test views, over all T together."""
    found = predict(flat(codes)).reshape(targets.shape)
    total = ((targets - targets.mean((0, 1))) ** 2).sum((1, 2))
    if total.sum() <= CONSTANT * targets.size:
        return Ratio.nothing(len(targets))
    return Ratio(total - ((targets - found) ** 2).sum((1, 2)), total)


class CameraProbes:
    """Both probes for every target, fitted once; scored on the codes of any repeat."""

    def __init__(self, codes: Float[np.ndarray, "S M D"], camera: Float[np.ndarray, "S M 3"]) -> None:
        targets = camera_targets(camera)
        self.probes = {kind: fit_probes(kind, codes.astype(np.float64), targets) for kind in PROBES}

    def score(self, codes: Float[np.ndarray, "S M D"], camera: Float[np.ndarray, "S M 3"]) -> dict[str, Ratio]:
        """`camera_linear_position` and so on."""
        targets = camera_targets(camera)
        return {
            f"camera_{kind}_{target}": explained(predict, codes.astype(np.float64), targets[target])
            for kind, probes in self.probes.items()
            for target, predict in probes.items()
        }
