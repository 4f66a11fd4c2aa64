"""For the tests of importing: noise, the import with its check, and refusals that leave nothing behind."""

from pathlib import Path

import numpy as np
import pytest

from viewslots.data.checks import check_dataset
from viewslots.data.import_data import Import, import_data
from viewslots.data.sources.source import Options
from viewslots.data.store import Store
from viewslots.errors import UserError


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def imported(kind: str, source: Path, out: Path | None = None, **asked: object) -> Store:
    """The data set, checked as check-data does it."""
    options = Options(**{name: asked.pop(name) for name in list(asked) if name in Options.__dataclass_fields__})
    path, _ = import_data(kind, source, out or source.parent / "out", Import(**asked, options=options))
    check_dataset(path)
    return Store.open(path)


def refused(kind: str, source: Path, message: str, **asked: object) -> None:
    out = source.parent / "refused"
    with pytest.raises(UserError, match=message) as caught:
        imported(kind, source, out, **asked)
    assert "\n" not in str(caught.value)
    assert not out.exists(), "something was left behind"


def scenes_of(store: Store) -> dict[str, int]:
    return {split: len(store.split(split)) for split in store.splits}
