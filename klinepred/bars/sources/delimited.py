"""In: a text file with separators (comma, semicolon, tab, pipe). Out: its rows with the columns that bars need."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl
from polars.exceptions import PanicException, PolarsError

from klinepred.bars.sources.columns import Layout, find_layout, plain
from klinepred.bars.sources.member import Member
from klinepred.bars.sources.numbers import read_numbers
from klinepred.bars.sources.room import Room
from klinepred.errors import SourceError

HEAD_BYTES: Final = 1 << 16
NUMBER: Final = re.compile(r"[-+]?(\d[\d.,' ]*)?\d([eE][-+]?\d+)?")
TIME: Final = re.compile(r"\d{1,2}:\d{1,2}(:\d{1,2})?")
TWO_LEVEL: Final = ("price", "ticker", "")


@dataclass(frozen=True)
class Rows:
    """Rows of a file: text where text is, Float64 where numbers are; their layout; lines for the user."""

    frame: pl.DataFrame
    layout: Layout
    remarks: tuple[str, ...]


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
    lines = _head(data, member)
    del room
    separator = max(",;\t|", key=lambda sign: (lines[0].count(sign), sign == ","))
    table = [row for row in csv.reader(lines, delimiter=separator) if row]
    if len(table[0]) < 3:
        raise SourceError(
            member.where,
            expected="columns separated by comma, semicolon, tab or |",
            got=f"a first line of {len(table[0])} columns: {lines[0][:80]!r}",
            do="export the bars as CSV with a header",
        )
    if len(table) > 2 and table[0][0].strip().lower() in TWO_LEVEL and table[1][0].strip().lower() in TWO_LEVEL:
        return _two_level(data, member, table, separator)
    if _is_data(table[0]):
        return _headless(data, member, table, separator)
    names, remarks = _match(member, [_unquote(name) for name in table[0]], table[1:])
    sample = {name: [row[spot] for row in table[1:50] if spot < len(row)] for spot, name in enumerate(names)}
    layout = find_layout(names, where=member.where, sample=sample)
    frame = _read(data, member, names, layout.used, layout.numbers, separator=separator, skip=1)
    frame = read_numbers(frame, layout.numbers, prices=layout.numbers[:4], where=member.where)
    return Rows(frame, layout, tuple(remarks))


def _head(path: Path, member: Member) -> list[str]:
    with path.open("rb") as file:
        raw = file.read(HEAD_BYTES)
        cut = bool(file.read(1))
    if not raw.strip():
        raise SourceError(member.where, expected="rows of bars", got="an empty file", do="check the download or export")
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\x00" in raw:
        raise SourceError(
            member.where,
            expected="text in UTF-8, Parquet, or Arrow",
            got="UTF-16 text" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "bytes that are none of these",
            do="save the file as CSV in UTF-8",
        )
    if b"\r" in raw and b"\n" not in raw:
        raise SourceError(
            member.where,
            expected="lines that end in LF or CRLF",
            got="lines that end in CR alone",
            do="save the file with the line ends of Windows or Unix",
        )
    whole = raw[: raw.rfind(b"\n") + 1] if cut and b"\n" in raw else raw
    try:
        text = whole.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SourceError(
            member.where,
            expected="text in UTF-8",
            got=f"another encoding (byte {error.start})",
            do="save the file as CSV in UTF-8",
        ) from error
    return [line for line in text.splitlines() if line.strip()]


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
    width = len(rows[0])
    while width > len(unique) and not any(len(row) >= width and row[width - 1].strip() for row in rows):
        width -= 1  # a separator at the end of every line
    if width <= len(unique):
        return unique, []
    day = next((spot for spot, name in enumerate(unique) if plain(name) in ("date", "datetime")), None)
    if width == len(unique) + 1 and day is not None and TIME.fullmatch(rows[0][day + 1].strip()):
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


def _headless(data: Path, member: Member, table: Sequence[Sequence[str]], separator: str) -> Rows:
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
    frame = _read(data, member, names, layout.used, layout.numbers, separator=separator, skip=0)
    frame = read_numbers(frame, layout.numbers, prices=layout.numbers[:4], where=member.where)
    wrong = frame.select(((pl.col("high") < pl.col("low")) | (pl.col("high") < pl.col("close"))).mean()).item()
    if (wrong or 0.0) > 0.1:
        raise SourceError(
            f"{member.where}: no header",
            expected=f"fields in the order {', '.join(names[: len(head) + 5])}",
            got=f"{wrong:.0%} of the rows with a high below low or close",
            do="add a header line that names the columns",
        )
    return Rows(frame, layout, (f"{member.label}: no header, read as {', '.join(names[: len(head) + 5])}",))


def _two_level(data: Path, member: Member, table: Sequence[Sequence[str]], separator: str) -> Rows:
    """The header that pandas writes for a yfinance frame: field and ticker in two lines, the index name in a third."""
    first, second = table[0], table[1]
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
    names = [
        "datetime",
        *(f"{field.strip()}|{ticker.strip()}" for field, ticker in zip(fields[1:], tickers[1:], strict=True)),
    ]
    symbols = list(dict.fromkeys(ticker.strip() for ticker in tickers[1:] if ticker.strip()))
    layouts = {}
    for symbol in symbols:
        own = [name.partition("|")[0] for name in names[1:] if name.endswith(f"|{symbol}")]
        layouts[symbol] = find_layout(["datetime", *own], where=f"{member.where} ({symbol})", sample={})
    numbers = [f"{name}|{symbol}" for symbol, layout in layouts.items() for name in layout.numbers]
    wide = _read(data, member, names, ["datetime", *numbers], numbers, separator=separator, skip=skip)
    wide = read_numbers(
        wide, numbers, prices=[name for name in numbers if plain(name.split("|")[0]) == "close"], where=member.where
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
    return Rows(frame, layout, (f"{member.label}: two-level yfinance header of {', '.join(symbols[:5])}",))


def _read(
    path: Path,
    member: Member,
    names: Sequence[str],
    used: Sequence[str],
    numbers: Sequence[str],
    *,
    separator: str,
    skip: int,
) -> pl.DataFrame:
    """The columns `used`; `numbers` as Float64 if they are plain ones, else as text."""

    def read(dtype: pl.DataType) -> pl.DataFrame:
        return pl.read_csv(
            path,
            glob=False,
            has_header=False,
            schema={name: (dtype if name in numbers else pl.String()) for name in names},
            columns=[names.index(name) for name in used],
            separator=separator,
            skip_lines=skip,
        ).select(used)

    with path.open("rb") as file:
        quoted = b'"' in file.read(HEAD_BYTES)
    try:
        if not quoted:  # a stray quote in a column of numbers makes polars panic
            return read(pl.Float64())
    except (PolarsError, PanicException):  # thousands commas, words for nothing: read as text
        pass
    try:
        return read(pl.String())
    except (PolarsError, PanicException) as error:
        raise SourceError(
            member.where,
            expected=f"rows of {len(names)} fields in UTF-8",
            got=str(error).splitlines()[0][:200],
            do="mend or remove the lines that differ",
        ) from error
