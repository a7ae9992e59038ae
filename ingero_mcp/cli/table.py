"""Rows as a table that fits a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from ingero_mcp.cells import text

WIDTH = 80
_GAP = "  "
_LEAST = 6


def render(columns: Sequence[str], rows: Sequence[Sequence[object]], width: int = WIDTH) -> str:
    """Left-aligned columns under their names; where the line would be too long the widest columns are cut.

    More columns than a line can hold are shown one below the other, those without a value left out.
    """
    if len(columns) * (_LEAST + len(_GAP)) > width:
        return "\n\n".join(_record(columns, row, number) for number, row in enumerate(rows, start=1))
    lines = [[text(name) for name in columns], *([text(cell) for cell in row] for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    spare = width - len(_GAP) * (len(columns) - 1)
    while sum(widths) > spare and max(widths) > _LEAST:
        widths[widths.index(max(widths))] -= 1
    return "\n".join(_line(line, widths) for line in [lines[0], ["-" * size for size in widths], *lines[1:]])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    fitted = [
        (cell if len(cell) <= size else cell[: size - 1] + "…").ljust(size)
        for cell, size in zip(cells, widths, strict=True)
    ]
    return _GAP.join(fitted).rstrip()


def _record(columns: Sequence[str], row: Sequence[object], number: int) -> str:
    held = [(text(name), text(cell)) for name, cell in zip(columns, row, strict=True) if cell is not None]
    widest = max((len(name) for name, _ in held), default=0)
    return "\n".join([f"-- row {number}", *(f"{name.ljust(widest)}{_GAP}{cell}" for name, cell in held)])
