"""A small document and its two forms: Markdown, and one HTML page (template.html.j2) that needs nothing else."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

STYLE = (files("viewslots") / "report" / "style.css").read_text(encoding="utf-8")
MARKS = {"better": "▲ ", "worse": "▼ ", "": ""}


@dataclass(frozen=True)
class Cell:
    text: str
    details: tuple[str, ...] = ()
    """Smaller, below the text, a line each."""
    mark: str = ""
    """better, worse or empty."""


@dataclass(frozen=True)
class Row:
    name: str
    cells: tuple[Cell, ...]
    kind: str = ""
    """paper, ours, difference or floor: how the row looks."""


@dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]
    """Names of all columns, that of the row names first."""
    rows: tuple[Row, ...]
    caption: str = ""


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Notes:
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Folded:
    """Shown on request where the form allows it."""

    title: str
    blocks: "tuple[Block, ...]"


Block = Heading | Text | Notes | Table | Folded


def markdown(title: str, blocks: Sequence[Block]) -> str:
    return "\n\n".join([f"# {_plain(title)}", *(_markdown(block) for block in blocks)]) + "\n"


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {_plain(text)}"
        case Text(text):
            return _plain(text)
        case Notes(lines):
            return "\n".join(f"- {_plain(line)}" for line in lines)
        case Table(columns, rows, caption):
            head = [_line(columns), "|" + "---|" * len(columns)]
            body = [_line((row.name, *map(_markdown_cell, row.cells))) for row in rows]
            return "\n".join([*([_plain(caption), ""] if caption else []), *head, *body])
        case Folded(title, inner):
            return "\n\n".join([f"### {_plain(title)}", *(_markdown(part) for part in inner)])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_plain(cell) for cell in cells) + " |"


def _markdown_cell(cell: Cell) -> str:
    return " ".join([f"{MARKS[cell.mark]}{cell.text}", *cell.details])


def _plain(text: str) -> str:
    """Foreign names must not become structure."""
    shown = "".join(letter for letter in " ".join(text.split()) if letter.isprintable())
    escaped = re.sub(r"([\\`*_|#\[\]])", r"\\\1", shown)
    return escaped.replace("<", "&lt;").replace(">", "&gt;")


def page(title: str, blocks: Sequence[Block]) -> str:
    """One HTML file: styles inside, no scripts, nothing loaded."""
    return _template().render(title=title, blocks=blocks, style=STYLE, marks=MARKS)


@cache
def _template() -> Template:
    """All text is escaped."""
    loading = Environment(
        loader=PackageLoader("viewslots", "report"), autoescape=True, trim_blocks=True, undefined=StrictUndefined
    )
    loading.filters["kind"] = lambda block: type(block).__name__
    return loading.get_template("template.html.j2")
