"""Generating a data set: scenes drawn, rendered and written batch by batch; memory grows with the batch alone."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from viewslots import __version__
from viewslots.data.filling import Job, Made, fill
from viewslots.data.format import DESCRIPTIONS, KEYS, META, DatasetPlan, Source, SplitPlan
from viewslots.data.store import HEADER_BYTES, LINE_LIMIT, MAKING, Store
from viewslots.data.writer import Done, StoreWriter
from viewslots.errors import UserError, require_counts
from viewslots.files import open_regular, sha256
from viewslots.ranks import ALONE, Team
from viewslots.scenes.world import World
from viewslots.types import OnProgress, Pictures

DIFFERENT = 0.01
"""Share of values off by more than 1 from which on two pictures show different things."""


@dataclass(frozen=True)
class DatasetRecipe:
    """Everything that a data set is made from."""

    world: World
    counts: Mapping[str, int]
    """Scenes of each split; splits with 0 are left out."""
    _: KW_ONLY
    preset: str
    seed: int
    quality: str = "fast"
    device: str = "cpu"
    art: Path | None = None
    """Where the world's pictures come from, if not from us; it goes on record."""
    shards: int = 1
    """Folders that each split is spread over."""

    def plan(self) -> DatasetPlan:
        if not -(2**63) <= self.seed < 2**63:
            raise UserError("seed: expected a 64-bit integer")
        for split, count in self.counts.items():
            if count < 0:
                raise UserError(f"split {split}: {count} scenes asked for, but the number must not be negative")
        world = self.world
        splits = {split: SplitPlan(count, world.slots(split)) for split, count in self.counts.items() if count}
        if not splits:
            raise UserError("no scenes asked for: give at least one split a number of scenes")
        plan = DatasetPlan(
            generator=f"viewslots {__version__}",
            preset=self.preset,
            seed=self.seed,
            quality=self.quality,
            # Pixels agree across devices of one kind only: a set begun on the CPU is not finished on a GPU.
            device=self.device.split(":")[0],
            source=None,
            art=None if self.art is None else art_record(self.art),
            views=world.views,
            height=world.height,
            width=world.width,
            splits=splits,
            keys=tuple(key for key in KEYS if key in world.keys),
        )
        return plan.sharded(self.shards)

    def sampled(self, split: str, first: int, last: int) -> list[Any]:
        return [self.world.sample(self.seed, split, index) for index in range(first, last)]

    def rendered(self, scenes: list[Any], slots: int) -> Pictures:
        return self.world.render(scenes, slots, self.device, self.quality)


def make_dataset(
    recipe: DatasetRecipe,
    out: str | Path,
    *,
    batch: int = 16,
    progress: OnProgress | None = None,
    team: Team = ALONE,
) -> Path:
    """Render it into the folder `out`; after an interruption the same call finishes it.

    All ranks of a team render, and the bytes are those of one process.
    """
    plan = recipe.plan()
    require_counts({"batch": batch})
    report = progress or (lambda done, total: None)

    def rendered(job: Job) -> Made:
        scenes = recipe.sampled(job.part.split, job.first, job.last)
        pictures = recipe.rendered(scenes, plan.splits[job.part.split].slots)
        return dict(vars(pictures)), [scene.to_dict() for scene in scenes]

    with ExitStack() as stack:
        writer: StoreWriter | None = None

        def begin() -> Mapping[str, Done]:
            nonlocal writer
            writer = stack.enter_context(StoreWriter(out, plan))
            _require_same_scenes(writer, recipe)
            report(sum(map(writer.done, plan.splits)), sum(split.scenes for split in plan.splits.values()))
            return writer.begun

        begun = team.told(begin)
        fill(Path(out), plan, begun, _jobs(plan, begun, batch), rendered, writer, report, team)
        return Path(out) if writer is None else writer.finish()


def _jobs(plan: DatasetPlan, begun: Mapping[str, Done], batch: int) -> list[Job]:
    """What is left to do."""
    return [
        Job(part, first, min(first + batch, part.last))
        for part in plan.parts()
        for first in range(part.first + begun[part.folder].scenes, part.last, batch)
    ]


def finished_dataset(recipe: DatasetRecipe, out: str | Path) -> bool:
    """Whether the very data set is there already, perhaps made by another version."""
    folder = Path(out)
    if not (folder / META).is_file() or (folder / MAKING).exists():
        return False
    there = Store.open(folder).meta.plan
    return there == replace(recipe.plan(), generator=there.generator)


def art_record(path: Path) -> Source:
    """Name, size and checksum of a file; of a folder, those of its pictures together."""
    if path.is_file():
        return Source(path.name, path.stat().st_size, sha256(path))
    files = sorted(file for file in path.iterdir() if file.suffix in (".png", ".json"))
    listing = "".join(f"{file.name} {sha256(file)}\n" for file in files)
    return Source(path.name, sum(file.stat().st_size for file in files), hashlib.sha256(listing.encode()).hexdigest())


def _require_same_scenes(writer: StoreWriter, recipe: DatasetRecipe) -> None:
    """Rules, or art that a world was given, may have changed since the folder was begun: its last scenes tell."""
    for split, plan in writer.plan.splits.items():
        begun = [part for part in writer.plan.parts(split) if writer.begun[part.folder].scenes]
        for part in begun[-1:]:
            done = writer.begun[part.folder]
            last = part.first + done.scenes - 1
            (scene,) = recipe.sampled(split, last, last + 1)
            image = recipe.rendered([scene], plan.slots).image[0]
            described = _last_description(writer.path / part.folder / DESCRIPTIONS, done.described_bytes)
            if described != _plain(scene) or _differ(image, writer.path / part.folder / "image.npy", done.scenes - 1):
                raise UserError(
                    f"{writer.path}: begun with other rules or art (see split {split}, scene {last}); "
                    "remove the folder and start again"
                )


def _differ(image: UInt8[np.ndarray, "M H W 3"], path: Path, row: int) -> bool:
    """Another picture, not merely another processor's rounding."""
    start = HEADER_BYTES + row * image.nbytes
    stored = np.fromfile(path, np.uint8, image.size, offset=start).reshape(image.shape)
    return bool((np.abs(stored.astype(int) - image) > 1).mean() > DIFFERENT)


def _last_description(path: Path, size: int) -> Any:
    """Of the last scene that is done; what follows after `size` bytes is not."""
    with open_regular(path) as file:
        file.seek(max(0, size - LINE_LIMIT))
        lines = file.read(size - file.tell()).splitlines()
    try:
        return json.loads(lines[-1])
    except (ValueError, IndexError):
        return None


def _plain(scene: Any) -> Any:
    """What JSON makes of a description: tuples become lists."""
    return json.loads(json.dumps(scene.to_dict()))
