"""Checking a data set: checksums, then every promise of every scene, a bounded block at a time."""

from dataclasses import dataclass
from pathlib import Path

from viewslots.data.contract import bytes_per_scene
from viewslots.data.disk import sha256
from viewslots.data.invariants import first_violation
from viewslots.data.store import SplitArrays, Store
from viewslots.errors import UserError
from viewslots.types import Progress

BLOCK_BYTES = 32 * 2**20


@dataclass(frozen=True)
class Report:
    """What was found to be in order."""

    path: str
    preset: str | None
    scenes: dict[str, int]
    pictures: int
    files: int
    bytes: int


def check_dataset(path: str | Path, progress: Progress | None = None) -> Report:
    """Raise a UserError that names the first offending split, scene, view and key, or report that all is well."""
    store = Store.open(path)
    plan = store.meta.plan
    _check_checksums(store)
    done, total = 0, sum(split.scenes for split in plan.splits.values())
    for name in store.splits:
        split = store.split(name)
        for first in range(0, len(split), scenes_per_block(split)):
            last = min(first + scenes_per_block(split), len(split))
            _check_block(store, split, first, last)
            if progress is not None:
                progress(done + last, total)
        done += len(split)
        if plan.has_descriptions:
            for _ in store.descriptions(name):  # each line is parsed on the way
                pass
    scenes = {name: plan.splits[name].scenes for name in store.splits}
    size = sum(entry.bytes for entry in store.meta.files.values())
    return Report(str(store.path), plan.preset, scenes, total * plan.views, len(store.meta.files), size)


def scenes_per_block(split: SplitArrays) -> int:
    return max(1, BLOCK_BYTES // bytes_per_scene(tuple(split.arrays), split.size))


def _check_checksums(store: Store) -> None:
    for name, entry in store.meta.files.items():
        if sha256(store.path / name) != entry.sha256:
            raise UserError(f"{store.path / name}: its bytes are not those that were written (checksum differs)")


def _check_block(store: Store, split: SplitArrays, first: int, last: int) -> None:
    violation = first_violation({key: split[key][first:last] for key in split.arrays})
    if violation is not None:
        raise UserError(f"{store.path}: split {split.name}, {violation.place(first)}")
