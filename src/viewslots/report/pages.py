"""A small document and its two forms: Markdown, and one HTML page that needs nothing else."""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

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
    escaped = re.sub(r"([\\`*_|#\[\]])", r"\\\1", " ".join(text.split()))
    return escaped.replace("<", "&lt;").replace(">", "&gt;")


STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #fff; --soft: #5d6470; --line: #d9dde3; --band: #f3f5f8;
  --good: #0a6b3d; --bad: #a3271b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --paper: #15181c; --soft: #9aa3af; --line: #333a43;
  --band: #1e2329; --good: #5fd39a; --bad: #ff8f80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 72rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; border-top: 1px solid var(--line);
  padding-top: 1rem; }
h3 { font-size: 1.05rem; }
figure { margin: 1rem 0; }
figcaption { color: var(--soft); font-size: .85rem; padding-bottom: .3rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .5rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
thead th { white-space: normal; vertical-align: bottom; }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--paper); white-space: normal;
  min-width: 6.5rem; max-width: 40vw; }
tbody th { font-weight: normal; }
td small { display: block; color: var(--soft); font-size: .72rem; }
tr.ours th, tr.ours td { background: var(--band); font-weight: 600; }
tr.ours td small { font-weight: normal; }
tr.difference th, tr.floor th { color: var(--soft); }
.better { color: var(--good); font-weight: 600; } .worse { color: var(--bad); font-weight: 600; }
summary { cursor: pointer; color: var(--soft); }
""".strip()


def page(title: str, blocks: Sequence[Block]) -> str:
    """One HTML file: styles inside, no scripts, nothing loaded."""
    body = "\n".join(_html(block) for block in blocks)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n"
        f"<h1>{html.escape(title)}</h1>\n{body}\n</body>\n</html>\n"
    )


def _html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"<h{level}>{html.escape(text)}</h{level}>"
        case Text(text):
            return f"<p>{html.escape(text)}</p>"
        case Notes(lines):
            return "<ul>\n" + "\n".join(f"<li>{html.escape(line)}</li>" for line in lines) + "\n</ul>"
        case Table():
            return _html_table(block)
        case Folded(title, inner):
            parts = "\n".join(_html(part) for part in inner)
            return f"<details>\n<summary>{html.escape(title)}</summary>\n{parts}\n</details>"


def _html_table(table: Table) -> str:
    head = "".join(f'<th scope="col">{html.escape(column)}</th>' for column in table.columns)
    body = "\n".join(
        f'<tr class="{row.kind}"><th scope="row">{html.escape(row.name)}</th>{"".join(map(_html_cell, row.cells))}</tr>'
        for row in table.rows
    )
    caption = f"<figcaption>{html.escape(table.caption)}</figcaption>\n" if table.caption else ""
    inner = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    return f'<figure>\n{caption}<div class="wide">\n{inner}\n</div>\n</figure>'


def _html_cell(cell: Cell) -> str:
    details = "".join(f"<small>{html.escape(line)}</small>" for line in cell.details)
    kind = f' class="{cell.mark}"' if cell.mark else ""
    return f"<td{kind}>{MARKS[cell.mark]}{html.escape(cell.text)}{details}</td>"
