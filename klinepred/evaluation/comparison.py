"""In: two models' forecasts of common bars. Out: `Comparison`: whether they differ beyond noise."""

# Shapes: M rows of one sample, K rows common to both, S sessions, B bootstrap repeats.

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import polars as pl

from klinepred.errors import ModelError
from klinepred.evaluation.result import plain
from klinepred.evaluation.sample import Sample
from klinepred.evaluation.scores import Scored, score_all
from klinepred.evaluation.significance import LEVEL, Estimate, draw_sessions, estimate, ratio_repeats
from klinepred.settings import EvaluateSettings

Outcome = Literal["A", "B", "NO DIFFERENCE", "NOT ENOUGH DATA"]
LEAST_SESSIONS: Final = 10
"""As in the verdict."""
SAME: Final = 1e-5
"""Outcomes that differ by less, in units of volatility, are one outcome computed on two machines."""


@dataclass(frozen=True)
class Comparison:
    """Two models on the bars that both of their test parts hold.

    Attributes
    ----------
    outcome
        Which of them is better beyond noise, by the IC; two-sided at 5 %, 2.5 % on either side.
    target
        The return both are graded against: what both learned, if that is the same, else raw.
    ic, rank_ic, mse
        A minus B, paired: whole sessions drawn with replacement, the same for both. A lower MSE is the better one.
    a, b
        The scores of each.
    """

    outcome: Outcome
    sentence: str
    target: str
    rows: int
    span: tuple[str, str] | None
    ic: Estimate
    rank_ic: Estimate
    mse: Estimate
    a: Scored
    b: Scored

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what is not defined is None."""
        table: dict[str, Any] = plain(
            {
                "outcome": self.outcome,
                "sentence": self.sentence,
                "target": self.target,
                "rows": self.rows,
                "sessions": self.ic.sessions,
                "first_session": self.span[0] if self.span else None,
                "last_session": self.span[1] if self.span else None,
                "difference": {
                    name: {"value": one.value, "se": one.se, "p_above": one.p_above(), "p_below": _flip(one).p_above()}
                    for name, one in (("ic", self.ic), ("rank_ic", self.rank_ic), ("mse", self.mse))
                },
                **{one.name: one.head.to_dict() if one.scores else None for one in (self.a, self.b)},
            }
        )
        return table


def compare(a: Sample, b: Sample, *, names: tuple[str, str] = ("A", "B"), settings: EvaluateSettings) -> Comparison:
    """Grade two forecasts of the same bars on the same draws of sessions.

    Raises
    ------
    ModelError
        The models look different numbers of bars ahead, or their test parts have no bar in common.
    """
    if a.horizon != b.horizon:
        raise ModelError(
            f"comparison of {names[0]} with {names[1]}",
            expected="models that look the same number of bars ahead",
            got=f"horizons {a.horizon} and {b.horizon}",
            do="compare models of one dataset.horizon",
        )
    here, there = _common(a, b)
    if here.size == 0:
        raise ModelError(
            f"comparison of {names[0]} with {names[1]}",
            expected="bars that the test parts of both hold",
            got="none in common",
            do="compare models whose symbols and test parts overlap",
        )
    same = a.relative == b.relative and bool(np.allclose(a.y_M[here], b.y_M[there], rtol=0.0, atol=SAME))
    sample = _rows(a, here, learned=same)
    draws_BS = draw_sessions(len(sample.sessions), repeats=settings.bootstrap, seed=settings.seed)
    scored = score_all(sample, {"a": a.pred_M[here], "b": b.pred_M[there]}, draws_BS=draws_BS)
    one, two = scored["a"], scored["b"]
    sessions = len(sample.sessions)
    ic = _gap(one.head.ic, two.head.ic, one.repeats_B - two.repeats_B, sessions)
    rank = _gap(one.head.rank_ic, two.head.rank_ic, one.rank_repeats_B - two.rank_repeats_B, sessions)
    worse_K = (a.pred_M[here] - sample.y_M) ** 2 - (b.pred_M[there] - sample.y_M) ** 2
    total_S = np.bincount(sample.session_M, weights=worse_K, minlength=sessions)
    count_S = np.bincount(sample.session_M, minlength=sessions).astype(np.float64)
    mse = _gap(one.head.mse, two.head.mse, ratio_repeats(total_S, count_S, draws_BS), sessions)
    outcome = _decide(ic)
    return Comparison(
        outcome=outcome,
        sentence=_sentence(outcome, ic, names),
        target=sample.target,
        rows=sample.rows,
        span=(sample.sessions[0], sample.sessions[-1]),
        ic=ic,
        rank_ic=rank,
        mse=mse,
        a=one,
        b=two,
    )


def _common(a: Sample, b: Sample) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of both that are the same step of the same symbol, in the order of `a`."""
    tables = [
        pl.DataFrame(
            {
                "symbol": pl.Series(sample.symbols, dtype=pl.String).gather(sample.symbol_M),
                "ts": sample.ts_M,
                "kind": sample.kind_M,
                "row": np.arange(sample.rows),
            }
        )
        for sample in (a, b)
    ]
    pairs = tables[0].join(tables[1], on=["symbol", "ts", "kind"], maintain_order="left")
    return pairs.get_column("row").to_numpy(), pairs.get_column("row_right").to_numpy()


