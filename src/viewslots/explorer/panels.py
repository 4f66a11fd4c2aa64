"""Values as pieces of a web page. Pictures travel inside the page, so no file of a user's is ever kept or served.

The HTML is in panels.html.j2. It escapes all text, though all of it is ours: no file name of a user comes this far.
"""

import io
import json
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import UInt8
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image

from viewslots.explorer.opened import Opened, SceneFacts
from viewslots.explorer.paint import (
    as_bytes,
    background_pictures,
    depth_legend,
    layer_pictures,
    palette,
    small,
    x_ray_lines,
)
from viewslots.explorer.session import Session
from viewslots.figures.grid import data_uri
from viewslots.figures.photos import photo_overlay

Pixels = UInt8[np.ndarray, "H W C"]

METRIC_WORDS = {
    "ARI-A": (
        "all pixels",
        "Adjusted Rand index: how well pixels are sorted into objects and background, over all pictures; 0 is chance.",
    ),
    "AMI-A": ("all pixels", "Adjusted mutual information: the same question; 0 is chance."),
    "ARI-O": (
        "pixels of objects",
        "Adjusted Rand index: how well the pixels of objects are sorted into the right ones; 0 is chance.",
    ),
    "AMI-O": ("pixels of objects", "Adjusted mutual information: the same question; 0 is chance."),
    "IoU": (
        "complete shapes",
        "Intersection over union of guessed and true complete shapes, hidden parts included.",
    ),
    "F1": ("complete shapes", "The same overlap, over the mean of both areas."),
    "OCA": ("count", "Object counting accuracy: 1 if the number of objects is right, else 0."),
    "OOA": (
        "depth order",
        "Object ordering accuracy: share of overlapping pairs whose nearer one is told rightly, weighted by overlap.",
    ),
}
"""Metric -> a plain word beside its name, and what it means."""
SMALL, JPEG_QUALITY = 128, 90


@cache
def macros() -> Any:
    environment = Environment(
        loader=PackageLoader("viewslots", "explorer"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {"png": png, "data_uri": data_uri, "picture": picture}
    return environment.get_template("panels.html.j2").module


def png(pixels: Pixels) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    return file.getvalue()


def waiting() -> str:
    """In the place of the large picture, until there is one."""
    return str(macros().waiting())


def picture(pixels: Pixels) -> str:
    """Photos as JPEG, which is a tenth of the size; pictures as small as the model sees them exactly."""
    if max(pixels.shape[:2]) <= SMALL:
        return data_uri(png(pixels), "image/png")
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=JPEG_QUALITY)
    return data_uri(file.getvalue(), "image/jpeg")


def notice(session: Session) -> str:
    """Above everything, where an answer means little."""
    return str(macros().notice(session.table.opened.warning))


def main_picture(session: Session, seconds: int = 5) -> str:
    """The large picture, and links that save what is shown. `seconds`: how long the next scene will take."""
    table = session.table
    address, kind = shown_picture(session)
    numbers = data_uri(json.dumps(session.to_json(), indent=1).encode(), "application/json")
    name = "viewslots-" + "".join(sign if sign.isalnum() else "-" for sign in table.opened.title.lower())
    legend = depth_legend() if table.mode == "Near and far" else None
    words = described(session), table.opened.title, table.edits
    return str(macros().main_picture(address, *words, name, kind, numbers, seconds, session.guesses(), legend))


def shown_picture(session: Session) -> tuple[str, str]:
    """The address of the large picture, and its kind: an X-ray is SVG, whose outlines are as sharp as the screen."""
    pixels = session.picture()
    base = data_uri(png(pixels), "image/png")
    if session.table.mode != "X-ray":
        return base, "PNG"
    height, width = pixels.shape[:2]
    colours = [f"rgb({','.join(map(str, one))})" for one in as_bytes(palette(session.table.rendered)).tolist()]
    lines = [(colours[k], *paths) for k, *paths in x_ray_lines(session.table.rendered, height, width)]
    drawn = str(macros().x_ray(Markup(base), width, height, lines))
    return data_uri(drawn.encode(), "image/svg+xml"), "SVG"


def described(session: Session) -> str:
    """The large picture in words, for those who cannot see it."""
    table = session.table
    shown = ", ".join(str(table.number(k)) for k in sorted(table.shown)) or "none"
    pairs = [f"{table.number(near)} before {table.number(far)}" for near, far in table.rendered.overlapping()]
    ground = "with" if table.background else "without"
    order = f"; where they overlap: {', '.join(pairs)}" if pairs else ""
    return f"{table.mode} of {table.opened.title}, {ground} background; objects: {shown}{order}"


def given_and_rebuilt(opened: Opened) -> str:
    """A column for each picture: what the model was shown, what it rebuilt from its understanding, and for a user's own
    pictures what it found, in their pixels."""
    photos = opened.scene.photos
    seen = [photo.pixels.astype(np.uint8) for photo in photos] or [small(image) for image in opened.images]
    rebuilt = [small(view.image) for view in opened.rebuilt]
    overlays = [
        np.asarray(photo_overlay(opened.scene, photo, view))
        for photo, view in zip(photos, opened.rebuilt, strict=False)
    ]
    return str(macros().given_and_rebuilt(list(zip(seen, rebuilt, strict=True)), overlays))


def layers(session: Session) -> str:
    """A card for each object of the scene, and one for the background."""
    table, view = session.table, session.table.rendered
    pictures, colours = layer_pictures(view, table.shown), as_bytes(palette(view)).tolist()
    objects = [(table.number(k), colours[k], pictures.get(k)) for k in table.scene.present()]
    return str(macros().layers(objects, background_pictures(view)))


def second_scene(opened: Opened | None, before: int = 0) -> str:
    """`before`: how many numbers are taken by the objects of the first one."""
    if opened is None:
        return str(macros().no_second_scene())
    wholes = layer_pictures(opened.rebuilt[0], opened.scene.present())
    objects = [(before + k + 1, whole) for k, (_, whole) in wholes.items()]
    return str(macros().second_scene(opened.title, [small(view.image) for view in opened.rebuilt], objects))


def facts_panel(facts: SceneFacts, edited: bool) -> str:
    """Count, pairs and scores; the truth beside them where there is one."""
    numbers = {fact.index: fact.index + 1 for fact in facts.objects}
    return str(macros().facts(facts, edited, METRIC_WORDS, numbers))


def object_choices(indices: Sequence[int], numbers: Callable[[int], int] = lambda k: k + 1) -> list[tuple[str, int]]:
    return [(f"object {numbers(k)}", k) for k in indices]
