"""decompose."""

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from viewslots.errors import UserError
from viewslots.terminal import Device, Progress, pick_device, print_json, say

Slots = Annotated[int | None, arg(metavar="K", help_behavior_hint="(default: as trained)")]


def decompose(
    run: Positional[Annotated[str, arg(metavar="RUN")]],
    images: Positional[Annotated[tuple[Path, ...], arg(metavar="IMAGE...")]],
    /,
    out: Path,
    slots: Slots = None,
    starts: Annotated[
        int | None, arg(metavar="N", help_behavior_hint="(default: as the method; 0: its plain answer)")
    ] = None,
    seed: int = 0,
    device: Device = "auto",
    which: Literal["best", "last"] = "best",
) -> None:
    """Take your own pictures of one scene apart: objects as layers with alpha, how many, which is nearer, masks.

    Pictures are turned upright, cropped in the middle to the shape that the model knows, mostly a square, and made as
    small as it sees.

    Args:
        run: A run folder, a saved model, or the name of a shipped one (umbra, umbra-around, compact).
        images: Pictures of one scene from different places: PNG, JPEG, WebP, GIF, BMP, TIFF.
        out: Folder for layers/, complete/, reconstruction/, observation/, sheet.png and scene.json.
        slots: How many objects may be found at most.
        starts: Random starts of the search; the one with the shortest description goes on.
        seed: Decides where the search starts; another one may find other objects.
        device: Where to compute; auto takes a GPU if there is one.
        which: The model of a run folder with the lowest validation loss, or the last one.
    """
    from dataclasses import asdict

    from viewslots.figures.decompositions import decomposition_figure
    from viewslots.provenance import provenance
    from viewslots.pulse import heard
    from viewslots.viewpoints.export import SCENE_FILE, SHEETS, export_scene, require_free
    from viewslots.viewpoints.scene import load, search_words, with_starts

    if not images:
        raise UserError("name at least one picture")
    require_free(out)
    with Progress("%", "decomposing") as progress, heard(progress.share):
        reader = load(run, device=pick_device(device), which=which)
        search = with_starts(reader.search, starts)
        scene = reader.inferred(images, seed, slots, search)
    note = f"Answer of {run}: {search_words(search)}."
    sheets = [decomposition_figure([scene], kind, note).image() for kind in ("perceived", "complete")]
    about = {
        "pictures": [str(path) for path in images],
        "search": search and asdict(search),
        "seed": seed,
        "provenance": provenance(),
    }
    made = export_scene(scene, out, about, sheets)
    if made["warning"] is not None:
        say(f"viewslots: warning: {made['warning']}")
    summary = {name: made[name] for name in ("count", "objects", "warning", "model")}
    print_json(summary | {"scene": str(out / SCENE_FILE), "files": [str(out / name) for name in made["files"]]})
    say(f"Open {out / SHEETS[0]} to see all layers at a glance.")
