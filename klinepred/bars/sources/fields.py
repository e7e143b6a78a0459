"""In: lines of a text file. Out: those that have as many fields as the header, and those that have not, set aside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from polars.exceptions import PolarsError

from klinepred.bars.clean import REJECT_SCHEMA
from klinepred.bars.sources.member import Member
from klinepred.bars.sources.room import CHUNK, Room
from klinepred.errors import SourceError

FEW: Final = 0.01
"""Share of lines with another number of fields up to which they are set aside; beyond it the file is refused."""
NEVER: Final = ("\x1f", "\x1e", "\x01")
"""Signs that text does not have; one of them stands in for the separator where whole lines are read."""
ODD_SCHEMA: Final = pl.Schema({"line": pl.Int64(), "text": pl.String(), "fields": pl.Int64()})
NO_LINES: Final = pl.DataFrame(schema=ODD_SCHEMA)


@dataclass(frozen=True)
class Settled:
    """A copy of the lines that have the right number of fields, and the others: `line` (from 1), `text`, `fields`.

    The copy is the file itself where all its lines are right.
    """

    path: Path
    odd: pl.DataFrame


def counts_fit(path: Path, separator: str, *, width: int, skip: int) -> bool:
    """Whether below the first `skip` lines there are as many separators as lines of `width` fields have.

    One line with a field too many and another with one too few pass: the caller sees the latter by its empty end.
    """
    mark, signs, lines, last = ord(separator), 0, 0, 10
    with path.open("rb") as file:
        for _ in range(skip):
            file.readline()
        while chunk := file.read(CHUNK):
            block = np.frombuffer(chunk, np.uint8)
            signs += int(np.count_nonzero(block == mark))
            lines += int(np.count_nonzero(block == 10))
            last = chunk[-1]
    return signs == (lines + (last != 10)) * (width - 1)


def set_aside(path: Path, member: Member, room: Room, *, separator: str, width: int, skip: int) -> Settled:
    """Keep the lines of `width` fields, pass over blank ones, set a few others aside.

    Raises
    ------
    SourceError
        More than `FEW` of the lines have another number of fields (one cut off at the very end is always set aside),
        or fields run over several lines.
    """
    wrong = f"rows of {width} fields, as many as the header names"
    stand_in = _stand_in(path)
    try:
        every = _lines(path, skip, stand_in)
        lines = every.filter(pl.col("text").str.strip_chars().fill_null("") != "")
        outside = pl.col("text").str.replace_all(r'"[^"]*"', "")
        counted = lines.with_columns(
            fields=(outside.str.count_matches(separator, literal=True) + 1).cast(pl.Int64),
            torn=outside.str.contains('"', literal=True),
        )
        odd = counted.filter((pl.col("fields") != width) | pl.col("torn")).collect(engine="streaming")
        total, all_lines = (frame.select(pl.len()).collect(engine="streaming").item() for frame in (lines, every))
    except PolarsError as error:
        raise SourceError(
            member.where,
            expected=wrong,
            got=str(error).splitlines()[0][:200],
            do="mend or remove the lines that differ",
        ) from error
    torn = bool(odd.get_column("torn").any())
    if torn or (odd.height > FEW * total and not _is_cut_off(path, odd, total, width)):
        first = odd.row(0, named=True)
        what = "a quote that does not end there" if torn else f"{first['fields']} fields"
        raise SourceError(
            member.where,
            expected=wrong,
            got=f"{odd.height:,} of {total:,} that are not, first line {first['line']}: {what}",
            do="mend or remove the lines that differ",
        )
    odd = odd.select(ODD_SCHEMA.names()).cast(ODD_SCHEMA)
    if odd.is_empty() and total == all_lines:
        return Settled(path, odd)
    copy = room.path()
    good = lines.join(odd.lazy().select("line"), on="line", how="anti", maintain_order="left").select("text")
    good.sink_csv(copy, include_header=False, quote_style="never", separator=stand_in)
    return Settled(copy, odd)


def tell(odd: pl.DataFrame, member: Member) -> tuple[str, ...]:
    """A line for the user about the lines set aside."""
    if odd.is_empty():
        return ()
    spots = ", ".join(map(str, odd.get_column("line").head(5)))
    more = f" and {odd.height - 5:,} more" if odd.height > 5 else ""
    return (f"{member.label}: {odd.height:,} lines with another number of fields set aside: {spots}{more}",)


def to_rejects(
    odd: pl.DataFrame, *, width: int, separator: str, spot: int | None, known: pl.Series | None
) -> pl.DataFrame:
    """Lines set aside, for the quarantine; their symbol only where it is one that other lines have.

    Returns
    -------
    polars.DataFrame
        `REJECT_SCHEMA`; nothing but symbol and reason is filled in, for no field is sure to be what its place says.
    """
    symbol = pl.lit(None, pl.String)
    if spot is not None and known is not None:
        there = pl.col("text").str.split(separator).list.get(spot, null_on_oob=True).str.strip_chars(' "')
        symbol = pl.when(there.is_in(known.unique().drop_nulls().to_list())).then(there)
    reason = pl.format("a row of {} fields, the header names {}", "fields", pl.lit(width))
    made = odd.select(symbol.alias("symbol"), reason.alias("reason"))
    return made.select(
        *(pl.col(n) if n in made.columns else pl.lit(None, t).alias(n) for n, t in REJECT_SCHEMA.items())
    )


def _lines(path: Path, skip: int, stand_in: str) -> pl.LazyFrame:
    return pl.scan_csv(
        path,
        has_header=False,
        schema={"text": pl.String()},
        separator=stand_in,
        quote_char=None,
        skip_lines=skip,
        row_index_name="line",
        row_index_offset=skip + 1,
        glob=False,
    ).with_columns(pl.col("line").cast(pl.Int64))


def _stand_in(path: Path) -> str:
    with path.open("rb") as file:
        seen = {sign for chunk in iter(lambda: file.read(CHUNK), b"") for sign in NEVER if sign.encode() in chunk}
    return next((sign for sign in NEVER if sign not in seen), NEVER[0])


def _is_cut_off(path: Path, odd: pl.DataFrame, total: int, width: int) -> bool:
    """Whether the one odd line is the last one, too short, and without an end."""
    if odd.height != 1 or total < 2 or odd.row(0, named=True)["fields"] >= width:
        return False
    with path.open("rb") as file:
        file.seek(-1, 2)
        ends = file.read(1) == b"\n"
        file.seek(0)
        last = sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(CHUNK), b"")) + 1
    return not ends and odd.row(0, named=True)["line"] == last
