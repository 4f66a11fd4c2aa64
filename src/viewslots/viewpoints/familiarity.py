"""Familiarity: are pictures of the kind that a model was trained on? An out-of-distribution score, calibrated.

Two tests, since neither is enough. A picture that is rebuilt badly holds things that the model does not know; but a
blank wall is easy to rebuild. So the second test looks at the picture alone: light, colours and detail at each scale,
as a Mahalanobis distance from pictures of the known kind.

The score of a picture is the larger of both values, each divided by its limit. The limits are measured on scenes of the
known kind such that `RATE` of them have a picture above 1. They lie beside the weights in typical.json, with how they
were measured (tools/measure_typical.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from scipy.stats import chi2
from torch import Tensor

from viewslots.errors import UserError
from viewslots.files import read_json
from viewslots.runs import HUB, find_run
from viewslots.viewpoints.statistics import STATISTICS, picture_statistics

if TYPE_CHECKING:
    from viewslots.viewpoints.scene import InferredScene, Reader

TYPICAL_FILE = "typical.json"
MOST_VIEWPOINTS = 0.99
"""Share of known viewpoints that lie in their region."""
RATE = "0.01"
"""Share of scenes of the known kind that are refused; the key of the limits in use."""


@dataclass(frozen=True, eq=False)
class Limits:
    """Of the two tests, at one rate of false alarms."""

    distance: float
    error: float


@dataclass(frozen=True, eq=False)
class Region:
    """Where codes of viewpoints lie: a Gaussian, and how far from its middle they come."""

    mean: Float[Tensor, "D"]
    covariance: Float[Tensor, "D D"]
    limit: float
    """Mahalanobis distance within which 99 % of them are."""

    @cached_property
    def whitening(self) -> Float[Tensor, "D D"]:
        return whitening_of(self.covariance)

    def distance(self, view: Float[Tensor, "D"]) -> float:
        return float(((view.detach().cpu().double() - self.mean) @ self.whitening).norm())


def known_viewpoints(reader: "Reader") -> Region:
    """Of the scenes that a model knows, as measured; else of the prior."""
    if reader.typical is not None:
        return reader.typical.viewpoints
    D = reader.view_dim
    limit = float(chi2.ppf(MOST_VIEWPOINTS, D)) ** 0.5
    return Region(torch.zeros(D, dtype=torch.float64), torch.eye(D, dtype=torch.float64), limit)


def whitening_of(covariance: Float[Tensor, "F F"]) -> Float[Tensor, "F F"]:
    """A Mahalanobis distance is the length of a difference times this."""
    return torch.linalg.inv(torch.linalg.cholesky(covariance)).T


@dataclass(frozen=True, eq=False)
class Typical:
    """What pictures of the kind that a model was trained on look like, and how well it rebuilds them."""

    data: str
    """What they are, in a few words."""
    usual_error: float
    """Median of the mean squared error of a picture."""
    mean: Float[Tensor, "F"]
    covariance: Float[Tensor, "F F"]
    """Of `picture_statistics`."""
    limits: Mapping[str, Limits]
    """By the share of scenes of this kind, four pictures each, of which a picture is beyond one of the two."""
    viewpoints: Region
    """Where its codes of their viewpoints lie."""

    @cached_property
    def whitening(self) -> Float[Tensor, "F F"]:
        return whitening_of(self.covariance)

    def distances(self, images: Float[Tensor, "M 3 H W"]) -> Float[Tensor, "M"]:
        """Mahalanobis, of the statistics of each picture."""
        return self.lengths(picture_statistics(images))

    def unlike(self, images: Float[Tensor, "B M 3 H W"], shown: Bool[Tensor, "B M"]) -> Bool[Tensor, "B"]:
        """Scenes that show a picture which is unusual by itself, however well it may be rebuilt."""
        far = self.distances(images.flatten(0, 1)) > self.limits[RATE].distance
        return (far.view(shown.shape) & shown.cpu()).any(1)

    def lengths(self, statistics: Float[Tensor, "*pictures F"]) -> Float[Tensor, "*pictures"]:
        return ((statistics - self.mean) @ self.whitening).norm(dim=-1)


@dataclass(frozen=True)
class Familiarity:
    """How unlike the known ones the pictures of one scene are."""

    data: str
    """What the model knows."""
    distances: tuple[float, ...]
    errors: tuple[float, ...]
    usual_error: float
    limits: Limits

    @property
    def scores(self) -> tuple[float, ...]:
        """Of each picture; above 1 it is unlike what the model knows."""
        limits, values = self.limits, zip(self.distances, self.errors, strict=True)
        return tuple(max(distance / limits.distance, error / limits.error) for distance, error in values)

    @property
    def odd(self) -> list[int]:
        """Pictures above 1, counted from 1."""
        return [place for place, score in enumerate(self.scores, 1) if score > 1]

    @property
    def warning(self) -> str | None:
        """One line for whoever asked, if there is a picture above 1."""
        if not self.odd:
            return None
        return (
            f"{named(self.odd, len(self.scores))} unlike what this model was trained on ({self.data}), so do not trust "
            f"the objects, shapes and order it reports: {' and '.join(self._reasons())} (score {max(self.scores):.1f}; "
            f"{100 * (1 - float(RATE)):.0f} % of scenes that it knows stay below 1)"
        )

    def _reasons(self) -> list[str]:
        reasons = []
        if max(self.distances) > self.limits.distance:
            reasons.append("light, colours or detail are unusual")
        if (worst := max(self.errors)) > self.limits.error:
            reasons.append(f"the reconstruction error is {worst / self.usual_error:.0f} times the usual one")
        return reasons

    def to_json(self) -> dict[str, Any]:
        """For scene.json."""
        return {
            "scores": list(self.scores),
            "unfamiliar_pictures": self.odd,
            "distances": list(self.distances),
            "errors": list(self.errors),
            "limits": vars(self.limits),
            "false_alarms": float(RATE),
        }


def named(odd: list[int], count: int) -> str:
    if len(odd) == count:
        return "this picture is" if count == 1 else "these pictures are"
    return f"picture {odd[0]} is" if len(odd) == 1 else f"pictures {', '.join(map(str, odd))} are"


def familiarity_of(scene: "InferredScene") -> Familiarity | None:
    """Of the pictures that a scene was read from, before edits; None where nothing was measured, or seen."""
    typical = scene.reader.typical
    if typical is None or scene.images is None:
        return None
    return Familiarity(
        data=typical.data,
        distances=tuple(typical.distances(scene.images).tolist()),
        errors=tuple(picture_errors(scene).tolist()),
        usual_error=typical.usual_error,
        limits=typical.limits[RATE],
    )


def picture_errors(scene: "InferredScene") -> Float[Tensor, "M"]:
    """Mean squared error of each picture of a scene as it is rebuilt; none for a scene from the prior."""
    if scene.images is None:
        return scene.views.new_zeros(0)
    rebuilt = torch.stack([view.image for view in scene.render_many(scene.views)])
    return (scene.images - rebuilt).square().mean((1, 2, 3))


def typical_of(source: str | Path) -> Typical | None:
    """What is measured of a model, by its name or folder; nothing of those of the Hub."""
    return None if isinstance(source, str) and source.startswith(HUB) else read_typical(find_run(source))


def read_typical(folder: Path) -> Typical | None:
    """Measured figures beside a model's weights, where there are any."""
    file = folder / TYPICAL_FILE
    if not file.is_file():
        return None
    values = read_json(file)
    try:
        return typical_from(values)
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = " ".join(repr(error).split())[:160]
        raise UserError(f"{file}: damaged ({reason}); without this file, unfamiliar pictures go unnoticed") from error


