"""In: a frame said to hold bars. Out: `Bars`, or an error that names the broken guarantee and the first such row."""

from __future__ import annotations

from typing import Final

import polars as pl

from klinepred.bars.slots import locate
from klinepred.calendar import Clock, covered
from klinepred.errors import BarsError
from klinepred.schema import BAR_SCHEMA, CALENDAR, PRICES, VALUES, Bars

FORBIDDEN_IN_SYMBOLS: Final = r"[\p{Cc}\p{Cf}\p{Co}\p{Zl}\p{Zp}\x{fffd}\\]|[\s&&[^ ]]|\.\.|^[ /~]| $|^$"
"""A symbol is text a user types back: no control character or sign nobody sees (marks of direction, soft hyphens, a
BOM), no blank but a plain one inside, no backslash, nothing that walks through folders."""
LONGEST_SYMBOL: Final = 64
LEAST_PRICE, MOST_PRICE, MOST_VOLUME = 1e-20, 1e15, 1e30
"""No market quotes or trades beyond these; inside them ratios and turnovers stay finite."""


def value_rules() -> list[tuple[str, pl.Expr]]:
    """What makes the values of one row impossible, as (reason, expression that is true where it is), first one wins.

    The first rule must be applied before the others: they take their prices as present.
    """
    missing = [pl.col(name).is_null() | pl.col(name).is_nan() for name in VALUES]
    return [
        *((f"{name} is missing", gone) for name, gone in zip(VALUES, missing, strict=True)),
        ("a value is infinite", pl.any_horizontal(pl.col(name).is_infinite() for name in VALUES)),
        ("a price is zero or negative", pl.min_horizontal(*PRICES) <= 0.0),
        ("a price is below 1e-20 or above 1e15", _far_off()),
        ("volume is negative", pl.col("volume") < 0.0),
        ("volume is above 1e30", pl.col("volume") > MOST_VOLUME),
        ("high is below low", pl.col("high") < pl.col("low")),
        ("high is below open or close", pl.col("high") < pl.max_horizontal("open", "close")),
        ("low is above open or close", pl.col("low") > pl.min_horizontal("open", "close")),
    ]


def _far_off() -> pl.Expr:
    return (pl.min_horizontal(*PRICES) < LEAST_PRICE) | (pl.max_horizontal(*PRICES) > MOST_PRICE)


def symbol_is_odd() -> pl.Expr:
    """True where `symbol` cannot be one: null, empty, overlong, or with characters no symbol has."""
    return (
        pl.col("symbol").is_null()
        | (pl.col("symbol").str.len_chars() > LONGEST_SYMBOL)
        | pl.col("symbol").str.contains(FORBIDDEN_IN_SYMBOLS)
    )


