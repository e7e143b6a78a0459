"""In: a text file with separators (comma, semicolon, tab, pipe). Out: its rows with the columns that bars need."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import polars as pl

from klinepred.bars.sources.columns import Layout, find_layout, plain
from klinepred.bars.sources.encoding import to_utf8
from klinepred.bars.sources.fields import tell, to_rejects
from klinepred.bars.sources.member import Member
from klinepred.bars.sources.numbers import read_numbers
from klinepred.bars.sources.preamble import Opening, read_opening
from klinepred.bars.sources.room import Room
from klinepred.bars.sources.table import Shape, read_table
from klinepred.errors import SourceError
from klinepred.spreadsheet import unguarded

NUMBER: Final = re.compile(r"[-+]?(\d[\d.,'’\u00a0\u202f ]*)?\d([eE][-+]?\d+)?", re.ASCII)
TIME: Final = re.compile(r"\d{1,2}:\d{1,2}(:\d{1,2})?", re.ASCII)
TWO_LEVEL: Final = ("price", "ticker", "")
FORMS: Final = {",": "CSV", ";": "semicolon-separated text", "\t": "tab-separated text", "|": "text separated by |"}


@dataclass(frozen=True)
class Rows:
    """Rows of a file: text where text is, Float64 where numbers are; their layout; lines for the user.

    Attributes
    ----------
    zone
        IANA zone of the stamps where the file itself says it.
    rejects
        `REJECT_SCHEMA`: lines that are no rows; their symbol is null where they do not show it.
    names, first
        The header as written (empty = none) and the first rows as text: what tells the vendor.
    form
        What kind of file it was, in words.
    """

    frame: pl.DataFrame
    layout: Layout
    remarks: tuple[str, ...]
    zone: str | None = None
    rejects: pl.DataFrame | None = None
    names: tuple[str, ...] = ()
    first: tuple[tuple[str, ...], ...] = ()
    form: str = ""


def read_delimited(data: Path, member: Member, room: Room) -> Rows:
    """Read a CSV-like file whose separator, header and number style are found out from its first lines.

    Parameters
    ----------
    data
        Where its bytes are.
    member
        How messages call it.
    room
        Takes a copy of it where it must be written in another way before it can be read.

    Raises
    ------
    SourceError
        The file is empty, no text, without the needed columns, or has rows of another length than its header.
    """
    text = to_utf8(data, member, room)
    opening = read_opening(text.path, member)
    table = [row for row in csv.reader(opening.lines, delimiter=opening.separator) if row]
    rows = _read(_Spot(text.path, member, room), table, opening)
    return replace(rows, remarks=(*text.remarks, *opening.remarks, *rows.remarks), form=FORMS[opening.separator])


@dataclass(frozen=True)
class _Spot:
    """Where a text lies, how messages call it, room for copies."""

    path: Path
    member: Member
    room: Room


def _read(spot: _Spot, table: Sequence[Sequence[str]], opening: Opening) -> Rows:
    member, separator = spot.member, opening.separator
    if len(table[0]) < 3:
        raise SourceError(
            member.where,
            expected="columns separated by comma, semicolon, tab or |",
            got=f"a first line of {len(table[0])} columns: {opening.lines[0][:80]!r}",
            do="export the bars as CSV with a header",
        )
    if len(table) > 2 and table[0][0].strip().lower() in TWO_LEVEL and table[1][0].strip().lower() in TWO_LEVEL:
        return _two_level(spot, table, opening)
    if _is_data(table[0]):
        return _headless(spot, table, opening)
    names, remarks = _match(member, [_unquote(name) for name in table[0]], table[1:])
    sample = {name: [row[spot] for row in table[1:50] if spot < len(row)] for spot, name in enumerate(names)}
    layout = find_layout(names, where=member.where, sample=sample)
    shape = Shape(tuple(names), separator, opening.skip + 1)
    return replace(_rows(spot, shape, layout, tuple(remarks)), names=tuple(names), first=_first(table[1:]))


def _first(table: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """The first rows of the usual number of fields."""
    widths = [len(row) for row in table[:50]]
    return tuple(tuple(row) for row in table[:50] if len(row) == max(widths, key=widths.count))


def _rows(spot: _Spot, shape: Shape, layout: Layout, remarks: tuple[str, ...]) -> Rows:
    """The rows of one table, and the lines set aside."""
    read = read_table(spot.path, spot.member, spot.room, shape=shape, used=layout.used, numbers=layout.numbers)
    frame = read_numbers(read.frame, layout.numbers, prices=layout.numbers[:4], where=spot.member.where)
    rejects = to_rejects(
        read.odd,
        width=len(shape.names),
        separator=shape.separator,
        spot=None if layout.symbol is None else shape.names.index(layout.symbol),
        known=None if layout.symbol is None else frame.get_column(layout.symbol),
    )
    if layout.symbol is not None:  # an apostrophe that marks text for a spreadsheet is no part of a symbol
        frame = frame.with_columns(unguarded(frame.get_column(layout.symbol)))
        rejects = rejects.with_columns(unguarded(rejects.get_column("symbol")))
    return Rows(frame, layout, (*remarks, *tell(read.odd, spot.member)), rejects=rejects)


def _is_data(first: Sequence[str]) -> bool:
    """Whether the first line holds values rather than names."""
    values = [text.strip() for text in first[1:] if text.strip()]
    numbers = sum(bool(NUMBER.fullmatch(text)) or bool(TIME.fullmatch(text)) for text in values)
    return bool(values) and numbers >= 4 and numbers * 2 > len(values)


def _unquote(name: str) -> str:
    return name.strip().strip('"').strip()


def _match(member: Member, names: list[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[str]]:
    """Names for as many columns as the rows have; a day and a time under one name are told apart."""
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    if not rows:
        raise SourceError(member.where, expected="rows below the header", got="none", do="check the download or export")
    widths = [len(row) for row in rows]
    usual = width = max(dict.fromkeys(widths), key=widths.count)
    while width > len(unique) and not any(len(row) >= width and row[width - 1].strip() for row in rows):
        width -= 1  # a separator at the end of every line
    if width <= len(unique):
        return [*unique, *(f"(empty {spot})" for spot in range(len(unique), usual))], []
    day = next((spot for spot, name in enumerate(unique) if plain(name) in ("date", "datetime")), None)
    if width == len(unique) + 1 and day is not None and TIME.fullmatch(rows[widths.index(usual)][day + 1].strip()):
        return (
            [*unique[: day + 1], "Time", *unique[day + 1 :]],
            [f"{member.label}: the header has {len(unique)} names, the rows {width} fields: day and time read apart"],
        )
    raise SourceError(
        member.where,
        expected=f"rows of {len(unique)} fields, as many as the header names",
        got=f"rows of {width} fields",
        do="mend the header so that every column has its name",
    )


def _headless(spot: _Spot, table: Sequence[Sequence[str]], opening: Opening) -> Rows:
    member = spot.member
    apart = bool(TIME.fullmatch(table[0][1].strip()))
    head = ["date", "time"] if apart else ["timestamp"]
    names = [*head, "open", "high", "low", "close", "volume"]
    if len(table[0]) < len(names):
        raise SourceError(
            f"{member.where}: no header",
            expected=f"at least {len(names)} fields: {', '.join(names)}",
            got=f"{len(table[0])} fields: {', '.join(table[0])[:80]}",
            do="add a header line that names the columns",
        )
    names += [f"field {spot + 1}" for spot in range(len(names), len(table[0]))]
    layout = find_layout(
        names,
        where=member.where,
        sample={name: [row[i] for row in table[:50] if i < len(row)] for i, name in enumerate(names)},
    )
    line = f"{member.label}: no header, read as {', '.join(names[: len(head) + 5])}"
    rows = _rows(spot, Shape(tuple(names), opening.separator, opening.skip), layout, (line,))
    wrong = rows.frame.select(((pl.col("high") < pl.col("low")) | (pl.col("high") < pl.col("close"))).mean()).item()
    if (wrong or 0.0) > 0.1:
        raise SourceError(
            f"{member.where}: no header",
            expected=f"fields in the order {', '.join(names[: len(head) + 5])}",
            got=f"{wrong:.0%} of the rows with a high below low or close",
            do="add a header line that names the columns",
        )
    return replace(rows, first=_first(table))


def _two_level(spot: _Spot, table: Sequence[Sequence[str]], opening: Opening) -> Rows:
    """The header that pandas writes for a yfinance frame: field and ticker in two lines, the index name in a third."""
    member, first, second = spot.member, table[0], table[1]
    fields, tickers = (first, second) if "ticker" in second[0].strip().lower() else (second, first)
    if len(first) != len(second):
        raise SourceError(
            f"{member.where}: two header levels",
            expected="as many tickers as fields",
            got=f"{len(first)} and {len(second)}",
            do="save one symbol per file, or with a symbol column",
        )
    third = table[2]
    skip = 3 if not any(text.strip() for text in third[1:]) else 2
    pairs = [(field.strip(), ticker.strip()) for field, ticker in zip(fields[1:], tickers[1:], strict=True)]
    names = ["datetime", *(f"{field}|{ticker}" for field, ticker in pairs)]
    symbols = list(dict.fromkeys(ticker for _, ticker in pairs if ticker))
    layouts = {}
    for symbol in symbols:
        own = [field for field, ticker in pairs if ticker == symbol]
        layouts[symbol] = find_layout(["datetime", *own], where=f"{member.where} ({symbol})", sample={})
    _same_for_all({symbol: [plain(name) for name in layout.numbers] for symbol, layout in layouts.items()}, member)
    numbers = [f"{name}|{symbol}" for symbol, layout in layouts.items() for name in layout.numbers]
    shape = Shape(tuple(names), opening.separator, opening.skip + skip)
    read = read_table(spot.path, member, spot.room, shape=shape, used=["datetime", *numbers], numbers=numbers)
    wide = read_numbers(
        read.frame,
        numbers,
        prices=[name for name in numbers if plain(name.split("|")[0]) == "close"],
        where=member.where,
    )
    parts = [
        wide.select(
            "datetime",
            pl.lit(symbol).alias("symbol"),
            *(pl.col(f"{name}|{symbol}").alias(plain(name)) for name in layout.numbers),
        )
        for symbol, layout in layouts.items()
    ]
    frame = pl.concat(parts)
    layout = find_layout(frame.columns, where=member.where, sample={})
    line = f"{member.label}: two-level yfinance header of {', '.join(symbols[:5])}"
    rejects = to_rejects(read.odd, width=len(names), separator=opening.separator, spot=None, known=None)
    lines = (line, *tell(read.odd, member))
    return Rows(frame, layout, lines, rejects=rejects, names=tuple(first), first=_first(table[skip:]))


def _same_for_all(fields: Mapping[str, Sequence[str]], member: Member) -> None:
    """SourceError unless all tickers have the same fields: pandas writes no others."""
    first = next(iter(fields), "")
    other = next((ticker for ticker, own in fields.items() if own != fields[first]), None)
    if not fields or other is not None:
        got = "no ticker"
        if other is not None:
            apart = [
                (one, [name for name in fields[one] if name not in fields[two]])
                for one, two in ((first, other), (other, first))
            ]
            got = ", ".join(f"{', '.join(names) or 'nothing more'} of {ticker}" for ticker, names in apart)
        raise SourceError(
            f"{member.where}: two header levels",
            expected="the same fields for all tickers",
            got=got,
            do="save one symbol per file, or with a symbol column",
        )
