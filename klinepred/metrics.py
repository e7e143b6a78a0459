"""In: forecasts and outcomes as numpy arrays, nothing missing. Out: the scores that all rooms quote.

Shapes: N rows, G groups (all symbols of one bar, say). Undefined scores (a constant forecast, fewer than
`MIN_ROWS` rows) are NaN, never a warning; a NaN or infinity in the input is an error, since a rank or a mean would
swallow it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from klinepred.errors import DatasetError

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]

MIN_ROWS: Final = 3
"""Fewer rows than this have no correlation worth a number."""


@dataclass(frozen=True)
class HitRate:
    """How often the sign of the forecast was the sign of the outcome.

    Attributes
    ----------
    rate
        Share of `counted` rows with the right sign; a forecast of exactly zero is half right. NaN without such rows.
    base
        What naming the more frequent sign of these outcomes every time would have got, at least 0.5.
    counted, zeros
        Rows with an outcome other than zero, and rows left out because the outcome was exactly zero.
    """

    rate: float
    base: float
    counted: int
    zeros: int


@dataclass(frozen=True)
class GroupIC:
    """Correlation of forecast and outcome within each group.

    Attributes
    ----------
    code_G, size_G
        The group's code (ascending) and its rows.
    ic_G
        NaN where the group is smaller than asked for, or where the forecasts or the outcomes are all equal.
    """

    code_G: npt.NDArray[np.int64]
    size_G: npt.NDArray[np.int64]
    ic_G: npt.NDArray[np.float64]

    @property
    def mean(self) -> float:
        """Plain mean over the groups that have a value; NaN where none has."""
        defined = self.ic_G[np.isfinite(self.ic_G)]
        return float(defined.mean()) if defined.size else float("nan")


def mse(pred_N: Floats, y_N: Floats) -> float:
    """Mean squared error, in squared units of the outcome; NaN without rows."""
    pred_N, y_N = _pair(pred_N, y_N)
    return float(np.mean((y_N - pred_N) ** 2)) if y_N.size else float("nan")


def r2_against_zero(pred_N: Floats, y_N: Floats) -> float:
    """1 - SSE / sum of y^2: the gain over forecasting zero, not over the sample mean, which nobody knew.

    NaN where every outcome is zero. Source: Gu, Kelly and Xiu (2020), Empirical Asset Pricing via Machine Learning,
    eq. 19.
    """
    pred_N, y_N = _pair(pred_N, y_N)
    total = float(np.sum(y_N**2))
    return 1.0 - float(np.sum((y_N - pred_N) ** 2)) / total if total > 0.0 else float("nan")


def ic(pred_N: Floats, y_N: Floats) -> float:
    """Pearson correlation of forecast and outcome, the information coefficient."""
    pred_N, y_N = _pair(pred_N, y_N)
    if y_N.size < MIN_ROWS or _constant(pred_N) or _constant(y_N):
        return float("nan")
    a_N, b_N = pred_N - pred_N.mean(), y_N - y_N.mean()
    scale = float(np.sqrt((a_N @ a_N) * (b_N @ b_N)))
    return float(np.clip((a_N @ b_N) / scale, -1.0, 1.0)) if scale > 0.0 else float("nan")


def rank_ic(pred_N: Floats, y_N: Floats) -> float:
    """Spearman correlation: the IC of the average ranks."""
    pred_N, y_N = _pair(pred_N, y_N)
    return ic(average_ranks(pred_N), average_ranks(y_N))


def average_ranks(x_N: Floats) -> npt.NDArray[np.float64]:
    """Ranks from 1 to N; equal values share the mean of their ranks."""
    return group_ranks(x_N, np.zeros(len(x_N), dtype=np.uint16))


def group_ranks(x_N: Floats, group_N: Ints) -> npt.NDArray[np.float64]:
    """Average ranks within each group, from 1 to the group's size; O(N log N), no loop over groups.

    Parameters
    ----------
    group_N
        Integer codes, in any order; the rows of a group need not be adjacent.
    """
    x_N = np.ascontiguousarray(x_N)
    size = len(x_N)
    if size == 0:
        return np.empty(0)
    order_N = _sorted_within(x_N, group_N)
    x_sorted_N, group_sorted_N = x_N[order_N], group_N[order_N]
    new_group_N = np.concatenate([[True], group_sorted_N[1:] != group_sorted_N[:-1]])
    new_value_N = new_group_N | np.concatenate([[True], x_sorted_N[1:] != x_sorted_N[:-1]])
    first_V = np.flatnonzero(new_value_N)
    count_V = np.diff(np.append(first_V, size))
    group_first_V = np.flatnonzero(new_group_N)[np.cumsum(new_group_N[first_V]) - 1]
    rank_V = first_V - group_first_V + (count_V + 1) / 2.0
    ranks_N = np.empty(size)
    ranks_N[order_N] = np.repeat(rank_V, count_V)
    return ranks_N


def _sorted_within(x_N: Floats, group_N: Ints) -> npt.NDArray[np.intp]:
    """The order by group, then value: two plain sorts, several times as fast as `np.lexsort`."""
    by_value_N = np.argsort(x_N)
    low, high = int(group_N.min()), int(group_N.max())
    if low == high:
        return by_value_N
    group_sorted_N = group_N[by_value_N] - low
    if high - low < 1 << 16:
        group_sorted_N = group_sorted_N.astype(np.uint16)  # numpy sorts 16 bits by radix, in O(N)
    return by_value_N[np.argsort(group_sorted_N, kind="stable")]


def group_ic(pred_N: Floats, y_N: Floats, group_N: Ints, *, rank: bool = True, min_size: int = 5) -> GroupIC:
    """The IC within each group, such as the cross-section of one bar; of average ranks unless `rank` is False.

    Parameters
    ----------
    group_N
        Integer codes; rows of a group need not be adjacent.
    min_size
        Smaller groups get NaN.
    """
    pred_N, y_N = _pair(pred_N, y_N)
    code_G, index_N = np.unique(group_N, return_inverse=True)
    if rank:
        pred_N, y_N = group_ranks(pred_N, index_N), group_ranks(y_N, index_N)
    ic_G = group_correlation(pred_N, y_N, index_N, groups=len(code_G), min_size=min_size)
    return GroupIC(code_G=code_G.astype(np.int64), size_G=np.bincount(index_N, minlength=len(code_G)), ic_G=ic_G)


def group_correlation(
    a_N: Floats, b_N: Floats, index_N: Ints, *, groups: int, min_size: int = 5
) -> npt.NDArray[np.float64]:
    """Pearson correlation within each of the groups 0 .. `groups` - 1, [G]; NaN as in `GroupIC`."""
    size_G = np.bincount(index_N, minlength=groups)
    a_N, b_N = _group_centred(a_N, index_N, size_G), _group_centred(b_N, index_N, size_G)
    cross_G = np.bincount(index_N, weights=a_N * b_N, minlength=groups)
    scale_G = np.sqrt(
        np.bincount(index_N, weights=a_N * a_N, minlength=groups)
        * np.bincount(index_N, weights=b_N * b_N, minlength=groups)
    )
    defined_G = (size_G >= max(min_size, MIN_ROWS)) & (scale_G > 0.0)
    ic_G: npt.NDArray[np.float64] = np.divide(cross_G, scale_G, out=np.full(groups, np.nan), where=defined_G)
    return ic_G.clip(-1.0, 1.0)


def _group_centred(x_N: Floats, index_N: Ints, size_G: Ints) -> npt.NDArray[np.float64]:
    mean_G = np.bincount(index_N, weights=x_N, minlength=len(size_G)) / np.maximum(size_G, 1)
    mean_N = mean_G[index_N]
    centred_N = x_N - mean_N
    centred_N[np.abs(centred_N) <= 1e-12 * np.abs(mean_N)] = 0.0  # a constant group stays exactly constant
    return centred_N


def hit_rate(pred_N: Floats, y_N: Floats) -> HitRate:
    """Share of right signs among outcomes other than zero, with the rate that one fixed sign would have got."""
    pred_N, y_N = _pair(pred_N, y_N)
    moved_N = y_N != 0.0
    counted = int(moved_N.sum())
    if counted == 0:
        return HitRate(rate=float("nan"), base=float("nan"), counted=0, zeros=y_N.size)
    guess_N, truth_N = np.sign(pred_N[moved_N]), np.sign(y_N[moved_N])
    right = float(np.mean(guess_N == truth_N) + 0.5 * np.mean(guess_N == 0.0))
    up = float(np.mean(truth_N > 0.0))
    return HitRate(rate=right, base=max(up, 1.0 - up), counted=counted, zeros=y_N.size - counted)


def pinball(quantile_N: Floats, y_N: Floats, *, level: float) -> float:
    """Mean pinball loss of forecasts of the `level` quantile, in units of the outcome; NaN without rows.

    Source: Koenker and Bassett (1978), Regression Quantiles.
    """
    quantile_N, y_N = _pair(quantile_N, y_N)
    if y_N.size == 0:
        return float("nan")
    miss_N = y_N - quantile_N
    return float(np.mean(np.maximum(level * miss_N, (level - 1.0) * miss_N)))


def coverage(lo_N: Floats, hi_N: Floats, y_N: Floats) -> float:
    """Share of outcomes within their interval, both ends included; NaN without rows."""
    lo_N, y_N = _pair(lo_N, y_N)
    hi_N, y_N = _pair(hi_N, y_N)
    return float(np.mean((lo_N <= y_N) & (y_N <= hi_N))) if y_N.size else float("nan")


def _pair(pred_N: Floats, y_N: Floats) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Both as float64, one-dimensional, of one length, finite."""
    if pred_N.ndim != 1 or pred_N.shape != y_N.shape:
        raise DatasetError(
            "a score of forecasts",
            expected="forecasts and outcomes of one shape [N]",
            got=f"{pred_N.shape} and {y_N.shape}",
            do="pass the same rows of both",
        )
    a_N, b_N = np.asarray(pred_N, dtype=np.float64), np.asarray(y_N, dtype=np.float64)
    bad = int((~(np.isfinite(a_N) & np.isfinite(b_N))).sum())
    if bad:
        raise DatasetError(
            "a score of forecasts",
            expected="finite forecasts and outcomes",
            got=f"NaN or infinity in {bad} of {y_N.size} rows",
            do="leave out rows without a label; a forecast that is not finite means a training that diverged",
        )
    return a_N, b_N


def _constant(x_N: npt.NDArray[np.float64]) -> bool:
    return bool(x_N.size == 0 or x_N.max() == x_N.min())
