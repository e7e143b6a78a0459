"""In: nothing. Out: the words all rooms share: column names, dtypes, the length of a bar, the type `Bars`."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, NewType

import polars as pl

BAR_MINUTES: Final = 5
BAR: Final = timedelta(minutes=BAR_MINUTES)
BAR_US: Final = BAR_MINUTES * 60_000_000
"""Length of a bar in microseconds, the unit of `ts`."""

TS: Final = pl.Datetime("us", "UTC")
PRICES: Final = ("open", "high", "low", "close")
VALUES: Final = (*PRICES, "volume")
BAR_SCHEMA: Final[dict[str, pl.DataType]] = {
    "symbol": pl.String(),
    "ts": TS,
    **{name: pl.Float64() for name in VALUES},
}
"""The columns of stored bars. `ts` is the OPEN of the bar, UTC, microseconds; prices in the quote currency."""

PREDICTION_SCHEMA: Final[dict[str, pl.DataType]] = {
    "symbol": pl.String(),
    "bar_ts": TS,
    "asof": TS,
    "target_ts": TS,
    "target": pl.String(),
    "expected_return_bps": pl.Float64(),
    "p_up": pl.Float64(),
    "lo80_bps": pl.Float64(),
    "hi80_bps": pl.Float64(),
    "stale": pl.Boolean(),
    "in_training": pl.Boolean(),
    "note": pl.String(),
    "model": pl.String(),
    "run_id": pl.String(),
}
"""Columns of `Predictions`. `target_ts` is the OPEN of the predicted bar; returns in basis points (1e-4)."""
PRICE_SCHEMA: Final = {
    "symbol": pl.String(),
    "bar_ts": TS,
    **dict.fromkeys(("last_close", "expected_close", "lo80_close", "hi80_close"), pl.Float64()),
}
"""Columns of the same as prices (`klinepred.prediction.Forecast.prices`)."""

CALENDAR: Final = "calendar"
"""Name of the column that says by which clock a row lives (see `klinepred.calendar.Clock`); Categorical."""

Bars = NewType("Bars", pl.LazyFrame)
"""symbol, ts, open, high, low, close, volume, calendar: sorted by symbol and ts, unique, finite, OHLC-consistent,
on the 5-minute grid of the calendar. Made by `klinepred.bars.check.check_bars` only."""
