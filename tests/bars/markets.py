"""In: settings of the simulated market. Out: its bars with their places and what its forecaster knew, measured."""

from __future__ import annotations

from datetime import date
from functools import lru_cache
from math import sqrt

import polars as pl

from klinepred.bars.sources.simulate import planted_forecast, simulate
from klinepred.calendar import Clock, place
from klinepred.settings import SimulateSettings

YEAR = SimulateSettings(symbols=40, start=date(2025, 1, 2), end=date(2025, 12, 31), ic=0.06)
NOISE = YEAR.model_copy(update={"ic": 0.0, "seed": 11})


def simulated(settings: SimulateSettings, *, calendar: str = "XNYS") -> pl.DataFrame:
    """All bars of `simulate`, as they come."""
    return pl.concat(delivery.frame for delivery in simulate(settings, clock=Clock(calendar)))


@lru_cache(maxsize=8)
def measured(settings: SimulateSettings, *, calendar: str = "XNYS") -> pl.DataFrame:
    """Bars, place and forecast; `r` close to close over `sd` (null after a break), `rel` minus the cross-section."""
    bars = simulated(settings, calendar=calendar)
    known = pl.concat(planted_forecast(settings, clock=Clock(calendar)))
    assert known.select("symbol", "ts").equals(bars.select("symbol", "ts"))
    table = place(bars.with_columns(calendar=pl.lit(calendar))).with_columns(known.drop("symbol", "ts"))
    unbroken = pl.col("segment") == pl.col("segment").shift(1).over("symbol")
    step = (pl.col("close") / pl.col("close").shift(1).over("symbol")).log()
    table = table.with_columns(step=pl.when(unbroken).then(step))
    table = table.with_columns(r=pl.col("step") / pl.col("sd"))
    return table.with_columns(rel=pl.col("r") - pl.col("r").mean().over("ts"))


def correlation(table: pl.DataFrame, one: str, other: str) -> tuple[float, float]:
    """Pearson correlation and its standard error where there is none."""
    pairs = table.select(one, other).drop_nulls()
    return float(pairs.select(pl.corr(one, other)).item()), 1.0 / sqrt(pairs.height)
