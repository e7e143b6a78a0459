"""In: rows decoded from JSON, as objects or lists. Out: a frame of plain columns, and the rows that are none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import polars as pl

from klinepred.bars.sources.json_forms import LEAST
from klinepred.bars.sources.member import Member
from klinepred.errors import SourceError

FIELDS: Final = ("ts", "open", "high", "low", "close", "volume")
BINANCE: Final = (
    *("open_time", "open", "high", "low", "close", "volume"),
    *("close_time", "quote_volume", "trades", "taker_volume", "taker_quote_volume", "ignore"),
)
ORDERS: Final = (
    ("open", "high", "low", "close"),
    ("open", "close", "high", "low"),  # Bitfinex, KuCoin
    ("low", "high", "open", "close"),  # Coinbase
)
"""Orders in which exchanges write the four prices of a row without names; the usual one first."""
DOUBT: Final = 0.01
"""Share of rows whose prices may contradict an order of fields that is right."""


@dataclass(frozen=True)
class Columns:
    """Plain columns; names of those that hold objects or lists; what each odd row is, in words."""

    frame: pl.DataFrame
    nested: tuple[str, ...]
    odd: tuple[str, ...]


def to_columns(rows: Sequence[Any], names: Sequence[str]) -> Columns:
    """Rows as columns of Int64, Float64 or text.

    Parameters
    ----------
    rows
        All objects, or all lists; what is neither, or has another number of fields than most, is odd.
    names
        Of the fields of lists; empty = as many as most have, `field 1` and so on.
    """
    objects = [row for row in rows if isinstance(row, dict)]
    if objects:
        odd = ["a row that is no object"] * (len(rows) - len(objects))
        keys = list(dict.fromkeys(chain.from_iterable(objects)))
        columns = [[row.get(key) for row in objects] for key in keys]
    else:
        widths = Counter(len(row) if isinstance(row, list) else 0 for row in rows)
        width = len(names) or widths.most_common(1)[0][0]
        lists = [row for row in rows if isinstance(row, list) and len(row) == width]
        odd = [
            f"a row of {size} fields, the header names {width}"
            for size, count in widths.items()
            if size != width
            for _ in range(count)
        ]
        keys = list(names) or [f"field {spot + 1}" for spot in range(width)]
        columns = [list(column) for column in zip(*lists, strict=True)] or [[] for _ in keys]
    made = {key: _series(key, column) for key, column in zip(keys, columns, strict=True)}
    nested = tuple(key for key, column in made.items() if column is None)
    return Columns(pl.DataFrame([column for column in made.values() if column is not None]), nested, tuple(odd))


def name_fields(frame: pl.DataFrame, member: Member) -> tuple[pl.DataFrame, str]:
    """Names for `field 1` and so on: stamp, the prices in the one order that they do not contradict, volume.

    Raises
    ------
    SourceError
        There are fewer than six fields, or the prices contradict every order.
    """
    names = frame.columns
    if len(names) < LEAST:
        raise SourceError(
            f"{member.where}: rows without names",
            expected=f"at least {LEAST} fields: {', '.join(FIELDS)}",
            got=f"{len(names)}",
            do="write the rows as objects that name their fields",
        )
    prices = frame.select(pl.col(names[1:5]).cast(pl.Float64, strict=False))
    order = next((order for order in ORDERS if _fits(prices.rename(dict(zip(names[1:5], order, strict=True))))), None)
    if order is None:
        raise SourceError(
            f"{member.where}: rows without names",
            expected=f"fields in the order {', '.join(FIELDS)}",
            got="prices that contradict it, and every other order that is known",
            do="write the rows as objects that name their fields",
        )
    usual = BINANCE if len(names) == len(BINANCE) else (*FIELDS, *names[LEAST:])
    new = [usual[0], *order, *usual[5:]]
    return frame.rename(dict(zip(names, new, strict=True))), f"rows without names, read as {', '.join(new[:6])}"


def _fits(prices: pl.DataFrame) -> bool:
    high, low, first, last = (pl.col(name) for name in ("high", "low", "open", "close"))
    wrong = (high < low) | (high < first) | (high < last) | (low > first) | (low > last)
    return float(prices.select(wrong.mean()).item() or 0.0) <= DOUBT


def _series(name: str, values: list[Any]) -> pl.Series | None:
    """A column of one plain type; None where values are objects or lists."""
    kinds = set(map(type, values)) - {type(None)}
    if kinds & {dict, list}:
        return None
    if kinds <= {int}:
        try:
            return pl.Series(name, values, dtype=pl.Int64)
        except (OverflowError, TypeError):
            kinds = {float}
    if kinds <= {int, float}:
        return pl.Series(name, [None if value is None else float(value) for value in values], dtype=pl.Float64)
    texts = [value if isinstance(value, str) or value is None else str(value) for value in values]
    return pl.Series(name, texts, dtype=pl.String)
