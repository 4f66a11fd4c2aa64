"""A figure made of small pictures in rows and columns: where every panel and every word lies, as PNG and as SVG.

Everything is placed in whole pixels of a 300 dpi print, and pictures grow by whole factors: a panel shows exactly the
pixels that it was given. The SVG holds the same panels and real text.
"""

import base64
import html
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

DPI = 300
TEXT, SMALL = 30, 25
"""Heights of letters in pixels of the print: 7 and 6 points."""
INK, SOFT, LINE, ALARM = "#1c1e21", "#5d6470", "#c3c8d0", "#b00020"
FAMILY = "DejaVu Sans, Verdana, sans-serif"
MARGIN, GAP, BLOCK_GAP = 24, 8, 44
LINE_HEIGHT = 40
CAPTION_HEIGHT = 34

Pixels = UInt8[np.ndarray, "H W 3"]


@dataclass(frozen=True)
class Panel:
    left: int
    top: int
    pixels: Pixels
    zoom: int
    title: str
    """What it shows, for those who read the SVG without seeing it."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height on the sheet."""
        return self.pixels.shape[1] * self.zoom, self.pixels.shape[0] * self.zoom


@dataclass(frozen=True)
class Label:
    """A word whose baseline starts, or whose middle lies, at (x, y)."""

    x: int
    y: int
    text: str
    size: int = TEXT
    middle: bool = False
    colour: str = INK


@dataclass(frozen=True)
class Sheet:
    """Panels and labels on white."""

    width: int
    height: int
    panels: tuple[Panel, ...]
    labels: tuple[Label, ...]
    title: str

    def image(self) -> Image.Image:
        """As pixels; a thin frame lies around every panel, outside of it."""
        canvas = Image.new("RGB", (self.width, self.height), "white")
        draw = ImageDraw.Draw(canvas)
        for panel in self.panels:
            (width, height), left, top = panel.size, panel.left, panel.top
            draw.rectangle((left - 1, top - 1, left + width, top + height), outline=LINE)
            grown = Image.fromarray(panel.pixels).resize((width, height), Image.Resampling.NEAREST)
            canvas.paste(grown, (left, top))
        for label in self.labels:
            anchor = "ms" if label.middle else "ls"
            draw.text((label.x, label.y), label.text, fill=label.colour, font=font(label.size), anchor=anchor)
        return canvas

    def svg(self) -> str:
        """The same as vectors around pictures, in millimetres of the print."""
        size = " ".join(f'{name}="{value / DPI * 25.4:.2f}mm"' for name, value in self._sides())
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {self.width} {self.height}" role="img">'
        ground = f'<rect width="{self.width}" height="{self.height}" fill="white"/>'
        parts = [f"<title>{html.escape(self.title)}</title>", ground]
        parts += [_svg_panel(panel) for panel in self.panels]
        parts += [_svg_label(label) for label in self.labels]
        return "\n".join([head, *parts, "</svg>", ""])

    def _sides(self) -> tuple[tuple[str, int], tuple[str, int]]:
        return ("width", self.width), ("height", self.height)

    def save(self, stem: Path) -> list[Path]:
        """STEM.png and STEM.svg."""
        png, svg = stem.with_suffix(".png"), stem.with_suffix(".svg")
        self.image().save(png, dpi=(DPI, DPI))
        svg.write_text(self.svg(), encoding="utf-8")
        return [png, svg]


def _svg_panel(panel: Panel) -> str:
    width, height = panel.size
    place = f'x="{panel.left}" y="{panel.top}" width="{width}" height="{height}"'
    frame = f'<rect {place} fill="none" stroke="{LINE}" stroke-width="2"/>'
    style = 'style="image-rendering:pixelated" preserveAspectRatio="none"'
    href = f'href="{data_uri(png_bytes(panel.pixels), "image/png")}"'
    return f"{frame}\n<image {place} {style} {href}><title>{html.escape(panel.title)}</title></image>"


def _svg_label(label: Label) -> str:
    anchor = ' text-anchor="middle"' if label.middle else ""
    look = f'font-family="{FAMILY}" font-size="{label.size}" fill="{label.colour}"'
    return f'<text x="{label.x}" y="{label.y}" {look}{anchor}>{html.escape(label.text)}</text>'


