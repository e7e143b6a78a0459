"""In: prepared bars of one symbol. Out: 12 trend features: averages, oscillators, slope, distance to extremes."""

from __future__ import annotations

from typing import Final

import polars as pl
import polars_talib as ta

from klinepred.features.prepare import ATR, BIG_C, BIG_H, BIG_L, LOG_C, ROW, STEP, C, H, L, S, mean, moved
from klinepred.features.spec import Feature, Shared

_WILDER = "Wilder, New Concepts in Technical Trading Systems (1978); TA-Lib"
SLOPE_BARS: Final = 24
STILL: Final = 156
"""Bars without a move after which Wilder's sums of moves have all but decayed to 0/0."""

FADE: Final = 260
"""Bars after which an average of Wilder's over 14 bars has forgotten a value to less than 1e-8."""


def _quiet() -> pl.Expr:
    """The longest stretch without directional movement that any of the last `FADE` bars looks back on, in bars.

    Without movement of either direction the ratio of the two sums stays what it was, however long ago, and the average
    of the ratio remembers it: a new movement alone does not end that.
    """
    up, down = H - H.shift(1), L.shift(1) - L
    directed = ((up > 0.0) & (up > down)) | ((down > 0.0) & (down > up))
    last = pl.when(directed).then(ROW).forward_fill().fill_null(0)
    return (ROW - last).rolling_max(FADE, min_samples=1)


def _ema_ratio(fast: int, slow: int, *, reach: int) -> Feature:
    ratio = C.ewm_mean(span=fast, adjust=False) / C.ewm_mean(span=slow, adjust=False)
    return Feature(
        name=f"trend__ema_{fast}_{slow}",
        formula=f"log(EMA{fast}(c) / EMA{slow}(c)) / s; EMAs start from the first close",
        expression=ratio.log() / S,
        first_value=max(27, slow),
        lookback_bars=reach,
        source="Brock, Lakonishok and LeBaron, Journal of Finance 47 (1992)",
    )


# Least squares of log c on time over 24 bars, each window summed afresh, so that sums do not drift; the level starts
# from 0, so that its squares do not cancel.
_TIME: Final = [step - (SLOPE_BARS - 1) / 2 for step in range(SLOPE_BARS)]
_ONES: Final = [1.0] * SLOPE_BARS
_LEVEL: Final = pl.col("_level")
SHARED: Final[Shared] = (
    {"_level": LOG_C - LOG_C.first(), "_atr": ta.atr(H, L, C, 14), "_high_14": ta.max(H, 14), "_low_14": ta.min(L, 14)},
    {
        "_sxy": _LEVEL.rolling_sum(SLOPE_BARS, weights=_TIME),
        "_sy": _LEVEL.rolling_sum(SLOPE_BARS, weights=_ONES),
        "_syy": (_LEVEL**2).rolling_sum(SLOPE_BARS, weights=_ONES),
    },
)
_R2: Final = pl.col("_sxy") ** 2 / (sum(step**2 for step in _TIME) * (pl.col("_syy") - pl.col("_sy") ** 2 / SLOPE_BARS))


def _folded_t(knee: float) -> pl.Expr:
    """t / sqrt(1 + (t / knee)^2) of the slope, by the correlation: finite on a straight line too."""
    free = SLOPE_BARS - 2
    share = pl.when(moved("c", SLOPE_BARS)).then(_R2).clip(0.0, 1.0)
    return pl.col("_sxy").sign() * (free * share / (1.0 - share * (1.0 - free / knee**2))).sqrt()


TREND: Final = (
    _ema_ratio(6, 24, reach=210),
    _ema_ratio(12, 48, reach=420),
    Feature(
        name="trend__macd_hist_12_26_9",
        formula="(MACD(12, 26) - its EMA9) / ATR14; masked where s is",
        expression=pl.when(S.is_not_null()).then(ta.macd(C, 12, 26, 9).struct.field("macdhist") / ATR),
        first_value=34,
        lookback_bars=320,
        source="Appel, Technical Analysis: Power Tools (2005); TA-Lib",
    ),
    Feature(
        name="trend__rsi_14",
        formula=f"RSI14(c), Wilder's smoothing; masked while c has not moved for {STILL} bars",
        expression=pl.when(moved("c", STILL)).then(ta.rsi(BIG_C, 14)),
        first_value=15,
        lookback_bars=420,
        source=_WILDER,
    ),
    Feature(
        name="trend__stochastic_14",
        formula="(c - lowest l of 14) / (highest h of 14 - lowest l of 14)",
        expression=(C - pl.col("_low_14")) / (pl.col("_high_14") - pl.col("_low_14")),
        first_value=14,
        lookback_bars=14,
        source="Lane, Technical Analysis of Stocks & Commodities 2 (1984)",
    ),
    Feature(
        name="trend__cci_20",
        formula="CCI20(h, l, c); masked where the typical price is constant",
        expression=pl.when(moved("typical", 20)).then(ta.cci(H, L, C, 20)),
        first_value=20,
        lookback_bars=20,
        source="Lambert, Commodities (October 1980); TA-Lib",
    ),
    Feature(
        name="trend__adx_14",
        formula=f"ADX14(h, l, c); masked while any of the last {FADE} bars had no directed movement for {STILL} bars",
        expression=pl.when(_quiet() < STILL).then(ta.adx(BIG_H, BIG_L, BIG_C, 14)),
        first_value=28,
        lookback_bars=420,
        source=_WILDER,
        revision=2,
    ),
    Feature(
        name="trend__aroon_25",
        formula="Aroon oscillator over 25 bars: 100 (bars since the lowest l - bars since the highest h) / 25",
        expression=ta.aroonosc(H, L, 25),
        first_value=26,
        lookback_bars=26,
        source="Chande, Technical Analysis of Stocks & Commodities 13 (1995); TA-Lib",
    ),
    Feature(
        name=f"trend__slope_t_{SLOPE_BARS}",
        formula=f"t of the least-squares slope of log c over {SLOPE_BARS} bars, folded: t / sqrt(1 + t^2 / 25);"
        " masked while c has not moved",
        expression=_folded_t(5.0),
        first_value=SLOPE_BARS,
        lookback_bars=SLOPE_BARS,
        source="Draper and Smith, Applied Regression Analysis (1998)",
    ),
    Feature(
        name="trend__high_78",
        formula="log(c / highest h of 78) / (s * sqrt(78))",
        expression=(C / ta.max(H, 78)).log() / (S * 78**0.5),
        first_value=78,
        lookback_bars=79,
        source="George and Hwang, Journal of Finance 59 (2004)",
    ),
    Feature(
        name="trend__low_78",
        formula="log(c / lowest l of 78) / (s * sqrt(78))",
        expression=(C / ta.min(L, 78)).log() / (S * 78**0.5),
        first_value=78,
        lookback_bars=79,
        source="George and Hwang, Journal of Finance 59 (2004)",
    ),
    Feature(
        name="trend__efficiency_12",
        formula="(c - c[12 bars ago]) / sum over 12 bars of |c - c[1 bar ago]|; masked while the price has not moved",
        expression=pl.when(moved("c", 13)).then((LOG_C - LOG_C.shift(12)) / (12.0 * mean(STEP.abs(), 12))),
        first_value=13,
        lookback_bars=13,
        revision=2,
        source="Kaufman, Smarter Trading (1995), efficiency ratio with its sign, on log prices",
    ),
)