def check_bars(frame: pl.DataFrame | pl.LazyFrame, *, clock: Clock | None = None) -> Bars:
    """The door every frame of bars goes through: what comes out can be trusted without another look.

    Parameters
    ----------
    frame
        `symbol` (text), `ts` (bar OPEN, Datetime us UTC), `open high low close volume` (Float64); more columns are
        dropped. With `clock=None` also `calendar`, the text of each row's `Clock`.
    clock
        Clock of all rows; adds the column `calendar`.

    Returns
    -------
    Bars
        Sorted by symbol and ts as they came, nothing changed.

    Raises
    ------
    BarsError
        A column or dtype is wrong, rows are unsorted or repeated, a value is impossible (see `value_rules`), or a
        stamp is no bar of its calendar.
    """
    table = frame.collect() if isinstance(frame, pl.LazyFrame) else frame
    _check_columns(table, clock)
    bars = table.select(*BAR_SCHEMA, *([] if clock else [CALENDAR]))
    bars = bars.with_columns(
        (pl.lit(str(clock)) if clock else pl.col(CALENDAR).cast(pl.String)).cast(pl.Categorical).alias(CALENDAR)
    )
    _check_order(bars)
    if clock is None:
        _check_one_calendar(bars)
    names = bars.select(pl.col("symbol").unique())  # judged once each: patterns over every row would take long
    odd = names.filter(symbol_is_odd()).get_column("symbol")
    rules = [("the symbol is no possible name", pl.col("symbol").is_in(odd.implode())), *value_rules()]
    rules = rules if odd.len() else rules[1:]
    seen = bars.select(broken.fill_null(False).any().alias(reason) for reason, broken in rules).row(0, named=True)
    for reason, broken in rules:
        if seen[reason]:
            _refuse(bars, broken, reason)
    parts = [((str(clock),), bars)] if clock else bars.group_by(CALENDAR)
    for (name,), part in parts:
        its = Clock.parse(str(name))
        if part.height:
            covered(its, *part.select(low=pl.col("ts").min(), high=pl.col("ts").max()).row(0))
        closed = locate(part.get_column("ts"), its).get_column("slot").is_null()
        if closed.any():
            row = part.row(int(closed.arg_true()[0]), named=True)
            raise BarsError(
                f"bars of {row['symbol']}",
                expected=f"stamps on the 5-minute grid of {name}",
                got=f"{row['ts']:%Y-%m-%dT%H:%M:%SZ}, when no bar of it opens",
                do="pass the calendar these bars belong to, or drop the row",
            )
    return Bars(bars.lazy())


def _check_columns(table: pl.DataFrame, clock: Clock | None) -> None:
    wanted = dict(BAR_SCHEMA)
    for name, dtype in wanted.items():
        have = table.schema.get(name)
        if have != dtype:
            raise BarsError(
                f"bars: column {name}", expected=f"{name} as {dtype}", got=str(have or "no such column"), do="cast it"
            )
    if clock is None and table.schema.get(CALENDAR) not in (pl.String, pl.Categorical):
        raise BarsError(
            "bars: column calendar",
            expected="the clock of each row as text, or clock= for all rows",
            got=str(table.schema.get(CALENDAR, "no such column")),
            do="pass clock=Clock('XNYS') or the calendar the bars follow",
        )


def _check_order(bars: pl.DataFrame) -> None:
    same = pl.col("symbol") == pl.col("symbol").shift(1)
    after = (pl.col("symbol") > pl.col("symbol").shift(1)) | (same & (pl.col("ts") > pl.col("ts").shift(1)))
    first = pl.int_range(pl.len()) == 0
    _refuse(bars, pl.col("symbol").is_null() | pl.col("ts").is_null(), "a symbol or stamp is null")
    _refuse(bars, ~(after | first), "rows are not sorted by symbol and ts, or one is there twice")


def _check_one_calendar(bars: pl.DataFrame) -> None:
    """A symbol has one calendar: by two of them its sessions would be others from row to row."""
    pairs = bars.select("symbol", pl.col(CALENDAR)).unique()
    mixed = pairs.group_by("symbol").agg(pl.col(CALENDAR).cast(pl.String).sort())
    mixed = mixed.filter(pl.col(CALENDAR).list.len() > 1).sort("symbol")
    if mixed.height:
        symbol, clocks = mixed.row(0)
        raise BarsError(
            f"bars of {symbol}: column calendar",
            expected="one calendar in all rows of a symbol",
            got=" and ".join(str(name) for name in clocks),
            do="write the one it is traded by in each row",
        )


def _refuse(bars: pl.DataFrame, broken: pl.Expr, reason: str) -> None:
    where = bars.select(broken.fill_null(False).arg_true()).to_series()
    if not where.is_empty():
        row = bars.row(int(where[0]), named=True)
        stamp = f"{row['ts']:%Y-%m-%dT%H:%M:%SZ}" if row["ts"] else "no stamp"
        raise BarsError(
            f"bars of {row['symbol']}",
            expected="sorted, unique, finite, OHLC-consistent rows",
            got=f"{where.len()} rows where {reason}, first at {stamp}",
            do="pass raw bars through klinepred ingest, which sets such rows aside",
        )
