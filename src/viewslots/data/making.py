"""Making a data set: scenes drawn, rendered and written batch by batch; memory grows with the batch alone."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from viewslots import __version__
from viewslots.data.contract import KEYS
from viewslots.data.disk import open_regular
from viewslots.data.meta import DESCRIPTIONS, Plan, SplitPlan
from viewslots.data.npy import HEADER_BYTES
from viewslots.data.writer import StoreWriter
from viewslots.errors import UserError
from viewslots.scenes.world import World

Progress = Callable[[int, int], None]
"""Called with the scenes done and the scenes in all."""

DIFFERENT = 0.01
"""Share of values off by more than 1 from which on two pictures show different things."""


def make_dataset(
    world: World,
    counts: Mapping[str, int],
    out: str | Path,
    *,
    preset: str,
    seed: int,
    quality: str = "fast",
    device: str = "cpu",
    batch: int = 16,
    progress: Progress | None = None,
) -> Path:
    """Render `counts` scenes a split into the folder `out`; after an interruption the same call finishes it.

    Splits with 0 scenes are left out.
    """
    plan = _plan(world, counts, preset, seed, quality, device)
    if batch < 1:
        raise UserError(f"batch is {batch}, but must be at least 1 scene")
    total = sum(split.scenes for split in plan.splits.values())
    with StoreWriter(out, plan) as writer:
        _require_same_scenes(writer, world, seed, quality, device)
        report = progress or (lambda done, total: None)
        report(_done(writer), total)
        for split, target in writer.plan.splits.items():
            while writer.done(split) < target.scenes:
                _render_next(writer, world, split, seed, quality, device, batch)
                report(_done(writer), total)
        return writer.finish()


def _done(writer: StoreWriter) -> int:
    return sum(writer.done(split) for split in writer.plan.splits)


def _plan(world: World, counts: Mapping[str, int], preset: str, seed: int, quality: str, device: str) -> Plan:
    for split, count in counts.items():
        if count < 0:
            raise UserError(f"split {split}: {count} scenes asked for, but the number must not be negative")
    splits = {split: SplitPlan(count, world.slots(split)) for split, count in counts.items() if count}
    if not splits:
        raise UserError("no scenes asked for: give at least one split a number of scenes")
    return Plan(
        generator=f"viewslots {__version__}",
        preset=preset,
        seed=seed,
        quality=quality,
        # Pixels agree across devices of one kind only: a set begun on the CPU is not finished on a GPU.
        device=device.split(":")[0],
        source=None,
        views=world.views,
        height=world.height,
        width=world.width,
        splits=splits,
        keys=tuple(KEYS),
    )


def _render_next(
    writer: StoreWriter, world: World, split: str, seed: int, quality: str, device: str, batch: int
) -> None:
    first = writer.done(split)
    last = min(first + batch, writer.plan.splits[split].scenes)
    scenes = [world.sample(seed, split, index) for index in range(first, last)]
    pictures = world.render(scenes, writer.plan.splits[split].slots, device, quality)
    writer.append(split, vars(pictures), [scene.to_dict() for scene in scenes])


def _require_same_scenes(writer: StoreWriter, world: World, seed: int, quality: str, device: str) -> None:
    """Rules, or art that a world was given, may have changed since the folder was begun: its last scenes tell."""
    for split, plan in writer.plan.splits.items():
        last = writer.done(split) - 1
        if last < 0:
            continue
        scene = world.sample(seed, split, last)
        image = world.render([scene], plan.slots, device, quality).image[0]
        if _last_description(writer.path / split / DESCRIPTIONS) != _plain(scene) or _differ(
            image, writer, split, last
        ):
            raise UserError(
                f"{writer.path}: begun with other rules or art (see split {split}, scene {last}); "
                "remove the folder and start again"
            )


def _differ(image: UInt8[np.ndarray, "M H W 3"], writer: StoreWriter, split: str, scene: int) -> bool:
    """Another picture, not merely another processor's rounding."""
    start = HEADER_BYTES + scene * image.nbytes
    stored = np.fromfile(writer.path / split / "image.npy", np.uint8, image.size, offset=start).reshape(image.shape)
    return bool((np.abs(stored.astype(int) - image) > 1).mean() > DIFFERENT)


def _last_description(path: Path) -> Any:
    """Straight after opening the writer, the file ends with the last scene that is done."""
    last = b""
    with open_regular(path) as file:
        for line in file:
            last = line
    try:
        return json.loads(last)
    except ValueError:
        return None


def _plain(scene: Any) -> Any:
    """What JSON makes of a description: tuples become lists."""
    return json.loads(json.dumps(scene.to_dict()))
