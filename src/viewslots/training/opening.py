"""Beginning a run, or going on with one: from what a user gave to a folder and its settings."""

from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from viewslots.data.format import Plan
from viewslots.errors import UserError
from viewslots.training.assembly import data_size, fingerprint
from viewslots.training.feed import batches_of, shrink_factor
from viewslots.training.run import RunFolder
from viewslots.training.settings import LIVE, RunSettings, plan_run
from viewslots.training.step import Precision

FREE = ("precision", "validate_every", "checkpoint_every")
"""What may change when a run goes on; everything else decides its result and must agree."""


def new_settings(given: dict[str, Any], precision: Precision, fast: bool) -> RunSettings:
    """`given` holds arguments of plan_run; `precision` counts where it says nothing of it. Nothing is written yet."""
    for name, word in (("preset", "a preset, such as `viewslots train clevr-m1`"), ("data", "--data DIR or live")):
        if name not in given:
            raise UserError(f"a new run needs {word}; to go on with one, add --resume")
    given = {"precision": precision, "fast": fast} | given
    world = plan_run(**given, stored_views=1, data_sha256=None).world  # also refuses what cannot be
    given["data"] = LIVE if given["data"] == LIVE else str(Path(given["data"]).resolve())
    size = data_size(given["data"], world)
    sha256 = None if given["data"] == LIVE else fingerprint(given["data"])
    settings = plan_run(**given, stored_views=size.views, data_sha256=sha256)
    if settings.views > size.views:
        raise UserError(f"--views {settings.views}: scenes of this data set have {size.views}")
    shrink_factor(size.height, size.width, settings.model.image_size)
    if isinstance(size, Plan):
        batches_of(size.splits["train"].scenes, settings.batch)
    return settings


def resume_run(run: Path, given: dict[str, Any], fast: bool) -> tuple[RunFolder, RunSettings]:
    """An old one. What is given again must agree with what it was begun with."""
    folder = RunFolder.resume(run)
    try:
        settings = RunSettings.from_json(folder.config)
        if "data" in given:
            settings = replace(settings, data=same_data(settings, given["data"]))
        require_agreement(run, settings, given)
        free = {name: value for name, value in given.items() if name in FREE}
        return folder, replace(settings, fast=settings.fast and fast, **free)
    except BaseException:
        folder.close()
        raise


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
    begun = {
        "preset": settings.preset,
        "steps": settings.steps,
        "seed": settings.seed,
        "init": settings.init,
        "batch": settings.batch,
        "learning_rate": settings.optimisation.learning_rate,
        "views": settings.views,
        "method": settings.method,
    }
    options = {name: "the preset" if name == "preset" else "--" + name.replace("_", "-") for name in begun}
    changes = given.get("changes", {})
    begun |= {name: attrgetter(name)(settings) for name in changes}
    for name, wanted in ({name: given[name] for name in begun if name in given} | changes).items():
        option, value = options.get(name, f"--set {name}"), begun[name]
        if wanted != value:
            before = f"without {option}" if value is None else f"with {option} {value}"
            raise UserError(f"{run} was begun {before}, not {wanted}; leave it out, or begin a new run")


def has_checkpoint(folder: RunFolder) -> bool:
    return folder.checkpoints.is_dir() and any(folder.checkpoints.glob("step-*.json"))
