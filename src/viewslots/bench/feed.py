"""Batches a second of the training feed, from memory and from the disk, beside what the disk itself gives."""

import ctypes
import gc
import mmap
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from viewslots.data.format import DatasetPlan, Source, SplitPlan
from viewslots.data.store import Store
from viewslots.data.writer import StoreWriter
from viewslots.errors import UserError
from viewslots.files import open_regular
from viewslots.provenance import provenance
from viewslots.terminal import say
from viewslots.training.distributed import Ranks
from viewslots.training.feed import StoredFeed, steps_within

SCENES, VIEWS, SIDE = 8000, 10, 64
"""Of the set that is made: pictures as in CLEVR, 983 MB."""
WRITTEN_AT_ONCE = 100
BATCH, SHOWN = 32, 4
"""Scenes of a batch and views of each, as most experiments have it."""
STEPS = 200
"""Of one measurement; fewer where an epoch has fewer."""
BLOCK, SEQUENTIAL, PICTURES = 4 * 2**20, 2**28, 4000
"""Of the disk alone: bytes read at once and in all, one after the other; pictures read here and there."""
KEPT = 0.01
"""Share of the pages that may stay in memory in what is called cold."""

WARM, COLD, UNTOLD = "warm", "cold", "cold_without_read_ahead"


def bench_feed(seconds: float, seed: int, data: Path | None = None) -> dict[str, Any]:
    """Of a stored data set, or of random pictures in a temporary folder. No training: the feed alone, on the host."""
    if data is not None:
        return _measured(data, seconds, seed)
    with tempfile.TemporaryDirectory() as name:
        say(f"writing {SCENES} scenes of random pictures to {name}")
        return _measured(_random_set(Path(name) / "set", seed), seconds, seed)


def _random_set(out: Path, seed: int) -> Path:
    source = Source("random pictures", 0, "0" * 64)
    splits = {"train": SplitPlan(SCENES, 0)}
    plan = DatasetPlan("viewslots bench", None, None, None, None, source, None, VIEWS, SIDE, SIDE, splits, ("image",))
    random = np.random.default_rng(seed)
    with StoreWriter(out, plan) as writer:
        for _ in range(0, SCENES, WRITTEN_AT_ONCE):
            shape = (WRITTEN_AT_ONCE, VIEWS, SIDE, SIDE, 3)
            writer.append(plan.parts()[0], {"image": random.integers(0, 256, shape, np.uint8)})
        return writer.finish()


def _measured(data: Path, seconds: float, seed: int) -> dict[str, Any]:
    plan = Store.open(data).meta.plan
    if "train" not in plan.splits:
        raise UserError(f"{data}: no split train, which training reads")
    files = [data / part.folder / "image.npy" for part in plan.parts("train")]
    scenes, picture = plan.splits["train"].scenes, plan.height * plan.width * 3
    batch, views = min(BATCH, scenes), min(SHOWN, plan.views)
    kept = drop(files)
    disk = _disk(files, picture, seed) if kept <= KEPT else None
    rates: dict[str, list[float]] = {WARM: [], **({} if disk is None else {COLD: [], UNTOLD: []})}
    begin, epoch = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds or epoch < 2:
        for what, found in rates.items():
            found.append(_rate(data, files, what, epoch, batch, views, seed))
        epoch += 1
    middle = {what: statistics.median(found) for what, found in rates.items()}
    result = {
        "provenance": provenance(),
        "seed": seed,
        "data": {"scenes": scenes, "views": plan.views, "picture_bytes": picture, "files": len(files),
                 "image_bytes": sum(file.stat().st_size for file in files)},
        "batch": batch, "views": views, "steps_ahead": steps_within(batch * views * picture), "repeats": epoch,
        "share_kept_after_drop": kept,
        "disk": disk,
        "batches_per_second": middle,
        "extremes": {what: [min(found), max(found)] for what, found in rates.items()},
    }  # fmt: skip
    if disk is None:
        why = f"the system kept {kept:.0%} of the pages in memory: a file system in memory, or others use the files"
        say(f"cold: not measured; {why}")
        return result | {"cold_not_measured": why}
    ratios = {
        "cold_over_warm": middle[COLD] / middle[WARM],
        "read_ahead_over_none": middle[COLD] / middle[UNTOLD],
        "cold_over_disk_told_ahead": middle[COLD] * batch * views / disk["random_pictures_per_second_told_ahead"],
    }
    say(f"batches a second: warm {middle[WARM]:.0f}, cold {middle[COLD]:.0f}, without read-ahead {middle[UNTOLD]:.0f}")
    return result | {"ratios": ratios}


