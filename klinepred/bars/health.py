"""In: stored bars, the calendar. Out: per symbol and session what was expected, what is there, what looks odd."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import polars as pl

from klinepred.calendar import Clock, grid, newest_finished, place
from klinepred.schema import BAR, CALENDAR, TS, Bars

JUMP: Final = 0.25
"""A close-to-close log return above this size is worth a look: a split that was not adjusted, a wrong unit."""
SYMBOLS_AT_ONCE: Final = 50
SEEN_SCHEMA: Final[dict[str, pl.DataType]] = {
    "symbol": pl.String(),
    "calendar": pl.String(),
    "jumps": pl.Int64(),
    "last_ts": TS,
}
SESSION_SCHEMA: Final = {
    "symbol": pl.String,
    "session": pl.Date,
    "expected": pl.Int64,
    "received": pl.Int64,
    "missing": pl.Int64,
    "zero_volume": pl.Int64,
}


def check_sessions(bars: Bars, *, now: datetime) -> pl.DataFrame:
    """Every session from a symbol's first to its last stored one, against the calendar.

    Parameters
    ----------
    now
        Bars of the last session that are not finished by then (aware) are not expected.

    Returns
    -------
    polars.DataFrame
        symbol, session, expected, received, missing, zero_volume; sorted. Whole sessions count, half days as such.
    """
    return _survey(bars, now)[0]


def check_symbols(bars: Bars, *, now: datetime) -> pl.DataFrame:
    """One row a symbol: how complete, how fresh, how odd.

    Returns
    -------
    polars.DataFrame
        symbol, calendar, sessions, expected, received, missing, worst (session with most missing; null if none),
        zero_volume, jumps (close-to-close moves of over 25 %), last_ts, late (bars the calendar finished since, up to
        `now`).
    """
    sessions, seen = _survey(bars, now)
    worst = (
        sessions.filter(pl.col("missing") > 0)
        .sort("symbol", "missing", "session", descending=[False, True, False])
        .group_by("symbol", maintain_order=True)
        .agg(worst=pl.col("session").first())
    )
    return (
        sessions.group_by("symbol")
        .agg(
            pl.len().cast(pl.Int64).alias("sessions"),
            *(pl.col(n).sum() for n in ("expected", "received", "missing", "zero_volume")),
        )
        .join(worst, on="symbol", how="left")
        .join(seen.with_columns(late=_late(seen, now)), on="symbol")
        .select(
            "symbol",
            "calendar",
            "sessions",
            "expected",
            "received",
            "missing",
            "worst",
            "zero_volume",
            "jumps",
            "last_ts",
            "late",
        )
        .sort("symbol")
    )


def _survey(bars: Bars, now: datetime) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The table of `check_sessions`; and per symbol its calendar, jumps and last stamp. Some symbols at a time."""
    symbols = bars.select(pl.col("symbol").unique()).collect().to_series().sort()
    sessions, seen = [pl.DataFrame(schema=SESSION_SCHEMA)], [pl.DataFrame(schema=SEEN_SCHEMA)]
    move = (pl.col("close") / pl.col("close").shift(1)).log().abs()
    for start in range(0, len(symbols), SYMBOLS_AT_ONCE):
        some = symbols.slice(start, SYMBOLS_AT_ONCE).to_list()
        table = bars.filter(pl.col("symbol").is_in(some)).select("symbol", "ts", "close", "volume", CALENDAR).collect()
        for (name,), rows in table.group_by(CALENDAR, maintain_order=True):
            sessions.append(_sessions(rows, Clock.parse(str(name)), now))
        seen.append(
            table.group_by("symbol", maintain_order=True).agg(
                calendar=pl.col(CALENDAR).first().cast(pl.String),
                jumps=(move > JUMP).sum().cast(pl.Int64),
                last_ts=pl.col("ts").last(),
            )
        )
    return pl.concat(sessions).sort("symbol", "session"), pl.concat(seen)


def _sessions(rows: pl.DataFrame, clock: Clock, now: datetime) -> pl.DataFrame:
    stamps = rows.select(pl.col("ts").unique(), pl.lit(str(clock)).alias(CALENDAR))
    got = (
        rows.join(place(stamps).select("ts", "session"), on="ts")
        .group_by("symbol", "session")
        .agg(received=pl.len().cast(pl.Int64), zero_volume=(pl.col("volume") == 0.0).sum().cast(pl.Int64))
    )
    low, high = rows.select(low=pl.col("ts").min(), high=pl.col("ts").max()).row(0)
    spans = got.group_by("symbol").agg(first=pl.col("session").min(), last=pl.col("session").max())
    wanted = spans.join(_days(clock, low, high, now), how="cross").filter(pl.col("session").is_between("first", "last"))
    return (
        wanted.join(got, on=["symbol", "session"], how="left")
        .with_columns(pl.col("received", "zero_volume").fill_null(0))
        .with_columns(missing=(pl.col("expected") - pl.col("received")).clip(lower_bound=0))
        .select(SESSION_SCHEMA.keys())
    )


def _days(clock: Clock, low: datetime, high: datetime, now: datetime) -> pl.DataFrame:
    """`session` and the number of its bars that are finished at `now`, around the span of the stored bars."""
    bars = grid(clock, low - timedelta(days=2), high + timedelta(days=2)).filter(pl.col("ts") + BAR <= now)
    return bars.group_by("session").agg(expected=pl.len().cast(pl.Int64))


def _late(last: pl.DataFrame, now: datetime) -> pl.Series:
    """How many bars each symbol's calendar finished between its last stored bar and `now`; `last_ts` and `calendar`."""
    names = last.get_column(CALENDAR).unique().to_list()
    newest = pl.DataFrame(
        {CALENDAR: names, "ts": [newest_finished(Clock.parse(name), now) for name in names]},
        schema={CALENDAR: pl.String, "ts": TS},
    )
    slots = place(newest).select(CALENDAR, newest="slot")
    rows = place(last.select(pl.col("last_ts").alias("ts"), CALENDAR)).select(CALENDAR, "slot")
    gap = rows.join(slots, on=CALENDAR, how="left", maintain_order="left")
    return gap.select((pl.col("newest") - pl.col("slot")).clip(lower_bound=0).fill_null(0)).to_series()
