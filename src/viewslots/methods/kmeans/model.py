"""The floor of every table: k-means on colours and places. It learns nothing.

A scene's pixels of all views are clustered together into K + 1 clusters. The cluster with the most pixels at the
borders of the pictures is the background, so all metrics but OOA have a value: a floor that named no background would
be spared IoU and F1. Complete shapes are the visible ones, a cluster with pixels counts as present, and there is no
depth order.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from viewslots.errors import UserError
from viewslots.methods.contract import Search
from viewslots.methods.inputs import check_slots
from viewslots.types import Decomposition, SceneBatch

PLACE_WEIGHT = 0.5
"""Colours lie in [0, 1], places in [0, PLACE_WEIGHT]: half a picture apart is like a quarter of the range of red."""
RESTARTS = 3
ROUNDS = 20
SHARPNESS = 20.0
"""Masks are a soft-max of -SHARPNESS times squared distance: soft, so that pixels that the background claims still have
a nearest object, which the metrics over objects alone ask for. Squared distances reach 3.5; more would underflow."""
FAR = 1e6


@dataclass(frozen=True)
class KMeansAnswer:
    """All that the clusters tell."""

    found: Decomposition
    object_codes: Float[Tensor, "B K 5"]
    """Mean colour and mean place of each cluster."""

    def decomposition(self) -> Decomposition:
        return self.found


class KMeansMethod:
    """Answers like any method. `slots` must be given, since nothing was trained."""

    name: ClassVar[str] = "kmeans"
    needs_camera: ClassVar[bool] = False
    shows_new_views: ClassVar[bool] = False
    has_viewpoints: ClassVar[bool] = False
    searches: ClassVar[bool] = False
    default_search: ClassVar[Search | None] = None
    image_size: None = None
    slots: None = None

    @torch.no_grad()
    def infer(
        self,
        batch: SceneBatch,
        generator: torch.Generator,
        slots: int | None = None,
        search: Search | None = None,
    ) -> KMeansAnswer:
        if search is not None:
            raise UserError("kmeans has no search of answers: leave out --starts, --spare, --looks and --refine")
        if slots is None:
            raise UserError("k-means needs a number of slots; give --slots")
        check_slots(slots)
        points, weight = scene_points(batch)
        centres = best_centres(points, weight, slots + 1, generator)
        distance = squared_distances(points, centres)
        used = cluster_sizes(distance, weight) > 0
        centres, distance, used = ordered(centres, distance, used, background_first(distance, batch))
        return KMeansAnswer(decomposed(batch, centres, distance, used), centres[:, 1:])


def scene_points(batch: SceneBatch) -> tuple[Float[Tensor, "B N 5"], Float[Tensor, "B N"]]:
    """Colour and place of every pixel of every view; weight 0 in padded views."""
    B, M, _, H, W = batch.image.shape
    row, column = (torch.linspace(0, PLACE_WEIGHT, size, device=batch.image.device) for size in (H, W))
    places = torch.stack(torch.meshgrid(row, column, indexing="ij"))
    points = torch.cat([batch.image.float(), places.expand(B, M, 2, H, W)], 2)
    weight = batch.view_mask[:, :, None].expand(B, M, H * W).flatten(1)
    return points.movedim(2, -1).flatten(1, 3), weight.float()


def squared_distances(points: Float[Tensor, "B N D"], centres: Float[Tensor, "B C D"]) -> Float[Tensor, "B N C"]:
    return torch.stack([(points - centre[:, None]).square().sum(-1) for centre in centres.unbind(1)], -1)


def best_centres(
    points: Float[Tensor, "B N D"], weight: Float[Tensor, "B N"], clusters: int, generator: torch.Generator
) -> Float[Tensor, "B C D"]:
    """The best of a few restarts, scene by scene."""
    best, least = None, None
    for _ in range(RESTARTS):
        centres = refined(points, weight, first_centres(points, weight, clusters, generator))
        cost = (squared_distances(points, centres).amin(2) * weight).double().sum(1)
        better = torch.ones_like(cost, dtype=torch.bool) if least is None else cost < least
        best = centres if best is None else torch.where(better[:, None, None], centres, best)
        least = cost if least is None else torch.where(better, cost, least)
    assert best is not None
    return best


def first_centres(
    points: Float[Tensor, "B N D"], weight: Float[Tensor, "B N"], clusters: int, generator: torch.Generator
) -> Float[Tensor, "B C D"]:
    """k-means++: each next centre is a pixel drawn in proportion to its squared distance from the nearest centre."""
    chosen = [drawn_points(points, weight, generator)]
    for _ in range(clusters - 1):
        nearest = squared_distances(points, torch.stack(chosen, 1)).amin(2) * weight
        chosen.append(drawn_points(points, nearest, generator))
    return torch.stack(chosen, 1)


def drawn_points(
    points: Float[Tensor, "B N D"], weight: Float[Tensor, "B N"], generator: torch.Generator
) -> Float[Tensor, "B D"]:
    """One point a scene with probability in proportion to its weight, by inversion: one random number each.

    Where no weight is left, because there are fewer distinct pixels than clusters, it is the last: as good as any.
    """
    below = weight.double().cumsum(1)
    number = torch.rand(len(points), 1, generator=generator, device=generator.device, dtype=torch.float64)
    index = torch.searchsorted(below, number.to(below.device) * below[:, -1:], right=True)
    last = points.shape[1] - 1
    return points.gather(1, index.clamp(max=last)[:, :, None].expand(-1, -1, points.shape[2]))[:, 0]


def refined(
    points: Float[Tensor, "B N D"], weight: Float[Tensor, "B N"], centres: Float[Tensor, "B C D"]
) -> Float[Tensor, "B C D"]:
    """Lloyd's rounds; an empty cluster stays where it is."""
    for _ in range(ROUNDS):
        nearest = squared_distances(points, centres).argmin(2)
        member = torch.nn.functional.one_hot(nearest, centres.shape[1]) * weight[:, :, None]
        size = member.sum(1)[:, :, None]
        centres = torch.where(size > 0, member.mT @ points / size.clamp(min=1), centres)
    return centres


