"""make-data, import-data, export-data, check-data, convert, render."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg
from tyro.extras import literal_type_from_choices

from viewslots.data.names import DATA_SETS
from viewslots.data.sources.kinds import KINDS
from viewslots.errors import UserError
from viewslots.terminal import Device, Progress, pick_device, print_json, say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from viewslots.scenes.world import World

    DataName = str
    KindName = str
else:
    DataName, KindName = (literal_type_from_choices(list(names)) for names in (DATA_SETS, KINDS))
DATA_HELP = "Which data set. " + " ".join(f"{name}: {about}." for name, about in DATA_SETS.items())
QualityName = Literal["fast", "reference"]
Shards = Annotated[int, arg(metavar="N")]
Scenes = Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: the set's own number)")]


def make_data(
    preset: Positional[Annotated[DataName, arg(help=DATA_HELP)]],
    /,
    out: Path,
    size: Annotated[str | None, arg(metavar="N|HxW", help_behavior_hint="(default: the set's own)")] = None,
    seed: int = 0,
    train_scenes: Scenes = None,
    valid_scenes: Scenes = None,
    test_scenes: Scenes = None,
    large_scenes: int = 0,
    quality: QualityName = "fast",
    device: Device = "auto",
    batch: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: 8 on a CPU, 64 on a GPU)")] = None,
    art: Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="(default: our own drawings)")] = None,
    shards: Shards = 1,
) -> None:
    """Render a data set with the whole truth in it. If interrupted, the same command finishes it.

    Args:
        out: Folder to make.
        size: Pictures of NxN or HxW pixels; for the tabletop sets.
        seed: Scene i of a split depends on the seed, the split and i alone.
        train_scenes: Scenes to train on.
        valid_scenes: Scenes to validate on.
        test_scenes: Scenes in each of test1 and test2.
        large_scenes: Also make test1-large and test2-large with this many scenes (1000 for tight error bars).
        quality: fast, or reference (slower, less noise).
        device: Where to render; auto takes a GPU if there is one.
        batch: Scenes rendered at once; memory grows with it.
        art: For dsprites the original npz, for abstract a folder of the original clip art, instead of our own drawings.
        shards: Folders that each split is spread over, for sets too large for one file; under torchrun each process
            writes its own.
    """
    from viewslots.data.generate import DatasetRecipe, finished_dataset, make_dataset
    from viewslots.data.presets import data_preset
    from viewslots.ranks import joined_team, local_device

    chosen = data_preset(preset)
    if art is not None and not chosen.takes_art:
        raise UserError(f"--art: {preset} is made without outside art; leave it out")
    kind = pick_device(device)
    counts = chosen.counts(train_scenes, valid_scenes, test_scenes, large_scenes)
    world, where = chosen.world(art) if size is None else sized_world(preset, size), local_device(kind)
    recipe = DatasetRecipe(
        world, counts, preset=preset, seed=seed, quality=quality, device=str(where), art=art, shards=shards
    )
    with joined_team(where) as team, Progress("scenes", "rendering", team.first) as progress:
        there = team.told(lambda: finished_dataset(recipe, out))
        if not there:
            at_once = batch if batch is not None else {"cpu": 8, "cuda": 64}[kind]
            make_dataset(recipe, out, batch=at_once, progress=progress, team=team)
    if team.first:
        if there:
            say(f"{out}: already complete, nothing to do; check-data verifies it")
        for note in fewer_shards(out, shards):
            say(note)
        print(out)


def fewer_shards(folder: Path, wanted: int) -> "Iterator[str]":
    """A line where splits have fewer scenes than shards were asked for."""
    from viewslots.data.store import Store

    splits = Store.open(folder).meta.plan.splits
    if few := [f"{name} {plan.shards}" for name, plan in splits.items() if plan.shards < wanted]:
        yield f"no more shards than scenes: {', '.join(few)} instead of {wanted}"


def sized_world(preset: str, size: str) -> "World":
    """The world of a data set in pictures of another size."""
    from viewslots.data.presets import data_preset

    make = data_preset(preset).sized
    if make is None:
        raise UserError(f"--size: {preset} has one size; leave it out")
    return make(*read_sides(size, 8))


def read_sides(size: str, least: int) -> tuple[int, int]:
    """Height and width of pictures that can be rendered."""
    from viewslots.scenes.tabletop.table_scene import MAX_PIXELS

    height, width = read_size(size) or (0, 0)
    if not least <= min(height, width) <= max(height, width) <= MAX_PIXELS:
        raise UserError(f"--size {size}: pictures have {least} to {MAX_PIXELS} pixels a side")
    return height, width


def import_data(
    kind: Positional[KindName],
    source: Positional[Annotated[Path, arg(metavar="SOURCE")]],
    /,
    out: Path,
    size: Annotated[str | None, arg(metavar="N|HxW", help_behavior_hint="(default: as in the source)")] = None,
    crop: float = 1.0,
    views: Annotated[int | None, arg(metavar="M", help_behavior_hint="(default: all; 8 of a video)")] = None,
    split: Annotated[
        tuple[str, ...], arg(metavar="[NAME=RULE...]", help_behavior_hint="(default: its own splits)")
    ] = (),
    masks: bool = True,
    cameras: bool = True,
    resolution: Annotated[str | None, arg(metavar="HxW", help_behavior_hint="(default: 128x128)")] = None,
    background: Annotated[int | None, arg(metavar="LEVEL", help_behavior_hint="(default: as the set has it)")] = None,
    per_view_masks: FlagCreatePairsOff[bool] = False,
    skip_damaged: FlagCreatePairsOff[bool] = False,
    shards: Shards = 1,
) -> None:
    """Make a data set from pictures of your own or a public data set. If interrupted, the same command finishes it.

    Args:
        kind: What the source is; docs/your-own-data.md has the layout of each.
        source: A folder or a file.
        out: Folder to make.
        size: Pictures of NxN from the middle square, or of HxW from the middle; never stretched.
        crop: Share of each side that is kept, in the middle; before size.
        views: At most so many views of a scene, evenly spread; of a video, its sharpest frames near these times.
        split: Which scenes go to which split: numbers, ranges and names, as in valid=40-49 or test1=kitchen*,3. Others
            stay in the source's own splits; where it has none, every tenth is valid and the rest train. The split none
            is left out.
        masks: Whether to read masks.
        cameras: Whether to read cameras.
        resolution: Of octscenes: the folder to read.
        background: Of uorf: grey level of the background in masks.
        per_view_masks: Of pictures: masks number the objects of each view alone. Scores of single pictures then have a
            value, those over views have none.
        skip_damaged: Leave out scenes with a picture that cannot be read, and name them; else the first one ends the
            import. What is left is split as if it were all. Every picture is read twice then. Pictures of several sizes
            are not damaged: without --size they still end the import.
        shards: Folders that each split is spread over, for sets too large for one file; under torchrun each process
            writes its own.
    """
    from viewslots.data.checks import check_dataset
    from viewslots.data.import_data import Import
    from viewslots.data.import_data import import_data as import_scenes
    from viewslots.data.sources.source import Options
    from viewslots.ranks import joined_team, local_device

    options = Options(views, resolution, background, masks, cameras, per_view_masks)
    asked = Import(read_size(size), crop, split, options, skip_damaged)
    with (
        joined_team(local_device("cpu")) as team,
        Progress("files", "looking", team.first) as looking,
        Progress("scenes", "importing", team.first) as progress,
    ):
        path, notes = import_scenes(
            kind, source, out, asked, shards=shards, looking=looking, progress=progress, team=team
        )
    if not team.first:
        return
    with Progress("scenes", "checking") as progress:
        report = check_dataset(path, progress)
    for note in notes:
        say(f"note: {note}")
    for line in fewer_shards(path, shards):
        say(line)
    say(f"{', '.join(f'{name} {count}' for name, count in report.scenes.items())} scenes; {', '.join(report.keys)}")
    print(path)


def read_size(text: str | None) -> tuple[int, int] | None:
    """N or HxW as height and width."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d{1,5})(?:x(\d{1,5}))?", text)
    if match is None:
        raise UserError(f"--size {text}: must be a number of pixels, such as 128, or HxW, such as 96x128")
    return int(match[1]), int(match[2] or match[1])


