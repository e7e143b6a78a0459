"""In: prepared bars of one symbol. Out: 9 volatility features: level, range estimators, jumps, tails, changes."""

from __future__ import annotations

import math
from typing import Final

import polars as pl

from klinepred.features.prepare import ATR, SIGMA_BARS, SIGMA_LEAST, C, H, L, O, R, S, mean, root_mean_square, tilt
from klinepred.features.spec import Feature, Shared

RUNG: Final = -12.0
"""Ranges of flat bars alone are no measure: less than exp(-12) of s is the rounding of a sum, and masked."""

_UP, _DOWN, _END = pl.col("_up"), pl.col("_down"), pl.col("_end")
_SHORT: Final = pl.col("_short")


def _level(variance: pl.Expr, bars: int) -> pl.Expr:
    return mean(variance, bars).log() / 2.0 - pl.col("_log_s")


SHARED: Final[Shared] = (
    {
        "_up": (H / O).log(),
        "_down": (L / O).log(),
        "_end": (C / O).log(),
        "_short": root_mean_square(R, 12, least=6),
        "_log_s": S.log(),
    },
    {
        "_parkinson": _level((_UP - _DOWN) ** 2 / (4.0 * math.log(2.0)), 12),
        "_garman_klass": _level((_UP - _DOWN) ** 2 / 2.0 - (2.0 * math.log(2.0) - 1.0) * _END**2, 39),
        "_rogers_satchell": _level(_UP * (_UP - _END) + _DOWN * (_DOWN - _END), 78),
    },
)


def _against_s(column: str) -> pl.Expr:
    """log(root of the trailing mean of per-bar variances / s); null below `RUNG`: rounding left by bars before."""
    return pl.when(pl.col(column) >= RUNG).then(pl.col(column))


def _variation() -> pl.Expr:
    first, square = (mean(value, SIGMA_BARS, least=SIGMA_LEAST) for value in (_SHORT, _SHORT**2))
    return pl.when(S.is_not_null()).then((square / first**2 - 1.0).clip(0.0).sqrt())


VOLATILITY: Final = (
    Feature(
        name="volatility__realised_78",
        formula="log s",
        expression=pl.col("_log_s"),
        first_value=27,
        lookback_bars=SIGMA_BARS + 1,
        source="Andersen and Bollerslev, International Economic Review 39 (1998)",
    ),
    Feature(
        name="volatility__short_long_12_78",
        formula="(q - s) / (q + s), q the root mean square of r over 12 bars (6 of them known)",
        expression=tilt(_SHORT, S),
        first_value=27,
        lookback_bars=SIGMA_BARS + 1,
        source="Corsi, Journal of Financial Econometrics 7 (2009)",
    ),
    Feature(
        name="volatility__parkinson_12",
        formula="log(root of mean over 12 bars of log(h/l)^2 / (4 log 2) / s); masked at mean 0",
        expression=_against_s("_parkinson"),
        first_value=27,
        lookback_bars=SIGMA_BARS + 1,
        source="Parkinson, Journal of Business 53 (1980)",
    ),
    Feature(
        name="volatility__garman_klass_39",
        formula="log(root of mean over 39 bars of log(h/l)^2 / 2 - (2 log 2 - 1) log(c/o)^2 / s); masked at mean 0",
        expression=_against_s("_garman_klass"),
        first_value=40,
        lookback_bars=SIGMA_BARS + 1,
        source="Garman and Klass, Journal of Business 53 (1980)",
    ),
    Feature(
        name="volatility__rogers_satchell_78",
        formula="log(root of mean over 78 bars of log(h/o) log(h/c) + log(l/o) log(l/c) / s); masked at mean 0",
        expression=_against_s("_rogers_satchell"),
        first_value=79,
        lookback_bars=SIGMA_BARS + 1,
        source="Rogers and Satchell, Annals of Applied Probability 1 (1991)",
    ),
    Feature(
        name="volatility__atr_14",
        formula="log(ATR14 / (c s))",
        expression=(ATR / C).log() - pl.col("_log_s"),
        first_value=27,
        lookback_bars=300,
        source="Wilder, New Concepts in Technical Trading Systems (1978); TA-Lib",
    ),
    Feature(
        name="volatility__jump_share_78",
        formula="1 - (pi / 2) mean over 78 bars of |r| |r[1 bar ago]| / s^2",
        expression=1.0 - math.pi / 2.0 * mean(R.abs() * R.shift(1).abs(), SIGMA_BARS, least=SIGMA_LEAST) / S**2,
        first_value=28,
        lookback_bars=SIGMA_BARS + 2,
        source="Barndorff-Nielsen and Shephard, Journal of Financial Econometrics 2 (2004)",
    ),
    Feature(
        name="volatility__of_volatility_78",
        formula="standard deviation / mean over 78 bars of q, the root mean square of r over 12; masked where s is",
        expression=_variation(),
        first_value=40,
        lookback_bars=SIGMA_BARS + 12,
        source="Corsi, Mittnik, Pigorsch and Pigorsch, Econometric Reviews 27 (2008)",
    ),
    Feature(
        name="volatility__skew_78",
        formula="mean over 78 bars of r^3 / s^3",
        expression=mean(R**3, SIGMA_BARS, least=SIGMA_LEAST) / S**3,
        first_value=27,
        lookback_bars=SIGMA_BARS + 1,
        source="Amaya, Christoffersen, Jacobs and Vasquez, Journal of Financial Economics 118 (2015)",
    ),
)
