"""Beginning a run, or going on with one: from what a user gave to settings, a folder, and the parts of a training.

Device and speed are chosen here alone.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from viewslots.data.dataset import camera_key
from viewslots.data.format import META, DatasetPlan
from viewslots.data.presets import data_preset
from viewslots.data.store import Store
from viewslots.errors import UserError
from viewslots.experiments import experiment, full_name
from viewslots.files import FIRST, ORIGIN
from viewslots.methods.contract import Precision
from viewslots.methods.registry import trainable_class
from viewslots.methods.schedules import Optimisation
from viewslots.scenes.world import LIVE_SPLIT, World
from viewslots.training.checkpoint import Damaged, load_step, read_facts, saved_steps
from viewslots.training.distributed import Ranks
from viewslots.training.feed import Feed, LiveFeed, NoiseSource, StoredFeed, batches_of, rendered_split
from viewslots.training.plan import IMAGE_SIZE, Asked, plan_run
from viewslots.training.run import CHECKPOINTS, RunFolder, read_run_config
from viewslots.training.settings import LIVE, RunSettings
from viewslots.training.step import EagerStep, Model, Step, fast_step
from viewslots.training.validation import Validation, live_split
from viewslots.types import OnProgress

FREE = ("precision", "validate_every", "checkpoint_every")
"""What may change when a run goes on; everything else decides its result and must agree."""


def new_settings(given: dict[str, Any], precision: Precision, fast: bool) -> RunSettings:
    """`given` holds fields of `Asked`; `precision` counts where it says nothing of it. Nothing is written yet."""
    for name, word in (("preset", "an experiment (`viewslots train --help` has them)"), ("data", "--data DIR or live")):
        if name not in given:
            raise UserError(f"a new run needs {word}; to go on with one, add --resume")
    given = {"precision": precision, "fast": fast} | given
    world = plan_run(Asked(**given, stored_views=1, data_sha256=None)).world  # also refuses what cannot be
    given["data"] = LIVE if given["data"] == LIVE else str(Path(given["data"]).resolve())
    size = data_size(given["data"], world)
    others = None if is_own(size, world) else (size.height, size.width)
    sha256 = None if given["data"] == LIVE else fingerprint(given["data"])
    if isinstance(size, DatasetPlan) and "batch" not in given:
        given |= smaller_batch(given["preset"], size.splits["train"].scenes)
    settings = plan_run(Asked(**given, stored_views=size.views, pictures=others, data_sha256=sha256))
    if settings.views > size.views:
        raise UserError(f"--views {settings.views}: scenes of this data set have {size.views}")
    if isinstance(size, DatasetPlan):
        for stage in settings.stages:
            batches_of(size.splits["train"].scenes, stage.batch)
        if trainable_class(settings.method).needs_camera:
            store = open_store(settings.data)
            for split in ("train", "valid"):
                camera_key(store.split(split))
    for before, stage in pairwise(settings.stages):
        require_hand_over(before, stage)
    return settings


def require_hand_over(before: RunSettings, stage: RunSettings) -> None:
    """That a stage can start from the one before it. Else that would be known only when the one before is done."""
    with torch.device("meta"):
        theirs, model = (trainable_class(one.method)(one.model) for one in (before, stage))
        given = weights_for(model, theirs)
    if given is None or shapes(given) != shapes(model.state_dict()):
        raise UserError(
            f"{stage.preset} cannot start from {before.preset} with these sizes of networks; "
            "change both stages: --set model.NAME without `first.`"
        )


def smaller_batch(preset: str, scenes: int) -> dict[str, int]:
    """Where the scenes do not fill a batch of the experiment, all of them are one."""
    return {"batch": scenes} if 0 < scenes < experiment(preset).optimisation.batch_size else {}


def resume_run(run: Path, given: dict[str, Any], fast: bool) -> tuple[RunFolder, RunSettings]:
    """An old one. What is given again must agree with what it was begun with."""
    folder = RunFolder.resume(run)
    try:
        require_own_checkpoints(folder)
        settings = RunSettings.from_json(folder.config)
        require_agreement(run, settings, given)
        return folder, with_free(settings, given, fast)
    except BaseException:
        folder.close()
        raise


def with_free(settings: RunSettings, given: Mapping[str, Any], fast: bool) -> RunSettings:
    """With what may change when a run goes on."""
    free = {name: value for name, value in given.items() if name in FREE}
    if "data" in given:
        free["data"] = same_data(settings, given["data"])
    if settings.first is not None:
        free[FIRST] = with_free(settings.first, given, fast)
    return replace(settings, fast=settings.fast and fast, **free)


def require_own_checkpoints(folder: RunFolder) -> None:
    """Those of config.json as it is now; and if there were any, there still are."""
    steps = saved_steps(folder.checkpoints)
    if not steps and folder.was_saved:
        raise UserError(
            f"{folder.checkpoints}: the checkpoints of this run are gone; bring them back (is a disk not mounted?), or "
            "begin a new run"
        )
    for step in steps:
        with suppress(Damaged):  # skipped with a warning where checkpoints are loaded
            if read_facts(folder.checkpoints, step).get("settings") not in (None, settings_digest(folder.config)):
                raise UserError(
                    f"{folder.path}: config.json was edited after step {step}, so this would be another run; undo that "
                    f"(kept models have a copy in {ORIGIN}), or begin a new run"
                )


def settings_digest(config: Mapping[str, Any]) -> str:
    """Of what decides the result. Of config.json as it was written, since a later version may know more settings."""
    decisive = {name: value for name, value in config.items() if name not in (*FREE, "fast")}
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def same_data(settings: RunSettings, data: str) -> str:
    """The data set may have moved, but must be the same."""
    if (settings.data == LIVE) != (data == LIVE):
        raise UserError(
            f"--data {data}: the run was begun with {settings.data}; leave the option out, or begin a new run"
        )
    if data != LIVE and fingerprint(data) != settings.data_sha256:
        raise UserError(f"--data {data}: not the data set this run was begun with, {settings.data}")
    return data if data == LIVE else str(Path(data).resolve())


def require_agreement(run: Path, settings: RunSettings, given: dict[str, Any]) -> None:
    given = given | ({"preset": full_name(given["preset"])} if "preset" in given else {})
    begun = {
        "preset": full_name(settings.preset),
        "steps": settings.all_steps,
        "seed": settings.seed,
        "init": settings.init,
        "batch": settings.batch,
        "learning_rate": settings.optimisation.learning_rate,
        "views": settings.views,
        "slots": settings.model.slots,
        "method": settings.method,
    }
    options = {name: "the experiment" if name == "preset" else "--" + name.replace("_", "-") for name in begun}
    changes = given.get("changes", {})
    if odd := [name for name in changes if name.split(".").count(FIRST) >= len(settings.stages)]:
        raise UserError(f"--set {odd[0]}: {run} has no such stage")
    begun |= {name: attrgetter(name)(settings) for name in changes}
    for name, wanted in ({name: given[name] for name in begun if name in given} | changes).items():
        option, value = options.get(name, f"--set {name}"), begun[name]
        if wanted != value:
            before = f"without {option}" if value is None else f"with {option} {value}"
            raise UserError(f"{run} was begun {before}, not {wanted}; leave it out, or begin a new run")


def pinned_model(run: Path, wanted_by: Optimisation) -> tuple[Model, int] | None:
    """The model that a run has kept for the experiment that starts from it, and its step; None where it has none, or
    where its best model is asked for."""
    if not wanted_by.pretrained_step or not (run / CHECKPOINTS).is_dir():
        return None
    settings = RunSettings.from_json(read_run_config(run))
    if full_name(settings.preset) != full_name(str(wanted_by.pretrained_preset)):
        return None
    kept = [step for step in settings.pinned if step in saved_steps(run / CHECKPOINTS)]
    if not kept:
        return None
    model = trainable_class(settings.method)(settings.model)
    model.load_state_dict(load_step(run / CHECKPOINTS, kept[0]).weights)
    return model, kept[0]


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


def require_fit(settings: RunSettings, weights: Model) -> None:
    """Whether a run can start from these weights: the networks count, not what is made of them."""
    model = trainable_class(settings.method)(settings.model)
    given, own = weights_for(model, weights), shapes(model.state_dict())
    if settings.optimisation.parts and type(weights) is not type(model):
        raise UserError(
            f"--init {settings.init}: holds a model of another method; only {', '.join(settings.optimisation.parts)} "
            f"is to learn, so give a trained {settings.method}"
        )
    if given is not None and shapes(given) == own:
        return
    if given is not None and given.keys() == own.keys() and weights.image_size != model.image_size:
        odd = next(name for name, shape in own.items() if given[name].shape != shape)
        theirs, ours = ("x".join(map(str, size)) for size in (weights.image_size, model.image_size))
        raise UserError(
            f"--init {settings.init}: holds a model for pictures of {theirs}, and one for {ours} has another {odd}; "
            "give one that was trained on pictures of the same size, or add "
            f"--set {IMAGE_SIZE}={as_option(weights)}, to which pictures are then resized"
        )
    raise UserError(
        f"--init {settings.init}: holds a model of another experiment or method; give one of the same sizes"
    )


def weights_for(model: Model, other: Model) -> Mapping[str, Tensor] | None:
    """Those that a model takes from another to start from; None where they mean something else, or where layers of
    other sizes cannot be put together."""
    with suppress(RuntimeError):
        return model.weights_from(other)
    return None


def as_option(model: Model) -> str:
    """Its size of pictures, as --set takes it."""
    height, width = model.image_size
    return str(height) if height == width else f"[{height},{width}]"


def begun_anew(settings: RunSettings, weights: Model) -> list[str]:
    """Parts of the model that do not start from the given weights, by their names."""
    model = trainable_class(settings.method)(settings.model)
    given, own = model.weights_from(weights), model.state_dict()
    assert given is not None, "require_fit comes first"
    fresh = {name for name, value in own.items() if given[name].data_ptr() == value.data_ptr()}
    mixed = {beginning(name, 1) for name in own.keys() - fresh}
    return sorted({beginning(name, 2 if beginning(name, 1) in mixed else 1) for name in fresh})


def beginning(name: str, depth: int) -> str:
    return ".".join(name.split(".")[:depth])


def shapes(tensors: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in tensors.items()}


def start_from(model: Model, weights: Model) -> None:
    """Another model's weights; running statistics start anew, since the pictures are others."""
    given = model.weights_from(weights)
    assert given is not None, "require_fit comes first"
    model.load_state_dict(given)
    model.restart_statistics()


def train_parts(model: Model, parts: Sequence[str]) -> None:
    """All other parameters stay as they are; running statistics follow the pictures all the same."""
    if parts:
        model.requires_grad_(False)
    for part in parts:
        model.get_submodule(part).requires_grad_(True)


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


def is_own(size: World | DatasetPlan, world: str) -> bool:
    """Whether these are the scenes that an experiment is made for: it knows the size to which it brings them."""
    return not isinstance(size, DatasetPlan) or size.preset == world


def data_size(data: str, world: str) -> World | DatasetPlan:
    """What has the views, height and width of the scenes."""
    return data_preset(world).world(None) if data == LIVE else open_store(data).meta.plan
