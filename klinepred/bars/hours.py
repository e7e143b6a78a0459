"""In: bars taken in as traded around the clock. Out: a remark where they keep the hours of an exchange."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from typing import Final

import polars as pl

ALWAYS_OPEN: Final = "24/7"
VENUES: Final = {
    "US stocks": ("XNYS", 13 * 60 + 30, 21 * 60),
    "London": ("XLON", 7 * 60, 16 * 60 + 30),
    "Tokyo": ("XTKS", 0, 6 * 60 + 30),
    "Hong Kong or mainland China": ("XHKG or XSHG", 60 + 30, 8 * 60),
}
"""Calendar, and the minutes of the UTC day between which it trades, summer and winter time together."""
LEAST_BARS: Final = 20
LEAST_DAYS: Final = 2
SHOWN: Final = 5


@dataclass
class _Seen:
    bars: int = 0
    days: set[date] = field(default_factory=set)
    first: int = 24 * 60
    last: int = 0
    weekend: bool = False


@dataclass
class Hours:
    """At which times of day the bars of an ingest lie, by symbol."""

    _seen: dict[str, _Seen] = field(default_factory=dict)

    def see(self, bars: pl.DataFrame) -> None:
        """Count bars in; symbol, ts."""
        minute = pl.col("ts").dt.hour().cast(pl.Int32) * 60 + pl.col("ts").dt.minute()
        spans = bars.group_by("symbol").agg(
            bars=pl.len(),
            days=pl.col("ts").dt.date().unique().head(LEAST_DAYS),
            first=minute.min(),
            last=minute.max(),
            weekend=(pl.col("ts").dt.weekday() > 5).any(),
        )
        for symbol, count, days, first, last, weekend in spans.iter_rows():
            here = self._seen.setdefault(symbol, _Seen())
            here.bars += count
            here.days.update(days)
            here.first, here.last = min(here.first, first), max(here.last, last)
            here.weekend |= weekend

    def lines(self) -> list[str]:
        """A line for each venue whose hours the bars of some symbols keep."""
        out = []
        left = {
            name: one
            for name, one in sorted(self._seen.items())
            if one.bars >= LEAST_BARS and len(one.days) >= LEAST_DAYS and not one.weekend
        }
        for venue, (calendar, opening, closing) in VENUES.items():
            names = [name for name, one in left.items() if opening <= one.first and one.last < closing]
            left = {name: one for name, one in left.items() if name not in names}
            if names:
                more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
                out.append(
                    f"{', '.join(names[:SHOWN])}{more}: every bar lies from Monday to Friday between "
                    f"{opening // 60:02}:{opening % 60:02}Z and {closing // 60:02}:{closing % 60:02}Z, the hours of "
                    f"{venue}, yet the calendar is {ALWAYS_OPEN}, by which all other hours are missing; if that is "
                    f"wrong, remove them with klinepred bars delete and ingest again with --calendar {calendar}"
                )
        return out