def png_bytes(pixels: Pixels) -> bytes:
    """A small picture as a PNG file."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return file.getvalue()


def data_uri(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


@cache
def font(size: int) -> ImageFont.FreeTypeFont:
    """The one that matplotlib brings along, so that figures look the same on every machine."""
    import matplotlib

    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), size)


def text_width(text: str, size: int) -> int:
    return int(np.ceil(font(size).getlength(text)))


def fitting(text: str, width: int, size: int = TEXT) -> int:
    """The largest size up to `size` at which a text keeps within a width; never below 12, which nobody can read."""
    while size > 12 and text_width(text, size) > width:
        size -= 1
    return size


def whole_zoom(sides: Sequence[int], target: int = 256) -> int:
    """The whole factor that brings the longest side nearest to `target` from below; at least 1."""
    return max(1, target // max(sides))


@dataclass(frozen=True)
class Row:
    """One line of panels."""

    label: str
    cells: tuple[Pixels | None, ...]
    """None leaves a place empty."""


@dataclass(frozen=True)
class Block:
    """Rows that belong together."""

    title: str
    rows: tuple[Row, ...]
    captions: tuple[str, ...] = ()
    """Above the columns of this block, where they differ from block to block."""


@dataclass(frozen=True)
class _Measures:
    """Pixels that all blocks share."""

    left: int
    zoom: int
    width: int
    height: int

    def column(self, index: int) -> int:
        return self.left + index * (self.width + GAP)


def grid(title: str, columns: Sequence[str], blocks: Sequence[Block], zoom: int | None = None, note: str = "") -> Sheet:
    """Columns under their names, blocks below one another, row labels at the left, a note at the foot."""
    sizes = {cell.shape[:2] for block in blocks for row in block.rows for cell in row.cells if cell is not None}
    if len(sizes) != 1:
        raise ValueError(f"panels of one size expected, not {sorted(sizes)}")
    (size,) = sizes
    zoom = zoom or whole_zoom(size)
    across = max((text_width(row.label, SMALL) for block in blocks for row in block.rows), default=0)
    measures = _Measures(MARGIN + across + (2 * GAP if across else 0), zoom, size[1] * zoom, size[0] * zoom)
    labels = list(_headings(columns, measures))
    panels: list[Panel] = []
    top = MARGIN + (LINE_HEIGHT + GAP if any(columns) else 0)
    for block in blocks:
        top = _add_block(block, columns, measures, top, panels, labels)
    bottom = top - BLOCK_GAP + MARGIN
    if note:
        title, bottom = f"{title}. {note}", bottom + CAPTION_HEIGHT
        labels.append(Label(MARGIN, bottom - MARGIN, note, SMALL, colour=SOFT))
    count = max(len(row.cells) for block in blocks for row in block.rows)
    right = max(measures.column(count) - GAP, max((_right_end(label) for label in labels), default=0))
    return Sheet(right + MARGIN, bottom, tuple(panels), tuple(labels), title)


def headed(sheet: Sheet, text: str) -> Sheet:
    """The same below a warning, which goes over as many lines as it needs."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, TEXT) > sheet.width - 2 * MARGIN:
            lines.append(word)
        else:
            lines[-1] = longer
    down = len(lines) * LINE_HEIGHT + GAP
    above = [Label(MARGIN, MARGIN + n * LINE_HEIGHT + TEXT, line, colour=ALARM) for n, line in enumerate(lines)]
    panels = tuple(replace(panel, top=panel.top + down) for panel in sheet.panels)
    labels = (*above, *(replace(label, y=label.y + down) for label in sheet.labels))
    return Sheet(sheet.width, sheet.height + down, panels, labels, f"{text} {sheet.title}")


def _right_end(label: Label) -> int:
    width = text_width(label.text, label.size)
    return label.x + (width + 1) // 2 if label.middle else label.x + width


def _headings(columns: Sequence[str], measures: _Measures) -> Iterator[Label]:
    for index, name in enumerate(columns):
        middle = measures.column(index) + measures.width // 2
        yield Label(middle, MARGIN + TEXT, name, fitting(name, measures.width), middle=True)


def _add_block(
    block: Block, columns: Sequence[str], measures: _Measures, top: int, panels: list[Panel], labels: list[Label]
) -> int:
    """Answers where the next block begins."""
    if block.title:
        labels.append(Label(MARGIN, top + TEXT, block.title))
        top += LINE_HEIGHT
    if block.captions:
        for index, text in enumerate(block.captions):
            middle, size = measures.column(index) + measures.width // 2, fitting(text, measures.width, SMALL)
            labels.append(Label(middle, top + SMALL, text, size, middle=True, colour=SOFT))
        top += CAPTION_HEIGHT
    for row in block.rows:
        labels.append(Label(MARGIN, top + (measures.height + SMALL) // 2, row.label, SMALL, colour=SOFT))
        for index, cell in enumerate(row.cells):
            if cell is not None:
                name = ", ".join(part for part in (block.title, row.label, _name(columns, index)) if part)
                panels.append(Panel(measures.column(index), top, cell, measures.zoom, name))
        top += measures.height + GAP
    return top - GAP + BLOCK_GAP


def _name(columns: Sequence[str], index: int) -> str:
    return columns[index] if index < len(columns) else ""
