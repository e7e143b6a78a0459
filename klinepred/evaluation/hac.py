"""In: what each row adds to a score, its bar. Out: the score's standard error, robust to autocorrelation over bars.

The second kind of error beside that of whole sessions (`klinepred.evaluation.significance`). To first order a score is
a mean over rows; what a row adds to it is its influence. Influences are summed over the symbols of a bar, so that any
dependence across symbols is in (Driscoll and Kraay 1998, Consistent Covariance Matrix Estimation with Spatially
Dependent Panel Data), and the bars' sums, in order of time, get the weights of Newey and West (1987, A Simple, Positive
Semi-definite, Heteroskedasticity and Autocorrelation Consistent Covariance Matrix) over as many bars as labels overlap,
and more for long samples (Newey and West 1994).

Shapes: M rows, G bars.
"""

from __future__ import annotations

import math

import numpy as np


def lags_for(bars: int, *, horizon: int) -> int:
    """Bars over which dependence is allowed for: 4 (G / 100)^(2/9), and never fewer than labels overlap."""
    rule = math.ceil(4.0 * math.pow(bars / 100.0, 2.0 / 9.0))
    return min(max(horizon, rule), max(bars - 1, 0))


def hac_error(influence_M: np.ndarray, bar_M: np.ndarray, *, horizon: int) -> float:
    """Standard error of a score.

    Parameters
    ----------
    influence_M
        By how much the score would move if a row's weight rose, times M; of mean 0.
    bar_M
        Codes of the rows' bars, ascending in time.
    horizon
        Bars over which a label runs.

    Returns
    -------
    float
        NaN with fewer than two bars, or an influence that is not defined.
    """
    if influence_M.size == 0 or not np.isfinite(influence_M).all():
        return float("nan")
    sum_G = np.bincount(np.unique(bar_M, return_inverse=True)[1], weights=influence_M - influence_M.mean())
    if sum_G.size < 2:
        return float("nan")
    lags = lags_for(sum_G.size, horizon=horizon)
    total = float(sum_G @ sum_G)
    for lag in range(1, lags + 1):
        total += 2.0 * (1.0 - lag / (lags + 1.0)) * float(sum_G[lag:] @ sum_G[:-lag])
    bars = sum_G.size
    return math.sqrt(max(total, 0.0) * bars / (bars - 1.0)) / influence_M.size


def correlation_influence(a_M: np.ndarray, b_M: np.ndarray) -> np.ndarray:
    """Of the Pearson correlation (of the Spearman one, given ranks, which are taken as known); NaN if not defined.

    zx zy - rho (zx^2 + zy^2) / 2, with zx, zy the standardised values (Devlin, Gnanadesikan and Kettenring 1975).
    """
    spread_a, spread_b = float(a_M.std()), float(b_M.std())
    if not (spread_a > 1e-12 * float(np.abs(a_M).max(initial=0.0)) and spread_b > 0.0):
        return np.full(a_M.size, np.nan)
    a_M, b_M = (a_M - a_M.mean()) / spread_a, (b_M - b_M.mean()) / spread_b
    rho = float(np.mean(a_M * b_M))
    out_M: np.ndarray = a_M * b_M - 0.5 * rho * (a_M**2 + b_M**2)
    return out_M


def ratio_influence(top_M: np.ndarray, bottom_M: np.ndarray) -> np.ndarray:
    """Of the ratio of two sums, (top - ratio bottom) / mean(bottom); NaN where the lower sum is 0."""
    base = float(np.mean(bottom_M)) if bottom_M.size else 0.0
    if not base > 0.0:
        return np.full(top_M.size, np.nan)
    ratio = float(np.mean(top_M)) / base
    out_M: np.ndarray = (top_M - ratio * bottom_M) / base
    return out_M
