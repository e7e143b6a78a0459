"""In: prepared bars of one symbol. Out: 8 volume features: against usual volume, flow, value-weighted price, impact."""

from __future__ import annotations

from typing import Final

import polars as pl
import polars_talib as ta

from klinepred.features.prepare import BAR, LOG_C, SIGMA_BARS, SIGMA_LEAST, C, H, L, R, S, V, deviation, mean
from klinepred.features.spec import Feature

SESSIONS: Final = 20
_USUAL: Final = V.shift(1).rolling_mean(SESSIONS, min_samples=1).over("bar")
_TYPICAL: Final = (H + L + C) / 3.0
_VALUE: Final = (_TYPICAL * V).cum_sum().over("session")
_TRADED: Final = V.cum_sum().over("session")
_FLOW: Final = pl.when(H > L).then((2.0 * C - H - L) / (H - L)).otherwise(0.0) * V
_IMPACT: Final = pl.when(V > 0).then(R.abs() / (C * V))
_STEP: Final = LOG_C - LOG_C.shift(1)
_PART: Final = V / mean(V, SIGMA_BARS, least=12)


def _correlation(one: pl.Expr, two: pl.Expr, bars: int) -> pl.Expr:
    both = pl.when(one.is_not_null() & two.is_not_null())
    x, y = both.then(one), both.then(two)
    joint = mean(x * y, bars, least=bars // 2) - mean(x, bars, least=bars // 2) * mean(y, bars, least=bars // 2)
    return (joint / (deviation(x, bars, least=bars // 2) * deviation(y, bars, least=bars // 2))).clip(-1.0, 1.0)


VOLUME: Final = (
    Feature(
        name="volume__same_time_20",
        formula="log(v / mean of v at the same bar of the last 20 sessions, as many as there are); masked at volume 0",
        expression=(V / _USUAL).log(),
        first_value=2,
        lookback_bars=1,
        lookback_sessions=SESSIONS,
        source="Admati and Pfleiderer, Review of Financial Studies 1 (1988): volume has its time of day",
    ),
    Feature(
        name="volume__z_78",
        formula="(v - mean of v over 78 bars) / standard deviation of v over 78 bars",
        expression=(V - mean(V, SIGMA_BARS)) / deviation(V, SIGMA_BARS),
        first_value=79,
        lookback_bars=79,
        source="standard score",
    ),
    Feature(
        name="volume__obv_slope_24",
        formula="sum over 24 bars of sign(c - c[1 bar ago]) v / sum over 24 bars of v",
        expression=mean(_STEP.sign() * V, 24) / mean(V, 24),
        first_value=25,
        lookback_bars=25,
        source="Granville, New Key to Stock Market Profits (1963), change of on-balance volume per volume",
    ),
    Feature(
        name="volume__mfi_14",
        formula="MFI14(h, l, c, v); masked without money flow",
        expression=pl.when((V.rolling_max(14) > 0) & (_TYPICAL.rolling_max(15) > _TYPICAL.rolling_min(15))).then(
            ta.mfi(H, L, C, V, 14)
        ),
        first_value=15,
        lookback_bars=15,
        source="Quong and Soudack, Technical Analysis of Stocks & Commodities 7 (1989); TA-Lib",
    ),
    Feature(
        name="volume__money_flow_20",
        formula="sum over 20 bars of v ((c - l) - (h - c)) / (h - l) / sum over 20 bars of v; a flat bar counts 0",
        expression=mean(_FLOW, 20) / mean(V, 20),
        first_value=21,
        lookback_bars=21,
        source="Chaikin money flow; Colby, The Encyclopedia of Technical Market Indicators (2003)",
    ),
    Feature(
        name="volume__vwap_distance",
        formula="log(c / session VWAP of (h + l + c) / 3) / (s * sqrt(bars since the open))",
        expression=(C / (_VALUE / _TRADED)).log() / (S * (BAR + 1).cast(pl.Float64).sqrt()),
        first_value=27,
        lookback_bars=SIGMA_BARS + 1,
        lookback_sessions=1,
        source="Berkowitz, Logue and Noser, Journal of Finance 43 (1988)",
    ),
    Feature(
        name="volume__illiquidity_12_78",
        formula="log(mean over 12 bars of |r| / (c v) / the same over 78 bars); bars without volume left out",
        expression=(mean(_IMPACT, 12, least=6) / mean(_IMPACT, SIGMA_BARS, least=SIGMA_LEAST)).log(),
        first_value=28,
        lookback_bars=SIGMA_BARS + 1,
        source="Amihud, Journal of Financial Markets 5 (2002)",
    ),
    Feature(
        name="volume__price_correlation_24",
        formula="correlation over 24 bars of r / s and v / its mean over 78 bars",
        expression=_correlation(R / S, _PART, 24),
        first_value=40,
        lookback_bars=SIGMA_BARS + 25,
        source="Karpoff, Journal of Financial and Quantitative Analysis 22 (1987)",
    ),
)
