"""In: a `Sample`. Out: `Money`: what simple positions on the forecasts would have earned, before and after cost."""

# Shapes: M rows of the test part, R rows within a session, S sessions.

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from klinepred.dataset.target import QUORUM, WITHIN
from klinepred.evaluation.sample import Sample
from klinepred.evaluation.significance import deflated_sharpe
from klinepred.metrics import group_ranks
from klinepred.schema import BAR_US

CLOSE, OPEN, LATE = ("at the close", "at the next open", "one bar late")


@dataclass(frozen=True)
class Money:
    """Profit of one way to enter. NaN = nothing was traded, or a single session.

    Attributes
    ----------
    entry
        `at the close`: held from the close of bar t, the very price that ends the forecast's input, to the close of
        t+h. A real order is filled at the open of t+1 or later, so this flatters, most of all where closes jump
        between bid and ask. `at the next open`: from the open of t+1 to the close of t+h, and, where the next bar has
        a forecast too, on to its open, at which the position is changed (h = 1). `one bar late`: the same position
        over the step after, from the close of t+1 to that of t+1+h; certainly possible.
    trades
        Positions of one symbol over one step.
    gross_bps
        Mean profit per unit of position and step, basis points (1e-4).
    turnover
        Traded value (buys and sells) per unit of capital and session; gross exposure is at most 1.
    break_even_bps
        Cost of one side, in basis points of the traded value, at which nothing is left.
    net_bps
        `gross_bps` after `cost_bps` a side.
    gross_t
        Mean over standard error of the sessions' gross profits.
    sharpe
        Mean over standard deviation of the sessions' net profits, per session.
    deflated_sharpe
        Probability that it is truly above what the best of all looks would show by luck; see
        `klinepred.evaluation.significance.deflated_sharpe`.
    """

    entry: str
    trades: int
    gross_bps: float
    turnover: float
    break_even_bps: float
    net_bps: float
    cost_bps: float
    gross_t: float
    sharpe: float
    deflated_sharpe: float
    gross_S: np.ndarray
    net_S: np.ndarray

    def to_dict(self) -> dict[str, Any]:
        """Plain values without the series; NaN stays NaN."""
        table = asdict(self)
        del table["gross_S"], table["net_S"]
        return table


def weigh_money(sample: Sample, *, cost_bps: float, looks: int = 1) -> tuple[Money, ...]:
    """Trade the forecasts within sessions, entered at the close, at the next open where opens are known, and one bar
    late. The second is the earliest that can be had.

    Steps across a break are left out: their return is mostly the jump before the next open, which an order at that
    open does not get. At every bar capital 1 is spread: for a relative target long the top third of the forecasts and
    short the bottom third, equally, half each (at least five symbols, else nothing); for a raw target every symbol
    long or short by the sign of its forecast, equally. A position that the next bar repeats is kept, not traded; all
    are closed at the end of a session. For a horizon over one bar every position is its own round trip. Position
    sizes are reset every bar at no cost; cost is proportional, without impact.
    """
    keep_M = (sample.kind_M == WITHIN) & np.isfinite(sample.return_M)
    if sample.gap_M is not None:
        keep_M &= np.isfinite(sample.gap_M)
    pred_R, bar_R = sample.pred_M[keep_M], sample.bar_M[keep_M]
    symbol_R, ts_R = sample.symbol_M[keep_M], sample.ts_M[keep_M]
    weight_R = _thirds(pred_R, bar_R) if sample.relative else _signs(pred_R, bar_R)
    follows_R = np.zeros(weight_R.size, dtype=bool)
    follows_R[1:] = (symbol_R[1:] == symbol_R[:-1]) & (ts_R[1:] - ts_R[:-1] == BAR_US)
    late_R = np.zeros_like(weight_R)
    late_R[1:] = np.where(follows_R[1:], weight_R[:-1], 0.0)
    log_R = sample.return_M[keep_M]
    session_R, sessions = sample.session_M[keep_M], len(sample.sessions)
    ways = [(CLOSE, weight_R, log_R), (LATE, late_R, log_R)]
    if sample.gap_M is not None:
        ways.insert(1, (OPEN, weight_R, _from_open(log_R, sample.gap_M[keep_M], follows_R, horizon=sample.horizon)))
    return tuple(
        _account(entry, held_R, np.expm1(made_R), follows_R, session_R, sessions, sample.horizon, cost_bps, looks)
        for entry, held_R, made_R in ways
    )


