"""In: all symbols' scaled returns. Out: 4 cross-section features over the universe, one time at a time."""

# Shapes: N rows, sorted by symbol and ts.

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from klinepred.features.prepare import SIGMA_BARS, SIGMA_LEAST, S, back, mean
from klinepred.features.spec import Feature

QUORUM: Final = 5
"""Symbols of the universe with a value at one time that a cross-section needs; below it features are neutral."""

CROSS_INPUT: Final = {"_z": back(1) / S, "_z_12": back(12) / (S * 12**0.5)}
"""price__return_1 and price__return_12 in Float64: what the cross-section reads of each symbol."""

_Z: Final = pl.col("_z")
_MARKET: Final = pl.col("_market")
_BOTH: Final = pl.when(_Z.is_not_null() & _MARKET.is_not_null())


def _average(value: pl.Expr) -> pl.Expr:
    return mean(value, SIGMA_BARS, least=SIGMA_LEAST)


def _beta() -> pl.Expr:
    z, m = _BOTH.then(_Z), _BOTH.then(_MARKET)
    spread = _average(m**2) - _average(m) ** 2
    slope = (_average(z * m) - _average(z) * _average(m)) / spread
    return pl.when(spread > 1e-9).then(slope.clip(-10.0, 10.0)).otherwise(1.0)


CROSS: Final = (
    Feature(
        name="cross__market_1",
        formula="mean of price__return_1 over the universe; 0 below a quorum of 5",
        expression=_MARKET.fill_null(0.0),
        first_value=27,
        lookback_bars=SIGMA_BARS + 1,
        source="Sharpe, Journal of Finance 19 (1964)",
    ),
    Feature(
        name="cross__relative_1",
        formula="price__return_1 - its mean over the universe; 0 below a quorum of 5",
        expression=pl.when(_MARKET.is_null()).then(0.0).otherwise(_Z - _MARKET),
        first_value=27,
        lookback_bars=SIGMA_BARS + 1,
        source="Lehmann, Quarterly Journal of Economics 105 (1990)",
    ),
    Feature(
        name="cross__rank_12",
        formula="share of the other symbols of the universe with a lower price__return_12 (ties half) - 1/2;"
        " 0 below a quorum of 5",
        expression=pl.col("_rank"),
        first_value=27,
        lookback_bars=SIGMA_BARS + 1,
        source="Jegadeesh and Titman, Journal of Finance 48 (1993)",
    ),
    Feature(
        name="cross__beta_78",
        formula="slope over 78 bars of price__return_1 on its mean over the universe, within +-10; 1 without a market",
        expression=_beta(),
        first_value=27,
        lookback_bars=2 * SIGMA_BARS + 1,
        source="Fama and MacBeth, Journal of Political Economy 81 (1973)",
    ),
)


def cross_columns(frame: pl.DataFrame, *, universe: tuple[str, ...]) -> pl.DataFrame:
    """Add `_market` and `_rank`: one time at a time over the symbols of the universe alone.

    Sums run over the symbols in their sorted order, in Float64: the same bits whatever else is in the frame.

    Parameters
    ----------
    frame
        symbol, ts and the columns of `CROSS_INPUT` (Float64), sorted by symbol and ts.
    """
    member_N = frame.get_column("symbol").is_in(list(universe)).to_numpy()
    _, time_N = np.unique(frame.get_column("ts").to_physical().to_numpy(), return_inverse=True)
    market_N = _means(frame.get_column("_z").to_numpy(), time_N, member_N)
    rank_N = _ranks(frame.get_column("_z_12").to_numpy(), time_N, member_N)
    return frame.with_columns(_market=pl.Series(market_N, nan_to_null=True), _rank=pl.Series(rank_N, nan_to_null=True))


def _means(value_N: np.ndarray, time_N: np.ndarray, member_N: np.ndarray) -> np.ndarray:
    """Mean over the members at each row's time; NaN below the quorum."""
    rows = np.flatnonzero(member_N & np.isfinite(value_N))
    out_N = np.full(value_N.size, np.nan)
    if rows.size == 0:
        return out_N
    rows = rows[np.argsort(time_N[rows], kind="stable")]
    starts = np.flatnonzero(np.r_[True, time_N[rows][1:] != time_N[rows][:-1]])
    counts = np.diff(np.r_[starts, rows.size])
    by_time = np.full(int(time_N.max()) + 1, np.nan)
    average = np.add.reduceat(value_N[rows], starts) / counts
    by_time[time_N[rows[starts]]] = np.where(counts >= QUORUM, average, np.nan)
    return np.asarray(by_time[time_N])


def _ranks(value_N: np.ndarray, time_N: np.ndarray, member_N: np.ndarray) -> np.ndarray:
    """Share of the other members below each row's value (ties half) - 1/2; 0 below the quorum, NaN without a value."""
    out_N = np.full(value_N.size, np.nan)
    rows = np.flatnonzero(np.isfinite(value_N))
    if rows.size == 0:
        return out_N
    rows = rows[np.lexsort((value_N[rows], time_N[rows]))]
    time, value, member = time_N[rows], value_N[rows], member_N[rows].astype(np.int64)
    fresh_time = np.r_[True, time[1:] != time[:-1]]
    fresh_value = fresh_time | np.r_[True, value[1:] != value[:-1]]
    before = np.r_[0, np.cumsum(member)]  # members before each sorted position
    first_of_time = np.maximum.accumulate(np.where(fresh_time, np.arange(rows.size), 0))
    first_of_value = np.maximum.accumulate(np.where(fresh_value, np.arange(rows.size), 0))
    end_of_time, end_of_value = _ends(fresh_time), _ends(fresh_value)
    below = before[first_of_value] - before[first_of_time]
    equal = before[end_of_value] - before[first_of_value] - member
    others = before[end_of_time] - before[first_of_time] - member
    share = (below + 0.5 * equal) / np.maximum(others, 1) - 0.5
    out_N[rows] = np.where(others + member >= QUORUM, share, 0.0)
    return out_N


def _ends(fresh: np.ndarray) -> np.ndarray:
    """One past the last position of each position's group."""
    starts = np.flatnonzero(fresh)
    sizes = np.diff(np.r_[starts, fresh.size])
    return np.repeat(starts + sizes, sizes)
