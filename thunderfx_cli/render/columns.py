"""Aligned columns of plain text: ``rich.table`` takes half a second for 2,000 rows."""

from __future__ import annotations

from collections.abc import Sequence

GAP = "  "


def cell_width(text: str) -> int:
    """Columns of a terminal that ``text`` takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def aligned(rows: Sequence[Sequence[str]], *, right: frozenset[int] = frozenset()) -> list[str]:
    """Each row as one line, its cells padded to their column's width, those of the columns ``right`` on the left."""
    widths = [max(map(cell_width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = []
        for number, (cell, width) in enumerate(zip(row, widths, strict=True)):
            pad = " " * (width - cell_width(cell))
            cells.append(pad + cell if number in right else cell + pad)
        lines.append(GAP.join(cells).rstrip())
    return lines


def shortened(text: str, width: int) -> str:
    """The end of ``text`` where it is wider than ``width``: the end of a path says most."""
    if cell_width(text) <= width:
        return text
    kept = text[-max(1, width - 1) :]
    while cell_width(kept) > max(1, width - 1):
        kept = kept[1:]
    return f"…{kept}"
