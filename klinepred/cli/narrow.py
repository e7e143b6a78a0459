"""In: a table's cells, the width of a terminal. Out: how its columns go in, or its rows one below another."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len

LEAST_TEXT: Final = 12
LONGEST_WORD: Final = 24
"""A column of text is folded to no fewer letters than the first, or its longest word up to the second; numbers, stamps
and the first column are never cut."""
INDENT: Final = "  "

Rows = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Layout:
    """How a table goes into a width.

    Attributes
    ----------
    columns, widths
        Numbers of the columns that are shown side by side, and their letters.
    gap
        Blanks between two.
    alike
        What is the same in all rows and said once, as "name value".
    """

    columns: list[int]
    widths: list[int]
    gap: int
    alike: list[str]


def layout(headers: Sequence[str], rows: Rows, *, text: Sequence[bool], width: int | None) -> Layout | None:
    """The widest form that fits `width` (None = any): headers broken between words, text folded; columns with one value
    said once; None where not even that fits.

    Parameters
    ----------
    text
        Which columns may be folded.
    """
    cells = [[row[number] for row in rows] for number in range(len(headers))]
    natural = [max(map(cell_len, (header, *column))) for header, column in zip(headers, cells, strict=True)]
    everything = list(range(len(headers)))
    if width is None:
        return Layout(everything, natural, 2, [])
    least = [
        min(full, _least(column)) if folds else max(map(cell_len, (*_words(header), *column)))
        for header, column, full, folds in zip(headers, cells, natural, text, strict=True)
    ]
    varied = [number for number in everything if number == 0 or len(rows) < 2 or len(set(cells[number])) > 1]
    alike = [f"{headers[number]} {cells[number][0]}" for number in everything if number not in varied]
    for columns, gap, said in ((everything, 2, []), (varied, 2, alike), (varied, 1, alike)):
        spare = width - gap * (len(columns) - 1) - sum(least[number] for number in columns)
        if spare < 0:
            continue
        widths = []
        for number in columns:
            more = min(spare, natural[number] - least[number])
            widths.append(least[number] + more)
            spare -= more
        return Layout(columns, widths, gap, said)
    return None


def wrapped(header: str, width: int) -> str:
    """A header in lines of at most `width` letters, broken between words and after hyphens and underscores."""
    lines = [""]
    for word in _words(header):
        if lines[-1] and cell_len(lines[-1] + word) > width:
            lines.append("")
        lines[-1] += word if lines[-1] else word.lstrip()
    return "\n".join(lines)


def stacked(headers: Sequence[str], rows: Rows, *, width: int) -> list[str]:
    """Each row as a line with its first cell, and below it every other cell after its column's name."""
    lines: list[str] = []
    for row in rows:
        lines += [row[0], *flowing([f"{name} {cell}" for name, cell in zip(headers[1:], row[1:], strict=True)], width)]
    return lines


def flowing(parts: Sequence[str], width: int) -> list[str]:
    """As many parts a line as fit, indented; only one that is longer than a line is broken, between its words."""
    lines: list[str] = []
    for part in parts:
        if lines and cell_len(lines[-1] + INDENT + part) <= width:
            lines[-1] += INDENT + part
        else:
            lines += textwrap.wrap(part, width, initial_indent=INDENT, subsequent_indent=INDENT * 2) or [""]
    return lines


def _least(column: Sequence[str]) -> int:
    words = (cell_len(word) for cell in column for word in cell.split())
    return max(LEAST_TEXT, min(LONGEST_WORD, max(words, default=0)))


def _words(header: str) -> list[str]:
    return re.findall(r" ?[^ _-]*[_-]*", header)[:-1] or [""]
