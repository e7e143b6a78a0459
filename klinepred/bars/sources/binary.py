"""In: a Parquet or Arrow file. Out: its rows with the columns that bars need, in plain types."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

import polars as pl
import psutil
from polars.exceptions import PanicException, PolarsError

from klinepred.bars.sources.columns import find_layout
from klinepred.bars.sources.delimited import Rows
from klinepred.bars.sources.member import Member
from klinepred.bars.sources.numbers import read_numbers
from klinepred.bars.sources.panics import unsaid
from klinepred.bars.sources.symbols import decoded, to_text
from klinepred.errors import SourceError

STREAM: Final = b"\xff\xff\xff\xff"
"""First bytes of an Arrow stream, which has no end table as an Arrow file has."""
STREAM_END: Final = STREAM + bytes(4)
SAMPLE: Final = 50
BAR_BYTES: Final = 48
"""Memory of a row while it is read, at least: stamp, prices and volume."""


def read_binary(data: Path, member: Member, kind: Literal["Parquet", "Arrow"], *, head: bytes) -> Rows:
    """Read a Parquet file, an Arrow file (Feather version 2) or an Arrow stream.

    Raises
    ------
    SourceError
        The file is damaged or not of its kind, or has more rows than memory holds; a column that bars need is nested,
        or holds no numbers.
    """
    try:
        with unsaid():
            scan = _scan(data, kind, head)
            schema = scan.collect_schema()
            if kind == "Parquet":
                _fits(scan.select(pl.len()).collect().item(), member)  # known from the end of the file
            sample = scan.head(SAMPLE).collect()
            texts = {name: _texts(sample.get_column(name)) for name in schema.names()}
            layout = find_layout(schema.names(), where=member.where, sample=texts)
            nested = [name for name in layout.used if schema[name].is_nested()]
            if not nested:
                frame = scan.select(layout.used).collect()
    except (PolarsError, PanicException, OSError) as error:
        raise SourceError(
            member.where,
            expected=f"a whole {kind} file",
            got=str(error).splitlines()[0][:200],
            do="download or export it again: it is damaged or not of this kind",
        ) from error
    if nested:
        raise SourceError(
            member.where,
            expected="plain columns for stamp, symbol, prices and volume",
            got=", ".join(f"{name!r} of {schema[name]}"[:80] for name in nested),
            do="write each of them as a column of its own, one row a bar",
        )
    frame = frame.with_columns(_plain(frame.get_column(name), member) for name in layout.used)
    wrong = [name for name in layout.numbers if not _may_be_numbers(frame.schema[name])]
    if wrong:
        raise SourceError(
            member.where,
            expected=f"numbers in {', '.join(layout.numbers)}",
            got=", ".join(f"{name!r} of {frame.schema[name]}" for name in wrong),
            do="store prices and volume as numbers",
        )
    lines: tuple[str, ...] = ()
    if layout.symbol is not None:
        symbols, lines = to_text(frame.get_column(layout.symbol), member)
        frame = frame.with_columns(symbols)
    frame = read_numbers(frame, layout.numbers, prices=layout.numbers[:4], where=member.where)
    first = tuple(zip(*texts.values(), strict=True))
    return Rows(frame, layout, lines, names=tuple(schema.names()), first=first, form=kind)


def _scan(data: Path, kind: Literal["Parquet", "Arrow"], head: bytes) -> pl.LazyFrame:
    if kind == "Parquet":
        return pl.scan_parquet(data, glob=False, hive_partitioning=False)
    if head.startswith(STREAM):
        with data.open("rb") as file:
            file.seek(-min(len(STREAM_END), file.seek(0, 2)), 2)
            if file.read() != STREAM_END:  # polars takes a stream cut off between two batches for a whole one
                raise OSError("a stream without its end mark")
        return pl.read_ipc_stream(data).lazy()
    return pl.scan_ipc(data, glob=False, hive_partitioning=False)


def _fits(rows: int, member: Member) -> None:
    """Refuse a few bytes that say a number some billion times."""
    free = psutil.virtual_memory().available
    if rows * BAR_BYTES > free:
        raise SourceError(
            member.where,
            expected=f"rows that fit into memory, at most {free // BAR_BYTES:,} now",
            got=f"{rows:,} rows",
            do="split it into smaller files, by year or by symbol, and ingest them one after the other",
        )


def _texts(column: pl.Series) -> list[str]:
    """Values as text, by polars: Python has no dates of the years that a damaged file may hold."""
    if column.dtype.is_nested() or column.dtype in (pl.Object, pl.Binary):
        return [""] * len(column)
    return [text or "" for text in column.cast(pl.String, strict=False)]


def _plain(column: pl.Series, member: Member) -> pl.Series:
    """Text that is kept as categories or bytes becomes text."""
    if column.dtype in (pl.Categorical, pl.Enum):
        return column.cast(pl.String)
    return decoded(column, member) if column.dtype == pl.Binary else column


def _may_be_numbers(kind: pl.DataType) -> bool:
    return kind.is_numeric() or kind in (pl.String, pl.Null)
