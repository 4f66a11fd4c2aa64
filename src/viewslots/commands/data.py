"""make-data, check-data, convert, render."""

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from viewslots.errors import UserError
from viewslots.terminal import Device, Progress, pick_device, print_json

DataName = Literal["clevr-m1", "clevr-m2", "clevr-m3", "clevr-m4", "clevr-mixed", "clevr", "dsprites", "abstract"]
QualityName = Literal["fast", "reference"]
Scenes = Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: as many as in the paper)")]


def make_data(
    preset: Positional[DataName],
    /,
    out: Path,
    seed: int = 0,
    train_scenes: Scenes = None,
    valid_scenes: Scenes = None,
    test_scenes: Scenes = None,
    large_scenes: int = 0,
    quality: QualityName = "fast",
    device: Device = "auto",
    batch: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: 8 on a CPU, 64 on a GPU)")] = None,
    art: Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="(default: our own drawings)")] = None,
) -> None:
    """Render a data set of the paper with the whole truth in it. If interrupted, the same command finishes it.

    Args:
        preset: Which data set.
        out: Folder to make.
        seed: Scene i of a split depends on the seed, the split and i alone.
        train_scenes: Scenes to train on.
        valid_scenes: Scenes to validate on.
        test_scenes: Scenes in each of test1 and test2.
        large_scenes: Also make test1-large and test2-large with this many scenes (1000 for tight error bars).
        quality: fast, or reference (slower, less noise).
        device: Where to render; auto takes a GPU if there is one.
        batch: Scenes rendered at once; memory grows with it.
        art: For dsprites the original npz, for abstract a folder of the original clip art, instead of our own drawings.
    """
    from viewslots.data.generate import make_dataset
    from viewslots.data.presets import data_preset

    chosen = data_preset(preset)
    if art is not None and not chosen.takes_art:
        raise UserError(f"--art: {preset} is made without outside art; leave it out")
    where = pick_device(device)
    with Progress("scenes") as progress:
        path = make_dataset(
            chosen.world(art),
            chosen.counts(train_scenes, valid_scenes, test_scenes, large_scenes),
            out,
            preset=preset,
            seed=seed,
            quality=quality,
            device=where,
            batch=batch if batch is not None else {"cpu": 8, "cuda": 64}[where],
            art=art,
            progress=progress,
        )
    print(path)


def check_data(folder: Positional[Path], /) -> None:
    """Verify everything the format promises about a data set; names the first offending scene and exits 1 if bad.

    Args:
        folder: The data set.
    """
    from dataclasses import asdict

    from viewslots.data.checks import check_dataset

    with Progress("scenes") as progress:
        report = check_dataset(folder, progress)
    print_json({"ok": True} | asdict(report))


def convert(source: Positional[Path], destination: Positional[Path], /) -> None:
    """Convert a data set to HDF5 in the published OCLOC layout, or back; the ending .h5 tells which.

    Args:
        source: A data set folder or an .h5 file.
        destination: The other one, to be made.
    """
    from viewslots.data.exchange.hdf5 import convert as convert_files

    with Progress("scenes") as progress:
        print(convert_files(source, destination, progress))


def render(
    scene: Positional[Path],
    /,
    out: Path,
    quality: QualityName = "fast",
    seed: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: the scene's own key)")] = None,
    device: Device = "auto",
) -> None:
    """Render one CLEVR scene (JSON) to an .npz: pictures, the truth about them, cameras, linear radiance.

    Args:
        scene: A scene as JSON: objects, lights, one view or several (docs/data-format.md).
        out: The .npz to write.
        quality: fast, or reference (slower, less noise).
        seed: Seed of the pixel noise.
        device: Where to render; auto takes a GPU if there is one.
    """
    from dataclasses import replace

    from viewslots.data.exchange.npz import require_npz, save_npz
    from viewslots.scenes.render import render_views
    from viewslots.scenes.spec import Scene

    require_npz(out)
    description = Scene.load(scene)
    if seed is not None:
        description = replace(description, key=seed % 2**32)
    with Progress("parts") as progress:
        slots = len(description.objects)
        pictures, linear = render_views([description], slots, pick_device(device), quality, progress)
    arrays = {key: getattr(pictures, key)[0] for key in pictures.keys() if key != "num_objects"}  # noqa: SIM118
    arrays["linear"] = linear[0]
    print(save_npz(out, arrays))