def _rows(sample: Sample, rows: np.ndarray, *, learned: bool) -> Sample:
    """Some rows of a sample, its codes counted anew; against the raw return unless `learned`."""
    session, sessions = _again(sample.session_M[rows], sample.sessions)
    symbol, symbols = _again(sample.symbol_M[rows], sample.symbols)
    month, months = _again(sample.month_M[rows], sample.months)
    return Sample(
        pred_M=sample.pred_M[rows],
        y_M=(sample.y_M if learned else sample.raw_M)[rows],
        raw_M=sample.raw_M[rows],
        return_M=sample.return_M[rows],
        kind_M=sample.kind_M[rows],
        session_M=session,
        bar_M=np.unique(sample.bar_M[rows], return_inverse=True)[1],
        symbol_M=symbol,
        month_M=month,
        ts_M=sample.ts_M[rows],
        sessions=sessions,
        symbols=symbols,
        months=months,
        relative=sample.relative and learned,
        horizon=sample.horizon,
    )


def _again(code: np.ndarray, names: tuple[str, ...]) -> tuple[np.ndarray, tuple[str, ...]]:
    found, fresh = np.unique(code, return_inverse=True)
    return fresh, tuple(names[one] for one in found)


def _gap(first: float, second: float, repeats_B: np.ndarray, sessions: int) -> Estimate:
    """An undefined IC (a constant forecast) counts as 0, what it is worth."""
    return estimate(float(np.nan_to_num(first) - np.nan_to_num(second)), np.nan_to_num(repeats_B), sessions=sessions)


def _flip(one: Estimate) -> Estimate:
    return Estimate(-one.value, one.se, one.sessions)


def _decide(ic: Estimate) -> Outcome:
    if ic.sessions < LEAST_SESSIONS:
        return "NOT ENOUGH DATA"
    if ic.above():
        return "A"
    return "B" if _flip(ic).above() else "NO DIFFERENCE"


def _sentence(outcome: Outcome, ic: Estimate, names: tuple[str, str]) -> str:
    size = f"their ICs differ by {ic.value:+.4f} ± {ic.se:.4f} over {ic.sessions} common test sessions"
    if outcome == "NOT ENOUGH DATA":
        return f"{outcome}: {size}, and a comparison needs at least {LEAST_SESSIONS}."
    if outcome == "NO DIFFERENCE" and ic.value == ic.se == 0.0:
        return f"{outcome}: both forecast the same over {ic.sessions} common test sessions."
    if outcome == "NO DIFFERENCE":
        return f"{outcome}: {size}, which is within noise; a difference of {ic.detectable:.4f} would have shown."
    better, worse = names if outcome == "A" else names[::-1]
    return f"{outcome}: {better} beats {worse}: {size}, beyond noise at the {LEVEL:.1%} level."