def typical_from(values: Mapping[str, Any]) -> Typical:
    """What typical.json holds, checked."""
    statistics, viewpoints = gaussian_from(values["statistics"]), gaussian_from(values["viewpoints"])
    if len(statistics[0]) != STATISTICS:
        raise ValueError(f"statistics must be {STATISTICS} numbers and their covariance")
    limits = {rate: Limits(float(one["distance"]), float(one["error"])) for rate, one in values["limits"].items()}
    usual, region = float(values["errors"]["0.5"]), Region(*viewpoints, float(values["viewpoints"]["limit"]))
    positive = [usual, region.limit, *(value for one in limits.values() for value in vars(one).values())]
    if RATE not in limits or not all(0 < value < float("inf") for value in positive):
        raise ValueError(f"limits must be positive, and there must be some for {RATE}")
    return Typical(str(values["data"]), usual, *statistics, limits, region)


def gaussian_from(values: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    mean, covariance = (torch.tensor(values[name], dtype=torch.float64) for name in ("mean", "covariance"))
    if mean.dim() != 1 or covariance.shape != (len(mean), len(mean)):
        raise ValueError("a mean must be a list of numbers, and their covariance a square of them")
    if not bool(torch.isfinite(whitening_of(covariance)).all() & torch.isfinite(mean).all()):
        raise ValueError("mean and covariance must be finite")
    return mean, covariance
