"""Panels in rows and columns with words around them; rows come in blocks, a block for each scene."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from viewslots.figures.layout import SMALL, SOFT, TEXT, Label, Panel, Pixels, Sheet, fitting, text_width, whole_zoom

MARGIN, GAP, BLOCK_GAP = 24, 8, 44
LINE_HEIGHT = 40
CAPTION_HEIGHT = 34


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


def grid(title: str, columns: Sequence[str], blocks: Sequence[Block], zoom: int | None = None) -> Sheet:
    """Columns under their names, blocks below one another, row labels at the left."""
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
    count = max(len(row.cells) for block in blocks for row in block.rows)
    right = max(measures.column(count) - GAP, max((_right_end(label) for label in labels), default=0))
    return Sheet(right + MARGIN, top - BLOCK_GAP + MARGIN, tuple(panels), tuple(labels), title)


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
