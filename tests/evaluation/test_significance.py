"""In: sums by session. Out: standard errors of closed forms and simulation, Student's t as scipy has it."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from klinepred.evaluation.significance import (
    LEVEL,
    Estimate,
    correlation,
    correlation_repeats,
    correlation_sums,
    deflated_sharpe,
    draw_sessions,
    estimate,
    level_of,
    ratio_repeats,
    student_quantile,
    student_tail,
)
from klinepred.metrics import ic


@pytest.mark.parametrize("df", [1, 2, 3, 4, 9, 10, 57, 1000])
@pytest.mark.parametrize("t", [-4.0, -0.5, 0.0, 0.7, 1.96, 6.0])
def test_students_tail_equals_scipy(df: int, t: float) -> None:
    assert student_tail(t, df=df) == pytest.approx(stats.t.sf(t, df), abs=1e-12)


@pytest.mark.parametrize("df", [2, 9, 40, 5000])
@pytest.mark.parametrize("level", [0.025, 0.9, 0.975])
def test_students_quantile_equals_scipy(df: int, level: float) -> None:
    assert student_quantile(level, df=df) == pytest.approx(stats.t.ppf(level, df), rel=1e-3 if df > 1000 else 1e-9)


def test_sums_by_session_give_the_pooled_correlation() -> None:
    generator = np.random.default_rng(0)
    a, session = generator.standard_normal(1000) + 50.0, generator.integers(0, 7, 1000)
    b = 0.2 * a + generator.standard_normal(1000)
    sums = correlation_sums(a, b, session, sessions=7)
    assert float(correlation(sums.sum(axis=0))) == pytest.approx(ic(a, b), abs=1e-12)


def test_a_repeat_equals_the_correlation_of_the_rows_drawn() -> None:
    generator = np.random.default_rng(1)
    a, b, session = generator.standard_normal(300), generator.standard_normal(300), np.repeat(np.arange(10), 30)
    draws = draw_sessions(10, repeats=5, seed=3)
    found = correlation_repeats(correlation_sums(a, b, session, sessions=10), draws)
    for times, value in zip(draws, found, strict=True):
        rows = np.concatenate([np.tile(np.flatnonzero(session == day), int(n)) for day, n in enumerate(times)])
        assert value == pytest.approx(stats.pearsonr(a[rows], b[rows]).statistic, abs=1e-12)


def test_the_error_of_independent_rows_is_the_analytic_one() -> None:
    generator = np.random.default_rng(2)
    rows, rho = 20_000, 0.1
    a = generator.standard_normal(rows)
    b = rho * a + np.sqrt(1 - rho**2) * generator.standard_normal(rows)
    sums = correlation_sums(a, b, np.repeat(np.arange(200), 100), sessions=200)
    repeats = correlation_repeats(sums, draw_sessions(200, repeats=2000, seed=1))
    assert estimate(ic(a, b), repeats, sessions=200).se == pytest.approx((1 - rho**2) / np.sqrt(rows), rel=0.12)


def test_rows_that_repeat_within_a_session_are_not_counted_twice() -> None:
    generator = np.random.default_rng(3)
    a, b = generator.standard_normal(300), generator.standard_normal(300)
    session = np.repeat(np.arange(300), 50)
    sums = correlation_sums(np.repeat(a, 50), np.repeat(b, 50), session, sessions=300)
    repeats = correlation_repeats(sums, draw_sessions(300, repeats=2000, seed=1))
    assert estimate(ic(a, b), repeats, sessions=300).se == pytest.approx(1 / np.sqrt(300), rel=0.15)


def test_the_error_of_a_mean_over_sessions_is_the_analytic_one() -> None:
    values = np.random.default_rng(4).standard_normal(400)
    repeats = ratio_repeats(values, np.ones(400), draw_sessions(400, repeats=4000, seed=1))
    found = estimate(float(values.mean()), repeats, sessions=400)
    assert found.se == pytest.approx(values.std(ddof=1) / 20.0, rel=0.05)


def test_draws_are_seeded_and_draw_every_session_count() -> None:
    first, second = draw_sessions(12, repeats=50, seed=5), draw_sessions(12, repeats=50, seed=5)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first.sum(axis=1), np.full(50, 12.0))
    assert not np.array_equal(first, draw_sessions(12, repeats=50, seed=6))


def test_the_detectable_size_is_found_with_the_stated_power() -> None:
    sessions, se = 15, 0.02
    detectable = Estimate(0.0, se, sessions).detectable
    generator = np.random.default_rng(6)
    rounds = 20_000
    values = detectable + se * generator.standard_normal(rounds)
    errors = se * np.sqrt(generator.chisquare(sessions - 1, rounds) / (sessions - 1))
    found = np.mean(values / errors > stats.t.ppf(0.975, sessions - 1))
    assert found == pytest.approx(0.9, abs=0.03)


def test_an_undefined_value_is_never_above_anything() -> None:
    for bad in (Estimate(float("nan"), 0.1, 20), Estimate(0.5, float("nan"), 20), Estimate(0.5, 0.1, 1)):
        assert not bad.above()
        assert np.isnan(bad.p_above())
    assert Estimate(0.5, 0.0, 20).above()
    assert not Estimate(0.0, 0.0, 20).above()


def test_the_level_of_many_looks_leaves_the_same_chance_of_one_lucky_pass() -> None:
    assert level_of(1) == pytest.approx(LEVEL, rel=1e-12)
    assert level_of(0) == level_of(1)
    for looks in (2, 10, 500):
        assert 1.0 - (1.0 - level_of(looks)) ** looks == pytest.approx(LEVEL, rel=1e-9)
    assert level_of(10) == pytest.approx(0.0025286, abs=1e-7)


def test_one_look_deflates_nothing() -> None:
    """The probabilistic Sharpe ratio of profits with mean 0.1, deviation 1, no skew and kurtosis 1, by hand."""
    profit = np.tile([1.1, -0.9], 50)  # mean 0.1, population deviation 1, kurtosis 1
    sharpe = 0.1 / (1.0 * np.sqrt(100 / 99))
    assert deflated_sharpe(profit, looks=1) == pytest.approx(NormalDist().cdf(sharpe * np.sqrt(99)), rel=1e-12)


def test_many_looks_ask_for_what_the_best_of_them_would_show_by_luck() -> None:
    """The largest of N ratios of noise, simulated, is what the ratio is measured against."""
    chance = np.random.default_rng(1)
    draws = chance.standard_normal((400, 50, 250))  # 400 times the best of 50 tries over 250 sessions
    ratios = draws.mean(axis=2) / draws.std(axis=2, ddof=1)
    best = float(ratios.max(axis=1).mean())
    series = chance.standard_normal(250)
    series = (series - series.mean()) / series.std(ddof=1) + best
    assert deflated_sharpe(series, looks=50) == pytest.approx(0.5, abs=0.03)
    assert deflated_sharpe(series, looks=1) > 0.97


def test_a_sharpe_ratio_of_nothing_is_not_defined() -> None:
    for profit in ([], [1.0, 2.0], [0.5] * 10):
        assert np.isnan(deflated_sharpe(np.array(profit), looks=3))
