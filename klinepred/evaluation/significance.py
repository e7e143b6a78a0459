"""In: sums of a sample by session. Out: standard errors, p-values and detectable sizes that respect clustering.

The bars of one session are not independent of each other: symbols move together, labels overlap, volatility clusters.
Sessions nearly are. So whole sessions are drawn with replacement (the cluster bootstrap: Cameron, Gelbach and Miller
2008, Bootstrap-Based Improvements for Inference with Clustered Errors; Davison and Hinkley 1997, section 3.8), and the
test uses Student's t with one degree of freedom less than there are sessions, since few sessions are few observations
however many bars they have.

Shapes: N rows, S sessions, B bootstrap repeats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np

LEVEL: Final = 0.025
"""One-sided level of every test of the verdict."""
POWER: Final = 0.9
"""Chance with which an IC of the smallest detectable size is found."""


@dataclass(frozen=True)
class Estimate:
    """A value with its uncertainty over sessions; NaN throughout where the value is not defined.

    Attributes
    ----------
    value, se
        In the units of the statistic.
    sessions
        Sessions (clusters) behind it.
    """

    value: float
    se: float
    sessions: int

    def p_above(self, limit: float = 0.0) -> float:
        """One-sided p-value of "not above `limit`", by Student's t with `sessions` - 1 degrees of freedom."""
        if not (math.isfinite(self.value) and math.isfinite(self.se)) or self.sessions < 2:
            return float("nan")
        if self.se == 0.0:
            return 0.0 if self.value > limit else 1.0
        return student_tail((self.value - limit) / self.se, df=self.sessions - 1)

    def above(self, limit: float = 0.0, *, looks: int = 1) -> bool:
        """Whether it lies above `limit` at the level of the verdict; an undefined value does not.

        Parameters
        ----------
        looks
            How many models were tried on the same sessions, this one included; see `level_of`.
        """
        return self.p_above(limit) < level_of(looks)

    @property
    def detectable(self) -> float:
        """`detectable_after` one look."""
        return self.detectable_after(1)

    def detectable_after(self, looks: int) -> float:
        """Smallest true value that the test finds with probability `POWER`; NaN where the error is not known."""
        if not math.isfinite(self.se) or self.sessions < 2:
            return float("nan")
        df = self.sessions - 1
        return (student_quantile(1.0 - level_of(looks), df=df) + student_quantile(POWER, df=df)) * self.se


UNDEFINED: Final = Estimate(value=float("nan"), se=float("nan"), sessions=0)


def level_of(looks: int) -> float:
    """The one-sided level of one test of `looks`, so that all together err with probability `LEVEL` at most.

    Source: Sidak (1967), Rectangular Confidence Regions for the Means of Multivariate Normal Distributions; for looks
    that agree with each other, as runs of one pipeline do, it is stricter than it need be.
    """
    return -math.expm1(math.log1p(-LEVEL) / max(1, looks))


def deflated_sharpe(profit_S: np.ndarray, *, looks: int) -> float:
    """Probability that the Sharpe ratio of the sessions' profits is truly above what the best of `looks` tries without
    any skill would show; NaN with fewer than three sessions or profits that are all equal.

    The deflated Sharpe ratio of Bailey and Lopez de Prado (2014), with skew and kurtosis of the profits; the spread of
    Sharpe ratios over tries is taken as that of a ratio of zero, 1 / sqrt(S - 1).
    """
    count = profit_S.size
    spread = float(profit_S.std(ddof=1)) if count > 2 else 0.0
    if not spread > 0.0:
        return float("nan")
    sharpe = float(profit_S.mean()) / spread
    normal_S = (profit_S - profit_S.mean()) / profit_S.std()
    skew, kurtosis = float((normal_S**3).mean()), float((normal_S**4).mean())
    tries = max(1, looks)
    gauss = NormalDist()
    best = 0.0
    if tries > 1:
        euler = 0.5772156649015329
        expected = (1.0 - euler) * gauss.inv_cdf(1.0 - 1.0 / tries) + euler * gauss.inv_cdf(
            1.0 - 1.0 / (tries * math.e)
        )
        best = expected / math.sqrt(count - 1)
    variance = 1.0 - skew * sharpe + (kurtosis - 1.0) / 4.0 * sharpe**2
    return gauss.cdf((sharpe - best) * math.sqrt((count - 1) / max(variance, 1e-12)))