def _from_open(log_R: np.ndarray, gap_R: np.ndarray, follows_R: np.ndarray, *, horizon: int) -> np.ndarray:
    """Log returns from the next open; over one bar to the open at which the next forecast is acted on, if one is."""
    made_R: np.ndarray = log_R - gap_R
    if horizon == 1 and log_R.size:
        made_R[:-1] += np.where(follows_R[1:], gap_R[1:], 0.0)
    return made_R


def _thirds(pred_R: np.ndarray, bar_R: np.ndarray) -> np.ndarray:
    """+-1/2 shared by the top and the bottom third of each bar; nothing where ties leave one side empty."""
    if pred_R.size == 0:
        return np.zeros(0)
    rank_R, count_G = group_ranks(pred_R, bar_R), np.bincount(bar_R)
    size_R = count_G[bar_R]
    third_R = size_R // 3
    long_R, short_R = rank_R > size_R - third_R, rank_R < third_R + 1
    longs_R = np.bincount(bar_R, weights=long_R)[bar_R]
    shorts_R = np.bincount(bar_R, weights=short_R)[bar_R]
    both_R = (size_R >= QUORUM) & (longs_R > 0) & (shorts_R > 0)
    weight_R = 0.5 * long_R / np.maximum(longs_R, 1.0) - 0.5 * short_R / np.maximum(shorts_R, 1.0)
    return np.where(both_R, weight_R, 0.0)


def _signs(pred_R: np.ndarray, bar_R: np.ndarray) -> np.ndarray:
    if pred_R.size == 0:
        return np.zeros(0)
    weights: np.ndarray = np.sign(pred_R) / np.bincount(bar_R)[bar_R]
    return weights


def _account(
    entry: str,
    weight_R: np.ndarray,
    return_R: np.ndarray,
    follows_R: np.ndarray,
    session_R: np.ndarray,
    sessions: int,
    horizon: int,
    cost_bps: float,
    looks: int,
) -> Money:
    if horizon == 1:
        before_R = np.zeros_like(weight_R)
        before_R[1:] = np.where(follows_R[1:], weight_R[:-1], 0.0)
        last_R = np.append(~follows_R[1:], True)[: weight_R.size]
        traded_R = np.abs(weight_R - before_R) + np.where(last_R, np.abs(weight_R), 0.0)
    else:
        traded_R = 2.0 * np.abs(weight_R)
    gross_S = np.bincount(session_R, weights=weight_R * return_R, minlength=sessions)
    traded_S = np.bincount(session_R, weights=traded_R, minlength=sessions)
    held, traded, gross = float(np.abs(weight_R).sum()), float(traded_R.sum()), float(gross_S.sum())
    net_S = gross_S - cost_bps * 1e-4 * traded_S
    spread, net_spread = (float(profit_S.std(ddof=1)) if sessions > 1 else 0.0 for profit_S in (gross_S, net_S))
    nan = float("nan")
    return Money(
        entry=entry,
        trades=int(np.count_nonzero(weight_R)),
        gross_bps=1e4 * gross / held if held else nan,
        turnover=traded / sessions if traded else nan,
        break_even_bps=1e4 * gross / traded if traded else nan,
        net_bps=1e4 * float(net_S.sum()) / held if held else nan,
        cost_bps=cost_bps,
        gross_t=float(gross_S.mean()) / spread * sessions**0.5 if spread > 0.0 else nan,
        sharpe=float(net_S.mean()) / net_spread if net_spread > 0.0 else nan,
        deflated_sharpe=deflated_sharpe(net_S, looks=looks),
        gross_S=gross_S,
        net_S=net_S,
    )
