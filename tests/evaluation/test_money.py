"""In: hand-made positions. Out: profits, turnover and cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from klinepred.evaluation.money import weigh_money
from klinepred.evaluation.sample import Sample
from tests.evaluation.samples import BAR_US, DAY_US, panel


def _slow(sample: Sample, *, late: bool) -> tuple[float, float, float]:
    """Gross profit, traded value and held value of the relative rule, bar by bar and symbol by symbol."""
    rows = range(sample.rows)
    weights: dict[tuple[int, int], float] = {}
    inside = [i for i in rows if sample.kind_M[i] == 0]
    for ts in sorted({int(sample.ts_M[i]) for i in inside}):
        here = sorted((i for i in inside if sample.ts_M[i] == ts), key=lambda i: sample.pred_M[i])
        third = len(here) // 3
        for i in here[:third]:
            weights[int(sample.symbol_M[i]), ts] = -0.5 / third
        for i in here[len(here) - third :]:
            weights[int(sample.symbol_M[i]), ts] = 0.5 / third
    if late:
        known = {(int(sample.symbol_M[i]), int(sample.ts_M[i])) for i in inside}
        weights = {(s, ts + BAR_US): w for (s, ts), w in weights.items() if (s, ts + BAR_US) in known}
    gross = sum(
        weights.get((int(sample.symbol_M[i]), int(sample.ts_M[i])), 0.0) * (np.exp(sample.return_M[i]) - 1)
        for i in inside
    )
    stamps = {(s, ts + step) for (s, ts) in weights for step in (0, BAR_US)}
    traded = sum(abs(weights.get((s, ts), 0.0) - weights.get((s, ts - BAR_US), 0.0)) for s, ts in stamps)
    return float(gross), traded, sum(abs(w) for w in weights.values())


@pytest.mark.parametrize("late", [False, True], ids=["at the close", "one bar late"])
def test_profit_and_turnover_equal_a_slow_loop(late: bool) -> None:
    sample = panel(5, ic=0.1, sessions=4, bars=6, symbols=7)
    found = weigh_money(sample, cost_bps=2.0)[int(late)]
    gross, traded, held = _slow(sample, late=late)
    assert found.gross_bps == pytest.approx(1e4 * gross / held)
    assert found.turnover == pytest.approx(traded / 4)
    assert found.break_even_bps == pytest.approx(1e4 * gross / traded)
    assert found.net_bps == pytest.approx(1e4 * (gross - 2e-4 * traded) / held)
    assert found.gross_S.sum() == pytest.approx(gross)


def test_at_the_break_even_cost_nothing_is_left() -> None:
    sample = panel(6, ic=0.1)
    cost = weigh_money(sample, cost_bps=0.0)[0].break_even_bps
    assert weigh_money(sample, cost_bps=cost)[0].net_bps == pytest.approx(0.0, abs=1e-9)


def _one_symbol(pred: list[float], returns: list[float], *, gap: bool = False) -> Sample:
    base = panel(0, sessions=1, bars=len(pred) + 1, symbols=1, relative=False)
    ts = np.arange(len(pred) + 1) * BAR_US
    if gap:
        ts[2:] += BAR_US
    log_return = np.append(np.log1p(returns), 0.0)
    return replace(base, pred_M=np.append(pred, 0.0), return_M=log_return, ts_M=ts, bar_M=np.arange(len(ts)))


def test_a_position_that_is_kept_is_traded_twice_only() -> None:
    found = weigh_money(_one_symbol([1.0, 1.0, 1.0], [0.01, -0.005, 0.01]), cost_bps=10.0)[0]
    assert found.turnover == pytest.approx(2.0)
    assert found.gross_bps == pytest.approx(1e4 * 0.015 / 3)
    assert found.break_even_bps == pytest.approx(1e4 * 0.015 / 2)
    assert found.net_bps == pytest.approx(1e4 * (0.015 - 0.001 * 2) / 3)


def test_turning_from_long_to_short_trades_twice_the_position() -> None:
    assert weigh_money(_one_symbol([1.0, -1.0], [0.01, -0.01]), cost_bps=1.0)[0].turnover == pytest.approx(4.0)


def test_a_missing_bar_closes_the_position() -> None:
    assert weigh_money(_one_symbol([1.0, 1.0, 1.0], [0.0, 0.01, 0.0], gap=True), cost_bps=1.0)[0].turnover == 4.0


def test_one_bar_late_earns_the_next_return_and_not_its_own() -> None:
    late = weigh_money(_one_symbol([1.0, 0.0, 0.0], [0.05, 0.01, 0.03]), cost_bps=0.0)[1]
    assert late.trades == 1
    assert late.gross_bps == pytest.approx(100.0)


def test_horizons_over_one_bar_are_round_trips() -> None:
    sample = replace(_one_symbol([1.0, 1.0, 1.0], [0.01, 0.01, 0.01]), horizon=3)
    assert weigh_money(sample, cost_bps=1.0)[0].turnover == pytest.approx(6.0)


def test_constant_forecasts_trade_nothing_in_a_relative_book() -> None:
    sample = panel(7).with_forecast(np.full(panel(7).rows, 0.3))
    for way in weigh_money(sample, cost_bps=1.0):
        assert way.trades == 0
        assert np.isnan(way.gross_bps)
        assert np.isnan(way.break_even_bps)


def test_overnight_steps_earn_nothing() -> None:
    sample = panel(8)
    jumps = np.where(sample.kind_M == 1, 0.5, 0.0)
    first, late = weigh_money(replace(sample, return_M=jumps), cost_bps=0.0)
    assert first.gross_bps == late.gross_bps == 0.0
    assert DAY_US > BAR_US * 13


def _with_opens(sample: Sample, seed: int) -> Sample:
    gaps = 2e-4 * np.random.default_rng(seed).standard_normal(sample.rows)
    return replace(sample, gap_M=np.where(sample.kind_M == 0, gaps, np.nan))


@pytest.mark.parametrize("horizon", [1, 3])
def test_an_order_at_the_next_open_earns_from_open_to_open_as_a_loop_over_prices_does(horizon: int) -> None:
    sample = replace(_with_opens(panel(9, ic=0.1, sessions=3, bars=7, symbols=6), 9), horizon=horizon)
    assert sample.gap_M is not None
    first, found, late = weigh_money(sample, cost_bps=3.0)
    assert [way.entry for way in (first, found, late)] == ["at the close", "at the next open", "one bar late"]
    rows = {(int(sample.symbol_M[i]), int(sample.ts_M[i])): i for i in range(sample.rows) if sample.kind_M[i] == 0}
    weights: dict[tuple[int, int], float] = {}
    for ts in sorted({ts for _, ts in rows}):
        here = sorted((s for s, t in rows if t == ts), key=lambda s: sample.pred_M[rows[s, ts]])
        third = len(here) // 3
        weights |= {(s, ts): -0.5 / third for s in here[:third]} | {(s, ts): 0.5 / third for s in here[-third:]}
    gross = traded = 0.0
    for (symbol, ts), i in rows.items():
        weight, following = weights.get((symbol, ts), 0.0), (symbol, ts + BAR_US)
        close_here = 100.0
        bought = close_here * np.exp(sample.gap_M[i])
        sold = close_here * np.exp(sample.return_M[i])  # the close of bar t+h
        if horizon == 1 and following in rows:
            sold *= np.exp(sample.gap_M[rows[following]])  # kept until the next order can be filled
        gross += weight * (sold / bought - 1.0)
        if horizon == 1:
            traded += abs(weight - weights.get((symbol, ts - BAR_US), 0.0))
            traded += abs(weight) if following not in rows else 0.0
        else:
            traded += 2 * abs(weight)
    held = sum(abs(weight) for weight in weights.values())
    assert found.gross_bps == pytest.approx(1e4 * gross / held)
    assert found.turnover == pytest.approx(traded / 3)
    assert found.net_bps == pytest.approx(1e4 * (gross - 3e-4 * traded) / held)


def test_what_the_close_contains_already_is_not_earned_at_the_next_open() -> None:
    base = panel(10, sessions=10)
    known = base.return_M * 0.9  # nine tenths of the move has happened when the next bar opens
    sample = replace(base, pred_M=base.return_M, gap_M=np.where(base.kind_M == 0, known, np.nan))
    close, opened, _ = weigh_money(replace(sample, horizon=2), cost_bps=0.0)
    assert opened.gross_bps < 0.15 * close.gross_bps
