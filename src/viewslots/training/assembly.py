"""From settings to the parts of a run: model, feed, validation, step. Device and speed are chosen here alone."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from viewslots.data.format import META, Plan
from viewslots.data.presets import data_preset
from viewslots.data.store import Store
from viewslots.errors import UserError
from viewslots.methods.ocloc.fast.accelerate import accelerated
from viewslots.methods.ocloc.model import Ocloc
from viewslots.scenes.world import World
from viewslots.training.distributed import Ranks
from viewslots.training.feed import Feed, LiveFeed, NoiseSource, StoredFeed
from viewslots.training.settings import LIVE, METHODS, RunSettings
from viewslots.training.step import EagerStep, Step, fast_step, make_optimiser
from viewslots.training.validation import Validation, live_split


@dataclass(frozen=True)
class Parts:
    model: Ocloc
    """The plain one, which is saved and validated; the step may hold a faster twin of the same parameters."""
    optimiser: torch.optim.Adam
    step: Step
    feed: Feed
    noise: NoiseSource
    validation: Validation | None
    """On rank 0 only."""


def assemble(settings: RunSettings, device: torch.device, ranks: Ranks, weights: Ocloc | None = None) -> Parts:
    """All parts at step 0. `weights`: a model of the same kind to start from, instead of the seed's random weights."""
    kind = METHODS[settings.method]
    model = kind(settings.model, torch.Generator().manual_seed(settings.seed)).to(device).train()
    if weights is not None:
        start_from(model, weights)
    if ranks.count > 1:
        model.share_statistics(ranks.gather)
    optimiser = make_optimiser(model, device)
    if settings.fast and ranks.count == 1:
        step = fast_step(model, optimiser, settings.precision)
    else:
        twin = accelerated(model) if settings.fast else model
        step = EagerStep(ranks.wrap(twin), optimiser, settings.precision)
    feed, validation = open_data(settings, device, ranks)
    noise = NoiseSource(model, seed=settings.seed, batch=settings.batch, ranks=ranks)
    return Parts(model, optimiser, step, feed, noise, validation)


def require_fit(settings: RunSettings, weights: Ocloc) -> None:
    """Whether a run can start from these weights: the networks count, not what is made of them."""
    model = METHODS[settings.method](settings.model)
    given = model.weights_from(weights)
    if given is None or shapes(given) != shapes(model.state_dict()):
        raise UserError(
            f"--init {settings.init}: holds a model of another preset or method; give one of the same sizes"
        )


def shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def start_from(model: Ocloc, weights: Ocloc) -> None:
    """Another model's weights; running statistics start anew, since the pictures are others."""
    given = model.weights_from(weights)
    assert given is not None, "require_fit comes first"
    model.load_state_dict(given)
    model.restart_statistics()


def open_data(settings: RunSettings, device: torch.device, ranks: Ranks) -> tuple[Feed, Validation | None]:
    size, views = settings.model.image_size, settings.views
    chosen = {"seed": settings.seed, "batch": settings.batch, "size": size, "device": device, "ranks": ranks}
    if settings.data == LIVE:
        world = data_preset(settings.world).world(None)
        feed: Feed = LiveFeed(world, **chosen)  # type: ignore[arg-type]
        held_out = live_split(world, views, device) if ranks.first else None
    else:
        store = open_store(settings.data)
        if settings.data_sha256 not in (None, fingerprint(settings.data)):
            raise UserError(f"{settings.data}: not the data set this run was started with; --data may name where it is")
        feed = StoredFeed(store.split("train"), **chosen)  # type: ignore[arg-type]
        held_out = store.split("valid") if ranks.first else None
    return feed, Validation(held_out, views=views, size=size, device=device) if held_out is not None else None


def open_store(folder: str) -> Store:
    store = Store.open(folder)
    for split in ("train", "valid"):
        if split not in store.splits:
            raise UserError(f"{folder}: no split {split!r}, which training needs; it has {', '.join(store.splits)}")
    return store


def fingerprint(folder: str) -> str:
    """Of meta.json, which holds the checksums of everything else."""
    open_store(folder)
    return hashlib.sha256((Path(folder) / META).read_bytes()).hexdigest()


def data_size(data: str, world: str) -> World | Plan:
    """What has the views, height and width of the scenes."""
    return data_preset(world).world(None) if data == LIVE else open_store(data).meta.plan
