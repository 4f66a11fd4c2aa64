"""The parts of a training, made from its settings: model, optimisers, step, feed, noise, validation.

Which of the two steps it is, the plain or the fast one, is chosen here alone.
"""

from dataclasses import dataclass
from typing import Any

import torch

from viewslots.data.presets import data_preset
from viewslots.errors import UserError
from viewslots.methods.registry import trainable_class
from viewslots.scenes.world import LIVE_SPLIT, World
from viewslots.training.distributed import Ranks
from viewslots.training.feed import Feed, LiveFeed, NoiseSource, StoredFeed, rendered_split
from viewslots.training.settings import LIVE, RunSettings
from viewslots.training.source import fingerprint, open_store
from viewslots.training.step import EagerStep, Model, Step, fast_step
from viewslots.training.validation import Validation, live_split
from viewslots.training.weights import start_from, train_parts
from viewslots.types import OnProgress


@dataclass(frozen=True)
class Parts:
    model: Model
    """The plain one, which is saved and validated; the step may hold a faster twin of the same parameters."""
    optimisers: list[torch.optim.Optimizer]
    step: Step
    feed: Feed
    noise: NoiseSource
    validation: Validation | None
    """On rank 0 only."""


def assemble(
    settings: RunSettings,
    device: torch.device,
    ranks: Ranks,
    weights: Model | None = None,
    progress: OnProgress = lambda done, total: None,
) -> Parts:
    """All parts at step 0. `weights`: a model of the same kind to start from, instead of the seed's random weights."""
    kind = trainable_class(settings.method)
    model = kind(settings.model, torch.Generator().manual_seed(settings.seed)).to(device).train()
    if weights is not None:
        start_from(model, weights)
    train_parts(model, settings.optimisation.parts)
    if ranks.count > 1:
        model.share_statistics(ranks.gather)
    optimisers, clip_norm = model.optimisers(settings.optimisation), settings.optimisation.clip_norm
    if settings.fast and ranks.count == 1:
        step = fast_step(model, optimisers, settings.precision, clip_norm)
    else:
        # Twins of weights would hide gradients from what averages them over the ranks.
        module = model.fast("fp32").module if settings.fast else model
        step = EagerStep(ranks.wrap(module), optimisers, settings.precision, clip_norm, names=model.terms)
    feed, validation = open_data(settings, model, device, ranks, progress)
    noise = NoiseSource(model, seed=settings.seed, batch=settings.batch, ranks=ranks)
    return Parts(model, optimisers, step, feed, noise, validation)


def open_data(
    settings: RunSettings, model: Model, device: torch.device, ranks: Ranks, progress: OnProgress
) -> tuple[Feed, Validation | None]:
    size, camera, views = model.image_size, model.needs_camera, settings.views
    chosen: dict[str, Any] = {"seed": settings.seed, "batch": settings.batch, "size": size, "camera": camera}
    chosen |= {"device": device, "ranks": ranks}
    if settings.data == LIVE:
        preset, (*earlier, _) = data_preset(settings.world), settings.stages
        world = preset.world(None)
        seen = sum(stage.steps * stage.batch for stage in earlier)
        feed = live_feed(world, preset.pool, seen, chosen, progress)
        held_out = live_split(world, views, device) if ranks.first else None
    else:
        store = open_store(settings.data)
        if settings.data_sha256 not in (None, fingerprint(settings.data)):
            raise UserError(f"{settings.data}: not the data set this run was started with; --data may name where it is")
        feed = StoredFeed(store.split("train"), shown_at=settings.shown_at, **chosen)
        held_out = store.split("valid") if ranks.first else None
    if held_out is None:
        return feed, None
    return feed, Validation(held_out, views=views, size=size, camera=camera, device=device)


def live_feed(world: World, pool: int, seen: int, chosen: dict[str, Any], progress: OnProgress) -> Feed:
    """Fresh scenes after those `seen`, or a pool that is rendered once: the first ones of the stream."""
    if not pool:
        return LiveFeed(world, seen=seen, **chosen)
    shown: OnProgress = progress if chosen["ranks"].first else lambda done, total: None
    split = rendered_split(world, chosen["seed"], LIVE_SPLIT, pool, world.views, chosen["device"], shown)
    return StoredFeed(split, **chosen)