def export_data(folder: Positional[Annotated[Path, arg(metavar="DATA")]], /, out: Path) -> None:
    """Write a data set as folders of pictures, index masks and cameras, which import-data pictures reads again.

    Args:
        folder: The data set.
        out: Folder to make.
    """
    from viewslots.data.exchange.folders import export_folders
    from viewslots.data.store import Store

    with Progress("scenes", "writing") as progress:
        print(export_folders(Store.open(folder), out, progress))


def check_data(folder: Positional[Annotated[Path, arg(metavar="DATA")]], /) -> None:
    """Verify everything the format promises about a data set; names the first offending scene and exits 1 if bad.

    Args:
        folder: The data set.
    """
    from dataclasses import asdict

    from viewslots.data.checks import check_dataset

    with Progress("scenes", "checking") as progress:
        report = check_dataset(folder, progress)
    print_json({"ok": True} | asdict(report))


def convert(
    source: Positional[Annotated[Path, arg(metavar="FROM")]],
    destination: Positional[Annotated[Path, arg(metavar="TO")]],
    /,
) -> None:
    """Convert a data set to HDF5 in the published OCLOC layout, or back; the ending .h5 tells which.

    Args:
        source: A data set folder or an .h5 file.
        destination: The other one, to be made.
    """
    from viewslots.data.exchange.hdf5 import convert as convert_files

    with Progress("scenes", "converting") as progress:
        print(convert_files(source, destination, progress))


