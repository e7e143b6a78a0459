"""In: a `Sample`. Out: the chance that forecasts dealt to the wrong sessions do as well: a permutation p-value."""

# Shapes: M rows, S sessions, J cells of a session (a symbol at one bar), R permutations.

from __future__ import annotations

from typing import Final

import numpy as np

from klinepred.evaluation.sample import Sample
from klinepred.evaluation.significance import correlation

REPEATS: Final = 999
CELLS: Final = 4_000_000
"""Values of sessions x cells held at once."""


def permutation_p(sample: Sample, *, seed: int, repeats: int = REPEATS) -> float:
    """One-sided p-value of "which session a forecast was made for does not matter", by the pooled IC.

    Whole sessions of forecasts are dealt to other sessions, each forecast staying with its symbol and its bar of the
    session, so that what is alike on every day (the open, a symbol that is always forecast high) is no merit, and the
    dependence within a session stays as it is. Where a session lacks a cell (a half day, a gap) the pair is left out.
    p = (1 + as good or better) / (1 + repeats), never 0 (Phipson and Smyth 2010, Permutation P-values Should Never Be
    Zero). NaN with fewer than five sessions or an IC that is not defined.
    """
    sessions = len(sample.sessions)
    if sessions < 5:
        return float("nan")
    sums_6SS = _pairs(sample, sessions)
    here_S = np.arange(sessions)
    found = float(correlation(sums_6SS[:, here_S, here_S].sum(axis=1)))
    if not np.isfinite(found):
        return float("nan")
    chance = np.random.default_rng(seed)
    dealt_RS = chance.permuted(np.tile(here_S, (repeats, 1)), axis=1)
    dealt_R = correlation(sums_6SS[:, dealt_RS, here_S].sum(axis=2).T)
    return float((1 + np.count_nonzero(dealt_R >= found - 1e-12)) / (1 + repeats))


def _pairs(sample: Sample, sessions: int) -> np.ndarray:
    """[6, S, S] of what a correlation needs (`correlation_sums`) of the forecasts of one session and the outcomes of
    another, over the cells that both have."""
    pred_M = sample.pred_M - sample.pred_M.mean()
    y_M = sample.y_M - sample.y_M.mean()
    place_M, places = _places(sample, sessions)
    out = np.zeros((6, sessions, sessions))
    block = max(1, CELLS // max(1, sessions * places))
    for low in range(0, len(sample.symbols), block):
        mine_M = (sample.symbol_M >= low) & (sample.symbol_M < low + block)
        cell = (sample.symbol_M[mine_M] - low) * places + place_M[mine_M]
        shape, at = (sessions, block * places), (sample.session_M[mine_M], cell)
        there, pred, y = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        there[at], pred[at], y[at] = 1.0, pred_M[mine_M], y_M[mine_M]
        for number, (left, right) in enumerate(
            ((there, there), (pred, there), (there, y), (pred**2, there), (there, y**2), (pred, y))
        ):
            out[number] += left @ right.T
    return out


def _places(sample: Sample, sessions: int) -> tuple[np.ndarray, int]:
    """Of each row the number of its bar within its session and kind of step; how many numbers there are."""
    key_M = (sample.kind_M.astype(np.int64) * sessions + sample.session_M) * np.int64(1 << 40)
    first_M = sample.ts_M // 1_000_000
    stamps_G, group_M = np.unique(key_M + first_M, return_inverse=True)
    owner_G = stamps_G >> 40
    starts_G = np.concatenate([[True], owner_G[1:] != owner_G[:-1]])
    begin_G = np.maximum.accumulate(np.where(starts_G, np.arange(stamps_G.size), 0))
    place_G = np.arange(stamps_G.size) - begin_G
    kind_G = owner_G // sessions
    within = int(place_G[kind_G == 0].max(initial=-1)) + 1
    place_G = np.where(kind_G == 0, place_G, within + place_G)
    return place_G[group_M], int(place_G.max(initial=-1)) + 1
