"""Whether a tiny experiment learns two shapes of one colour, which colour cannot tell apart: against k-means and the
untrained model."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from shape_scenes import BACKGROUND, SIZE, ShapeScenes, shape_scenes
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from viewslots.experiments import experiment
from viewslots.methods.contract import TrainableMethod
from viewslots.methods.registry import trainable_class
from viewslots.training.step import EagerStep
from viewslots.types import SceneBatch

Model = TrainableMethod[Any]
Layers = NDArray[np.int64]


def scene_batch(image: NDArray[np.float32]) -> SceneBatch:
    return SceneBatch(torch.as_tensor(image), torch.ones(image.shape[:2], dtype=torch.bool))


Shown = Callable[[NDArray[np.float32]], SceneBatch]


def trained(name: str, seed: int, scenes: ShapeScenes, shown: Shown) -> Model:
    """By the experiment's own schedule and optimisation."""
    made = experiment(name)
    generator, rng = torch.Generator().manual_seed(seed), np.random.default_rng(seed)
    model = trainable_class(made.method)(made.model, generator)
    step = EagerStep(model, model.optimisers(made.optimisation), "fp32", made.optimisation.clip_norm)
    for number in range(made.schedule.steps):
        batch = shown(scenes.image[rng.integers(0, len(scenes.image), made.optimisation.batch_size)])
        noise, rates = model.draw_noise(batch, generator), made.optimisation.learning_rates_at(number + 1)
        step(batch, noise, made.schedule.at(number), rates)
    return model.eval()


def ari_o(layers: Layers, segment: NDArray[np.uint8]) -> float:
    """Over the pixels of objects, mean over scenes."""
    pairs = zip(layers, segment, strict=True)
    return float(
        np.mean([adjusted_rand_score(truth[truth != BACKGROUND], found[truth != BACKGROUND]) for found, truth in pairs])
    )


def ari_a(layers: Layers, segment: NDArray[np.uint8]) -> float:
    pairs = zip(layers, segment, strict=True)
    return float(np.mean([adjusted_rand_score(truth.ravel(), found.ravel()) for found, truth in pairs]))


def clustered(scenes: ShapeScenes, clusters: int) -> float:
    """k-means on the colours and places of the first 40 scenes."""
    rows, columns = np.mgrid[0:SIZE, 0:SIZE] / (SIZE - 1)
    found = []
    for image in scenes.image[:40, 0]:
        points = np.concatenate([image, columns[None], rows[None]]).reshape(5, -1).T
        found.append(KMeans(clusters, n_init=2, random_state=0).fit_predict(points).reshape(1, SIZE, SIZE))
    return ari_o(np.stack(found), scenes.segment[:40])


def learning(name: str, seed: int, *, first_layer: int = 0, shown: Shown = scene_batch) -> dict[str, float]:
    """What a training reached, and what it must beat. Objects are the layers from `first_layer` on."""

    def scores(model: Model) -> dict[str, float]:
        masks = model.infer(shown(test.image), torch.Generator().manual_seed(0)).decomposition().layer_masks
        return {
            "ARI-O": ari_o(masks[:, :, first_layer:].argmax(2).numpy(), test.segment),
            "ARI-A": ari_a(masks.argmax(2).numpy(), test.segment),
        }

    test, start, made = shape_scenes(9, 100, 1), time.perf_counter(), experiment(name)
    figures = {"seed": seed} | scores(trained(name, seed, shape_scenes(seed + 100, 3000, 1), shown))
    figures |= {"seconds": time.perf_counter() - start}
    figures |= {"untrained": scores(trainable_class(made.method)(made.model).eval())["ARI-O"]}
    figures |= {"k-means": max(clustered(test, clusters) for clusters in (3, 4, 6, 8))}
    print(figures)
    return figures