def cluster_sizes(distance: Float[Tensor, "B N C"], weight: Float[Tensor, "B N"]) -> Float[Tensor, "B C"]:
    nearest = torch.nn.functional.one_hot(distance.argmin(2), distance.shape[2])
    return (nearest * weight[:, :, None]).sum(1)


def background_first(distance: Float[Tensor, "B N C"], batch: SceneBatch) -> Int[Tensor, "B C"]:
    """The cluster with the most border pixels, then the others in their order."""
    border = torch.zeros(batch.image.shape[-2:], device=distance.device)
    border[[0, -1]] = 1
    border[:, [0, -1]] = 1
    sizes = cluster_sizes(distance, (batch.view_mask[:, :, None, None] * border).flatten(1))
    background = torch.nn.functional.one_hot(sizes.argmax(1), sizes.shape[1])
    return torch.argsort(-background, dim=1, stable=True)


def ordered(
    centres: Float[Tensor, "B C D"], distance: Float[Tensor, "B N C"], used: Bool[Tensor, "B C"], order: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Clusters in their new order."""
    return (
        centres.gather(1, order[:, :, None].expand_as(centres)),
        distance.gather(2, order[:, None].expand_as(distance)),
        used.gather(1, order),
    )


def decomposed(
    batch: SceneBatch, centres: Float[Tensor, "B L D"], distance: Float[Tensor, "B N L"], used: Bool[Tensor, "B L"]
) -> Decomposition:
    B, M, _, H, W = batch.image.shape
    reachable = distance.masked_fill(~used[:, None], FAR)
    hard = torch.nn.functional.one_hot(reachable.argmin(2), reachable.shape[2]).to(distance.dtype)
    soft = (-SHARPNESS * reachable).softmax(2)
    found = (soft, hard, hard @ centres[:, :, :3])
    masks, shapes, colours = (values.view(B, M, H, W, -1).movedim(-1, 2) for values in found)
    present = used[:, 1:].to(distance.dtype)
    return Decomposition(
        reconstruction=colours,
        layer_masks=masks,
        has_background=True,
        complete_shapes=shapes[:, :, 1:],
        presence=present,
        presence_probability=present,
    )
