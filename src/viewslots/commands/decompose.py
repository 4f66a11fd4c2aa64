"""decompose."""

from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from viewslots.commands.evaluation import Looks, Refine, Spare, Starts
from viewslots.errors import UserError
from viewslots.terminal import Device, Progress, pick_device, print_json, say

Slots = Annotated[int | None, arg(metavar="K", help_behavior_hint="(default: as trained)")]


def decompose(
    run: Positional[Annotated[str, arg(metavar="RUN")]],
    images: Positional[Annotated[tuple[Path, ...], arg(metavar="IMAGE...")]],
    /,
    out: Path,
    frames: int = 6,
    slots: Slots = None,
    starts: Starts = None,
    looks: Looks = None,
    refine: Refine = None,
    spare: Spare = None,
    seed: int = 0,
    device: Device = "auto",
    which: Literal["best", "last"] = "best",
) -> None:
    """Take your own pictures of one scene apart: objects as layers with alpha, how many, which is nearer, masks.

    Pictures are turned upright, cropped in the middle to the shape that the model knows, mostly a square, and made as
    small as it sees. Answers come in that size and, in original/, in the pixels of the pictures themselves.

    Args:
        run: A run folder, a saved model, or the name of a shipped one: umbra, umbra-quick, compact; for
            a single picture umbra-clevr or umbra-dsprites.
        images: Pictures of one scene from different places (one alone for a model of single pictures): PNG, JPEG, WebP,
            GIF, BMP, TIFF, HEIC (with the extra heic); or one short video: MP4, MOV, WebM, MKV, AVI.
        out: Folder for layers/, complete/, reconstruction/, observation/, original/, sheet.png and scene.json.
        frames: How many frames of a video are taken: the sharpest near evenly spread times.
        slots: How many objects may be found at most.
        seed: Decides where the search starts; another one may find other objects.
        device: Where to compute; auto takes a GPU if there is one.
        which: Of a run folder: best is the model with the lowest validation loss, last the newest saved one.
    """
    from viewslots.figures.decompositions import decomposition_figure
    from viewslots.figures.photos import photo_overlays
    from viewslots.protocol.subject import search_asked_for
    from viewslots.pulse import heard
    from viewslots.viewpoints.export import SCENE_FILE, SHEETS, export_scene, require_free
    from viewslots.viewpoints.photos import read_photos
    from viewslots.viewpoints.scene import load, search_words

    if not images:
        raise UserError("name at least one picture")
    require_free(out)
    with Progress("%", "decomposing") as progress, heard(progress.share):
        reader = load(run, device=pick_device(device), which=which)
        photos = read_photos(images, reader.size, frames)
        search = search_asked_for(reader.search, starts=starts, looks=looks, refinement=refine, spare=spare)
        count = f"{len(photos)} picture{'s' * (len(photos) != 1)}"
        say(f"Reading {count}; answers are {search_words(search)}{patience(search)}.")
        scene = reader.inferred(photos, seed, slots, search)
    say(f"Warning: {scene.warning}." if scene.warning else f"Found {scene.count} object{'s' * (scene.count != 1)}.")
    if reader.typical is None:
        say("Nothing was measured for this model: pictures unlike its training pictures go unnoticed.")
    note = f"Answer of {run}: {search_words(search)}."
    sheets = [decomposition_figure([scene], kind, note).image() for kind in ("perceived", "complete")]
    made = export_scene(scene, out, about(images, search, seed), sheets, photo_overlays(scene))
    print_json(summary(made) | {"scene": str(out / SCENE_FILE), "files": [str(out / name) for name in made["files"]]})
    say(f"Open {out / SHEETS[0]} to see all layers at a glance.")


def patience(search: Any) -> str:
    return ", which takes some seconds on a CPU" if search is not None else ""


def about(images: tuple[Path, ...], search: Any, seed: int) -> dict[str, Any]:
    """How the answer was found, for scene.json."""
    from dataclasses import asdict

    from viewslots.provenance import provenance

    return {
        "pictures": [str(path) for path in images],
        "search": search and asdict(search),
        "seed": seed,
        "provenance": provenance(),
    }


def summary(made: dict[str, Any]) -> dict[str, Any]:
    """What is printed. What the model believes of its objects means nothing beside a warning, and is left to
    scene.json."""
    objects = made["objects"]
    if made["warning"] is not None:
        objects = [{name: value for name, value in item.items() if name != "presence"} for item in objects]
    return {"warning": made["warning"], "count": made["count"], "objects": objects, "model": made["model"]}
