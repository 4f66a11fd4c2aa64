"""Values as pieces of a web page. Pictures travel inside the page, so no file of a user's is ever kept or served.

Whatever text enters is escaped, though all of it is ours: no file name of a user comes this far.
"""

import base64
import io
import json
from collections.abc import Sequence
from html import escape

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from viewslots.explorer.facts import Facts
from viewslots.explorer.opened import Opened
from viewslots.explorer.paint import as_bytes, background_pictures, layer_pictures, palette, small
from viewslots.explorer.session import Session
from viewslots.explorer.words import METRIC_WORDS, PRESENT_WORDS, WAITING_WORDS, X_RAY_WORDS

Pixels = UInt8[np.ndarray, "H W C"]


def png(pixels: Pixels) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    return file.getvalue()


def data_address(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def image(pixels: Pixels, alt: str, class_name: str = "") -> str:
    height, width = pixels.shape[:2]
    return (
        f'<img src="{data_address(png(pixels), "image/png")}" alt="{escape(alt)}" class="{class_name}" '
        f'width="{width}" height="{height}">'
    )


def figure(picture: str, caption: str) -> str:
    return f"<figure>{picture}<figcaption>{caption}</figcaption></figure>"


def waiting() -> str:
    """In the place of the large picture, until there is one."""
    return f'<p class="vs-waiting" role="status">{WAITING_WORDS}</p>'


def main_picture(session: Session) -> str:
    """The large picture, and links that save what is shown."""
    table = session.table
    shown = png(session.picture())
    address = data_address(shown, "image/png")
    numbers = json.dumps(session.to_json(), indent=1).encode()
    edits = f", edited: {escape(', '.join(table.edits))}" if table.edits else ""
    name = "viewslots-" + "".join(sign if sign.isalnum() else "-" for sign in table.opened.title.lower())
    return (
        f'<figure class="vs-main"><img src="{address}" alt="{escape(described(session))}">'
        f"<figcaption><span><b>{escape(table.opened.title)}</b>{edits}</span>"
        f'<span class="vs-save">Save: <a id="save-picture" download="{name}.png" href="{address}">picture (PNG)</a> '
        f'<a id="save-numbers" download="{name}.json" href="{data_address(numbers, "application/json")}">'
        "numbers (JSON)</a></span></figcaption></figure>"
    )


def described(session: Session) -> str:
    """The large picture in words, for those who cannot see it."""
    table = session.table
    order = ", ".join(str(k + 1) for k in table.rendered.nearest_first()) or "none"
    ground = "with" if table.background else "without"
    return f"{table.mode} of {table.opened.title}, {ground} background; objects from near to far: {order}"


def given_and_rebuilt(opened: Opened) -> str:
    """A column for each picture: what the model was shown, and what it rebuilt from its understanding."""
    columns = []
    for m, (seen, view) in enumerate(zip(opened.images, opened.rebuilt, strict=True), 1):
        pair = image(small(seen), f"picture {m} as given", "vs-thumb") + image(
            small(view.image), f"picture {m} as rebuilt", "vs-thumb"
        )
        columns.append(f'<div class="vs-pair">{pair}<span>picture {m}</span></div>')
    warning = f'<p class="vs-warning" role="alert">{escape(opened.warning)}.</p>' if opened.warning else ""
    return (
        '<h3>What it was shown, and what it rebuilt</h3><p class="vs-note">Top: the pictures. '
        "Bottom: the same, painted from nothing but the objects and viewpoints that the model inferred.</p>"
        f'{warning}<div class="vs-strip">{"".join(columns)}</div>'
    )


def layers(session: Session) -> str:
    """A card for each object of the scene, and one for the background."""
    table, view = session.table, session.table.rendered
    pictures, colors = layer_pictures(view, table.shown), as_bytes(palette(view))
    cards = []
    for k in table.scene.present():
        red, green, blue = colors[k]
        title = f'<i class="vs-chip" style="background:rgb({red},{green},{blue})"></i>object {k + 1}'
        if k in pictures:
            seen, whole = (
                image(pixels, f"object {k + 1}, {words}", "vs-thumb")
                for pixels, words in zip(pictures[k], ("what is seen of it", "the whole of it"), strict=True)
            )
            cards.append(f'<div class="vs-card" data-object="{k + 1}">{seen}{whole}<span>{title}</span></div>')
        else:
            cards.append(f'<div class="vs-card vs-off" data-object="{k + 1}"><span>{title}: switched off</span></div>')
    around, bare = background_pictures(view)
    ground = image(around, "background, what is seen of it", "vs-thumb")
    cards.append(
        f'<div class="vs-card">{ground}{image(bare, "the bare background", "vs-thumb")}<span>background</span></div>'
    )
    return (
        '<h3>Its layers, seen from here</h3><p class="vs-note">Left: what is seen of a layer. Right: the whole of '
        f'it, with what others hide; the background bare. {X_RAY_WORDS}</p><div class="vs-strip">{"".join(cards)}</div>'
    )


def second_scene(opened: Opened | None) -> str:
    if opened is None:
        return '<p class="vs-note">No second scene yet.</p>'
    pictures = "".join(
        image(small(view.image), f"second scene, picture {m}", "vs-thumb") for m, view in enumerate(opened.rebuilt, 1)
    )
    view, cards = opened.rebuilt[0], []
    for k, (_, whole) in layer_pictures(view, opened.scene.present()).items():
        cards.append(
            f'<div class="vs-card">{image(whole, f"its object {k + 1}", "vs-thumb")}<span>{k + 1}</span></div>'
        )
    return (
        f'<p class="vs-note"><b>{escape(opened.title)}</b>, rebuilt, and its objects by number:</p>'
        f'<div class="vs-strip">{pictures}</div><div class="vs-strip">{"".join(cards)}</div>'
    )


def facts_panel(facts: Facts, edited: bool) -> str:
    """Count, order and scores; the truth beside them where there is one."""
    note = "<p class='vs-note'>Of the scene as it was inferred, before your changes.</p>" if edited else ""
    return f"<h3>What it says about the scene</h3>{note}{count_line(facts)}{order_table(facts)}{score_list(facts)}"


def count_line(facts: Facts) -> str:
    said = f"It counts <b>{facts.found}</b> object{'s' * (facts.found != 1)}"
    if facts.true_count is None:
        return f'<p id="count">{said}. Nobody knows the truth about your pictures, so there is nothing to compare.</p>'
    verdict = "which is right" if facts.true_count == facts.found else f"but <b>{facts.true_count}</b> can be seen"
    missed = f" It missed: {escape(', '.join(facts.missed))}." if facts.missed else ""
    return f'<p id="count">{said}, {verdict}.{missed}</p>'


def order_table(facts: Facts) -> str:
    known = facts.scores is not None
    heads = ["object", f'<abbr title="{PRESENT_WORDS}">sure</abbr>', "near to far"]
    heads += ["truly", "it stands for"] if known else []
    rows = []
    for fact in facts.objects:
        cells = [str(fact.index + 1), f"{fact.sure:.0%}", str(fact.place)]
        cells += [str(fact.true_place or "&ndash;"), escape(fact.name or "nothing true")] if known else []
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th scope='col'>{cell}</th>" for cell in heads)
    return (
        f'<div class="vs-wide"><table id="order"><caption>Depth order in picture {facts.picture + 1}: 1 is the nearest'
        f"</caption><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def score_list(facts: Facts) -> str:
    if facts.scores is None:
        return ""
    rows = [score_row(name, value) for name, value in facts.scores.items()]
    meanings = "".join(
        f"<dt>{METRIC_WORDS[name][0]} ({name})</dt><dd>{METRIC_WORDS[name][1]}</dd>" for name in facts.scores
    )
    return (
        f'<table id="scores"><caption>Scores of this scene: 1 is perfect</caption><tbody>{"".join(rows)}</tbody>'
        f"</table><details><summary>What do the scores mean?</summary><dl>{meanings}</dl></details>"
    )


def score_row(name: str, value: float | None) -> str:
    title, meaning = METRIC_WORDS[name]
    told = "none" if value is None else f"{value:.2f}"
    meter = "" if value is None else f'<meter min="0" max="1" value="{max(value, 0):.4f}"></meter>'
    return (
        f'<tr data-metric="{name}"><th scope="row"><abbr title="{escape(meaning)}">{title}</abbr></th>'
        f"<td>{meter}</td><td>{told}</td></tr>"
    )


def object_choices(indices: Sequence[int]) -> list[tuple[str, int]]:
    return [(f"object {k + 1}", k) for k in indices]
