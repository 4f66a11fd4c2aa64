"""A scene as files that other programs open: layers as PNGs with alpha, and scene.json.

Objects are numbered from 1, the surest first, and views in the order of the pictures. In every folder below,
`view-1-object-2.png` is object 2 in view 1:

* layers/: colours, with what is seen of a layer as alpha. The alphas of a view sum to one, and the sum of all layers,
  each times its alpha, is the reconstruction.
* complete/: the same objects whole, as if nothing stood before them.
* observation/, reconstruction/: what the model saw, and what it makes of it.
* original/: `view-1-segment.png`, the number of the object seen at each pixel of the picture as it was given (upright),
  0 for the background and 255 outside the window that the model saw; `view-1-overlay.png`, the same to look at.

Masks in scene.json are uncompressed run lengths as in COCO: `counts` are lengths of runs, in turn outside and inside,
beginning outside, over the pixels column by column (Fortran's order); `size` is [height, width]. A pixel belongs to
the layer that is seen most there, and to a complete shape from 0.5 on. `photo` of a view has the height and width of
the picture as it was given, the window of it that the model saw, and outlines in its pixels: closed lines
[x, y, x, y, ...] around what is seen of an object and around the whole of it; (0, 0) is the outer corner of the upper
left pixel.

`errors` are mean squared errors of the pictures as this scene rebuilds them, edits and all. `warning` and
`familiarity`, which has `errors` of its own, are of the scene as it was read from the pictures: no edit changes them.
Where nothing was edited, both lists of errors are the same.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from PIL import Image
from torch import Tensor

from viewslots.errors import UserError
from viewslots.files import plain_errors, read_json, require_folder, write_json
from viewslots.viewpoints.familiarity import picture_errors
from viewslots.viewpoints.outlines import outlines
from viewslots.viewpoints.photos import Photo
from viewslots.viewpoints.scene import InferredScene, View

SCENE_FILE = "scene.json"
SHEETS = ("sheet.png", "sheet-complete.png")
"""Pictures that whoever calls may add: everything at a glance."""
KIND, FORMAT_VERSION = "viewslots decomposition", 1
FOLDERS = ("observation", "reconstruction", "layers", "complete", "original")
OURS = re.compile(r"view-\d{1,3}(-background|-segment|-overlay|-object-\d{1,4})?\.png")
"""Names of the pictures in these folders."""


def run_lengths(mask: Bool[np.ndarray, "H W"]) -> dict[str, Any]:
    """COCO's uncompressed run-length encoding."""
    values = np.asarray(mask, bool).ravel(order="F")
    changes = np.flatnonzero(np.diff(values)) + 1
    starts = [0] if values.size and values[0] else []
    edges = np.concatenate([[0], starts, changes, [values.size]]).astype(int)
    return {"size": list(mask.shape), "counts": np.diff(edges).tolist()}


def from_run_lengths(encoded: dict[str, Any]) -> Bool[np.ndarray, "H W"]:
    """The mask again."""
    height, width = encoded["size"]
    inside = np.arange(len(encoded["counts"])) % 2 == 1
    return np.repeat(inside, encoded["counts"]).reshape((height, width), order="F")


def pixels_of(picture: Float[Tensor, "C H W"]) -> UInt8[np.ndarray, "H W C"]:
    """As bytes; colours that a model sends beyond [0, 1] are cut."""
    pixels: UInt8[np.ndarray, "H W C"] = (picture.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).cpu().numpy()
    return pixels


def opaque(colour: Float[Tensor, "3 H W"]) -> Image.Image:
    return Image.fromarray(pixels_of(colour))


def with_alpha(colour: Float[Tensor, "3 H W"], alpha: Float[Tensor, "H W"]) -> Image.Image:
    return Image.fromarray(pixels_of(torch.cat([colour, alpha[None]])))


