"""In: rows as a vendor writes them. Out: the same with its peculiar stamps, scales and words for nothing undone."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

import polars as pl

from klinepred.bars.sources.columns import Layout, plain
from klinepred.bars.sources.vendors import LEAN, Vendor
from klinepred.errors import SourceError

FIXED: Final = 1e9
"""Units of Databento's fixed-point prices in one unit of the currency."""
UNDEFINED: Final = 9.2e18
"""Databento writes the largest 64-bit integer for a price that does not exist."""
DECI_CENTS: Final = 10_000.0
MT4: Final = re.compile(r"([A-Z]{6})\d{1,2}\.\w+")
"""MetaTrader 4 writes EURUSD5.csv: six letters, and the minutes of a bar."""


@dataclass(frozen=True)
class Settled:
    """Rows in plain stamps and units; the symbol where the vendor's file name says it; what was undone, in words."""

    frame: pl.DataFrame
    layout: Layout
    symbol: str | None
    lines: tuple[str, ...]


def settle(
    frame: pl.DataFrame, layout: Layout, *, vendor: Vendor | None, said: bool, file: str, calendar: str
) -> Settled:
    """Undo what is peculiar to the vendor: scaled prices, milliseconds since midnight, -1 for no volume.

    Parameters
    ----------
    said
        The user named the vendor.
    file
        Name of the file.
    calendar
        Of the ingest; what trades round the clock is no equity, whose prices Lean scales.

    Raises
    ------
    SourceError
        Rows of several instruments without a column that names them; a file name without the day it is of.
    """
    if vendor is None:
        return Settled(frame, layout, None, ())
    if vendor.name == "lean":
        return _lean(frame, layout, file, scaled=calendar != "24/7")
    if vendor.name == "databento":
        return _databento(frame, layout, file)
    if vendor.name == "ib":
        return _ib(frame, layout)
    if vendor.name == "mt4" and (found := MT4.fullmatch(file)):
        return Settled(frame, layout, found[1], ())
    if vendor.name == "tradingview" and said and not layout.volumes:
        line = "no volume in this TradingView export: 0 taken"
        return Settled(frame.with_columns(volume=pl.lit(0.0)), replace(layout, volumes=("volume",)), None, (line,))
    return Settled(frame, layout, None, ())


def _prices(layout: Layout) -> list[str]:
    return [layout.open, layout.high, layout.low, layout.close]


def _whole(frame: pl.DataFrame, names: list[str], least: float) -> bool:
    """Whether all numbers are whole, and the middle one is at least `least`."""
    numbers = pl.concat([frame.get_column(name).alias("price") for name in names]).drop_nulls().drop_nans()
    return bool((numbers == numbers.round()).all()) and float(str(numbers.median() or 0.0)) >= least


def _divided(numbers: pl.Series, by: float) -> pl.Series:
    """The nearest float of each quotient. polars multiplies by 1 / `by`, which misses it by a bit here and there."""
    return pl.Series(numbers.name, numbers.cast(pl.Float64).to_numpy() / by, nan_to_null=True)


def _lean(frame: pl.DataFrame, layout: Layout, file: str, *, scaled: bool) -> Settled:
    digits, ticker, expiry = found.groups() if (found := LEAN.search(file)) else ("", "", None)
    try:
        day = datetime.strptime(digits, "%Y%m%d")
    except ValueError as error:
        raise SourceError(
            f"{file}: a file of QuantConnect Lean",
            expected="its own name, which says day and symbol, such as 20131007_spy_minute_trade.csv",
            got=file,
            do="keep the names of Lean, or pass the zip file it came in",
        ) from error
    past = pl.col(layout.stamp).str.strip_chars().cast(pl.Int64, strict=False)
    frame = frame.with_columns(
        (pl.lit(day) + pl.duration(milliseconds=past)).cast(pl.Datetime("us")).alias(layout.stamp)
    )
    symbol = ticker.upper() + (expiry or "").upper()
    lines = [f"milliseconds since midnight of {day:%Y-%m-%d}, symbol {symbol}: both by the file name"]
    prices = _prices(layout)
    # of futures and options the name has a third part; their prices, and those of coins, are as they are
    if scaled and expiry is None and _whole(frame, prices, 1.0):
        frame = frame.with_columns(_divided(frame.get_column(name), DECI_CENTS) for name in prices)
        lines.append("whole prices of Lean are ten-thousandths: divided by 10,000")
    return Settled(frame, layout, symbol, tuple(lines))


def _databento(frame: pl.DataFrame, layout: Layout, file: str) -> Settled:
    lines: list[str] = []
    prices = _prices(layout)
    if _whole(frame, prices, 1e6):
        frame = frame.with_columns(pl.when(pl.col(name) < UNDEFINED).then(pl.col(name)) for name in prices)
        frame = frame.with_columns(_divided(frame.get_column(name), FIXED) for name in prices)
        lines.append("fixed-point prices of Databento: divided by 1,000,000,000")
    if layout.symbol is not None and plain(layout.symbol) == "instrumentid":
        several = frame.get_column(layout.symbol).n_unique()
        if several > 1:
            raise SourceError(
                f"{file}: no symbol column",
                expected="a symbol column: instrument_id means another instrument on another day",
                got=f"{several} values of instrument_id",
                do="ask Databento for the file with map_symbols, or write to_df().to_csv()",
            )
        layout = replace(layout, symbol=None)
    return Settled(frame, layout, None, tuple(lines))


def _ib(frame: pl.DataFrame, layout: Layout) -> Settled:
    volume = layout.volumes[0] if layout.volumes else ""
    none = int((frame.get_column(volume) == -1.0).sum()) if volume else 0
    if not none:
        return Settled(frame, layout, None, ())
    frame = frame.with_columns(pl.when(pl.col(volume) == -1.0).then(0.0).otherwise(pl.col(volume)).alias(volume))
    return Settled(frame, layout, None, (f"a volume of -1 means none at Interactive Brokers: 0 in {none:,} rows",))
