"""In: rows with a stamp each, a clock. Out: of each its slot on the 5-minute grid, whether trading is on, its month."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import polars as pl

from klinepred.calendar import Clock, grid, known_span
from klinepred.schema import BAR, BAR_US, TS

MINUTE_US: Final = 60_000_000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def locate(stamps: pl.Series, clock: Clock) -> pl.DataFrame:
    """Look each stamp up in a table of all slots between the first and the last of them; no join, no sort.

    Parameters
    ----------
    stamps
        `ts` (UTC, us), any order; nulls allowed.

    Returns
    -------
    polars.DataFrame
        As many rows as `stamps`: `slot` (Int64, see `klinepred.calendar.place`; null = no bar opens then),
        `in_session` (Boolean: the market is open, whether or not a bar opens exactly then), `month` (text such as
        2025-06 of the UTC stamp). Stamps outside the years the calendar knows are in no session.
    """
    low, high = known_span(clock)
    known = stamps.filter(stamps.is_between(low, high, closed="left"))
    first, last = known.min(), known.max()
    if not isinstance(first, datetime) or not isinstance(last, datetime):
        nothing = pl.Series("slot", [None], dtype=pl.Int64).new_from_index(0, len(stamps))
        inside = pl.repeat(False, len(stamps), eager=True).alias("in_session")
        return pl.DataFrame([nothing, inside, stamps.dt.strftime("%Y-%m").alias("month")])
    bars = grid(clock, first - BAR, last + BAR)
    micros = bars.get_column("ts").dt.epoch("us").to_numpy()
    unit = BAR_US if not (micros % BAR_US).any() else MINUTE_US
    base = (_micros(first) - BAR_US) // unit
    count = _micros(last) // unit - base + BAR_US // unit + 1
    spots = micros // unit - base
    slots, inside_of = np.full(count, -1, dtype=np.int64), np.zeros(count, dtype=np.bool_)
    slots[spots] = bars.get_column("slot").to_numpy()
    for minute in range(BAR_US // unit):
        inside_of[spots + minute] = True
    months, month_of = _months(first, last, unit=unit, base=base, count=count)

    spot = pl.when(pl.col("ts").is_between(low, high, closed="left")).then(pl.col("ts").dt.epoch("us"))
    frame = stamps.alias("ts").to_frame().select("ts", us=spot).with_columns(at=pl.col("us") // unit - base)
    even = pl.col("us") % unit == 0
    slot = pl.lit(pl.Series(slots)).gather(pl.col("at"))
    return frame.select(
        slot=pl.when(even & (slot >= 0)).then(slot),
        in_session=pl.lit(pl.Series(inside_of)).gather(pl.col("at")).fill_null(False),
        month=pl.lit(months).gather(pl.lit(pl.Series(month_of)).gather(pl.col("at"))),
    )


def _micros(stamp: datetime) -> int:
    return (stamp - EPOCH) // timedelta(microseconds=1)


def _months(first: datetime, last: datetime, *, unit: int, base: int, count: int) -> tuple[pl.Series, np.ndarray]:
    """Names of all months from before `first` to after `last`, and the number of the month of each unit of time."""
    starts = pl.datetime_range(
        (first - timedelta(days=40)).replace(day=1, hour=0, minute=0, second=0, microsecond=0),
        last + timedelta(days=40),
        interval="1mo",
        eager=True,
    )
    edges = starts.cast(TS).dt.epoch("us").to_numpy() // unit - base
    return starts.dt.strftime("%Y-%m"), np.searchsorted(edges, np.arange(count), side="right") - 1
