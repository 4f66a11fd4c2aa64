"""HDF5 in the published OCLOC layout -> data set, through the same writer as making."""

from collections.abc import Mapping
from pathlib import Path

import h5py

from viewslots import __version__
from viewslots.data.contract import KEYS, SPLIT_NAME
from viewslots.data.disk import plain_errors, sha256, shown
from viewslots.data.hdf5_guard import members, open_hdf5, reading, require_total
from viewslots.data.hdf5_layout import GROUP_OF_SPLIT, SPLIT_OF_GROUP, GroupReader
from viewslots.data.meta import Plan, Source, SplitPlan
from viewslots.data.writer import StoreWriter
from viewslots.errors import UserError
from viewslots.types import Progress


def import_hdf5(source: Path, out: Path, progress: Progress | None = None) -> Path:
    """Write the data set; the same call after an interruption finishes it."""
    with open_hdf5(source) as file:
        with reading(source):
            groups = _groups(file, source)
        with plain_errors("reading", source):
            plan = _plan(groups, source)
        with StoreWriter(out, plan) as writer:
            _copy(groups, writer, source, progress)
            return writer.finish()


def _copy(groups: Mapping[str, GroupReader], writer: StoreWriter, source: Path, progress: Progress | None) -> None:
    total = sum(group.size.scenes for group in groups.values())
    for split, group in groups.items():
        while (low := writer.done(split)) < group.size.scenes:
            try:
                with reading(source):
                    block = group.read(low, min(low + group.block, group.size.scenes))
            except Exception:
                writer.discard()  # this file will never become a data set
                raise
            writer.append(split, block)
            if progress is not None:
                progress(sum(map(writer.done, groups)), total)


def _groups(file: h5py.File, source: Path) -> dict[str, GroupReader]:
    """The groups that hold scenes, by the name of our split and in the usual order."""
    groups: dict[str, GroupReader] = {}
    for name, member in members(file, str(source)).items():
        where = f"{source}:{name}"
        if not isinstance(member, h5py.Group) or (name not in SPLIT_OF_GROUP and "image" not in members(member, where)):
            continue  # none of our business
        split = SPLIT_OF_GROUP.get(name, name)
        if not SPLIT_NAME.fullmatch(split):
            raise UserError(f"{source}: group {shown(name)} cannot be the name of a split")
        if split in groups:
            raise UserError(f"{source}: more than one group for the split {split}, {name} among them")
        reader = GroupReader(member, where)
        if reader.size.scenes:
            groups[split] = reader
    if not groups:
        raise UserError(f"{source}: no group with scenes (train, valid, test or general)")
    require_total(sum(group.total_bytes for group in groups.values()), source)
    usual = list(GROUP_OF_SPLIT)
    return dict(sorted(groups.items(), key=lambda item: usual.index(item[0]) if item[0] in usual else len(usual)))


def _plan(groups: Mapping[str, GroupReader], source: Path) -> Plan:
    sizes = {split: group.size for split, group in groups.items()}
    first = next(iter(sizes.values()))
    for split, size in sizes.items():
        if (size.views, size.height, size.width) != (first.views, first.height, first.width):
            raise UserError(f"{source}: split {split} has another number of views or picture size than the others")
    name = "".join(letter if letter.isprintable() else "?" for letter in source.name)[:200]
    return Plan(
        generator=f"viewslots {__version__}",
        preset=None,
        seed=None,
        quality=None,
        device=None,
        source=Source(name, source.stat().st_size, sha256(source)),
        art=None,
        views=first.views,
        height=first.height,
        width=first.width,
        splits={split: SplitPlan(size.scenes, size.slots) for split, size in sizes.items()},
        keys=tuple(key for key in KEYS if all(key in group.keys for group in groups.values())),
    )
