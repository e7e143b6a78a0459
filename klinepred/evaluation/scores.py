"""In: a `Sample`, named forecasts of its rows. Out: `Score`: how good each is, with errors clustered by session."""

# Shapes: M rows of a selection, S sessions, B bootstrap repeats.

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from klinepred.evaluation.hac import correlation_influence, hac_error, ratio_influence
from klinepred.evaluation.sample import STEPS, Sample
from klinepred.evaluation.significance import (
    UNDEFINED,
    Estimate,
    correlation_repeats,
    correlation_sums,
    estimate,
    ratio_repeats,
)
from klinepred.metrics import average_ranks, group_correlation, group_ranks, hit_rate, ic, mse, r2_against_zero

_Found = tuple["Score", Estimate, np.ndarray, np.ndarray]

CLIP: Final = 6.0
"""`*_clipped` scores have the outcome (never the forecast) clipped at this many units of volatility."""


@dataclass(frozen=True)
class Score:
    """How good one forecast is on one selection of the test part. NaN = not defined (see `klinepred.metrics`).

    Attributes
    ----------
    target, steps
        Against which return, over which of `STEPS`.
    mse, r2, ic, and the same _clipped
        Against outcomes in units of trailing volatility, unclipped and clipped at 6; R2 is against forecasting zero.
    rank_ic
        Spearman over all rows pooled.
    cs_ic, cs_rank_ic, bars
        Mean over the bars with at least five symbols of the correlation across symbols, Pearson's and Spearman's; how
        many bars.
    *_se, ic_p
        Standard errors by drawing whole sessions; one-sided p-value of "the IC is not above zero".
    *_hac
        Standard errors robust to autocorrelation over bars (`klinepred.evaluation.hac`).
    hit_rate, hit_base, zero_returns
        Right signs among the outcomes other than zero; the share of the more frequent sign; outcomes of exactly zero.
    """

    target: str
    steps: str
    rows: int
    sessions: int
    mse: float
    r2: float
    ic: float
    ic_se: float
    ic_p: float
    mse_clipped: float
    r2_clipped: float
    ic_clipped: float
    rank_ic: float
    rank_ic_se: float
    cs_ic: float
    cs_ic_se: float
    cs_rank_ic: float
    cs_rank_ic_se: float
    bars: int
    hit_rate: float
    hit_base: float
    zero_returns: int
    mse_se: float
    r2_se: float
    hit_rate_se: float
    mse_hac: float
    r2_hac: float
    ic_hac: float
    rank_ic_hac: float
    cs_ic_hac: float
    cs_rank_ic_hac: float
    hit_rate_hac: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values; NaN stays NaN."""
        return asdict(self)


@dataclass(frozen=True)
class Scored:
    """All scores of one forecast.

    Attributes
    ----------
    name
        `model`, or the baseline's.
    scores
        Target by target, each over all steps first.
    estimates
        IC against the learned target with its error, by steps.
    repeats_B, rank_repeats_B
        The bootstrap repeats of the first of them, and of the rank IC; the same draws for every forecast.
    """

    name: str
    scores: tuple[Score, ...]
    estimates: dict[str, Estimate]
    repeats_B: np.ndarray
    rank_repeats_B: np.ndarray

    @property
    def head(self) -> Score:
        """All test steps, against what the network learned."""
        return self.scores[0]


def score_all(sample: Sample, forecasts: dict[str, np.ndarray], *, draws_BS: np.ndarray) -> dict[str, Scored]:
    """Score every forecast [M] against the learned and the raw target, over all steps and each kind of step."""
    targets = (sample.target, "raw") if sample.relative else ("raw",)
    found: dict[str, dict[tuple[str, str], _Found]] = {name: {} for name in forecasts}
    for steps in STEPS:
        mask_M = sample.of(steps)
        if not mask_M.any():
            continue
        grader = _Grader(sample, steps, targets=targets, draws_BS=draws_BS)
        for name, pred_M in forecasts.items():
            for target, graded in grader.grade(pred_M[mask_M]).items():
                found[name][target, steps] = graded
    out = {}
    for name, table in found.items():
        keys = [(target, steps) for target in targets for steps in STEPS if (target, steps) in table]
        out[name] = Scored(
            name=name,
            scores=tuple(table[key][0] for key in keys),
            estimates={steps: table[target, steps][1] for target, steps in keys if target == sample.target},
            repeats_B=table[keys[0]][2] if keys else np.empty(0),
            rank_repeats_B=table[keys[0]][3] if keys else np.empty(0),
        )
    return out


def gain(better: Scored, worse: Scored) -> Estimate:
    """Difference of two ICs against the learned target over all steps, paired on the same bootstrap repeats.

    An undefined IC (a constant forecast) counts as 0, what it is worth.
    """
    if not better.scores or not worse.scores:
        return UNDEFINED
    first, second = np.nan_to_num(better.repeats_B), np.nan_to_num(worse.repeats_B)
    value = float(np.nan_to_num(better.head.ic) - np.nan_to_num(worse.head.ic))
    return estimate(value, first - second, sessions=better.head.sessions)


class _Grader:
    """What all forecasts of one selection share: outcomes, their ranks, sessions, bars."""

    def __init__(self, sample: Sample, steps: str, *, targets: tuple[str, ...], draws_BS: np.ndarray) -> None:
        mask_M = sample.of(steps)
        self.steps, self.draws_BS, self.all = steps, draws_BS, draws_BS.shape[1]
        self.session_M = sample.session_M[mask_M]
        self.horizon = sample.horizon
        self.present = int(np.unique(self.session_M).size)
        first_G, self.bar_M = np.unique(sample.bar_M[mask_M], return_index=True, return_inverse=True)[1:]
        self.session_G = self.session_M[first_G]  # a bar lies in one session
        self.y = {target: sample.outcome(target)[mask_M] for target in targets}
        self.rank = {target: average_ranks(y_M) for target, y_M in self.y.items()}
        self.bar_rank = {target: group_ranks(rank_M, self.bar_M) for target, rank_M in self.rank.items()}

    def grade(self, pred_M: np.ndarray) -> dict[str, _Found]:
        rank_M = average_ranks(pred_M)
        bar_rank_M = group_ranks(rank_M, self.bar_M)
        return {target: self._grade(target, pred_M, rank_M, bar_rank_M) for target in self.y}

    def _grade(self, target: str, pred_M: np.ndarray, rank_M: np.ndarray, bar_rank_M: np.ndarray) -> _Found:
        y_M = self.y[target]
        clipped_M = np.clip(y_M, -CLIP, CLIP)
        hits = hit_rate(pred_M, y_M)
        pooled, repeats_B = self._correlated(pred_M, y_M)
        ranked, rank_repeats_B = self._correlated(rank_M, self.rank[target])
        level, _, level_hac = self._across(pred_M, y_M)
        across, bars, across_hac = self._across(bar_rank_M, self.bar_rank[target])
        miss_M, square_M = (pred_M - y_M) ** 2, y_M**2
        moved_M = (y_M != 0.0).astype(np.float64)
        right_M = 0.5 * (1.0 + np.sign(pred_M) * np.sign(y_M)) * moved_M
        score = Score(
            target=target,
            steps=self.steps,
            rows=int(y_M.size),
            sessions=self.present,
            mse=mse(pred_M, y_M),
            r2=r2_against_zero(pred_M, y_M),
            ic=pooled.value,
            ic_se=pooled.se,
            ic_hac=self._hac(correlation_influence(pred_M, y_M)),
            ic_p=pooled.p_above(),
            mse_clipped=mse(pred_M, clipped_M),
            r2_clipped=r2_against_zero(pred_M, clipped_M),
            ic_clipped=ic(pred_M, clipped_M),
            rank_ic=ranked.value,
            rank_ic_se=ranked.se,
            rank_ic_hac=self._hac(correlation_influence(rank_M, self.rank[target])),
            cs_ic=level.value,
            cs_ic_se=level.se,
            cs_ic_hac=level_hac,
            cs_rank_ic=across.value,
            cs_rank_ic_se=across.se,
            cs_rank_ic_hac=across_hac,
            bars=bars,
            hit_rate=hits.rate,
            hit_base=hits.base,
            zero_returns=hits.zeros,
            mse_se=self._ratio(miss_M, np.ones(miss_M.size)),
            mse_hac=self._hac(ratio_influence(miss_M, np.ones(miss_M.size))),
            r2_se=self._ratio(miss_M, square_M),
            r2_hac=self._hac(ratio_influence(miss_M, square_M)),
            hit_rate_se=self._ratio(right_M, moved_M),
            hit_rate_hac=self._hac(ratio_influence(right_M, moved_M)),
        )
        return score, pooled, repeats_B, rank_repeats_B

    def _correlated(self, a_M: np.ndarray, b_M: np.ndarray) -> tuple[Estimate, np.ndarray]:
        sums_S6 = correlation_sums(a_M, b_M, self.session_M, sessions=self.all)
        repeats_B = correlation_repeats(sums_S6, self.draws_BS)
        return estimate(ic(a_M, b_M), repeats_B, sessions=self.present), repeats_B

    def _hac(self, influence_M: np.ndarray) -> float:
        return hac_error(influence_M, self.bar_M, horizon=self.horizon)

    def _ratio(self, top_M: np.ndarray, bottom_M: np.ndarray) -> float:
        """Standard error of the ratio of two sums, by drawing whole sessions."""
        top_S, bottom_S = (
            np.bincount(self.session_M, weights=each_M, minlength=self.all) for each_M in (top_M, bottom_M)
        )
        total = float(bottom_S.sum())
        value = float(top_S.sum()) / total if total > 0.0 else float("nan")
        return estimate(value, ratio_repeats(top_S, bottom_S, self.draws_BS), sessions=self.present).se

    def _across(self, a_M: np.ndarray, b_M: np.ndarray) -> tuple[Estimate, int, float]:
        """Mean over bars of the correlation across symbols, how many bars, and its error over bars."""
        ic_G = group_correlation(a_M, b_M, self.bar_M, groups=self.session_G.size)
        known_G = np.isfinite(ic_G)
        total_S = np.bincount(self.session_G[known_G], weights=ic_G[known_G], minlength=self.all)
        count_S = np.bincount(self.session_G[known_G], minlength=self.all).astype(np.float64)
        repeats_B = ratio_repeats(total_S, count_S, self.draws_BS)
        mean = float(ic_G[known_G].mean()) if known_G.any() else float("nan")
        known_bars = np.flatnonzero(known_G)
        error = hac_error(ic_G[known_G] - mean, known_bars, horizon=self.horizon) if known_G.any() else float("nan")
        return estimate(mean, repeats_B, sessions=int((count_S > 0).sum())), int(known_G.sum()), error
