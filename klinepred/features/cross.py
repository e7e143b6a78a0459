"""In: all symbols' scaled returns. Out: 4 cross-section features over the universe, one time at a time."""

# Shapes: N rows, sorted by symbol and ts; T times, S symbols.

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from klinepred.features.prepare import SIGMA_BARS, SIGMA_LEAST, S, back, mean
from klinepred.features.spec import Feature
from klinepred.features.workers import crew, each
from klinepred.schema import BAR_US

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

QUORUM: Final = 5
"""Symbols of the universe with a value at one time that a cross-section needs; below it features are neutral."""

CROSS_BARS: Final = 2 * SIGMA_BARS + 1
"""A member that misses up to half its bars has its trailing volatility by then too."""

SLICE: Final = 1_000_000
"""Values of the cross-section held at once by one thread."""

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


def cross_columns(z_N: Floats, z_12_N: Floats, *, ts_N: Ints, sizes: Ints, member_S: Flags) -> tuple[Floats, Floats]:
    """Market return and rank of each row, one time at a time over the symbols of the universe alone.

    Sums run over the symbols in their sorted order, in Float64: the same bits whatever else is in the frame.

    Parameters
    ----------
    z_N, z_12_N
        The columns of `CROSS_INPUT`, NaN where there is no value; sorted by symbol and time.
    ts_N
        Bar opens, microseconds since 1970.
    sizes
        Rows of each symbol.
    member_S
        Whether a symbol is of the universe.

    Returns
    -------
    tuple
        Mean over the universe, NaN below the quorum; rank, 0 below the quorum and NaN without a value.
    """
    symbol_N = np.repeat(np.arange(sizes.size), sizes)
    time_N, times = _steps(ts_N)
    market_N, rank_N = np.full(time_N.size, np.nan), np.full(time_N.size, np.nan)
    width = max(1, min(SLICE // max(1, sizes.size), -(-times // crew())))

    def fill(low: int) -> None:
        rows = np.flatnonzero((time_N >= low) & (time_N < low + width)) if width < times else slice(None)
        place = (time_N[rows] - low, symbol_N[rows])
        shape = (min(width, times - low), sizes.size)
        market_N[rows] = _means(_spread(z_N[rows], place, shape), member_S)[place[0]]
        rank_N[rows] = _ranks(_spread(z_12_N[rows], place, shape), member_S)[place]

    each(fill, range(0, times, width))
    return market_N, rank_N


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
    member_TS = member_S[order_TS] & np.isfinite(sorted_TS)
    upto_TS = np.cumsum(member_TS, axis=1, dtype=np.int32)
    total_T1 = upto_TS[:, -1:]
    below_TS = (upto_TS - member_TS).astype(np.float64)
    _share_ties(below_TS, sorted_TS, upto_TS, member_TS)
    share_TS = below_TS / np.maximum(total_T1 - member_TS, 1) - 0.5
    share_TS[(total_T1 < QUORUM)[:, 0]] = 0.0
    share_TS[np.isnan(sorted_TS)] = np.nan
    out_TS = np.empty(value_TS.shape)
    np.put_along_axis(out_TS, order_TS, share_TS, axis=1)
    return out_TS


def _share_ties(below_TS: Floats, sorted_TS: Floats, upto_TS: npt.NDArray[np.int32], member_TS: Flags) -> None:
    """Make `below_TS` count half of the other members of equal value; equal values are few, and lie side by side."""
    same_TS = np.zeros(sorted_TS.shape, dtype=np.bool_)
    same_TS[:, 1:] = sorted_TS[:, 1:] == sorted_TS[:, :-1]  # as the one before; false at NaN
    tied_TS = same_TS.copy()
    tied_TS[:, :-1] |= same_TS[:, 1:]
    spots = np.flatnonzero(tied_TS)
    if spots.size == 0:
        return
    first = ~same_TS.ravel()[spots]
    run = np.cumsum(first) - 1
    below = below_TS.ravel()[spots[first]][run]
    last = np.append(np.flatnonzero(first)[1:], spots.size) - 1
    equal = upto_TS.ravel()[spots[last]][run] - below - member_TS.ravel()[spots]
    below_TS.ravel()[spots] = below + 0.5 * equal
