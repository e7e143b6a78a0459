"""In: symbols, a calendar, a seed, what shall be wrong with them. Out: bars, and their features in Float64."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import polars as pl

from klinepred.calendar import Clock, grid
from klinepred.features.build import F50, FeatureFrame, build_features, compute_features
from klinepred.schema import CALENDAR, PRICES
from tests.bars.made import utc

NAMES = F50.names


def market(
    symbols: Sequence[str] = "ABCDEF",
    calendar: str = "XNYS",
    *,
    start: str = "2026-06-01",
    days: int = 30,
    seed: int = 1,
    price: float = 50.0,
    tick: float = 0.01,
    move: float = 1e-3,
    still: float = 0.0,
    silent: float = 0.0,
    lost: float = 0.0,
) -> pl.DataFrame:
    """Random walks on a tick grid with tails; shares of bars that are flat, without volume, missing."""
    first = utc(start)
    stamps = grid(Clock(calendar), first, first + timedelta(days=days)).get_column("ts")
    chance, size, parts = np.random.default_rng(seed), len(stamps), []
    for symbol in symbols:
        steps = chance.normal(0.0, move, size) * np.exp(chance.normal(0.0, 0.5, size))
        close = price * np.exp(np.cumsum(steps))
        open_ = np.r_[price, close[:-1]] * np.exp(chance.normal(0.0, move / 4.0, size))
        reach = np.abs(chance.normal(0.0, move / 2.0, (2, size)))
        high, low = np.maximum(open_, close) * (1.0 + reach[0]), np.minimum(open_, close) * (1.0 - reach[1])
        o, h, lo, c = (np.maximum(np.round(value / tick), 1.0) * tick for value in (open_, high, low, close))
        flat = chance.random(size) < still
        o, h, lo = np.where(flat, c, o), np.where(flat, c, h), np.where(flat, c, lo)
        volume = np.round(chance.lognormal(10.0, 1.0, size))
        volume[chance.random(size) < silent] = 0.0
        bars = pl.DataFrame({"ts": stamps, "open": o, "high": h, "low": lo, "close": c, "volume": volume})
        parts.append(bars.filter(pl.Series(chance.random(size) >= lost)).select(pl.lit(symbol).alias("symbol"), "*"))
    return pl.concat(parts).with_columns(pl.lit(calendar, dtype=pl.Categorical).alias(CALENDAR)).sort("symbol", "ts")


def float64(bars: pl.DataFrame, *, universe: Sequence[str] | None = None) -> pl.DataFrame:
    """The features before their cast to Float32."""
    return compute_features(bars, universe=universe, dtype=pl.Float64())


def built(bars: pl.DataFrame, *, universe: Sequence[str] | None = None) -> FeatureFrame:
    """What users get."""
    return build_features(bars.sort("symbol", "ts"), universe=universe)


def prices_times(bars: pl.DataFrame, factor: float, *, volume: float = 1.0) -> pl.DataFrame:
    """All prices, all volumes times a number."""
    return bars.with_columns(*(pl.col(name) * factor for name in PRICES), pl.col("volume") * volume)


def bits_differ(one: pl.DataFrame, two: pl.DataFrame) -> list[str]:
    """Names of the features that are not the same bit by bit."""
    return [name for name in NAMES if _bits(one.get_column(name)) != _bits(two.get_column(name))]


def _bits(values: pl.Series) -> tuple[bytes, bytes]:
    return values.is_null().to_numpy().tobytes(), values.fill_null(0.0).to_numpy().tobytes()


def differ(
    one: pl.DataFrame, two: pl.DataFrame, *, spread: pl.DataFrame | None = None, names: Sequence[str] = NAMES
) -> dict[str, float]:
    """Worst |a - b| / max(|a|, spread of a) by feature where it is above 1e-6; infinite where only one is masked."""
    found: dict[str, float] = {}
    for name in names:
        a, b = (frame.get_column(name).cast(pl.Float64).to_numpy() for frame in (one, two))
        whole = (one if spread is None else spread).get_column(name).cast(pl.Float64).drop_nulls().to_numpy()
        unit = np.maximum(np.abs(a), whole.std(ddof=1) if whole.size > 1 else 0.0)
        known = np.isfinite(a) & np.isfinite(b)
        worst = float(np.max((np.abs(a - b) / np.where(unit > 0.0, unit, 1.0))[known], initial=0.0))
        if (np.isfinite(a) != np.isfinite(b)).any():
            worst = np.inf
        if worst > 1e-6:
            found[name] = worst
    return found


def not_finite(frame: pl.DataFrame) -> list[str]:
    """Names of the features that hold NaN or an infinite number."""
    return [name for name in NAMES if not frame.get_column(name).drop_nulls().is_finite().all()]