@dataclass(frozen=True)
class Numbering:
    """Which slot is object 1, 2, ... of an answer."""

    slots: tuple[int, ...]

    @classmethod
    def of(cls, scene: InferredScene) -> "Numbering":
        """The present objects, the surest first; equals in their order."""
        return cls(tuple(sorted(scene.present(), key=lambda k: -float(scene.presence[k]))))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Pairs of number and slot."""
        return iter(enumerate(self.slots, 1))

    def number(self, slot: int) -> int:
        return self.slots.index(slot) + 1


def view_pictures(view: View, place: int, numbering: Numbering) -> dict[str, Image.Image]:
    """All pictures of one view but the observation, by their path inside the folder."""
    pictures = {
        f"reconstruction/view-{place}.png": opaque(view.image),
        f"layers/view-{place}-background.png": with_alpha(view.background, view.masks[0]),
        f"complete/view-{place}-background.png": opaque(view.bare),
    }
    for number, k in numbering:
        name = f"view-{place}-object-{number}.png"
        pictures[f"layers/{name}"] = with_alpha(view.appearance[k], view.masks[k + 1])
        pictures[f"complete/{name}"] = with_alpha(view.appearance[k], view.complete[k])
    return pictures


def view_record(view: View, place: int, numbering: Numbering) -> dict[str, Any]:
    """What scene.json says about one view."""
    segment, complete = view.segment().cpu().numpy(), (view.complete >= 0.5).cpu().numpy()
    return {
        "view": place,
        "nearest_first": [numbering.number(k) for k in view.nearest_first()],
        "in_front": [[numbering.number(near), numbering.number(far)] for near, far in view.overlapping()],
        "order": {str(number): float(view.order[k]) for number, k in numbering},
        "background": run_lengths(segment == 0),
        "masks": {str(number): run_lengths(segment == k + 1) for number, k in numbering},
        "complete": {str(number): run_lengths(complete[k]) for number, k in numbering},
    }


def photo_record(photo: Photo, view: View, numbering: Numbering) -> dict[str, Any]:
    """What scene.json says in the pixels of a picture as it was given."""
    cut = photo.window

    def lines(shape: Float[Tensor, "H W"]) -> list[list[float]]:
        drawn = outlines(shape, cut.crop_height, cut.crop_width)
        return [(line + np.array([cut.left, cut.top])).round(1).ravel().tolist() for line in drawn]

    return {
        "size": list(photo.size),
        "crop": {"top": cut.top, "left": cut.left, "height": cut.crop_height, "width": cut.crop_width},
        "outlines": {str(number): lines(view.masks[k + 1]) for number, k in numbering},
        "complete_outlines": {str(number): lines(view.complete[k]) for number, k in numbering},
    }


def photo_segment(photo: Photo, view: View, numbering: Numbering) -> Image.Image:
    """Numbers of objects as grey levels, in the pixels of the picture as it was given."""
    layers = [0, *(k + 1 for k in numbering.slots)]
    return Image.fromarray(photo.segment(view.masks[layers]))


def scene_record(scene: InferredScene, views: list[View]) -> dict[str, Any]:
    """All numbers about a scene: how many objects, how sure, which is nearer, where they are."""
    numbering, found = Numbering.of(scene), scene.familiarity
    records = [view_record(view, place, numbering) for place, view in enumerate(views, 1)]
    for record, view, photo in zip(records, views, scene.photos, strict=False):
        record["photo"] = photo_record(photo, view, numbering)
    return {
        "warning": scene.warning,
        "familiarity": found and found.to_json(),
        "model": scene.reader.name,
        "count": scene.count,
        "objects": [{"number": n, "slot": k, "presence": float(scene.presence[k])} for n, k in numbering],
        "presence": scene.presence.tolist(),
        "viewpoints": scene.views.tolist(),
        "views": records,
        "errors": picture_errors(scene).tolist(),
    }


def export_scene(
    scene: InferredScene,
    out: Path,
    about: dict[str, Any],
    sheets: Sequence[Image.Image] = (),
    overlays: Sequence[Image.Image] = (),
) -> dict[str, Any]:
    """Write everything into a folder, and answer with what scene.json says; `about` is added to it. `overlays` are
    the photos with what was found drawn on them."""
    views, numbering = scene.render_many(scene.views), Numbering.of(scene)
    pictures = dict(zip(SHEETS, sheets, strict=False))
    if scene.images is not None:
        pictures |= {f"observation/view-{place}.png": opaque(seen) for place, seen in enumerate(scene.images, 1)}
    for place, view in enumerate(views, 1):
        pictures |= view_pictures(view, place, numbering)
    for place, (view, photo) in enumerate(zip(views, scene.photos, strict=False), 1):
        pictures[f"original/view-{place}-segment.png"] = photo_segment(photo, view, numbering)
    pictures |= {f"original/view-{place}-overlay.png": overlay for place, overlay in enumerate(overlays, 1)}
    heading = {"kind": KIND, "format_version": FORMAT_VERSION}
    record = heading | {"finished": True} | scene_record(scene, views) | about | {"files": sorted(pictures)}
    with plain_errors("writing", out):
        prepare_folder(out, heading)
        for name, picture in pictures.items():
            picture.save(out / name)
        write_json(out / SCENE_FILE, record)
    return record


def require_free(out: Path) -> None:
    """Refuse a folder in which something lies that is no earlier answer of ours."""
    with plain_errors("reading", out):
        require_folder(out)
        if not out.exists() or not any(out.iterdir()):
            return
    try:
        ours = read_json(out / SCENE_FILE).get("kind") == KIND
    except UserError:
        ours = False
    if not ours:
        raise UserError(f"--out: {out} holds something else already; choose another folder, or empty it")


def prepare_folder(out: Path, heading: dict[str, Any]) -> None:
    """Marked as ours before anything else is written, so that a call that was cut off can be repeated; emptied of an
    earlier answer, of files with our names alone."""
    require_free(out)
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / SCENE_FILE, heading | {"finished": False})
    for name in SHEETS:
        (out / name).unlink(missing_ok=True)
    for name in FOLDERS:
        if (out / name).is_symlink():
            raise UserError(f"{out / name}: a link, which may lead anywhere; remove it, or choose another --out")
        (out / name).mkdir(exist_ok=True)
        for file in (out / name).iterdir():
            if OURS.fullmatch(file.name):
                file.unlink()
