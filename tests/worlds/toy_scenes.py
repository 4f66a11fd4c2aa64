"""Small scenes with every trouble in them: hidden, unused and cut objects, soft edges, wrong and empty slots."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from slow_metrics import SlowScene

from viewslots.metrics.arrays import scene_truth
from viewslots.types import Decomposition, SceneTruth


def random_truth(
    rng: np.random.Generator, scenes: int = 3, views: int = 2, objects: int = 4, size: int = 7
) -> SceneTruth:
    """Soft rectangles in random depth order; some slots unused, some objects outside a view or fully hidden."""
    shapes = np.zeros((scenes, views, objects, size, size), np.uint8)
    segment = np.full((scenes, views, size, size), 255, np.uint8)
    order = np.full((scenes, views, objects), -np.inf, np.float32)
    for s, m in np.ndindex(scenes, views):
        used = min(objects, s % (objects + 1) + 1)
        order[s, m, :used] = rng.permutation(used)
        for g in np.argsort(order[s, m]):
            if order[s, m, g] < 0 or rng.random() < 0.15:
                continue
            (top, left), (height, width) = rng.integers(0, size - 1, 2), rng.integers(2, size, 2)
            place = (slice(top, top + height), slice(left, left + width))
            shapes[(s, m, g, *place)] = rng.choice([60, 127, 128, 200, 255], shapes[(s, m, g, *place)].shape)
            segment[s, m][shapes[s, m, g] >= 100] = g
    return scene_truth(torch.from_numpy(segment), torch.from_numpy(shapes), torch.from_numpy(order))


def random_prediction(
    rng: np.random.Generator, truth: SceneTruth, slots: int = 4, has_background: bool = True, noise: float = 0.6
) -> Decomposition:
    """Layers that follow the truth, permuted, as far as the noise and the number of slots let them."""
    scenes, views, height, width = truth.segment.shape
    layers = slots + has_background
    label = (truth.segment.numpy().astype(int) + 1) % 256
    logits = rng.normal(size=(scenes, views, layers, height, width)) * noise
    to_layer = np.stack([rng.permutation(np.arange(256) % layers) for _ in range(scenes)])
    for s, m, y, x in np.ndindex(*label.shape):
        logits[s, m, to_layer[s, label[s, m, y, x]], y, x] += 1
    masks = torch.from_numpy(logits).softmax(2).float()
    complete = torch.from_numpy(rng.random((scenes, views, slots, height, width)) ** 2).float()
    return Decomposition(
        reconstruction=torch.zeros(scenes, views, 3, height, width),
        layer_masks=masks,
        has_background=has_background,
        complete_shapes=(complete + masks[:, :, int(has_background) :]).clamp(max=1),
        presence=torch.from_numpy(rng.random((scenes, slots))).float(),
        presence_probability=None,
        depth_order=torch.from_numpy(rng.normal(size=(scenes, views, slots))).float(),
    )


def perfect_prediction(truth: SceneTruth, extra_slots: int = 0) -> Decomposition:
    """What the truth itself would answer, with room for slots that stay empty."""
    scenes, views, objects, height, width = truth.shapes.shape
    slots = objects + extra_slots
    index = torch.arange(256).roll(1)[: slots + 1].byte()  # 255, 0, 1, ...
    masks = (truth.segment[:, :, None] == index[:, None, None]).float()
    complete = torch.zeros(scenes, views, slots, height, width)
    complete[:, :, :objects] = truth.shapes / 255
    presence = torch.zeros(scenes, slots)
    presence[:, :objects] = masks[:, :, 1 : objects + 1].amax((1, 3, 4))
    order = torch.full((scenes, views, slots), -torch.inf)
    order[:, :, :objects] = torch.zeros(()) if truth.depth_order is None else truth.depth_order
    return Decomposition(torch.zeros(scenes, views, 3, height, width), masks, True, complete, presence, None, order)


def padded(prediction: Decomposition, truth: SceneTruth, extra: int) -> tuple[Decomposition, SceneTruth]:
    """The same with more views, which are not real and hold rubbish."""

    def grown(tensor: torch.Tensor, rubbish: float) -> torch.Tensor:
        shape = (len(tensor), extra, *tensor.shape[2:])
        return torch.cat([torch.full(shape, rubbish, dtype=tensor.dtype), tensor], 1)

    assert prediction.complete_shapes is not None
    assert prediction.depth_order is not None
    assert truth.depth_order is not None
    more = replace(
        prediction,
        reconstruction=grown(prediction.reconstruction, torch.nan),
        layer_masks=grown(prediction.layer_masks, torch.nan),
        complete_shapes=grown(prediction.complete_shapes, torch.nan),
        depth_order=grown(prediction.depth_order, torch.nan),
    )
    return more, replace(
        truth,
        segment=grown(truth.segment, 255),
        overlap=grown(truth.overlap, 7),
        shapes=grown(truth.shapes, 99),
        depth_order=grown(truth.depth_order, -torch.inf),
        view_mask=grown(truth.view_mask, False),
    )


def slow_scenes(prediction: Decomposition, truth: SceneTruth) -> Sequence[SlowScene]:
    """For the slow twins: scene by scene, real views alone."""
    scenes = []
    for s, mask in enumerate(truth.view_mask):

        def views(tensor: torch.Tensor | None, s: int = s, mask: torch.Tensor = mask) -> np.ndarray | None:
            return None if tensor is None else tensor[s][mask].numpy()

        presence = None if prediction.presence is None else prediction.presence[s].numpy()
        scenes.append(
            SlowScene(
                masks=views(prediction.layer_masks).astype(np.float64),
                has_background=prediction.has_background,
                complete=views(prediction.complete_shapes),
                presence=presence,
                order=views(prediction.depth_order),
                segment=views(truth.segment),
                shapes=views(truth.shapes),
                true_order=views(truth.depth_order),
            )
        )
    return scenes
