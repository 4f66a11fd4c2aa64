"""Beginning a run, or going on with one: from what a user gave to its settings and its folder."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

from viewslots.data.dataset import camera_key
from viewslots.data.format import DatasetPlan
from viewslots.errors import UserError
from viewslots.experiments import experiment, full_name
from viewslots.methods.contract import Precision
from viewslots.methods.registry import trainable_class
from viewslots.methods.schedules import Optimisation
from viewslots.run_format import FIRST, ORIGIN
from viewslots.training.checkpoint import Damaged, load_step, read_facts, saved_steps
from viewslots.training.feed import batches_of
from viewslots.training.plan import Asked, plan_run
from viewslots.training.run import CHECKPOINTS, RunFolder, read_run_config
from viewslots.training.settings import LIVE, RunSettings
from viewslots.training.source import data_size, fingerprint, is_own, open_store
from viewslots.training.step import Model
from viewslots.training.weights import require_hand_over

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