def is_hdf5(source: str) -> bool:
    """Whether `convert` imports this source, and so can go on after an interruption. The HDF5 file that it writes is
    there whole or not at all."""
    from viewslots.data.sources.ocloc import SUFFIXES

    return source.lower().endswith(SUFFIXES)


def render(
    scene: Positional[Annotated[Path, arg(metavar="SCENE.json")]],
    /,
    out: Path,
    scene_number: Annotated[
        int | None, arg(name="scene", metavar="N", help_behavior_hint="(default: the only one)")
    ] = None,
    view: Annotated[str | None, arg(metavar="I,J,...", help_behavior_hint="(default: all)")] = None,
    size: Annotated[str | None, arg(metavar="N|HxW", help_behavior_hint="(default: the scene's own)")] = None,
    quality: QualityName = "fast",
    seed: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: the scene's own key)")] = None,
    device: Device = "auto",
) -> None:
    """Render one CLEVR or tabletop scene (JSON) to a .png or an .npz: pictures, their truth, cameras, linear radiance.

    Args:
        scene: A scene as JSON: objects, lights, one view or several (docs/data-format.md).
        out: The .npz to write; or a .png, with all views side by side.
        scene_number: Of a file with one scene a line, such as scenes.jsonl of a data set; from 0.
        view: Which views, from 0.
        size: Pictures of NxN or HxW pixels, with the same field of view over the shorter side.
        quality: fast, or reference (16 times the rays, less noise).
        seed: Seed of the pixel noise.
        device: Where to render; auto takes a GPU if there is one.
    """
    from dataclasses import replace

    import numpy as np
    from PIL import Image

    from viewslots.data.exchange.npz import require_npz, save_npz
    from viewslots.files import plain_errors, replacing, require_file
    from viewslots.scenes.descriptions import load_scene, render_any

    picture = out.suffix.lower() == ".png"
    if picture:
        require_file(out)
    else:
        require_npz(out, ", pictures as .png")
    description = load_scene(scene, scene_number)
    if view is not None:
        description = replace(description, cameras=chosen_views(view, description.cameras))
    if size is not None:
        description = description.sized(*read_sides(size, 8))
    if seed is not None:
        description = replace(description, key=seed % 2**32)
    with Progress("parts", "rendering") as progress:
        pictures, linear = render_any(description, pick_device(device), quality, progress)
    if picture:
        with plain_errors("writing", out), replacing(out) as draft:
            Image.fromarray(np.concatenate(list(pictures.image[0]), axis=1)).save(draft, "PNG")
        print(out)
        return
    arrays = {key: getattr(pictures, key)[0] for key in pictures.keys() if key != "num_objects"}  # noqa: SIM118
    arrays["linear"] = linear[0]
    print(save_npz(out, arrays))


def chosen_views(text: str, cameras: tuple[Any, ...]) -> Any:
    """Those of numbers with commas between them."""
    if not re.fullmatch(r"\d{1,5}(,\d{1,5})*", text) or max(map(int, text.split(","))) >= len(cameras):
        raise UserError(f"--view {text}: give numbers from 0 to {len(cameras) - 1}, with commas between them")
    return tuple(cameras[int(number)] for number in text.split(","))
