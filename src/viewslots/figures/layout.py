"""A figure made of small pictures: where every panel and every word lies, and its two forms, PNG and SVG.

Everything is placed in whole pixels of a 300 dpi print, and pictures grow by whole factors: a panel shows exactly the
pixels that it was given. The SVG holds the same panels and real text.
"""

import base64
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

DPI = 300
TEXT, SMALL = 30, 25
"""Heights of letters in pixels of the print: 7 and 6 points."""
INK, SOFT, LINE = "#1c1e21", "#5d6470", "#c3c8d0"
FAMILY = "DejaVu Sans, Verdana, sans-serif"

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
