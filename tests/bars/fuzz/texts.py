"""In: chance, bars. Out: tables of text in the forms of vendors, and tables damaged in a field, a column, a line."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from random import Random
from typing import Final
from zoneinfo import ZoneInfo

from tests.bars.fuzz.hostile import JUNK, NUMBERS, STAMPS, SYMBOLS
from tests.bars.fuzz.market import ZONE_OF, Bar, make_bars
from tests.bars.fuzz.names import COLUMNS
from tests.bars.vendor_samples import FILES

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SEPARATORS: Final = (",", ",", ",", ";", "\t", "|")
FORMS: Final = (
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%SZ",
    "%Y-%m-%d %H:%M:%S%z",
    "%Y.%m.%d %H:%M",
    "%d.%m.%Y %H:%M",
    "%Y%m%d %H%M%S",
    "%Y%m%d%H%M%S",
    "%m/%d/%Y %I:%M %p",
    "%Y-%m-%d|%H:%M",
    "%Y%m%d|%H%M%S",
    "s",
    "ms",
    "us",
    "ns",
)
"""How stamps are written; two columns where there is a |."""
NAMES: Final = (
    ("ts", "open", "high", "low", "close", "volume"),
    ("Datetime", "Open", "High", "Low", "Close", "Volume"),
    ("timestamp", "open", "high", "low", "close", "vol"),
    ("Date", "Open", "High", "Low", "Last", "Volume"),
    ("时间", "开盘", "最高", "最低", "收盘", "成交量"),
    ("Datum", "Eröffnung", "Hoch", "Tief", "Schluss", "Volumen"),
)


@dataclass(frozen=True)
class Table:
    """A text file as fields; `header` lines of it are no rows; which calendar its stamps belong to."""

    rows: list[list[str]]
    separator: str
    name: str
    calendar: str
    header: int = 1
    vendor: str = "auto"


def make_table(chance: Random) -> Table:
    """A right table: the sample of a vendor, or a general form."""
    if chance.random() < 0.35:
        return _sample(chance)
    calendar = chance.choice(list(ZONE_OF))
    many = chance.random() < 0.4
    symbols = chance.sample(["AAPL", "MSFT", "BRK.B", "NA", "005930", "BTC/USDT", "^GSPC", "brk-b"], 2)
    bars = make_bars(chance, calendar, symbols if many else symbols[:1], chance.choice((5, 5, 5, 5, 1, 2, 3, 15)))
    names = chance.choice(NAMES)
    write = _stamps(chance, calendar)
    rows = [[*write(bar.ts), *_numbers(bar, chance)] for bar in bars]
    head = [*(names[:1] if rows and len(rows[0]) == 6 else ["date", "time"]), *names[1:]]
    if many:
        rows = [[bar.symbol, *row] for bar, row in zip(bars, rows, strict=True)]
        head = ["symbol", *head]
    if many and chance.random() < 0.3:
        chance.shuffle(rows)
    bare = not many and chance.random() < 0.2
    return Table(
        rows if bare else [head, *rows],
        chance.choice(SEPARATORS),
        f"{symbols[0].replace('/', '-')}_5m.csv",
        calendar,
        0 if bare else 1,
    )


def _sample(chance: Random) -> Table:
    vendor, name, text, clock, _ = chance.choice(FILES)
    separator = max(",;\t", key=text.splitlines()[0].count)
    rows = [line.split(separator) for line in text.splitlines()]
    has_head = not any(field[:1].isdigit() for field in rows[0][:1])
    head = 3 if rows[0][0] == "Price" else int(has_head)
    return Table(rows, separator, name, clock.calendar, head, vendor)


def _numbers(bar: Bar, chance: Random) -> list[str]:
    style = "{:.8f}" if bar.open < 0.1 else "{:.2f}"
    return [*(style.format(value) for value in (bar.open, bar.high, bar.low, bar.close)), f"{bar.volume:.0f}"]


def _stamps(chance: Random, calendar: str) -> Callable[[datetime], list[str]]:
    zone = ZoneInfo(ZONE_OF[calendar])
    form = chance.choice(FORMS)
    if len(form) <= 2:
        factor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[form]
        return lambda ts: [str(int((ts - EPOCH).total_seconds()) * factor)]
    if form.endswith("Z"):
        return lambda ts: [ts.strftime(form)]
    return lambda ts: ts.astimezone(zone).strftime(form).split("|")


def damage(table: Table, chance: Random) -> Table:
    """`table` with one fault in it."""
    if not table.rows:
        return table
    rows = [list(row) for row in table.rows]
    return replace(table, rows=chance.choice(FAULTS)(rows, table.header, chance))


def _row(rows: list[list[str]], head: int, chance: Random) -> list[str]:
    return rows[chance.randrange(min(head, len(rows) - 1), len(rows))]


def _field(rows: list[list[str]], head: int, chance: Random) -> list[list[str]]:
    row = _row(rows, head, chance)
    if row:
        spot = chance.randrange(len(row))
        old = row[spot].strip()
        kind = NUMBERS if old.replace(".", "", 1).isdigit() and len(old) < 12 else STAMPS if ":" in old else None
        row[spot] = chance.choice(kind or chance.choice((NUMBERS, STAMPS, SYMBOLS, JUNK)))
    return rows


def _stamp(rows: list[list[str]], head: int, chance: Random) -> list[list[str]]:
    row = _row(rows, head, chance)
    spots = [spot for spot, value in enumerate(row) if ":" in value or len(value) >= 10] or [0]
    if row:
        row[chance.choice(spots)] = chance.choice(STAMPS)
    return rows


def _column(rows: list[list[str]], head: int, chance: Random) -> list[list[str]]:
    """The same change to a column of all rows."""
    spot = chance.randrange(max(len(rows[-1]), 1))
    change = chance.choice(
        (
            lambda text: text.replace(".", ","),
            lambda text: f'"{text}"',
            lambda text: f" {text} ",
            lambda text: f"{text}00",
            lambda text: f"-{text}",
            lambda text: text.translate({48 + digit: 0xFF10 + digit for digit in range(10)}),
            lambda text: "",
            lambda text: "nan",
            lambda text: "0",
            lambda text: f"1,{text}",
            lambda text: text.replace(" ", "T"),
            lambda text: text + "Z",
            lambda text: text[:-1],
            lambda text: text + " EST",
        )
    )
    fixed = chance.choice((*NUMBERS, *STAMPS, *SYMBOLS)) if chance.random() < 0.2 else None
    for row in rows[head:]:
        if spot < len(row):
            row[spot] = change(row[spot]) if fixed is None else fixed
    return rows


def _symbol(rows: list[list[str]], head: int, chance: Random) -> list[list[str]]:
    """A column of symbols, hostile ones in places."""
    bad = chance.sample(SYMBOLS, 2)
    width = len(rows[0])
    for number, row in enumerate(rows):
        if len(row) == width:
            row.insert(0, chance.choice(("symbol", "ticker")) if number < head else chance.choice(("AAPL", *bad)))
    return rows


def _header(rows: list[list[str]], head: int, chance: Random) -> list[list[str]]:
    if rows[0]:
        rows[0][chance.randrange(len(rows[0]))] = chance.choice((*COLUMNS, chance.choice(rows[0])))
    return rows


def _lines(rows: list[list[str]], head: int, chance: Random) -> list[list[str]]:
    spot = chance.randrange(len(rows) + 1)
    row = rows[min(spot, len(rows) - 1)]
    line = chance.choice(
        ([], [""], list(row), row[:-1], [*row, "x"], ["# note"], list(rows[0]), row * 2, [chance.choice(JUNK)])
    )
    rows[spot:spot] = [line] * chance.choice((1, 1, 1, 3))
    return rows


def _order(rows: list[list[str]], head: int, chance: Random) -> list[list[str]]:
    body = rows[head:]
    if chance.random() < 0.5:
        body.reverse()
    else:
        chance.shuffle(body)
    return rows[:head] + body


def _drop(rows: list[list[str]], head: int, chance: Random) -> list[list[str]]:
    kind = chance.randrange(4)
    if kind == 0:
        return rows[: chance.randrange(len(rows) + 1)]
    if kind == 1:
        return rows[head:]
    if kind == 2:
        spot = chance.randrange(max(len(rows[0]), 1))
        return [row[:spot] + row[spot + 1 :] for row in rows]
    return [row for row in rows if chance.random() < 0.8]


def _twice(rows: list[list[str]], head: int, chance: Random) -> list[list[str]]:
    """A column, or all rows, once more; rows of a second delivery may differ."""
    if chance.random() < 0.5:
        spot = chance.randrange(max(len(rows[0]), 1))
        return [[*row, *row[spot : spot + 1]] for row in rows]
    again = [list(row) for row in rows[head:]]
    for row in again:
        if row and chance.random() < 0.2:
            row[-1] = chance.choice(NUMBERS)
    return rows + again


def _wide(rows: list[list[str]], head: int, chance: Random) -> list[list[str]]:
    count = chance.choice((10, 300, 3000))
    return [
        [*row, *([f"c{spot}" for spot in range(count)] if number < head else ["1"] * count)]
        for number, row in enumerate(rows)
    ]


def _long(rows: list[list[str]], head: int, chance: Random) -> list[list[str]]:
    """So many rows that what is found out from the first ones may not hold for the rest."""
    body = rows[head:]
    if not body or len(body[0]) > 50:
        return rows
    out = rows + body * chance.choice((3, 60))
    return _field(out, head, chance)


FAULTS: Final = (
    *(_field,) * 6,
    *(_stamp,) * 3,
    *(_column,) * 3,
    *(_symbol,) * 2,
    *(_header,) * 2,
    *(_lines,) * 3,
    *(_order,) * 2,
    _drop,
    _twice,
    _wide,
    _long,
)


def render(table: Table, chance: Random) -> bytes:
    """The table as bytes; a quarter of them with other line ends, quotes, encodings or lines before the header."""
    plain = chance.random() < 0.75
    ends = "\n" if plain else chance.choice(("\n", "\r\n", "\r", "\n\n"))
    if plain or chance.random() < 0.6:
        text = ends.join(table.separator.join(row) for row in table.rows) + (ends if chance.random() < 0.9 else "")
    else:
        out = io.StringIO()
        if chance.random() < 0.5:
            csv.writer(out, delimiter=table.separator, quoting=csv.QUOTE_ALL, lineterminator=ends).writerows(table.rows)
        else:
            csv.writer(out, delimiter=table.separator, lineterminator=ends).writerows(table.rows)
        text = out.getvalue()
    if plain:
        return text.encode(errors="surrogatepass")
    before = chance.choice(("", "", "\ufeff", "sep=;\n", "# made by a script\n", "\n\n", "Account: 1\n"))
    encoding = chance.choice(
        ("utf-8", "utf-8", "utf-16", "utf-16-le", "utf-32", "cp1252", "gb18030", "latin-1", "utf-7")
    )
    return (before + text).encode(
        encoding, errors="surrogatepass" if encoding[:5] in ("utf-8", "utf-1", "utf-3") else "replace"
    )
