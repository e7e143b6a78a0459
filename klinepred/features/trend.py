"""In: prepared bars of one symbol. Out: 12 trend features: averages, oscillators, slope, distance to extremes."""

from __future__ import annotations

from typing import Final

import polars as pl
import polars_talib as ta

from klinepred.features.prepare import LOG_C, C, H, L, S, mean
from klinepred.features.spec import Feature

_TALIB = "TA-Lib"
_WILDER = "Wilder, New Concepts in Technical Trading Systems (1978); TA-Lib"
SLOPE_BARS: Final = 24


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


def _slope_t() -> pl.Expr:
    """t = slope / its standard error of log c on time; each window is summed afresh, so that sums do not drift."""
    n = SLOPE_BARS
    time = [index - (n - 1) / 2 for index in range(n)]
    sxx = sum(step * step for step in time)
    level = LOG_C - LOG_C.first()  # small numbers, so that the squares do not cancel
    sxy = level.rolling_sum(n, weights=time)
    total = level.rolling_sum(n, weights=[1.0] * n)
    syy = (level**2).rolling_sum(n, weights=[1.0] * n) - total**2 / n
    rest = syy - sxy**2 / sxx
    return pl.when(rest > 1e-6 * syy).then((sxy / sxx) / (rest / (n - 2) / sxx).sqrt())


def _folded(value: pl.Expr, knee: float) -> pl.Expr:
    """Odd, linear near 0, within +-`knee`."""
    return value / (1.0 + (value / knee) ** 2).sqrt()


TREND: Final = (
    _ema_ratio(6, 24, reach=210),
    _ema_ratio(12, 48, reach=420),
    Feature(
        name="trend__macd_hist_12_26_9",
        formula="(MACD(12, 26) - its EMA9) / ATR14",
        expression=ta.macd(C, 12, 26, 9).struct.field("macdhist") / ta.atr(H, L, C, 14),
        first_value=34,
        lookback_bars=320,
        source="Appel, Technical Analysis: Power Tools (2005); TA-Lib",
    ),
    Feature(
        name="trend__rsi_14",
        formula="RSI14(c), Wilder's smoothing; masked while the price has not moved",
        expression=pl.when(C.rolling_max(15) > C.rolling_min(15)).then(ta.rsi(C, 14)),
        first_value=15,
        lookback_bars=260,
        source=_WILDER,
    ),
    Feature(
        name="trend__stochastic_14",
        formula="(c - lowest l of 14) / (highest h of 14 - lowest l of 14)",
        expression=(C - L.rolling_min(14)) / (H.rolling_max(14) - L.rolling_min(14)),
        first_value=14,
        lookback_bars=14,
        source="Lane, Technical Analysis of Stocks & Commodities 2 (1984)",
    ),
    Feature(
        name="trend__cci_20",
        formula="CCI20(h, l, c); masked where the typical price is constant",
        expression=pl.when((H + L + C).rolling_max(20) > (H + L + C).rolling_min(20)).then(ta.cci(H, L, C, 20)),
        first_value=20,
        lookback_bars=20,
        source="Lambert, Commodities (October 1980); TA-Lib",
    ),
    Feature(
        name="trend__adx_14",
        formula="ADX14(h, l, c); masked where the bars of 14 are all alike",
        expression=pl.when((H.rolling_max(15) > H.rolling_min(15)) | (L.rolling_max(15) > L.rolling_min(15))).then(
            ta.adx(H, L, C, 14)
        ),
        first_value=28,
        lookback_bars=380,
        source=_WILDER,
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
        formula=f"t of the least-squares slope of log c over {SLOPE_BARS} bars, folded: t / sqrt(1 + t^2 / 25)",
        expression=_folded(_slope_t(), 5.0),
        first_value=SLOPE_BARS,
        lookback_bars=SLOPE_BARS,
        source="Draper and Smith, Applied Regression Analysis (1998)",
    ),
    Feature(
        name="trend__high_78",
        formula="log(c / highest h of 78) / (s * sqrt(78))",
        expression=(C / H.rolling_max(78)).log() / (S * 78**0.5),
        first_value=78,
        lookback_bars=79,
        source="George and Hwang, Journal of Finance 59 (2004)",
    ),
    Feature(
        name="trend__low_78",
        formula="log(c / lowest l of 78) / (s * sqrt(78))",
        expression=(C / L.rolling_min(78)).log() / (S * 78**0.5),
        first_value=78,
        lookback_bars=79,
        source="George and Hwang, Journal of Finance 59 (2004)",
    ),
    Feature(
        name="trend__efficiency_12",
        formula="(c - c[12 bars ago]) / sum over 12 bars of |c - c[1 bar ago]|; masked while the price has not moved",
        expression=(LOG_C - LOG_C.shift(12)) / (12 * mean((LOG_C - LOG_C.shift(1)).abs(), 12)),
        first_value=13,
        lookback_bars=13,
        source="Kaufman, Smarter Trading (1995), efficiency ratio with its sign, on log prices",
    ),
)
