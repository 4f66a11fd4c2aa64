"""What a run does otherwise than its experiment because of its data, and what its data ask for: a line each."""

from collections.abc import Container, Iterator

import numpy as np

from viewslots.data.format import DatasetPlan
from viewslots.data.store import Store
from viewslots.experiments import experiment
from viewslots.training.settings import LIVE, RunSettings
from viewslots.training.source import data_size
from viewslots.types import how_resized, sides


def notes(settings: RunSettings, given: Container[str]) -> Iterator[str]:
    """Of a new run. What the user has chosen, the options `given`, is not told again."""
    yield from stages(settings)
    if "views" not in given:
        yield from fewer_views(settings)
    yield from scenes_with_fewer(settings)
    if "batch" not in given:
        yield from fewer_scenes(settings)
    yield from other_size(settings)
    yield from too_few_slots(settings)


def stages(settings: RunSettings) -> Iterator[str]:
    first, *later = settings.stages
    if later:
        others = "".join(f", then {stage.steps:,} of {stage.preset}" for stage in later)
        yield f"{len(settings.stages)} stages: {first.steps:,} steps of {first.preset}{others}"
    elif settings.tunes:
        parts = ", ".join(settings.optimisation.parts)
        what = f"teaching {parts}, all other weights stay" if parts else "fine-tuning"
        yield f"{what}: {settings.steps:,} steps; the step with the lowest validation loss counts, the start too"


def fewer_scenes(settings: RunSettings) -> Iterator[str]:
    wanted = experiment(settings.preset).optimisation.batch_size
    if settings.batch < wanted:
        yield f"this data set has {settings.batch} scenes to train on: batches of {settings.batch} instead of {wanted}"


def fewer_views(settings: RunSettings) -> Iterator[str]:
    wanted, views = experiment(settings.preset).views, settings.views
    if views < wanted:
        yield f"scenes of this data set have {views} view{'s' * (views > 1)}: training with {views} instead of {wanted}"


def scenes_with_fewer(settings: RunSettings) -> Iterator[str]:
    views = settings.views
    if settings.data != LIVE:
        counts = Store.open(settings.data).split("train").view_counts
        if few := int((counts < views).sum()):
            yield f"{few} of {len(counts)} scenes have fewer than {views} views; they are used with those they have"


def other_size(settings: RunSettings) -> Iterator[str]:
    """Silent only where the pictures are used as they are, by the experiment's own model."""
    stored = data_size(settings.data, settings.world)
    pictures, taken = (stored.height, stored.width), sides(settings.model.image_size)
    usual = sides(experiment(settings.preset).model.image_size)
    resized = f"{how_resized(pictures, taken)} to {words(taken)}"
    if taken != usual:
        own = (
            ", as in this data set"
            if taken == pictures
            else f": those of this data set, {words(pictures)}, are {resized}"
        )
        yield f"training a model for pictures of {words(taken)} instead of {words(usual)}{own}"
    elif pictures != taken:
        yield f"pictures of {words(pictures)} are {resized}, the size of this model of {settings.method}"


def words(size: tuple[int, int]) -> str:
    return "x".join(map(str, size))


def too_few_slots(settings: RunSettings) -> Iterator[str]:
    """Where the data set says how many objects there are."""
    stored = data_size(settings.data, settings.world)
    most = most_objects(settings.data) if isinstance(stored, DatasetPlan) else stored.slots("train")
    if most > settings.model.slots:
        own = settings.model.slots
        yield f"warning: scenes here have up to {most} objects, but the model finds at most {own}; try --slots {most}"


def most_objects(folder: str) -> int:
    """In a scene of those that are trained on or validated with: as counted, else as there are slots."""
    splits = [Store.open(folder).split(name) for name in ("train", "valid")]
    counted = [np.asarray(split["num_objects"]) if "num_objects" in split else split.size.slots for split in splits]
    return max(int(np.max(count, initial=0)) for count in counted)
