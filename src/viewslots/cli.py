"""The command line: one thin function a command. Results on stdout, logs on stderr; bad input exits 1, bad usage 2."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tqdm import tqdm
from tyro.conf import Positional, arg

from viewslots import __version__
from viewslots.errors import UserError

DataName = Literal["clevr-m1", "clevr-m2", "clevr-m3", "clevr-m4", "clevr", "dsprites", "abstract"]
Device = Literal["auto", "cpu", "cuda"]
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
    from viewslots.data.making import make_dataset
    from viewslots.data_presets import data_preset

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
    from viewslots.data.hdf5 import convert as convert_files

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
    """Render one CLEVR scene (JSON) to an .npz: image, segment, overlap, shapes, shadows, depth_order, camera, linear.

    Args:
        scene: A scene as JSON: objects, lights, one view or several (docs/data-format.md).
        out: The .npz to write.
        quality: fast, or reference (slower, less noise).
        seed: Seed of the pixel noise.
        device: Where to render; auto takes a GPU if there is one.
    """
    from dataclasses import replace

    from viewslots.data.npz import require_npz, save_npz
    from viewslots.scenes.render import render_views
    from viewslots.scenes.spec import Scene

    require_npz(out)
    description = Scene.load(scene)
    if seed is not None:
        description = replace(description, key=seed % 2**32)
    with Progress("parts") as progress:
        slots = len(description.objects)
        pictures, linear = render_views([description], slots, pick_device(device), quality, progress)
    names = ("image", "segment", "overlap", "shapes", "shadows", "depth_order", "camera")
    arrays = {name: getattr(pictures, name)[0] for name in names} | {"linear": linear[0]}
    print(save_npz(out, arrays))


def demo(
    out: Path = Path("demo"),
    seed: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: new scenes at every call)")] = None,
) -> None:
    """Make a small multi-view data set and show it: a contact sheet of scenes with their truth.

    Args:
        out: Folder for the data set and the sheet.
        seed: Seed of the scenes.
    """
    from viewslots.demo import run_demo

    if seed is None:
        seed = time.time_ns() % 1_000_000
    with Progress("scenes") as progress:
        sheet, folder = run_demo(out, seed, progress)
    print_json({"sheet": str(sheet), "data": str(folder), "seed": seed})
    say(f"Open {sheet} to see four views of new scenes with their truth.")
    say(f"Next: viewslots check-data {folder}; or a whole data set: viewslots make-data clevr-m1 --out clevr-m1")


def bench(
    what: Positional[Literal["scenes", "infer"]],
    /,
    out: Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="(default: standard output alone)")] = None,
    device: Device = "auto",
    seconds: float = 10.0,
    seed: int = 0,
) -> None:
    """Measure speed, side by side in one run, as JSON with the hardware and the commit.

    Args:
        what: scenes: pictures a second of the renderer; infer: seconds to load a model and to decompose a scene.
        out: File to write as well.
        device: What to measure.
        seconds: Least time for each figure; of the scenes, the slowest needs a minute on a CPU whatever you say.
        seed: Seed of the scenes.
    """
    from viewslots.bench import bench_infer, bench_scenes

    if out is not None and not out.parent.is_dir():
        raise UserError(f"--out: {out.parent} is no folder; make it first")
    result = {"scenes": bench_scenes, "infer": bench_infer}[what](pick_device(device), seconds, seed)
    if out is not None:
        from viewslots.data.disk import write_json

        write_json(out, result)
    print_json(result)


def info(preset: Positional[str], /) -> None:
    """Describe a model preset: parameters by network, sizes of the latents, schedule.

    Args:
        preset: clevr-m1..m4, clevr, dsprites, abstract (the paper's), compact, tiny (ours).
    """
    from viewslots.model_presets import describe

    print_json(describe(preset))


COMMANDS: dict[str, Callable[..., Any]] = {
    "demo": demo,
    "make-data": make_data,
    "check-data": check_data,
    "convert": convert,
    "render": render,
    "info": info,
    "bench": bench,
}


def pick_device(name: str) -> str:
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: no GPU that torch can use; leave the option out or say --device cpu")
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return name


class Progress:
    """A bar with rate and remaining time on stderr; silent when that is not a terminal."""

    def __init__(self, unit: str) -> None:
        self._bar = tqdm(unit=unit, disable=None, file=sys.stderr, delay=2)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def __call__(self, done: int, total: int) -> None:
        if self._bar.total is None:
            self._bar.reset(total)
            self._bar.initial = done
        self._bar.update(done - self._bar.n)


def say(line: str) -> None:
    print(line, file=sys.stderr)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=1, default=str))


def main() -> None:
    """Entry point of the `viewslots` command."""
    if "--version" in sys.argv[1:]:
        print(f"viewslots {__version__}")
        return
    try:
        tyro.extras.subcommand_cli_from_dict(
            COMMANDS,
            prog="viewslots",
            description="Understand a scene from several pictures taken from unknown viewpoints.",
        )
        sys.stdout.flush()
    except KeyboardInterrupt:
        say("viewslots: interrupted; make-data and convert go on where they stopped when called again")
        raise SystemExit(130) from None
    except BrokenPipeError:
        raise SystemExit(1) from None
    except Exception as error:
        line = plain_words(error)
        if line is None:
            raise
        say(f"viewslots: {line}")
        raise SystemExit(1) from None


def plain_words(error: Exception) -> str | None:
    """One line for what a user or a machine can cause; None for a mistake of ours, which keeps its traceback."""
    if isinstance(error, UserError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename or 'output'}: {error.strerror or error}"
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "out of memory; try a smaller --batch"
    return None
