"""Ways of the camera: between viewpoints, to new ones, along the principal axes of the view latent."""

import itertools
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.errors import UserError
from viewslots.viewpoints.scene import InferredScene, seeded


def interpolate(a: Float[Tensor, "D"], b: Float[Tensor, "D"], count: int) -> Float[Tensor, "count D"]:
    """From one viewpoint to another, both included, in equal steps of the latent."""
    share = torch.linspace(0, 1, at_least_one(count), device=a.device)[:, None]
    return (1 - share) * a + share * b


def loop(views: Float[Tensor, "M D"], count: int) -> Float[Tensor, "count D"]:
    """Through all viewpoints in their order and back to the first, which is not repeated: videos of it have no seam."""
    place = torch.arange(at_least_one(count), device=views.device) * (len(views) / count)
    start = place.long().clamp(max=len(views) - 1)
    share = (place - start)[:, None]
    return (1 - share) * views[start] + share * views[(start + 1) % len(views)]


def tour(views: Float[Tensor, "M D"]) -> list[int]:
    """The shortest way through all viewpoints and back to the first, for a camera that turns smoothly.

    Exact for up to seven; beyond, always on to the nearest that is left.
    """
    apart = torch.cdist(views.double()[None], views.double()[None])[0].tolist()

    def length(order: list[int]) -> float:
        return sum(apart[one][two] for one, two in zip(order, [*order[1:], order[0]], strict=True))

    others = range(1, len(views))
    if len(views) <= 7:
        return min(([0, *order] for order in itertools.permutations(others)), key=length)
    order, left = [0], set(others)
    while left:
        order.append(min(left, key=lambda view: apart[order[-1]][view]))
        left.remove(order[-1])
    return order


def sample(
    scene: InferredScene, count: int, seed: int, around: Literal["prior", "views"] = "prior"
) -> Float[Tensor, "count D"]:
    """New viewpoints: from the prior N(0, I), or from a Gaussian with mean and covariance of the scene's own ones."""
    drawn = torch.randn(at_least_one(count), scene.views.shape[1], generator=seeded(seed)).to(scene.views)
    if around == "prior":
        return drawn
    if len(scene.views) < 2:
        raise UserError("one viewpoint has no spread to sample from; take the prior")
    fitted = principal_axes(scene.views)
    return fitted.mean + (drawn * fitted.spreads) @ fitted.axes


@dataclass(frozen=True)
class PrincipalAxes:
    """Directions in which viewpoints differ, the widest first."""

    mean: Float[Tensor, "D"]
    axes: Float[Tensor, "D D"]
    """A unit vector a row; its largest entry is positive, so that the same views always walk the same way."""
    spreads: Float[Tensor, "D"]
    """Standard deviation along each; zero where there are too few views to tell."""


def principal_axes(views: Float[Tensor, "N D"]) -> PrincipalAxes:
    """Principal components of viewpoints, of one scene or of many."""
    N, D = views.shape
    if N < 2:
        raise UserError(f"principal axes need at least two viewpoints, not {N}")
    mean = views.mean(0)
    _, values, axes = torch.linalg.svd(views - mean, full_matrices=True)
    largest = axes.gather(1, axes.abs().argmax(1, keepdim=True))
    spreads = views.new_zeros(D)
    spreads[: len(values)] = values / (N - 1) ** 0.5
    return PrincipalAxes(mean, axes * largest.sign(), spreads)


def axes_of(scene: InferredScene) -> PrincipalAxes:
    """Principal axes of a scene's viewpoints; where it has but one, those of the prior around it."""
    if len(scene.views) > 1:
        return principal_axes(scene.views)
    view = scene.views[0]
    return PrincipalAxes(view, torch.eye(len(view), device=view.device), torch.ones_like(view))


def walk(
    scene: InferredScene, axis: int, reach: float, count: int, axes: PrincipalAxes | None = None
) -> Float[Tensor, "count D"]:
    """Along one principal axis through the middle of the viewpoints: from -reach to +reach standard deviations."""
    axes = axes or axes_of(scene)
    if not 0 <= axis < len(axes.axes):
        raise UserError(f"there is no axis {axis}; those of this model are 0 to {len(axes.axes) - 1}")
    step = reach * axes.spreads[axis] * axes.axes[axis]
    return interpolate(axes.mean - step, axes.mean + step, count)


def at_least_one(count: int) -> int:
    if count < 1:
        raise UserError(f"a path needs at least one viewpoint, not {count}")
    return count
