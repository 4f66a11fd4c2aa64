"""Viewpoints that nobody took: between two pictures, drawn anew, along the principal axes of the view latent."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from viewslots.figures.grid import Block, Pixels, Row, Sheet, grid
from viewslots.viewpoints.export import pixels_of
from viewslots.viewpoints.paths import interpolate, principal_axes, sample, walk
from viewslots.viewpoints.scene import InferredScene

STEPS = 7
REACH = 2.0
"""Standard deviations to both sides of the middle."""


def rendered(scene: InferredScene, views: Float[Tensor, "V D"]) -> list[Pixels]:
    return [pixels_of(view.image) for view in scene.render_many(views)]


def furthest_views(scene: InferredScene) -> tuple[int, int]:
    """The two viewpoints of a scene that lie furthest apart; the same one twice where there is only one."""
    apart = torch.cdist(scene.views[None], scene.views[None])[0]
    first, second = divmod(int(apart.argmax()), len(scene.views))
    return min(first, second), max(first, second)


def interpolation_figure(scenes: Sequence[InferredScene], steps: int = STEPS, note: str = "") -> Sheet:
    """A row for each scene: an observation, the way to another one, and that one."""
    columns = ["from", *(f"{step / max(steps - 1, 1):.0%}" for step in range(steps)), "to"]
    rows = []
    for number, scene in enumerate(scenes, 1):
        start, end = furthest_views(scene)
        path = interpolate(scene.views[start], scene.views[end], steps)
        cells = (observed(scene, start), *rendered(scene, path), observed(scene, end))
        rows.append(Row(f"scene {number}, view {start + 1} to {end + 1}", cells))
    return grid("Viewpoints between two observations", columns, [Block("", tuple(rows))], note=note)


def sampling_figure(scenes: Sequence[InferredScene], seed: int, count: int = STEPS, note: str = "") -> Sheet:
    """A row for each scene: an observation, then viewpoints from the prior, the same for every scene."""
    columns = ["observation", *(f"sample {place + 1}" for place in range(count))]
    rows = [
        Row(f"scene {number}", (observed(scene, 0), *rendered(scene, sample(scene, count, seed))))
        for number, scene in enumerate(scenes, 1)
    ]
    return grid("Viewpoints drawn from the prior", columns, [Block("", tuple(rows))], note=note)


def axes_figure(scenes: Sequence[InferredScene], steps: int = STEPS, shown: int = 2, note: str = "") -> Sheet:
    """Blocks: the first scenes. Rows: the principal axes of all scenes' viewpoints, the widest first."""
    axes = principal_axes(torch.cat([scene.views for scene in scenes]))
    shares = axes.spreads.square() / axes.spreads.square().sum().clamp(min=1e-12)
    places = torch.linspace(-REACH, REACH, steps).tolist()
    blocks = []
    for number, scene in enumerate(scenes[:shown], 1):
        rows = tuple(
            Row(f"axis {axis + 1} ({float(shares[axis]):.0%})", tuple(rendered(scene, way)))
            for axis, way in enumerate(walk(scene, axis, REACH, steps, axes) for axis in range(len(axes.axes)))
        )
        blocks.append(Block(f"Scene {number}", rows))
    columns = [f"{place:+.1f} sd" if abs(place) > 1e-6 else "middle" for place in places]
    return grid("Along the principal axes of the viewpoints", columns, blocks, note=note)


def novel_views_figure(
    scenes: Sequence[InferredScene], held_out: Sequence[Float[Tensor, "V 3 H W"] | None], note: str = ""
) -> Sheet:
    """Blocks: scenes that have such. Columns: pictures the model did not have. Rows: the picture, and the scene seen
    from there."""
    blocks = []
    for number, (scene, pictures) in enumerate(zip(scenes, held_out, strict=True), 1):
        if pictures is None:
            continue
        truth, seen = novel_views(scene, pictures)
        blocks.append(Block(f"Scene {number}", (Row("held-out picture", truth), Row("the model's view", seen))))
    most = max(len(pictures) for pictures in held_out if pictures is not None)
    columns = [f"new view {place + 1}" for place in range(most)]
    return grid("Viewpoints of pictures that were held out", columns, blocks, note=note)


def novel_views(
    scene: InferredScene, pictures: Float[Tensor, "V 3 H W"]
) -> tuple[tuple[Pixels, ...], tuple[Pixels, ...]]:
    """Pictures, and what the scene shows from their estimated viewpoints: the objects are known from before."""
    return tuple(map(pixels_of, pictures)), tuple(rendered(scene, scene.estimate(pictures)))


def observed(scene: InferredScene, index: int) -> Pixels:
    if scene.images is None:
        raise ValueError("a scene from the prior was never observed")
    return pixels_of(scene.images[index])
