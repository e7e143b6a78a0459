"""In: a text file whose separator and columns are known. Out: the columns that are needed, and lines set aside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl
from polars.exceptions import PanicException, PolarsError

from klinepred.bars.sources.fields import NO_LINES, counts_fit, set_aside
from klinepred.bars.sources.member import Member
from klinepred.bars.sources.panics import unsaid
from klinepred.bars.sources.room import Room
from klinepred.errors import SourceError

HEAD_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class Shape:
    """How a text file is laid out: its columns in order, what parts them, how many lines come before the rows."""

    names: tuple[str, ...]
    separator: str
    skip: int


@dataclass(frozen=True)
class Table:
    """Columns of a text file; `odd`, the lines with another number of fields: `line` (from 1), `text`, `fields`."""

    frame: pl.DataFrame
    odd: pl.DataFrame


def read_table(
    path: Path, member: Member, room: Room, *, shape: Shape, used: Sequence[str], numbers: Sequence[str]
) -> Table:
    """The columns `used`; `numbers` as Float64 if they are plain ones, else as text.

    polars fills a line that is too short with nulls, and cuts one that is too long where not all columns are asked
    for. Both would let values slip into the wrong column, so the separators are counted, and the last column is read
    whether needed or not: it is empty where a line is too short. Only files in which something does not fit are gone
    through line by line.

    Raises
    ------
    SourceError
        More than a few lines have another number of fields than there are columns.
    """
    last = shape.names[-1]
    wanted = tuple(used) if last in used else (*used, last)
    with path.open("rb") as file:
        quoted = b'"' in file.read(HEAD_BYTES)
    frame, error = _read(path, shape, wanted, numbers, quoted=quoted)
    width = len(shape.names)
    if frame is not None and not frame.get_column(last).has_nulls():
        fits = counts_fit(path, shape.separator, width=width, skip=shape.skip)
        if fits or (quoted and _is_whole(path, shape)):
            return Table(frame.select(used), NO_LINES)
    settled = set_aside(path, member, room, separator=shape.separator, width=width, skip=shape.skip)
    if settled.path != path:
        left = Shape(shape.names, shape.separator, 0)
        frame, error = _read(settled.path, left, wanted, numbers, quoted=quoted)
    if frame is None:
        raise SourceError(
            member.where,
            expected=f"rows of {width} fields",
            got=str(error).splitlines()[0][:200],
            do="mend or remove the lines that differ",
        ) from error
    return Table(frame.select(used), settled.odd)


def _read(
    path: Path, shape: Shape, wanted: Sequence[str], numbers: Sequence[str], *, quoted: bool
) -> tuple[pl.DataFrame | None, BaseException | None]:
    if not quoted:  # a stray quote in a column of numbers makes polars panic
        try:
            return _columns(path, shape, wanted, numbers), None
        except (PolarsError, PanicException):  # thousands commas, words for nothing: read as text
            pass
    try:
        return _columns(path, shape, wanted, ()), None
    except (PolarsError, PanicException) as error:
        return None, error


def _columns(path: Path, shape: Shape, wanted: Sequence[str], numbers: Sequence[str]) -> pl.DataFrame:
    with unsaid():
        return _read_csv(path, shape, wanted, numbers)


def _read_csv(path: Path, shape: Shape, wanted: Sequence[str], numbers: Sequence[str]) -> pl.DataFrame:
    # By their places: two columns of one name would make the schema shorter than the lines, and shift all after them.
    return pl.read_csv(
        path,
        glob=False,
        has_header=False,
        schema={str(spot): (pl.Float64() if name in numbers else pl.String()) for spot, name in enumerate(shape.names)},
        columns=[shape.names.index(name) for name in wanted],
        separator=shape.separator,
        skip_lines=shape.skip,
    ).select(pl.col(str(shape.names.index(name))).alias(name) for name in wanted)


def _is_whole(path: Path, shape: Shape) -> bool:
    """Whether polars reads every column of every row, none too long and none too short; knows quoted separators."""
    try:
        frame = _columns(path, shape, shape.names, ())
    except (PolarsError, PanicException):
        return False
    return not frame.get_column(shape.names[-1]).has_nulls()
