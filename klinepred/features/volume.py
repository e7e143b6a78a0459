"""In: prepared bars of one symbol. Out: 8 volume features: against usual volume, flow, value-weighted price, impact."""

from __future__ import annotations

from typing import Final

import polars as pl
import polars_talib as ta

from klinepred.features.prepare import (
    BAR,
    BIG_C,
    BIG_H,
    BIG_L,
    BIG_V,
    SIGMA_BARS,
    SIGMA_LEAST,
    STEP,
    TYPICAL,
    WIDTH,
    C,
    H,
    L,
    R,
    S,
    V,
    mean,
    spread,
    tilt,
)
from klinepred.features.spec import Feature, Per, Shared

SESSIONS: Final = 20
_IMPACT: Final = pl.col("_impact")
_LONG: Final = pl.col("_long")
_FLOW: Final = pl.when(H > L).then((2.0 * C - H - L) / WIDTH).otherwise(0.0) * V
_MEAN_V: Final = pl.col("_mean_v")
_X, _Y = pl.col("_x"), pl.col("_y")

SHARED: Final[Shared] = (
    {
        "_day": (pl.col("session") != pl.col("session").shift(1)).fill_null(True).cum_sum().cast(pl.Int64),
        "_value": TYPICAL * V,
        "_moving": pl.when((TYPICAL - TYPICAL.shift(1)).abs() > 1e-12 * TYPICAL).then(V).otherwise(0.0),
        "_mean_v": mean(V, SIGMA_BARS, least=12),
        "_impact": pl.when(V > 0.0).then(R.abs() / (C * V)),
    },
    {
        "_usual": Per("bar", V.rolling_mean_by("_day", window_size=f"{SESSIONS}i", closed="left")),
        "_values": Per("session", pl.col("_value").cum_sum()),
        "_traded": Per("session", V.cum_sum()),
        "_x": pl.when(_MEAN_V > 0.0).then(R / S),
        "_long": mean(_IMPACT, SIGMA_BARS, least=SIGMA_LEAST),
        "_mean_vv": mean(V * V, SIGMA_BARS),
    },
    {"_y": pl.when(_X.is_not_null()).then(V / _MEAN_V)},
    {
        f"_mean_{name}": mean(value, 24, least=12)
        for name, value in {"x": _X, "y": _Y, "xy": _X * _Y, "xx": _X**2, "yy": _Y**2}.items()
    },
    {
        "_spread_x": spread(pl.col("_mean_xx"), pl.col("_mean_x"), least=1e-10),
        "_spread_y": spread(pl.col("_mean_yy"), pl.col("_mean_y"), least=1e-10),
    },
)


VOLUME: Final = (
    Feature(
        name="volume__same_time_20",
        formula="log(v / mean of v at the same bar of the last 20 sessions, as many as there are); masked at volume 0",
        expression=(V / pl.col("_usual")).log(),
        first_value=2,
        lookback_bars=1,
        lookback_sessions=SESSIONS,
        seasonal=True,
        source="Admati and Pfleiderer, Review of Financial Studies 1 (1988): volume has its time of day",
    ),
    Feature(
        name="volume__z_78",
        formula="(v - mean of v over 78 bars) / standard deviation of v over 78 bars",
        expression=(V - _MEAN_V) / spread(pl.col("_mean_vv"), _MEAN_V),
        first_value=SIGMA_BARS,
        lookback_bars=SIGMA_BARS,
        source="standard score",
    ),
    Feature(
        name="volume__obv_slope_24",
        formula="sum over 24 bars of sign(c - c[1 bar ago]) v / sum over 24 bars of v",
        expression=mean((STEP.sign() * V).fill_null(0.0), 24) / mean(V, 24),
        first_value=25,
        lookback_bars=25,
        source="Granville, New Key to Stock Market Profits (1963), change of on-balance volume per volume",
    ),
    Feature(
        name="volume__mfi_14",
        formula="MFI14(h, l, c, v); masked without money flow",
        expression=pl.when(pl.col("_moving").rolling_max(14) > 0.0).then(ta.mfi(BIG_H, BIG_L, BIG_C, BIG_V, 14)),
        first_value=15,
        lookback_bars=15,
        source="Quong and Soudack, Technical Analysis of Stocks & Commodities 7 (1989); TA-Lib",
    ),
    Feature(
        name="volume__money_flow_20",
        formula="sum over 20 bars of v ((c - l) - (h - c)) / (h - l) / sum over 20 bars of v; a flat bar counts 0",
        expression=mean(_FLOW, 20) / mean(V, 20),
        first_value=20,
        lookback_bars=20,
        source="Chaikin money flow; Colby, The Encyclopedia of Technical Market Indicators (2003)",
    ),
    Feature(
        name="volume__vwap_distance",
        formula="log(c / session VWAP of (h + l + c) / 3) / (s * sqrt(bars since the open))",
        expression=(C * pl.col("_traded") / pl.col("_values")).log() / (S * (BAR + 1).cast(pl.Float64).sqrt()),
        first_value=27,
        lookback_bars=SIGMA_BARS + 1,
        lookback_sessions=1,
        source="Berkowitz, Logue and Noser, Journal of Finance 43 (1988)",
    ),
    Feature(
        name="volume__illiquidity_12_78",
        formula="(a - b) / (a + b), a and b the means of |r| / (c v) over 12 and 78 bars, without bars of volume 0;"
        " masked where the price has not moved",
        expression=pl.when(_LONG * C * _MEAN_V > 1e-9 * S).then(tilt(mean(_IMPACT, 12, least=6), _LONG)),
        first_value=28,
        lookback_bars=SIGMA_BARS + 1,
        source="Amihud, Journal of Financial Markets 5 (2002)",
    ),
    Feature(
        name="volume__price_correlation_24",
        formula="correlation over 24 bars of r / s and v / its mean over 78 bars",
        expression=(
            (pl.col("_mean_xy") - pl.col("_mean_x") * pl.col("_mean_y")) / (pl.col("_spread_x") * pl.col("_spread_y"))
        ).clip(-1.0, 1.0),
        first_value=40,
        lookback_bars=SIGMA_BARS + 25,
        source="Karpoff, Journal of Financial and Quantitative Analysis 22 (1987)",
    ),
)
