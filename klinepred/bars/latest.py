"""In: bars that may reach far back, how many of each symbol are wanted. Out: its last ones; older ones are not read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import polars as pl

FIRST_DAYS: Final = 64
"""Length of the window that is read first; each one before it is so many times as long:"""
GROWTH: Final = 4


def last_bars(
    bars: pl.LazyFrame, *, before: datetime, reach: int, begins: Mapping[str, datetime] | None = None
) -> pl.DataFrame:
    """The last `reach` bars of each symbol with ts < `before`, read backwards in windows that grow.

    A symbol that paused for years costs the history of that symbol alone, if `bars` is a scan of the store.

    Parameters
    ----------
    bars
        `Bars`.
    begins
        First ts by symbol, of those that are wanted; default: found out, which reads two columns of all bars.

    Returns
    -------
    polars.DataFrame
        The columns of `bars`, sorted by symbol and ts.
    """
    begins = first_stamps(bars) if begins is None else begins
    days, high, parts = FIRST_DAYS, before, []
    left = {name for name, begin in begins.items() if begin < before}
    have = dict.fromkeys(left, 0)
    names = bars.collect_schema().names()
    while left:
        start = high - timedelta(days=days)
        inside = bars.filter(pl.col("ts") >= start, pl.col("ts") < high, pl.col("symbol").is_in(sorted(left)))
        part = inside.collect()
        parts.append(part)
        for name, count in part.group_by("symbol").len().iter_rows():
            have[name] += count
        left = {name for name in left if have[name] < reach and begins[name] < start}
        high, days = start, days * GROWTH
    whole = pl.concat(parts) if parts else bars.filter(pl.lit(False)).collect()
    return whole.sort("symbol", "ts").group_by("symbol", maintain_order=True).tail(reach).select(names)


def first_stamps(bars: pl.LazyFrame) -> dict[str, datetime]:
    """The first ts of each symbol, in memory that does not grow with the bars."""
    found = bars.select("symbol", "ts").group_by("symbol").agg(pl.col("ts").min()).collect(engine="streaming")
    return dict(found.select(pl.col("symbol").cast(pl.String), "ts").iter_rows())
