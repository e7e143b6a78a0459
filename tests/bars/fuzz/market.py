"""In: chance. Out: a few right bars of a calendar, as plain values, for files to be made of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final

# First bars of sessions, in UTC; among them half days, and the days after the clocks changed.
OPENS: Final = {
    "XNYS": (
        "2026-01-05T14:30",
        "2026-03-06T14:30",
        "2026-03-09T13:30",
        "2025-10-31T13:30",
        "2025-11-03T14:30",
        "2025-11-28T14:30",
        "2026-06-15T13:30",
        "2012-07-03T13:30",
    ),
    "24/7": ("2026-01-05T14:30", "2026-03-08T06:00", "2025-11-02T04:30", "2026-03-29T00:30", "2024-02-29T23:00"),
    "XHKG": ("2026-01-05T01:30", "2026-01-06T05:00", "2025-12-24T01:30"),
    "XLON": ("2026-01-05T08:00", "2026-03-30T07:00", "2025-12-24T08:00"),
    "XSHG": ("2026-01-05T01:30", "2026-01-05T05:00"),
    "CMES": ("2026-01-05T14:30", "2026-03-09T13:30"),
    "XNAS": ("2026-01-05T14:30",),
}
ZONE_OF: Final = {
    "XNYS": "America/New_York",
    "XNAS": "America/New_York",
    "24/7": "UTC",
    "XHKG": "Asia/Hong_Kong",
    "XLON": "Europe/London",
    "XSHG": "Asia/Shanghai",
    "CMES": "America/Chicago",
}


@dataclass(frozen=True)
class Bar:
    """One row as numbers: price in units, `ts` aware (UTC), the open of the row."""

    symbol: str
    ts: datetime
    open: float
    high: float
    low: float
    close: float
    volume: float


def make_bars(chance: Random, calendar: str, symbols: list[str], minutes: int = 5) -> list[Bar]:
    """Between 2 and 40 rows of each symbol, `minutes` apart, from the open of a session of `calendar`."""
    start = datetime.fromisoformat(chance.choice(OPENS[calendar])).replace(tzinfo=UTC)
    count, out = chance.choice((2, 3, 5, 8, 12, 24, 40)), []
    for symbol in symbols:
        price = chance.choice((0.00001234, 0.5, 3.2, 10.0, 667.7, 69_000.0))
        digits = 8 if price < 0.1 else 2
        for number in range(count):
            if chance.random() < 0.03:
                continue
            close = max(round(price * chance.uniform(0.999, 1.001), digits), 10.0**-digits)
            low, high = round(min(price, close) * 0.9995, digits), round(max(price, close) * 1.0005, digits)
            ts = start + timedelta(minutes=minutes * number)
            low, high = min(low, price, close) or close, max(high, price, close)
            out.append(Bar(symbol, ts, price, high, low, close, float(chance.randrange(0, 100_000))))
            price = close
    return out
