"""Where a run takes its scenes from: a data set, or a world that is rendered while it trains."""

import hashlib
from pathlib import Path

from viewslots.data.format import META, DatasetPlan
from viewslots.data.presets import data_preset
from viewslots.data.store import Store
from viewslots.errors import UserError
from viewslots.scenes.world import World
from viewslots.training.settings import LIVE


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
