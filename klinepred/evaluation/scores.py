"""In: a `Sample`, named forecasts of its rows. Out: `Score`: how good each is, with errors clustered by session."""

# Shapes: M rows of a selection, S sessions, B bootstrap repeats.

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from klinepred.evaluation.sample import STEPS, Sample
from klinepred.evaluation.significance import (
    UNDEFINED,
    Estimate,
    correlation_repeats,
    correlation_sums,
    estimate,
    ratio_repeats,
)
from klinepred.metrics import average_ranks, group_ic, hit_rate, ic, mse, r2_against_zero

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
    cs_rank_ic, bars
        Mean over the bars with at least five symbols of the Spearman correlation across symbols; how many bars.
    ic_se, rank_ic_se, cs_rank_ic_se, ic_p
        Standard errors by drawing whole sessions; one-sided p-value of "the IC is not above zero".
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
    cs_rank_ic: float
    cs_rank_ic_se: float
    bars: int
    hit_rate: float
    hit_base: float
    zero_returns: int

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
    repeats_B
        The bootstrap repeats of the first of them; the same draws for every forecast.
    """

    name: str
    scores: tuple[Score, ...]
    estimates: dict[str, Estimate]
    repeats_B: np.ndarray

    @property
    def head(self) -> Score:
        """All test steps, against what the network learned."""
        return self.scores[0]


def score_all(sample: Sample, forecasts: dict[str, np.ndarray], *, draws_BS: np.ndarray) -> dict[str, Scored]:
    """Score every forecast [M] against the learned and the raw target, over all steps and each kind of step."""
    targets = (sample.target, "raw") if sample.relative else ("raw",)
    found: dict[str, dict[tuple[str, str], tuple[Score, Estimate, np.ndarray]]] = {name: {} for name in forecasts}
    for steps in STEPS:
        mask_M = sample.of(steps)
        if not mask_M.any():
            continue
        for target in targets:
            grader = _Grader(sample, mask_M, target=target, steps=steps, draws_BS=draws_BS)
            for name, pred_M in forecasts.items():
                found[name][target, steps] = grader.grade(pred_M[mask_M])
    out = {}
    for name, table in found.items():
        keys = [(target, steps) for target in targets for steps in STEPS if (target, steps) in table]
        out[name] = Scored(
            name=name,
            scores=tuple(table[key][0] for key in keys),
            estimates={steps: table[target, steps][1] for target, steps in keys if target == sample.target},
            repeats_B=table[keys[0]][2] if keys else np.empty(0),
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
    """What all forecasts of one selection and one target share: outcomes, their ranks, sessions."""

    def __init__(self, sample: Sample, mask_M: np.ndarray, *, target: str, steps: str, draws_BS: np.ndarray) -> None:
        self.target, self.steps, self.draws_BS = target, steps, draws_BS
        self.y_M = sample.outcome(target)[mask_M]
        self.clipped_M = np.clip(self.y_M, -CLIP, CLIP)
        self.rank_M = average_ranks(self.y_M)
        self.session_M, self.bar_M = sample.session_M[mask_M], sample.bar_M[mask_M]
        self.present = int(np.unique(self.session_M).size)
        self.all = draws_BS.shape[1]

    def grade(self, pred_M: np.ndarray) -> tuple[Score, Estimate, np.ndarray]:
        y_M, rank_M = self.y_M, average_ranks(pred_M)
        hits = hit_rate(pred_M, y_M)
        pooled, repeats_B = self._correlated(pred_M, y_M)
        ranked, _ = self._correlated(rank_M, self.rank_M)
        across, bars = self._across(pred_M)
        score = Score(
            target=self.target,
            steps=self.steps,
            rows=int(y_M.size),
            sessions=self.present,
            mse=mse(pred_M, y_M),
            r2=r2_against_zero(pred_M, y_M),
            ic=pooled.value,
            ic_se=pooled.se,
            ic_p=pooled.p_above(),
            mse_clipped=mse(pred_M, self.clipped_M),
            r2_clipped=r2_against_zero(pred_M, self.clipped_M),
            ic_clipped=ic(pred_M, self.clipped_M),
            rank_ic=ranked.value,
            rank_ic_se=ranked.se,
            cs_rank_ic=across.value,
            cs_rank_ic_se=across.se,
            bars=bars,
            hit_rate=hits.rate,
            hit_base=hits.base,
            zero_returns=hits.zeros,
        )
        return score, pooled, repeats_B

    def _correlated(self, a_M: np.ndarray, b_M: np.ndarray) -> tuple[Estimate, np.ndarray]:
        sums_S6 = correlation_sums(a_M, b_M, self.session_M, sessions=self.all)
        repeats_B = correlation_repeats(sums_S6, self.draws_BS)
        return estimate(ic(a_M, b_M), repeats_B, sessions=self.present), repeats_B

    def _across(self, pred_M: np.ndarray) -> tuple[Estimate, int]:
        bars = group_ic(pred_M, self.y_M, self.bar_M)
        known_G = np.isfinite(bars.ic_G)
        first_M = np.zeros(int(bars.code_G.max()) + 1, dtype=np.int64)
        first_M[self.bar_M] = self.session_M  # a bar lies in one session
        session_G = first_M[bars.code_G[known_G]]
        total_S = np.bincount(session_G, weights=bars.ic_G[known_G], minlength=self.all)
        count_S = np.bincount(session_G, minlength=self.all).astype(np.float64)
        repeats_B = ratio_repeats(total_S, count_S, self.draws_BS)
        return estimate(bars.mean, repeats_B, sessions=int((count_S > 0).sum())), int(known_G.sum())
