"""In: all symbols' scaled returns. Out: 4 cross-section features over the universe, one time at a time."""

# Shapes: N rows, sorted by symbol and ts; T times, S symbols.

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from klinepred.features.prepare import SIGMA_BARS, SIGMA_LEAST, S, back, mean
from klinepred.features.spec import Feature
from klinepred.schema import BAR_US

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

QUORUM: Final = 5
"""Symbols of the universe with a value at one time that a cross-section needs; below it features are neutral."""

CROSS_BARS: Final = 2 * SIGMA_BARS + 1
"""A member that misses up to half its bars has its trailing volatility by then too."""

SLICE: Final = 2_000_000
"""Values of the cross-section held at once."""

CROSS_INPUT: Final = {"_z": back(1) / S, "_z_12": (back(12) / (S * 12**0.5)).round(9)}
"""price__return_1 and price__return_12 in Float64, the latter to 9 decimals: equal moves are ties, not rounding."""

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
        lookback_bars=CROSS_BARS,
        source="Sharpe, Journal of Finance 19 (1964)",
    ),
    Feature(
        name="cross__relative_1",
        formula="price__return_1 - its mean over the universe; 0 below a quorum of 5",
        expression=pl.when(_MARKET.is_null()).then(0.0).otherwise(_Z - _MARKET),
        first_value=27,
        lookback_bars=CROSS_BARS,
        source="Lehmann, Quarterly Journal of Economics 105 (1990)",
    ),
    Feature(
        name="cross__rank_12",
        formula="share of the other symbols of the universe with a lower price__return_12 (ties half) - 1/2;"
        " 0 below a quorum of 5",
        expression=pl.col("_rank"),
        first_value=27,
        lookback_bars=CROSS_BARS,
        source="Jegadeesh and Titman, Journal of Finance 48 (1993)",
    ),
    Feature(
        name="cross__beta_78",
        formula="slope over 78 bars of price__return_1 on its mean over the universe, within +-10; 1 without a market",
        expression=_beta(),
        first_value=27,
        lookback_bars=SIGMA_BARS + CROSS_BARS,
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
    symbol_N, names = _numbered(frame.get_column("symbol"))
    member_S = names.is_in(list(universe)).to_numpy()
    time_N, times = _steps(frame.get_column("ts").to_physical().to_numpy())
    z_N, z_12_N = (frame.get_column(name).to_numpy() for name in CROSS_INPUT)
    market_N, rank_N = np.full(time_N.size, np.nan), np.full(time_N.size, np.nan)
    width = max(1, SLICE // max(1, len(names)))
    for low in range(0, times, width):
        rows = np.flatnonzero((time_N >= low) & (time_N < low + width)) if width < times else slice(None)
        place = (time_N[rows] - low, symbol_N[rows])
        shape = (min(width, times - low), len(names))
        market_N[rows] = _means(_spread(z_N[rows], place, shape), member_S)[place[0]]
        rank_N[rows] = _ranks(_spread(z_12_N[rows], place, shape), member_S)[place]
    return frame.with_columns(_market=pl.Series(market_N, nan_to_null=True), _rank=pl.Series(rank_N, nan_to_null=True))


def _numbered(symbols: pl.Series) -> tuple[Ints, pl.Series]:
    """The number of each row's symbol, and the symbols; sorted ones."""
    fresh = symbols.ne(symbols.shift(1)).fill_null(True)
    return fresh.cum_sum().to_numpy().astype(np.int64) - 1, symbols.filter(fresh)


def _steps(ts_N: Ints) -> tuple[Ints, int]:
    """The number of each row's time among all that occur, and how many do."""
    if ts_N.size == 0:
        return ts_N, 0
    slot_N = (ts_N - ts_N.min()) // BAR_US
    there = np.zeros(int(slot_N.max()) + 1, dtype=np.int64)
    there[slot_N] = 1
    return (np.cumsum(there) - 1)[slot_N], int(there.sum())


def _spread(value_N: Floats, place: tuple[Ints, Ints], shape: tuple[int, int]) -> Floats:
    """[T, S] of values, NaN where there is none."""
    value_TS = np.full(shape, np.nan)
    value_TS[place] = value_N
    return value_TS


def _means(value_TS: Floats, member_S: Flags) -> Floats:
    """Mean over the members at each time; NaN below the quorum."""
    counted_TS = np.isfinite(value_TS) & member_S
    counts = counted_TS.sum(axis=1)
    some = np.flatnonzero(counts)
    out_T = np.full(counts.size, np.nan)
    if some.size:
        starts = (np.cumsum(counts) - counts)[some]
        # rows of different length are summed each by itself: a symbol without a value leaves no trace in the sum
        out_T[some] = np.add.reduceat(value_TS[counted_TS], starts) / counts[some]
    return np.where(counts >= QUORUM, out_T, np.nan)


def _ranks(value_TS: Floats, member_S: Flags) -> Floats:
    """Share of the other members below each value (ties half) - 1/2; 0 below the quorum, NaN without a value."""
    order_TS = np.argsort(value_TS, axis=1)  # NaN last
    sorted_TS = np.take_along_axis(value_TS, order_TS, axis=1)
    known_TS = np.isfinite(sorted_TS)
    member_TS = (member_S[order_TS] & known_TS).astype(np.int32)
    upto_TS = np.cumsum(member_TS, axis=1)
    total_T1 = upto_TS[:, -1:]
    spot_TS = np.broadcast_to(np.arange(value_TS.shape[1]), value_TS.shape)
    fresh_TS = np.ones(value_TS.shape, dtype=np.bool_)
    fresh_TS[:, 1:] = sorted_TS[:, 1:] != sorted_TS[:, :-1]
    last_TS = np.ones(value_TS.shape, dtype=np.bool_)
    last_TS[:, :-1] = fresh_TS[:, 1:]
    first_TS = np.maximum.accumulate(np.where(fresh_TS, spot_TS, 0), axis=1)
    final_TS = np.minimum.accumulate(np.where(last_TS, spot_TS, value_TS.shape[1])[:, ::-1], axis=1)[:, ::-1]
    below_TS = np.take_along_axis(upto_TS - member_TS, first_TS, axis=1)
    equal_TS = np.take_along_axis(upto_TS, final_TS, axis=1) - below_TS - member_TS
    share_TS = (below_TS + 0.5 * equal_TS) / np.maximum(total_T1 - member_TS, 1) - 0.5
    share_TS = np.where(known_TS, np.where(total_T1 >= QUORUM, share_TS, 0.0), np.nan)
    out_TS = np.empty(value_TS.shape)
    np.put_along_axis(out_TS, order_TS, share_TS, axis=1)
    return out_TS
