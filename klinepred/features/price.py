"""In: prepared bars of one symbol. Out: 12 price features: scaled returns, the shape of the bar, the opening gap."""

from __future__ import annotations

from typing import Final

import polars as pl

from klinepred.features.prepare import BAR, LOG_C, SIGMA_BARS, WIDTH, C, H, L, O, S, back
from klinepred.features.spec import Feature, Per, Shared

_NISON = "Nison, Japanese Candlestick Charting Techniques (1991)"
_SCALED = "log return in units of trailing volatility; Lo and MacKinlay, Review of Financial Studies 1 (1988)"
LONGEST_SESSION: Final = 288


def _scaled_return(bars: int) -> Feature:
    text = "r, over a market break too, / s" if bars == 1 else f"(log c - log c[{bars} bars ago]) / (s * sqrt({bars}))"
    return Feature(
        name=f"price__return_{bars}",
        formula=f"{text}; masked across a missing bar",
        expression=back(bars) / (S * bars**0.5),
        first_value=max(27, bars + 1),
        lookback_bars=max(SIGMA_BARS, bars) + 1,
        source=_SCALED,
    )


def _shape(what: str, formula: str, expression: pl.Expr) -> Feature:
    return Feature(f"price__{what}", formula, expression, first_value=1, lookback_bars=1, source=_NISON)


# the bar before lies in the session just before, whether or not it is its last bar
_NEXT_SESSION: Final = (BAR == 0) & (
    BAR.shift(1) + pl.col("slot") - pl.col("slot").shift(1) == pl.col("session_bars").shift(1)
)
_GAP: Final = (O.log() - LOG_C.shift(1)) / (S.shift(1) * 8.0)

SHARED: Final[Shared] = (
    {"_gap": pl.when(_NEXT_SESSION).then(_GAP)},
    {"_held": Per("session", pl.col("_gap").forward_fill())},
)

PRICE: Final = (
    *(_scaled_return(bars) for bars in (1, 2, 3, 6, 12, 24, 78)),
    _shape("body", "(c - o) / (h - l); masked on a flat bar", (C - O) / WIDTH),
    _shape("upper_shadow", "(h - max(o, c)) / (h - l); masked on a flat bar", (H - pl.max_horizontal(O, C)) / WIDTH),
    _shape("lower_shadow", "(min(o, c) - l) / (h - l); masked on a flat bar", (pl.min_horizontal(O, C) - L) / WIDTH),
    _shape("close_location", "(c - l) / (h - l); masked on a flat bar", (C - L) / WIDTH),
    Feature(
        name="price__overnight_gap",
        formula="log(o of the session's first bar / last c of the session before) / (8 s there), held through the"
        " session; masked where the first bar, or all of the session before, is missing",
        expression=pl.col("_held"),
        first_value=28,
        lookback_bars=LONGEST_SESSION + SIGMA_BARS + 1,
        source="Lou, Polk and Skouras, Journal of Financial Economics 134 (2019)",
    ),
)
