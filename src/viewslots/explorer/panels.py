"""Values as pieces of a web page. Pictures travel inside the page, so no file of a user's is ever kept or served.

The HTML is in panels.html.j2. It escapes all text, though all of it is ours: no file name of a user comes this far.
"""

import io
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import UInt8
from jinja2 import Environment, PackageLoader, StrictUndefined
from PIL import Image

from viewslots.explorer.opened import Facts, Opened
from viewslots.explorer.paint import as_bytes, background_pictures, layer_pictures, palette, small
from viewslots.explorer.session import Session
from viewslots.figures.grid import data_uri

Pixels = UInt8[np.ndarray, "H W C"]

METRIC_WORDS = {
    "ARI-A": (
        "ARI of the whole picture",
        "How well pixels are sorted into objects and background, over all pictures; 0 is chance.",
    ),
    "AMI-A": ("AMI of the whole picture", "The same question, measured in mutual information; 0 is chance."),
    "ARI-O": ("ARI of objects", "How well the pixels of objects are sorted into the right ones; 0 is chance."),
    "AMI-O": ("AMI of objects", "The same question, measured in mutual information; 0 is chance."),
    "IoU": (
        "IoU of complete shapes",
        "Overlap of guessed and true complete shapes, hidden parts included, over their union.",
    ),
    "F1": ("F1 of complete shapes", "The same overlap, over the mean of both areas."),
    "OCA": ("Count", "1 if the number of objects is right, else 0."),
    "OOA": ("Depth order", "Share of overlapping pairs of which the nearer one is told rightly, weighted by overlap."),
}
"""Metric -> what it is called on the page, and what it means."""


@cache
def macros() -> Any:
    environment = Environment(
        loader=PackageLoader("viewslots", "explorer"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {"png": png, "data_uri": data_uri}
    return environment.get_template("panels.html.j2").module


def png(pixels: Pixels) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    return file.getvalue()


def waiting() -> str:
    """In the place of the large picture, until there is one."""
    return str(macros().waiting())


def main_picture(session: Session) -> str:
    """The large picture, and links that save what is shown."""
    title = session.table.opened.title
    address = data_uri(png(session.picture()), "image/png")
    numbers = data_uri(json.dumps(session.to_json(), indent=1).encode(), "application/json")
    name = "viewslots-" + "".join(sign if sign.isalnum() else "-" for sign in title.lower())
    return str(macros().main_picture(address, described(session), title, session.table.edits, name, numbers))


def described(session: Session) -> str:
    """The large picture in words, for those who cannot see it."""
    table = session.table
    order = ", ".join(str(k + 1) for k in table.rendered.nearest_first()) or "none"
    ground = "with" if table.background else "without"
    return f"{table.mode} of {table.opened.title}, {ground} background; objects from near to far: {order}"


def given_and_rebuilt(opened: Opened) -> str:
    """A column for each picture: what the model was shown, and what it rebuilt from its understanding."""
    seen, rebuilt = map(small, opened.images), (small(view.image) for view in opened.rebuilt)
    return str(macros().given_and_rebuilt(list(zip(seen, rebuilt, strict=True)), opened.warning))


def layers(session: Session) -> str:
    """A card for each object of the scene, and one for the background."""
    table, view = session.table, session.table.rendered
    pictures, colours = layer_pictures(view, table.shown), as_bytes(palette(view)).tolist()
    objects = [(k + 1, colours[k], pictures.get(k)) for k in table.scene.present()]
    return str(macros().layers(objects, background_pictures(view)))


def second_scene(opened: Opened | None) -> str:
    if opened is None:
        return str(macros().no_second_scene())
    wholes = layer_pictures(opened.rebuilt[0], opened.scene.present())
    objects = [(k + 1, whole) for k, (_, whole) in wholes.items()]
    return str(macros().second_scene(opened.title, [small(view.image) for view in opened.rebuilt], objects))


def facts_panel(facts: Facts, edited: bool) -> str:
    """Count, order and scores; the truth beside them where there is one."""
    return str(macros().facts(facts, edited, METRIC_WORDS))


def object_choices(indices: Sequence[int]) -> list[tuple[str, int]]:
    return [(f"object {k + 1}", k) for k in indices]
