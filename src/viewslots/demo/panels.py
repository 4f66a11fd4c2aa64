"""Pictures inside a page: every one is part of the file."""

import html
from collections.abc import Sequence

from viewslots.figures.layout import Pixels, data_uri, png_bytes

Cell = tuple[Pixels | None, str]
"""A picture, or None for a slot that is not used, and what it shows."""


def picture(pixels: Pixels, about: str) -> str:
    """At its own size; the style sheet enlarges it without smoothing."""
    height, width = pixels.shape[:2]
    source = data_uri(png_bytes(pixels), "image/png")
    return f'<img class="pixels" width="{width}" height="{height}" alt="{html.escape(about)}" src="{source}">'


def panel_table(columns: Sequence[str], rows: Sequence[tuple[str, Sequence[Cell]]]) -> str:
    """Rows of pictures that scroll sideways where the screen is narrow; a column is `name` or `name|caption`."""
    head = "".join(_heading(column) for column in columns)
    body = "\n".join(
        f'<tr><th scope="row">{html.escape(name)}</th>{"".join(map(_cell, cells))}</tr>' for name, cells in rows
    )
    table = f'<table class="panels">\n<thead><tr><td></td>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>'
    return f'<div class="wide" tabindex="0">\n{table}\n</div>'


def _heading(column: str) -> str:
    name, _, caption = column.partition("|")
    small = f"<br><small>{html.escape(caption)}</small>" if caption else ""
    return f'<th scope="col">{html.escape(name)}{small}</th>'


def _cell(cell: Cell) -> str:
    pixels, about = cell
    return '<td class="absent">absent</td>' if pixels is None else f"<td>{picture(pixels, about)}</td>"


def film_block(content: bytes, kind: str, caption: str) -> str:
    """A film, or an animated picture."""
    source, text = data_uri(content, kind), html.escape(caption)
    if kind.startswith("image/"):
        shown = f'<img class="film" alt="{text}" src="{source}">'
    else:
        shown = f'<video controls autoplay loop muted playsinline aria-label="{text}" src="{source}"></video>'
    return f"<figure>\n{shown}\n<figcaption>{text}</figcaption>\n</figure>"


def figure_block(png: bytes, about: str, caption: str) -> str:
    """A large picture, which scrolls sideways."""
    shown = f'<img class="sheet" alt="{html.escape(about)}" src="{data_uri(png, "image/png")}">'
    caption = f"<figcaption>{html.escape(caption)}</figcaption>"
    return f'<figure>\n<div class="wide" tabindex="0">{shown}</div>\n{caption}\n</figure>'
