"""In: a bundle. Out: made-up bars of one of its symbols, just enough for a prediction: an example of the input."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

import numpy as np
import polars as pl

from klinepred.calendar import grid
from klinepred.model.bundle import ModelBundle, features_of
from klinepred.sessions import Clock


def example_bars(bundle: ModelBundle) -> pl.DataFrame:
    """Bars up to the end of the calibration part: `symbol`, `ts` as ISO 8601 text, prices, volume.

    They are made up (a slow wave around 100), so that no bar of the market is copied into the run store, and only as
    many as the features look back over. Raises as `features_of`.
    """
    features = features_of(bundle)
    symbol = bundle.universe[0]
    clock = Clock.parse(bundle.calendars[symbol])
    end = datetime.combine(bundle.split.calibration_end, time(), UTC) + timedelta(days=1)
    days = 3 * (features.lookback_sessions + 2) + features.lookback_bars // 50 + 10
    bars = grid(clock, end - timedelta(days=days), end)
    newest = bars.get_column("session").unique().sort().tail(features.lookback_sessions + 1)
    bars = bars.with_row_index("at", offset=1).filter(
        (pl.col("session") >= newest.min()) | (pl.col("at") > bars.height - features.lookback_bars - 2)
    )
    wave_B = 100.0 + 2.0 * np.sin(np.arange(bars.height + 1) / 9.0) + np.sin(np.arange(bars.height + 1) / 2.3)
    price_B = np.round(wave_B, 2)
    opened, closed = pl.Series(price_B[:-1]), pl.Series(price_B[1:])
    return bars.select(
        symbol=pl.lit(symbol),
        ts=pl.col("ts").dt.strftime("%Y-%m-%dT%H:%M:%SZ"),
        open=opened,
        high=pl.max_horizontal(opened, closed).round(2) + 0.25,
        low=pl.min_horizontal(opened, closed).round(2) - 0.25,
        close=closed,
        volume=pl.Series(1000.0 + np.arange(bars.height) * 37 % 500),
    )
