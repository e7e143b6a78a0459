"""In: panels with and without a signal. Out: the permutation p-value equals a slow deal by hand, and is calibrated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from klinepred.evaluation import permutation
from klinepred.evaluation.permutation import permutation_p
from klinepred.evaluation.sample import Sample
from tests.evaluation.samples import panel


def by_hand(sample: Sample, *, seed: int, repeats: int) -> float:
    """Forecasts of one session put onto another, row by row, by symbol, kind of step and number of the bar."""
    number: dict[int, tuple[int, int]] = {}
    for session in range(len(sample.sessions)):
        for kind in (0, 1):
            mine = (sample.session_M == session) & (sample.kind_M == kind)
            for place, ts in enumerate(sorted({int(ts) for ts in sample.ts_M[mine]})):
                number[ts] = (kind, place)
    rows = {
        (int(session), int(symbol), number[int(ts)]): (float(pred), float(y))
        for session, symbol, ts, pred, y in zip(
            sample.session_M, sample.symbol_M, sample.ts_M, sample.pred_M, sample.y_M, strict=True
        )
    }

    def correlation(dealt: list[int]) -> float:
        pairs = []
        for (session, symbol, place), (_, y) in rows.items():
            other = rows.get((dealt[session], symbol, place))
            if other is not None:
                pairs.append((other[0], y))
        a, b = np.array(pairs).T
        return float(np.corrcoef(a, b)[0, 1])

    here = list(range(len(sample.sessions)))
    found = correlation(here)
    deals = np.random.default_rng(seed).permuted(np.tile(here, (repeats, 1)), axis=1)
    return (1 + sum(correlation(deal.tolist()) >= found - 1e-12 for deal in deals)) / (1 + repeats)


def test_it_equals_a_deal_by_hand_with_half_days_and_gaps() -> None:
    sample = panel(3, ic=0.1, sessions=7, bars=6, symbols=4)
    chance = np.random.default_rng(1)
    keep = (chance.random(sample.rows) > 0.1) & ~((sample.session_M == 2) & (sample.ts_M % 86_400_000_000 > 9e8))
    names = ("pred_M", "y_M", "raw_M", "return_M", "kind_M", "session_M", "bar_M", "symbol_M", "month_M", "ts_M")
    sample = replace(sample, **{name: getattr(sample, name)[keep] for name in names})
    assert permutation_p(sample, seed=5, repeats=60) == by_hand(sample, seed=5, repeats=60)


def test_symbols_in_blocks_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = panel(4, ic=0.05, sessions=8)
    whole = permutation_p(sample, seed=1, repeats=99)
    monkeypatch.setattr(permutation, "CELLS", 1)
    assert permutation_p(sample, seed=1, repeats=99) == whole


def test_a_signal_is_found_and_the_smallest_value_is_not_zero() -> None:
    assert permutation_p(panel(1, ic=0.2, sessions=20), seed=7) == 0.001


def test_noise_has_every_p_value_as_often_as_another() -> None:
    found = np.array([permutation_p(panel(seed, sessions=10), seed=seed, repeats=99) for seed in range(200)])
    # 200 draws of a uniform: the share below 0.1 is 0.1 with a standard deviation of 0.021
    assert 0.03 < (found <= 0.1).mean() < 0.18
    assert 0.4 < found.mean() < 0.6


def test_what_is_alike_every_day_is_no_merit() -> None:
    """A forecast that is always high for one symbol and at one bar, where outcomes are always high: any day fits."""
    sample = panel(2, sessions=12)
    daily = (sample.symbol_M == 0) * 2.0 + (sample.ts_M % 86_400_000_000 == 0) * 1.0
    sample = replace(sample, pred_M=daily + 0.0, y_M=sample.y_M + daily)
    assert permutation_p(sample, seed=1) == 1.0


def test_it_is_not_defined_for_few_sessions_or_a_constant_forecast() -> None:
    assert np.isnan(permutation_p(panel(1, sessions=4), seed=1))
    assert np.isnan(permutation_p(panel(1, forecast=np.ones(20 * 13 * 8)), seed=1))
