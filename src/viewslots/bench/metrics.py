"""Scene evaluations a second: all eight metrics in both conventions, beside a loop over scikit-learn."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, UInt8
from numpy.typing import NDArray
from torch import Tensor

from viewslots.bench.timing import rate
from viewslots.errors import UserError
from viewslots.metrics.arrays import scene_truth
from viewslots.metrics.score import METRICS, SceneScores, score_scenes
from viewslots.provenance import provenance
from viewslots.types import BACKGROUND, Decomposition

SCENES, VIEWS, SIZE, LAYERS, OBJECTS = 500, 4, 64, 8, 6
PARTITIONS = ("ARI-A", "AMI-A", "ARI-O", "AMI-O")
"""What scikit-learn can answer."""


def bench_metrics(device: str, seconds: float, seed: int) -> dict[str, Any]:
    """500 scenes of 4 x 64 x 64 pixels with 8 layers. Ours answers everything twice, the loop four metrics once."""
    _require_sklearn()
    generator = torch.Generator().manual_seed(seed)
    segment, shapes, order = discs(SCENES, generator)
    prediction = guess(segment, shapes, order, generator, device)
    truth = scene_truth(segment.to(device), shapes.to(device), order.to(device))
    ours = SCENES / rate(lambda: score_scenes(prediction, truth), SCENES, device, seconds)
    alone = one_thread_seconds(lambda: score_scenes(prediction, truth), device, seconds)
    loop, expected = sklearn_loop(segment, prediction)
    scores = score_scenes(prediction, truth)
    return {
        "provenance": provenance(),
        "device": device,
        "threads": torch.get_num_threads(),
        "seed": seed,
        "sizes": {"scenes": SCENES, "views": VIEWS, "pixels": VIEWS * SIZE**2, "layers": LAYERS, "objects": OBJECTS},
        "ours_seconds": ours,
        "sklearn_seconds": loop,
        "sklearn_over_ours": loop / ours,
        "ours_one_thread_seconds": alone,
        "sklearn_over_ours_one_thread": loop / alone,
        "largest_difference": largest_difference(scores, expected),
        "paper": scores.paper(),
        "pooled": scores.pooled(),
    }


def one_thread_seconds(work: Callable[[], object], device: str, seconds: float) -> float:
    """Seconds with one thread on the CPU, as the loop has it; on a busy machine threads wait for one another."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return SCENES / rate(work, SCENES, device, seconds)
    finally:
        torch.set_num_threads(threads)


def _require_sklearn() -> None:
    try:
        import sklearn  # noqa: F401
    except ImportError as error:
        raise UserError("bench metrics compares with scikit-learn; install it with pip install scikit-learn") from error


def discs(
    scenes: int, generator: torch.Generator
) -> tuple[UInt8[Tensor, "S M H W"], UInt8[Tensor, "S M G H W"], Float32[Tensor, "S M G"]]:
    """Segment, complete shapes and depth order of soft discs, three to six a scene, in other places in each view."""
    centre = 8 + (SIZE - 16) * torch.rand(scenes, VIEWS, OBJECTS, 2, 1, 1, generator=generator)
    radius = 4 + 7 * torch.rand(scenes, 1, OBJECTS, 1, 1, generator=generator)
    place = torch.arange(SIZE, dtype=torch.float32)
    used = torch.arange(OBJECTS) < torch.randint(3, OBJECTS + 1, (scenes, 1), generator=generator)
    order = torch.rand(scenes, VIEWS, OBJECTS, generator=generator).where(used[:, None], -torch.inf)
    distance = ((place[:, None] - centre[..., 0, :, :]).square() + (place - centre[..., 1, :, :]).square()).sqrt()
    inside = (radius + 0.5 - distance).clamp(0, 1) * used[:, None, :, None, None]
    nearest = order[..., None, None].where(inside >= 0.5, -torch.inf).max(2)
    segment = nearest.indices.where(nearest.values > -torch.inf, BACKGROUND).byte()
    return segment, (inside * 255).byte(), order


def guess(
    segment: UInt8[Tensor, "S M H W"],
    shapes: UInt8[Tensor, "S M G H W"],
    order: Float[Tensor, "S M G"],
    generator: torch.Generator,
    device: str,
) -> Decomposition:
    """A fair method's answer: the truth, a pixel beside the right place, with noise and a slot too many."""
    scenes, slots = len(segment), LAYERS - 1
    own = (segment.roll(1, 3) + 1)[:, :, None] == torch.arange(LAYERS, dtype=torch.uint8)[:, None, None]
    noise = torch.rand(own.shape, generator=generator)
    masks = (4 * own + 5 * noise).softmax(2)
    complete = torch.zeros(scenes, VIEWS, slots, SIZE, SIZE)
    complete[:, :, :OBJECTS] = shapes.roll(1, 4) / 255
    depth = torch.zeros(scenes, VIEWS, slots)
    depth[:, :, :OBJECTS] = order + 0.3 * torch.rand(order.shape, generator=generator)
    presence = torch.rand(scenes, slots, generator=generator)
    return Decomposition(
        reconstruction=torch.zeros(()).expand(scenes, VIEWS, 3, SIZE, SIZE),
        layer_masks=masks.to(device),
        has_background=True,
        complete_shapes=complete.to(device),
        presence=presence.to(device),
        depth_order=depth.to(device),
    )


def sklearn_loop(
    segment: UInt8[Tensor, "S M H W"], prediction: Decomposition
) -> tuple[float, Float64[np.ndarray, "S 4"]]:
    """Seconds for ARI and AMI of every scene, and their values. The labels are ready before the clock starts."""
    from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score

    masks = prediction.layer_masks.cpu()
    truth, layer, best = (
        values.flatten(1).numpy() for values in (segment, masks.max(2).indices, masks[:, :, 1:].max(2).indices)
    )
    pairs: list[tuple[NDArray[Any], NDArray[Any]]] = []
    for one, all_layers, objects in zip(truth, layer, best, strict=True):
        seen = one != BACKGROUND
        pairs += [(one, all_layers), (one[seen], objects[seen])]
    start = time.perf_counter()
    values = [measure(*pair) for pair in pairs for measure in (adjusted_rand_score, adjusted_mutual_info_score)]
    return time.perf_counter() - start, np.array(values).reshape(-1, 4)


def largest_difference(scores: SceneScores, expected: Float64[np.ndarray, "S 4"]) -> float:
    columns = [METRICS.index(name) for name in PARTITIONS]
    return float(np.abs(scores.values[:, columns].numpy() - expected).max())