def draw_sessions(sessions: int, *, repeats: int, seed: int) -> np.ndarray:
    """How often each session is drawn in each bootstrap repeat.

    Returns
    -------
    numpy.ndarray
        [B, S] Float64; every row sums to S. The same seed gives the same draws, so that two forecasts of one sample
        are compared on the same repeats.
    """
    generator = np.random.default_rng(seed)
    return generator.multinomial(sessions, np.full(sessions, 1.0 / sessions), size=repeats).astype(np.float64)


def correlation_sums(a_N: np.ndarray, b_N: np.ndarray, session_N: np.ndarray, *, sessions: int) -> np.ndarray:
    """What a Pearson correlation needs of each session: rows, sums, sums of squares and of products; [S, 6].

    `session_N` holds codes 0..S-1. Both series are centred first (a correlation does not change), so that the sums
    keep their digits.
    """
    a_N = a_N.astype(np.float64) - float(np.mean(a_N, dtype=np.float64))
    b_N = b_N.astype(np.float64) - float(np.mean(b_N, dtype=np.float64))
    columns = [None, a_N, b_N, a_N * a_N, b_N * b_N, a_N * b_N]
    return np.stack([np.bincount(session_N, weights=column, minlength=sessions) for column in columns], axis=1).astype(
        np.float64
    )


def correlation(sums_X6: np.ndarray) -> np.ndarray:
    """Pearson correlation from (summed) rows of `correlation_sums`; NaN where a variance is not above zero."""
    n, a, b, aa, bb, ab = np.moveaxis(sums_X6, -1, 0)
    count = np.maximum(n, 1.0)
    var_a, var_b = aa - a * a / count, bb - b * b / count
    real = (var_a > 1e-12 * np.maximum(aa, 1e-300)) & (var_b > 1e-12 * np.maximum(bb, 1e-300))
    scale = np.sqrt(np.where(real, var_a, 1.0) * np.where(real, var_b, 1.0))
    value_X: np.ndarray = np.where(real, (ab - a * b / count) / scale, np.nan)
    return value_X


def correlation_repeats(sums_S6: np.ndarray, draws_BS: np.ndarray) -> np.ndarray:
    """The correlation in each bootstrap repeat, [B]."""
    return correlation(draws_BS @ sums_S6)


def ratio_repeats(total_S: np.ndarray, count_S: np.ndarray, draws_BS: np.ndarray) -> np.ndarray:
    """The mean (total / count) in each bootstrap repeat, [B]; NaN where nothing was drawn."""
    count_B = draws_BS @ count_S
    mean_B: np.ndarray = np.divide(draws_BS @ total_S, count_B, out=np.full(len(draws_BS), np.nan), where=count_B > 0)
    return mean_B


def estimate(value: float, repeats_B: np.ndarray, *, sessions: int) -> Estimate:
    """A value with the spread of its bootstrap repeats, widened by sqrt(S / (S - 1)) for few sessions."""
    known_B = repeats_B[np.isfinite(repeats_B)]
    if not math.isfinite(value) or sessions < 2 or known_B.size < 2:
        return Estimate(value=value, se=float("nan"), sessions=sessions)
    spread = float(known_B.std(ddof=1))
    return Estimate(value=value, se=spread * math.sqrt(sessions / (sessions - 1)), sessions=sessions)


def student_tail(t: float, *, df: int) -> float:
    """P(T > t) of Student's t with a whole number of degrees of freedom.

    Source: Abramowitz and Stegun (1964), 26.7.3 and 26.7.4, finite sums, right to about 1e-14; beyond 1000 degrees of
    freedom the normal tail.
    """
    if df > 1000:
        return 0.5 * math.erfc(t / math.sqrt(2.0))
    theta = math.atan(t / math.sqrt(df))
    cos2, sine = math.cos(theta) ** 2, math.sin(theta)
    term = math.cos(theta) if df % 2 else 1.0
    total = 0.0 if df == 1 else term
    for k in range(3 if df % 2 else 2, df - 1, 2):
        term *= cos2 * (k - 1) / k
        total += term
    inside = (theta + sine * total) * 2.0 / math.pi if df % 2 else sine * total
    return min(1.0, max(0.0, 0.5 * (1.0 - inside)))


def student_quantile(level: float, *, df: int) -> float:
    """The value that Student's t stays below with probability `level`, by bisection of `student_tail`."""
    low, high = -1e4, 1e4
    for _ in range(80):
        middle = 0.5 * (low + high)
        if 1.0 - student_tail(middle, df=df) < level:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)
