"""In: prepared bars of one symbol. Out: 12 price features: scaled returns, the shape of the bar, the opening gap."""

from __future__ import annotations

from typing import Final

import polars as pl

from klinepred.features.prepare import SIGMA_BARS, C, H, L, O, S, back
from klinepred.features.spec import Feature

_NISON = "Nison, Japanese Candlestick Charting Techniques (1991)"
_SCALED = "log return in units of trailing volatility; Lo and MacKinlay, Review of Financial Studies 1 (1988)"


def _scaled_return(bars: int) -> Feature:
    return Feature(
        name=f"price__return_{bars}",
        formula=f"(log c - log c[{bars} bars ago]) / (s * sqrt({bars})); masked across a missing bar",
        expression=back(bars) / (S * bars**0.5),
        first_value=max(27, bars + 1),
        lookback_bars=max(SIGMA_BARS, bars) + 1,
        source=_SCALED,
    )


def _shape(what: str, formula: str, expression: pl.Expr) -> Feature:
    return Feature(f"price__{what}", formula, expression, first_value=1, lookback_bars=1, source=_NISON)


_TOP: Final = pl.max_horizontal(O, C)
_BOTTOM: Final = pl.min_horizontal(O, C)

PRICE: Final = (
    *(_scaled_return(bars) for bars in (1, 2, 3, 6, 12, 24, 78)),
    _shape("body", "(c - o) / (h - l); masked on a flat bar", (C - O) / (H - L)),
    _shape("upper_shadow", "(h - max(o, c)) / (h - l); masked on a flat bar", (H - _TOP) / (H - L)),
    _shape("lower_shadow", "(min(o, c) - l) / (h - l); masked on a flat bar", (_BOTTOM - L) / (H - L)),
    _shape("close_location", "(c - l) / (h - l); masked on a flat bar", (C - L) / (H - L)),
    Feature(
        name="price__overnight_gap",
        formula="log(o of the session's first bar / c of the bar before) / (s there * 8), held through the session;"
        " masked where the first bar is missing",
        expression=pl.col("_gap").forward_fill().over("session"),
        first_value=28,
        lookback_bars=SIGMA_BARS + 2,
        lookback_sessions=2,
        source="Lou, Polk and Skouras, Journal of Financial Economics 134 (2019)",
    ),
)