def _rate(data: Path, files: Sequence[Path], what: str, epoch: int, batch: int, views: int, seed: int) -> float:
    """Batches a second of one measurement. Pages that are mapped cannot be dropped: each has maps of its own."""
    gc.collect()
    if what == WARM:
        for file in files:
            with open_regular(file) as opened:
                while opened.read(BLOCK):
                    pass
    elif (kept := drop(files)) > KEPT:
        raise UserError(f"{data}: others began to use its files ({kept:.0%} of them stayed in memory); try again")
    split, cpu = Store.open(data).split("train"), torch.device("cpu")
    size = (split.size.height, split.size.width)
    feed = StoredFeed(split, seed=seed, batch=batch, size=size, camera=False, device=cpu, ranks=Ranks())
    if what == UNTOLD:
        feed.steps_ahead = 0
    feed.order(epoch)
    first, steps = epoch * feed.batches, min(STEPS, feed.batches)
    start = time.perf_counter()
    for step in range(first, first + steps):
        feed(step, views)
    return steps / (time.perf_counter() - start)


def _disk(files: Sequence[Path], picture: int, seed: int) -> dict[str, float]:
    """What plain reads give: the largest file from its start, and pictures here and there."""
    file = max(files, key=lambda one: one.stat().st_size)
    size = file.stat().st_size
    places = np.random.default_rng(seed).integers(0, max(size - picture, 1), PICTURES).tolist()
    with open_regular(file) as opened:
        handle = opened.fileno()

        def timed(offsets: Sequence[int], length: int, told: bool = False) -> float:
            drop([file])
            start = time.perf_counter()
            for offset in offsets if told else ():
                os.posix_fadvise(handle, offset, length, os.POSIX_FADV_WILLNEED)
            for offset in offsets:
                os.pread(handle, length, offset)
            return time.perf_counter() - start

        blocks = range(0, min(size, SEQUENTIAL), BLOCK)
        sequential = min(size, SEQUENTIAL) / timed(blocks, BLOCK) / 1e6
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)
        return {
            "sequential_mb_per_second": sequential,
            "random_pictures_per_second": PICTURES / timed(places, picture),
            "random_pictures_per_second_told_ahead": PICTURES / timed(places, picture, told=True),
        }


def drop(files: Sequence[Path]) -> float:
    """Ask the system to forget what it holds of these files, which needs no special rights; the share it kept."""
    if not hasattr(os, "posix_fadvise"):
        raise UserError("bench feed: this system has no call that empties its cache of a file")
    for file in files:
        with open_regular(file) as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return share_in_memory(files)


def share_in_memory(files: Sequence[Path]) -> float:
    """Of the pages of these files, by mincore."""
    here = total = 0
    for file in files:
        with open_regular(file) as opened, mmap.mmap(opened.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            pages = -(-len(mapped) // mmap.PAGESIZE)
            flags, content = np.zeros(pages, np.uint8), np.frombuffer(mapped, np.uint8)
            where, answer = (ctypes.c_void_p(array.ctypes.data) for array in (content, flags))
            failed = ctypes.CDLL(None).mincore(where, ctypes.c_size_t(len(mapped)), answer)
            del content  # or the map could not be closed
            here, total = here + int((flags & 1).sum()), total + pages
        if failed:
            raise UserError("bench feed: this system does not tell which pages are in memory")
    return here / total
